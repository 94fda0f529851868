"""Derived indexes: they follow the records, can be deleted, and never read a text as a query language."""

from __future__ import annotations

import random
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest

from recollect import Memory, Scope
from recollect.config import Settings
from recollect.errors import EmbedderError, UsageError
from recollect.memory import embeddings
from recollect.models.hashing import HashingEmbedder
from recollect.stores.sqlite import index
from recollect.stores.sqlite.blocks import Scan
from recollect.types import Filter, Put, Record

OpenMemory = Callable[..., Memory]


def found(memory: Memory, query: str, *sources: str, **options: Any) -> list[str]:
    """What a search finds, as texts."""
    answer = memory.search(query, sources=sources or None, **options)
    return [result.record.text for result in answer.results]


def ranking(memory: Memory, query: str, **options: Any) -> list[tuple[Any, ...]]:
    """Everything a search says of its results."""
    return [
        (r.record.id, r.score, r.similarity, dict(r.shares), r.snippet) for r in memory.search(query, **options).results
    ]


# -- a write is visible to the next search ------------------------------------------------------------------


@pytest.mark.parametrize("source", ["keyword", "vector"])
def test_a_write_is_visible_to_the_next_search(memory: Memory, source: str) -> None:
    """In the same process and thread: an add, an update, a supersession, a forget."""
    for i in range(20):
        memory.add(f"otter number {i}", id="o")
        assert found(memory, "otter", source) == [f"otter number {i}"]
    new = memory.supersede("o", text="otter moved out")
    assert found(memory, "otter", source) == ["otter moved out"]
    memory.forget(new.id)
    assert found(memory, "otter", source) == []


def test_a_write_is_visible_to_the_next_search_in_another_thread(memory: Memory) -> None:
    """Each of four threads finds at once what another thread has just added."""
    missed: list[str] = []
    turn = threading.Barrier(4)
    said: dict[tuple[int, int], str] = {}

    def work(me: int) -> None:
        for i in range(15):
            said[me, i] = memory.add(f"thread {me} says word{me}x{i}").text
            turn.wait(60)
            other = said[(me + 1) % 4, i]
            missed.extend(s for s in ("keyword", "vector") if other not in found(memory, other, s))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(said) == 60
    assert missed == []


ECHO = """
import sys
from recollect import Memory
from recollect.config import Settings
with Memory.open(sys.argv[1], embedder="hashing:64", settings=Settings()) as memory:
    for line in sys.stdin:
        command, _, text = line.strip().partition(" ")
        if command == "add":
            print(memory.add(text).id, flush=True)
        elif command == "forget":
            memory.forget(text)
            print("done", flush=True)
        else:
            print("|".join(r.record.text for r in memory.search(text, sources=command).results), flush=True)
"""


class Other:
    """Another process that has the same store open and does as it is told."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def __call__(self, command: str, text: str) -> str:
        """One command, and its answer."""
        self.process.stdin.write(f"{command} {text}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@pytest.fixture
def other(path: Path, memory: Memory, start: Callable[..., Any]) -> Other:
    """A second process on the test's store."""
    return Other(start("-c", ECHO, path))


def test_a_write_is_visible_to_the_next_search_in_another_process(memory: Memory, other: Other) -> None:
    """In both directions and by both sources, for adds and for forgets, turn by turn."""
    for i in range(10):
        here = memory.add(f"badger {i} was added here")
        for source in ("keyword", "vector"):
            assert here.text in other(source, here.text).split("|")
        there = other("add", f"badger {i} was added there")
        for source in ("keyword", "vector"):
            assert f"badger {i} was added there" in found(memory, f"badger {i} was added there", source)
        memory.forget(there)
        assert "there" not in other("keyword", "badger there")
        assert "there" not in other("vector", f"badger {i} was added there")
        other("forget", here.id)
        assert found(memory, "badger") == []


def test_vectors_saved_later_by_another_process_appear(open_memory: OpenMemory, path: Path, run_python: Any) -> None:
    """Records that had no vector are found by vector as soon as another process has computed them."""
    words = open_memory(embedder="none")
    words.add_many([{"text": f"walrus on floe {i}"} for i in range(50)])
    memory = open_memory()
    answer = memory.search("walrus on floe 7", sources=["vector"])
    assert answer.results == ()
    assert "recollect embed" in " ".join(answer.trace.warnings), "more are missing than a search makes up for"
    run_python(
        "import sys; from recollect import Memory; from recollect.config import Settings\n"
        "print(Memory.open(sys.argv[1], embedder='hashing:64', settings=Settings()).embed())",
        path,
    )
    assert found(memory, "walrus on floe 7", "vector")[0] == "walrus on floe 7"
    assert memory.status()["vectors"] == {"embedder": "hashing:64", "dimension": 64, "with": 50, "without": 0}


def test_search_embeds_a_few_missing_vectors(open_memory: OpenMemory) -> None:
    """A record stored without an embedder is found by vector at the next search with one."""
    open_memory(embedder="none").add_many([{"text": f"walrus {i}"} for i in range(20)])
    assert found(open_memory(), "walrus 3", "vector")[0] == "walrus 3"


def test_a_large_group_is_found_whole_or_not_at_all(open_memory: OpenMemory) -> None:
    """A group that another process commits and indexes during a search's snapshot is not in that snapshot."""
    reader, writer = open_memory(), open_memory()
    reader.add("one puffin")
    group = [Put(Record(f"p{i}", f"puffin number {i}")) for i in range(400)]

    def count(memory: Memory) -> int:
        return len(memory.store.keywords.search(["puffin"], Filter(), 1000).entries)

    with reader.store.reading():
        assert len(reader.list()) == 1
        writer.store.records.apply([group])
        assert count(writer) == 401
        assert count(reader) == 1
    assert count(reader) == 401


@pytest.mark.ci
def test_record_being_updated_is_never_missing(memory: Memory) -> None:
    """While one thread changes its tags, the others always find it by vector and by words."""
    memory.add_many([{"text": f"gannet {i}", "id": f"g{i}"} for i in range(300)])
    memory.embed()
    stop = threading.Event()
    missed: dict[str, int] = {"keyword": 0, "vector": 0}
    searches = 0

    def look() -> None:
        nonlocal searches
        while not stop.is_set():
            for source in missed:
                searches += 1
                if "gannet 7" not in found(memory, "gannet 7", source, limit=300, fetch_k=300):
                    missed[source] += 1

    watchers = [threading.Thread(target=look) for _ in range(3)]
    for watcher in watchers:
        watcher.start()
    for i in range(150):
        memory.add("gannet 7", id="g7", tags=[f"t{i}"])
    stop.set()
    for watcher in watchers:
        watcher.join()
    assert searches > 10
    assert missed == {"keyword": 0, "vector": 0}


def test_running_search_finds_a_record_being_updated(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index follows an update while a search multiplies: that search still finds the record.

    The interleaving of two threads is made certain: the update comes when the search has just chosen its vectors.
    """
    memory.add_many([{"text": f"gannet {i}", "id": f"g{i}"} for i in range(5)])
    index, vector = memory.embeddings.serving().index, HashingEmbedder(64).query("gannet 3")
    index.search(vector, Filter(), 5)
    exactly = Scan.exactly

    def interrupted(scan: Scan, vectors: Any) -> Any:
        monkeypatch.undo()
        memory.add("gannet 3", id="g3", tags=["new"])
        index.search(vector, Filter(), 5)
        return exactly(scan, vectors)

    monkeypatch.setattr(Scan, "exactly", interrupted)
    assert {match.record.id for match in index.search(vector, Filter(), 5).entries} == {"g0", "g1", "g2", "g3", "g4"}


# -- thrown away and rebuilt --------------------------------------------------------------------------------

QUERIES = ("heron", "lake boat", "the", "café", "湖", "v1.2 snake_case")


def fill(memory: Memory) -> None:
    """A few hundred records with repeats, titles and forgotten ones."""
    chance = random.Random(5)
    words = ["heron", "lake", "reeds", "boat", "the", "in", "café", "v1.2", "湖水", "snake_case"]
    memory.add_many(
        {
            "text": " ".join(chance.choices(words, k=chance.randint(1, 8))),
            "title": chance.choice(["", "Lake"]),
            "id": f"r{i}",
        }
        for i in range(400)
    )
    memory.forget(*(f"r{i}" for i in range(0, 400, 9)))


def cut(file: Path) -> None:
    """Leave a shorter file in place of one; whoever has the old one mapped keeps it."""
    short = file.with_suffix(".short")
    short.write_bytes(file.read_bytes()[:-100])
    short.replace(file)


def overwrite(file: Path) -> None:
    """Leave zeros in place of a file."""
    zeros = file.with_suffix(".zeros")
    zeros.write_bytes(bytes(file.stat().st_size))
    zeros.replace(file)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "all of it": shutil.rmtree,
    "the manifest": lambda folder: (folder / "manifest.json").unlink(),
    "a manifest that is no JSON": lambda folder: (folder / "manifest.json").write_text("{"),
    "a manifest of a later version": lambda folder: (folder / "manifest.json").write_text('{"format": 99}'),
    "a segment": lambda folder: next(folder.glob("*.segment")).unlink(),
    "a segment's end": lambda folder: cut(next(folder.glob("*.segment"))),
    "a segment's content": lambda folder: overwrite(next(folder.glob("*.segment"))),
}


@pytest.mark.parametrize("open_while_damaged", [False, True])
@pytest.mark.parametrize("what", DAMAGE)
def test_lost_index_is_built_again(open_memory: OpenMemory, path: Path, what: str, open_while_damaged: bool) -> None:
    """Whichever part is gone, the next search answers as before, in an open or reopened store."""
    memory, folder = open_memory(), Path(f"{path}-index")
    fill(memory)
    before = {query: ranking(memory, query) for query in QUERIES}
    assert all(before.values())
    if not open_while_damaged:
        memory.close()
    DAMAGE[what](folder)
    again = memory if open_while_damaged else open_memory()
    assert {query: ranking(again, query) for query in QUERIES} == before
    again.add_many([{"text": f"an index that is written to again: zebra {i}"} for i in range(300)])
    assert len(found(again, "zebra", "keyword", limit=400, fetch_k=400)) == 300
    with open_memory() as other:
        assert {query: ranking(other, query) for query in QUERIES} == {q: ranking(again, q) for q in QUERIES}
        assert other.store.keywords.index.folder.damaged() == []


def test_deleted_vectors_are_computed_again(open_memory: OpenMemory, path: Path) -> None:
    """`embed` restores the same answers."""
    memory = open_memory()
    fill(memory)
    before = {query: ranking(memory, query) for query in QUERIES}
    memory.close()
    connection = apsw.Connection(str(path))
    connection.execute("DELETE FROM embeddings")
    connection.close()
    again = open_memory()
    again.embed()
    assert {query: ranking(again, query) for query in QUERIES} == before


def test_another_language_rebuilds_the_index(open_memory: OpenMemory) -> None:
    """The language belongs to the store: changing it re-analyses everything, for every process."""
    with open_memory() as memory:
        memory.add("Die Häuser am See")
        assert found(memory, "Haus", "keyword") == []
        memory.change_language("german")
        assert found(memory, "Haus", "keyword") == ["Die Häuser am See"]
    with open_memory(language="german") as memory:
        assert memory.status()["language"] == "german"
        assert found(memory, "Haus", "keyword") == ["Die Häuser am See"]
        memory.change_language("english")
        assert found(memory, "Haus", "keyword") == []


def test_opening_a_store_never_changes_its_language(open_memory: OpenMemory, path: Path) -> None:
    """A differing setting is reported, an argument is refused; nothing stored changes."""
    with open_memory() as memory:
        memory.add("the keys")
        assert found(memory, "key", "keyword") == ["the keys"]

    def notes() -> Any:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return connection.execute("SELECT * FROM meta ORDER BY key").fetchall()
        finally:
            connection.close()

    before, told = notes(), []
    with open_memory(settings=Settings(language="german"), announce=told.append) as memory:
        assert found(memory, "key", "keyword") == ["the keys"]
        assert memory.status()["language"] == "english"
    assert len(told) == 1
    assert "recollect language german" in told[0]
    with pytest.raises(UsageError, match="the store's language is english, not german") as caught:
        open_memory(language="german")
    assert "change_language" in caught.value.hint
    assert notes() == before


def test_unknown_language_changes_nothing(open_memory: OpenMemory) -> None:
    """It is refused by name."""
    memory = open_memory()
    memory.add("the keys")
    with pytest.raises(UsageError, match="klingon"):
        memory.change_language("klingon")
    assert memory.status()["language"] == "english"
    assert found(memory, "key", "keyword") == ["the keys"]


def test_language_change_reaches_an_open_store(
    open_memory: OpenMemory, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open process uses the new language, also for cached data, and does not change it back."""
    monkeypatch.setattr(index, "COLD_ROWS", 1)
    first = open_memory()
    first.add("Die Häuser am See")
    assert found(first, "Haus", "keyword") == []
    second = open_memory()
    second.change_language("german")
    written = []
    for _ in range(3):
        for memory in (first, second):
            assert found(memory, "Haus", "keyword") == ["Die Häuser am See"]
            written.append(Path(f"{path}-index", "manifest.json").read_text())
    assert len(set(written)) == 1, f"the index was rebuilt at every turn: {written}"


# -- hostile queries ----------------------------------------------------------------------------------------

PIECES: Sequence[str] = (
    '"', "'", "''", '""', "`", "*", "heron*", "^heron", "NEAR(", "NEAR(heron lake, 5)", "NEAR", "AND", "OR", "NOT",
    "(", ")", "((((", "{title text}:", "title:", "text:heron", "col:", "-title:x", "+", "-", "--",
    "; DROP TABLE records;", "' OR 1=1 --", '" OR "" = "', "UNION SELECT * FROM records", "%", "_", "\\", "\x00",
    "heron\x00lake", "\u202e", "\u2066", "\u200b", "\ufeff", "\ud800", "\udfff", "\ud83d", "😀",
    "👩\u200d👩\u200d👧", "🇩🇪", "e\u0301\u0302\u0303", "湖", "湖水", "湖の水", "한국어", "ไทย", "١٢٣", "1.0.21",
    "v1..2", "a.b.c.d", "C++", "C#", "snake_case", "camelCase", "HTTPServer", "heron", "lake", "the", "/etc/passwd",
    "../..", "http://x/?q=1#a", "a@b.c", "\n", "\t", "\r\n", "\x1b[31m", "ﬁ", "ß", "İ", "ı", "ſ", "Ω", "™", "½", "²",
    "🏳️\u200d🌈", "\u0600", "\ufdfa", "¯\\_(ツ)_/¯", "$1", "?1", ":name", "@x", "json_each(", "[1,2]", "{}", "null",
    "NaN", "1e999", "0x1F",
)  # fmt: skip


def hostile(count: int, seed: int = 99) -> Iterator[str]:
    """Random mixtures of everything above, and of random characters of all planes."""
    chance = random.Random(seed)
    for _ in range(count):
        kind = chance.random()
        if kind < 0.75:
            yield chance.choice(["", " "]).join(chance.choices(PIECES, k=chance.randint(1, 6)))
        elif kind < 0.95:
            yield "".join(
                chr(chance.choice([chance.randrange(0x250), chance.randrange(0x110000)]))
                for _ in range(chance.randint(0, 12))
            )
        else:
            yield chance.choice(PIECES) * chance.randint(2, 60)


MEGABYTE = 1_000_000
LONG = ("heron " * (MEGABYTE // 6), '"' * MEGABYTE, "NEAR(" * (MEGABYTE // 5), "湖" * MEGABYTE, "x" * MEGABYTE)


def attack(memory: Memory, queries: Iterator[str] | Sequence[str]) -> int:
    """Every query is answered, by both sources, with nothing that Ada may not see; how many found something."""
    hits = 0
    for query in queries:
        answer = memory.search(query, user="ada", limit=5)
        assert [trace.status for trace in answer.trace.sources] == ["ok", "ok"], (query[:100], answer.trace)
        outside = [r.record for r in answer.results if r.record.scope not in (Scope(), Scope("ada"))]
        assert not outside, query[:100]
        hits += any("keyword" in result.shares for result in answer.results)
    return hits


@pytest.fixture
def besieged(memory: Memory) -> Memory:
    """Records of Ada and Bob and global ones, with hostile strings among their texts."""
    memory.add_many(
        {"text": f"{piece} heron lake {i}", **({} if i % 3 == 2 else {"user": ("ada", "bob")[i % 3]})}
        for i, piece in enumerate(PIECES)
    )
    memory.embed()
    return memory


@pytest.mark.ci
def test_no_query_is_interpreted_as_a_language(besieged: Memory, dump: Any) -> None:
    """A thousand hostile queries: no exception, nothing out of scope, nothing changed."""
    before = dump()
    assert attack(besieged, hostile(1000)) > 300
    assert dump() == before


@pytest.mark.torture
@pytest.mark.timeout(1200)
def test_no_query_is_interpreted_as_a_language_long(besieged: Memory, dump: Any) -> None:
    """The same with twenty thousand."""
    before = dump()
    assert attack(besieged, hostile(20_000, seed=100)) > 7000
    assert dump() == before


@pytest.mark.ci
def test_megabyte_of_query_is_answered(besieged: Memory) -> None:
    """Pasted text, quotes, syntax, CJK and one endless word."""
    assert attack(besieged, LONG) >= 2


def test_hostile_text_can_be_found(besieged: Memory) -> None:
    """Stored query syntax is text: the record comes back whole."""
    texts = found(besieged, "DROP TABLE records", "keyword", any_scope=True)
    assert "; DROP TABLE records; heron lake 25" in texts[0]
    assert any("NEAR(" in text for text in found(besieged, "NEAR(", "keyword", any_scope=True))


# -- the vector index follows -------------------------------------------------------------------------------


class Shuffled(HashingEmbedder):
    """Another model of the same dimension: the same numbers in another order, as a new version of a model might be."""

    def __init__(self, name: str = "shuffled", dimension: int = 64) -> None:
        super().__init__(dimension)
        self.name = name
        self.fingerprint = f"{name}@1/{dimension}d"

    def query(self, text: str) -> Any:
        return np.ascontiguousarray(super().query(text)[::-1])


def test_updating_a_text_replaces_its_vector(memory: Memory) -> None:
    """The old text's vector no longer finds the record; the new one's does, once."""
    memory.add("an aardvark digs", id="a")
    memory.add("completely different subject", id="b")
    memory.search("aardvark")
    memory.add("zeppelins over the harbour", id="a")
    similarity = {r.record.id: r.similarity for r in memory.search("an aardvark digs", sources=["vector"]).results}
    assert similarity.keys() == {"a", "b"}
    assert similarity["a"] < 0.5
    (first, *_) = memory.search("zeppelins over the harbour", sources=["vector"]).results
    assert (first.record.id, first.similarity) == ("a", 1.0)
    assert memory.status()["vectors"]["with"] == 2


def test_forgotten_record_leaves_the_vector_index(memory: Memory) -> None:
    """It is neither found nor counted."""
    keys = [memory.add(f"record {i}").id for i in range(5)]
    memory.forget(*keys[:3])
    assert len(found(memory, "record", "vector")) == 2
    assert memory.status()["vectors"]["with"] == 2


def test_index_survives_many_updates(memory: Memory) -> None:
    """Hundreds of updates, forgets and adds: both sources have exactly the live records."""
    chance = random.Random(3)
    live: dict[str, str] = {}
    for i in range(300):
        if live and chance.random() < 0.3:
            memory.forget(key := chance.choice(sorted(live)))
            del live[key]
        else:
            key = f"k{chance.randrange(40)}"
            live[key] = memory.add(f"state {i}", id=key).text
        if i % 30 == 29:
            for source in ("keyword", "vector"):
                assert set(found(memory, "state", source, limit=100)) == set(live.values())


def test_model_of_the_same_dimension_is_distinguished(open_memory: OpenMemory) -> None:
    """The old space is used with the old model until the new one is complete."""
    with open_memory() as memory:
        memory.add_many([{"text": f"capercaillie {i}"} for i in range(40)])
    memory = open_memory(embedder=Shuffled())
    answer = memory.search("capercaillie 7")
    assert answer.trace.mode == "hybrid"
    assert (answer.results[0].record.text, answer.results[0].similarity) == ("capercaillie 7", 1.0)
    assert any("hashing:64" in w and "recollect embed" in w for w in answer.trace.warnings)
    memory.add("capercaillie added while the old model serves")
    assert found(memory, "capercaillie added while the old model serves", "vector")[0].endswith("serves")
    assert memory.store.spaces.active.embedder == "hashing:64"
    assert memory.embed() == 41
    assert memory.store.spaces.active.embedder == "shuffled"
    answer = memory.search("capercaillie 7")
    assert (answer.results[0].record.text, answer.results[0].similarity) == ("capercaillie 7", 1.0)
    assert answer.trace.warnings == ()


def test_another_process_changes_to_the_completed_model(open_memory: OpenMemory) -> None:
    """As soon as another process has finished the vectors."""
    with open_memory() as memory:
        memory.add("capercaillie")
    waiting, worker = open_memory(embedder=Shuffled()), open_memory(embedder=Shuffled())
    assert waiting.search("capercaillie").trace.warnings
    worker.embed()
    answer = waiting.search("capercaillie")
    assert answer.trace.warnings == ()
    assert answer.results[0].similarity == 1.0


def test_missing_old_model_leaves_keyword_search(open_memory: OpenMemory) -> None:
    """The warning names the command that repairs it."""
    with open_memory(embedder=Shuffled("gone-from-the-registry")) as memory:
        memory.add("ptarmigan in snow")
    memory = open_memory()
    answer = memory.search("ptarmigan")
    assert answer.trace.mode == "keyword-only"
    assert [result.record.text for result in answer.results] == ["ptarmigan in snow"]
    assert [(t.name, t.status) for t in answer.trace.sources] == [("keyword", "ok"), ("vector", "failed")]
    said = " ".join(answer.trace.warnings)
    assert "gone-from-the-registry" in said
    assert "recollect embed" in said
    memory.embed()
    assert memory.search("ptarmigan").trace.mode == "hybrid"


class Interrupted(Shuffled):
    """Works for one batch, then the user presses Ctrl-C or the model fails, once."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error, self.batches = error, 0

    def passages(self, texts: Sequence[str]) -> Any:
        self.batches += 1
        if self.batches == 2:
            raise self.error
        return super().passages(texts)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), EmbedderError("out of memory")], ids=["ctrl-c", "failed"])
def test_interrupted_embed_leaves_the_old_model_answering(open_memory: OpenMemory, error: BaseException) -> None:
    """Computed vectors stay, and the next run does only the rest."""
    with open_memory() as memory:
        memory.add_many([{"text": f"capercaillie {i}"} for i in range(150)])
    memory = open_memory(embedder=Interrupted(error))
    with pytest.raises(type(error)):
        memory.embed()
    assert memory.store.spaces.active.embedder == "hashing:64"
    answer = memory.search("capercaillie 99")
    assert (answer.trace.mode, answer.results[0].similarity) == ("hybrid", 1.0)
    assert open_memory(embedder=Shuffled()).embed() == 150 - 64
    assert memory.search("capercaillie 99", sources=["vector"]).results[0].similarity == 1.0


def test_moving_a_text_costs_no_embedding(open_memory: OpenMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text under another id or scope is not embedded again by a model that takes longer than a look."""
    monkeypatch.setattr(embeddings, "LOOK_S", 0.0)
    embedder = Shuffled()
    calls: list[int] = []
    plain = embedder.passages
    embedder.passages = lambda texts: calls.append(len(texts)) or plain(texts)
    memory = open_memory(embedder=embedder)
    memory.add("a text on the move", id="a", user="ada")
    memory.forget("a")
    memory.add("a text on the move", id="b", user="bob")
    assert calls == [1]
    assert found(memory, "a text on the move", "vector", user="bob") == ["a text on the move"]
