"""docs/performance.md shows the figures of benchmarks/results/speed.json, and the report's numbers are right."""

import json

import pytest

from benchmarks.speed import report
from benchmarks.speed.contender import CONTENDERS, FLOOR, OWN, rrf
from benchmarks.speed.run import percentile

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


def test_ratios_compare_with_the_fastest_contender():
    """The bare parts are the floor, and a search of vectors only is no hybrid search."""
    times = {OWN: 2.0, FLOOR: 1.0, "LanceDB": 8.0, "txtai": 4.0, "Chroma": 0.5}
    ran = {name: {"p50_ms": time, "p95_ms": 1.5 * time, "hybrid": name != "Chroma"} for name, time in times.items()}
    assert report.ratios(ran) == [
        "Recollect's p50 is 0.50 times that of the fastest contender, txtai.",
        "It is 2.00 times that of the bare parts.",
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
