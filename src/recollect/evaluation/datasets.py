"""Judged sets in BEIR's layout: `corpus.jsonl`, `queries.jsonl`, `qrels.tsv`; subfolders are corpora of their own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.errors import UsageError


@dataclass(frozen=True, slots=True)
class Dataset:
    """One corpus with its questions and judgments (question → document → grade)."""

    name: str
    corpus: tuple[dict[str, Any], ...]
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]
    fingerprint: str


def read_dataset(folder: Path, *, split: str = "") -> list[Dataset]:
    """The corpora of a set: the folder itself, or each of its subfolders. `split` picks `qrels_SPLIT.tsv`."""
    folders = [folder] if (folder / "corpus.jsonl").is_file() else sorted(p for p in folder.iterdir() if p.is_dir())
    sets = [_read(one, split) for one in folders if (one / "corpus.jsonl").is_file()]
    if not sets:
        raise UsageError(f"{folder} holds no corpus.jsonl", hint="a set has corpus.jsonl, queries.jsonl and qrels.tsv")
    return sets


def read_queries(data: bytes, name: str) -> list[str]:
    """The queries of a file's bytes, one a line: plain, or a JSON object with `text` or `query`."""
    try:
        lines = data.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not text in UTF-8: {error.reason}", hint="one query a line") from error
    return [_query(line.strip(), f"{name}: line {number}") for number, line in enumerate(lines, 1) if line.strip()]


def _query(line: str, place: str) -> str:
    if not line.startswith("{"):
        return line
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place} is not JSON: {error}", hint='one query a line, or {"text": "…"}') from error
    text = value.get("text", value.get("query"))
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f'{place} has no "text" or "query"', hint='one query a line, or {"text": "…"}')
    return text


def _read(folder: Path, split: str) -> Dataset:
    end = f"_{split}" if split else ""
    qrels: dict[str, dict[str, int]] = {}
    for line in _lines(folder / f"qrels{end}.tsv"):
        query, document, grade = line.split("\t")
        if query != "query-id":
            qrels.setdefault(query, {})[document] = int(grade)
    queries = {row["_id"]: row["text"] for row in map(json.loads, _lines(folder / f"queries{end}.jsonl"))}
    corpus = tuple(json.loads(line) for line in _lines(folder / "corpus.jsonl"))
    digest = hashlib.blake2b((folder / "corpus.jsonl").read_bytes(), digest_size=8).hexdigest()
    return Dataset(folder.name, corpus, {key: queries[key] for key in qrels if key in queries}, qrels, digest)


def _lines(path: Path) -> Iterator[str]:
    # Split on \n alone: some texts hold U+2028, at which str.splitlines would break a JSON line in two.
    yield from (line for line in path.read_text(encoding="utf-8").split("\n") if line.strip())
