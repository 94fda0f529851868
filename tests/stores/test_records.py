"""The truth: what is stored, changed, superseded and forgotten, and what is not."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import apsw
import pytest

from recollect import Memory
from recollect.errors import RecollectError, SupersessionCycle, UnknownRecord, UsageError
from recollect.stores.sqlite import SqliteStore
from recollect.types import Filter, Forget, Put, Record, Scope, Supersede, now

NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)
Dump = Callable[[], dict[str, list[tuple[Any, ...]]]]

FULL = Record(
    id="full",
    text="Türen öffnen 🚪\nzweite Zeile\t\x00 Ende",
    kind="chunk",
    title="Ein Titel: “quoted”",
    category="technical",
    tags=("b", "a", "ünï"),
    scope=Scope("ada", "planner", "s-1"),
    importance=0.1 + 0.2,
    decay="active",
    created_at=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    happened_at=datetime(1815, 12, 10, 0, 0, 0, 1, tzinfo=UTC),
    expires_at=datetime(2199, 1, 1, tzinfo=UTC),
    edited_at=datetime(2026, 1, 3, tzinfo=UTC),
    superseded_by="other",
    superseded_at=datetime(2198, 1, 1, tzinfo=UTC),
    source="import",
    path="/notes/a b.md",
    lines=(10, 24),
)


def texts(memory: Memory, query: str, **options: Any) -> list[str]:
    """What a search finds, as texts."""
    return [result.record.text for result in memory.search(query, **options).results]


# -- putting and reading ------------------------------------------------------------------------------------


def test_every_field_survives_a_round_trip(path: Path, store: SqliteStore) -> None:
    """What is read back, by another store object on the same file, is what was put, field by field."""
    default = Record("default", "as plain as it gets", created_at=NOON)
    store.records.apply([[Put(FULL), Put(default)]])
    other = SqliteStore(path)
    found = other.records.get(["full", "default"])
    other.close()
    names = [entry.name for entry in fields(Record) if entry.compare]  # a cached hash is no part of a record
    for stored, given in zip(found, (FULL, default), strict=True):
        for name in names:
            assert getattr(stored, name) == getattr(given, name), name
    unset = {name for name in names if getattr(FULL, name) == getattr(default, name)}
    assert not unset, "every field differs from its default, so that a lost one is seen"


def test_times_come_back_as_the_same_instant_in_utc(store: SqliteStore) -> None:
    """A time of another zone comes back as the same instant."""
    here = datetime(2026, 6, 1, 23, 30, tzinfo=timezone(timedelta(hours=5, minutes=45)))
    (stored,) = store.records.apply([[Put(Record("a", "x", created_at=here))]])
    (read,) = store.records.get(["a"])
    assert stored.created_at == read.created_at == here
    assert read.created_at.utcoffset() == timedelta(0)


def test_get_keeps_the_order_asked_and_leaves_out_what_is_not_there(store: SqliteStore) -> None:
    """Ids are answered in the order of the question, unknown ones left out, repeats repeated."""
    store.records.apply([[Put(Record(key, key)) for key in "abc"]])
    assert [record.id for record in store.records.get(["c", "nope", "a", "c"])] == ["c", "a", "c"]
    assert store.records.get([]) == []


def test_list_is_newest_first_and_pages(store: SqliteStore) -> None:
    """Listing goes by the time a record is from, newest first, ties by id, and pages do not overlap."""
    given = [Record(f"r{i}", f"text {i}", created_at=NOON + timedelta(hours=i // 2)) for i in range(9)]
    old = Record(
        "old", "stored last, happened first", created_at=NOON + timedelta(days=9), happened_at=NOON - timedelta(1)
    )
    store.records.apply([[Put(record) for record in (*given, old)]])
    listed = [record.id for record in store.records.list(Filter(), limit=100)]
    assert listed == ["r8", "r6", "r7", "r4", "r5", "r2", "r3", "r0", "r1", "old"]
    pages = [store.records.list(Filter(), limit=4, offset=start) for start in (0, 4, 8, 12)]
    assert [record.id for page in pages for record in page] == listed


def test_putting_an_id_again_updates_it_and_history_keeps_what_was(store: SqliteStore) -> None:
    """The second put changes the record; the event holds the values that were there before."""
    first = Record("a", "the old text", category="work", tags=("x",), importance=0.2, created_at=NOON)
    second = Record("a", "the new text", category="home", tags=("y", "z"), importance=0.9, created_at=now())
    store.records.apply([[Put(first)]])
    (updated,) = store.records.apply([[Put(second)]])
    assert (updated.text, updated.category, updated.tags, updated.importance) == (
        "the new text",
        "home",
        ("y", "z"),
        0.9,
    )
    assert updated.created_at == NOON, "it was stored when it was first stored"
    assert updated.edited_at is not None
    assert store.records.get(["a"]) == [updated]
    add, update = store.records.history("a")
    assert (add.action, update.action) == ("add", "update")
    assert update.detail == {"before": {"text": "the old text", "category": "work", "tags": ["x"], "importance": 0.2}}
    assert [r.id for r in store.records.list(Filter(tags=("x",)), limit=9)] == []
    assert [r.id for r in store.records.list(Filter(tags=("y", "z")), limit=9)] == ["a"]


def test_an_update_that_is_no_change_of_text_does_not_count_as_an_edit(store: SqliteStore) -> None:
    """`edited_at` tells when text or title changed, and nothing else moves it."""
    record = Record("a", "text", title="title", created_at=NOON)
    store.records.apply([[Put(record)]])
    (tagged,) = store.records.apply([[Put(replace(record, tags=("new",)))]])
    assert tagged.edited_at is None
    (titled,) = store.records.apply([[Put(replace(record, title="another"))]])
    assert titled.edited_at is not None


def test_an_unchanged_put_adds_no_event(store: SqliteStore, dump: Dump) -> None:
    """Putting what is there already changes nothing at all."""
    store.records.apply([[Put(FULL)]])
    before = dump()
    (again,) = store.records.apply([[Put(replace(FULL, created_at=now()))]])
    assert again == FULL
    assert dump() == before
    assert store.status()["sequence"] == 1


def test_an_id_of_another_scope_is_refused(memory: Memory, dump: Dump) -> None:
    """One user cannot overwrite another's record, nor a global one, by naming its id."""
    memory.add("Ada's own", id="mine", user="ada")
    memory.add("everybody's", id="ours")
    before = dump()
    for key, scope in (
        ("mine", {"user": "bob"}),
        ("mine", {}),
        ("mine", {"user": "ada", "agent": "x"}),
        ("ours", {"user": "bob"}),
    ):
        with pytest.raises(UsageError, match=key):
            memory.add("taken over", id=key, **scope)
    after = dump()
    assert {name: after[name] for name in ("records", "tags", "history")} == {
        name: before[name] for name in ("records", "tags", "history")
    }
    assert memory.get("mine").text == "Ada's own"


def test_the_same_text_merges_within_one_scope_only(memory: Memory) -> None:
    """Texts that fold alike are one record in one scope, and separate records in separate scopes."""
    scopes: list[dict[str, str]] = [
        {},
        {"user": "ada"},
        {"user": "ada", "agent": "x"},
        {"user": "bob"},
        {"session": "s"},
    ]
    first = [memory.add("Ｔhe  Straße is closed", **scope).id for scope in scopes]
    again = [memory.add("the STRASSE\nis closed", **scope).id for scope in scopes]
    assert again == first
    assert len(set(first)) == len(scopes)
    assert memory.status()["records"]["total"] == len(scopes)


def test_merging_keeps_what_both_tellings_know(memory: Memory) -> None:
    """The later telling's word counts where it has one; tags add up; the rest stays."""
    first = memory.add("tea at five", category="home", tags=["a", "b"], source="phone")
    second = memory.add("Tea at Five", importance=0.9, tags=["b", "c"])
    assert second.id == first.id
    assert (second.category, second.source, second.importance, second.tags) == ("home", "phone", 0.9, ("a", "b", "c"))
    assert [event.action for event in memory.history(first.id)] == ["add", "update"]


def test_a_superseded_or_expired_text_is_not_merged_with(memory: Memory) -> None:
    """Saying again what no longer holds makes a new record that holds."""
    old = memory.add("the office is in Rome")
    memory.supersede(old.id, text="the office is in Oslo")
    gone = memory.add("the lift is broken", expires_at=now() - timedelta(days=1))
    assert memory.add("the office is in Rome").id != old.id
    assert memory.add("the lift is broken").id != gone.id
    assert "the office is in Rome" in texts(memory, "office Rome")
    assert "the lift is broken" in texts(memory, "lift broken")


@pytest.mark.parametrize("say", ["add", "add_many"])
def test_an_id_that_is_none_is_no_id(memory: Memory, say: str) -> None:
    """`id: null` means that one is to be made, so the same text is still one record."""
    for _ in range(2):
        if say == "add":
            memory.add("said twice", id=None)
        else:
            memory.add_many([{"text": "said twice", "id": None}])
    assert len(memory.list()) == 1


# -- forgetting ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("purge", [False, True])
def test_a_forgotten_record_answers_nothing(memory: Memory, purge: bool) -> None:
    """Not by id, list, search (either source) or as of a time when it was there; its history stays."""
    kept = memory.add("the heron stands in the reeds", created_at=NOON)
    gone = memory.add("the heron flew away", created_at=NOON, tags=["bird"])
    memory.forget(gone.id, purge=purge)
    assert memory.get(gone.id) is None
    assert [record.id for record in memory.list(any_scope=True, superseded=True)] == [kept.id]
    assert memory.list(tags=["bird"]) == []
    for options in ({}, {"as_of": NOON + timedelta(days=1)}, {"superseded": True, "any_scope": True}):
        for sources in (["keyword"], ["vector"], ["keyword", "vector"]):
            assert texts(memory, "heron flew away", sources=sources, **options) == [kept.text]
    assert [event.action for event in memory.history(gone.id)] == ["add", "purge" if purge else "forget"]
    with pytest.raises(UnknownRecord):
        memory.supersede(kept.id, by=gone.id)


def test_forgetting_is_all_or_none(memory: Memory, dump: Dump) -> None:
    """One unknown id among many leaves all of them."""
    ids = [memory.add(f"text {i}").id for i in range(3)]
    before = dump()
    with pytest.raises(UnknownRecord):
        memory.forget(*ids, "unknown")
    assert dump() == before


def test_a_forgotten_id_can_be_used_again(memory: Memory) -> None:
    """After a forget, an add with the id stores a new record that is found, and only it."""
    memory.add("first life of the phoenix", id="p", tags=["old"], category="work")
    memory.forget("p")
    memory.add("second life of the phoenix", id="p")
    record = memory.get("p")
    assert (record.text, record.tags, record.category, record.superseded_by) == (
        "second life of the phoenix",
        (),
        None,
        None,
    )
    assert texts(memory, "phoenix life") == ["second life of the phoenix"]
    assert memory.list(tags=["old"]) == []


SECRET = "quixotryptic passphrase zwibblefrotz"


def make_secret(memory: Memory) -> str:
    """A record with a past: another text, title, tags, category and source, each one a secret."""
    memory.add(
        f"earlier: {SECRET} one", id="s", title="Vlorbian", tags=["krelmish"], category="snorvian", source="glimfeed",
        path="/home/drozzel.md",
    )  # fmt: skip
    memory.add(f"later: {SECRET} two", id="s", title="Vlorbian second", tags=["krelmish"], category="snorvian")
    memory.add("an innocent bystander", id="other")
    memory.search(SECRET)
    return "s"


SECRETS = ("quixotryptic", "zwibblefrotz", "vlorbian", "krelmish", "snorvian", "glimfeed", "drozzel")


def test_purge_leaves_nothing_in_any_table(path: Path, memory: Memory, dump: Dump) -> None:
    """No row of any table, and no term of the index, holds what was purged."""
    key = make_secret(memory)
    assert any(secret in str(dump()).lower() for secret in SECRETS), "the test can see them"
    memory.forget(key, purge=True)
    held = dump()
    for secret in SECRETS:
        assert secret not in str(held).lower(), secret
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    terms = {term for (term,) in connection.execute("SELECT DISTINCT term FROM terms_instance")}
    connection.close()
    assert {"innoc", "bystand"} <= terms
    assert not [term for term in terms if term.startswith(tuple(secret[:5] for secret in SECRETS))]


def test_purge_takes_the_vectors_of_earlier_texts_too(memory: Memory, dump: Dump) -> None:
    """A vector can be turned back into words, so none of any earlier version stays."""
    memory.forget(make_secret(memory), purge=True)
    assert len(dump()["embeddings"]) == 1, "only the bystander's"


def test_purge_leaves_a_vector_that_another_record_needs(memory: Memory, dump: Dump) -> None:
    """The same passage in another scope keeps its vector."""
    mine, theirs = memory.add("shared words", user="ada"), memory.add("shared words", user="bob")
    memory.forget(mine.id, purge=True)
    assert len(dump()["embeddings"]) == 1
    (result,) = memory.search("shared words", user="bob", sources=["vector"]).results
    assert result.record.id == theirs.id


def test_purge_leaves_no_byte_in_the_file(path: Path, memory: Memory) -> None:
    """After the store is closed, the raw bytes of its files hold nothing of what was purged."""
    key = make_secret(memory)
    memory.forget(key, purge=True)
    memory.close()
    for file in path.parent.iterdir():
        raw = file.read_bytes().lower()
        found = [secret for secret in SECRETS if secret.encode() in raw]
        assert not found, f"{file.name} still holds {found}"


def test_purge_leaves_no_byte_in_the_file_after_vacuum(path: Path, memory: Memory) -> None:
    """At the very least a VACUUM, as an administrator would run it, leaves nothing of what was purged."""
    memory.forget(make_secret(memory), purge=True)
    memory.close()
    connection = apsw.Connection(str(path))
    connection.execute("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    raw = path.read_bytes().lower()
    assert b"bystander" in raw
    assert [secret for secret in SECRETS if secret.encode() in raw] == []


@pytest.mark.ci
def test_forgetting_touches_nothing_else(path: Path, memory: Memory, dump: Dump) -> None:
    """In 200 random cases every row of every other record is byte for byte what it was, in the indexes too."""
    chance = random.Random(20260314)
    words = ["heron", "reed", "lake", "boat", "oar", "mist", "dawn", "ice"]
    made = 0

    def add() -> str:
        nonlocal made
        made += 1
        said = chance.choices(words, k=chance.randint(1, 5))
        return memory.add(
            " ".join([*said, chance.choice("αβγ"), str(made) if chance.random() < 0.7 else ""]),
            id=f"r{made}",
            user=chance.choice([None, "ada", "bob"]),
            tags=chance.sample(["red", "blue", "green"], chance.randint(0, 3)),
            title=chance.choice(["", "Title"]),
        ).id

    ids = [add() for _ in range(40)]
    connection = apsw.Connection(str(path))

    def others(gone: str) -> dict[str, Any]:
        held = dump()
        row = connection.execute("SELECT row FROM records WHERE id = ?", (gone,)).get
        return {
            "records": [r for r in held["records"] if r[0] != row],
            "tags": [r for r in held["tags"] if r[1] != row],
            "history": [r for r in held["history"] if r[1] != row],
            "vectors": connection.execute(
                "SELECT id, vector FROM records JOIN embeddings USING (passage) WHERE row <> ? ORDER BY id", (row,)
            ).fetchall(),
            "terms": connection.execute(
                "SELECT * FROM terms_instance WHERE doc <> ? ORDER BY 1, 2, 3, 4", (row,)
            ).fetchall(),
            "lengths": connection.execute("SELECT * FROM lengths WHERE row <> ? ORDER BY row", (row,)).fetchall(),
        }

    for _ in range(200):
        gone = ids.pop(chance.randrange(len(ids)))
        before = others(gone)
        memory.forget(gone, purge=chance.random() < 0.5)
        assert others(gone) == before
        assert memory.get(gone) is None
        ids.append(add())
    connection.close()


# -- groups -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failing",
    [
        pytest.param(Supersede("unknown", "new"), id="supersede-unknown"),
        pytest.param(Supersede("old", "unknown"), id="supersede-by-unknown"),
        pytest.param(Supersede("new", "new"), id="cycle"),
        pytest.param(Forget("unknown"), id="forget-unknown"),
        pytest.param(Put(Record("ada's", "taken over", scope=Scope("bob"))), id="other-scope"),
    ],
)
def test_a_failing_change_undoes_its_whole_group(store: SqliteStore, dump: Dump, failing: Any) -> None:
    """Whatever stood before the failing change in its group is undone, and what stands after is not done."""
    ours = [Record("old", "old text"), Record("spare", "spare"), Record("ada's", "hers", scope=Scope("ada"))]
    store.records.apply([[Put(record) for record in ours]])
    before = dump()
    with pytest.raises(UsageError):
        store.records.apply(
            [
                [
                    Put(Record("new", "new text")),
                    Put(Record("old", "changed")),
                    Forget("spare"),
                    failing,
                    Put(Record("z", "z")),
                ]
            ]
        )
    assert dump() == before
    assert store.records.get(["new", "z", "spare"]) == [ours[1]]


def test_add_with_an_unknown_id_to_supersede_stores_nothing(memory: Memory) -> None:
    """The façade's `add(…, supersedes=…)` holds or fails as one."""
    with pytest.raises(UnknownRecord):
        memory.add("would be orphaned", supersedes="unknown")
    assert memory.list() == []
    assert texts(memory, "orphaned") == []


def test_the_store_works_on_after_a_failed_group(memory: Memory) -> None:
    """A failure leaves no transaction open and no index behind."""
    with pytest.raises(UnknownRecord):
        memory.forget("unknown")
    memory.add("the next one is stored")
    assert texts(memory, "next one") == ["the next one is stored"]


def test_a_writer_that_waited_for_the_lock_does_its_work_when_it_has_it(path: Path, store: SqliteStore) -> None:
    """However long it waited, the first transaction it gets does the work; it does not give the lock back unused."""
    blocker = apsw.Connection(str(path))
    blocker.execute("BEGIN IMMEDIATE")
    begun: list[str] = []
    store._database._writer.exec_trace = lambda _cursor, sql, _values: begun.append(sql) or True
    release = threading.Timer(0.4, blocker.execute, ("ROLLBACK",))
    release.start()
    store.records.apply([[Put(Record("a", "patient"))]])
    release.join()
    blocker.close()
    store._database._writer.exec_trace = None
    assert begun.count("BEGIN IMMEDIATE") == 1


# -- supersession -------------------------------------------------------------------------------------------


def test_a_chain_leaves_its_end(memory: Memory) -> None:
    """A → B → C: only C is found, by either source and in lists; all three can be had by id and on request."""
    a = memory.add("the deploy day is Monday")
    b = memory.supersede(a.id, text="the deploy day is Tuesday")
    c = memory.supersede(b.id, text="the deploy day is Friday")
    for sources in (["keyword"], ["vector"], ["keyword", "vector"]):
        assert texts(memory, "deploy day Monday", sources=sources) == [c.text]
    assert [record.id for record in memory.list()] == [c.id]
    assert {record.id for record in memory.list(superseded=True)} == {a.id, b.id, c.id}
    assert (memory.get(a.id).superseded_by, memory.get(b.id).superseded_by) == (b.id, c.id)
    assert [e.action for e in memory.history(b.id)] == ["add", "supersedes", "supersede"]


def test_the_successor_inherits(memory: Memory) -> None:
    """A text that supersedes takes scope, category, tags, title, importance and decay class; it is always a fact."""
    old = memory.add(
        "v1",
        user="ada",
        agent="x",
        category="work",
        tags=["t"],
        title="T",
        importance=0.8,
        decay="stable",
        kind="chunk",
    )
    new = memory.supersede(old.id, text="v2")
    assert new.kind == "fact"
    for name in ("scope", "category", "tags", "title", "importance", "decay"):
        assert getattr(new, name) == getattr(old, name), name


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_cycle_is_refused_and_changes_nothing(memory: Memory, dump: Dump, length: int) -> None:
    """A record cannot come to supersede itself, over however many others."""
    ids = [memory.add(f"version {i}").id for i in range(length)]
    for old, new in itertools.pairwise(ids):
        memory.supersede(old, by=new)
    before = dump()
    with pytest.raises(SupersessionCycle):
        memory.supersede(ids[-1], by=ids[0])
    assert dump() == before
    assert texts(memory, "version") == [f"version {length - 1}"]


def test_superseding_twice_is_refused(memory: Memory, dump: Dump) -> None:
    """What is superseded already cannot be superseded by another; saying the same again is harmless."""
    a, b, c = (memory.add(f"version {i}").id for i in range(3))
    memory.supersede(a, by=b)
    before = dump()
    with pytest.raises(UsageError, match=b):
        memory.supersede(a, by=c)
    memory.supersede(a, by=b)
    assert dump() == before


@pytest.mark.parametrize(
    ("old", "new", "allowed"),
    [
        ({}, {"user": "ada"}, False),
        ({"user": "ada"}, {"user": "bob"}, False),
        ({"user": "ada"}, {"user": "ada", "session": "s"}, False),
        ({"user": "ada"}, {"agent": "x"}, False),
        ({"user": "ada"}, {}, True),
        ({"user": "ada", "agent": "x"}, {"agent": "x"}, True),
        ({"user": "ada"}, {"user": "ada"}, True),
    ],
)
def test_a_successor_must_be_seen_by_all_who_saw_the_old(
    memory: Memory, dump: Dump, old: dict[str, str], new: dict[str, str], allowed: bool
) -> None:
    """A narrower or foreign successor would take a fact away from someone; it is refused."""
    a, b = memory.add("before", **old).id, memory.add("after", **new).id
    before = dump()
    if allowed:
        memory.supersede(a, by=b)
        assert texts(memory, "before after", **old) == ["after"]
        return
    with pytest.raises(UsageError):
        memory.supersede(a, by=b)
    assert dump() == before
    assert "before" in texts(memory, "before", **old)


def test_as_of_answers_as_of_then(memory: Memory) -> None:
    """Before a record was there: nothing; before it was superseded: it; from that very moment on: its successor."""
    a = memory.add("the captain is Ahab", created_at=NOON)
    b = memory.add("the captain is Starbuck", created_at=NOON + timedelta(days=10))
    memory.supersede(a.id, by=b.id, at=NOON + timedelta(days=10))
    expected = {
        NOON - timedelta(microseconds=1): [],
        NOON: [a.text],
        NOON + timedelta(days=10, microseconds=-1): [a.text],
        NOON + timedelta(days=10): [b.text],
        NOON + timedelta(days=11): [b.text],
    }
    for moment, found in expected.items():
        assert [record.text for record in memory.list(as_of=moment)] == found, moment
        for sources in (["keyword"], ["vector"], ["keyword", "vector"]):
            assert texts(memory, "who is captain", as_of=moment, sources=sources) == found, (moment, sources)
    assert texts(memory, "who is captain") == [b.text]


def test_supersession_takes_effect_at_once_when_no_time_is_given(memory: Memory) -> None:
    """A fact about a day to come is replaced now, not on that day."""
    old = memory.add("the party is on Friday", happened_at=now() + timedelta(days=5))
    memory.supersede(old.id, text="the party is on Thursday")
    assert texts(memory, "when is the party") == ["the party is on Thursday"]


def test_a_supersession_set_for_later_begins_then(memory: Memory) -> None:
    """Until its time comes the old record answers; the cached visible set does not outlive that moment."""
    a, b = memory.add("the old rule"), memory.add("the new rule")
    memory.supersede(a.id, by=b.id, at=now() + timedelta(days=1))
    assert set(texts(memory, "rule")) == {"the old rule", "the new rule"}
    terms, later = ["rule"], Filter(now=now() + timedelta(days=2))
    for where, count in ((later, 1), (Filter(), 2), (later, 1)):
        assert len(memory.store.keywords.search(terms, where, 10).entries) == count
        assert len(memory.store.records.list(where, limit=10)) == count
    assert texts(memory, "rule", as_of=later.now) == ["the new rule"]


def test_a_changed_text_is_not_shown_as_of_before_its_change(memory: Memory) -> None:
    """What was edited since then is not what was known then."""
    memory.add("first wording", id="e", created_at=NOON)
    memory.add("second wording", id="e")
    assert texts(memory, "wording", as_of=NOON + timedelta(days=1)) == []
    assert texts(memory, "wording") == ["second wording"]


def test_expired_records_answer_nothing(memory: Memory) -> None:
    """From its very moment of expiry a record is out of lists and both sources; as of before, it answers."""
    end = now() + timedelta(hours=1)
    memory.add("parking permit number nine", expires_at=end, created_at=NOON)
    memory.add("parking permit forever", created_at=NOON)
    for sources in (["keyword"], ["vector"]):
        before = texts(memory, "parking permit", sources=sources)
        assert set(before) == {"parking permit number nine", "parking permit forever"}
        assert texts(memory, "parking permit", sources=sources, as_of=end) == ["parking permit forever"]
        assert len(texts(memory, "parking permit", sources=sources, as_of=end - timedelta(microseconds=1))) == 2
    assert [record.text for record in memory.store.records.list(Filter(now=end), limit=9)] == ["parking permit forever"]


# -- the clock that indexes follow --------------------------------------------------------------------------


def test_sequence_numbers_strictly_grow(memory: Memory) -> None:
    """Every change has a number above all before it; failures, reads and no-changes take none that is seen."""
    seen = [memory.status()["sequence"]]

    def step(change: Callable[[], object], grows: bool) -> None:
        try:
            change()
        except RecollectError:
            assert not grows
        number = memory.status()["sequence"]
        assert number > seen[-1] if grows else number == seen[-1]
        seen.append(number)

    step(lambda: memory.add("one", id="1"), True)
    step(lambda: memory.add("one", id="1"), False)
    step(lambda: memory.add("two", id="2"), True)
    step(lambda: memory.search("one"), False)
    step(lambda: memory.supersede("1", by="2"), True)
    step(lambda: memory.supersede("2", by="1"), False)
    step(lambda: memory.forget("2"), True)
    step(lambda: memory.forget("2", purge=True), True)
    step(lambda: memory.forget("3"), False)
    step(lambda: memory.add("two", id="2"), True)
    numbers = sorted(event.seq for key in "12" for event in memory.history(key))
    assert len(numbers) == len(set(numbers))
    assert numbers[-1] == seen[-1]
