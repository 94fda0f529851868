"""Commands on files and vectors: index, embed, ingest-files."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.flags import F, common, json_flag, open_memory
from recollect.cli.terminal import counted, echo, emit, notice, one_line, plain, progress
from recollect.errors import LlmError, UsageError

if TYPE_CHECKING:
    from recollect.ingest import Report
    from recollect.ingest.facts import FactVerdict, Piece
    from recollect.memory.extraction import Extraction

NAMED_FILES = 5
"""How many skipped files are named for one reason; the others are counted."""

FACT_WIDTH = 100
INDENT = " " * 12


def index_flags(command: F) -> F:
    """The flags that choose and tag files, in `index`, `watch` and `service install`."""
    for flag in (
        click.option("--force", is_flag=True, help="Allow a whole home folder."),
        click.option("--tag", "tags", multiple=True, metavar="TAG", help="Tag every chunk; repeat for more tags."),
        click.option(
            "--exclude", multiple=True, metavar="GLOB", help="Skip these files, as in .gitignore; repeat for more."
        ),
        click.option(
            "--include", multiple=True, metavar="GLOB", help="Only these files, as in .gitignore; repeat for more."
        ),
    ):
        command = flag(command)
    return command


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="PATH…")
@index_flags
@click.option("--dry-run", is_flag=True, help="Print what would change, and change nothing.")
@click.option("--confirm", is_flag=True, help="Remove missing files from the index, however many.")
@common
@json_flag
def index(as_json: bool, **options: Any) -> None:
    """Index each PATH, a folder or a file: markdown, plain text and source code.

    Run it again at any time: it reads only files that changed, and removes files that are gone from the index.
    """
    names = ("paths", "tags", "include", "exclude", "dry_run", "confirm", "force")
    with open_memory(options) as memory:
        report = memory.index(
            **{name: options[name] for name in names}, reading=progress("reading"), progress=progress("embedding")
        )
    owner = _owner(memory.scope.as_dict(), options["tags"])
    emit(as_json, dataclasses.asdict(report), lambda: _print_report(report, owner))


def _owner(scope: Mapping[str, str], tags: Sequence[str]) -> str:
    """The scope that the files belong to, and their tags."""
    scope_text = ", ".join(f"{part} {name}" for part, name in scope.items()) or "everybody"
    return scope_text + (f", with the tag{'s' if len(tags) > 1 else ''} {', '.join(tags)}" if tags else "")


def _print_report(report: Report, owner: str) -> None:
    """The counts on standard output, the reasons for skipped files on standard error."""
    moved = f"{len(report.moved):,} moved, " if report.moved else ""
    counts = (
        f"{len(report.added):,} added, {len(report.changed):,} changed, {moved}{len(report.removed):,} removed, "
        f"{report.unchanged:,} unchanged, {len(report.skipped):,} skipped"
    )
    echo(f"would be: {counts}" if report.dry_run else counts)
    if count := len(report.rescoped):
        belong = "would belong" if report.dry_run else "now belong" if count > 1 else "now belongs"
        echo(plain(f"{counted(count, 'file')} {belong} to {owner}"))
    if report.dry_run:
        signs = {"+": report.added, "~": report.changed, "-": report.removed}
        lines = [f"{sign} {plain(path)}" for sign, paths in signs.items() for path in paths]
        for line in [*lines, *(f"> {plain(old)} → {plain(new)}" for old, new in report.moved.items())]:
            echo(line)
    _print_skipped(report)
    if count := len(report.unconfirmed):
        notice(
            f"{counted(count, 'file')} disappeared at once and were kept in the index. "
            "If they are really gone, run again with --confirm"
        )


def _print_skipped(report: Report) -> None:
    reasons: dict[str, list[str]] = {}
    for path, reason in report.skipped.items():
        reasons.setdefault(reason, []).append(path)
    for reason, paths in sorted(reasons.items()):
        for path in paths[:NAMED_FILES]:
            notice(f"skipped {plain(path)}: {reason}")
        if len(paths) > NAMED_FILES:
            notice(f"skipped {len(paths) - NAMED_FILES:,} more: {reason}")


@click.command()
@common
@json_flag
def embed(as_json: bool, **options: Any) -> None:
    """Compute missing vectors: after a change of model, or for records that were added without one."""
    with open_memory(options) as memory:
        count = memory.embed(progress=progress("embedding"))
    emit(as_json, {"embedded": count}, f"{count:,} embedded")


@click.command("ingest-files")
@click.option("--dry-run", is_flag=True, help="Show which files and chunks would be sent; send nothing.")
@click.option("--plan", is_flag=True, help="Ask the model and show its facts; store nothing.")
@click.option("--workspace", metavar="DIR", help="The folder to read: OPENCLAW_WORKSPACE, else the current folder.")
@click.option("--paths", metavar="GLOBS", help='Files in the workspace: "skills/**/*.md,TOOLS.md,AGENTS.md".')
@common
@json_flag
def ingest_files(
    dry_run: bool, plan: bool, workspace: str | None, paths: str | None, as_json: bool, **options: Any
) -> int:
    """Extract facts from files with the language model of [llm]. Unchanged chunks are not sent again."""
    if dry_run and plan:
        raise UsageError("--dry-run and --plan exclude each other", hint="--plan asks the model and stores nothing")
    mode = "dry-run" if dry_run else "plan" if plan else "run"
    with open_memory(options, reads=mode != "run") as memory:
        report = memory.ingest_files(workspace, paths=paths, mode=mode, progress=progress("reading"))
    emit(as_json, report.as_dict(), lambda: _print_extraction(report))
    if report.failed:
        raise LlmError(
            f"{len(report.failed)} of {counted(report.sent, 'chunk')} failed; the first error: {report.failed[0][1]}",
            hint="run it again: only missing chunks are sent",
        )
    return 0 if report.pieces else 1


def _print_extraction(report: Extraction) -> None:
    for path, reason in report.skipped.items():
        notice(f"skipped {plain(path)}: {reason}")
    for warning in report.warnings:
        notice(warning)
    if report.mode == "dry-run":
        for file in report.as_dict()["files"]:
            to_send = f"{len(file['waiting'])} to send, about {file['tokens']:,} tokens"
            echo(f"{plain(file['name'])}  {counted(file['chunks'], 'chunk')}, {to_send}")
            for chunk in file["waiting"]:
                echo(click.style(f"    lines {chunk['lines'][0]}-{chunk['lines'][1]}", dim=True))
    elif report.mode == "plan":
        for piece, verdict in report.verdicts:
            echo(_fact(piece, verdict))
    for piece, error in report.failed:
        place = one_line(f"{piece.name}:{piece.lines[0]}-{piece.lines[1]}  {error}")
        echo(f"{click.style('failed', fg='red')} {place}", err=True)
    echo(_extraction_summary(report))


def _fact(piece: Piece, verdict: FactVerdict) -> str:
    """A fact that the model extracted, its place in the file, and what happens to it."""
    color = {"add": "green", "supersedes": "yellow"}.get(verdict.action, "white")
    first, last = verdict.lines or piece.lines
    quote = f"  “{_short(verdict.span, FACT_WIDTH - 30)}”" if verdict.span else ""
    details = [f"{plain(piece.name)}:{first}-{last}{quote}"]
    if verdict.other:
        reason = "instead of" if verdict.action == "supersedes" else plain(verdict.reason)
        details.append(f"{reason}: {_short(verdict.other.text)}")
    elif verdict.reason:
        details.append(plain(verdict.reason))
    head = f"{click.style(verdict.action.ljust(11), fg=color)} {_short(verdict.text)}"
    return "\n".join([head, *(click.style(f"{INDENT}{line}", dim=True) for line in details)])


def _short(text: str, width: int = FACT_WIDTH) -> str:
    return plain(textwrap.shorten(text, width))


def _extraction_summary(report: Extraction) -> str:
    if not report.pieces:
        return f"no file to read in {plain(str(report.workspace))}"
    summary = report.as_dict()
    chunks = summary["chunks"]
    files = counted(len(summary["files"]), "file")
    read = f"{files}, {counted(chunks['total'], 'chunk')}, {chunks['done']} read before"
    if report.mode == "dry-run":
        return f"{read}; {chunks['waiting']} to send, about {summary['tokens']:,} tokens; nothing was sent"
    counts = ", ".join(f"{count} {action}" for action, count in summary["counts"].items())
    return f"{read}, {chunks['sent']} sent, {chunks['failed']} failed: {counts}" + (
        "; nothing was stored" if report.mode == "plan" else ""
    )
