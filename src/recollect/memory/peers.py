"""Another Recollect as a source: by its HTTP API, or by its file, which is opened beside ours when first asked."""

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
from recollect.types import Asked, Store, System

if TYPE_CHECKING:
    from recollect.memory.memory import Memory

PATIENCE_S = 0.2

_log = logging.getLogger("recollect")

BODY = {"query": "{query}", "limit": "{fetch_k}", "scope": "{scope}"}


@dataclass(slots=True)
class Peer:
    """A store of another file, searched as its own owner would, with the scope of the question."""

    said: SourceSettings
    settings: Settings
    _memory: Memory | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @staticmethod
    def of(said: SourceSettings, settings: Settings) -> System:
        """The peer that a table of `[[sources]]` names."""
        if "store" in said.options:
            return Peer(said, settings)
        from recollect.sources.transports import HttpSystem

        url = f"{said.options['url'].rstrip('/')}/v1/search"
        asking = {**said.options, "url": url, "method": "POST", "body": BODY}
        return HttpSystem(replace(said, options=asking))

    def ask(self, asked: Asked) -> Any:
        """Its answer, in the shape that every Recollect gives."""
        left_ms = max(1.0, asked.seconds_left * 1000)
        try:
            answer = self._open().search(asked.text, limit=asked.fetch_k, scope=asked.scope, budget_ms=left_ms)
        except SearchFailed as error:
            if asked.seconds_left > 0:
                raise
            raise TimedOut(f"none of its own sources answered in time: {error.message}") from error
        return answer_dict(answer)

    def close(self) -> None:
        """Close its file, unless somebody still waits to open it: what is not open need not be closed."""
        if self._lock.acquire(timeout=PATIENCE_S):
            try:
                memory, self._memory = self._memory, None
            finally:
                self._lock.release()
            if memory is not None:
                memory.close()

    def _open(self) -> Memory:
        with self._lock:
            if self._memory is None:
                place = self.said.options["store"]
                if not exists(place):
                    raise SourceFailed(
                        f"there is no store at {shown_place(place)}", hint="check `store` in its table of [[sources]]"
                    )
                self._memory = self._opened(place if "://" in place else str(Path(place).expanduser()))
            return self._memory

    def _opened(self, place: str) -> Memory:
        """It is asked for its own best answer, and nothing is written to it."""
        from recollect.memory.memory import Memory

        store = open_store(place, read_only=True)
        embedder = self.said.options.get("embedder") or self._model_of(store)
        return Memory(store, Settings(openai=self.settings.openai), embedder, announce=_log.debug)

    def _model_of(self, store: Store) -> str:
        """The model of the store's own vectors, where its word is enough to open that; else `none`: keywords only."""
        active = store.spaces.active
        if active is None:
            return "none"
        if active.embedder == self.settings.embedder or is_self_contained(active.embedder):
            return active.embedder
        _log.warning(
            "the source %r is searched by keywords: %s; name it as `embedder` in its table of [[sources]] to use it",
            self.said.name, unconfigured_model(active.embedder),
        )  # fmt: skip
        return "none"
