"""Files in the store: folders indexed as chunks, and facts that a language model extracts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from recollect.config import Settings
from recollect.disk import at_home
from recollect.errors import ConfigError, LlmError, RecollectError, UsageError
from recollect.ingest.discovery import resolve_roots
from recollect.ingest.facts import ACTIONS, FactVerdict, Judge, Piece, expand, messages, read_for_facts, split, tokens
from recollect.ingest.folder import FileChanges, IndexOptions, IndexRun, Report, in_batches
from recollect.ingest.readers.worker import Worker
from recollect.ingest.recutting import FIELD, rules_after
from recollect.memory.embeddings import Embeddings
from recollect.memory.memory import Memory
from recollect.memory.naming import MOST_LISTED
from recollect.memory.roots import check_there, kept_fields
from recollect.models.openai import open_llm
from recollect.redaction import redact
from recollect.types import ActiveSpace, Filter, Progress, Record, Scope, Store, Vector
from recollect.types.records import Change, MarkIngested, Put, SetFolderOptions, Supersede

UNKNOWN_OPTIONS = "its indexing options are not known; run `recollect index` on it once more"
MIXED_OPTIONS = "contains folders that were indexed with other options; run `recollect index` on each of them"

MODES = ("run", "plan", "dry-run")
WORKSPACE = "OPENCLAW_WORKSPACE"
VERSION = "1"  # increased when the prompt changes so much that pieces should be read again
NEAREST = 5  # facts compared with a new one: the nearest may differ from it in a number where the next does not


def index(
    memory: Memory,
    folders: Iterable[tuple[Sequence[str | Path], IndexOptions | str]],
    *,
    dry_run: bool = False,
    embed: bool = True,
    reading: Progress | None = None,
    progress: Progress | None = None,
) -> Report:
    """Index paths with their options, and remember these for the next time; or skip paths for a reason."""
    report = Report(dry_run=dry_run)
    for paths, options in folders:
        if isinstance(options, str):
            report.skipped |= {str(path): options for path in paths}
        else:
            _index(memory.store, paths, options, report, reading)
    if embed and memory.embeddings.configured and not dry_run:
        announce_model(memory)
        with redactions_counted(memory, report), vectors_may_fail(memory):
            report.embedded = memory.embed(move=False, progress=progress)
    return report


def announce_model(memory: Memory) -> None:
    """Announce that the vectors will be of the store's model, if the settings name another one."""
    if memory.embeddings.configured and (stays := memory.embeddings.stay_notice()):
        memory.announce(stays)


@contextlib.contextmanager
def redactions_counted(memory: Memory, report: Report) -> Iterator[None]:
    """Report how many secrets were replaced in texts that were sent to an embedding server meanwhile."""
    before = memory.embeddings.redacted
    yield
    report.redacted += memory.embeddings.redacted - before


@contextlib.contextmanager
def vectors_may_fail(memory: Memory) -> Iterator[None]:
    """An error while vectors are computed is announced: keywords find what was indexed."""
    try:
        yield
    except RecollectError as error:
        memory.announce(" – ".join(filter(None, (f"indexed without vectors: {error.message}", error.hint))))


def indexed_folders(
    memory: Memory, paths: Sequence[str], new: Sequence[str]
) -> Iterator[tuple[Sequence[str], IndexOptions | str]]:
    """These paths, by default all folders, with the options of the nearest indexed folder, or why they cannot be used.

    A folder is skipped if its options would change what belongs to an indexed folder inside it. `new` folders have
    default options.
    """
    roots = memory.store.files.roots()
    for path in paths or dict.fromkeys([*new, *roots]):
        if not Path(path).exists():
            yield [path], "not there"
            continue
        around = [root for root in roots if Path(path).is_relative_to(root)]
        if not around and not any(Path(path).is_relative_to(folder) for folder in new):
            raise UsageError(f"{path} is not indexed", hint="index it first: `recollect index`")
        options = roots[max(around, key=len)] if around else IndexOptions(memory.scope).as_dict()
        inside = [other for root, other in roots.items() if root != path and Path(root).is_relative_to(path)]
        if options is None:
            yield [path], UNKNOWN_OPTIONS
        else:
            chosen = IndexOptions.from_dict(options)
            # Inner folders keep their own options. If the folder was never indexed itself, its other files have none.
            mixed = any(
                other is None or (own := IndexOptions.from_dict(other)) != chosen.inside(own, chosen)
                or (not around and own != chosen)
                for other in inside
            )  # fmt: skip
            yield [path], MIXED_OPTIONS if mixed else chosen


def _index(
    store: Store, paths: Sequence[str | Path], options: IndexOptions, report: Report, reading: Progress | None
) -> None:
    check_there(store, paths)
    before, refused = store.files.roots(), dict[str, str]()
    for tags, roots in _by_tags(resolve_roots(paths, force=options.force), options.tags, before).items():
        tagged = replace(options, tags=tags)
        run = IndexRun(roots, store, tagged, report)
        if not report.dry_run:  # before the files: of an interrupted run it must be known by which rules these were cut
            store.records.apply([[_new_options(root, tagged, before) for root in roots]])
        for batch in chain([list(run.missing_marks())], in_batches(run.steps(reading))):
            if not report.dry_run:
                _apply(store, [step for step in batch if step.path not in refused], refused)
    for path, reason in refused.items():
        report.fail(path, reason)


def _new_options(root: Path, options: IndexOptions, before: Mapping[str, Mapping[str, Any] | None]) -> SetFolderOptions:
    """The options to store with a folder: those of the run, or its own if the run was over a part of it."""
    stored = before.get(str(root))
    patterns = [list(options.include), list(options.exclude)]
    is_part = any(patterns) and stored and [stored["include"], stored["exclude"]] != patterns
    fields = IndexOptions.from_dict(stored).as_dict() if stored and is_part else options.as_dict()
    return SetFolderOptions(str(root), fields | kept_fields(stored) | {FIELD: rules_after(before, root)})


def _by_tags(
    roots: Sequence[Path], named: tuple[str, ...], before: Mapping[str, Mapping[str, Any] | None]
) -> dict[tuple[str, ...], list[Path]]:
    """Folders by the tags of their chunks: the named ones, or those that the nearest indexed folder has."""
    groups: dict[tuple[str, ...], list[Path]] = {}
    for root in roots:
        around = [known for known, stored in before.items() if stored and root.is_relative_to(known)]
        stored = before[max(around, key=len)] if around and not named else None
        groups.setdefault(tuple(stored["tags"]) if stored else named, []).append(root)
    return groups


def _apply(store: Store, steps: Sequence[FileChanges], refused: dict[str, str]) -> None:
    """Store the changes of files. A file that the store refuses stays as it was; the others are stored."""
    try:
        store.records.apply(step.changes for step in steps)
    except UsageError:
        for step in steps:
            if step.path not in refused:
                try:
                    store.records.apply([step.changes])
                except UsageError as error:
                    refused[step.path] = f"not stored: {error.message}"


@dataclass(slots=True)
class Extraction:
    """The report of one run: the pieces of files, the facts found in them, and what failed.

    `waiting` are pieces that had not been read before; `tokens` is an estimate of the prompts by file; `redacted` is
    how many secrets were replaced in the text of the files.
    """

    workspace: str
    mode: str
    pieces: list[Piece] = field(default_factory=list)
    waiting: list[Piece] = field(default_factory=list)
    tokens: dict[str, int] = field(default_factory=dict)
    sent: int = 0
    verdicts: list[tuple[Piece, FactVerdict]] = field(default_factory=list)
    failed: list[tuple[Piece, str]] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    redacted: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """The number of facts by action."""
        return {action: sum(verdict.action == action for _, verdict in self.verdicts) for action in ACTIONS}

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON."""
        numbers = {"total": len(self.pieces), "done": len(self.pieces) - len(self.waiting)}
        return {
            "workspace": self.workspace,
            "mode": self.mode,
            "files": [
                self._file(path, name) for path, name in {piece.path: piece.name for piece in self.pieces}.items()
            ],
            "chunks": {**numbers, "waiting": len(self.waiting), "sent": self.sent, "failed": len(self.failed)},
            "tokens": sum(self.tokens.values()),
            "counts": self.counts,
            "facts": [_fact(piece, verdict) for piece, verdict in self.verdicts],
            "failed": [{"path": piece.path, "lines": piece.lines, "error": error} for piece, error in self.failed],
            "skipped": self.skipped,
            "redacted": self.redacted,
            "warnings": self.warnings,
        }

    def _file(self, path: str, name: str) -> dict[str, Any]:
        waiting = [piece for piece in self.waiting if piece.path == path]
        return {
            "path": path,
            "name": name,
            "chunks": sum(piece.path == path for piece in self.pieces),
            "waiting": [{"lines": piece.lines, "characters": len(piece.text)} for piece in waiting],
            "tokens": self.tokens.get(path, 0),
        }


def _fact(piece: Piece, verdict: FactVerdict) -> dict[str, Any]:
    """One verdict as JSON, without fields that are not set."""
    fields = {name: getattr(verdict, name) for name in ("action", "text", "span", "lines", "similarity")}
    fields |= {"path": piece.path, "reason": verdict.reason or None}
    if record := verdict.record:
        fields |= {"category": record.category, "tags": record.tags, "id": record.id}
    if other := verdict.other:
        fields |= {"other": {"id": other.id, "text": other.text}}
    return {name: value for name, value in fields.items() if value is not None}


def extract(
    memory: Memory, *, workspace: str | Path | None, paths: Sequence[str] | None, mode: str, progress: Progress | None
) -> Extraction:
    """Read the files, send every piece that was not read before to the model, and store the new facts."""
    if mode not in MODES:
        raise UsageError(f"unknown mode {mode!r}", hint=f"there are {', '.join(MODES)}")
    folder = workspace or os.environ.get(WORKSPACE) or "."
    try:
        root = at_home(folder).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(f"{folder!r} cannot be a workspace: {error}", hint="name a folder: --workspace") from error
    report = Extraction(str(root), mode)
    report.pieces = _pieces(root, paths, memory.settings, report)
    return extract_from(memory, report, progress)


def extract_from(memory: Memory, report: Extraction, progress: Progress | None = None) -> Extraction:
    """Send every piece of a report that was not read before to the model, and store the new facts."""
    store, settings, scope, mode = memory.store, memory.settings, memory.scope, report.mode
    waiting = _unread(store, report.pieces, scope)
    report.waiting = list(waiting.values())
    if not waiting:
        return report
    neighbours = FactNeighbours(memory.embeddings, scope, report.warnings)
    known = store.records.list(Filter(scope=scope, kinds=("fact",)), limit=MOST_LISTED)
    judge = Judge(known, neighbours, similarity=settings.ingest.similarity, scope=scope)
    for piece in report.waiting:
        prompt = tokens(messages(piece, judge.of_file(piece.path)))
        report.tokens[piece.path] = report.tokens.get(piece.path, 0) + prompt
    if mode == "dry-run":
        return report
    llm = open_llm(settings.llm)
    judge.author = llm.model
    for number, (digest, piece) in enumerate(waiting.items(), 1):
        report.sent += 1
        try:
            verdicts = judge.read(piece, llm.chat(messages(piece, judge.of_file(piece.path)), complete=True))
            if mode == "run":
                store.records.apply([[*_changes(verdicts), MarkIngested(digest)]])
                neighbours.save([verdict.record for verdict in verdicts if verdict.record])
            report.verdicts += [(piece, verdict) for verdict in verdicts]
        except (LlmError, UsageError) as error:  # or another process has changed the record to be superseded
            report.failed.append((piece, error.message))
        if progress:
            progress(number, len(waiting))
    return report


def _pieces(root: Path, paths: Sequence[str] | None, settings: Settings, report: Extraction) -> list[Piece]:
    """The pieces of the files that the patterns name; one string may hold several patterns, separated by commas.

    Secrets are replaced in the whole file, before it is cut: neither the model nor a fact gets them.
    """
    patterns = settings.ingest.paths if paths is None else paths
    globs = [glob.strip() for glob in (patterns.split(",") if isinstance(patterns, str) else patterns) if glob.strip()]
    if not globs:
        raise UsageError("no file is named", hint='--paths "skills/**/*.md,TOOLS.md,AGENTS.md"')
    size, overlap = settings.ingest.chunk_size, settings.ingest.overlap
    if overlap >= size:
        message = f"ingest.overlap ({overlap}) must be less than ingest.chunk_size ({size})"
        raise ConfigError(message, hint="`recollect config show` says where they come from")
    files, refused = expand(root, globs)
    report.skipped.update(refused)
    pieces: list[Piece] = []
    with Worker() as worker:
        for path in files:
            try:
                text, laid = read_for_facts(path, worker)
            except ValueError as error:
                report.skipped[str(path)] = str(error)
                continue
            text, count = redact(text)
            report.redacted += count
            name = path.relative_to(root).as_posix()
            parts = split(text, path=str(path), name=name, size=size, overlap=overlap)
            pieces += (replace(piece, place=laid.place(piece.lines)) for piece in parts) if laid else parts
    return pieces


def _unread(store: Store, pieces: Sequence[Piece], scope: Scope) -> dict[str, Piece]:
    """By digest, the pieces that were not read before for this scope, the same text of a file once."""
    salt = (VERSION, *(part or "" for part in (scope.user, scope.agent, scope.session)))
    by_digest: dict[str, Piece] = {}
    for piece in pieces:
        by_digest.setdefault(piece.digest(*salt), piece)
    for digest in store.files.ingested(list(by_digest)):
        del by_digest[digest]
    return by_digest


def _changes(verdicts: Sequence[FactVerdict]) -> list[Change]:
    changes: list[Change] = []
    for verdict in verdicts:
        if verdict.record is not None:
            changes.append(Put(verdict.record, merge=verdict.action == "add"))
            if verdict.other is not None:
                changes.append(Supersede(verdict.other.id, verdict.record.id, made=True))
    return changes


class FactNeighbours:
    """Facts near a new one in meaning: stored ones, and those found in this run.

    Without an embedder, or when it fails, there are none, and a warning says so once.
    """

    def __init__(self, embeddings: Embeddings, scope: Scope, warnings: list[str]) -> None:
        self._embeddings, self._scope, self._warnings = embeddings, scope, warnings
        self._usable = embeddings.configured
        self._serving: ActiveSpace | None = None
        self._vectors: dict[str, Vector] = {}
        self._new: list[Record] = []

    def nearest(self, record: Record) -> Sequence[tuple[Record, float]]:
        """Known facts and their cosine similarity, nearest first."""
        vector = self._vector(record)
        if vector is None or self._serving is None:
            return ()
        hits = self._serving.index.search(vector, Filter(scope=self._scope, kinds=("fact",)), NEAREST).entries
        stored = [(hit.record, hit.score or 0.0) for hit in hits]
        new = [(other, float(vector @ self._vectors[other.id])) for other in self._new]
        return sorted((*stored, *new), key=lambda pair: -pair[1])[:NEAREST]

    def remember(self, record: Record) -> None:
        """Add this fact to the known ones."""
        if self._vector(record) is not None:
            self._new.append(record)

    def save(self, records: Sequence[Record]) -> None:
        """Save the vectors of facts that have been stored."""
        import numpy as np

        rows = {record.passage: self._vectors[record.id] for record in records if record.id in self._vectors}
        if rows and self._serving is not None:
            self._serving.index.save(list(rows), np.stack(list(rows.values())))

    def _vector(self, record: Record) -> Vector | None:
        if record.id not in self._vectors and self._usable:
            try:
                if self._serving is None:
                    self._serving = self._embeddings.serving()
                    if missing := self._serving.index.coverage()[1]:
                        missed = "so near duplicates of them are missed; `recollect embed`"
                        self._warnings.append(f"{missing:,} records have no vector, {missed}")
                self._vectors[record.id] = self._serving.embed([record.passage])[0]
            except RecollectError as error:
                self._usable = False
                self._warnings.append(f"duplicates were looked for by text only: {error.message}")
        return self._vectors.get(record.id)
