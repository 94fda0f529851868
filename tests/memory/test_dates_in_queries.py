"""A time in a question favours records of that time, and says so; a time in a flag may be words."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from recollect import Memory
from recollect.config import Settings
from recollect.errors import UsageError
from recollect.memory.shapes import answer_dict, iso
from recollect.memory.validation import make_record, parse_time
from recollect.types import Scope, now


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


@pytest.fixture
def diary(tmp_path: Path) -> Iterator[Memory]:
    """Notes of three days, two of them about the same, one with a decision, and one that has the words of dates."""
    with Memory.open(tmp_path / "diary.db", embedder="hashing", settings=Settings()) as memory:
        day = timedelta(days=1)
        memory.add("Cooked lentils. Anna called about the roof.", id="now", happened_at=now(), importance=0.0)
        memory.add("Fixed the bike, Anna called about the roof.", id="day", happened_at=now() - day, importance=1.0)
        memory.add("A walk to the lake.", id="dawn", happened_at=now() - day - timedelta(minutes=1))
        memory.add("Decided to paint the roof.", id="old", happened_at=now() - 40 * day)
        memory.add("The lease has a last day: yesterday, a month after what happened last week.", id="lease",
                   happened_at=now() - 500 * day)  # fmt: skip
        yield memory


@pytest.mark.parametrize(
    "question",
    [
        "what did I do in the last 3 days", "what happened in the last three days?", "last 3 days",
        "what did we talk about in the last 3 days?", "My notes of the last 3 days", "what's new in the last 3 days",
        "was haben wir in den letzten drei Tagen gemacht?", "what did we agree in the last 3 days",
    ],
)  # fmt: skip
def test_question_about_a_time_alone_lists_its_records(diary: Memory, question: str) -> None:
    """Newest first, whatever counts elsewhere; also for a model, with a note that says so."""
    assert found(diary, question) == ["now", "day", "dawn"]
    answer = diary.search(question)
    assert {result.confidence for result in answer.results} == {None}
    assert answer.query.written == question
    assert any("is listed, newest first" in warning for warning in answer.trace.warnings)
    recalled = diary.recall(question)
    assert [citation.id for citation in recalled.citations] == ["now", "day", "dawn"]
    assert (recalled.query, len(recalled.warnings)) == (question, 1)
    assert found(diary, question, limit=1) == ["now"]
    assert found(diary, f"{question} before:yesterday") == found(diary, question, until="yesterday")


def test_question_about_a_time_is_searched_where_a_list_would_hide_the_answer(diary: Memory) -> None:
    """A time without records, a word that its records have, a month that a text may name, and plain text."""
    assert "lease" in found(diary, "what happened 3 years ago")
    assert "old" in found(diary, "what did we decide in the last 60 days")
    for query, options in ("January 2026", {}), ("what happened yesterday", {"plain": True}):
        assert not any("listed" in note for note in diary.search(query, **options).trace.warnings)
    assert "lease" in found(diary, "what happened yesterday", dates=False)
    verdict = diary.why_not("what happened in the last 3 days", "old")
    assert (verdict.stage, verdict.change) == ("since", {"plain": True})


def test_words_of_a_date_are_not_searched(diary: Memory) -> None:
    """Beside other words. The name of a month and a year are: a text may contain them."""
    answer = diary.search("what did Anna say in the last 3 days about the roof", sources=["keyword"])
    assert {result.record.id for result in answer.results} == {"now", "day", "old"}
    assert answer.trace.favours.endswith("(in the last 3 days)")
    assert "lease" in found(diary, "a lease in a month", sources=["keyword"])
    diary.add("Taxes 2023", id="taxes", happened_at=now())
    diary.add("Taxes 2022", id="older", happened_at=now())
    assert found(diary, "taxes in 2023", sources=["keyword"])[0] == "taxes"


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


@pytest.mark.parametrize(
    ("expiry", "end"),
    [
        ("2026-11-18", "2026-11-19"), ("today", "2026-11-19"), ("tomorrow", "2026-11-20"), ("Friday", "2026-11-21"),
        ("18.11.2026", "2026-11-19"), ("in 2 days", "2026-11-21"), ("24 December", "2026-12-25"),
        ("9999-12-31", "9999-12-31"), ("2026-11-18T15:00", "2026-11-18T15:00"), ("2026-11-19T00:00Z", "2026-11-19"),
        ("this week", "2026-11-23"), ("next month", "2026-12-01"),
    ],
)  # fmt: skip
def test_day_of_expiry_ends_at_its_end(monkeypatch: pytest.MonkeyPatch, expiry: str, end: str) -> None:
    """Whatever names the day; a time is exact, also a midnight."""
    at = datetime(2026, 11, 18, 20, tzinfo=UTC)
    monkeypatch.setattr("recollect.memory.validation.now", lambda: at)
    expires = datetime.fromisoformat(end).replace(tzinfo=UTC)
    record = make_record({"text": "The milk is good.", "expires_at": expiry}, Scope())
    assert record.expires_at == expires
    again = make_record({"text": "The milk is good.", "expires_at": iso(expires)}, Scope())
    assert again.expires_at == expires
    assert parse_time("2026-11-18") == datetime(2026, 11, 18, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "hours", "as_expiry"),
    [
        ("36h", -36, 36), ("2 hours", -2, 2), ("90 Minuten", -1.5, 1.5),
        ("2 hours ago", -2, -2), ("vor 3 Stunden", -3, -3), ("in 2 hours", 2, 2),
    ],
)  # fmt: skip
def test_hours_and_minutes_in_words(monkeypatch: pytest.MonkeyPatch, text: str, hours: float, as_expiry: float) -> None:
    """Without "in" and "ago" they are before now, and after now for an expiry."""
    at = datetime(2026, 11, 18, 20, tzinfo=UTC)
    monkeypatch.setattr("recollect.memory.validation.now", lambda: at)
    assert parse_time(text) == at + timedelta(hours=hours)
    assert parse_time(text, ahead=True) == at + timedelta(hours=as_expiry)


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
