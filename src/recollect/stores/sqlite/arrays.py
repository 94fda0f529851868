"""Files of arrays: written once, synced, and mapped into memory by every process that reads them."""

from __future__ import annotations

import json
import mmap
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from recollect.errors import StoreError

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAGIC = b"RCLT index 1\n\0\0\0"
ALIGNED = 64  # bytes: each array of a file begins at a multiple of it
GROUPED = 16  # scores of which the highest is chosen before the best are looked for

Array: TypeAlias = "NDArray[Any]"


def write_arrays(path: Path, arrays: Mapping[str, Array], extra: Mapping[str, Any]) -> tuple[int, int]:
    """Write a file that only its owner can read, and sync it. Returns its size and checksum."""
    at, described = 0, {}
    for name, array in arrays.items():
        described[name] = (array.dtype.str, array.shape, at)
        at += -(-array.nbytes // ALIGNED) * ALIGNED
    header = json.dumps({"arrays": described, "extra": extra}, ensure_ascii=False).encode()
    start = len(MAGIC) + 8 + len(header)
    head = MAGIC + len(header).to_bytes(8, "little") + header + bytes(-start % ALIGNED)
    size, checksum = len(head), zlib.crc32(head)
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(head)
            for array in arrays.values():
                raw = np.ascontiguousarray(array).data.cast("B") if array.nbytes else memoryview(b"")
                for part in (raw, bytes(-len(raw) % ALIGNED)):
                    file.write(part)
                    size, checksum = size + len(part), zlib.crc32(part, checksum)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:  # on a full disk each attempt would leave a part of a file
        path.unlink(missing_ok=True)
        raise
    return size, checksum


def map_arrays(path: Path, size: int) -> tuple[dict[str, Array], dict[str, int], dict[str, Any]]:
    """The arrays of a file, mapped into memory, where in the file each begins, and what else its header says."""
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    length = int.from_bytes(mapped[len(MAGIC) : len(MAGIC) + 8], "little")
    start = len(MAGIC) + 8 + length
    if len(mapped) != size or mapped[: len(MAGIC)] != MAGIC or start > size:
        raise StoreError(f"{path} is damaged")
    header = json.loads(mapped[len(MAGIC) + 8 : start])
    start += -start % ALIGNED
    starts = {name: start + at for name, (_, _, at) in header["arrays"].items()}
    arrays = {
        name: np.frombuffer(mapped, dtype, size, starts[name]).reshape(shape) if size else np.zeros(shape, dtype)
        for name, (dtype, shape, _) in header["arrays"].items()
        for size in (int(np.prod(shape)),)
    }
    return arrays, starts, header["extra"]


def read_pieces(number: int, pieces: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    """Pieces of an open file, by their start and length. A map occupies what lies around each of them, too: 64 kB."""
    if hasattr(os, "posix_fadvise"):
        for start, length in pieces:  # so that the system fetches all pages that it lacks together
            os.posix_fadvise(number, start, length, os.POSIX_FADV_WILLNEED)
    return (os.pread(number, length, start) for start, length in pieces)


def checksum_of(path: Path) -> int:
    """The checksum of a file, as `write_arrays` returned it."""
    checksum = 0
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            checksum = zlib.crc32(part, checksum)
    return checksum


def score_threshold(scores: Array, count: int) -> Any:
    """A value that at least `count` scores reach, and few more: so none below it is among the first `count`."""
    highest = scores[: len(scores) // GROUPED * GROUPED].reshape(GROUPED, -1).max(axis=0)  # of groups
    highest = highest if len(highest) > count else scores
    return np.partition(highest, len(highest) - count)[len(highest) - count]
