"""Questions and judgments in files: BEIR's and TREC's forms in, TREC's out; an error names file and line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from recollect.errors import FailedError, UsageError

Qrels: TypeAlias = dict[str, dict[str, int]]
"""Question → document → grade; 0 is not relevant."""

BEIR_COLUMNS, TREC_COLUMNS = 3, 4
HEADINGS = ("query-id", "query_id", "queryid", "qid", "query", "topic", "topic-id", "question", "question-id")
QRELS_FORM = "a line is `question<TAB>document<TAB>grade`, or TREC's `question 0 document grade`"
QUERIES_FORM = 'a line is {"_id": "…", "text": "…"}, or `id<TAB>text`'
CORPUS_FORM = 'a line is {"_id": "…", "title": "…", "text": "…"}'


def read_qrels(path: Path) -> Qrels:
    """The judgments of a file, in BEIR's form (with or without its heading) or TREC's."""
    qrels: Qrels = {}
    for number, (place, line) in enumerate(lines(path)):
        words = _columns(line)
        if number == 0 and len(words) in (BEIR_COLUMNS, TREC_COLUMNS) and words[0].lower() in HEADINGS:
            continue
        if len(words) not in (BEIR_COLUMNS, TREC_COLUMNS):
            raise UsageError(f"{place} has {len(words)} columns, not three or four", hint=QRELS_FORM)
        qrels.setdefault(words[0], {})[words[-2]] = _grade(words[-1], place)
    if not qrels:
        raise UsageError(f"{path} holds no judgments", hint=QRELS_FORM)
    return qrels


def write_qrels(qrels: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """The lines of TREC qrels."""
    for question, grades in qrels.items():
        for document, grade in grades.items():
            if any(len(word.split()) != 1 for word in (question, document)):
                message = f"an id with a space cannot stand in TREC qrels: {question!r} {document!r}"
                raise UsageError(message, hint="give the documents ids without spaces")
            yield f"{question} 0 {document} {grade}"


def read_questions(path: Path) -> dict[str, str]:
    """Question → text."""
    return dict(_question(line, place) for place, line in lines(path))


def read_corpus(path: Path) -> tuple[dict[str, Any], ...]:
    """The documents, each with `_id`, `title` and `text`, and whatever else it holds; of an id named twice the last."""
    return tuple({row["_id"]: row for row in (_document(line, place) for place, line in lines(path))}.values())


def lines(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a file that are not blank, each with its place for an error to name."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise UsageError(f"{path} is no file", hint="name a file with judged questions") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not text in UTF-8: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise FailedError(f"{path} cannot be read: {error.strerror or error}", hint="may you read it?") from error
    # Split on \n alone: some texts hold U+2028, at which str.splitlines would break a JSON line in two.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"{path}: line {number}", line.removesuffix("\r")


def write_lines(path: Path, written: Iterable[str]) -> None:
    """A text file, a line each."""
    try:
        path.write_text("".join(f"{line}\n" for line in written), encoding="utf-8")
    except OSError as error:
        raise FailedError(f"{path} cannot be written: {error.strerror or error}", hint="name another file") from error


def _columns(line: str) -> list[str]:
    """By tabs where there are tabs, so that an id may hold a space; else by white space."""
    return [word.strip() for word in line.split("\t")] if "\t" in line else line.split()


def _grade(word: str, place: str) -> int:
    try:
        grade = float(word)
    except ValueError:
        grade = 0.5
    if not grade.is_integer():
        raise UsageError(f"{place} has the grade {word!r}; grades are whole numbers", hint=QRELS_FORM)
    return int(grade)


def _question(line: str, place: str) -> tuple[str, str]:
    if not line.lstrip().startswith("{"):
        key, _, words = line.partition("\t")
        if not key.strip() or not words.strip():
            raise UsageError(f"{place} has no id and text", hint=QUERIES_FORM)
        return key.strip(), words.strip()
    row = _object(line, place, QUERIES_FORM)
    text = row.get("text", row.get("query"))
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f'{place} has no "text"', hint=QUERIES_FORM)
    return _id(row, place, QUERIES_FORM), text


def _document(line: str, place: str) -> dict[str, Any]:
    row = _object(line, place, CORPUS_FORM)
    title, text = row.get("title") or "", row.get("text") or ""
    if not isinstance(title, str) or not isinstance(text, str):
        raise UsageError(f'{place} has a "title" or a "text" that is no text', hint=CORPUS_FORM)
    return {**row, "_id": _id(row, place, CORPUS_FORM), "title": title, "text": text}


def _object(line: str, place: str, form: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place} is not JSON: {error}", hint=form) from error
    if not isinstance(row, dict):
        raise UsageError(f"{place} is no JSON object", hint=form)
    return row


def _id(row: Mapping[str, Any], place: str, form: str) -> str:
    key = row.get("_id", row.get("id"))
    if isinstance(key, int) and not isinstance(key, bool):
        key = str(key)
    if not isinstance(key, str) or not key.strip():
        raise UsageError(f'{place} has no "_id"', hint=form)
    return key
