"""From the arguments of `Memory.search` to a request, and from a request to a query and its pipeline."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from recollect import config
from recollect.errors import Forbidden, UsageError
from recollect.memory.assembly import Assembly
from recollect.memory.validation import clean, filter_fields, merge_scope
from recollect.options import FILTER_NAMES, FILTERS, SCOPE_PARTS, SEARCH, SearchOptions, described
from recollect.pipeline import Pipeline
from recollect.types import Filter, Query, Scope, Work, now

F = TypeVar("F", bound=Callable[..., Any])

FILTER_ARGUMENTS = ("where", "scope", *SCOPE_PARTS, *FILTER_NAMES)
"""The arguments of `Memory.search` that say which records it may find; the others are search options."""


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """Which records a search may find, and the options it is answered with."""

    filter: Filter
    options: SearchOptions


def with_options(method: F) -> F:
    """List every search option and filter in the docstring of a method that takes them."""
    if method.__doc__:  # there are no docstrings under `python -OO`
        about = inspect.cleandoc(method.__doc__)
        method.__doc__ = f"{about}\n\nOptions:\n\n{described(SEARCH)}\n\nFilters:\n\n{described(FILTERS)}\n"
    return method


def filter_parts(where: Filter) -> dict[str, Any]:
    """A filter as single arguments of `Memory.search`."""
    kind = where.kinds[0] if len(where.kinds) == 1 else None
    parts = {option.name: getattr(where, option.column or option.name) for option in FILTERS}
    return {"scope": where.scope, **parts, "kind": kind}


@dataclass(frozen=True, slots=True)
class QueryBuilder:
    """Builds requests and queries with the settings and the scope of one memory."""

    assembly: Assembly
    scope: Scope
    caller: Scope | None = None

    def request(self, arguments: Mapping[str, Any]) -> SearchRequest:
        """The request that the keyword arguments of `Memory.search` stand for."""
        narrowing = {name: value for name, value in arguments.items() if name in FILTER_ARGUMENTS}
        return SearchRequest(self.filter(narrowing), _options(self.assembly.settings.search, arguments))

    def filter(self, arguments: Mapping[str, Any]) -> Filter:
        """The filter that scope and filter arguments stand for, or the one that is given as `where`."""
        for name in arguments:
            if name not in FILTER_ARGUMENTS:
                raise UsageError(f"unknown filter {name!r}", hint=f"there are {', '.join(FILTER_NAMES)}")
        where: Filter | None = arguments.get("where")
        filters = {name: arguments[name] for name in FILTER_NAMES if arguments.get(name) is not None}
        scope = self._allowed_scope(self.scope, arguments)
        if where is None:
            return Filter(scope=scope, **filter_fields(filters))
        if self.caller is not None:
            raise _other_scope()
        if filters or scope != self.scope:
            raise UsageError("give a filter as `where` or in single parts, not both", hint="put all into `where`")
        return replace(where, now=now())  # a Filter that was made earlier is applied as of now

    def prepare(self, text: str, request: SearchRequest, work: Work | None = None) -> tuple[Pipeline, Query]:
        """The query of a request, and the pipeline that answers it."""
        if not isinstance(text, str):
            raise UsageError(f"a query must be text, not {type(text).__name__}", hint='search("…")')
        options, settings = request.options, self.assembly.settings
        deadline = None if options.budget_ms is None else time.monotonic() + options.budget_ms / 1000
        weights = options.weights() | {source.name: source.weight for source in settings.sources}
        query = Query(clean(text), options.limit, options.fetch_k, request.filter, options, deadline, work, weights)
        return self.within(request.filter.scope).assembly.pipeline(options), query

    def prepare_changed(
        self, text: str, request: SearchRequest, work: Work | None, change: Mapping[str, Any]
    ) -> tuple[Pipeline, Query]:
        """The same for a request with some arguments of `Memory.search` changed; None removes a filter."""
        scope = self._allowed_scope(request.filter.scope, change)
        filters = {name: change[name] for name in FILTER_NAMES if name in change}
        where = replace(request.filter, scope=scope, **filter_fields(filters))
        return self.prepare(text, SearchRequest(where, _options(request.options, change)), work)

    def within(self, scope: Scope) -> QueryBuilder:
        """The same, reading in the name of a scope, where the database itself guards that."""
        store, caller = self.assembly.store.within(scope), None if self.caller is None else scope
        embeddings = self.assembly.embeddings.within(store.spaces, caller)
        return replace(self, assembly=replace(self.assembly, store=store, embeddings=embeddings, caller=caller))

    def _allowed_scope(self, default: Scope, arguments: Mapping[str, Any]) -> Scope:
        """The scope that the arguments name; a scoped caller may name no other than its own."""
        parts = {part: arguments.get(part) for part in SCOPE_PARTS}
        scope = merge_scope(default, arguments.get("scope"), parts)
        if self.caller is not None and (scope != self.scope or arguments.get("any_scope")):
            raise _other_scope()
        return scope


def _options(defaults: SearchOptions, arguments: Mapping[str, Any]) -> SearchOptions:
    """The defaults with the search options among the arguments of `Memory.search`."""
    named = {name: value for name, value in arguments.items() if name not in FILTER_ARGUMENTS}
    return config.override(defaults, {name: value for name, value in named.items() if value is not None})


def _other_scope() -> Forbidden:
    return Forbidden("another scope than the caller's cannot be asked for", hint="leave the scope out")
