"""Text is text: nothing that is stored or asked for is read as a language, and all of it comes back."""

# ruff: noqa: S101, S311  (these are tests)

from __future__ import annotations

import random

from recollect.testing.asking import SEARCHES, all_ids, by_words, ids, keep, texts
from recollect.types import Filter, Record, Scope, Store

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
    """Whatever is written comes back as it was written."""

    def test_every_text_comes_back_as_it_was_put(self, store: Store) -> None:
        """In every field that is text, and found by the words beside it."""
        given = [
            Record(
                f"id {piece} {i}", f"{piece} heron {piece} n{i}x", title=piece, category=piece,
                tags=(piece, f"{piece} 2"), scope=Scope(piece, piece), source=piece, path=f"/n/{piece}/{i}.md",
            )
            for i, piece in enumerate(PIECES)
        ]  # fmt: skip
        keep(store, *given)
        assert store.records.get([record.id for record in given]) == given
        for i, record in enumerate(given):
            where = Filter(scope=record.scope, categories=(record.category or "",), tags=record.tags)
            assert ids(store.records.list(where, limit=9)) == [record.id]
            assert record.id in ids(by_words(store, f"n{i}x", Filter(scope=record.scope), 9))
            assert [event.id for event in store.records.history(record.id)] == [record.id]
            assert ids(store.files.chunks(record.path or "")) == []
            assert ids(store.joins.by_path([record.path or ""], where)[record.path or ""]) == [record.id]
        assert {scope["user"] for scope in store.facets(Filter(any_scope=True))["scopes"]} == set(PIECES)

    def test_no_question_is_read_as_a_language(self, store: Store) -> None:
        """Hundreds of hostile questions: no error, nothing out of scope, nothing changed."""
        keep(store, *(Record(f"a{i}", f"{piece} heron {i}", scope=Scope("ada")) for i, piece in enumerate(PIECES)))
        keep(store, *(Record(f"b{i}", f"{piece} heron {i}", scope=Scope("bob")) for i, piece in enumerate(PIECES)))
        before, chance = store.status()["sequence"], random.Random(99)
        for _ in range(300):
            question = chance.choice(["", " "]).join(chance.choices(PIECES, k=chance.randint(1, 6)))
            for search in SEARCHES:
                found = search(store, question, Filter(scope=Scope("ada")), 5)
                assert {match.record.scope for match in found.found} <= {Scope("ada")}
        assert store.status()["sequence"] == before
        assert len(all_ids(store)) == 2 * len(PIECES)

    def test_raw_terms_are_looked_up_as_they_are(self, store: Store) -> None:
        """A term may be anything; one that no record has finds nothing."""
        keep(store, Record("a", "heron"))
        for piece in PIECES:
            assert store.keywords.search([piece, piece * 1000], Filter(), 9).found == ()
        assert ids(store.keywords.search(["heron", *PIECES], Filter(), 9)) == ["a"]

    def test_a_megabyte_is_kept_and_found(self, store: Store) -> None:
        """One endless word, one endless sentence of different words, and a page of signs."""
        chance = random.Random(4)
        sentence = " ".join(f"w{chance.randrange(10**9)}" for _ in range(20_000))
        long = ("x" * MEGABYTE, sentence, "\0" * MEGABYTE, "湖" * 100_000)
        keep(store, *(Record(f"long{i}", f"start{i}s {text} end{i}e") for i, text in enumerate(long)))
        for i, text in enumerate(long):
            assert texts(by_words(store, f"start{i}s end{i}e", Filter(), 1)) == [f"start{i}s {text} end{i}e"]
        assert ids(by_words(store, "x" * MEGABYTE, Filter(), 1)) == ["long0"]

    def test_a_scope_is_compared_letter_by_letter(self, store: Store) -> None:
        """Names that look alike, or begin alike, are different people."""
        names = ["ada", "Ada", "ada ", "a%", "a_a", "äda", "a\u0308da", "ada\0", "ada\x10", "*", "湖"]
        keep(store, *(Record(f"r{i}", f"heron {i}", scope=Scope(name)) for i, name in enumerate(names)))
        for i, name in enumerate(names):
            for search in SEARCHES:
                assert ids(search(store, "heron", Filter(scope=Scope(name)), 99)) == [f"r{i}"], name
