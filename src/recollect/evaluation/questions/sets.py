"""Make a question set from a store: read the visible records, make and check questions, and write the folder."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from recollect import __version__
from recollect.config import Settings
from recollect.errors import UsageError
from recollect.evaluation.questions.generation import (
    KINDS,
    SPLITS,
    Paraphraser,
    Paraphrases,
    SetQuestion,
    choose,
    count_tokens,
    in_order,
    is_note,
    make_questions,
    records_to_send,
    split_of,
)
from recollect.evaluation.questions.prose import Leak, LeakRow, Vocabulary, leak_table, target_of
from recollect.evaluation.questions.setfolder import (
    QuestionLine,
    SetFiles,
    check_folder,
    leak_warning,
    read_folder,
    readme,
    write_folder,
)
from recollect.evaluation.recording import Bars
from recollect.ingest.documents import MAX_FRONT_MATTER, read_document
from recollect.memory import Memory
from recollect.models.openai import open_llm
from recollect.types import FileState, Filter, KeywordIndex, Progress, Record, Store

DEPTH = 100
"""Results of the keyword search that checks a question; a target beyond them has no rank."""

MOST_LISTED = 1_000_000_000

MOST_REMOVED = 0.5
"""The part of a text, in words, that masking may remove."""

_ALIASES = ("aliases", "alias")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class SetOptions:
    """How many questions are made, by which methods, and of which records."""

    count: int = 200
    seed: int = 60
    llm: bool = False
    masked: bool = False
    update: bool = False
    force: bool = False
    filters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """The set that was made, or would be: questions by split and kind, what they give away, and warnings."""

    folder: str
    sides: dict[str, int]
    kinds: dict[str, int]
    added: int
    calls: int
    tokens: int
    leakage: Sequence[LeakRow] = ()
    warnings: Sequence[str] = ()


def make_set(
    memory: Memory,
    folder: Path,
    options: SetOptions,
    *,
    bars: Bars = lambda _: None,
    announce: Callable[[str], None] = lambda _: None,
) -> QuestionSet:
    """Make a set, or update the existing one; `announce` receives what a language model is about to be sent."""
    author = _author(memory, folder, options, bars("reading"))
    paraphrases = author.paraphrases(memory, bars("asking"), announce) if options.llm else Paraphrases()
    questions = author.new_questions(paraphrases.questions)
    masked = MaskedRecords.of(author.records.listed) if options.masked else None
    if masked:
        questions = list(masked.mask(questions))
    lines = [*author.existing.lines, *map(_line, questions)]
    if not lines:
        message = f"no question can be made of {len(author.records.listed):,} records"
        raise UsageError(message, hint="questions come from headings, links and sentences; source code has none")
    rows = _check(author.records, masked, lines, bars("checking"))
    sides = _sides(lines)
    corpus = _corpus(masked.records.values()) if masked else []
    write_folder(folder, lines, author.manifest(lines, rows), readme(sides, rows, masked=bool(masked)), corpus)
    warnings = [*author.warnings(lines, paraphrases), *leak_warning(rows)]
    return QuestionSet(str(folder), sides, _kinds(lines), len(questions), paraphrases.calls, 0, rows, warnings)


def plan_set(memory: Memory, folder: Path, options: SetOptions, *, bars: Bars = lambda _: None) -> QuestionSet:
    """Return what `make_set` would make, as far as it is known without a language model; nothing is sent or written."""
    author = _author(memory, folder, options, bars("reading"))
    sent = author.to_send()
    if options.llm:
        open_llm(memory.settings.llm)
    expected = [SetQuestion(one.id, "paraphrase", one.path or one.id, one.id) for one in sent]
    questions = author.new_questions(expected)
    lines = [*author.existing.lines, *map(_line, questions)]
    return QuestionSet(str(folder), _sides(lines), _kinds(lines), len(questions), len(sent), count_tokens(sent))


def _author(memory: Memory, folder: Path, options: SetOptions, progress: Progress | None) -> SetAuthor:
    if options.update and (options.masked or options.force):
        message = "--update cannot be combined with --masked or --force"
        raise UsageError(message, hint="--update keeps a set, the others make a new one")
    check_folder(folder, force=options.force, update=options.update)
    existing = read_folder(folder) if options.update else SetFiles()
    if existing.manifest.get("masked"):
        raise UsageError(
            f"{folder} holds a masked set, which cannot be updated", hint="--masked --force makes a new one"
        )
    return SetAuthor(VisibleRecords.of(memory, options.filters, progress), options, existing)


@dataclass(frozen=True, slots=True)
class VisibleRecords:
    """The records that a filter lets through, by id, their vocabulary, and the keyword index that checks questions."""

    listed: Sequence[Record]
    vocabulary: Vocabulary
    keywords: KeywordIndex
    where: Filter
    aliases: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, memory: Memory, filters: Mapping[str, Any], progress: Progress | None = None) -> VisibleRecords:
        """Read the records that a search with these filters could return.

        A path with a tab or a line break cannot be written to the judgments, so its records are left out.
        """
        _, query = memory.prepare("", **filters)
        visible = memory.store.records.list(query.filter, limit=MOST_LISTED)
        records = sorted((one for one in visible if not set("\t\r\n") & set(target_of(one))), key=lambda one: one.id)
        if not records:
            hint = "`recollect index FOLDER` or `recollect add TEXT` first, or widen scope and filters"
            raise UsageError("there is nothing in the store to ask about", hint=hint)
        keywords = memory.store.keywords
        aliases = _aliases(memory.store, records)
        return cls(records, Vocabulary.of(records, keywords.analyzer, progress), keywords, query.filter, aliases)

    @property
    def fingerprint(self) -> str:
        """Changes with the visible records."""
        return hashlib.blake2b("\0".join(record.id for record in self.listed).encode(), digest_size=8).hexdigest()

    def leaks(self, lines: Sequence[QuestionLine], progress: Progress | None = None) -> dict[str, Leak]:
        """Return what each question with a target gives away, by its id."""
        leaks: dict[str, Leak] = {}
        for number, line in enumerate(lines, 1):
            if line.target is not None:
                leaks[line.id] = self._leak(line.text, line.target)
            if progress:
                progress(number, len(lines))
        return leaks

    def _leak(self, text: str, target: str) -> Leak:
        matches = self.keywords.search(self.vocabulary.analyzer.query(text), self.where, DEPTH).entries
        ranked = list(dict.fromkeys(target_of(match.record) for match in matches))
        rank = ranked.index(target) + 1 if target in ranked else None
        return Leak(self.vocabulary.share(text, target), self.vocabulary.gives_away(text, target), rank)


def _aliases(store: Store, records: Sequence[Record]) -> dict[str, list[str]]:
    """Read the aliases in the front matter of files that have not changed since they were indexed."""
    paths = sorted({record.path for record in records if record.path and is_note(record)})
    aliases = {path: _file_aliases(path, state) for path, state in sorted(store.files.states(paths).items())}
    return {path: names for path, names in aliases.items() if names}


def _file_aliases(path: str, state: FileState) -> list[str]:
    try:
        content = Path(path).read_bytes()
    except OSError:
        return []
    has_aliases = content.startswith(b"---") and b"alias" in content[:MAX_FRONT_MATTER]
    if not has_aliases or FileState.digest_of(content) != state.digest:
        return []
    metadata = read_document(content, path).metadata
    value = next((metadata[name] for name in _ALIASES if metadata.get(name)), ())
    names = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else ()
    return [name.strip() for name in names if isinstance(name, str) and name.strip()]


@dataclass(frozen=True, slots=True)
class SetAuthor:
    """Makes questions about the visible records, besides those that exist."""

    records: VisibleRecords
    options: SetOptions
    existing: SetFiles

    @property
    def missing(self) -> int:
        """How many questions are still to be made."""
        return max(0, self.options.count - len(self.existing.lines))

    def to_send(self) -> list[Record]:
        """Return the records that a language model is shown, for half of the questions."""
        asked = {line.metadata.get("record") for line in self.existing.lines if line.kind == "paraphrase"}
        count = min((self.options.count + 1) // 2, self.missing) if self.options.llm else 0
        left = [record for record in self.records.listed if record.id not in asked]
        return records_to_send(left, count, self.options.seed, self.records.vocabulary) if count else []

    def paraphrases(self, memory: Memory, progress: Progress | None, announce: Callable[[str], None]) -> Paraphrases:
        """Ask the language model of `[llm]` for questions in other words."""
        paraphraser = Paraphraser(open_llm(memory.settings.llm), memory.store.notes, self.records.vocabulary)
        sent = self.to_send()
        announce(f"at most {len(sent):,} calls of {paraphraser.llm.model}, about {count_tokens(sent):,} tokens to send")
        return paraphraser(sent, [line.text for line in self.existing.lines], progress)

    def new_questions(self, paraphrases: Sequence[SetQuestion]) -> list[SetQuestion]:
        """Return as many new questions as are missing; one that was ever in the set is not new."""
        records = self.records
        made = make_questions(records.listed, records.aliases, records.vocabulary)
        known = self.existing.known | {line.id for line in self.existing.lines}
        new = [question for question in (*paraphrases, *made) if question.id not in known]
        if self.options.masked:
            masked = MaskedRecords.of(records.listed)
            new = [question for question in new if masked.without(question) is not None]
        first = [question for question in new if question.kind == "paraphrase"]
        rest = [question for question in new if question.kind != "paraphrase"]
        return in_order([*first, *choose(rest, self.missing - len(first), self.options.seed)])

    def manifest(self, lines: Sequence[QuestionLine], rows: Sequence[LeakRow]) -> dict[str, Any]:
        """Return how the set was made, without times and paths, so that the same store gives the same bytes."""
        options, records = self.options, self.records
        filters = {name: value for name, value in options.filters.items() if value}
        return {
            "recollect": __version__,
            "seed": options.seed,
            "asked_for": options.count,
            "masked": options.masked,
            "store": {"records": len(records.listed), "fingerprint": records.fingerprint},
            "scope": records.where.scope.as_dict(),
            "filters": {name: list(value) if isinstance(value, tuple) else value for name, value in filters.items()},
            "questions": _kinds(lines),
            "leakage": [asdict(row) for row in rows],
            "known": sorted(self.existing.known | {line.id for line in lines}),
        }

    def warnings(self, lines: Sequence[QuestionLine], paraphrases: Paraphrases) -> list[str]:
        """Return warnings about missing, outdated, unjudged and rejected questions."""
        targets, count = self.records.vocabulary.passages, self.options.count
        gone = 0 if self.options.masked else sum(line.target not in (None, *targets) for line in lines)
        unjudged = sum(line.target is None for line in lines)
        warnings = {
            f"only {len(lines):,} questions can be made of this store, of {count:,} asked for": len(lines) < count,
            f"{gone:,} questions ask for records that are gone or not visible": gone,
            f"{unjudged:,} questions have no judgment: add a line to the qrels": unjudged,
        }
        rejected = sorted(paraphrases.rejected.items())
        left_out = [f"{number:,} answers of the language model left out: {reason}" for reason, number in rejected]
        return [*(text for text, holds in warnings.items() if holds), *left_out]


def _line(question: SetQuestion) -> QuestionLine:
    metadata = {
        "kind": question.kind,
        "record": question.record,
        "lines": list(question.lines) if question.lines else None,
        "from": question.origin,
    }
    known = {name: value for name, value in metadata.items() if value is not None}
    row = {"_id": question.id, "text": question.text, "metadata": known}
    return QuestionLine(row, split_of(question.id), {question.target: 1})


def _check(
    records: VisibleRecords, masked: MaskedRecords | None, lines: Sequence[QuestionLine], progress: Progress | None
) -> list[LeakRow]:
    """Return what the questions give away, by kind; generated questions also get it in their metadata."""
    leaks = records.leaks(lines, progress) if masked is None else masked.leaks(records, lines, progress)
    kinds: dict[str, list[Leak]] = {kind: [] for kind in (*KINDS, "own")}
    for line in lines:
        if leak := leaks.get(line.id):
            kinds.setdefault(line.kind, []).append(leak)
            if line.kind != "own":
                line.row["metadata"] = {**line.metadata, **leak.as_dict()}
    return leak_table(kinds)


def _corpus(records: Iterable[Record]) -> list[str]:
    rows = [{"_id": record.id, "title": record.title, "text": record.text} for record in records]
    return [json.dumps(row, ensure_ascii=False) for row in sorted(rows, key=lambda row: row["_id"])]


def _sides(lines: Sequence[QuestionLine]) -> dict[str, int]:
    return {split: sum(line.split == split for line in lines) for split in SPLITS}


def _kinds(lines: Sequence[QuestionLine]) -> dict[str, int]:
    return dict(Counter(line.kind for line in sorted(lines, key=lambda line: (*KINDS, line.kind).index(line.kind))))


@dataclass(frozen=True, slots=True)
class MaskedRecords:
    """A copy of the records in which the words of each question are removed from the text that answers it.

    A question made of a text's own words is found by those words. Without them, the text has to be found by the rest of
    its content.
    """

    records: dict[str, Record]
    files: Mapping[str, Sequence[str]]
    lengths: Mapping[str, int]

    @classmethod
    def of(cls, records: Sequence[Record]) -> MaskedRecords:
        """Copy the records unchanged."""
        files: dict[str, list[str]] = {}
        for record in records:
            files.setdefault(target_of(record), []).append(record.id)
        lengths = {record.id: len(_WORD.findall(record.text)) for record in records}
        return cls({record.id: record for record in records}, files, lengths)

    def mask(self, questions: Iterable[SetQuestion]) -> Iterator[SetQuestion]:
        """Remove the words of each question, and yield those for which it is possible; their target is the record."""
        for question in questions:
            changed = self.without(question)
            if changed is not None:
                self.records.update({record.id: record for record in changed})
                yield replace(question, target=question.record)

    def without(self, question: SetQuestion) -> list[Record] | None:
        """Return the records that change for a question, as they would be; None if it cannot be masked."""
        match question.kind:
            case "paraphrase":
                return []
            case "heading":
                return self._without_heading(question)
            case "sentence" | "fact":
                return self._without_sentence(question)
        # Links and aliases stand elsewhere and ask for a whole file, but here each record is its own document.
        return [] if len(self.files[question.target]) == 1 else None

    def leaks(
        self, visible: VisibleRecords, lines: Sequence[QuestionLine], progress: Progress | None
    ) -> dict[str, Leak]:
        """Return what each question gives away when the masked records are all there is."""
        settings = Settings(language=visible.keywords.analyzer.language)
        with Memory.open(":memory:", embedder="none", settings=settings) as memory:
            rows = ({"id": one.id, "title": one.title, "text": one.text or "-"} for one in self.records.values())
            memory.add_many(rows)
            return VisibleRecords.of(memory, {}).leaks(lines, progress)

    def _without_sentence(self, question: SetQuestion) -> list[Record] | None:
        record = self.records[question.record]
        pattern = r"\W+".join(map(re.escape, _WORD.findall(question.removes or "")))
        rest, times = re.subn(rf"(?<!\w){pattern}(?!\w)[^\w\s]*", " ", record.text, count=1)
        return [replace(record, text=rest.strip())] if times and self._enough(rest, record) else None

    def _without_heading(self, question: SetQuestion) -> list[Record] | None:
        """Remove a heading above its text and from the titles of all chunks; a title of several chunks stays."""
        record = self.records[question.record]
        removed = [_WORD.findall(line) for line in (question.removes or "").split("\n")]
        chunks = [self.records[key] for key in self.files[question.target]]
        title = _WORD.findall(record.title.split(" › ")[0])
        if (removed == [title] and len(chunks) > 1) or not self._enough(_without_lines(record.text, removed), record):
            return None
        return [
            replace(
                chunk,
                title=" › ".join(part for part in chunk.title.split(" › ") if _WORD.findall(part) not in removed),
                text=_without_lines(chunk.text, removed),
            )
            for chunk in chunks
        ]

    def _enough(self, rest: str, record: Record) -> bool:
        return len(_WORD.findall(rest)) >= (1 - MOST_REMOVED) * self.lengths[record.id] > 0


def _without_lines(text: str, removed: Sequence[Sequence[str]]) -> str:
    """Return the text without these headings, each given as its words."""
    rest = (line for line in text.split("\n") if not (line.lstrip().startswith("#") and _WORD.findall(line) in removed))
    return "\n".join(rest).strip("\n")
