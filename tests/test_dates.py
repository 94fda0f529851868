"""Dates in words: what is one, which time it names, and what is none."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.dates import date_in_name, find_period, read_period, written_date

NOW = datetime(2026, 11, 17, 7, 30, tzinfo=UTC)  # a Tuesday
EVENING = datetime.fromisoformat("2024-05-17T19:30")


@pytest.mark.parametrize(
    ("question", "period"),
    [
        ("what did I decide last week?", "2026-11-09 to 2026-11-15 (last week)"),
        ("what did I say yesterday?", "2026-11-16 (yesterday)"),
        ("who came the day before yesterday", "2026-11-15 (the day before yesterday)"),
        ("what did we decide in January 2026", "2026-01-01 to 2026-01-31 (in January 2026)"),
        ("notes in December", "2025-12-01 to 2025-12-31 (in December)"),
        ("what happened on 3 March?", "2026-03-03 (on 3 March)"),
        ("the meeting on December 24th", "2025-12-24 (on December 24th)"),
        ("talk of 5 May 2023", "2023-05-05 (5 May 2023)"),
        ("two weeks ago", "2026-11-02 to 2026-11-08 (two weeks ago)"),
        ("in the last 3 days", "2026-11-14 to 2026-11-17 (in the last 3 days)"),
        ("last Friday", "2026-11-13 (last Friday)"),
        ("on Tuesday", "2026-11-17 (on Tuesday)"),
        ("since October", "2026-10-01 to 2026-11-17 (since October)"),
        ("photos of last year", "2025-01-01 to 2025-12-31 (last year)"),
        ("in 2024", "2024-01-01 to 2024-12-31 (in 2024)"),
        ("2026-03-14", "2026-03-14"),
        ("was haben wir letzte Woche beschlossen?", "2026-11-09 to 2026-11-15 (letzte Woche)"),
        ("vor zwei Wochen", "2026-11-02 to 2026-11-08 (vor zwei Wochen)"),
        ("am 3. März", "2026-03-03 (am 3. März)"),
        ("im Mai", "2026-05-01 to 2026-05-31 (im Mai)"),
        ("am 14.03.2026", "2026-03-14 (14.03.2026)"),
        ("what happened in the past week?", "2026-11-10 to 2026-11-17 (in the past week)"),
        ("the past month", "2026-10-17 to 2026-11-17 (the past month)"),
        ("within the last year", "2025-11-17 to 2026-11-17 (within the last year)"),
        ("what happened in the last week of May?", "2026-05-01 to 2026-05-31 (of May)"),
        ("the last Friday of October", "2026-10-01 to 2026-10-31 (of October)"),
        ("die letzte Woche im Mai", "2026-05-01 to 2026-05-31 (im Mai)"),
        ("letzte Woche im Büro", "2026-11-09 to 2026-11-15 (letzte Woche)"),
        ("what changed since yesterday?", "2026-11-16 to 2026-11-17 (since yesterday)"),
        ("since the last week", "2026-11-09 to 2026-11-17 (since the last week)"),
        ("since 2026-03-14", "2026-03-14 to 2026-11-17 (since 2026-03-14)"),
        ("seit gestern", "2026-11-16 to 2026-11-17 (seit gestern)"),
        ("seit letzter Woche", "2026-11-09 to 2026-11-17 (seit letzter Woche)"),
        ("day before yesterday", "2026-11-15 (day before yesterday)"),
        ("what is planned for this Friday?", "2026-11-20 (this Friday)"),
        ("diesen Freitag", "2026-11-20 (diesen Freitag)"),
        ("last November", "2025-11-01 to 2025-11-30 (last November)"),
        ("a couple of weeks ago", "2026-11-02 to 2026-11-08 (a couple of weeks ago)"),
        ("what did we do one week ago today?", "2026-11-10 (one week ago today)"),
        ("heute vor zwei Wochen", "2026-11-03 (heute vor zwei Wochen)"),
        ("im Jahr 2025", "2025-01-01 to 2025-12-31 (im Jahr 2025)"),
        ("seit dem Jahr 2025", "2025-01-01 to 2026-11-17 (seit dem Jahr 2025)"),
    ],
)  # fmt: skip
def test_dates_in_questions(question: str, period: str) -> None:
    """Without a year, the last such day or month is meant."""
    assert str(find_period(question, NOW)) == period


@pytest.mark.parametrize(
    "question",
    [
        "when may I march in second place?", "which of the 3 may be used", "May 5 people join?", "a second opinion",
        "release 1.0.21", "in 2000 files", "the last day of school", "the next day", "from march to april",
        "August is a name", "sun and mon", "31 Februaries", "", "last", "ago", "the past", "vor dem Haus", "this one",
        "what was half a year ago?", "half a month ago",
    ],
)  # fmt: skip
def test_other_words_are_no_dates(question: str) -> None:
    """Words that can mean something else need another part of a date beside them."""
    assert find_period(question, NOW) is None


@pytest.mark.parametrize(
    "question",
    [
        "what did we decide before March 2026?", "before 3 March 2026", "before last week", "until yesterday",
        "till the end of May", "what came after October 2025", "the last week of school", "in the past weeks",
        "vor dem 3. März", "vor März 2026", "bis gestern", "bis Ende Mai 2026", "nach letzter Woche",
        "between March and May 2026", "between 3 March and yesterday", "zwischen März und Mai 2026",
        "until:today", 'before:"last week"', "-since:yesterday", "all but Friday, except last week", "außer gestern",
    ],
)  # fmt: skip
def test_time_before_or_after_a_date_favours_nothing(question: str) -> None:
    """The date itself is not what is asked about."""
    assert find_period(question, NOW) is None


@pytest.mark.parametrize(
    ("field", "start"),
    [
        ("yesterday", "2026-11-16"), ("last week", "2026-11-09"), ("last-week", "2026-11-09"),
        ("in 2 days", "2026-11-19"), ("tomorrow", "2026-11-18"), ("march", "2026-03-01"), ("monday", "2026-11-16"),
        ("2024", "2024-01-01"), ("nächsten Monat", "2026-12-01"), ("gestern", "2026-11-16"), ("2 days", "2026-11-15"),
        ("two weeks", "2026-11-03"), ("a couple of days", "2026-11-15"), ("zwei Wochen", "2026-11-03"),
        ("2026-05", "2026-05-01"),
    ],
)  # fmt: skip
def test_fields(field: str, start: str) -> None:
    """A field can only be a time, so a single name is enough."""
    period = read_period(field, NOW)
    assert period is not None
    assert period.start.date().isoformat() == start
    assert read_period(f"{field} or so", NOW) is None


@pytest.mark.parametrize(
    ("field", "start"),
    [
        ("Friday", "2026-11-20"), ("this Friday", "2026-11-20"), ("Freitag", "2026-11-20"), ("Tuesday", "2026-11-24"),
        ("24 December", "2026-12-24"), ("24. Dezember", "2026-12-24"), ("3 April", "2027-04-03"),
        ("17 November", "2027-11-17"), ("December", "2026-12-01"), ("May", "2027-05-01"), ("last Friday", "2026-11-13"),
        ("next Friday", "2026-11-20"), ("24 December 2025", "2025-12-24"), ("yesterday", "2026-11-16"),
    ],
)  # fmt: skip
def test_fields_that_look_ahead(field: str, start: str) -> None:
    """An expiry on Friday or on 24 December means the next one that begins after today."""
    period = read_period(field, NOW, ahead=True)
    assert period is not None
    assert period.start.date().isoformat() == start


@given(st.text(max_size=40) | st.from_regex(r"(last|in|on|vor|[0-9]{1,4}|May|March|days|ago|2026|[0-9]{2}\.){0,6}"))
def test_no_text_fails(text: str) -> None:
    """Whatever is asked, at the ends of time too."""
    for now in (NOW, datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)):
        period = find_period(text, now)
        assert period is None or period.start < period.end
        for ahead in (False, True):
            read_period(text, now, ahead=ahead)


def test_dates_in_names_of_files() -> None:
    """With or without hyphens; not a part of a longer number, and no 31 February."""
    assert date_in_name("2026-03-14-notes.md") == datetime(2026, 3, 14, tzinfo=UTC)
    assert date_in_name("call_20260314.md") == datetime(2026, 3, 14, tzinfo=UTC)
    assert not any(map(date_in_name, ("notes.md", "1.0.21.md", "120260314.md", "2026-02-31.md", "2026-13-01.md")))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-05-17", date(2024, 5, 17)), (" 17.05.2024 ", date(2024, 5, 17)), ("2024/05/17", date(2024, 5, 17)),
        ("2024-05-17 19:30", EVENING), ("17.5.2024 19:30", EVENING),
        ("2024-05-17T19:30:00Z", datetime(2024, 5, 17, 19, 30, tzinfo=UTC)), ("yesterday", None), ("", None),
        ("31.02.2024", None), ("2024", None),
    ],
)  # fmt: skip
def test_written_dates(text: str, expected: date | None) -> None:
    """Only what is written in numbers, and the whole text."""
    found = written_date(text)
    assert (found, type(found)) == (expected, type(expected))
