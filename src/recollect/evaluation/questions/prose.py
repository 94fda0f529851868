"""What a chunk of a note says, as a reader sees it: headings, sentences and links, without markup and without code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from recollect.ranking import fold

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")
_HEADING = re.compile(r"(#{1,6})[ \t]+(.+?)[ \t]*#*[ \t]*$")
_LIST = re.compile(r"[ \t]*(?:[-*+•]|\d+[.)])[ \t]+(?:\[[ xX]\][ \t]+)?")
_LINK = re.compile(
    r"(?<!!)\[\[(?P<wiki>[^\[\]|]+)(?:\|(?P<alias>[^\[\]]+))?\]\]"
    r"|(?<!!)\[(?P<text>[^\[\]]+)\](?:\((?P<target>[^()\s]+)(?:[ \t]+\"[^\"]*\")?\)|\[(?P<label>[^\[\]]*)\]|(?![\[(:]))"
)
"""`[[Target|words]]`, `[words](target)`, `[words][label]`, `[label]`."""

_DEFINITION = re.compile(r" {0,3}\[([^\[\]^][^\[\]]*)\]:[ \t]*<?([^\s<>]+)>?.*")
_EMBEDDED = re.compile(r"!\[\[[^\]]*\]\]|!\[[^\]]*\]\([^)]*\)|<[^<>\s][^<>]*>|\[\^[^\]]*\]|https?://\S+")
_EMPHASIS = re.compile(r"(?<![\w`])([*_]{1,3})(?=\S)(.+?)(?<=\S)\1(?!\w)|(~~|==)(.+?)\3")
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"”’)]*\s+(?=[\"“‘(]*[^\W\d_a-zß-öø-ÿ]|\d)|(?<=[。！？])")
_NO_END = re.compile(
    r"(?:\b(?:[A-Za-zÄÖÜäöü]|[Dd]r|[Mm]rs?|[Nn]r|[Nn]o|[Pp]rof|[Ss]t|bzw|ca|cf|etc|vs)|e\.g|i\.e|z\.B)\.$"
)


@dataclass(frozen=True, slots=True)
class Link:
    """A link: its words (empty where it has none of its own), where it leads, how it was written, what is around it."""

    text: str
    target: str
    wiki: bool
    before: str
    after: str
    alone: bool


def headings(text: str) -> list[str]:
    """The headings in a chunk, in order."""
    return [plain(match[2]) for line in _outside_code(text) if (match := _HEADING.match(line))]


def sentences(text: str) -> list[str]:
    """The sentences of a chunk, without markup; headings, tables, quoted code and what stands inside it are none."""
    return [plain(sentence) for paragraph in _paragraphs(text) for sentence in _split(paragraph)]


def definitions(text: str) -> dict[str, str]:
    """Where the labels of a note lead: `[label]: target`."""
    found = (match for line in _outside_code(text) if (match := _DEFINITION.fullmatch(line)))
    return {fold(match[1]): match[2] for match in found}


def links(text: str, labels: Mapping[str, str]) -> Iterator[Link]:
    """The links of a chunk, each with the sentence around it; `labels` are the definitions of its file."""
    for paragraph in _paragraphs(text):
        for sentence in _split(paragraph):
            found = [(match, target) for match in _LINK.finditer(sentence) if (target := _target(match, labels))]
            for match, target in found:
                words = plain(match["alias"] or match["text"] or "")
                before, after = _bare(sentence[: match.start()]), _bare(sentence[match.end() :])
                yield Link(words, target, match["wiki"] is not None, before, after, len(found) == 1)


def _target(match: re.Match[str], labels: Mapping[str, str]) -> str:
    return match["wiki"] or match["target"] or labels.get(fold(match["label"] or match["text"]), "")


def _bare(text: str) -> str:
    return plain(text).strip(" .,:;()!?…→-")


def plain(text: str) -> str:
    """A line as it is read: links as their words, no images, marks or code quotes."""
    shown = _LINK.sub(lambda match: match["alias"] or match["text"] or match["wiki"], _EMBEDDED.sub(" ", text))
    for _ in range(2):  # bold inside italics
        shown = _EMPHASIS.sub(lambda match: match[2] or match[4], shown)
    return " ".join(shown.replace("`", "").split())


def _paragraphs(text: str) -> Iterator[str]:
    """Runs of lines that belong together; an item of a list is one of its own."""
    lines: list[str] = []
    for line in [*_outside_code(text), ""]:
        item = _LIST.match(line)
        apart = _HEADING.match(line) or _DEFINITION.fullmatch(line) or line.lstrip().startswith("|")
        ends = not line.strip() or item or apart
        if ends and lines:
            yield " ".join(lines)
            lines = []
        if item or not ends:
            lines.append(line[item.end() :] if item else line.strip().lstrip("> "))


def _outside_code(text: str) -> Iterator[str]:
    """The lines that are not in a fenced block; one that is cut off in the middle ends with the chunk."""
    fence = ""
    for line in text.splitlines():
        match = _FENCE.match(line)
        if match and (not fence or match[1].startswith(fence)):
            fence = "" if fence else match[1]
        elif not fence:
            yield line


def _split(paragraph: str) -> Iterator[str]:
    """Sentences, where a full stop behind an abbreviation ends none."""
    begun = ""
    start = 0
    for match in _SENTENCE_END.finditer(paragraph):
        piece = paragraph[start : match.end()]
        start = match.end()
        begun += piece
        if not _NO_END.search(begun.rstrip()):
            yield begun.strip()
            begun = ""
    if rest := (begun + paragraph[start:]).strip():
        yield rest
