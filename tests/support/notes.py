"""Folders of notes that grow and change, for tests of indexing."""

from __future__ import annotations

import random
from pathlib import Path

VOCABULARY = [f"word{number}" for number in range(2000)]


def grow(folder: Path, chance: random.Random, files: int) -> None:
    """A tree of notes with sections, some of them long."""
    for number in range(files):
        place = folder / f"part{number % 7}"
        place.mkdir(exist_ok=True)
        body = "".join(
            f"## Section {n}\n\n{' '.join(chance.choices(VOCABULARY, k=chance.randrange(20, 160)))}\n\n"
            for n in range(chance.randrange(1, 12))
        )
        (place / f"{number:04}.md").write_text(f"# Note {number}\n\n{body}")


def stir(folder: Path, chance: random.Random) -> None:
    """Edits, moves and deletions between two rounds, fewer than would need confirming."""
    files = sorted(folder.rglob("*.md"))
    for path in chance.sample(files, 12):
        path.write_text(path.read_text() + f"\n## More\n\n{' '.join(chance.choices(VOCABULARY, k=60))}\n")
    for path in chance.sample(files, 12):
        path.rename(path.with_name(f"moved-{chance.randrange(10**9)}-{path.name[-7:]}"))
    chance.choice(sorted(folder.rglob("*.md"))).unlink()
