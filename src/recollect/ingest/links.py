"""Links between notes: those that a Markdown text contains, and the file that each one means.

Nothing of it is stored: the links are read from the texts of the chunks whenever they are asked for.
"""

from __future__ import annotations

import json
import posixpath
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote

from recollect.ingest.markdown import block_parser
from recollect.types.records import FRONT_MATTER, MARKDOWN, Record

FOLDER_NOTES = ("index", "readme")  # notes that a link to their folder means

_WIKILINK = re.compile(r"\[\[([^\[\]\n]+)\]\]")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)  # the beginning of an address that is no path
_WORD = re.compile(r"[A-Za-z0-9]+")
# `implements [[Search]] (in part)` as an item of a list, and the field of Dataview `implements:: [[Search]]`
_RELATION = re.compile(r"""(?:"([^"\n]+)"|'([^'\n]+)'|(\w[\w./-]*):?)\s+\[\[[^\[\]\n]+\]\](?:\s*\([^\n]*\))?\s*""")
_PROPERTY = re.compile(r"[^\s#:-][^:]*:(\s|$)|\s*$|\s*-\s")  # a line of front matter
_FIELD = re.compile(r"\s*(\w[^:\[\]()\n]*)::\s")


@dataclass(frozen=True, slots=True)
class NoteLink:
    """A link of a note: the file and the heading that it names, and the text and the line where it stands.

    An embedded note (`![[Note]]`) is a link, too; `embeds` tells it apart, because it is more often an image. A link
    that is an item of a list or a field of its own may have a `relation`: `- implements [[Search]]`.
    """

    target: str
    heading: str
    written: str
    line: int
    is_wikilink: bool = False
    embeds: bool = False
    relation: str = ""


@lru_cache(256)  # a server is asked about notes that the same notes link to
def links_of(text: str) -> tuple[NoteLink, ...]:
    """The links of a Markdown text to other files, in order. Code, comments and web addresses have none."""
    return tuple(_links_of(text))


def _links_of(text: str) -> Iterator[NoteLink]:
    parser, line, before = block_parser(read_wikilink), 0, ["", ""]
    env: dict[str, Any] = {}  # the definitions of links
    for token in parser.parse(text, env):
        line = token.map[0] if token.map else line  # the cells of a table have no line of their own
        if token.type == "inline" and "[" in token.content:
            children: list[Any] = []
            parser.inline.parse(token.content, parser, env, children)
            relations = [_relation(one) for one in token.content.split("\n")]
            if before[0] == "list_item_open" and (match := _RELATION.fullmatch(token.content.partition("\n")[0])):
                relations[0] = match[1] or match[2] or match[3]
            for link in _links(children, line + 1):
                yield replace(link, relation=relations[link.line - line - 1])
        before = [before[1], token.type]


def _relation(line: str) -> str:
    """The name of the field that a line is; else an empty text."""
    match = _FIELD.match(line)
    return match[1].strip() if match else ""


def _links(tokens: list[Any], line: int) -> Iterator[NoteLink]:
    for at, token in enumerate(tokens):
        if token.type in ("softbreak", "hardbreak"):
            line += 1
        elif token.type == "wikilink":
            path, heading, _ = wikilink(token.content)
            if path:
                yield NoteLink(path, heading, token.markup, line, True, token.markup.startswith("!"))
        elif token.type == "link_open" and not _ELSEWHERE.match(address := str(token.attrs["href"])):
            path, _, heading = address.partition("#")
            if path := unquote(path.partition("?")[0]):
                yield NoteLink(path, unquote(heading), f"[{_label(tokens, at)}]({unquote(address)})", line)


def wikilink(content: str) -> tuple[str, str, str]:
    """The file, the heading and the label of a wikilink `[[file#heading|label]]`."""
    name, _, label = content.partition("|")
    name = name.rstrip("\\")  # in a table, the bar is written `\|`
    path, _, heading = name.partition("#")
    return path.strip(), heading.strip(), label.strip() or name.strip()


def _label(tokens: list[Any], at: int) -> str:
    """The text of the link that begins at a token."""
    end = next(place for place in range(at, len(tokens)) if tokens[place].type == "link_close")
    return "".join(token.content or " " * token.type.endswith("break") for token in tokens[at:end])


def read_wikilink(state: Any, silent: bool) -> bool:
    """The rule of the inline parser for `[[…]]`, also after an exclamation mark."""
    match = _WIKILINK.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    if not silent:
        embeds = state.pending.endswith("!")
        state.pending = state.pending.removesuffix("!")
        token = state.push("wikilink", "", 0)
        token.content = match[1]
        token.markup = "!" * embeds + match[0]
    state.pos = match.end()
    return True


class _Name(NamedTuple):
    """One way to name a file: its folded path, `order` among the ways, and the file."""

    folded: str
    order: int
    path: str


class LinkTargets:
    """Finds the file that a link means, among some files: path → the folder with which it was indexed, and the title.

    A wikilink names a file as in Obsidian: by its name, or by the end of its path, without the suffix of Markdown, in
    upper or lower case. If several files could be meant, those of the same indexed folder come first, then the shortest
    path. If there is none, it names a note by its title, as in basic-memory, or else by one of its aliases. A Markdown
    link is a path from the folder of the note, or from the indexed folder if it begins with `/`. If no file is there,
    such a path from the top, and a name alone, are looked for as those of a wikilink.
    """

    def __init__(self, files: Mapping[str, tuple[str, str]]) -> None:
        self._roots = {path: root for path, (root, _) in files.items()}
        self._names: dict[str, list[_Name]] = {}
        self._titled: dict[str, list[str]] = {}
        self._aliases: dict[str, set[str]] = {}
        for path, (_, title) in files.items():
            self._titled.setdefault(fold_path(title), []).append(path)
            for order, name in enumerate(names_of(path)):
                self._names.setdefault(posixpath.basename(name), []).append(_Name(name, order, path))

    def add_alias(self, alias: str, path: str) -> None:
        """Note that a file has an alias."""
        if path in self._roots:
            self._aliases.setdefault(fold_path(alias), set()).add(path)

    def find(self, link: NoteLink, source: str | None) -> str | None:
        """The path of the file that a link in the file `source` means; None if there is none."""
        path = self._by_path(link, source)
        if path is None and link.is_wikilink:
            root, name = self._roots.get(source or ""), fold_path(link.target)
            named: Iterable[str] = self._titled.get(name) or self._aliases.get(name) or ()
            path = min(named, key=lambda each: (self._roots[each] != root, each.count("/"), each), default=None)
        return path

    def _by_path(self, link: NoteLink, source: str | None) -> str | None:
        target, beside = fold_path(link.target).rstrip("/"), link.target.startswith(("./", "../"))
        if posixpath.basename(target) in ("", ".", ".."):
            return None  # a folder that is not named
        from_top, name = target.startswith("/"), posixpath.normpath(target).lstrip("/")
        if source and (from_top or beside or not link.is_wikilink):
            folder = self._roots.get(source, "") if from_top else posixpath.dirname(source)
            place = posixpath.normpath(posixpath.join(fold_path(folder), name))
            if path := self._best(place, source, whole=True):
                return path
            beside = not from_top and (beside or "/" in name)
        return None if beside else self._best(name, source)

    def _best(self, name: str, source: str | None, *, whole: bool = False) -> str | None:
        """The file with this folded path, or one whose path ends with it."""
        root = self._roots.get(source or "")
        candidates = [
            (each.order, self._roots[each.path] != root, each.path.count("/"), each.path)
            for each in self._names.get(posixpath.basename(name), ())
            if each.folded == name or (not whole and each.folded.endswith(f"/{name}"))
        ]
        return min(candidates)[-1] if candidates else None


def names_of(path: str) -> list[str]:
    """The folded paths that name a file: its own, the one without a suffix of Markdown, a folder's for its index."""
    whole = PurePosixPath(fold_path(path))
    if whole.suffix not in MARKDOWN:
        return [str(whole)]
    short = whole.with_suffix("")
    return [str(whole), str(short), *([str(whole.parent)] if short.name in FOLDER_NOTES else [])]


def fold_path(path: str) -> str:
    """A path in which case and the two ways to write an accent make no difference."""
    return unicodedata.normalize("NFC", path).casefold()


def words_for(path: str, *titles: str) -> set[str]:
    """Words of which every text that links to a file contains one: the longest in ASCII of each of its names."""
    note = PurePosixPath(unicodedata.normalize("NFC", path))
    return words_of([note.stem, *([note.parent.name] if note.stem.lower() in FOLDER_NOTES else []), *titles])


def words_of(names: Iterable[str]) -> set[str]:
    """The longest word in ASCII of each name.

    Letters beyond ASCII may be written in several ways, so a name without others has the empty word.
    """
    written = (unicodedata.normalize("NFC", name) for name in names if name)
    return {max(_WORD.findall(name), key=len, default="").lower() for name in written}


def may_link(path: str, *titles: str) -> re.Pattern[str]:
    """A pattern for texts, as `destinations` writes them, that may link to a file; most others do not match."""
    called = (*map(posixpath.basename, names_of(path)), *map(fold_path, titles))
    names = "|".join(re.escape(name) for name in called if name)
    return re.compile(rf"(?:\[\[|[/(<]|\]:)\s*(?:{names})/?\s*(?:[\]|#)>?\"'\s]|$)")


def front_matter_of(record: Record) -> list[str]:
    """The lines of front matter with which a chunk begins: the properties above the first other line of its text.

    The first line of a file is the mark that begins its front matter, and in no chunk.
    """
    lines = record.text.split("\n")
    if record.place == FRONT_MATTER:
        return lines
    begins = record.path and record.path.lower().endswith(MARKDOWN) and record.lines and record.lines[0] > 1
    return list(takewhile(_PROPERTY.match, lines)) if begins else []


def aliases_of(records: Iterable[Record]) -> Iterator[tuple[str, str]]:
    """The aliases of notes with their paths, from the chunks that hold front matter. What is no list has none."""
    for record in records:
        for line in front_matter_of(record) if record.path else ():
            if line.startswith("aliases: "):
                with suppress(ValueError, RecursionError):
                    names = json.loads(line.removeprefix("aliases: "))
                    listed = names if isinstance(names, list) else []
                    yield from ((name, record.path) for name in listed if isinstance(name, str) and record.path)


def destinations(text: str) -> str:
    """A text in which a destination is written as `names_of` writes it, however it is escaped."""
    return fold_path(unquote(text.replace("\\", "")))
