"""From what a caller says to a query and the pipeline that answers it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from recollect import config
from recollect.errors import Forbidden, UsageError
from recollect.memory.assembly import Assembly
from recollect.memory.validation import FILTERS, SCOPE_PARTS, clean, make_filter, merge_scope
from recollect.pipeline import Pipeline
from recollect.types import Filter, Query, Scope, Work, now


@dataclass(frozen=True, slots=True)
class QueryBuilder:
    """Knows the settings and the scope of one memory."""

    assembly: Assembly
    scope: Scope
    caller: Scope | None = None

    def prepare(self, text: str, said: Mapping[str, Any], work: Work | None = None) -> tuple[Pipeline, Query]:
        """The query that was meant: settings of `[search]`, filters and scope parts by name, or a `where`."""
        start = time.monotonic()
        if not isinstance(text, str):
            raise UsageError(f"a query is text, not {type(text).__name__}", hint='search("…")')
        rest = dict(said)
        where = self.where(rest)
        settings = self.assembly.settings
        search = config.override(settings.search, {key: value for key, value in rest.items() if value is not None})
        weights = {source.name: source.weight for source in settings.sources}
        deadline = None if search.budget_ms is None else start + search.budget_ms / 1000
        query = Query(clean(text), search.limit, search.fetch_k, where, search.ranking(weights), deadline, work)
        return self.within(where.scope).assembly.pipeline(search), query

    def within(self, scope: Scope) -> QueryBuilder:
        """The same, with everything read in the name of a scope, where the database itself guards that."""
        store, caller = self.assembly.store.within(scope), None if self.caller is None else scope
        embeddings = self.assembly.embeddings.within(store.spaces, caller)
        return replace(self, assembly=replace(self.assembly, store=store, embeddings=embeddings, caller=caller))

    def where(self, said: dict[str, Any]) -> Filter:
        """The filter that was meant; its parts are taken out of `said`."""
        where: Filter | None = said.pop("where", None)
        filters = {name: said.pop(name) for name in FILTERS if name in said}
        scope = merge_scope(self.scope, said.pop("scope", None), {part: said.pop(part, None) for part in SCOPE_PARTS})
        if self.caller is not None and (scope != self.scope or filters.get("any_scope") or where is not None):
            raise Forbidden("another scope than the caller's cannot be asked for", hint="leave the scope out")
        if where is None:
            return make_filter(scope, **filters)
        if filters or scope != self.scope:
            raise UsageError("a filter is given as `where` or in single parts, not both", hint="put all into `where`")
        return replace(where, now=now())  # a filter that was kept must not keep its time
