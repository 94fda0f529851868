"""One LanceDB table of vectors: all that is ever said to LanceDB is said here, and its errors become ours.

The table is append-only but for the removal of what was purged. Who reads holds one version of it, and takes the
latest where the file says that there is a newer one, or where what it holds has been cleaned away.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from recollect.errors import StoreError
from recollect.registry import missing_package
from recollect.stores.lance.place import Place
from recollect.stores.lance.waiting import Numbered

if TYPE_CHECKING:
    from recollect.types import Vector

INDEX_FROM = 20_000
"""Rows from which on an approximate index is made; fewer are all compared, in about 15 ms."""

PROBES = 32
BITS, BITS_AFAR = 1, 4
"""Of each number of a vector in the index. One is soonest made and searched; four leave less to be looked at again."""

KEPT_VERSIONS = timedelta(minutes=1)
"""How long the files of old versions stay for those who still read them; after that such a reader takes the latest."""

ASKED_AT_ONCE = 10_000
EVERY = 1_000_000_000
MOST_SAID = 300
_FAILURES = (RuntimeError, ValueError, OSError)

Given = TypeVar("Given")


class Lost(Exception):
    """The table is not there, older than the file says, or damaged: it must be made again."""


class Shelf:
    """The vectors of one space, by number."""

    def __init__(self, place: Place, name: str, dimension: int) -> None:
        self.name = name
        self._place = place
        self._dimension = dimension
        self._lock = threading.Lock()
        self._table: Any = None
        self._version = 0
        self._count = 0

    def nearest(self, vector: Vector, count: int, version: int, *, exact: bool) -> NDArray[np.int64]:
        """Numbers, nearest first: of all vectors, or as the index has them, which is about right."""

        def ask(table: Any) -> NDArray[np.int64]:
            query = table.search(vector, vector_column_name="vector").distance_type("dot")
            query = query.select(["number", "_distance"]).limit(count)
            query = query.bypass_vector_index() if exact else query.nprobes(PROBES)
            numbers: NDArray[np.int64] = query.to_arrow()["number"].to_numpy()
            return numbers

        return self._read(version, ask)

    def fetch(self, numbers: NDArray[np.int64], version: int) -> Numbered:
        """The vectors that have these numbers, in no order."""
        parts = [
            self._read(version, lambda table, part=part: self._fetched(table, part))  # type: ignore[misc]
            for part in np.array_split(numbers, math.ceil(len(numbers) / ASKED_AT_ONCE))
        ]
        return reduce(Numbered.and_also, parts)

    def numbers(self, version: int) -> NDArray[np.int64]:
        """Every number."""
        everything = self._read(version, lambda table: table.search().select(["number"]).limit(EVERY).to_arrow())
        numbers: NDArray[np.int64] = everything["number"].to_numpy()
        return numbers

    def rows(self, version: int) -> int:
        """How many vectors there are."""
        with self._translated():
            self._held(version)
        return self._count

    def append(self, vectors: Numbered, after: int, version: int) -> int:
        """Add vectors whose numbers are above `after`; what an interrupted flush left there goes. The new version."""
        data = self._rows_of(vectors)
        with self._translated():
            table = self.latest()
            if (self._version if table is not None else 0) < version:
                raise Lost
            if table is None:
                self._table = self._database().create_table(self.name, data=data)
            else:
                if table.count_rows(f"number > {after}"):
                    table.delete(f"number > {after}")
                table.add(data)
            self.latest()
            return self._version

    def copy(self, old: Shelf, without: NDArray[np.int64]) -> int:
        """Fill a new table with what another has, but for some; its version. A deletion would leave the bytes."""
        parts = [f"NOT {_among(part)}" for part in np.array_split(without, math.ceil(len(without) / ASKED_AT_ONCE))]
        with self._translated():
            kept = old.latest().search().select(["number", "vector"]).where(" AND ".join(parts)).limit(EVERY)
            self._table = self._database().create_table(self.name, data=kept.to_batches())
            self.latest()
            return self._version

    def tidy(self) -> tuple[int, int]:
        """Merge what many small commits left, and make the index anew: the version, and how many rows are in the index.

        An index that is only added to keeps the partitions it was first given; a new one takes seconds.
        """
        with self._translated():
            table = self.latest()
            for index in table.list_indices():
                table.drop_index(index.name)
            table.optimize(cleanup_older_than=KEPT_VERSIONS)
            indexed = self._train(table) if self._count >= INDEX_FROM else 0
            self.latest()
            return self._version, indexed

    def drop(self) -> None:
        """Away with the table, as far as that can be done: what is left of it is never read again."""
        self._table = None
        with contextlib.suppress(*_FAILURES):
            self._database().drop_table(self.name, ignore_missing=True)

    def _train(self, table: Any) -> int:
        from lancedb.index import BTree, IvfRq

        table.create_index("number", config=BTree(), replace=True)
        if self._dimension % 8 == 0:  # what the index packs its bits into
            bits = BITS_AFAR if self._place.remote else BITS
            table.create_index("vector", config=IvfRq(distance_type="dot", num_bits=bits), replace=True)
        return self._count

    def _fetched(self, table: Any, numbers: NDArray[np.int64]) -> Numbered:
        query = table.search().where(_among(numbers)).select(["number", "vector"]).limit(len(numbers))
        found = query.to_arrow()
        flat = found["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        return Numbered(found["number"].to_numpy(), flat.reshape(len(found), self._dimension))

    def _rows_of(self, vectors: Numbered) -> Any:
        _lancedb()  # says which extra is missing, where pyarrow is
        import pyarrow as pa

        flat = pa.array(vectors.matrix.ravel(), pa.float32())
        lists = pa.FixedSizeListArray.from_arrays(flat, self._dimension)
        return pa.table({"number": pa.array(vectors.numbers, pa.int64()), "vector": lists})

    def _read(self, version: int, ask: Callable[[Any], Given]) -> Given:
        """Ask the version that is held, where it is new enough; the latest where that fails."""
        with self._translated():
            table = self._held(version)
            try:
                return ask(table)
            except _FAILURES:
                table = self.latest()
                if table is None:
                    raise Lost from None
            return ask(table)

    def _held(self, version: int) -> Any:
        table = self._table
        if table is None or self._version < version:
            table = self.latest()
        if table is None or self._version < version:
            raise Lost
        return table

    def latest(self) -> Any:
        """The table as it stands now, or None."""
        with self._lock:
            if self._table is not None:
                self._table.checkout_latest()
            elif self.name in _names(self._database()):
                self._table = self._database().open_table(self.name)
            if self._table is not None:
                # Kept, because to ask for them costs more than to search.
                self._version, self._count = int(self._table.version), int(self._table.count_rows())
            return self._table

    def _database(self) -> Any:
        if not self._place.remote:  # LanceDB would make a folder that everybody may read
            Path(self._place.dataset).mkdir(mode=0o700, parents=True, exist_ok=True)
        return _lancedb().connect(self._place.dataset, storage_options=self._place.options or None)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """In a folder, whatever fails can be made again from the file; object storage may just be out of reach."""
        try:
            yield
        except _FAILURES as error:
            self._table = None
            if not self._place.remote:
                raise Lost from error
            raise StoreError(
                f"the vectors at {self._place.dataset} cannot be used: {brief(error)}",
                hint="check address, keys (AWS_ACCESS_KEY_ID, …) and region; words are searched without them",
            ) from error


def brief(error: BaseException | None) -> str:
    """What LanceDB says, without the places in its own source that it adds."""
    return str(error or "no reason given").partition("\n")[0].partition(", /")[0][:MOST_SAID]


def _names(database: Any) -> list[str]:
    names: list[str] = []
    page = None
    while True:
        answer = database.list_tables(page_token=page)
        names += answer.tables
        page = answer.page_token
        if not page:
            return names


def _among(numbers: NDArray[np.int64]) -> str:
    return f"number IN ({','.join(map(str, numbers.tolist()))})"


def _lancedb() -> Any:
    # It speaks on standard error about its own affairs; what matters comes back as an error.
    os.environ.setdefault("LANCEDB_LOG", "error")
    try:
        import lancedb
    except ImportError as error:
        raise missing_package(error, "a store with LanceDB", "lancedb") from error
    return lancedb
