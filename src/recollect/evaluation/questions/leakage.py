"""What a question gives away of its target: the words they share, and the words that nothing else has.

A target is what a question asks for: a file, or a fact. A search by words finds passages, so that the words a question
shares with its target are counted in the one passage of it that has most of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from recollect.analysis import Analyzer
from recollect.types import Progress, Record

MOST = 0.5
"""A question that shares more than this part of its words with one passage of its target is said to leak."""


@dataclass(slots=True)
class Vocabulary:
    """Which targets have which terms, and which passages of a target."""

    analyzer: Analyzer
    passages: dict[str, list[frozenset[str]]] = field(default_factory=dict)
    targets: dict[str, set[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Sequence[Record], analyzer: Analyzer, progress: Progress | None = None) -> Vocabulary:
        """The terms of all records; what search by words sees of them is title and text."""
        vocabulary = cls(analyzer)
        for number, record in enumerate(records, 1):
            if progress:
                progress(number, len(records))
            terms = frozenset(token.term for token in analyzer.tokens(record.passage))
            vocabulary.passages.setdefault(target_of(record), []).append(terms)
            for term in terms:
                vocabulary.targets.setdefault(term, set()).add(target_of(record))
        return vocabulary

    def share(self, text: str, target: str) -> float:
        """The part of a question's terms that one passage of the target has."""
        terms = set(self.analyzer.query(text))
        best = max((len(terms & passage) for passage in self.passages.get(target, ())), default=0)
        return best / len(terms) if terms else 0.0

    def gives_away(self, text: str, target: str) -> bool:
        """Whether a term of the question is found in the target and nowhere else."""
        return any(self.targets.get(term) == {target} for term in self.analyzer.query(text))


@dataclass(frozen=True, slots=True)
class Leak:
    """One question's: the share of its words in the target, a word only the target has, its rank by words alone."""

    share: float
    giveaway: bool
    rank: int | None

    @property
    def copied(self) -> bool:
        """Whether search by words puts the target first, and every word of the question stands in one passage of it."""
        return self.rank == 1 and self.share == 1.0

    def as_dict(self) -> dict[str, float | bool | int | None]:
        """For a line of the set."""
        return {"shared": round(self.share, 3), "giveaway": self.giveaway, "keyword_rank": self.rank}


@dataclass(frozen=True, slots=True)
class Row:
    """The questions of one kind: how many, and what they give away on average."""

    kind: str
    questions: int
    shared: float
    leaking: float
    giveaway: float
    first: float
    copied: float


def target_of(record: Record) -> str:
    """What a question about this record is judged by: a file's path, since its chunks change with it, else the id."""
    return record.path if record.kind == "chunk" and record.path else record.id


def table(leaks: Mapping[str, Sequence[Leak]]) -> list[Row]:
    """A row a kind, in order, and one for all."""
    everything = [leak for group in leaks.values() for leak in group]
    return [_row(kind, group) for kind, group in [*leaks.items(), ("all", everything)] if group]


def _row(kind: str, leaks: Sequence[Leak]) -> Row:
    return Row(
        kind,
        len(leaks),
        shared=fmean(leak.share for leak in leaks),
        leaking=fmean(leak.share > MOST for leak in leaks),
        giveaway=fmean(leak.giveaway for leak in leaks),
        first=fmean(leak.rank == 1 for leak in leaks),
        copied=fmean(leak.copied for leak in leaks),
    )
