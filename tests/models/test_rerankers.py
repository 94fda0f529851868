"""Reranking: a model reorders the head of the ranking; there is always an answer."""

from __future__ import annotations

import gc
import math
import time
import weakref
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.timing import within

from recollect import Memory
from recollect.cli import main
from recollect.config import SearchOptions, Settings
from recollect.errors import ConfigError, UsageError
from recollect.memory.shapes import answer_dict
from recollect.models.onnx import OnnxEmbedder
from recollect.models.rerankers import RERANKERS, WIDTH, open_reranker, passage
from recollect.stages import WEIGHT, Rerank, RerankScores, share_of
from recollect.types import Answer, Candidate, Pool, Query, Record, Reranker

STAND = """
ASKED, OPENED, TRIAL = [], [], "Is it ready?"
SAY = [lambda query, passages: [0.0 for _ in passages]]

class open:
    def __init__(self, spec):
        self.name = spec
        OPENED.append(spec)

    def scores(self, query, passages):
        if query == TRIAL:
            return [0.0 for _ in passages]
        ASKED.append(list(passages))
        return SAY[0](query, passages)
"""

Say = Callable[[str, Sequence[str]], Any]


@pytest.fixture
def stand(offer: Callable[..., ModuleType]) -> ModuleType:
    """A package with a reranker "stand" that returns what a test sets as `stand.SAY[0]`, and records its calls."""
    return offer("recollect.rerankers", "stand", STAND)


@pytest.fixture
def herons(memory: Memory) -> Memory:
    """Thirty records with the same word, each with more other words than the one before."""
    memory.add_many(
        {"id": f"h{i:02}", "text": f"heron {' '.join(f'w{i}x{j}' for j in range(i + 1))}"} for i in range(30)
    )
    return memory


def reranked(memory: Memory, stand: ModuleType, say: Say, **options: Any) -> Answer:
    """The answer when the reranker of the test's package says this."""
    stand.SAY[0] = say
    return memory.search("heron", rerank=True, rerank_model="stand:x", **options)


def ids(answer: Answer) -> list[str]:
    return [result.record.id for result in answer.results]


def backwards(_: str, passages: Sequence[str]) -> list[float]:
    """The longer, the better: against the fused order."""
    return [(len(text) - 30) / 3 for text in passages]


def longest(_: str, passages: Sequence[str]) -> list[float]:
    """Only the longest is an answer."""
    most = max(map(len, passages))
    return [9.0 if len(text) == most else -9.0 for text in passages]


def some(totals: Sequence[float]) -> list[Candidate]:
    """Candidates with these totals."""
    pool = Pool()
    pool.records = {f"r{i}": Record(f"r{i}", f"text {i}") for i in range(len(totals))}
    pairs = zip(pool.records, totals, strict=True)
    return [Candidate(pool, key, total, total, (b"", 0, 0.5, None, None, 0)) for key, total in pairs]


def staged(totals: Sequence[float], scores: Sequence[float], **options: Any) -> list[Candidate]:
    """What the stage makes of candidates with these totals when the model says these numbers."""
    stage = Rerank(lambda _, records: RerankScores(tuple(scores[: len(records)])), **options)
    return list(stage(Query("q"), some(totals)))


# -- the stage ----------------------------------------------------------------------------------------------

numbers = st.lists(st.tuples(st.floats(0, 1), st.floats(-12, 12)), max_size=30)


@given(numbers, st.integers(2, 40), st.floats(0.05, 0.95))
def test_explanation_holds_for_any_scores(pairs, head, weight):
    """The same results, sorted by total; the total is base times factors and within the head's range."""
    totals = sorted((total for total, _ in pairs), reverse=True)
    after = staged(totals, [score for _, score in pairs], head=head, weight=weight)
    assert sorted(result.record.id for result in after) == sorted(result.record.id for result in some(totals))
    first, rest = after[:head], after[head:]
    assert [result.total for result in first] == sorted((result.total for result in first), reverse=True)
    assert [result.record.id for result in rest] == [result.record.id for result in some(totals)[head:]]
    for result in first:
        assert result.total == pytest.approx(result.base * math.prod(result.factors.values()))
        assert min(totals[:head]) * (1 - 1e-12) <= result.total <= max(totals[:head]) * (1 + 1e-12)


def test_weight_one_is_the_models_order_and_weight_zero_the_fused_one():
    """Between them is the blend."""
    totals, scores = [0.9, 0.5, 0.4, 0.1], [-3.0, -1.0, 4.0, 2.0]
    names = {weight: [result.record.id for result in staged(totals, scores, weight=weight)] for weight in (0, 0.5, 1)}
    assert names[0] == ["r0", "r1", "r2", "r3"]
    assert names[1] == ["r2", "r3", "r1", "r0"]
    assert names[0.5][0] == "r2"


def test_model_counts_by_how_far_it_sets_one_result_apart():
    """Where it finds all alike it changes nothing; logits and probabilities are read alike."""
    assert share_of([4.0, 4.0, 4.0]) == share_of([0.2, 0.2]) == 0
    assert 0 < share_of([1.0, 0.5, -1.0]) < share_of([6.0, -6.0, -6.0]) < WEIGHT
    assert share_of([0.9, 0.1, 0.1]) == pytest.approx(share_of([math.log(9), -math.log(9), -math.log(9)]))
    assert share_of([1e300, -1e300]) == pytest.approx(WEIGHT / 2)


def reranked_turns(totals: Sequence[float], scores: Sequence[float], times: Sequence[int], **options: Any) -> list[str]:
    """The order of turns of one conversation, stored at these times, when the model says these numbers."""
    turns = some(totals)
    for turn, stored in zip(turns, times, strict=True):
        turn.file, turn.line = "talk", -stored
    stage = Rerank(lambda _, records: RerankScores(tuple(scores[: len(records)])), **options)
    return [result.record.id for result in stage(Query("q"), turns)]


def test_what_the_model_says_of_the_turns_around_counts():
    """A turn beside the best one is before another to which the model gives a little more."""
    totals, scores = [0.9, 0.8, 0.7, 0.6], [-4.0, 3.0, 1.2, 1.0]
    assert [result.record.id for result in staged(totals, scores, weight=1)] == ["r1", "r2", "r3", "r0"]
    assert reranked_turns(totals, scores, [901, 101, 501, 103], weight=1) == ["r1", "r3", "r2", "r0"]


def test_model_counts_in_full_among_turns():
    """Its share does not follow from its scores where most results are turns, unless it finds all of them alike."""
    totals, scores = [0.9, 0.85, 0.8], [-9.0, -8.0, -2.5]
    assert [result.record.id for result in staged(totals, scores)] == ["r0", "r1", "r2"]
    assert reranked_turns(totals, scores, [101, 501, 901]) == ["r2", "r1", "r0"]
    assert reranked_turns(totals, [8.0, 8.5, 9.0], [101, 501, 901]) == ["r0", "r1", "r2"]


def test_equal_scores_keep_the_order():
    """Equal totals are ordered by the model."""
    assert [result.record.id for result in staged([0.9, 0.5, 0.4], [2.0, 2.0, 2.0])] == ["r0", "r1", "r2"]
    assert [result.record.id for result in staged([0.5, 0.5, 0.5], [-2.0, 2.0, 0.0])] == ["r1", "r2", "r0"]
    assert [result.total for result in staged([0.5, 0.5, 0.5], [-2.0, 2.0, 0.0])] == [0.5, 0.5, 0.5]


def test_score_of_zero_stays_at_the_end():
    """No factor changes it."""
    after = staged([0.9, 0.5, 0.0], [-1.0, 1.0, 9.0], weight=1)
    assert [(result.record.id, result.total) for result in after] == [("r1", 0.9), ("r0", 0.5), ("r2", 0.0)]
    assert "rerank" not in after[2].factors


def test_unscored_results_stay_below_scored_ones():
    """With scores for the first three only, the rest is unchanged."""
    after = staged([0.9, 0.8, 0.7, 0.6, 0.5], [1.0, 2.0, 3.0], weight=1)
    assert [result.record.id for result in after] == ["r2", "r1", "r0", "r3", "r4"]


# -- in a search --------------------------------------------------------------------------------------------


def test_reranking_is_off_by_default(herons, stand):
    """No stage runs and no model is called."""
    answer = herons.search("heron", rerank_model="stand:x")
    assert "rerank" not in [stage.name for stage in answer.trace.stages]
    assert not stand.OPENED


def test_only_the_head_is_reranked(herons, stand):
    """In one call and in order; the others follow as before."""
    before = ids(herons.search("heron", limit=30))
    after = reranked(herons, stand, longest, limit=30, rerank_head=5)
    assert [len(passages) for passages in stand.ASKED] == [5]
    assert sorted(ids(after)[:5]) == sorted(before[:5])
    assert ids(after)[:5] != before[:5]
    assert ids(after)[5:] == before[5:]
    names = [stage.name for stage in after.trace.stages]
    assert names[names.index("rerank") + 1 :] == ["newer", "mmr", "limit", "scope", "superseded", "freshness"]


def test_head_may_be_longer_than_the_results(herons, stand):
    """Thirty results and a head of a thousand."""
    after = reranked(herons, stand, backwards, limit=30, rerank_head=1000)
    assert [len(passages) for passages in stand.ASKED] == [30]
    assert sorted(ids(after)) == sorted(ids(herons.search("heron", limit=30)))


def test_fewer_than_two_results_need_no_model(memory, stand):
    """Where nothing can change places, no model is opened."""
    assert reranked(memory, stand, backwards).results == ()
    memory.add("heron")
    assert len(reranked(memory, stand, backwards).results) == 1
    assert not stand.OPENED


def test_explain_shows_reranking_as_a_factor(herons, stand):
    """In the JSON, `total` is `base` times the factors with `rerank`, and falls with the rank."""
    answer = reranked(herons, stand, backwards, limit=8)
    rows = answer_dict(answer, explain=True)["results"]
    assert all("rerank" in row["factors"] for row in rows)
    assert all(row["total"] == pytest.approx(row["base"] * math.prod(row["factors"].values())) for row in rows)
    assert [row["total"] for row in rows] == sorted((row["total"] for row in rows), reverse=True)


def test_reranking_does_not_depend_on_the_limit(herons, stand):
    """And is the same each time."""
    many = reranked(herons, stand, backwards, limit=30)
    assert ids(reranked(herons, stand, backwards, limit=3)) == ids(many)[:3]
    assert [result.total for result in reranked(herons, stand, backwards, limit=30).results] == [
        result.total for result in many.results
    ]
    assert stand.OPENED == ["stand:x"]


def test_reranking_works_with_threshold_and_mmr(herons, stand):
    """Passed results stay, and MMR begins with the first reranked one."""
    least = herons.search("heron", limit=30).results[9].score
    after = reranked(herons, stand, backwards, limit=30, min_score=least)
    assert len(after.results) == 10
    assert all(result.score >= least * (1 - 1e-12) for result in after.results)
    assert ids(reranked(herons, stand, backwards, mmr=True))[0] == ids(reranked(herons, stand, backwards))[0]


def test_why_not_includes_reranking(herons, stand):
    """A record moved beyond the limit is reported so."""
    stand.SAY[0] = backwards
    third = ids(herons.search("heron"))[2]
    place = ids(reranked(herons, stand, backwards, limit=30)).index(third) + 1
    verdict = herons.why_not("heron", third, rerank=True, rerank_model="stand:x", limit=place - 1)
    assert (verdict.stage, verdict.change) == ("limit", {"limit": place})


# -- when it fails ------------------------------------------------------------------------------------------


def broken(_: str, passages: Sequence[str]) -> list[float]:
    raise ZeroDivisionError("on fire")


@pytest.mark.parametrize(
    ("say", "words"),
    [
        (broken, "ZeroDivisionError: on fire"),
        (lambda _, passages: [1.0] * (len(passages) - 1), "did not return one finite number for each of 20 passages"),
        (lambda _, passages: [math.nan] * len(passages), "finite number"),
        (lambda *_: None, "TypeError"),
    ],
)
def test_failing_reranker_leaves_the_fused_order(herons, stand, say, words):
    """The trace has the reason."""
    plain, answer = herons.search("heron", limit=30), reranked(herons, stand, say, limit=30)
    assert ids(answer) == ids(plain)
    assert not any("rerank" in result.factors for result in answer.results)
    (warning,) = answer.trace.warnings
    assert warning.startswith("not reranked: ")
    assert words in warning
    assert reranked(herons, stand, backwards).trace.warnings == ()


def test_reranker_that_cannot_be_opened_is_tried_once(herons, offer):
    """The second search does not wait for it again."""
    package = offer(
        "recollect.rerankers", "shut", "TRIED = []\ndef open(spec):\n    TRIED.append(1)\n    raise OSError(7)"
    )
    for _ in range(2):
        answer = herons.search("heron", rerank=True, rerank_model="shut")
        assert ids(answer) == ids(herons.search("heron"))
        assert answer.trace.warnings == ("not reranked: shut cannot be used: OSError: 7",)
    assert package.TRIED == [1]


def test_missing_reranker_without_network_is_reported(herons, tmp_path, monkeypatch):
    """With a hint, and the search answers."""
    monkeypatch.setenv("RECOLLECT_MODELS", str(tmp_path / "empty"))
    monkeypatch.setenv("RECOLLECT_OFFLINE", "1")
    answer = herons.search("heron", rerank=True, rerank_model="minilm-l12-reranker")
    assert ids(answer) == ids(herons.search("heron"))
    assert "offline: " in answer.trace.warnings[0]
    assert "recollect model fetch minilm-l12-reranker" in answer.trace.warnings[0]


def test_unknown_reranker_is_a_usage_error(herons):
    """With the known names; an embedder is none of them."""
    for name in ("word2vec", "arctic-embed-s"):
        with pytest.raises(UsageError, match=f"unknown reranker '{name}'; available: minilm-l12-reranker"):
            herons.search("heron", rerank=True, rerank_model=name)
    for head in (0, 1, 1001):
        with pytest.raises(ConfigError, match=r"search\.rerank_head"):
            herons.search("heron", rerank=True, rerank_head=head)


# -- within the budget --------------------------------------------------------------------------------------


def slowly(seconds: float) -> Say:
    """Takes so long for each passage."""

    def say(query: str, passages: Sequence[str]) -> list[float]:
        time.sleep(seconds * len(passages))
        return backwards(query, passages)

    return say


def test_budget_limits_the_number_of_reranked_results(herons, stand):
    """Batch after batch while there is time; the trace has the number."""
    reranked(herons, stand, slowly(0))
    start = time.monotonic()
    answer = reranked(herons, stand, slowly(0.05), budget_ms=700, limit=30)
    assert within(time.monotonic() - start, 0.95)
    done = sum("rerank" in result.factors for result in answer.results)
    (warning,) = answer.trace.warnings
    assert "no time to rerank" in warning
    assert done <= 14
    assert done != 1


def test_hanging_reranker_is_abandoned_at_the_deadline(herons, stand):
    """The answer has the fused order."""
    reranked(herons, stand, slowly(0))
    plain, start = ids(herons.search("heron")), time.monotonic()
    answer = reranked(herons, stand, slowly(0.4), budget_ms=300)
    assert within(time.monotonic() - start, 0.9)
    assert ids(answer) == plain
    assert answer.trace.warnings == ("no time to rerank",)


def test_reranker_known_to_be_too_slow_is_not_started(herons, stand):
    """Two seconds for four do not fit into a tenth."""
    reranked(herons, stand, slowly(0.5), rerank_head=4)
    stand.ASKED.clear()
    answer = reranked(herons, stand, slowly(0.5), budget_ms=150)
    assert stand.ASKED == []
    assert answer.trace.warnings == ("no time to rerank",)


def test_own_time_limit_of_reranking(herons, stand):
    """As many results as fit are reranked, without a warning; loading the model does not count."""
    stand.SAY[0] = slowly(0.3)
    options = {"rerank": True, "rerank_model": "stand:x", "limit": 30}
    assert not any("rerank" in one.factors for one in herons.search("heron", rerank_ms=100, **options).results)
    answer = herons.search("heron", rerank_ms=1500, **options)
    assert 2 <= sum("rerank" in result.factors for result in answer.results) <= 5
    assert answer.trace.warnings == ()
    stand.SAY[0] = slowly(0)
    assert all("rerank" in one.factors for one in herons.search("heron", rerank_ms=60_000, **options).results[:20])


@pytest.mark.parametrize(
    ("confidences", "certain"),
    [((0.99, 0.1, 0.2), True), ((0.99, 0.1, 0.95), False), ((0.4, 0.0), False), ((None, None), False)],
)
def test_certain_first_result_is_not_reranked(confidences, certain):
    """It must be likely, and far likelier than every other."""
    asked = []

    def scores(_query: Query, records: Sequence[Record]) -> RerankScores:
        asked.append(len(records))
        return RerankScores(tuple(map(float, range(len(records)))))

    candidates = some([0.9, 0.8, 0.7][: len(confidences)])
    candidates[0].pool.confidence = dict(zip((one.key for one in candidates), confidences, strict=True)).get
    assert len(Rerank(scores)(Query("q"), candidates)) == len(candidates)
    assert asked == ([] if certain else [len(confidences)])


# -- for a model that reads the results ---------------------------------------------------------------------


def test_results_for_a_model_are_reranked_unless_switched_off(herons, stand):
    """An explicit setting wins either way; a search for a person is not reranked."""
    stand.SAY[0] = longest

    def stages(**options: Any) -> list[str]:
        answer = herons.search("heron", rerank_model="stand:x", **options)
        return [stage.name for stage in answer.trace.stages]

    assert "rerank" in stages(for_model=True)
    assert "rerank" not in stages(for_model=True, rerank=False)
    assert "rerank" not in stages()
    assert "rerank" in stages(rerank=True)
    before, after = (
        [cited.id for cited in herons.recall("heron", rerank_model="stand:x", rerank=on, rerank_ms=60_000).citations]
        for on in (False, None)
    )
    assert before != after


def test_missing_reranker_of_a_model_is_announced_once(path, tmp_path, monkeypatch):
    """Nothing is fetched, and results are in the fused order."""
    monkeypatch.setenv("RECOLLECT_MODELS", str(tmp_path / "empty"))
    announced: list[str] = []
    settings = Settings(search=SearchOptions(rerank_model="minilm-l12-reranker"))
    for _ in range(2):
        with Memory.open(path, embedder="hashing:64", settings=settings, announce=announced.append) as memory:
            memory.add_many({"text": text} for text in ("A heron stands.", "A heron flies."))
            assert memory.recall("heron").warnings == ()
            assert memory.search("heron").results
    (line,) = announced
    assert "recollect model fetch minilm-l12-reranker" in line
    assert not (tmp_path / "empty").exists()


def test_sufficient_budget_reranks_all(herons, stand):
    """A budget that suffices changes nothing."""
    assert ids(reranked(herons, stand, backwards, budget_ms=60_000)) == ids(
        herons.search("heron", rerank=True, rerank_model="stand:x", rerank_head=20)
    )


# -- what it reads ------------------------------------------------------------------------------------------


def test_long_text_is_read_where_it_matches(memory):
    """A short text whole and with its title; of a long one the part with the query's words."""
    analyzer = memory.store.keywords.analyzer
    terms = analyzer.query("where does the heron nest")
    assert passage(Record("a", "A heron.", title="Birds"), terms, analyzer) == "Birds\nA heron."
    long = "nothing of note. " * 200 + "The heron nests in the old oak. " + "nothing more. " * 200
    read = passage(Record("b", long), terms, analyzer)
    assert "The heron nests in the old oak." in read
    assert len(read) <= WIDTH + 4


# -- the real model -----------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def minilm() -> Reranker:
    """The catalogue's cross-encoder, downloaded once into the user's cache."""
    return open_reranker(RERANKERS.names()[0])


QUESTION = "How many people live in Berlin?"
PASSAGES = [
    "Berlin is well known for its museums.",
    "Berlin had a population of 3,520,031 registered inhabitants in an area of 891.82 square kilometers.",
    "The bicycle chain needs oil.",
]


def test_real_model_prefers_an_answer_to_a_mention(minilm):
    """And a mention to an unrelated text."""
    museums, people, chain = minilm.scores(QUESTION, PASSAGES)
    assert people > museums + 5 > chain
    assert isinstance(minilm, Reranker)
    assert minilm.name == "minilm-l12-reranker"


def test_score_does_not_depend_on_its_neighbours(minilm):
    """In any order; an empty list and invalid text work."""
    together = minilm.scores(QUESTION, PASSAGES)
    assert [minilm.scores(QUESTION, [text])[0] for text in PASSAGES] == together
    assert minilm.scores(QUESTION, PASSAGES[::-1]) == together[::-1]
    assert minilm.scores(QUESTION, []) == []
    assert all(map(math.isfinite, minilm.scores("\ud800 [SEP]", ["", "\x00", "a" * 1_000_000])))


def test_search_ranks_the_answer_higher(open_memory, minilm):
    """Words and vectors prefer a repetition of the question, the reranker its answer."""
    memory = open_memory()
    for text in (*PASSAGES, "Many people live with many people in many places.", "Many people live by the sea."):
        memory.add(text)
    plain, answer = memory.search(QUESTION), memory.search(QUESTION, rerank=True)
    before, after = (
        next(rank for rank, result in enumerate(found.results, 1) if result.record.text == PASSAGES[1])
        for found in (plain, answer)
    )
    assert after < before
    assert answer.trace.warnings == ()


@pytest.mark.ci
def test_closed_memory_lets_go_of_its_models(tmp_path):
    """They take tens of megabytes each, which must not wait for Python to look for circles of references."""
    embedder = OnnxEmbedder("small-embedder")
    memory = Memory.open(tmp_path / "store.db", embedder=embedder)
    memory.add_many([{"text": "a heron by the lake"}, {"text": "a heron in the reeds"}])
    memory.search("heron lake", rerank=True, rerank_model="small-reranker")
    held = weakref.ref(embedder), weakref.ref(memory.rerankers._opened("small-reranker"))
    gc.disable()
    try:
        memory.close()
        del memory, embedder
        assert not any(model() for model in held)
    finally:
        gc.enable()


def test_flag_and_project_file_switch_reranking_on_but_not_its_model(herons, tmp_path, monkeypatch, capsys):
    """It sends nothing; another model might."""
    for name in ("RECOLLECT_STORE", "RECOLLECT_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    asked = ["search", "heron", "--store", herons.store.status()["store"], "--embedder", "none", "--json", "--explain"]
    assert main([*asked, "--rerank", "--limit", "2"]) == 0
    assert '"rerank"' in capsys.readouterr().out
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "recollect.toml").write_text("[search]\nrerank = true\nrerank_head = 3\n")
    assert main(["trust"]) == 0
    capsys.readouterr()
    assert main(asked) == 0
    assert '"rerank"' in capsys.readouterr().out
    assert main([*asked, "--no-rerank"]) == 0
    assert '"rerank"' not in capsys.readouterr().out
    (tmp_path / "recollect.toml").write_text('[search]\nrerank_model = "stand:x"\n')
    assert main(["trust"]) == 2
    assert "may not set search.rerank_model" in capsys.readouterr().err
