"""Which embedder serves a store, and what happens when it is missing, new or changed.

The store's vectors belong to the model that made them. A newly configured model fills its own space beside the
old one; until it is complete the old one answers. A store may have come from somebody else, so its word is not enough
to open a model that sends texts somewhere or loads files from elsewhere: such a model must be named by the settings.
"""

from __future__ import annotations

import contextlib
import copy
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from recollect.config import Settings
from recollect.errors import EmbedderError, ModelMissing, RecollectError, TimedOut, UsageError
from recollect.models.embedders import is_self_contained, open_embedder
from recollect.types import (
    Embedder,
    Filter,
    Keeper,
    Progress,
    Reader,
    Scope,
    Serving,
    VectorIndex,
    VectorSpace,
    VectorSpaces,
)

if TYPE_CHECKING:
    from recollect.types import Matrix, Vector

BATCH = 64
LONGEST_NAME = 100
"""Characters of a model's name that a message shows."""

OpenEmbedder: TypeAlias = Callable[[str], Embedder]
"""A name → the embedder, or an error that says why not."""

Keep: TypeAlias = Callable[[Sequence[str]], None]
"""Keeps the vectors of these passages, of those that were embedded."""


@dataclass(slots=True)
class _Last:
    """What answered last, for all views of a store."""

    serving: Serving | None = None


@dataclass(frozen=True, slots=True)
class _Embedded:
    """Passages and their vectors, in the same order."""

    passages: Sequence[str] = ()
    vectors: Any = None

    def save(self, index: VectorIndex, wanted: Collection[str]) -> None:
        """Keep the vectors of those passages that are wanted."""
        places = [place for place, passage in enumerate(self.passages) if passage in wanted]
        if places and len(places) == len(self.passages):
            index.save(self.passages, self.vectors)
        elif places:
            index.save([self.passages[place] for place in places], self.vectors[places])


class Embedding:
    """The vector side of one store. Models are opened when first needed; one that failed is not tried again."""

    def __init__(self, spaces: VectorSpaces, wanted: str | Embedder | None, open_embedder: OpenEmbedder) -> None:
        self._spaces = spaces
        self._wanted = None if wanted in (None, "none") else wanted
        self._open = open_embedder
        self._lock = threading.Lock()
        self._opened: dict[str, Embedder | RecollectError] = {}
        self._last = _Last()
        self._caller: Scope | None = None

    def within(self, spaces: VectorSpaces, caller: Scope | None = None) -> Embedding:
        """The same, which reads the vectors of records through another view of its store.

        `caller` is the scope of a scoped caller, who must not notice the queries of others: theirs are embedded apart.
        """
        view = copy.copy(self)
        view._spaces, view._caller = spaces, caller  # noqa: SLF001  (its own kind)
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
        if self._caller is None:
            return settled
        return replace(settled, embedder=_ScopedEmbedder(settled.embedder, self._caller))

    def missing(self, where: Filter | None = None) -> int:
        """How many records (that the filter lets through) have no vector in the space that answered last."""
        settled = self._last.serving
        return settled.index.coverage(where)[1] if settled and settled.index.coverage()[1] else 0

    def vectors(self, ids: Sequence[str]) -> dict[str, Any]:
        """The vectors of records in the space that answers, where there are any; no model is opened for that."""
        active = self._spaces.active
        return self._spaces.open(active).vectors(ids) if active else {}

    def ensure(
        self, passages: Sequence[str], progress: Progress | None = None, *, seen: Collection[str] | None = None
    ) -> None:
        """See to it that passages have vectors, in the space that answers.

        A passage that has one is not embedded again. With `seen`, that holds for these passages only: the others are
        embedded even if another scope has them, so that the time it takes tells nothing about what is stored there.
        """
        serving = self.serving()
        known = serving.index.known(passages)
        new = _unspared(passages, known, seen)
        for start in range(0, len(new), BATCH):
            batch = new[start : start + BATCH]
            self._embed(serving.embedder, batch).save(serving.index, set(batch) - known)
            if progress:
                progress(start + len(batch), len(new))

    def prepare(self, passages: Sequence[str], *, seen: Collection[str] | None = None) -> Keep:
        """Embed passages as `ensure` does, and keep nothing yet: what comes back keeps the vectors of some."""
        serving = self.serving()
        known = serving.index.known(passages)
        new = _unspared(passages, known, seen)
        embedded = self._embed(serving.embedder, new) if new else _Embedded()
        return lambda wanted: embedded.save(serving.index, set(wanted) - known)

    def fill(self, progress: Progress | None = None) -> int:
        """Compute every missing vector of the wanted model, and let its space answer once none is missing."""
        wanted = self._embedder()
        space = self._space_of(wanted, self._spaces.active)
        index = self._spaces.open(space)
        total, done, last = index.coverage()[1], 0, set[str]()
        # A text that is not what was stored does not fit its hash, and stays missing: `doctor` names it.
        while (batch := index.missing(BATCH)) and set(batch) != last:
            self._embed(wanted, batch).save(index, batch)
            done, last = done + len(batch), set(batch)
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

    def _embed(self, embedder: Embedder, passages: Sequence[str]) -> _Embedded:
        with guarded(embedder):
            return _Embedded(passages, embedder.passages(passages))

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
        """The old model answers until the new one's vectors are complete, if the store's word is enough to open it."""
        name, move = shown_model(active.embedder), f"`recollect embed --embedder {wanted.name}` moves to {wanted.name}"
        another = EmbedderError(f"the store's vectors are of another {name} than today's", hint=move)
        if not is_self_contained(active.embedder):
            if active.embedder == wanted.name:
                raise another
            raise EmbedderError(unnamed_model(name), hint=_use_or_name(name, wanted))
        try:
            old = self._opened_once(active.embedder)
        except RecollectError as error:
            raise EmbedderError(
                f"the store's vectors are of {name}, which cannot be used now: {error.message}", hint=move
            ) from error
        if old.fingerprint != active.fingerprint:
            raise another
        return Serving(old, self._spaces.open(active), active, f"{name} still answers; {move}")

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


def unnamed_model(name: str) -> str:
    """Why the model that made a store's vectors is not opened: nobody but the store names it."""
    return f"the store's vectors were made by {shown_model(name)}, which your settings do not name"


def shown_model(name: str) -> str:
    """A model's name as it stands in a store, safe to show: anybody may have written it."""
    shown = name if name.isprintable() else ascii(name)
    return shown if len(shown) <= LONGEST_NAME else f"{shown[:LONGEST_NAME]}…"


def _use_or_name(name: str, wanted: Embedder) -> str:
    return f'`recollect embed` computes vectors with {wanted.name}; to use {name}, set embedder = "{name}" yourself'


def _unspared(passages: Sequence[str], known: Collection[str], seen: Collection[str] | None) -> list[str]:
    """The passages that are to be embedded: all but those that are known, and seen where that is asked for."""
    return [
        passage
        for passage in dict.fromkeys(passages)
        if passage not in known or (seen is not None and passage not in seen)
    ]


@dataclass(frozen=True, slots=True)
class _ScopedEmbedder:
    """An embedder for the callers of one scope: a query that others have asked is embedded again for them."""

    inner: Embedder
    scope: Scope

    @property
    def name(self) -> str:
        """The name that opens it again."""
        return self.inner.name

    @property
    def fingerprint(self) -> str:
        """Changes whenever the vectors of the same text would."""
        return self.inner.fingerprint

    def passages(self, texts: Sequence[str]) -> Matrix:
        """One unit vector a text, in order."""
        return self.inner.passages(texts)

    def query(self, text: str) -> Vector:
        """The unit vector of a query; an embedder that keeps some keeps them apart for each scope."""
        return self.inner.query_of(self.scope.key, text) if isinstance(self.inner, Keeper) else self.inner.query(text)

    def legibility(self, text: str) -> float:
        """How well it reads a text; one that cannot tell is taken to read all."""
        return self.inner.legibility(text) if isinstance(self.inner, Reader) else 1.0


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
