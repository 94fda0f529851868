"""`Memory`: the façade that builds everything and keeps it together."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from recollect.config import Settings
from recollect.errors import Forbidden, UnknownRecord, UsageError
from recollect.ingest import IndexOptions, Report
from recollect.memory import overview
from recollect.memory.assembly import Assembly, Reranking, open_outside
from recollect.memory.calibration import Calibration
from recollect.memory.embeddings import Embeddings
from recollect.memory.explain import Verdict, why_not
from recollect.memory.extraction import Extraction, Job, extract
from recollect.memory.folders import Excerpt, Mirroring, Showing, excerpt
from recollect.memory.history import changes, visible_history
from recollect.memory.opening import check_embedder, embedder_opener, load_settings, open_in_language
from recollect.memory.recall import TOKENS, Recall, recall
from recollect.memory.request import QueryBuilder, filter_parts, with_options
from recollect.memory.spans import embedded, indexed, recalled, searched, traced
from recollect.memory.validation import clean_names, merge_scope, parse_id
from recollect.memory.writer import Writer
from recollect.models.rerankers import open_reranker
from recollect.moving import Moved, export, import_
from recollect.pipeline import Pipeline
from recollect.types import GLOBAL, Answer, Embedder, Event, Filter, Progress, Query, Record, Scope, Store, Work

_log = logging.getLogger("recollect")

MOST_LISTED = 1_000_000_000
WORKERS = 64
"""Threads for sources at the most. They are made as needed; a source that hangs must not take another's."""


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
        fetch: bool = True,
    ) -> None:
        self.settings = settings
        self.scope = settings.scope.scope()
        self.store = store = store.within(self.scope) if self.scope != GLOBAL else store
        self.caller: Scope | None = None
        self._announce = announce
        self.embeddings = Embeddings(store.spaces, embedder, embedder_opener(settings, announce, fetching, fetch))
        self._executor = ThreadPoolExecutor(WORKERS, thread_name_prefix="recollect")
        self._outside = open_outside(settings, store)
        reranker = partial(open_reranker, announce=announce, progress=fetching, fetch=fetch)
        reranking = Reranking(store, self._executor, reranker)
        calibration = Calibration(store, self.embeddings)
        assembly = Assembly(store, self.embeddings, settings, self._executor, reranking, self._outside, calibration)
        self._queries = QueryBuilder(assembly, self.scope)
        self._writer = Writer(store, self.embeddings, announce, self.scope)
        embed = (lambda progress: self.embed(progress=progress)) if self.embeddings.configured else None
        self._mirroring = Mirroring(store, embed, announce)

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
        fetch: bool = True,
    ) -> Self:
        """Open a store, making it where there is none.

        `store` is a file (or `:memory:`), `embedder` a model's name, an object with the `Embedder` methods, or "none"
        for keyword search only, `language` that of a new store; what is left out comes from the settings. `announce`
        is told when a model is fetched or something cannot be done as well as it should; `fetching` shows progress.
        With `fetch=False` no model is fetched: what is not on this machine is done without.
        """
        settings = settings or load_settings(announce)
        wanted = embedder if embedder is not None else settings.embedder
        check_embedder(wanted)
        opened = open_in_language(store, settings, language, announce)
        try:
            return cls(opened, settings, wanted, announce=announce, fetching=fetching, fetch=fetch)
        except BaseException:
            opened.close()
            raise

    def within(self, scope: Scope) -> Self:
        """The same memory behind a wall, for a server's callers: it sees what this scope sees and changes what it owns.

        No call can name another scope. It shares everything with this one; closing either closes both.
        """
        view = copy.copy(self)
        view.scope, view.caller, view.store = scope, scope, self.store.within(scope)
        view._queries = replace(self._queries.within(scope), scope=scope, caller=scope)  # noqa: SLF001  (its own kind)
        view._writer = replace(self._writer, store=view.store, scope=scope, caller=scope)  # noqa: SLF001
        return view

    def scoped(self, scope: Scope) -> Self:
        """The same memory with this scope set, as settings would set it; behind a wall, only the caller's own."""
        if scope == self.scope:
            return self
        if self.caller is not None:
            raise Forbidden("another scope than the caller's cannot be asked for", hint="leave the scope out")
        view = self.within(scope)
        view.caller = None
        view._queries = replace(view._queries, caller=None)  # noqa: SLF001
        view._writer = replace(view._writer, caller=None)  # noqa: SLF001
        return view

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back threads and files; closing twice is harmless."""
        self._executor.shutdown(wait=True)
        for source in self._outside.values():
            with contextlib.suppress(Exception):  # a system may be anybody's; ours is closed whatever it does
                source.system.close()
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
        scoped = {"scope": scope, "user": user, "agent": agent, "session": session}
        return self._writer.add({**fields, **scoped, "text": text}, supersedes)

    def add_many(self, records: Iterable[Mapping[str, Any]], *, progress: Progress | None = None) -> list[Record]:
        """Remember many, given as `{"text": …, …}`. All are checked before the first is stored."""
        return self._writer.add_many(records, progress)

    def edit(self, record_id: str, **fields: Any) -> Record:
        """Change what is said of a fact, in place: text, title, category, tags, … None clears a field.

        Where something has become otherwise, `supersede` it instead: an edit is for what was written wrongly.
        """
        return self._writer.edit(record_id, fields)

    def supersede(
        self, record_id: str, by: str | None = None, *, text: str | None = None, at: datetime | str | None = None
    ) -> Record:
        """Let one record take another's place: an existing one (`by` its id), or a new one with this text.

        The new record inherits the old one's scope, category, tags and title. Returns the record that holds now.
        """
        return self._writer.supersede(record_id, by, text, at)

    def forget(self, *ids: str, purge: bool = False) -> None:
        """Take records out of every answer, all or none; with `purge`, wipe their content for good."""
        self._writer.forget(ids, purge)

    def undo(self, record_id: str, *, seq: int | None = None) -> tuple[str, Record | None]:
        """Take back the last that happened to a record: `add`, `update`, `supersede` or `forget`, but for a purge.

        With `seq` only if that is still the last line of its history. Returns which it was, and the record as it
        stands now (None where that is forgotten).
        """
        return self._writer.undo(record_id, seq)

    @traced("index", indexed)
    def index(
        self,
        paths: str | Path | Sequence[str | Path],
        *,
        scope: Scope | Mapping[str, str] | None = None,
        user: str | None = None,
        agent: str | None = None,
        session: str | None = None,
        tags: Sequence[str] = (),
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        dry_run: bool = False,
        confirm: bool = False,
        force: bool = False,
        reading: Progress | None = None,
        progress: Progress | None = None,
    ) -> Report:
        """Mirror folders and files: their words can be searched at once, their vectors follow with `progress`.

        `include` and `exclude` are patterns as in `.gitignore` that narrow what this run looks at. `dry_run` reports
        without storing, `confirm` removes even when a large part of the files has vanished, `force` takes a whole home.
        """
        self._refuse_scoped()
        named = [paths] if isinstance(paths, str | Path) else list(paths)
        whose = self._scope(scope, user, agent, session)
        marks = clean_names("tags", tags)
        telling = IndexOptions(whose, marks, tuple(include), tuple(exclude), force, confirm)
        return self._mirroring.index(named, telling, Showing(dry_run, reading, progress))

    @traced("index", indexed)
    def reindex(
        self,
        paths: Sequence[str] = (),
        *,
        new: Sequence[str] = (),
        dry_run: bool = False,
        reading: Progress | None = None,
        progress: Progress | None = None,
    ) -> Report:
        """Mirror folders again, all that are known or these, each for the scope and with the flags of the last time.

        `new` are folders that may be mirrored though they never were: for this memory's scope.
        """
        self._refuse_scoped()
        wanted = list(paths) or list(dict.fromkeys([*new, *self.store.files.roots()]))
        return self._mirroring.again(wanted, new, self.scope, Showing(dry_run, reading, progress))

    def ingest_files(
        self,
        workspace: str | Path | None = None,
        *,
        paths: Sequence[str] | None = None,
        mode: str = "run",
        progress: Progress | None = None,
    ) -> Extraction:
        """Let the language model of `[llm]` make facts of files. "plan" stores nothing, "dry-run" sends nothing."""
        self._refuse_scoped()
        job = Job(workspace, paths, mode, self.scope)
        return extract(self.store, self.embeddings, self.settings, job, progress)

    def export(self, file: str | Path = "-", *, progress: Progress | None = None) -> Moved:
        """Write all that the store holds as JSON lines, zipped where the name ends with .gz; `-` is standard output."""
        self._refuse_scoped("stores are exported", "export")
        return export(self.store, file, steps=lambda _: progress)

    def import_(
        self, file: str | Path, *, merge: bool = False, with_folders: bool = False, progress: Progress | None = None
    ) -> Moved:
        """Add an export's records. `merge`: also to a store with others; `with_folders`: and all else that it holds."""
        self._refuse_scoped("stores are imported", "import")
        return import_(self.store, file, merge=merge, with_folders=with_folders, steps=lambda _: progress)

    @traced("embed", embedded)
    def embed(self, *, progress: Progress | None = None) -> int:
        """Compute every missing vector of the configured model; returns how many. Can be interrupted and run again."""
        self.store.keywords.catch_up()
        return self.embeddings.fill(progress)

    def change_language(self, language: str) -> None:
        """Make this the store's language (of the stemmer), and read the words of every record again."""
        self._refuse_scoped("the language is changed", "language")
        self.store.keywords.change_language(language)
        self.store.keywords.catch_up()

    # -- finding --------------------------------------------------------------------------------------------

    @traced("search", searched)
    @with_options
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
        work: Work | None = None,
        **options: Any,
    ) -> Answer:
        """Find the records that answer `text`, best first.

        An option that is left out or None has the value of the settings. Give filters one by one, or a `Filter` as
        `where`. `work` limits what the search may cost.
        """
        scoped = {"where": where, "scope": scope, "user": user, "agent": agent, "session": session}
        pipeline, query = self.prepare(
            text, work=work, limit=limit, fetch_k=fetch_k, sources=sources, **scoped, **options
        )
        answer = pipeline(query)
        return replace(answer, trace=replace(answer.trace, lag=self._lag(answer)))

    @traced("recall", recalled)
    def recall(self, text: str, *, tokens: int = TOKENS, **options: Any) -> Recall:
        """What `search` finds, with its options, as one cited block for a model's context within so many tokens."""
        return recall(self.search(text, **options), tokens=tokens)

    def prepare(self, text: str, *, work: Work | None = None, **options: Any) -> tuple[Pipeline, Query]:
        """The query that `search` would answer and the pipeline it would go through, for who looks inside."""
        self.store.check()
        return self._queries.prepare(text, self._queries.request(options), work)

    def why_not(self, text: str, target: str, *, work: Work | None = None, **options: Any) -> Verdict:
        """Why a record, named by id or path, is or is not in the answer to `text`, and what would bring it back.

        `options` are those of `search`; `work` limits how deep sources are read and how long it may take.
        """
        self.store.check()
        request = self._queries.request(options)
        prepare = partial(self._queries.prepare_changed, text, request, work)
        parts = filter_parts(request.filter) if options.get("where") is not None else {}
        return why_not(self.store.within(request.filter.scope), prepare, target, parts, caller=self.caller)

    def get(
        self,
        record_id: str,
        *,
        scope: Scope | Mapping[str, str] | None = None,
        user: str | None = None,
        agent: str | None = None,
        session: str | None = None,
    ) -> Record | None:
        """The record with this id, or None. Where a scope is given or set, only if it may be seen with that."""
        asking = self._scope(scope, user, agent, session)
        found = self.scoped(asking).store.records.get([parse_id(record_id)])
        if scope is None and asking == GLOBAL and self.caller is None:
            return next(iter(found), None)
        return next((record for record in found if asking.admits(record.scope)), None)

    def require(self, record_id: str) -> Record:
        """The record with this id that may be seen; an error where there is none."""
        return self._writer.require(record_id)

    def history(self, record_id: str) -> list[Event]:
        """All that happened to a record, oldest first, also to a forgotten one; behind a wall numbered from 1."""
        events = self.store.records.history(parse_id(record_id))
        if not events or not self._writer.knows(record_id):
            raise UnknownRecord(record_id)
        return visible_history(self.store.records, events, self.caller) if self.caller is not None else events

    def excerpt(self, record_id: str) -> Excerpt:
        """The file of a chunk, open at its lines; behind a wall only as it was indexed."""
        return excerpt(self.store, self._writer.require(record_id), as_indexed=self.caller is not None)

    def changes(self, quiet: float = 1.0) -> contextlib.AbstractContextManager[Iterator[bool]]:
        """Within it, True each time that something has happened that may be seen, False after each quiet while."""
        return changes(self.store, self.caller, quiet)

    def status(self) -> dict[str, Any]:
        """What the store holds, how far its indexes have read it, and which model serves."""
        return overview.status(self.store, self.caller)

    def sources(self) -> Sequence[Mapping[str, Any]]:
        """Which sources there are, and how each has been doing."""
        return overview.health(self._outside)

    def facets(self, **filters: Any) -> dict[str, Any]:
        """The categories, tags and scopes of what may be seen; scope and filters as for `list`."""
        return self.store.facets(self._queries.filter(filters))

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
        for name, value, least in (("limit", limit, 1), ("offset", offset, 0)):
            if not isinstance(value, int) or not least <= value <= MOST_LISTED:
                raise UsageError(f"{name} must be a whole number from {least}", hint=f"up to {MOST_LISTED:,}")
        scoped = {"where": where, "scope": scope, "user": user, "agent": agent, "session": session}
        return self.store.records.list(self._queries.filter({**filters, **scoped}), limit=limit, offset=offset)

    def _refuse_scoped(self, what: str = "files are mirrored", command: str = "index") -> None:
        if self.caller is not None:
            raise Forbidden(f"{what} by the owner of the store alone", hint=f"ask them to `recollect {command}`")

    def _lag(self, answer: Answer) -> dict[str, int]:
        """How far the index is behind: results whose file has changed or gone since, and records without a vector."""
        stale = sum(result.freshness in ("changed", "missing") for result in answer.results)
        where = None if self.caller is None else Filter(scope=self.caller, superseded=True)
        return {"files": stale, "vectors": self.embeddings.missing(where)}

    def _scope(
        self, scope: Scope | Mapping[str, str] | None, user: str | None, agent: str | None, session: str | None
    ) -> Scope:
        return merge_scope(self.scope, scope, {"user": user, "agent": agent, "session": session})
