"""`why-not`: it names the stage that lost a record, and its advice brings the record back."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recollect import Memory
from recollect.config import ScopeSettings, Settings, SourceSettings
from recollect.errors import Cancelled, EmbedderError, SearchFailed, TimedOut, UsageError
from recollect.memory.explain import Verdict, _just_below
from recollect.memory.shapes import iso, verdict_dict
from recollect.types import Filter, Put, Record, Scope, Work, now

NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)
OpenMemory = Callable[..., Memory]


@pytest.fixture
def words(open_memory: OpenMemory) -> Memory:
    """A memory without an embedder."""
    return open_memory(embedder="none")


def ids(memory: Memory, text: str, **options: Any) -> list[str]:
    """What a search finds, as ids."""
    return [result.record.id for result in memory.search(text, **options).results]


def mended(memory: Memory, text: str, target: str, **options: Any) -> Verdict:
    """The verdict on a record that is lost and comes back by the change that is advised."""
    assert target not in ids(memory, text, **options)
    verdict = memory.why_not(text, target, **options)
    assert verdict.change, verdict
    assert target in ids(memory, text, **{**options, **verdict.change})
    return verdict


def herons(memory: Memory, count: int, **fields: Any) -> None:
    """Records r000, r001, … of which each is longer than the one before, so that it ranks one lower by words."""
    memory.store.records.apply(
        [[Put(Record(f"r{i:03}", "heron" + " reed" * i + f" n{i}", created_at=NOON, **fields)) for i in range(count)]]
    )


# -- found, and what is not there ---------------------------------------------------------------------------


@pytest.mark.parametrize("place", [0, 3, 9])
def test_record_in_the_answer_is_found_at_its_rank(words: Memory, place: int) -> None:
    """With the sources' ranks, and nothing to change."""
    herons(words, 12)
    verdict = words.why_not("heron", f"r{place:03}")
    assert (verdict.stage, verdict.rank, dict(verdict.change), verdict.advice) == ("found", place + 1, {}, "")
    assert verdict.record == words.get(f"r{place:03}")
    assert (verdict.places["keyword"].rank, verdict.places["keyword"].fetch_k) == (place + 1, 100)
    assert verdict.places["keyword"].score == pytest.approx(
        words.search("heron").results[place].shares["keyword"].score
    )
    assert (verdict.places["vector"].rank, verdict.places["vector"].note) == (None, "no embedder is configured")


def test_ranks_of_both_sources_are_reported(memory: Memory) -> None:
    """With the scores of the answer."""
    herons(memory, 12)
    for result in memory.search("heron reed n3").results:
        verdict = memory.why_not("heron reed n3", result.record.id)
        assert verdict.stage == "found"
        for name, share in result.shares.items():
            place = verdict.places[name]
            assert (place.rank, place.score) == (share.rank, pytest.approx(share.score))


@pytest.mark.parametrize(
    "target", ["no-such-id", "no/such/file.md", "/no/such/file.md", "~/no/such/file.md", "a\0b", "", " ", None, 5]
)
def test_unknown_id_or_path_is_refused_with_a_hint(words: Memory, target: Any) -> None:
    """An id or path without a meaning is a usage error."""
    herons(words, 2)
    with pytest.raises(UsageError) as refused:
        words.why_not("heron", target)
    assert refused.value.hint


@pytest.mark.parametrize(
    "target", ["~no_such_user_here/x.md", "x" * 5000, "bad\udcff.md"], ids=["home", "long", "surrogate"]
)
def test_name_that_cannot_be_looked_up_is_refused(words: Memory, target: str) -> None:
    """What `pathlib` or SQLite cannot read is a Recollect error, not theirs."""
    herons(words, 2)
    with pytest.raises(UsageError):
        words.why_not("heron", target)


def test_invalid_query_or_option_is_refused(words: Memory) -> None:
    """The options are those of `search`, with the same checks."""
    herons(words, 2)
    for call in (
        lambda: words.why_not(5, "r000"),  # type: ignore[arg-type]
        lambda: words.why_not("heron", "r000", lmit=5),
        lambda: words.why_not("heron", "r000", limit=0),
        lambda: words.why_not("heron", "r000", since="whenever"),
        lambda: words.why_not("heron", "r000", sources=["nobody"]),
    ):
        with pytest.raises(UsageError):
            call()


def test_forgotten_record_has_its_date(words: Memory) -> None:
    """From the history; the same for `purge`."""
    herons(words, 3)
    words.forget("r000")
    words.forget("r001", purge=True)
    for key, advice in (("r000", "recollect undo r000"), ("r001", "add it again")):
        verdict = words.why_not("heron", key)
        assert (verdict.stage, verdict.record, dict(verdict.change)) == ("forgotten", None, {})
        assert iso(words.history(key)[-1].at) in verdict.reason
        assert verdict.advice == advice


def test_record_whose_add_was_undone_is_restored_as_advised(words: Memory) -> None:
    """An undo forgets it, and another one brings it back."""
    words.add("heron", id="a")
    words.undo("a")
    assert words.why_not("heron", "a").advice == "recollect undo a"
    words.undo("a")
    assert words.why_not("heron", "a").stage == "found"


def test_record_forgotten_and_added_again_is_found(words: Memory) -> None:
    """Only the last change counts."""
    words.add("heron", id="a")
    words.forget("a")
    words.add("heron", id="a")
    assert words.why_not("heron", "a").stage == "found"


# -- files --------------------------------------------------------------------------------------------------


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder with two notes, each of one chunk."""
    folder = tmp_path / "my notes"
    folder.mkdir()
    (folder / "heron.md").write_text("# Heron\n\nThe heron stands in the reeds.\n")
    (folder / "boat.md").write_text("# Boat\n\nThe boat has an oar, and once carried a heron, two dogs and a cat.\n")
    return folder


def test_folder_is_refused(words: Memory, notes: Path) -> None:
    """The error asks for one file of it."""
    words.index(notes)
    with pytest.raises(UsageError, match="is a folder"):
        words.why_not("heron", str(notes))


def test_file_that_is_not_indexed_is_reported(words: Memory, notes: Path) -> None:
    """Indexing it, as advised, brings it back."""
    verdict = words.why_not("heron", str(notes / "heron.md"))
    assert (verdict.stage, verdict.record, dict(verdict.change)) == ("not indexed", None, {})
    assert verdict.advice.startswith("recollect index ")
    words.index(notes / "heron.md")
    assert words.why_not("heron", str(notes / "heron.md")).stage == "found"


def test_file_whose_chunks_are_forgotten_is_restored_as_advised(words: Memory, notes: Path) -> None:
    """Indexing it would not: the file is unchanged. After a purge, only a changed text is read again."""
    path = str(notes / "heron.md")
    words.index(notes)
    key = words.search("heron reeds").results[0].record.id
    words.forget(key)
    verdict = words.why_not("heron", path)
    assert (verdict.stage, verdict.advice) == ("forgotten", f"recollect undo {key}")
    words.undo(key)
    assert words.why_not("heron", path).stage == "found"
    words.forget(key, purge=True)
    verdict = words.why_not("heron", path)
    assert verdict.stage == "not indexed"
    assert verdict.reason.endswith("it has no text or its records were purged")
    assert verdict.advice.startswith("when this has changed: ")


def test_forgotten_chunks_of_another_user_are_not_named(words: Memory, notes: Path) -> None:
    """Asked as bob, ana's forgotten file is a file without a record."""
    words.index(notes, user="ana")
    words.forget(*[record.id for record in words.list(user="ana")])
    assert words.why_not("heron", str(notes / "heron.md"), user="ana").stage == "forgotten"
    assert words.why_not("heron", str(notes / "heron.md"), user="bob").stage == "not indexed"


@pytest.mark.parametrize(
    ("name", "content", "reason", "helps"),
    [
        ("bad.pdf", b"x", "damaged: not a PDF file", False),
        ("empty.md", b"", "empty", False),
        ("binary.md", b"a\0b", "binary", False),
        ("picture.png", b"x", "binary", False),
        ("ignored.md", b"x", ".gitignore or .recollectignore excludes ignored.md", True),
        ("build/a.md", b"x", ".gitignore or .recollectignore excludes build", True),
        (".hidden.md", b"x", ".hidden.md is hidden", True),
        ("left.md", b"x", "--include or --exclude leaves out left.md", True),
        ("id_rsa", b"x", "its name says that it may hold secrets", True),
        ("key.txt", b"-----BEGIN PRIVATE KEY-----\n", "because it may hold secrets", True),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_file_that_index_left_out_has_the_reason(
    words: Memory, notes: Path, name: str, content: bytes, reason: str, *, helps: bool
) -> None:
    """The command `recollect index FILE` is advised at once only if it reads the file."""
    (notes / ".git").mkdir()
    (notes / ".gitignore").write_text("ignored.md\nbuild/\n")
    (notes / name).parent.mkdir(exist_ok=True)
    (notes / name).write_bytes(content)
    words.index(notes, exclude=["left.md"])
    verdict = words.why_not("heron", str(notes / name))
    assert (verdict.stage, verdict.reason.endswith(reason)) == ("not indexed", True), verdict.reason
    assert verdict.advice.startswith("recollect index ") is helps
    assert bool(words.index(notes / name).added) is helps


def test_file_is_found_by_any_of_its_names(words: Memory, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Absolute, relative, from home, by its last parts, and as a URL."""
    words.index(notes)
    monkeypatch.chdir(notes.parent)
    monkeypatch.setenv("HOME", str(notes.parent))
    whole = notes / "heron.md"
    for name in (
        whole,
        "my notes/heron.md",
        "./my notes/heron.md",
        "~/my notes/heron.md",
        "heron.md",
        f"file://{whole}",
    ):
        verdict = words.why_not("heron reeds", str(name))
        assert (verdict.stage, verdict.rank, verdict.target) == ("found", 1, str(name)), name
        assert verdict.record.path == str(whole)


def test_path_through_a_parent_folder_or_link_is_the_same_file(
    words: Memory, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for `recollect index`."""
    words.index(notes)
    (notes.parent / "below").mkdir()
    (notes.parent / "link").symlink_to(notes)
    monkeypatch.chdir(notes.parent / "below")
    for name in ("../my notes/heron.md", str(notes.parent / "below" / ".." / "my notes" / "heron.md"),
                 str(notes.parent / "link" / "heron.md"), "../link/heron.md"):  # fmt: skip
        assert words.why_not("heron reeds", name).stage == "found", name


def test_existing_file_is_not_confused_with_another_of_its_name(
    words: Memory, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`heron.md` in the current folder, not indexed, is not `my notes/heron.md`."""
    words.index(notes)
    (notes.parent / "heron.md").write_text("Another heron.\n")
    monkeypatch.chdir(notes.parent)
    assert words.why_not("heron", "heron.md").stage == "not indexed"


def test_ambiguous_file_name_is_refused(words: Memory, notes: Path) -> None:
    """The last part of a path must name one file."""
    for folder in ("one", "two"):
        (notes / folder).mkdir()
        (notes / folder / "same.md").write_text(f"A heron in {folder}.\n")
    words.index(notes)
    with pytest.raises(UsageError):
        words.why_not("heron", "same.md")
    assert words.why_not("heron", "two/same.md").record.path == str(notes / "two" / "same.md")


def test_file_changed_since_indexing_is_reported(words: Memory, notes: Path) -> None:
    """The query's words are in the file but not in the index; indexing again finds them."""
    words.index(notes)
    (notes / "boat.md").write_text("# Boat\n\nA walrus came aboard.\n")
    assert not ids(words, "walrus")
    verdict = words.why_not("walrus", str(notes / "boat.md"))
    assert (verdict.stage, dict(verdict.change)) == ("changed", {})
    assert "changed since it was indexed" in verdict.reason
    assert "shares no word with the query" in verdict.reason
    assert verdict.advice.startswith("recollect index ")
    words.index(notes / "boat.md")
    assert words.why_not("walrus", str(notes / "boat.md")).stage == "found"


def test_changed_file_is_not_the_reason_if_found_or_hidden(words: Memory, notes: Path) -> None:
    """Indexing again would not help."""
    words.index(notes, user="ana")
    (notes / "boat.md").write_text("# Boat\n\nA walrus came aboard.\n")
    target = str(notes / "boat.md")
    assert words.why_not("oar", target, user="ana").stage == "found"
    assert words.why_not("oar", target).stage == "scope"


def test_file_with_only_a_new_time_is_not_changed(words: Memory, notes: Path) -> None:
    """The same bytes under a new date are the same file."""
    words.index(notes)
    (notes / "boat.md").write_bytes((notes / "boat.md").read_bytes())
    assert words.why_not("walrus", str(notes / "boat.md")).stage == "unmatched"


def test_missing_file_is_reported(words: Memory, notes: Path) -> None:
    """Its chunks are still indexed."""
    words.index(notes)
    (notes / "boat.md").unlink()
    verdict = words.why_not("heron", str(notes / "boat.md"), limit=1)
    assert (verdict.stage, dict(verdict.change)) == ("missing", {})
    assert "at rank 2, beyond the limit of 1" in verdict.reason
    assert "has missing" not in verdict.reason


@pytest.mark.parametrize("how", ["changed", "missing"])
def test_advice_for_a_stale_file_works(words: Memory, notes: Path, how: str) -> None:
    """The paths after `recollect index` are accepted, and the file is up to date afterwards."""
    words.index(notes)
    (notes / "boat.md").write_text("walrus") if how == "changed" else (notes / "boat.md").unlink()
    verdict = words.why_not("heron", str(notes / "boat.md"), limit=1)
    assert verdict.stage == how
    command, action, *paths = shlex.split(verdict.advice)
    assert (command, action) == ("recollect", "index")
    words.index(paths)
    assert not [result for result in words.search("boat").results if result.freshness != "fresh"]


def test_nearest_chunk_of_a_file_is_examined(words: Memory, tmp_path: Path) -> None:
    """The chunk that matches best, not the first; by id each chunk alone."""
    file = tmp_path / "long.md"
    parts = [f"# Part {i}\n\n" + f"Nothing of note in {i}. " * 60 for i in range(9)]
    parts[6] = "# Part 6\n\n" + "The heron nests in the tall oak. " * 40
    file.write_text("\n\n".join(parts))
    words.index(file)
    words.add("heron " * 60, id="first")
    chunks = words.list(kind="chunk")
    assert len(chunks) >= 9
    verdict = words.why_not("heron", str(file))
    assert verdict.stage == "found"
    assert "nests in the tall oak" in verdict.record.text
    lost = mended(words, "heron", verdict.record.id, limit=1)
    assert (lost.stage, words.why_not("heron", str(file), limit=1).record) == ("limit", verdict.record)


def test_hidden_file_has_a_chunk_examined_too(words: Memory, tmp_path: Path) -> None:
    """A filter that hides every chunk is named; otherwise a visible chunk is examined."""
    file = tmp_path / "long.md"
    file.write_text("\n\n".join(f"# Part {i}\n\n" + f"A heron, number {i}. " * 60 for i in range(4)))
    words.index(file, user="ana")
    assert words.why_not("heron", str(file)).stage == "scope"
    chunks = words.list(user="ana")
    for chunk in chunks[1:]:
        words.store.records.apply([[Put(replace(chunk, tags=("kept",)))]])
    verdict = words.why_not("heron", str(file), user="ana", tags=["kept"])
    assert verdict.stage == "found"
    assert "kept" in verdict.record.tags


def chunk(memory: Memory, file: Path, key: str, text: str) -> None:
    """One chunk of a file, as indexing would make it."""
    memory.add(text, id=key, kind="chunk", path=str(file), created_at=NOON)


def test_file_is_found_if_any_chunk_is_in_the_answer(open_memory: OpenMemory, tmp_path: Path) -> None:
    """The nearest chunk at full depth may differ from the one a shallow search shows."""
    file = tmp_path / "x.md"
    file.write_text("x")
    memory = open_memory(embedder=Ruler(40))
    chunk(memory, file, "shown", "heron heron 40")
    memory.add("heron 1", id="first by vector", created_at=NOON)
    chunk(memory, file, "deep", "heron heron reed 2")
    for i in range(3, 40):
        memory.add(f"heron{' reed' * 9} {i}", created_at=NOON)
    options = {"fetch_k": 1, "limit": 1, "text_weight": 2.0}
    assert ids(memory, "heron", **options) == ["shown"]
    verdict = memory.why_not("heron", str(file), **options)
    assert (verdict.stage, verdict.record.id) == ("found", "shown")


def test_file_is_found_if_mmr_shows_another_of_its_chunks(words: Memory, tmp_path: Path) -> None:
    """That a chunk gave way to one of the same file is no loss of the file."""
    file = tmp_path / "x.md"
    file.write_text("x")
    words.add("heron lake reeds dawn", id="top", created_at=NOON)
    chunk(words, file, "near", "heron lake reeds dawn yonder")
    chunk(words, file, "far", "heron harbour oar boat winter snow ice storm")
    options: dict[str, Any] = {"limit": 2, "mmr": True, "mmr_lambda": 0.1, "by": "chunk"}
    assert ids(words, "heron lake reeds dawn", **options) == ["top", "far"]
    assert words.why_not("heron lake reeds dawn", str(file), **options).stage == "found"


def test_path_of_an_expired_record_is_known(words: Memory, tmp_path: Path) -> None:
    """A path names a record even if all its records are hidden."""
    file = tmp_path / "x.md"
    words.add("heron", id="a", path=str(file), created_at=NOON - timedelta(days=9), expires_at=NOON)
    assert words.why_not("heron", str(file)).stage == "expired"


# -- what a filter hides ------------------------------------------------------------------------------------


def test_record_of_a_user_is_out_of_scope_without_a_scope(words: Memory) -> None:
    """The scope is named, and searching with it brings the record back."""
    words.add("heron", id="a", user="ana")
    verdict = mended(words, "heron", "a")
    assert (verdict.stage, dict(verdict.change)) == ("scope", {"user": "ana"})
    assert "it belongs to user 'ana'" in verdict.reason
    assert not verdict.places, "ranks in a ranking that may not be seen"
    assert words.why_not("heron", "a", user="ana").stage == "found"
    assert words.why_not("heron", "a", any_scope=True).stage == "found"
    assert words.why_not("heron", "a", any_scope=True, user="bob").stage == "found"


def test_record_of_another_user_is_not_revealed(words: Memory) -> None:
    """Asked as bob, ana's record is out of scope, without any detail."""
    words.store.records.apply(
        [
            [
                Put(
                    Record(
                        "a",
                        "heron secret-text",
                        title="secret-title",
                        category="secret-category",
                        tags=("secret-tag",),
                        scope=Scope("ana"),
                        path="/secret-path/x.md",
                        created_at=NOON - timedelta(days=9),
                        expires_at=NOON,
                        superseded_by="secret-successor",
                        superseded_at=NOON - timedelta(days=5),
                    )
                )
            ]
        ]
    )
    for options in ({}, {"category": "x"}, {"tags": ["y"]}, {"path": "/z"}, {"since": NOON}, {"kind": "chunk"}):
        verdict = words.why_not("heron", "a", user="bob", **options)
        assert (verdict.stage, verdict.record, dict(verdict.change), dict(verdict.places)) == ("scope", None, {}, {})
        said = json.dumps(verdict_dict("heron", verdict))
        assert "ana" not in said
        assert "secret" not in said, options
        assert "2026-03" not in said, options


def test_only_the_missing_parts_of_a_scope_are_advised(words: Memory) -> None:
    """With the right user, agent and session are named; a part that differs reveals nothing."""
    words.add("heron", id="a", user="ana", agent="planner", session="s1")
    verdict = mended(words, "heron", "a", user="ana")
    assert dict(verdict.change) == {"agent": "planner", "session": "s1"}
    verdict = mended(words, "heron", "a", scope={"user": "ana", "session": "s1"})
    assert dict(verdict.change) == {"agent": "planner"}
    for other in ({"user": "ana", "agent": "cook"}, {"session": "s2"}, {"user": "bob", "agent": "planner"}):
        verdict = words.why_not("heron", "a", **other)
        assert (verdict.stage, verdict.record, dict(verdict.change)) == ("scope", None, {})
        assert "planner" not in verdict.reason


def test_scope_of_the_settings_is_used(open_memory: OpenMemory) -> None:
    """A memory opened as bob sees no more by `why-not` than by `get`."""
    memory = open_memory(embedder="none", settings=Settings(scope=ScopeSettings(user="bob")))
    memory.add("heron", id="a", user="ana")
    memory.add("heron", id="b", agent="cook")
    verdict = memory.why_not("heron", "a")
    assert (verdict.stage, verdict.record, memory.get("a")) == ("scope", None, None)
    assert dict(mended(memory, "heron", "b").change) == {"agent": "cook"}


def test_superseded_record_names_its_successor_and_the_date(words: Memory) -> None:
    """`superseded=True` shows it, and so does a date before."""
    words.add("heron on the lake", id="old", created_at=NOON - timedelta(days=9))
    words.add("heron in the oak", id="new", created_at=NOON)
    words.supersede("old", "new", at=NOON)
    verdict = mended(words, "heron", "old")
    assert (verdict.stage, dict(verdict.change)) == ("superseded", {"superseded": True})
    assert verdict.reason == "superseded by new on 2026-03-14T12:00:00Z"
    assert words.why_not("heron", "old", as_of=NOON - timedelta(days=1)).stage == "found"


def test_supersession_in_the_future_does_not_count_yet(words: Memory) -> None:
    """Until then the old one is found."""
    words.add("heron on the lake", id="old")
    words.add("heron in the oak", id="new")
    words.supersede("old", "new", at=now() + timedelta(days=1))
    assert words.why_not("heron", "old").stage == "found"


def test_expired_record_is_found_as_of_before(words: Memory) -> None:
    """The advised time is the last moment at which it was valid."""
    words.add("heron", id="a", created_at=NOON - timedelta(days=9), expires_at=NOON)
    verdict = mended(words, "heron", "a")
    assert (verdict.stage, verdict.reason) == ("expired", "it expired on 2026-03-14T12:00:00Z")
    assert dict(verdict.change) == {"as_of": "2026-03-14T11:59:59.999999Z"}


def test_record_expired_before_its_start_has_no_advice(words: Memory) -> None:
    """There was no moment at which it was valid."""
    words.add("heron", id="a", created_at=NOON, expires_at=NOON - timedelta(days=9))
    verdict = words.why_not("heron", "a")
    assert (verdict.stage, dict(verdict.change)) == ("expired", {})


def test_record_is_not_found_as_of_before_its_creation(words: Memory) -> None:
    """Nor before its text was changed."""
    words.add("heron", id="later", created_at=NOON)
    verdict = mended(words, "heron", "later", as_of="2026-03-01")
    assert (verdict.stage, dict(verdict.change)) == ("as_of", {"as_of": None})
    assert "2026-03-14T12:00:00Z" in verdict.reason
    words.add("stork", id="edited", created_at=NOON)
    words.add("heron, really", id="edited", created_at=NOON)
    verdict = mended(words, "heron", "edited", as_of=NOON + timedelta(days=1))
    assert (verdict.stage, dict(verdict.change)) == ("as_of", {"as_of": None})
    assert iso(words.get("edited").edited_at) in verdict.reason


@pytest.mark.parametrize(
    ("stage", "fields", "options", "expected"),
    [
        ("category", {"category": "work"}, {"category": "home"}, ({"category": ()}, "its own is 'work'")),
        ("category", {}, {"category": ["home", "garden"]}, ({"category": ()}, "its own is not set")),
        ("kind", {}, {"kind": "chunk"}, ({"kind": None}, "it is a fact")),
        ("tag", {"tags": ["red"]}, {"tags": ["red", "blue"]}, ({"tags": ("red",)}, "it has no 'blue'")),
        ("tag", {}, {"tags": ["red", "blue"]}, ({"tags": ()}, "it has no 'red', 'blue'")),
        ("path", {"path": "/a/x.md"}, {"path": "/b"}, ({"path": None}, "it is /a/x.md")),
        ("path", {}, {"path": "notes"}, ({"path": None}, "of no file")),
        ("path", {}, {"path": "*"}, ({"path": None}, "of no file")),
        ("path", {}, {"path": "/"}, ({"path": None}, "of no file")),
        ("since", {}, {"since": "2026-03-15"}, ({"since": None}, "it is from 2026-03-14T12:00:00Z")),
        ("since", {"happened_at": "2020-01-01"}, {"since": "2026-01-01"}, ({"since": None}, "it is from 2020-01-01")),
        ("until", {}, {"until": "2026-03-14T12:00Z"}, ({"until": None}, "it is from 2026-03-14T12:00:00Z")),
    ],
    ids=str,
)
def test_each_filter_is_named_with_the_records_value(
    words: Memory, stage: str, fields: dict[str, Any], options: dict[str, Any], expected: tuple[dict[str, Any], str]
) -> None:
    """The advice removes that filter, or the tags that the record lacks."""
    words.add("heron", id="a", created_at=NOON, **fields)
    verdict = mended(words, "heron", "a", **options)
    assert (verdict.stage, dict(verdict.change)) == (stage, expected[0])
    assert expected[1] in verdict.reason


def test_record_lost_at_many_stages_names_the_first_and_advises_all(words: Memory) -> None:
    """Scope, supersession, expiry, every filter, depth, threshold and limit at once."""
    herons(words, 30)
    words.store.records.apply(
        [
            [
                Put(
                    Record(
                        "lost",
                        "heron" + " reed" * 40,
                        category="work",
                        tags=("red",),
                        scope=Scope("ana", None, "s1"),
                        path="/a/x.md",
                        created_at=NOON - timedelta(days=9),
                        expires_at=NOON,
                        superseded_by="r000",
                        superseded_at=NOON - timedelta(days=5),
                    )
                )
            ]
        ]
    )
    options: dict[str, Any] = {
        "category": "home", "kind": "chunk", "tags": ["red", "blue"], "path": "/b",
        "since": NOON - timedelta(days=1), "until": NOON - timedelta(days=20), "fetch_k": 5, "limit": 3,
    }  # fmt: skip
    verdict = mended(words, "heron", "lost", **options)
    assert verdict.stage == "scope"
    for part in ("user 'ana'", "superseded by r000", "expired on", "category", "kind", "'blue'", "/a/x.md", "by time"):
        assert part in verdict.reason
    assert verdict.change.keys() >= {
        "user", "session", "superseded", "as_of", "category", "kind", "tags", "path", "since", "until"
    }  # fmt: skip


def test_advice_covers_depth_threshold_and_limit(words: Memory) -> None:
    """The named stage is the first; the advice has what the later ones need too."""
    herons(words, 30)
    words.add("heron" + " reed" * 40, id="lost", user="ana", created_at=NOON)
    verdict = mended(words, "heron", "lost", fetch_k=5, limit=3, min_score=0.9)
    assert verdict.stage == "scope"
    assert verdict.change.keys() == {"user", "fetch_k", "min_score", "limit"}


def test_where_filter_is_explained_too(words: Memory) -> None:
    """The advice must not conflict with `where`."""
    words.add("heron", id="a", category="work", created_at=NOON)
    words.add("heron two", id="b", created_at=NOON)
    assert words.why_not("heron", "a", where=Filter()).stage == "found"
    assert mended(words, "heron two", "a", where=Filter(), limit=1).stage == "limit"
    assert mended(words, "heron", "a", where=Filter(categories=("home",))).stage == "category"


def test_where_filter_is_judged_by_its_own_scope(open_memory: OpenMemory) -> None:
    """As `search` does: the default scope is not added to it."""
    memory = open_memory(embedder="none", settings=Settings(scope=ScopeSettings(user="ada")))
    memory.add("heron", id="a")
    assert ids(memory, "heron", where=Filter()) == []
    assert memory.why_not("heron", "a", where=Filter()).stage == "scope"


# -- depth --------------------------------------------------------------------------------------------------


class Ruler:
    """Ranks a text by the last number in it: 1 is nearest to any query, `count` is farthest, no two are equal."""

    name = "ruler"

    def __init__(self, count: int) -> None:
        self.count = count
        self.fingerprint = f"ruler-{count}"
        self.error: Exception | None = None

    def passages(self, texts: Sequence[str]) -> Any:
        if self.error:
            raise self.error
        angles = [0.2 + int(re.findall(r"\d+", text)[-1]) / self.count for text in texts]
        return np.array([[math.cos(a), math.sin(a)] for a in angles], dtype=np.float32)

    def query(self, text: str) -> Any:
        if self.error:
            raise self.error
        return np.array([1.0, 0.0], dtype=np.float32)


MANY = 2003  # a prime, so that i → 7 · i is a second order of the same places


def by_vector(place: int) -> int:
    """The vector rank of the record whose keyword rank is `place`."""
    return place * 7 % MANY


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    """Two thousand records with known ranks: equal by words but for their age, each with its own angle."""
    place = tmp_path_factory.mktemp("many") / "m.db"
    with Memory.open(place, embedder=Ruler(MANY), settings=Settings()) as memory:
        records = [
            Record(f"r{i}", f"heron {by_vector(i):04}", created_at=NOON - timedelta(minutes=i)) for i in range(1, MANY)
        ]
        memory.store.records.apply([[Put(record) for record in records]])
        memory.embed()
        yield memory


@pytest.mark.ci
@pytest.mark.parametrize("place", [143, 101, 1999])
@pytest.mark.xdist_group("many")
def test_exact_ranks_beyond_fetch_k_are_reported(many: Memory, place: int) -> None:
    """At any depth, by words and by vector; the advice reads to the better of the two."""
    meant = by_vector(place)
    assert min(place, meant) > 100
    verdict = mended(many, "heron", f"r{place}")
    assert verdict.stage == "fetch_k"
    assert verdict.reason == f"keyword rank {place} beyond fetch_k 100; vector rank {meant} beyond fetch_k 100"
    assert {name: (p.rank, p.fetch_k) for name, p in verdict.places.items()} == {
        "keyword": (place, 100),
        "vector": (meant, 100),
    }
    assert verdict.places["vector"].score == pytest.approx(math.cos(0.2 + meant / MANY), abs=1e-5)
    assert verdict.change["fetch_k"] == min(place, meant)


@pytest.mark.ci
@pytest.mark.parametrize("source", ["keyword", "vector"])
@pytest.mark.xdist_group("many")
def test_single_source_reports_its_own_rank(many: Memory, source: str) -> None:
    """Unused sources are not mentioned; a depth one smaller is not enough."""
    rank = 143
    key = f"r{rank if source == 'keyword' else rank * pow(7, -1, MANY) % MANY}"
    verdict = mended(many, "heron", key, sources=[source])
    assert (verdict.stage, verdict.reason) == ("fetch_k", f"{source} rank {rank} beyond fetch_k 100")
    assert list(verdict.places) == [source]
    assert many.why_not("heron", key, sources=[source], fetch_k=rank - 1).stage == "fetch_k"
    assert many.why_not("heron", key, sources=[source], fetch_k=rank).stage == "limit"
    assert many.why_not("heron", key, sources=[source], limit=rank).stage == "found"


@pytest.mark.ci
@pytest.mark.xdist_group("many")
def test_limit_above_fetch_k_is_the_depth(many: Memory) -> None:
    """And is reported as such."""
    verdict = mended(many, "heron", "r143", fetch_k=5, limit=50)
    assert verdict.reason == "keyword rank 143 beyond fetch_k 50; vector rank 1001 beyond fetch_k 50"


@pytest.mark.xdist_group("many")
def test_one_source_within_its_depth_is_enough(many: Memory) -> None:
    """Rank 2 by vector is found at any keyword rank, and both ranks are reported."""
    place = 2 * pow(7, -1, MANY) % MANY
    assert place > 100
    verdict = many.why_not("heron", f"r{place}", limit=100)
    assert verdict.stage == "found"
    assert {name: found.rank for name, found in verdict.places.items()} == {"keyword": place, "vector": 2}


@pytest.mark.ci
@pytest.mark.parametrize("fusion", ["rrf", "weighted", "combmnz", "borda"])
@pytest.mark.xdist_group("many")
def test_advised_limit_accounts_for_the_deeper_search(many: Memory, fusion: str) -> None:
    """A larger limit reads deeper and moves the record; the advice is where both meet."""
    for place in (58, 145):
        mended(many, "heron", f"r{place}", fusion=fusion, fetch_k=1, limit=1)


@pytest.mark.xdist_group("many")
def test_rank_after_fusion_is_reported_at_the_limit(many: Memory) -> None:
    """The rank of a search without limit, which is the advised limit."""
    order = ids(many, "heron", limit=100)
    for place in (10, 11, 50, 99):
        verdict = mended(many, "heron", order[place])
        assert (verdict.stage, verdict.reason) == ("limit", f"at rank {place + 1}, beyond the limit of 10")
        assert dict(verdict.change) == {"limit": place + 1}


def test_rank_counts_texts_not_records(words: Memory) -> None:
    """Fifty duplicates before it count once."""
    herons(words, 20)
    words.store.records.apply([[Put(Record(f"same{i}", "heron", created_at=NOON)) for i in range(50)]])
    verdict = mended(words, "heron", "r010", fetch_k=5, limit=5)
    assert (verdict.stage, verdict.places["keyword"].rank) == ("fetch_k", 12)


def test_source_without_weight_is_not_a_depth_problem(open_memory: OpenMemory) -> None:
    """A record at its rank 2 is lost to the weight, not to `fetch_k`."""
    memory = open_memory(embedder="none")
    herons(memory, 5)
    assert ids(memory, "heron", text_weight=0.0) == []
    verdict = memory.why_not("heron", "r001", text_weight=0.0)
    assert verdict.stage not in ("fetch_k", "unmatched")
    assert "weight" in verdict.reason


def test_advised_depth_is_of_a_source_with_weight(memory: Memory) -> None:
    """The better rank is in a source of weight 0: reading to the other brings the record back."""
    herons(memory, 30)
    options: dict[str, Any] = {"vector_weight": 0.0, "fetch_k": 5, "limit": 5}
    places = memory.why_not("heron", "r020", **options).places
    assert 5 < places["vector"].rank < places["keyword"].rank == 21
    verdict = mended(memory, "heron", "r020", **options)
    assert verdict.change["fetch_k"] == 21


# -- unmatched, and sources that do not answer --------------------------------------------------------------


def test_no_shared_word_without_an_embedder_is_unmatched(words: Memory) -> None:
    """The reason names both."""
    words.add("heron", id="a")
    verdict = words.why_not("stork", "a")
    assert (verdict.stage, dict(verdict.change)) == ("unmatched", {})
    assert "keyword shares no word with the query" in verdict.reason
    assert "vector no embedder is configured" in verdict.reason
    assert verdict.advice


def test_empty_query_is_not_explained_by_missing_vectors(memory: Memory) -> None:
    """The record has a vector; the query has none."""
    memory.add("heron", id="a")
    verdict = memory.why_not("", "a")
    assert verdict.stage == "unmatched"
    assert "has no vector yet" not in verdict.reason


def test_failed_source_is_named_with_its_error(open_memory: OpenMemory) -> None:
    """A record that only the vector source could find is unmatched."""
    embedder = Ruler(9)
    memory = open_memory(embedder=embedder)
    memory.add("heron 1", id="a")
    memory.add("stork 2", id="b")
    assert memory.why_not("stork", "a").stage == "found"
    embedder.error = EmbedderError("the model is on fire", hint="put it out")
    verdict = memory.why_not("stork", "a")
    assert (verdict.stage, dict(verdict.change)) == ("unmatched", {})
    assert "vector did not answer: the model is on fire" in verdict.reason
    assert verdict.places["vector"].note == "did not answer: the model is on fire"
    assert memory.why_not("stork", "b").stage == "found"
    with pytest.raises(SearchFailed):
        memory.why_not("stork", "a", sources=["vector"])


def test_source_that_failed_once_is_not_relied_on(open_memory: OpenMemory) -> None:
    """That it would answer a moment later does not make the record found."""

    class Once(Ruler):
        fails = 0

        def query(self, text: str) -> Any:
            if self.fails:
                self.fails -= 1
                raise EmbedderError("not now")
            return super().query(text)

    embedder = Once(9)
    memory = open_memory(embedder=embedder)
    memory.add("heron 1", id="a")
    embedder.fails = 1
    verdict = memory.why_not("stork", "a")
    assert verdict.stage == "unmatched"
    assert verdict.places["vector"].rank == 1


@pytest.fixture
def team(open_memory: OpenMemory, tmp_path: Path) -> Iterator[Callable[..., Memory]]:
    """Opens a memory with an external source: another store, read three rows deep, joined by id."""

    def open_with(theirs: dict[str, str], **options: Any) -> Memory:
        other = open_memory(tmp_path / "team.db", embedder="none")
        for key, text in theirs.items():
            other.add(text, id=key, created_at=NOON)
        fields = {"id": "id", "text": "text", "score": "score"}
        kept = {"store": str(tmp_path / "team.db"), "embedder": "none"}
        said = SourceSettings("team", "recollect", fetch_k=3, fields=fields, options={**kept, **options})
        return open_memory(embedder="none", settings=Settings(sources=(said,)))

    return open_with


def test_external_source_that_has_the_record_is_enough(team: Callable[..., Memory]) -> None:
    """It is found at their rank; a record they do not list is reported as unlisted."""
    memory = team({"a": "stork one", "b": "stork and two"})
    for key in ("a", "b", "c"):
        memory.add(f"heron {key}", id=key)
    verdict = memory.why_not("stork", "b")
    assert (verdict.stage, verdict.rank, verdict.places["team"].rank) == ("found", 2, 2)
    verdict = memory.why_not("stork", "c")
    assert (verdict.stage, dict(verdict.change)) == ("unmatched", {})
    assert "keyword shares no word with the query" in verdict.reason
    assert "team not in its list" in verdict.reason


def test_external_source_is_read_to_its_own_depth(team: Callable[..., Memory]) -> None:
    """Its fourth row is beyond the depth in its settings, which no search option changes."""
    memory = team({f"r{i}": "stork" + " reed" * i for i in range(6)})
    for i in range(6):
        memory.add(f"heron {i}", id=f"r{i}")
    assert memory.why_not("stork", "r2").stage == "found"
    verdict = memory.why_not("stork", "r3")
    assert (verdict.stage, verdict.places["team"].rank, dict(verdict.change)) == ("unmatched", None, {})


def test_failed_external_source_is_named(team: Callable[..., Memory], tmp_path: Path) -> None:
    """With its error; the others still answer."""
    memory = team({}, store=str(tmp_path / "nowhere.db"))
    memory.add("heron", id="a")
    verdict = memory.why_not("stork", "a")
    assert verdict.stage == "unmatched"
    assert "team did not answer: there is no store at" in verdict.reason
    assert memory.why_not("heron", "a").stage == "found"


def test_why_not_counts_as_one_failure_of_an_external_source(team: Callable[..., Memory], tmp_path: Path) -> None:
    """It must not pause the source for the next search."""
    memory = team({}, store=str(tmp_path / "nowhere.db"))
    memory.add("heron", id="a")
    memory.why_not("stork", "a")
    traces = {trace.name: trace.status for trace in memory.search("heron").trace.sources}
    assert traces["team"] == "failed"


def test_external_document_in_the_answer_is_found(team: Callable[..., Memory]) -> None:
    """By the id in the answer."""
    memory = team({"theirs": "stork"})
    memory.add("heron", id="a")
    assert ids(memory, "stork") == ["team:theirs"]
    verdict = memory.why_not("stork", "team:theirs")
    assert (verdict.stage, verdict.rank) == ("found", 1)


# -- after fusion -------------------------------------------------------------------------------------------


def test_duplicate_names_the_shown_record(words: Memory) -> None:
    """The newer of two equal texts is shown; there is no advice."""
    words.add("heron on the lake", id="y", created_at=NOON)
    words.add("Heron  ON the lake", id="x", created_at=NOON - timedelta(days=1))
    verdict = words.why_not("heron", "x")
    assert (verdict.stage, dict(verdict.change)) == ("duplicate", {})
    assert "its duplicate y" in verdict.reason
    assert "y is shown instead" in verdict.advice
    assert verdict.places["keyword"].note == "as its duplicate y"
    assert words.why_not("heron", "y").stage == "found"


def test_duplicate_of_a_lost_record_is_not_reported_as_shown(words: Memory) -> None:
    """`nothing is lost` holds only if the other record is in the answer."""
    herons(words, 20)
    words.add("HERON" + " reed" * 15 + " n15", id="x", created_at=NOON - timedelta(days=1))
    assert "nothing is lost" in words.why_not("heron", "x", limit=20).advice
    for options in ({"limit": 3}, {"min_score": 0.99}, {"fetch_k": 3, "limit": 3}):
        assert "r015" not in ids(words, "heron", **options)
        assert "nothing is lost" not in words.why_not("heron", "x", **options).advice, options


def test_hidden_duplicate_does_not_count(words: Memory) -> None:
    """Only visible records are merged."""
    words.add("heron", id="y", user="ana", created_at=NOON)
    words.add("heron", id="x", created_at=NOON - timedelta(days=1))
    assert words.why_not("heron", "x").stage == "found"
    assert words.why_not("heron", "x", user="ana").stage == "duplicate"
    assert words.why_not("heron", "x", user="ana", until=NOON).stage == "found"


@pytest.mark.parametrize("fusion", ["rrf", "weighted", "combmnz", "borda"])
def test_gap_to_the_threshold_is_exact(memory: Memory, fusion: str) -> None:
    """`min_score` minus the record's score; the advised threshold is the next below the score."""
    herons(memory, 20)
    scores = {r.record.id: r.score for r in memory.search("heron", fusion=fusion, limit=20).results}
    key, score = min(scores.items(), key=lambda item: item[1])
    least = score + 0.25 * (1 - score)
    verdict = mended(memory, "heron", key, fusion=fusion, min_score=least, limit=20)
    assert verdict.stage == "threshold"
    assert (
        f"below the threshold by {least - score:.2g}: it scores {score:.4f}, min_score is {least:g}" in verdict.reason
    )
    advised = verdict.change["min_score"]
    assert score - 1e-4 < advised <= score


def test_score_equal_to_the_threshold_passes(words: Memory) -> None:
    """As in `search`."""
    herons(words, 20)
    score = words.search("heron", limit=20).results[7].score
    assert words.why_not("heron", "r007", min_score=score).stage == "found"
    assert words.why_not("heron", "r007", min_score=math.nextafter(score, 1)).stage == "threshold"


def test_advised_threshold_is_never_above_the_score() -> None:
    """Rounding to four places must not go up."""
    for thousandth in range(1, 10_001):
        for score in (thousandth / 10_000, math.nextafter(thousandth / 10_000, 0)):
            assert score - 1.01e-4 < _just_below(score) <= score


def test_factors_count_before_the_threshold(words: Memory) -> None:
    """A decayed record is below it by the amount of its decay."""
    words.add("heron", id="old", decay="stable", created_at=now() - timedelta(days=90))
    verdict = mended(words, "heron", "old", min_score=0.75)
    assert "below the threshold by 0.25: it scores 0.5000, min_score is 0.75" in verdict.reason


def test_mmr_names_the_preferred_record(words: Memory) -> None:
    """The near duplicate at rank 2 gives way; without MMR it is back."""
    words.add("heron lake reeds dawn", id="top", created_at=NOON)
    words.add("heron lake reeds dawn yonder", id="near", created_at=NOON)
    words.add("heron harbour oar boat winter snow", id="new", created_at=NOON)
    options: dict[str, Any] = {"limit": 2, "mmr": True, "mmr_lambda": 0.1}
    verdict = mended(words, "heron lake reeds dawn", "near", **options)
    assert (verdict.stage, dict(verdict.change)) == ("mmr", {"mmr": False})
    assert "in favour of new" in verdict.reason
    assert "by relevance it is at rank 2" in verdict.reason
    assert words.why_not("heron lake reeds dawn", "new", **options).rank == 2


def test_record_beyond_the_limit_is_lost_to_the_limit_not_to_mmr(words: Memory) -> None:
    """The advice shows it."""
    herons(words, 12)
    for options in ({}, {"mmr": True, "mmr_lambda": 0.5}):
        verdict = mended(words, "heron", "r011", limit=3, **options)
        assert (verdict.stage, verdict.reason) == ("limit", "at rank 12, beyond the limit of 3")


def test_verdict_as_json(words: Memory) -> None:
    """One format everywhere, and valid JSON."""
    herons(words, 12)
    said = verdict_dict("heron", words.why_not("heron", "r011"))
    assert json.loads(json.dumps(said)) == said
    assert said["query"] == "heron"
    assert (said["target"], said["stage"], said["rank"]) == ("r011", "limit", None)
    assert said["change"] == {"limit": 12}
    assert said["sources"]["keyword"].keys() == {"rank", "score", "fetch_k"}
    assert said["sources"]["vector"] == {
        "rank": None, "score": None, "fetch_k": 0, "note": "no embedder is configured"
    }  # fmt: skip
    assert (said["record"]["id"], said["record"]["created_at"]) == ("r011", "2026-03-14T12:00:00Z")


def test_why_not_changes_nothing(words: Memory, dump: Callable[[], dict[str, list[tuple[Any, ...]]]]) -> None:
    """It is a read: the tables are the same afterwards."""
    herons(words, 12)
    before = dump()
    words.why_not("heron", "r011")
    words.why_not("heron", "r001", user="ana", tags=["red"])
    assert dump() == before


def test_record_below_the_confidence_threshold_shows_its_confidence(memory: Memory) -> None:
    """The number that search shows, and advice that brings it back."""
    for number in range(30):
        memory.add(f"Herons stand at lake {number} in the morning.", id=f"h{number}")
    memory.add("A heron.", id="short")
    shown = {r.record.id: r.confidence for r in memory.search("heron lake 7", confidence=True, limit=40).results}
    verdict = memory.why_not("heron lake 7", "short", min_confidence=shown["short"] + 1e-5, limit=40)
    assert verdict.stage == "confidence"
    assert f"its confidence is {shown['short']:.4f}" in verdict.reason
    found = memory.search("heron lake 7", limit=40, **verdict.change).results
    assert "short" in [result.record.id for result in found]


# -- limits -------------------------------------------------------------------------------------------------


def test_depth_limit_is_respected_and_reported(words: Memory) -> None:
    """A record beyond it is reported as present, without ranks."""
    herons(words, 60)
    limited = words.why_not("heron", "r050", fetch_k=5, limit=5, work=Work(deepest=20))
    assert (limited.stage, dict(limited.change), limited.rank) == ("fetch_k", {}, None)
    assert "keyword beyond rank 20" in limited.reason
    assert limited.places["keyword"].rank is None
    assert "owner" in limited.advice
    near = words.why_not("heron", "r015", fetch_k=5, limit=5, work=Work(deepest=20))
    assert near.change["fetch_k"] <= 20
    assert near.change["limit"] <= 20
    assert "r015" in ids(words, "heron", **near.change)
    assert words.why_not("heron", "r050", fetch_k=5, limit=5).places["keyword"].rank == 51


def test_unmatched_is_distinguished_from_too_deep(words: Memory) -> None:
    """A list that ends before the limit is complete."""
    herons(words, 10)
    words.add("A boat with an oar.", id="boat")
    assert words.why_not("heron", "boat", work=Work(deepest=20)).stage == "unmatched"


def test_cancelled_or_late_work_ends(words: Memory) -> None:
    """With an error, between two steps."""
    herons(words, 10)
    left, late = Work(), Work(-1)
    left.cancel()
    for call in (words.search, lambda text, work: words.why_not(text, "r009", limit=2, work=work)):
        with pytest.raises(Cancelled):
            call("heron", work=left)
        with pytest.raises(TimedOut, match="longer than -1 s"):
            call("heron", work=late)
        call("heron", work=Work())


def test_mmr_can_be_cancelled(words: Memory) -> None:
    """Each of its picks checks for cancellation."""
    herons(words, 30)
    pipeline, query = words.prepare("heron", mmr=True, limit=30, work=(work := Work()))
    replies = pipeline.ask(query)
    work.cancel()
    candidates = pipeline.fused(query, replies)
    with pytest.raises(Cancelled):
        dict(pipeline.stages)["mmr"](query, candidates)
