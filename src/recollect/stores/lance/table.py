"""One LanceDB table of vectors, and the URL that says where it is. No other module calls LanceDB."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote

import apsw
import numpy as np
from numpy.typing import NDArray

from recollect.errors import StoreError, UsageError
from recollect.network.addresses import check_host, host_of
from recollect.network.calls import record
from recollect.registry import missing_package
from recollect.stores.sqlite.blocks import joined
from recollect.types import Matrix, Vector

BATCH = 2_000  # vectors that are committed to LanceDB together; until then they are compared in the file
INDEX_FROM = 20_000  # rows from which on an approximate index is built. A scan of fewer rows takes about 15 ms.
PROBES = 32
BITS = 1  # per dimension in the index: the fastest to build and to search, since candidates are measured again
KEPT_VERSIONS = timedelta(minutes=1)  # how long open readers find the files of old versions; then they take the latest
NO_LIMIT = 1_000_000_000
MAX_MESSAGE = 300
PURPOSE = "store"  # of connections to object storage, where calls are counted

_FAILURES = (RuntimeError, ValueError, OSError)
_PARAMETERS = ("truth", "batch", "endpoint", "region")
_EXAMPLES = "lancedb:///home/ada/memory, or lancedb://s3://bucket/prefix?truth=/home/ada/memory.db"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LanceUrl:
    """The SQLite file, the LanceDB dataset that belongs to it, and how to reach the dataset."""

    truth: Path
    dataset: str
    remote: bool = False
    batch: int = BATCH
    endpoint: str | None = None
    region: str | None = None

    @property
    def host(self) -> str:
        """The server of the object storage; without an endpoint, the bucket, whose server LanceDB chooses."""
        return host_of(self.endpoint or "") or self.dataset.partition("/")[2].strip("/").partition("/")[0]

    @property
    def options(self) -> dict[str, str]:
        """LanceDB's options for object storage. Keys come from the environment, as usual with S3."""
        options = {"endpoint": self.endpoint, "region": self.region}
        if (self.endpoint or "").startswith("http://"):
            options["allow_http"] = "true"
        return {name: value for name, value in options.items() if value is not None}


def parse_url(url: str) -> LanceUrl:
    """Parse `lancedb://FOLDER`, or `lancedb://s3://BUCKET/PREFIX?truth=FILE`."""
    where, _, query = url.partition("://")[2].partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options.keys() - set(_PARAMETERS):
        hint = "keys for object storage come from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"
        raise UsageError(f"a LanceDB URL has no parameter {name!r}; it has {', '.join(_PARAMETERS)}", hint=hint)
    if not where:
        raise UsageError("the URL names no folder", hint=f"for example {_EXAMPLES}")
    batch, truth = options.get("batch", str(BATCH)), options.get("truth")
    if not batch.isdecimal() or not int(batch):
        raise UsageError(f"batch must be a whole number from 1, not {batch!r}", hint=f"leave it out for {BATCH:,}")
    scheme, remote, _ = where.partition("://")
    if not remote:
        folder = Path(unquote(where)).expanduser()
        if folder.is_file():
            hint = f"lancedb://{folder.parent}/lance?truth={folder}"
            raise UsageError(f"{folder} is a file; a LanceDB store is a folder", hint=hint)
        return LanceUrl(Path(truth or folder / "memory.db").expanduser(), str(folder / "vectors"), batch=int(batch))
    if scheme != "s3":
        raise UsageError(f"{scheme}:// is not a supported object storage", hint=f"for example {_EXAMPLES}")
    if not truth:
        raise UsageError("object storage holds only vectors; the URL must name the file of the records", hint=_EXAMPLES)
    place = Path(truth).expanduser()
    return LanceUrl(place, where.rstrip("/"), True, int(batch), options.get("endpoint"), options.get("region"))


class NumberedVectors(NamedTuple):
    """Vectors and their numbers. A number is the key of a vector in the file and in LanceDB, and is never reused."""

    numbers: NDArray[np.int64]
    matrix: Matrix

    @classmethod
    def read(
        cls, connection: apsw.Connection, dimension: int, condition: str, values: tuple[Any, ...]
    ) -> NumberedVectors:
        """The vectors of the file that meet a condition."""
        rows: Any = connection.execute(f"SELECT number, vector FROM embeddings WHERE {condition}", values).fetchall()
        numbers = np.array([number for number, _ in rows], dtype=np.int64)
        return cls(numbers, joined((vector for _, vector in rows), dimension))

    @classmethod
    def above(
        cls, connection: apsw.Connection, space: int, dimension: int, number: int, limit: int = -1
    ) -> NumberedVectors:
        """The vectors of a space above a number, in ascending order."""
        condition = "number > ? AND +space = ? ORDER BY number LIMIT ?"  # the plus: not by the index on space
        return cls.read(connection, dimension, condition, (number, space, limit))

    def only(self, which: NDArray[Any]) -> NumberedVectors:
        """Select by mask or by position."""
        return NumberedVectors(self.numbers[which], self.matrix[which])


class TableLost(Exception):
    """The table is missing, damaged, or older than the file says. It must be built again."""


class LanceTable:
    """The vectors of one space in LanceDB, by number. Safe to use from many threads."""

    def __init__(self, url: LanceUrl, name: str, dimension: int) -> None:
        self.name, self._url, self._dimension = name, url, dimension
        self._lock = threading.Lock()
        self._table: Any = None
        self._version = self._count = 0

    def nearest(self, vector: Vector, count: int, version: int, *, exact: bool) -> NDArray[np.int64]:
        """Numbers of the nearest vectors, nearest first. Without `exact` the order is that of the index."""

        def query(table: Any) -> NDArray[np.int64]:
            search = table.search(vector, vector_column_name="vector").distance_type("dot")
            search = search.select(["number", "_distance"]).limit(count)
            search = search.bypass_vector_index() if exact else search.nprobes(PROBES)
            return _numbers(search.to_arrow())

        return self._read(version, query)

    def numbers(self, version: int) -> NDArray[np.int64]:
        return _numbers(self._read(version, lambda table: table.search().select(["number"]).limit(NO_LIMIT).to_arrow()))

    def rows(self, version: int) -> int:
        with self._translated():
            self._at_least(version)
        return self._count

    def append(self, vectors: NumberedVectors, after: int, version: int) -> int:
        """Add vectors whose numbers are above `after`, and return the new version.

        Rows above `after` that an interrupted commit left behind are removed first.
        """
        with self._translated():
            table = self.latest()
            if (self._version if table is not None else 0) < version:
                raise TableLost
            import pyarrow as pa

            lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.matrix.ravel(), pa.float32()), self._dimension)
            data = pa.table({"number": pa.array(vectors.numbers, pa.int64()), "vector": lists})
            if table is None:
                self._table = self._database().create_table(self.name, data=data)
            else:
                if table.count_rows(f"number > {after}"):
                    table.delete(f"number > {after}")
                table.add(data)
            self.latest()
            return self._version

    def optimize(self) -> tuple[int, int]:
        """Merge small files and rebuild the index; return the version and the number of indexed rows.

        An index that only grows keeps its first partitions. Building a new one takes seconds.
        """
        with self._translated():
            table = self.latest()
            if table is None:
                raise TableLost
            for index in table.list_indices():
                table.drop_index(index.name)
            table.optimize(cleanup_older_than=KEPT_VERSIONS)
            indexed = self._count if self._count >= INDEX_FROM else 0
            if indexed:
                from lancedb.index import BTree, IvfRq

                table.create_index("number", config=BTree(), replace=True)
                if self._dimension % 8 == 0:  # the index packs bits into bytes
                    table.create_index("vector", config=IvfRq(distance_type="dot", num_bits=BITS), replace=True)
            self.latest()
            return self._version, indexed

    def drop(self) -> None:
        """Delete the table if possible. Nothing reads it again if it stays."""
        self._table = None
        with contextlib.suppress(*_FAILURES):
            self._database().drop_table(self.name, ignore_missing=True)

    def latest(self) -> Any:
        """LanceDB's table at its latest version, or None."""
        with self._lock:
            if self._table is not None:
                self._table.checkout_latest()
            elif self.name in (database := self._database()).list_tables(limit=NO_LIMIT).tables:
                self._table = database.open_table(self.name)
            if self._table is not None:
                # Cached: asking LanceDB for these takes longer than a search.
                self._version, self._count = int(self._table.version), int(self._table.count_rows())
            return self._table

    def _read(self, version: int, query: Callable[[Any], T]) -> T:
        """Query the open version if it is new enough; if that fails, the latest one."""
        with self._translated():
            table = self._at_least(version)
            try:
                return query(table)
            except _FAILURES:
                if (table := self.latest()) is None:
                    raise TableLost from None
                return query(table)

    def _at_least(self, version: int) -> Any:
        table = self._table
        if table is None or self._version < version:
            table = self.latest()
        if table is None or self._version < version:
            raise TableLost
        return table

    def _database(self) -> Any:
        if self._url.remote:
            check_host(self._url.host, PURPOSE)
            record(self._url.host, PURPOSE, calls=1, sent=None, received=None)
        os.environ.setdefault("LANCEDB_LOG", "error")  # keeps its own messages off standard error
        try:
            import lancedb
        except ImportError as error:
            raise missing_package(error, "a store with LanceDB", "lancedb") from error
        if not self._url.remote:  # LanceDB would create a folder that everybody can read
            Path(self._url.dataset).mkdir(mode=0o700, parents=True, exist_ok=True)
        return lancedb.connect(self._url.dataset, storage_options=self._url.options or None)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """A folder that fails is built again from the file. Object storage may only be unreachable."""
        try:
            yield
        except _FAILURES as error:
            self._table = None
            if not self._url.remote:
                raise TableLost from error
            message = f"the vectors at {self._url.dataset} cannot be used: {short_message(error)}"
            hint = "check the address, the keys (AWS_ACCESS_KEY_ID, …) and the region; keyword search still works"
            raise StoreError(message, hint=hint) from error


def short_message(error: BaseException | None) -> str:
    """LanceDB's error message without the positions in its source code."""
    return str(error or "no reason given").partition("\n")[0].partition(", /")[0][:MAX_MESSAGE]


def _numbers(rows: Any) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = rows["number"].to_numpy()
    return numbers
