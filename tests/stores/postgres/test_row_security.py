"""With row-level security a service gives the owner's answers, and those of the SQLite store: no fewer and no more."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit
from uuid import uuid4

import psycopg
import pytest
from support.postgres import GRANTS

from recollect import Memory, Scope
from recollect.config import Settings
from recollect.sample import NOTES
from recollect.sources.matcher import ExternalRow, ResultMatcher
from recollect.stores import records
from recollect.stores.postgres import PostgresStore
from recollect.types import Filter, Put, Record

ADA, BOB = Scope("ada"), Scope("bob")
HERONS = ("river bank dawn", "river bank dusk", "river bank noon", "city roof", "mountain lake winter trip")
BOBS = (
    Record("bobs", "heron that bob keeps", scope=BOB),
    Record("bobchunk", "heron of a diary", kind="chunk", path="/n/bob.md", lines=(1, 1), scope=BOB),
)


@dataclass(frozen=True)
class Three:
    """The same records three times: in a file, for the owner of the tables, and for a role with the grants alone."""

    embedded: Memory
    owner: Memory
    service: Memory
    owned: str
    served: str

    def answers(self, ask: Callable[[Memory], Any]) -> list[Any]:
        """What each of them says."""
        return [ask(memory) for memory in (self.embedded, self.owner, self.service)]


@pytest.fixture
def three(new_schema: Callable[[], str], postgres_url: str, tmp_path: Path) -> Iterator[Three]:
    """Ada's herons and her file, and Bob's records."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "note.md").write_text("# Lake\n\nthe heron stands in the lake\n")
    owned, role = new_schema(), f"app_{uuid4().hex[:12]}"
    opened = [_filled(place, folder) for place in (str(tmp_path / "memory.db"), owned)]
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'")
        server.execute(GRANTS.format(schema=owned.rpartition("schema=")[2], role=role))
        parts = urlsplit(owned)
        place = urlunsplit(parts._replace(netloc=f"{role}:{role}@{parts.netloc.rpartition('@')[2]}"))
        opened.append(Memory.open(place, embedder="hashing:64", settings=Settings()))
        yield Three(*opened, owned, place)
        for memory in opened:
            memory.close()
        server.execute(f"DROP OWNED BY {role}")
        server.execute(f"DROP ROLE {role}")


def _filled(place: str, folder: Path) -> Memory:
    memory = Memory.open(place, embedder="hashing:64", settings=Settings())
    memory.add_many([{"text": f"heron {where}", "id": f"r{i}", "user": "ada"} for i, where in enumerate(HERONS)])
    memory.store.records.apply([[Put(record)] for record in BOBS])
    memory.index(folder, user="ada")
    memory.embed()
    return memory


def test_mmr_uses_only_visible_vectors(three: Three) -> None:
    """Whether Ada is named in the call or by the database; none of Bob's."""
    how = {"mmr": True, "mmr_lambda": 0.3, "limit": 5, "kind": "fact"}
    for ask in (
        lambda memory: memory.within(ADA).search("heron river bank", **how),
        lambda memory: memory.search("heron river bank", user="ada", **how),
    ):
        embedded, owner, service = ([result.record.id for result in answer.results] for answer in three.answers(ask))
        assert embedded == owner == service
    for spaces, seen in ((three.service.store.within(ADA).spaces, {"r1"}), (three.service.store.spaces, set())):
        assert set(spaces.open(spaces.active).vectors(["r1", "bobs"])) == seen


@pytest.mark.parametrize("by", ["id", "text", "path"])
def test_external_document_of_bobs_record_is_not_shown_to_ada(three: Three, by: str) -> None:
    """A hidden record is recognised; an unknown document is shown, and Ada's is hers."""
    rows = {
        "id": [
            ExternalRow("bobs", "the wiki's words of bob"),
            ExternalRow("r1", "x"),
            ExternalRow("new", "the wiki's own"),
        ],
        "text": [
            ExternalRow("1", "Heron that bob keeps"),
            ExternalRow("2", "heron city roof"),
            ExternalRow("3", "the wiki's own"),
        ],
        "path": [
            ExternalRow("1", "words of bob", path="n/bob.md"),
            ExternalRow("2", "the lake", path="note.md"),
            ExternalRow("3", "own"),
        ],
    }[by]

    def found(memory: Memory) -> list[str]:
        matcher = ResultMatcher("wiki", by, memory.store.records, memory.store.joins)
        _, query = memory.within(ADA).prepare("heron")
        return [hit.record.text for hit in matcher.match(rows, query).entries]

    embedded, owner, service = three.answers(found)
    assert embedded == owner == service
    assert len(service) == 2
    assert "bob" not in str(service)


def test_changed_file_is_reported_to_its_scope(three: Three, tmp_path: Path) -> None:
    """Freshness, lag and excerpt cover Ada's files; the indexed text is shown. Bob gets none."""
    note = tmp_path / "notes" / "note.md"
    note.write_text("# Lake\n\nthe heron has flown\n")
    os.utime(note, (1, 1))

    def told(memory: Memory) -> list[Any]:
        answers = [memory.within(ADA).search("heron lake", kind="chunk"), memory.search("lake", user="ada")]
        (record,) = (result.record for result in answers[0].results)
        fresh = [result.freshness for answer in answers for result in answer.results if result.record.path]
        shown = memory.within(ADA).excerpt(record.id)
        return [fresh, [answer.trace.lag for answer in answers], shown.freshness, shown.text == record.text]

    embedded, owner, service = three.answers(told)
    assert embedded == owner == service
    assert service == [["changed", "changed"], [{"files": 1, "vectors": 0}] * 2, "changed", True]
    assert three.service.store.within(BOB).files.states([str(note.resolve())]) == {}


def test_files_of_the_present_rules_are_not_said_to_be_outdated(three: Three) -> None:
    """A service sees no options of folders, but files."""
    with Memory.open(three.owned, embedder="none", settings=Settings()) as owner:
        owner.index(NOTES)
    assert three.service.store.files.roots() == {str(NOTES): None}
    assert "outdated_files" not in three.service.status()


def test_text_that_another_scope_has_is_stored_with_its_vector(three: Three) -> None:
    """It is known, so it is not embedded again."""
    for memory, user in ((three.service.within(BOB), None), (three.service, "cleo")):
        record = memory.add("heron city roof", user=user)
        spaces = memory.store.within(record.scope).spaces
        assert spaces.open(spaces.active).coverage(Filter(scope=record.scope, kinds=("fact",)))[1] == 0


def test_contradicted_fact_of_a_scope_becomes_current_again(three: Three) -> None:
    """Its vector is read in its own scope, whether Ada is named in the call or is the caller."""
    old, new = "Ada's dentist is Dr. Marek in the Lindenstrasse.", "Ada's dentist is Dr. Marek in the Ringstrasse."
    for view, user in ((lambda memory: memory, "ada"), (lambda memory: memory.within(BOB), None)):
        for memory in map(view, (three.embedded, three.service)):
            memory.closeness(memory.embeddings.serving())  # of a small model it is measured once
            first, _, again = [
                memory.add(text, user=user, created_at=f"2026-0{month}-01")
                for month, text in enumerate((old, new, old), 1)
            ]
            assert memory.get(first.id, user=user).superseded_by == again.id != first.id


def test_missing_vectors_are_counted_for_all(three: Three) -> None:
    """The best keyword hits get their vectors once, whoever searches; a stored vector is not computed again."""
    with Memory.open(three.owned, embedder="none", settings=Settings()) as owner:
        owner.add_many([{"text": f"kite number {i}", "user": "ada"} for i in range(300)])
    answers = [memory.within(ADA).search("kite") for memory in (three.owner, three.service)]
    assert [answer.trace.lag["vectors"] for answer in answers] == [280, 280]
    assert answers[0].trace.warnings == answers[1].trace.warnings != ()
    space = three.service.store.spaces.active
    index = three.service.store.spaces.open(space)
    assert index.coverage() == three.owner.store.spaces.open(space).coverage()
    assert index.known(["heron city roof", "nobody wrote this"]) == {"heron city roof"}


def test_another_model_waits_for_the_owner(three: Three) -> None:
    """The old vectors exist, so the old model still answers."""
    with Memory.open(three.served, embedder="hashing:32", settings=Settings()) as other:
        answer = other.search("heron city", user="ada", sources=["vector"])
    assert "hashing:64 still answers" in str(answer.trace.warnings)
    assert answer.results[0].record.id == "r3"


def test_record_can_be_read_by_who_may_see_it(three: Three) -> None:
    """The scope named in the call is used."""
    assert three.answers(lambda memory: getattr(memory.get("r1", user="ada"), "id", None)) == ["r1"] * 3
    assert three.answers(lambda memory: memory.get("r1", user="bob")) == [None] * 3
    assert three.answers(lambda memory: memory.why_not("heron", "r1", user="ada").stage) == ["found"] * 3


def test_cached_answers_are_bounded(three: Three, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are removed, although a service sees each only by its key."""
    monkeypatch.setattr(records, "MAX_NOTES", 5)
    notes = three.service.store.notes
    for number in range(12):
        notes.put(f"note {number}", "kept")
    assert [number for number in range(12) if notes.get(f"note {number}")] == [7, 8, 9, 10, 11]


def test_records_of_a_path_have_one_order(three: Three) -> None:
    """By line, those without lines first, then by id."""
    lines = MappingProxyType({"a": ("/y/n.md", (5, 6)), "b": ("/x/n.md", (9, 9)), "c": ("/x/n.md", None)})
    put = [[Put(Record(key, key, path=path, lines=at))] for key, (path, at) in lines.items()]
    for memory in (three.embedded, three.owner):
        memory.store.records.apply([*put, [Put(Record("A", "z", path="/x/n.md", lines=(9, 9)))]])
    found = three.answers(lambda memory: memory.store.joins.by_path(["n.md"], Filter())["n.md"])
    assert [[record.id for record in records] for records in found] == [["c", "a", "A", "b"]] * 3


def test_replica_without_the_vector_space_is_not_used(new_schema: Callable[[], str]) -> None:
    """A database with the same tables and no vectors stands for a replica that lags."""
    main, name = new_schema(), f"late_{uuid4().hex}"
    parts = urlsplit(main)
    with psycopg.connect(main.partition("schema=")[0].rstrip("?&"), autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        try:
            late = urlunsplit(parts._replace(path=f"/{name}"))
            PostgresStore(late).close()
            read = quote(late.partition("schema=")[0].rstrip("?&"), safe="")
            with Memory.open(f"{main}&read={read}", embedder="hashing:64", settings=Settings()) as memory:
                memory.add("heron", id="a")
                assert [result.record.id for result in memory.search("heron", sources=["vector"]).results] == ["a"]
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")
