"""Ranked lists in files: read JSON, JSON lines and TREC runs, write TREC runs, and fuse several runs."""

import json
import math
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from recollect.errors import UsageError
from recollect.evaluation.datasets import numbered, one_word
from recollect.fusion import Fused, Hit, RankedList, fuse
from recollect.options import DEFAULT_K

Run: TypeAlias = dict[str | None, tuple[Hit, ...]]
"""Question → its ranking, best first. A list without a question has the key None; an empty file is an empty run."""

COLUMNS = "question Q0 document rank score tag"
FORMATS = '{"results": [{"id": …, "rank" or "score": …}]}, the same as JSON lines, or a TREC run'
STEP, SMALLEST = 2.0**-23, 2.0**-126  # the precision of single floats, in which trec_eval compares, and the least one
_WORDS = re.compile(r"[^ \t\r\v\f]+")  # as in trec_eval; str.split would also break an id at a no-break space


def read_run(data: bytes, name: str) -> Run:
    """Read a run from the bytes of the file `name`, in any of the formats."""
    lines = list(numbered(data, name))
    if not lines:
        return {}
    first = lines[0][1].strip()
    if first[0] not in '{["' and not _is_json(first):
        return _trec(lines)
    if len(lines) > 1 and _is_json(first):
        return {None: _ranking([(line[0], _json([line])) for line in lines])}
    match value := _json(lines):
        case {"queries": dict(answers)} if all(isinstance(items, list) for items in answers.values()):
            return {_id(f"{name}: queries", key): _results(items, name) for key, items in answers.items()}
        case {"results": list(items)} | list(items):
            return {None: _results(items, name)} if items else {}
        case {"results": _} | {"queries": _}:
            raise _wrong(f"{name}: it", "holds no list of results")
    return {None: _results([value], name)}


def _results(items: Sequence[object], name: str) -> tuple[Hit, ...]:
    return _ranking([(f"{name}: result {number}", item) for number, item in enumerate(items, 1)])


def _json(lines: Sequence[tuple[str, str]]) -> Any:
    try:
        return json.loads("\n".join(line for _, line in lines))
    except json.JSONDecodeError as error:
        raise _wrong(lines[error.lineno - 1][0], f"is not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise _wrong(lines[0][0], f"is not JSON that can be read: {error}") from error


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _ranking(items: Sequence[tuple[str, object]]) -> tuple[Hit, ...]:
    """Order the results of a list; each has its place for error messages: `line 3`, or `result 3` of a document."""
    rows = [(place, _hit(place, item)) for place, item in items]
    hits = [hit for _, hit in rows]
    for name in ("rank", "score"):
        without = [place for place, hit in rows if getattr(hit, name) is None]
        if without and len(without) < len(rows):
            raise _wrong(without[0], f"has no {name}, and others have one")
        if not without:
            values = [getattr(hit, name) for hit in hits]
            # Scores of SQLite's FTS5 are negative, with the lowest first and best.
            rising = name == "rank" or (values[0] < values[-1] < 0 and values == sorted(values))
            order = sorted(zip(values, hits, strict=True), key=lambda pair: pair[0] if rising else -pair[0])
            return _unique(hit for _, hit in order)
    return _unique(hits)


def _hit(place: str, value: object) -> Hit:
    if not isinstance(value, dict):
        return Hit(_id(place, value))
    if "id" not in value:
        raise _wrong(place, 'has no "id"')
    rank, score = value.get("rank"), value.get("score")
    if isinstance(rank, float) and rank.is_integer():
        rank = int(rank)
    if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int) or rank < 1):
        raise _wrong(place, f"has the rank {_short(rank)}; ranks are whole numbers from 1")
    good = isinstance(score, int | float) and not isinstance(score, bool) and abs(score) <= sys.float_info.max
    if score is not None and not good:
        raise _wrong(place, f"has the score {_short(score)}; scores are finite numbers")
    return Hit(_id(place, value["id"]), None if score is None else float(score), rank)


def _id(place: str, value: object) -> str:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not text.strip():
        raise _wrong(place, f"needs an id that is a text or a whole number, not {_short(value)}")
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise _wrong(place, f"has an id that is no Unicode text: {text!a}")
    return text


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else f"{text[:40]}…"  # noqa: PLR2004


def _trec(lines: Iterable[tuple[str, str]]) -> Run:
    """Order as trec_eval does: by descending score, equal scores by descending id; the rank column is ignored."""
    rankings: dict[str | None, list[tuple[float, str]]] = {}
    for place, line in lines:
        if line.lstrip().startswith("#"):  # a comment, as in trec_eval
            continue
        words = _WORDS.findall(line)
        if len(words) != len(COLUMNS.split()):
            raise _wrong(place, f"has {len(words)} column{'s' * (len(words) != 1)}, not six: {COLUMNS}")
        try:
            score = float(words[4])
        except ValueError:
            score = math.nan
        if not math.isfinite(score):
            raise _wrong(place, f"has the score {words[4]!r}; scores are finite numbers")
        rankings.setdefault(words[0], []).append((score, words[2]))
    return {
        question: _unique(Hit(document, score) for score, document in sorted(pairs, reverse=True))
        for question, pairs in rankings.items()
    }


def _unique(hits: Iterable[Hit]) -> tuple[Hit, ...]:
    first: dict[str, Hit] = {}
    for hit in hits:
        first.setdefault(hit.id, hit)
    return tuple(first.values())


def _wrong(place: str, what: str) -> UsageError:
    return UsageError(f"{place} {what}", hint=f"a file is {FORMATS}")


def write_trec(rankings: Mapping[str, Iterable[tuple[str, float]]], tag: str = "recollect") -> Iterator[str]:
    """Yield the lines of a TREC run. Scores are made different in single precision, so that no reader reorders them."""
    for question, ranking in rankings.items():
        ceiling = math.inf
        for rank, (document, score) in enumerate(ranking, 1):
            below = min(score, ceiling)
            yield f"{one_word(question)} Q0 {one_word(document)} {rank} {below!r} {tag}"
            ceiling = below - max(abs(below) * STEP, SMALLEST)


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
    weights = weights or {}
    if unknown := {*weights, *bounded} - set(runs):
        raise UsageError(f"there is no list named {min(unknown)!r}", hint=f"there are {', '.join(runs)}")
    fused = {}
    for question, rankings in by_question(runs).items():
        try:
            lists = [RankedList(name, hits, weights.get(name, 1.0), name in bounded) for name, hits in rankings.items()]
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
        message = f"{nameless!r} is a list without a question, and the others answer {len(named)} questions"
        raise UsageError(message, hint="fuse TREC runs with TREC runs; a plain list goes with a run of one question")
    return {
        question: {name: run.get(question, run.get(None, ())) for name, run in runs.items()}
        for question in named or [None]
    }
