"""Where a store is: its URL, read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from recollect.errors import UsageError

BATCH = 2_000
"""Vectors that wait in the file before they are committed to LanceDB together. What waits is searched too."""

_PARTS = ("truth", "batch", "endpoint", "region")
_FORMS = "lancedb:///home/ada/memory, or lancedb://s3://bucket/prefix?truth=/home/ada/memory.db"


@dataclass(frozen=True, slots=True)
class Place:
    """The SQLite file, the Lance dataset that goes with it, and how to reach that."""

    truth: Path
    dataset: str
    remote: bool = False
    batch: int = BATCH
    endpoint: str | None = None
    region: str | None = None

    @property
    def options(self) -> dict[str, str]:
        """What LanceDB is told of object storage. Keys come from the environment, as everywhere with S3."""
        told = {"endpoint": self.endpoint, "region": self.region}
        if (self.endpoint or "").startswith("http://"):
            told["allow_http"] = "true"
        return {name: value for name, value in told.items() if value is not None}


def read_place(url: str) -> Place:
    """The place that a URL names: `lancedb://` and a folder, or an address on object storage and the file beside it."""
    where, _, query = url.partition("://")[2].partition("?")
    said = dict(parse_qsl(query, keep_blank_values=True))
    unknown = [name for name in said if name not in _PARTS]
    if unknown:
        raise UsageError(
            f"a LanceDB store has no {unknown[0]!r}; it has {', '.join(_PARTS)}",
            hint="keys for object storage come from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY",
        )
    if not where:
        raise UsageError("the URL names no folder", hint=f"for example {_FORMS}")
    batch = _batch(said.get("batch"))
    if "://" in where:
        return _remote(where, said, batch)
    folder = Path(unquote(where)).expanduser()
    if folder.is_file():
        raise UsageError(
            f"{folder} is a file; a LanceDB store is a folder", hint=f"lancedb://{folder.parent}/lance?truth={folder}"
        )
    return Place(Path(said.get("truth") or folder / "memory.db").expanduser(), str(folder / "vectors"), batch=batch)


def _remote(where: str, said: dict[str, str], batch: int) -> Place:
    if not where.startswith("s3://"):
        raise UsageError(f"{where.partition('://')[0]}:// is not known as object storage", hint=f"for example {_FORMS}")
    if not said.get("truth"):
        raise UsageError("on object storage are vectors only; the URL must name the file of the records", hint=_FORMS)
    dataset, truth = where.rstrip("/"), Path(said["truth"]).expanduser()
    return Place(truth, dataset, True, batch, said.get("endpoint"), said.get("region"))


def _batch(said: str | None) -> int:
    if said is None:
        return BATCH
    if not said.isdecimal() or not int(said):
        raise UsageError(f"batch must be a whole number from 1, not {said!r}", hint=f"leave it out for {BATCH:,}")
    return int(said)
