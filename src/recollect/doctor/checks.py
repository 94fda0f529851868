"""All checks in their order, the checks of the store, and the fixes of what they find."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

from recollect.config import misspelt
from recollect.doctor.services import llm, model, reranker, sources
from recollect.doctor.setup import Setup, extras, own_files, settings, tokens, versions
from recollect.errors import RecollectError
from recollect.stages import freshness
from recollect.stores.health import Finding, NotExamined, Reporter
from recollect.types import EVERYTHING, FileState, Store

Check: TypeAlias = Callable[[Setup], Iterable[Finding]]
"""Checks a setup and changes nothing. Its name is that of its findings."""

UNREADABLE = "the store cannot be read"
NAMED = 3
"""Folders that are named one by one."""


def store(setup: Setup) -> list[Finding]:
    """Whether the store exists, has this version's schema and no damage."""
    try:
        return _in_store("store", setup)
    except RecollectError as error:
        return [Finding("store", "failure", error.message, error.hint)]


def keywords(setup: Setup) -> list[Finding]:
    """How far the keyword index is behind, and whether it holds what is stored."""
    return _in_store("keywords", setup)


def vectors(setup: Setup) -> list[Finding]:
    """Whether every record has a vector of the embedder in the settings."""
    return _in_store("vectors", setup)


def disk(setup: Setup) -> list[Finding]:
    """Whether there is room on the disk, whether the store can be written, and who else can read it."""
    try:
        findings = list(setup.kind.examine("disk", setup.examination))
    except RecollectError:
        findings = []  # the check of the store reports it
    return [*findings, *own_files(setup)]


def files(setup: Setup) -> list[Finding]:
    """Whether the indexed files are unchanged."""
    try:
        kind = setup.kind
    except RecollectError:
        return [_not_examined("files", UNREADABLE)]
    try:
        with kind.inspect(setup.place) as opened:
            return list(_files(opened, setup.flags, shared=kind.shared))
    except NotExamined as error:
        return [_not_examined("files", error.message)]
    except RecollectError as error:
        return [Finding("files", "failure", error.message, error.hint)]


def _in_store(check: str, setup: Setup) -> list[Finding]:
    """The findings of the store's own check; where the store cannot be read, only `store` says why."""
    try:
        kind = setup.kind
    except RecollectError:
        if check == "store" and not misspelt(setup.place):
            raise
        return [_not_examined(check, UNREADABLE)]  # the check of the store, or of the settings, says why
    try:
        return list(kind.examine(check, setup.examination))
    except NotExamined as error:
        return [_not_examined(check, error.message)]
    except RecollectError as error:
        return [Finding(check, "failure", error.message, error.hint)]


def _not_examined(check: str, reason: str) -> Finding:
    return Finding(check, "note", f"not checked: {reason}")


def _files(opened: Store, flags: str, *, shared: bool) -> Iterator[Finding]:
    states = [state for root in opened.files.roots() for state in opened.files.known(root).values()]
    here = {state.root: not shared or Path(state.root).exists() for state in states}
    if away := sorted(root for root, there in here.items() if not there):
        count = sum(not here[state.root] for state in states)
        folders = ", ".join(away[:NAMED]) + (" …" if len(away) > NAMED else "")
        yield Finding("files", "note", f"{count:,} are in folders that are not on this machine: {folders}")
    near = [state for state in states if here[state.root]]
    if near or not states:
        yield _compared(near, flags, opened)


def _compared(states: Sequence[FileState], flags: str, opened: Store) -> Finding:
    if not states:
        return Finding("files", "ok", "no folder is mirrored")
    marks = [(freshness(state.path, state), state.root) for state in states]
    stale = [(mark, root) for mark, root in marks if mark != "fresh"]
    if not stale:
        return Finding("files", "ok", f"all {len(states):,} are unchanged since they were indexed")
    counts = Counter(mark for mark, _ in stale)
    summary = " and ".join(f"{count:,} {mark}" for mark, count in sorted(counts.items()))
    roots = list(dict.fromkeys(root for _, root in stale))
    where = shlex.join(roots[:NAMED]) + (" …" if len(roots) > NAMED else "")
    # Without the flags for their tags and scope the files would be indexed as others.
    names = opened.facets(replace(EVERYTHING, kinds=("chunk",)))
    same = ", with the flags that it was indexed with" if names["tags"] or any(names["scopes"]) else ""
    mend = f"recollect index {where}{flags}{same}"
    return Finding("files", "warning", f"{summary} since they were indexed, of {len(states):,}", mend)


CHECKS: tuple[Check, ...] = (
    versions, settings, extras, model, reranker, llm, store, keywords, vectors, files, sources, disk, tokens,
)  # fmt: skip
"""In the order in which they are shown and fixed: a model is fetched before vectors are computed with it."""


def examine(setup: Setup, checks: Sequence[Check] = CHECKS) -> list[Finding]:
    """The findings of all checks, in order. The checks run in parallel, because some wait for servers."""
    with ThreadPoolExecutor(len(checks), thread_name_prefix="recollect-doctor") as pool:
        return [finding for findings in pool.map(partial(_run, setup), checks) for finding in findings]


def _run(setup: Setup, check: Check) -> list[Finding]:
    """The findings of a check; an error in the check is a finding too."""
    try:
        return list(check(setup))
    except Exception as error:  # noqa: BLE001  (the other checks must still be shown)
        message = f"the check itself failed: {type(error).__name__}: {error}"
        return [Finding(_name(check), "failure", message, "a bug in recollect: please report it with this message")]


def treat(
    setup: Setup, findings: Sequence[Finding], reporter: Reporter, checks: Sequence[Check] = CHECKS
) -> list[Finding]:
    """Run the fixes of these findings, and check again what was fixed.

    Nothing is fixed while settings cannot be read: the fix would use another model or store than the user means.
    """
    if setup.wrong:
        reporter.announce("nothing is fixed until the settings can be read")
        return list(findings)
    after: list[Finding] = []
    by_name = {_name(check): check for check in checks}
    for name, group in groupby(findings, key=lambda finding: finding.check):
        before = list(group)
        fixes = [finding for finding in before if finding.fix]
        after += _fixed(before, fixes, reporter, partial(_run, setup, by_name[name])) if fixes else before
    return after


def _fixed(
    before: Sequence[Finding], fixes: Sequence[Finding], reporter: Reporter, check: Callable[[], list[Finding]]
) -> list[Finding]:
    """Run the fixes of one check's findings, and the check again."""
    for finding in fixes:
        reporter.announce(f"{finding.check}: {finding.message}")
    error = next((error for finding in fixes if (error := _failed(finding, reporter))), "")
    if error:
        after = [replace(one, fixed=False, message=f"{one.message}; the fix failed: {error}") for one in before]
    else:
        after = [replace(one, fixed=one.state in ("ok", "note")) for one in check()]
    done = all(finding.fixed for finding in after)
    reporter.announce(f"{before[0].check}: {'fixed' if done else f'not fixed: {error or after[0].message}'}")
    return after


def _failed(finding: Finding, reporter: Reporter) -> str:
    """Run a fix. Returns why it failed, or ""."""
    try:
        if finding.fix is not None:
            finding.fix(reporter)
    except (RecollectError, OSError) as error:
        return str(error) or type(error).__name__
    return ""


def _name(check: Check) -> str:
    return getattr(check, "__name__", type(check).__name__)
