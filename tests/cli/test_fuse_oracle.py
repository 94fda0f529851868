"""`recollect fuse` from files to a ranking, compared with ranx and with the formula in exact fractions."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from functools import cache

import pytest

from recollect.cli import main
from recollect.evaluation.runs import fuse_runs, read_run

pytestmark = pytest.mark.xdist_group("ranx")  # numba compiles it once, not in every worker

SYSTEMS = ("bm25", "dense", "sparse")
KS = (1, 2, 10, 59, 60, 61, 1000, *random.Random(9).sample(range(3, 1000), 18))
EACH = 40
"""Questions for each k: a thousand cases in all."""


def rankings(k: int) -> dict[str, dict[str, list[str]]]:
    """Question → system → ids, best first: one to thirty of a pool of forty, so that some are in several lists."""
    rng = random.Random(k)
    pool = [f"d{number:02}" for number in range(40)]
    return {
        f"{k}-{number}": {system: rng.sample(pool, rng.randint(1, 30)) for system in SYSTEMS} for number in range(EACH)
    }


@cache
def ranx_rrf(k: int) -> dict[str, dict[str, float]]:
    """What ranx makes of these rankings."""
    import ranx

    runs = [
        ranx.Run({key: {doc: 1 / rank for rank, doc in enumerate(of[system], 1)} for key, of in rankings(k).items()})
        for system in SYSTEMS
    ]
    return ranx.fuse(runs, method="rrf", norm=None, params={"k": k}).to_dict()


def exact(lists: dict[str, list[str]], k: int, weights: dict[str, float]) -> dict[str, Fraction]:
    """The definition, in fractions."""
    totals: dict[str, Fraction] = {}
    for system, docs in lists.items():
        for rank, doc in enumerate(docs, 1):
            if weights[system]:
                totals[doc] = totals.get(doc, Fraction(0)) + Fraction(weights[system]) / (k + rank)
    return totals


def trec(system: str, cases: dict[str, dict[str, list[str]]], rng: random.Random) -> bytes:
    """A system's run with its lines in any order and ranks that mean nothing, as the convention allows."""
    lines = [
        f"{key} Q0 {doc} {rng.randint(1, 99)} {(100 - rank) / 7:.6f} {system}"
        for key, of in cases.items()
        for rank, doc in enumerate(of[system], 1)
    ]
    rng.shuffle(lines)
    return "\n".join(lines).encode()


def agree(ours: dict[str, float], theirs: dict[str, float]) -> bool:
    """Whether scores are equal to 1e-12, and the order is theirs too, ties aside."""
    in_our_order = [float(theirs[doc]) for doc in ours]
    assert ours == pytest.approx({doc: float(score) for doc, score in theirs.items()}, rel=1e-12)
    return in_our_order == pytest.approx(sorted(in_our_order, reverse=True), rel=1e-12)


# Numba says so of a loop index of ranx's own when it first compiles it.
@pytest.mark.torture  # compiled for most of a minute; the command has another oracle above
@pytest.mark.filterwarnings("ignore:unsafe cast from uint64 to int64")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("k", KS)
def test_runs_of_three_systems_fuse_as_ranx_does(k):
    """TREC runs read and fused question by question have ranx's scores and order: a thousand cases, k to 1000."""
    cases, rng = rankings(k), random.Random(k + 1)
    runs = {system: read_run(trec(system, cases, rng), system) for system in SYSTEMS}
    fused = fuse_runs(runs, k=k)
    assert set(fused) == set(cases)
    for key in cases:
        assert agree({one.id: one.fused for one in fused[key]}, ranx_rrf(k)[key])


@pytest.mark.parametrize("k", KS)
def test_weights_follow_the_formula(k):
    """Scores and order equal Σ w / (k + rank) in fractions, also with a weight of 0."""
    cases, rng = rankings(k), random.Random(k + 2)
    weights = {system: rng.choice([0.0, 0.1, 0.3, 0.7, 1.0, 2.5, 100.0]) for system in SYSTEMS} | {"dense": 0.5}
    runs = {system: read_run(trec(system, cases, rng), system) for system in SYSTEMS}
    fused = fuse_runs(runs, k=k, weights=weights)
    for key, lists in cases.items():
        assert agree({one.id: one.fused for one in fused[key]}, exact(lists, k, weights))


def write_files(folder, lists: dict[str, list[str]], rng: random.Random) -> list[str]:
    """One question's lists as JSON with ranks, JSON lines with scores, and a TREC run, none of them in order."""
    ranked = [{"id": doc, "rank": rank, "text": "…"} for rank, doc in enumerate(lists["bm25"], 1)]
    scored = [{"id": doc, "score": 9.5 - rank / 10} for rank, doc in enumerate(lists["dense"], 1)]
    rng.shuffle(ranked)
    rng.shuffle(scored)
    (folder / "bm25.json").write_text(json.dumps({"results": ranked, "trace": {}}, indent=rng.choice([None, 2])))
    (folder / "dense.jsonl").write_text("\n".join(map(json.dumps, scored)))
    (folder / "sparse.trec").write_bytes(trec("sparse", {"q": lists}, rng))
    return [str(folder / name) for name in ("bm25.json", "dense.jsonl", "sparse.trec")]


@pytest.mark.torture  # numba compiles ranx for half a minute; test_rrf_oracle.py has it in any case
@pytest.mark.filterwarnings("ignore:unsafe cast from uint64 to int64")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("k", KS[:10])
def test_command_gives_ranxs_ranking(k, tmp_path, capsys):
    """`recollect fuse a.json b.jsonl c.trec --k … --json` on five questions for each of ten k, and with weights."""
    rng = random.Random(k + 3)
    for key, lists in list(rankings(k).items())[:5]:
        files = write_files(tmp_path, lists, rng)
        assert main(["fuse", *files, "--method", "rrf", "--k", str(k), "--json"]) == 0
        results = json.loads(capsys.readouterr().out)["results"]
        assert agree({one["id"]: one["fused"] for one in results}, ranx_rrf(k)[key])
        assert [one["rank"] for one in results] == list(range(1, len(results) + 1))
        assert main(["fuse", *files, "--k", str(k), "--weights", "0.3,0.7,2", "--json"]) == 0
        results = json.loads(capsys.readouterr().out)["results"]
        weights = {"bm25": 0.3, "dense": 0.7, "sparse": 2.0}
        assert agree({one["id"]: one["fused"] for one in results}, exact(lists, k, weights))
