"""Which model's vectors a store has, beside the one that is set."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import apsw

from recollect.config import Settings
from recollect.doctor.findings import Telling
from recollect.embedders import EMBEDDERS
from recollect.errors import RecollectError
from recollect.memory import Memory
from recollect.memory.embedding import opener
from recollect.models.catalogue import MODELS
from recollect.stores.sqlite.rows import meta

CHEAP = ("hashing", "openai", "ollama")
"""Embedders that are opened without loading anything."""


class Stand(NamedTuple):
    """What serves, whether it is what is set, and how many of the records have no vector of what is set."""

    serving: str | None
    same: bool
    missing: int
    total: int


def ahead(settings: Settings, connection: apsw.Connection) -> Stand:
    """How far the store's vectors are those of the model that is set."""
    found: Any = connection.execute(
        "SELECT space, fingerprint, embedder FROM spaces ORDER BY fingerprint = ? DESC, space DESC",
        (meta(connection, "space"),),
    ).fetchall()
    mine = _fingerprint(settings)
    own = [row for row in found if (row[1] == mine if mine else row[2] == settings.embedder)]
    total = int(connection.execute("SELECT count(*) FROM records WHERE forgotten_at IS NULL").get)
    missing = connection.execute(
        "SELECT count(*) FROM records WHERE forgotten_at IS NULL AND NOT EXISTS"
        " (SELECT 1 FROM embeddings WHERE space = ? AND embeddings.passage = records.passage)",
        (own[0][0] if own else None,),
    ).get
    active = found[0] if found and found[0][1] == meta(connection, "space") else None
    return Stand(active[2] if active else None, bool(own) and active == own[0], int(missing), total)


def _fingerprint(settings: Settings) -> str:
    """The fingerprint of the model that is set, where it can be told without loading one."""
    kind = settings.embedder.partition(":")[0]
    try:
        if kind in MODELS:
            return EMBEDDERS.load(kind)(settings.embedder).fingerprint
        return opener(settings, _silent, None)(settings.embedder).fingerprint if kind in CHEAP else ""
    except RecollectError:
        return ""  # the check of the model says what is wrong with it


def fill(path: Path, settings: Settings, telling: Telling) -> None:
    """Compute the vectors that are missing, and let the model that is set answer."""
    telling.announce(f"computing the vectors of {settings.embedder} that are missing")
    with Memory.open(
        path, settings=settings, announce=telling.announce, fetching=telling.progress("fetching")
    ) as memory:
        memory.embed(progress=telling.progress("embedding"))


def _silent(message: str) -> None:
    """Nothing is fetched here."""
