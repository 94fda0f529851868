"""What becomes of a fact that the model proposes: added, a duplicate, in another's place, or rejected."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import uuid4

from recollect.ingest.facts.answers import Candidate, parse
from recollect.ingest.facts.pieces import Piece
from recollect.ranking import fold, fold_hash
from recollect.types import Record, Scope

ACTIONS = ("add", "duplicate", "supersedes", "rejected", "malformed")

SHORTEST_SPAN = 4
"""Characters without white space; fewer stand in any text and prove nothing."""

_NUMBER = re.compile(r"\d+")


class Neighbours(Protocol):
    """Knows which facts are near in meaning."""

    def nearest(self, record: Record) -> Sequence[tuple[Record, float]]:
        """Known facts and their cosines, nearest first."""

    def remember(self, record: Record) -> None:
        """Count this fact among the known."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is done with one proposed fact, and why. `other` is the fact it repeats or replaces."""

    action: str
    text: str
    span: str = ""
    lines: tuple[int, int] | None = None
    record: Record | None = None
    other: Record | None = None
    similarity: float | None = None
    reason: str = ""


class Judge:
    """Judges fact after fact, each in the light of what is known and of those it has let in before."""

    def __init__(self, known: Iterable[Record], neighbours: Neighbours, *, similarity: float, scope: Scope) -> None:
        self._known: dict[bytes, Record] = {}
        self._of_file: dict[str, dict[str, Record]] = {}
        self._neighbours = neighbours
        self._similarity = similarity
        self._scope = scope
        for record in known:
            self._known.setdefault(fold_hash(record.text), record)
            if record.source == "ingest" and record.path and record.scope == scope:
                self._of_file.setdefault(record.path, {})[record.id] = record

    def of_file(self, path: str) -> list[Record]:
        """The live facts that were made of a file before: what a new one from it may supersede."""
        return list(self._of_file.get(path, {}).values())

    def read(self, piece: Piece, answer: str) -> list[Verdict]:
        """A verdict for each line of the model's answer about one piece."""
        candidates, malformed = parse(answer)
        bad = [
            Verdict("malformed", line, lines=piece.lines, reason="not a JSON line with a text") for line in malformed
        ]
        return [*(self._judge(piece, candidate) for candidate in candidates), *bad]

    def _judge(self, piece: Piece, said: Candidate) -> Verdict:
        lines = piece.find(said.span) if len("".join(said.span.split())) >= SHORTEST_SPAN else None
        if lines is None:
            return Verdict("rejected", said.text, said.span, piece.lines, reason="no such span in the file's text")
        if twin := self._known.get(fold_hash(said.text)):
            return Verdict("duplicate", said.text, said.span, lines, other=twin, similarity=1.0, reason="the same text")
        record = _record(piece, said, lines, self._scope)
        old = self._superseded(piece.path, said.supersedes)
        if old is None and (near := self._repeated(record)):
            return Verdict("duplicate", said.text, said.span, lines, None, *near, reason="nearly the same")
        self._known[fold_hash(record.text)] = record
        self._neighbours.remember(record)
        return Verdict("supersedes" if old else "add", said.text, said.span, lines, record, old)

    def _repeated(self, record: Record) -> tuple[Record, float] | None:
        """The known fact that says nearly the same. One that differs in a number is near, and yet another fact."""
        for other, cosine in self._neighbours.nearest(record):
            if cosine >= self._similarity and _numbers(other.text) == _numbers(record.text):
                return other, cosine
        return None

    def _superseded(self, path: str, named: str | None) -> Record | None:
        """The live fact of the same file that the model named by id or text; it can be replaced only once."""
        facts = self._of_file.get(path, {})
        if named is None:
            return None
        old = facts.get(named) or next((fact for fact in facts.values() if fold(fact.text) == fold(named)), None)
        if old is not None:
            del facts[old.id]
            self._known.pop(fold_hash(old.text), None)
        return old


def _record(piece: Piece, said: Candidate, lines: tuple[int, int], scope: Scope) -> Record:
    return Record(
        id=uuid4().hex,
        text=said.text,
        category=said.category or "technical",
        tags=tuple(dict.fromkeys(("ingest", *said.tags))),
        scope=scope,
        decay="stable",
        source="ingest",
        path=piece.path,
        lines=lines,
    )


def _numbers(text: str) -> list[str]:
    return sorted(_NUMBER.findall(text))
