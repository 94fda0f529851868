"""Undo: the last change of a record is taken back once, and every index and open process sees it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recollect import Memory
from recollect.config import Settings
from recollect.errors import Overtaken, UnknownRecord, UsageError
from recollect.types import ExpectUnchanged, Forget, Record, Scope, now

NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)


def found(memory: Memory, text: str, **options: Any) -> list[str]:
    """The ids that a search gives, best first."""
    return [result.record.id for result in memory.search(text, **options).results]


def actions(memory: Memory, key: str) -> list[str]:
    """What happened to a record, oldest first."""
    return [event.action for event in memory.history(key)]


def test_undo_of_forget_then_of_add(memory: Memory) -> None:
    """Each undo goes one step further back; that of a forgotten record brings it back, and then goes back again."""
    kept = memory.add("The boat is blue.")
    memory.forget(kept.id)
    assert memory.undo(kept.id) == ("forget", kept)
    assert found(memory, "boat") == [kept.id]
    assert memory.undo(kept.id) == ("add", None)
    assert found(memory, "boat") == []
    assert memory.undo(kept.id) == ("forget", kept)
    assert found(memory, "boat") == [kept.id]
    assert memory.undo(kept.id) == ("add", None)
    undone_forget, undone_add = ["forget", "restore", "undo"], ["forget", "undo"]
    assert actions(memory, kept.id) == ["add", *undone_forget, *undone_add, "restore", "undo", *undone_add]


def test_a_record_that_an_undo_forgot_can_be_brought_back(memory: Memory) -> None:
    """The one that was made to supersede another one goes with the supersession, and comes back by its own undo."""
    old = memory.add("The key is under the pot.")
    new = memory.supersede(old.id, text="The key is with Anneke.")
    superseded = memory.get(old.id)
    for key in (old.id, new.id, old.id):  # again and again, named by either
        assert memory.undo_details(key)[::2] == ("supersede", [new.id])
        assert [record.id for record in memory.list()] == [old.id]
        assert memory.undo_details(new.id)[::2] == ("forget", [])
        assert [record.id for record in memory.list()] == [new.id]
        assert memory.get(old.id) == superseded


def test_supersession_is_made_again_at_its_time_if_the_old_record_is_current(memory: Memory) -> None:
    """Not if something else superseded it since, or it is gone: then the record only comes back."""
    old = memory.add("The key is under the pot.")
    new = memory.supersede(old.id, text="The key is with Anneke.", at="2026-03-14")
    memory.undo(old.id)
    memory.undo(new.id)
    assert memory.get(old.id).superseded_at == datetime(2026, 3, 14, tzinfo=UTC)
    memory.undo(old.id)
    other = memory.supersede(old.id, text="The key is lost.")
    assert memory.undo(new.id) == ("forget", memory.get(new.id))
    assert {record.id for record in memory.list()} == {new.id, other.id}


fields = st.fixed_dictionaries(
    {},
    optional={
        "text": st.sampled_from(["The boat is blue.", "The boat is red.", "A heron."]),
        "title": st.sampled_from(["", "Boat", "Bird"]),
        "category": st.sampled_from([None, "work", "home"]),
        "tags": st.lists(st.sampled_from(["a", "b", "ä"]), unique=True),
        "importance": st.sampled_from([0.0, 0.5, 1.0, 0.1]),
        "decay": st.sampled_from([None, "stable", "permanent"]),
        "happened_at": st.sampled_from([None, NOON, NOON + timedelta(microseconds=1)]),
        "expires_at": st.sampled_from([None, NOON + timedelta(days=40_000)]),
        "source": st.sampled_from([None, "a letter"]),
    },
)


@pytest.mark.ci
@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(fields, st.lists(fields, min_size=1, max_size=4))
def test_edits_are_undone_one_by_one(first: dict[str, Any], edits: list[dict[str, Any]]) -> None:
    """Every field is restored to the microsecond, down to the beginning."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Memory.open(Path(folder) / "memory.db", embedder="hashing:64", settings=Settings()) as memory,
    ):
        states = [memory.add(**{"text": "The oar.", **first})]
        for said in edits:
            if (edited := memory.edit(states[0].id, **said)) != states[-1]:
                states.append(edited)
        for wanted in states[-2::-1]:
            undone, record = memory.undo(wanted.id)
            assert undone == "update"
            assert replace(record, edited_at=None) == replace(wanted, edited_at=None)
            assert memory.get(wanted.id) == record
        assert memory.undo(states[0].id) == ("add", None)


@pytest.mark.parametrize("by", ["old", "new"])
@pytest.mark.parametrize("way", ["supersede", "add"])
def test_undo_of_a_supersession_removes_the_record_made_for_it(memory: Memory, by: str, way: str) -> None:
    """Named by the old or the new record; the old one is restored."""
    old = memory.add("The office closes at nine.", tags=["office"])
    made: dict[str, Callable[[], Record]] = {
        "supersede": lambda: memory.supersede(old.id, text="The office closes at ten."),
        "add": lambda: memory.add("The office closes at ten.", supersedes=old.id),
    }
    new = made[way]()
    undone, record = memory.undo({"old": old, "new": new}[by].id)
    assert (undone, record) == ("supersede", old if by == "old" else None)
    assert memory.get(old.id) == old
    assert memory.get(new.id) is None
    assert found(memory, "when does the office close") == [old.id]


def test_undo_of_a_supersession_keeps_an_existing_record(memory: Memory) -> None:
    """It superseded another but was not made for that, even without other changes."""
    old, other = memory.add("The office closes at nine."), memory.add("The office closes at ten.")
    memory.supersede(old.id, other.id)
    assert memory.undo(old.id) == ("supersede", old)
    assert memory.get(other.id) == other


def test_supersession_whose_old_record_was_changed_since_names_that_record(memory: Memory) -> None:
    """Named by the new record it cannot be undone; the hint leads to the history of the old one."""
    old, other = memory.add("The office closes at nine."), memory.add("The office closes at ten.")
    memory.supersede(old.id, other.id)
    memory.edit(old.id, title="Office")
    with pytest.raises(UsageError, match="cannot be undone") as refused:
        memory.undo(other.id)
    assert refused.value.hint == f"`recollect history {old.id}` shows why"


def test_undo_of_a_supersession_keeps_an_edited_record(memory: Memory) -> None:
    """The new record was changed since."""
    old = memory.add("The office closes at nine.")
    new = memory.supersede(old.id, text="The office closes at ten.")
    edited = memory.edit(new.id, title="Office")
    assert memory.undo(old.id) == ("supersede", old)
    assert memory.get(new.id) == edited


def test_chain_is_undone_from_its_end(memory: Memory) -> None:
    """A → B → C: back to B, then to A."""
    first = memory.add("The key is under the pot.")
    second = memory.supersede(first.id, text="The key is with Grace.")
    third = memory.supersede(second.id, text="The key is with Alan.")
    assert memory.undo(third.id) == ("supersede", None)
    assert found(memory, "where is the key") == [second.id]
    assert memory.undo(second.id) == ("supersede", None)
    assert found(memory, "where is the key") == [first.id]


@pytest.mark.parametrize("change", ["edit", "forget"])
def test_change_that_was_undone_does_not_keep_the_record_made_for_a_supersession(memory: Memory, change: str) -> None:
    """Neither an edit nor a forgetting that was taken back makes it a record of its own."""
    old = memory.add("The key is under the pot.")
    new = memory.supersede(old.id, text="The key is with Grace.")
    if change == "edit":
        memory.edit(new.id, title="Key")
    else:
        memory.forget(new.id)
    memory.undo(new.id)
    assert memory.undo(new.id) == ("supersede", None)
    assert found(memory, "where is the key") == [old.id]


def test_undo_from_the_middle_of_a_chain_keeps_the_current_record(memory: Memory) -> None:
    """A → B → C: without A → B, both A and C are current."""
    first = memory.add("The key is under the pot.")
    second = memory.supersede(first.id, text="The key is with Grace.")
    third = memory.supersede(second.id, text="The key is with Alan.")
    assert memory.undo(first.id) == ("supersede", first)
    assert set(found(memory, "where is the key")) == {first.id, third.id}


def test_purged_records_do_not_come_back(memory: Memory) -> None:
    """Forgotten first or not; the record it superseded can still be restored."""
    old = memory.add("The code is 4711.")
    new = memory.supersede(old.id, text="The code is 4712.")
    memory.forget(new.id, purge=True)
    with pytest.raises(UsageError, match=r"\(purge\) cannot be undone"):
        memory.undo(new.id)
    assert memory.undo(old.id) == ("supersede", old)
    memory.forget(old.id)
    memory.forget(old.id, purge=True)
    with pytest.raises(UsageError, match="purge"):
        memory.undo(old.id)
    assert memory.list(any_scope=True, superseded=True) == []


def test_undo_of_an_unknown_id_is_an_error(memory: Memory) -> None:
    """An unknown id is unknown."""
    with pytest.raises(UnknownRecord):
        memory.undo("nothing")


def test_undo_of_a_chunk(memory: Memory, tmp_path: Path) -> None:
    """Indexing it cannot be undone, forgetting it can."""
    note = tmp_path / "note.md"
    note.write_text("# Boats\n\nThe boat is blue.\n")
    memory.index(note)
    (chunk,) = memory.list()
    with pytest.raises(UsageError, match="a chunk of an indexed file"):
        memory.undo(chunk.id)
    memory.forget(chunk.id)
    assert memory.undo(chunk.id) == ("forget", chunk)
    assert memory.excerpt(chunk.id).freshness == "fresh"


@pytest.mark.parametrize("sources", [["keyword"], ["vector"]])
def test_restored_record_is_found_everywhere(open_memory: Callable[..., Memory], sources: list[str]) -> None:
    """By words, meaning, tag and category: here and in another open memory."""
    here, there = open_memory(), open_memory()
    kept = here.add("The boat is blue.", tags=["lake"], category="home")
    here.add("Herons stand in the reeds.")
    narrow = {"tags": ["lake"], "category": "home", "sources": sources, "limit": 1}
    for memory in (here, there):
        assert found(memory, "blue boat", **narrow) == [kept.id]
    here.forget(kept.id)
    for memory in (there, here):
        assert found(memory, "blue boat", **narrow) == []
    assert there.undo(kept.id) == ("forget", kept)
    for memory in (here, there):
        assert found(memory, "blue boat", **narrow) == [kept.id]
        assert memory.facets()["tags"] == ["lake"]
        assert memory.status()["vectors"]["without"] == 0


def test_undone_edit_is_found_by_its_old_words_only(open_memory: Callable[..., Memory]) -> None:
    """Words, vector and tags are the old ones, here and in another open memory."""
    here, there = open_memory(), open_memory()
    kept = here.add("The boat is blue.", tags=["lake"])
    before = there.search("blue boat").results[0]
    here.edit(kept.id, text="Herons stand in reeds.", tags=["reeds"])
    assert found(there, "blue boat", sources=["keyword"]) == []
    here.undo(kept.id)
    for memory in (here, there):
        assert found(memory, "herons", sources=["keyword"]) == []
        assert found(memory, "blue", tags=["reeds"]) == []
        again = memory.search("blue boat", tags=["lake"]).results[0]
        assert (again.fused, again.similarity) == (before.fused, before.similarity)


def test_text_added_again_before_an_undo_is_one_result(memory: Memory) -> None:
    """Two records of one text are one result, and adding it again makes no third."""
    first = memory.add("The boat is blue.")
    memory.forget(first.id)
    second = memory.add("The boat is blue.")
    assert second.id != first.id
    memory.undo(first.id)
    answer = memory.search("boat")
    assert len(answer.results) == 1
    assert {record.id for record in memory.list()} == {first.id, second.id}
    assert memory.add("the boat  is BLUE.").id in (first.id, second.id)


def test_undo_does_not_change_the_past(memory: Memory) -> None:
    """As of before the forget or supersession, and as of after the undo, the record is there."""
    kept = memory.add("The boat is blue.")
    stored = now()
    memory.forget(kept.id)
    assert found(memory, "boat", as_of=stored) == []  # what was forgotten is in no answer
    memory.undo(kept.id)
    assert found(memory, "boat", as_of=stored) == found(memory, "boat", as_of=now()) == [kept.id]
    memory.supersede(kept.id, text="The boat is red.")
    superseded = now()
    memory.undo(kept.id)
    for moment in (stored, superseded, now()):
        assert found(memory, "boat", as_of=moment) == [kept.id]


def test_a_scoped_caller_undoes_its_own_changes(memory: Memory) -> None:
    """Edit, forget and supersession, with the record that was made for it."""
    ada = memory.within(Scope("ada"))
    kept = ada.add("The boat is blue.")
    ada.edit(kept.id, text="The boat is red.")
    assert ada.undo(kept.id)[1].text == "The boat is blue."
    ada.forget(kept.id)
    assert ada.undo(kept.id)[0] == "forget"
    new = ada.supersede(kept.id, text="The boat is green.")
    assert ada.undo(new.id) == ("supersede", None)
    assert found(ada, "boat") == [kept.id]


# -- at the same time ---------------------------------------------------------------------------------------


def test_overtaken_change_is_not_undone(memory: Memory) -> None:
    """No change of the group is in effect."""
    kept, other = memory.add("The boat is blue."), memory.add("The oar is red.")
    seen = memory.history(kept.id)[-1].seq
    memory.edit(kept.id, title="Boat")
    with pytest.raises(Overtaken, match="changed at the same time"):
        memory.store.records.apply([[Forget(other.id), ExpectUnchanged(kept.id, seen), Forget(kept.id)]])
    assert {record.id for record in memory.list()} == {kept.id, other.id}


class Meanwhile:
    """The changes of a memory; `then` happens between reading and writing the next one."""

    def __init__(self, memory: Memory) -> None:
        self._apply = memory.store.records.apply
        memory.store.records.apply = self
        self.then: Callable[[], Any] | None = None

    def __call__(self, groups: Any) -> Any:
        then, self.then = self.then, None
        if then:
            then()
        return self._apply(groups)


def test_concurrent_edits_both_hold(open_memory: Callable[..., Memory]) -> None:
    """Another process edits between reading and writing."""
    memory, other = open_memory(), open_memory()
    slow = Meanwhile(memory)
    kept = memory.add("The boat is blue.")
    slow.then = lambda: other.edit(kept.id, category="home")
    edited = memory.edit(kept.id, text="The boat is red.")
    assert (edited.text, edited.category) == ("The boat is red.", "home")
    slow.then = lambda: other.forget(kept.id)
    with pytest.raises(UnknownRecord):
        memory.edit(kept.id, text="The boat is green.")
    assert memory.get(kept.id) is None


def test_undo_takes_back_the_last_change_at_write_time(open_memory: Callable[..., Memory]) -> None:
    """Another process's edit in between is not lost with the one before it."""
    memory, other = open_memory(), open_memory()
    slow = Meanwhile(memory)
    kept = memory.add("The boat is blue.")
    memory.edit(kept.id, text="The boat is red.")
    slow.then = lambda: other.edit(kept.id, category="home")
    undone, record = memory.undo(kept.id)
    assert (undone, record.text, record.category) == ("update", "The boat is red.", None)
    assert actions(memory, kept.id) == ["add", "update", "update", "update", "undo"]


def test_concurrent_edits_and_undos_lose_nothing(open_memory: Callable[..., Memory]) -> None:
    """Each history entry changes one field; together they lead back to the start."""
    here, there = open_memory(embedder="none"), open_memory(embedder="none")
    kept = here.add("The boat is blue.")

    def work(number: int) -> None:
        memory, name = (here, there)[number % 2], ("title", "category", "source", "text")[number]
        for turn in range(8):
            with contextlib.suppress(Overtaken):  # others were faster, again and again: said, and nothing done
                memory.edit(kept.id, **{name: f"{number}.{turn}"})
                memory.undo(kept.id)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    state: dict[str, Any] = {name: getattr(here.get(kept.id), name) for name in ("title", "category", "source", "text")}
    for event in reversed(here.history(kept.id)[1:]):
        before = event.detail.get("before", {})
        assert len(before) == (event.action == "update")
        state |= before
    assert state == {"title": "", "category": None, "source": None, "text": "The boat is blue."}
