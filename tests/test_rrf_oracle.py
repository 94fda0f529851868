from __future__ import annotations

import random

import pytest

from recollect.fusion import fuse

pytestmark = pytest.mark.xdist_group("ranx")  # numba compiles it once, not in every worker

KS = (0, 1, 60)
QUERIES_EACH = 100
SOURCES = ("keyword", "vector", "hyde")


def rankings(seed: int) -> dict[str, dict[str, list[str]]]:
    """Question → source → ids, best first: one to twenty of a pool of thirty, so that some are in several lists."""
    rng = random.Random(seed)
    pool = [f"d{number:02}" for number in range(30)]
    return {
        f"q{number:03}": {source: rng.sample(pool, rng.randint(1, 20)) for source in SOURCES}
        for number in range(QUERIES_EACH)
    }


# Numba says so of a loop index of ranx's own when it first compiles it.
@pytest.mark.torture  # compiled for half a minute; exact fractions are the oracle of `make test`
@pytest.mark.filterwarnings("ignore:unsafe cast from uint64 to int64")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("k", KS)
def test_rrf_equals_ranx(k):
    """On a hundred random questions for each k, scores agree to 1e-9, and so does the order, except for ties."""
    import ranx

    cases = rankings(seed=k)
    runs = [
        ranx.Run({key: {doc: 1 / rank for rank, doc in enumerate(of[source], 1)} for key, of in cases.items()})
        for source in SOURCES
    ]
    theirs = ranx.fuse(runs, method="rrf", norm=None, params={"k": k}).to_dict()
    assert len(theirs) == QUERIES_EACH
    for key, lists in cases.items():
        ours = {result.id: result.fused for result in fuse(lists, k=k)}
        assert ours == pytest.approx(theirs[key], abs=1e-9)
        in_our_order = [theirs[key][doc] for doc in ours]
        assert in_our_order == pytest.approx(sorted(in_our_order, reverse=True), abs=1e-9)
