"""Queries with operators, in a real store: filters inside every source, scopes, notes and why-not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect import Memory
from recollect.config import Settings
from recollect.types import Scope

NOTES = (
    {"id": "mirela", "text": "Mirela asked for two weeks off in May.", "category": "people", "tags": ["work"]},
    {"id": "moving", "text": "Moving flat takes two days, and weeks of boxes; off we go.", "tags": ["home"]},
    {"id": "redis", "text": "The job queue runs on Redis streams.", "tags": ["work"]},
    {"id": "postgres", "text": "The job queue runs on Postgres tables.", "tags": ["work"]},
    {"id": "ada", "text": "The job queue of Ada is a notebook.", "user": "ada"},
    {"id": "bob", "text": "The job queue of Bob is a whiteboard.", "user": "bob"},
)


@pytest.fixture(params=["keyword", "vector", None])
def memory(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Memory]:
    """A store of notes that is searched by keyword, by vector, or by both."""
    sources = (request.param,) if request.param else None
    settings = Settings()
    settings = Settings(search=settings.search.__class__(sources=sources))
    with Memory.open(tmp_path / "memory.db", embedder="hashing", settings=settings) as memory:
        memory.add_many(NOTES)
        yield memory


def found(memory: Memory, query: str, **options: object) -> list[str]:
    return [result.record.id for result in memory.search(query, **options).results]


def test_phrase_and_exclusion_hold_in_every_source(memory: Memory) -> None:
    """Only records with the phrase, and none with the excluded word."""
    assert found(memory, '"two weeks off"') == ["mirela"]
    assert "redis" not in found(memory, "job queue -redis")
    assert "postgres" in found(memory, "job queue -redis")
    assert found(memory, 'job "queue runs" -"redis streams"') == ["postgres"]
    assert {"redis", "postgres"} <= set(found(memory, 'job "job queue" -redis', plain=True))


def test_joined_words_hold_in_every_source(memory: Memory) -> None:
    """Of words that OR joins one must occur, of those that AND joins all; the other words only rank."""
    assert set(found(memory, "queue redis OR postgres")) == {"redis", "postgres"}
    assert found(memory, "boxes OR flats AND weeks") == ["moving"]
    assert found(memory, 'queue AND "redis streams"') == ["redis"]
    assert set(found(memory, '("two weeks off" OR stream) AND NOT boxes')) == {"mirela", "redis"}
    assert found(memory, "jobs AND (redis OR postgres) NOT stream") == ["postgres"]
    assert not found(memory, "redis AND postgres")
    assert {"redis", "mirela"} <= set(found(memory, "redis AND weeks", plain=True))
    assert memory.search("queue redis OR postgres").query.text == "queue redis postgres"


def test_fields_become_filters(memory: Memory) -> None:
    """A field in the query does what the filter of its name does."""
    assert found(memory, "job queue tag:work") == found(memory, "job queue", tags="work")
    assert found(memory, "weeks category:people") == ["mirela"]
    assert not found(memory, "weeks before:2020-01-01")
    assert "mirela" in found(memory, "weeks since:1d")
    assert "mirela" in found(memory, "two weeks tag:work since:never")
    assert set(found(memory, "job queue kind:fact")) == set(found(memory, "job queue"))
    assert not found(memory, "job queue kind:turn")
    assert "mirela" in found(memory, "weeks after:1d")
    assert not found(memory, "weeks until:today")
    assert found(memory, "job queue tag:#work") == found(memory, "job queue tag:work")
    memory.add("The job queue is a talk.", kind="turn", id="turn")
    assert "turn" in found(memory, "job queue kind:turn kind:fact")
    for query, options in ("queue kind:note", {}), ("queue kind:fact", {"kind": "turn"}), ("queue origin:web", {}):
        assert any("plain text" in note for note in memory.search(query, **options).trace.warnings)
    assert set(found(memory, "job queue user:ada")) == set(found(memory, "job queue", user="ada"))


def test_limit_is_a_prefix(memory: Memory) -> None:
    """Fewer results are the head of more."""
    for query in ("job queue -redis", '"job queue"', "job OR weeks", "queue tag:work"):
        assert found(memory, query, limit=1) == found(memory, query, limit=50)[:1]


def test_broken_expression_is_plain_text_with_a_note(memory: Memory) -> None:
    """The answer says so, and is that of the plain text."""
    answer = memory.search('"two weeks off')
    assert any("plain text" in warning for warning in answer.trace.warnings)
    assert found(memory, '"two weeks off') == found(memory, '"two weeks off', plain=True)
    assert any("not a time" in note for note in memory.search("queue since:never").trace.warnings)
    assert any("something to search for" in note for note in memory.search("-redis").trace.warnings)


def test_user_in_a_query_is_no_way_around_a_scope(memory: Memory) -> None:
    """A scoped caller, a memory of one user, and a model cannot choose another user; the words are plain text."""
    for view in (memory.within(Scope("ada")), memory.scoped(Scope("ada")), memory.within(Scope(agent="cook"))):
        answer = view.search("job queue user:bob")
        assert not {result.record.id for result in answer.results} & {"bob"}
        assert any("another user" in note for note in answer.trace.warnings)
    assert "bob" not in memory.recall("job queue user:bob").text
    assert "bob" not in found(memory, "job queue user:bob", user="ada")
    assert "ada" in found(memory.within(Scope("ada")), "job queue user:ada")


def test_why_not_names_the_phrase_or_the_exclusion(memory: Memory) -> None:
    """And plain text brings the record back."""
    verdict = memory.why_not('"two weeks off" tag:work', "moving")
    assert verdict.stage == "tag"
    assert 'the phrase "two weeks off"' in verdict.reason
    assert memory.why_not("job queue kind:turn", "redis").change == {"plain": True}
    verdict = memory.why_not("job queue -redis", "redis")
    assert verdict.stage == "without"
    assert "'redis'" in verdict.reason
    assert verdict.change.get("plain") is True
    assert "redis" in found(memory, "job queue -redis", **verdict.change)
    verdict = memory.why_not("queue AND (redis OR streams)", "postgres")
    assert verdict.stage == "required"
    assert "'redis' or 'streams'" in verdict.reason
    assert "postgres" in found(memory, "queue AND (redis OR streams)", **verdict.change)


def test_exclusion_leaves_statistics_of_the_rest(memory: Memory) -> None:
    """The scores are those of a store without the excluded records."""
    before = {result.record.id: result.shares for result in memory.search("job queue -redis").results}
    memory.forget("redis")
    after = {result.record.id: result.shares for result in memory.search("job queue -redis").results}
    assert before == after


def test_answer_shows_the_query_as_it_was_written(memory: Memory) -> None:
    """JSON has the whole query, and the parts that became filters are in the query object."""
    from recollect.memory.shapes import answer_dict

    answer = memory.search("job queue -redis tag:work")
    assert answer_dict(answer)["query"] == "job queue -redis tag:work"
    assert answer.query.text == "job queue"
    assert answer.query.filter.without == ("redis",)


def test_query_of_fields_alone_lists_what_they_leave(memory: Memory) -> None:
    """Newest first, without confidence, and no value of a field is searched for or read as a date."""
    expected = ["postgres", "redis", "mirela"]
    for query in ("tag:work", "tag:work since:2w", 'tag:work since:"last month" before:2099-03-14'):
        answer = memory.search(query)
        assert [result.record.id for result in answer.results] == expected
        assert {result.confidence for result in answer.results} == {None}
        assert (answer.likely, answer.query.text, answer.query.period) == (3, "", None)
        assert not answer.trace.warnings
    assert found(memory, "tag:work -redis") == ["postgres", "mirela"]
    assert found(memory, "tag:work", limit=1) == ["postgres"]
    assert not found(memory, "before:2000-01-01")
    assert memory.recall("tag:work").text.count("(id ") == 3
    assert memory.why_not("tag:work", "redis").rank == 2
