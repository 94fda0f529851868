"""A disk that loses power: what may be left of files, made from the log of what a program wrote to them.

Events are tuples, in the order in which they happened:

    ("create", name), ("write", name, offset, data), ("truncate", name, size), ("sync", name), ("delete", name)

What was written before the last sync of a file is there. Of the rest any part may be there: each write may be missing,
or only some of its sectors may have been written. A new or deleted name is certain once its folder was synced, which
SQLite does with the first sync of a new log. Events of other kinds are ignored.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, TypeAlias

SECTOR = 512
SHARES = (0.0, 0.1, 0.5, 0.9, 1.0)  # of the writes since the last sync that are there
TORN = 0.3  # of these, the share of which only some sectors are there

Event: TypeAlias = tuple[Any, ...]


class File:
    """The content of a file that is certain, and what was done since its last sync."""

    def __init__(self, content: bytes = b"") -> None:
        self.certain = bytearray(content)
        self.pending: list[Event] = []

    def sync(self) -> None:
        """Make everything certain."""
        for event in self.pending:
            _apply(self.certain, event)
        self.pending.clear()

    def after(self, chance: random.Random, counts: Counter[str]) -> bytes:
        """What a power loss may leave of it."""
        content, share = bytearray(self.certain), chance.choice(SHARES)
        for event in self.pending:
            if chance.random() >= share:
                counts["dropped"] += 1
            elif event[0] == "write" and len(event[3]) > SECTOR and chance.random() < TORN:
                counts["torn"] += 1
                for piece in _sectors(event):
                    if chance.random() < 0.5:
                        _apply(content, piece)
            else:
                _apply(content, event)
        return bytes(content)


class Disk:
    """The files of one folder."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = {name: File(content) for name, content in files.items()}
        self._certain: dict[str, File] = dict(self._files)
        self._pending: list[tuple[str, File | None]] = []

    def add(self, event: Event) -> None:
        """Note what a program did."""
        match event:
            case ("create", name):
                self._files[name] = File()
                self._pending.append((name, self._files[name]))
            case ("delete", name):
                del self._files[name]
                self._pending.append((name, None))
            case ("sync", name):
                file = self._files[name]
                file.sync()
                if any(new is file for _, new in self._pending):
                    self._certain = self._names(1.0, random.Random(0))
                    self._pending.clear()
            case ("write" | "truncate", name, *_):
                self._files[name].pending.append(event)

    def after(self, chance: random.Random, counts: Counter[str]) -> dict[str, bytes]:
        """The files that a power loss may leave; `counts` gets how many writes were dropped and torn."""
        names = self._names(chance.choice(SHARES), chance)
        return {name: file.after(chance, counts) for name, file in names.items()}

    def _names(self, share: float, chance: random.Random) -> dict[str, File]:
        names = dict(self._certain)
        for name, file in self._pending:
            if chance.random() < share:
                names.pop(name, None)
                names |= {} if file is None else {name: file}
        return names


def _apply(content: bytearray, event: Event) -> None:
    if event[0] == "truncate":
        size = event[2]
        del content[size:]
        content.extend(bytes(size - len(content)))
        return
    _, _, offset, data = event
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


def _sectors(event: Event) -> list[Event]:
    """A write as one write for each sector of the disk that it touches."""
    kind, name, offset, data = event
    ends = [*range(SECTOR - offset % SECTOR, len(data), SECTOR), len(data)]
    return [(kind, name, offset + start, data[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
