"""Judged sets in BEIR's layout: `corpus.jsonl`, `queries.jsonl`, `qrels.tsv`; subfolders are corpora of their own."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from recollect.errors import FailedError, UsageError, file_errors

Qrels: TypeAlias = dict[str, dict[str, int]]  # question → document → grade; 0 is not relevant
HEADINGS = ("query-id", "query_id", "queryid", "qid", "query", "topic", "topic-id", "question", "question-id")
QRELS_FORM = "a line is `question<TAB>document<TAB>grade`, or TREC's `question 0 document grade`"
QUERIES_FORM = 'a line is {"_id": "…", "text": "…"}, or `id<TAB>text`'
CORPUS_FORM = 'a line is {"_id": "…", "title": "…", "text": "…"}'
UTF_8 = "save the file as UTF-8"
LAYOUT = "a set has corpus.jsonl, queries.jsonl and qrels.tsv or qrels/test.tsv; or folders that have"


@dataclass(frozen=True, slots=True)
class Dataset:
    """One corpus with its questions and judgments.

    `fingerprint` is the corpus's, and empty for questions to the user's own store; `judged` is that of questions and
    judgments. `prefix` was put before the question ids to make them unique among several corpora. With `as_files` each
    document is indexed as a file, which search cuts into chunks.
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
    as_files: bool = False

    @property
    def own(self) -> bool:
        """Whether the questions are to the user's own store."""
        return not self.fingerprint

    @property
    def unknown(self) -> int:
        """The number of judged documents that are not in the corpus."""
        return 0 if self.own else len(judged_documents(self.qrels) - {row["_id"] for row in self.corpus})


def read_dataset(folder: Path, *, split: str = "") -> list[Dataset]:
    """Read the corpora of a set: the folder itself, or its subfolders. `split` selects `qrels_SPLIT.tsv`.

    A folder with `queries.jsonl` alone has questions to the user's own store.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder", hint=LAYOUT)
    if (folder / "queries.jsonl").is_file() and not (folder / "corpus.jsonl").is_file():
        return [read_judged(*_files(folder, split), folder.resolve().name)]
    folders = [folder] if (folder / "corpus.jsonl").is_file() else sorted(p for p in folder.iterdir() if p.is_dir())
    corpora = [(one / "corpus.jsonl", one) for one in folders if (one / "corpus.jsonl").is_file()]
    if not corpora:
        raise UsageError(f"{folder} holds no corpus.jsonl", hint=LAYOUT)
    return apart([read_judged(*_files(one, split), one.resolve().name, corpus) for corpus, one in corpora])


def read_judged(queries: Path | None, qrels: Path, name: str = "store", corpus: Path | None = None) -> Dataset:
    """Read the questions that have a text and judgments, and count the others; without `corpus`, to the user's store.

    Without `queries`, only the judgments are read, to score runs.
    """
    documents, digest = (read_corpus(corpus), _digest(corpus.read_bytes())) if corpus else ((), "")
    grades = read_qrels(qrels)
    texts = read_questions(queries) if queries else dict.fromkeys(grades, "")
    questions = {key: texts[key] for key in grades if key in texts}
    if not questions:
        raise UsageError(f"{name}: no judged question has a text", hint="the ids in queries and qrels must be the same")
    judged = {key: grades[key] for key in questions}
    unjudged, without_text = len(texts.keys() - grades.keys()), len(grades.keys() - texts.keys())
    return Dataset(name, documents, questions, judged, digest, fingerprint(questions, judged), unjudged, without_text)


def apart(sets: Sequence[Dataset]) -> list[Dataset]:
    """Make question ids unique: if one occurs twice, every id gets its corpus's name as a prefix."""
    if max(Counter(key for one in sets for key in one.qrels).values(), default=1) == 1:
        return list(sets)
    renamed = []
    for one in sets:
        prefix = f"{one.name}/"
        queries = {prefix + key: text for key, text in one.queries.items()}
        qrels = {prefix + key: grades for key, grades in one.qrels.items()}
        renamed.append(replace(one, queries=queries, qrels=qrels, prefix=prefix))
    return renamed


def judged_documents(qrels: Mapping[str, Mapping[str, int]]) -> set[str]:
    """Return every document that a judgment names."""
    return {document for grades in qrels.values() for document in grades}


def fingerprint(*parts: object) -> str:
    """Return a short digest of JSON values."""
    return _digest(json.dumps(parts, sort_keys=True).encode())


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def fingerprint_of(sets: Iterable[Dataset]) -> str:
    """Return the fingerprint of several sets: it changes with documents, questions and judgments, and `as_files`."""
    return fingerprint([[one.fingerprint, one.judged, *(["files"] if one.as_files else [])] for one in sets])


def _files(folder: Path, split: str) -> tuple[Path, Path]:
    """Find the questions and judgments of a split; files without a split's name are the test split."""
    names = [f"qrels_{split}.tsv", f"qrels/{split}.tsv", f"qrels.{split}.tsv"] if split else []
    if split in ("", "test"):
        names += ["qrels.tsv", "qrels/test.tsv", "qrels.trec", "qrels.txt", "qrels"]
    qrels = next((folder / name for name in names if (folder / name).is_file()), None)
    if qrels is None:
        which = f"no judgments of the split {split!r}" if split else "no judgments"
        raise UsageError(f"{folder} holds {which}", hint=f"there must be {' or '.join(names[:2])}")
    named = folder / f"queries_{split}.jsonl"
    return (named if split and named.is_file() else folder / "queries.jsonl"), qrels


def read_qrels(path: Path) -> Qrels:
    """Read judgments in BEIR's form, with or without its heading, or in TREC's."""
    qrels: Qrels = {}
    for number, (place, line) in enumerate(lines(path)):
        # A line with tabs is split there, so that an id may hold a space.
        words = [word.strip() for word in line.split("\t")] if "\t" in line else line.split()
        if len(words) not in (3, 4):
            raise UsageError(f"{place} has {len(words)} columns, not three or four", hint=QRELS_FORM)
        if number > 0 or words[0].lower() not in HEADINGS:
            if not re.fullmatch(r"[+-]?\d+(\.0*)?", words[-1]):
                raise UsageError(f"{place} has the grade {words[-1]!r}; grades are whole numbers", hint=QRELS_FORM)
            grade = int(float(words[-1]))
            if qrels.setdefault(words[0], {}).setdefault(words[-2], grade) != grade:
                raise UsageError(f"{place} judges {words[-2]!r} a second time, with another grade", hint=QRELS_FORM)
    if not qrels:
        raise UsageError(f"{path} holds no judgments", hint=QRELS_FORM)
    return qrels


def write_qrels(qrels: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Yield the lines of TREC qrels."""
    for question, grades in qrels.items():
        for document, grade in grades.items():
            yield f"{one_word(question)} 0 {one_word(document)} {grade}"


def one_word(key: str) -> str:
    """An id for a file of TREC, where white space separates: there it is percent-encoded."""
    return re.sub(r"[\s%]", lambda space: quote(space[0]), key) if re.search(r"\s", key) else key


def read_questions(path: Path) -> dict[str, str]:
    """Read questions by their ids."""
    questions = dict[str, str]()
    for place, line in lines(path):
        if line.lstrip().startswith("{"):
            row = json_object(line, place, QUERIES_FORM)
            key, text = _id(row, place, QUERIES_FORM), _text(row, place, QUERIES_FORM)
        else:
            key, _, text = (word.strip() for word in line.partition("\t"))
            if not key or not text:
                raise UsageError(f"{place} has no id and text", hint=QUERIES_FORM)
        if questions.setdefault(key, text) != text:
            raise UsageError(f"{place} has the id {key!r}, which another question has", hint="give each its own id")
    return questions


def read_corpus(path: Path) -> tuple[dict[str, Any], ...]:
    """Read documents with `_id`, `title` and `text`; the last one wins where an id occurs twice."""
    documents = {}
    for place, line in lines(path):
        row = json_object(line, place, CORPUS_FORM)
        key, title, text = _id(row, place, CORPUS_FORM), row.get("title") or "", row.get("text") or ""
        if not isinstance(title, str) or not isinstance(text, str):
            raise UsageError(f'{place} has a "title" or a "text" that is not a string', hint=CORPUS_FORM)
        documents[key] = {**row, "_id": key, "title": title, "text": text}
    return tuple(documents.values())


def read_queries(data: bytes, name: str) -> list[str]:
    """Read one query from each line: plain text, or a JSON object with `text` or `query`."""
    rows = [(place, line.strip()) for place, line in numbered(data, name)]
    form = 'one query a line, or {"text": "…"}'
    return [_text(json_object(row, at, form), at, form) if row.startswith("{") else row for at, row in rows]


def lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the lines that are not blank, each with its place for error messages."""
    try:
        data = path.read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise UsageError(f"{path} is no file", hint="check the path") from error
    except OSError as error:
        raise FailedError(f"{path} cannot be read: {error.strerror or error}", hint="check its permissions") from error
    yield from numbered(data, str(path))


def numbered(data: bytes, name: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of the file `name` that are not blank, each with its place for error messages."""
    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))  # what a redirection in PowerShell writes
    try:
        text = data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{name}: line {number} is not text in UTF-8: {error.reason}", hint=UTF_8) from error
    # Split on \n alone: some texts hold U+2028, at which str.splitlines would break a JSON line in two.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"{name}: line {number}", line.removesuffix("\r")


def write_lines(path: Path, text: Iterable[str]) -> None:
    """Write a text file from its lines."""
    with file_errors(path, hint="name another file"):
        path.write_text("".join(f"{line}\n" for line in text), encoding="utf-8")


def _text(row: Mapping[str, Any], place: str, form: str) -> str:
    text = row.get("text", row.get("query"))
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f'{place} has no "text" or "query"', hint=form)
    return text


def json_object(line: str | bytes, place: str, form: str) -> dict[str, Any]:
    """Parse a line or a file as a JSON object, or raise an error that shows the `form` of a line."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place} is not JSON: {error}", hint=form) from error
    if not isinstance(row, dict):
        raise UsageError(f"{place} is no JSON object", hint=form)
    return row


def read_json(path: Path, hint: str) -> dict[str, Any]:
    """Read a file that holds one JSON object, or raise an error with the hint."""
    return json_object("\n".join(line for _, line in lines(path)), str(path), hint)


def _id(row: Mapping[str, Any], place: str, form: str) -> str:
    key = row.get("_id", row.get("id"))
    if isinstance(key, int) and not isinstance(key, bool):
        key = str(key)
    if not isinstance(key, str) or not key.strip():
        raise UsageError(f'{place} has no "_id"', hint=form)
    return key
