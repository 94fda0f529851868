"""`recollect doctor`: check all that search depends on, and print how to repair it. Only a `fix` changes anything."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TypeAlias

from recollect.doctor import services
from recollect.doctor import setup as local
from recollect.doctor.setup import Setup
from recollect.errors import RecollectError
from recollect.stores.health import STATES, Finding, Reporter, worst

__all__ = ["CHECKS", "STATES", "Finding", "Reporter", "Setup", "examine", "treat", "worst"]

Check: TypeAlias = Callable[[Setup], Iterable[Finding]]
"""Checks a setup and changes nothing. Its name is that of its findings."""

CHECKS: tuple[Check, ...] = (
    local.versions, local.settings, local.extras, services.model, services.reranker, services.llm, local.store,
    local.keywords, local.vectors, local.files, services.sources, local.disk, local.backup, local.tokens,
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
    except RecollectError as error:
        return [Finding(check.__name__, "failure", error.message, error.hint)]
    except Exception as error:  # noqa: BLE001  (the other checks must still be shown)
        message = f"the check itself failed: {type(error).__name__}: {error}"
        return [Finding(check.__name__, "failure", message, "a bug in recollect: please report it with this message")]


def treat(setup: Setup, findings: Sequence[Finding], reporter: Reporter) -> list[Finding]:
    """Run the fixes of these findings, and check again what was fixed.

    Nothing is fixed while settings cannot be read: the fix would use another model or store than the user means.
    """
    if setup.wrong:
        reporter.announce("nothing is fixed until the settings can be read")
        return list(findings)
    after: list[Finding] = []
    by_name = {check.__name__: check for check in CHECKS}
    for name, group in groupby(findings, key=lambda finding: finding.check):
        before = list(group)
        has_fix = any(finding.fix for finding in before)
        after += _fixed(before, reporter, partial(_run, setup, by_name[name])) if has_fix else before
    return after


def _fixed(before: Sequence[Finding], reporter: Reporter, check: Callable[[], list[Finding]]) -> list[Finding]:
    """Run the fixes of one check's findings, and the check again."""
    error = ""
    try:
        for finding in before:
            if finding.fix:
                reporter.announce(f"{finding.check}: {finding.message}")
                finding.fix(reporter)
        after = [replace(one, fixed=one.state in ("ok", "note")) for one in check()]
    except (RecollectError, OSError) as failure:
        error = str(failure) or type(failure).__name__
        after = [replace(one, fixed=False, message=f"{one.message}; the fix failed: {error}") for one in before]
    done = all(finding.fixed for finding in after)
    reporter.announce(f"{before[0].check}: {'fixed' if done else f'not fixed: {error or after[0].message}'}")
    return after
