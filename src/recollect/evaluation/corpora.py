"""Judged sets as stores, each corpus in a file kept by its fingerprint, so that a second run starts at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from recollect.config import Settings
from recollect.evaluation.datasets import Dataset
from recollect.memory import Memory
from recollect.types import Progress

Bars: TypeAlias = Callable[[str], Progress | None]
"""Makes a bar for what it is told is being done."""

BATCH = 1000
"""Documents stored at once, so that a bar can move."""


def cache_folder() -> Path:
    """Where the stores of judged sets are kept."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("recollect")) / "eval"


def place_of(dataset: Dataset, settings: Settings) -> str:
    """The file's name. Vectors of another model, or words of another language, are in another file."""
    apart = [settings.embedder] if settings.embedder not in ("none", Settings().embedder) else []
    apart += [settings.language] if settings.language not in (None, "english") else []
    return "-".join(re.sub(r"[^\w.]+", "-", part) for part in (dataset.name, dataset.fingerprint, *apart)) + ".db"


def open_corpus(
    dataset: Dataset,
    *,
    settings: Settings | None = None,
    folder: Path | None = None,
    progress: Bars = lambda _: None,
    **opening: Any,
) -> Memory:
    """The set in a store of its own, with every record stored and embedded; what is there already is not done again.

    `opening` is what else `Memory.open` takes. Outside sources are not asked: they do not hold the set.
    """
    settings = replace(settings or Settings(), sources=())
    place = (folder or cache_folder()) / place_of(dataset, settings)
    with Memory.open(place, embedder="none", settings=Settings(language=settings.language)) as plain:
        if plain.status()["records"]["total"] < len(dataset.corpus):
            _store(plain, dataset.corpus, progress(f"storing {dataset.name}"))
    memory = Memory.open(place, settings=settings, **opening)
    if settings.embedder != "none":
        _embed(memory, progress(f"embedding {dataset.name}"))
    return memory


def _store(memory: Memory, corpus: Sequence[dict[str, Any]], progress: Progress | None) -> None:
    for start in range(0, len(corpus), BATCH):
        memory.add_many(_records(corpus[start : start + BATCH]))
        if progress:
            progress(min(start + BATCH, len(corpus)), len(corpus))


def _embed(memory: Memory, progress: Progress | None) -> None:
    """Every missing vector; a memory that cannot have them is closed."""
    try:
        memory.embed(progress=progress)
    except BaseException:
        memory.close()
        raise


def _records(corpus: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    """Documents as records; one without a text is its title, one without both a dash."""
    for row in corpus:
        title = row.get("title") or ""
        yield {"id": row["_id"], "text": row.get("text") or title or "-", "title": title}
