"""Rows of external systems on a real store: which are our records, which are external, and which are hidden."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import apsw
import pytest

from recollect import Memory
from recollect.config import Settings, SourceSettings
from recollect.fusion import METHODS
from recollect.memory.shapes import answer_dict
from recollect.types import Answer, Filter, now

OURS = {name: name for name in ("id", "text", "title", "path", "score")}
JOINS = ("id", "path", "text")
OpenMemory = Callable[..., Memory]


class Wiki:
    """A memory with one outside source, `wiki`, that answers what a test says."""

    def __init__(self, open_memory: OpenMemory, stand: ModuleType) -> None:
        self.open_memory = open_memory
        self.stand = stand
        self._memory: Memory | None = None

    @property
    def memory(self) -> Memory:
        """The memory, opened at first use."""
        return self._memory or self.opened()

    def opened(self, place: Path | None = None, **said: Any) -> Memory:
        """The memory (again), with these settings of the source."""
        source = SourceSettings("wiki", "stand", **{"fields": OURS, "timeout_ms": 20_000, **said})
        where = {} if place is None else {"place": place}
        self._memory = self.open_memory(embedder="none", settings=Settings(sources=(source,)), **where)
        return self._memory

    def opened_thrice(self) -> Memory:
        """The memory with three sources, `id`, `path` and `text`, each of which joins by what it is named after."""
        sources = [SourceSettings(join, "stand", join=join, fields=OURS, timeout_ms=20_000) for join in JOINS]
        self._memory = self.open_memory(embedder="none", settings=Settings(sources=tuple(sources)))
        return self._memory

    def ask(self, *rows: Any, query: str = "heron", source: str = "wiki", **options: Any) -> Answer:
        """The answer when the source alone is asked, and these are its rows."""
        self.stand.ASK[source] = lambda _: list(rows)
        return self.memory.search(query, sources=[source], **options)

    def ids(self, *rows: Any, **options: Any) -> list[str]:
        """The same, as ids."""
        return [result.record.id for result in self.ask(*rows, **options).results]


@pytest.fixture
def path(tmp_path: Path, blank: Path) -> Path:
    """The path of a test's store: a copy of an empty one."""
    return Path(shutil.copy(blank, tmp_path / "memory.db"))


@pytest.fixture
def wiki(open_memory: OpenMemory, stand: ModuleType) -> Wiki:
    """The source joins by id unless a test opens it again."""
    return Wiki(open_memory, stand)


# -- ours and theirs ----------------------------------------------------------------------------------------


def test_row_with_our_id_is_our_record(wiki: Wiki) -> None:
    """Text and tags are the record's own; the snippet is the system's."""
    stored = wiki.memory.add("A heron by the lake.", id="h1", tags=["bird"], title="Heron")
    (result,) = wiki.ask({"id": "h1", "text": "… their words …", "title": "Other", "score": 3.5}).results
    assert result.record == stored
    assert result.snippet == "… their words …"
    assert result.shares["wiki"].score == 3.5


def test_other_row_becomes_an_external_record(wiki: Wiki) -> None:
    """Of kind "outside", with the source's name in its id, at the system's rank."""
    wiki.memory.add("A heron by the lake.", id="h1")
    rows = [{"id": 42, "text": "Herons elsewhere", "title": "Elsewhere", "path": "w/e.md"}, {"id": "h1"}]
    theirs, ours = wiki.ask(*rows).results
    assert (theirs.record.id, theirs.record.kind, theirs.record.source) == ("wiki:42", "outside", "wiki")
    assert (theirs.record.text, theirs.record.title, theirs.record.path) == ("Herons elsewhere", "Elsewhere", "w/e.md")
    assert [result.shares["wiki"].rank for result in (theirs, ours)] == [1, 2]
    assert ours.record.id == "h1"
    assert wiki.memory.get("wiki:42") is None
    assert wiki.memory.status()["records"]["total"] == 1


def test_external_record_as_json(wiki: Wiki) -> None:
    """It has the same format as every other."""
    (shown,) = answer_dict(wiki.ask({"id": "7", "text": "A heron", "title": "T"}))["results"]
    assert json.loads(json.dumps(shown)) == shown
    assert (shown["id"], shown["kind"], shown["text"], shown["in_keyword"]) == ("wiki:7", "outside", "A heron", False)
    assert shown["sources"]["wiki"]["rank"] == 1


ROWS: list[tuple[dict[str, Any], str, str]] = [
    ({"id": "a", "text": "T"}, "wiki:a", "T"),
    ({"path": "x/y.md", "text": "T"}, "wiki:x/y.md", "T"),
    ({"id": "a", "title": "only a title"}, "wiki:a", "only a title"),
    ({"id": "a", "text": ["one", "two"]}, "wiki:a", "one … two"),
    ({"id": 7.0, "text": 12}, "wiki:7.0", "12"),
    ({"id": "a\0b", "text": "x\0y"}, "wiki:ab", "xy"),
    ({"id": "é/ü 日本", "text": "T"}, "wiki:é/ü 日本", "T"),
]


def test_fields_of_a_row_are_converted(wiki: Wiki) -> None:
    """Numbers become text, lists of texts one text, and a title may replace the text."""
    for row, record_id, text in ROWS:
        (result,) = wiki.ask(row).results
        assert (result.record.id, result.record.text) == (record_id, text)


def test_row_without_an_id_gets_one_from_its_text(wiki: Wiki) -> None:
    """The same in every answer."""
    first, again = (wiki.ids({"text": "A heron"}, {"text": "A crane"}) for _ in range(2))
    assert first == again
    assert len(set(first)) == 2
    assert all(key.startswith("wiki:") for key in first)


def test_row_without_text_is_left_out(wiki: Wiki) -> None:
    """If it is not our record it is no result, and takes no rank."""
    for row in ({}, {"id": "a"}, {"id": "a", "text": " \n"}, {"id": "a", "text": {"x": 1}}):
        (result,) = wiki.ask(row, {"id": "b", "text": "T"}).results
        assert (result.record.id, result.shares["wiki"].rank) == ("wiki:b", 1)


def test_very_long_text_is_cut(wiki: Wiki) -> None:
    """An external document does not fill the answer."""
    (result,) = wiki.ask({"id": "a", "text": "word " * 100_000}).results
    assert len(result.record.text) == 100_000


def test_only_fetch_k_rows_are_read(wiki: Wiki) -> None:
    """The source's own `fetch_k`, 20 by default."""
    rows = [{"id": str(number), "text": f"text {number}"} for number in range(100)]
    assert wiki.ids(*rows, limit=100) == [f"wiki:{number}" for number in range(20)]
    asked = []
    wiki.opened(fetch_k=3)
    wiki.stand.ASK["wiki"] = lambda said: asked.append(said) or rows
    assert len(wiki.memory.search("heron", sources=["wiki"], limit=100, user="ada").results) == 3
    assert (asked[0].fetch_k, asked[0].text, asked[0].scope.as_dict()) == (3, "heron", {"user": "ada"})


# -- by path ------------------------------------------------------------------------------------------------

NOTE = "# Birds\n\n{}\n\n# Boats\n\n{}\n\n# Weather\n\n{}\n"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder with three files, two of the same name, one with several chunks."""
    folder = tmp_path / "notes"
    (folder / "old").mkdir(parents=True)
    (folder / "new").mkdir()
    parts = ("The heron stands in the reeds. " * 40, "The oar of the boat is broken. " * 40, "Mist and ice. " * 80)
    (folder / "lake.md").write_text(NOTE.format(*parts))
    (folder / "old" / "plan.md").write_text("# Plan\n\nThe old plan.\n")
    (folder / "new" / "plan.md").write_text("# Plan\n\nThe new plan.\n")
    return folder


def test_path_finds_the_matching_chunk(wiki: Wiki, notes: Path) -> None:
    """The chunk that shares most words with the row's text, or else with the query."""
    wiki.opened(join="path").index(notes)
    path = str(notes / "lake.md")
    assert len(wiki.memory.store.files.chunks(path)) >= 3
    (result,) = wiki.ask({"path": path, "text": "the broken oar of the boat"}).results
    assert "oar" in result.record.text
    assert (result.record.kind, result.record.path, result.freshness) == ("chunk", path, "fresh")
    (result,) = wiki.ask({"path": path}, query="mist and ice on the lake").results
    assert "Mist" in result.record.text
    (result,) = wiki.ask({"path": path}, query="quux").results
    assert "heron" in result.record.text


def test_path_may_be_written_in_many_ways(wiki: Wiki, notes: Path) -> None:
    """Absolute, as a URL, or as the last parts if they are unique."""
    wiki.opened(join="path").index(notes)
    for way in ("{}", "file://{}", "notes/lake.md", "lake.md", "./notes/lake.md", "qmd://notes/lake.md"):
        (result,) = wiki.ask({"path": way.format(notes / "lake.md"), "text": "the heron in the reeds"}).results
        assert (result.record.kind, result.record.path) == ("chunk", str(notes / "lake.md")), way


def test_ambiguous_path_end_joins_nothing(wiki: Wiki, notes: Path) -> None:
    """If two files end alike, neither is taken."""
    wiki.opened(join="path").index(notes)
    for said in ("plan.md", "/plan.md"):
        (result,) = wiki.ask({"id": "p", "path": said, "text": "a plan of theirs"}).results
        assert (result.record.id, result.record.kind) == ("wiki:p", "outside")
    (result,) = wiki.ask({"id": "p2", "path": "new/plan.md", "text": "a plan of theirs"}).results
    assert result.record.path == str(notes / "new" / "plan.md")


def test_invalid_path_joins_nothing(wiki: Wiki, notes: Path) -> None:
    """SQL and shell characters have no meaning, and part of a name is not a name."""
    wiki.opened(join="path").index(notes)
    for said in ("/", "//", ".", "%", "_", "*", "ake.md", "a" * 5000, "' OR 1=1 --", "~nobody-here/x", "~"):
        (result,) = wiki.ask({"id": "p", "path": said, "text": "theirs"}).results
        assert result.record.id == "wiki:p"


def test_two_rows_of_one_file_may_be_two_chunks(wiki: Wiki, notes: Path) -> None:
    """Two rows for the same chunk are one result."""
    wiki.opened(join="path").index(notes)
    path = str(notes / "lake.md")
    rows = [{"path": path, "text": text} for text in ("the heron in the reeds", "oar of the boat", "a broken oar")]
    answer = wiki.ask(*rows, by="chunk")
    assert [result.shares["wiki"].rank for result in answer.results] == [1, 2]
    assert answer.trace.filtered["duplicate"] == 1


def test_external_document_is_not_a_stale_file(wiki: Wiki) -> None:
    """It was never indexed, so it is neither missing nor lagging."""
    answer = wiki.ask({"id": "a", "text": "A heron", "path": "space/page-17"})
    assert answer.results[0].freshness in (None, "unknown")
    assert answer.trace.lag["files"] == 0


# -- by text ------------------------------------------------------------------------------------------------


def test_same_text_is_the_same_record(wiki: Wiki) -> None:
    """Case, white space and compatibility forms are ignored, as for duplicates."""
    wiki.opened(join="text").add("A heron by the lake.", id="h1")
    assert wiki.ids({"id": "x", "text": "Ａ  HERON by\nthe lake."}, {"id": "y", "text": "A heron"}) == ["h1", "wiki:y"]


def test_visible_record_of_several_with_the_same_text_is_used(wiki: Wiki) -> None:
    """Another scope's record does not hide the caller's own."""
    wiki.opened(join="text").add("A heron.", id="ada", user="ada")
    wiki.memory.add("A heron.", id="bob", user="bob")
    assert wiki.ids({"text": "a heron."}, user="ada") == ["ada"]
    assert wiki.ids({"text": "a heron."}, user="bob") == ["bob"]
    assert wiki.ids({"text": "a heron."}) == []


# -- records that the query may not see ---------------------------------------------------------------------

HIDDEN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # why it is hidden: (what the record is, what the search says)
    "another user's": ({"user": "bob"}, {"user": "ada"}),
    "a user's, to one who asks for global ones": ({"user": "bob"}, {}),
    "of another session": ({"user": "ada", "session": "1"}, {"user": "ada", "session": "2"}),
    "without the tag": ({"tags": ["bird"]}, {"tags": ["boat"]}),
    "of another category": ({"category": "work"}, {"category": "home"}),
    "of another kind": ({"kind": "fact"}, {"kind": "chunk"}),
    "in another folder": ({}, {"path": "elsewhere"}),
    "too old": ({"created_at": "2020-01-01"}, {"since": "2025-01-01"}),
    "too new": ({}, {"until": "2020-01-01"}),
    "not yet known": ({}, {"as_of": "2020-01-01"}),
    "expired": ({"expires_at": now() - timedelta(days=1)}, {}),
}


@pytest.mark.parametrize("why", HIDDEN)
def test_hidden_record_is_not_returned_by_an_external_source(wiki: Wiki, why: str) -> None:
    """Neither as our record nor as an external one."""
    record, options = HIDDEN[why]
    wiki.opened_thrice().add("A secret heron.", id="h1", path="/notes/secret.md", **record)
    row = {"id": "h1", "text": "A secret heron.", "path": "/notes/secret.md"}
    for join in JOINS:
        assert wiki.ids(row, source=join, **options) == []
        assert wiki.ids({**row, "id": row["id"] if join == "id" else "x"}, source=join, **options) == []
        assert wiki.ids({"text": "theirs", join: row[join]}, source=join, **options) == []


def test_superseded_record_is_returned_only_on_request(wiki: Wiki) -> None:
    """Nor is its successor, which the system did not find."""
    wiki.opened_thrice().add("The old heron.", id="old", path="/notes/old.md")
    wiki.memory.supersede("old", text="The new heron.")
    row = {"id": "old", "text": "The old heron.", "path": "/notes/old.md"}
    for join in JOINS:
        assert wiki.ids(row, source=join) == []
        assert wiki.ids(row, source=join, superseded=True) == ["old"]


def test_learnt_id_does_not_reveal_a_hidden_record(wiki: Wiki) -> None:
    """Another scope's file stays hidden when the system names it by id only."""
    wiki.memory.add("A secret heron.", path="/notes/secret.md", user="bob")
    row = {"id": "doc-9", "text": "A secret heron, as they show it", "path": "/notes/secret.md"}
    assert wiki.ids(row, user="ada") == []
    del row["path"]
    assert wiki.ids(row, user="ada") == []
    assert len(wiki.ids(row, user="bob")) == 1


def test_forgotten_record_is_not_returned_by_its_id(wiki: Wiki) -> None:
    """Although the system still has it."""
    wiki.memory.add("A heron to forget.", id="h1")
    wiki.memory.forget("h1")
    assert wiki.ids({"id": "h1", "text": "A heron to forget."}) == []


@pytest.fixture
def shared(wiki: Wiki, tmp_path: Path) -> Wiki:
    """Ada and Bob each have a file of the same name in one store."""
    wiki.opened(join="path")
    for user in ("ada", "bob"):
        (tmp_path / user).mkdir()
        (tmp_path / user / "plan.md").write_text(f"# Plan\n\nThe plan of {user}.\n")
        wiki.memory.index(tmp_path / user, user=user)
    return wiki


BOBS = {"id": "1", "path": "plan.md", "text": "The plan of bob."}


def test_ambiguous_path_of_hidden_files_is_hidden(shared: Wiki) -> None:
    """Both are hidden from Carl, so the row is no external record either."""
    assert shared.ids(BOBS, user="carl") == []
    assert shared.ids(BOBS) == []


def test_path_is_ambiguous_only_among_visible_files(shared: Wiki) -> None:
    """A shared store answers like one with only the visible records."""
    (result,) = shared.ask(BOBS, user="ada").results
    assert result.record.text.endswith("The plan of ada.")


def test_hidden_path_does_not_replace_a_visible_one(shared: Wiki) -> None:
    """Another scope's exact path does not take the place of the caller's own file."""
    shared.memory.add("Bob's note.", path="plan.md", user="bob")
    (result,) = shared.ask(BOBS, user="ada").results
    assert result.record.text.endswith("The plan of ada.")


def test_filter_after_fusion_removes_nothing(wiki: Wiki) -> None:
    """Filters apply inside the source, before ranks are counted."""
    for number in range(10):
        wiki.memory.add(f"heron {number}", id=f"h{number}", user="ada" if number % 2 else "bob")
    answer = wiki.ask(*({"id": f"h{number}"} for number in range(10)), user="ada")
    assert [result.shares["wiki"].rank for result in answer.results] == [1, 2, 3, 4, 5]
    assert {result.record.scope.user for result in answer.results} == {"ada"}
    assert (answer.trace.filtered["scope"], answer.trace.filtered["superseded"]) == (0, 0)


THEIRS = {"id": "a", "text": "A heron", "path": "wiki/birds/heron.md"}


FILTERS: list[tuple[dict[str, Any], bool]] = [
    ({}, True),
    ({"user": "ada"}, True),
    ({"any_scope": True}, True),
    ({"superseded": True}, True),
    ({"path": "wiki/birds"}, True),
    ({"path": "heron.md"}, True),
    ({"path": "birds/*.md"}, True),
    ({"path": "boats"}, False),
    ({"path": "bird"}, False),
    ({"path": "wiki/bird?"}, False),
    ({"category": "work"}, False),
    ({"tags": ["bird"]}, False),
    ({"kind": "fact"}, False),
    ({"kind": "chunk"}, False),
    ({"since": "1w"}, False),
    ({"until": "2100-01-01"}, False),
    ({"as_of": "1d"}, False),
    ({"where": Filter(kinds=("outside",))}, True),
    ({"where": Filter(written_since=now() - timedelta(days=7))}, False),
    ({"where": Filter(written_until=now() + timedelta(days=7))}, False),
    ({"author": "ada"}, False),
    ({"origin": "outside"}, True),
    ({"origin": "user"}, False),
]


def test_filter_applies_to_external_documents(wiki: Wiki) -> None:
    """They have a path and the origin `outside`, but no category, tag, author, kind or date."""
    for options, seen in FILTERS:
        assert wiki.ids(THEIRS, **options) == (["wiki:a"] if seen else []), options


# -- duplicates and scores ----------------------------------------------------------------------------------


def test_wordings_of_the_query_apply_to_external_documents(wiki: Wiki) -> None:
    """A phrase, an exclusion, and words that AND and OR join."""
    rows = ({"id": "1", "text": "A heron fishes at dawn."}, {"id": "2", "text": "A heron near the boats."})
    assert wiki.ids(*rows, query='bird "fishes at dawn"') == ["wiki:1"]
    assert wiki.ids(*rows, query="bird -boat") == ["wiki:1"]
    assert wiki.ids(*rows, query="heron AND (boat OR lake)") == ["wiki:2"]
    assert wiki.ids(*rows, query="bird dawn OR boat") == ["wiki:1", "wiki:2"]


def test_duplicates_are_merged_before_ranks(wiki: Wiki) -> None:
    """Same id or text: the first rank counts, and the next row takes the next rank."""
    wiki.memory.add("A heron by the lake.", id="h1")
    rows = [
        {"id": "h1", "score": 9},
        {"id": "h1", "score": 8},
        {"id": "x", "text": "a HERON by the  lake.", "score": 7},
        {"id": "y", "text": "A crane", "score": 6},
        {"id": "z", "text": "A crane", "score": 5},
        {"id": "w", "text": "A stork", "score": 4},
    ]
    answer = wiki.ask(*rows)
    assert [(result.record.id, result.shares["wiki"].rank) for result in answer.results] == [
        ("h1", 1),
        ("wiki:y", 2),
        ("wiki:w", 3),
    ]
    assert answer.results[0].shares["wiki"].score == 9
    assert answer.trace.filtered["duplicate"] == 3


def test_record_of_keyword_and_source_has_both_contributions(wiki: Wiki) -> None:
    """Once by id and once by text alone, it is one result."""
    wiki.memory.add("A heron by the lake.", id="h1")
    wiki.memory.add("A heron in the reeds.", id="h2")
    wiki.stand.ASK["wiki"] = lambda _: [{"id": "h2"}, {"id": "other", "text": "a heron by the lake."}]
    answer = wiki.memory.search("heron", decay=False)
    assert {result.record.id: set(result.shares) for result in answer.results} == {
        "h1": {"keyword", "wiki"},
        "h2": {"keyword", "wiki"},
    }
    assert answer.trace.mode == "hybrid"


SCORES: list[tuple[list[Any], list[float | None]]] = [
    ([3, 2.5], [3.0, 2.5]),
    (["0.9", " 0.8 "], [0.9, 0.8]),
    ([0.9, None], [None, None]),
    ([0.9, "high"], [None, None]),
    ([math.nan, 0.5], [None, None]),
    ([math.inf, 0.5], [None, None]),
    ([10**400, 0.5], [None, None]),
    ([0.9, {"value": 1}], [None, None]),
    ([0.9, [1]], [None, None]),
    ([-1, -2], [-1.0, -2.0]),
    ([0, 0], [0.0, 0.0]),
]


@pytest.mark.parametrize("fusion", METHODS)
def test_scores_are_used_for_all_rows_or_none(wiki: Wiki, fusion: str) -> None:
    """If one row has no valid score, ranks replace all of them, under every fusion."""
    for scores, read in SCORES:
        rows = [{"id": str(number), "text": f"text {number}", "score": score} for number, score in enumerate(scores)]
        answer = wiki.ask(*rows, fusion=fusion)
        assert [result.record.id for result in answer.results] == ["wiki:0", "wiki:1"]
        if fusion in ("rrf", "borda"):
            assert [result.shares["wiki"].score for result in answer.results] == read
        assert all(0 <= result.score <= 1 for result in answer.results)
        said = any("no scores" in warning for warning in answer.trace.warnings)
        assert said == (fusion not in ("rrf", "borda") and None in read)


# -- the mapping --------------------------------------------------------------------------------------------


def test_field_may_be_sixteen_levels_deep(wiki: Wiki) -> None:
    """A dotted name goes through objects and, by number, through lists."""
    names = [f"n{level}" for level in range(15)]
    row: Any = "deep text"
    for name in ["leaf", *reversed(names)]:
        row = {name: row}
    wiki.opened(fields={"id": "ids.1.value", "text": ".".join([*names, "leaf"]), "score": "s.0"})
    (result,) = wiki.ask({"ids": ["x", {"value": 5}], "s": [0.5], **row}).results
    assert (result.record.id, result.record.text, result.shares["wiki"].score) == ("wiki:5", "deep text", 0.5)


def test_result_list_may_be_nested(wiki: Wiki) -> None:
    """`results` names its path."""
    wiki.opened(results="hits.0.hits")
    wiki.stand.ASK["wiki"] = lambda _: {"hits": [{"hits": [{"id": "a", "text": "A heron"}]}]}
    assert len(wiki.memory.search("heron", sources=["wiki"]).results) == 1


def test_object_with_results_needs_no_setting(wiki: Wiki) -> None:
    """The usual format, and ours."""
    wiki.stand.ASK["wiki"] = lambda _: {"took": 3, "results": [{"id": "a", "text": "A heron"}]}
    assert len(wiki.memory.search("heron", sources=["wiki"]).results) == 1


def test_single_object_is_one_row(wiki: Wiki) -> None:
    """As when a program prints JSON lines and finds one."""
    wiki.stand.ASK["wiki"] = lambda _: {"id": "a", "text": "A heron"}
    assert [result.record.id for result in wiki.memory.search("heron", sources=["wiki"]).results] == ["wiki:a"]


@pytest.mark.parametrize("document", [[], {"results": []}])
def test_no_rows_is_a_valid_answer(wiki: Wiki, document: Any) -> None:
    """The source found nothing and has not failed."""
    wiki.stand.ASK["wiki"] = lambda _: document
    answer = wiki.memory.search("heron", sources=["wiki"])
    assert (answer.results, answer.trace.sources[0].status, answer.trace.mode) == ((), "ok", "wiki-only")


@pytest.mark.parametrize(
    ("document", "part"),
    [
        (None, "no list"),
        ("text", "no list"),
        (7, "no list"),
        ({}, "no list"),
        ({"results": {}}, "no list"),
        ({"hits": []}, "no list"),
        ({"error": "unauthorised"}, "no list"),
        (["a", "b"], "not an object"),
        ([{"id": "a", "text": "x"}, None], "not an object"),
        ([[1]], "not an object"),
    ],
    ids=str,
)
def test_answer_without_a_list_is_a_failure(wiki: Wiki, document: Any, part: str) -> None:
    """With its reason in the trace, and the rest answers."""
    wiki.memory.add("A heron by the lake.", id="h1")
    wiki.stand.ASK["wiki"] = lambda _: document
    answer = wiki.memory.search("heron")
    trace = {source.name: source for source in answer.trace.sources}
    assert trace["wiki"].status == "failed"
    assert part in trace["wiki"].reason
    assert [result.record.id for result in answer.results] == ["h1"]


def test_missing_list_is_named_by_its_path(wiki: Wiki) -> None:
    """The reason repeats the setting."""
    wiki.opened(results="hits.hits")
    wiki.memory.add("A heron by the lake.", id="h1")
    wiki.stand.ASK["wiki"] = lambda _: {"hits": {"total": 0}}
    (trace,) = (source for source in wiki.memory.search("heron").trace.sources if source.name == "wiki")
    assert "'hits.hits'" in trace.reason


def test_lone_surrogate_does_not_break_the_answer(wiki: Wiki) -> None:
    """An external system may return what cannot be stored or printed."""
    wiki.memory.add("A heron by the lake.", id="h1")
    wiki.stand.ASK["wiki"] = lambda _: [{"id": "\ud800", "text": "half \udc00", "path": "p\ud800"}, {"id": "h1"}]
    answer = wiki.memory.search("heron")
    assert "wiki" in next(result for result in answer.results if result.record.id == "h1").shares
    assert "wiki:\ufffd" in [result.record.id for result in answer.results]
    json.dumps(answer_dict(answer), ensure_ascii=False).encode()


# -- the map of ids -----------------------------------------------------------------------------------------


def test_learnt_path_of_an_id_is_remembered(wiki: Wiki, notes: Path) -> None:
    """The next row with this id needs no path: also after a restart."""
    wiki.opened(join="path").index(notes)
    path = str(notes / "lake.md")
    assert wiki.ask({"id": "doc-1", "path": path, "text": "heron"}).results[0].record.path == path
    assert wiki.ask({"id": "doc-1", "text": "heron"}).results[0].record.path == path
    wiki.memory.close()
    wiki.opened(join="path")
    assert wiki.ask({"id": "doc-1", "text": "heron"}).results[0].record.path == path
    assert wiki.ids({"id": "doc-2", "text": "unknown"}) == ["wiki:doc-2"]


def test_moved_document_has_its_new_path(wiki: Wiki, notes: Path) -> None:
    """The last path counts."""
    wiki.opened(join="path").index(notes)
    old, new = (str(notes / name / "plan.md") for name in ("old", "new"))
    wiki.ask({"id": "doc-1", "path": old, "text": "plan"})
    wiki.ask({"id": "doc-1", "path": new, "text": "plan"})
    assert wiki.ask({"id": "doc-1", "text": "plan"}).results[0].record.path == new


def test_ids_of_two_sources_are_separate(wiki: Wiki) -> None:
    """Each system has its own ids."""
    joins = wiki.memory.store.joins
    joins.learn("wiki", {"1": "/a.md"})
    joins.learn("blog", {"1": "/b.md"})
    assert (joins.paths("wiki")["1"], joins.paths("blog")["1"]) == ("/a.md", "/b.md")
    assert dict(joins.paths("other")) == {}


def test_learnt_path_joins_once_it_is_indexed(wiki: Wiki, notes: Path) -> None:
    """Also if it was learnt before the file was indexed."""
    wiki.opened(join="path")
    path = str(notes / "lake.md")
    assert wiki.ids({"id": "doc-1", "path": path, "text": "the heron"}) == ["wiki:doc-1"]
    wiki.memory.index(notes)
    assert wiki.ask({"id": "doc-1", "text": "the heron"}).results[0].record.path == path


OTHER = """
import json, sys
sys.path.insert(0, sys.argv[2])
from importlib import import_module
from pathlib import Path
from recollect import Memory
from recollect.config import Settings, SourceSettings
stand = import_module(next(Path(sys.argv[2]).glob("offered_*.py")).stem)
source = SourceSettings("wiki", "stand", fields={n: n for n in ("id", "text", "path")}, timeout_ms=20_000, join="path")
with Memory.open(sys.argv[1], embedder="none", settings=Settings(sources=(source,))) as memory:
    print("ready", flush=True)
    for line in sys.stdin:
        stand.ASK["wiki"] = lambda _: json.loads(line)
        answer = memory.search("heron", sources=["wiki"])
        print(json.dumps([result.record.path or result.record.id for result in answer.results]), flush=True)
"""


def test_learnt_paths_are_shared_between_processes(
    wiki: Wiki, notes: Path, path: Path, tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    """Although both have the store open all the time."""
    wiki.opened(join="path").index(notes)
    other = start("-c", OTHER, path, tmp_path / "site-packages")
    assert other.stdout.readline() == "ready\n"

    def there(*rows: dict[str, str]) -> list[str]:
        other.stdin.write(json.dumps(rows) + "\n")
        other.stdin.flush()
        return json.loads(other.stdout.readline())

    lake, plan = str(notes / "lake.md"), str(notes / "new" / "plan.md")
    assert there({"id": "1", "text": "heron"}) == ["wiki:1"]
    wiki.ask({"id": "1", "text": "heron", "path": lake})
    assert there({"id": "1", "text": "heron"}) == [lake]
    assert there({"id": "2", "text": "plan", "path": plan}) == [plan]
    assert wiki.ask({"id": "2", "text": "plan"}).results[0].record.path == plan
    other.kill()
    other.wait()
    wiki.memory.close()
    wiki.opened(join="path")
    assert wiki.ask({"id": "2", "text": "plan"}).results[0].record.path == plan


READ_ONLY = """
import json, os, sys
sys.path.insert(0, sys.argv[2])
from importlib import import_module
from pathlib import Path
from recollect import Memory
from recollect.config import Settings, SourceSettings
stand = import_module(next(Path(sys.argv[2]).glob("offered_*.py")).stem)
source = SourceSettings("wiki", "stand", fields={n: n for n in ("id", "text", "path")}, timeout_ms=20_000, join="path")
def look(place, *asked):
    with Memory.open(place, embedder="none", settings=Settings(sources=(source,))) as memory:
        for rows in asked:
            def ask(_):
                if rows is None:
                    raise OSError("down")
                return rows
            stand.ASK["wiki"] = ask
            answer = memory.search("heron")
            trace = {source.name: source for source in answer.trace.sources}
            found = [r.record.path or r.record.id for r in answer.results if "wiki" in r.shares]
            print(json.dumps([trace["wiki"].status, found]))
# Everything is loaded first: a user without rights may not read Python's own files here, nor the package's.
look(":memory:", [])
import recollect.memory.assembly
recollect.memory.assembly.SYSTEMS = type("Loaded", (), {"load": lambda kind: stand.open})
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
row = {"id": "new", "text": "plan", "path": sys.argv[3]}
look(sys.argv[1], [{"id": "1", "text": "heron"}], [row], [row | {"path": ""}], None, None, None, None, [row])
"""


def test_read_only_store_joins_by_known_paths(
    wiki: Wiki, notes: Path, path: Path, tmp_path: Path, sealed: Callable[[Path], Path]
) -> None:
    """It stores neither new paths nor failures, and searches work."""
    wiki.opened(join="path").index(notes)
    lake, plan = str(notes / "lake.md"), str(notes / "new" / "plan.md")
    wiki.ask({"id": "1", "text": "heron", "path": lake})
    wiki.memory.close()
    ran = subprocess.run(
        [sys.executable, "-c", READ_ONLY, sealed(path), tmp_path / "site-packages", plan],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HOME": "/nonexistent"},
    )
    assert ran.returncode == 0, ran.stderr
    said = [json.loads(line) for line in ran.stdout.splitlines()][1:]
    assert said == [
        ["ok", [lake]],
        ["ok", [plan]],
        ["ok", ["wiki:new"]],
        ["failed", []],
        ["failed", []],
        ["failed", []],
        ["skipped", []],
        ["skipped", []],
    ]


def test_locked_store_does_not_delay_the_answer(wiki: Wiki, path: Path) -> None:
    """The paths cannot be stored now; the source still answers."""
    wiki.opened(timeout_ms=1000).add("A heron.", id="h1")
    writer = apsw.Connection(str(path))
    writer.execute("BEGIN IMMEDIATE")
    try:
        wiki.stand.ASK["wiki"] = lambda _: [{"id": "h1", "path": "/notes/new.md"}]
        answer = wiki.memory.search("heron")
    finally:
        writer.execute("ROLLBACK")
        writer.close()
    trace = {source.name: source for source in answer.trace.sources}["wiki"]
    assert (trace.status, trace.reason) == ("ok", "")


def test_learnt_paths_are_bounded(wiki: Wiki, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are dropped."""
    monkeypatch.setattr("recollect.stores.records.MAX_JOINS", 10)
    joins = wiki.memory.store.joins
    for number in range(0, 30, 5):
        joins.learn("wiki", {f"d{n}": f"/{n}.md" for n in range(number, number + 5)})
    wiki.memory.close()
    kept = set(wiki.opened().store.joins.paths("wiki"))
    assert kept == {f"d{number}" for number in range(20, 30)}


def test_filter_is_used_unchanged(wiki: Wiki) -> None:
    """A `where` with its own time works like any other."""
    wiki.memory.add("A heron.", id="h1", tags=["bird"])
    assert wiki.ids({"id": "h1"}, where=replace(Filter(tags=("bird",)), now=now() - timedelta(days=9))) == ["h1"]
