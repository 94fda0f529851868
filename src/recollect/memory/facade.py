"""`Memory`: the façade that builds everything and keeps it together."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from recollect import config
from recollect.config import Settings
from recollect.embedders import EMBEDDERS
from recollect.errors import RecollectError, UnknownRecord, UsageError
from recollect.ingest import Report, mirror
from recollect.memory.embedding import Embedding, opener
from recollect.memory.parsing import FILTERS, clean, make_filter, make_record, parse_scope, parse_time, record_from_json
from recollect.pipeline import Pipeline
from recollect.sources import KeywordSource, VectorSource
from recollect.stages import order
from recollect.stores import open_store
from recollect.types import (
    GLOBAL,
    Answer,
    Change,
    Embedder,
    Event,
    Filter,
    Forget,
    Progress,
    Put,
    Query,
    Record,
    Scope,
    Source,
    Store,
    Supersede,
    now,
)

_log = logging.getLogger("recollect")

WORKERS = 8
"""Threads for sources: two for each of four searches at once; more wait their turn."""


class Memory:
    """Remembers, and finds again. Safe to use from several threads; several processes may open the same store."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        embedder: str | Embedder | None,
        *,
        announce: Callable[[str], None],
        fetching: Progress | None = None,
    ) -> None:
        if isinstance(embedder, str) and embedder != "none":
            # A name that nothing has is wrong use, and said at once; a model that is missing is found out when needed.
            EMBEDDERS.check(embedder.partition(":")[0])
        self.store = store
        self.settings = settings
        self.scope = settings.scope.scope()
        self._announce = announce
        self.embedding = Embedding(store.spaces, embedder, opener(settings, announce, fetching))
        self._executor = ThreadPoolExecutor(WORKERS, thread_name_prefix="recollect")

    @classmethod
    def open(
        cls,
        store: str | Path | None = None,
        *,
        embedder: str | Embedder | None = None,
        settings: Settings | None = None,
        language: str | None = None,
        announce: Callable[[str], None] = _log.warning,
        fetching: Progress | None = None,
    ) -> Self:
        """Open a store, making it where there is none.

        `store` is a file (or `:memory:`), `embedder` a model's name, an object with the `Embedder` methods, or
        "none" for keyword search only; what is left out comes from the settings. `announce` is told when a model
        is about to be fetched, and when something could not be done as well as it should; `fetching` shows progress.
        """
        settings = settings or config.load().settings
        place = store or settings.store or default_store()
        return cls(
            open_store(str(place), language=language or settings.language),
            settings,
            embedder if embedder is not None else settings.embedder,
            announce=announce,
            fetching=fetching,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back threads and files; closing twice is harmless."""
        self._executor.shutdown(wait=True)
        self.store.close()

    # -- remembering ----------------------------------------------------------------------------------------

    def add(
        self,
        text: str,
        *,
        scope: Scope | Mapping[str, str] | None = None,
        user: str | None = None,
        agent: str | None = None,
        session: str | None = None,
        supersedes: str | None = None,
        **fields: Any,
    ) -> Record:
        """Remember one text and return its record.

        `fields` are a record's: id, kind, title, category, tags, importance, decay, created_at, happened_at,
        expires_at, source, path, lines. The same text in the same scope is one record: adding it again updates it.
        """
        record = make_record(text, scope=self._scope(scope, user, agent, session), **fields)
        self._embed_for_now([record.passage])
        changes: list[Change] = [Put(record, merge=fields.get("id") is None and supersedes is None)]
        if supersedes is not None:
            self._check_scope([supersedes])
            changes.append(Supersede(supersedes, record.id))
        stored = self.store.records.apply([changes])
        return stored[0]

    def add_many(self, records: Iterable[Mapping[str, Any]], *, progress: Progress | None = None) -> list[Record]:
        """Remember many, given as `{"text": …, …}`. All are checked before the first is stored."""
        given = [dict(record) for record in records]
        made = [record_from_json(record, self.scope) for record in given]
        groups = [[Put(record, merge=fields.get("id") is None)] for record, fields in zip(made, given, strict=True)]
        stored = self.store.records.apply(groups)
        self._embed_for_now([record.passage for record in stored], progress)
        return stored

    def supersede(
        self, record_id: str, by: str | None = None, *, text: str | None = None, at: datetime | str | None = None
    ) -> Record:
        """Let one record take another's place: an existing one (`by` its id), or a new one with this text.

        The new record inherits the old one's scope, category, tags and title. Returns the record that holds now.
        """
        if (by is None) == (text is None):
            raise UsageError("a record is superseded by an id or by a new text", hint="give `by` or `text`, not both")
        moment = parse_time(at)
        self._check_scope([record_id, *([by] if by else [])])
        if by is not None:
            self.store.records.apply([[Supersede(record_id, by, moment)]])
            return self._require(by)
        old = self._require(record_id)
        new = replace(
            make_record(text or "", scope=old.scope, title=old.title, category=old.category, tags=old.tags),
            kind=old.kind,
            importance=old.importance,
            decay=old.decay,
        )
        self._embed_for_now([new.passage])
        return self.store.records.apply([[Put(new), Supersede(old.id, new.id, moment)]])[0]

    def forget(self, *ids: str, purge: bool = False) -> None:
        """Take records out of every answer, all or none; with `purge`, wipe their content for good."""
        self._check_scope(ids)
        self.store.records.apply([[Forget(record_id, purge) for record_id in ids]])
        if purge:
            self.store.scrub()

    def index(
        self,
        folder: str | Path,
        *,
        user: str | None = None,
        agent: str | None = None,
        session: str | None = None,
        tags: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> Report:
        """Mirror a folder of markdown: its words can be searched at once, its vectors follow with `progress`."""
        report = Report()
        scope = self._scope(None, user, agent, session)
        self.store.records.apply(mirror(Path(folder), self.store.files, scope=scope, tags=tuple(tags), report=report))
        if self.embedding.configured:
            try:
                self.embed(progress=progress)
            except RecollectError as error:
                self._announce(f"indexed without vectors: {error.message}")
        return report

    def embed(self, *, progress: Progress | None = None) -> int:
        """Compute every missing vector of the configured model; returns how many. Can be interrupted and run again."""
        return self.embedding.fill(progress)

    # -- finding --------------------------------------------------------------------------------------------

    def search(
        self,
        text: str,
        *,
        limit: int | None = None,
        fetch_k: int | None = None,
        sources: Sequence[str] | None = None,
        where: Filter | None = None,
        scope: Scope | Mapping[str, str] | None = None,
        user: str | None = None,
        agent: str | None = None,
        session: str | None = None,
        **options: Any,
    ) -> Answer:
        """Find what answers `text`. What is left out comes from the settings.

        `options` are settings of `[search]` (fusion, rrf_k, normalisation, text_weight, vector_weight, decay,
        half_life_days, importance_weight, mmr, mmr_lambda, min_score) and filters (category, tags, kind, path,
        since, until, as_of, superseded, any_scope); or give a whole `Filter` as `where`.
        """
        self.store.check()
        filters = {name: options.pop(name) for name in FILTERS if name in options}
        named = {"limit": limit, "fetch_k": fetch_k, "sources": sources, **options}
        search = config.override(
            self.settings.search, {key: value for key, value in named.items() if value is not None}
        )
        where = self._where(where, self._scope(scope, user, agent, session), filters)
        query = Query(clean(text), search.limit, search.fetch_k, where, search.ranking())
        return self._pipeline(search.sources)(query)

    def get(self, record_id: str, *, scope: Scope | None = None) -> Record | None:
        """The record with this id, or None. Where a scope is given or set, only if it may be seen with that."""
        found = self.store.records.get([clean(record_id)])
        if scope is None and self.scope == GLOBAL:
            return next(iter(found), None)
        asking = scope or self.scope
        return next((record for record in found if asking.admits(record.scope)), None)

    def history(self, record_id: str) -> list[Event]:
        """Everything that happened to a record, oldest first; also to one that is forgotten."""
        events = self.store.records.history(record_id)
        if not events or (self.scope != GLOBAL and self.get(record_id) is None):
            raise UnknownRecord(record_id)
        return events

    def status(self) -> dict[str, Any]:
        """What the store holds, how far its indexes have read it, and which model serves."""
        active = self.store.spaces.active
        vectors: dict[str, Any] = {"embedder": None, "with": 0, "without": 0}
        if active is not None:
            covered, missing = self.store.spaces.open(active).coverage()
            vectors = {"embedder": active.embedder, "dimension": active.dimension, "with": covered, "without": missing}
        return {**self.store.status(), "vectors": vectors}

    def list(
        self,
        where: Filter | None = None,
        *,
        limit: int = 100,
        offset: int = 0,
        scope: Scope | Mapping[str, str] | None = None,
        user: str | None = None,
        agent: str | None = None,
        session: str | None = None,
        **filters: Any,
    ) -> list[Record]:
        """Visible records, newest first; scope and filters as for `search`."""
        where = self._where(where, self._scope(scope, user, agent, session), filters)
        return self.store.records.list(where, limit=limit, offset=offset)

    # -- inside ---------------------------------------------------------------------------------------------

    def _pipeline(self, names: Sequence[str]) -> Pipeline:
        """Sources in their fixed order, whatever order they were named in."""
        if unknown := [name for name in names if name not in ("keyword", "vector")]:
            raise UsageError(f"unknown source {unknown[0]!r}", hint="there are keyword, vector")
        if not names:
            raise UsageError("no source is named", hint="there are keyword, vector")
        sources: list[Source] = []
        absent: list[tuple[str, str]] = []
        if "keyword" in names:
            sources.append(KeywordSource(self.store.keywords))
        if "vector" in names:
            if self.embedding.configured:
                sources.append(VectorSource(self.embedding.serving))
            else:
                absent.append(("vector", "no embedder is configured"))
        return Pipeline(tuple(sources), order(self._vectors_of), self._executor, tuple(absent))

    def _vectors_of(self, ids: Sequence[str]) -> dict[str, Any]:
        """For MMR: vectors where they can be had; without them it compares words."""
        with contextlib.suppress(RecollectError):
            if self.embedding.configured:
                return self.embedding.serving().index.vectors(ids)
        return {}

    def _embed_for_now(self, passages: Sequence[str], progress: Progress | None = None) -> None:
        """Vectors for new records if they can be had now; else a later search or `embed` catches up, and says so."""
        if self.embedding.configured:
            try:
                self.embedding.ensure(passages, progress)
            except RecollectError as error:
                self._announce(f"stored without vectors: {error.message}")

    def _scope(
        self, scope: Scope | Mapping[str, str] | None, user: str | None, agent: str | None, session: str | None
    ) -> Scope:
        """The scope named by a call, over the one that is set."""
        base = parse_scope(scope) if isinstance(scope, Mapping) else scope or self.scope
        if "" in (user, agent, session, base.user, base.agent, base.session):
            raise UsageError("a part of a scope cannot be empty", hint="leave it out, or give it a name")
        return Scope(user or base.user, agent or base.agent, session or base.session)

    def _where(self, where: Filter | None, scope: Scope, filters: Mapping[str, Any]) -> Filter:
        if unknown := filters.keys() - set(FILTERS):
            raise UsageError(f"unknown filter {min(unknown)!r}", hint=f"there are {', '.join(FILTERS)}")
        if where is None:
            return make_filter(scope, **filters)
        if filters or scope != self.scope:
            raise UsageError("a filter is given as `where` or in single parts, not both", hint="put all into `where`")
        return replace(where, now=now())  # a filter that was kept must not keep its time

    def _check_scope(self, ids: Sequence[str]) -> None:
        """Where a scope is set, ids beyond it are unknown."""
        if self.scope != GLOBAL:
            for record_id in ids:
                self._require(record_id)

    def _require(self, record_id: str) -> Record:
        record = self.get(record_id)
        if record is None:
            raise UnknownRecord(record_id)
        return record


def default_store() -> Path:
    """The store of a person who named none."""
    import platformdirs

    return Path(platformdirs.user_data_dir("recollect")) / "memory.db"
