"""Which embedder serves a store, and what happens when it is missing, new or changed.

The store's vectors belong to the model that made them. A newly configured model fills its own space beside the
old one; until it is complete the old one answers.
"""

from __future__ import annotations

import contextlib
import copy
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from recollect.config import Settings
from recollect.embedders import open_embedder
from recollect.errors import EmbedderError, ModelMissing, RecollectError, TimedOut, UsageError
from recollect.types import Embedder, Filter, Progress, Serving, VectorIndex, VectorSpace, VectorSpaces

BATCH = 64

OpenEmbedder: TypeAlias = Callable[[str], Embedder]
"""A name → the embedder, or an error that says why not."""


@dataclass(slots=True)
class _Last:
    """What answered last, for all views of a store."""

    serving: Serving | None = None


class Embedding:
    """The vector side of one store. Models are opened when first needed; one that failed is not tried again."""

    def __init__(self, spaces: VectorSpaces, wanted: str | Embedder | None, open_embedder: OpenEmbedder) -> None:
        self._spaces = spaces
        self._wanted = None if wanted in (None, "none") else wanted
        self._open = open_embedder
        self._lock = threading.Lock()
        self._opened: dict[str, Embedder | RecollectError] = {}
        self._last = _Last()

    def within(self, spaces: VectorSpaces) -> Embedding:
        """The same, which reads the vectors of records through another view of its store."""
        view = copy.copy(self)
        view._spaces = spaces  # noqa: SLF001  (its own kind)
        return view

    @property
    def configured(self) -> bool:
        """Whether there is to be an embedder at all."""
        return self._wanted is not None

    def serving(self, deadline: float | None = None) -> Serving:
        """What answers now: the wanted model if its space is active (in any process), else the model whose space is.

        One caller at a time opens a model; the others wait for it until their deadline, a time of `time.monotonic`.
        """
        with self._turn(deadline):
            active = self._spaces.active
            settled = self._last.serving
            if settled is None or active is None or active.fingerprint != settled.space.fingerprint:
                settled = self._last.serving = self._settle(active)
            return settled

    def missing(self, where: Filter | None = None) -> int:
        """How many records (that the filter lets through) have no vector in the space that answered last."""
        settled = self._last.serving
        return settled.index.coverage(where)[1] if settled and settled.index.coverage()[1] else 0

    def vectors(self, ids: Sequence[str]) -> dict[str, Any]:
        """The vectors of records in the space that answers, where there are any; no model is opened for that."""
        active = self._spaces.active
        return self._spaces.open(active).vectors(ids) if active else {}

    def ensure(self, passages: Sequence[str], progress: Progress | None = None) -> None:
        """See to it that passages have vectors, in the space that answers."""
        serving = self.serving()
        known = serving.index.known(passages)
        new = [passage for passage in dict.fromkeys(passages) if passage not in known]
        for start in range(0, len(new), BATCH):
            batch = new[start : start + BATCH]
            self._embed(serving.embedder, serving.index, batch)
            if progress:
                progress(start + len(batch), len(new))

    def fill(self, progress: Progress | None = None) -> int:
        """Compute every missing vector of the wanted model, and let its space answer once none is missing."""
        wanted = self._embedder()
        space = self._space_of(wanted, self._spaces.active)
        index = self._spaces.open(space)
        total, done = index.coverage()[1], 0
        while batch := index.missing(BATCH):
            self._embed(wanted, index, batch)
            done += len(batch)
            if progress:
                progress(min(done, total), total)
        self._spaces.activate(space)
        return done

    @contextlib.contextmanager
    def _turn(self, deadline: float | None) -> Iterator[None]:
        wait = -1.0 if deadline is None else max(0.0, deadline - time.monotonic())
        if not self._lock.acquire(timeout=wait):
            raise TimedOut("the model was not ready in time")
        try:
            yield
        finally:
            self._lock.release()

    def _embed(self, embedder: Embedder, index: VectorIndex, passages: Sequence[str]) -> None:
        with guarded(embedder):
            vectors = embedder.passages(passages)
        index.save(passages, vectors)

    def _settle(self, active: VectorSpace | None) -> Serving:
        wanted = self._embedder()
        if active is not None and active.fingerprint != wanted.fingerprint:
            if self._spaces.open(active).coverage()[0]:
                return self._serve_old(active, wanted)
            active = None
        space = self._space_of(wanted, active)
        if active is None:
            self._spaces.activate(space)
        return Serving(wanted, self._spaces.open(space), space)

    def _serve_old(self, active: VectorSpace, wanted: Embedder) -> Serving:
        """The old model answers until the new one's vectors are complete."""
        move = f"`recollect embed --embedder {wanted.name}` moves to {wanted.name}"
        try:
            old = self._opened_once(active.embedder)
        except RecollectError as error:
            raise EmbedderError(
                f"the store's vectors are of {active.embedder}, which cannot be used now: {error.message}", hint=move
            ) from error
        if old.fingerprint != active.fingerprint:
            raise EmbedderError(f"the store's vectors are of another {active.embedder} than today's", hint=move)
        return Serving(old, self._spaces.open(active), active, f"{active.embedder} still answers; {move}")

    def _space_of(self, embedder: Embedder, active: VectorSpace | None) -> VectorSpace:
        if active is not None and active.fingerprint == embedder.fingerprint:
            return active
        with guarded(embedder):
            dimension = embedder.query("How long is a vector?").shape[0]
        return VectorSpace(embedder.fingerprint, embedder.name, dimension)

    def _embedder(self) -> Embedder:
        if self._wanted is None:
            raise UsageError("no embedder is configured", hint="set one: --embedder arctic-embed-s")
        return self._opened_once(self._wanted) if isinstance(self._wanted, str) else self._wanted

    def _opened_once(self, name: str) -> Embedder:
        if name not in self._opened or isinstance(self._opened[name], ModelMissing):
            try:
                self._opened[name] = self._open(name)
            except RecollectError as error:
                self._opened[name] = error
        opened = self._opened[name]
        if isinstance(opened, RecollectError):
            raise opened
        return opened


@contextlib.contextmanager
def guarded(embedder: Embedder) -> Iterator[None]:
    """An embedder may be anybody's, so whatever it raises becomes an error of ours."""
    try:
        yield
    except RecollectError:
        raise
    except Exception as error:
        raise EmbedderError(f"{embedder.name} failed: {type(error).__name__}: {error}") from error


def opener(
    settings: Settings, announce: Callable[[str], None], fetching: Progress | None, fetch: bool = True
) -> OpenEmbedder:
    """How embedders are opened by name: with what the settings say of endpoints."""

    def open_by_name(name: str) -> Embedder:
        return open_embedder(name, announce=announce, progress=fetching, fetch=fetch, **_endpoint(settings, name))

    return open_by_name


def _endpoint(settings: Settings, name: str) -> dict[str, Any]:
    """What an endpoint is told beside its model's name; a key is read from the environment only when it is needed."""
    kind = name.partition(":")[0]
    if kind not in ("openai", "ollama"):
        return {}
    said = settings.openai
    options = {
        "base_url": said.base_url,
        # A key is for the server it was made for; a local Ollama has no use for it.
        "api_key": os.environ.get(said.api_key_env) if kind == "openai" else None,
        "dimensions": said.dimensions,
        "query_prefix": said.query_prefix,
        "passage_prefix": said.passage_prefix,
        "timeout": said.timeout,
        "retries": said.retries,
    }
    return {name: value for name, value in options.items() if value is not None}
