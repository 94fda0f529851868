"""Make a question set from a store: read the visible records, make and check questions, and write the folder."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from recollect import __version__
from recollect.config import Settings
from recollect.errors import UsageError, file_errors
from recollect.evaluation import questions
from recollect.evaluation.datasets import QUERIES_FORM, json_object, lines, read_json, read_qrels, write_lines
from recollect.evaluation.prose import LEAKS, MOST, Leak, leak_table, target_of
from recollect.evaluation.questions import KINDS, SPLITS, SetQuestion, VisibleRecords
from recollect.evaluation.results import Json
from recollect.ingest.links import front_matter_of
from recollect.memory import Memory
from recollect.models.openai import open_llm
from recollect.types import Progress, Record, Steps

MOST_REMOVED = 0.5  # the part of a text, in words, that masking may remove
MANIFEST, CORPUS = "manifest.json", "corpus.jsonl"
MADE_BY, FORMAT = "recollect eval make-set", 1
HEADING = "query-id\tcorpus-id\tscore"
OTHER_FOLDER = "name another folder: -o FOLDER"

LEGEND = {  # column of the table of what questions give away → its meaning
    "words in target": "the share of a question's words that one passage of its target has",
    "most of them": "questions for which that share is more than half",
    "own word": "questions with a word that only their target has",
    "first by words": "questions whose target keyword search (BM25) ranks first",
    "copied": "those of them whose every word is in one passage of the target, so that being first proves little",
}

PAGE = """# Questions to a store, made by `recollect eval make-set`

| file | contents |
|---|---|
| `queries.jsonl`, `qrels.tsv` | the test split, to report on: {test} questions and their targets |
| `queries_dev.jsonl`, `qrels_dev.tsv` | the dev split, to try settings on: {dev} questions |
{corpus}| `manifest.json` | how the set was made, and the ids of all questions that were ever in it |

    recollect eval run FOLDER{run}

You may edit it: change the text of a question, delete its line, or add your own (`{{"_id": "mine-1", "text": "…"}}`,
and in the qrels a line with its id, a file's path or a record's id, and 1). `recollect eval make-set -o FOLDER
--update` keeps your changes, does not bring back deleted questions, and adds questions about new records.

A question asks for one known target. Other files may answer it as well, but finding those counts as not finding it:
compare settings by these numbers, and do not read them as the quality of search.

## What the questions give away

{table}

{legend}
"""

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


class _Line:
    """One question as it is in the files, its split, and its judgments (target → grade).

    The kind of a question that a person added is `own`; the target is the document with the best grade.
    """

    def __init__(self, row: dict[str, Any], split: str, grades: dict[str, int]) -> None:
        self.row, self.id, self.split, self.grades = row, str(row["_id"]), split, grades
        metadata = row.get("metadata")
        self.metadata: dict[str, Any] = metadata if isinstance(metadata, dict) else {}
        self.kind = str(self.metadata.get("kind", "own"))
        self.target = max((name for name in grades if grades[name] > 0), key=grades.__getitem__, default=None)


def make_set(
    memory: Memory,
    folder: Path,
    options: SetOptions,
    *,
    plan: bool = False,
    steps: Steps = lambda _: None,
    announce: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Make a set, or update the existing one, and return the JSON of `recollect eval make-set`.

    `announce` receives what a language model is about to be sent. With `plan`, nothing is sent or written, and the
    result is what is known without a language model.
    """
    old, manifest = _existing(folder, options)
    known = {*manifest.get("known", ()), *(line.id for line in old)}
    records = VisibleRecords(memory, options.filters, steps("reading"))
    masked = MaskedRecords(records.listed) if options.masked else None
    missing = max(0, options.count - len(old))
    sent = _records_to_send(records, old, missing, options) if options.llm else []
    llm = open_llm(memory.settings.llm) if options.llm else None
    paraphraser = questions.Paraphraser(llm, memory.store.notes, records.vocabulary) if llm else None
    if llm and paraphraser and not plan:
        announce(f"at most {len(sent):,} calls of {llm.model}, about {questions.count_tokens(sent):,} tokens to send")
        paraphrases = paraphraser(sent, [line.row["text"] for line in old], steps("asking"))
    else:
        paraphrases = [SetQuestion(one.id, "paraphrase", target_of(one), one.id) for one in sent]

    def is_new(question: SetQuestion) -> bool:
        return question.id not in known and not (masked and masked.without(question) is None)

    extracted = questions.QuestionMaker(records.vocabulary)(records.listed, records.aliases)
    first, rest = list(filter(is_new, paraphrases)), list(filter(is_new, extracted))
    entries = questions.in_order([*first, *questions.choose(rest, missing - len(first), options.seed)])
    if masked and not plan:
        entries = list(masked.mask(entries))
    every = [*old, *map(_line, entries)]
    sides, kinds = _counts(every)
    report = {"folder": str(folder), "sides": sides, "kinds": kinds, "added": len(entries)}
    if plan:
        costs = {"calls": len(sent), "tokens": questions.count_tokens(sent)}
        return {**report, **costs, "leakage": [], "warnings": []}
    if not every:
        message = f"no question can be made of {len(records.listed):,} records"
        raise UsageError(message, hint="questions come from facts, and from Markdown and text files")
    rows = _check(records, masked, every, steps("checking"))
    ids = sorted(known | {line.id for line in every})
    about = {**_origin(records, options), "questions": kinds, "leakage": rows, "known": ids}
    copies = sorted(masked.records.values(), key=lambda one: one.id) if masked else []
    _write_folder(folder, every, about, _readme(sides, rows, masked=bool(masked)), copies)
    calls, rejected = (paraphraser.calls, paraphraser.rejected) if paraphraser else (0, {})
    warnings = _warnings(records, options, every, rows, rejected)
    return {**report, "calls": calls, "tokens": 0, "leakage": rows, "warnings": warnings}


def _records_to_send(
    records: VisibleRecords, old: Sequence[_Line], missing: int, options: SetOptions
) -> Sequence[Record]:
    """The records that a language model paraphrases: half of the questions are made of them, of each record one."""
    half = min((options.count + 1) // 2, missing)
    used = {line.metadata.get("record") for line in old if line.kind == "paraphrase"}
    return records.to_send(half, used, options.seed)


def _counts(lines: Sequence[_Line]) -> tuple[dict[str, int], dict[str, int]]:
    """How many questions each split and each kind has."""
    sides = {split: sum(line.split == split for line in lines) for split in SPLITS}
    kinds = Counter(sorted((line.kind for line in lines), key=lambda kind: (*KINDS, kind).index(kind)))
    return sides, dict(kinds)


def _origin(records: VisibleRecords, options: SetOptions) -> dict[str, Any]:
    """What a set was made from: without times and paths, so that the same store gives the same bytes."""
    return {
        "made_by": MADE_BY,
        "format": FORMAT,
        "recollect": __version__,
        "seed": options.seed,
        "asked_for": options.count,
        "masked": options.masked,
        "store": {"records": len(records.listed), "fingerprint": records.fingerprint},
        "scope": records.where.scope.as_dict(),
        "filters": {name: value for name, value in options.filters.items() if value},
    }


def _line(question: SetQuestion) -> _Line:
    origin = {"record": question.record, "lines": question.lines, "from": question.origin}
    metadata = {"kind": question.kind, **{name: value for name, value in origin.items() if value is not None}}
    row = {"_id": question.id, "text": question.text, "metadata": metadata}
    return _Line(row, questions.split_of(question.id), {question.target: 1})


def _check(
    records: VisibleRecords, masked: MaskedRecords | None, entries: Sequence[_Line], bar: Progress | None
) -> list[dict[str, Any]]:
    """Return what the questions give away, by kind; generated questions also get it in their metadata."""
    judged = {line: line.target for line in entries if line.target}
    pairs = [(str(line.row["text"]), target) for line, target in judged.items()]
    leaks = masked.leaks(records, pairs, bar) if masked else records.leaks(pairs, bar)
    kinds: dict[str, list[Leak]] = {kind: [] for kind in (*KINDS, "own")}
    for line, leak in zip(judged, leaks, strict=True):
        kinds.setdefault(line.kind, []).append(leak)
        if line.kind != "own":
            figures = {"shared": round(leak.share, 3), "giveaway": leak.giveaway, "keyword_rank": leak.rank}
            line.row["metadata"] = {**line.metadata, **figures}
    return leak_table(kinds)


def _warnings(
    records: VisibleRecords,
    options: SetOptions,
    entries: Sequence[_Line],
    rows: Sequence[Json],
    rejected: Mapping[str, int],
) -> list[str]:
    targets, count, unjudged = records.vocabulary.passages, len(entries), sum(not line.target for line in entries)
    gone = 0 if options.masked else sum(line.target is not None and line.target not in targets for line in entries)
    leaking = rows[-1]["leaking"] if rows else 0.0
    warnings = {
        f"only {count:,} questions can be made of this store, of {options.count:,} asked for": count < options.count,
        f"{gone:,} questions ask for records that are gone or not visible": gone,
        f"{unjudged:,} questions have no judgment: add a line to the qrels": unjudged,
        **{f"{n:,} answers of the language model left out: {why}": n for why, n in sorted(rejected.items())},
        f"{100 * leaking:.0f} % of the questions share most of their words with their target, which favours keyword "
        "search: --llm asks in other words, --masked removes the words from a copy": leaking > MOST,
    }
    return [text for text, holds in warnings.items() if holds]


class MaskedRecords:
    """A copy of the records in which the words of each question are removed from the text that answers it."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = {record.id: record for record in records}
        self._lengths = {record.id: len(_WORD.findall(record.text)) for record in records}
        self._files: dict[str, list[str]] = {}
        for record in records:
            self._files.setdefault(target_of(record), []).append(record.id)

    def mask(self, entries: Iterable[SetQuestion]) -> Iterator[SetQuestion]:
        """Remove the words of each question, and yield those for which it is possible; their target is the record."""
        for question in entries:
            if (changed := self.without(question)) is not None:
                self.records.update({record.id: record for record in changed})
                yield replace(question, target=question.record)

    def without(self, question: SetQuestion) -> list[Record] | None:
        """Return the records that change for a question, as they would be; None if it cannot be masked."""
        record, chunks = self.records[question.record], [self.records[key] for key in self._files[question.target]]
        match question.kind:
            case "paraphrase":
                return []
            case "sentence" | "fact":
                pattern = r"\W+".join(map(re.escape, _WORD.findall(question.removes or "")))
                rest, times = re.subn(rf"(?<!\w){pattern}(?!\w)[^\w\s]*", " ", record.text, count=1)
                return [replace(record, text=rest.strip())] if times and self._enough(rest, record) else None
            case "heading":
                # It goes from above its text and from the titles of all chunks; a title of several chunks stays.
                removed = [_WORD.findall(line) for line in (question.removes or "").split("\n")]
                whole = removed == [_WORD.findall(record.title.split(" › ")[0])] and len(chunks) > 1
                changed = {chunk.id: _without_heading(chunk, removed) for chunk in chunks}
                return None if whole or not self._enough(changed[record.id].text, record) else list(changed.values())
        # Links and aliases ask for a whole file, but here each record is its own document.
        if len(chunks) > 1:
            return None
        lines = record.text.split("\n")
        above = [line for line in front_matter_of(record) if not line.startswith("aliases: ")]
        rest = "\n".join((*above, *lines[len(front_matter_of(record)) :])).strip("\n")
        return [replace(record, text=rest)] if question.kind == "alias" else []

    def leaks(
        self, visible: VisibleRecords, entries: Sequence[tuple[str, str]], progress: Progress | None
    ) -> list[Leak]:
        """Return what each question gives away when the masked records are all there is."""
        settings = Settings(language=visible.keywords.analyzer.language)
        with Memory.open(":memory:", embedder="none", settings=settings) as memory:
            rows = ({"id": one.id, "title": one.title, "text": one.text or "-"} for one in self.records.values())
            memory.add_many(rows)
            return VisibleRecords(memory, {}).leaks(entries, progress)

    def _enough(self, rest: str, record: Record) -> bool:
        return len(_WORD.findall(rest)) >= (1 - MOST_REMOVED) * self._lengths[record.id] > 0


def _without_heading(chunk: Record, removed: Sequence[Sequence[str]]) -> Record:
    title = " › ".join(part for part in chunk.title.split(" › ") if _WORD.findall(part) not in removed)
    rest = (line for line in chunk.text.split("\n") if line.lstrip()[:1] != "#" or _WORD.findall(line) not in removed)
    return replace(chunk, title=title, text="\n".join(rest).strip("\n"))


def _existing(folder: Path, options: SetOptions) -> tuple[list[_Line], Mapping[str, Any]]:
    """Read the questions to keep and their manifest; refuse to overwrite anything that make-set did not make."""
    if options.update and (options.masked or options.force):
        message = "--update cannot be combined with --masked or --force"
        raise UsageError(message, hint="--update keeps a set, the others make a new one")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", hint="name a folder: -o FOLDER")
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    manifest = _manifest(folder / MANIFEST) if MANIFEST in names else {}
    if names and not manifest:
        raise UsageError(f"{folder} holds {names[0]}, which make-set did not make", hint=OTHER_FOLDER)
    if options.update and not manifest:
        raise UsageError(f"{folder} holds no set that could be updated", hint="leave --update out to make one")
    if options.update and manifest.get("masked"):
        message = f"{folder} holds a masked set, which cannot be updated"
        raise UsageError(message, hint="--masked --force makes a new one")
    if manifest and not (options.update or options.force):
        hint = "--update keeps your edits and adds new questions; --force replaces the set"
        raise UsageError(f"{folder} holds a set already", hint=hint)
    if not options.update:
        return [], {}
    entries = [line for split in SPLITS for line in _read_split(folder, split)]
    if twice := [name for name, count in Counter(line.id for line in entries).items() if count > 1]:
        raise UsageError(f"{folder}: two questions have the id {min(twice)!r}", hint="give one of them another _id")
    return entries, manifest


def _manifest(path: Path) -> dict[str, Any]:
    manifest = read_json(path, OTHER_FOLDER)
    if manifest.get("made_by") != MADE_BY or manifest.get("format") != FORMAT:
        raise UsageError(f"{path} was not made by this version of make-set", hint=OTHER_FOLDER)
    return manifest


def _files(folder: Path, split: str) -> tuple[Path, Path]:
    end = "" if split == "test" else f"_{split}"
    return folder / f"queries{end}.jsonl", folder / f"qrels{end}.tsv"


def _read_split(folder: Path, split: str) -> Iterator[_Line]:
    queries, qrels = _files(folder, split)
    grades = read_qrels(qrels) if qrels.exists() and any(text.strip() != HEADING for _, text in lines(qrels)) else {}
    for place, text in lines(queries) if queries.exists() else ():
        row = json_object(text, place, QUERIES_FORM)
        if not all(isinstance(row.get(key), str) and row[key].strip() for key in ("_id", "text")):
            raise UsageError(f'{place} has no "_id" or no "text"', hint=QUERIES_FORM)
        yield _Line(row, split, grades.get(row["_id"], {}))


def _write_folder(
    folder: Path, entries: Sequence[_Line], manifest: Mapping[str, Any], readme: str, corpus: Sequence[Record]
) -> None:
    """Write all files of the set; the manifest last, since it marks the others as complete."""
    files: dict[Path, list[str]] = {}
    if corpus:
        rows = ({"_id": record.id, "title": record.title, "text": record.text} for record in corpus)
        files[folder / CORPUS] = [json.dumps(row, ensure_ascii=False) for row in rows]
    for split in SPLITS:
        queries, qrels = _files(folder, split)
        here = [line for line in entries if line.split == split]
        files[queries] = [json.dumps(line.row, ensure_ascii=False) for line in here]
        grades = (f"{line.id}\t{name}\t{grade}" for line in here for name, grade in line.grades.items())
        files[qrels] = [HEADING, *grades]
    files[folder / "README.md"] = [readme.rstrip("\n")]
    files[folder / ".recollectignore"] = ["# Questions are not notes: `recollect index` leaves this folder out.", "*"]
    files[folder / MANIFEST] = [json.dumps(manifest, indent=1)]
    with file_errors(folder, hint="name another folder"):
        folder.mkdir(parents=True, exist_ok=True)
        if not corpus:
            (folder / CORPUS).unlink(missing_ok=True)
    for path, text in files.items():  # each at once, since it may hold a person's edits
        beside = path.with_name(f"{path.name}.new")
        write_lines(beside, text)
        beside.replace(path)


def leak_cells(rows: Sequence[Json]) -> list[tuple[str, ...]]:
    """Return the table of what the questions give away as text, with its head."""
    shares = [tuple(f"{100 * row[name]:.0f} %" for name in LEAKS) for row in rows]
    cells = [(row["kind"], f"{row['questions']:,}", *share) for row, share in zip(rows, shares, strict=True)]
    return [("kind", "questions", *LEGEND), *cells]


def _readme(sides: Mapping[str, int], rows: Sequence[Json], *, masked: bool) -> str:
    head, *cells = leak_cells(rows)
    table = "\n".join(f"| {' | '.join(row)} |" for row in [head, ("---",) * len(head), *cells])
    legend = "\n".join(f"- *{name}*: {meaning}" for name, meaning in LEGEND.items())
    corpus = "| `corpus.jsonl` | the records, without the words of the questions about them |\n" if masked else ""
    return PAGE.format(run="" if masked else " --store STORE", corpus=corpus, table=table, legend=legend, **sides)


def bias(folder: Path) -> str:
    """Return how a set made by `make-set` is biased; empty if it is not."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        leaking = next(row["leaking"] for row in manifest["leakage"] if row["kind"] == "all")
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        return ""
    if manifest.get("masked"):
        return "this set was made without the words of its answers: it favours vector search"
    share = f"{100 * leaking:.0f} % of these questions share most of their words with their answer"
    return f"{share}: they favour keyword search" if leaking > MOST else ""
