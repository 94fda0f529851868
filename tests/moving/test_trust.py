"""Imports: an export may come from anybody. It brings records, and nothing that the store would act on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from support.forking import recollect_words

from recollect import Memory, moving
from recollect.config import Settings
from recollect.errors import Forbidden, RecollectError, StoreError, UsageError
from recollect.moving import format as lines
from recollect.moving.format import Sum, blob, from_object
from recollect.stores.rows import passage_hash
from recollect.types import MarkIngested, Scope

TIME = "2026-03-14T15:09:26.535897Z"
SPACE = "hashing@1:64d:unit:p=6e340b9c"


def meta(name: str, value: str) -> dict[str, Any]:
    return {"part": "meta", "name": name, "value": value}


def space(**fields: Any) -> dict[str, Any]:
    return {"part": "space", "fingerprint": SPACE, "embedder": "hashing:64", "dimension": 64, **fields}


def record(key: str = "a", **fields: Any) -> dict[str, Any]:
    said = {"id": key, "kind": "fact", "text": f"The heron {key}.", "importance": 0.5, "created_at": TIME}
    return {"part": "record", **said, **fields}


def event(seq: int = 1, key: str = "a", action: str = "add", **fields: Any) -> dict[str, Any]:
    return {"part": "history", "seq": seq, "id": key, "action": action, "at": TIME, **fields}


def vector(text: str, numbers: np.ndarray[Any, Any]) -> dict[str, Any]:
    said = {"space": SPACE, "passage": passage_hash(text).hex(), "vector": blob(numbers.astype("<f4").tobytes())}
    return {"part": "vector", **said}


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Writes an export of these lines, in the order of the format with valid checksums."""

    def write(*parts: dict[str, Any]) -> Path:
        total = Sum()
        content = [lines.dumped(lines.HEAD)]
        for part in parts:
            line = lines.dumped(part)
            total.counts[part["part"]] += 1
            total._hash.update(line)
            content.append(line)
        file = tmp_path / "written.jsonl"
        file.write_bytes(b"".join([*content, total.line()]))
        return file

    return write


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder of two notes."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "harbour.md").write_text("# Harbour\n\nThe harbour closes at nine.\n")
    (folder / "vault.md").write_text("# Vault\n\nThe vault opens with 4711.\n")
    return folder.resolve()


@pytest.fixture
def backup(notes: Path, open_memory: Callable[..., Memory], tmp_path: Path) -> Path:
    """The export of a store with an indexed folder, extracted facts, cached answers and external ids."""
    with open_memory(tmp_path / "first.db") as memory:
        memory.index(notes, user="ada")
        memory.add("The heron stands in the reeds.")
        memory.store.records.apply([[MarkIngested("f" * 32)]])
        memory.store.notes.put("hyde:x", "a kept answer")
        memory.store.joins.learn("wiki", {"7": str(notes / "vault.md")})
        memory.export(tmp_path / "backup.jsonl")
    return tmp_path / "backup.jsonl"


def test_import_brings_records_only(
    backup: Path, notes: Path, new_place: Callable[[], str], open_memory: Callable[..., Memory]
) -> None:
    """Chunks are found; no folder, known file or cache is imported, and none of their files is opened."""
    place = new_place()
    moved = moving.import_(place, backup)
    assert {sort: count for sort, count in moved.left_out.items() if count} == {
        "file": 2, "root": 1, "ingested": 1, "join": 1, "note": 1,
    }  # fmt: skip
    memory = open_memory(place)
    (found,) = memory.search("harbour closes", user="ada", limit=1, sources=["keyword"]).results
    assert (found.record.kind, found.record.path) == ("chunk", str(notes / "harbour.md"))
    assert memory.store.files.roots() == {}
    assert memory.store.files.states([str(notes / "harbour.md"), str(notes / "vault.md")]) == {}
    assert memory.store.files.ingested(["f" * 32]) == set()
    assert memory.store.notes.get("hyde:x") is None
    with pytest.raises(UsageError, match="is not indexed"):
        memory.excerpt(found.record.id)
    report = memory.reindex()
    assert (report.added, report.changed, report.removed, report.unchanged) == ([], [], [], 0)


def test_with_folders_imports_everything(backup: Path, notes: Path, new_place: Callable[[], str]) -> None:
    """Its owner gets the folders back, with their options."""
    place = new_place()
    assert not any(moving.import_(place, backup, with_folders=True).left_out.values())
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
        assert list(memory.store.files.roots()) == [str(notes)]
        assert memory.store.notes.get("hyde:x") == "a kept answer"
        assert memory.reindex().unchanged == 2


def test_omitted_parts_can_be_imported_later(backup: Path, tmp_path: Path) -> None:
    """A second import with folders adds them; records get the writers of the export, and all else is the same."""
    moving.import_(tmp_path / "new.db", backup)
    later = moving.import_(tmp_path / "new.db", backup, with_folders=True)
    assert (later.added["record"], later.added["file"], later.added["root"]) == (0, 2, 1)
    moving.export(tmp_path / "new.db", tmp_path / "again.jsonl")
    again = [json.loads(line) for line in (tmp_path / "again.jsonl").read_bytes().splitlines()[:-1]]
    named = [part for part in again if "origin" in part.get("detail", {}).get("before", {})]
    assert {part["detail"]["before"]["origin"] for part in named} == {"import"}
    assert [part for part in again if part not in named] == [
        json.loads(line) for line in backup.read_bytes().splitlines()[:-1]
    ]


def test_index_takes_over_imported_chunks(backup: Path, notes: Path, open_memory: Callable[..., Memory]) -> None:
    """Each chunk is there once, with a report; its files can be opened again."""
    memory = open_memory()
    memory.import_(backup)
    report = memory.index(notes, user="ada")
    assert len(report.changed) == 2
    chunks = memory.list(kind="chunk", user="ada")
    assert sorted(chunk.text for chunk in chunks) == ["The harbour closes at nine.", "The vault opens with 4711."]
    assert memory.excerpt(chunks[0].id).freshness == "fresh"


@pytest.mark.ci
def test_command_reports_what_it_left_out(backup: Path, tmp_path: Path, run: Callable[..., Any]) -> None:
    """The line names the flag; with the flag nothing is left out."""
    done = run("--store", tmp_path / "new.db", "import", backup)
    assert done.returncode == 0, done.stderr
    left = b"left out: 1 folder, 2 files, 1 extracted chunk, 1 external id, 1 cached model answer; --with-folders"
    assert left in done.stdout
    said = json.loads(run("--store", tmp_path / "new.db", "import", backup, "--with-folders", "--json").stdout)
    assert (sum(said["left_out"].values()), said["added"]["file"]) == (0, 2)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Path], str]]:
    """Starts a server on a store and gives its address."""
    started: list[subprocess.Popen[str]] = []
    folders = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "RECOLLECT_MODELS")
    environment = {**os.environ, **dict.fromkeys(folders, str(tmp_path)), "RECOLLECT_OFFLINE": "1", "NO_PROXY": "*"}

    def start(store: Path) -> str:
        words = recollect_words("serve", "--port", "0", "--store", store, "--embedder", "hashing:64")
        started.append(subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True))
        return next(w for line in started[-1].stderr for w in line.split() if w.startswith("http://")).rstrip("/")

    yield start
    for process in started:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def asked(url: str, body: object = None) -> tuple[int, str]:
    """The status and the text of an answer."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, data, {"Content-Type": "application/json"}), timeout=60
        ) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.ci
def test_server_opens_no_file_that_an_export_names(
    written: Callable[..., Path], tmp_path: Path, serve: Callable[[Path], str]
) -> None:
    """Neither a chunk's file nor a folder to index: an export cannot publish local files."""
    home = tmp_path / "home of the victim"
    home.mkdir()
    (home / "diary.md").write_text("# Diary\n\nMy secret is 4711.\n")
    told = json.dumps({"scope": {}, "force": True, "tags": [], "include": [], "exclude": []})
    path = str((home / "diary.md").resolve())
    export = written(
        record("a", kind="chunk", path=path, first_line=1, last_line=3),
        event(),
        {"part": "file", "path": path, "root": str(home), "mtime_ns": 1, "size": 1, "digest": "d" * 32},
        {"part": "root", "root": str(home), "told": told},
    )
    moving.import_(tmp_path / "new.db", export)
    url = serve(tmp_path / "new.db")
    status, text = asked(f"{url}/v1/file/a")
    assert (status, "not indexed" in text, "4711" in text) == (400, True, False)
    assert str(home) not in asked(f"{url}/v1/facets")[1]
    status, text = asked(f"{url}/v1/index", {"paths": [str(home)]})
    assert (status, "does not index this folder" in text) == (403, True)
    assert "4711" not in asked(f"{url}/v1/search", {"query": "my secret"})[1]


def test_vectors_that_would_affect_other_searches_are_left_out(
    written: Callable[..., Path], open_memory: Callable[..., Memory]
) -> None:
    """Of a text not in the export, or longer than unit length; the rest is imported."""
    unit = np.eye(64)[0]
    parts = sorted(
        [vector("The heron a.", unit), vector("The heron b.", unit * 1000), vector("my own diary", unit)],
        key=lambda part: part["passage"],
    )
    export = written(
        meta("space", SPACE), space(), record("a"), record("b"), event(1, "a"), event(2, "b"), *parts
    )  # fmt: skip
    memory = open_memory()
    moved = memory.import_(export)
    assert (moved.added["vector"], moved.left_out["vector"]) == (1, 2)
    own = memory.add("my own diary")
    assert not np.allclose(memory.embeddings.vectors([own.id])[own.id], unit)
    assert all(abs(result.similarity or 0) <= 1.01 for result in memory.search("heron").results)


WRONG: dict[str, tuple[tuple[dict[str, Any], ...], int, str]] = {
    "a language that is not known": ((meta("language", "klingon"),), 2, "the language 'klingon' is not known"),
    "a note of the store's own": ((meta("chunk_key", "00"),), 2, "'name' must be one of language, space"),
    "a dimension of 0": ((space(dimension=0),), 2, "'dimension' must be a whole number from 1 to 65,536"),
    "a dimension beyond reason": ((space(dimension=10**9),), 2, "'dimension' must be"),
    "a model without a name": ((space(embedder=" "),), 2, "'embedder' must not be empty"),
    "an empty id": ((record(" "),), 2, "'id' must not be empty"),
    "an empty user": ((record(user=""),), 2, "'user' must not be empty"),
    "a user that is a number": ((record(user=7),), 2, "'user' must be text"),
    "a decay that is not known": ((record(decay="never"),), 2, "'decay' must be one of permanent"),
    "a kind that is a list": ((record(kind=["fact"]),), 2, "'kind' must be one of"),
    "an importance of 2": ((record(importance=2),), 2, "'importance' must be a number between 0 and 1"),
    "a line beyond reason": ((record(first_line=1, last_line=2**60),), 2, "'last_line' must be a whole number"),
    "a time before the first year": ((record(created_at="0000-01-01T00:00:00.000000Z"),), 2, "must be a time"),
    "number 0": ((record(), event(0)), 3, "'seq' must be a whole number from 1 to 9,007,199,254,740,992"),
    "a number beyond 2^53": ((record(), event(2**53 + 1)), 3, "'seq' must be"),
    "the last number of all": ((record(), event(2**63 - 1)), 3, "'seq' must be"),
    "an action that is not known": ((record(), event(action="explode")), 3, "'action' must be one of add, update"),
    "history without a record": ((record(), event(), event(2, key="b")), 4, "there is no record 'b'"),
    "a record without history": ((record(), record("b"), event()), 3, "the record 'b' has no history"),
    "a record that supersedes itself": ((record(superseded_by="a"), event()), 2, "'a' would supersede itself"),
    "two that supersede each other": (
        (record(superseded_by="b"), record("b", superseded_by="a"), event(), event(2, "b")), 2, "supersede itself",
    ),
    "a record superseded by nobody": ((record(superseded_by="b"), event()), 2, "'b', which supersedes 'a', is not"),
    "more than an add says": ((record(), event(detail={"x": 1})), 3, "'detail' has a field 'x' that is not known"),
    "an undo of nothing": ((record(), event(), event(2, action="undo", detail={"undoes": "x"})), 4, "'undoes' must be"),
    "an undo without a detail": ((record(), event(), event(2, action="undo")), 4, "'detail' is empty, and no purge"),
    "a supersede without a successor": (
        (record(), event(action="supersede", detail={"from": TIME})), 3, "'detail' has no 'by'",
    ),
    "a restore of something else": ((record(), event(action="restore", detail={"undid": "x"})), 3, "'undid' must be"),
    "an update of the id": (
        (record(), event(action="update", detail={"before": {"id": "b"}})), 3, "field 'id' that is not known",
    ),
    "an update from tags that are none": (
        (record(), event(action="update", detail={"before": {"tags": 7}})), 3, "'tags' must be a list of text",
    ),
    "an update from a time that is none": (
        (record(), event(action="update", detail={"before": {"happened_at": "soon"}})), 3, "must be a time",
    ),
    "an update from nothing": ((record(), event(action="update", detail={"before": []})), 3, "must be an object"),
    "a path that is not absolute": (
        ({"part": "file", "path": "a.md", "root": "/n", "mtime_ns": 1, "size": 1, "digest": "d"},), 2, "absolute path",
    ),
    "a path that goes up": (
        ({"part": "file", "path": "/n/../a", "root": "/n", "mtime_ns": 1, "size": 1, "digest": "d"},), 2, "'path' must",
    ),
    "a size below 0": (
        ({"part": "file", "path": "/n/a", "root": "/n", "mtime_ns": 1, "size": -1, "digest": "d"},), 2, "'size' must",
    ),
    "a folder told by a list": (({"part": "root", "root": "/n", "told": "[]"},), 2, "how a folder is mirrored"),
    "a folder for an odd scope": (
        ({"part": "root", "root": "/n", "told": '{"scope": {"x": "y"}}'},), 2, "how a folder is mirrored",
    ),
}  # fmt: skip


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("wrong", WRONG)
def test_invalid_value_is_refused_by_its_line(
    written: Callable[..., Path], path: Path, wrong: str, everything: bool
) -> None:
    """Although the checksums are right: nothing is imported, and no store is created."""
    parts, number, message = WRONG[wrong]
    with pytest.raises(UsageError) as caught:
        moving.import_(path, written(*parts), with_folders=everything)
    assert f"line {number}: " in caught.value.message
    assert message in caught.value.message
    assert caught.value.hint == "nothing was imported"
    assert not path.exists()


def test_lines_beyond_32_bits_are_imported_and_come_back(
    written: Callable[..., Path], new_place: Callable[[], str], tmp_path: Path
) -> None:
    """An index holds line numbers in 32 bits; the record keeps its own, and is found."""
    numbers, place = {(2**31, 2**53), (-(2**40), 3)}, new_place()
    chunks = [
        record(key, kind="chunk", path="/n/log.md", first_line=first, last_line=last)
        for key, (first, last) in zip("ab", numbers, strict=True)
    ]
    moving.import_(place, written(*chunks, event(), event(2, "b")))
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
        assert memory.search("heron", by="file").results
        assert {found.record.lines for found in memory.search("heron", by="chunk").results} == numbers
    moving.export(place, tmp_path / "again.jsonl")
    parts = map(json.loads, (tmp_path / "again.jsonl").read_bytes().splitlines())
    assert {(part["first_line"], part["last_line"]) for part in parts if part.get("part") == "record"} == numbers


@pytest.mark.ci
def test_undo_of_any_imported_record_works_or_is_refused(rich: Path, tmp_path: Path) -> None:
    """Step by step to the beginning."""
    moving.export(rich, tmp_path / "rich.jsonl")
    moving.import_(tmp_path / "new.db", tmp_path / "rich.jsonl")
    done = 0
    with Memory.open(tmp_path / "new.db", embedder="hashing:64", settings=Settings()) as memory:
        objects = map(json.loads, (tmp_path / "rich.jsonl").read_bytes().splitlines())
        for key in [said["id"] for said in objects if said.get("part") == "record"]:
            for _ in range(5):
                try:
                    memory.undo(key)
                    done += 1
                except RecollectError:
                    break
    assert done > 300


@pytest.mark.ci
def test_language_of_a_store_with_records_stays(
    written: Callable[..., Path], new_place: Callable[[], str], run: Callable[..., Any]
) -> None:
    """An export in another language adds its records with a note; a new store uses its language."""
    export = written(meta("language", "english"), record(), event())
    old, new = new_place(), new_place()
    with Memory.open(old, embedder="none", settings=Settings(), language="german") as memory:
        memory.add("Die Häuser am Hafen.")
    moved = moving.import_(old, export, merge=True)
    kept = "the store keeps its language, german; what is imported was read as english"
    assert moved.notes[0] == kept
    assert kept not in moving.import_(new, written(meta("language", "german"), record(), event())).notes
    for place in (old, new):
        with Memory.open(place, embedder="none", settings=Settings()) as memory:
            assert memory.status()["language"] == "german"
    again = run("--store", old, "import", written(meta("language", "english"), record(), event()), "--merge")
    assert (again.returncode, b"keeps its language, german" in again.stderr) == (0, True)


@pytest.mark.ci
def test_store_with_an_unknown_language_says_how_to_open_it(
    open_memory: Callable[..., Memory], path: Path, run: Callable[..., Any]
) -> None:
    """Every command gives the reason and a solution that works."""
    open_memory().add("The heron stands in the reeds.")
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE meta SET value = 'klingon' WHERE key = 'language'")
    connection.close()
    for words in (("search", "heron"), ("add", "x"), ("export", "-")):
        done = (
            run("--store", path, "--embedder", "none", *words) if words[0] != "export" else run("--store", path, *words)
        )
        assert done.returncode in (2, 3)
        assert b"klingon" in done.stderr
        assert b"RECOLLECT_LANGUAGE=english" in done.stderr
        assert b"Traceback" not in done.stderr
    with Memory.open(path, embedder="none", settings=Settings(language="english")) as memory:
        assert memory.search("heron").results


def test_exhausted_numbers_are_not_a_full_disk(path: Path, open_memory: Callable[..., Memory]) -> None:
    """The store reports it, and a copy with --merge works."""
    with open_memory() as memory:
        memory.add("The heron stands in the reeds.")
    connection = apsw.Connection(str(path))
    connection.execute(
        "UPDATE history SET seq = 9223372036854775807;"
        " UPDATE sqlite_sequence SET seq = 9223372036854775807 WHERE name = 'history'"
    )
    connection.close()
    with open_memory() as memory, pytest.raises(StoreError) as caught:
        memory.add("one more")
    assert "disk" not in caught.value.message
    assert "recollect copy --merge" in caught.value.hint
    with open_memory(path.with_name("next.db")) as memory:
        memory.add("the first of the next store")
    moving.copy(path, path.with_name("next.db"), merge=True)
    with open_memory(path.with_name("next.db")) as memory:
        memory.add("one more")
        assert memory.search("heron").results


def test_internal_metadata_is_not_exported(
    open_memory: Callable[..., Memory], new_place: Callable[[], str], tmp_path: Path
) -> None:
    """Only language and vector space; a secret key stays in its store."""
    place = new_place()
    with open_memory(place) as memory:
        memory.add("The heron stands in the reeds.")
        if "://" in place:
            memory.store._database.write(
                lambda connection: connection.execute("INSERT INTO meta VALUES ('key', 'hush')")
            )
        else:
            with memory.store._database.write() as connection:
                connection.execute("INSERT INTO meta VALUES ('key', 'hush')")
        memory.export(tmp_path / "a.jsonl")
    moving.copy(place, tmp_path / "copy.db")
    assert "hush" not in (tmp_path / "a.jsonl").read_text()
    connection = apsw.Connection(str(tmp_path / "copy.db"))
    assert connection.execute("SELECT count(*) FROM meta WHERE value = 'hush'").get == 0
    connection.close()


def test_every_line_of_a_real_export_is_accepted(rich: Path, tmp_path: Path) -> None:
    """What a store itself exports is never refused."""
    moving.export(rich, tmp_path / "rich.jsonl")
    read = [from_object(json.loads(line)) for line in (tmp_path / "rich.jsonl").read_bytes().splitlines()[1:-1]]
    assert {part.kind for part in read} == set(Sum().counts)
    assert {part.values[2] for part in read if part.kind == "history"} >= {"add", "update", "supersede", "undo"}


def test_import_decides_no_origin(tmp_path: Path, written: Callable[..., Path]) -> None:
    """What an export says about writers is believed only if it is trusted; undo does not bring it back, either."""
    changed = event(2, action="update", detail={"before": {"text": "The crane a.", "origin": "user", "author": "me"}})
    export = written(record("a", origin="agent", author="scribe"), record("b"), event(), changed, event(3, "b"))
    with Memory.open(tmp_path / "other.db", embedder="none", settings=Settings()) as memory:
        moved = memory.import_(export)
        assert any("the origin `import`, which recall and agents leave out: 2;" in note for note in moved.notes)
        records = memory.list()
        assert {stored.origin for stored in records} == {"import"}
        assert {stored.author for stored in records} == {"scribe", None}
        (session,) = {stored.author_session for stored in records}
        assert session
        assert memory.recall("heron").citations == ()
        memory.undo("a")
        assert (memory.require("a").text, memory.require("a").origin) == ("The crane a.", "import")
        memory.edit("b", origin="user")
        again = memory.import_(export, merge=True)
        assert (again.added["record"], memory.require("b").origin) == (0, "user")
        assert len(memory.roll_back(author_session=session or "").forgotten) == 2
    with Memory.open(tmp_path / "own.db", embedder="none", settings=Settings()) as memory:
        memory.import_(export, with_folders=True)
        assert {stored.id: (stored.origin, stored.author) for stored in memory.list()} == {
            "a": ("agent", "scribe"),
            "b": ("user", None),
        }
        memory.export(tmp_path / "again.jsonl")
    assert set((tmp_path / "again.jsonl").read_bytes().splitlines()) >= set(export.read_bytes().splitlines()[:-1])


WRITERS = {"mine": "user", "note": "file", "its": "agent", "tool": "tool", "page": "web", "theirs": "import"}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """An export of a store with a fact of every origin."""
    with Memory.open(tmp_path / "old.db", embedder="none", settings=Settings()) as memory:
        for key, origin in WRITERS.items():
            memory.add(f"The heron of {key}.", id=key, origin=origin, author=f"author of {key}", author_session="s")
        memory.export(tmp_path / "own.jsonl")
    return tmp_path / "own.jsonl"


def origins(memory: Memory) -> dict[str, str]:
    """The origin of each record."""
    return {record.id: record.origin for record in memory.list()}


def test_import_believes_who_claims_less_trust(own: Path, new_place: Callable[[], str]) -> None:
    """Text of tools and pages stays that; only what would be trusted becomes `import`, and the note counts it."""
    with Memory.open(new_place(), embedder="none", settings=Settings()) as memory:
        moved = memory.import_(own)
        assert [note for note in moved.notes if "leave out: 3;" in note and "--trust" in note]
        assert origins(memory) == WRITERS | dict.fromkeys(("mine", "note", "its"), "import")
        again = memory.import_(own)
        assert (again.added["record"], again.different, again.notes) == (0, (), ())


def test_import_of_an_own_export_keeps_every_writer(own: Path, new_place: Callable[[], str]) -> None:
    """With `trust` recall finds what it found before the move, and folders are still left out."""
    with Memory.open(new_place(), embedder="none", settings=Settings()) as memory:
        assert memory.import_(own, trust=True).notes == ()
        assert origins(memory) == WRITERS
        assert {record.author_session for record in memory.list()} == {"s"}
        assert {cited.id for cited in memory.recall("heron", min_confidence=0).citations} == {"mine", "note", "its"}


def test_import_can_be_trusted_later(own: Path, new_place: Callable[[], str]) -> None:
    """The same import with `trust` names the writers of records that are as the export has them; undo takes it back."""
    with Memory.open(new_place(), embedder="none", settings=Settings()) as memory:
        memory.import_(own)
        memory.edit("its", text="The stork of its.")
        moved = memory.import_(own, trust=True, merge=True)
        named = "records of an earlier import that now have the writers that the export names"
        assert moved.notes == (f"{named}: {len(WRITERS) - 1}",)
        assert origins(memory) == WRITERS | {"its": "import"}
        assert {record.author_session for record in memory.list() if record.id != "its"} == {"s"}
        assert memory.undo("mine")[1].origin == "import"


def test_no_scoped_caller_imports_anything(own: Path, open_memory: Callable[..., Memory]) -> None:
    """Trusted or not: only the owner of the store can say whose export it is."""
    memory = open_memory()
    for trust in (False, True):
        with pytest.raises(Forbidden):
            memory.within(Scope(user="ada")).import_(own, trust=trust)
    assert memory.list() == []


def test_command_imports_an_own_export(own: Path, tmp_path: Path, run: Callable[..., Any]) -> None:
    """The first try says what to do, the same command with --trust does it, and recall finds the user's fact."""
    command = ("--store", tmp_path / "new.db", "--embedder", "none")
    first = run("--store", tmp_path / "new.db", "import", own)
    assert (first.returncode, b"give the same command with --trust" in first.stderr) == (0, True)
    assert b"mine" not in run(*command, "recall", "the heron of mine").stdout
    assert run("--store", tmp_path / "new.db", "import", own, "--trust").returncode == 0
    assert b"mine" in run(*command, "recall", "the heron of mine").stdout
