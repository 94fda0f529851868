"""`why_not` against the reference: it names the stage that drops a record, and its change brings the record back."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from recollect import Memory
from recollect.config import Settings
from reference.search import DEFAULTS, Outcome, World, fold, obstacle, search
from reference.stores import Case, TinyEmbedder, a_query, some_options, world_of

DEEP = 10_000
AFTER_FILTERS = ("fetch_k", "threshold", "mmr", "limit")
EVERYTHING = {"limit": 100, "fetch_k": 100, "min_score": 0.0, "mmr": False}


def stage_of(  # noqa: PLR0911  (one a stage)
    key: str, world: World, text: str, options: Mapping[str, Any], now: datetime
) -> tuple[str, int | None]:
    """The stage at which the reference drops a record, or `found` with its rank."""
    o = {**DEFAULTS, **options}
    record = next((record for record in world.records if record.id == key), None)
    if record is None:
        return "forgotten", None
    if hidden := obstacle(record, o, now):
        return hidden, None
    outcome = search(world, text, options, now)
    places = [row.record.id for row in outcome.results]
    if key in places:
        return "found", places.index(key) + 1
    if record.path:
        return "missing", None  # its file: no path of these tests exists
    same = [row.record.id for row in outcome.steps["fusion"] if fold(row.record.text) == fold(record.text)]
    if not same:
        deep = search(world, text, {**options, "fetch_k": DEEP}, now)
        return unranked(fold(record.text), outcome, deep, o), None
    if same != [key]:
        return "duplicate", None
    if key not in [row.record.id for row in outcome.steps["threshold"]]:
        return "threshold", None
    by_relevance = [row.record.id for row in outcome.steps["newer"]].index(key)
    return "mmr" if by_relevance < o["limit"] else "limit", None


def unranked(folded: str, outcome: Outcome, deep: Outcome, o: Mapping[str, Any]) -> str:
    """Why no list holds a text: it lies deeper, only in a source that does not count, or nowhere."""
    weights = {"keyword": o["text_weight"], "vector": o["vector_weight"]}
    trust = {ranking.source: ranking.trust for ranking in outcome.lists}
    having = {ranking.source for ranking in deep.lists if folded in [fold(record.text) for record, _ in ranking.hits]}
    if any(weights[source] > 0 and trust[source] > 0 for source in having):
        return "fetch_k"
    if any(weights[source] == 0 for source in having):
        return "weight"
    return "trust" if having else "unmatched"


def plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as the reference reads them: None is the default, and times are times."""
    given = {name: value for name, value in options.items() if value is not None}
    return {
        name: datetime.fromisoformat(value) if name == "as_of" and isinstance(value, str) else value
        for name, value in given.items()
    }


@pytest.mark.parametrize("block", [0, *(pytest.param(n, marks=pytest.mark.ci) for n in range(1, 10))])
def test_why_not_agrees_with_the_reference(block: int, tmp_path: Path) -> None:
    """For records of twenty random stores a block."""
    for seed in range(block * 20, block * 20 + 20):
        try:
            compare(random.Random(seed), tmp_path / f"{seed}.db")
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def compare(chance: random.Random, path: Path) -> None:
    embedder = TinyEmbedder()
    with Memory.open(path, embedder=embedder, settings=Settings(), announce=lambda _: None) as memory:
        case = Case.fill(chance, memory, embedder)
        for _ in range(3):
            embedder.refuses = True  # so that a search changes nothing
            text, options = a_query(chance), some_options(chance)
            world = world_of(memory, embedder, case.known)
            for key in chance.sample(case.known, min(6, len(case.known))):
                check(memory, world, key, text, options)
            case.change(chance)


def check(memory: Memory, world: World, key: str, text: str, options: Mapping[str, Any]) -> None:
    """The verdict on one record."""
    now = memory.search(text, **options).query.filter.now
    if search(world, text, options, now).delicate:
        return
    verdict = memory.why_not(text, key, **options)
    assert (verdict.stage, verdict.rank) == stage_of(key, world, text, options, now)
    if verdict.change:
        again = plain({**options, **verdict.change})
        assert key in {result.record.id for result in memory.search(text, **again).results}
        outcome = search(world, text, again, now)
        assert outcome.delicate or key in {row.record.id for row in outcome.results}
    elif verdict.stage in AFTER_FILTERS:
        outcome = search(world, text, {**options, **EVERYTHING}, now)
        assert key not in {row.record.id for row in outcome.results}
