"""Migrations in every kind of store: interrupted, resumed, switched once, and abandoned."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest
from support import tally

from recollect import Memory
from recollect.config import Settings
from recollect.errors import EmbedderError, UsageError
from recollect.ingest import documents, recutting
from recollect.memory import embeddings
from recollect.memory.migration import NewModel, abandon, to_chunks, to_language, to_model, unused, waiting
from recollect.models.hashing import HashingEmbedder
from recollect.types import SetFolderOptions

WORDS = ("heron", "reed", "lighthouse", "tide", "bittern", "walrus", "otter", "kelp", "gull", "harbour")

MIGRATOR = """
import sys, time
from pathlib import Path
from recollect.config import Settings
from recollect.memory import Memory, embeddings
from recollect.memory.migration import to_model
from recollect.models.hashing import HashingEmbedder

class Counting(HashingEmbedder):
    batches = int(sys.argv[3])

    def passages(self, texts):
        if not self.batches:
            time.sleep(600)  # until it is killed
        self.batches -= 1
        time.sleep(0.01)
        with Path(sys.argv[2]).open("a") as log:
            log.write("".join(f"{text}\\n" for text in texts))
        return super().passages(texts)

embeddings.BATCH = embeddings.MOST_BATCH = 5
with Memory.open(sys.argv[1], embedder=Counting(128), settings=Settings()) as memory:
    migration = to_model(memory)
    migration.prepare(memory, lambda done, total: print("saved" if done else "ready", flush=True))
    migration.switch(memory, None)
    print("done", flush=True)
"""


@pytest.fixture(params=["sqlite", "lancedb", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The place of the test's store, of each kind."""
    if request.param == "postgres":
        return str(request.getfixturevalue("new_schema")())
    return str(tmp_path / "memory.db") if request.param == "sqlite" else f"lancedb://{tmp_path}/lance?batch=8"


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors are saved five at a time."""
    monkeypatch.setattr(embeddings, "BATCH", 5)
    monkeypatch.setattr(embeddings, "MOST_BATCH", 5)


@contextlib.contextmanager
def opened(place: str | Path, embedder: Any = "hashing:64") -> Iterator[Memory]:
    """A memory on a store."""
    with Memory.open(place, embedder=embedder, settings=Settings()) as memory:
        yield memory


class Counting(HashingEmbedder):
    """A model that counts the texts it embeds, and may fail after some of them."""

    def __init__(self, dimension: int, fails_after: int = sys.maxsize) -> None:
        super().__init__(dimension)
        self.count, self._fails_after = 0, fails_after

    def passages(self, texts: Sequence[str]) -> Any:
        """The vectors, unless it fails now."""
        if self.count + len(texts) > self._fails_after:
            raise EmbedderError("the model stopped", hint="start it again")
        self.count += len(texts)
        return super().passages(texts)


def fill(memory: Memory, count: int = 40) -> None:
    """Records that can be told apart."""
    memory.add_many([{"id": f"r{n}", "text": f"{WORDS[n % 10]} {WORDS[n // 10]} number n{n}n"} for n in range(count)])


def first(memory: Memory, number: int) -> str:
    """The record that is nearest to the text of a record."""
    text = f"{WORDS[number % 10]} {WORDS[number // 10]} number n{number}n"
    return str(memory.search(text, sources=["vector"]).results[0].record.id)


def migrate(memory: Memory) -> int:
    """Make the migration to the memory's own model; how many vectors were computed before the switch."""
    migration = to_model(memory)
    assert migration is not None
    computed = migration.prepare(memory, None)
    migration.switch(memory, None)
    return computed


def test_old_model_answers_until_the_switch_and_only_the_rest_is_computed(place: str) -> None:
    """A model that stops in the middle leaves the old one answering; the next run computes what is missing."""
    with opened(place) as old, opened(place, failing := Counting(128, fails_after=17)) as memory:
        fill(old)
        with pytest.raises(EmbedderError, match="stopped"):
            migrate(memory)
        assert (old.store.spaces.active.embedder, first(old, 7)) == ("hashing:64", "r7")
        assert failing.count == 15
        with opened(place, again := Counting(128)) as resumed:
            assert resumed.store.spaces.active.embedder == "hashing:64"
            old.add("a record that comes meanwhile", id="late")
            assert migrate(resumed) == 26
            assert again.count == 26
            assert to_model(resumed) is None
            assert first(resumed, 7) == "r7"
        assert old.store.spaces.active.embedder == "hashing:128"
        assert first(old, 7) == "r7"
        assert any("hashing:128 still answers" in warning for warning in old.search("otter").trace.warnings)


def test_prepared_vectors_change_no_answer(place: str) -> None:
    """Before the switch every answer is as it was: ids, scores and the model that gave them."""
    with opened(place) as old, opened(place, "hashing:128") as memory:
        fill(old)
        before = old.search("walrus harbour").results
        assert to_model(memory).prepare(memory, None) == 40
        assert old.search("walrus harbour").results == before
        assert old.store.spaces.active.embedder == "hashing:64"


def test_abandoned_vectors_are_gone(place: str) -> None:
    """They are not counted, not found and computed again if wanted; the vectors that answer cannot be abandoned."""
    with opened(place) as old, opened(place, model := Counting(128)) as memory:
        fill(old)
        to_model(memory).prepare(memory, None)
        (space,) = unused(memory)
        assert unused(memory) == {space: 40}
        assert abandon(memory, "hashing:64") == {}
        assert abandon(memory, "hashing:128") == {space: 40}
        index = memory.store.spaces.open(space)
        assert (index.coverage(), unused(memory), first(old, 3)) == ((0, 40), {}, "r3")
        assert index.search(model.query("walrus"), memory.prepare("")[1].filter, 9).entries == ()
        with pytest.raises(UsageError, match="answer searches"):
            memory.store.spaces.clear(memory.store.spaces.active)
        assert migrate(memory) == 40
        assert model.count == 80
        assert first(memory, 3) == "r3"
        with opened(place, "hashing:128") as anew:
            assert anew.status()["vectors"]["without"] == 0


def test_abandoned_vectors_are_noticed_by_other_processes(tmp_path: Path) -> None:
    """A process that had read them does not count them any more, and no file of the index brings them back."""
    path = tmp_path / "memory.db"
    with opened(path) as old, opened(path, "hashing:128") as other:
        fill(old)
        assert [to_model(other).prepare(other, None) for _ in range(2)] == [40, 0]
        assert sum(abandon(old).values()) == 40
        connection = apsw.Connection(str(path))
        assert connection.execute("SELECT count(DISTINCT space), count(*) FROM embeddings").get == (1, 40)
        connection.close()
        assert to_model(other).prepare(other, None) == 40


def test_model_of_the_same_name_and_other_vectors_is_a_migration(tmp_path: Path) -> None:
    """By name nothing is waiting; whoever opens the model notices."""
    newer = HashingEmbedder(64)
    newer.fingerprint = "hashing@2/64d"
    with opened(tmp_path / "memory.db") as old:
        fill(old, 10)
    with opened(tmp_path / "memory.db", newer) as memory:
        assert waiting(memory) == []
        assert to_model(memory) == NewModel("hashing:64", "hashing:64")
        assert migrate(memory) == 10
        assert memory.store.spaces.active.fingerprint == "hashing@2/64d"


def test_language_of_the_store_is_no_migration(tmp_path: Path) -> None:
    """Only another one is."""
    with opened(tmp_path / "memory.db") as memory:
        assert to_language(memory, "english") is None
        to_language(memory, "german").switch(memory, None)
        assert memory.store.keywords.analyzer.language == "german"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Notes of several paragraphs, which the present rules leave whole."""
    folder = tmp_path / "notes"
    folder.mkdir()
    for number in range(4):
        paragraphs = [f"{WORDS[number]} {WORDS[n]} " * 10 + f"n{number}n{n}n" for n in range(6)]
        (folder / f"{number}.md").write_text("\n\n".join(paragraphs))
    return folder


def newer_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later release whose chunks are short."""
    monkeypatch.setattr(documents, "RULES", documents.RULES + 1)
    monkeypatch.setattr(documents, "MAX_TOKENS", 60)
    monkeypatch.setattr(documents, "MIN_TOKENS", 20)


def test_folder_is_cut_again_in_one_transaction(place: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes see the old chunks or the new ones, never both; scope and tags stay, and each has its vector."""
    with opened(place) as memory, opened(place) as other:
        memory.index(folder, user="ada", tags=["sea"])
        old = {record.id for record in memory.list(user="ada")}
        newer_rules(monkeypatch)
        migration = to_chunks(memory)
        assert migration.prepare(memory, None) > len(old)
        assert {record.id for record in other.list(user="ada")} == old
        before = memory.store.changes.newest()
        migration.switch(memory, None)
        new = other.list(user="ada")
        assert old.isdisjoint(record.id for record in new)
        assert {(record.scope.user, record.tags) for record in new} == {("ada", ("sea",))}
        assert len(new) > len(old)
        assert other.status()["vectors"]["without"] == 0
        assert memory.store.changes.newest() > before
        assert to_chunks(memory) is None
        assert memory.reindex().unchanged == 4


def test_switch_reads_each_file_once(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is embedded is what is stored: without `prepare`, too, no chunk lacks its vector."""
    with opened(tmp_path / "memory.db") as memory:
        memory.index(folder)
        newer_rules(monkeypatch)
        reads: list[str] = []
        read_file = recutting.read_file
        monkeypatch.setattr(recutting, "read_file", lambda path: reads.append(path) or read_file(path))
        to_chunks(memory).switch(memory, None)
        assert sorted(reads) == sorted(map(str, folder.iterdir()))
        assert memory.status()["vectors"]["without"] == 0


def test_unchanged_chunks_cost_nothing(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New rules that cut the same chunks write no history and compute no vector, and are recorded."""
    with opened(tmp_path / "memory.db", model := Counting(64)) as memory:
        memory.index(folder)
        count, newest = model.count, memory.store.changes.newest()
        monkeypatch.setattr(documents, "RULES", documents.RULES + 1)
        migration = to_chunks(memory)
        migration.prepare(memory, None)
        migration.switch(memory, None)
        assert (model.count, memory.store.changes.newest()) == (count, newest)
        assert to_chunks(memory) is None


def test_files_that_cannot_be_cut_again_now_are_cut_later(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that changed, or is not there now, keeps its chunks; the next `index` cuts it by the new rules."""
    with opened(tmp_path / "memory.db") as memory:
        memory.index(folder)
        newer_rules(monkeypatch)
        (folder / "0.md").rename(tmp_path / "away.md")
        (folder / "1.md").write_text("Something else entirely, after the walrus left.")
        to_chunks(memory).switch(memory, None)
        paths = [Path(record.path).name for record in memory.list()]
        assert (paths.count("0.md"), paths.count("1.md")) == (1, 1)
        assert paths.count("2.md") > 1
        (tmp_path / "away.md").rename(folder / "0.md")
        assert sorted(Path(path).name for path in memory.index(folder).changed) == ["0.md", "1.md"]
        paths = [Path(record.path).name for record in memory.list()]
        assert paths.count("0.md") > 1


def test_rules_of_a_folder_are_the_oldest_of_its_files(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder around it inherits them, a new folder has the present ones, and they do not count as other options."""
    with opened(tmp_path / "memory.db") as memory:
        memory.index(folder)
        monkeypatch.setattr(documents, "RULES", documents.RULES + 1)
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / "a.md").write_text("A new note about the tide.")
        memory.index(tmp_path / "new")
        assert memory.status()["outdated_files"] == 4
        memory.index(tmp_path, include=["*.md"])
        assert memory.status()["outdated_files"] == 5
        assert "rules" not in str(memory.reindex([str(folder)]).skipped)
        hostile = {"scope": {}, "tags": [], "include": [], "exclude": [], "force": False, "rules": "newest"}
        memory.store.records.apply([[SetFolderOptions(str(tmp_path), hostile)]])
        assert memory.status()["outdated_files"] == 5


def test_folder_inside_another_is_cut_with_it(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files count once, and the next run over the outer folder finds no older rules."""
    with opened(tmp_path / "memory.db") as memory:
        memory.index(folder)
        memory.index(tmp_path, include=["*.md"])
        newer_rules(monkeypatch)
        assert memory.status()["outdated_files"] == 4
        to_chunks(memory).switch(memory, None)
        memory.index(tmp_path, include=["*.md"])
        assert to_chunks(memory) is None


@pytest.mark.ci
@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(8, id="short"),
        pytest.param(200, id="long", marks=[pytest.mark.torture, pytest.mark.timeout(1800)]),
    ],
)
def test_killed_migration_computes_only_the_rest(tmp_path: Path, start: Callable[..., Any], rounds: int) -> None:
    """After each `kill -9` the store opens and the old model answers; a round computes at most one batch in vain."""
    path, log, chance = tmp_path / "memory.db", tmp_path / "log", random.Random(rounds)
    log.touch()
    with opened(path) as memory:
        fill(memory, 100)
        memory.add_many([{"text": f"filler number n{n}n"} for n in range(20 * rounds)])
    total = 100 + 20 * rounds
    for _ in range(rounds):
        process = start("-c", MIGRATOR, path, log, 4)
        assert [process.stdout.readline() for _ in range(2)] == ["ready\n", "saved\n"]
        time.sleep(chance.uniform(0.0, 0.06))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert process.returncode == -signal.SIGKILL
        connection = apsw.Connection(str(path))
        assert connection.execute("PRAGMA integrity_check").get == "ok"
        connection.close()
        with opened(path) as memory:
            assert memory.store.spaces.active.embedder == "hashing:64"
            number = chance.randrange(100)
            assert first(memory, number) == f"r{number}"
    process = start("-c", MIGRATOR, path, log, sys.maxsize)
    assert process.communicate(timeout=600)[0].endswith("done\n")
    embedded = log.read_text().splitlines()
    assert len(set(embedded)) == total
    assert total <= len(embedded) <= total + 5 * rounds
    with opened(path, "hashing:128") as memory:
        assert memory.store.spaces.active.embedder == "hashing:128"
        assert (memory.status()["vectors"]["without"], first(memory, 42)) == (0, "r42")
    tally.note("kill -9 of migrations", rounds=rounds, vectors=total, computed_twice=len(embedded) - total)


def test_interrupted_command_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of `recollect migrate` keeps what was computed."""
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    with opened(tmp_path / "memory.db") as memory:
        fill(memory, 100)
        slow = "import sys, time; from recollect.memory import embeddings; from recollect.cli import main\n"
        slow += "from recollect.types import ActiveSpace as Serving; embeddings.BATCH = embeddings.MOST_BATCH = 5\n"
        slow += "embed = Serving.embed\n"
        slow += "Serving.embed = lambda *words: (print('batch', flush=True), time.sleep(0.1), embed(*words))[-1]\n"
        slow += "raise SystemExit(main(sys.argv[1:]))"
        words = ["migrate", "--embedder", "hashing:128", "--store", str(tmp_path / "memory.db")]
        process = subprocess.Popen([sys.executable, "-c", slow, *words], stdout=subprocess.PIPE, text=True)
        for _ in range(4):
            assert process.stdout.readline() == "batch\n"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130
        assert memory.store.spaces.active.embedder == "hashing:64"
        (count,) = unused(memory).values()
        assert count >= 15
        with opened(tmp_path / "memory.db", model := Counting(128)) as resumed:
            migrate(resumed)
            assert model.count == 100 - count
