"""`Memory`: the public interface to a store, for applications, the command line and servers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from recollect import config
from recollect.config import Settings
from recollect.errors import Unreachable, UsageError
from recollect.memory.asking import read_query
from recollect.memory.assembly import ExternalSources, Rerankers, Threads, assemble, logger, with_options
from recollect.memory.closeness import ClosenessOf
from recollect.memory.embeddings import Embeddings, rest_of
from recollect.memory.importing import Importer
from recollect.memory.naming import MOST_LISTED
from recollect.memory.spans import embedded, indexed, recalled, searched, traced
from recollect.memory.validation import FILTER_ARGUMENTS, clean_names, make_filter, merge_scope, trusting, with_left_out
from recollect.memory.watching import changes
from recollect.models.catalogue import DEFAULT
from recollect.models.embedders import check_embedder, open_embedder
from recollect.models.rerankers import open_reranker
from recollect.options import RECALL_TOKENS
from recollect.pipeline import Pipeline
from recollect.stores import open_store
from recollect.types import GLOBAL, Answer, Embedder, Filter, Progress, Provenance, Query, Record, Scope, Store, Work

if TYPE_CHECKING:
    from recollect.ingest.folder import Report
    from recollect.memory.explain import Verdict
    from recollect.memory.folders import Extraction
    from recollect.memory.originals import Excerpt
    from recollect.memory.recall import Recall
    from recollect.moving import Moved
    from recollect.moving.backups import SavedBackup


class Memory(Importer):
    """A store of records that can be searched. Create one with `Memory.open`.

    Example::

        with Memory.open("notes.db") as memory:
            memory.add("The spare key is under the blue pot.", tags=["home"])
            for result in memory.search("how do I get in?").results:
                print(result.score, result.record.text)

    A memory can be used by several threads, and several processes can open the same store. Errors are subclasses of
    `RecollectError`: `UsageError` for wrong arguments, `StoreError` for a store that cannot be read or written.
    Functions given as `progress` are called with the number of items that are done and their total.

    `scope` is used where a call names none. `caller` is None for the owner of the store, who may name any scope; for a
    scoped caller (see `within`) it is the one scope that the caller is bound to.
    """

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
        self.announce = announce
        self.scope = settings.scope.scope()
        self.caller = None
        self.provenance = Provenance()
        self.store = store = store.within(self.scope) if self.scope != GLOBAL else store
        opening: dict[str, Any] = {"announce": announce, "progress": fetching, "fetch": fetch}
        open_model = partial(open_embedder, settings=settings, **opening)
        self.embeddings = Embeddings(store.spaces, embedder, open_model, partial(rest_of, store))
        self.executor = Threads()
        self.external = ExternalSources(settings, store)
        self.closeness = ClosenessOf(store)
        self.rerankers = Rerankers(store, self.executor, partial(open_reranker, **opening), announce)

    @classmethod
    def open(
        cls,
        store: str | Path | None = None,
        *,
        embedder: str | Embedder | None = None,
        settings: Settings | None = None,
        language: str | None = None,
        announce: Callable[[str], None] | None = None,
        fetching: Progress | None = None,
        fetch: bool = True,
    ) -> Self:
        """Open a store, and create it if it does not exist.

        Args:
            store: A file, `:memory:` for a store that is gone when it is closed, or the URL of a server. By default
                the store of the settings, or `memory.db` in the user's data folder.
            embedder: The name of a model, an object with the methods of `Embedder`, or "none" for keyword search only.
            settings: By default those of the settings files and the environment.
            language: The language of a new store, for its stemmer. An existing store keeps its own.
            announce: Receives messages, for example that vectors are missing. By default they are logged as warnings.
            fetching: Receives the progress of fetching a model.
            fetch: Whether to fetch a model that is not on this machine. Without it, records are stored without vectors.

        Raises:
            UsageError: The embedder is unknown, or the store has another language.
            StoreError: The store cannot be opened.
        """
        announce = announce or logger().warning
        if settings is None:
            loaded = config.load()
            for note in loaded.notes:
                announce(note)
            settings = loaded.settings
        embedder = settings.embedder if embedder is None else embedder
        check_embedder(embedder)
        chosen = language or settings.language
        opened = open_store(str(store or settings.place), language=chosen)
        with contextlib.ExitStack() as stack:
            stack.callback(opened.close)
            actual = opened.keywords.analyzer.language
            if language and language != actual:
                change = f"Memory.change_language({language!r}) or `recollect language {language}` changes it"
                hint = f"leave the language out; {change}"
                raise UsageError(f"the store's language is {actual}, not {language}", hint=hint)
            if chosen and chosen != actual:
                change = f"`recollect language {chosen}` changes it"
                announce(f"the settings say language = {chosen!r}, and the store keeps its own, {actual}; {change}")
            memory = cls(opened, settings, embedder, announce=announce, fetching=fetching, fetch=fetch)
            stack.pop_all()
            return memory

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store and stop all threads. Calling it twice is harmless."""
        self.executor.shutdown(wait=True)
        self.external.close()
        self.rerankers.close()
        self.store.close()

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
        embed: bool = True,
        reading: Progress | None = None,
        progress: Progress | None = None,
    ) -> Report:
        """Index folders and files: split their text into chunks and bring the store up to date with them.

        Unchanged files are skipped, and the chunks of deleted files are removed. Only the owner of the store can index.

        Args:
            paths: Folders and files. Files that `.gitignore` and `.recollectignore` exclude are left out.
            scope: The scope of all chunks; or name its parts with `user`, `agent` and `session`.
            tags: Tags of all chunks.
            include: Patterns as in `.gitignore`; only files that match one are read.
            exclude: Patterns of files that are not read.
            dry_run: Report what would be done, and store nothing.
            confirm: Remove the chunks of missing files even if a large part of all files is missing.
            force: Allow a whole home folder.
            embed: Compute the vectors, too. Without it, keywords find the chunks, and `embed` is called later.
            reading: Receives the progress of reading, as `progress` receives that of computing vectors.
        """
        self._require_owner()
        from recollect.ingest.folder import IndexOptions
        from recollect.memory.folders import index

        paths = [paths] if isinstance(paths, str | Path) else list(paths)
        scope = merge_scope(self.scope, scope, {"user": user, "agent": agent, "session": session})
        options = IndexOptions(scope, clean_names("tags", tags), tuple(include), tuple(exclude), force, confirm)
        return index(self, [(paths, options)], dry_run=dry_run, embed=embed, reading=reading, progress=progress)

    @traced("index", indexed)
    def reindex(
        self, paths: Sequence[str] = (), *, new: Sequence[str] = (), dry_run: bool = False,
        reading: Progress | None = None, progress: Progress | None = None,
    ) -> Report:  # fmt: skip
        """Index folders again, each with the scope and the options of the last time; by default all of them.

        `new` are folders that may be indexed for the first time, for the scope of this memory.
        """
        self._require_owner()
        from recollect.memory.folders import index, indexed_folders

        folders = indexed_folders(self, paths, new)
        return index(self, folders, dry_run=dry_run, reading=reading, progress=progress)

    def ingest_files(
        self, workspace: str | Path | None = None, *, paths: Sequence[str] | None = None, mode: str = "run",
        progress: Progress | None = None,
    ) -> Extraction:  # fmt: skip
        """Let the language model of the settings (`[llm]`) extract facts from files, and store the new ones.

        Files that were read before are skipped. `workspace` is the folder of the files, `paths` are patterns in it.
        `mode` is "run", "plan" to store nothing, or "dry-run" to send nothing to the model and estimate the cost.
        """
        self._require_owner()
        from recollect.memory.folders import extract

        return extract(self, workspace=workspace, paths=paths, mode=mode, progress=progress)

    def excerpt(self, record_id: str) -> Excerpt:
        """Return the lines around a chunk in its file. A scoped caller sees only a file that is still as indexed."""
        from recollect.memory.originals import excerpt

        return excerpt(self.store, self.require(record_id), as_indexed=self.caller is not None)

    def pdf(self, record_id: str) -> bytes:
        """Return the PDF file of a chunk. A scoped caller gets only a file that is still as indexed."""
        from recollect.memory.originals import pdf

        return pdf(self.store, self.require(record_id), as_indexed=self.caller is not None)

    def image(self, record_id: str, name: str) -> tuple[bytes, str]:
        """Return an image that a chunk's file shows, from the folder that was indexed, and its media type."""
        self._require_owner("read images", "token add NAME --owner")
        from recollect.memory.originals import image

        return image(self.store, self.require(record_id), name)

    def export(self, file: str | Path = "-", *, progress: Progress | None = None) -> Moved:
        """Write everything in the store as JSON lines, compressed if the name ends in `.gz`; `-` is standard output."""
        self._require_owner("export the store", "export")
        from recollect.moving import export

        return export(self.store, file, steps=lambda _: progress)

    def import_(
        self, file: str | Path, *, merge: bool = False, trust: bool = False, with_folders: bool = False,
        progress: Progress | None = None,
    ) -> Moved:  # fmt: skip
        """Load the records of an export into this store, which must be empty unless `merge` is set.

        For an export of your own: with `trust`, records have the writers that it names, else the origin `import`; with
        `with_folders`, indexed folders and caches are loaded, too.
        """
        self._require_owner("import records", "import")
        from recollect.moving import import_

        own = {"trust": trust, "with_folders": with_folders}
        return import_(self.store, file, merge=merge, **own, steps=lambda _: progress)

    def backup(self, file: str | Path, *, force: bool = False, keep: int | None = None) -> SavedBackup:
        """Write a backup of the store and check it. In a folder it gets a dated name; the newest `keep` stay."""
        self._require_owner("back up the store", "backup")
        from recollect.moving.backups import backup

        return backup(self.store, file, force=force, keep=keep)

    @traced("embed", embedded)
    def embed(self, *, move: bool | None = None, progress: Progress | None = None) -> int:
        """Compute every missing vector of the configured model and return how many. It can be interrupted.

        If another model answers, this is announced, and the configured one answers from the end on. With `move=False`,
        and where the configured model is the default, the vectors are those of the model that answers, and it stays.
        """
        move = self.embeddings.name != DEFAULT if move is None else move
        if move and (moving := self.embeddings.move_notice()):
            self.announce(moving)
        self.store.keywords.catch_up()
        return self.embeddings.fill(progress) if move else self.embeddings.complete(progress)

    def change_language(self, language: str) -> None:
        """Change the language of the store's stemmer, and rebuild the keyword index."""
        self._require_owner("change the language", "language")
        self.store.keywords.change_language(language)
        self.store.keywords.catch_up()

    def status(self) -> dict[str, Any]:
        """Return what the store holds for this scope, how far its indexes are, and which model made its vectors."""
        where, active = self._visible(), self.store.spaces.active
        status = self.store.status() if self.caller is None else {}
        status |= {} if where is None else {"records": self.store.count(where)}
        covered, missing = self.store.spaces.open(active).coverage(where) if active else (0, status["records"]["total"])
        vectors: dict[str, Any] = {"embedder": active.embedder if active else None}
        if self.caller is None:
            vectors |= {"dimension": active.dimension, "with": covered} if active else {"with": 0}
            from recollect.ingest.recutting import outdated
            from recollect.memory.filling import filling

            vectors |= {"background": str(background)} if (background := filling(self.store)) else {}
            status |= {"outdated_files": older} if (older := sum(outdated(self.store.files).values())) else {}
        return {**status, "vectors": {**vectors, "without": missing}}

    def sources(self) -> Sequence[Mapping[str, Any]]:
        """Return the sources that a search can use, and whether each has been answering."""
        return self.external.health()

    def changes(self, quiet: float = 1.0) -> contextlib.AbstractContextManager[Iterator[bool]]:
        """Wait for changes to the store, by any process.

        The iterator yields True when something visible may have changed, False after `quiet` seconds without a change::

            with memory.changes() as ticks:
                for changed in ticks:
                    if changed:
                        refresh()
        """
        return changes(self.store, self.caller, quiet)

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
        for_model: bool = False,
        work: Work | None = None,
        **options: Any,
    ) -> Answer:
        """Find the records that answer `text`, best first.

        The answer holds the results and a trace of what was done. A source that fails is named in the trace, and the
        others answer. An option that is left out or None has the value of the settings. Give filters one by one, or a
        `Filter` as `where`. Global records are found in every scope. With `for_model`, options that are not set are
        chosen as for `recall`: only records of trusted origins are searched, results that are probably unrelated are
        left out, and the others are reranked.

        Raises:
            UsageError: An option is unknown or has a wrong value.
            SearchFailed: No source answered.
            Forbidden: A scoped caller names another scope.
        """
        named: dict[str, Any] = {"where": where, "scope": scope, "user": user, "agent": agent, "session": session}
        named |= {"limit": limit, "fetch_k": fetch_k, "sources": sources}
        pipeline, query = self.prepare(text, for_model=for_model, work=work, **named, **options)
        answer = pipeline(query)
        stale = sum(result.freshness in ("changed", "missing") for result in answer.results)
        missing = answer.trace.lag.get("vectors")  # of all records, as counted by the vector source
        with contextlib.suppress(Unreachable):  # the answer is there, only these numbers are not
            answer = with_left_out(answer, self.store) if for_model else answer
            if missing is None or (missing and self.caller is not None):
                missing = self.embeddings.missing(self._visible())
        lag = {"files": stale} | ({} if missing is None else {"vectors": missing})
        return replace(answer, trace=replace(answer.trace, lag=lag))

    @traced("recall", recalled)
    def recall(self, text: str, *, tokens: int = RECALL_TOKENS, **options: Any) -> Recall:
        """Search, and return the results as one block of text for a model's context, of at most `tokens` tokens.

        The block is marked as data, not instructions; `citations` names the records behind its numbers. Results that
        are probably unrelated are left out; if none is left, the closest is named. `options`: as for `search`, no `by`.
        """
        if "by" in options:
            raise UsageError("recall has no option 'by'", hint="its blocks are made of passages; search lists files")
        from recollect.memory.recall import recall

        return recall(self.search(text, for_model=True, **options), tokens=tokens)

    def prepare(
        self, text: str, *, for_model: bool = False, work: Work | None = None, **options: Any
    ) -> tuple[Pipeline, Query]:
        """Return the pipeline and the query that `search` would run with these options, to inspect or run them."""
        self.store.check()
        filters = {name: value for name, value in options.items() if name in FILTER_ARGUMENTS}
        named = {name: value for name, value in options.items() if name not in filters and value is not None}
        where = make_filter(filters, self.scope, self.caller)
        search = config.override(self.settings.search, named)
        if for_model:
            search = search.for_model(reranks=search.rerank is None and self.rerankers.are_ready(search.rerank_model))
            where = where if filters.get("origin") or where.origins else trusting(where, search.trusted_origins)
        request = read_query(text, where, search, caller=self.caller, for_model=for_model)
        return assemble(self, request, search, work)

    def why_not(self, text: str, target: str, *, work: Work | None = None, **options: Any) -> Verdict:
        """Explain why a record is or is not in the answer to `text`, and which change of options would bring it back.

        `target` is the id of a record or the path of a file; `options` are those of `search`. The verdict names the
        stage that dropped the record, its rank in every source, and a `change` that has been tried.
        """
        from recollect.memory.explain import why_not

        with self.store.reading():  # or a record could be gone when its rank is known
            return why_not(self, text, target, options, work)

    def get(
        self,
        record_id: str,
        *,
        scope: Scope | Mapping[str, str] | None = None,
        user: str | None = None,
        agent: str | None = None,
        session: str | None = None,
    ) -> Record | None:
        """Return the record with this id or short id, or None. It must be visible in a scope that is named or set.

        Raises `AmbiguousId` if several records have such a short id.
        """
        chosen = merge_scope(self.scope, scope, {"user": user, "agent": agent, "session": session})
        view = self.scoped(chosen)
        record = next(iter(view.store.records.get([view.resolve(record_id)])), None)
        everything = scope is None and chosen == GLOBAL and self.caller is None
        return record if record is not None and (everything or chosen.admits(record.scope)) else None

    def facets(self, **filters: Any) -> dict[str, Any]:
        """Return the categories, tags and scopes of visible records. Scope and filters are those of `list`."""
        return self.store.facets(make_filter(filters, self.scope, self.caller))

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
        """Return visible records, newest first. Scope and filters are those of `search`."""
        for name, value, least in (("limit", limit, 1), ("offset", offset, 0)):
            if not isinstance(value, int) or not least <= value <= MOST_LISTED:
                raise UsageError(f"{name} must be a whole number from {least}", hint=f"up to {MOST_LISTED:,}")
        named = {"where": where, "scope": scope, "user": user, "agent": agent, "session": session}
        visible = make_filter({**filters, **named}, self.scope, self.caller)
        return self.store.records.list(visible, limit=limit, offset=offset)

    def _visible(self) -> Filter | None:
        """The filter for all that this scope can see; None for the owner without a scope, who sees everything."""
        return None if self._limit is None else Filter(scope=self.scope, superseded=True)
