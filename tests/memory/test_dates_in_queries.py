"""A time in a question favours records of that time, and says so; a time in a flag may be words."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from recollect import Memory
from recollect.config import Settings
from recollect.errors import UsageError
from recollect.memory.shapes import answer_dict
from recollect.types import now


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    """Two decisions that are equal but for their time, and one about something else."""
    with Memory.open(tmp_path / "memory.db", embedder="none", settings=Settings()) as memory:
        week = timedelta(weeks=1)
        memory.add("We decided on the red map supplier.", id="old", happened_at=now() - 30 * week)
        memory.add("We decided on the blue map supplier.", id="last", happened_at=now() - week)
        memory.add("A walk to the lake.", id="walk", happened_at=now() - week)
        yield memory


def found(memory: Memory, query: str, **options: object) -> list[str]:
    return [result.record.id for result in memory.search(query, **options).results]


def test_time_in_a_question_favours_and_never_filters(memory: Memory) -> None:
    """The record of that time comes first, the other is still there, and the answer says what was favoured."""
    then = (now() - timedelta(weeks=30)).strftime("%B %Y")
    assert found(memory, f"which map supplier did we decide on in {then}?") == ["old", "last"]
    assert found(memory, "which map supplier did we decide on last week?") == ["last", "old"]
    answer = memory.search("which map supplier did we decide on last week?")
    assert answer_dict(answer)["trace"]["favours"].endswith("(last week)")
    factors = {result.record.id: result.factors["time"] for result in answer.results}
    assert factors["last"] == pytest.approx(1.5)
    assert 1 <= factors["old"] < 1.01
    plain = memory.search("which map supplier did we decide on last week?", dates=False)
    assert "favours" not in answer_dict(plain)["trace"]
    assert all("time" not in result.factors for result in plain.results)


def test_query_without_a_date_is_ranked_as_before(memory: Memory) -> None:
    """Not even a factor is applied."""
    one, other = (memory.search("map supplier", dates=dates).results for dates in (True, False))
    assert [(result.record.id, result.total, result.factors) for result in one] == [
        (result.record.id, result.total, result.factors) for result in other
    ]


def test_fewer_results_are_the_head_of_more(memory: Memory) -> None:
    """Also where a time is favoured."""
    query = "which map supplier did we decide on last week?"
    assert found(memory, query, limit=1) == found(memory, query, limit=50)[:1]


def test_fields_take_words(memory: Memory) -> None:
    """`since`, `until`, `expires_at`, and the fields of a query; other words are an error."""
    assert found(memory, "map supplier", since="3 weeks ago") == ["last"]
    assert found(memory, "map supplier before:last-month") == ["old"]
    record = memory.add("The milk is good.", expires_at="in 2 days")
    assert record.expires_at is not None
    assert timedelta(days=1) < record.expires_at - now() < timedelta(days=3)
    with pytest.raises(UsageError, match="not a time"):
        memory.search("map", since="never")


def test_name_of_a_file_gives_the_time_of_its_chunks(tmp_path: Path) -> None:
    """Unless its front matter has a date."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "2026-03-14-call.md").write_text("# Call\n\nThe heron.", encoding="utf-8")
    (folder / "2026-03-15.md").write_text("---\ndate: 2025-01-02\n---\n# Other\n\nThe lake.", encoding="utf-8")
    with Memory.open(tmp_path / "memory.db", embedder="none", settings=Settings()) as memory:
        memory.index(folder)
        times = {Path(record.path or "").name: record.happened_at for record in memory.list()}
    assert {name: str(time)[:10] for name, time in times.items()} == {
        "2026-03-14-call.md": "2026-03-14",
        "2026-03-15.md": "2025-01-02",
    }
