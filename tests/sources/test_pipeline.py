"""Parallel sources under a deadline: their failures, the remaining answer, and when it comes.

The systems here are classes of a real package, installed on the path and found by its entry point.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.timing import within

from recollect import Memory
from recollect.config import Settings, SourceSettings
from recollect.errors import SearchFailed, SourceFailed, StoreError, TimedOut, Unreachable, UsageError
from recollect.memory.shapes import answer_dict
from recollect.models.hashing import HashingEmbedder
from recollect.pipeline import Pipeline
from recollect.types import Answer, Filter, Hit, Query, RankedList, Record, Source, SourceTrace, Trace

OURS = {name: name for name in ("id", "text", "title", "path", "score")}
SLACK_S = 0.25
"""An answer is due within 100 ms of its deadline; a busy machine gets a little more."""

OpenMemory = Callable[..., Memory]


class Scene:
    """A memory of two herons and outside sources that do what a test says."""

    def __init__(self, open_memory: OpenMemory, stand: ModuleType) -> None:
        self.stand = stand
        self._open = open_memory
        self.done = threading.Event()

    def opened(self, *sources: str | dict[str, Any], embedder: Any = "hashing:64", filled: bool = True) -> Memory:
        """The memory with these sources, by name or with settings."""
        tables = [source if isinstance(source, dict) else {"name": source} for source in sources]
        made = [SourceSettings(kind="stand", **{"fields": OURS, "timeout_ms": 20_000, **table}) for table in tables]
        memory = self._open(embedder=embedder, settings=Settings(sources=tuple(made)))
        if filled:
            memory.add("A heron by the lake.", id="h1")
            memory.add("The heron in the reeds.", id="h2")
        return memory

    def answers(self, **systems: Callable[[Any], Any]) -> None:
        """What each source does from now on."""
        self.stand.ASK.update(systems)

    def hang(self, _: Any) -> Any:
        """A system that keeps to no deadline; it ends with the test."""
        self.done.wait(60)
        raise TimedOut("ended with the test")


@pytest.fixture
def path(tmp_path: Path, blank: Path) -> Path:
    """The path of a test's store: a copy of an empty one."""
    return Path(shutil.copy(blank, tmp_path / "memory.db"))


@pytest.fixture
def scene(open_memory: OpenMemory, stand: ModuleType) -> Iterator[Scene]:
    """Hanging sources are released before the memories close."""
    scene = Scene(open_memory, stand)
    yield scene
    scene.done.set()


def traces(answer: Answer) -> dict[str, SourceTrace]:
    """How each source did, by name."""
    return {source.name: source for source in answer.trace.sources}


def ids(answer: Answer) -> list[str]:
    """What an answer holds, as ids."""
    return [result.record.id for result in answer.results]


def timed(memory: Memory, **options: Any) -> tuple[Answer, float]:
    """An answer, and the seconds it took."""
    began = time.monotonic()
    answer = memory.search("heron", **options)
    return answer, time.monotonic() - began


def rubbish(_: Any) -> Any:
    """An answer that is none."""
    return "half a docu"


def broken(_: Any) -> Any:
    """A system that is down."""
    raise ConnectionError("connection refused")


# -- a package's own kind -----------------------------------------------------------------------------------


def test_package_adds_a_kind_by_an_entry_point(scene: Scene) -> None:
    """It is found, configured, called, and closed with the memory."""
    assert "stand" in entry_points(group="recollect.sources").names
    memory = scene.opened({"name": "wiki", "options": {"colour": "red"}, "fetch_k": 7})
    scene.answers(wiki=lambda asked: [{"id": "h2"}, {"id": "x", "text": f"{asked.text} × {asked.fetch_k}"}])
    answer = memory.search("heron")
    assert set(ids(answer)) == {"h1", "h2", "wiki:x"}
    assert "heron × 7" in [result.record.text for result in answer.results]
    assert [source.name for source in answer.trace.sources] == ["keyword", "vector", "wiki"]
    assert scene.stand.OPENED[0].options == {"colour": "red"}
    memory.close()
    assert scene.stand.CLOSED == ["wiki"]


def test_source_can_be_used_alone_or_left_out(scene: Scene) -> None:
    """`sources` names external ones beside the built-in ones, in any order; an unknown one is refused."""
    memory = scene.opened("wiki", "blog")
    scene.answers(wiki=lambda _: [{"id": "h1"}], blog=lambda _: [{"id": "h2"}])
    assert ids(memory.search("heron", sources=["wiki"])) == ["h1"]
    assert list(traces(memory.search("heron", sources=["blog", "keyword"]))) == ["keyword", "blog"]
    with pytest.raises(UsageError, match="wikki") as caught:
        memory.search("heron", sources=["wikki"])
    assert "keyword, vector, wiki, blog" in caught.value.hint


def test_failing_close_of_a_source_does_not_keep_the_store_open(scene: Scene) -> None:
    """Whatever it raises, the others and the store are closed."""
    memory = scene.opened("a", "b")
    outcome = [OSError("it will not close")]

    def close() -> None:
        if outcome:
            raise outcome.pop()

    memory.external["a"].system.close = close
    with contextlib.suppress(OSError):
        memory.close()
    assert scene.stand.CLOSED == ["b"]
    with pytest.raises(StoreError, match="has been closed"):
        memory.search("heron")


# -- statuses and mode --------------------------------------------------------------------------------------


def test_each_failure_is_named_and_the_others_answer(scene: Scene) -> None:
    """With status, reason and time; a source may raise any exception."""
    memory = scene.opened("down", "junk", "said", {"name": "slow", "timeout_ms": 50}, "good")

    def say(_: Any) -> Any:
        raise SourceFailed("the index is being rebuilt", hint="come back at noon")

    scene.answers(down=broken, junk=rubbish, said=say, slow=scene.hang, good=lambda _: [{"id": "h2"}])
    answer = memory.search("heron")
    seen = traces(answer)
    assert {name: trace.status for name, trace in seen.items()} == {
        "keyword": "ok",
        "vector": "ok",
        "down": "failed",
        "junk": "failed",
        "said": "failed",
        "slow": "timeout",
        "good": "ok",
    }
    assert seen["down"].reason == "ConnectionError: connection refused"
    assert "no list" in seen["junk"].reason
    assert seen["said"].reason == "the index is being rebuilt"
    assert "its own timeout" in seen["slow"].reason
    assert seen["slow"].took_ms >= 50
    assert all(trace.reason == "" for trace in seen.values() if trace.status == "ok")
    assert all(trace.took_ms > 0 for trace in seen.values())
    assert answer.trace.mode == "hybrid"
    assert any("come back at noon" in warning for warning in answer.trace.warnings)
    shown = {source["name"]: source for source in answer_dict(answer)["trace"]["sources"]}
    assert shown["slow"]["status"] == "timeout"
    assert shown["slow"]["reason"]
    assert "reason" not in shown["good"]


@pytest.mark.parametrize(
    ("asked", "mode"),
    [
        (["keyword", "vector", "down"], "hybrid"),
        (["keyword", "down"], "keyword-only"),
        (["vector", "down", "junk"], "vector-only"),
        (["good", "down"], "good-only"),
        (["keyword", "good"], "hybrid"),
    ],
)
def test_mode_reflects_the_sources_that_answered(scene: Scene, asked: list[str], mode: str) -> None:
    """Not those that were called."""
    memory = scene.opened("down", "junk", "good")
    scene.answers(down=broken, junk=rubbish, good=lambda _: [{"id": "h2"}])
    assert memory.search("heron", sources=asked).trace.mode == mode


def test_failed_source_leaves_the_ranking_of_the_others(scene: Scene) -> None:
    """Scores and order equal those of a search without it."""
    memory = scene.opened("down", "good")
    scene.answers(down=broken, good=lambda _: [{"id": "h2"}, {"id": "x", "text": "another heron"}])
    with_it = memory.search("heron", decay=False)
    without = memory.search("heron", decay=False, sources=["keyword", "vector", "good"])
    assert [(r.record.id, r.fused, r.score) for r in with_it.results] == [
        (r.record.id, r.fused, r.score) for r in without.results
    ]


def test_all_sources_failing_is_an_error_that_names_each(scene: Scene) -> None:
    """Never an empty list."""
    memory = scene.opened("down", "junk", {"name": "slow", "timeout_ms": 50})
    scene.answers(down=broken, junk=rubbish, slow=scene.hang)
    with pytest.raises(SearchFailed) as caught:
        memory.search("heron", sources=["down", "junk", "slow"])
    for part in ("down: ConnectionError: connection refused", "junk: ", "slow: no answer after"):
        assert part in caught.value.message
    assert caught.value.exit_code == 3


def test_no_hits_is_not_a_failure(scene: Scene) -> None:
    """The list may be empty then."""
    memory = scene.opened("down", "none")
    scene.answers(down=broken, none=lambda _: [])
    answer = memory.search("heron", sources=["down", "none"])
    assert (answer.results, answer.trace.mode) == ((), "none-only")


def test_source_that_calls_sys_exit_has_only_failed(scene: Scene) -> None:
    """In its thread; the process goes on."""
    memory = scene.opened("odd")
    scene.answers(odd=lambda _: sys.exit("no index"))
    answer = memory.search("heron")
    assert traces(answer)["odd"].status == "failed"
    assert set(ids(answer)) == {"h1", "h2"}


# -- deadlines ----------------------------------------------------------------------------------------------


def test_answer_comes_within_the_budget(scene: Scene) -> None:
    """Late sources are marked `timeout` with their time."""
    memory = scene.opened("slow", "hangs", "good")
    scene.answers(slow=scene.hang, hangs=scene.hang, good=lambda _: [{"id": "h2"}])
    memory.search("heron", sources=["keyword", "vector"])
    answer, took = timed(memory, budget_ms=1000)
    assert within(took, 1 + SLACK_S)
    seen = traces(answer)
    assert [seen[name].status for name in ("keyword", "vector", "good")] == ["ok"] * 3
    for name in ("slow", "hangs"):
        assert seen[name].status == "timeout"
        assert "the query's budget" in seen[name].reason
        assert seen[name].took_ms >= 500  # of 1,000: a busy machine asks it later
    assert answer.trace.mode == "hybrid"
    assert set(ids(answer)) == {"h1", "h2"}


def test_budget_can_be_a_setting(scene: Scene, open_memory: OpenMemory) -> None:
    """`[search] budget_ms` applies to every search; an option of the call wins."""
    memory = scene.opened("slow")
    scene.answers(slow=scene.hang)
    settings = memory.settings
    hasty = open_memory(settings=replace(settings, search=replace(settings.search, budget_ms=100.0)))
    assert traces(hasty.search("heron"))["slow"].status == "timeout"
    scene.answers(slow=lambda _: [])
    assert traces(hasty.search("heron", budget_ms=5000))["slow"].status == "ok"


def test_budget_that_no_source_meets_is_an_error(scene: Scene) -> None:
    """There is nothing to answer with."""
    memory = scene.opened("hangs")
    scene.answers(hangs=scene.hang)
    began = time.monotonic()
    with pytest.raises(SearchFailed, match="the query's budget"):
        memory.search("heron", sources=["hangs"], budget_ms=50)
    assert within(time.monotonic() - began, 0.05 + SLACK_S)


def test_timeout_applies_without_a_budget(scene: Scene) -> None:
    """Each source has its own; one that hangs delays nothing beyond it."""
    memory = scene.opened({"name": "a", "timeout_ms": 50}, {"name": "b", "timeout_ms": 200})
    scene.answers(a=scene.hang, b=scene.hang)
    answer, took = timed(memory)
    assert within(took, 0.2 + SLACK_S)
    seen = traces(answer)
    for name in ("a", "b"):
        assert seen[name].status == "timeout"
        assert "its own timeout" in seen[name].reason
    assert seen["b"].took_ms >= 200


def test_timeouts_run_in_parallel(scene: Scene) -> None:
    """Six hanging sources take no longer than one."""
    names = [f"s{number}" for number in range(6)]
    memory = scene.opened(*({"name": name, "timeout_ms": 150} for name in names))
    scene.answers(**dict.fromkeys(names, scene.hang))
    _, took = timed(memory)
    assert within(took, 0.15 + SLACK_S)


def test_source_gets_its_deadline(scene: Scene) -> None:
    """The earlier of its own timeout and the query's budget."""
    asked = []
    memory = scene.opened({"name": "wiki", "timeout_ms": 2000})
    scene.answers(wiki=lambda said: asked.append(said.seconds_left) or [])
    memory.search("heron")
    memory.search("heron", budget_ms=500)
    memory.search("heron", budget_ms=50_000)
    assert asked[0] == pytest.approx(2, abs=0.2)
    assert asked[1] == pytest.approx(0.5, abs=0.2)
    assert asked[2] == pytest.approx(2, abs=0.2)


def test_sources_run_in_parallel(scene: Scene) -> None:
    """Each waits for all others, so all must run at once."""
    together = threading.Barrier(4, timeout=5)
    names = ["a", "b", "c", "d"]
    memory = scene.opened(*names)

    def meet(_: Any) -> Any:
        together.wait()
        return []

    scene.answers(**dict.fromkeys(names, meet))
    assert {trace.status for trace in traces(memory.search("heron")).values()} == {"ok"}


@pytest.mark.ci
def test_fifty_searches_with_a_hanging_source_find_by_keyword(scene: Scene) -> None:
    """It does not use the threads of keyword and vector search."""
    memory = scene.opened("hangs")
    scene.answers(hangs=scene.hang)
    memory.search("heron", sources=["keyword", "vector"])
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: timed(memory, budget_ms=5000), range(50)))
    for answer, took in answers:
        assert traces(answer)["keyword"].status == "ok"
        assert traces(answer)["hangs"].status == "timeout"
        assert within(took, 5 + SLACK_S)
    assert traces(memory.search("heron", budget_ms=1000))["keyword"].status == "ok"


def test_hanging_threads_do_not_exhaust_the_pool(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keyword search always has a thread; tested with eight instead of 64."""
    monkeypatch.setattr("recollect.memory.assembly.WORKERS", 8)
    memory = scene.opened("hangs")
    scene.answers(hangs=scene.hang)
    memory.search("heron", sources=["keyword", "vector"])
    for _ in range(12):
        answer = memory.search("heron", budget_ms=100, sources=["keyword", "hangs"])
        assert traces(answer)["keyword"].status == "ok"


# -- grades -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("took_ms", "grade"),
    [
        (0, "strict"),
        (199.9, "strict"),
        (200, "acceptable"),
        (599.9, "acceptable"),
        (600, "slow"),
        (999.9, "slow"),
        (1000.1, "bad"),
        (60_000, "bad"),
    ],
)
def test_grade_describes_the_time(took_ms: float, grade: str) -> None:
    """Strict below 200 ms, acceptable below 600 ms, bad above a second."""
    assert Trace(took_ms=took_ms).grade == grade


def test_grade_is_in_the_trace(scene: Scene) -> None:
    """Beside the time, also in JSON."""
    memory = scene.opened("slow")
    scene.answers(slow=lambda _: time.sleep(1.02) or [])
    shown = answer_dict(memory.search("heron", budget_ms=5000))["trace"]
    assert shown["grade"] == "bad"
    assert shown["took_ms"] >= 1000
    assert shown["grade"] == Trace(took_ms=shown["took_ms"]).grade


# -- fusion -------------------------------------------------------------------------------------------------


def test_each_source_has_its_own_weight(scene: Scene) -> None:
    """Its contribution is its weight over k + rank; weight 0 adds nothing."""
    memory = scene.opened(
        {"name": "heavy", "weight": 3.0}, {"name": "light", "weight": 0.5}, {"name": "mute", "weight": 0}
    )
    row = {"id": "x", "text": "another heron"}
    scene.answers(heavy=lambda _: [row], light=lambda _: [{"id": "h1"}, {"id": "h2"}], mute=lambda _: [{"id": "h2"}])
    answer = memory.search("heron", fusion="rrf", decay=False)
    shares = {result.record.id: result.shares for result in answer.results}
    assert shares["heavy:x"]["heavy"].contribution == pytest.approx(3 / 61)
    assert shares["h1"]["light"].contribution == pytest.approx(0.5 / 61)
    assert shares["h2"]["light"].contribution == pytest.approx(0.5 / 62)
    assert "mute" not in shares["h2"]
    assert ids(answer)[0] == "heavy:x"
    assert answer_dict(answer)["fusion"]["weights"] == {
        "keyword": 1.0,
        "vector": 1.0,
        "hyde": 1.0,
        "heavy": 3.0,
        "light": 0.5,
        "mute": 0,
    }
    for result in answer.results:
        assert result.fused == pytest.approx(sum(share.contribution for share in result.shares.values()))


def test_source_without_scores_is_fused_by_its_ranks(scene: Scene) -> None:
    """1 / rank replaces a score, with its weight, and the trace says so."""
    memory = scene.opened({"name": "ranks", "weight": 2.0}, embedder="none")
    scene.answers(ranks=lambda _: [{"id": "x", "text": "one"}, {"id": "h1"}, {"id": "y", "text": "two"}])
    answer = memory.search("heron", sources=["keyword", "ranks"], fusion="weighted", decay=False)
    shares = {result.record.id: result.shares for result in answer.results}
    assert shares["ranks:x"]["ranks"].contribution == pytest.approx(2 / 3)
    assert shares["h1"]["ranks"].contribution == pytest.approx(2 / 3 / 2)
    assert shares["ranks:y"]["ranks"].contribution == pytest.approx(2 / 3 / 3)
    assert "ranks gives no scores; its ranks stand in for them" in answer.trace.warnings
    assert all(0 <= result.score <= 1 for result in answer.results)


def test_bounded_scores_are_used_unchanged(scene: Scene) -> None:
    """`bounded` means a score like a cosine; any other is scaled below 1, like BM25."""
    memory = scene.opened({"name": "cosine", "bounded": True}, "other")
    scene.answers(
        cosine=lambda _: [{"id": "x", "text": "one", "score": 0.8}],
        other=lambda _: [{"id": "y", "text": "two", "score": 4.0}],
    )
    answer = memory.search("heron", sources=["cosine", "other"], fusion="weighted", decay=False)
    shares = {result.record.id: result.shares for result in answer.results}
    assert shares["cosine:x"]["cosine"].contribution == pytest.approx(0.8 / 2)
    assert shares["other:y"]["other"].contribution == pytest.approx(4 / 5 / 2)


def test_built_in_sources_come_first_on_a_tie(scene: Scene) -> None:
    """Keyword, vector, then external ones in the order of the settings."""
    memory = scene.opened("b", "a", embedder="none")
    scene.answers(a=lambda _: [{"id": "1", "text": "of a"}], b=lambda _: [{"id": "1", "text": "of b"}])
    answer = memory.search("lake", sources=["a", "b", "keyword"], fusion="rrf", decay=False)
    assert ids(answer) == ["h1", "b:1", "a:1"]


# -- a cold embedder ----------------------------------------------------------------------------------------


class Cold(HashingEmbedder):
    """Takes its time at first use, as a model does that must be loaded."""

    def __init__(self) -> None:
        super().__init__(64)
        self.ready = threading.Event()

    def query(self, text: str) -> Any:
        self.ready.wait(60)
        return super().query(text)

    def passages(self, texts: Sequence[str]) -> Any:
        self.ready.wait(60)
        return super().passages(texts)


COLD = """
import threading
from recollect.models.hashing import HashingEmbedder
OPENED, READY = [], threading.Event()

def open(spec, **options):
    OPENED.append(spec)
    READY.wait(60)
    embedder = HashingEmbedder(64)
    return embedder
"""


@pytest.mark.ci
@pytest.mark.parametrize("how", ["an object", "a registered one"])
def test_cold_embedder_is_a_late_source(scene: Scene, open_memory: OpenMemory, offer: Any, how: str) -> None:
    """Keyword results come within the budget; the next search without one waits for vectors."""
    scene.opened(embedder="none").close()
    model = offer("recollect.embedders", "cold", COLD) if how == "a registered one" else None
    embedder = Cold() if model is None else "cold"
    memory = open_memory(embedder=embedder)
    for _ in range(2):
        answer, took = timed(memory, budget_ms=1000)
        assert within(took, 1 + SLACK_S)
        assert traces(answer)["keyword"].status == "ok"
        assert traces(answer)["vector"].status == "timeout"
        assert answer.trace.mode == "keyword-only"
        assert set(ids(answer)) == {"h1", "h2"}
    (embedder.ready if model is None else model.READY).set()
    answer = memory.search("heron")
    assert traces(answer)["vector"].status == "ok"
    assert answer.trace.mode == "hybrid"
    assert traces(memory.search("heron", budget_ms=5000))["vector"].status == "ok"
    assert model is None or model.OPENED == ["cold"]


@pytest.mark.ci
def test_twenty_searches_on_a_cold_embedder_do_not_queue(scene: Scene, open_memory: OpenMemory) -> None:
    """One thread loads the model, and all others get keyword results in time."""
    scene.opened(embedder="hashing:64").close()
    embedder = Cold()
    memory = open_memory(embedder=embedder)
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: timed(memory, budget_ms=2000), range(20)))
    for answer, took in answers:
        assert traces(answer)["keyword"].status == "ok"
        assert within(took, 2 + SLACK_S)
    embedder.ready.set()
    assert memory.search("heron").trace.mode == "hybrid"


def test_short_list_of_an_external_source_counts_fully(scene: Scene) -> None:
    """One row of twenty requested is not treated as a weak tail."""
    memory = scene.opened("team")
    for number in range(30):
        memory.add(f"An entry about something else, number {number}.")
    scene.stand.ASK["team"] = lambda _: [{"id": "b", "text": "The boiler is from 1998, brand Vaillant.", "score": 0.9}]
    answer = memory.search("which brand is the boiler", limit=3)
    assert "team:b" in [result.record.id for result in answer.results]


class Silent:
    """A source that returns nothing at all."""

    name, timeout = "silent", None

    def search(self, _query: Query) -> Any:
        return None


def test_source_that_returns_no_list_has_failed(scene: Scene) -> None:
    """It is named in the trace, and the others answer."""
    pipeline, query = scene.opened().prepare("heron")
    answer = replace(pipeline, sources=(*pipeline.sources, Silent()))(query)
    assert len(answer.results) == 2
    assert [trace.status for trace in answer.trace.sources if trace.name == "silent"] == ["failed"]


@dataclass
class PartlyLost:
    """A source of which a part cannot be reached: it answers a narrower filter, or after some failures."""

    answering: Source
    failures: int = 10
    behind: type[Exception] | None = None
    asked: int = 0
    name: str = "keyword"
    timeout: float | None = None

    def search(self, query: Query) -> RankedList:
        """The list of the whole source, if only facts are asked for."""
        self.asked += 1
        if query.filter.kinds != ("fact",) and self.asked <= self.failures:
            lost = Unreachable("a part does not answer", hint="try again")
            if self.behind is None:
                raise lost
            raise self.behind("the store failed") from lost
        return self.answering.search(query)


@dataclass
class Plain:
    """A source that says only ids, scores and texts."""

    name: str = "plain"
    timeout: float | None = None

    def search(self, _: Query) -> RankedList:
        records = [Record(f"p{at}", text) for at, text in enumerate(("A heron.", "A stork.", "A heron."))]
        return RankedList("", [Hit(record.id, 1.0, record=record) for record in records])


def test_hits_without_a_hash_are_compared_by_their_texts(scene: Scene) -> None:
    pipeline, query = scene.opened().prepare("heron", sources=["keyword"])
    answer = replace(pipeline, sources=(Plain(),), stages=())(query)
    assert [result.record.id for result in answer.results] == ["p0", "p1"]


def facts_only(where: Filter, error: Exception | None = None) -> tuple[Filter, str] | None:
    """As `Store.narrowed`: chunks cannot be reached."""
    narrower = replace(where, kinds=("fact",)), "chunks were not searched"
    return narrower if error is not None and where.kinds != ("fact",) else None


def lossy(memory: Memory, narrowed: Any = facts_only, **options: Any) -> tuple[Pipeline, Query, PartlyLost]:
    pipeline, query = memory.prepare("heron", sources=["keyword"])
    source = PartlyLost(pipeline.sources[0], **options)
    return replace(pipeline, sources=(source,), narrowed=narrowed), query, source


@pytest.mark.parametrize("behind", [None, SourceFailed])
def test_search_is_narrowed_to_what_can_be_reached(scene: Scene, behind: type[Exception] | None) -> None:
    """Also for a scoped caller, whose errors say less; the answer says what is missing."""
    pipeline, query, source = lossy(memory := scene.opened(), behind=behind)
    answer = pipeline(query)
    assert ids(answer) == ids(memory.search("heron", sources=["keyword"]))
    assert answer.trace.warnings == ("chunks were not searched",)
    assert (source.asked, answer.query.filter.kinds) == (2, ("fact",))


def test_search_that_cannot_be_narrowed_is_tried_again_and_fails(scene: Scene) -> None:
    """An error that passes is not seen; one that stays is raised as before."""
    pipeline, query, source = lossy(scene.opened(), lambda *_: None, failures=1)
    assert (ids(pipeline(query)) != [], source.asked) == (True, 2)
    pipeline, query, source = lossy(scene.opened(filled=False), lambda *_: None)
    with pytest.raises(SearchFailed, match="a part does not answer") as failed:
        pipeline(query)
    assert (source.asked, failed.value.hint) == (3, "try again")


def test_search_is_not_tried_again_where_another_source_answers(scene: Scene) -> None:
    """The lost one is named."""
    pipeline, query, source = lossy(scene.opened(), lambda *_: None, name="lost")
    answer = replace(pipeline, sources=(source, source.answering))(query)
    assert (source.asked, traces(answer)["lost"].status) == (1, "failed")
    assert ids(answer) != []


def test_error_of_a_stage_narrows_the_search(scene: Scene) -> None:
    """A stage may read records, too."""
    pipeline, query, _ = lossy(scene.opened(), failures=0)

    def reads(query: Query, candidates: Any) -> Any:
        if query.filter.kinds != ("fact",):
            raise Unreachable("a part does not answer")
        return candidates

    answer = replace(pipeline, stages=(("reads", reads), *pipeline.stages))(query)
    assert answer.trace.warnings == ("chunks were not searched",)
