"""A folder that gets a scope or a tag gets it completely: no file of it stays visible to others."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recollect import Memory
from recollect.cli import main
from recollect.config import Settings
from recollect.types import Forget, Put, Scope

EARLY = (1_700_000_000, 1_700_000_000)


@pytest.fixture(params=["sqlite", "postgres"])
def memory(request: pytest.FixtureRequest, tmp_path: Path, counting: Any) -> Iterator[Memory]:
    """A memory whose embedder counts, in each kind of store."""
    place = tmp_path / "store.db" if request.param == "sqlite" else request.getfixturevalue("new_schema")()
    with Memory.open(place, embedder=counting, settings=Settings()) as opened:
        yield opened


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """Four notes with old times."""
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in "abcz":
        write(folder / f"{name}.md", f"# {name}\n\nA private walrus of {name}.\n")
    return folder


def write(path: Path, text: str) -> None:
    """A file that is older than the last run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, EARLY)


def owners(memory: Memory) -> dict[str, str | None]:
    """Whose each file is."""
    return {Path(record.path or "").name: record.scope.user for record in memory.list(any_scope=True, limit=1000)}


@pytest.mark.parametrize("include", [True, False], ids=["include", "single file"])
def test_narrow_run_before_does_not_prevent_rescoping(
    memory: Memory, notes: Path, counting: Any, include: bool
) -> None:
    """Each file is compared, and not only the last; nothing is embedded again."""
    memory.index(notes)
    narrow = memory.index(notes, include=["z.md"], user="ada") if include else memory.index(notes / "z.md", user="ada")
    assert narrow.rescoped == [str(notes / "z.md")]
    assert owners(memory) == {"a.md": None, "b.md": None, "c.md": None, "z.md": "ada"}
    counting.embedded.clear()
    report = memory.index(notes, user="ada")
    assert report.rescoped == report.changed == [str(notes / f"{name}.md") for name in "abc"]
    assert (report.unchanged, counting.embedded) == (1, [])
    assert set(owners(memory).values()) == {"ada"}
    assert not memory.search("walrus").results
    assert memory.index(notes, user="ada").rescoped == []


def test_every_file_gets_a_new_tag(memory: Memory, notes: Path) -> None:
    """Also those that a run with the tag did not read."""
    memory.index(notes)
    memory.index(notes / "z.md", tags=["work"])
    report = memory.index(notes, tags=["work"])
    assert len(report.rescoped) == 3
    assert len(memory.list(tags=["work"])) == 4


def test_reindex_restores_the_scope_of_every_file(memory: Memory, notes: Path) -> None:
    """`reindex` compares each file with the folder's scope, as a store of an earlier version needs."""
    memory.index(notes, user="ada")
    chunk = memory.store.files.chunks(str(notes / "b.md"))[0]
    memory.store.records.apply([[Put(replace(chunk, id="left behind", scope=Scope())), Forget(chunk.id, purge=True)]])
    assert owners(memory)["b.md"] is None
    assert memory.reindex().rescoped == [str(notes / "b.md")]
    assert set(owners(memory).values()) == {"ada"}


def test_file_that_became_unreadable_leaves_the_index(memory: Memory, notes: Path) -> None:
    """Binary, too large, empty or a link: it is removed when the folder changes its scope."""
    memory.index(notes)
    (notes / "a.md").write_bytes(b"\0\0walrus")
    (notes / "b.md").write_bytes(b"walrus " * 500_000)
    (notes / "c.md").write_text("")
    (notes / "z.md").unlink()
    (notes / "z.md").symlink_to(notes / "nowhere")
    assert len(memory.index(notes, user="ada").removed) == 4
    assert owners(memory) == {}


@pytest.mark.parametrize("fate", ["deleted", "empty", "binary"])
def test_files_waiting_for_confirm_change_their_scope_too(memory: Memory, notes: Path, fate: str) -> None:
    """They stay in the index, but not for other callers; nothing is embedded again."""
    for number in range(30):
        write(notes / f"n{number}.md", f"Walrus {number}.\n")
    memory.index(notes)
    for number in range(30):
        path = notes / f"n{number}.md"
        path.unlink() if fate == "deleted" else path.write_bytes(b"" if fate == "empty" else b"\0\0\0")
    report = memory.index(notes, user="ada")
    assert (len(report.unconfirmed), len(report.rescoped), report.removed) == (30, 34, [])
    assert set(owners(memory).values()) == {"ada"}
    assert len(memory.index(notes, user="ada").unconfirmed) == 30


def test_folder_with_an_unusable_ignore_file_changes_its_scope(memory: Memory, notes: Path, counting: Any) -> None:
    """Its files are not read until the file is usable."""
    for name in ("d", "e"):
        write(notes / "closed" / f"{name}.md", f"---\ntags: [own]\n---\nWalrus of {name}.\n\nMore.\n")
    memory.index(notes, tags=["old"])
    (notes / "closed" / ".gitignore").symlink_to(notes / "a.md")
    counting.embedded.clear()
    report = memory.index(notes, user="ada", tags=["new"])
    assert len(report.rescoped) == 6
    assert (len(report.changed), list(report.skipped)) == (4, [str(notes / "closed" / ".gitignore")])
    assert set(owners(memory).values()) == {"ada"}
    assert len(memory.list(user="ada", tags=["new"])) == 6
    (notes / "closed" / ".gitignore").unlink()
    report = memory.index(notes, user="ada", tags=["new"])
    assert (report.changed, report.rescoped) == ([str(notes / "closed" / f"{name}.md") for name in "de"], [])
    assert {record.tags for record in memory.list(user="ada", path="closed/*")} == {("own", "new")}
    assert memory.index(notes, user="ada", tags=["new"]).unchanged == 6
    assert counting.embedded == []


def test_excluded_files_keep_their_scope(memory: Memory, notes: Path) -> None:
    """`--include` and `--exclude` narrow a change of scope too."""
    write(notes / "closed" / "d.md", "Walrus of d.\n")
    memory.index(notes)
    (notes / "closed" / ".gitignore").symlink_to(notes / "a.md")
    memory.index(notes, user="ada", exclude=["closed/", "b.md"])
    memory.index(notes, user="ada", include=["c.md"])
    assert {name for name, owner in owners(memory).items() if owner is None} == {"b.md", "d.md"}
    memory.index(notes, user="ada", include=["closed/"])
    assert {name for name, owner in owners(memory).items() if owner is None} == {"b.md"}


def test_superseded_chunks_stay_superseded(memory: Memory, notes: Path) -> None:
    """A change of scope does not restore them."""
    memory.index(notes / "a.md")
    (chunk,) = memory.list()
    memory.supersede(chunk.id, text="A walrus for all.")
    memory.index(notes / "a.md", user="ada")
    assert [record.text for record in memory.list(user="ada")] == ["A walrus for all."]
    (kept,) = memory.list(user="ada", superseded=True, kind="chunk")
    assert (kept.scope, kept.created_at, kept.superseded_by is None) == (Scope("ada"), chunk.created_at, False)


def test_dry_run_lists_the_changes_of_scope(memory: Memory, notes: Path) -> None:
    """The same list as a run, and nothing is changed."""
    memory.index(notes)
    assert len(memory.index(notes, user="ada", dry_run=True).rescoped) == 4
    assert set(owners(memory).values()) == {None}


AS_NOBODY = """
import json, os, sys
from pathlib import Path
from recollect.config import Settings
from recollect.memory import Memory
place = Path(sys.argv[1])
def index(folder, **flags):
    with Memory.open(folder / "store.db", embedder="none", settings=Settings()) as memory:
        report = memory.index(folder / "notes", **flags)
        held = sorted((Path(r.path).name, r.scope.user, r.text) for r in memory.list(any_scope=True))
        return {"held": held, "skipped": report.skipped, "rescoped": report.rescoped, "changed": report.changed}
# Everything is loaded first: a user without rights may not read Python's own files here.
(place / "warm" / "notes").mkdir(parents=True)
(place / "warm" / "notes" / "a.md").write_text("---\\na: 1\\n---\\nx")
index(place / "warm"), index(place / "warm", user="x")
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
said = [index(place)]
os.chmod(place / "notes" / "b.md", 0); os.chmod(place / "notes" / "closed", 0)
said.append(index(place, user="ada"))
os.chmod(place / "notes" / "b.md", 0o600); os.chmod(place / "notes" / "closed", 0o700)
said.append(index(place, user="ada"))
(place / "notes" / "b.md").write_text("Walrus b, again")
said.append(index(place, user="ada"))
print(json.dumps(said))
"""


@pytest.mark.ci
def test_file_without_permission_changes_its_scope_at_once() -> None:
    """Its stored chunks get the new scope, and it is read when possible."""
    folder = Path(tempfile.mkdtemp(prefix="recollect-nobody-"))
    try:
        for name in ("a.md", "b.md", "closed/c.md"):
            write(folder / "notes" / name, f"Walrus {name}")
        if os.geteuid() == 0:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, 65534, 65534)
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, str(folder)], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
    finally:
        shutil.rmtree(folder)
    first, closed, opened, edited = json.loads(done.stdout)
    assert {owner for _, owner, _ in first["held"]} == {None}
    assert closed["skipped"] == dict.fromkeys((f"{folder}/notes/b.md", f"{folder}/notes/closed"), "permission denied")
    assert len(closed["rescoped"]) == 3
    assert closed["held"] == [[name, "ada", text] for name, _, text in first["held"]]
    assert (opened["skipped"], opened["held"]) == ({}, closed["held"])
    assert ["b.md", "ada", "Walrus b, again"] in edited["held"]


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `recollect` in this process, in a home of its own."""
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("RECOLLECT_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "none")
    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        code = main(list(map(str, words)))
        captured = capsys.readouterr()
        return subprocess.CompletedProcess(words, code, captured.out, captured.err)

    return run


@pytest.mark.ci
def test_command_line_reports_the_change_of_scope(command: Callable[..., Any], notes: Path) -> None:
    """In text and in JSON, and a watch corrects what an earlier run left."""
    command("index", notes)
    command("index", notes / "z.md", "--user", "ada")
    assert "\n3 files would belong to user ada\n" in command("index", notes, "--user", "ada", "--dry-run").stdout
    watched = command("watch", "--once", notes, "--user", "ada")
    assert watched.stdout.endswith(f"  {notes}: 3 changed, 3 rescoped\n")
    assert command("list").returncode == 1
    said = command("index", notes, "--user", "ada", "--tag", "x", "--tag", "y").stdout
    assert said.endswith("\n4 files now belong to user ada, with the tags x, y\n")
    assert len(json.loads(command("index", notes, "--json").stdout)["rescoped"]) == 4
    assert command("index", notes / "a.md", "--user", "bob").stdout.endswith("\n1 file now belongs to user bob\n")
