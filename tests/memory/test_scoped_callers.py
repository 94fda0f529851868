"""A scoped caller sees what a store of its own would show, and changes only records that it owns."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from recollect import Memory
from recollect.config import Settings
from recollect.errors import Forbidden, RecollectError, UnknownRecord, UsageError
from recollect.memory.related import chain
from recollect.memory.shapes import answer_dict, recall_dict, verdict_dict
from recollect.ranking import fold_hash
from recollect.types import GLOBAL, Filter, Put, Record, Scope, Supersede

NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)
WORDS = ("heron", "lake", "reeds", "boat", "dawn", "oar", "the")
QUESTIONS = ("heron lake", "the boat at dawn")
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]

scopes = st.builds(
    Scope,
    st.sampled_from([None, "ada", "ada", "bob"]),
    st.sampled_from([None, None, "planner", "cook"]),
    st.sampled_from([None, None, None, "s1"]),
)
records = st.builds(
    Record,
    id=st.just(""),
    text=st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join),
    category=st.sampled_from([None, "work", "home"]),
    tags=st.lists(st.sampled_from(["red", "blue"]), unique=True, max_size=2).map(tuple),
    scope=scopes,
    created_at=st.sampled_from([NOON, NOON + timedelta(days=1)]),
    expires_at=st.sampled_from([*[None] * 6, NOON, NOON + timedelta(days=36_500)]),
)
crowds = st.lists(records, min_size=6, max_size=14)
links = st.lists(st.tuples(st.integers(0, 13), st.integers(0, 13)), max_size=5)


@contextlib.contextmanager
def memories(count: int) -> Iterator[list[Memory]]:
    """New memories, each in its own file."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        places = (folder / f"{number}.db" for number in range(count))
        yield [stack.enter_context(Memory.open(place, embedder="hashing:64", settings=Settings())) for place in places]


def fill(memory: Memory, crowd: Sequence[Record], superseded: Sequence[tuple[int, int]]) -> None:
    """Store records and let some supersede others where that is allowed."""
    memory.store.records.apply([[Put(record) for record in crowd]])
    for old, new in superseded:
        with contextlib.suppress(UsageError):  # a cycle, one that is not there, or a scope that does not fit
            memory.store.records.apply([[Supersede(f"r{old:02}", f"r{new:02}")]])
    memory.embed()


def numbered(crowd: Sequence[Record]) -> list[Record]:
    return [replace(record, id=f"r{number:02}") for number, record in enumerate(crowd)]


def outcome(work: Callable[[], Any]) -> Any:
    """The result of a call, or its error."""
    try:
        return work()
    except RecollectError as error:
        return error.as_dict()


def timeless(value: Any) -> Any:
    """A JSON value without what differs between two runs: durations, and times of supersession."""
    if isinstance(value, dict):
        timed = ("took_ms", "grade", "superseded_at", "from")
        return {key: timeless(of) for key, of in value.items() if key not in timed}
    return [timeless(of) for of in value] if isinstance(value, list | tuple) else value


def view(memory: Memory, ids: Sequence[str], *, deep: bool = True) -> dict[str, Any]:
    """Everything that a memory returns about these ids and itself; unless `deep`, without `why_not`."""
    told: dict[str, Any] = {
        "list": [record.id for record in memory.list(superseded=True)],
        "facets": memory.facets(),
        "status": memory.status(),
    }
    for text in QUESTIONS:
        told[f"search {text}"] = outcome(lambda text=text: answer_dict(memory.search(text, limit=20), explain=True))
        # How far reranking comes depends on the machine.
        told[f"recall {text}"] = outcome(lambda text=text: recall_dict(memory.recall(text, rerank=False)))
    for key in ids:
        told |= {f"{name} {key}": outcome(of) for name, of in looks(memory, key).items() if deep or name != "why_not"}
    return timeless(told)


def looks(memory: Memory, key: str) -> dict[str, Callable[[], Any]]:
    """Every way to look at one record."""
    return {
        "get": lambda: replace(memory.get(key), superseded_at=None) if memory.get(key) else None,
        "require": lambda: memory.require(key).id,
        "history": lambda: [(event.action, dict(event.detail)) for event in memory.history(key)],
        "chain": lambda: chain(memory, memory.require(key)),
        "why_not": lambda: verdict_dict(QUESTIONS[0], memory.why_not(QUESTIONS[0], key, limit=2)),
        "excerpt": lambda: memory.excerpt(key),
    }


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=SLOW)
@given(crowds, links, scopes)
def test_a_scoped_caller_sees_a_store_of_what_it_may_see(
    crowd: list[Record], superseded: list[tuple[int, int]], scope: Scope
) -> None:
    """Every method answers, to the last digit and error, as it would if nothing else were stored."""
    all_of_it = numbered(crowd)
    seen = [record for record in all_of_it if scope.admits(record.scope)]
    event(f"{len(seen) * 4 // len(all_of_it)} of 4 visible")
    with memories(2) as (shared, alone):
        fill(shared, all_of_it, superseded)
        fill(alone, seen, superseded)
        ids = [record.id for record in all_of_it]
        assert view(shared.within(scope), ids) == view(alone.within(scope), ids)


def test_scope_of_a_view_may_be_an_object(memory: Memory) -> None:
    """As in every other call; what is no scope is refused."""
    assert memory.within({"user": "ada"}).caller == memory.scoped({"user": "ada"}).scope == Scope(user="ada")
    for view in (memory.within, memory.scoped):
        with pytest.raises(UsageError, match="a scope must be an object"):
            view("ada")  # type: ignore[arg-type]


def test_view_of_a_scoped_caller_leads_to_no_other_scope(memory: Memory) -> None:
    """Neither to another user's nor to a wider or a narrower one; to its own it does."""
    bob = memory.within({"user": "bob"})
    for scope in ({"user": "ada"}, {}, {"user": "bob", "agent": "cook"}):
        for view in (bob.within, bob.scoped):
            with pytest.raises(Forbidden):
                view(scope)
    assert bob.within(Scope("bob")).caller == bob.caller


def test_missing_vectors_of_other_scopes_do_not_affect_a_search(memory: Memory) -> None:
    """Vectors that are missing in other scopes are not counted, reported, or a reason to search by words alone."""
    memory.add_many({"text": f"A heron by lake {number}.", "user": "bob"} for number in range(3))
    others = [Record(f"a{number}", f"note {number}", scope=Scope("ada")) for number in range(100)]
    memory.store.records.apply([[Put(record) for record in others]])
    bob = memory.within(Scope("bob"))
    answer = bob.search("heron")
    assert (answer.trace.mode, answer.trace.lag["vectors"], answer.trace.warnings) == ("hybrid", 0, ())
    assert bob.status()["vectors"]["without"] == 0
    assert memory.status()["vectors"]["without"] == 100
    assert memory.within(Scope("ada")).status()["vectors"]["without"] == 100


# -- writing ------------------------------------------------------------------------------------------------

ids = st.integers(0, 4).map("r{:02}".format)
CALLERS = [Scope("ada"), Scope("ada", "planner"), GLOBAL]
cast = st.sampled_from([GLOBAL, Scope("ada"), GLOBAL, Scope("ada", "planner"), Scope("bob"), Scope(None, "planner")])
few = st.lists(st.builds(replace, records, scope=cast, expires_at=st.none()), min_size=5, max_size=5)
texts = st.sampled_from(["heron", "lake at dawn", "new reeds", "a boat"])
deeds = st.one_of(
    st.tuples(st.just("add"), texts, st.none() | ids, st.none() | ids),
    st.tuples(st.just("edit"), ids, texts),
    st.tuples(st.just("supersede"), ids, texts),
    st.tuples(st.just("replace"), ids, ids),
    st.tuples(st.just("replace"), ids, ids),
    st.tuples(st.just("forget"), ids, st.sampled_from([False, False, True])),
    st.tuples(st.just("undo"), ids),
    st.tuples(st.just("undo"), ids),
)


def do(memory: Memory, deed: tuple[Any, ...]) -> None:
    """One call that a scoped caller may try."""
    match deed:
        case "add", text, key, None:
            memory.add(text, id=key)
        case "add", text, key, old:
            memory.add(text, id=key, supersedes=old)
        case "edit", key, text:
            memory.edit(key, text=text, tags=["edited"])
        case "supersede", key, text:
            memory.supersede(key, text=text)
        case "replace", key, by:
            memory.supersede(key, by)
        case "forget", key, purge:
            memory.forget(key, purge=purge)
        case "undo", key:
            memory.undo(key)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=SLOW)
@given(few, st.sampled_from(CALLERS), st.lists(deeds, min_size=6, max_size=12))
def test_nothing_that_a_scoped_caller_does_is_noticed_by_others(
    crowd: list[Record], scope: Scope, done: list[tuple[Any, ...]]
) -> None:
    """Records that the caller does not own stay as they are; other scopes that cannot see its records see no change."""
    before = numbered(crowd)
    foreign = [record.id for record in before if not scope.owns(record.scope)]
    own = {record.scope for record in before if scope.owns(record.scope)} | {scope}
    others = [other for other in {*(record.scope for record in before)} if not any(map(other.admits, own))]
    with memories(1) as (memory,):
        fill(memory, before, ())
        stored = memory.store.records.get(foreign)
        seen = [view(memory.within(other), foreign, deep=False) for other in others]
        for deed in done:
            try:
                do(memory.within(scope), deed)
                event(f"{deed[0]} done")
            except RecollectError as error:
                event(f"{deed[0]}: {type(error).__name__}")
        assert memory.store.records.get(foreign) == stored
        assert [view(memory.within(other), foreign, deep=False) for other in others] == seen


@given(scopes, scopes, scopes)
def test_two_scopes_that_own_the_same_record_share_their_first_part(one: Scope, other: Scope, record: Scope) -> None:
    """Owned records are visible, global records are owned only without a scope, and unrelated scopes share nothing."""
    if one.owns(record):
        assert one.admits(record)
        assert record != GLOBAL or one == GLOBAL
        if other.owns(record):
            assert next(iter(one.as_dict().items()), None) == next(iter(other.as_dict().items()), None)


# -- the ways around it -------------------------------------------------------------------------------------


@pytest.fixture
def secret(memory: Memory) -> Record:
    """A record of Ada."""
    return memory.add("The vault opens with 4711.", user="ada")


@pytest.mark.parametrize(
    "named", [{"user": "ada"}, {"scope": {"user": "ada"}}, {"scope": Scope("ada")}, {"agent": "x"}, {"session": "x"}]
)
def test_no_call_names_another_scope(memory: Memory, secret: Record, named: dict[str, Any]) -> None:
    """Not to read, not to list, not to search, not to write."""
    bob = memory.within(Scope("bob"))
    for work in (
        lambda: bob.get(secret.id, **named),
        lambda: bob.list(**named),
        lambda: bob.search("vault", **named),
        lambda: bob.recall("vault", **named),
        lambda: bob.why_not("vault", secret.id, **named) if bob.facets(**named) else None,
        lambda: bob.add("mine", **named),
        lambda: bob.add_many([{"text": "mine", **named}]),
    ):
        with pytest.raises(Forbidden):
            work()
    assert memory.list(any_scope=True) == [secret]


def test_no_call_names_every_scope(memory: Memory, secret: Record) -> None:
    """Neither by a flag nor by a filter made by hand."""
    bob = memory.within(Scope("bob"))
    for work in (bob.list, bob.facets, lambda **said: bob.search("vault", **said)):
        for said in ({"any_scope": True}, {"where": Filter(Scope("bob"))}):
            with pytest.raises(Forbidden):
                work(**said)
    assert memory.get(secret.id) == secret


def test_a_call_may_name_the_callers_own_scope(memory: Memory) -> None:
    """It changes nothing."""
    bob = memory.within(Scope("bob"))
    kept = bob.add("The boat is blue.", user="bob")
    assert bob.get(kept.id, user="bob") == bob.search("boat", scope={"user": "bob"}).results[0].record == kept


@pytest.mark.parametrize("last", ["add", "update", "supersede", "forget", "restore", "purge"])
@pytest.mark.parametrize("taken_back", [False, True])
def test_undo_reveals_nothing_of_another_scopes_record(
    memory: Memory, secret: Record, last: str, taken_back: bool
) -> None:
    """Whatever happened to it, and whichever event is named: the error is that of an unknown id."""
    if last == "update":
        memory.edit(secret.id, text="The vault opens with 4712.")
    elif last == "supersede":
        memory.supersede(secret.id, text="The vault is gone.")
    elif last != "add":
        memory.forget(secret.id, purge=last == "purge")
    if last == "restore" or (taken_back and last != "purge"):
        memory.undo(secret.id)
    bob, before = memory.within(Scope("bob")), memory.history(secret.id)
    for seq in (None, *(line.seq for line in before), *range(1, 10)):
        with pytest.raises(UnknownRecord, match=f"no record has the id {secret.id!r}"):
            bob.undo(secret.id, seq=seq)
    assert memory.history(secret.id) == before


@pytest.mark.parametrize("last", ["add", "update", "supersede", "forget", "restore", "purge"])
def test_another_scopes_record_is_unknown_whatever_happened_to_it(memory: Memory, secret: Record, last: str) -> None:
    """The error is that of an unknown id: it does not reveal that there is, or was, such a record."""
    steps: dict[str, Callable[[], Any]] = {
        "add": lambda: None,
        "update": lambda: memory.edit(secret.id, text="The vault opens with 4712."),
        "supersede": lambda: memory.supersede(secret.id, text="The vault is gone."),
        "forget": lambda: memory.forget(secret.id),
        "restore": lambda: (memory.forget(secret.id), memory.undo(secret.id)),
        "purge": lambda: memory.forget(secret.id, purge=True),
    }
    steps[last]()
    bob = memory.within(Scope("bob"))
    for work in (bob.undo, bob.history, bob.require, bob.excerpt, bob.forget, lambda key: bob.edit(key, text="mine")):
        with pytest.raises(UnknownRecord, match=f"no record has the id {secret.id!r}"):
            work(secret.id)
    assert [event.action for event in memory.history(secret.id) if event.action != "undo"][-1] == last


def test_a_global_record_cannot_be_forgotten_by_undoing_a_supersession(memory: Memory) -> None:
    """Superseding a record of one's own by a global one, and undoing that, leaves the global one as it was."""
    shared = memory.add("The office closes at ten.")
    ada, bob = memory.within(Scope("ada")), memory.within(Scope("bob"))
    own = bob.add("The office closes at nine.")
    assert bob.supersede(own.id, shared.id).id == shared.id
    assert [event.action for event in ada.history(shared.id)] == ["add"]
    assert [event.action for event in bob.history(shared.id)] == ["add", "supersedes"]
    with pytest.raises(Forbidden):
        bob.undo(shared.id)
    assert bob.undo(own.id) == ("supersede", own)
    assert memory.get(shared.id) == shared


def test_undo_does_not_forget_the_owners_record_that_superseded_ones_own(memory: Memory) -> None:
    """The caller's record is restored; the owner's stays, although it was made to supersede it."""
    bob = memory.within(Scope("bob"))
    own = bob.add("The office closes at nine.")
    wider = memory.add("The office closes at ten.", supersedes=own.id)
    assert bob.undo(own.id)[0] == "supersede"
    assert memory.get(wider.id) == wider
    assert bob.get(own.id) == own


def test_undo_of_a_wider_record_does_not_restore_another_agents(memory: Memory) -> None:
    """The record that it superseded is another agent's: neither restored nor named."""
    old = memory.add("Deploys go out on Mondays.", user="ada", agent="planner")
    new = memory.add("Deploys go out on Tuesdays.", user="ada", supersedes=old.id)
    cook = memory.within(Scope("ada", "cook"))
    with pytest.raises(Forbidden) as refused:
        cook.undo(new.id)
    assert old.id not in refused.value.message
    assert [event.action for event in cook.history(new.id)] == ["add"]
    assert memory.get(old.id).superseded_by == new.id


def test_a_record_with_a_path_opens_no_file(memory: Memory, tmp_path: Path) -> None:
    """Only indexing by the owner makes chunks; otherwise a path would be a way to read any file."""
    diary = tmp_path / "diary.md"
    diary.write_text("# Diary\n\nThe vault opens with 4711.\n")
    memory.index(diary, user="ada")
    bob = memory.within(Scope("bob"))
    for said in ({"kind": "chunk"}, {"path": str(diary)}, {"kind": "chunk", "path": str(diary), "lines": [1, 3]}):
        with pytest.raises(Forbidden):
            bob.add("mine", **said)
    (chunk,) = memory.list(user="ada")
    assert "4711" in memory.within(Scope("ada")).excerpt(chunk.id).text
    with pytest.raises(UnknownRecord):
        bob.why_not("diary", str(diary))
    for work in (bob.index, bob.ingest_files):
        with pytest.raises(Forbidden):
            work(diary)


@pytest.mark.parametrize("swapped", ["link", "folder link", "pipe", "key", "binary", "long", "folder"])
def test_a_replaced_file_is_not_shown(memory: Memory, tmp_path: Path, swapped: str) -> None:
    """An excerpt reads nothing that `index` would not: the file counts as missing, the stored text is shown."""
    folder, secret = tmp_path / "notes", tmp_path / "secret"
    folder.mkdir()
    secret.mkdir()
    note = folder / "note.md"
    note.write_text("# Boats\n\nThe boat is blue.\n")
    (secret / "note.md").write_text("TOP SECRET")
    memory.index(folder, user="ada")
    (chunk,) = memory.list(user="ada")
    note.unlink()
    swaps: dict[str, Callable[[], Any]] = {
        "link": lambda: note.symlink_to(secret / "note.md"),
        "folder link": lambda: (folder.rmdir(), folder.symlink_to(secret)),
        "pipe": lambda: os.mkfifo(note),
        "key": lambda: note.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nSECRET\n"),
        "binary": lambda: note.write_bytes(b"\0\1\2SECRET" * 100),
        "long": lambda: note.write_text("SECRET\n" * 500_000),
        "folder": note.mkdir,
    }
    swaps[swapped]()
    shown = memory.within(Scope("ada")).excerpt(chunk.id)
    assert (shown.freshness, shown.text, shown.total_lines) == ("missing", chunk.text, 0)


def test_a_purged_id_reveals_nothing_of_its_former_scope(memory: Memory) -> None:
    """It can be used again; its history begins with the new record."""
    memory.add("The vault opens with 4711.", user="ada", id="vault")
    memory.forget("vault", purge=True)
    bob = memory.within(Scope("bob"))
    bob.add("My own vault.", id="vault")
    assert [event.action for event in bob.history("vault")] == ["add"]
    assert memory.within(Scope("ada")).get("vault") is None


def test_the_id_of_another_scopes_record_cannot_be_used(memory: Memory, secret: Record) -> None:
    """Neither while the record exists nor after it is forgotten."""
    bob = memory.within(Scope("bob"))
    for _ in range(2):
        with pytest.raises(UsageError, match="taken"):
            bob.add("mine", id=secret.id)
        if memory.get(secret.id):
            memory.forget(secret.id)
    assert memory.undo(secret.id) == ("forget", secret)


def test_the_text_of_a_new_record_is_hashed_once(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer, the search for a duplicate and the row in the store share one hash, for a scoped caller too."""
    hashed: list[str] = []

    def count(text: str) -> bytes:
        hashed.append(text)
        return fold_hash(text)

    monkeypatch.setattr("recollect.types.records.fold_hash", count)
    memory.within(Scope("ada")).add("The heron stands in the reeds.")
    assert hashed == ["The heron stands in the reeds."]
