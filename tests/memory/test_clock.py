"""A clock that is set a year ahead and back again: every record is there, and the order of changes is their own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from recollect import Memory
from recollect.types import records


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[timedelta], None]:
    """Sets the clock of the package by so much."""
    original, state = records.now, {"ahead": timedelta()}
    for name, module in list(sys.modules.items()):
        if name.startswith("recollect") and getattr(module, "now", None) is original:
            monkeypatch.setattr(module, "now", lambda: datetime.now(UTC) + state["ahead"])
    return lambda by: state.update(ahead=by)


def test_clock_ahead_and_back_loses_nothing(
    memory: Memory, set_clock: Callable[[timedelta], None], tmp_path: Path
) -> None:
    """Supersession, undo, expiry and an index run, half of them in the wrong year."""
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.md").write_text("The boat is blue.")
    first = memory.add("The office closes at nine.")
    set_clock(timedelta(days=365))
    late = memory.add("The heron is back.", expires_at="2d")
    second = memory.supersede(first.id, text="The office closes at ten.")
    memory.index(notes)
    set_clock(timedelta())
    third = memory.supersede(second.id, text="The office closes at eleven.")
    (notes / "a.md").write_text("The boat is green.")
    memory.index(notes)
    texts = {result.record.text for result in memory.search("office boat heron closes", limit=20).results}
    assert "The boat is green." in texts
    assert "The boat is blue." not in texts
    assert late.text in texts
    assert memory.get(first.id).superseded_by == second.id
    assert memory.undo(second.id)[0] == "supersede"
    assert memory.get(third.id) is None
    assert [event.action for event in memory.history(first.id)][:2] == ["add", "supersede"]
    assert memory.undo(first.id)[0] == "supersede"
    assert memory.get(first.id).superseded_by is None
    assert first.text in {record.text for record in memory.list()}
