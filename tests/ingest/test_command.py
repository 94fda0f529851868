"""`recollect index` on the command line."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from recollect.cli import main
from recollect.cli.terminal import bar, progress


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty home with its own store."""
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("RECOLLECT_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "none")
    monkeypatch.chdir(tmp_path)


def test_every_flag_reaches_the_index(notes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Several paths, patterns, scope and tags; the JSON report has every list."""
    single = tmp_path / "single.txt"
    for path in (notes / "a.md", notes / "b.py", notes / "c.log", single):
        path.write_text(f"walrus {path.name}\n")
    flags = ["--include", "*.md", "--include", "*.py", "--exclude", "b.*", "--user", "ada", "--tag", "x", "--tag", "y"]
    assert main(["index", str(notes), str(single), *flags, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [Path(path).name for path in report["added"]] == ["a.md", "single.txt"]
    assert {"changed", "moved", "removed", "skipped", "unconfirmed", "unchanged", "embedded"} <= report.keys()
    assert main(["list", "--user", "ada", "--tag", "x", "--tag", "y", "--json"]) == 0
    assert main(["list", "--json"]) == 1


def test_dry_run_names_every_file_and_stores_none(notes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plus before each file to add, and nothing is found afterwards."""
    (notes / "a.md").write_text("walrus\n")
    assert main(["index", str(notes), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("would be: 1 added, 0 changed, 0 removed")
    assert f"+ {notes / 'a.md'}" in out
    assert main(["search", "walrus"]) == 1


def test_file_that_is_too_large_is_not_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A named file that is skipped is exit code 1; beside one that is indexed, or in a folder, it is 0."""
    for name, size in (("novel.txt", 3 * 2**20), ("good.txt", 9)):
        (tmp_path / name).write_text("x" * size)
    for flags in ((), ("--json",), ("--dry-run",)):
        assert main(["index", "novel.txt", *flags]) == 1
    assert "novel.txt: larger than 2 MiB; split it into smaller files\n" in capsys.readouterr().err
    assert main(["why-not", "x", "novel.txt"]) == 0
    out = capsys.readouterr().out
    assert "split it into smaller files" in out
    assert "recollect index" not in out
    assert main(["index", "novel.txt", "good.txt"]) == 0
    assert main(["index", str(tmp_path), "--force"]) == 0


def test_reasons_are_listed_once_and_then_counted(notes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A hundred empty files do not fill the screen."""
    for number in range(100):
        (notes / f"{number:03}.md").touch()
    assert main(["index", str(notes)]) == 0
    captured = capsys.readouterr()
    assert "100 skipped" in captured.out
    assert captured.err.count("empty") == 6
    assert "95 more: empty" in captured.err


def test_vanished_files_wait_for_confirm(notes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the flag."""
    for number in range(30):
        (notes / f"{number}.md").write_text(f"walrus {number}\n")
    main(["index", str(notes)])
    for path in notes.iterdir():
        path.unlink()
    capsys.readouterr()
    assert main(["index", str(notes)]) == 0
    captured = capsys.readouterr()
    assert "0 removed" in captured.out
    assert "--confirm" in captured.err
    assert main(["index", str(notes), "--confirm"]) == 0
    assert "30 removed" in capsys.readouterr().out


HOSTILE = (
    "osc\x1b]52;c;Y3VybCBldmls\a.md", "title\x1b]0;owned\a.png", "clear\x1b[2J.md", "csi\x9b2J.png",
    "line\nskipped forged: binary.png", "line\n+ forged.md",
)  # fmt: skip


def on_terminal(*words: object) -> str:
    """What a command writes to a terminal, on both of its outputs."""
    ours, theirs = pty.openpty()
    subprocess.run(
        [sys.executable, "-m", "recollect", *map(str, words)], stdout=theirs, stderr=theirs, check=False, timeout=60
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # how a terminal ends that nobody holds
        while more := os.read(ours, 65536):
            shown += more
    os.close(ours)
    return shown.decode()


@pytest.mark.ci
@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("index", "{}", "--dry-run"), ["+ ", "osc", "clear", "skipped ", "csi", "link"]),
        (("index", "{}"), ["skipped ", "csi", "title", "link"]),
        (("watch", "--once", "{}"), ["3 added"]),
        (("ingest-files", "--dry-run", "--paths", "*", "--workspace", "{}"), ["osc", "clear", "skipped", "link"]),
    ],
    ids=["dry run", "index", "watch", "ingest-files"],
)
def test_file_names_cannot_control_the_terminal(
    notes: Path, tmp_path: Path, words: tuple[str, ...], shown: list[str]
) -> None:
    """A name stays on its line without control characters, in every list and reason."""
    folder = tmp_path / "notes\x1b]0;owned\a"
    notes.rename(folder)
    for name in HOSTILE:
        (folder / name).write_text("walrus\n")
    (folder / "link\x1b[2J.md").symlink_to("/etc/hostname")
    text = on_terminal(*(word.format(folder) for word in words))
    assert [word for word in shown if word not in text] == []
    assert [sign for sign in ("\a", "\x9b", "\x1b]", "\x1b[2J") if sign in text] == []
    assert [line for line in text.splitlines() if "forged" in line and "line\\n" not in line] == []


@pytest.mark.ci
def test_move_is_shown_without_control_characters(notes: Path) -> None:
    """The list of a dry run has both names on one line."""
    (notes / "old\x1b[2J.md").write_text("walrus\n")
    on_terminal("index", notes)
    (notes / "old\x1b[2J.md").rename(notes / "new\n.md")
    assert f"> {notes}/old\\x1b[2J.md → {notes}/new\\n.md" in on_terminal("index", notes, "--dry-run")


def test_indexing_a_home_needs_force(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A usage error, with the flag in the hint."""
    (tmp_path / "home").mkdir()
    assert main(["index", "~"]) == 2
    assert "--force" in capsys.readouterr().err
    assert main(["index", "~", "--force"]) == 0


def test_progress_bar_shows_rate_and_time_left() -> None:
    """A quarter in ten seconds leaves thirty; at its end it shows the total time."""
    assert bar("reading", 250, 1000, 10) == "reading ██████░░░░░░░░░░░░░░░░░░ 250 of 1,000 · 25/s · 0:30 left"
    assert bar("reading", 1000, 1000, 3725) == f"reading {'█' * 24} 1,000 of 1,000 · 0/s · in 1:02:05"
    assert "0 of 10" in bar("reading", 0, 10, 0)


@pytest.mark.ci
def test_progress_bar_is_shown_only_on_a_terminal(notes: Path) -> None:
    """On a pseudo-terminal it ends with all files; in a pipe there is none."""
    for number in range(3):
        (notes / f"{number}.md").write_text(f"walrus {number}\n")
    command = [sys.executable, "-m", "recollect", "index", str(notes)]
    ours, theirs = pty.openpty()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=theirs, check=True, timeout=60)
    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert "3 of 3" in shown
    assert shown.count("\n") == 1
    piped = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert piped.stderr == ""
    assert progress("reading") is None
