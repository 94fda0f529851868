"""Of two facts that say nearly the same, the newer is ranked first."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recollect import Memory

NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)


@pytest.fixture
def facts(memory: Memory) -> Callable[..., list[str]]:
    """Stores texts a day apart, oldest first, and returns the ids that a search finds."""

    def ask(question: str, *texts: str, fields: dict[str, Any] | None = None, **options: Any) -> list[str]:
        for day, text in enumerate(texts):
            memory.add(text, id=f"day{day}", created_at=NOON + timedelta(days=day), **(fields or {}))
        return [result.record.id for result in memory.search(question, **options).results]

    return ask


def test_newer_of_two_statements_comes_first(facts):
    """The older one has the same words of the query, and stays second."""
    old, new = "The spare key is under the blue pot.", "The spare key is with Anneke."
    assert facts("where is the spare key", old, new, "Keys are cut at the station.")[:2] == ["day1", "day0"]


def test_statement_about_the_future_does_not_come_first(memory: Memory):
    """What will hold next year is not put before what holds now, and what is superseded then is not yet labelled so."""
    now = memory.add("The house coffee is Brazilian.")
    memory.add("The house coffee is Kenyan.", happened_at="2199-01-01")
    assert memory.search("what is the house coffee").results[0].record.id == now.id
    price = memory.add("The house wine is 10 euro.")
    memory.supersede(price.id, text="The house wine is 20 euro.", at="2199-01-01")
    assert memory.search("what is the house wine").results[0].record.id == price.id
    assert "superseded" not in memory.recall("what is the house wine", min_confidence=0).text


def test_newer_first_can_be_switched_off_and_is_explained(memory: Memory):
    """Without it the ranking is by score; with it the move is shown."""
    memory.add("The capital of Kazakhstan is Astana, Astana.", id="old", created_at=NOON)
    memory.add("The capital of Kazakhstan is Nur-Sultan, they say.", id="new", created_at=NOON + timedelta(days=1))
    plain = memory.search("capital of Kazakhstan", prefer_newer=False)
    moved = memory.search("capital of Kazakhstan")
    assert [result.record.id for result in plain.results] == ["old", "new"]
    assert [result.moves for result in moved.results] == [{"newer": (2, 1)}, {"newer": (1, 2)}]
    assert [result.record.id for result in moved.results] == ["new", "old"]


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("Thomas Kyd was born in the city of London.", "Amy Kyd was born in the city of London."),
        ("Thomas Kyd was born in London.", "Kyd wrote about London."),
        ("Thomas Kyd was born in London.", "Thomas Kyd was born in London, and " + "so many other words " * 3),
    ],
)
def test_unrelated_facts_are_not_moved(facts, older, newer):
    """A pair must share the query's words and most other words, and have a similar length."""
    assert facts("where was Thomas Kyd born", older, newer, sources=["keyword"])[0] == "day0"


def test_newer_event_of_the_same_pattern_stays_below(tmp_path):
    """The question describes an older one, whose score is far higher."""
    guests = ("a wedding party", "a birthday for an 80-year-old", "a wake", "a book club", "the rotary club")
    with Memory.open(tmp_path / "events.db", embedder="small-embedder") as memory:
        for day, who in enumerate(guests, 1):
            text = f"Saltmarsh hosted {who}, and the takings were {day}30 pounds."
            memory.add(text, happened_at=NOON + timedelta(days=day))
        best = memory.search("How much did Saltmarsh get from the bride and groom?").results[0]
        assert "a wedding party" in best.record.text
        memory.add("Saltmarsh hosted a wedding party, and the takings were 990 pounds.", id="corrected")
        assert memory.search("How much did Saltmarsh get from the bride and groom?").results[0].record.id == "corrected"


def test_chunks_and_long_texts_are_not_moved(facts):
    """Two versions of a page are not contradicting facts."""
    texts = ("The spare key is under the blue pot, pot.", "The spare key is with Anneke today.")
    assert facts("spare key pot", *texts, fields={"kind": "chunk"}, sources=["keyword"])[0] == "day0"


def test_mmr_keeps_the_newer_fact(facts):
    """Diversity drops the older of the two."""
    texts = ("The spare key is under the blue pot.", "The spare key is under the red pot.", "A train to Oslo.")
    assert facts("where is the spare key", *texts, mmr=True, mmr_lambda=0.5, limit=2)[0] == "day1"


def test_small_limit_is_a_prefix_of_a_large_one(facts, memory: Memory):
    """The compared records do not depend on the limit."""
    whole = facts("the key", *(f"The key number {n} is at place {n % 3}." for n in range(30)), limit=30)
    for limit in (1, 5, 12):
        assert [result.record.id for result in memory.search("the key", limit=limit).results] == whole[:limit]
