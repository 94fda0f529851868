"""Whether a fact that has just been stored nearly repeats or contradicts another one."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

from recollect.errors import RecollectError
from recollect.memory.memory import Memory
from recollect.memory.shapes import bounded
from recollect.memory.validation import trusting
from recollect.ranking import same_subject
from recollect.types import Filter, Record
from recollect.types.records import short_id

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


def resembling(memory: Memory, record: Record, *, for_model: bool = False) -> Resemblance | None:
    """The current fact that a new one nearly repeats or contradicts, if there is one that its scope may see.

    It costs one search with the vector that was computed for the new fact. Without a vector, or while it is not known
    how to read the cosines of the model, there is no answer. For a model, only facts of trusted origins are compared.
    """
    if record.kind != "fact":
        return None
    with contextlib.suppress(RecollectError):
        vector = memory.embeddings.vectors([record.id]).get(record.id)
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


def _may_supersede(memory: Memory, new: Record, old: Record) -> bool:
    """Whether the store would let the new record supersede the old one, for this caller."""
    owned = memory.caller is None or memory.caller.owns(old.scope)
    return owned and old.scope.admits(new.scope) and new.provenance.distrust <= max(1, old.provenance.distrust)
