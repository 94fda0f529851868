"""The vectors of a store: which embedder serves it, and what happens when that is missing, new or changed.

A store's vectors belong to the model that made them. A newly configured model fills a vector space of its own; until
that is complete, the old model answers. A store may come from somebody else, so a model that sends text over the
network or loads unpinned files is opened only if the settings name it, never because the store does.
"""

from __future__ import annotations

import contextlib
import copy
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from recollect.errors import EmbedderError, ModelMissing, RecollectError, TimedOut, UsageError
from recollect.models.embedders import is_self_contained
from recollect.types import (
    ActiveSpace,
    CachingEmbedder,
    Embedder,
    Filter,
    LegibilityEmbedder,
    Progress,
    Scope,
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
"""Opens an embedder by name, or raises an error that says why it cannot."""


@dataclass(slots=True)
class _Current:
    """What answered last, shared by all views of a store."""

    serving: ActiveSpace | None = None


class Embeddings:
    """The vectors of one store. Models are opened when first needed; one that failed to open is not tried again."""

    def __init__(self, spaces: VectorSpaces, embedder: str | Embedder | None, open_embedder: OpenEmbedder) -> None:
        self._spaces = spaces
        self._configured = None if embedder in (None, "none") else embedder
        self._open = open_embedder
        self._lock = threading.Lock()
        self._opened: dict[str, Embedder | RecollectError] = {}
        self._current = _Current()
        self._caller: Scope | None = None

    def within(self, spaces: VectorSpaces, caller: Scope | None = None) -> Embeddings:
        """The same embeddings, reading vectors through another view of the store.

        A scoped `caller` must not notice the queries of others, so its queries are embedded and cached apart.
        """
        view = copy.copy(self)
        view._spaces, view._caller = spaces, caller  # noqa: SLF001  (its own kind)
        return view

    @property
    def configured(self) -> bool:
        """Whether there is an embedder at all."""
        return self._configured is not None

    def serving(self, deadline: float | None = None) -> ActiveSpace:
        """The model and index that answer now: the configured model if its space is active, else the active space's.

        One caller at a time opens a model; the others wait for it until their deadline, a time of `time.monotonic`.
        """
        with self._turn(deadline):
            active = self._spaces.active
            current = self._current.serving
            if current is None or active is None or active.fingerprint != current.space.fingerprint:
                current = self._current.serving = self._choose(active)
        if self._caller is None:
            return current
        return replace(current, embedder=_ScopedEmbedder(current.embedder, self._caller))

    def missing(self, where: Filter | None = None) -> int:
        """How many records (that pass the filter) have no vector in the space that answered last."""
        current = self._current.serving
        return current.index.coverage(where)[1] if current and current.index.coverage()[1] else 0

    def vectors(self, ids: Sequence[str]) -> dict[str, Any]:
        """The vectors of these records in the active space, for those that have one. Opens no model."""
        active = self._spaces.active
        return self._spaces.open(active).vectors(ids) if active else {}

    def ensure(
        self, passages: Sequence[str], progress: Progress | None = None, *, visible: Collection[str] | None = None
    ) -> None:
        """Compute and save the vectors that these passages lack in the active space.

        With `visible`, a stored passage that is not among them is embedded all the same (and not saved twice): the
        time that takes must not tell a scoped caller what other scopes have stored.
        """
        serving, known, new = self._plan(passages, visible)
        for start in range(0, len(new), BATCH):
            batch = new[start : start + BATCH]
            _save(serving.index, batch, _embed(serving.embedder, batch), set(batch) - known)
            if progress:
                progress(start + len(batch), len(new))

    def prepare(
        self, passages: Sequence[str], *, visible: Collection[str] | None = None
    ) -> Callable[[Sequence[str]], None]:
        """Embed passages as `ensure` does without saving; returns a function that saves the vectors of some of them."""
        serving, known, new = self._plan(passages, visible)
        vectors = _embed(serving.embedder, new) if new else None
        return lambda stored: _save(serving.index, new, vectors, set(stored) - known)

    def fill(self, progress: Progress | None = None) -> int:
        """Compute every missing vector of the configured model, then make its space the active one."""
        embedder = self._embedder()
        space = self._space_of(embedder, self._spaces.active)
        index = self._spaces.open(space)
        total, done, last = index.coverage()[1], 0, set[str]()
        # A passage that does not match its stored hash stays missing (`doctor` reports it), so stop when none is new.
        while (batch := index.missing(BATCH)) and set(batch) != last:
            _save(index, batch, _embed(embedder, batch), batch)
            done, last = done + len(batch), set(batch)
            if progress:
                progress(min(done, total), total)
        self._spaces.activate(space)
        return done

    def _plan(
        self, passages: Sequence[str], visible: Collection[str] | None
    ) -> tuple[ActiveSpace, set[str], list[str]]:
        """What serves, the passages that have a vector, and those to embed."""
        serving = self.serving()
        known = set(serving.index.known(passages))
        spared = known if visible is None else known & set(visible)
        return serving, known, [passage for passage in dict.fromkeys(passages) if passage not in spared]

    @contextlib.contextmanager
    def _turn(self, deadline: float | None) -> Iterator[None]:
        wait = -1.0 if deadline is None else max(0.0, deadline - time.monotonic())
        if not self._lock.acquire(timeout=wait):
            raise TimedOut("the model was not ready in time")
        try:
            yield
        finally:
            self._lock.release()

    def _choose(self, active: VectorSpace | None) -> ActiveSpace:
        embedder = self._embedder()
        if active is not None and active.fingerprint != embedder.fingerprint:
            if self._spaces.open(active).coverage()[0]:
                return self._serve_old(active, embedder)
            active = None
        space = self._space_of(embedder, active)
        if active is None:
            self._spaces.activate(space)
        return ActiveSpace(embedder, self._spaces.open(space), space)

    def _serve_old(self, active: VectorSpace, embedder: Embedder) -> ActiveSpace:
        """Let the old model answer until the new one's vectors are complete, if the store may name it."""
        name, move = (
            model_label(active.embedder),
            f"`recollect embed --embedder {embedder.name}` moves to {embedder.name}",
        )
        changed = EmbedderError(f"the store's vectors were made by another version of {name}", hint=move)
        if not is_self_contained(active.embedder):
            if active.embedder == embedder.name:
                raise changed
            hint = f'`recollect embed` computes vectors with {embedder.name}; to use {name}, set embedder = "{name}"'
            raise EmbedderError(unconfigured_model(name), hint=hint)
        try:
            old = self._opened_once(active.embedder)
        except RecollectError as error:
            message = f"the store's vectors were made by {name}, which cannot be used now: {error.message}"
            raise EmbedderError(message, hint=move) from error
        if old.fingerprint != active.fingerprint:
            raise changed
        return ActiveSpace(old, self._spaces.open(active), active, f"{name} still answers; {move}")

    def _space_of(self, embedder: Embedder, active: VectorSpace | None) -> VectorSpace:
        if active is not None and active.fingerprint == embedder.fingerprint:
            return active
        with errors_of(embedder):
            dimension = embedder.query("How long is a vector?").shape[0]
        return VectorSpace(embedder.fingerprint, embedder.name, dimension)

    def _embedder(self) -> Embedder:
        if self._configured is None:
            raise UsageError("no embedder is configured", hint="set one: --embedder arctic-embed-s")
        return self._opened_once(self._configured) if isinstance(self._configured, str) else self._configured

    def _opened_once(self, name: str) -> Embedder:
        # A missing model is looked for again: it may have been fetched meanwhile.
        if name not in self._opened or isinstance(self._opened[name], ModelMissing):
            try:
                self._opened[name] = self._open(name)
            except RecollectError as error:
                self._opened[name] = error
        opened = self._opened[name]
        if isinstance(opened, RecollectError):
            raise opened
        return opened


def _embed(embedder: Embedder, passages: Sequence[str]) -> Matrix:
    with errors_of(embedder):
        return embedder.passages(passages)


def _save(index: VectorIndex, passages: Sequence[str], vectors: Any, wanted: Collection[str]) -> None:
    """Save the vectors of those passages that are wanted."""
    rows = [row for row, passage in enumerate(passages) if passage in wanted]
    if rows:
        index.save([passages[row] for row in rows], vectors if len(rows) == len(passages) else vectors[rows])


def vector_status(spaces: VectorSpaces, records: int, where: Filter | None) -> dict[str, Any]:
    """The model of the active space, and how many of the records (that pass the filter) have a vector.

    With a filter, which is a scoped caller's, only the model and the number of records without a vector.
    """
    active = spaces.active
    covered, missing = spaces.open(active).coverage(where) if active else (0, records)
    model = {"embedder": active.embedder if active else None}
    if where is not None:
        return {**model, "without": missing}
    return {**model, **({"dimension": active.dimension} if active else {}), "with": covered, "without": missing}


def unconfigured_model(name: str) -> str:
    """The message for a model that made a store's vectors and is not opened, because only the store names it."""
    return f"the store's vectors were made by {model_label(name)}, which your settings do not name"


def model_label(name: str) -> str:
    """A model's name from a store, safe to print: anybody may have written it."""
    label = name if name.isprintable() else ascii(name)
    return label if len(label) <= LONGEST_NAME else f"{label[:LONGEST_NAME]}…"


@dataclass(frozen=True, slots=True)
class _ScopedEmbedder:
    """An embedder for the callers of one scope: a cached query vector of other callers is not reused for them."""

    inner: Embedder
    scope: Scope

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    def passages(self, texts: Sequence[str]) -> Matrix:
        return self.inner.passages(texts)

    def query(self, text: str) -> Vector:
        return (
            self.inner.query_of(self.scope.key, text)
            if isinstance(self.inner, CachingEmbedder)
            else self.inner.query(text)
        )

    def legibility(self, text: str) -> float:
        return self.inner.legibility(text) if isinstance(self.inner, LegibilityEmbedder) else 1.0


@contextlib.contextmanager
def errors_of(embedder: Embedder) -> Iterator[None]:
    """Turn whatever an embedder raises, which may be third-party code, into an `EmbedderError`."""
    try:
        yield
    except RecollectError:
        raise
    except Exception as error:
        raise EmbedderError(f"{embedder.name} failed: {type(error).__name__}: {error}") from error
