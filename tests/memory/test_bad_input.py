"""Invalid calls: the caller gets a Recollect error with a message, and nothing changes."""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from recollect import Memory, Scope
from recollect.errors import ConfigError, RecollectError, UnknownRecord, UsageError
from recollect.types import Filter, Record
from recollect.types.records import Put

FILES = Path("/proc/self/fd")
"""Open files of this process, where the system shows them."""

Use = Callable[[Memory], object]

BAD_RECORDS: dict[str, dict[str, Any]] = {
    "empty text": {"text": ""},
    "blank text": {"text": " \n\t\u3000"},
    "no text": {"text": None},
    "text of bytes": {"text": b"heron"},
    "text of a number": {"text": 7},
    "text too long": {"text": "x" * 1_000_001},
    "lines beyond 32 bits": {"text": "heron", "kind": "chunk", "path": "/n.md", "lines": [2**31, 2**31]},
    "lines below 0": {"text": "heron", "kind": "chunk", "path": "/n.md", "lines": [-1, 3]},
    "unknown kind": {"kind": "rumour"},
    "kind of a list": {"kind": ["fact"]},
    "unknown decay class": {"decay": "slow"},
    "importance above 1": {"importance": 2},
    "importance below 0": {"importance": -0.01},
    "importance of NaN": {"importance": math.nan},
    "importance of infinity": {"importance": math.inf},
    "importance too large for a float": {"importance": 10**400},
    "importance of text": {"importance": "high"},
    "tags of text": {"tags": "red"},
    "tags of a number": {"tags": 7},
    "tags of bytes": {"tags": b"red"},
    "empty id": {"id": ""},
    "blank id": {"id": " "},
    "id that an address cannot name": {"id": "."},
    "id of the folder above": {"id": ".."},
    "title of a number": {"title": 7},
    "category of a list": {"category": ["work"]},
    "category of a number": {"category": 7},
    "source of a list": {"source": ["x"]},
    "path of a list": {"path": ["x"]},
    "one line": {"lines": [1]},
    "three lines": {"lines": [1, 2, 3]},
    "lines of text": {"lines": ["a", "b"]},
    "lines of a number": {"lines": 7},
    "no time": {"created_at": "soon"},
    "empty time": {"created_at": ""},
    "half a time": {"happened_at": "2026-13-01"},
    "a time of a number": {"expires_at": 1_700_000_000},
    "a span too long": {"created_at": "999999999999y"},
    "a span of many digits": {"created_at": "9" * 5000 + "y"},
    "a time before all times": {"created_at": "0001-01-01T00:00+14:00"},
    "a time after all times": {"expires_at": "9999-12-31T23:59:59-14:00"},
    "a datetime after all times": {"expires_at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))},
    "unknown field": {"colour": "red"},
    "user of a list": {"user": ["ada"]},
    "user of a number": {"user": 7},
    "scope of text": {"scope": "ada"},
    "scope with an unknown part": {"scope": {"team": "x"}},
}

BAD_SEARCHES: dict[str, dict[str, Any]] = {
    "no text": {"text": None},
    "text of bytes": {"text": b"heron"},
    "limit 0": {"limit": 0},
    "limit below 0": {"limit": -1},
    "limit of a fraction": {"limit": 1.5},
    "limit of text": {"limit": "many"},
    "limit beyond all": {"limit": 10**400},
    "limit of a truth": {"limit": True},
    "fetch_k 0": {"fetch_k": 0},
    "fetch_k below 0": {"fetch_k": -5},
    "unknown fusion": {"fusion": "magic"},
    "unknown normalisation": {"normalisation": "softmax"},
    "k below 0": {"rrf_k": -1},
    "k of NaN": {"rrf_k": math.nan},
    "k of infinity": {"rrf_k": math.inf},
    "k beyond all": {"rrf_k": 10**400},
    "weight of NaN": {"text_weight": math.nan},
    "weight below 0": {"vector_weight": -0.1},
    "weight of infinity": {"vector_weight": math.inf},
    "min_score above 1": {"min_score": 1.5},
    "min_score of NaN": {"min_score": math.nan},
    "mmr_lambda above 1": {"mmr_lambda": 1.1},
    "half-life 0": {"half_life_days": 0},
    "half-life of NaN": {"half_life_days": math.nan},
    "importance weight above 1": {"importance_weight": 2},
    "unknown source": {"sources": ["keyword", "oracle"]},
    "no source": {"sources": []},
    "sources of a number": {"sources": 7},
    "unknown setting": {"temperature": 0.7},
    "unknown kind": {"kind": "rumour"},
    "no time": {"since": "soon"},
    "half a time": {"until": "2026-02-30"},
    "a span too long": {"as_of": "999999999999y"},
    "a span of many digits": {"since": "9" * 5000 + "d"},
    "a time of a number": {"since": 7},
    "a time before all times": {"since": "0001-01-01T00:00+14:00"},
    "category of a number": {"category": 7},
    "category of numbers": {"category": [7]},
    "tags of a number": {"tags": 7},
    "path of a number": {"path": 7},
    "user of a list": {"user": ["ada"]},
    "a filter twice": {"where": Filter(), "category": "x"},
    "a filter that is none": {"where": {"category": "x"}},
}

BAD_USES: dict[str, Use] = {
    "list of limit 0": lambda m: m.list(limit=0),
    "list of limit below 0": lambda m: m.list(limit=-1),
    "list of offset below 0": lambda m: m.list(offset=-1),
    "list of limit of text": lambda m: m.list(limit="all"),
    "list of limit beyond all": lambda m: m.list(limit=10**30),
    "list by an unknown filter": lambda m: m.list(colour="red"),
    "list by half a time": lambda m: m.list(since="2026-02-30"),
    "forget an unknown id": lambda m: m.forget("unknown"),
    "purge an unknown id": lambda m: m.forget("unknown", purge=True),
    "forget one that is not text": lambda m: m.forget(["kept"]),
    "history of an unknown id": lambda m: m.history("unknown"),
    "supersede an unknown id": lambda m: m.supersede("unknown", text="new"),
    "supersede an unknown id by a known one": lambda m: m.supersede("unknown", by="kept"),
    "supersede by an unknown id": lambda m: m.supersede("kept", by="unknown"),
    "supersede by nothing": lambda m: m.supersede("kept"),
    "supersede by two": lambda m: m.supersede("kept", by="other", text="new"),
    "supersede by an empty text": lambda m: m.supersede("kept", text=" "),
    "supersede at no time": lambda m: m.supersede("kept", text="new", at="soon"),
    "supersede itself": lambda m: m.supersede("kept", by="kept"),
    "add over an unknown id": lambda m: m.add("new", supersedes="unknown"),
    "add over itself": lambda m: m.add("new", id="kept", supersedes="kept"),
    "add many of text": lambda m: m.add_many(["just text"]),
    "add many of a number": lambda m: m.add_many([7]),
    "add many of nothing": lambda m: m.add_many([None]),
    "add many that is one": lambda m: m.add_many({"text": "one record, not a list of them"}),
    "add many without text": lambda m: m.add_many([{"text": "good"}, {"title": "no text"}]),
}


@pytest.fixture
def kept(memory: Memory) -> Memory:
    """A memory with two records that must not change."""
    memory.add("a heron that stays", id="kept", tags=["bird"])
    memory.add("another one", id="other")
    return memory


def refused(memory: Memory, dump: Callable[[], Any], use: Use) -> RecollectError:
    """The use fails with one of our errors that says something, and every row is what it was."""
    before = dump()
    with pytest.raises(RecollectError) as caught:
        use(memory)
    assert isinstance(caught.value, UsageError), f"wrong use is a UsageError, not {type(caught.value).__name__}"
    assert caught.value.message.strip()
    json.dumps(caught.value.as_dict()).encode()
    assert dump() == before
    assert [result.record.id for result in memory.search("heron", sources=["keyword"]).results] == ["kept"]
    return caught.value


@pytest.mark.parametrize("what", BAD_RECORDS)
def test_invalid_record_is_refused(kept: Memory, dump: Callable[[], Any], what: str) -> None:
    """`add` refuses it."""
    refused(kept, dump, lambda memory: memory.add(**{"text": "a good text", **BAD_RECORDS[what]}))


@pytest.mark.parametrize("what", BAD_RECORDS)
def test_add_many_with_an_invalid_record_stores_none(kept: Memory, dump: Callable[[], Any], what: str) -> None:
    """`add_many` checks all records before it stores the first."""
    records = [{"text": "good"}, {"text": "a good text", **BAD_RECORDS[what]}, {"text": "good too"}]
    refused(kept, dump, lambda memory: memory.add_many(records))


@pytest.mark.parametrize("what", BAD_SEARCHES)
def test_invalid_search_is_refused(kept: Memory, dump: Callable[[], Any], what: str) -> None:
    """`search` refuses it."""
    refused(kept, dump, lambda memory: memory.search(**{"text": "heron", **BAD_SEARCHES[what]}))


@pytest.mark.parametrize("what", BAD_USES)
def test_invalid_calls_are_refused(kept: Memory, dump: Callable[[], Any], what: str) -> None:
    """Every other method refuses invalid arguments."""
    refused(kept, dump, BAD_USES[what])


def test_embed_without_an_embedder_is_refused(open_memory: Callable[..., Memory]) -> None:
    """The hint says how to name one."""
    with pytest.raises(UsageError) as caught:
        open_memory(embedder="none").embed()
    assert "--embedder" in caught.value.hint


def test_unknown_embedder_is_refused(path: Path, open_memory: Callable[..., Memory]) -> None:
    """The error names it, and no store is made."""
    with pytest.raises(UsageError, match="nonesuch"):
        open_memory(embedder="nonesuch")
    assert not path.exists()


def test_refused_language_closes_the_store(path: Path, open_memory: Callable[..., Memory]) -> None:
    """The error names both languages, and the store that was opened for it is closed."""
    open_memory().close()
    with pytest.raises(UsageError, match="english, not german"):
        open_memory(language="german")
    gc.collect()
    if FILES.is_dir():
        held = [str(link.readlink()) for link in FILES.iterdir() if link.exists()]
        assert not [name for name in held if name.startswith(str(path))]


def test_unknown_setting_suggests_the_nearest(kept: Memory, dump: Callable[[], Any]) -> None:
    """A misspelt setting is answered with the likely one."""
    error = refused(kept, dump, lambda memory: memory.search("heron", mmr_lamda=0.5))
    assert isinstance(error, ConfigError)
    assert "mmr_lambda" in error.hint


def test_get_of_an_unknown_id_is_none(kept: Memory) -> None:
    """Not an error, whatever the id."""
    for key in ("unknown", "", "k" * 10_000, "\x00", "\ud800", "' OR 1=1 --", "%", "kept\x00"):
        assert kept.get(key) is None, key[:20]


@pytest.mark.parametrize("use", ["forget", "history", "supersede"])
@pytest.mark.parametrize("key", ["unknown", "", "\ud800", "\x00", "' OR 1=1 --"])
def test_unknown_id_is_an_error_that_names_it(kept: Memory, dump: Callable[[], Any], use: str, key: str) -> None:
    """Every method but `get` raises UnknownRecord."""
    uses: dict[str, Use] = {
        "forget": lambda m: m.forget(key),
        "history": lambda m: m.history(key),
        "supersede": lambda m: m.supersede(key, text="new"),
    }
    assert isinstance(refused(kept, dump, uses[use]), UnknownRecord)


HALVES = "half of a \ud83d pair \udc00"


def test_lone_surrogates_are_replaced_or_refused(kept: Memory) -> None:
    """In every text field they become U+FFFD or are refused, because no encoding can store them."""
    whole = "half of a \ufffd pair \ufffd"
    record = kept.add(HALVES, title=HALVES, tags=[HALVES], id=HALVES)
    assert (record.text, record.title, record.tags, record.id) == (whole, whole, (whole,), whole)
    assert kept.get(record.id) == record
    assert kept.search(HALVES).results[0].record == record


@pytest.mark.parametrize("field", ["category", "source", "path", "user", "agent", "session"])
def test_lone_surrogates_in_other_fields_do_no_harm(kept: Memory, field: str) -> None:
    """Stored, or refused with a Recollect error; filters accept them."""
    try:
        kept.add("a text of its own", **{field: HALVES})
    except RecollectError as error:
        assert error.message  # noqa: PT017
    if field != "source":
        assert isinstance(kept.list(**{field: HALVES}), list)
        assert kept.search("heron", **{field: HALVES}).trace.mode == "hybrid"


def test_text_of_a_million_characters_is_accepted(memory: Memory) -> None:
    """The limit itself is allowed, and its words are found."""
    text = "heron " + "y" * 999_994
    assert len(text) == 1_000_000
    memory.add(text)
    assert len(memory.search("heron").results) == 1


@pytest.mark.parametrize(
    "given",
    [
        "2026-03-14",
        "2026-03-14T15:09Z",
        "2026-03-14T15:09:26.5+02:00",
        "2w",
        "36h",
        " 3mo ",
        "10 d",
        "5min",
        "1y",
        "20260314",
    ],
)
def test_valid_times_are_accepted(memory: Memory, given: str) -> None:
    """ISO 8601, and durations back from now."""
    record = memory.add("x", created_at=given)
    assert record.created_at.utcoffset() is not None
    assert memory.get(record.id).created_at == record.created_at
    memory.search("x", since=given)


@pytest.mark.parametrize(
    "at", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC), datetime.fromisoformat("1969-12-31")]
)
def test_earliest_and_latest_time_can_be_stored(memory: Memory, at: datetime) -> None:
    """The ends of the calendar survive the round trip; a time without a zone is UTC."""
    record = memory.add("x", happened_at=at, decay="active")
    assert memory.get(record.id).happened_at == (at if at.tzinfo else at.replace(tzinfo=UTC))
    assert memory.search("x").results[0].record == record


def test_none_equals_an_absent_argument(memory: Memory) -> None:
    """Passing `None` gives the default, in `add` and `add_many`."""
    unset = dict.fromkeys(
        ("id", "title", "category", "tags", "importance", "decay", "created_at", "happened_at", "expires_at", "source",
         "path", "lines", "kind")
    )  # fmt: skip
    (many,) = memory.add_many([{"text": "through add_many", **unset}])
    one = memory.add("through add", **unset)
    for record in (one, many):
        assert (record.title, record.tags, record.importance, record.kind, record.scope) == (
            "",
            (),
            0.5,
            "fact",
            Scope(),
        )


def test_errors_have_code_message_and_hint(kept: Memory) -> None:
    """In the JSON that the command line, HTTP and MCP return."""
    with pytest.raises(UnknownRecord) as caught:
        kept.forget("unknown")
    assert caught.value.as_dict() == {
        "error": {"code": "unknown_record", "message": caught.value.message, "hint": caught.value.hint}
    }
    assert caught.value.exit_code == 2


def test_invalid_calls_leave_no_connection_or_lock(kept: Memory) -> None:
    """After a few hundred refused calls the store is as fast as before and not locked."""
    handles = len(list(FILES.iterdir())) if FILES.is_dir() else 0
    for i in range(300):
        with pytest.raises(RecollectError):
            kept.forget(f"unknown {i}")
        with pytest.raises(RecollectError):
            kept.search("heron", limit=0)
    if handles:
        assert len(list(FILES.iterdir())) <= handles + 4
    kept.add("still open")
    assert len(kept.list()) == 3


def test_stored_lines_beyond_32_bits_do_not_break_the_index(tmp_path):
    """An older version stored them; the record and the others are found."""
    with Memory.open(tmp_path / "m.db", embedder="none") as memory:
        memory.store.records.apply([[Put(Record("r1", "a heron", kind="chunk", path="/n.md", lines=(10**15, 10**15)))]])
        memory.add("a heron by the lake")
        assert len(memory.search("heron").results) == 2
