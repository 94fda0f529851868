"""Records: what is put, changed, listed and counted, its history, and hostile texts."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from recollect.errors import Overtaken, RecollectError, StoreError, UsageError
from recollect.testing.harness import NOON, SEARCHES, OpenStore, all_ids, by_keywords, ids, store_all, texts
from recollect.types import (
    EVERYTHING,
    Change,
    ExpectUnchanged,
    Filter,
    Forget,
    MarkUndo,
    Put,
    Record,
    Restore,
    Scope,
    Store,
    Supersede,
    now,
)  # fmt: skip

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
"""A record whose fields all differ from their defaults, so that a lost one is noticed."""


class RecordsContract:
    """Records are stored without loss, with a history of their changes."""

    def test_every_field_survives_a_round_trip(self, open_store: OpenStore, place: str, store: Store) -> None:
        """Another store object on the same place reads the fields that were put."""
        default = Record("default", "as plain as it gets", created_at=NOON)
        assert store.records.apply([[Put(FULL), Put(default)]]) == [FULL, default]
        found = open_store(place).records.get(["full", "default"])
        for stored, given in zip(found, (FULL, default), strict=True):
            for name in (entry.name for entry in fields(Record) if entry.compare):
                assert getattr(stored, name) == getattr(given, name), name

    def test_times_come_back_as_the_same_instant_in_utc(self, store: Store) -> None:
        """A time in another zone is read back as the same instant."""
        here = datetime(2026, 6, 1, 23, 30, tzinfo=timezone(timedelta(hours=5, minutes=45)))
        store.records.apply([[Put(Record("a", "x", created_at=here))]])
        (read,) = store.records.get(["a"])
        assert read.created_at == here
        assert read.created_at.utcoffset() == timedelta(0)

    def test_get_keeps_the_order_asked_and_leaves_out_what_is_not_there(self, store: Store) -> None:
        """Records come in the order of the ids; unknown ids are left out, repeated ones repeated."""
        store.records.apply([[Put(Record(key, key)) for key in "abc"]])
        assert ids(store.records.get(["c", "nope", "a", "c"])) == ["c", "a", "c"]
        assert store.records.get([]) == []
        assert ids(store.records.get(["a"], Filter())) == ["a"]
        assert store.records.get(["a"], Filter(kinds=("chunk",))) == []

    def test_what_is_put_comes_back_in_its_order(self, store: Store) -> None:
        """One record for each `Put`, whatever other changes are between them."""
        store.records.apply([[Put(Record("z", "was there"))]])
        groups: list[list[Change]] = [
            [Put(Record("b", "two")), Supersede("z", "b")],
            [Put(Record("a", "one")), Forget("a")],
            [Put(Record("b", "two, said better"))],
            [Put(Record("c", "TWO,  said BETTER"), merge=True), Put(Record("d", "new"), merge=True)],
        ]
        stored = store.records.apply(groups)
        assert ids(stored) == ["b", "a", "b", "b", "d"]
        assert [record.text for record in stored][2:4] == ["two, said better"] * 2

    def test_list_is_newest_first_and_pages(self, store: Store) -> None:
        """By the time of a record, then by id, and pages do not overlap."""
        given = [Record(f"r{i}", f"text {i}", created_at=NOON + timedelta(hours=i // 2)) for i in range(9)]
        early = NOON - timedelta(1)
        old = Record("old", "stored last, happened first", created_at=NOON + timedelta(days=9), happened_at=early)
        store.records.apply([[Put(record) for record in (*given, old)]])
        listed = ids(store.records.list(Filter(), limit=100))
        assert listed == ["r8", "r6", "r7", "r4", "r5", "r2", "r3", "r0", "r1", "old"]
        pages = [store.records.list(Filter(), limit=4, offset=start) for start in (0, 4, 8, 12)]
        assert [key for page in pages for key in ids(page)] == listed

    def test_ties_go_by_the_bytes_of_an_id(self, store: Store) -> None:
        """Not by a collation, which differs from server to server."""
        keys = ["B", "a", "ä", "Z", "_", "-", "10", "9", "é", "e", "湖"]
        store.records.apply([[Put(Record(key, f"heron {i}", created_at=NOON))] for i, key in enumerate(keys)])
        expected = sorted(keys, key=str.encode)
        assert ids(store.records.list(Filter(), limit=100)) == expected
        assert ids(by_keywords(store, "heron", Filter(), 100)) == expected

    def test_putting_an_id_again_updates_it_and_history_keeps_what_was(self, store: Store) -> None:
        """The event contains the previous values."""
        first = Record("a", "the old text", category="work", tags=("x",), importance=0.2, created_at=NOON)
        second = Record("a", "the new text", category="home", tags=("y", "z"), importance=0.9, created_at=now())
        store.records.apply([[Put(first)]])
        (updated,) = store.records.apply([[Put(second)]])
        assert (updated.text, updated.category, updated.tags) == ("the new text", "home", ("y", "z"))
        assert updated.created_at == NOON, "it was stored when it was first stored"
        assert updated.edited_at is not None
        assert store.records.get(["a"]) == [updated]
        add, update = store.records.history("a")
        assert (add.action, update.action) == ("add", "update")
        before = {"text": "the old text", "category": "work", "tags": ["x"], "importance": 0.2}
        assert update.detail == {"before": before}
        assert ids(store.records.list(Filter(tags=("x",)), limit=9)) == []
        assert ids(store.records.list(Filter(tags=("y", "z")), limit=9)) == ["a"]

    def test_only_a_change_of_text_or_title_counts_as_an_edit(self, store: Store) -> None:
        """`edited_at` is the time when text or title changed."""
        record = Record("a", "text", title="title", created_at=NOON)
        store.records.apply([[Put(record)]])
        (tagged,) = store.records.apply([[Put(replace(record, tags=("new",)))]])
        assert tagged.edited_at is None
        (titled,) = store.records.apply([[Put(replace(record, title="another"))]])
        assert titled.edited_at is not None

    def test_an_unchanged_put_adds_no_event(self, store: Store) -> None:
        """Putting the same record again changes nothing."""
        store.records.apply([[Put(FULL)]])
        before = store.status()["sequence"], store.records.history("full")
        assert store.records.apply([[Put(replace(FULL, created_at=now()))]]) == [FULL]
        assert (store.status()["sequence"], store.records.history("full")) == before

    def test_an_id_of_another_scope_is_refused(self, store: Store) -> None:
        """A user cannot overwrite a record of another user, or a global one, by its id."""
        mine, ours = Record("mine", "Ada's own", scope=Scope("ada")), Record("ours", "everybody's")
        store.records.apply([[Put(mine), Put(ours)]])
        taken = (("mine", Scope("bob")), ("mine", Scope()), ("mine", Scope("ada", "x")), ("ours", Scope("bob")))
        for key, scope in taken:
            with pytest.raises(UsageError, match=key):
                store.records.apply([[Put(Record(key, "taken over", scope=scope))]])
        assert store.records.get(["mine", "ours"]) == [mine, ours]

    def test_the_same_text_merges_within_one_scope_and_kind_only(self, store: Store) -> None:
        """Texts that differ only in case and spaces are one record in one scope, and several in several."""
        scopes = [Scope(), Scope("ada"), Scope("ada", "x"), Scope("bob"), Scope(session="s")]
        for turn, text in enumerate(("Ｔhe  Straße is closed", "the STRASSE\nis closed")):
            groups = [[Put(Record(f"{turn}-{i}", text, scope=scope), merge=True)] for i, scope in enumerate(scopes)]
            assert ids(store.records.apply(groups)) == [f"0-{i}" for i in range(len(scopes))]
        chunk = Record("chunk", "the Straße is closed", kind="chunk")
        assert ids(store.records.apply([[Put(chunk, merge=True)]])) == ["chunk"]
        assert store.count(EVERYTHING)["total"] == len(scopes) + 1

    def test_the_same_text_twice_in_one_call_is_one_record(self, store: Store) -> None:
        """In one group and in several: later changes see earlier ones."""
        said = [Record(f"r{i}", "said again and again", tags=(f"t{i}",)) for i in range(6)]
        puts = [Put(record, merge=True) for record in said]
        stored = store.records.apply([puts[:3], puts[3:5], puts[5:]])
        assert ids(stored) == ["r0"] * 6
        assert store.records.get(["r0"])[0].tags == tuple(f"t{i}" for i in range(6))
        assert all_ids(store) == ["r0"]

    def test_the_same_id_twice_in_one_call_is_an_update(self, store: Store) -> None:
        """The last value counts, and history has both."""
        store.records.apply([[Put(Record("a", "first")), Put(Record("a", "second"))], [Put(Record("a", "third"))]])
        assert store.records.get(["a"])[0].text == "third"
        assert [event.action for event in store.records.history("a")] == ["add", "update", "update"]
        assert ids(by_keywords(store, "first second", Filter(), 9)) == []
        assert ids(by_keywords(store, "third", Filter(), 9)) == ["a"]

    def test_merging_keeps_what_both_tellings_know(self, store: Store) -> None:
        """The later record's fields win where it sets them; tags are joined."""
        first = Record("a", "tea at five", category="home", tags=("a", "b"), source="phone", importance=0.7)
        again = Record("b", "Tea at FIVE", category="work", tags=("b", "c"), title="Tea")
        store.records.apply([[Put(first, merge=True)]])
        (merged,) = store.records.apply([[Put(again, merge=True)]])
        assert (merged.id, merged.text, merged.category, merged.title) == ("a", "tea at five", "work", "Tea")
        assert (merged.tags, merged.source, merged.importance) == (("a", "b", "c"), "phone", 0.7)

    @pytest.mark.parametrize(
        "failing",
        [
            pytest.param(Supersede("unknown", "new"), id="supersede-unknown"),
            pytest.param(Supersede("old", "unknown"), id="supersede-by-unknown"),
            pytest.param(Supersede("new", "new"), id="cycle"),
            pytest.param(Forget("unknown"), id="forget-unknown"),
            pytest.param(Restore("old"), id="restore-what-is-there"),
            pytest.param(Put(Record("ada's", "taken over", scope=Scope("bob"))), id="other-scope"),
        ],
    )
    def test_a_failing_change_undoes_its_whole_group(self, store: Store, failing: Any) -> None:
        """Changes before it are undone, and changes after it are not made."""
        ours = [Record("old", "old text"), Record("spare", "spare"), Record("ada's", "hers", scope=Scope("ada"))]
        store_all(store, *ours)
        before = store.status()["sequence"]
        new, changed = Put(Record("new", "new text")), Put(Record("old", "changed"))
        with pytest.raises(UsageError):
            store.records.apply([[new, changed, Forget("spare"), failing, Put(Record("z", "z"))]])
        assert store.status()["sequence"] == before
        assert store.records.get(["new", "old", "z", "spare"]) == ours[:2]
        assert ids(by_keywords(store, "new old changed z", Filter(), 9)) == ["old"]
        store.records.apply([[Put(Record("next", "the next one is stored"))]])
        assert ids(by_keywords(store, "next", Filter(), 9)) == ["next"]

    def test_whose_a_record_is_can_be_told_while_anything_is_left_of_it(self, store: Store) -> None:
        """Also of a forgotten record; not of a purged or unknown one."""
        store.records.apply(
            [[Put(Record(key, key, scope=Scope("ada", "x"))) for key in ("a", "b")], [Put(Record("c", "c"))]]
        )
        store.records.apply([[Forget("b")]])
        assert [store.records.scope_of(key) for key in "abcd"] == [Scope("ada", "x"), Scope("ada", "x"), Scope(), None]
        store.records.apply([[Forget("b", purge=True)]])
        assert store.records.scope_of("b") is None

    def test_a_change_can_ask_that_nothing_else_has_happened(self, store: Store) -> None:
        """A group with `Still` fails as a whole if the record has a newer event."""
        store.records.apply([[Put(Record("a", "one"))], [Put(Record("a", "two"))]])
        first, second = (event.seq for event in store.records.history("a"))
        with pytest.raises(Overtaken):
            store.records.apply([[Put(Record("b", "beside")), ExpectUnchanged("a", first), Forget("a")]])
        assert all_ids(store) == ["a"]
        store.records.apply([[ExpectUnchanged("a", second), Put(Record("a", "one")), MarkUndo("a", second)]])
        assert [event.action for event in store.records.history("a")] == ["add", "update", "update", "undo"]
        assert store.records.history("a")[-1].detail == {"undoes": second}

    def test_history_only_grows_and_its_numbers_rise(self, store: Store) -> None:
        """Every change has a higher number than all before; failed changes have none."""
        seen = [store.status()["sequence"]]

        def step(change: Any, *, grows: bool) -> None:
            before = [*store.records.history("1"), *store.records.history("2")]
            try:
                store.records.apply([[change]])
            except RecollectError:
                assert not grows, change
            number = store.status()["sequence"]
            assert number > seen[-1] if grows else number == seen[-1], change
            seen.append(number)
            after = [*store.records.history("1"), *store.records.history("2")]
            # A purge removes the details of events, not the events.
            assert {(event.seq, event.action) for event in before} <= {(event.seq, event.action) for event in after}
            assert getattr(change, "purge", False) or all(event in after for event in before)

        step(Put(Record("1", "one")), grows=True)
        step(Put(Record("1", "one")), grows=False)
        step(Put(Record("2", "two")), grows=True)
        step(Supersede("1", "2"), grows=True)
        step(Supersede("2", "1"), grows=False)
        step(Restore("1"), grows=True)
        step(Forget("2"), grows=True)
        step(Restore("2"), grows=True)
        step(Forget("2"), grows=True)
        step(Forget("2", purge=True), grows=True)
        step(Forget("3"), grows=False)
        step(Put(Record("2", "two")), grows=True)
        numbers = [event.seq for key in "12" for event in store.records.history(key)]
        assert len(numbers) == len(set(numbers))
        assert max(numbers) == seen[-1]
        assert store.records.history("nobody") == []

    def test_counts_facets_and_status_tell_what_is_there(self, store: Store) -> None:
        """By kind and by filter, with forgotten records apart; the most frequent names come first."""
        ada, bob = Scope("ada"), Scope("bob", "x")
        store.records.apply(
            [
                [Put(Record("1", "one", category="work", tags=("b", "a"), scope=ada))],
                [Put(Record("2", "two", category="home", tags=("b",), scope=ada, kind="chunk"))],
                [Put(Record("3", "three", category="work", scope=bob)), Put(Record("4", "four", tags=("c",)))],
                [Put(Record("5", "five")), Forget("5"), Supersede("1", "4")],
            ]
        )
        assert store.count(EVERYTHING) == {"total": 4, "facts": 3, "chunks": 1, "superseded": 1}
        assert store.count(Filter(scope=ada)) == {"total": 2, "facts": 1, "chunks": 1, "superseded": 0}
        facets = store.facets(EVERYTHING)
        assert facets["categories"] == ["work", "home"]
        assert facets["tags"] == ["b", "a", "c"]
        assert facets["scopes"] == [{"user": "ada"}, {}, {"user": "bob", "agent": "x"}]
        assert store.facets(Filter(scope=bob)) == {
            "categories": ["work"], "tags": ["c"], "scopes": [{}, {"user": "bob", "agent": "x"}],
        }  # fmt: skip
        status = store.status()
        assert status["records"] == {"total": 4, "facts": 3, "chunks": 1, "superseded": 1, "forgotten": 1}
        assert status["keyword_lag"] == 0
        assert {"store", "engine", "bytes", "files", "sequence", "language"} <= status.keys()

    def test_a_closed_store_says_so(self, open_store: OpenStore) -> None:
        """Closing twice does nothing; everything else raises an error."""
        store = open_store()
        store.close()
        store.close()
        for use in (
            store.check,
            lambda: store.records.get(["a"]),
            lambda: store.records.apply([[Put(Record("a", "x"))]]),
            lambda: store.keywords.search(["x"], Filter(), 9),
        ):
            with pytest.raises(StoreError, match="closed"):
                use()

    def test_an_opened_store_holds_what_the_closed_one_held(self, open_store: OpenStore, place: str) -> None:
        """Records, history, vectors and notes are the same after the store is opened again."""
        store = open_store(place)
        store_all(store, *(Record(f"r{i}", f"heron number {i}", created_at=NOON) for i in range(20)))
        store.notes.put("key", "value")
        before = by_keywords(store, "heron 7", Filter(now=NOON), 9), store.records.history("r7"), store.spaces.active
        store.close()
        again = open_store(place)
        after = by_keywords(again, "heron 7", Filter(now=NOON), 9), again.records.history("r7"), again.spaces.active
        assert after == before
        assert again.notes.get("key") == "value"


PIECES = (
    '"', "'", "''", "`", "*", "heron*", "NEAR(heron lake, 5)", "AND", "OR NOT", "((((", "{title text}:", "title:",
    "--", "; DROP TABLE records;", "' OR 1=1 --", "$$; SELECT 1; $$", "E'\\x41'", "UNION SELECT * FROM records",
    "%", "_", "\\", "\\\\", "%s", "%(a)s", "%%", "{}", "{0}", "heron\x00lake", "\x10", "\x100", "\x10\x10\x00",
    "\u202eright to left", "שלום עולם", "مرحبا", "\u2066", "\u200b", "\ufeff", "😀", "👩\u200d👩\u200d👧", "🇩🇪",
    "e\u0301\u0302\u0303", "湖", "湖の水", "한국어", "ไทย", "١٢٣", "1.0.21", "C++", "snake_case", "camelCase",
    "/etc/passwd", "../..", "http://x/?q=1#a", "\n", "\t", "\r\n", "\x1b[31m", "ﬁ", "ß", "İ", "ı", "½",
    "¯\\_(ツ)_/¯", "$1", "?1", ":name", "NULL", "\\N", "\\.", "[1,2]", "{1,2}", "NaN", "1e999", "\x7f\x01\x1f",
    "\U0010ffff",
)  # fmt: skip
MEGABYTE = 1_000_000


class HostileContract:
    """Every text is stored as it is, and never interpreted."""

    def test_every_text_comes_back_as_it_was_put(self, store: Store) -> None:
        """In every text field, and the record is found by its other words."""
        given = [
            Record(
                f"id {piece} {i}", f"{piece} heron {piece} n{i}x", title=piece, category=piece,
                tags=(piece, f"{piece} 2"), scope=Scope(piece, piece), source=piece, path=f"/n/{piece}/{i}.md",
            )
            for i, piece in enumerate(PIECES)
        ]  # fmt: skip
        store_all(store, *given)
        assert store.records.get([record.id for record in given]) == given
        for i, record in enumerate(given):
            where = Filter(scope=record.scope, categories=(record.category or "",), tags=record.tags)
            assert ids(store.records.list(where, limit=9)) == [record.id]
            assert record.id in ids(by_keywords(store, f"n{i}x", Filter(scope=record.scope), 9))
            assert [event.id for event in store.records.history(record.id)] == [record.id]
            assert ids(store.files.chunks(record.path or "")) == []
            assert ids(store.joins.by_path([record.path or ""], where)[record.path or ""]) == [record.id]
        assert {scope["user"] for scope in store.facets(Filter(any_scope=True))["scopes"]} == set(PIECES)

    def test_no_question_is_read_as_a_language(self, store: Store) -> None:
        """Hundreds of hostile queries cause no error, no result of another scope and no change."""
        store_all(store, *(Record(f"a{i}", f"{piece} heron {i}", scope=Scope("ada")) for i, piece in enumerate(PIECES)))
        store_all(store, *(Record(f"b{i}", f"{piece} heron {i}", scope=Scope("bob")) for i, piece in enumerate(PIECES)))
        before, chance = store.status()["sequence"], random.Random(99)
        for _ in range(300):
            question = chance.choice(["", " "]).join(chance.choices(PIECES, k=chance.randint(1, 6)))
            for search in SEARCHES:
                found = search(store, question, Filter(scope=Scope("ada")), 5)
                assert {match.record.scope for match in found.entries} <= {Scope("ada")}
        assert store.status()["sequence"] == before
        assert len(all_ids(store)) == 2 * len(PIECES)

    def test_raw_terms_are_looked_up_as_they_are(self, store: Store) -> None:
        """A term may contain any character; an unknown one finds nothing."""
        store_all(store, Record("a", "heron"))
        for piece in PIECES:
            assert store.keywords.search([piece, piece * 1000], Filter(), 9).entries == ()
        assert ids(store.keywords.search(["heron", *PIECES], Filter(), 9)) == ["a"]

    def test_a_megabyte_is_kept_and_found(self, store: Store) -> None:
        """One very long word, one very long sentence, and control characters."""
        chance = random.Random(4)
        sentence = " ".join(f"w{chance.randrange(10**9)}" for _ in range(20_000))
        long = ("x" * MEGABYTE, sentence, "\0" * MEGABYTE, "湖" * 100_000)
        store_all(store, *(Record(f"long{i}", f"start{i}s {text} end{i}e") for i, text in enumerate(long)))
        for i, text in enumerate(long):
            assert texts(by_keywords(store, f"start{i}s end{i}e", Filter(), 1)) == [f"start{i}s {text} end{i}e"]
        assert ids(by_keywords(store, "x" * MEGABYTE, Filter(), 1)) == ["long0"]

    def test_a_scope_is_compared_letter_by_letter(self, store: Store) -> None:
        """Names that look alike, or begin alike, are different users."""
        names = ["ada", "Ada", "ada ", "a%", "a_a", "äda", "a\u0308da", "ada\0", "ada\x10", "*", "湖"]
        store_all(store, *(Record(f"r{i}", f"heron {i}", scope=Scope(name)) for i, name in enumerate(names)))
        for i, name in enumerate(names):
            for search in SEARCHES:
                assert ids(search(store, "heron", Filter(scope=Scope(name)), 99)) == [f"r{i}"], name
