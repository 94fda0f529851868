"""Blocks: vectors of some rows in eight bits and in single precision, in memory or mapped from a file.

A scan multiplies the vectors of eight bits, which are a quarter of the bytes. It knows how far each product may be from
the exact one, so that the exact products of a few decide.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from recollect.errors import StoreError
from recollect.stores.sqlite.segments import ALIGNED, Ints, Mask, lookup, map_arrays, without, write_arrays
from recollect.stores.sqlite.views import TAIL_FACTOR, TAIL_ROWS

LEVELS = 127  # of eight bits with a sign
ROUNDING = 1e-6  # more than the error of a product of unit vectors that were rounded to single precision
SHARE_ROWS = 32_768  # rows that one thread scans at a time; a smaller scan is not shared

Matrix = NDArray[np.float32]
Products = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Block:
    """Vectors of rows. `gone` are rows that have none any more: like `rows`, they replace what older blocks say.

    Row i of `codes` times `scales[i]` is about row i of `exact`; `error` is the longest difference of the two, and
    `longest` the length of the longest vector.
    """

    rows: Ints
    gone: Ints
    codes: NDArray[np.int8]
    scales: NDArray[np.float32]
    exact: Matrix
    longest: float = 0.0
    error: float = 0.0
    file: str = ""
    number: int = -1
    """The descriptor of the file."""

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def _by_row(self) -> tuple[Ints, Any]:
        order = np.argsort(self.rows)
        return self.rows[order], order

    @property
    def highest(self) -> int:
        """The highest row."""
        return int(self._by_row[0][-1]) if len(self.rows) else 0

    def vectors(self, places: Ints | None, *, sparing: bool = False) -> Matrix:
        """The exact vectors at some places, or all. `sparing` reads from the file: a map occupies what lies around."""
        if places is None or not sparing or self.number < 0:
            return self.exact if places is None else self.exact[places]
        width = self.exact.itemsize * self.exact.shape[1]
        start = os.fstat(self.number).st_size - -(-self.exact.nbytes // ALIGNED) * ALIGNED
        return joined((os.pread(self.number, width, start + place * width) for place in places.tolist()), width // 4)

    def find(self, rows: Ints) -> tuple[Ints, Mask]:
        """The place of each row, and whether it is here."""
        return lookup(*self._by_row, rows)


def block_of(rows: Ints, exact: Matrix, gone: Ints) -> Block:
    """The block of vectors."""
    codes, scales, errors = quantised(exact)
    longest = np.linalg.norm(exact, axis=1).max(initial=0.0)
    return Block(rows, gone, codes, scales, exact, float(longest), float(errors.max(initial=0.0)))


def quantised(vectors: Matrix) -> tuple[NDArray[np.int8], NDArray[np.float32], NDArray[np.float32]]:
    """Vectors in eight bits, the scale of each, and the length of the difference that this makes."""
    scales = np.abs(vectors).max(axis=1, initial=0.0) / LEVELS
    scales[scales == 0] = 1.0
    codes = np.rint(vectors / scales[:, None]).astype(np.int8)
    errors = np.linalg.norm(vectors - codes * scales[:, None], axis=1)
    return codes, scales.astype(np.float32), errors.astype(np.float32)


def merged_blocks(blocks: Sequence[Block], live: Sequence[Mask | None], *, first: bool) -> Block:
    """Adjacent blocks as one, without the rows that are not live. The `first` blocks of all replace nothing."""
    parts = [(each, slice(None) if mask is None else mask) for each, mask in zip(blocks, live, strict=True)]
    rows = np.concatenate([each.rows[chosen] for each, chosen in parts])
    gone = np.unique(np.concatenate([each.gone for each in blocks]))
    return Block(
        rows=rows,
        gone=np.zeros(0, dtype=np.int64) if first else np.setdiff1d(gone, rows),
        codes=np.concatenate([each.codes[chosen] for each, chosen in parts]),
        scales=np.concatenate([each.scales[chosen] for each, chosen in parts]),
        exact=np.concatenate([each.exact[chosen] for each, chosen in parts]),
        longest=max(each.longest for each in blocks),
        error=max(each.error for each in blocks),
    )


def write_block(block: Block, path: Path) -> tuple[int, int]:
    """Write a block to a new file. Returns its size and checksum."""
    arrays = {name: getattr(block, name) for name in ("rows", "gone", "codes", "scales", "exact")}
    return write_arrays(path, arrays, {"longest": block.longest, "error": block.error})


def map_block(path: Path, size: int) -> Block:
    """The block in a file."""
    arrays, extra = map_arrays(path, size)
    number = os.open(path, os.O_RDONLY) if hasattr(os, "pread") else -1
    try:
        block = Block(**arrays, longest=extra["longest"], error=extra["error"], file=path.name, number=number)
    except (TypeError, KeyError) as error:
        raise StoreError(f"{path} is damaged") from error
    if number >= 0:
        finalize(block, os.close, number)
    return block


@dataclass(frozen=True, eq=False)
class Stack:
    """All vectors of a space at one moment: of the changes up to `seq`, and of the vectors up to `number`.

    `live[i]` is None where every row of block i is live. A row is live in one block at most: the newest.
    """

    blocks: tuple[Block, ...] = ()
    live: tuple[Mask | None, ...] = ()
    seq: int = 0
    number: int = 0
    based: int = 0
    """The change up to which files go."""

    @cached_property
    def count(self) -> int:
        """How many records have a vector."""
        return sum(
            len(each) if mask is None else int(np.count_nonzero(mask))
            for each, mask in zip(self.blocks, self.live, strict=True)
        )

    @property
    def unwritten(self) -> int:
        """How many rows are in memory only."""
        return sum(len(each) + len(each.gone) for each in self.blocks if not each.file)

    def plus(self, block: Block, seq: int, number: int) -> Stack:
        """The stack with one more block, whose rows replace those of the others."""
        changed = np.concatenate([block.rows, block.gone])
        if not len(changed):
            return replace(self, seq=seq, number=number)
        live = [without(each, mask, changed) for each, mask in zip(self.blocks, self.live, strict=True)]
        return Stack((*self.blocks, block), (*live, None), seq, number, self.based)

    def condensed(self) -> Stack:
        """The stack with fewer blocks in memory: each much larger than the next."""
        stack = self
        while len(stack.blocks) > 1 and not stack.blocks[-2].file and not stack.blocks[-1].file:
            before, last = (len(each) + len(each.gone) for each in stack.blocks[-2:])
            if before >= TAIL_FACTOR * last or before + last > TAIL_ROWS:
                break
            end = len(stack.blocks)
            stack = stack.with_merged(end - 2, end, lambda block: block)
        return stack

    def with_merged(self, start: int, end: int, write: Callable[[Block], Block]) -> Stack:
        """The stack with some adjacent blocks as one, without what is not live."""
        block = merged_blocks(self.blocks[start:end], self.live[start:end], first=start == 0)
        new = [write(block)] if len(block) + len(block.gone) else []
        return replace(
            self,
            blocks=(*self.blocks[:start], *new, *self.blocks[end:]),
            live=(*self.live[:start], *(None for _ in new), *self.live[end:]),
        )


# -- scanning -----------------------------------------------------------------------------------------------


class Scan:
    """Products of one vector with those of blocks."""

    def __init__(self, vector: Matrix) -> None:
        self._exact = vector.astype(np.float64)
        self._length = float(np.linalg.norm(self._exact))
        codes, scales, errors = quantised(vector[None])
        self._codes, self._scale, self._error = codes, float(scales[0]), float(errors[0])
        # What eight bits leave of the vector, in eight bits again: so the error is that of the block alone.
        rest, rest_scales, rest_errors = quantised(vector[None] - codes * scales[:, None])
        self._both, self._both_scales = np.concatenate([codes, rest]), np.concatenate([scales, rest_scales])
        self._rest_error = float(rest_errors[0])

    def bound(self, block: Block, *, fine: bool = False) -> float:
        """How far a product of `rough`, or of `fine`, may be from the exact one."""
        error = self._rest_error if fine else self._error
        return error * block.longest + block.error * (self._length + error) + ROUNDING

    def fine(self, block: Block, chosen: Ints) -> NDArray[np.float64]:
        """Products with the chosen vectors of a block in eight bits, nearer to the exact ones than those of `rough`."""
        from simsimd import cdist

        both = np.asarray(cdist(self._both, block.codes[chosen], "dot"), dtype=np.float64).reshape(2, -1)
        products: NDArray[np.float64] = self._both_scales.astype(np.float64) @ both
        return products * block.scales[chosen]

    def rough(self, block: Block, chosen: Ints | None = None) -> Products:
        """The products in eight bits with all vectors of a block, or with the chosen ones."""
        codes = block.codes if chosen is None else block.codes[chosen]
        scales = block.scales if chosen is None else block.scales[chosen]
        products = np.empty(len(codes), dtype=np.float32)

        def multiply(start: int) -> None:
            from simsimd import cdist

            part = slice(start, start + SHARE_ROWS)
            whole = np.asarray(cdist(self._codes, codes[part], "dot")).ravel()
            np.multiply(whole, scales[part] * np.float32(self._scale), out=products[part], casting="unsafe")

        share(multiply, range(0, len(codes), SHARE_ROWS))
        return products

    def exactly(self, vectors: Matrix) -> NDArray[np.float64]:
        """The products in double precision, so that none depends on the others in the matrix."""
        products: NDArray[np.float64] = np.vecdot(vectors.astype(np.float64), self._exact)
        return products


def share(work: Callable[[int], None], starts: Sequence[int]) -> None:
    """Do pieces of work with as many threads as there are cores; SimSIMD does not hold the interpreter's lock."""
    if len(starts) > 1 and cores() > 1:
        list(_threads(os.getpid()).map(work, starts))
    else:
        for start in starts:
            work(start)


@cache
def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _threads(process: int) -> ThreadPoolExecutor:  # noqa: ARG001  (a forked process has no thread of its parent's)
    return ThreadPoolExecutor(cores(), thread_name_prefix="recollect-scan")


def joined(vectors: Iterable[bytes], dimension: int) -> Matrix:
    """Stored vectors as one matrix."""
    return np.frombuffer(b"".join(vectors), dtype="<f4").reshape(-1, dimension).astype(np.float32, copy=False)
