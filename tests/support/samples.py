"""Reports as the studies print them, small or as large as they get."""

import itertools
import math
import random

from recollect.evaluation.scoring import compare, estimate

HOSTILE = "<script>alert(1)</script>&\"'$x_2$"
LONG = "q" * 400


def data(questions, name="harbour notes"):
    return {"name": name, "fingerprint": "3fa8c1d2e4b59607", "documents": 5183, "questions": questions}


def as_dict(found):
    return {"mean": found.mean, "low": found.low, "high": found.high, "n": found.n}


def run(questions=60, systems=("fused", "keyword", "vector"), *, names=None):
    """A run of systems with two measures, comparisons and times."""
    chance = random.Random(7)
    keys = [*(names or ()), *(f"q{number}" for number in range(questions - len(names or ())))]
    base = {key: chance.random() for key in keys}
    bodies = {}
    for place, system in enumerate(systems):
        drift = 0.15 - 0.1 * place
        values = {
            measure: {
                key: min(1.0, max(0.0, base[key] + chance.choice((0, 0, drift, chance.gauss(drift, 0.1)))))
                for key in keys
            }
            for measure in ("nDCG@10", "R@20")
        }
        bodies[system] = {
            "options": {},
            "measures": {name: as_dict(estimate(list(found.values()))) for name, found in values.items()},
            "per_query": values,
            "latency_ms": {"values": [chance.lognormvariate(math.log(6 * 4**place), 0.4) for _ in keys]},
        }
    comparisons = []
    for other in systems[1:]:
        found = compare(bodies[systems[0]]["per_query"]["nDCG@10"], bodies[other]["per_query"]["nDCG@10"])
        row = {"a": systems[0], "b": other, "measure": "nDCG@10", "difference": as_dict(found.difference), "p": found.p}
        comparisons.append(row | {"wins": found.wins, "losses": found.losses, "ties": found.ties})
    settings = {"embedder": "arctic-embed-s", "search": {"fusion": "rrf", "fetch_k": 100}}
    return {
        "data": data(questions),
        "settings": settings,
        "systems": bodies,
        "comparisons": comparisons,
        "warnings": [],
    }


def sweep(methods=("rrf", "weighted", "borda"), depths=(5, 10, 20, 50, 100, 200), *, ks=(60,)):
    """A sweep over depth, whose means rise and level off."""
    rows = []
    for place, method in enumerate(methods):
        for k in ks:
            for depth in depths:
                mean = 0.7 + 0.01 * place - k / 10_000 - 0.1 * math.exp(-depth / 15)
                options = {"fusion": method, "fetch_k": depth, **({"rrf_k": k} if len(ks) > 1 else {})}
                rows.append({"options": options, "mean": mean, "low": mean - 0.03, "high": mean + 0.03})
    churn = [
        {"from": {"fetch_k": a}, "to": {"fetch_k": b}, "share": 1 / a, "along": "fetch_k"}
        for a, b in itertools.pairwise(depths)
    ]
    knee = {"options": {"fusion": methods[0], "fetch_k": 50}, "mean": 0.7, "low": 0.67, "high": 0.73}
    told = {"data": data(300), "measure": "nDCG@10", "rows": rows, "knee": knee, "churn": churn}
    return told | {"prefix": {"checked": 100, "held": True}}


def overlap(pairs=(("keyword", "vector"), ("keyword", "hyde"))):
    """Pairs of sources, counted over relevant documents."""
    rows = [
        {"a": a, "b": b, "both": 212 - 20 * place, "only_a": 31, "only_b": 45, "neither": 12 + 20 * place,
         "advice": "gains little", "why": "both find most of what either finds"}
        for place, (a, b) in enumerate(pairs)
    ]  # fmt: skip
    return {"data": data(300), "pairs": rows}


def hostile():
    """Names and ids that are markup, mathematics, endless, or no text at all."""
    names = (HOSTILE, LONG, "line\nbreak\x00\x1b[31m", "\ud800 alone", "日本語 العربية", "{{x}} ${body} %s", "")
    told = run(40, (HOSTILE, LONG, "日本語"), names=names)
    told["data"]["name"] = HOSTILE
    told["data"]["fingerprint"] = f"</figcaption>{HOSTILE}"
    told["settings"] = {HOSTILE: {HOSTILE: HOSTILE}}
    told["warnings"] = [HOSTILE, "${body}"]
    swept = sweep((HOSTILE, LONG))
    swept["measure"] = HOSTILE
    return [told, swept, overlap(((HOSTILE, LONG),))]
