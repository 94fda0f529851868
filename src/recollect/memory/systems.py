"""The external systems of the settings as sources, and another Recollect as such a system."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from recollect.config import SYSTEMS, Settings, SourceSettings, shown_place
from recollect.errors import RecollectError, SearchFailed, SourceFailed, TimedOut, UsageError
from recollect.memory.embeddings import unconfigured_model
from recollect.memory.shapes import answer_dict, iso
from recollect.models.embedders import is_self_contained
from recollect.sources.external import FAILURES, Breaker, ExternalSource
from recollect.sources.matcher import ResultMatcher
from recollect.stores import exists, open_store
from recollect.types import ExternalQuery, ExternalSystem, Store

if TYPE_CHECKING:
    from recollect.memory.memory import Memory

CLOSE_SECONDS = 0.2
"""How long `close` waits for a store that is being opened."""

BODY = {"query": "{query}", "limit": "{fetch_k}", "scope": "{scope}"}

_log = logging.getLogger("recollect")


@runtime_checkable
class Configurable(Protocol):
    """A system that wants the settings of the memory, beside its own table of `[[sources]]`."""

    def configure(self, settings: Settings) -> None:
        """Called once, before the first query."""


def open_system(source: SourceSettings, settings: Settings) -> ExternalSystem:
    """The system of a table of `[[sources]]`. It may be third-party code: whatever it raises becomes our error."""
    try:
        system = SYSTEMS.load(source.kind)(source)
        if isinstance(system, Configurable):
            system.configure(settings)
    except RecollectError:
        raise
    except Exception as error:
        raise UsageError(
            f"the source {source.name!r} cannot be set up: {type(error).__name__}: {error}",
            hint=f"check its table, and what {source.kind!r} needs",
        ) from error
    return system


class ExternalSources:
    """The external sources of the settings by name, opened when one is first used."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings = settings
        self._store = store
        self._lock = threading.Lock()
        self._opened: dict[str, ExternalSource] | None = None

    def __getitem__(self, name: str) -> ExternalSource:
        with self._lock:
            if self._opened is None:
                self._opened = {source.name: self._open(source) for source in self._settings.sources}
        return self._opened[name]

    def close(self) -> None:
        """Close the systems that were opened. Whatever one of them raises, the others are closed."""
        for source in (self._opened or {}).values():
            with contextlib.suppress(Exception):
                source.system.close()

    def health(self) -> Sequence[dict[str, Any]]:
        """The state of each source; retrievers are available as long as the store is."""
        health: list[dict[str, Any]] = [
            {"name": name, "kind": name, "state": "ok", "failures": 0} for name in ("keyword", "vector")
        ]
        for source in self._settings.sources:
            breaker = self[source.name].breaker.state()
            resting = breaker.failures >= FAILURES and breaker.until > time.time()
            state = "resting" if resting else "failing" if breaker.failures else "ok"
            health.append({"name": source.name, "kind": source.kind, "state": state, "failures": breaker.failures})
            if breaker.failures and breaker.reason:
                health[-1]["reason"] = breaker.reason
            if resting:
                health[-1]["until"] = iso(datetime.fromtimestamp(breaker.until, UTC))
        return health

    def _open(self, source: SourceSettings) -> ExternalSource:
        matcher = ResultMatcher(source.name, source.join, self._store.records, self._store.joins)
        breaker = Breaker(source.fingerprint, self._store.notes)
        return ExternalSource(source, open_system(source, self._settings), matcher, breaker)


def open_peer(source: SourceSettings) -> ExternalSystem:
    """The system of a `[[sources]]` table of kind `recollect`: a `store` of its own, or the `url` of a server."""
    if "store" in source.options:
        return PeerStore(source)
    from recollect.sources.transports import HttpSystem

    url = f"{source.options['url'].rstrip('/')}/v1/search"
    return HttpSystem(replace(source, options={**source.options, "url": url, "method": "POST", "body": BODY}))


@dataclass(slots=True)
class PeerStore:
    """Another store, searched as its owner would search it, with the scope of the query.

    It is opened read-only when it is first queried, and never written to.
    """

    source: SourceSettings
    settings: Settings = field(default_factory=Settings)
    _memory: Memory | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def configure(self, settings: Settings) -> None:
        """Use the endpoint and the embedder of these settings."""
        self.settings = settings

    def ask(self, query: ExternalQuery) -> Any:
        """The answer as JSON."""
        left_ms = max(1.0, query.seconds_left * 1000)
        try:
            answer = self._open().search(query.text, limit=query.fetch_k, scope=query.scope, budget_ms=left_ms)
        except SearchFailed as error:
            if query.seconds_left > 0:
                raise
            raise TimedOut(f"none of its own sources answered in time: {error.message}") from error
        return answer_dict(answer)

    def close(self) -> None:
        """Close the store, if it is open."""
        if self._lock.acquire(timeout=CLOSE_SECONDS):
            try:
                memory, self._memory = self._memory, None
            finally:
                self._lock.release()
            if memory is not None:
                memory.close()

    def _open(self) -> Memory:
        from recollect.memory.memory import Memory

        with self._lock:
            if self._memory is None:
                place = self.source.options["store"]
                if not exists(place):
                    raise SourceFailed(
                        f"there is no store at {shown_place(place)}", hint="check `store` in its table of [[sources]]"
                    )
                store = open_store(place if "://" in place else str(Path(place).expanduser()), read_only=True)
                embedder = self.source.options.get("embedder") or self._embedder_of(store)
                self._memory = Memory(store, Settings(openai=self.settings.openai), embedder, announce=_log.debug)
            return self._memory

    def _embedder_of(self, store: Store) -> str:
        """The model of the store's vectors, if the store may name it; else `none`, for keyword search only."""
        active = store.spaces.active
        if active is None:
            return "none"
        if active.embedder == self.settings.embedder or is_self_contained(active.embedder):
            return active.embedder
        _log.warning(
            "the source %r is searched by keywords: %s; name it as `embedder` in its table of [[sources]] to use it",
            self.source.name, unconfigured_model(active.embedder),
        )  # fmt: skip
        return "none"
