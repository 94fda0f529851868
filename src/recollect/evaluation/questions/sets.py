"""A copy of what is stored in which the words of each question are taken out of the text that answers it.

A question made of a text's own words is found by those words. Where the sentence or the heading can be taken out and
enough is left, what remains still is about the same, but has to be found by the rest of what it says.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from recollect import __version__
from recollect.config import Settings
from recollect.errors import UsageError
from recollect.evaluation.corpora import Bars
from recollect.evaluation.questions import files
from recollect.evaluation.questions.files import Kept, Line, leak_warning, readme
from recollect.evaluation.questions.generation import (
    KINDS,
    SPLITS,
    Asked,
    Paraphraser,
    Question,
    choose,
    in_order,
    is_note,
    make_questions,
    split_of,
    tokens,
    worth_asking,
)
from recollect.evaluation.questions.notes import Leak, Row, Vocabulary, table, target_of
from recollect.ingest.documents import MAX_FRONT_MATTER, read_document
from recollect.memory import Memory
from recollect.memory.opening import language_model
from recollect.types import FileState, Filter, KeywordIndex, Progress, Record, Store

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


DEPTH = 100
"""How many passages the search by words is asked for; a target beyond them has no rank."""

MOST_RECORDS = 1_000_000_000
_ALIASES = ("aliases", "alias")


@dataclass(frozen=True, slots=True)
class Look:
    """The records that a filter lets through, in the order of their ids, and the index that finds them by words."""

    records: Sequence[Record]
    vocabulary: Vocabulary
    keywords: KeywordIndex
    where: Filter
    aliases: Mapping[str, Sequence[str]]

    @classmethod
    def at(cls, memory: Memory, filters: Mapping[str, Any], progress: Progress | None = None) -> Look:
        """What a search with these filters could see; a path with a tab or a line end cannot be judged."""
        _, query = memory.prepare("", **filters)
        seen = memory.store.records.list(query.filter, limit=MOST_RECORDS)
        records = sorted((one for one in seen if not set("\t\r\n") & set(target_of(one))), key=lambda one: one.id)
        if not records:
            hint = "`recollect index FOLDER` or `recollect add TEXT` first; or are scope and filters too narrow?"
            raise UsageError("there is nothing in the store to ask about", hint=hint)
        keywords = memory.store.keywords
        aliases = _aliases(memory.store, records)
        return cls(records, Vocabulary.of(records, keywords.analyzer, progress), keywords, query.filter, aliases)

    @property
    def fingerprint(self) -> str:
        """Changes with what may be seen, and with nothing else."""
        return hashlib.blake2b("\0".join(record.id for record in self.records).encode(), digest_size=8).hexdigest()

    @property
    def targets(self) -> set[str]:
        """All that can be asked for."""
        return set(self.vocabulary.passages)

    def leaks(self, lines: Sequence[Line], progress: Progress | None = None) -> dict[str, Leak]:
        """What each question with a target gives away, by its id."""
        found: dict[str, Leak] = {}
        for number, line in enumerate(lines, 1):
            if line.target is not None:
                found[line.id] = self._leak(line.text, line.target)
            if progress:
                progress(number, len(lines))
        return found

    def _leak(self, text: str, target: str) -> Leak:
        matches = self.keywords.search(self.vocabulary.analyzer.query(text), self.where, DEPTH).entries
        ranked = list(dict.fromkeys(target_of(match.record) for match in matches))
        rank = ranked.index(target) + 1 if target in ranked else None
        return Leak(self.vocabulary.share(text, target), self.vocabulary.gives_away(text, target), rank)


def in_a_store(records: Sequence[Record], language: str, use: Callable[[Look], dict[str, Leak]]) -> dict[str, Leak]:
    """Use a look at records that are stored nowhere else, each a document of its own."""
    with Memory.open(":memory:", embedder="none", settings=Settings(language=language)) as memory:
        memory.add_many({"id": record.id, "title": record.title, "text": record.text or "-"} for record in records)
        return use(Look.at(memory, {}))


def _aliases(store: Store, records: Sequence[Record]) -> dict[str, list[str]]:
    """Other names of files, from the front matter of those that still are what was indexed."""
    paths = sorted({record.path for record in records if record.path and is_note(record)})
    found = {path: _named(path, state) for path, state in sorted(store.files.states(paths).items())}
    return {path: names for path, names in found.items() if names}


def _named(path: str, state: FileState) -> list[str]:
    try:
        content = Path(path).read_bytes()
    except OSError:
        return []
    if (
        not content.startswith(b"---")
        or b"alias" not in content[:MAX_FRONT_MATTER]
        or FileState.digest_of(content) != state.digest
    ):
        return []
    metadata = read_document(content, path).metadata
    said = next((metadata[name] for name in _ALIASES if metadata.get(name)), ())
    names = said.split(",") if isinstance(said, str) else said if isinstance(said, list) else ()
    return [name.strip() for name in names if isinstance(name, str) and name.strip()]


@dataclass(frozen=True, slots=True)
class SetWishes:
    """What kind of set is wanted: how many questions, from which shuffle, made how, of which records."""

    count: int = 200
    seed: int = 60
    llm: bool = False
    masked: bool = False
    update: bool = False
    force: bool = False
    filters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def paraphrases(self) -> int:
        """How many questions a language model is asked for: half of them."""
        return (self.count + 1) // 2 if self.llm else 0


@dataclass(frozen=True, slots=True)
class Made:
    """What was made, or with `calls` alone what would be: questions by side and kind, what they give away, warnings."""

    folder: str
    sides: dict[str, int]
    kinds: dict[str, int]
    added: int
    calls: int
    tokens: int
    leakage: Sequence[Row] = ()
    warnings: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Author:
    """Makes questions of what is seen, beside those that are kept."""

    look: Look
    wishes: SetWishes
    kept: Kept

    @property
    def missing(self) -> int:
        """How many questions are still wanted."""
        return max(0, self.wishes.count - len(self.kept.lines))

    def to_send(self) -> list[Record]:
        """The records that a language model is shown."""
        had = {line.metadata.get("record") for line in self.kept.lines if line.kind == "paraphrase"}
        count = min(self.wishes.paraphrases, self.missing)
        left = [record for record in self.look.records if record.id not in had]
        return worth_asking(left, count, self.wishes.seed, self.look.vocabulary) if count else []

    def paraphrases(self, memory: Memory, progress: Progress | None, announce: Callable[[str], None]) -> Asked:
        """Questions in other words, from the model of `[llm]`."""
        ask = Paraphraser(language_model(memory.settings), memory.store.notes, self.look.vocabulary)
        sent = self.to_send()
        announce(f"at most {len(sent):,} calls of {ask.llm.model}, about {tokens(sent):,} tokens to send")
        return ask(sent, [line.text for line in self.kept.lines], progress)

    def fresh(self, asked: Sequence[Question]) -> list[Question]:
        """New questions, as many as are missing; one that was ever in the set is not new."""
        made = make_questions(self.look.records, self.look.aliases, self.look.vocabulary)
        known = self.kept.known | {line.id for line in self.kept.lines}
        new = [question for question in (*asked, *made) if question.id not in known]
        if self.wishes.masked:
            masked = Masked.of(self.look.records)
            new = [question for question in new if masked.without(question) is not None]
        said = [question for question in new if question.kind == "paraphrase"]
        rest = [question for question in new if question.kind != "paraphrase"]
        return in_order([*said, *choose(rest, self.missing - len(said), self.wishes.seed)])


def make_set(
    memory: Memory,
    folder: Path,
    wishes: SetWishes,
    *,
    bars: Bars = lambda _: None,
    announce: Callable[[str], None] = lambda _: None,
) -> Made:
    """Make a set, or bring the one that is there up to date; `announce` is told what a model is about to be sent."""
    author = _author(memory, folder, wishes, bars("reading"))
    asked = author.paraphrases(memory, bars("asking"), announce) if wishes.llm else Asked()
    fresh = author.fresh(asked.questions)
    masked = Masked.of(author.look.records) if wishes.masked else None
    if masked:
        fresh = list(masked.take(fresh))
    lines = [*author.kept.lines, *map(_line, fresh)]
    if not lines:
        message = f"no question can be made of {len(author.look.records):,} records"
        raise UsageError(message, hint="it takes headings, links or sentences; source code has none")
    rows = _check(author.look, masked, lines, bars("checking"))
    sides = _sides(lines)
    corpus = _corpus(masked.records.values()) if masked else []
    files.write(folder, lines, _manifest(author, lines, rows), readme(sides, rows, masked=bool(masked)), corpus)
    warnings = [*_warnings(author, lines, asked), *leak_warning(rows)]
    return Made(str(folder), sides, _kinds(lines), len(fresh), asked.calls, 0, rows, warnings)


def plan_set(memory: Memory, folder: Path, wishes: SetWishes, *, bars: Bars = lambda _: None) -> Made:
    """What `make_set` would do, as far as that can be said without asking a model; nothing is sent or written."""
    author = _author(memory, folder, wishes, bars("reading"))
    sent = author.to_send()
    if wishes.llm:
        language_model(memory.settings)
    fresh = author.fresh([Question(one.id, "paraphrase", one.path or one.id, one.id) for one in sent])
    lines = [*author.kept.lines, *map(_line, fresh)]
    return Made(str(folder), _sides(lines), _kinds(lines), len(fresh), len(sent), tokens(sent))


def _author(memory: Memory, folder: Path, wishes: SetWishes, progress: Progress | None) -> Author:
    if wishes.update and (wishes.masked or wishes.force):
        raise UsageError("--update keeps a set, and --masked and --force make one anew", hint="give one of them")
    files.check(folder, force=wishes.force, update=wishes.update)
    kept = files.read(folder) if wishes.update else Kept([], frozenset(), {})
    if kept.manifest.get("masked"):
        raise UsageError(f"{folder} holds a masked set, which cannot be updated", hint="--masked --force makes it anew")
    return Author(Look.at(memory, wishes.filters, progress), wishes, kept)


def _line(question: Question) -> Line:
    about = {
        "kind": question.kind,
        "record": question.record,
        "lines": list(question.lines) if question.lines else None,
        "from": question.origin,
    }
    row = {
        "_id": question.id,
        "text": question.text,
        "metadata": {name: value for name, value in about.items() if value is not None},
    }
    return Line(row, split_of(question.id), {question.target: 1})


def _check(look: Look, masked: Masked | None, lines: Sequence[Line], progress: Progress | None) -> list[Row]:
    """What the questions give away, by kind; it is also noted in the lines that were made here."""
    if masked is None:
        leaks = look.leaks(lines, progress)
    else:
        search = partial(Look.leaks, lines=lines, progress=progress)
        leaks = in_a_store(list(masked.records.values()), look.keywords.analyzer.language, search)
    kinds: dict[str, list[Leak]] = {kind: [] for kind in (*KINDS, "own")}
    for line in lines:
        if leak := leaks.get(line.id):
            kinds.setdefault(line.kind, []).append(leak)
            if line.kind != "own":
                line.row["metadata"] = {**line.metadata, **leak.as_dict()}
    return table(kinds)


def _corpus(records: Iterable[Record]) -> list[str]:
    rows = [{"_id": record.id, "title": record.title, "text": record.text} for record in records]
    return [json.dumps(row, ensure_ascii=False) for row in sorted(rows, key=lambda row: row["_id"])]


def _manifest(author: Author, lines: Sequence[Line], rows: Sequence[Row]) -> dict[str, Any]:
    """How the set was made; no times and no names of places, so that the same store gives the same bytes."""
    wishes, look = author.wishes, author.look
    asked = {name: value for name, value in wishes.filters.items() if value}
    return {
        "recollect": __version__,
        "seed": wishes.seed,
        "asked_for": wishes.count,
        "masked": wishes.masked,
        "store": {"records": len(look.records), "fingerprint": look.fingerprint},
        "scope": look.where.scope.as_dict(),
        "filters": {name: list(value) if isinstance(value, tuple) else value for name, value in asked.items()},
        "questions": _kinds(lines),
        "leakage": [asdict(row) for row in rows],
        "known": sorted(author.kept.known | {line.id for line in lines}),
    }


def _warnings(author: Author, lines: Sequence[Line], asked: Asked) -> list[str]:
    targets = author.look.targets
    gone = 0 if author.wishes.masked else sum(line.target is not None and line.target not in targets for line in lines)
    unjudged = sum(line.target is None for line in lines)
    said = {
        f"{len(lines):,} questions are all that this store gives, of {author.wishes.count:,} asked for": (
            len(lines) < author.wishes.count
        ),
        f"{gone:,} questions ask for what is not in the store any more, or may not be seen": gone,
        f"{unjudged:,} questions have no judgment: add a line to the qrels": unjudged,
    }
    refused = [
        f"{count:,} answers of the language model left out: {why}" for why, count in sorted(asked.refused.items())
    ]
    return [*(words for words, holds in said.items() if holds), *refused]


def _sides(lines: Sequence[Line]) -> dict[str, int]:
    return {split: sum(line.split == split for line in lines) for split in SPLITS}


def _kinds(lines: Sequence[Line]) -> dict[str, int]:
    return dict(Counter(line.kind for line in sorted(lines, key=lambda line: (*KINDS, line.kind).index(line.kind))))
