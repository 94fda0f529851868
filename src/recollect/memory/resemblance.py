"""Whether a fact that has just been stored nearly repeats or contradicts another one, and what follows."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from recollect.errors import RecollectError
from recollect.memory.shapes import bounded
from recollect.memory.validation import WRITER_FIELDS, trusting
from recollect.ranking import NEAR, same_subject
from recollect.types import Filter, Record
from recollect.types.records import Change, Put, Supersede, short_id

if TYPE_CHECKING:
    from recollect.memory.changes import Writer

NEAREST = 6  # facts that are compared, with the new one itself among them
TEXT_CHARACTERS = 400  # of the other fact that are shown


class Resemblance(NamedTuple):
    """An earlier fact, and whether the new one may supersede it."""

    record: Record
    replaceable: bool

    def as_dict(self) -> dict[str, Any]:
        """The other fact as JSON."""
        record = self.record
        text = bounded({"text": record.text, "title": record.title}, TEXT_CHARACTERS)["text"]
        return {"id": record.id, "short_id": short_id(record.id), "text": text, "replaceable": self.replaceable}


def resembling(memory: Writer, record: Record, *, for_model: bool = False) -> Resemblance | None:
    """The current fact that a new one nearly repeats or contradicts, if there is one that its scope may see.

    It costs one search with the vector that was computed for the new fact. Without a vector, or while it is not known
    how to read the cosines of the model, there is no answer. For a model, only facts of trusted origins are compared.
    """
    if record.kind != "fact":
        return None
    with contextlib.suppress(RecollectError):
        spaces = memory.store.within(record.scope).spaces  # row-level security shows its vector to its scope alone
        vector = memory.embeddings.within(spaces).vectors([record.id]).get(record.id)
        if vector is None:
            return None
        serving = memory.embeddings.serving()
        closeness = memory.closeness(serving, deadline=0.0)
        if closeness is None:
            return None
        where = Filter(scope=record.scope, kinds=("fact",))
        where = trusting(where, memory.settings.search.trusted_origins) if for_model else where
        for hit in serving.index.search(vector, where, NEAREST).entries:
            other, strength = hit.record, closeness.strength(hit.score or 0.0)
            if other.id != record.id and same_subject(other.text, record.text, strength):
                return Resemblance(other, _may_supersede(memory, record, other))
    return None


def _may_supersede(memory: Writer, new: Record, old: Record) -> bool:
    """Whether the store would let the new record supersede the old one, for this caller."""
    owned = memory.caller is None or memory.caller.owns(old.scope)
    return owned and old.scope.admits(new.scope) and new.provenance.distrust <= max(1, old.provenance.distrust)


def restated(memory: Writer, stored: Record, changes: Sequence[Change]) -> list[Change]:
    """The changes that make a repeated fact current again, if another one has contradicted it since; mostly none.

    A new record takes the place of the stored one, so that `as_of` still finds what was current at each time.
    """
    given = next(change.record for change in changes if isinstance(change, Put))
    less_trusted = given.provenance.distrust > stored.provenance.distrust
    if stored.id == given.id or stored.time >= given.time or less_trusted:
        return []
    found = resembling(memory, stored)
    if found is None or not stored.time < (other := found.record).time <= given.time:
        return []
    # They must begin alike: "order 17 has been shipped to the mill" says nothing about order 18.
    if other.text_hash == stored.text_hash or not same_subject(other.text, stored.text, NEAR):
        return []
    own: dict[str, Any] = {name: getattr(given, name) for name in ("id", "created_at", "happened_at", *WRITER_FIELDS)}
    new = replace(stored, edited_at=None, **own)
    return [Put(new), Supersede(stored.id, new.id, made=True, writer=given.provenance)]
