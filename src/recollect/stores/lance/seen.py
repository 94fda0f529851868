"""What may be seen, by number of vector: made once for a filter, and kept until something changes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recollect.stores.lance.numbers import WITHOUT
from recollect.stores.sqlite.visible import Visible

KEPT = 8


@dataclass(frozen=True, slots=True)
class Seen:
    """Visible rows by the number of each one's vector, rising; `numbers` has each once: equal passages share one."""

    rows: NDArray[np.int64]
    of: NDArray[np.int64]
    numbers: NDArray[np.int64]

    def scored(
        self, found: NDArray[np.int64], scores: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The rows whose vectors were found, each with its score."""
        first, end = np.searchsorted(self.of, found), np.searchsorted(self.of, found, side="right")
        count = end - first
        # Of each number the places from `first` on, one after the other.
        place = np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())
        return self.rows[place], np.repeat(scores, count)


def inside(numbers: NDArray[np.int64], held: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For each number whether it is among those held, which are rising."""
    if not len(held):
        return np.zeros(len(numbers), dtype=np.bool_)
    place = np.searchsorted(held, numbers).clip(max=len(held) - 1)
    among: NDArray[np.bool_] = held[place] == numbers
    return among


class SeenSets:
    """Keeps the last few, as long as both the visible rows and their numbers are what they were."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, int], tuple[Visible, NDArray[np.int64], Seen]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, visible: Visible, numbers: NDArray[np.int64]) -> Seen:
        """What of `visible` has a vector."""
        key = (id(visible), id(numbers))  # both are held below, so that no other can come to have their place
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][2]
        seen = _sorted(visible, numbers)
        with self._lock:
            self._kept[key] = (visible, numbers, seen)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return seen


def _sorted(visible: Visible, numbers: NDArray[np.int64]) -> Seen:
    rows = np.flatnonzero(visible.mask & (numbers[: len(visible.mask)] > WITHOUT))
    order = np.argsort(numbers[rows], kind="stable")
    rows = rows[order]
    of = numbers[rows]
    return Seen(rows, of, of[np.flatnonzero(np.diff(of, prepend=0))])
