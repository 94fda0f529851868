"""Who writes: what a call may claim about the origin of a record, and what an edit makes of it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from recollect.errors import Forbidden, UsageError
from recollect.options import ORIGINS, OUTSIDE
from recollect.types import Answer, Filter, Provenance, Record, Scope, Store

FIELDS = ("origin", "author", "author_session")
OWNERS = ("file", "import")  # origins that only the owner of a store can give: indexing and importing do


def of_caller(scope: Scope, own: Provenance) -> Provenance:
    """How a scoped caller writes: one that is bound to an agent writes as that agent."""
    return Provenance("agent", own.author or scope.agent, scope.session) if scope.agent else own


def claimed(fields: Mapping[str, Any], own: Provenance, caller: Scope | None) -> dict[str, Any]:
    """The fields of a new record's provenance: those that a call names, else those of the memory.

    A scoped caller may claim less trust than it has, for text that it only passes on, and never more.
    """
    named = {name: fields[name] for name in FIELDS if fields.get(name) is not None}
    origin = named.get("origin", own.origin)
    if caller is not None and isinstance(origin, str):
        more = Provenance(origin).distrust < own.distrust
        if more or (origin in OWNERS and origin != own.origin):
            hint = f"leave the origin out, or name {own.origin}, tool or web"
            raise Forbidden(f"this caller cannot write records of the origin {origin!r}", hint=hint)
    return own.as_dict() | named


def trusting(where: Filter, trusted: Sequence[str]) -> Filter:
    """The filter for what a model reads: records of trusted origins, and documents of the user's other sources."""
    return replace(where, origins=(*trusted, OUTSIDE))


def with_left_out(answer: Answer, store: Store) -> Answer:
    """The answer to a query of `trusting`, with the number of visible records that it left out."""
    where = answer.query.filter
    origins = tuple(origin for origin in ORIGINS if origin not in where.origins) if OUTSIDE in where.origins else ()
    count = store.count(replace(where, origins=origins))["total"] if origins else 0
    if not count:
        return answer
    names = " or ".join(filter(None, [", ".join(origins[:-1]), origins[-1]]))
    records = "1 record was" if count == 1 else f"{count:,} records were"
    warning = f"{records} not searched because of the origin {names}: `origin: any` (--origin any) includes all"
    trace = answer.trace
    filtered = {**trace.filtered, "origin": count}
    return replace(answer, trace=replace(trace, filtered=filtered, warnings=(*trace.warnings, warning)))


def check_edit(old: Record, fields: Mapping[str, Any], own: Provenance) -> None:
    """Refuse an edit by a writer who is trusted less than the record's.

    Other fields are written in the name of an origin that the edit names; naming nothing else only says who wrote it.
    """
    named = Provenance(fields.get("origin", own.origin)) if fields.keys() - set(FIELDS) else own
    writer = max(own, named, key=lambda one: one.distrust)
    if writer.distrust > old.provenance.distrust:
        hint = "add it as a record of its own" if writer.distrust > 1 else "supersede it: the old text stays"
        what = f"{old.id!r} has the origin {old.origin}, so a writer of the origin {writer.origin} cannot edit it"
        raise UsageError(what, hint=hint)
