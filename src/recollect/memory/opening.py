"""What `Memory.open` needs before it can build anything: settings, an open store, and the embedder that is wanted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from recollect import config
from recollect.config import Settings
from recollect.errors import UsageError
from recollect.models.embedders import EMBEDDERS
from recollect.stores import open_store
from recollect.types import Embedder, Store


def default_store() -> Path:
    """The store of a person who named none."""
    import platformdirs

    return Path(platformdirs.user_data_dir("recollect")) / "memory.db"


def load_settings(announce: Callable[[str], None]) -> Settings:
    """The settings of all places; what was not used is announced."""
    loaded = config.load()
    for note in loaded.notes:
        announce(note)
    return loaded.settings


def check_embedder(wanted: str | Embedder) -> None:
    """Refuse a name that nothing has. A model that is missing is found out when it is needed."""
    if isinstance(wanted, str) and wanted != "none":
        EMBEDDERS.check(wanted.partition(":")[0])


def open_in_language(
    place: str | Path | None, settings: Settings, named: str | None, announce: Callable[[str], None]
) -> Store:
    """Open the store. One that exists keeps its language: another in the settings is announced, a `named` one refused.

    Opening a store never rebuilds its keyword index; `Memory.change_language` does.
    """
    wanted = named or settings.language
    store = open_store(str(place or settings.store or default_store()), language=wanted)
    if wanted is None or (kept := store.keywords.analyzer.language) == wanted:
        return store
    if named is None:
        announce(
            f"the settings say language = {wanted!r}, and the store keeps its own, {kept};"
            f" `recollect language {wanted}` changes it"
        )
        return store
    store.close()
    raise UsageError(
        f"the store's language is {kept}, not {named}",
        hint=f"leave the language out; Memory.change_language({named!r}) or `recollect language {named}` changes it",
    )
