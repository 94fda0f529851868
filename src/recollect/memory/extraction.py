"""`ingest-files`: facts that a language model finds in files, compared with known facts and stored."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect.config import Settings
from recollect.errors import ConfigError, LlmError, RecollectError, UsageError
from recollect.ingest.facts import ACTIONS, FactVerdict, Judge, Piece, expand, messages, read, split, tokens
from recollect.memory.embeddings import Embeddings, embed
from recollect.models.openai import open_llm
from recollect.types import ActiveSpace, Change, Filter, MarkIngested, Progress, Put, Record, Scope, Store, Supersede

if TYPE_CHECKING:
    from recollect.memory.memory import Memory
    from recollect.types import Vector

MODES = ("run", "plan", "dry-run")
WORKSPACE = "OPENCLAW_WORKSPACE"
MOST_FACTS = 1_000_000_000

VERSION = "1"
"""Increased when the prompt changes so much that pieces should be read again."""

NEAREST = 5
"""Facts compared with a new one: the nearest may differ from it in a number where the next does not."""


@dataclass(slots=True)
class Extraction:
    """The report of one run: the pieces of files, the facts found in them, and what failed.

    `waiting` are pieces that had not been read before; `tokens` is an estimate of the prompts by file.
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

    @property
    def counts(self) -> dict[str, int]:
        """The number of facts by action."""
        return {action: sum(verdict.action == action for _, verdict in self.verdicts) for action in ACTIONS}

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "workspace": self.workspace,
            "mode": self.mode,
            "files": [self._file(path) for path in dict.fromkeys(piece.path for piece in self.pieces)],
            "chunks": {
                "total": len(self.pieces),
                "done": len(self.pieces) - len(self.waiting),
                "waiting": len(self.waiting),
                "sent": self.sent,
                "failed": len(self.failed),
            },
            "tokens": sum(self.tokens.values()),
            "counts": self.counts,
            "facts": [_fact(piece, verdict) for piece, verdict in self.verdicts],
            "failed": [{"path": piece.path, "lines": piece.lines, "error": error} for piece, error in self.failed],
            "skipped": self.skipped,
            "warnings": self.warnings,
        }

    def _file(self, path: str) -> dict[str, Any]:
        chunks = [piece for piece in self.pieces if piece.path == path]
        waiting = [piece for piece in self.waiting if piece.path == path]
        return {
            "path": path,
            "name": chunks[0].name,
            "chunks": len(chunks),
            "waiting": [{"lines": piece.lines, "characters": len(piece.text)} for piece in waiting],
            "tokens": self.tokens.get(path, 0),
        }


def _fact(piece: Piece, verdict: FactVerdict) -> dict[str, Any]:
    """One verdict as JSON, without fields that are not set."""
    record, other = verdict.record, verdict.other
    fields = {
        "action": verdict.action,
        "text": verdict.text,
        "span": verdict.span,
        "path": piece.path,
        "lines": verdict.lines,
        "category": record.category if record else None,
        "tags": record.tags if record else None,
        "id": record.id if record else None,
        "other": {"id": other.id, "text": other.text} if other else None,
        "similarity": verdict.similarity,
        "reason": verdict.reason or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def extract(
    memory: Memory, *, workspace: str | Path | None, paths: Sequence[str] | None, mode: str, progress: Progress | None
) -> Extraction:
    """Read the files, send every piece that was not read before to the model, and store the new facts."""
    if mode not in MODES:
        raise UsageError(f"unknown mode {mode!r}", hint=f"there are {', '.join(MODES)}")
    store, settings, scope = memory.store, memory.settings, memory.scope
    folder = workspace or os.environ.get(WORKSPACE) or "."
    try:
        root = Path(folder).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(f"{folder!r} cannot be a workspace: {error}", hint="name a folder: --workspace") from error
    report = Extraction(str(root), mode)
    report.pieces = _pieces(root, paths, settings, report.skipped)
    waiting = _unread(store, report.pieces, scope)
    report.waiting = list(waiting.values())
    if not waiting:
        return report
    neighbours = FactNeighbours(memory.embeddings, scope, report.warnings)
    known = store.records.list(Filter(scope=scope, kinds=("fact",)), limit=MOST_FACTS)
    judge = Judge(known, neighbours, similarity=settings.ingest.similarity, scope=scope)
    for piece in report.waiting:
        prompt = tokens(messages(piece, judge.of_file(piece.path)))
        report.tokens[piece.path] = report.tokens.get(piece.path, 0) + prompt
    if mode == "dry-run":
        return report
    llm = open_llm(settings.llm)
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


def _pieces(root: Path, paths: Sequence[str] | None, settings: Settings, skipped: dict[str, str]) -> list[Piece]:
    """The pieces of the files that the patterns name; one string may hold several patterns, separated by commas."""
    patterns = settings.ingest.paths if paths is None else paths
    globs = [glob.strip() for glob in (patterns.split(",") if isinstance(patterns, str) else patterns) if glob.strip()]
    if not globs:
        raise UsageError("no file is named", hint='--paths "skills/**/*.md,TOOLS.md,AGENTS.md"')
    size, overlap = settings.ingest.chunk_size, settings.ingest.overlap
    if overlap >= size:
        raise ConfigError(
            f"ingest.overlap ({overlap}) must be less than ingest.chunk_size ({size})",
            hint="`recollect config show` says where they come from",
        )
    files, refused = expand(root, globs)
    skipped.update(refused)
    pieces: list[Piece] = []
    for path in files:
        try:
            text = read(path)
        except ValueError as error:
            skipped[str(path)] = str(error)
            continue
        name = path.relative_to(root).as_posix()
        pieces += split(text, path=str(path), name=name, size=size, overlap=overlap)
    return pieces


def _unread(store: Store, pieces: Sequence[Piece], scope: Scope) -> dict[str, Piece]:
    """By digest, the pieces that were not read before for this scope, the same text of a file once."""
    salt = (VERSION, *(part or "" for part in (scope.user, scope.agent, scope.session)))
    by_digest: dict[str, Piece] = {}
    for piece in pieces:
        by_digest.setdefault(piece.digest(*salt), piece)
    done = store.files.ingested(list(by_digest))
    return {digest: piece for digest, piece in by_digest.items() if digest not in done}


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
        self._embeddings = embeddings
        self._scope = scope
        self._warnings = warnings
        self._usable = embeddings.configured
        self._serving: ActiveSpace | None = None
        self._vectors: dict[str, Vector] = {}
        self._new: list[tuple[Record, Vector]] = []

    def nearest(self, record: Record) -> Sequence[tuple[Record, float]]:
        """Known facts and their cosine similarity, nearest first."""
        vector = self._vector(record)
        if vector is None or self._serving is None:
            return ()
        where = Filter(scope=self._scope, kinds=("fact",))
        hits = self._serving.index.search(vector, where, NEAREST).entries
        stored = [(hit.record, hit.score or 0.0) for hit in hits]
        new = [(other, float(vector @ theirs)) for other, theirs in self._new]
        return sorted((*stored, *new), key=lambda pair: -pair[1])[:NEAREST]

    def remember(self, record: Record) -> None:
        """Add this fact to the known ones."""
        if (vector := self._vector(record)) is not None:
            self._new.append((record, vector))

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
                self._vectors[record.id] = embed(self._serving.embedder, [record.passage])[0]
            except RecollectError as error:
                self._usable = False
                self._warnings.append(f"duplicates were looked for by text only: {error.message}")
        return self._vectors.get(record.id)
