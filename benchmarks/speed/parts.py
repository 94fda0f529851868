"""Recollect, and hybrid searches put together from libraries, each with RRF (k = 60) over two lists of a hundred."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from benchmarks.speed.contender import DEPTH, TOP, Contender, Found, Ready, rrf
from benchmarks.speed.data import DIMENSION, USERS, Batch, questions, user_of

WORD = re.compile(r"\w+")
HEAD = 4 * DEPTH
"""Rows of the 8-bit scan that are scored again exactly."""

EXACT_UNTIL = 100_000
"""Records up to which a vector index that compares all is used."""


class Recollect(Contender):
    packages: ClassVar = ["recollect-search"]
    note: ClassVar = "Memory.search, default settings, an embedder that looks up ready vectors"

    def open(self) -> None:
        from recollect.config import Settings
        from recollect.memory import Memory

        self.ready = Ready(*questions())
        options: dict[str, Any] = {"embedder": Lookup(self.ready), "settings": Settings(), "announce": refuse}
        self.memory: Any = Memory.open(self.folder / "memory.db", **options)

    def load(self, batches: Iterator[Batch]) -> None:
        self.open()
        for batch in batches:
            self.ready.expect(batch.texts, batch.vectors)
            rows = zip(batch.numbers, batch.texts, strict=True)
            self.memory.add_many([{"id": f"r{number}", "text": text, "user": user_of(number)} for number, text in rows])

    def search(self, text: str, vector: np.ndarray, user: str | None = None) -> Found:
        self.ready.lasting[text] = vector
        scope = {"user": user} if user else {"any_scope": True}
        results = self.memory.search(text, limit=TOP, **scope).results
        return [(int(result.record.id[1:]), result.record.text) for result in results]

    def add(self, number: int, text: str, vector: np.ndarray) -> None:
        self.ready.lasting[text] = vector
        self.memory.add(text, id=f"r{number}", user=user_of(number))

    def close(self) -> None:
        self.memory.close()


def refuse(message: str) -> None:
    """A warning, for example that vectors are missing, ends the run."""
    raise RuntimeError(message)


class Lookup:
    """An embedder whose vectors are ready. A text that is not a record or a question gets the first question's."""

    def __init__(self, ready: Ready, name: str = "ready", fingerprint: str = "ready") -> None:
        self.ready, self.name, self.fingerprint = ready, name, fingerprint

    def query(self, text: str) -> np.ndarray:
        ready = self.ready.lasting
        return ready[text] if text in ready else next(iter(ready.values()))

    def passages(self, texts: list[str]) -> np.ndarray:
        passing = self.ready.passing
        return np.stack([passing.pop(text) if text in passing else self.query(text) for text in texts])


class Lines:
    """Texts in one file, found by number; for systems that keep none."""

    def __init__(self, contender: Contender) -> None:
        self.path = contender.folder / "texts"

    def write(self, texts: list[str]) -> None:
        parts = [text.encode() for text in texts]
        self.path.write_bytes(b"".join(parts))
        np.save(self.path.with_suffix(".npy"), np.cumsum([0, *map(len, parts)]))

    def open(self) -> None:
        self.text = np.memmap(self.path, np.uint8)
        self.ends = np.load(self.path.with_suffix(".npy"))

    def found(self, numbers: list[int]) -> Found:
        ends = self.ends
        return [(int(at), self.text[ends[at] : ends[at + 1]].tobytes().decode()) for at in numbers]


class BareParts(Contender):
    packages: ClassVar = ["tantivy", "numkong"]
    note: ClassVar = "tantivy, and an 8-bit scan with NumKong whose head is scored again exactly: the floor"

    def load(self, batches: Iterator[Batch]) -> None:
        import tantivy

        builder = tantivy.SchemaBuilder()
        builder.add_text_field("text", tokenizer_name="en_stem")
        builder.add_text_field("user", tokenizer_name="raw")
        builder.add_integer_field("number", fast=True)
        index = tantivy.Index(builder.build(), path=str(self.folder))
        writer, texts = index.writer(heap_size=256_000_000), []
        with (self.folder / "exact.f32").open("wb") as exact, (self.folder / "rough.i8").open("wb") as rough:
            for batch in batches:
                batch.vectors.tofile(exact)
                eight_bits(batch.vectors).tofile(rough)
                texts += batch.texts
                for number, text in zip(batch.numbers, batch.texts, strict=True):
                    writer.add_document(tantivy.Document(text=text, user=user_of(number), number=number))
        writer.commit()
        writer.wait_merging_threads()
        Lines(self).write(texts)
        self.open()

    def open(self) -> None:
        import tantivy

        self.index = tantivy.Index.open(str(self.folder))
        self.searcher = self.index.searcher()
        self.rough = np.memmap(self.folder / "rough.i8", np.int8).reshape(-1, DIMENSION)
        self.exact = np.memmap(self.folder / "exact.f32", np.float32).reshape(-1, DIMENSION)
        self.lines = Lines(self)
        self.lines.open()

    def search(self, text: str, vector: np.ndarray, user: str | None = None) -> Found:
        rows = np.arange(int(user[1:]), self.size, USERS) if user else None
        return self.lines.found(rrf(self.by_words(text, user), self.by_meaning(vector, rows)))

    def by_words(self, text: str, user: str | None) -> list[int]:
        import tantivy

        query = self.index.parse_query(" ".join(WORD.findall(text.lower())), ["text"])
        if user:
            only = tantivy.Query.const_score_query(tantivy.Query.term_query(self.index.schema, "user", user), 0.0)
            query = tantivy.Query.boolean_query([(tantivy.Occur.Must, query), (tantivy.Occur.Must, only)])
        hits = [address for _, address in self.searcher.search(query, DEPTH, count=False).hits]
        numbers: list[int] = self.searcher.fast_field_values("number", hits)
        return numbers

    def by_meaning(self, vector: np.ndarray, rows: np.ndarray | None) -> list[int]:
        import numkong

        rough = self.rough if rows is None else self.rough[rows]
        scores = np.asarray(numkong.cdist(eight_bits(vector[None]), rough, "dot"))[0]
        head = np.argpartition(-scores, HEAD)[:HEAD] if len(scores) > HEAD else np.arange(len(scores))
        head = head if rows is None else rows[head]
        order = np.argsort(-(self.exact[head] @ vector))[:DEPTH]
        return [int(number) for number in head[order]]


def eight_bits(vectors: np.ndarray) -> np.ndarray:
    """Of unit vectors, whose largest numbers are about a quarter."""
    return np.clip(np.rint(vectors * 508), -127, 127).astype(np.int8)


class Bm25sFaiss(Contender):
    packages: ClassVar = ["bm25s", "faiss-cpu", "PyStemmer"]
    note: ClassVar = "bm25s with stop words and stemmer; faiss Flat, above 100,000 records IVF (4·√n lists, 32 probed)"

    def load(self, batches: Iterator[Batch]) -> None:
        import bm25s
        import faiss

        parts = list(batches)
        texts = [text for batch in parts for text in batch.texts]
        tokens = bm25s.tokenize(texts, stopwords="en", stemmer=self.stemmer(), show_progress=False)
        retriever = bm25s.BM25()
        retriever.index(tokens, show_progress=False)
        retriever.save(str(self.folder / "bm25s"), show_progress=False)
        lists = 4 * int(self.size**0.5)
        kind = "Flat" if self.size <= EXACT_UNTIL else f"IVF{lists},Flat"
        index = faiss.index_factory(DIMENSION, kind, faiss.METRIC_INNER_PRODUCT)
        if not index.is_trained:
            some = np.concatenate([batch.vectors[:: max(1, self.size // (lists * 40))] for batch in parts])
            index.train(some)
        for batch in parts:
            index.add(batch.vectors)
        faiss.write_index(index, str(self.folder / "faiss"))
        Lines(self).write(texts)
        self.open()

    def stemmer(self) -> Any:
        import Stemmer

        return Stemmer.Stemmer("english")

    def open(self) -> None:
        import bm25s
        import faiss

        self.bm25s = bm25s
        self.faiss = faiss
        self.words = self.stemmer()
        self.retriever = bm25s.BM25.load(str(self.folder / "bm25s"), show_progress=False)
        self.index = faiss.read_index(str(self.folder / "faiss"))
        self.lines = Lines(self)
        self.lines.open()

    def search(self, text: str, vector: np.ndarray, user: str | None = None) -> Found:
        tokens = self.bm25s.tokenize([text], stopwords="en", stemmer=self.words, show_progress=False)
        options: dict[str, Any] = {}
        mask = None
        if user:
            rows = np.arange(int(user[1:]), self.size, USERS)
            mask = np.zeros(self.size, np.float32)
            mask[rows] = 1
            cls = self.faiss.SearchParameters if self.size <= EXACT_UNTIL else self.faiss.SearchParametersIVF
            options = {"params": cls(sel=self.faiss.IDSelectorBatch(rows))}
        if self.size > EXACT_UNTIL:
            params = options.setdefault("params", self.faiss.SearchParametersIVF())
            params.nprobe = 32
        depth = min(DEPTH, self.size)
        rank, scores = self.retriever.retrieve(tokens, k=depth, show_progress=False, weight_mask=mask)
        _, near = self.index.search(vector[None], depth, **options)
        words = [int(at) for at, score in zip(rank[0], scores[0], strict=True) if score > 0]
        return self.lines.found(rrf(words, [int(at) for at in near[0] if at >= 0]))


class SqliteVec(Contender):
    packages: ClassVar = ["apsw", "sqlite-vec"]
    note: ClassVar = "FTS5 (porter, OR of the words, bm25) and vec0; users as a partition key from 1,000,000 records on"

    def connect(self) -> Any:
        import apsw
        import sqlite_vec

        connection = apsw.Connection(str(self.folder / "store.db"))
        connection.enable_load_extension(True)
        connection.load_extension(sqlite_vec.loadable_path())
        connection.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA mmap_size=8000000000")
        return connection

    def open(self) -> None:
        import threading

        self.own = threading.local()
        self.main = self.connection()

    def connection(self) -> Any:
        if not hasattr(self.own, "connection"):
            self.own.connection = self.connect()
        return self.own.connection

    def load(self, batches: Iterator[Batch]) -> None:
        self.open()
        key = "user text partition key" if self.size >= 1_000_000 else "user text"
        self.main.execute("CREATE TABLE records (number INTEGER PRIMARY KEY, user TEXT, text TEXT)")
        self.main.execute("CREATE INDEX by_user ON records (user)")
        self.main.execute(
            "CREATE VIRTUAL TABLE words USING fts5(text, tokenize='porter', content=records, content_rowid=number)"
        )
        self.main.execute(
            f"CREATE VIRTUAL TABLE vectors USING vec0(number integer primary key, {key},"
            f" vector float[{DIMENSION}] distance_metric=cosine)"
        )
        for batch in batches:
            with self.main:
                self.insert(zip(batch.numbers, batch.texts, batch.vectors, strict=True))
        self.main.execute("INSERT INTO words (words) VALUES ('optimize')")

    def insert(self, rows: Any) -> None:
        for number, text, vector in rows:
            user = user_of(number)
            self.main.execute("INSERT INTO records VALUES (?, ?, ?)", (number, user, text))
            self.main.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (number, text))
            self.main.execute("INSERT INTO vectors VALUES (?, ?, ?)", (number, user, vector.tobytes()))

    def add(self, number: int, text: str, vector: np.ndarray) -> None:
        with self.main:
            self.insert([(number, text, vector)])

    def search(self, text: str, vector: np.ndarray, user: str | None = None) -> Found:
        connection = self.connection()
        words = " OR ".join(f'"{word}"' for word in WORD.findall(text))
        only = ("JOIN records r ON r.number = words.rowid", "AND r.user = ?", (user,)) if user else ("", "", ())
        by_words = connection.execute(
            f"SELECT words.rowid FROM words {only[0]} WHERE words MATCH ? {only[1]} ORDER BY rank LIMIT {DEPTH}",
            (words, *only[2]),
        ).fetchall()
        by_meaning = connection.execute(
            f"SELECT number FROM vectors WHERE vector MATCH ? AND k = {DEPTH} {'AND user = ?' if user else ''}",
            (vector.tobytes(), *only[2]),
        ).fetchall()
        top = rrf([row[0] for row in by_words], [row[0] for row in by_meaning])
        marks = json.dumps(top)
        texts = dict(
            connection.execute(
                "SELECT number, text FROM records WHERE number IN (SELECT value FROM json_each(?))", (marks,)
            ).fetchall()
        )
        return [(number, texts[number]) for number in top]

    def close(self) -> None:
        self.main.close()
