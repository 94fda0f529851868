import random

import pytest

from recollect.evaluation.datasets import Dataset
from recollect.evaluation.recording import JudgedSet, JudgedSets, Recording, ReplayOutcome, record, record_sets
from recollect.evaluation.tuning import check_prefix, churn, curves, knee, sweep

WORDS = [
    "night",
    "train",
    "water",
    "garden",
    "piano",
    "budget",
    "harbour",
    "winter",
    "letter",
    "window",
    "bread",
    "stone",
    "river",
    "market",
    "lamp",
]
CURVES = curves(["blend", "rrf", "weighted"], ks=[1, 60], normalisations=["minmax"])


def texts(count=80):
    draw = random.Random(1)
    return [f"{' '.join(draw.sample(WORDS, 6))} {number}" for number in range(count)]


def dataset(count=80):
    """Questions of words that several documents share, of which one is judged."""
    draw = random.Random(2)
    corpus = tuple({"_id": f"d{number}", "title": "", "text": text} for number, text in enumerate(texts(count)))
    picked = {f"q{number}": draw.randrange(count) for number in range(12)}
    queries = {key: " ".join(draw.sample(corpus[place]["text"].split()[:6], 3)) for key, place in picked.items()}
    return Dataset("small", corpus, queries, {key: {f"d{place}": 1} for key, place in picked.items()}, "f", "j")


@pytest.fixture
def judged(memory):
    small = dataset()
    memory.add_many([{"id": row["_id"], "text": row["text"]} for row in small.corpus])
    return JudgedSets("small", (JudgedSet(small, record(memory, small.queries)),))


def outcome(values, tops=None):
    return ReplayOutcome(values, tops or dict.fromkeys(values, ()))


def test_every_curve_is_measured_at_every_depth(judged):
    found = sweep(judged, CURVES, [20, 5, 5])
    wanted = [{**curve, "fetch_k": depth} for curve in CURVES for depth in (5, 20)]
    assert [row["options"] for row in found["rows"]] == wanted
    assert all(row["low"] <= row["mean"] <= row["high"] for row in found["rows"])
    assert judged.questions == 12
    assert [row["options"]["fusion"] for row in found["knees"]] == ["blend", "rrf", "rrf", "weighted"]
    assert found["knee"]["mean"] == max(row["mean"] for row in found["knees"])
    along = [step["along"] for step in found["churn"]]
    assert along.count("fetch_k") == len(CURVES)
    assert along.count("settings") == 2 * (len(CURVES) - 1)


def test_replay_ranks_like_a_search(judged, memory):
    """The rows equal what these settings give in a search."""
    small = judged.parts[0].dataset
    for curve in CURVES:
        for depth in (10, 30):
            tops = judged({**curve, "fetch_k": depth}).tops
            for key, text in small.queries.items():
                live = memory.search(text, limit=10, fetch_k=depth, **curve).results
                assert tops[key] == tuple(result.record.id for result in live)


def test_progress_is_reported_for_every_setting(judged):
    told = []
    sweep(judged, CURVES, [5, 20], progress=lambda done, total: told.append((done, total)))
    assert told == [(done, 8) for done in range(1, 9)]


def values(mean, wobble=0.0):
    return {f"q{number}": mean + wobble * (-1) ** number for number in range(60)}


def test_knee_is_where_nothing_deeper_is_significantly_better():
    """A gain by chance moves no knee; a significant one does, at any depth."""
    assert knee([values(0.5), values(0.6), values(0.6)]) == 1
    assert knee([values(0.5), values(0.501, 0.2), values(0.502, 0.3)]) == 0
    assert knee([values(0.5), values(0.4), values(0.6)]) == 2
    assert knee([values(0.6), values(0.5), values(0.4)]) == 0
    assert knee([values(0.6)]) == 0


def test_churn_is_the_replaced_share():
    before = outcome({"a": 0, "b": 0}, {"a": tuple("abcdefghij"), "b": ("x", "y")})
    after = outcome({"a": 0, "b": 0}, {"a": tuple("jihgfedcbk"), "b": ("y", "x")})
    assert churn(before, before) == 0
    assert churn(before, after) == pytest.approx(0.05)
    assert churn(after, before) == pytest.approx(0.05)
    assert churn(outcome({"a": 0}), outcome({"a": 0})) == 0


def test_the_certificate_holds_for_live_searches(judged, memory):
    asked_texts = list(judged.parts[0].dataset.queries.values())[:4]
    prefix = check_prefix([(Recording(memory, {}, {}), asked_texts)], CURVES)
    assert prefix == {"checked": 16, "held": True, "questions": 4, "limits": [1, 50], "broken": []}


def test_certificate_names_its_violation(judged, memory, monkeypatch):
    """A search whose first result depends on the limit is named with its question and settings."""
    real = memory.search

    def turned(text, *, limit, **options):
        answer = real(text, limit=max(limit, 2), **options)
        flip = limit == 1 and options["fusion"] == "rrf"
        return type(answer)(answer.query, answer.results[1:2] if flip else answer.results[:limit], answer.trace)

    monkeypatch.setattr(type(memory), "search", lambda _self, text, **options: turned(text, **options))
    recording = Recording(memory, {}, {})
    prefix = check_prefix([(recording, ["night train"])], curves(["rrf", "weighted"]))
    assert prefix["held"] is False
    assert prefix["broken"] == [{"question": "night train", "options": {"fusion": "rrf"}}]
    both = check_prefix([(recording, ["night train"]), (recording, ["no such word"])], curves(["rrf", "weighted"]))
    assert (both["checked"], both["questions"], both["held"]) == (4, 2, False)


def test_questions_are_sent_to_every_corpus_once(open_memory, tmp_path):
    """Two corpora are one set; sources are not queried again while settings are tried."""
    small = dataset(20)
    others = {f"other/{key}": text for key, text in small.queries.items()}
    other = Dataset("other", small.corpus, others, {f"other/{key}": of for key, of in small.qrels.items()}, "g", "j")

    def open_set(one):
        memory = open_memory(tmp_path / f"{one.name}.db")
        memory.add_many([{"id": row["_id"], "text": row["text"]} for row in one.corpus])
        return memory

    with record_sets("both", [small, other], open_set, depth=30) as found:
        assert found.questions == 24
        assert found.as_dict()["corpora"] == [{"name": "small", "questions": 12}, {"name": "other", "questions": 12}]
        outcome = found({"fusion": "rrf"})
        assert {key: outcome.values[f"other/{key}"] for key in small.queries} == {
            key: outcome.values[key] for key in small.queries
        }
