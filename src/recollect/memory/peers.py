"""Another Recollect as an external source: by its HTTP API, or by its store, opened read-only when first queried."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect.config import Settings, SourceSettings, shown_place
from recollect.errors import SearchFailed, SourceFailed, TimedOut
from recollect.memory.embeddings import unconfigured_model
from recollect.memory.shapes import answer_dict
from recollect.models.embedders import is_self_contained
from recollect.stores import exists, open_store
from recollect.types import ExternalQuery, ExternalSystem, Store

if TYPE_CHECKING:
    from recollect.memory.memory import Memory

CLOSE_SECONDS = 0.2
"""How long `close` waits for a store that is being opened."""

BODY = {"query": "{query}", "limit": "{fetch_k}", "scope": "{scope}"}

_log = logging.getLogger("recollect")


def open_peer(source: SourceSettings) -> ExternalSystem:
    """The system of a `[[sources]]` table of kind `recollect`: a `store` of its own, or the `url` of a server."""
    if "store" in source.options:
        return PeerStore(source)
    from recollect.sources.transports import HttpSystem

    url = f"{source.options['url'].rstrip('/')}/v1/search"
    return HttpSystem(replace(source, options={**source.options, "url": url, "method": "POST", "body": BODY}))


@dataclass(slots=True)
class PeerStore:
    """Another store, searched as its owner would search it, with the scope of the query. It is never written to."""

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
