"""Watching real files: in a thread of the test, and for signals and locks as a process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import string
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import apsw
import pytest
import watchfiles

from recollect.errors import UsageError
from recollect.ingest.folder import Report
from recollect.ingest.watch import sole_watcher, watch

from .conftest import eventually


@pytest.mark.ci
def test_watcher_follows_a_note(begin, notes, texts):
    """Created, edited, replaced by a rename, moved and deleted, each within seconds."""
    watcher = begin(notes)

    def becomes(wanted):
        eventually(lambda: texts() == wanted, lambda: (texts(), wanted, watcher.errors))

    (notes / "a.md").write_text("tea in the morning")
    becomes({"a.md": "tea in the morning"})
    (notes / "a.md").write_text("coffee in the morning")
    becomes({"a.md": "coffee in the morning"})
    (notes / ".a.md.tmp").write_text("cocoa in the evening")
    (notes / ".a.md.tmp").replace(notes / "a.md")
    becomes({"a.md": "cocoa in the evening"})
    (notes / "deep" / "er").mkdir(parents=True)
    (notes / "a.md").rename(notes / "deep" / "er" / "b.md")
    becomes({"b.md": "cocoa in the evening"})
    (notes / "deep" / "er" / "c.md").write_text("in a folder that is new")
    becomes({"b.md": "cocoa in the evening", "c.md": "in a folder that is new"})
    shutil.rmtree(notes / "deep")
    becomes({})
    assert (watcher.errors, watcher.messages) == ([], [])


@pytest.mark.ci
def test_first_pass_finds_earlier_changes(begin, notes, texts):
    """Files that were added, edited and deleted while no watcher ran."""
    for name in "abc":
        (notes / f"{name}.md").write_text(f"first words of {name}")
    begin(notes).end()
    assert set(texts()) == {"a.md", "b.md", "c.md"}
    (notes / "a.md").write_text("second words, and more of them")
    (notes / "b.md").unlink()
    (notes / "d.md").write_text("first words of d")
    begin(notes)
    assert texts() == {
        "a.md": "second words, and more of them",
        "c.md": "first words of c",
        "d.md": "first words of d",
    }


@pytest.mark.ci
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_watch_ends_cleanly(start, notes, sent, tmp_path):
    """SIGTERM and Ctrl-C end it with exit code 0, no message, and no lock file."""
    watcher = start(notes)
    (state,) = tmp_path.rglob("watch/*.json")
    assert json.loads(state.read_text())["pid"] == watcher.process.pid
    assert watcher.end(sent) == 0
    assert watcher.err == ""
    assert not state.exists()


@pytest.mark.ci
def test_many_vectors_are_computed_beside_the_watch(start, run, notes):
    """The first pass ends when the files are read; a few more files get their vectors in the pass."""
    for number in range(500):
        (notes / f"{number}.md").write_text(f"walrus on floe {number}")
    watcher = start(notes)
    assert watcher.passes[0]["embedded"] == 0
    eventually(lambda: json.loads(run("status", "--json").stdout)["vectors"]["without"] == 0, lambda: watcher.err)
    eventually(lambda: "background" not in json.loads(run("status", "--json").stdout)["vectors"])
    (notes / "more.md").write_text("capercaillie in the snow")
    eventually(lambda: any(done["embedded"] == 1 for done in watcher.passes), lambda: (watcher.out, watcher.err))
    assert watcher.end(signal.SIGTERM) == 0


@pytest.mark.ci
def test_watch_can_be_ended_during_its_first_pass(start, begin, notes, texts):
    """Committed chunks stay, and the next watcher does the rest."""
    for number in range(2500):
        (notes / f"{number}.md").write_text(f"the note with the number {number}")
    watcher = start(notes, ready=False)
    eventually(lambda: len(texts()) > 0, lambda: watcher.err)
    assert watcher.end(signal.SIGTERM) == 0
    assert (watcher.out, watcher.err) == ("", "")
    assert 0 < len(texts()) < 2500
    begin(notes)
    assert len(texts()) == 2500


@pytest.mark.ci
def test_second_watcher_of_a_folder_is_refused(start, run, home, notes, monkeypatch):
    """Exit code 2 with the process that has the lock; another store may watch the same folder."""
    first = start(notes)
    (notes.parent / "link").symlink_to(notes)
    for path in (notes, f"{notes}/../notes", notes.parent / "link"):
        second = run("watch", path)
        assert second.returncode == 2
        assert f"by process {first.process.pid} since 20" in second.stderr
    assert first.process.poll() is None
    monkeypatch.setenv("XDG_STATE_HOME", home["XDG_STATE_HOME"])
    with pytest.raises(UsageError, match="is already watched"), sole_watcher(notes, str(notes.parent / "memory.db")):
        pass
    with sole_watcher(notes, str(notes.parent / "other.db")):
        pass


@pytest.mark.ci
def test_a_killed_watcher_leaves_no_lock(start, notes):
    """After kill -9 the next watcher takes over."""
    assert start(notes).end(signal.SIGKILL) == -signal.SIGKILL
    assert start(notes).process.poll() is None


@pytest.mark.ci
def test_folder_that_goes_and_comes_back(begin, notes, texts):
    """A failed pass is reported and does not end the watch; a new folder is watched again."""
    (notes / "a.md").write_text("the first of two lives")
    watcher = begin(notes)
    shutil.rmtree(notes)
    eventually(lambda: any("is not there any more" in error for error in watcher.errors), lambda: watcher.passes)
    notes.mkdir()
    (notes / "b.md").write_text("the second of two lives")
    eventually(lambda: "b.md" in texts(), lambda: watcher.errors)
    (notes / "c.md").write_text("seen live again")
    eventually(lambda: "c.md" in texts(), lambda: watcher.errors)


@pytest.mark.ci
@pytest.mark.parametrize("moment", ["early", "later"])
def test_folder_that_may_be_read_again_is_watched(moment):
    """Files that are made in it and in others later are seen at once, though some are closed when the watch begins."""
    with tempfile.TemporaryDirectory(prefix="recollect-nobody-") as place:  # outside of pytest's own, which is closed
        if os.geteuid() == 0:
            os.chown(place, 65534, 65534)
        command = [sys.executable, str(Path(__file__).with_name("reopened.py")), place, moment]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert (ran.stdout, ran.stderr) == ("all\nall\n", "")


def test_files_that_are_not_indexed_cause_no_pass(begin, notes, tmp_path):
    """A store inside the watched folder causes no pass, nor does a hidden folder, nor the target of a link."""
    (notes / ".obsidian").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (notes / "link").symlink_to(tmp_path / "elsewhere")
    watcher = begin(notes, store=notes / "memory.db")
    before = len(watcher.passes)
    for number in range(8):
        (notes / ".obsidian" / "workspace.md").write_text(f"{number}")
        (notes / ".a.md.swp").write_text(f"{number}")
        (tmp_path / "elsewhere" / "b.md").write_text(f"{number}")
        time.sleep(0.1)
    assert len(watcher.passes) <= before + 1, watcher.passes
    (notes / "a.md").write_text("a note at last")
    eventually(lambda: any(done.report.added for done in watcher.passes), lambda: watcher.passes)


def test_folder_that_has_a_link_to_it_is_followed(begin, notes, texts):
    """The system reports its events under the name of the link that it finds last, or of the folder."""
    (notes / "deep").mkdir()
    for letter in string.ascii_lowercase:
        (notes / (3 * letter)).symlink_to(notes / "deep")
    watcher = begin(notes)
    for text in ("tea in the morning", "cocoa in the evening"):
        (notes / "deep" / "a.md").write_text(text)
        eventually(lambda text=text: texts() == {"a.md": text}, lambda: (texts(), watcher.passes))


@pytest.mark.ci
def test_rescan_needs_no_event(begin, notes):
    """There is a pass every `rescan` seconds."""
    watcher = begin(notes, rescan=0.1)
    eventually(lambda: len(watcher.passes) >= 4, lambda: watcher.passes)
    assert all(done.report.added == [] for done in watcher.passes)


def test_without_a_file_watch_passes_are_periodic(notes, monkeypatch):
    """If the system gives no watch, that is reported once."""

    def refuse(*_paths, **_options):
        raise OSError("OS file watch limit reached")

    monkeypatch.setattr(watchfiles, "watch", refuse)
    monkeypatch.setattr("recollect.ingest.watch.RETRY_SECONDS", 0.1)
    said, times = [], []
    for done in watch([notes], lambda _root: Report(), rescan=0.2, quiet_ms=20, announce=said.append):
        assert done.error is None
        times.append(time.monotonic())
        if len(times) == 3:
            break
    assert all(later - earlier >= 0.2 for earlier, later in pairwise(times))
    assert said == ["changes are not reported, folders are only compared now and then: OS file watch limit reached"]


def test_any_error_of_a_pass_is_its_result(notes):
    """Also an unexpected one ends a pass and not the watch."""

    def fail(_root):
        raise ZeroDivisionError("by nothing")

    done = next(watch([notes], fail, announce=print))
    assert done.report is None
    assert done.error.message == f"{notes} could not be indexed: ZeroDivisionError: by nothing"


@pytest.mark.ci
def test_several_folders_and_tags(begin, tmp_path, texts, run):
    """One watcher, one folder named twice, with tags on all files."""
    roots = [tmp_path / "one", tmp_path / "two % words"]
    for root in roots:
        root.mkdir()
    watcher = begin(*roots, roots[0], tags=["watched"])
    for root in roots:
        (root / f"{root.name}.md").write_text(f"a note in {root.name}")
    eventually(lambda: len(texts()) == 2, lambda: watcher.errors)
    assert {done.root for done in watcher.passes} == set(roots)
    assert len(json.loads(run("list", "--tag", "watched", "--json").stdout)) == 2


def test_it_reads_only_the_files_that_the_patterns_select(begin, notes, texts):
    """`include`, `exclude` and the folder's own rules apply, also when the rules change."""
    watcher = begin(notes, include=["*.md"], exclude=["drafts/"])
    (notes / "drafts").mkdir()
    for name in ("a.md", "b.md", "c.txt", "drafts/d.md"):
        (notes / name).write_text(f"the words of {name}")
    eventually(lambda: set(texts()) == {"a.md", "b.md"}, lambda: (texts(), watcher.errors))
    (notes / ".recollectignore").write_text("b.md\n")
    eventually(lambda: set(texts()) == {"a.md"}, lambda: (texts(), watcher.errors))


@pytest.mark.ci
def test_suddenly_empty_folder_removes_nothing(run, notes, texts):
    """Where most files vanish together, the way to confirm is shown."""
    for number in range(30):
        (notes / f"{number}.md").write_text(f"note number {number}")
    run("watch", "--once", notes)
    for path in notes.iterdir():
        path.unlink()
    said = run("watch", "--once", notes)
    assert (said.returncode, said.stdout, len(texts())) == (0, "", 30)
    assert f"recollect index --confirm {notes}\n" in said.stderr
    assert run("index", "--confirm", notes).returncode == 0
    assert texts() == {}


@pytest.mark.ci
def test_ignored_files_leave_a_watched_folder(run, notes, texts):
    """However many: a watch cannot ask for confirmation."""
    (notes / "secret").mkdir()
    for number in range(30):
        (notes / "secret" / f"{number}.md").write_text(f"secret number {number}")
    (notes / "a.md").write_text("tea in the morning")
    run("watch", "--once", notes)
    (notes / ".recollectignore").write_text("secret/\n")
    said = run("watch", "--once", notes)
    assert said.stdout.endswith(f"  {notes}: 30 removed\n")
    assert (said.stderr, set(texts())) == ("", {"a.md"})


def test_many_events_leave_pauses(notes):
    """A folder that always changes is compared at most half of the time."""
    spent = 0.3
    starts: list[float] = []

    def slow(_root):
        starts.append(time.monotonic())
        (notes / "a.md").write_text(f"after pass {len(starts)}")  # what happens during a pass asks for the next
        time.sleep(spent)
        return Report()

    for _done in watch([notes], slow, quiet_ms=20, announce=print):
        if len(starts) == 3:
            break
    assert all(later - earlier >= 2 * spent for earlier, later in pairwise(starts))


@pytest.mark.ci
def test_once_indexes_and_ends(run, notes, texts):
    """`--once` prints one line of changes, or nothing, and needs no lock."""
    (notes / "a.md").write_text("tea in the morning")
    (notes / "b.md").write_text("tea in the evening")
    first, second = run("watch", "--once", notes), run("watch", "--once", notes)
    assert (first.returncode, first.stderr, len(first.stdout.splitlines())) == (0, "", 1)
    assert first.stdout.endswith(f"  {notes}: 2 added\n")
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    (notes / "a.md").unlink()
    assert run("watch", "--once", notes).stdout.endswith(f"  {notes}: 1 removed\n")
    assert set(texts()) == {"b.md"}


@pytest.mark.ci
def test_wrong_use_is_reported_at_once(run, notes, tmp_path):
    """A missing folder, no folder, or an interval of zero: exit code 2."""
    assert run("watch", tmp_path / "nowhere").returncode == 2
    assert run("watch", "~nobody-of-this-name/notes").returncode == 2
    assert run("watch").returncode == 2
    assert run("watch", notes, "--rescan", "0").returncode == 2


@pytest.mark.ci
def test_once_fails_if_its_pass_fails(run, notes, tmp_path):
    """Exit code 3 and an error on standard error."""
    (notes / "a.md").write_text("tea in the morning")
    run("watch", "--once", notes)
    (notes / "a.md").write_text("coffee in the morning")
    with apsw.Connection(str(tmp_path / "memory.db")) as connection:
        connection.execute("CREATE TRIGGER no BEFORE INSERT ON history BEGIN SELECT RAISE(ABORT, 'no'); END")
    failed = run("watch", "--once", "--json", notes)
    assert (failed.returncode, failed.stdout) == (3, "")
    assert json.loads(failed.stderr.splitlines()[-1])["error"]["code"] == "store"
