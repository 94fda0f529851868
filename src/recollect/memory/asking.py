"""From the text of a query to what is searched and the filter: the operators of the query language, applied."""

import re
from dataclasses import field, replace
from typing import Any

from recollect.config import SearchOptions
from recollect.dataclass import dataclass
from recollect.dates import Period, content_of, find_period
from recollect.errors import UsageError
from recollect.memory.validation import parse_time
from recollect.options import KINDS
from recollect.querylang import QueryPart, parse
from recollect.ranking import clean
from recollect.stopwords import are_stopwords
from recollect.types import Filter, Scope, Store


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What a query asks for: the text to search for, the filter, prefixes of words, and notes for the user.

    `written` is the whole query, if it has operators. A query of fields alone has an empty text.
    """

    text: str
    where: Filter
    written: str = ""
    prefixes: tuple[str, ...] = ()
    period: Period | None = None
    notes: tuple[str, ...] = ()

    @property
    def has_only_fields(self) -> bool:
        """Whether the query narrows the filter and has no words to search for."""
        return bool(self.written) and not self.text


def read_query(
    text: str, where: Filter, search: SearchOptions, *, caller: Scope | None, for_model: bool
) -> SearchRequest:
    """Read a query. Its fields narrow the filter; what they cannot do is plain text, with a note.

    A scoped caller cannot choose a user, and neither can a model, whose scope is that of its server. While one types,
    the last word is a prefix, too.
    """
    request = _read(text, where, plain=search.plain, may_choose_user=caller is None and not for_model)
    period = find_period(request.text, where.moment) if search.dates else None
    request = replace(request, period=period) if period else request
    if search.typing and (last := re.search(r"[^\W\d_]{3,}$", request.text)):
        return replace(request, prefixes=(*request.prefixes, last.group()))
    return request


def as_list(request: SearchRequest, store: Store) -> SearchRequest:
    """A question about a time and nothing else ("what did I do yesterday?") as fields that list its records.

    A question with vague words ("what did we decide last month?") is one, too, if no record of the time has them. If
    the time has no record, or its words may be those of a record ("January 2026"), the request stays.
    """
    if (period := request.period) is None or not ((rest := period.rest_of(request.text)) or period.is_relative):
        return request
    has_content, is_vague = content_of(rest)
    where = request.where
    since, until = max(period.start, where.since or period.start), min(period.end, where.until or period.end)
    where = replace(where, since=since, until=until)
    if (has_content and not is_vague) or not store.records.list(where, limit=1):
        return request
    if has_content and store.keywords.known(store.keywords.analyzer.query(rest), where):
        return request
    note = f"the query asks only about a time: what is of {period} is listed, newest first"
    written, notes = request.written or request.text, (*request.notes, note)
    return replace(request, text="", where=where, written=written, prefixes=(), period=None, notes=notes)


def asks_nothing(request: SearchRequest, store: Store) -> bool:
    """Whether a query has only stop words, such as "who am I?": then no record can be likely to answer it."""
    where = request.where
    if where.phrases or where.required or request.prefixes:
        return False
    words = re.findall(r"\w+", request.text.lower())
    return are_stopwords(words) and store.keywords.analyzer.has_only_stopwords(request.text)


def _read(text: str, where: Filter, *, plain: bool, may_choose_user: bool) -> SearchRequest:
    if not isinstance(text, str):
        raise UsageError(f"a query must be text, not {type(text).__name__}", hint='search("…")')
    text = clean(text)
    parsed = parse(text) if not plain else None
    if parsed is None or (len(parsed.parts) == 1 and parsed.parts[0].kind == "text"):
        return SearchRequest(text, where, notes=parsed.notes if parsed else ())
    reader = _Reader(where, may_choose_user)
    for part in parsed.parts:
        reader.read(part)
    words = " ".join(reader.words)
    if not words and not reader.has_field:
        note = "an exclusion needs something to search for: the query is plain text"
        return SearchRequest(text, where, notes=(*parsed.notes, note))
    notes = (*parsed.notes, *reader.notes)
    if not reader.applied:
        return SearchRequest(text, where, notes=notes)
    return SearchRequest(words, reader.where, text, tuple(reader.prefixes), notes=notes)


@dataclass(slots=True)
class _Reader:
    """Applies the parts of a query one by one."""

    where: Filter
    may_choose_user: bool
    words: list[str] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    applied: int = 0
    has_field: bool = False
    _chosen: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def read(self, part: QueryPart) -> None:
        """Narrow the filter, or add words to search for."""
        match part.kind:
            case "phrase":
                self.where = replace(self.where, phrases=(*self.where.phrases, part.value))
                self.words.append(part.value)
            case "without":
                self.where = replace(self.where, without=(*self.where.without, part.value))
            case "required":
                self.where = replace(self.where, required=(*self.where.required, *part.groups))
                self.words.append(part.value)
            case "prefix":
                self.prefixes.append(part.value)
                self.words.append(part.value)
            case "field":
                if reason := self._refused(part):
                    self.notes.append(f"{part.raw} is plain text: {reason}")
                    self.words.append(part.raw)
                    return
                self.has_field = True
            case _:
                self.words.append(part.value)
                return
        self.applied += 1

    def _refused(self, part: QueryPart) -> str:
        """Narrow the filter by a field; if that cannot be done, the reason."""
        where, value = self.where, part.value
        match part.name:
            case "tag":
                self.where = replace(where, tags=(*where.tags, value.removeprefix("#") or value))
            case "path" if where.path is not None:
                return "a path is chosen already"
            case "path":
                self.where = replace(where, path=value)
            case "category":
                return self._choose_any("categories", part)
            case "kind":
                return self._choose_any("kinds", part) if value in KINDS else f"the kinds are {', '.join(KINDS)}"
            case "user":
                return self._choose_user(value)
            case _:
                return self._limit_time(part)
        return ""

    def _choose_any(self, column: str, part: QueryPart) -> str:
        """Admit one more category or kind, unless some were chosen beside the query."""
        chosen = self._chosen.get(column, ())
        if getattr(self.where, column) != chosen:
            return f"a {part.name} is chosen already"
        self._chosen[column] = (*chosen, part.value)
        values: dict[str, Any] = {column: self._chosen[column]}
        self.where = replace(self.where, **values)
        return ""

    def _choose_user(self, user: str) -> str:
        scope = self.where.scope
        if scope.user == user:
            return ""
        if scope.user is not None or not self.may_choose_user or self.where.any_scope:
            return "another user cannot be chosen here"
        self.where = replace(self.where, scope=replace(scope, user=user))
        return ""

    def _limit_time(self, part: QueryPart) -> str:
        try:
            at = parse_time(part.value)
        except UsageError as error:
            return f"{error.message} ({error.hint})"
        if at is not None and part.name in ("since", "after"):
            self.where = replace(self.where, since=max(at, self.where.since or at))
        elif at is not None:
            self.where = replace(self.where, until=min(at, self.where.until or at))
        return ""
