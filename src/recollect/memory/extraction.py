"""`ingest-files`: which pieces of which files a language model reads, and what becomes of the facts it finds there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from recollect.config import Settings
from recollect.errors import ConfigError, LlmError, RecollectError, UsageError
from recollect.ingest.facts import ACTIONS, FactVerdict, Judge, messages, tokens
from recollect.ingest.pieces import Piece, expand, read, split
from recollect.memory.embeddings import Embeddings, errors_of
from recollect.models.llm import Llm, open_llm
from recollect.types import Change, Filter, Ingested, Progress, Put, Record, Scope, Serving, Store, Supersede

if TYPE_CHECKING:
    from recollect.types import Vector

MODES = ("run", "plan", "dry-run")
WORKSPACE = "OPENCLAW_WORKSPACE"
MOST_FACTS = 1_000_000_000

VERSION = "1"
"""Raised when what is asked changes so much that what was read before is worth reading again."""


@dataclass(slots=True)
class Extraction:
    """What was read, what was found in it, and what failed."""

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

    def estimate(self, judge: Judge) -> None:
        """About how many tokens the prompts will have, by file."""
        for piece in self.waiting:
            asked = tokens(messages(piece, judge.of_file(piece.path)))
            self.tokens[piece.path] = self.tokens.get(piece.path, 0) + asked

    @property
    def counts(self) -> dict[str, int]:
        """How many facts met each fate."""
        return {action: sum(verdict.action == action for _, verdict in self.verdicts) for action in ACTIONS}

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON. `tokens` are estimated, of the prompts alone."""
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


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be read, how far to go, and whose the facts are. None is what the settings say."""

    workspace: str | Path | None
    paths: Sequence[str] | None
    mode: str
    scope: Scope

    def root(self) -> Path:
        """The workspace: what is named, else what OpenClaw names, else the current folder."""
        named = self.workspace or os.environ.get(WORKSPACE) or "."
        try:
            return Path(named).expanduser().resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise UsageError(f"{named!r} cannot be a workspace: {error}", hint="name a folder: --workspace") from error

    def globs(self, default: Sequence[str]) -> list[str]:
        """What is to be read; a text is a list with commas."""
        said = default if self.paths is None else self.paths
        globs = [glob.strip() for glob in (said.split(",") if isinstance(said, str) else said) if glob.strip()]
        if not globs:
            raise UsageError("no file is named to be read", hint='--paths "skills/**/*.md,TOOLS.md,AGENTS.md"')
        return globs


def extract(
    store: Store, embeddings: Embeddings, settings: Settings, job: Job, progress: Progress | None = None
) -> Extraction:
    """Read the files, ask the model about every piece that was not read before, and store what is new."""
    if job.mode not in MODES:
        raise UsageError(f"unknown mode {job.mode!r}", hint=f"there are {', '.join(MODES)}")
    report = Extraction(str(job.root()), job.mode)
    report.pieces = _pieces(job, settings, report.skipped)
    waiting = _unread(store, report.pieces, job.scope)
    report.waiting = list(waiting.values())
    if not waiting:
        return report
    neighbours = Neighbours(embeddings, job.scope, report.warnings)
    known = store.records.list(Filter(scope=job.scope, kinds=("fact",)), limit=MOST_FACTS)
    judge = Judge(known, neighbours, similarity=settings.ingest.similarity, scope=job.scope)
    report.estimate(judge)
    if job.mode == "dry-run":
        return report
    llm = language_model(settings)
    for number, (digest, piece) in enumerate(waiting.items(), 1):
        verdicts = _ask(llm, piece, judge, report)
        if verdicts is not None and job.mode == "run":
            neighbours.keep([verdict.record for verdict in verdicts if verdict.record])
            _store(store, piece, verdicts, digest, report)
        if progress:
            progress(number, len(waiting))
    return report


def language_model(settings: Settings) -> Llm:
    """The model of `[llm]`; the key is read from the environment, when it is needed, and from nowhere else."""
    said = settings.llm
    return open_llm(
        base_url=said.base_url,
        model=said.model,
        api_key=os.environ.get(said.api_key_env),
        timeout=said.timeout,
        retries=said.retries,
        max_tokens=said.max_tokens,
        temperature=said.temperature,
    )


def _pieces(job: Job, settings: Settings, skipped: dict[str, str]) -> list[Piece]:
    said, root = settings.ingest, job.root()
    if said.overlap >= said.chunk_size:
        raise ConfigError(
            f"ingest.overlap ({said.overlap}) must be less than ingest.chunk_size ({said.chunk_size})",
            hint="`recollect config show` says where they come from",
        )
    files, refused = expand(root, job.globs(said.paths))
    skipped.update(refused)
    pieces: list[Piece] = []
    for path in files:
        try:
            text = read(path)
        except ValueError as error:
            skipped[str(path)] = str(error)
            continue
        name = path.relative_to(root).as_posix()
        pieces += split(text, path=str(path), name=name, size=said.chunk_size, overlap=said.overlap)
    return pieces


def _unread(store: Store, pieces: Sequence[Piece], scope: Scope) -> dict[str, Piece]:
    """By digest, the pieces that were not read before for this scope, each text of a file once."""
    whose = (VERSION, *(part or "" for part in (scope.user, scope.agent, scope.session)))
    found: dict[str, Piece] = {}
    for piece in pieces:
        found.setdefault(piece.digest(*whose), piece)
    done = store.files.ingested(list(found))
    return {digest: piece for digest, piece in found.items() if digest not in done}


def _ask(llm: Llm, piece: Piece, judge: Judge, report: Extraction) -> list[FactVerdict] | None:
    """The verdicts on what the model finds in a piece; None where it gave no answer, or not what was asked for."""
    report.sent += 1
    try:
        answer = llm.chat(messages(piece, judge.of_file(piece.path)), complete=True)
        verdicts = judge.read(piece, answer)
    except LlmError as error:
        report.failed.append((piece, error.message))
        return None
    report.verdicts += [(piece, verdict) for verdict in verdicts]
    return verdicts


def _store(store: Store, piece: Piece, verdicts: Sequence[FactVerdict], digest: str, report: Extraction) -> None:
    """A piece's facts and the note that it was read hold or fail as one."""
    changes: list[Change] = []
    for verdict in verdicts:
        if verdict.record is not None:
            changes.append(Put(verdict.record, merge=verdict.action == "add"))
            if verdict.other is not None:
                changes.append(Supersede(verdict.other.id, verdict.record.id, made=True))
    try:
        store.records.apply([[*changes, Ingested(digest)]])
    except UsageError as error:  # what it was to supersede was changed by another process meanwhile
        report.verdicts = [(other, verdict) for other, verdict in report.verdicts if other is not piece]
        report.failed.append((piece, error.message))


def _fact(piece: Piece, verdict: FactVerdict) -> dict[str, Any]:
    """One verdict as JSON, without what it does not have."""
    record, other = verdict.record, verdict.other
    shown = {
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
    return {name: value for name, value in shown.items() if value is not None}


LOOKED_AT = 5
"""The nearest may differ in a number where the next does not."""


class Neighbours:
    """Asks the embedder that serves. Without one, or when it fails, nothing is near, and a warning says so once."""

    def __init__(self, embeddings: Embeddings, scope: Scope, warnings: list[str]) -> None:
        self._embeddings = embeddings
        self._scope = scope
        self._warnings = warnings
        self._usable = embeddings.configured
        self._serving: Serving | None = None
        self._vectors: dict[str, Vector] = {}
        self._new: list[tuple[Record, Vector]] = []

    def nearest(self, record: Record) -> Sequence[tuple[Record, float]]:
        """Known facts and their cosines, nearest first."""
        vector = self._vector(record)
        if vector is None or self._serving is None:
            return ()
        where = Filter(scope=self._scope, kinds=("fact",))
        stored = [
            (match.record, match.score or 0.0) for match in self._serving.index.search(vector, where, LOOKED_AT).entries
        ]
        new = [(other, float(np.dot(vector, theirs))) for other, theirs in self._new]
        return sorted((*stored, *new), key=lambda pair: -pair[1])[:LOOKED_AT]

    def remember(self, record: Record) -> None:
        """Count this fact among the known."""
        if (vector := self._vector(record)) is not None:
            self._new.append((record, vector))

    def keep(self, records: Sequence[Record]) -> None:
        """Keep the vectors of facts that are about to be stored."""
        found = [(record.passage, vector) for record in records if (vector := self._vectors.get(record.id)) is not None]
        if found and self._serving is not None:
            self._serving.index.save([passage for passage, _ in found], np.stack([vector for _, vector in found]))

    def _vector(self, record: Record) -> Vector | None:
        if record.id not in self._vectors and self._usable:
            try:
                self._serving = self._serving or self._opened()
                with errors_of(self._serving.embedder):
                    self._vectors[record.id] = self._serving.embedder.passages([record.passage])[0]
            except RecollectError as error:
                self._usable = False
                self._warnings.append(f"duplicates were looked for by text only: {error.message}")
        return self._vectors.get(record.id)

    def _opened(self) -> Serving:
        serving = self._embeddings.serving()
        missing = serving.index.coverage()[1]
        if missing:
            self._warnings.append(
                f"{missing:,} records have no vector, so near duplicates of them are missed; `recollect embed`"
            )
        return serving
