"""Judged sets on their stores: open a corpus, record once what every source answers, and replay any settings on it."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from recollect.config import Settings
from recollect.config.sources import RETRIEVERS
from recollect.disk import at_home, own_folder
from recollect.errors import FailedError, UsageError
from recollect.evaluation.datasets import Dataset, fingerprint_of, judged_documents
from recollect.evaluation.scoring import CONFIDENT, Run, by_place, deepest, evaluate
from recollect.memory import Memory
from recollect.pipeline import reason
from recollect.types import EVERYTHING, Filter, Progress, Put, RankedList, Record, Result, Steps, Work, now
from recollect.types.records import TURN_STEP

Options: TypeAlias = Mapping[str, Any]  # some settings of `[search]`, by name
OpenSet: TypeAlias = Callable[[Dataset], AbstractContextManager[Memory]]  # opens the memory that a set is measured on
BATCH = 1000  # documents stored per transaction
LONGEST_NAME = 80  # characters of a document's id in the name of its file
DEPTH = 200  # how deep the sources are read by default: as deep as any setting that is tried
MEASURE = "nDCG@10"
LIMIT = 100  # results of a ranking that are scored, where no measure reads more
AS_WRITTEN: Options = {"plain": True}  # quotes in a judged question are not operators of the query language
TOP = 10  # results of a ranking that are compared between settings
MOST_WARNINGS = 5  # different warnings of the sources that are repeated


def place_of(dataset: Dataset, settings: Settings) -> str:
    """Name the store's file. Each embedding model and each language has its own, and so has a set as files."""
    parts = ["files"] if dataset.as_files else ["turns"] if any(map(_conversation_of, dataset.corpus)) else []
    parts += [settings.embedder] if settings.embedder != "none" else []
    parts += [settings.language] if settings.language not in (None, "english") else []
    return "-".join(re.sub(r"[^\w.]+", "-", part) for part in (dataset.name, dataset.fingerprint, *parts)) + ".db"


def open_corpus(
    dataset: Dataset,
    *,
    settings: Settings | None = None,
    folder: Path | None = None,
    progress: Steps = lambda _: None,
    **opening: Any,
) -> Memory:
    """Open the set's own store; documents and vectors that are missing are added first.

    `opening` holds further arguments of `Memory.open`. External sources are left out, since they do not hold the set.
    """
    settings = replace(settings or Settings(), sources=())
    place = (folder or own_folder("cache") / "eval") / place_of(dataset, settings)
    announce = opening.get("announce", lambda _: None)
    with Memory.open(place, embedder="none", settings=Settings(language=settings.language)) as plain:
        if dataset.as_files:
            _index_files(plain, dataset, place.with_suffix(""), steps=progress, announce=announce)
        else:
            _store_documents(plain, dataset, progress, announce)
    with ExitStack() as stack:
        memory = stack.enter_context(Memory.open(place, settings=settings, **opening))
        if settings.embedder != "none":
            memory.embed(move=True, progress=progress(f"embedding {dataset.name}"))
        stack.pop_all()  # the caller closes it
        return memory


def _conversation_of(row: Mapping[str, Any]) -> str:
    """The conversation that a document is a turn of, if its metadata name one."""
    metadata = row.get("metadata")
    return str(metadata.get("session") or "") if isinstance(metadata, dict) else ""


def _store_documents(memory: Memory, dataset: Dataset, progress: Steps, announce: Callable[[str], None]) -> None:
    """Store every document as a record, unless all are there: as a fact, or as a turn of its conversation."""
    corpus = dataset.corpus
    if memory.status()["records"]["total"] >= len(corpus):
        return
    bar = progress(f"storing {dataset.name}")
    if bar is None:
        announce(f"storing {dataset.name}: {len(corpus):,} documents, cached for the next run")
    begun = now()
    for start in range(0, len(corpus), BATCH):
        facts, turns = list[dict[str, Any]](), list[Record]()
        for at, row in enumerate(corpus[start : start + BATCH], start):
            title = row.get("title") or ""
            fields: dict[str, Any] = {"id": row["_id"], "text": row.get("text") or title or "-", "title": title}
            if conversation := _conversation_of(row):
                fields |= {"kind": "turn", "source": dataset.name, "author_session": conversation}
                turns.append(Record(**fields, created_at=begun + at * TURN_STEP))
            else:
                facts.append(fields)
        memory.add_many(facts)
        memory.store.records.apply([list(map(Put, turns))])
        if bar:
            bar(min(start + BATCH, len(corpus)), len(corpus))


def _index_files(
    memory: Memory, dataset: Dataset, folder: Path, *, steps: Steps, announce: Callable[[str], None]
) -> None:
    """Index every document as a file; what is there already is neither written nor read again."""
    reading = steps(f"indexing {dataset.name}")
    if reading is None and not folder.is_dir():
        announce(f"indexing {dataset.name}: {len(dataset.corpus):,} files, cached for the next run")
    write_files(dataset.corpus, folder)
    memory.index(folder, embed=False, reading=reading)


def file_names(corpus: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Name the file of every document after its id: file name → id.

    Names differ also where a file system ignores case. Each consists of letters, digits, dots, dashes and underscores.
    """
    names: dict[str, str] = {}
    lower = set[str]()
    for row in corpus:
        name = stem = re.sub(r"[^\w.-]+", "-", row["_id"], flags=re.ASCII).strip("-.")[:LONGEST_NAME] or "document"
        number = 1
        while name.lower() in lower:
            number += 1
            name = f"{stem}-{number}"
        lower.add(name.lower())
        names[f"{name}.md"] = row["_id"]
    return names


def write_files(corpus: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Write every document as a markdown file. A folder that exists is complete: it gets its name last."""
    if folder.is_dir():
        return
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent) as beside:
            new = Path(beside, folder.name)
            new.mkdir()
            for name, row in zip(file_names(corpus), corpus, strict=True):
                new.joinpath(name).write_text(markdown(row), encoding="utf-8", errors="replace", newline="")
            new.rename(folder)
    except OSError as error:
        if folder.is_dir():  # another process was faster
            return
        message = f"{folder} cannot be written: {error.strerror or error}"
        raise FailedError(message, hint="check the disk and the permissions of the cache folder") from error


def markdown(row: Mapping[str, Any]) -> str:
    """Return a document's text below its title as a heading, unless the text begins with that heading."""
    heading, text = f"# {' '.join(row['title'].split())}", row["text"]
    if heading == "# ":
        return text or "-"
    return text if text.lstrip().split("\n", 1)[0].strip() == heading else f"{heading}\n\n{text}"


def find_targets(memory: Memory, dataset: Dataset) -> tuple[dict[str, str], int]:
    """Look up every judged document: each judged file name → its path in the store, and the number of unknown ones.

    A judged path may be absolute, relative, or the end of the path of only one file.
    """
    judged, reach = judged_documents(dataset.qrels), within_reach(memory)
    ids = {record.id for record in memory.store.records.get(sorted(judged), reach)}
    whole = {name: str(at_home(name).absolute()) for name in judged - ids}
    by_path = memory.store.joins.by_path([*whole.values(), *whole], reach)
    chunks = {name: by_path.get(path) or by_path.get(name) for name, path in whole.items()}
    files = {name: {str(record.path) for record in records} for name, records in chunks.items() if records}
    paths = {name: next(iter(matches)) for name, matches in files.items() if len(matches) == 1}
    if not ids and not paths:
        message = f"none of the {len(judged):,} judged documents is in the store, neither as an id nor as a path"
        raise UsageError(message, hint="check the store: `recollect list` shows ids, `recollect status` its path")
    return paths, len(judged) - len(ids) - len(paths)


def within_reach(memory: Memory) -> Filter:
    """Return a filter for the records that judgments may name: all, or those that a scoped caller can read."""
    return replace(EVERYTHING, any_scope=False, scope=memory.caller) if memory.caller is not None else EVERYTHING


@dataclass(frozen=True, slots=True)
class Recording:
    """What the sources of one memory answered. Fusion and stages run on it as they would in a search."""

    memory: Memory
    texts: Mapping[str, str]
    replies: Mapping[str, Sequence[RankedList]]
    work: Work | None = None

    def run(self, options: Options, *, limit: int = LIMIT) -> Run:
        """Rank the results of every question under these search options. The score is 1 / rank."""
        answers = self.results({**options, "limit": limit})
        return {key: by_place(result.record.id for result in results) for key, results in answers}

    def results(self, options: Options) -> Iterator[tuple[str, Sequence[Result]]]:
        """Every question's results under these search options."""
        for key, text in self.texts.items():
            pipeline, query = self.memory.prepare(text, work=self.work, **AS_WRITTEN, **options)
            names = {source.name for source in pipeline.sources}
            replies = [cut(reply, query.fetch_k) for reply in self.replies[key] if reply.source in names]
            yield key, pipeline.answer(query, replies, time.perf_counter()).results

    @property
    def warnings(self) -> list[str]:
        """The most frequent warnings and failures of the sources, each with the number of questions."""
        counts: Counter[str] = Counter()
        for reply in (reply for replies in self.replies.values() for reply in replies):
            counts.update(reply.warnings)
            if reply.error is not None:
                counts[f"{reply.source} did not answer: {reason(reply.error)}"] += 1
        questions = len(self.texts)
        return [f"{text} ({count:,} of {questions:,} questions)" for text, count in counts.most_common(MOST_WARNINGS)]


def record(
    memory: Memory,
    questions: Mapping[str, str],
    *,
    depth: int = DEPTH,
    options: Options | None = None,
    progress: Progress | None = None,
    work: Work | None = None,
) -> Recording:
    """Send every question to every source once. `options` are search options that all replays share."""
    replies: dict[str, Sequence[RankedList]] = {}
    for done, (key, text) in enumerate(questions.items(), 1):
        pipeline, query = memory.prepare(text, work=work, **AS_WRITTEN, **{**(options or {}), "fetch_k": depth})
        replies[key] = pipeline.ask(query)
        if progress:
            progress(done, len(questions))
    return Recording(memory, dict(questions), replies, work)


def cut(reply: RankedList, fetch_k: int) -> RankedList:
    """Turn a reply into that of a source read only `fetch_k` deep: a shorter list is the head of a longer one."""
    if reply.source not in RETRIEVERS:
        return reply  # an external source is read as deep as its own settings say
    among = min(reply.among, fetch_k) if reply.among and len(reply.entries) < fetch_k else None
    return replace(reply, entries=reply.entries[:fetch_k], among=among)


@dataclass(frozen=True, slots=True)
class JudgedSet:
    """One corpus with its judgments and recorded replies.

    `unknown` counts the judged documents that cannot be found, because they are not there or were not indexed. `paths`
    are the judged files of the user's own store. `documents` maps path to document id, for a set indexed as files.
    """

    dataset: Dataset
    recording: Recording
    unknown: int = 0
    paths: Mapping[str, str] = field(default_factory=dict)
    documents: Mapping[str, str] = field(default_factory=dict)

    @property
    def counts_files(self) -> bool:
        """Whether several results may count as one, because they are chunks of the same file."""
        return bool(self.documents or self.paths)

    def run(self, options: Options, *, limit: int) -> Run:
        """Rank the results of every question. Where files are judged, a file has the rank of its first chunk."""
        as_shown = self.dataset.own or self.dataset.as_files
        run = self.recording.run(options if as_shown else {"by": "chunk", **options}, limit=limit)
        if not self.counts_files:
            return run
        ids, qrels = sorted({key for ranking in run.values() for key in ranking}), self.dataset.qrels
        names = {record.id: self._document(record) for record in self.recording.memory.store.records.get(ids)}
        return {
            key: by_place(name if name in qrels.get(key, {}) else names.get(name, name) for name in ranking)
            for key, ranking in run.items()
        }

    def _document(self, record: Record) -> str:
        """The name by which a record's file is judged; without files, the record's id."""
        path = record.path or record.id
        return path if self.paths else self.documents.get(path, record.id)

    def confidences(self, options: Options, *, exclude_self: bool = False) -> list[list[tuple[float, bool]]]:
        """For each question, the confidence of the first results and whether they are relevant; none is left out.

        A result that no source can judge has the confidence 0, since every threshold leaves it out.
        """
        options = {**options, "limit": CONFIDENT + exclude_self, "confidence": True, "min_confidence": 0.0}
        judged = []
        for key, results in self.recording.results(options):
            grades, itself = self.dataset.qrels[key], key.removeprefix(self.dataset.prefix) if exclude_self else None
            rows = [({result.record.id, self._document(result.record)}, result.confidence or 0.0) for result in results]
            others = [(names, confidence) for names, confidence in rows if itself not in names][:CONFIDENT]
            judged.append([(one, any(grades.get(name, 0) > 0 for name in names)) for names, one in others])
        return judged


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """The result of one configuration: each question's value, and its top results."""

    values: Mapping[str, float]
    tops: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class JudgedSets:
    """One or several recorded corpora, measured together. Question ids are unique across them."""

    name: str
    parts: tuple[JudgedSet, ...]
    measure: str = MEASURE

    def __call__(self, options: Options) -> ReplayOutcome:
        """Replay every question under these options."""
        values: dict[str, float] = {}
        tops: dict[str, tuple[str, ...]] = {}
        cutoff = deepest([self.measure])
        for part in self.parts:
            # Without a cutoff, or where the chunks of a file count as one, more results are read.
            deep = not cutoff or part.counts_files
            run = part.run(options, limit=max(LIMIT if deep else TOP, cutoff))
            (scored,) = evaluate(part.dataset.qrels, run, [self.measure]).values()
            values |= scored
            tops |= {key: tuple(run[key])[:TOP] for key in scored}
        return ReplayOutcome(values, tops)

    @property
    def questions(self) -> int:
        """The number of judged questions."""
        return sum(len(part.dataset.qrels) for part in self.parts)

    def as_dict(self) -> dict[str, Any]:
        """Describe the data. The fingerprint changes with the texts, questions and judgments."""
        mark = fingerprint_of(part.dataset for part in self.parts)
        corpora = [{"name": part.dataset.name, "questions": len(part.dataset.qrels)} for part in self.parts]
        return {"name": self.name, "fingerprint": mark, "questions": self.questions, "corpora": corpora}


def record_set(memory: Memory, dataset: Dataset, **recording: Any) -> JudgedSet:
    """Record one set with the arguments of `record`; judged files of the user's own store are located first."""
    paths: dict[str, str] = {}
    documents: dict[str, str] = {}
    unknown = dataset.unknown
    if dataset.own:
        paths, unknown = find_targets(memory, dataset)
        judgments = dataset.qrels.items()
        qrels = {key: {paths.get(name, name): grade for name, grade in grades.items()} for key, grades in judgments}
        dataset = replace(dataset, qrels=qrels)
    elif dataset.as_files:
        names, files = file_names(dataset.corpus), memory.store.files
        documents = {path: names[Path(path).name] for root in files.roots() for path in files.known(root)}
        unknown = len(judged_documents(dataset.qrels) - set(documents.values()))
    return JudgedSet(dataset, record(memory, dataset.queries, **recording), unknown, paths, documents)


@contextmanager
def record_sets(
    name: str,
    sets: Sequence[Dataset],
    open_set: OpenSet,
    *,
    depth: int,
    measure: str = MEASURE,
    progress: Steps = lambda _: None,
    work: Work | None = None,
) -> Iterator[JudgedSets]:
    """Open and record every set, each source at least `depth` deep."""
    with ExitStack() as stack:
        parts = []
        for dataset in sets:
            memory = stack.enter_context(open_set(dataset))
            deep, bar = max(depth, memory.settings.search.fetch_k), progress(f"asking {dataset.name}")
            parts.append(record_set(memory, dataset, depth=deep, progress=bar, work=work))
        yield JudgedSets(name, tuple(parts), measure)
