"""docs/performance.md shows the figures of benchmarks/results/speed.json, and the report's numbers are right."""

import json
import sys
import time
from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks.speed import report
from benchmarks.speed.contender import CONTENDERS, FLOOR, OWN, rrf
from benchmarks.speed.process import MEMORY_LIMIT, Failed, NotTried, Process
from benchmarks.speed.run import Run, load_limit, percentile

FIGURES = json.loads(report.FIGURES.read_text(encoding="utf-8"))


def test_page_shows_the_figures():
    """The tables were not edited by hand, and not forgotten after a run."""
    page = report.PAGE.read_text(encoding="utf-8")
    found = report.RESULTS.search(page)
    assert found
    assert page[found.end(1) : found.start(2)] == report.results(FIGURES)


def test_every_contender_is_named_with_its_result_or_its_reason():
    """None is left out in silence."""
    for measured in FIGURES["sizes"].values():
        assert list(measured["contenders"]) == list(CONTENDERS)
        for result in measured["contenders"].values():
            assert result.get("failed") or result["p50_ms"] <= result["p95_ms"] <= result["p99_ms"]


def test_page_names_the_limits():
    """Those of the code."""
    page = report.PAGE.read_text(encoding="utf-8")
    minutes = [f"{load_limit(size) / 60:.0f}" for size in (10_000, 100_000, 1_000_000)]
    assert "{} minute at 10,000 records, {} at 100,000 and {} at 1,000,000".format(*minutes) in " ".join(page.split())
    assert f"may use {MEMORY_LIMIT / 1e9:.0f} GB" in page


def test_table_says_who_did_not_finish_and_why():
    """In the first cell without a figure; a column that nobody tried is not called a failure."""
    figures = {"p50_ms": 1.0, "failed": "did not finish: throughput: more than 60 s"}
    text = report.table({"txtai": figures, "Chroma": {"failed": "not tried: too large"}}, report.SEARCH)
    assert "| txtai | 1.00 | did not finish: throughput: more than 60 s | – |" in text
    assert "| Chroma | not tried: too large | – |" in text
    assert "| txtai | – | not measured |" in report.table({"txtai": {}}, report.STORE)


def test_results_of_a_run_that_was_cut_off_name_the_missing_sizes():
    """What was finished stays."""
    figures = {**FIGURES, "planned": [10_000, 1_000_000], "sizes": {"10000": FIGURES["sizes"]["10000"]}}
    text = report.results(figures)
    assert "cut off: 1,000,000 records were not measured" in text
    assert "### 10,000 records" in text


def run_of_a_million(smaller, minutes=40.0):
    options = Namespace(rounds=1, questions=1, patience=1.0)
    return Run([*smaller], 1_000_000, smaller, options, time.monotonic() + 60 * minutes)


def at_100_000(**result):
    return {"size": 100_000, "load_s": 10.0, "anonymous_mb": 100.0, "p50_ms": 5.0, "hybrid": True, **result}


@pytest.mark.parametrize(
    ("before", "minutes", "reason"),
    [
        ({"load_s": 120.0}, 40, "from 100,000 records, loading would take 20 minutes; the limit is 15"),
        ({"load_s": 60.0}, 5, "from 100,000 records, loading would take 10 minutes; 5 were left"),
        ({"anonymous_mb": 900.0}, 40, "from 100,000 records, it would need 9 GB of memory; the limit is 7"),
        ({"failed": "did not finish: load: more than 250 s"}, 40, "at 100,000 records did not finish"),
        ({}, 0, "the time for loading was used up"),
    ],
)
def test_contender_that_would_exceed_a_limit_is_not_tried(before, minutes, reason):
    """The table says why."""
    with pytest.raises(NotTried, match=f"^not tried: {reason}"):
        run_of_a_million({"txtai": at_100_000(**before)}, minutes).expect("txtai")


def test_loading_begins_with_recollect_and_the_fastest_contenders():
    """If time runs out, the ratio to the fastest is measured; a search of vectors only comes last."""
    smaller = {
        "Chroma": at_100_000(p50_ms=1.0, hybrid=False),
        "txtai": at_100_000(load_s=30.0, p50_ms=18.0),
        "LanceDB": at_100_000(load_s=50.0, p50_ms=8.0),
        "FTS5 + sqlite-vec": at_100_000(p50_ms=150.0),
        OWN: at_100_000(load_s=40.0, p50_ms=9.0),
    }
    run = run_of_a_million(smaller)
    assert sorted(smaller, key=run.order) == [OWN, "LanceDB", "txtai", "FTS5 + sqlite-vec", "Chroma"]
    run.expect("txtai")


CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
for line in sys.stdin:
    if "wait" not in line:
        print('{"child": %d}' % child.pid, flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in Linux's /proc")
def test_process_is_killed_at_its_limit_with_the_processes_it_started(tmp_path):
    """A contender cannot hold the run up, and leaves nothing behind."""
    process = Process([sys.executable, "-c", CHILD], tmp_path / "log")
    grandchild = process.ask("go", 60)["child"]
    with pytest.raises(Failed, match=r"wait: more than 1 s"):
        process.ask("wait", 1)
    assert process.child.poll() is not None
    assert ended(grandchild)
    process.end()


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in Linux's /proc")
def test_process_is_killed_when_it_needs_too_much_memory(tmp_path, monkeypatch):
    """The memory of the process itself, not that of files."""
    monkeypatch.setattr("benchmarks.speed.process.MEMORY_LIMIT", 1_000_000)
    process = Process([sys.executable, "-c", CHILD], tmp_path / "log")
    with pytest.raises(Failed, match="GB of memory"):
        process.ask("wait", 60)
    process.end()


def ended(number):
    """Whether a process is gone, or soon is."""
    for _ in range(100):
        try:
            stat = Path(f"/proc/{number}/stat").read_text(encoding="ascii")
        except OSError:
            return True
        if stat.rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


def test_ratios_compare_with_the_fastest_contender():
    """The bare parts are the floor, and a search of vectors only is no hybrid search."""
    times = {OWN: 2.0, FLOOR: 1.0, "LanceDB": 8.0, "txtai": 4.0, "Chroma": 0.5}
    ran = {name: {"p50_ms": time, "p95_ms": 1.5 * time, "hybrid": name != "Chroma"} for name, time in times.items()}
    assert report.ratios(ran) == [
        "Recollect's p50 is 0.50 times that of the fastest contender, txtai.",
        "Its p50 is 2.00 times that of the bare parts.",
        "Its p95 is 1.50 times its p50.",
    ]


@pytest.mark.parametrize(
    ("high", "power", "words"), [(1000.0, 1.0, "with"), (100.0, 0.5, "more slowly"), (10, 0, "hardly")]
)
def test_growth_is_the_exponent_between_the_smallest_and_the_largest_size(high, power, words):
    """A hundred times the records."""
    assert report.exponent([(10_000, 10.0), (100_000, 1.0), (1_000_000, high)]) == pytest.approx(power)
    assert report.in_words(power).startswith(words)


def test_percentile_is_a_value_that_was_measured():
    """The nearest rank."""
    values = [float(number) for number in range(1, 101)]
    assert [percentile(values, share) for share in (50, 95, 99)] == [50, 95, 99]
    assert percentile([3.0], 99) == 3.0


def test_rrf_of_the_contenders_that_are_put_together():
    """A record in both lists wins."""
    assert rrf([1, 2, 3], [2, 4]) == [2, 1, 4, 3]
