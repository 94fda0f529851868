"""`doctor`: disk, permissions, versions; its exit codes, its output and its speed."""

import json
import os
import re
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.timing import child_cpu_seconds

from recollect.cli import main
from recollect.cli.maintenance import EXIT_CODES
from recollect.doctor import CHECKS, STATES, Finding, Setup, examine, worst
from recollect.errors import StoreError
from recollect.stores.sqlite.health import room

posix = pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX's")


@pytest.fixture
def tokens(home):
    """A token file that everyone may read and write."""
    path = home / "xdg_config_home" / "recollect" / "tokens.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"tokens": []}')
    path.chmod(0o666)
    return path


@posix
def test_public_token_file_is_a_warning_and_fixed(doctor, tokens):
    """Its content stays, its mode becomes 600."""
    told = doctor()
    assert (told.code, told["tokens"]["state"]) == (1, "warning")
    assert "its mode is 666, not 600" in told["tokens"]["message"]
    assert told["tokens"]["mend"] == f"chmod 600 {tokens}"
    mended = doctor("--fix")
    assert (mended.code, mended["tokens"]["state"], mended["tokens"]["fixed"]) == (0, "ok", True)
    assert stat.S_IMODE(tokens.stat().st_mode) == 0o600
    assert tokens.read_text() == '{"tokens": []}'
    assert "fixed" not in doctor("--fix")["tokens"]


@posix
def test_public_store_is_a_warning_and_fixed(doctor, kept):
    """Only if every folder above is open; --fix removes others' rights."""
    assert [found["state"] for found in doctor("--store", kept).all("disk")] == ["ok"]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        place = Path(folder) / "memory.db"
        place.write_bytes(kept.read_bytes())
        place.chmod(0o644)
        told = doctor("--store", place)
        ok, warning = told.all("disk")
        assert (told.code, ok["state"], warning["state"]) == (1, "ok", "warning")
        assert warning["mend"] == f"chmod 600 {place}"
        assert doctor("--store", place, "--fix").code == 0
        assert stat.S_IMODE(place.stat().st_mode) == 0o600
        assert place.read_bytes() == kept.read_bytes()
        place.chmod(0o640)
        assert doctor("--store", place, "--fix").code == 0
        assert stat.S_IMODE(place.stat().st_mode) == 0o640


def test_nearly_full_disk_is_reported():
    """Less than a log needs is a failure, less than the store's size a warning."""
    gigabyte = 10**9
    assert room(100 * gigabyte, gigabyte).state == "ok"
    assert room(gigabyte, gigabyte).state == "warning"
    assert room(10**6, 0).state == "failure"


def test_large_log_is_a_warning(doctor, kept):
    """A sparse file stands in for a reader that never ends."""
    log = Path(f"{kept}-wal")
    with log.open("wb") as file:
        file.truncate(200_000_000)
    told = doctor("--store", kept)
    assert "has grown to 200.0 MB" in told.all("disk")[1]["message"]
    assert told.all("disk")[1]["state"] == "warning"


def test_versions_are_shown(doctor):
    """What a bug report needs."""
    said = doctor()["versions"]["message"]
    assert re.search(r"recollect \d.*Python \d.*SQLite 3\.\d", said)


def test_check_that_fails_is_a_finding():
    """And the others still run, in their order."""

    def broken(setup):
        yield Finding("broken", "ok", "so far")
        raise ZeroDivisionError("by nothing")

    def refused(setup):
        raise StoreError("no")

    def sound(setup):
        yield Finding("sound", "ok", "fine")

    found = examine(Setup(), (broken, refused, sound))
    assert [(one.check, one.state) for one in found] == [
        ("broken", "failure"), ("refused", "failure"), ("sound", "ok"),
    ]  # fmt: skip
    assert "ZeroDivisionError: by nothing" in found[0].message
    assert found[0].mend


def test_worst_finding_is_the_state():
    """And each state has its exit code."""
    assert worst([]) == "ok"
    assert worst(Finding("x", state, "") for state in reversed(STATES)) == "failure"
    assert EXIT_CODES == {"ok": 0, "note": 0, "warning": 1, "failure": 3}


def test_every_check_has_a_finding(doctor, kept):
    """At least one, in the order of the tuple."""
    names = [found["check"] for found in doctor().checks]
    assert list(dict.fromkeys(names)) == [check.__name__ for check in CHECKS]


def test_text_output_has_signs_and_words(capsys, spoil, tokens):
    """A line per finding, its fix below, a sum at the end; the words are enough without signs."""
    spoil()
    assert main(["doctor"]) == 3
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert re.search(r"^✓ ok       store     \S+\s+40\s+records", shown.out, flags=re.MULTILINE)
    at = next(n for n, line in enumerate(lines) if line.startswith("✗ failure  keywords  "))
    assert lines[at + 1].startswith(" " * 21)
    assert any(line.startswith(" " * 21 + "→ recollect doctor --fix") for line in lines)
    assert any(re.match(r"! warning  tokens ", line) for line in lines)
    assert lines[-1] == "1 failure, 1 warning"
    assert "`recollect doctor --fix` can fix 2 of these" in shown.err
    assert main(["doctor", "--fix"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no problems found"


@pytest.mark.ci
def test_check_of_a_small_store_is_fast(kept):
    """A new process with all checks takes less than two seconds of processor time."""
    command = [Path(sys.executable).parent / "recollect", "doctor", "--json", "--embedder", "hashing:64"]

    def look():
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert ran.returncode == 0, ran.stdout
        assert json.loads(ran.stdout)["state"] == "ok"

    assert child_cpu_seconds(look) < 2.0
