"""Memories of other programs as facts: mem0, the MCP reference memory server, and the notes of basic-memory."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from recollect.disk import at_home
from recollect.errors import UsageError
from recollect.ingest.chats import ChatFile, peeked
from recollect.ingest.discovery import MAX_FILE, decode, read_regular, reason_of
from recollect.ingest.documents import read_markdown, split_lines
from recollect.ingest.periods import observation, period
from recollect.ingest.properties import metadata_text
from recollect.ingest.turns import listed, moment
from recollect.types.records import MARKDOWN

MEM0, MCP, BASIC = "mem0", "mcp-memory", "basic-memory"
FORMATS = (MEM0, MCP, BASIC)
SUFFIXES = (".json", ".jsonl", ".ndjson")
UNKNOWN = "no memories in a known format"

_RELATION = re.compile(r"\s*[-*]\s+(?P<kind>[^\[\]]*?)\s*\[\[(?P<target>[^\[\]]+)\]\]")
_TAG = re.compile(r"(?<!\S)#([\w/-]+)")


@dataclass(frozen=True, slots=True)
class Memo:
    """A memory of another program. `key` tells it from the others of its program; `scope` is whose it was there."""

    key: tuple[str, ...]
    text: str
    title: str = ""
    category: str | None = None
    tags: tuple[str, ...] = ()
    time: datetime | None = None
    expires: datetime | None = None
    scope: Mapping[str, str] = field(default_factory=dict)
    path: str | None = None
    line: int | None = None


def memory_files(paths: Sequence[str | Path]) -> list[Path]:
    """The files that the paths name; of a folder, the notes and JSON files below it."""
    files: dict[Path, None] = {}
    for path in paths:
        place = at_home(path)
        if not place.exists():
            raise UsageError(f"{path} does not exist", hint="name an export, memory.json, or a folder of notes")
        below = sorted(place.rglob("*")) if place.is_dir() else [place]
        for file in below:
            hidden = any(part.startswith(".") for part in file.relative_to(place).parts)
            if file == place or (file.suffix.lower() in (*SUFFIXES, *MARKDOWN) and file.is_file() and not hidden):
                files[file.resolve()] = None
    if not files:
        raise UsageError(
            f"no file to import in {', '.join(map(str, paths))}", hint="notes end in .md, exports in .json"
        )
    return list(files)


def read_memos(path: Path, format_: str | None = None) -> tuple[ChatFile, Iterator[Memo]]:
    """The memories of a file, which counts what is skipped."""
    file = ChatFile(str(path), format_ or (BASIC if path.suffix.lower() in MARKDOWN else ""))
    return file, _notes(path, file) if file.format == BASIC else _exported(path, file)


def _exported(path: Path, file: ChatFile) -> Iterator[Memo]:
    try:
        with path.open("rb") as stream:
            values = peeked(stream, file, _recognise, UNKNOWN)
            if file.format:
                yield from _READERS[file.format](values, file.skip)
    except OSError as error:
        file.skip(reason_of(error))


def _recognise(values: Sequence[Mapping[str, Any]]) -> str:
    for value in values:
        if value.get("type") in ("entity", "relation") or isinstance(value.get("entities"), list):
            return MCP
        if any(isinstance(value.get(name), list) for name in ("results", "memories")) or "memory" in value:
            return MEM0
    return ""


def mem0(values: Iterable[Mapping[str, Any]], skip: Callable[[str], None]) -> Iterator[Memo]:
    """What `get_all` or an export of mem0 returned: memories, alone or in a list, and relations of its graph."""
    for value in values:
        items = next((value[name] for name in ("results", "memories") if isinstance(value.get(name), list)), [value])
        owners: list[Mapping[str, str]] = []
        for item in items:
            text = item.get("memory") if isinstance(item, dict) else None
            if not isinstance(text, str) or not text.strip():
                skip("no memory in it")
                continue
            memo = _mem0_memo(item, text.strip())
            owners.append(memo.scope)
            yield memo
        # A relation names no owner: it belongs to whoever all memories beside it belong to.
        owner = dict(set.intersection(*(set(scope.items()) for scope in owners))) if owners else {}
        for relation in listed(value.get("relations")):
            parts = relation if isinstance(relation, dict) else {}
            target = parts.get("target") or parts.get("destination")
            if (related := _relation(parts.get("source"), parts.get("relationship"), target)) is None:
                skip("a relation without a source, a relationship or a target")
            elif any(owners) and not owner:
                skip("a relation beside memories of several owners")
            else:
                yield replace(related, scope=owner)


def _mem0_memo(item: Mapping[str, Any], text: str) -> Memo:
    metadata = item["metadata"] if isinstance(item.get("metadata"), dict) else {}
    categories = [one for one in listed(item.get("categories")) if isinstance(one, str)]
    category = metadata.get("category")
    names = (("user_id", "user"), ("agent_id", "agent"), ("run_id", "session"))
    key = str(item.get("id") or text)
    return Memo(
        (key,),
        text,
        category=category if isinstance(category, str) else next(iter(categories), None),
        tags=tuple(categories),
        time=moment(item.get("updated_at")) or moment(item.get("created_at")),
        expires=moment(item.get("expiration_date")),
        scope={part: str(item[name]) for name, part in names if item.get(name)},
    )


def mcp_memory(values: Iterable[Mapping[str, Any]], skip: Callable[[str], None]) -> Iterator[Memo]:
    """The knowledge graph of the MCP memory server: every observation and every relation is a fact."""
    for value in values:
        parts = chain.from_iterable(listed(value.get(name)) for name in ("entities", "relations"))
        graph: list[Mapping[str, Any]] = [one for one in parts if isinstance(one, dict)]
        for item in graph or [value]:
            if "relationType" in item and (memo := _relation(*map(item.get, ("from", "relationType", "to")))):
                yield memo
            elif isinstance(item.get("name"), str) and isinstance(item.get("observations"), list):
                yield from _entity(item)
            elif item.get("type") in (None, "entity", "relation"):
                skip("neither an entity nor a relation")


def _entity(item: Mapping[str, Any]) -> Iterator[Memo]:
    kind = item.get("entityType")
    for given in item["observations"]:
        text = given.get("content") if isinstance(given, dict) else given
        if isinstance(text, str) and text.strip():
            category = kind if isinstance(kind, str) and kind.strip() else None
            yield Memo(("entity", item["name"], text.strip()), text.strip(), title=item["name"], category=category)


def _relation(*parts: object) -> Memo | None:
    """A fact of source, kind and target; None if one of them is no text."""
    words = [part.strip() for part in parts if isinstance(part, str) and part.strip()]
    if len(words) < len(parts):
        return None
    source, kind, target = words
    return Memo(("relation", *words), f"{source} {kind.replace('_', ' ')} {target}", title=source, tags=("relation",))


_READERS = {MEM0: mem0, MCP: mcp_memory}


def _notes(path: Path, file: ChatFile) -> Iterator[Memo]:
    """The observations and relations of a note of basic-memory; its other text is for `recollect index`."""
    try:
        text = decode(read_regular(path, MAX_FILE)[0])
    except OSError as error:
        file.skip(reason_of(error))
        return
    document = read_markdown(text, path.stem)
    known = "permalink" in document.metadata  # basic-memory gives every note one
    given = document.metadata.get("tags")
    names = given.split(",") if isinstance(given, str) else listed(given)
    common = tuple(tag for one in names if (tag := metadata_text(one).lstrip("#")))
    name = metadata_text(document.metadata.get("permalink")) or document.title
    at = next((at for key in ("created", "date") if (at := moment(str(document.metadata.get(key, ""))))), None)
    fenced = False
    for number, line in enumerate(split_lines(text), 1):
        fenced ^= line.lstrip().startswith("```")
        memo = None if fenced else _note_memo(line.rstrip("\r\n"), document.title, name)
        if memo:
            tags = tuple(dict.fromkeys((*common, *memo.tags)))
            known = True
            yield replace(memo, tags=tags, time=memo.time or at, path=str(path), line=number)
    if not known:
        file.skip(UNKNOWN)


def _note_memo(line: str, title: str, name: str) -> Memo | None:
    if written := observation(line):
        category, words = written
        text = " ".join(_TAG.sub("", words).split())
        tags, key = tuple(_TAG.findall(words)), ("observation", name, text)
        text, since, until = period(text)
        return Memo(key, text, title, category, tags, since, until) if text else None
    if relation := _RELATION.match(line):
        return _relation(title, relation["kind"].strip() or "relates_to", relation["target"].partition("|")[0])
    return None
