"""How a caller names a record: by its id, by the beginning of its id, or by its short id or the beginning of that."""

from __future__ import annotations

from collections.abc import Sequence

from recollect.errors import AmbiguousId, UnknownRecord
from recollect.memory.shapes import name_of
from recollect.memory.validation import parse_id
from recollect.types import GLOBAL, Record, Scope, Store
from recollect.types.records import short_ids

LEAST_CHARACTERS = 4  # of an id, or of a short id, that name a record
MOST_CANDIDATES = 10  # records that the error about an ambiguous name lists
MOST_LISTED = 1_000_000_000  # records of a list; more than any store has


class Naming:
    """The methods of `Memory` that find a record by what a caller calls it. Only visible records are considered."""

    store: Store
    scope: Scope
    caller: Scope | None

    def resolve(self, name: str) -> str:
        """Return the id of the record that is meant: an id, or at least four characters of one, or of a short id.

        They are the first of the id or of the short id. A record with exactly this id comes before all others, and a
        forgotten record after them. Where there is no such record, the name itself is returned.

        Raises:
            AmbiguousId: Several visible records could be meant; the error lists them.
        """
        key = parse_id(name)
        if len(key) < LEAST_CHARACTERS or self._exists(key):
            return key
        named = self.store.records.named(key, self._limit, MOST_CANDIDATES + 1)
        alive = [record_id for record_id, _, forgotten in named if not forgotten]
        candidates = alive or [record_id for record_id, scope, _ in named if self._owns(scope)]
        if len(candidates) > 1:
            raise AmbiguousId(key, self._described(candidates))
        return candidates[0] if candidates else key

    def _resolve_all(self, names: Sequence[str]) -> list[str]:
        """Return the ids of several records, each once. Ids are looked up together, other names one by one."""
        keys = [parse_id(name) for name in names]
        whole = {record.id for record in self.store.records.get(keys) if self._admits(record.scope)} if keys else set()
        return list(dict.fromkeys(key if key in whole else self.resolve(key) for key in keys))

    def require(self, record_id: str) -> Record:
        """Return the visible record with this id or short id; raise `UnknownRecord` if there is none."""
        key = parse_id(record_id)
        record = self._visible_record(key) or self._visible_record(self.resolve(key))
        if record is None:
            raise UnknownRecord(record_id)
        return record

    @property
    def _limit(self) -> Scope | None:  # whose records can be reached by id; None means all records
        return None if self.caller is None and self.scope == GLOBAL else self.scope

    def _admits(self, scope: Scope) -> bool:
        return self._limit is None or self._limit.admits(scope)

    def _owns(self, scope: Scope) -> bool:
        """A scoped caller knows only its own forgotten records."""
        return self.caller is None or self.caller.owns(scope)

    def _visible_record(self, key: str) -> Record | None:
        records = self.store.records.get([key])
        return next((record for record in records if self._admits(record.scope)), None)

    def _knows(self, key: str) -> bool:
        """Whether the caller may learn that this id exists."""
        return self._limit is None or self._exists(key)

    def _exists(self, key: str) -> bool:
        """Whether there is a record with this id, or was one that is forgotten, and the caller may learn of it."""
        alive = self.store.records.get([key])
        scope = alive[0].scope if alive else self.store.records.scope_of(key)
        return scope is not None and self._admits(scope) and (bool(alive) or self._owns(scope))

    def _described(self, ids: Sequence[str]) -> list[str]:
        """Each record as its short id and its first words; the last entry says that there are more."""
        names = {record.id: name_of(record, 40) for record in self.store.records.get(ids)}
        short = short_ids(ids)
        lines = [f"{short[key]} ({names.get(key, 'forgotten')})" for key in ids[:MOST_CANDIDATES]]
        return [*lines, "and more"] if len(ids) > MOST_CANDIDATES else lines
