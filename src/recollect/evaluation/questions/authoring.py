"""From a store to a question set in a folder: what may be seen is read, asked about, checked and written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from recollect import __version__
from recollect.errors import UsageError
from recollect.evaluation.corpora import Bars
from recollect.evaluation.questions import folders
from recollect.evaluation.questions.choosing import SPLITS, choose, in_order, split_of
from recollect.evaluation.questions.folders import Kept, Line
from recollect.evaluation.questions.leakage import Leak, Row, table
from recollect.evaluation.questions.looking import Look, in_a_store
from recollect.evaluation.questions.making import KINDS, Question, make_questions
from recollect.evaluation.questions.masking import Masked
from recollect.evaluation.questions.paraphrase import Asked, Paraphraser, tokens, worth_asking
from recollect.evaluation.questions.telling import leak_warning, readme
from recollect.memory import Memory
from recollect.memory.extraction import language_model
from recollect.types import Progress, Record


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
    folders.write(folder, lines, _manifest(author, lines, rows), readme(sides, rows, masked=bool(masked)), corpus)
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
    folders.check(folder, force=wishes.force, update=wishes.update)
    kept = folders.read(folder) if wishes.update else Kept([], frozenset(), {})
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
