"""What a health check reports, what it needs to know about the setup, and the checks that fit every store."""

import os
import shlex
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from recollect.dataclass import dataclass
from recollect.errors import UPGRADE, RecollectError
from recollect.models.catalogue import DEFAULT
from recollect.models.embedders import is_self_contained
from recollect.ranking import fold_hash
from recollect.stores.rows import passage_hash
from recollect.types import Record, Steps, Store

State: TypeAlias = Literal["ok", "note", "warning", "failure"]

STATES: tuple[State, ...] = ("ok", "note", "warning", "failure")
"""From best to worst: fine · worth knowing · works, but less well than it should · broken."""

LONGEST_S = 5.0  # how long one check may read a store; a store of gigabytes would keep a person waiting for minutes
SAMPLE = 50  # records whose words are compared with the keyword index one by one; the others are only counted
MOST_CHARACTERS = 20_000  # longer records are not analysed again by a check

MOST_NAMED = 5
RESTORE = "restore the store from a backup; `recollect get ID` shows what is there now"
INDEX = "change its file (a blank line is enough) and run `recollect index` again, or restore the store from a backup"


class NotExamined(RecollectError):
    """A store whose content cannot be examined; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Reporter:
    """Where a fix announces what it does, and where long work reports its progress."""

    announce: Callable[[str], None]
    progress: Steps = lambda _: None


Fix: TypeAlias = Callable[[Reporter], None]
"""Repairs a finding, or raises the reason why not. It can be repeated, and deletes nothing of the user's."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check. `mend` says what to do, `fix` does it; `fixed` tells whether that was tried and worked."""

    check: str
    state: State
    message: str
    mend: str = ""
    fix: Fix | None = None
    fixed: bool | None = None

    def as_dict(self) -> dict[str, str | bool]:
        fields: dict[str, str | bool] = {name: getattr(self, name) for name in ("check", "state", "message", "mend")}
        return fields if self.fixed is None else {**fields, "fixed": self.fixed}


def worst(findings: Iterable[Finding]) -> State:
    """The worst state among them."""
    return max((finding.state for finding in findings), key=STATES.index, default="ok")


Space: TypeAlias = tuple[int, str, str]  # the number of a vector space, its fingerprint, and the name of its model


@dataclass(frozen=True, slots=True)
class Examination:
    """What a store's checks need to know: the address of the store, and what the settings say about it.

    `flags` are the command-line flags that make a suggested command act on the same store. `fingerprint` gives that of
    the embedder in the settings, or "" where it is known only after loading a model. `embed` computes the vectors that
    are missing; it is None where that would send texts to a service.
    """

    place: str
    flags: str = ""
    language: str | None = None
    embedder: str = "none"
    fingerprint: Callable[[], str] = str
    embed: Fix | None = None

    @property
    def fix_command(self) -> str:
        return f"recollect doctor --fix{self.flags}"

    def no_store(self, shown: str) -> Finding:
        mend = f"recollect index FOLDER{self.flags}, or recollect add TEXT{self.flags}"
        return Finding("store", "note", f"there is no store at {shown} yet", mend)

    def schema(self, shown: str, applied: int, known: int) -> Finding | None:
        """What to do about a store whose schema is not that of this version."""
        if applied > known:
            return Finding("store", "failure", f"{shown} has schema {applied}, this version knows {known}", UPGRADE)
        if applied < known:
            older = (
                f"{shown} has schema {applied} of {known}: the next command that may write to it brings it up to date"
            )
            return Finding("store", "note", older, f"recollect status{self.flags}")
        return None

    def language_note(self, stored: str | None) -> list[Finding]:
        """A note where the settings name another language than the store has."""
        if stored is None or self.language in (None, stored):
            return []
        message = f"the settings say language = {self.language!r}, and the store keeps its own, {stored}"
        return [Finding("keywords", "note", message, f"recollect language {self.language}{self.flags}")]

    def keywords(self, problem: str, rebuild: Fix) -> Finding:
        """Whether an index that is up to date agrees with the records."""
        if not problem:
            return Finding("keywords", "ok", "up to date, and agrees with the records")
        message = f"the keyword index differs from the records: {problem}"
        return Finding("keywords", "failure", message, f"{self.fix_command} builds it again", rebuild)

    def vectors(
        self, spaces: Sequence[Space], active: str | None, total: int, missing: Callable[[Space | None], int]
    ) -> Finding:
        """Whether every record has a vector of the embedder in the settings; for the default, of the store's own.

        `active` is the fingerprint of the space that searches use, and `missing` counts the records without a vector in
        the space of the embedder, which may not exist.
        """
        if self.embedder == "none":
            return Finding("vectors", "ok", "none needed: keyword search only")
        mine = self.fingerprint()
        serving = next((space for space in spaces if space[1] == active), None)
        own = [space for space in spaces if (space[1] == mine if mine else space[2] == self.embedder)]
        keeps = serving and self.embedder == DEFAULT != serving[2] and is_self_contained(serving[2])
        chosen = serving if keeps or serving in own else next(iter(own), None)
        name = chosen[2] if chosen else self.embedder
        without = missing(chosen)
        mend = f"recollect embed --embedder {shlex.quote(name)}{self.flags}"
        if serving and serving != chosen:
            lack = f"{without:,} records lack its vectors" if without else "its vectors are there and do not answer"
            other = f"searches use {serving[2]}, the settings say {self.embedder}: {lack}"
            return Finding("vectors", "warning", other, mend, self.embed)
        if without:
            return Finding("vectors", "warning", f"{without:,} of {total:,} records have no vector", mend, self.embed)
        return Finding("vectors", "ok", f"all {total:,} records have a vector of {name}")


def examine_any(check: str, store: Store, shown: str, examination: Examination) -> list[Finding]:
    """The checks of a store that brings none of its own, made through what every store can do."""
    total = store.status()["records"]["total"]
    match check:
        case "store":
            return [Finding("store", "ok", f"{shown}: {total:,} records")]
        case "keywords":
            note = examination.language_note(store.keywords.analyzer.language)
            behind = store.status().get("keyword_lag", 0)
            message = f"{behind:,} changes behind; the next search catches up" if behind else "up to date"
            return [*note, Finding("keywords", "note" if behind else "ok", message)]
        case "vectors":
            active = store.spaces.active
            spaces: list[Space] = [(0, active.fingerprint, active.embedder)] if active else []

            def missing(own: Space | None) -> int:
                return store.spaces.open(active).coverage()[1] if own and active else total

            return [examination.vectors(spaces, active.fingerprint if active else None, total, missing)]
    return []


def altered(rows: Iterable[Any], place: str = "", *, seconds: float = LONGEST_S) -> tuple[Finding | None, bool]:
    """Compare texts and titles with the hashes beside them; rows are (id, kind, title, text, fold, passage).

    Returns the failure where some differ, and whether there was time to compare all.
    """
    end = time.monotonic() + seconds
    records: list[str] = []
    chunks, finished = True, True
    for key, kind, title, text, fold, passage in rows:
        if time.monotonic() > end:
            finished = False
            break
        # The second hash counts for ASCII alone: other versions of Python may fold other texts in another way.
        folded = not text.isascii() or fold_hash(text) == fold
        if passage_hash(Record("", text, title=title).passage) != passage or not folded:
            records.append(key)
            chunks = chunks and kind == "chunk"
    if not records:
        return None, finished
    more = f" and {len(records) - MOST_NAMED:,} more" if len(records) > MOST_NAMED else ""
    count = f"{len(records):,} record{'' if len(records) == 1 else 's'}"
    message = (
        f"{place}the text or title of {count} was changed outside Recollect: {', '.join(records[:MOST_NAMED])}{more}"
    )
    return Finding("store", "failure", message, INDEX if chunks else RESTORE), finished


def is_file(path: Path) -> bool:
    """Whether there is such a file that may be reached; one in a closed folder does not count."""
    try:
        return path.is_file()
    except OSError:
        return False


def restrict(paths: Iterable[Path], reporter: Reporter) -> None:
    """Let only the user read and write these files."""
    for path in filter(is_file, paths):
        reporter.announce(f"removing access to {path} for everyone but you")
        path.chmod(0o600)


def readable_by_others(path: Path) -> bool:
    """Whether a file's mode, and that of every folder above it, lets anyone read it."""
    if os.name != "posix" or not is_file(path):
        return False
    return bool(path.stat().st_mode & stat.S_IROTH) and all(
        folder.stat().st_mode & stat.S_IXOTH for folder in path.absolute().parents
    )
