"""Commands on a whole store: status, doctor, language, copy, export, import."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.flags import command, common_options, json_flag, load_settings, open_memory, settings_flags
from recollect.cli.terminal import as_text, counted, echo, emit, notice, one_line, plain, print_table, progress, width
from recollect.errors import UsageError
from recollect.options import SCOPE_PARTS

if TYPE_CHECKING:
    from recollect.doctor import Finding
    from recollect.moving import Moved

SIGNS = {"ok": ("✓", "green"), "note": ("–", "cyan"), "warning": ("!", "yellow"), "failure": ("✗", "red")}
EXIT_CODES = {"ok": 0, "note": 0, "warning": 1, "failure": 3}

FINDING_MARGIN = 21  # columns of a finding's sign, state and check
NAMED_IDS = 20  # how many ids of different records are printed
NOTHING = "nothing"
NOUNS = {  # kind of line in an export → its name in text
    "record": "record", "history": "history entry", "vector": "vector", "file": "file", "ingested": "extracted chunk",
    "join": "external id", "note": "cached model answer",
}  # fmt: skip


@command()
def status(as_json: bool, **options: Any) -> None:
    """Show what the store holds and how current its indexes are."""
    with open_memory(options, reads=True) as memory:
        state = memory.status()
    rows = [(name, as_text(value)) for name, value in state.items() if not isinstance(value, dict)]
    tables = [(name, table) for name, table in state.items() if isinstance(table, dict)]
    rows += [(f"{name}.{key}", as_text(value)) for name, table in tables for key, value in table.items()]
    emit(as_json, state, lambda: print_table(rows))


@command()
@click.option("--fix", is_flag=True, help="Fix what can be fixed safely; your data is never deleted.")
def doctor(fix: bool, as_json: bool, **options: Any) -> int:
    """Check the models, indexes, sources, disk and settings, and say how to fix each problem.

    Without --fix nothing is changed. Exit code 0: no problem; 1: a warning; 3: a failure.
    """
    from recollect.doctor import Reporter, Setup, examine, treat, worst

    file, flags = settings_flags(options)
    setup = Setup.load(named=file, flags=flags)
    findings = examine(setup)
    if fix:
        findings = treat(setup, findings, Reporter(notice, progress))
    state = worst(findings)
    value = {"checks": [finding.as_dict() for finding in findings], "state": state}
    emit(as_json, value, lambda: _print_findings(findings))
    return EXIT_CODES[state]


def _print_findings(findings: Sequence[Finding]) -> None:
    margin, room = " " * FINDING_MARGIN, max(40, width() - FINDING_MARGIN)
    for finding in findings:
        sign, color = SIGNS[finding.state]
        lines = textwrap.wrap(one_line(finding.message), room, break_long_words=False, break_on_hyphens=False)
        head = click.style(f"{sign} {finding.state:<7}  {finding.check:<8}  ", fg=color)
        echo(head + f"\n{margin}".join(lines))
        if finding.mend and finding.state != "ok":
            echo(f"{margin}{click.style('→', bold=True)} {one_line(finding.mend)}")
    counts = {state: sum(finding.state == state for finding in findings) for state in ("failure", "warning")}
    summary = ", ".join(counted(count, state) for state, count in counts.items() if count)
    echo(f"\n{summary or 'no problems found'}")
    if fixable := sum(finding.fix is not None and finding.fixed is None for finding in findings):
        notice(f"`recollect doctor --fix` can fix {fixable} of these")


@command()
@click.argument("name", required=False)
def language(name: str | None, as_json: bool, **options: Any) -> None:
    """Show the language of the store, or change it to NAME and rebuild the keyword index.

    A new store takes its language from the setting `language`. Later only this command changes it.
    """
    from recollect.memory import Memory

    if name is None:
        with open_memory(options, reads=True) as memory:
            current = memory.store.keywords.analyzer.language
        emit(as_json, {"language": current}, current)
        return
    settings = replace(load_settings(options).settings, language=None)
    with Memory.open(settings=settings, announce=notice) as memory:
        before = memory.store.keywords.analyzer.language
        if name != before:
            notice("rebuilding the keyword index of all records")
            memory.change_language(name)
        current = memory.store.keywords.analyzer.language
    emit(as_json, {"language": current, "before": before}, current)


_dry_run = click.option("--dry-run", is_flag=True, help="Print what would change, and change nothing.")
_merge = click.option("--merge", is_flag=True, help="Add missing records to a store that holds other records.")


@click.command()
@click.argument("from_", metavar="FROM")
@click.argument("to", metavar="TO")
@_dry_run
@_merge
@json_flag
def copy(from_: str, to: str, dry_run: bool, merge: bool, as_json: bool) -> int:
    """Copy the store FROM into the store TO: files, or URLs like postgresql://user@host/database.

    It can be interrupted and run again. At the end everything is read back and compared.
    """
    from recollect import moving

    moved = moving.copy(from_, to, dry_run=dry_run, merge=merge, steps=progress)
    return _emit_moved(moved, "copied", as_json, merge=merge)


@command()
@click.argument("file", default="-", metavar="[FILE]")
def export(file: str, as_json: bool, **options: Any) -> None:
    """Export the whole store to FILE as JSON lines: `.gz` compresses them, `-` is standard output."""
    from recollect import moving

    if file == "-" and as_json:
        message = "--json needs a FILE, because the export itself goes to standard output"
        raise UsageError(message, hint="name a FILE, or omit --json")
    moved = moving.export(_store(options), file, steps=progress)
    if file == "-":
        notice(f"exported {_totals(moved.total)}")
    else:
        _emit_moved(moved, "exported", as_json)


@command("import")
@click.argument("file", metavar="FILE")
@_dry_run
@_merge
@click.option("--with-folders", is_flag=True, help="Also indexed folders and caches; only for an export of your own.")
def import_(file: str, dry_run: bool, merge: bool, with_folders: bool, as_json: bool, **options: Any) -> int:
    """Import the records of FILE, or of standard input with `-`, as `recollect export` wrote them.

    Every line is checked first. Records come with their history and vectors; indexed folders and caches come only
    with --with-folders.
    """
    from recollect import moving

    chosen = {"dry_run": dry_run, "merge": merge, "with_folders": with_folders}
    moved = moving.import_(_store(options), file, **chosen, steps=progress)
    return _emit_moved(moved, "imported", as_json, merge=merge)


def _store(options: dict[str, Any]) -> str:
    """The store of the settings. A scope is refused: the whole store is exported and imported."""
    for part in SCOPE_PARTS:
        if common_options(options)[part] is not None:
            raise UsageError(f"--{part} has no effect here: the whole store is moved", hint=f"omit --{part}")
    return load_settings(options).settings.place


def _emit_moved(moved: Moved, verb: str, as_json: bool, *, merge: bool = False) -> int:
    emit(as_json, moved.as_dict(), lambda: _print_moved(moved, verb))
    for note in moved.notes:
        notice(note)
    refused = moved.dry_run and not merge and bool(moved.others or moved.different)
    if refused:
        notice("this would be refused: the target holds other records; --merge adds the missing ones")
    return 2 if refused else 0


def _print_moved(moved: Moved, verb: str) -> None:
    same = {kind: moved.total[kind] - moved.added[kind] - moved.kept.get(kind, 0) for kind in moved.total}
    caches = {**moved.kept, "record": 0}
    left = {**moved.left_out, "file": moved.left_out.get("file", 0) + moved.left_out.get("root", 0)}
    echo(f"would be {verb}: {_totals(moved.added)}" if moved.dry_run else f"{verb} {_totals(moved.added)}")
    if _totals(same) != NOTHING:
        echo(f"already there: {_totals(same)}")
    if moved.different:
        echo(f"different in the target, and left as they are: {counted(len(moved.different), 'record')}")
        for record_id in moved.different[:NAMED_IDS]:
            echo(plain(f"  {record_id}"))
        if len(moved.different) > NAMED_IDS:
            echo(f"  and {len(moved.different) - NAMED_IDS:,} more; --json lists all")
    if _totals(caches) != NOTHING:
        echo(f"not copied, or left as they are in the target: {_totals(caches)}")
    if moved.others:
        echo(f"the target holds {counted(moved.others, 'other record')}")
    if any(moved.left_out.values()):
        echo(f"left out: {_totals(left)}; --with-folders imports them, for an export of your own")
    if moved.sha256:
        echo(f"sha256 {moved.sha256}")


def _totals(numbers: Mapping[str, int]) -> str:
    return ", ".join(counted(numbers[kind], noun) for kind, noun in NOUNS.items() if numbers.get(kind)) or NOTHING
