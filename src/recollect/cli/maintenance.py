"""Commands on a whole store: status, doctor, language, copy, export, import."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.options import common, given, json_flag, load_settings, open_memory
from recollect.cli.terminal import echo, notice, one_line, plain, progress
from recollect.errors import UsageError

if TYPE_CHECKING:
    from recollect.doctor import Finding
    from recollect.moving import Moved


@click.command()
@common
@json_flag
def status(as_json: bool, **options: Any) -> int:
    """Show what the store holds and how current its indexes are."""
    from recollect.cli.terminal import as_text, print_json, print_table

    with open_memory(options, reads=True) as memory:
        state = memory.status()
    if as_json:
        print_json(state)
        return 0
    flat = [(name, value) for name, value in state.items() if not isinstance(value, dict)]
    flat += [
        (f"{name}.{key}", of) for name, value in state.items() if isinstance(value, dict) for key, of in value.items()
    ]
    print_table([(name, as_text(value)) for name, value in flat])
    return 0


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
    from recollect.cli.terminal import print_json
    from recollect.doctor import Reporter, Setup, examine, treat, worst

    setup = Setup.load(**_doctor_options(options))
    findings = examine(setup)
    if fix:
        findings = treat(setup, findings, Reporter(notice, progress))
    state = worst(findings)
    if as_json:
        print_json({"checks": [finding.as_dict() for finding in findings], "state": state})
    else:
        _print_findings(findings)
    return EXIT_CODES[state]


def _doctor_options(options: dict[str, Any]) -> dict[str, Any]:
    """The common flags, as the setup takes them."""
    said = given(options)
    flags = {name: said[name] for name in ("store", "embedder")}
    flags |= {f"scope.{name}": said[name] for name in ("user", "agent", "session")}
    return {"named": Path(said["config"]) if said["config"] else None, "flags": flags}


def _print_findings(findings: Sequence[Finding]) -> None:
    from recollect.cli.terminal import width

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


@click.command()
@click.argument("name", required=False)
@common
@json_flag
def language(name: str | None, as_json: bool, **options: Any) -> int:
    """Show the store's language, or change it to NAME and read the words of every record again.

    A store has the language that was set when it was made. Afterwards only this command changes it: the setting
    `language` counts for new stores.
    """
    from recollect.cli.terminal import print_json

    before, after = _change_language(name, options) if name else (None, _current_language(options))
    if as_json:
        print_json({"language": after, **({"before": before} if name else {})})
    else:
        echo(after)
    return 0


def _current_language(options: dict[str, Any]) -> str:
    with open_memory(options, reads=True) as memory:
        return memory.store.keywords.analyzer.language


def _change_language(name: str, options: dict[str, Any]) -> tuple[str, str]:
    from recollect.memory import Memory

    settings = replace(load_settings(options).settings, language=None)
    with Memory.open(settings=settings, announce=notice) as memory:
        before = memory.store.keywords.analyzer.language
        if name != before:
            notice("reading the words of all records again")
            memory.change_language(name)
        return before, memory.store.keywords.analyzer.language


_COUNTED = {
    "record": ("record", "records"),
    "history": ("line of history", "lines of history"),
    "vector": ("vector", "vectors"),
    "file": ("file", "files"),
    "ingested": ("piece read for facts", "pieces read for facts"),
    "join": ("outside id", "outside ids"),
    "note": ("kept answer", "kept answers"),
}
"""What is counted for a reader, and how one and several are called there."""

IDS_SHOWN = 20
"""Ids that differ, for a reader."""


@click.command()
@click.argument("from_", metavar="FROM")
@click.argument("to", metavar="TO")
@click.option("--dry-run", is_flag=True, help="Say what would be copied, and do nothing.")
@click.option("--merge", is_flag=True, help="Into a store that holds other records: add what it lacks.")
@json_flag
def copy(from_: str, to: str, dry_run: bool, merge: bool, as_json: bool) -> int:
    """Copy all that the store FROM holds into the store TO: files, or URLs like postgresql://user@host/database.

    It can be interrupted and run again; at the end everything is read back and compared.
    """
    from recollect import moving

    moved = moving.copy(from_, to, dry_run=dry_run, merge=merge, steps=progress)
    return _print_moved(moved, "copied", as_json, merge=merge)


@click.command()
@click.argument("file", default="-", metavar="[FILE]")
@common
@json_flag
def export(file: str, as_json: bool, **options: Any) -> int:
    """Write all that the store holds to FILE as JSON lines; `.gz` zips them, `-` is standard output."""
    from recollect import moving

    if file == "-" and as_json:
        raise UsageError("the export itself is on standard output", hint="name a FILE, or leave out --json")
    moved = moving.export(_place(options), file, steps=progress)
    if file == "-":
        notice(f"exported {_counted(moved.total)}")
    else:
        _print_moved(moved, "exported", as_json)
    return 0


@click.command("import")
@click.argument("file", metavar="FILE")
@click.option("--dry-run", is_flag=True, help="Say what would be imported, and do nothing.")
@click.option("--merge", is_flag=True, help="Into a store that holds other records: add what it lacks.")
@click.option(
    "--with-folders", is_flag=True, help="For an export of your own: also its mirrored folders and kept answers."
)
@common
@json_flag
def import_(file: str, dry_run: bool, merge: bool, with_folders: bool, as_json: bool, **options: Any) -> int:
    """Add the records that `recollect export` wrote to FILE, or to standard input with `-`; each line is checked first.

    Records come with their history and vectors. What else a store knows comes only with --with-folders.
    """
    from recollect import moving

    moved = moving.import_(
        _place(options), file, dry_run=dry_run, merge=merge, with_folders=with_folders, steps=progress
    )
    return _print_moved(moved, "imported", as_json, merge=merge)


def _place(options: dict[str, Any]) -> str:
    """The store that is meant: all of it, so that a scope would be misunderstood."""
    from recollect.memory import default_store

    for part in ("user", "agent", "session"):
        if given(options)[part] is not None:
            raise UsageError(f"the whole store is moved, not what is of one {part}", hint=f"leave out --{part}")
    return load_settings(options).settings.store or str(default_store())


def _print_moved(moved: Moved, done: str, as_json: bool, *, merge: bool = False) -> int:
    """Say what was moved; a dry run of what would be refused ends as that would."""
    refused = moved.dry_run and not merge and bool(moved.others or moved.different)
    if as_json:
        from recollect.cli.terminal import print_json

        print_json(moved.as_dict())
    else:
        _tell_moved(moved, done)
    for note in moved.notes:
        notice(note)
    if refused:
        notice("it would be refused: the target holds other records; --merge adds what it lacks")
    return 2 if refused else 0


def _tell_moved(moved: Moved, done: str) -> None:
    echo(f"would be {done}: {_counted(moved.added)}" if moved.dry_run else f"{done} {_counted(moved.added)}")
    alike = {sort: moved.total[sort] - moved.added[sort] - moved.kept.get(sort, 0) for sort in moved.total}
    if any(alike[sort] for sort in _COUNTED):
        echo(f"there already: {_counted(alike)}")
    if moved.different:
        echo(f"left as they are in the target, where they differ: {len(moved.different):,} records")
        for key in moved.different[:IDS_SHOWN]:
            echo(plain(f"  {key}"))
        if len(moved.different) > IDS_SHOWN:
            echo(f"  and {len(moved.different) - IDS_SHOWN:,} more; --json names all")
    caches = {**moved.kept, "record": 0}
    if any(caches.get(sort) for sort in _COUNTED):
        echo(f"left behind, or as they are in the target: {_counted(caches)}")
    if moved.others:
        echo(f"{moved.others:,} other record{'s are' if moved.others > 1 else ' is'} in the target")
    if any(moved.left_out.values()):
        left = _counted({**moved.left_out, "file": moved.left_out["file"] + moved.left_out["root"]})
        echo(f"left out: {left}; --with-folders takes them over, for an export of your own")
    if moved.sha256:
        echo(f"sha256 {moved.sha256}")


def _counted(numbers: dict[str, int]) -> str:
    said = [f"{many:,} {names[many > 1]}" for sort, names in _COUNTED.items() if (many := numbers.get(sort, 0))]
    return ", ".join(said) or "nothing"
