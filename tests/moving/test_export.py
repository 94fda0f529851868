"""Exports: the same content is the same bytes; a damaged export is refused by the number of its line."""

from __future__ import annotations

import gzip
import json
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import DOCS

from recollect import Memory, moving
from recollect.config import Settings
from recollect.errors import FailedError, Forbidden, UsageError
from recollect.moving import format as lines
from recollect.moving.format import HEAD, Sum, dumped, from_object, to_line
from recollect.types import Scope
from recollect.types.parts import FIELDS

PAGE = DOCS / "moving.md"


@pytest.fixture
def export(rich: Path, tmp_path: Path) -> Path:
    """The export of a store with every kind of content."""
    moving.export(rich, tmp_path / "export.jsonl")
    return tmp_path / "export.jsonl"


def test_import_restores_the_store(rich: Path, export: Path, new_place: Callable[[], str], tmp_path: Path) -> None:
    """With its folders, into a file or PostgreSQL, with the same export; again it adds nothing."""
    there = new_place()
    moved = moving.import_(there, export, with_folders=True)
    assert moved.added == moving.export(there, tmp_path / "again.jsonl").total
    assert (tmp_path / "again.jsonl").read_bytes() == export.read_bytes()
    assert not any(moving.import_(there, export, with_folders=True).added.values())


def test_exports_do_not_depend_on_time_and_place(rich: Path, export: Path, tmp_path: Path) -> None:
    """The same bytes, compressed too; the file is private."""
    zipped = [tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl.gz"]
    for file in zipped:
        moving.export(rich, file)
    assert zipped[0].read_bytes() == zipped[1].read_bytes()
    assert gzip.decompress(zipped[0].read_bytes()) == export.read_bytes()
    assert export.stat().st_mode & 0o077 == 0
    assert sorted(file.name for file in tmp_path.glob(".*")) == []


def test_every_line_can_be_read_and_written_again(export: Path) -> None:
    """Each line alone is JSON, and writing it again gives the same line."""
    head, *parts, end = export.read_bytes().splitlines(keepends=True)
    assert json.loads(head) == {"recollect": "export", "version": 1}
    total = Sum()
    for line in parts:
        part = from_object(json.loads(line))
        assert to_line(part) == line
        total.add(part, line)
    assert total.line() == end
    assert min(total.counts.values()) > 0


@pytest.mark.ci
def test_export_can_be_piped_into_import(rich: Path, export: Path, run: Callable[..., Any], tmp_path: Path) -> None:
    """`export | import - --with-folders`, compressed or not."""
    out = run("--store", rich, "export")
    assert (out.returncode, out.stdout) == (0, export.read_bytes())
    for name, content in (("plain.db", out.stdout), ("zipped.db", gzip.compress(out.stdout))):
        done = run("--store", tmp_path / name, "import", "-", "--with-folders", "--json", input=content)
        assert done.returncode == 0, done.stderr
        moved = json.loads(done.stdout)
        assert moved["added"] == moved["total"]
        moving.export(tmp_path / name, tmp_path / "again.jsonl")
        assert (tmp_path / "again.jsonl").read_bytes() == out.stdout


def edited(number: int, change: Callable[[dict[str, Any]], Any]) -> Callable[[list[bytes]], list[bytes]]:
    """An export in which one line's object was changed."""

    def edit(content: list[bytes]) -> list[bytes]:
        said = json.loads(content[number - 1])
        change(said)
        return [*content[: number - 1], lines.dumped(said), *content[number:]]

    return edit


DAMAGE: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "empty": (lambda content: [], "it is empty"),
    "something else": (lambda content: [b'{"text": "a fact"}\n'], "line 1: it does not begin"),
    "no JSON": (lambda content: [*content[:9], b'{"part":"record","id"\n', *content[10:]], "line 10: "),
    "a newer version": (edited(1, lambda said: said.update(version=2)), "line 1: .*exports of version 1, not 2"),
    "more in the head": (edited(1, lambda said: said.update(zipped=True)), "line 1: there is more"),
    "cut between lines": (lambda content: content[:40], "it ends after line 40, in the middle"),
    "cut in a line": (lambda content: [*content[:40], content[40][:30]], "line 41: "),
    "a line lost": (lambda content: [*content[:20], *content[21:]], "the sums in its last line differ"),
    "a word changed": (edited(12, lambda said: said.update(text="another")), "the sums in its last line differ"),
    "a line twice": (lambda content: [*content[:21], *content[20:]], "line 22: .* not in its place"),
    "another order": (lambda content: [content[0], *content[-2:0:-1], content[-1]], "line 3: .* not in its place"),
    "after the end": (lambda content: [*content, content[20]], "something follows the end"),
    "an unknown field": (edited(20, lambda said: said.update(colour="red")), "line 20: a record has no field 'colour'"),
    "an unknown part": (edited(20, lambda said: said.update(part="thing")), "line 20: there is no part 'thing'"),
    "a list": (lambda content: [*content[:19], b"[]\n", *content[20:]], "line 20: there is no part None"),
    "a field lost": (edited(20, lambda said: said.pop("created_at")), "line 20: 'created_at' is missing"),
    "a wrong type": (edited(20, lambda said: said.update(text=7)), "line 20: 'text' must be text"),
    "a wrong kind": (edited(20, lambda said: said.update(kind="x")), "line 20: 'kind' must be one of fact, chunk"),
    "a wrong number": (edited(20, lambda said: said.update(importance=2)), "line 20: 'importance' must be"),
    "a wrong time": (edited(20, lambda said: said.update(created_at="today")), "line 20: 'created_at' must be a time"),
    "half a surrogate": (
        lambda content: [*content[:19], content[19].replace(b'"text":"', b'"text":"\\ud800'), *content[20:]],
        "line 20: 'text' holds half of a surrogate pair",
    ),
    "one end of two": (edited(20, lambda said: said.update(first_line=1)), "line 20: .*go together"),
    "NaN": (
        lambda content: [*content[:19], re.sub(rb'("importance":)[^,}]*', rb"\1NaN", content[19]), *content[20:]],
        "line 20: NaN is no number",
    ),
    "deep": (lambda content: [*content[:19], b"[" * 100_000 + b"\n", *content[20:]], "line 20: "),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_export_is_refused_by_its_line(export: Path, path: Path, damage: str) -> None:
    """Before anything is stored."""
    change, message = DAMAGE[damage]
    export.write_bytes(b"".join(change(export.read_bytes().splitlines(keepends=True))))
    with pytest.raises(UsageError, match=message) as caught:
        moving.import_(path, export)
    assert caught.value.hint == "nothing was imported"
    assert not path.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda said: said.update(vector=said["vector"][:-8]), "must be float32 numbers as base64|does not fit"),
        (lambda said: said.update(vector="AADAfw=="), "must be float32 numbers"),
        (lambda said: said.update(passage="00"), "must be 16 bytes"),
        (lambda said: said.update(space="of nobody"), "does not fit into the space|not in its place"),
    ],
)
def test_damaged_vector_is_refused(export: Path, path: Path, change: Any, message: str) -> None:
    """Too short, not a number, or of no space: it would spoil every search."""
    content = export.read_bytes().splitlines(keepends=True)
    number = next(n for n, line in enumerate(content, 1) if line.startswith(b'{"part":"vector"'))
    export.write_bytes(b"".join(edited(number, change)(content)))
    with pytest.raises(UsageError, match=f"line {number:,}: .*({message})"):
        moving.import_(path, export)


def test_broken_compression_is_refused(rich: Path, tmp_path: Path, path: Path) -> None:
    """With how far it could be read."""
    file = tmp_path / "a.gz"
    moving.export(rich, file)
    whole = file.read_bytes()
    for content in (whole[:-2000], whole[:5000] + b"\0" * 100 + whole[5100:], whole[:2]):
        file.write_bytes(content)
        with pytest.raises(UsageError, match="no whole export"):
            moving.import_(path, file)
    assert not path.exists()


BOMB = """
import sys
sys.path.insert(0, sys.argv[3])
from support.vitals import peak_mb
from recollect.errors import UsageError
from recollect.moving import import_
try:
    import_(sys.argv[2], sys.argv[1])
except UsageError as error:
    print(peak_mb(), error.message)
"""


@pytest.mark.ci
@pytest.mark.parametrize("piece", [b" ", b"\n", b"[", b'{"part": "record"}\n'])
def test_compressed_bomb_is_refused_in_little_memory(tmp_path: Path, path: Path, piece: bytes) -> None:
    """Hundreds of megabytes in a small file, as one line or as many."""
    file = tmp_path / "bomb.gz"
    with gzip.open(file, "wb", compresslevel=6) as bomb:
        bomb.write(dumped(HEAD))
        for _ in range(300):
            bomb.write(piece * (1_000_000 // len(piece)))
    assert file.stat().st_size < 5_000_000
    command = [sys.executable, "-c", BOMB, file, path, Path(__file__).parents[1]]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=250)
    megabytes, message = ran.stdout.split(maxsplit=1)
    assert int(megabytes) < 300
    assert "no whole export" in message
    assert not path.exists()


def test_failed_import_leaves_the_store_unchanged(export: Path, memory: Memory, path: Path) -> None:
    """A damaged export, and one with conflicting records."""
    memory.add("a stranger")
    before = memory.list(any_scope=True)
    with pytest.raises(UsageError, match="other records"):
        memory.import_(export)
    export.write_bytes(export.read_bytes()[:-300])
    with pytest.raises(UsageError, match="line"):
        memory.import_(export, merge=True)
    assert memory.list(any_scope=True) == before


def test_library_exports_and_imports(rich: Path, export: Path, open_memory: Any, tmp_path: Path) -> None:
    """`Memory.export` and `Memory.import_`, with progress; a scoped caller may do neither."""
    told: list[tuple[int, int]] = []
    with open_memory(rich) as memory:
        assert memory.export(tmp_path / "b.jsonl", progress=lambda *how: told.append(how)).sha256
        assert told[-1][0] == told[-1][1] > 1000
        assert (tmp_path / "b.jsonl").read_bytes() == export.read_bytes()
        for attempt in (lambda one: one.export(tmp_path / "c"), lambda one: one.import_(export)):
            with pytest.raises(Forbidden):
                attempt(memory.within(Scope(user="ada")))
    with open_memory() as memory:
        assert memory.import_(export).added["record"] == 330
        assert memory.search("heron").results


def test_undo_of_an_agent_is_imported_with_its_name(open_memory: Any, tmp_path: Path) -> None:
    """The history names who undid, there too."""
    memory = open_memory()
    record = memory.add("The key is under the pot.")
    memory.edit(record.id, title="Key")
    memory.written_by("cook", origin="agent").undo(record.id)
    moving.export(memory.store, tmp_path / "export.jsonl")
    moving.import_(tmp_path / "other.db", tmp_path / "export.jsonl", trust=True)
    with Memory.open(tmp_path / "other.db", embedder=None, settings=Settings()) as other:
        last = other.history(record.id)[-1]
        assert (last.action, last.detail["author"]) == ("undo", "cook")


def test_other_files_are_not_overwritten(rich: Path, export: Path, tmp_path: Path) -> None:
    """A note, a folder, the store itself; an older export and an empty file are replaced."""
    note = tmp_path / "note.md"
    note.write_text("dear diary")
    for place in (note, rich, tmp_path):
        before = place.read_bytes() if place.is_file() else None
        with pytest.raises(UsageError, match="no export") as caught:
            moving.export(rich, place)
        assert "left untouched" in caught.value.hint
        assert before is None or place.read_bytes() == before
    whole = export.read_bytes()
    export.write_bytes(whole[:400])
    (tmp_path / "empty").touch()
    for place in (export, tmp_path / "empty"):
        moving.export(rich, place)
        assert place.read_bytes() == whole


@pytest.mark.ci
def test_scope_is_refused(rich: Path, run: Callable[..., Any]) -> None:
    """An export of one user's part must not contain everything."""
    for words in (("--user", "ada", "export"), ("export", "--agent", "x")):
        done = run("--store", rich, *words)
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"the whole store" in done.stderr


def test_unwritable_or_unreadable_place_is_reported(rich: Path, tmp_path: Path, run: Any) -> None:
    """A missing folder, a full device, a missing file: with a hint, and nothing written in part."""
    with pytest.raises(FailedError, match="cannot be written: No such file"):
        moving.export(rich, tmp_path / "nowhere" / "a.jsonl")
    with pytest.raises(FailedError, match="cannot be read: No such file"):
        moving.import_(tmp_path / "new.db", tmp_path / "missing.jsonl")
    with Path("/dev/full").open("wb") as full:
        line = [sys.executable, "-m", "recollect", "--store", str(rich), "export"]
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, b"No space left" in done.stderr) == (3, True)
    assert not (tmp_path / "new.db").exists()


@pytest.mark.ci
def test_full_disk_leaves_nothing_half_written(rich: Path, export: Path, tmp_path: Path, run: Any) -> None:
    """An export leaves the old one, and an import can be run again."""
    before, new = export.read_bytes(), tmp_path / "new.db"

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    assert len(before) > 300_000
    failed = run("--store", rich, "export", export, preexec_fn=small)
    assert failed.returncode == 3, failed
    assert b"cannot be written" in failed.stderr
    assert export.read_bytes() == before
    assert not list(tmp_path.glob(".export*"))
    failed = run("--store", new, "import", export, "--with-folders", preexec_fn=small)
    assert failed.returncode == 3, failed
    done = run("--store", new, "import", export, "--with-folders")
    assert done.returncode == 0, done.stderr
    moving.export(new, export)
    assert export.read_bytes() == before


AS_NOBODY = """
import os, shutil, sys
from recollect import moving
from recollect.errors import RecollectError
source, sealed, free = sys.argv[1:]
# Everything is loaded first: a user without rights may not read Python's own files here.
moving.copy(source, free + "/warm.db"); moving.export(free + "/warm.db", free + "/warm.jsonl.gz")
moving.import_(free + "/warm2.db", free + "/warm.jsonl.gz")
shutil.rmtree(free); os.mkdir(free)  # with the folders of their indexes
os.chmod(free, 0o777)
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
moving.copy(sealed, free + "/copy.db")
moving.export(sealed, free + "/a.jsonl")
moving.import_(free + "/import.db", free + "/a.jsonl")
folder = os.path.dirname(sealed)
for attempt in (
    lambda: moving.copy(free + "/copy.db", folder + "/new.db"),
    lambda: moving.export(sealed, folder + "/a.jsonl"),
    lambda: moving.import_(sealed, free + "/a.jsonl"),
    lambda: moving.import_(folder + "/new.db", free + "/a.jsonl"),
):
    try:
        print("did", attempt().added["record"])
    except RecollectError as error:
        print(type(error).__name__, error.message, error.hint, sep="\\t")
"""


@pytest.mark.ci
def test_permissions_are_respected(rich: Path, sealed: Callable[[Path], Path], start: Callable[..., Any]) -> None:
    """A read-only process (as root, one that has become `nobody`) can export from a store, and not import."""
    free = Path(tempfile.mkdtemp(prefix="recollect-free-"))
    try:
        place = sealed(rich)
        out = start("-c", AS_NOBODY, rich, place, free).communicate(timeout=120)[0].splitlines()
        assert [file.name for file in place.parent.iterdir()] == ["memory.db"]
        assert out[2] == "did 0", "it holds all of it already, so there is nothing to write"
        for line in (out[0], out[1], out[3]):
            name, message, hint = line.split("\t")
            assert name in ("StoreError", "FailedError")
            assert "cannot be" in message
            assert hint
    finally:
        shutil.rmtree(free)


def test_page_describes_every_field() -> None:
    """Each kind of part and each field, and the example is a valid export."""
    page = PAGE.read_text(encoding="utf-8")
    for sort, names in FIELDS.items():
        section = re.search(rf"^\| `{sort}` \|(.*)$", page, flags=re.MULTILINE)
        assert section, sort
        for name in names:
            assert f"`{name}`" in section[1], (sort, name)
    (example,) = re.findall(r"^```jsonl\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    total = Sum()
    head, *parts, end = example.encode().splitlines(keepends=True)
    assert head == lines.dumped(lines.HEAD)
    for line in parts:
        part = from_object(json.loads(line))
        assert to_line(part) == line
        total.add(part, line)
    assert end == total.line()
