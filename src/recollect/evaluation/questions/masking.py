"""A copy of what is stored in which the words of each question are taken out of the text that answers it.

A question made of a text's own words is found by those words. Where the sentence or the heading can be taken out and
enough is left, what remains still is about the same, but has to be found by the rest of what it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from recollect.evaluation.questions.leakage import target_of
from recollect.evaluation.questions.making import Question
from recollect.types import Record

MOST_REMOVED = 0.5
"""The part of a text, in words, that may go."""

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Masked:
    """Records as they stand after the words of some questions were taken out; every question is about one of them."""

    records: dict[str, Record]
    files: Mapping[str, Sequence[str]]
    lengths: Mapping[str, int]

    @classmethod
    def of(cls, records: Sequence[Record]) -> Masked:
        """Everything as it is stored."""
        files: dict[str, list[str]] = {}
        for record in records:
            files.setdefault(target_of(record), []).append(record.id)
        lengths = {record.id: len(_WORD.findall(record.text)) for record in records}
        return cls({record.id: record for record in records}, files, lengths)

    def take(self, questions: Iterable[Question]) -> Iterator[Question]:
        """Take out the words of those questions of which it is possible; each is judged by its record alone."""
        for question in questions:
            changed = self.without(question)
            if changed is not None:
                self.records.update({record.id: record for record in changed})
                yield replace(question, target=question.record)

    def without(self, question: Question) -> list[Record] | None:
        """The records that have to change for a question, as they would then be; None where it cannot be asked."""
        match question.kind:
            case "paraphrase":
                return []
            case "heading":
                return self._heading(question)
            case "sentence" | "fact":
                return self._sentence(question)
        # Links and aliases stand elsewhere. They ask for a whole file, and here each record is a document of its own.
        return [] if len(self.files[question.target]) == 1 else None

    def _sentence(self, question: Question) -> list[Record] | None:
        record = self.records[question.record]
        pattern = r"\W+".join(map(re.escape, _WORD.findall(question.removes or "")))
        rest, times = re.subn(rf"(?<!\w){pattern}(?!\w)[^\w\s]*", " ", record.text, count=1)
        return [replace(record, text=rest.strip())] if times and self._enough(rest, record) else None

    def _heading(self, question: Question) -> list[Record] | None:
        """A heading stands above its text, and in the titles of other chunks of the file; a title in all of them."""
        record, gone = (
            self.records[question.record],
            [_WORD.findall(line) for line in (question.removes or "").split("\n")],
        )
        chunks = [self.records[key] for key in self.files[question.target]]
        title = _WORD.findall(record.title.split(" › ")[0])
        if (gone == [title] and len(chunks) > 1) or not self._enough(_without_lines(record.text, gone), record):
            return None
        return [
            replace(
                chunk,
                title=" › ".join(part for part in chunk.title.split(" › ") if _WORD.findall(part) not in gone),
                text=_without_lines(chunk.text, gone),
            )
            for chunk in chunks
        ]

    def _enough(self, rest: str, record: Record) -> bool:
        return len(_WORD.findall(rest)) >= (1 - MOST_REMOVED) * self.lengths[record.id] > 0


def _without_lines(text: str, gone: Sequence[Sequence[str]]) -> str:
    """The text without the lines that are one of these headings, given as their words."""
    lines = text.split("\n")
    return "\n".join(
        line for line in lines if not (line.lstrip().startswith("#") and _WORD.findall(line) in gone)
    ).strip("\n")
