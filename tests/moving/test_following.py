"""A copy that is run again: the target becomes what the source is now, and changes of its own are never overwritten."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from moving.test_copy import COPY, exported, nothing

from recollect import Memory, moving
from recollect.config import Settings
from recollect.errors import Overtaken, RecollectError, UsageError
from recollect.types import EVERYTHING, FileState, MarkIngested, SetFileState, SetFolderOptions
from recollect.types.parts import Part

Name = Callable[[], str]

TEXTS = ("the heron in the reeds", "a lighthouse by the sea", "tide tables", "der Seehund schläft", "a\0b \x10 c", "")
"""Few, so that records share texts, and with them vectors."""

SCOPES = ({}, {"user": "ada"}, {"user": "ada", "session": "s"}, {"user": "bob"}, {"agent": "a\x10"})
IDS = [f"r{number}" for number in range(9)]


def opened(place: object, embedder: str = "hashing:16") -> contextlib.AbstractContextManager[Memory]:
    return Memory.open(str(place), embedder=embedder, settings=Settings())


class Life:
    """Random changes to a store, of every kind that there is."""

    def __init__(self, place: str, seed: int) -> None:
        self.place, self.chance = place, random.Random(seed)
        self.kinds = [
            self.add, self.add, self.edit, self.edit, self.supersede, self.forget, self.purge, self.undo, self.undo,
            self.file, self.folder, self.ingested, self.note, self.join, self.embed, self.move, self.abandon,
            self.language,
        ]  # fmt: skip

    def go_on(self, changes: int) -> None:
        """Make some changes; one that is refused changes nothing."""
        embedder = self.chance.choice(("hashing:16", "hashing:16", "none"))  # without one, records have no vectors
        with opened(self.place, embedder) as memory:
            for _ in range(changes):
                with contextlib.suppress(RecollectError):
                    self.chance.choice(self.kinds)(memory)

    def text(self) -> str:
        text = self.chance.choice(TEXTS)
        return text or f"heron {self.chance.random()}"

    def add(self, memory: Memory) -> None:
        tags = self.chance.sample(("a", "b", "c\0"), self.chance.randrange(3))
        memory.add(self.text(), id=self.chance.choice(IDS), scope=self.chance.choice(SCOPES), tags=tags)

    def edit(self, memory: Memory) -> None:
        fields = self.chance.choice(({"text": self.text()}, {"tags": ["x"]}, {"title": self.text(), "category": "k"}))
        memory.edit(self.chance.choice(IDS), **fields)

    def supersede(self, memory: Memory) -> None:
        new = self.chance.choice(({"text": self.text()}, {"by": self.chance.choice(IDS)}))
        memory.supersede(self.chance.choice(IDS), **new)

    def forget(self, memory: Memory) -> None:
        memory.forget(self.chance.choice(IDS))

    def purge(self, memory: Memory) -> None:
        memory.forget(self.chance.choice(IDS), purge=True)

    def undo(self, memory: Memory) -> None:
        memory.undo(self.chance.choice(IDS))

    def file(self, memory: Memory) -> None:
        path = f"/n/{self.chance.randrange(4)}\0.md"
        state = FileState(path, "/n", self.chance.randrange(2**60), self.chance.randrange(99), "d" * 32)
        memory.store.records.apply([[SetFileState(path, self.chance.choice((state, state, None)))]])

    def folder(self, memory: Memory) -> None:
        options = self.chance.choice(({"tags": ["ä"]}, {"tags": []}, None))
        memory.store.records.apply([[SetFolderOptions(f"/n/{self.chance.randrange(3)}", options)]])

    def ingested(self, memory: Memory) -> None:
        memory.store.records.apply([[MarkIngested(f"{self.chance.randrange(4)}" * 32)]])

    def note(self, memory: Memory) -> None:
        memory.store.notes.put(f"k{self.chance.randrange(4)}\0", str(self.chance.random()))

    def join(self, memory: Memory) -> None:
        memory.store.joins.learn("s", {f"i{self.chance.randrange(3)}": str(self.chance.randrange(9))})

    def embed(self, memory: Memory) -> None:
        if memory.embeddings.name != "none":
            memory.embed()

    def move(self, memory: Memory) -> None:
        with opened(self.place, f"hashing:{self.chance.choice((8, 16))}") as other:
            other.embed()

    def abandon(self, memory: Memory) -> None:
        active = memory.store.spaces.active
        for space in memory.store.spaces.stored():
            if space != active:
                memory.store.spaces.clear(space)

    def language(self, memory: Memory) -> None:
        memory.change_language(self.chance.choice(("english", "german")))


def answers(place: object) -> list[Any]:
    """What is found in a store, by words and by vectors."""
    found = []
    with opened(place, "hashing:16") as memory:
        for scope in SCOPES:
            found += [memory.list(scope=scope, tags=["x"]), memory.facets(scope=scope), memory.store.count(EVERYTHING)]
            for text in ("heron", "lighthouse tide", "Seehund"):
                for source in ("keyword", "vector"):
                    with contextlib.suppress(RecollectError):
                        results = memory.search(text, sources=[source], scope=scope, limit=20).results
                        found.append([(result.record, round(result.shares[source].score, 5)) for result in results])
    return found


def follow_random_histories(seeds: range, new_source: Name, new_target: Name, tmp_path: Path) -> None:
    """After each copy the target is what the source is, and in the end it answers like a fresh copy."""
    for seed in seeds:
        old, new, fresh = new_source(), new_target(), new_target()
        life = Life(old, seed)
        for _ in range(4):
            life.go_on(life.chance.choice((1, 5, 12)))
            if life.chance.random() < 0.3:  # then there is an index that must follow, too
                with opened(new, "none") as memory:
                    memory.search("heron")
            plan = moving.copy(old, new, dry_run=True)
            moved = moving.copy(old, new)
            for kind in ("record", "history"):
                planned, done = ((each.added[kind], each.changed.get(kind, 0)) for each in (plan, moved))
                assert planned == done, (seed, kind)
            assert exported(new, tmp_path) == exported(old, tmp_path), seed
            again = moving.copy(old, new, verify=True)
            assert nothing(again) or not again.total["history"], seed
        moving.copy(old, fresh)
        assert answers(new) == answers(fresh), seed


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(12), id="short"),
        pytest.param(range(12, 312), id="long", marks=[pytest.mark.torture, pytest.mark.timeout(1800)]),
    ],
)
def test_random_changes_in_a_file_are_followed(seeds: range, new_file: Name, tmp_path: Path) -> None:
    """Of every kind, in any order; every export is the same, byte for byte."""
    follow_random_histories(seeds, new_file, new_file, tmp_path)


@pytest.mark.ci
@pytest.mark.parametrize("way", ["to", "from", "within"])
def test_random_changes_are_followed_in_postgresql(way: str, new_file: Name, new_schema: Name, tmp_path: Path) -> None:
    """The same between a file and a server, and between two schemas of it."""
    old, new = {"to": (new_file, new_schema), "from": (new_schema, new_file), "within": (new_schema, new_schema)}[way]
    follow_random_histories(range(400, 410), old, new, tmp_path)


@pytest.mark.ci
def test_random_changes_are_followed_in_lancedb(new_file: Name, tmp_path: Path) -> None:
    """From and to a folder of LanceDB."""
    pytest.importorskip("lancedb")

    def new_folder() -> str:
        return f"lancedb://{new_file()}"

    follow_random_histories(range(500, 504), new_file, new_folder, tmp_path)
    follow_random_histories(range(504, 506), new_folder, new_file, tmp_path)


def changed(place: object) -> None:
    """Edit, supersede, forget, restore and purge records of the rich store, and add one."""
    with opened(place, "hashing:64") as memory:
        ids = sorted(part.values[0] for part in _records(memory) if part.values[15] is part.values[17] is None)
        for number, key in enumerate(ids[:60]):
            match number % 4:
                case 0:
                    memory.edit(key, text=f"a cormorant, number {number}")
                case 1:
                    memory.supersede(key, text=f"a cormorant instead of {number}")
                case 2:
                    memory.forget(key)
                case 3:
                    memory.forget(key, purge=True)
        memory.undo(ids[2])
        memory.add("a cormorant on the pier", id="pier")


def _records(memory: Memory) -> list[Part]:
    with memory.store.contents.snapshot() as snapshot:
        return [part for part in snapshot.parts() if part.kind == "record"]


@pytest.mark.ci
def test_killed_copy_that_follows_continues(rich: Path, new_place: Name, tmp_path: Path) -> None:
    """Killed at random moments, while records change between the runs."""
    there = new_place()
    moving.copy(rich, there)
    for _ in range(3):
        changed(rich)
        command = [sys.executable, "-c", COPY, str(rich), there, "20"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert "copying\n" in iter(process.stdout.readline, "")
            time.sleep(random.random() / 5)
            process.kill()
        assert process.returncode in (0, -signal.SIGKILL)
    moving.copy(rich, there, verify=True)
    assert exported(there, tmp_path) == exported(rich, tmp_path)
    fresh = new_place()
    moving.copy(rich, fresh)
    assert answers(there) == answers(fresh)


def test_every_batch_may_be_the_last(rich: Path, new_place: Name, tmp_path: Path, monkeypatch: Any) -> None:
    """Interrupted after each batch in turn, it goes on with the next one."""
    there, runs = new_place(), 0
    moving.copy(rich, there)
    changed(rich)
    monkeypatch.setattr(moving.transfer, "BATCH_PARTS", 40)
    monkeypatch.setattr(moving.following, "CHUNK", 20)

    def stops(step: str) -> Callable[[int, int], None] | None:
        def stop(*_: int) -> None:
            raise KeyboardInterrupt

        return stop if step == "copying" else None

    while True:
        try:
            moving.copy(rich, there, steps=stops)
        except KeyboardInterrupt:
            runs += 1
        else:
            break
    assert runs > 3
    assert exported(there, tmp_path) == exported(rich, tmp_path)


def test_change_of_the_target_is_named_and_stays(rich: Path, new_place: Name, tmp_path: Path) -> None:
    """Also where the source has changed, too; only what the target has changed itself is named."""
    there = new_place()
    moving.copy(rich, there)
    changed(rich)
    with opened(there, "hashing:64") as memory:
        memory.edit("~10", text="another word for it")
    before = exported(there, tmp_path)
    with pytest.raises(UsageError, match=r"holds other records: 1 that differ \('~10'\)"):
        moving.copy(rich, there)
    with opened(there, "hashing:64") as memory:
        memory.add("a record of its own")
    before = exported(there, tmp_path)
    with pytest.raises(UsageError, match="1 that the source does not have and 1 that differ"):
        moving.copy(rich, there)
    assert exported(there, tmp_path) == before


def test_change_of_the_target_during_a_copy_is_not_overwritten(
    rich: Path, new_place: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next batch notices it, and so does the next run."""
    there = new_place()
    moving.copy(rich, there)
    changed(rich)
    monkeypatch.setattr(moving.transfer, "BATCH_PARTS", 40)
    monkeypatch.setattr(moving.following, "CHUNK", 20)
    with opened(there, "hashing:64") as memory, opened(rich, "none") as source:
        waiting = [part.values[0] for part in _records(source) if "cormorant, number" in part.values[2]][-1]

        def edits(step: str) -> Callable[[int, int], None] | None:
            if step != "copying":
                return None
            return lambda *_: memory.edit(waiting, text="what somebody else has written") and None

        with pytest.raises(Overtaken, match="another process"):
            moving.copy(rich, there, steps=edits)
        assert memory.get(waiting).text == "what somebody else has written"
        with pytest.raises(UsageError, match="that differ"):
            moving.copy(rich, there)


def test_purge_is_followed(new_place: Name, new_file: Name, tmp_path: Path) -> None:
    """Nothing of the text stays: not in the record, its history, its vectors, or the bytes of a file."""
    old, there = new_file(), new_place()
    with opened(old) as memory:
        memory.add("the secret of the lighthouse", id="secret", tags=["hush"], title="whisper")
        memory.edit("secret", text="the mystery of the lighthouse")
        memory.add("the tide", id="tide")
    moving.copy(old, there)
    with opened(there) as memory:
        assert memory.search("whisper").results
    with opened(old) as memory:
        memory.forget("secret", purge=True)
    moved = moving.copy(old, there)
    assert (moved.changed["record"], moved.added["history"]) == (1, 1)
    content = exported(there, tmp_path)
    assert content == exported(old, tmp_path)
    parts = (
        [] if "://" in there else [part for part in Path(there).parent.rglob(f"{Path(there).name}*") if part.is_file()]
    )
    for word in (b"lighthouse", b"hush", b"whisper", b"mystery"):
        assert word not in content
        assert [part for part in parts if word in part.read_bytes()] == []
    with opened(there) as memory:
        assert [result.record.id for result in memory.search("whisper lighthouse tide").results] == ["tide"]


def test_id_of_a_purged_record_moves_to_another_scope(new_place: Name, new_file: Name, tmp_path: Path) -> None:
    """The new owner finds it, the former one does not."""
    old, there = new_file(), new_place()
    with opened(old) as memory:
        memory.add("the heron", id="one", user="ada")
        memory.add("the tide", id="two", user="ada")
    moving.copy(old, there)
    with opened(old) as memory:
        memory.forget("one", purge=True)
        memory.add("the bittern", id="one", user="bob")
    moving.copy(old, there)
    assert exported(there, tmp_path) == exported(old, tmp_path)
    with opened(there) as memory:
        assert [result.record.id for result in memory.search("bittern", user="bob").results] == ["one"]
        assert [result.record.id for result in memory.search("heron bittern tide", user="ada").results] == ["two"]
        memory.edit("one", text="the bittern booms")
        assert [result.record.id for result in memory.search("booms", user="bob").results] == ["one"]


def test_files_that_were_indexed_again_are_followed(new_place: Name, new_file: Name, tmp_path: Path) -> None:
    """A changed file, a new one, and one that was deleted."""
    old, there, folder = new_file(), new_place(), tmp_path / "notes"
    folder.mkdir()
    for name in ("heron", "reed", "tide"):
        (folder / f"{name}.md").write_text(f"# {name}\n\nAbout the {name}.\n")
    with opened(old) as memory:
        memory.index(folder)
        moving.copy(old, there)
        (folder / "heron.md").write_text("# heron\n\nIt stands in the reeds.\n")
        (folder / "bittern.md").write_text("# bittern\n\nIt booms.\n")
        (folder / "tide.md").unlink()
        memory.index(folder, confirm=True)
    moving.copy(old, there)
    assert exported(there, tmp_path) == exported(old, tmp_path)
    with opened(there) as memory:
        assert memory.search("booms").results[0].record.path == str(folder / "bittern.md")
        assert memory.reindex().unchanged == 3


def test_model_of_the_target_stays_in_use(rich: Path, new_place: Name) -> None:
    """Vectors that it has computed with a model that the source does not have are not lost."""
    there = new_place()
    moving.copy(rich, there)
    with opened(there, "hashing:48") as memory:
        computed = memory.embed()
    changed(rich)
    moved = moving.copy(rich, there)
    assert (moved.changed["meta"], moved.removed["vector"]) == (0, 0)
    with opened(there, "hashing:48") as memory:
        assert memory.store.spaces.active.dimension == 48
        assert computed - 60 < memory.store.spaces.count(memory.store.spaces.active) < computed


def test_event_that_was_committed_late_is_followed(new_schema: Name, new_place: Name, tmp_path: Path) -> None:
    """PostgreSQL gives numbers before transactions commit, so an event may appear below others."""
    import psycopg

    old, there = new_schema(), new_place()
    with opened(old) as memory:
        memory.add("the heron", id="one")
        schema = old.rpartition("=")[2]
        with psycopg.connect(old.rpartition("&schema=")[0], autocommit=True) as connection:
            numbers = f"pg_get_serial_sequence('{schema}.history', 'seq')"
            (number,) = connection.execute(f"SELECT nextval({numbers})").fetchone()
            memory.add("the tide", id="two")
            moving.copy(old, there)
            memory.edit("one", text="the bittern")
            connection.execute(
                f"WITH event AS (DELETE FROM {schema}.history WHERE action = 'update' RETURNING *)"
                f" INSERT INTO {schema}.history OVERRIDING SYSTEM VALUE"
                f" SELECT {number}, row, scope, id, action, at, detail FROM event"
            )
    assert moving.copy(old, there).changed["record"] == 1
    assert exported(there, tmp_path) == exported(old, tmp_path)
    with opened(there) as memory:
        assert memory.search("bittern", sources=["keyword"]).results[0].record.id == "one"


def test_store_that_was_restored_and_went_another_way_is_refused(new_file: Name, tmp_path: Path) -> None:
    """Its events have the numbers of others that the target has."""
    old, there = new_file(), new_file()
    with opened(old) as memory:
        memory.add("the heron", id="one")
        memory.backup(tmp_path / "backup.zip")
        memory.add("the tide", id="two")
    moving.copy(old, there)
    restored = new_file()
    moving.backups.restore(tmp_path / "backup.zip", restored)
    with opened(restored) as memory:
        memory.edit("one", text="the bittern")
    with pytest.raises(UsageError, match="1 that the source does not have"):
        moving.copy(restored, there)


def test_copy_command_says_what_it_changed(rich: Path, new_file: Name, run: Callable[..., Any]) -> None:
    """In words and as JSON; --verify reads everything back."""
    there = new_file()
    moving.copy(rich, there)
    changed(rich)
    dry = run("copy", rich, there, "--dry-run")
    assert (dry.returncode, b"would be brought up to date: 59 records" in dry.stdout) == (0, True), dry.stdout
    done = run("copy", rich, there)
    assert (done.returncode, b"brought up to date: 59 records" in done.stdout) == (0, True), done.stdout
    assert b"sha256" not in done.stdout
    again = run("copy", rich, there, "--verify")
    assert again.stdout.startswith(b"copied nothing\nalready there: ")
    assert b"sha256 " in again.stdout


def test_vectors_that_were_deleted_are_followed(new_place: Name, new_file: Name, tmp_path: Path) -> None:
    """Also for a reader that is open: it finds no record by a vector that is gone."""
    old, there = new_file(), new_place()
    with opened(old) as memory:
        memory.add_many({"text": text, "id": str(number)} for number, text in enumerate(TEXTS[:4]))
        space = memory.store.spaces.active
    with opened(old, "hashing:8") as memory:
        memory.embed()
    moving.copy(old, there)
    with opened(there, "hashing:8") as reader, opened(old, "hashing:8") as memory:
        reader.store.spaces.activate(space)
        other = reader.store.spaces.open(space)
        assert other.coverage() == (4, 0)
        memory.store.spaces.clear(space)
        memory.store.spaces.activate(space)
        moved = moving.copy(old, there)
        assert (moved.removed["vector"], moved.changed["meta"]) == (4, 0)
        assert (other.coverage(), other.known(TEXTS[:4])) == ((0, 4), set())
        assert sorted(other.missing(9)) == sorted(TEXTS[:4])
    assert exported(there, tmp_path) == exported(old, tmp_path)


def test_backup_is_restored_to_a_store_that_was_opened_before(rich: Path, new_schema: Name, tmp_path: Path) -> None:
    """It has a model and a cached answer, and no records. All of it is one transaction."""
    there = new_schema()
    with opened(there, "hashing:64") as memory:
        memory.search("heron")
        memory.store.notes.put("k", "its own")
    with opened(rich, "none") as memory:
        memory.backup(tmp_path / "backup.zip")
    moving.backups.restore(tmp_path / "backup.zip", there)
    assert exported(there, tmp_path) == exported(rich, tmp_path)


def test_index_of_an_interrupted_copy_is_built_by_the_next_one(rich: Path, new_schema: Name) -> None:
    """All was copied when it ended, and the approximate indexes were not built yet."""
    import psycopg

    there = new_schema()

    def ends(step: str) -> None:
        if step == "indexing":
            raise KeyboardInterrupt

    def indexes() -> int:
        with psycopg.connect(there.rpartition("&schema=")[0]) as connection:
            found = "SELECT count(*) FROM pg_indexes WHERE schemaname = %s AND indexname LIKE %s"
            return int(connection.execute(found, (there.rpartition("=")[2], "vectors_%_near")).fetchone()[0])

    with pytest.raises(KeyboardInterrupt):
        moving.copy(rich, there, steps=ends)
    assert indexes() == 0
    assert nothing(moving.copy(rich, there))
    assert indexes() == 2
