"""`recollect doctor`: what is wrong, how to mend it, and mending it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.options import common, given, json_flag, notice, progress
from recollect.cli.plain import echo, one_line

if TYPE_CHECKING:
    from recollect.doctor import Finding

SIGNS = {"ok": ("✓", "green"), "note": ("–", "cyan"), "warning": ("!", "yellow"), "failure": ("✗", "red")}

MARGIN = 21
"""Columns that sign, state and name of a check take."""

EXIT_CODES = {"ok": 0, "note": 0, "warning": 1, "failure": 3}


@click.command()
@click.option("--fix", is_flag=True, help="Mend what can be mended safely; nothing of yours is deleted.")
@common
@json_flag
def doctor(fix: bool, as_json: bool, **options: Any) -> int:
    """Check model, indexes, sources, disk and settings, and say how to mend what is not right.

    Looking changes nothing. Exit code 0: nothing is worse than a note; 1: a warning; 3: a failure.
    """
    from recollect.cli.output import print_json
    from recollect.doctor import Setup, Telling, examine, treat, worst

    setup = Setup.load(**_said(options))
    findings = examine(setup)
    if fix:
        findings = treat(setup, findings, Telling(notice, progress))
    state = worst(findings)
    if as_json:
        print_json({"checks": [finding.as_dict() for finding in findings], "state": state})
    else:
        _show(findings)
    return EXIT_CODES[state]


def _said(options: dict[str, Any]) -> dict[str, Any]:
    """The common flags, as the setup takes them."""
    said = given(options)
    flags = {name: said[name] for name in ("store", "embedder")}
    flags |= {f"scope.{name}": said[name] for name in ("user", "agent", "session")}
    return {"named": Path(said["config"]) if said["config"] else None, "flags": flags}


def _show(findings: Sequence[Finding]) -> None:
    from recollect.cli.output import width

    margin = " " * MARGIN
    for finding in findings:
        sign, color = SIGNS[finding.state]
        head = f"{sign} {finding.state:<7}  {finding.check:<8}  "
        told = textwrap.wrap(
            one_line(finding.message), max(40, width() - MARGIN), break_long_words=False, break_on_hyphens=False
        )
        echo(click.style(head, fg=color) + f"\n{margin}".join(told))
        if finding.mend and finding.state != "ok":
            echo(f"{margin}{click.style('→', bold=True)} {one_line(finding.mend)}")
    _sum_up(findings)


def _sum_up(findings: Sequence[Finding]) -> None:
    counts = {state: sum(finding.state == state for finding in findings) for state in ("failure", "warning")}
    said = ", ".join(f"{count} {state}{'s' if count > 1 else ''}" for state, count in counts.items() if count)
    echo(f"\n{said or 'nothing is wrong'}")
    mendable = sum(finding.fix is not None and finding.fixed is None for finding in findings)
    if mendable:
        notice(f"`recollect doctor --fix` can mend {mendable} of these")
