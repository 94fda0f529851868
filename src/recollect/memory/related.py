"""What a note is related to: the notes that it links to, those that link to it, and those that are similar."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from recollect.dataclass import dataclass
from recollect.disk import at_home
from recollect.errors import UnknownRecord, UsageError
from recollect.ingest.links import (
    LinkTargets,
    NoteLink,
    aliases_of,
    destinations,
    links_of,
    may_link,
    words_for,
    words_of,
)
from recollect.memory.callers import ScopedWriter
from recollect.memory.closeness import ClosenessOf
from recollect.memory.memory import Memory
from recollect.memory.originals import lines_of
from recollect.memory.shapes import fields_of, name_of
from recollect.options import SIMILAR
from recollect.ranking import clean
from recollect.types import EVERYTHING, GLOBAL, Filter, Record, Work
from recollect.types.records import FRONT_MATTER, short_ids

MOST_SIMILAR = 100
ALIKE = 1.7  # the least strength of a match between two notes that are similar (decision 066)
LONGEST_CHAIN = 1_000  # superseded records that are followed in each direction
PASSAGES = 10  # passages that are read for each similar note: several may be of one file


@dataclass(frozen=True, slots=True)
class RelatedNote:
    """A record of a note, and why it is related: by the link on a line, or by the similarity of the texts.

    Of a note that is linked to, it is the part under the heading that the link names, or else the first one; of a note
    that links, the part that holds the link; of a similar note, the most similar part. `relations` are the types of the
    links that have one, and `targets` the names by which a note links to this one.
    """

    record: Record
    why: str
    line: int | None = None
    similarity: float | None = None
    relations: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()

    def as_dict(self, short: str) -> dict[str, Any]:
        """As JSON; fields that are not set are left out."""
        name = {"id": self.record.id, "short_id": short, "title": name_of(self.record)}
        why = fields_of(self, ("why",), ("line", "similarity", "relations", "targets"))
        return {**name, **fields_of(self.record, (), ("path", "lines")), **why}


@dataclass(frozen=True, slots=True)
class Related:
    """The notes that a record, or the file that it is a part of, is related to; and its links that lead nowhere."""

    record: Record
    links: tuple[RelatedNote, ...]
    backlinks: tuple[RelatedNote, ...]
    similar: tuple[RelatedNote, ...]
    unresolved: tuple[NoteLink, ...]

    @property
    def notes(self) -> tuple[RelatedNote, ...]:
        """All notes, in the order of the lists."""
        return (*self.links, *self.backlinks, *self.similar)

    def as_dict(self) -> dict[str, Any]:
        """As JSON, the same for the command line and HTTP."""
        short = short_ids([self.record.id, *(note.record.id for note in self.notes)])
        own = {"id": self.record.id, "short_id": short[self.record.id], "title": name_of(self.record)}
        lists = {name: getattr(self, name) for name in ("links", "backlinks", "similar")}
        return {
            **own,
            **({"path": self.record.path} if self.record.path else {}),
            **{name: [note.as_dict(short[note.record.id]) for note in notes] for name, notes in lists.items()},
            "unresolved": [{"link": link.written, "line": link.line} for link in self.unresolved],
        }


def related(memory: ScopedWriter, target: str, limit: int, work: Work) -> Related:
    """What the record or file `target` is related to, for the scope of a memory; see `Memory.related`."""
    if not isinstance(limit, int) or not 0 <= limit <= MOST_SIMILAR:
        raise UsageError(f"limit must be a whole number from 0 to {MOST_SIMILAR}", hint=f"{SIMILAR} is the default")
    record = _named(memory, target)
    view = memory.scoped(record.scope) if _sees_all(memory) else memory
    with view.store.reading():
        note = _Note(view, record, work)
        links, unresolved = note.links()
        return Related(record, tuple(links), tuple(note.backlinks()), tuple(note.similar(limit)), tuple(unresolved))


def _sees_all(memory: ScopedWriter) -> bool:
    return memory.caller is None and memory.scope == GLOBAL


def _named(memory: ScopedWriter, target: str) -> Record:
    """The record with an id, or the first one of the file with a path."""
    with contextlib.suppress(UnknownRecord):
        return memory.require(target)
    path, where = clean(target), Filter(scope=memory.scope)
    # Only the owner names files as this process finds them.
    names = [path] if memory.caller is not None else [os.path.realpath(at_home(path)), path]
    by_path = memory.store.joins.by_path(names, EVERYTHING if _sees_all(memory) else where)
    chunks = [record for name in names for record in by_path.get(name, ()) if record.kind == "chunk"]
    if len({chunk.path for chunk in chunks}) > 1:
        raise UsageError(f"{target!r} could be several files", hint="name more of the path")
    if not chunks:
        error = UnknownRecord(target)
        error.explain(
            f"no record has the id {target!r}, and no indexed file this path", "`recollect search` shows both"
        )
        raise error
    return chunks[0]


class _Note:
    """A record, or the file that it is a part of, and the other records that its scope may see."""

    def __init__(self, memory: ScopedWriter, record: Record, work: Work) -> None:
        self._memory, self._record, self._work = memory, record, work
        self._where = Filter(scope=memory.scope)
        self._file = record.path if record.kind == "chunk" else None
        self._parts = (self._file and self._chunks([self._file]).get(self._file)) or [record]
        self._targets = LinkTargets(memory.store.files.visible(self._where))
        self._aliases = self._read_aliases()

    def _read_aliases(self) -> list[str]:
        """The aliases of this note. The targets learn them, and those that its links to no file may mean."""
        own = [alias for alias, _ in aliases_of(self._parts)]
        targets = [link.target for link in _links(self._parts) if link.is_wikilink and not self._find(link)]
        if words := words_of([*own, *targets]):
            for alias, path in aliases_of(self._memory.store.files.linking(words, self._where)):
                self._targets.add_alias(alias, path)
        return own

    def _find(self, link: NoteLink) -> str | None:
        return self._targets.find(link, self._record.path)

    def links(self) -> tuple[list[RelatedNote], list[NoteLink]]:
        """The notes that this one links to, in the order of the links; and the links that lead to no indexed file."""
        resolved, unresolved = dict[str, list[NoteLink]](), []
        for link in _links(self._parts):
            path = self._find(link)
            if path is None and not link.embeds:  # most of what is embedded is an image
                unresolved.append(link)
            elif path is not None and path != self._file:
                resolved.setdefault(path, []).append(link)
        chunks = self._chunks(resolved)
        notes = []
        for path, links in resolved.items():
            note = _linked(_under(chunks[path], links[0].heading), links, self._parts)
            notes.append(replace(note, targets=tuple(dict.fromkeys(link.target for link in links))))
        return notes, unresolved

    def backlinks(self) -> Iterator[RelatedNote]:
        """The notes that link to this file, by path."""
        if self._file is None:
            return
        titles = (self._parts[0].title.split(" › ")[0], *self._aliases)
        pattern = may_link(self._file, *titles)
        mentions = self._memory.store.files.linking(words_for(self._file, *titles), self._where)
        linking = [
            record
            for record in mentions
            if record.path != self._file and record.is_markdown and pattern.search(destinations(record.text))
        ]
        chunks = self._chunks({record.path for record in linking if record.kind == "chunk"})
        others = {record.id: [record] for record in linking if record.kind != "chunk"}
        for parts in (*(chunks[path] for path in sorted(chunks)), *others.values()):
            self._work.check()  # parsing takes a few milliseconds a file
            links = [link for link in _links(parts) if self._targets.find(link, parts[0].path) == self._file]
            if links:
                yield _linked(_at(parts, links[0].line), links, parts)

    def similar(self, limit: int) -> Iterator[RelatedNote]:
        """The notes whose vectors are near to the mean of this one's, at most one passage of a file.

        How near they must be is known for the models that were measured; of others the nearest are listed.
        """
        spaces = self._memory.store.spaces
        embeddings = self._memory.embeddings.within(spaces, self._memory.caller)
        vectors = [*embeddings.vectors([part.id for part in self._parts]).values()] if limit else []
        if not vectors or spaces.active is None:
            return
        mean = sum(vectors[1:], vectors[0])
        length = float(mean @ mean) ** 0.5
        depth = limit * PASSAGES + len(self._parts)
        hits = spaces.open(spaces.active).search(mean / (length or 1.0), self._where, depth).entries
        listed = {self._record.id, self._file}
        closeness = ClosenessOf(self._memory.store).known(spaces.active)
        for hit in hits:
            if closeness and closeness.strength(hit.score or 0.0) < ALIKE:
                return
            key = hit.record.path if hit.record.kind == "chunk" else hit.record.id
            if key not in listed and limit:
                listed.add(key)
                limit -= 1
                similarity = round(hit.score or 0.0, 4)
                yield RelatedNote(hit.record, f"similarity {similarity:.2f}", similarity=similarity)

    def _chunks(self, paths: Iterable[str | None]) -> dict[str, list[Record]]:
        """The visible chunks of files, in order."""
        by_path = self._memory.store.joins.by_path([path for path in paths if path], self._where)
        return {path: [one for one in records if one.kind == "chunk"] for path, records in by_path.items()}


def _links(parts: Sequence[Record]) -> Iterator[NoteLink]:
    """The links of a note. Its parts are put together: code that is in several of them has no links.

    Anybody may have written the line numbers of a record, so that a gap between two lines becomes one empty line.
    """
    lines = lines_of(parts) if parts[0].is_markdown else {}
    lines |= {number - 1: "" for number in lines if number - 1 not in lines}
    numbers = sorted(lines)
    for link in links_of("\n".join(lines[number] for number in numbers)):
        yield replace(link, line=numbers[link.line - 1])


def _linked(record: Record, links: Sequence[NoteLink], parts: Sequence[Record]) -> RelatedNote:
    """A note at one end of links, which stand in the parts of a note. A link that has a relation is named first."""
    first, more = next((link for link in links if link.relation), links[0]), len(links) - 1
    line = first.line if parts[0].lines else None
    place = f"line {line}: " if line else ""
    why = f"{place}{first.relation} {first.written}" if first.relation else f"{place}{first.written}"
    relations = tuple(dict.fromkeys(link.relation for link in links if link.relation))
    return RelatedNote(record, f"{why} and {more} more" if more else why, line, relations=relations)


def _at(parts: Sequence[Record], line: int) -> Record:
    """The part that holds a line."""
    return next((part for part in parts if part.lines and part.lines[0] <= line <= part.lines[1]), parts[0])


def _under(parts: Sequence[Record], heading: str) -> Record:
    """The part under a heading, written as it is or as an anchor; the first part if there is no such heading."""
    anchor = _anchor(heading.rpartition("#")[2])
    for part in parts if anchor else ():
        headings = re.findall(r"^#+ (.*)", part.text, re.MULTILINE)
        if anchor in map(_anchor, (*part.title.split(" › ")[1:], *headings)):
            return part
    return next((part for part in parts if part.place != FRONT_MATTER), parts[0])


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w-]", "", re.sub(r"\s", "-", heading.strip().casefold()))


def chain(memory: Memory, record: Record) -> list[str]:
    """The ids of visible records, oldest first: those that this one superseded, its own, those that superseded it."""

    def predecessor(key: str) -> str | None:
        """The record that this one superseded last, if it still does."""
        events = [event for event in reversed(memory.history(key)) if event.action == "supersedes"]
        records = (memory.get(str(event.detail.get("id"))) for event in events)
        return next((old.id for old in records if old and old.superseded_by == key), None)

    older, newer = [record.id], [record]
    while len(older) <= LONGEST_CHAIN and (old := predecessor(older[-1])):
        older.append(old)
    while len(newer) <= LONGEST_CHAIN and (key := newer[-1].superseded_by) and (new := memory.get(key)):
        newer.append(new)
    return [*reversed(older), *(other.id for other in newer[1:])]
