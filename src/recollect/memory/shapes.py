"""Records, answers and histories as JSON, the same for the command line, HTTP and MCP.

`payloads` describes it as types. Fields may be added, never renamed or removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from recollect.fusion import METHODS
from recollect.stages import TIME_WEIGHT
from recollect.types import Answer, Event, Record, Result, Scope, Trace
from recollect.types.records import first_words, short_id, short_ids

if TYPE_CHECKING:
    from recollect.memory.callers import Rollback
    from recollect.memory.explain import Verdict
    from recollect.memory.recall import Recall

FOUND_CHARACTERS = 4_000  # of a text in a list of results; `memory_get` returns all of it
READ_CHARACTERS = 40_000  # of a text that one read returns; the rest is read from `next_offset` on
BRIEF_CHARACTERS = 3_000  # of all texts in the brief answer for a model
LEAST_BRIEF = 240  # of each text in it, however many results share the characters

RECORD = ("id", "kind", "text", "title", "scope", "category", "tags", "created_at", "origin")
RECORD_IF_SET = (
    "importance", "decay", "happened_at", "expires_at", "edited_at", "superseded_by", "superseded_at", "source", "path",
    "lines", "author", "author_session", "place",
)  # fmt: skip


def iso(at: datetime | None) -> str | None:
    """A time in ISO 8601, UTC."""
    return None if at is None else at.isoformat().replace("+00:00", "Z")


_PLAIN: Mapping[type, Callable[[Any], Any]] = {datetime: iso, Scope: Scope.as_dict, tuple: list}


def fields_of(thing: Any, always: tuple[str, ...], if_set: tuple[str, ...] = ()) -> dict[str, Any]:
    """Fields of a dataclass as JSON; those of `if_set` are left out where they have their default value."""
    values = {name: getattr(thing, name) for name in always}
    for name in if_set:
        value = getattr(thing, name)
        if value is not None and value != thing.__dataclass_fields__[name].default:
            values[name] = value
    for name, value in values.items():
        if (convert := _PLAIN.get(type(value))) is not None:
            values[name] = convert(value)
    return values


def record_dict(record: Record, short: str = "") -> dict[str, Any]:
    """The JSON of a record; `short` is its short id, if it is longer than usual."""
    return {"id": record.id, "short_id": short or short_id(record.id), **fields_of(record, RECORD[1:], RECORD_IF_SET)}


def record_dicts(records: Iterable[Record]) -> list[dict[str, Any]]:
    """The JSON of records that are shown together, whose short ids differ."""
    records = list(records)
    short = short_ids(record.id for record in records)
    return [record_dict(record, short[record.id]) for record in records]


def bounded(record: dict[str, Any], most: int = FOUND_CHARACTERS, offset: int = 0) -> dict[str, Any]:
    """The JSON of a record with at most so many characters of its text; if it was cut, where to read on."""
    text, title = record["text"], record.get("title", "")
    if len(text) <= most and not offset and len(title) <= most:
        return record
    cut = {**record, "text": text[offset : offset + most], "title": title[:most], "text_chars": len(text)}
    return cut | ({"next_offset": offset + most} if offset + most < len(text) else {})


def answer_dict(answer: Answer, *, explain: bool = False) -> dict[str, Any]:
    """The JSON of an answer; with `explain`, also how each score was computed."""
    ranking = answer.query.ranking
    fusion = METHODS[ranking.fusion].as_dict(ranking.rrf_k, ranking.normalisation)
    return {
        "query": answer.query.written or answer.query.text,
        "fusion": {**fusion, "weights": dict(answer.query.weights), "fetch_k": answer.query.fetch_k},
        "results": list(_result_dicts(answer, explain)),
        "likely": answer.likely,
        **closest_dict(answer.closest),
        "trace": _trace_dict(answer.trace),
    }


def brief_dict(answer: Answer) -> dict[str, Any]:
    """The JSON of an answer for a model, which pays for every word: of each result, what it reads and cites."""
    most = max(LEAST_BRIEF, BRIEF_CHARACTERS // max(1, len(answer.results)))
    return {
        "results": [
            brief_record(result.record, most, result.snippet) | fields_of(result, (), ("confidence",))
            for result in answer.results
        ],
        **closest_dict(answer.closest),
        **({"left_out": {"other origins": others}} if (others := answer.trace.filtered.get("origin")) else {}),
        **({"warnings": list(answer.trace.warnings)} if answer.trace.warnings else {}),
    }


def brief_record(record: Record, most: int = LEAST_BRIEF, snippet: str = "") -> dict[str, Any]:
    """A record for a model: the day that it is about, where it is from, and at most so many characters of its text."""
    title, text = record.title[:NAME_CHARACTERS], record.text
    lines = f":{'-'.join(map(str, record.lines))}" if record.lines else ""
    where = f", {record.place[:NAME_CHARACTERS]}" if record.place else lines
    source = f"{record.path or record.source or record.origin}{where if record.path or record.place else ''}"
    return {
        "id": record.id,
        **({"title": title} if title and not text.startswith(title) else {}),
        "text": _around(text, snippet, most),
        **({"text_chars": len(text)} if len(text) > most else {}),
        "date": str(record.time.date()),
        "source": source,
        **fields_of(record, (), ("superseded_by",)),
    }


def _around(text: str, snippet: str, most: int) -> str:
    """At most so many characters of a text: its beginning, and the part that matches if that comes later."""
    if len(text) <= most:
        return text
    if snippet.strip("… ") in " ".join(text[:most].split()):
        return f"{text[:most]} …"
    return f"{text[: max(0, most - len(snippet))]} … {snippet}"


NAME_CHARACTERS = 100


def name_of(record: Record, most: int = NAME_CHARACTERS) -> str:
    """The title of a record, or else its first words, in at most so many characters."""
    return first_words(record.title or record.text[: 4 * most], most)


def closest_dict(closest: Result | None) -> dict[str, Any]:
    """The record that an empty answer names as the closest, if there is one."""
    if closest is None:
        return {}
    key = closest.record.id
    about = {"id": key, "short_id": short_id(key), "name": name_of(closest.record), "snippet": closest.snippet}
    return {"closest": {**about, "confidence": closest.confidence}}


def moved(rank: int, result: Result) -> str:
    """Why a result is not at the rank of its fused score: `↑ from 4: reranked`; empty if it made way for others."""
    origin = next((old for old, _ in result.moves.values()), rank)
    up = rank < origin
    stages = [stage for stage, (old, new) in result.moves.items() if (new < old) == up]
    reasons = [reason for stage in stages if (reason := _reason(stage, result.factors.get(stage, 1.0), up))]
    return f"{'↑' if up else '↓'} from {origin}: {', '.join(reasons)}" if reasons and rank != origin else ""


RAISED = {  # stage → why it moved a result up
    "turns": "the turns around it match",
    "rerank": "reranked",
    "newer": "newer than a similar result",
    "mmr": "different from the results above",
}


def _reason(stage: str, factor: float, up: bool) -> str:
    match stage:
        case "decay" if not up and factor < 1:
            return "it is old"
        case "time" if up:
            return f"it is {'of' if factor >= 1 + TIME_WEIGHT else 'near'} the time that the query names"
        case "importance" if (factor > 1) == up and factor != 1:
            return "it is important" if up else "it is less important"
        case "files" if (factor > 1) == up and factor != 1:
            return "further passages of its file match" if up else "its file opens with something else"
    return RAISED.get(stage, "") if up else ""


def short_ids_of(answer: Answer) -> dict[str, str]:
    """The short ids of all results and their further passages."""
    return short_ids(one.record.id for result in answer.results for one in (result, *result.passages))


def _result_dicts(answer: Answer, explain: bool) -> Iterator[dict[str, Any]]:
    short = short_ids_of(answer)
    for rank, result in enumerate(answer.results, 1):
        answer.query.check()  # the snippet of a long text takes time
        shares = {name: fields_of(share, ("rank", "score", "contribution")) for name, share in result.shares.items()}
        steps: dict[str, Any] = {}
        if explain:
            moves = {stage: {"from": old, "to": new} for stage, (old, new) in result.moves.items()}
            steps = {"base": result.base, "factors": dict(result.factors), "moves": moves, "total": result.total}
        yield {
            "id": result.record.id,
            "short_id": short[result.record.id],
            **fields_of(result.record, RECORD[1:4]),
            "snippet": result.snippet,
            "rank": rank,
            **({"moved": words} if (words := moved(rank, result)) else {}),
            **fields_of(result, ("score", "fused", "similarity"), ("confidence",)),
            "sources": shares,
            "in_keyword": "keyword" in shares,
            "in_semantic": "vector" in shares or "hyde" in shares,
            **steps,
            **fields_of(result.record, RECORD[4:], RECORD_IF_SET),
            **fields_of(result, (), ("freshness",)),
            **({"passages": list(_passage_dicts(answer, result, short))} if result.passages else {}),
        }


def _passage_dicts(answer: Answer, result: Result, short: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for passage in result.passages:
        answer.query.check()
        record = passage.record
        yield {
            "id": record.id,
            "short_id": short[record.id],
            **fields_of(record, ("title",), ("lines", "place")),
            "snippet": passage.snippet,
            **fields_of(passage, ("score",)),
        }


def _trace_dict(trace: Trace) -> dict[str, Any]:
    return {
        **fields_of(trace, ("took_ms", "grade", "mode")),
        "sources": [
            fields_of(source, ("name", "status", "hits", "took_ms"), ("reason", "trust", "read_as"))
            for source in trace.sources
        ],
        "filtered": dict(trace.filtered),
        "lag": dict(trace.lag),
        "stages": [
            {"name": stage.name, "in": stage.given, "out": stage.left, "took_ms": stage.took_ms}
            for stage in trace.stages
        ],
        **fields_of(trace, ("warnings",), ("abstained", "also_searched", "favours")),
    }


def recall_dict(recall: Recall) -> dict[str, Any]:
    """The JSON of a recall block."""
    about = (("number", "id", "title"), ("path", "lines", "freshness", "place"))
    return {
        **fields_of(recall, ("query", "text", "tokens")),
        "citations": [fields_of(citation, *about) for citation in recall.citations],
        **fields_of(recall, ("left_out", "warnings")),
        **closest_dict(recall.closest),
    }


def verdict_dict(query: str, verdict: Verdict) -> dict[str, Any]:
    """The JSON of what `why_not` returns."""
    places = verdict.places.items()
    return {
        "query": query,
        **fields_of(verdict, ("target", "stage", "reason", "rank")),
        "sources": {name: fields_of(place, ("rank", "score", "fetch_k"), ("note",)) for name, place in places},
        "change": dict(verdict.change),
        "advice": verdict.advice,
        "record": record_dict(verdict.record) if verdict.record else None,
    }


def rollback_dict(rollback: Rollback) -> dict[str, Any]:
    """The JSON of a rollback: the records that it forgets, sets back and makes current again."""
    names = ("forgotten", "reverted", "restored")
    records = {name: record_dicts(getattr(rollback, name)) for name in names}
    return {"done": rollback.done, "purge": rollback.purge, **records}


def event_dict(event: Event) -> dict[str, Any]:
    """The JSON of one change in a history."""
    return {**fields_of(event, ("seq", "id", "action", "at")), "detail": dict(event.detail)}
