"""Memory over many searches. `python -m benchmarks.flat` makes 100,000 of them."""

import json
import subprocess
import sys

import pytest
from support import ROOT

MOST_MEGABYTES = 1.5
"""A leak of 2 kB a search would be this much over the searches that are compared, and 200 MB over 100,000."""


@pytest.mark.ci
def test_memory_stays_flat():
    """After the first three tenths, 700 searches that never repeat leave the process as large as it was."""
    command = [sys.executable, "-m", "benchmarks.flat", "--searches", "1000", "--records", "150"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=280)
    values = json.loads(done.stdout)["megabytes"]
    assert len(values) == 10
    assert values[-1] - values[2] < MOST_MEGABYTES
