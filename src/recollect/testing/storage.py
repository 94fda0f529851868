"""Records: what is put, changed, listed and counted, its history, and hostile texts."""

import contextlib
import random
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from recollect.errors import Overtaken, RecollectError, StoreError, UnknownRecord, UsageError
from recollect.testing.harness import NOON, SEARCHES, OpenStore, all_ids, apply, by_keywords, find, ids, store_all
from recollect.types import (
    EVERYTHING,
    Change,
    Event,
    ExpectUnchanged,
    FileState,
    Filter,
    Forget,
    MarkIngested,
    MarkUndo,
    Provenance,
    Put,
    Record,
    Restore,
    Scope,
    SetFileState,
    Store,
    Supersede,
    now,
)

FULL = Record(  # a record whose fields all differ from their defaults, so that a lost one is noticed
    id="full", text="Türen öffnen 🚪\nzweite Zeile\t\x00 Ende", kind="chunk", title="Ein Titel: “quoted”",
    category="technical", tags=("b", "a", "ünï"), scope=Scope("ada", "planner", "s-1"), importance=0.1 + 0.2,
    origin="agent", author="scribe", author_session="s1", decay="active", source="import",
    created_at=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=5, minutes=45))),
    happened_at=datetime(1815, 12, 10, 0, 0, 0, 1, tzinfo=UTC), expires_at=datetime(2199, 1, 1, tzinfo=UTC),
    edited_at=datetime(2026, 1, 3, tzinfo=UTC), superseded_by="other",
    superseded_at=datetime(2198, 1, 1, tzinfo=UTC), path="/notes/a b.md", lines=(10, 24), place="page 12",
)  # fmt: skip


class RecordsContract:
    """Records are stored without loss, with a history of their changes."""

    def test_every_field_is_stored(self, open_store: OpenStore, place: str, store: Store) -> None:
        """Another store object on the same place reads the fields that were put, times in UTC."""
        default = Record("default", "as plain as it gets", created_at=NOON)
        assert apply(store, Put(FULL), Put(default)) == [FULL, default]
        records = open_store(place).records.get(["full", "default"])
        for stored, record in zip(records, (FULL, default), strict=True):
            for name in (entry.name for entry in fields(Record) if entry.compare):
                assert getattr(stored, name) == getattr(record, name), name
            assert stored.created_at.utcoffset() == timedelta(0)

    def test_get_returns_records_in_the_order_of_the_ids(self, store: Store) -> None:
        """Unknown ids are left out, repeated ones repeated, and a filter applies."""
        apply(store, *(Put(Record(key, key)) for key in "abc"))
        assert ids(store.records.get(["c", "nope", "a", "c"])) == ["c", "a", "c"]
        assert store.records.get([]) == store.records.get(["a"], Filter(kinds=("chunk",))) == []
        assert ids(store.records.get(["a"], Filter())) == ["a"]

    def test_apply_returns_a_record_for_each_put(self, store: Store) -> None:
        """In their order, also with other changes between them."""
        apply(store, Put(Record("z", "was there")))
        groups: list[list[Change]] = [
            [Put(Record("b", "two")), Supersede("z", "b")],
            [Put(Record("a", "one")), Forget("a")],
            [Put(Record("b", "two, said better"))],
            [Put(Record("c", "TWO,  said BETTER"), merge=True), Put(Record("d", "new"), merge=True)],
        ]
        stored = store.records.apply(groups)
        assert ids(stored) == ["b", "a", "b", "b", "d"]
        assert [record.text for record in stored][2:4] == ["two, said better"] * 2

    def test_list_is_newest_first_in_pages(self, store: Store) -> None:
        """By the time of a record, then by id, and pages do not overlap."""
        records = [Record(f"r{i}", f"text {i}", created_at=NOON + timedelta(hours=i // 2)) for i in range(9)]
        old = Record("old", "stored last", created_at=NOON + timedelta(days=9), happened_at=NOON - timedelta(1))
        apply(store, *(Put(record) for record in (*records, old)))
        listed = ids(store.records.list(Filter(), limit=100))
        assert listed == ["r8", "r6", "r7", "r4", "r5", "r2", "r3", "r0", "r1", "old"]
        pages = [store.records.list(Filter(), limit=4, offset=start) for start in (0, 4, 8, 12)]
        assert [key for page in pages for key in ids(page)] == listed

    def test_equal_times_are_ordered_by_the_bytes_of_the_ids(self, store: Store) -> None:
        """Not by a collation, which differs from server to server."""
        keys = ["B", "a", "ä", "Z", "_", "-", "10", "9", "é", "e", "湖"]
        apply(store, *(Put(Record(key, f"heron {i}", created_at=NOON)) for i, key in enumerate(keys)))
        expected = sorted(keys, key=str.encode)
        assert ids(store.records.list(Filter(), limit=100)) == ids(by_keywords(store, "heron", depth=100)) == expected

    def test_a_put_of_a_stored_id_updates_the_record(self, store: Store) -> None:
        """The event contains the previous values. `edited_at` is when text or title changed."""
        first = Record("a", "the old text", category="work", tags=("x",), importance=0.2, created_at=NOON)
        (added,) = apply(store, Put(first))
        (tagged,) = apply(store, Put(replace(first, tags=("new",))))
        assert (added.edited_at, tagged.edited_at) == (None, None)
        second = Record("a", "the new text", category="home", tags=("y", "z"), importance=0.9, created_at=now())
        (updated,) = apply(store, Put(second))
        assert (updated.text, updated.category, updated.tags) == ("the new text", "home", ("y", "z"))
        assert updated.created_at == NOON, "it was stored when it was first stored"
        assert updated.edited_at is not None
        assert store.records.get(["a"]) == [updated]
        events = store.records.history("a")
        assert [event.action for event in events] == ["add", "update", "update"]
        before = {"text": "the old text", "category": "work", "tags": ["new"], "importance": 0.2}
        assert [event.detail for event in events[1:]] == [{"before": {"tags": ["x"]}}, {"before": before}]
        assert all_ids(store, Filter(tags=("x",))) == []
        assert all_ids(store, Filter(tags=("y", "z"))) == ["a"]
        (titled,) = apply(store, Put(replace(updated, title="new")))
        assert titled.edited_at is not None
        assert titled.edited_at > updated.edited_at

    def test_an_unchanged_put_adds_no_event(self, store: Store) -> None:
        apply(store, Put(FULL))
        before = store.status()["sequence"], store.records.history("full")
        assert apply(store, Put(replace(FULL, created_at=now()))) == [FULL]
        assert (store.status()["sequence"], store.records.history("full")) == before

    def test_a_put_of_an_id_of_another_scope_is_refused(self, store: Store) -> None:
        mine, ours = Record("mine", "Ada's own", scope=Scope("ada")), Record("ours", "everybody's")
        apply(store, Put(mine), Put(ours))
        others = (("mine", Scope("bob")), ("mine", Scope()), ("mine", Scope("ada", "x")), ("ours", Scope("bob")))
        for key, scope in others:
            with pytest.raises(UsageError, match=key):
                apply(store, Put(Record(key, "taken over", scope=scope)))
        assert store.records.get(["mine", "ours"]) == [mine, ours]

    def test_a_fact_does_not_replace_a_chunk(self, store: Store) -> None:
        chunk = Record("c", "a piece of a file", kind="chunk", path="/notes/a.md")
        apply(store, Put(chunk))
        with pytest.raises(UsageError, match="'c' is a chunk"):
            apply(store, Put(Record("c", "taken over")))
        assert store.records.get(["c"]) == [chunk]

    def test_equal_texts_merge_within_one_scope_and_kind_only(self, store: Store) -> None:
        """Texts that differ only in case and spaces are one record in one scope, and several in several."""
        scopes = [Scope(), Scope("ada"), Scope("ada", "x"), Scope("bob"), Scope(session="s")]
        for turn, text in enumerate(("Ｔhe  Straße is closed", "the STRASSE\nis closed")):
            groups = [[Put(Record(f"{turn}-{i}", text, scope=scope), merge=True)] for i, scope in enumerate(scopes)]
            assert ids(store.records.apply(groups)) == [f"0-{i}" for i in range(len(scopes))]
        assert ids(apply(store, Put(Record("chunk", "the Straße is closed", kind="chunk"), merge=True))) == ["chunk"]
        assert store.count(EVERYTHING)["total"] == len(scopes) + 1

    def test_later_changes_of_a_call_follow_earlier_ones(self, store: Store) -> None:
        """An equal text merges and an equal id updates, in one group and in several."""
        puts = [Put(Record(f"r{i}", "again and again", tags=(f"t{i}",)), merge=True) for i in range(6)]
        assert ids(store.records.apply([puts[:3], puts[3:5], puts[5:]])) == ["r0"] * 6
        assert [record.tags for record in store.records.get(["r0"])] == [tuple(f"t{i}" for i in range(6))]
        assert all_ids(store) == ["r0"]
        store.records.apply([[Put(Record("a", "first")), Put(Record("a", "second"))], [Put(Record("a", "third"))]])
        assert [event.action for event in store.records.history("a")] == ["add", "update", "update"]
        assert ids(by_keywords(store, "first second")) == []
        assert ids(by_keywords(store, "third")) == ["a"]

    def test_a_merge_keeps_the_fields_of_both_records(self, store: Store) -> None:
        """The later record's fields win where it sets them; tags are joined."""
        first = Record("a", "tea at five", category="home", tags=("a", "b"), source="phone", importance=0.7)
        again = Record("b", "Tea at FIVE", category="work", tags=("b", "c"), title="Tea")
        apply(store, Put(first, merge=True))
        (merged,) = apply(store, Put(again, merge=True))
        assert (merged.id, merged.text, merged.category, merged.title) == ("a", "tea at five", "work", "Tea")
        assert (merged.tags, merged.source, merged.importance) == (("a", "b", "c"), "phone", 0.7)

    def test_a_merge_never_takes_words_of_a_less_trusted_writer(self, store: Store) -> None:
        """What an agent repeats stays the user's, unchanged; what the user repeats becomes the user's."""
        mine = Record("a", "tea at five")
        apply(store, Put(mine, merge=True))
        again = Record("b", "tea at five", title="Tea", origin="agent", author="scribe")
        assert apply(store, Put(again, merge=True)) == store.records.get(["a"]) == [mine]
        apply(store, Put(replace(again, id="c", text="tea at six"), merge=True))
        (merged,) = apply(store, Put(Record("d", "tea at six"), merge=True))
        assert (merged.id, merged.title, merged.origin, merged.author) == ("c", "Tea", "user", None)
        assert store.records.history("c")[-1].detail["before"] == {"origin": "agent", "author": "scribe"}

    @pytest.mark.parametrize("forgotten", [False, True])
    def test_a_record_of_a_more_trusted_writer_is_not_overwritten(self, store: Store, forgotten: bool) -> None:
        """Not under its id, also a forgotten one; the whole group fails. `any_writer` restores a version."""
        mine, page = Record("a", "heron", created_at=NOON), Record("a", "stork", origin="web", created_at=NOON)
        apply(store, Put(mine), *([Forget("a")] if forgotten else []))
        with pytest.raises(UsageError, match="cannot overwrite"):
            apply(store, Put(Record("b", "crane")), Put(page))
        assert store.records.get(["a", "b"]) == ([] if forgotten else [mine])
        assert ids(by_keywords(store, "stork")) == []
        assert apply(store, Put(page, any_writer=True))[0].origin == "web"
        assert apply(store, Put(mine))[0].origin == "user"
        apply(store, Forget("a", purge=True))
        assert apply(store, Put(page)) == [page]

    @pytest.mark.parametrize("origin", ["tool", "web", "import"])
    def test_an_untrusted_record_cannot_supersede_a_trusted_one(self, store: Store, origin: str) -> None:
        """Else a query of trusted origins would find neither of the two."""
        store_all(store, Record("mine", "heron"), Record("old", "crane", origin=origin))
        store_all(store, Record("new", "stork", origin=origin))
        with pytest.raises(UsageError, match="cannot supersede"):
            apply(store, Supersede("mine", "new"))
        apply(store, Supersede("old", "new"))
        assert [record.superseded_by for record in store.records.get(["mine", "old"])] == [None, "new"]

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
        """No record, word, vector, file state or history entry of the group remains."""
        ours = [Record("old", "old text"), Record("spare", "spare text"), Record("ada's", "hers", scope=Scope("ada"))]
        store_all(store, *ours)
        before = store.status()["sequence"]
        state = SetFileState("/n", FileState("/n/a", "/n", 1, 1, "x"))
        changes = (
            Put(Record("new", "new text")),
            Put(Record("old", "changed")),
            Forget("spare"),
            MarkIngested("d"),
            state,
        )
        with pytest.raises(UnknownRecord if getattr(failing, "id", "") == "unknown" else UsageError):
            apply(store, *changes, failing, Put(Record("z", "z")))
        assert store.status()["sequence"] == before
        assert store.records.get(["new", "old", "z", "spare"]) == ours[:2]
        assert find(store, "new old changed z text") == ["old", "spare"]
        assert (store.files.known("/n"), store.files.ingested(["d"])) == ({}, set())
        apply(store, Put(Record("next", "the next one is stored")))
        assert ids(by_keywords(store, "next")) == ["next"]

    def test_scope_of_knows_forgotten_but_not_purged_records(self, store: Store) -> None:
        ada = Scope("ada", "x")
        apply(store, *(Put(Record(key, key, scope=ada)) for key in "ab"), Put(Record("c", "c")), Forget("b"))
        assert [store.records.scope_of(key) for key in "abcd"] == [ada, ada, Scope(), None]
        apply(store, Forget("b", purge=True))
        assert store.records.scope_of("b") is None

    def test_records_are_named_by_the_beginning_of_an_id_or_of_its_last_eight_characters(self, store: Store) -> None:
        ada, first, second = Scope("ada"), "019a8f00112200000000aaaabbbbcccc", "019a8f00112200000000aaaabbbbdddd"
        apply(store, Put(Record(first, "one")), Put(Record(second, "two", scope=ada)), Put(Record("dentist-2026", "x")))

        def named(part: str, scope: Scope | None = None) -> list[str]:
            return [key for key, _, _ in store.records.named(part, scope, 9)]

        assert named("019a8f") == named("bbbb") == [first, second]
        assert named("019a8f", Scope("bob")) == named("bbbbcc") == named("aaaabbbbcccc") == [first]
        assert named("dent") == ["dentist-2026"]
        assert named("-2026") == named("aaaabbbb") == named("cccc") == []
        apply(store, Forget(second))
        assert store.records.named("bbbbd", ada, 9) == [(second, ada, True)]
        apply(store, Forget(second, purge=True))
        assert named("bbbbd") == []

    def test_a_group_that_expects_a_record_unchanged_fails_if_it_was_changed(self, store: Store) -> None:
        store.records.apply([[Put(Record("a", "one"))], [Put(Record("a", "two"))]])
        first, second = (event.seq for event in store.records.history("a"))
        with pytest.raises(Overtaken):
            apply(store, Put(Record("b", "beside")), ExpectUnchanged("a", first), Forget("a"))
        assert all_ids(store) == ["a"]
        apply(store, ExpectUnchanged("a", second), Put(Record("a", "one")), MarkUndo("a", second))
        assert [event.action for event in store.records.history("a")] == ["add", "update", "update", "undo"]
        assert store.records.history("a")[-1].detail == {"undoes": second}

    def test_history_names_the_writer_of_a_change(self, store: Store) -> None:
        """Of updates, supersessions, undone changes and forgotten records; the user's own changes name nobody."""
        ada = Provenance("user", "ada")
        apply(store, Put(Record("a", "one")), Put(Record("b", "two")))
        apply(store, Put(Record("a", "other"), writer=ada), MarkUndo("a", 1, ada), Supersede("a", "b", writer=ada))
        apply(store, Forget("a", writer=ada))
        events = [(event.action, event.detail.get("author")) for event in store.records.history("a")]
        named = [(action, "ada") for action in ("update", "undo", "supersede", "forget")]
        assert events == [("add", None), *named]

    def test_history_only_grows_and_its_numbers_rise(self, store: Store) -> None:
        """Every change has a higher number than all before; failed and void changes have none."""
        changes: list[tuple[Change, bool]] = [
            (Put(Record("1", "one")), True),
            (Put(Record("1", "one")), False),
            (Put(Record("2", "two")), True),
            (Supersede("1", "2"), True),
            (Supersede("2", "1"), False),
            (Restore("1"), True),
            (Forget("2"), True),
            (Restore("2"), True),
            (Forget("2"), True),
            (Forget("2", purge=True), True),
            (Forget("3"), False),
            (Put(Record("2", "two")), True),
        ]
        number, before = store.status()["sequence"], list[Event]()
        for change, grows in changes:
            with contextlib.suppress(RecollectError):
                apply(store, change)
            previous, number = number, store.status()["sequence"]
            assert number > previous if grows else number == previous, change
            after = [event for key in "12" for event in store.records.history(key)]
            # A purge removes the details of events, not the events.
            assert {(event.seq, event.action) for event in before} <= {(event.seq, event.action) for event in after}
            assert getattr(change, "purge", False) or all(event in after for event in before)
            before = after
        assert len({event.seq for event in before}) == len(before)
        assert max(event.seq for event in before) == number
        assert store.records.history("nobody") == []

    def test_counts_facets_and_status_describe_the_records(self, store: Store) -> None:
        """By kind and by filter, with forgotten records apart; the most frequent names come first."""
        ada, bob = Scope("ada"), Scope("bob", "x")
        records = (
            Record("1", "one", category="work", tags=("b", "a"), scope=ada),
            Record("2", "two", category="home", tags=("b",), scope=ada, kind="chunk"),
            Record("3", "three", category="work", scope=bob),
            Record("4", "four", tags=("c",)),
            Record("5", "five"),
        )
        apply(store, *map(Put, records), Forget("5"), Supersede("1", "4"))
        everything = {"total": 4, "facts": 3, "chunks": 1, "turns": 0, "superseded": 1}
        assert store.count(EVERYTHING) == everything
        assert store.count(Filter(scope=ada)) == {"total": 2, "facts": 1, "chunks": 1, "turns": 0, "superseded": 0}
        facets = store.facets(EVERYTHING)
        assert (facets["categories"], facets["tags"]) == (["work", "home"], ["b", "a", "c"])
        assert facets["scopes"] == [{"user": "ada"}, {}, {"user": "bob", "agent": "x"}]
        bobs = {"categories": ["work"], "tags": ["c"], "scopes": [{}, {"user": "bob", "agent": "x"}]}
        assert store.facets(Filter(scope=bob)) == bobs
        status = store.status()
        assert status["records"] == {**everything, "forgotten": 1}
        assert status["keyword_lag"] == 0
        assert {"store", "engine", "bytes", "files", "sequence", "language"} <= status.keys()

    def test_a_closed_store_raises_an_error(self, store: Store) -> None:
        store.close()
        store.close()
        for use in (
            store.check,
            lambda: store.records.get(["a"]),
            lambda: apply(store, Put(Record("a", "x"))),
            lambda: store.keywords.search(["x"], Filter(), 9),
        ):
            with pytest.raises(StoreError, match="closed"):
                use()

    def test_a_store_can_be_opened_again(self, open_store: OpenStore, place: str, store: Store) -> None:

        def contents(store: Store) -> Any:
            hits, history = by_keywords(store, "heron 7", Filter(now=NOON)), store.records.history("r7")
            return list(hits.entries), hits.among, history, store.spaces.active, store.notes.get("key")

        store_all(store, *(Record(f"r{i}", f"heron number {i}", created_at=NOON) for i in range(20)))
        store.notes.put("key", "value")
        before = contents(store)
        store.close()
        assert contents(open_store(place)) == before


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

    def test_any_text_is_stored_unchanged(self, store: Store) -> None:
        """In every text field, and the record is found by its other words."""
        records = [
            Record(
                f"id {piece} {i}", f"{piece} heron {piece} n{i}x", title=piece, category=piece,
                tags=(piece, f"{piece} 2"), scope=Scope(piece, piece), source=piece, path=f"/n/{piece}/{i}.md",
            )
            for i, piece in enumerate(PIECES)
        ]  # fmt: skip
        store_all(store, *records)
        assert store.records.get(ids(records)) == records
        for i, record in enumerate(records):
            path, where = record.path or "", Filter(scope=record.scope, tags=record.tags)
            assert all_ids(store, replace(where, categories=(record.category or "",))) == [record.id]
            assert record.id in ids(by_keywords(store, f"n{i}x", Filter(scope=record.scope)))
            assert [event.id for event in store.records.history(record.id)] == [record.id]
            assert store.files.chunks(path) == []
            assert ids(store.joins.by_path([path], where)[path]) == [record.id]
        assert {scope["user"] for scope in store.facets(Filter(any_scope=True))["scopes"]} == set(PIECES)

    def test_a_query_has_no_syntax(self, store: Store) -> None:
        """Hundreds of hostile queries cause no error, no result of another scope and no change."""
        for user in ("ada", "bob"):
            scope = Scope(user)
            store_all(store, *(Record(f"{user}{i}", f"{p} heron {i}", scope=scope) for i, p in enumerate(PIECES)))
        before, chance = store.status()["sequence"], random.Random(99)
        for _ in range(300):
            query = chance.choice(["", " "]).join(chance.choices(PIECES, k=chance.randint(1, 6)))
            for search in SEARCHES:
                hits = search(store, query, Filter(scope=Scope("ada")), 5)
                assert {hit.record.scope for hit in hits.entries} <= {Scope("ada")}
        assert store.status()["sequence"] == before
        assert len(all_ids(store)) == 2 * len(PIECES)
        store_all(store, Record("global", "heron"))
        for piece in PIECES:
            assert store.keywords.search([piece, piece * 1000], Filter(), 9).entries == ()
        assert ids(store.keywords.search(["heron", *PIECES], Filter(), 9)) == ["global"]

    def test_a_text_of_a_megabyte_is_found(self, store: Store) -> None:
        chance = random.Random(4)
        sentence = " ".join(f"w{chance.randrange(10**9)}" for _ in range(20_000))
        long = ("x" * MEGABYTE, sentence, "\0" * MEGABYTE, "湖" * 100_000)
        store_all(store, *(Record(f"long{i}", f"start{i}s {text} end{i}e") for i, text in enumerate(long)))
        for i, text in enumerate(long):
            (hit,) = by_keywords(store, f"start{i}s end{i}e", depth=1).entries
            assert hit.record.text == f"start{i}s {text} end{i}e"
        assert ids(by_keywords(store, "x" * MEGABYTE, depth=1)) == ["long0"]

    def test_scopes_are_compared_letter_by_letter(self, store: Store) -> None:
        names = ["ada", "Ada", "ada ", "a%", "a_a", "äda", "a\u0308da", "ada\0", "ada\x10", "*", "湖"]
        store_all(store, *(Record(f"r{i}", f"heron {i}", scope=Scope(name)) for i, name in enumerate(names)))
        for i, name in enumerate(names):
            assert find(store, "heron", Filter(scope=Scope(name))) == [f"r{i}"], name
