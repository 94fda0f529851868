"""Judged sets as stores, each corpus in a file kept by its fingerprint, so that a second run starts at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from recollect.config import Settings
from recollect.evaluation.datasets import Dataset
from recollect.memory import Memory
from recollect.types import Progress


def cache_folder() -> Path:
    """Where the stores of judged sets are kept."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("recollect")) / "eval"


def open_corpus(
    dataset: Dataset,
    *,
    settings: Settings | None = None,
    folder: Path | None = None,
    progress: Callable[[str], Progress | None] = lambda _: None,
) -> Memory:
    """The set in a store of its own, with every record stored and embedded; what is there already is not done again.

    `progress` makes a bar for what it is told is being done.
    """
    settings = settings or Settings()
    place = (folder or cache_folder()) / f"{dataset.name}-{dataset.fingerprint}.db"
    with Memory.open(place, embedder="none", settings=Settings(language=settings.language)) as plain:
        if plain.status()["records"]["total"] < len(dataset.corpus):
            plain.add_many(_records(dataset.corpus), progress=progress(f"storing {dataset.name}"))
    memory = Memory.open(place, settings=settings)
    if settings.embedder != "none":
        memory.embed(progress=progress(f"embedding {dataset.name}"))
    return memory


def _records(corpus: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    """Documents as records; one without a text is its title, one without both a dash."""
    for row in corpus:
        title = row.get("title") or ""
        yield {"id": row["_id"], "text": row.get("text") or title or "-", "title": title}
