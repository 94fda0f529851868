"""Systems that bring their own hybrid search, each set up as its documentation advises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from benchmarks.speed.contender import TOP, Contender, Found
from benchmarks.speed.data import Batch, user_of


class LanceDb(Contender):
    packages: ClassVar = ["lancedb"]
    note: ClassVar = "hybrid query with RRF; FTS index, bitmap index of users; HNSW-SQ from 100,000 records on"

    def connect(self) -> Any:
        import lancedb

        return lancedb.connect(str(self.folder / "lance"))

    def open(self) -> None:
        self.table = self.connect().open_table("records")

    def load(self, batches: Iterator[Batch]) -> None:
        import pyarrow as pa

        def tables() -> Iterator[Any]:
            for batch in batches:
                vectors = pa.FixedSizeListArray.from_arrays(pa.array(batch.vectors.ravel()), batch.vectors.shape[1])
                users = [user_of(number) for number in batch.numbers]
                columns = [pa.array(batch.numbers), pa.array(users), pa.array(batch.texts), vectors]
                yield pa.table(columns, ["number", "user", "text", "vector"]).to_batches()[0]

        first = next(parts := tables())

        def every() -> Iterator[Any]:
            yield first
            yield from parts

        reader = pa.RecordBatchReader.from_batches(first.schema, every())
        self.table = self.connect().create_table("records", reader)
        self.table.create_fts_index("text", replace=True)
        self.table.create_scalar_index("user", index_type="BITMAP")
        if self.size >= 100_000:
            self.table.create_index(metric="cosine", index_type="IVF_HNSW_SQ")
        self.table.optimize()

    def search(self, text: str, vector: np.ndarray, user: str | None = None) -> Found:
        query = self.table.search(query_type="hybrid").vector(vector).text(text).distance_type("cosine")
        if user:
            query = query.where(f"user = '{user}'", prefilter=True)
        rows = query.select(["number", "text"]).limit(TOP).to_list()
        return [(row["number"], row["text"]) for row in rows]

    def add(self, number: int, text: str, vector: np.ndarray) -> None:
        self.table.add([{"number": number, "user": user_of(number), "text": text, "vector": vector}])

    def refresh(self) -> None:
        self.table.checkout_latest()
