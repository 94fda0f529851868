"""What `Memory.open` opens: the settings, the store in its language, and models by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from recollect import config
from recollect.config import Settings
from recollect.errors import UsageError
from recollect.models.embedders import EMBEDDERS, open_embedder
from recollect.models.openai import Llm, open_llm
from recollect.stores import open_store
from recollect.types import Embedder, Progress, Store


def default_store() -> Path:
    """The store that is used when none is named."""
    import platformdirs

    return Path(platformdirs.user_data_dir("recollect")) / "memory.db"


def load_settings(announce: Callable[[str], None]) -> Settings:
    """The settings of files and environment; `announce` receives notes about what was ignored."""
    loaded = config.load()
    for note in loaded.notes:
        announce(note)
    return loaded.settings


def check_embedder(embedder: str | Embedder) -> None:
    """Refuse an unknown name. Whether the model is on this machine is checked when it is needed."""
    if isinstance(embedder, str) and embedder != "none":
        EMBEDDERS.check(embedder.partition(":")[0])


def open_in_language(
    place: str | Path | None, settings: Settings, language: str | None, announce: Callable[[str], None]
) -> Store:
    """Open the store. An existing store keeps its language: another one is refused, or announced if only a setting.

    Opening a store never rebuilds its keyword index; `Memory.change_language` does.
    """
    wanted = language or settings.language
    store = open_store(str(place or settings.store or default_store()), language=wanted)
    if wanted is None or (actual := store.keywords.analyzer.language) == wanted:
        return store
    if language is None:
        announce(
            f"the settings say language = {wanted!r}, and the store keeps its own, {actual};"
            f" `recollect language {wanted}` changes it"
        )
        return store
    store.close()
    raise UsageError(
        f"the store's language is {actual}, not {language}",
        hint=f"leave the language out; Memory.change_language({language!r}) or `recollect language {language}`"
        " changes it",
    )


def embedder_opener(
    settings: Settings, announce: Callable[[str], None], progress: Progress | None, fetch: bool = True
) -> Callable[[str], Embedder]:
    """A function that opens embedders by name, with the endpoint of the settings."""

    def open_by_name(name: str) -> Embedder:
        return open_embedder(name, announce=announce, progress=progress, fetch=fetch, settings=settings)

    return open_by_name


def language_model(settings: Settings, **options: Any) -> Llm:
    """The model of `[llm]`, with other options where given. The key is read from the environment when it is needed."""
    return open_llm(settings.llm, **options)
