"""Runs of several systems into one, question by question."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from recollect.errors import UsageError
from recollect.evaluation.runs import Run
from recollect.fusion import DEFAULT_K, Entry, Fused, RankedList, fuse


def fuse_runs(
    runs: Mapping[str, Run],
    *,
    method: str = "rrf",
    k: float = DEFAULT_K,
    normalisation: str = "none",
    weights: Mapping[str, float] | None = None,
    bounded: Collection[str] = (),
) -> dict[str | None, list[Fused]]:
    """Question → fused ranking, for the runs by their sources' names; the key None is that of lists without a question.

    `bounded` names the sources whose scores are used as they are, as cosines should be. What cannot be fused is a
    UsageError.
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


def by_question(runs: Mapping[str, Run]) -> dict[str | None, dict[str, Sequence[Entry]]]:
    """Each question with every source's list, empty where the source has none for it.

    A list that names no question goes with the one question of the others, and with nothing where they have several.
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
