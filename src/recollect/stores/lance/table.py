"""One LanceDB table of vectors, and the URL that says where it is. No other module calls LanceDB.

The table is append-only, except that purged vectors are removed. A reader holds one version of the table. It takes the
latest version if the file names a newer one, or if its own version has been cleaned up.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote

import numpy as np
from numpy.typing import NDArray

from recollect.errors import StoreError, UsageError
from recollect.registry import missing_package

if TYPE_CHECKING:
    from recollect.types import Matrix, Vector

BATCH = 2_000
"""Vectors that stay in the file before they are committed to LanceDB together. Searches compare them directly."""

INDEX_FROM = 20_000
"""Rows from which on an approximate index is built. A scan of fewer rows takes about 15 ms."""

PROBES = 32
BITS = 1
"""Bits per dimension in the index. One bit is the fastest to build and to search; candidates are measured again."""

KEPT_VERSIONS = timedelta(minutes=1)
"""How long the files of old versions are kept for open readers. A reader whose version is gone takes the latest."""

MAX_NUMBERS_PER_QUERY = 10_000
NO_LIMIT = 1_000_000_000
MAX_MESSAGE = 300
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
    def options(self) -> dict[str, str]:
        """LanceDB's options for object storage. Keys come from the environment, as usual with S3."""
        options = {"endpoint": self.endpoint, "region": self.region}
        if (self.endpoint or "").startswith("http://"):
            options["allow_http"] = "true"
        return {name: value for name, value in options.items() if value is not None}


def parse_url(url: str) -> LanceUrl:
    """Parse `lancedb://FOLDER`, or `lancedb://s3://BUCKET/PREFIX?truth=FILE`."""
    where, _, query = url.partition("://")[2].partition("?")
    parameters = dict(parse_qsl(query, keep_blank_values=True))
    unknown = [name for name in parameters if name not in _PARAMETERS]
    if unknown:
        raise UsageError(
            f"a LanceDB URL has no parameter {unknown[0]!r}; it has {', '.join(_PARAMETERS)}",
            hint="keys for object storage come from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY",
        )
    if not where:
        raise UsageError("the URL names no folder", hint=f"for example {_EXAMPLES}")
    batch = _batch(parameters.get("batch"))
    if "://" in where:
        return _remote_url(where, parameters, batch)
    folder = Path(unquote(where)).expanduser()
    if folder.is_file():
        raise UsageError(
            f"{folder} is a file; a LanceDB store is a folder", hint=f"lancedb://{folder.parent}/lance?truth={folder}"
        )
    truth = Path(parameters.get("truth") or folder / "memory.db").expanduser()
    return LanceUrl(truth, str(folder / "vectors"), batch=batch)


def _remote_url(where: str, parameters: dict[str, str], batch: int) -> LanceUrl:
    if not where.startswith("s3://"):
        raise UsageError(
            f"{where.partition('://')[0]}:// is not a supported object storage", hint=f"for example {_EXAMPLES}"
        )
    if not parameters.get("truth"):
        raise UsageError("object storage holds only vectors; the URL must name the file of the records", hint=_EXAMPLES)
    dataset, truth = where.rstrip("/"), Path(parameters["truth"]).expanduser()
    return LanceUrl(truth, dataset, True, batch, parameters.get("endpoint"), parameters.get("region"))


def _batch(value: str | None) -> int:
    if value is None:
        return BATCH
    if not value.isdecimal() or not int(value):
        raise UsageError(f"batch must be a whole number from 1, not {value!r}", hint=f"leave it out for {BATCH:,}")
    return int(value)


class NumberedVectors(NamedTuple):
    """Vectors and their numbers. A number is the key of a vector in the file and in LanceDB, and is never reused."""

    numbers: NDArray[np.int64]
    matrix: Matrix

    def only(self, which: NDArray[Any]) -> NumberedVectors:
        """Select by mask or by position."""
        return NumberedVectors(self.numbers[which], self.matrix[which])

    def joined(self, other: NumberedVectors) -> NumberedVectors:
        """Append the vectors of another."""
        numbers = np.concatenate([self.numbers, other.numbers])
        return NumberedVectors(numbers, np.concatenate([self.matrix, other.matrix]))


class TableLost(Exception):
    """The table is missing, damaged, or older than the file says. It must be built again."""


class LanceTable:
    """The vectors of one space in LanceDB, by number. Safe to use from many threads."""

    def __init__(self, url: LanceUrl, name: str, dimension: int) -> None:
        self.name = name
        self._url = url
        self._dimension = dimension
        self._lock = threading.Lock()
        self._table: Any = None
        self._version = 0
        self._count = 0

    def nearest(self, vector: Vector, count: int, version: int, *, exact: bool) -> NDArray[np.int64]:
        """Numbers of the nearest vectors, nearest first. Without `exact` the order is that of the index."""

        def query(table: Any) -> NDArray[np.int64]:
            search = table.search(vector, vector_column_name="vector").distance_type("dot")
            search = search.select(["number", "_distance"]).limit(count)
            search = search.bypass_vector_index() if exact else search.nprobes(PROBES)
            return _numbers(search.to_arrow())

        return self._read(version, query)

    def fetch(self, numbers: NDArray[np.int64], version: int) -> NumberedVectors:
        """The vectors with these numbers, in no particular order."""
        parts = np.array_split(numbers, math.ceil(len(numbers) / MAX_NUMBERS_PER_QUERY))
        return reduce(NumberedVectors.joined, [self._read(version, self._fetcher(part)) for part in parts])

    def numbers(self, version: int) -> NDArray[np.int64]:
        """All numbers in the table."""
        return _numbers(self._read(version, lambda table: table.search().select(["number"]).limit(NO_LIMIT).to_arrow()))

    def rows(self, version: int) -> int:
        """How many vectors the table has."""
        with self._translated():
            self._at_least(version)
        return self._count

    def append(self, vectors: NumberedVectors, after: int, version: int) -> int:
        """Add vectors whose numbers are above `after`, and return the new version.

        Rows above `after` that an interrupted commit left behind are removed first.
        """
        data = self._arrow(vectors)
        with self._translated():
            table = self.latest()
            if (self._version if table is not None else 0) < version:
                raise TableLost
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
            indexed = self._build_index(table) if self._count >= INDEX_FROM else 0
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
            elif self.name in _table_names(self._database()):
                self._table = self._database().open_table(self.name)
            if self._table is not None:
                # Cached: asking LanceDB for these takes longer than a search.
                self._version, self._count = int(self._table.version), int(self._table.count_rows())
            return self._table

    def _build_index(self, table: Any) -> int:
        from lancedb.index import BTree, IvfRq

        table.create_index("number", config=BTree(), replace=True)
        if self._dimension % 8 == 0:  # the index packs bits into bytes
            table.create_index("vector", config=IvfRq(distance_type="dot", num_bits=BITS), replace=True)
        return self._count

    def _fetcher(self, numbers: NDArray[np.int64]) -> Callable[[Any], NumberedVectors]:
        def fetch(table: Any) -> NumberedVectors:
            search = table.search().where(_among(numbers)).select(["number", "vector"]).limit(len(numbers))
            rows = search.to_arrow()
            flat = rows["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
            return NumberedVectors(_numbers(rows), flat.reshape(len(rows), self._dimension))

        return fetch

    def _arrow(self, vectors: NumberedVectors) -> Any:
        _lancedb()  # first, because its error names the missing extra
        import pyarrow as pa

        flat = pa.array(vectors.matrix.ravel(), pa.float32())
        lists = pa.FixedSizeListArray.from_arrays(flat, self._dimension)
        return pa.table({"number": pa.array(vectors.numbers, pa.int64()), "vector": lists})

    def _read(self, version: int, query: Callable[[Any], T]) -> T:
        """Query the open version if it is new enough; if that fails, the latest one."""
        with self._translated():
            table = self._at_least(version)
            try:
                return query(table)
            except _FAILURES:
                table = self.latest()
                if table is None:
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
        if not self._url.remote:  # LanceDB would create a folder that everybody can read
            Path(self._url.dataset).mkdir(mode=0o700, parents=True, exist_ok=True)
        return _lancedb().connect(self._url.dataset, storage_options=self._url.options or None)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """A folder that fails is built again from the file. Object storage may only be unreachable."""
        try:
            yield
        except _FAILURES as error:
            self._table = None
            if not self._url.remote:
                raise TableLost from error
            raise StoreError(
                f"the vectors at {self._url.dataset} cannot be used: {short_message(error)}",
                hint="check the address, the keys (AWS_ACCESS_KEY_ID, …) and the region; keyword search still works",
            ) from error


def short_message(error: BaseException | None) -> str:
    """LanceDB's error message without the positions in its source code."""
    return str(error or "no reason given").partition("\n")[0].partition(", /")[0][:MAX_MESSAGE]


def _numbers(rows: Any) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = rows["number"].to_numpy()
    return numbers


def _table_names(database: Any) -> list[str]:
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
    os.environ.setdefault("LANCEDB_LOG", "error")  # keeps its own messages off standard error
    try:
        import lancedb
    except ImportError as error:
        raise missing_package(error, "a store with LanceDB", "lancedb") from error
    return lancedb
