"""Ranked lists in files: read JSON, JSON lines and TREC runs, write TREC runs, and fuse several runs.

A list of objects is ordered by `rank` if every object has one, else by descending `score`, else as listed. Given ranks
are used as they are, with gaps. A TREC run is ordered as trec_eval orders it: by descending score, equal scores by
descending document id, whatever its rank column says. An id that occurs twice keeps its better rank.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from recollect.errors import UsageError
from recollect.fusion import Fused, Hit, RankedList, fuse
from recollect.options import DEFAULT_K

Run: TypeAlias = dict[str | None, tuple[Hit, ...]]
"""Question → its ranking, best first. A list without a question has the key None; an empty file is an empty run."""

COLUMNS = "question Q0 document rank score tag"
FORMATS = '{"results": [{"id": …, "rank" or "score": …}]}, the same as JSON lines, or a TREC run'

STEP = 2.0**-23
SMALLEST = 2.0**-126
"""The precision of single floats, in which trec_eval compares scores, and the smallest of them."""

_WORDS = re.compile(r"[^ \t\r\v\f]+")
"""Words between C's white space, as in trec_eval; str.split would also break an id at a no-break space."""


Item: TypeAlias = tuple[str, Hit]
"""A hit with its place for error messages: `line 3`, or `result 3` of a JSON document."""


@dataclass(frozen=True, slots=True)
class RunReader:
    """Reads one file; every error names it."""

    name: str

    def run(self, data: bytes) -> Run:
        """Read the file in any of the formats."""
        text = self._text(data)
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        if not lines:
            return {}
        first = lines[0][1].strip()
        if first[0] in '{["' or _is_json(first):
            return self._lines(lines) if len(lines) > 1 and _is_json(first) else self._document(text)
        return self._trec(lines)

    def _text(self, data: bytes) -> str:
        wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))  # what a redirection in PowerShell writes
        try:
            return data.decode("utf-16" if wide else "utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise self._wrong(f"line {line}", f"is not text: {error.reason}") from error

    def _document(self, text: str) -> Run:
        value = self._json(text)
        match value:
            case {"results": list(items)}:
                return self._listed(items)
            case {"queries": dict(answers)} if all(isinstance(items, list) for items in answers.values()):
                return {self._id("queries", key): self._entries("result", items) for key, items in answers.items()}
            case list():
                return self._listed(value)
            case {"results": _} | {"queries": _}:
                raise self._wrong("it", "holds no list of results")
        return self._listed([value])

    def _listed(self, items: Sequence[object]) -> Run:
        return {None: self._entries("result", items)} if items else {}

    def _entries(self, what: str, items: Sequence[object]) -> tuple[Hit, ...]:
        return self._ordered([self._item(f"{what} {number}", item) for number, item in enumerate(items, 1)])

    def _lines(self, lines: Iterable[tuple[int, str]]) -> Run:
        return {None: self._ordered([self._item(f"line {number}", self._json(line, number)) for number, line in lines])}

    def _json(self, text: str, number: int = 1) -> Any:
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise self._wrong(f"line {number - 1 + error.lineno}", f"is not JSON: {error.msg}") from error
        except (ValueError, RecursionError) as error:
            raise self._wrong(f"line {number}", f"is not JSON that can be read: {error}") from error

    def _item(self, place: str, value: object) -> Item:
        if not isinstance(value, dict):
            return place, Hit(self._id(place, value))
        if "id" not in value:
            raise self._wrong(place, 'has no "id"')
        return place, Hit(self._id(place, value["id"]), self._score(place, value), self._rank(place, value))

    def _id(self, place: str, value: object) -> str:
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if not isinstance(text, str) or not text.strip():
            raise self._wrong(place, f"needs an id that is a text or a whole number, not {_short(value)}")
        if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            raise self._wrong(place, f"has an id that is no Unicode text: {text!a}")
        return text

    def _rank(self, place: str, value: dict[str, Any]) -> int | None:
        rank = value.get("rank")
        if isinstance(rank, float) and rank.is_integer():
            rank = int(rank)
        if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int) or rank < 1):
            raise self._wrong(place, f"has the rank {_short(rank)}; ranks are whole numbers from 1")
        return rank

    def _score(self, place: str, value: dict[str, Any]) -> float | None:
        score = value.get("score")
        if score is None:
            return None
        if isinstance(score, bool) or not isinstance(score, int | float) or not _finite(score):
            raise self._wrong(place, f"has the score {_short(score)}; scores are finite numbers")
        return float(score)

    def _ordered(self, items: Sequence[Item]) -> tuple[Hit, ...]:
        hits = [hit for _, hit in items]
        if self._all_have("rank", items):
            return _unique(sorted(hits, key=lambda hit: hit.rank or 0))
        if not self._all_have("score", items) or _rising_below_zero([hit.score or 0.0 for hit in hits]):
            return _unique(hits)
        return _unique(sorted(hits, key=lambda hit: -(hit.score or 0.0)))

    def _all_have(self, field: str, items: Sequence[Item]) -> bool:
        without = [place for place, hit in items if getattr(hit, field) is None]
        if without and len(without) < len(items):
            raise self._wrong(without[0], f"has no {field}, and others have one")
        return not without

    def _trec(self, lines: Iterable[tuple[int, str]]) -> Run:
        rankings: dict[str | None, list[tuple[float, str]]] = {}
        for number, line in lines:
            if not line.lstrip().startswith("#"):  # a comment, as in trec_eval
                question, score, document = self._trec_line(f"line {number}", line)
                rankings.setdefault(question, []).append((score, document))
        return {
            question: _unique(Hit(document, score) for score, document in sorted(pairs, reverse=True))
            for question, pairs in rankings.items()
        }

    def _trec_line(self, place: str, line: str) -> tuple[str, float, str]:
        words = _WORDS.findall(line)
        if len(words) != len(COLUMNS.split()):
            raise self._wrong(place, f"has {len(words)} column{'s' * (len(words) != 1)}, not six: {COLUMNS}")
        try:
            score = float(words[4])
        except ValueError:
            score = math.nan
        if not math.isfinite(score):
            raise self._wrong(place, f"has the score {words[4]!r}; scores are finite numbers")
        return words[0], score, words[2]

    def _wrong(self, place: str, what: str) -> UsageError:
        return UsageError(f"{self.name}: {place} {what}", hint=f"a file is {FORMATS}")


def read_run(data: bytes, name: str) -> Run:
    """Read a run from the bytes of the file `name`."""
    return RunReader(name).run(data)


def write_trec(rankings: Mapping[str, Iterable[tuple[str, float]]], tag: str = "recollect") -> Iterator[str]:
    """Yield the lines of a TREC run. Scores are made different in single precision, so that no reader reorders them."""
    for question, ranking in rankings.items():
        ceiling = math.inf
        for rank, (document, score) in enumerate(ranking, 1):
            if any(len(_WORDS.findall(word)) != 1 or "\n" in word for word in (question, document)):
                message = f"a TREC run cannot hold an id with a space: {question!r} {document!r}"
                raise UsageError(message, hint="use --json")
            below = min(score, ceiling)
            yield f"{question} Q0 {document} {rank} {below!r} {tag}"
            ceiling = below - max(abs(below) * STEP, SMALLEST)


def _unique(hits: Iterable[Hit]) -> tuple[Hit, ...]:
    """Keep the first hit of each id."""
    first: dict[str, Hit] = {}
    for hit in hits:
        first.setdefault(hit.id, hit)
    return tuple(first.values())


def _rising_below_zero(scores: Sequence[float]) -> bool:
    """Whether these are scores of SQLite's FTS5: negative, with the lowest first and best."""
    return scores[0] < scores[-1] < 0 and list(scores) == sorted(scores)


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number that no float holds
        return False


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else f"{text[:40]}…"  # noqa: PLR2004


def fuse_runs(
    runs: Mapping[str, Run],
    *,
    method: str = "rrf",
    k: float = DEFAULT_K,
    normalisation: str = "none",
    weights: Mapping[str, float] | None = None,
    bounded: Collection[str] = (),
) -> dict[str | None, list[Fused]]:
    """Fuse runs, given by their sources' names, into one ranking for each question (None for lists without a question).

    `bounded` names the sources whose scores are used without normalisation, such as cosines.
    """
    if unknown := {*(weights or {}), *bounded} - set(runs):
        raise UsageError(f"there is no list named {min(unknown)!r}", hint=f"there are {', '.join(runs)}")
    fused = {}
    for question, rankings in by_question(runs).items():
        try:
            lists = [
                RankedList(name, entries, (weights or {}).get(name, 1.0), name in bounded)
                for name, entries in rankings.items()
            ]
            fused[question] = fuse(lists, method=method, k=k, normalisation=normalisation)
        except (ValueError, OverflowError) as error:
            where = "" if question is None else f"question {question!r}: "
            raise UsageError(f"{where}{error}", hint="`recollect fuse --help`") from error
    return fused


def by_question(runs: Mapping[str, Run]) -> dict[str | None, dict[str, Sequence[Hit]]]:
    """Return every source's list for each question, empty if the source has none.

    A list without a question belongs to the only question of the others; if they have several, it is an error.
    """
    questions = dict.fromkeys(question for run in runs.values() for question in run)
    named: list[str | None] = [question for question in questions if question is not None]
    if None in questions and len(named) > 1:
        nameless = next(name for name, run in runs.items() if None in run)
        raise UsageError(
            f"{nameless!r} is a list without a question, and the others answer {len(named)} questions",
            hint="fuse TREC runs with TREC runs; a plain list goes with a run of one question",
        )
    return {
        question: {name: run.get(question, run.get(None, ())) for name, run in runs.items()}
        for question in named or [None]
    }
