"""Measures, by a library of the field.

What the library is given has no equal scores: `in_order` settles them as trec_eval does, so that every measure, whoever
computes it, reads the same ranking.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from recollect.errors import UsageError
from recollect.types import Answer, Query

Run: TypeAlias = Mapping[str, Mapping[str, float]]
"""Question → document → score; higher is better."""

MEASURES = ("nDCG@10", "R@20", "RR@10")
EXAMPLES = "for example nDCG@10 R@5 R@20 RR@10 AP P@1 Success@5"

MOST = 10_000
"""The deepest cutoff: as many results as one search can give."""

_MEASURE = re.compile(r"[^\s,(]+(?:\([^)]*\))?[^\s,]*")


def parse_measures(words: str | Sequence[str]) -> tuple[str, ...]:
    """Measures by their usual names (`nDCG@10 R@5`, also with commas), each once, spelt as the library spells them."""
    said = _MEASURE.findall(words if isinstance(words, str) else " ".join(words))
    if not said:
        raise UsageError("no measure is named", hint=EXAMPLES)
    return tuple(dict.fromkeys(str(_parse(word)) for word in said))


def deepest(measures: Iterable[str]) -> int:
    """The largest cutoff: how many results the measures read at the least."""
    return max((int(cutoff) for measure in measures for cutoff in re.findall(r"@(\d+)$", measure)), default=0)


def rank_all(search: Callable[[Query], Answer], queries: Mapping[str, str], *, depth: int) -> Run:
    """Every question's ranking. The score is the place, so that equal scores cannot be reordered by a library."""
    return {
        key: by_place(result.record.id for result in search(Query(text, limit=depth)).results)
        for key, text in queries.items()
    }


def by_place(documents: Iterable[str]) -> dict[str, float]:
    """A ranking whose scores are one over the place; a document keeps its better one."""
    return {document: 1.0 / rank for rank, document in enumerate(dict.fromkeys(documents), 1)}


def in_order(run: Run) -> dict[str, dict[str, float]]:
    """The run with scores that differ: equal ones are set apart by falling document id."""
    return {
        key: by_place(sorted(ranking, key=lambda document: (ranking[document], document), reverse=True))
        for key, ranking in run.items()
    }


def without_self(run: Run, selves: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """The run without each question's own document, which `selves` names."""
    return {
        key: {document: score for document, score in ranking.items() if document != selves.get(key)}
        for key, ranking in run.items()
    }


def evaluate(qrels: Mapping[str, Mapping[str, int]], run: Run, measures: Sequence[str]) -> dict[str, dict[str, float]]:
    """Measure (`nDCG@10`) → question → value. A question without results counts as zero."""
    parsed = [_parse(measure) for measure in measures]
    values: dict[str, dict[str, float]] = {str(measure): dict.fromkeys(qrels, 0.0) for measure in parsed}
    answered = {key: ranking for key, ranking in in_order(run).items() if key in qrels and ranking}
    if answered:
        for metric in _calculated(parsed, {key: dict(qrels[key]) for key in qrels}, answered):
            values[str(metric.measure)][metric.query_id] = float(metric.value)
    return values


def _calculated(measures: Sequence[Any], qrels: Mapping[str, Mapping[str, int]], run: Run) -> list[Any]:
    from subprocess import SubprocessError

    try:
        return list(_library().iter_calc(measures, qrels, run))
    except (ArithmeticError, SubprocessError) as error:  # ERR@10 wants numbers for ids, Accuracy something irrelevant
        names = ", ".join(map(str, measures))
        raise UsageError(f"{names} cannot be computed on these questions", hint=EXAMPLES) from error


def _library() -> Any:
    try:
        import ir_measures
    except ImportError as error:
        raise UsageError("measuring needs ir-measures", hint="pip install 'recollect[eval]'") from error
    return ir_measures


def _parse(word: str) -> Any:
    library = _library()
    try:
        measure = library.parse_measure(word)
        library.evaluator([measure], {"question": {"document": 1}})
    except AssertionError as error:  # how the library says that a parameter is missing
        raise _wrong(word, "it needs a cutoff, as in R@5") from error
    except KeyError as error:  # and that it has none of that name
        raise _wrong(word, f"it has no parameter {error}") from error
    except (ValueError, NameError, TypeError, RuntimeError) as error:
        raise _wrong(word, " ".join(str(error).split())) from error
    if not 1 <= measure.params.get("cutoff", 1) <= MOST:
        raise _wrong(word, f"a cutoff is between 1 and {MOST:,}")
    return measure


def _wrong(word: str, reason: str) -> UsageError:
    return UsageError(f"{word!r} is no measure that can be computed: {reason}", hint=EXAMPLES)
