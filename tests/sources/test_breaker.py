"""The circuit breaker: a source that keeps failing is paused, tried once, and used again when it answers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import apsw
import pytest
from support.timing import within

from recollect import Memory
from recollect.config import Settings, SourceSettings
from recollect.errors import LeftAlone, SearchFailed, StoreError, TimedOut
from recollect.sources.external import FAILURES, FIRST_REST_S, LONGEST_REST_S, Breaker
from recollect.types import Answer, SourceTrace

OURS = {name: name for name in ("id", "text", "title", "path", "score")}
NOON = 1_700_000_000.0


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


class Kept(dict[str, str]):
    """Notes without a store."""

    def put(self, key: str, value: str) -> None:
        self[key] = value


@pytest.fixture
def path(tmp_path: Path, blank: Path) -> Path:
    """The path of a test's store: a copy of an empty one."""
    return Path(shutil.copy(blank, tmp_path / "memory.db"))


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still unless a test moves it."""
    return Clock()


@pytest.fixture
def notes() -> Kept:
    """The state shared by breakers of the same name."""
    return Kept()


@pytest.fixture
def breaker(notes: Kept, clock: Clock) -> Breaker:
    """A new breaker."""
    return Breaker("wiki", notes, clock)


def fail(breaker: Breaker, times: int = FAILURES, reason: str = "down") -> None:
    """So many questions in a row that fail."""
    for _ in range(times):
        breaker.enter()
        breaker.failed(reason)


def rest(breaker: Breaker, clock: Clock) -> float:
    """How long it is left alone from now on, to the second."""
    began, clock.now = clock.now, clock.now
    try:
        while clock.now < began + 10 * LONGEST_REST_S:
            try:
                breaker.enter()
            except LeftAlone:
                clock.now += 1
            else:
                breaker.released()
                return clock.now - began
    finally:
        clock.now = began
    raise AssertionError("it is left alone for good")


# -- the states ---------------------------------------------------------------------------------------------


def test_three_failures_in_a_row_open_the_breaker(breaker: Breaker) -> None:
    """From the third on queries are refused, with count, duration and reason."""
    fail(breaker, 2)
    breaker.enter()
    breaker.failed("connection refused")
    with pytest.raises(LeftAlone) as caught:
        breaker.enter()
    assert "3 times in a row" in caught.value.message
    assert "for 30 s more" in caught.value.message
    assert "connection refused" in caught.value.message
    assert caught.value.hint


def test_success_resets_the_failures(breaker: Breaker) -> None:
    """Only failures in a row count."""
    for _ in range(5):
        fail(breaker, 2)
        breaker.enter()
        breaker.succeeded()
    breaker.enter()


def test_after_the_pause_one_query_probes_the_source(breaker: Breaker, clock: Clock) -> None:
    """The others are still refused with the reason."""
    fail(breaker)
    clock.now += FIRST_REST_S - 0.001
    with pytest.raises(LeftAlone):
        breaker.enter()
    clock.now += 0.001
    breaker.enter()
    with pytest.raises(LeftAlone, match="while one query tries it"):
        breaker.enter()


def test_successful_probe_closes_the_breaker(breaker: Breaker, clock: Clock) -> None:
    """Three new failures are needed, and the pause starts at its first length."""
    fail(breaker)
    clock.now += FIRST_REST_S
    fail(breaker, 1)
    clock.now += 2 * FIRST_REST_S
    breaker.enter()
    breaker.succeeded()
    fail(breaker, 2)
    breaker.enter()
    breaker.failed("down")
    assert rest(breaker, clock) == FIRST_REST_S


def test_each_failed_probe_doubles_the_pause_up_to_a_limit(breaker: Breaker, clock: Clock) -> None:
    """30 s, 60 s, 120 s and so on, at most ten minutes."""
    fail(breaker)
    rests = []
    for _ in range(7):
        rests.append(rest(breaker, clock))
        clock.now += rests[-1]
        fail(breaker, 1)
    assert rests == [30, 60, 120, 240, 480, 600, 600]


def test_abandoned_probe_allows_another(breaker: Breaker, clock: Clock) -> None:
    """It says nothing about the source: the pause is not doubled and the next query may try."""
    fail(breaker)
    clock.now += FIRST_REST_S
    breaker.enter()
    breaker.released()
    breaker.enter()
    breaker.succeeded()
    breaker.enter()


def test_simultaneous_failures_count_as_one_pause(breaker: Breaker, clock: Clock) -> None:
    """Twenty running queries that fail together do not make the first pause ten minutes."""
    for _ in range(20):
        breaker.enter()
    for _ in range(20):
        breaker.failed("down")
    assert rest(breaker, clock) == FIRST_REST_S


def test_late_failure_allows_no_second_probe(breaker: Breaker, clock: Clock) -> None:
    """A query from before the pause that fails during the probe does not end the probe."""
    breaker.enter()
    fail(breaker)
    clock.now += FIRST_REST_S
    breaker.enter()
    breaker.failed("the old question")
    assert not _passes(breaker)


@pytest.mark.parametrize("round_", range(5))
def test_only_one_of_many_threads_probes(breaker: Breaker, clock: Clock, round_: int) -> None:
    """At whatever time they arrive."""
    fail(breaker)
    clock.now += FIRST_REST_S
    together = threading.Barrier(20)

    def come(_: int) -> bool:
        together.wait()
        return _passes(breaker)

    with ThreadPoolExecutor(20) as pool:
        assert sum(pool.map(come, range(20))) == 1


def _passes(breaker: Breaker) -> bool:
    try:
        breaker.enter()
    except LeftAlone:
        return False
    return True


# -- what is kept -------------------------------------------------------------------------------------------


def test_open_state_is_shared_between_processes(breaker: Breaker, notes: Kept, clock: Clock) -> None:
    """The failures of single commands add up, and the pause continues."""
    for _ in range(FAILURES):
        fail(Breaker("wiki", notes, clock), 1, "down since noon")
    with pytest.raises(LeftAlone, match="down since noon"):
        Breaker("wiki", notes, clock).enter()
    Breaker("blog", notes, clock).enter()
    clock.now += FIRST_REST_S
    Breaker("wiki", notes, clock).enter()


def test_success_is_shared_between_processes(breaker: Breaker, notes: Kept, clock: Clock) -> None:
    """A source that works again is used by the next process."""
    fail(breaker)
    clock.now += FIRST_REST_S
    breaker.enter()
    breaker.succeeded()
    fail(Breaker("wiki", notes, clock), 2)
    Breaker("wiki", notes, clock).enter()


@pytest.mark.parametrize(
    "kept", ["", "rubbish", "null", "{}", "[]", "[1]", '"x"', "[1, 2, 3, 4, 5]", '["a", "b", "c", "d"]']
)
def test_unreadable_state_is_ignored(notes: Kept, clock: Clock, kept: str) -> None:
    """It counts as no state."""
    notes["breaker:wiki"] = kept
    breaker = Breaker("wiki", notes, clock)
    breaker.enter()
    breaker.failed("down")
    breaker.enter()


def test_clock_set_back_does_not_extend_the_pause(breaker: Breaker, clock: Clock) -> None:
    """The state survives a correction of the time without pausing for a day."""
    fail(breaker)
    clock.now -= 86_400
    assert rest(breaker, clock) <= LONGEST_REST_S


def test_unwritable_state_is_no_failure(clock: Clock) -> None:
    """This process remembers it."""

    class Closed(Kept):
        def put(self, key: str, value: str) -> None:
            raise StoreError("the disk is full")

    breaker = Breaker("wiki", Closed(), clock)
    fail(breaker)
    with pytest.raises(LeftAlone):
        breaker.enter()


def test_long_reason_is_cut(breaker: Breaker, notes: Kept) -> None:
    """A system may answer with a whole page."""
    fail(breaker, reason="x" * 100_000)
    with pytest.raises(LeftAlone) as caught:
        breaker.enter()
    assert len(caught.value.message) < 500
    assert len(notes["breaker:wiki"]) < 500


# -- in a search --------------------------------------------------------------------------------------------


class Scene:
    """A memory with a record, an outside source that answers what a test says, and a clock."""

    def __init__(self, open_memory: Callable[..., Memory], stand: ModuleType, clock: Clock) -> None:
        self.asked: list[float] = []
        self.clock = clock
        self.stand = stand
        self._open = open_memory
        self.memory = self.opened()
        self.memory.add("A heron by the lake.", id="h1")

    def opened(self, **said: Any) -> Memory:
        """The memory (again), with these settings of the source."""
        sources = (SourceSettings("wiki", "stand", fields=OURS, **{"timeout_ms": 20_000, **said}),)
        self.memory = self._open(embedder="none", settings=Settings(sources=sources))
        self.memory.external["wiki"].breaker.clock = self.clock
        return self.memory

    def answers(self, answer: Callable[[Any], Any]) -> None:
        """What the source does from now on."""

        def ask(asked: Any) -> Any:
            self.asked.append(time.monotonic())
            return answer(asked)

        self.stand.ASK["wiki"] = ask

    def search(self, **options: Any) -> tuple[Answer, SourceTrace]:
        """An answer, and how the source did."""
        answer = self.memory.search("heron", **options)
        assert "h1" in [result.record.id for result in answer.results]
        return answer, next(source for source in answer.trace.sources if source.name == "wiki")


@pytest.fixture
def scene(open_memory: Callable[..., Memory], stand: ModuleType, clock: Clock) -> Iterator[Scene]:
    """The source finds nothing unless a test changes it."""
    scene = Scene(open_memory, stand, clock)
    scene.answers(lambda _: [])
    yield scene
    scene.memory.close()


def broken(_: Any) -> Any:
    """A system that is down."""
    raise ConnectionError("connection refused")


def until_the_deadline(asked: Any) -> Any:
    """A system that hangs, and keeps to its deadline."""
    time.sleep(asked.seconds_left)
    raise TimedOut("it did not answer in time")


def test_trace_shows_the_pause(scene: Scene) -> None:
    """Status `skipped` with the reason; it is not called, and the others answer."""
    scene.answers(broken)
    assert [scene.search()[1].status for _ in range(FAILURES)] == ["failed"] * FAILURES
    answer, trace = scene.search()
    assert (trace.status, len(scene.asked)) == ("skipped", FAILURES)
    assert "left alone for 30 s more" in trace.reason
    assert "connection refused" in trace.reason
    assert answer.trace.mode == "keyword-only"
    assert any("wiki did not answer" in warning for warning in answer.trace.warnings)


def test_source_is_used_again_after_the_pause(scene: Scene) -> None:
    """A failed probe doubles the pause; a successful one resets it."""
    scene.answers(broken)
    for _ in range(FAILURES):
        scene.search()
    scene.clock.now += 31
    assert scene.search()[1].status == "failed"
    assert "60 s more" in scene.search()[1].reason
    scene.clock.now += 61
    scene.answers(lambda _: [{"id": "h1"}])
    answer, trace = scene.search()
    assert (trace.status, trace.hits, answer.trace.mode) == ("ok", 1, "hybrid")
    assert scene.search()[1].status == "ok"


def test_unreadable_answer_counts_as_a_failure(scene: Scene) -> None:
    """As if the system were down."""
    scene.answers(lambda _: "rubbish")
    statuses = [scene.search()[1].status for _ in range(FAILURES + 1)]
    assert statuses == ["failed"] * FAILURES + ["skipped"]


def test_timeout_of_the_source_counts_as_a_failure(scene: Scene) -> None:
    """A system that always hangs is not waited for every time."""
    scene.opened(timeout_ms=30)
    scene.answers(until_the_deadline)
    statuses = [scene.search()[1].status for _ in range(FAILURES)]
    assert statuses == ["timeout"] * FAILURES
    began = time.monotonic()
    # The system's own thread may tell the breaker a moment after the search has gone on.
    trace = next(trace for trace in _traces(scene) if trace.status == "skipped")
    assert "no answer within 30 ms" in trace.reason
    assert within(time.monotonic() - began, 5)


def _traces(scene: Scene) -> Iterator[SourceTrace]:
    for _ in range(100):
        yield scene.search()[1]


def test_answer_after_the_timeout_counts_as_a_failure(scene: Scene) -> None:
    """A system that always answers too late is paused too."""
    scene.opened(timeout_ms=30)
    scene.answers(lambda _: time.sleep(0.15) or [{"id": "h1"}])
    for _ in range(FAILURES):
        assert scene.search()[1].status == "timeout"
        time.sleep(0.2)
    assert scene.search()[1].status == "skipped"


def test_query_budget_running_out_does_not_count(scene: Scene) -> None:
    """The query had little time; the system may be fast."""
    scene.answers(until_the_deadline)
    for _ in range(2 * FAILURES):
        assert scene.search(budget_ms=40)[1].status == "timeout"
        time.sleep(0.02)
    scene.answers(lambda _: [{"id": "h1"}])
    assert scene.search()[1].status == "ok"


def test_probe_cut_by_the_budget_is_repeated(scene: Scene) -> None:
    """It neither closes the breaker nor doubles the pause."""
    scene.answers(broken)
    for _ in range(FAILURES):
        scene.search()
    scene.clock.now += 31
    scene.answers(until_the_deadline)
    assert scene.search(budget_ms=40)[1].status == "timeout"
    time.sleep(0.05)
    scene.answers(lambda _: [{"id": "h1"}])
    assert scene.search()[1].status == "ok"


def test_empty_query_does_not_count_as_success(scene: Scene) -> None:
    """The source is not called, and no failure is reset."""
    scene.answers(broken)
    for _ in range(2):
        scene.search()
    scene.memory.search("  ")
    scene.search()
    assert scene.search()[1].status == "skipped"


def test_only_one_of_many_searches_probes(scene: Scene) -> None:
    """Half-open, the system is called once, and the other traces say that it is being tried."""
    scene.answers(broken)
    for _ in range(FAILURES):
        scene.search()
    scene.clock.now += 31
    scene.asked.clear()
    tried = threading.Event()
    scene.answers(lambda _: tried.wait(10) and [{"id": "h1"}])
    with ThreadPoolExecutor(8) as pool:
        searches = [pool.submit(scene.search) for _ in range(8)]
        while sum(search.done() for search in searches) < 7:
            time.sleep(0.01)
        tried.set()
        traces = [search.result()[1] for search in searches]
    assert len(scene.asked) == 1
    assert sorted(trace.status for trace in traces) == ["ok"] + ["skipped"] * 7
    assert all("while one query tries it" in trace.reason for trace in traces if trace.status == "skipped")


def test_source_searched_alone_is_always_tried(scene: Scene) -> None:
    """No other source could answer, and whoever repairs it needs the result."""
    scene.answers(broken)
    for _ in range(FAILURES + 2):
        with pytest.raises(SearchFailed, match="connection refused"):
            scene.memory.search("heron", sources=["wiki"])
    assert len(scene.asked) == FAILURES + 2


def test_changed_setting_is_another_source() -> None:
    """Its earlier failures do not count."""
    one = SourceSettings("wiki", "command", options={"command": ["a"]})
    assert one.fingerprint == SourceSettings("wiki", "command", options={"command": ["a"]}).fingerprint
    assert one.fingerprint != SourceSettings("wiki", "command", options={"command": ["b"]}).fingerprint
    assert one.fingerprint.startswith("wiki:")


def test_locked_store_does_not_hide_the_reason(scene: Scene, path: Path) -> None:
    """A failure that cannot be stored now is still reported at once."""
    scene.opened(timeout_ms=1000)
    scene.answers(broken)
    writer = apsw.Connection(str(path))
    writer.execute("BEGIN IMMEDIATE")
    try:
        trace = scene.search()[1]
    finally:
        writer.execute("ROLLBACK")
        writer.close()
    assert (trace.status, trace.reason) == ("failed", "ConnectionError: connection refused")


@pytest.mark.ci
def test_breaker_state_passes_between_real_processes(
    path: Path, tmp_path: Path, open_memory: Callable[..., Memory]
) -> None:
    """After three failing commands, in separate processes or in one, the next does not call the source."""
    config = tmp_path / "settings.toml"
    mark = tmp_path / "asked"
    code = f"open({str(mark)!r}, 'a').write('x'); raise SystemExit('the index is gone')"
    config.write_text(
        f'embedder = "none"\n[[sources]]\nname = "wiki"\nkind = "command"\ntimeout_ms = 20000\n'
        f"command = [{json.dumps(sys.executable)}, '-S', '-c', {json.dumps(code)}]\nfields = {{ id = 'id' }}\n"
    )
    open_memory(embedder="none").add("A heron by the lake.", id="h1")
    words = ["search", "heron", "--config", config, "--store", path, "--json"]
    traces = []
    for _ in range(FAILURES + 1):
        ran = subprocess.run([sys.executable, "-m", "recollect", *words], capture_output=True, text=True, check=True)
        sources = json.loads(ran.stdout)["trace"]["sources"]
        traces.append(next(source for source in sources if source["name"] == "wiki"))
    assert [trace["status"] for trace in traces] == ["failed"] * FAILURES + ["skipped"]
    assert "the index is gone" in traces[-1]["reason"]
    assert mark.read_text() == "x" * FAILURES
