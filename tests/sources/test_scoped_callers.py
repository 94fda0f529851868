"""External sources for scoped callers: learnt paths, failures and error details stay within their scope."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import apsw
import pytest

from recollect import Memory, Scope, moving
from recollect.config import Settings, SourceSettings
from recollect.errors import SearchFailed
from recollect.memory.shapes import answer_dict
from recollect.moving import format as lines
from recollect.sources.external import FAILURES
from recollect.stores.sqlite import SqliteStore, schema
from recollect.types import Answer, SourceTrace
from recollect.types.parts import Part

ADA, BOB = Scope("ada"), Scope("bob")
OURS = {name: name for name in ("id", "text", "title", "path", "score")}
JOINS = ("id", "path", "text")
SECRET = "/home/bob/divorce-lawyer/notes.md"
EMOJI = "\N{HERB}" * 50_000


@pytest.fixture
def memory(place: str, stand: ModuleType) -> Iterator[Memory]:
    """The owner's memory with three sources, each named after the field it joins by."""
    sources = [SourceSettings(join, "stand", join=join, fields=OURS, timeout_ms=20_000) for join in JOINS]
    with Memory.open(place, embedder="none", settings=Settings(sources=tuple(sources))) as memory:
        yield memory


@pytest.fixture
def ask(stand: ModuleType) -> Callable[..., Answer]:
    """The answer of a memory when one source alone is used and returns these rows."""

    def run(side: Memory, *rows: Any, source: str = "id", **options: Any) -> Answer:
        stand.ASK[source] = lambda _: list(rows)
        return side.search("heron", sources=[source], **options)

    return run


# -- what ids stand for -------------------------------------------------------------------------------------


def test_learnt_path_is_not_shown_to_another_scope(memory: Memory, ask: Callable[..., Answer]) -> None:
    """Bob's row has the path of a document; Ada's row with the same id and no path has none."""
    bob, ada = memory.within(BOB), memory.within(ADA)
    assert ask(bob, {"id": "1", "text": "notes", "path": SECRET}).results[0].record.path == SECRET
    for side, options in ((ada, {}), (memory, {"user": "ada"}), (memory, {}), (memory, {"any_scope": True})):
        (result,) = ask(side, {"id": "1", "text": "hers"}, **options).results
        assert result.record.path is None
    assert ask(bob, {"id": "1", "text": "notes"}).results[0].record.path == SECRET


def test_migration_drops_paths_learnt_without_a_scope(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older store does not have their scope; it opens, and learns them again."""
    with monkeypatch.context() as older:
        older.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:6])
        SqliteStore(path).close()
    file = apsw.Connection(str(path))
    file.execute("INSERT INTO joins (source, id, path) VALUES ('wiki', '1', ?)", (SECRET,))
    file.close()
    store = SqliteStore(path)
    assert dict(store.joins.paths("wiki")) == {}
    store.joins.learn("wiki", {"1": "/n/new.md"}, ADA)
    assert dict(store.joins.paths("wiki", ADA)) == {"1": "/n/new.md"}
    assert dict(store.joins.paths("wiki")) == {}
    store.close()
    assert SECRET.encode() not in path.read_bytes()


def test_older_export_is_imported_without_learnt_paths(place: str, tmp_path: Path) -> None:
    """Its lines do not have their scope; its records are imported."""
    with Memory.open(tmp_path / "old.db", embedder="none", settings=Settings()) as old:
        old.add("A heron.", id="heron")
        with old.store.contents.snapshot() as snapshot:
            parts = [*snapshot.parts(), Part("join", ("wiki", "1", "", SECRET))]
    file = tmp_path / "old.jsonl"
    file.write_bytes(b"".join(lines.written(parts, lines.Sum())))
    assert '{"part":"join","source":"wiki","id":"1","path":"/home' in file.read_text()
    with Memory.open(place, embedder="none", settings=Settings()) as new:
        moved = new.import_(file, with_folders=True)
        assert (moved.total["join"], moved.not_copied["join"]) == (1, 1)
        assert new.get("heron").text == "A heron."
        for scope in (Scope(), ADA):
            assert dict(new.store.joins.paths("wiki", scope)) == {}
        new.import_(file, with_folders=True)


def test_learnt_paths_are_copied_with_their_scope(place: str, tmp_path: Path) -> None:
    """In a copy each scope has its own and no other."""
    with Memory.open(tmp_path / "first.db", embedder="none", settings=Settings()) as first:
        first.store.joins.learn("wiki", {"1": "/n/ada.md"}, ADA)
        first.store.joins.learn("wiki", {"1": "/n/all.md"})
    moving.copy(tmp_path / "first.db", place)
    with Memory.open(place, embedder="none", settings=Settings()) as second:
        found = [dict(second.store.joins.paths("wiki", scope)) for scope in (ADA, Scope(), BOB)]
    assert found == [{"1": "/n/ada.md"}, {"1": "/n/all.md"}, {}]


# -- what is hidden -----------------------------------------------------------------------------------------

ROWS = {
    "id": ("foreign", "nobodys"),
    "path": ("/n/foreign.md", "/n/nobodys.md"),
    "text": ("The foreign heron.", "The heron that nobody has."),
}


@pytest.mark.parametrize("state", ["live", "superseded", "forgotten", "purged"])
def test_row_of_another_scopes_record_looks_like_an_unknown_one(
    memory: Memory, ask: Callable[..., Answer], state: str
) -> None:
    """Both are shown as external documents, whichever field they are joined by."""
    memory.add("The foreign heron.", id="foreign", path="/n/foreign.md", user="bob")
    if state == "superseded":
        memory.supersede("foreign", text="The newer heron.")
    elif state != "live":
        memory.forget("foreign", purge=state == "purged")
    for join, (theirs, nobodys) in ROWS.items():
        for value in (theirs, nobodys):
            row = {"text": "words of the outside system", join: value}
            (result,) = ask(memory.within(ADA), row, source=join).results
            assert (result.record.kind, result.record.text) == ("outside", row["text"])


@pytest.mark.parametrize("state", ["superseded", "expired", "forgotten", "purged"])
def test_row_of_ones_own_hidden_record_stays_hidden(memory: Memory, ask: Callable[..., Answer], state: str) -> None:
    """A record hidden in the caller's scope does not return through an external source."""
    said = {"expires_at": "2020-01-01"} if state == "expired" else {}
    memory.add("The old heron.", id="old", path="/n/old.md", user="ada", **said)
    if state == "superseded":
        memory.supersede("old", text="The newer heron.")
    elif state != "expired":
        memory.forget("old", purge=state == "purged")
    row = {"id": "old", "text": "The old heron.", "path": "/n/old.md"}
    for join in JOINS if state in ("superseded", "expired") else ("id",):
        assert ask(memory.within(ADA), row, source=join).results == ()


# -- failures -----------------------------------------------------------------------------------------------

PROGRAM = """
import json, pathlib, sys, time
pathlib.Path(sys.argv[1]).open("a").write("x")
if "fail" in sys.argv[2]:
    sys.exit("cannot open /srv/private/index-of-bob.sqlite for user bob")
if "slow" in sys.argv[2]:
    time.sleep(60)
print(json.dumps([{"id": "1", "text": "A heron of the wiki."}]))
"""


@pytest.fixture
def started(tmp_path: Path) -> Path:
    """A file that grows by a letter with each start of the program."""
    return tmp_path / "started"


@pytest.fixture
def wiki(path: Path, started: Path) -> Iterator[Memory]:
    """The owner's memory with a program as its source, which fails or hangs if the query says so."""
    program = started.with_name("program.py")
    program.write_text(PROGRAM)
    command = [sys.executable, "-S", str(program), str(started), "{query}"]
    said = SourceSettings("wiki", "command", options={"command": command}, fields=OURS, timeout_ms=1500)
    with Memory.open(path, embedder="none", settings=Settings(sources=(said,))) as memory:
        memory.add("A heron by the lake.")
        yield memory


def trace(answer: Answer) -> SourceTrace:
    """What is said of the program."""
    return next(source for source in answer.trace.sources if source.name == "wiki")


def test_scope_cannot_pause_a_source_for_others(wiki: Memory) -> None:
    """Ada's failures pause it for her; Bob, the owner and the next process still use it."""
    ada, bob = wiki.within(ADA), wiki.within(BOB)
    for _ in range(FAILURES + 1):
        last = trace(ada.search("heron fail"))
    assert last.status == "skipped"
    assert trace(wiki.within(ADA).search("heron")).status == "skipped", "another side of the same scope"
    for side in (bob, wiki, wiki.within(Scope())):
        assert trace(side.search("heron")).status == "ok"
    assert [source["state"] for source in wiki.sources() if source["name"] == "wiki"] == ["ok"]
    for _ in range(FAILURES + 1):
        wiki.search("heron fail")
    assert trace(wiki.search("heron")).status == "skipped"
    assert trace(bob.search("heron")).status == "ok"


@pytest.mark.parametrize("whose", ["ada's", "the owner's"])
def test_too_long_query_is_not_sent_and_counts_as_no_failure(wiki: Memory, started: Path, whose: str) -> None:
    """The program is not started, the reason is reported, and the next query is answered."""
    side = wiki.within(ADA) if whose == "ada's" else wiki
    for _ in range(FAILURES + 1):
        said = trace(side.search(f"heron {EMOJI}"))
        assert (said.status, "long" in said.reason or "bytes" in said.reason) == ("skipped", True)
    assert not started.exists()
    assert trace(side.search("heron")).status == "ok"


def test_scoped_caller_gets_no_details_of_a_failure(wiki: Memory, caplog: pytest.LogCaptureFixture) -> None:
    """No path, program or standard error in the answer; the owner and the log have them."""
    ada = wiki.within(ADA)
    with caplog.at_level(logging.WARNING, "recollect"):
        answer = ada.search("heron fail")
    assert trace(answer).reason == "the source failed"
    assert "wiki did not answer: the source failed" in answer.trace.warnings
    assert "/srv/private/index-of-bob.sqlite" in caplog.text
    told = json.dumps(answer_dict(answer, explain=True))
    told += ada.why_not("heron fail", answer.results[0].record.id).places["wiki"].note
    with pytest.raises(SearchFailed) as caught:
        ada.search("heron fail", sources=["wiki"])
    told += json.dumps(caught.value.as_dict())
    assert not [word for word in ("private", "bob", sys.executable, "python", "exit code") if word in told]
    assert "/srv/private/index-of-bob.sqlite" in trace(wiki.search("heron fail")).reason


@pytest.mark.ci
def test_scoped_caller_gets_general_reasons_for_timeout_and_pause(wiki: Memory) -> None:
    """That it took too long, and that it is paused."""
    ada = wiki.within(ADA)
    reasons = [trace(ada.search("heron slow")).reason for _ in range(FAILURES + 1)]
    assert reasons == ["no answer in time"] * FAILURES + ["left alone after repeated failures"]
