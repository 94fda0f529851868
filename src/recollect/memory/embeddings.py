"""The vectors of a store: which embedder serves it, and what happens when that is missing, new or changed.

A store's vectors belong to the model that made them. A newly configured model fills a vector space of its own; until
that is complete, the old model answers. A store may come from somebody else, so a model that sends text over the
network or loads unpinned files is opened only if the settings name it, never because the store does.
"""

from __future__ import annotations

import contextlib
import copy
import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from recollect.errors import EmbedderError, ModelMissing, RecollectError, TimedOut, UsageError, errors_as
from recollect.models.catalogue import DEFAULT
from recollect.models.embedders import is_self_contained
from recollect.types import (
    ActiveSpace,
    Change,
    Embedder,
    Filter,
    Matrix,
    Progress,
    Scope,
    Store,
    Vector,
    VectorSpace,
    VectorSpaces,
)

BATCH, MOST_BATCH = 64, 512  # passages saved at once: few at first, more while they take less than half a second
BATCH_SECONDS = 0.5
PATIENCE_S = 0.25  # how long records that are being added may wait for their vectors before they are stored
LOOK_S = 0.001  # a vector that takes less time is computed without a look whether the store has it
LONGEST_NAME = 100  # characters of a model's name that a message shows

_Model = TypeVar("_Model")


class OpenedModels(Generic[_Model]):
    """Models by name, each opened when first needed. One that failed to open is not tried again.

    Only a model that is not on this machine is looked for again: it may have been fetched meanwhile.
    """

    def __init__(self, open_model: Callable[[str], _Model]) -> None:
        self._open = open_model
        self._opened: dict[str, _Model | RecollectError] = {}

    def __getitem__(self, name: str) -> _Model:
        if name not in self._opened or isinstance(self._opened[name], ModelMissing):
            try:
                self._opened[name] = self._open(name)
            except RecollectError as error:
                self._opened[name] = error
        opened = self._opened[name]
        if isinstance(opened, RecollectError):
            raise opened
        return opened

    def __iter__(self) -> Iterator[_Model]:
        """The models that are open."""
        return (model for model in list(self._opened.values()) if not isinstance(model, RecollectError))


class Embeddings:
    """The vectors of one store, and the models that make them."""

    def __init__(
        self,
        spaces: VectorSpaces,
        embedder: str | Embedder | None,
        open_embedder: Callable[[str], Embedder],
        rest: Callable[[], str] | None = None,
    ) -> None:
        self._spaces = spaces
        self._name_or_model = embedder
        self.configured = embedder not in (None, "none")
        self._models = OpenedModels(open_embedder)
        self._rest = rest
        self._lock = threading.Lock()
        self._last: list[ActiveSpace] = []  # what answered last, if anything did; shared by all views
        self._pace = [math.inf]  # seconds that a passage took the last time; shared by all views
        self._caller: Scope | None = None

    @property
    def name(self) -> str:
        """The name of the configured embedder, as stores have it; it is not opened for this."""
        model = self._name_or_model
        if model == "hashing":
            from recollect.models.hashing import DEFAULT_DIMENSION

            return f"{model}:{DEFAULT_DIMENSION}"
        return model if isinstance(model, str) else model.name if model else "none"

    @property
    def redacted(self) -> int:
        """How many secrets in texts were replaced since the models were opened, before the texts were sent."""
        return sum(getattr(model, "redacted", 0) for model in (*self._models, self._name_or_model))

    def within(self, spaces: VectorSpaces, caller: Scope | None = None) -> Embeddings:
        """The same embeddings, reading vectors through another view of the store.

        A scoped `caller` must not notice the queries of others, so its queries are embedded and cached apart.
        """
        view = copy.copy(self)
        view._spaces, view._caller = spaces, caller  # noqa: SLF001  (its own kind)
        return view

    def serving(self, deadline: float | None = None) -> ActiveSpace:
        """The model and index that answer now: the configured model if its space is active, else the active space's.

        One caller at a time opens a model; the others wait for it until their deadline, a time of `time.monotonic`.
        """
        if not self._lock.acquire(timeout=-1.0 if deadline is None else max(0.0, deadline - time.monotonic())):
            raise TimedOut("the model was not ready in time")
        try:
            active = self._spaces.active
            if not self._last or active is None or active.fingerprint != self._last[0].space.fingerprint:
                self._last[:] = [replace(self._choose(active), rest=self._rest)]
            current = self._last[0]
        finally:
            self._lock.release()
        if self._caller is None:
            return current
        return replace(current, embedder=_ScopedEmbedder(current.embedder, self._caller), rest=None)

    def missing(self, where: Filter | None = None) -> int:
        """How many records (that pass the filter) have no vector in the space that answered last."""
        return sum(last.index.coverage(where)[1] for last in self._last if last.index.coverage()[1])

    def vectors(self, ids: Sequence[str]) -> dict[str, Any]:
        """The vectors of these records in the active space, as far as there are any. Opens no model."""
        with contextlib.suppress(RecollectError):
            if self.configured and (active := self._spaces.active):
                return self._spaces.open(active).vectors(ids)
        return {}

    def ahead(
        self, passages: Sequence[str], *, visible: Collection[str] | None = None
    ) -> tuple[list[str], list[Change]]:
        """Compute the vectors that a few new passages lack, before their records are stored.

        Returns the passages that were embedded and the changes that store their vectors, which the store refuses with
        `Overtaken` if another space answers by then. There are none if computing them may take long, judged by the last
        time: then the records are stored first, and `ensure` follows. So they are where the index cannot store vectors
        in the transaction of their records.
        """
        pace = self._pace[0]
        if not self._last or not 0 < len(passages) <= BATCH or len(passages) * pace > PATIENCE_S:
            return [], []
        last = self._last[0]
        if (saving := getattr(last.index, "saving", None)) is None:
            return [], []
        known = set(last.index.known(passages)) if pace > LOOK_S else set()
        spared = known if visible is None else known.intersection(visible)
        new = [passage for passage in dict.fromkeys(passages) if passage not in spared]
        return new, [saving(new, self._embed(last, new))] if new else []

    def ensure(
        self,
        passages: Sequence[str],
        progress: Progress | None,
        *,
        visible: Collection[str] | None = None,
        ahead: bool = False,
    ) -> int:
        """Compute and save the vectors that these passages lack in the active space; return how many.

        With `visible`, a stored passage that is not among them is embedded all the same (and not saved twice). With
        `ahead`, the records of the passages are stored later.
        """
        serving = self.serving()
        known = set(serving.index.known(passages))
        spared = known if visible is None else known.intersection(visible)
        new = [passage for passage in dict.fromkeys(passages) if passage not in spared]
        done, size = 0, BATCH
        while batch := new[done : done + size]:
            vectors = self._embed(serving, batch)
            rows = [row for row, passage in enumerate(batch) if passage not in known]
            if rows:
                serving.index.save([batch[row] for row in rows], vectors[rows], ahead=ahead)
            done += len(batch)
            if self._pace[0] * size < BATCH_SECONDS:
                size = min(2 * size, MOST_BATCH)
            if progress:
                progress(done, len(new))
        return done

    def _embed(self, serving: ActiveSpace, passages: Sequence[str]) -> Matrix:
        start, pace = time.monotonic(), math.inf  # if the model fails
        try:
            vectors = serving.embed(passages)
            pace = (time.monotonic() - start) / len(passages)
        finally:
            self._pace[0] = pace
        return vectors

    def is_active(self) -> bool:
        """Whether the vectors of the configured model are those that answer."""
        active = self._spaces.active
        return active is not None and active.fingerprint == self._embedder().fingerprint

    def move_notice(self) -> str | None:
        """The move to another model that `fill` ends with, in words. Opens no model."""
        if (old := self._other_model()) is None:
            return None
        moves = f"searches move from {old} to {self.name} when its vectors are complete"
        return f"{moves}; `recollect migrate --embedder {self.name} --evaluate` instead compares the two first"

    def stay_notice(self) -> str | None:
        """That the store keeps a model which is not the configured one, in words. Opens no model.

        The default is no choice of the user's: a store keeps its model without a word.
        """
        if self.name == DEFAULT or (old := self._other_model()) is None:
            return None
        ways = f"`recollect migrate --embedder {self.name} --evaluate` compares and switches"
        return f"the store keeps its model {old}, the settings name {self.name}: {ways}"

    def _other_model(self) -> str | None:
        """The model that answers, if it has vectors and is not the configured one."""
        active = self._spaces.active
        if active is None or active.embedder == self.name or not self._spaces.open(active).coverage()[0]:
            return None
        return model_label(active.embedder)

    def missing_count(self) -> int:
        """How many records have no vector of the model that answers."""
        return self.serving().index.coverage()[1]

    def complete(self, progress: Progress | None = None) -> int:
        """Compute every missing vector of the model that answers; if another one answers meanwhile, its vectors too."""
        done, space = 0, None
        while space != (serving := self.serving()).space:
            space = serving.space
            done += _fill(serving, progress)
        return done

    def fill(self, progress: Progress | None = None, *, activate: bool = True) -> int:
        """Compute every missing vector of the configured model, and then, with `activate`, let its space answer."""
        embedder = self._embedder()
        space = _space_of(embedder, self._spaces.active)
        active = self._spaces.active  # read again: the model may have been loaded meanwhile, which takes seconds
        if activate and (active is None or not self._spaces.open(active).coverage()[0]):
            self._spaces.activate(space)  # no other model answers meanwhile
        done = _fill(ActiveSpace(embedder, self._spaces.open(space), space), progress)
        if activate:
            self._spaces.activate(space)
        return done

    def _choose(self, active: VectorSpace | None) -> ActiveSpace:
        if active is not None and self._other_model() and is_self_contained(active.embedder):
            return self._serve_old(active)  # the configured one need not be on this machine
        embedder = self._embedder()
        if active is not None and active.fingerprint != embedder.fingerprint:
            if self._spaces.open(active).coverage()[0]:
                return self._serve_old(active)
            active = None
        space = _space_of(embedder, active)
        if active is None:
            self._spaces.activate(space)
        return ActiveSpace(embedder, self._spaces.open(space), space)

    def _serve_old(self, active: VectorSpace) -> ActiveSpace:
        """Let the old model answer until the new one's vectors are complete, if the store may name it."""
        name = model_label(active.embedder)
        move = f"`recollect embed --embedder {self.name}` moves to {self.name}"
        changed = EmbedderError(f"the store's vectors were made by another version of {name}", hint=move)
        if not is_self_contained(active.embedder):
            if active.embedder == self.name:
                raise changed
            hint = f'{move}; to use {name}, set embedder = "{name}"'
            raise EmbedderError(unconfigured_model(name), hint=hint)
        try:
            old = self._models[active.embedder]
        except RecollectError as error:
            message = f"the store's vectors were made by {name}, which cannot be used now: {error.message}"
            raise EmbedderError(message, hint="; ".join(filter(None, (error.hint, move)))) from error
        if old.fingerprint != active.fingerprint:
            raise changed
        warning = "" if self.name == DEFAULT else f"{name} still answers; {move}"
        return ActiveSpace(old, self._spaces.open(active), active, warning)

    def _embedder(self) -> Embedder:
        model = self._name_or_model
        if model is None or model == "none":
            raise UsageError("no embedder is configured", hint=f"set one: --embedder {DEFAULT}")
        return self._models[model] if isinstance(model, str) else model


def _fill(serving: ActiveSpace, progress: Progress | None) -> int:
    """Compute the missing vectors of an index and return how many."""
    index = serving.index
    total, done, size = index.coverage()[1], 0, BATCH
    if progress and total:
        progress(0, total)
    batch, unsaved = list[str](), set[str]()
    while True:
        waiting = index.missing(size + len(unsaved))
        # A passage that does not match its stored hash stays missing; `doctor` reports it.
        unsaved.update(set(waiting).intersection(batch))
        batch = [passage for passage in waiting if passage not in unsaved]
        if not batch:
            break
        start = time.monotonic()
        index.save(batch, serving.embed(batch))
        if time.monotonic() - start < BATCH_SECONDS:
            size = min(2 * size, MOST_BATCH)
        done += len(batch)
        if progress:
            progress(min(done, total), total)
    if progress and 0 < done < total:
        progress(total, total)  # records with the same passage share a vector
    return done


def _space_of(embedder: Embedder, active: VectorSpace | None) -> VectorSpace:
    if active is not None and active.fingerprint == embedder.fingerprint:
        return active
    with errors_as(EmbedderError, f"{embedder.name} failed"):
        dimension = len(embedder.query("How long is a vector?"))
    return VectorSpace(embedder.fingerprint, embedder.name, dimension)


def rest_of(store: Store) -> str:
    """How the vectors that are missing in a store will be computed."""
    from recollect.memory.filling import missing_vectors_notice

    return missing_vectors_notice(store)


def unconfigured_model(name: str) -> str:
    """The message for a model that made a store's vectors and is not opened, because only the store names it."""
    return f"the store's vectors were made by {model_label(name)}, which your settings do not name"


def model_label(name: str) -> str:
    """A model's name from a store, safe to print: anybody may have written it."""
    label = name if name.isprintable() else ascii(name)
    return label if len(label) <= LONGEST_NAME else f"{label[:LONGEST_NAME]}…"


class _ScopedEmbedder:
    """An embedder for the callers of one scope: a cached query vector of other callers is not reused for them."""

    def __init__(self, inner: Embedder, scope: Scope) -> None:
        self._inner, self._scope = inner, scope
        self.name, self.fingerprint, self.passages = inner.name, inner.fingerprint, inner.passages
        self.remote = bool(getattr(inner, "remote", False))
        self.is_word, self.legibility = getattr(inner, "is_word", None), getattr(inner, "legibility", None)

    def query(self, text: str) -> Vector:
        query_of: Callable[[str, str], Vector] | None = getattr(self._inner, "query_of", None)
        return query_of(self._scope.key, text) if query_of else self._inner.query(text)
