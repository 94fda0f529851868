"""A system that keeps failing is left alone for a while, tried once, and asked again when it answers."""

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
    """Where the store of a test is: a copy of an empty one."""
    return Path(shutil.copy(blank, tmp_path / "memory.db"))


@pytest.fixture
def clock() -> Clock:
    """It stands still unless a test moves it."""
    return Clock()


@pytest.fixture
def notes() -> Kept:
    """What is kept between breakers of the same name."""
    return Kept()


@pytest.fixture
def breaker(notes: Kept, clock: Clock) -> Breaker:
    """A breaker that has seen nothing."""
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


def test_three_failures_in_a_row_open_it(breaker: Breaker) -> None:
    """Two do not; from the third on the question is refused, with how often, how long and why."""
    fail(breaker, 2)
    breaker.enter()
    breaker.failed("connection refused")
    with pytest.raises(LeftAlone) as caught:
        breaker.enter()
    assert "3 times in a row" in caught.value.message
    assert "for 30 s more" in caught.value.message
    assert "connection refused" in caught.value.message
    assert caught.value.hint


def test_an_answer_between_failures_forgives_them(breaker: Breaker) -> None:
    """Only failures in a row count."""
    for _ in range(5):
        fail(breaker, 2)
        breaker.enter()
        breaker.succeeded()
    breaker.enter()


def test_when_the_rest_is_over_one_question_tries_it(breaker: Breaker, clock: Clock) -> None:
    """The others are still refused, and told why."""
    fail(breaker)
    clock.now += FIRST_REST_S - 0.001
    with pytest.raises(LeftAlone):
        breaker.enter()
    clock.now += 0.001
    breaker.enter()
    with pytest.raises(LeftAlone, match="while one query tries it"):
        breaker.enter()


def test_an_answer_to_the_probe_closes_it(breaker: Breaker, clock: Clock) -> None:
    """All is forgiven: three new failures are needed, and the rest is the first one again."""
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


def test_each_failed_probe_doubles_the_rest_up_to_a_bound(breaker: Breaker, clock: Clock) -> None:
    """30 s, 60 s, 120 s and so on, and never more than ten minutes."""
    fail(breaker)
    rests = []
    for _ in range(7):
        rests.append(rest(breaker, clock))
        clock.now += rests[-1]
        fail(breaker, 1)
    assert rests == [30, 60, 120, 240, 480, 600, 600]


def test_a_probe_that_was_not_waited_for_makes_room_for_another(breaker: Breaker, clock: Clock) -> None:
    """It says nothing about the system, so that the rest is not doubled and the next question may try."""
    fail(breaker)
    clock.now += FIRST_REST_S
    breaker.enter()
    breaker.released()
    breaker.enter()
    breaker.succeeded()
    breaker.enter()


def test_questions_that_fail_at_once_count_as_one_rest(breaker: Breaker, clock: Clock) -> None:
    """Twenty that were under way when it went down do not make the first rest ten minutes."""
    for _ in range(20):
        breaker.enter()
    for _ in range(20):
        breaker.failed("down")
    assert rest(breaker, clock) == FIRST_REST_S


def test_a_late_failure_of_an_old_question_lets_no_second_probe_in(breaker: Breaker, clock: Clock) -> None:
    """One that entered before it opened and fails while the probe is under way does not end the probe."""
    breaker.enter()
    fail(breaker)
    clock.now += FIRST_REST_S
    breaker.enter()
    breaker.failed("the old question")
    assert not _passes(breaker)


@pytest.mark.parametrize("round_", range(5))
def test_of_many_threads_one_tries_it(breaker: Breaker, clock: Clock, round_: int) -> None:
    """However they come together."""
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


def test_another_process_finds_it_open(breaker: Breaker, notes: Kept, clock: Clock) -> None:
    """The failures of single commands add up, and the rest goes on."""
    for _ in range(FAILURES):
        fail(Breaker("wiki", notes, clock), 1, "down since noon")
    with pytest.raises(LeftAlone, match="down since noon"):
        Breaker("wiki", notes, clock).enter()
    Breaker("blog", notes, clock).enter()
    clock.now += FIRST_REST_S
    Breaker("wiki", notes, clock).enter()


def test_an_answer_is_kept_too(breaker: Breaker, notes: Kept, clock: Clock) -> None:
    """What one process found to work again is asked by the next."""
    fail(breaker)
    clock.now += FIRST_REST_S
    breaker.enter()
    breaker.succeeded()
    fail(Breaker("wiki", notes, clock), 2)
    Breaker("wiki", notes, clock).enter()


@pytest.mark.parametrize(
    "kept", ["", "rubbish", "null", "{}", "[]", "[1]", '"x"', "[1, 2, 3, 4, 5]", '["a", "b", "c", "d"]']
)
def test_rubbish_among_the_notes_is_no_state(notes: Kept, clock: Clock, kept: str) -> None:
    """What cannot be read was never kept."""
    notes["breaker:wiki"] = kept
    breaker = Breaker("wiki", notes, clock)
    breaker.enter()
    breaker.failed("down")
    breaker.enter()


def test_a_clock_that_was_set_back_does_not_make_the_rest_longer(breaker: Breaker, clock: Clock) -> None:
    """The state outlives a correction of the time: a source is not left alone for the day between."""
    fail(breaker)
    clock.now -= 86_400
    assert rest(breaker, clock) <= LONGEST_REST_S


def test_notes_that_cannot_be_written_are_no_failure(clock: Clock) -> None:
    """This process remembers."""

    class Closed(Kept):
        def put(self, key: str, value: str) -> None:
            raise StoreError("the disk is full")

    breaker = Breaker("wiki", Closed(), clock)
    fail(breaker)
    with pytest.raises(LeftAlone):
        breaker.enter()


def test_a_long_reason_is_cut(breaker: Breaker, notes: Kept) -> None:
    """A system may answer with a page."""
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
    """The source answers nothing found unless a test says otherwise."""
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


def test_the_trace_says_that_it_is_left_alone(scene: Scene) -> None:
    """Status `skipped` with the reason; it is not asked, and the others answer."""
    scene.answers(broken)
    assert [scene.search()[1].status for _ in range(FAILURES)] == ["failed"] * FAILURES
    answer, trace = scene.search()
    assert (trace.status, len(scene.asked)) == ("skipped", FAILURES)
    assert "left alone for 30 s more" in trace.reason
    assert "connection refused" in trace.reason
    assert answer.trace.mode == "keyword-only"
    assert any("wiki did not answer" in warning for warning in answer.trace.warnings)


def test_after_the_rest_it_is_asked_again(scene: Scene) -> None:
    """One failed probe and it rests twice as long; one answer and it is as before."""
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


def test_an_answer_that_is_rubbish_counts_as_a_failure(scene: Scene) -> None:
    """A system that answers what nobody can read is no better than one that is down."""
    scene.answers(lambda _: "rubbish")
    statuses = [scene.search()[1].status for _ in range(FAILURES + 1)]
    assert statuses == ["failed"] * FAILURES + ["skipped"]


def test_its_own_timeout_counts_as_a_failure(scene: Scene) -> None:
    """A system that hangs every time is not waited for every time."""
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


def test_a_system_that_answers_only_after_its_time_is_left_alone_too(scene: Scene) -> None:
    """One that does not keep to its deadline, and answers when nobody waits any more, keeps failing."""
    scene.opened(timeout_ms=30)
    scene.answers(lambda _: time.sleep(0.15) or [{"id": "h1"}])
    for _ in range(FAILURES):
        assert scene.search()[1].status == "timeout"
        time.sleep(0.2)
    assert scene.search()[1].status == "skipped"


def test_a_budget_that_runs_out_does_not_count(scene: Scene) -> None:
    """The question was in a hurry; the system may be as quick as ever."""
    scene.answers(until_the_deadline)
    for _ in range(2 * FAILURES):
        assert scene.search(budget_ms=40)[1].status == "timeout"
        time.sleep(0.02)
    scene.answers(lambda _: [{"id": "h1"}])
    assert scene.search()[1].status == "ok"


def test_a_probe_that_the_budget_cut_is_made_again(scene: Scene) -> None:
    """It neither closes the breaker nor doubles the rest."""
    scene.answers(broken)
    for _ in range(FAILURES):
        scene.search()
    scene.clock.now += 31
    scene.answers(until_the_deadline)
    assert scene.search(budget_ms=40)[1].status == "timeout"
    time.sleep(0.05)
    scene.answers(lambda _: [{"id": "h1"}])
    assert scene.search()[1].status == "ok"


def test_an_empty_question_is_no_answer_of_the_system(scene: Scene) -> None:
    """It is not asked, and nothing is forgiven."""
    scene.answers(broken)
    for _ in range(2):
        scene.search()
    scene.memory.search("  ")
    scene.search()
    assert scene.search()[1].status == "skipped"


def test_of_many_searches_at_once_one_tries_it(scene: Scene) -> None:
    """Half-open, the system is asked once, and the others' traces say that it is being tried."""
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


def test_one_that_is_asked_alone_is_tried_whatever_it_did(scene: Scene) -> None:
    """There is nobody to answer in its place, and whoever mends it wants to see."""
    scene.answers(broken)
    for _ in range(FAILURES + 2):
        with pytest.raises(SearchFailed, match="connection refused"):
            scene.memory.search("heron", sources=["wiki"])
    assert len(scene.asked) == FAILURES + 2


def test_a_changed_setting_is_another_source() -> None:
    """What was learnt of a source as it was says nothing of it as it is."""
    one = SourceSettings("wiki", "command", options={"command": ["a"]})
    assert one.fingerprint == SourceSettings("wiki", "command", options={"command": ["a"]}).fingerprint
    assert one.fingerprint != SourceSettings("wiki", "command", options={"command": ["b"]}).fingerprint
    assert one.fingerprint.startswith("wiki:")


def test_a_store_in_the_middle_of_a_write_does_not_hide_the_reason(scene: Scene, path: Path) -> None:
    """A failure that cannot be kept now is still told as what it was, and at once."""
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
def test_a_real_process_learns_from_another(path: Path, tmp_path: Path, open_memory: Callable[..., Memory]) -> None:
    """Three commands that fail, in processes of their own or in one, and the next does not ask."""
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
