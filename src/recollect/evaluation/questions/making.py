"""Questions from what is stored, each with the one thing it asks for; no language model, no chance.

- `heading`: a section's heading asks for the file it stands in;
- `link`: the words of a link ask for the file it leads to;
- `context`: where a link has no words of its own, the sentence around it asks for the file it leads to;
- `alias`: another name of a file, from its front matter, asks for the file;
- `sentence`: some words of a sentence ask for the file it stands in;
- `fact`: category, tags and some words ask for a fact.

How the words of a sentence are chosen is in `phrases.py`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from recollect.evaluation.questions import prose
from recollect.evaluation.questions.commonplaces import COMMONPLACES, LEADING
from recollect.evaluation.questions.leakage import MOST, Vocabulary, target_of
from recollect.evaluation.questions.linking import Linked, follow
from recollect.evaluation.questions.phrases import LEAST_CONTENT, Phrase, best_phrase, content_of, words_of
from recollect.ingest.records import MARKDOWN
from recollect.ranking import fold
from recollect.types import Record

KINDS = ("paraphrase", "context", "alias", "link", "heading", "sentence", "fact")
"""In the order in which they are drawn; the first is for a language model to make."""

MOST_PHRASES, MOST_TAGS = 3, 2
"""Questions from the sentences of one chunk, and names of a fact's category and tags in one question."""

MOST_RECORDS, MOST_READ = 5_000, 8_000
"""Records whose sentences are looked at, and characters of one: enough for any set, and a bound on the time."""

LONGEST = 200
"""Characters of a question."""

_SUFFIXES = MARKDOWN | {".txt", ".py", ".html", ".pdf"}

_CODE = re.compile(r"://|\w\(|[{}=<>|]")
"""What is in addresses, calls and formulas, and in no question."""

_NUMBER = re.compile(r"(?:0\d+|\d+(?:\.\d+)*(?:[.)]|\s+[-–])|\d+(?:\.\d+)+)\s+(?=\S)")
"""A section's number, as nobody asks for it."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the target it is judged by, and where in it the answer stood when the question was made.

    `origin` is the file that a link stands in; `removes` what would have to go from the record for it not to be copied.
    """

    text: str
    kind: str
    target: str
    record: str
    lines: tuple[int, int] | None = None
    origin: str | None = None
    removes: str | None = None

    @property
    def id(self) -> str:
        """The same for the same question about the same target, whatever else there is."""
        name = f"{self.kind}\0{self.target}\0{self.text}"
        return f"{self.kind}-{hashlib.blake2b(name.encode('utf-8', 'surrogatepass'), digest_size=6).hexdigest()}"


def make_questions(
    records: Sequence[Record], aliases: Mapping[str, Sequence[str]], vocabulary: Vocabulary
) -> list[Question]:
    """Every question that can be made, each text once; one that asks for two things asks for none."""
    made = Maker(sorted(records, key=_place), aliases, vocabulary)
    found: dict[str, Question] = {}
    wanted: dict[str, set[str]] = {}
    for question in made.questions():
        text = fold(question.text)
        found.setdefault(text, question)
        wanted.setdefault(text, set()).add(question.target)
    return [question for text, question in found.items() if len(wanted[text]) == 1]


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes questions of records in the order of their files."""

    records: Sequence[Record]
    aliases: Mapping[str, Sequence[str]]
    vocabulary: Vocabulary

    def questions(self) -> Iterator[Question]:
        """All kinds, the better kinds first."""
        notes = [record for record in self.records if is_note(record)]
        yield from self._linked(notes)
        yield from self._aliases(notes)
        yield from self._headings(notes)
        for record in self._sampled():
            yield from self._fact(record) if record.kind == "fact" else self._sentences(record)

    def _sampled(self) -> Sequence[Record]:
        """Facts and notes whose sentences are read: all, or of very many those that their ids pick."""
        told = [record for record in self.records if record.kind == "fact" or is_note(record)]
        picked = sorted(told, key=lambda record: hashlib.blake2b(record.id.encode("utf-8", "replace")).digest())
        chosen = {record.id for record in picked[:MOST_RECORDS]}
        return [record for record in told if record.id in chosen]

    def _linked(self, notes: Sequence[Record]) -> Iterator[Question]:
        first = {record.path: record for record in reversed(notes)}
        for linked in follow(notes):
            target = first[linked.path]
            for kind, text in self._of_link(linked):
                yield Question(text, kind, target_of(target), target.id, None, linked.origin)

    def _of_link(self, linked: Linked) -> Iterator[tuple[str, str]]:
        if self._specific(linked.link.text) and len(self._content(linked.link.text)) > 1:
            yield "link", linked.link.text
            return
        text = self._around(linked.link)
        enough = len(self._content(text)) >= LEAST_CONTENT and len(text) <= LONGEST
        if enough and self.vocabulary.share(text, linked.path) <= MOST:
            yield "context", text

    def _aliases(self, notes: Sequence[Record]) -> Iterator[Question]:
        for path, record in {record.path: record for record in reversed(notes)}.items():
            for alias in self.aliases.get(path or "", ()):
                if self._specific(alias):
                    yield Question(alias, "alias", target_of(record), record.id)

    def _headings(self, notes: Sequence[Record]) -> Iterator[Question]:
        """Titles and headings that one file has; to a heading of one word the title is added."""
        found = [(record, title, heading) for record in notes for title, heading in _headings(record)]
        files: dict[str, set[str]] = {}
        for record, _, heading in found:
            files.setdefault(fold(heading), set()).add(target_of(record))
        for record, title, heading in found:
            text, removes = _NUMBER.sub("", heading, count=1), heading
            if len(self._content(text)) == 1 and heading != title:
                text, removes = f"{_NUMBER.sub('', title, count=1)}: {text}", f"{title}\n{heading}"
            fits = len(self._content(text)) > 1 and len(text) <= LONGEST
            if fits and len(files[fold(heading)]) == 1 and self._specific(heading):
                yield Question(text, "heading", target_of(record), record.id, record.lines, removes=removes)

    def _sentences(self, record: Record) -> Iterator[Question]:
        """The phrases that say most, of each chunk a few."""
        for phrase in self._phrases(record)[:MOST_PHRASES]:
            yield Question(phrase.text, "sentence", target_of(record), record.id, record.lines, removes=phrase.sentence)

    def _fact(self, record: Record) -> Iterator[Question]:
        said = fold(record.passage)
        about = dict.fromkeys(word for word in (record.category, *record.tags) if word and fold(word) not in said)
        for phrase in self._phrases(record)[:1]:
            text = " ".join([*list(about)[:MOST_TAGS], phrase.text])
            yield Question(text, "fact", target_of(record), record.id, removes=phrase.sentence)

    def _phrases(self, record: Record) -> list[Phrase]:
        """The best phrase of each of its sentences, what says most first."""
        sentences = prose.sentences(record.text[:MOST_READ])
        found = (best_phrase(sentence, target_of(record), self.vocabulary) for sentence in sentences)
        return sorted((phrase for phrase in found if phrase), key=lambda phrase: -phrase.worth)

    def _content(self, text: str) -> list[str]:
        return content_of(text, self.vocabulary)

    def _specific(self, text: str) -> bool:
        """Whether a heading or a name is about something: no common word, no code, no file's name."""
        name = " " not in text and ("/" in text or PurePath(text).suffix.lower() in _SUFFIXES)
        common = fold(text).strip(" .:!?") in COMMONPLACES
        return bool(self._content(text)) and not (common or name or _CODE.search(text))

    def _around(self, link: prose.Link) -> str:
        """The sentence that a link ends or begins, without the small words that lead to it; else nothing."""
        text = link.before or link.after
        if not link.alone or (link.after and link.before) or "(" in text:
            return ""
        words = words_of(text, self.vocabulary)
        small = [word.stop or word.term in LEADING for word in words]
        while words and small[-1] and link.before:
            words.pop(), small.pop()
        while words and small[0] and link.after:
            words.pop(0), small.pop(0)
        return text[words[0].start : words[-1].end] if words else ""


def _headings(record: Record) -> list[tuple[str, str]]:
    """The title of the note and each heading; the title itself is the first."""
    title = prose.plain(record.title.split(" › ")[0])
    return [(title, heading) for heading in (title, *prose.headings(record.text))]


def is_note(record: Record) -> bool:
    """Whether it is prose: of source code no person asks in its words."""
    suffix = PurePath(record.path or "").suffix.lower()
    return record.kind == "chunk" and bool(record.path) and (suffix in MARKDOWN or suffix == ".txt")


def _place(record: Record) -> tuple[str, tuple[int, int], str]:
    return record.path or "", record.lines or (0, 0), record.id
