"""Operations on a whole store that are killed before their end: what must hold then, and what when they ran again.

Each works on a copy of a store that is made once. `words` are those of the command that is killed and run again.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import apsw
from support.notes import grow, stir

from recollect import Memory, moving
from recollect.analysis import Analyzer
from recollect.config import Settings
from recollect.stores.sqlite.segments import map_segment

OLD, NEW = "hashing:64", "hashing:96"
RECORDS = 800


def opened(path: Path, embedder: str = OLD) -> Memory:
    return Memory.open(path, embedder=embedder, settings=Settings())


def rows(path: Path, sql: str) -> list[Any]:
    """Rows of a store whose file passes the integrity check."""
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        assert connection.execute("PRAGMA integrity_check").get == "ok"
        return list(connection.execute(sql))


def fill(path: Path, count: int = RECORDS) -> None:
    """A store with records, vectors, edits, supersessions and an index; each text has a word of its own."""
    with opened(path) as memory:
        memory.add_many({"id": f"r{n}", "text": f"mark{n}mark of the garden {n % 7}"} for n in range(count))
        for n in range(0, count, 40):
            memory.edit(f"r{n}", text=f"mark{n}mark of the orchard")
            memory.supersede(f"r{n + 1}", by=f"r{n + 2}")
        memory.search("garden")


class Operation(ABC):
    """One kind of work on the store `work.db` in a folder."""

    words: tuple[object, ...]

    def __init__(self, folder: Path) -> None:
        self.folder, self.work = folder, folder / "work.db"
        self.base = folder / "base.db"
        self.prepare()

    def prepare(self) -> None:
        """Make the store that every round begins with."""
        fill(self.base)

    def begin(self) -> None:
        """Put the store of a new round in place."""
        for path in self.folder.glob("work.db*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in self.folder.glob("base.db*"):
            (shutil.copytree if path.is_dir() else shutil.copy)(path, self.folder / f"work{path.name[4:]}")

    def expect(self) -> None:
        """Note the result of the run that was not interrupted."""
        self.expected = self.result()

    @abstractmethod
    def result(self) -> Any:
        """What a complete run leads to."""

    @abstractmethod
    def check_killed(self) -> None:
        """The store is whole after the command was killed, and nothing that was acknowledged before is lost."""

    def check_ended(self) -> None:
        """The command was run again: the result is that of an uninterrupted one."""
        assert self.result() == self.expected


class Index(Operation):
    """`recollect index` of a folder in which much has changed."""

    def prepare(self) -> None:
        chance, notes = random.Random(1), self.folder / "notes"
        notes.mkdir()
        grow(notes, chance, 50)
        with opened(self.base) as memory:
            memory.index(notes)
            memory.add("A fact beside the files.", id="fact")
        self.before = self.chunks(self.base)
        stir(notes, chance)
        self.words = ("index", notes, "--store", self.work, "--embedder", OLD)

    @staticmethod
    def chunks(path: Path) -> set[Any]:
        columns = "id = 'fact', path, title, text, first_line"
        return set(rows(path, f"SELECT {columns} FROM records WHERE forgotten_at IS NULL"))

    def result(self) -> Any:
        with opened(self.work) as memory:
            missing = memory.status()["vectors"]["without"]
        return self.chunks(self.work), rows(self.work, "SELECT path, size, digest FROM files ORDER BY path"), missing

    def check_killed(self) -> None:
        now = self.chunks(self.work)
        assert self.before & self.expected[0] <= now <= self.before | self.expected[0]


class Copy(Operation):
    """`recollect copy` into a new store."""

    def prepare(self) -> None:
        super().prepare()
        self.base = self.base.rename(self.folder / "source.db")
        self.words = ("copy", self.base, self.work)
        self.records = set(rows(self.base, "SELECT id, text, superseded_by FROM records"))

    def result(self) -> Any:
        moving.export(self.work, self.folder / "export")
        return (self.folder / "export").read_bytes()

    def expect(self) -> None:
        super().expect()
        moving.export(self.base, self.folder / "export")
        assert self.expected == (self.folder / "export").read_bytes()

    def check_killed(self) -> None:
        if self.work.exists():
            assert set(rows(self.work, "SELECT id, text, superseded_by FROM records")) <= self.records


class Import(Copy):
    """`recollect import` of an export into a new store."""

    def prepare(self) -> None:
        super().prepare()
        moving.export(self.base, self.folder / "source.jsonl")
        self.words = ("import", self.folder / "source.jsonl", "--with-folders", "--store", self.work)


class Rescope(Index):
    """`recollect index` of a folder that everybody sees, for one user."""

    def prepare(self) -> None:
        super().prepare()
        self.words = (*self.words, "--user", "ada")

    @staticmethod
    def chunks(path: Path) -> set[Any]:
        columns = "id = 'fact', path, title, text, first_line, user"
        return set(rows(path, f"SELECT {columns} FROM records WHERE forgotten_at IS NULL"))

    def expect(self) -> None:
        super().expect()
        assert {user for fact, *_, user in self.expected[0] if not fact} == {"ada"}


class RollBack(Operation):
    """`recollect forget --author` of a writer who superseded and added many facts."""

    def prepare(self) -> None:
        super().prepare()
        self.before = self.live()
        with opened(self.base) as memory:
            for n in range(3, RECORDS, 20):
                memory.add(f"poison {n}", supersedes=f"r{n}", origin="agent", author="helper")
            memory.add_many({"text": f"venom {n}", "origin": "agent", "author": "helper"} for n in range(200))
        self.poisoned = self.live()
        self.words = ("forget", "--author", "helper", "--since", "1d", "--confirm", "--store", self.work)

    def live(self) -> set[Any]:
        path = self.work if self.work.exists() else self.base
        return set(rows(path, "SELECT id, text, superseded_by FROM records WHERE forgotten_at IS NULL"))

    def result(self) -> Any:
        return self.live()

    def expect(self) -> None:
        super().expect()
        assert self.expected == self.before != self.poisoned

    def check_killed(self) -> None:
        assert self.live() in (self.before, self.poisoned), "all of it or nothing"


class Purge(Operation):
    """`recollect forget --purge` of several records."""

    def prepare(self) -> None:
        super().prepare()
        numbers = range(0, RECORDS, 60)
        self.ids = {f"r{n}" for n in numbers}
        self.marks = [f"mark{n}mark".encode() for n in numbers]
        texts = dict(rows(self.base, "SELECT id, text FROM records"))
        self.terms = self.hashes(texts, self.ids) - self.hashes(texts, texts.keys() - self.ids)
        columns = "SELECT id, vector FROM records JOIN embeddings USING (passage)"
        self.vectors = [vector for key, vector in rows(self.base, columns) if key in self.ids]
        assert len(self.vectors) == len(self.ids)
        index = [map_segment(path, path.stat().st_size) for path in self.folder.glob("base.db-index/*.segment")]
        assert self.terms & {int(term) for segment in index for term in segment.terms}, "the index has their words"
        self.words = ("forget", *sorted(self.ids), "--purge", "--store", self.work, "--embedder", OLD)

    @staticmethod
    def hashes(texts: dict[str, str], ids: set[str]) -> set[int]:
        """The hashes of the words of some texts, as the index has them."""
        return set(Analyzer().hashed(" ".join(texts[key] for key in ids))[0])

    def stored(self) -> set[str]:
        """The ids of the records that have a text."""
        return {key for (key,) in rows(self.work, "SELECT id FROM records WHERE text <> ''")}

    def result(self) -> Any:
        index = self.folder / "work.db-index"
        files = [path for path in (*self.folder.glob("work.db*"), *index.iterdir()) if path.is_file()]
        content = b"".join(path.read_bytes() for path in files)
        left = [each for each in (*self.marks, *self.vectors) if each in content]
        assert left == [], f"{len(left)} purged texts or vectors are still in the files"
        segments = [map_segment(path, path.stat().st_size) for path in index.glob("*.segment")]
        assert self.terms.isdisjoint(int(term) for segment in segments for term in segment.terms)
        assert segments, "there is an index"
        return self.stored()

    def check_killed(self) -> None:
        purged = {f"r{n}" for n in range(RECORDS)} - self.stored()
        assert purged in (set(), self.ids), "all of them or none"


class ChangeModel(Operation):
    """`recollect embed` with another model."""

    def prepare(self) -> None:
        super().prepare()
        self.words = ("embed", "--store", self.work, "--embedder", NEW)

    def result(self) -> Any:
        vectors = "SELECT embedder, passage, vector FROM embeddings JOIN spaces USING (space) ORDER BY 1, 2"
        with opened(self.work, NEW) as memory:
            state = memory.status()["vectors"]
        assert (state["embedder"], state["without"]) == (NEW, 0)
        return rows(self.work, vectors)

    def check_killed(self) -> None:
        rows(self.work, "SELECT 1")
        with opened(self.work, NEW) as memory:
            state = memory.status()["vectors"]
            assert state["embedder"] in {OLD, NEW}
            assert state["without"] == 0, "the model that answers has every vector"
            results = memory.search("mark7mark of the garden 0", sources=["vector"]).results
            assert results[0].record.id == "r7"


OPERATIONS: dict[str, type[Operation]] = {
    "index": Index,
    "index for another scope": Rescope,
    "copy": Copy,
    "import": Import,
    "rollback": RollBack,
    "purge": Purge,
    "change of model": ChangeModel,
}
