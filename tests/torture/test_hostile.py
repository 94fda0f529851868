"""Hostile files, queries, exports, settings and model answers: an error with a message, or a result, and no more."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.timing import longest

HOSTILE = Path(__file__).with_name("hostile.py")
KINDS = ("files", "folders", "queries", "exports", "settings", "answers")
MOST_MB = 300


@pytest.mark.ci
@pytest.mark.parametrize(
    ("count", "seconds"),
    [
        pytest.param(5_000, 120, id="short"),
        pytest.param(100_000, longest(330), id="long", marks=[pytest.mark.torture, pytest.mark.timeout(7200)]),
    ],
)
def test_hostile_inputs_are_read_or_refused(
    tmp_path: Path, start: Callable[..., Any], tally: Callable[..., None], count: int, seconds: int
) -> None:
    """No other exception, none that takes 20 seconds of a processor, and never more than 300 MB of memory."""
    out, _ = start(HOSTILE, tmp_path, count, seconds, count).communicate(timeout=3 * seconds + 300)
    report = json.loads(out)
    assert not report["faults"], "\n".join(report["faults"])
    assert report["inputs"] >= 500
    assert min(report[kind] for kind in KINDS) > 0
    assert min(report["read"], report["refused"]) > report["inputs"] // 10
    assert report["peak_mb"] < MOST_MB
    tally("hostile files, queries, exports, settings and model answers", inputs=report["inputs"],
          **{kind: report[kind] for kind in KINDS}, refused=report["refused"], peak_mb=report["peak_mb"],
          other_errors=0)  # fmt: skip
