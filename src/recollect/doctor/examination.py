"""All checks, run side by side; and what is done about what they find."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TypeAlias

from recollect.doctor.findings import Finding, Telling
from recollect.doctor.machine import disk, extras, settings, tokens, versions
from recollect.doctor.models import llm, model, reranker
from recollect.doctor.outside import sources
from recollect.doctor.setup import Setup
from recollect.doctor.store import files, keywords, store, vectors
from recollect.errors import RecollectError

Check: TypeAlias = Callable[[Setup], Iterable[Finding]]
"""Looks at a setup and changes nothing. Its name is that of its findings."""

CHECKS: tuple[Check, ...] = (
    versions, settings, extras, model, reranker, llm, store, keywords, vectors, files, sources, disk, tokens,
)  # fmt: skip
"""In the order in which they are shown and mended: a model is brought in before vectors are computed with it."""


def examine(setup: Setup, checks: Sequence[Check] = CHECKS) -> list[Finding]:
    """What every check has to say, in their order. They run side by side: some wait for others' servers."""
    with ThreadPoolExecutor(len(checks), thread_name_prefix="recollect-doctor") as pool:
        return [finding for found in pool.map(partial(_run, setup), checks) for finding in found]


def _run(setup: Setup, check: Check) -> list[Finding]:
    """What a check finds; that it failed itself is a finding too."""
    try:
        return list(check(setup))
    except Exception as error:  # noqa: BLE001  (an edge: the rest must still be told)
        said = f"this check failed itself: {type(error).__name__}: {error}"
        return [Finding(_name(check), "failure", said, "a mistake of recollect's: please report it with these words")]


def treat(
    setup: Setup, findings: Sequence[Finding], telling: Telling, checks: Sequence[Check] = CHECKS
) -> list[Finding]:
    """Mend what can be mended safely, look again at just that, and say what came of it.

    Not by settings that could not be read, though: it would be done with a model, or to a store, that is not meant.
    """
    if setup.wrong:
        telling.announce("nothing is mended before the settings can be read")
        return list(findings)
    after: list[Finding] = []
    by_name = {_name(check): check for check in checks}
    for name, group in groupby(findings, key=lambda finding: finding.check):
        found = list(group)
        fixes = [finding for finding in found if finding.fix]
        after += _treated(found, fixes, telling, partial(_run, setup, by_name[name])) if fixes else found
    return after


def _treated(
    found: Sequence[Finding], fixes: Sequence[Finding], telling: Telling, look_again: Callable[[], list[Finding]]
) -> list[Finding]:
    for finding in fixes:
        telling.announce(f"{finding.check}: {finding.message}")
    error = next((error for finding in fixes if (error := _failed(finding, telling))), "")
    if error:
        after = [replace(one, fixed=False, message=f"{one.message}; it could not be mended: {error}") for one in found]
    else:
        after = [replace(one, fixed=one.state in ("ok", "note")) for one in look_again()]
    done = all(finding.fixed for finding in after)
    telling.announce(f"{found[0].check}: {'mended' if done else f'not mended: {error or after[0].message}'}")
    return after


def _failed(finding: Finding, telling: Telling) -> str:
    """Run a fix; why it failed, or nothing."""
    try:
        if finding.fix is not None:
            finding.fix(telling)
    except (RecollectError, OSError) as error:
        return str(error) or type(error).__name__
    return ""


def _name(check: Check) -> str:
    return getattr(check, "__name__", type(check).__name__)
