"""What there is and how it is doing, for those who look at the whole; of one behind a wall, what is on their side."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from recollect.memory.shapes import iso
from recollect.sources import ExternalSource
from recollect.sources.breaker import FAILURES
from recollect.types import Filter, Scope, Store


def status(store: Store, caller: Scope | None = None) -> dict[str, Any]:
    """What the store holds, how far its indexes have read it, and which model serves."""
    active = store.spaces.active
    where = None if caller is None else Filter(scope=caller, superseded=True)
    held = store.status() if where is None else {"records": store.count(where)}
    vectors: dict[str, Any] = {"embedder": None, "with": 0, "without": held["records"]["total"]}
    if active is not None:
        covered, missing = store.spaces.open(active).coverage(where)
        vectors = {"embedder": active.embedder, "dimension": active.dimension, "with": covered, "without": missing}
    return {**held, "vectors": vectors if where is None else {name: vectors[name] for name in ("embedder", "without")}}


def health(outside: Mapping[str, ExternalSource]) -> list[dict[str, Any]]:
    """How each source has been doing; our own two are there as long as the store is."""
    ours = [{"name": name, "kind": name, "state": "ok", "failures": 0} for name in ("keyword", "vector")]
    return [*ours, *(_health(name, source) for name, source in outside.items())]


def _health(name: str, source: ExternalSource) -> dict[str, Any]:
    seen = source.breaker.seen()
    resting = seen.failures >= FAILURES and seen.until > time.time()
    state = "resting" if resting else "failing" if seen.failures else "ok"
    told = {"name": name, "kind": source.said.kind, "state": state, "failures": seen.failures}
    return (
        told
        | ({"reason": seen.reason} if seen.failures and seen.reason else {})
        | ({"until": iso(datetime.fromtimestamp(seen.until, UTC))} if resting else {})
    )
