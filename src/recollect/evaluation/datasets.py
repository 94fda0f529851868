"""Judged sets in BEIR's layout: `corpus.jsonl`, `queries.jsonl`, `qrels.tsv`; subfolders are corpora of their own.

A set without `corpus.jsonl` is of questions to the user's own store.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recollect.errors import UsageError
from recollect.evaluation.judgments import Qrels, read_corpus, read_qrels, read_questions

LAYOUT = "a set has corpus.jsonl, queries.jsonl and qrels.tsv or qrels/test.tsv; or folders that have"


@dataclass(frozen=True, slots=True)
class Dataset:
    """One corpus with its questions and judgments (question → document → grade).

    `fingerprint` is the corpus's, and empty for questions to the user's own store; `judged` is that of questions and
    judgments. `prefix` is what was put before the question ids to tell those of several corpora apart.
    """

    name: str
    corpus: tuple[dict[str, Any], ...]
    queries: dict[str, str]
    qrels: Qrels
    fingerprint: str
    judged: str = ""
    unjudged: int = 0
    without_text: int = 0
    prefix: str = ""

    @property
    def own(self) -> bool:
        """Whether the questions are to the user's own store."""
        return not self.fingerprint

    @property
    def unknown(self) -> int:
        """Judged documents that are not in the corpus."""
        return 0 if self.own else len(judged_documents(self.qrels) - {row["_id"] for row in self.corpus})


def read_dataset(folder: Path, *, split: str = "") -> list[Dataset]:
    """The corpora of a set: the folder itself, or each of its subfolders. `split` picks `qrels_SPLIT.tsv`."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder", hint=LAYOUT)
    inside = [folder] if (folder / "corpus.jsonl").is_file() else sorted(p for p in folder.iterdir() if p.is_dir())
    sets = [_read(one, split) for one in inside if (one / "corpus.jsonl").is_file()]
    if not sets:
        raise UsageError(f"{folder} holds no corpus.jsonl", hint=LAYOUT)
    return apart(sets)


def read_judged(queries: Path | None, qrels: Path, name: str = "store") -> Dataset:
    """Judged questions without a corpus; with no `queries` the judgments alone, to score runs by."""
    grades = read_qrels(qrels)
    return _joined(name, (), dict.fromkeys(grades, "") if queries is None else read_questions(queries), grades, "")


def read_any(folder: Path, *, split: str = "") -> list[Dataset]:
    """A set with its corpora, or one of questions to the user's own store."""
    if (folder / "queries.jsonl").is_file() and not (folder / "corpus.jsonl").is_file():
        queries, qrels = _files(folder, split)
        return [read_judged(queries, qrels, folder.resolve().name)]
    return read_dataset(folder, split=split)


def apart(sets: Sequence[Dataset]) -> list[Dataset]:
    """The corpora with question ids that differ: where one repeats, each has its corpus's name before it."""
    repeated = any(count > 1 for count in Counter(key for one in sets for key in one.qrels).values())
    if not repeated:
        return list(sets)
    return [
        replace(
            one,
            queries={f"{one.name}/{key}": text for key, text in one.queries.items()},
            qrels={f"{one.name}/{key}": grades for key, grades in one.qrels.items()},
            prefix=f"{one.name}/",
        )
        for one in sets
    ]


def judged_documents(qrels: Mapping[str, Mapping[str, int]]) -> set[str]:
    """Every document that a judgment names."""
    return {document for grades in qrels.values() for document in grades}


def fingerprint(*parts: object) -> str:
    """A short digest of values that JSON can hold."""
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=8).hexdigest()


def fingerprint_of(sets: Iterable[Dataset]) -> str:
    """That of several sets together: other documents, questions or judgments have another."""
    return fingerprint([[one.fingerprint, one.judged] for one in sets])


def read_queries(data: bytes, name: str) -> list[str]:
    """The queries of a file's bytes, one a line: plain, or a JSON object with `text` or `query`."""
    try:
        rows = data.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not text in UTF-8: {error.reason}", hint="one query a line") from error
    return [_query(line.strip(), f"{name}: line {number}") for number, line in enumerate(rows, 1) if line.strip()]


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
    queries, qrels = _files(folder, split)
    corpus = read_corpus(folder / "corpus.jsonl")
    digest = hashlib.blake2b((folder / "corpus.jsonl").read_bytes(), digest_size=8).hexdigest()
    return _joined(folder.resolve().name, corpus, read_questions(queries), read_qrels(qrels), digest)


def _files(folder: Path, split: str) -> tuple[Path, Path]:
    """Where questions and judgments of a split are; the test split is also what has no name."""
    names = [f"qrels_{split}.tsv", f"qrels/{split}.tsv", f"qrels.{split}.tsv"] if split else []
    if split in ("", "test"):
        names += ["qrels.tsv", "qrels/test.tsv", "qrels.trec", "qrels.txt", "qrels"]
    qrels = next((folder / name for name in names if (folder / name).is_file()), None)
    if qrels is None:
        which = f"no judgments of the split {split!r}" if split else "no judgments"
        raise UsageError(f"{folder} holds {which}", hint=f"there must be {' or '.join(names[:2])}")
    named = folder / f"queries_{split}.jsonl"
    return (named if split and named.is_file() else folder / "queries.jsonl"), qrels


def _joined(
    name: str, corpus: tuple[dict[str, Any], ...], texts: Mapping[str, str], grades: Qrels, digest: str
) -> Dataset:
    """Only questions that have both a text and judgments; the others are counted."""
    queries = {key: texts[key] for key in grades if key in texts}
    if not queries:
        raise UsageError(f"{name}: no judged question has a text", hint="the ids in queries and qrels must be the same")
    qrels = {key: grades[key] for key in queries}
    return Dataset(
        name,
        corpus,
        queries,
        qrels,
        digest,
        judged=fingerprint(queries, qrels),
        unjudged=len(texts.keys() - grades.keys()),
        without_text=len(grades.keys() - texts.keys()),
    )
