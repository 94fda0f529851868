"""Broken inputs: each is skipped with its reason, and the rest is indexed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect.config import Settings
from recollect.memory import Memory

Reasons = dict[str, str]


def reasons(report: Any) -> Reasons:
    """Why files were skipped, by name."""
    return {Path(path).name: reason for path, reason in report.skipped.items()}


def test_every_broken_file_is_skipped_with_its_reason_and_the_rest_indexed(memory: Memory, notes: Path) -> None:
    """Invalid UTF-8 and broken front matter are read; NUL bytes, 50 MB, a FIFO, a socket and loops are named."""
    (notes / "good.md").write_text("A good walrus.\n")
    (notes / "invalid.md").write_bytes(b"walrus \xff\xfe\xfd\x80 invalid\n")
    (notes / "front.md").write_text("---\n: : [ {\n\tnot yaml\n---\nA walrus under broken front matter.\n")
    (notes / "date.md").write_text("---\ndate: 2020-45-99\n---\nA walrus with no such day.\n")
    (notes / "nul.md").write_bytes(b"walrus\0walrus")
    with (notes / "huge.md").open("wb") as file:
        for _ in range(50):
            file.write(b"walrus " * 150_000)
    os.mkfifo(notes / "pipe.md")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.relpath(notes / "socket.md"))
    (notes / "self.md").symlink_to(notes / "self.md")
    (notes / "to").symlink_to(notes / "fro")
    (notes / "fro").symlink_to(notes / "to")
    (notes / "up").symlink_to(notes.parent)
    report = memory.index(notes)
    listener.close()
    assert reasons(report) == {
        "nul.md": "binary",
        "huge.md": "larger than 2 MiB",
        "pipe.md": "not a file",
        "socket.md": "not a file",
        "self.md": "a broken link",
        "to": "a broken link",
        "fro": "a broken link",
        "up": "a link out of the folder",
    }
    assert {Path(path).name for path in report.added} == {"good.md", "invalid.md", "front.md", "date.md"}
    found = memory.search("walrus", sources=["keyword"]).results
    assert {Path(result.record.path or "").name for result in found} == {Path(path).name for path in report.added}


@pytest.mark.parametrize(
    "count", [pytest.param(1_000, id="short"), pytest.param(10_000, id="long", marks=pytest.mark.torture)]
)
def test_empty_files_are_skipped_quickly(memory: Memory, notes: Path, count: int) -> None:
    """Each with its reason, none in the store, and the one note among them is found."""
    for number in range(count):
        (notes / f"{number}.md").touch()
    (notes / "note.md").write_text("A walrus.\n")
    started = time.process_time()
    report = memory.index(notes)
    assert time.process_time() - started < count / 100
    assert len(report.skipped) == count
    assert set(report.skipped.values()) == {"empty"}
    assert [Path(path).name for path in report.added] == ["note.md"]
    assert len(memory.list()) == 1


def test_deep_folder_and_texts_made_to_be_slow_are_read(memory: Memory, notes: Path) -> None:
    """A hundred folders deep; thousands of quotes, brackets, stars and pipes: all are indexed to their last word."""
    deep = notes.joinpath(*["d"] * 100)
    deep.mkdir(parents=True)
    (deep / "a.md").write_text("# Deep\n\nThe deep walrus.\n")
    for number, unit in enumerate(("> ", "[", "*", "[a](", "| a ", "`", "<!--", "- ", "_a")):
        (notes / f"odd{number}.md").write_text(f"{unit * (20_000 // len(unit))}\n\nbittern{number} ends it\n")
    report = memory.index(notes)
    assert not report.skipped
    assert memory.search("deep walrus").results[0].record.path == str(deep / "a.md")
    for number in range(9):
        assert memory.search(f"bittern{number}", sources=["keyword"]).results[0].record.path.endswith(f"odd{number}.md")


def test_file_that_becomes_empty_binary_or_huge_leaves_the_index(memory: Memory, notes: Path) -> None:
    """Its chunks are removed."""
    for name in ("empty", "binary", "huge"):
        (notes / f"{name}.md").write_text(f"A walrus in {name}.\n")
    memory.index(notes)
    (notes / "empty.md").write_text("")
    (notes / "binary.md").write_bytes(b"\0\0walrus")
    (notes / "huge.md").write_bytes(b"walrus " * 500_000)
    report = memory.index(notes)
    assert len(report.removed) == len(report.skipped) == 3
    assert memory.list() == []


AS_NOBODY = """
import dataclasses, json, os, sys
from recollect.config import Settings
from recollect.memory import Memory
def index(place):
    with Memory.open(f"{place}/store.db", embedder="none", settings=Settings()) as memory:
        report = memory.index(f"{place}/notes")
        return {"report": dataclasses.asdict(report), "texts": sorted(record.text for record in memory.list())}
# Everything is loaded first: a user without rights may not read Python's own files here.
os.makedirs(f"{sys.argv[1]}/warm/notes")
open(f"{sys.argv[1]}/warm/notes/a.md", "w").write("---\\na: 1\\n---\\nx")
open(f"{sys.argv[1]}/warm/notes/.gitignore", "w").write("z")
index(f"{sys.argv[1]}/warm")
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
first = index(sys.argv[1])
os.chmod(f"{sys.argv[1]}/notes/closed", 0); os.chmod(f"{sys.argv[1]}/notes/b.md", 0)
print(json.dumps([first, index(sys.argv[1])]))
os.chmod(f"{sys.argv[1]}/notes/closed", 0o700)
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder of another user, outside of pytest's own, which only we may enter."""
    folder = Path(tempfile.mkdtemp(prefix="recollect-nobody-"))
    (folder / "notes" / "closed").mkdir(parents=True)
    for name in ("a.md", "b.md", "closed/c.md"):
        (folder / "notes" / name).write_text(f"Walrus {name}\n")
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, 65534, 65534)
    yield folder
    (folder / "notes" / "closed").chmod(stat.S_IRWXU)
    shutil.rmtree(folder)


@pytest.mark.ci
def test_unreadable_files_are_named_and_not_forgotten(open_folder: Path, start: Callable[..., Any]) -> None:
    """A folder and a file without permission are skipped with the reason; their chunks stay."""
    out, _ = start("-c", AS_NOBODY, open_folder).communicate(timeout=120)
    first, second = json.loads(out)
    assert len(first["report"]["added"]) == 3
    assert second["report"]["skipped"] == {f"{open_folder}/notes/closed": "permission denied"}
    assert second["report"]["removed"] == []
    assert second["texts"] == first["texts"]
    assert len(second["texts"]) == 3


@pytest.mark.ci
def test_new_file_without_permission_is_named(open_folder: Path, start: Callable[..., Any]) -> None:
    """It is skipped with its reason, and the others are indexed."""
    (open_folder / "notes" / "new.md").write_text("Walrus")
    (open_folder / "notes" / "new.md").chmod(0)
    out, _ = start("-c", AS_NOBODY, open_folder).communicate(timeout=120)
    first, _ = json.loads(out)
    assert first["report"]["skipped"] == {f"{open_folder}/notes/new.md": "permission denied"}
    assert len(first["report"]["added"]) == 3


def test_named_file_whose_name_is_not_utf8_is_a_usage_error(notes: Path, tmp_path: Path) -> None:
    """The message says so, and not that there is no file."""
    from recollect.errors import UsageError

    path = Path(os.fsdecode(os.fsencode(notes) + b"/b\xe9te.md"))
    path.write_text("Tea.\n")
    with Memory.open(tmp_path / "s.db", embedder="none", settings=Settings()) as memory:
        with pytest.raises(UsageError, match=r"b\\xe9te.md has a name that is not UTF-8; rename it first"):
            memory.index(path)
        assert list(memory.index(notes).skipped.values()) == ["a name that is not UTF-8"]


def test_one_missing_path_of_several_is_a_usage_error(notes: Path, tmp_path: Path) -> None:
    """Nothing is indexed or removed: it may be an unmounted disk."""
    from recollect.errors import UsageError

    (notes / "a.md").write_text("Tea.\n")
    with Memory.open(tmp_path / "s.db", embedder="none", settings=Settings()) as memory:
        with pytest.raises(UsageError, match="nowhere is not a folder or a file"):
            memory.index([notes, tmp_path / "nowhere"])
        assert memory.list() == []
