"""Which texts share words with a development set."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

WORDS = 10  # in a row


class Known:
    """Every run of `WORDS` words of the documents and questions in a folder, and every shorter question, as hashes."""

    def __init__(self, folder: Path) -> None:
        self.runs = np.unique(np.concatenate([runs(text) for text in texts(folder)]))

    def shares(self, text: str) -> bool:
        """Whether a run of words of this text is one of them."""
        own = runs(text)
        at = np.minimum(np.searchsorted(self.runs, own), len(self.runs) - 1)
        return bool((self.runs[at] == own).any())


def texts(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            yield f"{row.get('title') or ''} {row.get('text') or ''}"


def runs(text: str) -> np.ndarray:
    """A hash of each run of words; of a text with fewer words, one hash of all of them."""
    words = np.array([hash(word) for word in re.findall(r"[^\W_]+", text.lower())], np.int64).astype(np.uint64)
    size = max(1, min(WORDS, len(words)))
    if not len(words):
        return np.zeros(0, np.uint64)
    found = np.full(len(words) - size + 1, size, np.uint64)
    for place in range(size):
        found = (found * np.uint64(0x9E3779B97F4A7C15)) ^ words[place : len(words) - size + 1 + place]
    return found
