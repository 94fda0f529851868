"""Segments that two processes build: the same as those of one, whatever happens to the second."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recollect import Memory
from recollect.analysis import Analyzer
from recollect.stores.sqlite import builder, index
from recollect.stores.sqlite.segments import ARRAYS, Ints, Segment, build

COLUMNS = (None, None, None, 0.5, None, 0, None, None, None, bytes(16), None, 0, None)
ROWS = np.arange(40)
PARTS = np.array_split(ROWS, 4)


def select(rows: Ints) -> Iterable[tuple[Any, ...]]:
    """Records with titles and without, some of them not in ASCII."""
    return [(row, "fact", f"Note {row}" * (row % 2), f"the heron {row} fliegt über {row}", *COLUMNS) for row in rows]


def as_lists(segment: Segment) -> dict[str, Any]:
    return {name: getattr(segment, name).tolist() for name in ARRAYS} | {"names": segment.names}


def assert_same(built: Iterable[tuple[Ints, Segment]]) -> None:
    """The parts are those of `PARTS`, and the segments those that this process builds."""
    found = [(part.tolist(), as_lists(segment)) for part, segment in built]
    assert found == [(part.tolist(), as_lists(build(select(part), Analyzer()))) for part in PARTS]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Segment | None]:
    """What the second process returned."""
    returned, receive = list[Segment | None](), builder.Helper.receive

    def noted(self: builder.Helper) -> Segment | None:
        returned.append(receive(self))
        return returned[-1]

    monkeypatch.setattr(builder.Helper, "receive", noted)
    return returned


def test_two_processes_build_the_same_as_one(asked: list[Segment | None]) -> None:
    """Every other segment comes from the second process."""
    assert_same(builder.segments(PARTS, select, Analyzer()))
    assert [segment is not None for segment in asked] == [True, True]


def test_second_process_that_ends_is_done_without(asked: list[Segment | None], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed after it got records; this process builds those, and all others."""
    send = builder.Helper.send

    def killed(self: builder.Helper, records: Iterable[Any]) -> bool:
        sent = send(self, records)
        if self._process:
            self._process.kill()
        return sent

    monkeypatch.setattr(builder.Helper, "send", killed)
    assert_same(builder.segments(PARTS, select, Analyzer()))
    assert asked == [None]


def test_second_process_that_cannot_be_started_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a program that is no Python, or where no more processes are allowed."""
    monkeypatch.setattr(builder.sys, "executable", "/nowhere/python")
    assert_same(builder.segments(PARTS, select, Analyzer()))


def test_large_texts_are_not_sent(asked: list[Segment | None], monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be in memory three times."""
    monkeypatch.setattr(builder, "MOST_CHARACTERS", 20)
    assert_same(builder.segments(PARTS, select, Analyzer()))
    assert asked == []


@pytest.mark.parametrize("batch", [16, 64])
def test_store_answers_alike(
    tmp_path: Path, asked: list[Segment | None], monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """A load that two processes index, as several segments or as one, is searched like any other."""
    with Memory.open(tmp_path / "memory.db", embedder="none") as memory:
        ids = [record.id for record in memory.add_many([{"text": f"the heron {n}"} for n in range(40)])]
        memory.forget(ids[3])
        expected = [(one.record.id, one.score) for one in memory.search("heron 7", limit=50).results]
        memory.store.keywords.index.discard()
        monkeypatch.setattr(index, "SHARED_ROWS", 32)
        monkeypatch.setattr(index, "START_ROWS", 8)
        monkeypatch.setattr(index, "BATCH_ROWS", batch)
        monkeypatch.setattr(index, "cores", lambda: 2)
        assert [(one.record.id, one.score) for one in memory.search("heron 7", limit=50).results] == expected
    assert len(expected) == 39
    assert all(asked)
    assert len(asked) == (2 if batch == 16 else 1)
