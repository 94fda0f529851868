"""What every contender holds and is asked: real sentences, real and derived vectors, real questions.

A text is three sentences: three that follow each other in a document of the development sets, and when these are used
up, three from different documents, drawn with a fixed seed. The default model embeds the first 2,000 texts and the
questions. The other vectors are mixed from these: a·v₁ + (1 - a)·v₂ + 0.35·(v₃ - v₄), of unit length, a from 0.3 to
0.7, with a fixed seed. All is made once and kept in the folder .bench/data.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".bench"
FOLDER = HOME / "data"
CORPORA = ("scifact", "nfcorpus", "longmemeval", "openclaw_docs", "cranfield", "xquad/en", "locomo")
ASKED = ("longmemeval", "locomo", "xquad/en", "nfcorpus")
"""Sets that hold questions in the form of a question."""

DIMENSION, USERS, QUESTIONS, EMBEDDED, EXTRA, BATCH = 384, 1_000, 60, 2_000, 200, 10_000
"""EXTRA records beyond the size are for single adds."""

LENGTHS = range(30, 300)
"""Characters of a sentence."""

SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n{2,}")
MARKUP = re.compile(r"[#*`|_\[\]<>]+")


@dataclass(frozen=True)
class Batch:
    """Records that follow each other. A record's number is its id, and its user is the number modulo USERS."""

    first: int
    texts: list[str]
    vectors: np.ndarray

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + len(self.texts))


def user_of(number: int) -> str:
    return f"u{number % USERS}"


def prepare(size: int) -> None:
    """Make the files for this size if they are not there."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not (FOLDER / "questions.npy").exists():
        embed()
    total = size + EXTRA
    if not (FOLDER / f"{size}.f32").exists():
        source = sentences()
        with (FOLDER / f"{size}.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(text) + "\n" for text in texts(source, total))
        real = np.load(FOLDER / "passages.npy")
        part = FOLDER / f"{size}.part"
        with part.open("wb") as file:
            for first in range(0, total, BATCH):
                derived(real, first, min(BATCH, total - first)).tofile(file)
        part.rename(FOLDER / f"{size}.f32")


def batches(size: int, first: int = 0) -> Iterator[Batch]:
    """Read the records, 10,000 at a time; those beyond the size with `first` = size."""
    total = size if first < size else size + EXTRA
    with (FOLDER / f"{size}.jsonl").open(encoding="utf-8") as lines, (FOLDER / f"{size}.f32").open("rb") as numbers:
        for _ in range(first):
            next(lines)
        numbers.seek(first * DIMENSION * 4)
        for start in range(first, total, BATCH):
            count = min(BATCH, total - start)
            rows = np.fromfile(numbers, np.float32, count * DIMENSION).reshape(count, DIMENSION)
            yield Batch(start, [json.loads(next(lines)) for _ in range(count)], rows)


def questions() -> tuple[list[str], np.ndarray]:
    """The questions and their vectors."""
    return json.loads((FOLDER / "questions.json").read_text(encoding="utf-8")), np.load(FOLDER / "questions.npy")


def embed() -> None:
    """Embed the first texts and the questions with the default model."""
    from recollect.config import Settings
    from recollect.models.embedders import open_embedder

    model = open_embedder("arctic-embed-s", settings=Settings())
    asked = pick_questions()
    np.save(FOLDER / "passages.npy", model.passages(list(texts(sentences(), EMBEDDED))))
    (FOLDER / "questions.json").write_text(json.dumps(asked), encoding="utf-8")
    np.save(FOLDER / "questions.npy", np.stack([model.query(question) for question in asked]))


def derived(real: np.ndarray, first: int, count: int) -> np.ndarray:
    """The vectors of `count` records from the record `first` on."""
    chance = np.random.default_rng(first)
    one, two, three, four = (real[chance.integers(0, len(real), count)] for _ in range(4))
    share = chance.uniform(0.3, 0.7, (count, 1))
    rows = share * one + (1 - share) * two + 0.35 * (three - four)
    embedded = max(0, min(count, len(real) - first))
    rows[:embedded] = real[first : first + embedded]
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def texts(source: list[list[str]], count: int) -> Iterator[str]:
    """Different texts of three sentences: first of one document, then of several."""
    triples = [part[at : at + 3] for part in source for at in range(0, len(part) - 2, 3)]
    chance = random.Random(14)
    chance.shuffle(triples)
    every = [sentence for part in source for sentence in part]
    made: set[str] = set()
    while count:
        text = " ".join(triples.pop() if triples else chance.sample(every, 3))
        if text not in made:
            made.add(text)
            count -= 1
            yield text


def sentences() -> list[list[str]]:
    """The sentences of every document of the development sets."""
    documents = (line for name in CORPORA for file in files(name, "corpus.jsonl") for line in read(file))
    split = (SENTENCE_END.split(MARKUP.sub(" ", document["text"])) for document in documents)
    return [[" ".join(part.split()) for part in parts if len(part) in LENGTHS] for parts in split]


def pick_questions() -> list[str]:
    """The same number from every set, spread over it."""
    share = QUESTIONS // len(ASKED)
    picked = []
    for name in ASKED:
        rows = [row["text"] for file in files(name, "queries.jsonl") for row in read(file)]
        asked = [text for text in rows if text.endswith("?")]
        picked += asked[:: len(asked) // share][:share]
    return picked


def files(name: str, kind: str) -> list[Path]:
    folder = Path(os.environ.get("RECOLLECT_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        sys.exit(f"no development sets at {folder}; set RECOLLECT_DATA")
    return sorted((folder / name).rglob(kind))


def read(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
