"""Which model's vectors a store has, beside the one that is set."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import apsw

from recollect.config import Settings
from recollect.doctor.findings import Finding, Telling
from recollect.doctor.setup import Setup
from recollect.errors import RecollectError
from recollect.memory import Memory
from recollect.memory.embeddings import opener
from recollect.models.catalogue import MODELS
from recollect.models.embedders import EMBEDDERS
from recollect.stores.lance.numbers import tables
from recollect.stores.sqlite.rows import meta

CHEAP = ("hashing", "openai", "ollama")
"""Embedders that are opened without loading anything."""


class Stand(NamedTuple):
    """What serves, whether it is what is set, and how many of the records have no vector of what is set."""

    serving: str | None
    same: bool
    missing: int
    total: int


Space: TypeAlias = tuple[int, str, str]
"""Its number, its fingerprint, and the name of its model."""


def ahead(settings: Settings, connection: apsw.Connection) -> Stand:
    """How far the vectors of a store in a file are those of the model that is set."""
    found: Any = connection.execute("SELECT space, fingerprint, embedder FROM spaces ORDER BY space DESC").fetchall()
    active, own = chosen(settings, found, meta(connection, "space"))
    total = int(connection.execute("SELECT count(*) FROM records WHERE forgotten_at IS NULL").get)
    missing = connection.execute(
        "SELECT count(*) FROM records WHERE forgotten_at IS NULL"
        + "".join(
            f" AND NOT EXISTS (SELECT 1 FROM {table} WHERE space = ?1 AND {table}.passage = records.passage)"
            for table in tables(connection)
        ),
        (own[0] if own else None,),
    ).get
    return Stand(active[2] if active else None, own is not None and active == own, int(missing), total)


def chosen(settings: Settings, spaces: Sequence[Space], serving: str | None) -> tuple[Space | None, Space | None]:
    """The space that answers, and that of the model that is set; of several, the one that answers, else the newest."""
    active = next((space for space in spaces if space[1] == serving), None)
    mine = _fingerprint(settings)
    own = [space for space in spaces if (space[1] == mine if mine else space[2] == settings.embedder)]
    return active, active if active in own else next(iter(own), None)


def told(stand: Stand, setup: Setup) -> Finding:
    """What is to be said of that, and done about it."""
    wanted = setup.settings.embedder
    # What a service on another machine would be sent, and would charge for, is for a person to say.
    fix = None if wanted.partition(":")[0] in ("openai", "ollama") else partial(fill, setup.place, setup.settings)
    mend = f"recollect embed --embedder {shlex.quote(wanted)}{setup.flags}"
    if stand.serving and not stand.same:
        other = f"{stand.serving} answers, {wanted} is set: {stand.missing:,} records have no vector of it"
        return Finding("vectors", "warning", other, mend, fix)
    if stand.missing:
        return Finding("vectors", "warning", f"{stand.missing:,} of {stand.total:,} records have none", mend, fix)
    return Finding("vectors", "ok", f"all {stand.total:,} records have one of {wanted}")


def _fingerprint(settings: Settings) -> str:
    """The fingerprint of the model that is set, where it can be told without loading one."""
    kind = settings.embedder.partition(":")[0]
    try:
        if kind in MODELS:
            return EMBEDDERS.load(kind)(settings.embedder).fingerprint
        return opener(settings, _silent, None)(settings.embedder).fingerprint if kind in CHEAP else ""
    except RecollectError:
        return ""  # the check of the model says what is wrong with it


def fill(place: str, settings: Settings, telling: Telling) -> None:
    """Compute the vectors that are missing, and let the model that is set answer."""
    telling.announce(f"computing the vectors of {settings.embedder} that are missing")
    with Memory.open(
        place, settings=settings, announce=telling.announce, fetching=telling.progress("fetching")
    ) as memory:
        memory.embed(progress=telling.progress("embedding"))


def _silent(message: str) -> None:
    """Nothing is fetched here."""
