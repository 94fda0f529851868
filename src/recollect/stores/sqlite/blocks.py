"""Blocks: vectors of some rows in eight bits and in single precision, in memory or mapped from a file.

A scan multiplies the vectors of eight bits, which are a quarter of the bytes. It knows how far each product may be from
the exact one, so that the exact products of a few decide.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import finalize

import numpy as np

from recollect.dataclass import dataclass
from recollect.errors import StoreError
from recollect.stores.sqlite.arrays import map_arrays, read_pieces, write_arrays
from recollect.stores.sqlite.segments import Ints, Mask, RowArrays
from recollect.stores.sqlite.views import Layers

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from numpy.typing import NDArray

LEVELS = 127  # of eight bits with a sign
HEAD_STEP = 64  # bytes: the heads of vectors have a multiple of it, which processors multiply best
LEARNED_ROWS = 8_192  # vectors from which their axes are learned
MOST_LEARNED = 20_000  # vectors that these are learned from
HEAD_SHARE = 0.8  # the share of vectors (of the squares of their lengths) that the heads must hold
ROUNDING = 1e-5  # more than the error of a product of unit vectors that were rotated in single precision
PIECE_ROWS = 16_384  # rows that one thread scans at a time
SHARED_ROWS = 32_768  # rows from which a scan is shared by threads

Matrix: TypeAlias = "NDArray[np.float32]"
Codes: TypeAlias = "NDArray[np.int8]"
Products: TypeAlias = "NDArray[np.float32]"


@dataclass(frozen=True, eq=False)
class Axes:
    """The axes that vectors are turned to before they are stored in eight bits, as the rows of an orthogonal matrix.

    The first `head` of them hold most of the vectors, so that a scan of these finds those that may be nearest. Equal
    axes have the same `key`.
    """

    matrix: Matrix
    head: int
    key: str = ""

    def coded(self, vectors: Matrix) -> tuple[Codes, Codes, Matrix, Matrix]:
        """Vectors in eight bits, heads and tails; the scales of both; and the lengths of the rounding errors."""
        parts = np.split(vectors @ self.matrix.T, [self.head], axis=1)
        (head, scale, error), (tail, further_scale, further_error) = map(_rounded, parts)
        return head, tail, np.stack([scale, further_scale]), np.hypot(error, further_error)


def _rounded(turned: Matrix) -> tuple[Codes, Matrix, Matrix]:
    """Numbers in eight bits, a scale for each row, and the length of the difference."""
    scales = np.abs(turned).max(axis=1, initial=0.0) / LEVELS
    scales[scales == 0] = 1.0
    rounded = np.rint(turned / scales[:, None])
    errors = np.linalg.norm(turned - rounded * scales[:, None], axis=1)
    return rounded.astype(np.int8), scales.astype(np.float32), errors.astype(np.float32)


@cache
def mixed(dimension: int) -> Matrix:
    """An orthogonal matrix, a cosine transform after changes of sign, that spreads large components over all.

    Models give a few components large values. Without them the step of the eight bits is about a third as wide.
    """
    steps = np.arange(dimension)
    waves = np.cos(np.arange(4 * dimension) * (np.pi / (2 * dimension))) * np.sqrt(2 / dimension)
    matrix = waves[np.outer(steps, 2 * steps + 1) % (4 * dimension)]
    matrix[:1] *= np.sqrt(0.5)
    signs = np.frombuffer(hashlib.shake_128(b"signs").digest(dimension), dtype=np.uint8) % 2
    turned: Matrix = (matrix * (2.0 * signs - 1)).astype(np.float32)
    return turned


@cache
def plain_axes(dimension: int) -> Axes:
    """Axes for vectors of which too little is known: all of them are the head."""
    return Axes(mixed(dimension), dimension)


def learned_axes(vectors: Matrix, blocks: Sequence[Block]) -> Axes | None:
    """Axes of which the first third holds most of these vectors: those of a block, or new ones; None if there are none.

    Few vectors say little, and get those of a block.
    """
    sample = vectors[:: -(-len(vectors) // MOST_LEARNED)] if len(vectors) else vectors
    whole = np.square(sample).sum()
    for axes in [each.axes for each in blocks if each.axes.key][:1]:
        if len(vectors) < LEARNED_ROWS or np.square(sample @ axes.matrix[: axes.head].T).sum() >= HEAD_SHARE * whole:
            return axes
    dimension = vectors.shape[1]
    head = dimension // 3 // HEAD_STEP * HEAD_STEP
    if len(vectors) < LEARNED_ROWS or not head:
        return None
    values, directions = np.linalg.eigh(sample.T.astype(np.float64) @ sample)  # rising
    if values[-head:].sum() < HEAD_SHARE * whole:
        return None
    parts = mixed(head) @ directions[:, -head:].T, mixed(dimension - head) @ directions[:, :-head].T
    matrix = np.concatenate(parts).astype(np.float32)
    return Axes(matrix, head, hashlib.blake2b(matrix.tobytes(), digest_size=16).hexdigest())


@dataclass(frozen=True, eq=False)
class Block(RowArrays):
    """Vectors of rows. `gone` are rows that have none any more: like `rows`, they replace what older blocks say.

    Row i of `head` times `scales[0, i]` and row i of `tail` times `scales[1, i]` are about row i of `exact`, turned to
    the `axes`; `error` is the longest difference of the two, and `longest` the length of the longest vector.
    """

    rows: Ints
    gone: Ints
    head: Codes
    tail: Codes
    scales: Matrix
    exact: Matrix
    axes: Axes
    longest: float = 0.0
    error: float = 0.0
    file: str = ""
    start: int = 0
    """Where `exact` begins in the file."""
    number: int = -1
    """The descriptor of the file."""

    def vectors(self, places: Ints | None, *, sparing: bool = False) -> Matrix:
        """The exact vectors at some places, or all. `sparing` reads them from the file."""
        if places is None or not sparing or self.number < 0:
            return self.exact if places is None else self.exact[places]
        width = self.exact.itemsize * self.exact.shape[1]
        pieces = [(self.start + place * width, width) for place in places.tolist()]
        return joined(read_pieces(self.number, pieces), width // 4)


def block_of(rows: Ints, exact: Matrix, gone: Ints, axes: Axes | None = None) -> Block:
    """The block of vectors, with plain axes or others."""
    axes = axes or plain_axes(exact.shape[1])
    head, tail, scales, errors = axes.coded(exact)
    longest = np.linalg.norm(exact, axis=1).max(initial=0.0)
    return Block(rows, gone, head, tail, scales, exact, axes, float(longest), float(errors.max(initial=0.0)))


def merged_blocks(blocks: Sequence[Block], live: Sequence[Mask | None], *, first: bool) -> Block:
    """Adjacent blocks as one, without the rows that are not live. The `first` blocks of all replace nothing."""
    parts = [(each, slice(None) if mask is None else mask) for each, mask in zip(blocks, live, strict=True)]
    rows = np.concatenate([each.rows[chosen] for each, chosen in parts])
    gone = np.unique(np.concatenate([each.gone for each in blocks]))
    gone = np.zeros(0, dtype=np.int64) if first else np.setdiff1d(gone, rows)
    exact = np.concatenate([each.exact[chosen] for each, chosen in parts])
    if len({each.axes.key for each in blocks}) > 1:
        return block_of(rows, exact, gone, learned_axes(exact, blocks))
    return Block(
        rows=rows,
        gone=gone,
        head=np.concatenate([each.head[chosen] for each, chosen in parts]),
        tail=np.concatenate([each.tail[chosen] for each, chosen in parts]),
        scales=np.concatenate([each.scales[:, chosen] for each, chosen in parts], axis=1),
        exact=exact,
        axes=blocks[0].axes,
        longest=max(each.longest for each in blocks),
        error=max(each.error for each in blocks),
    )


def write_block(block: Block, path: Path) -> tuple[int, int]:
    """Write a block to a new file. Returns its size and checksum."""
    arrays = {name: getattr(block, name) for name in ("rows", "gone", "head", "tail", "scales", "exact")}
    if block.axes.key:
        arrays["axes"] = block.axes.matrix
    return write_arrays(path, arrays, {"longest": block.longest, "error": block.error, "key": block.axes.key})


def map_block(path: Path, size: int) -> Block:
    """The block in a file."""
    arrays, starts, extra = map_arrays(path, size)
    try:
        matrix, key, (_, dimension) = arrays.pop("axes", None), extra.pop("key"), arrays["exact"].shape
        axes = plain_axes(dimension) if matrix is None else Axes(matrix, arrays["head"].shape[1], key)
        block = Block(**{**arrays, **extra, "axes": axes, "file": path.name, "start": starts["exact"]})
    except (TypeError, KeyError) as error:
        raise StoreError(f"{path} is damaged") from error
    if hasattr(os, "pread"):
        block = replace(block, number=os.open(path, os.O_RDONLY))
        finalize(block, os.close, block.number)
    return block


@dataclass(frozen=True, eq=False)
class Stack(Layers[Block]):
    """All vectors of a space at one moment: of the changes up to `seq`, and of the vectors up to `number`."""

    number: int = 0

    merge = staticmethod(merged_blocks)

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self.parts


# -- scanning -----------------------------------------------------------------------------------------------


class Scan:
    """Products of one vector with those of blocks."""

    def __init__(self, vector: Matrix) -> None:
        self._vector = vector
        self._exact = vector.astype(np.float64)
        self._coded: dict[str, tuple[Codes, Codes, Matrix, Matrix]] = {}

    def _turned(self, axes: Axes) -> tuple[Codes, Codes, Matrix, Matrix]:
        """The vector in eight bits, as `Axes.coded` returns it."""
        if axes.key not in self._coded:
            self._coded[axes.key] = axes.coded(self._vector[None])
        return self._coded[axes.key]

    def bound(self, block: Block) -> float:
        """How far a product of `rough` may be from the exact one."""
        length, error = float(np.linalg.norm(self._exact)), float(self._turned(block.axes)[3][0])
        return error * block.longest + block.error * (length + error) + ROUNDING * length * block.longest

    def rough(self, parts: Sequence[tuple[Block, Ints | None]], *, heads: bool = False) -> Products:
        """The products in eight bits with the vectors at some places of blocks, or all, one block after the other.

        With `heads`, the products with the heads of the vectors alone.
        """
        counts = [len(block if places is None else places) for block, places in parts]
        starts = np.cumsum([0, *counts]).tolist()
        products = np.empty(starts[-1], dtype=np.float32)
        pieces = [
            (block, places, slice(at, min(at + PIECE_ROWS, count)), start)
            for (block, places), count, start in zip(parts, counts, starts, strict=False)
            for at in range(0, count, PIECE_ROWS)
        ]

        def multiply(block: Block, places: Ints | None, piece: slice, start: int) -> None:
            chosen: Any = piece if places is None else places[piece]
            out = products[start + piece.start : start + piece.stop]
            self._multiply(block, chosen, 0, out)
            if not heads:
                self._multiply(block, chosen, 1, out)

        share(multiply, pieces, shared=len(products) >= SHARED_ROWS)
        return products

    def add_tails(self, block: Block, places: Ints | None, products: Products) -> None:
        """Add the products with the tails of some vectors to those with their heads."""
        self._multiply(block, places, 1, products)

    def _multiply(self, block: Block, chosen: Any, half: int, out: Products) -> None:
        """Set products with the heads of vectors, or add those with their tails."""
        from simsimd import cdist

        turned, codes = self._turned(block.axes), (block.head, block.tail)[half]
        if not codes.shape[1]:
            return
        whole = np.asarray(cdist(turned[half], codes[chosen], "dot")).ravel()
        scales = block.scales[half][chosen] * turned[2][half, 0]
        if half:
            out += whole * scales
        else:
            np.multiply(whole, scales, out=out, casting="unsafe")

    def exactly(self, vectors: Matrix) -> NDArray[np.float64]:
        """The products in double precision, so that none depends on the others in the matrix."""
        products: NDArray[np.float64] = np.vecdot(vectors.astype(np.float64), self._exact)
        return products


def share(work: Callable[..., None], pieces: Sequence[tuple[Any, ...]], *, shared: bool) -> None:
    """Do pieces of work, in as many threads as there are cores; SimSIMD does not hold the interpreter's lock."""
    if shared and len(pieces) > 1 and cores() > 1:
        list(_threads(os.getpid()).map(lambda piece: work(*piece), pieces))
    else:
        for piece in pieces:
            work(*piece)


@cache
def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _threads(process: int) -> Executor:  # noqa: ARG001  (a forked process has no thread of its parent's)
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(cores(), thread_name_prefix="recollect-scan")


def joined(vectors: Iterable[bytes], dimension: int) -> Matrix:
    """Stored vectors as one matrix."""
    return np.frombuffer(b"".join(vectors), dtype="<f4").reshape(-1, dimension).astype(np.float32, copy=False)
