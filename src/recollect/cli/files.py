"""Commands on files and vectors: index, embed, ingest-files."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.options import common, json_flag, open_memory
from recollect.cli.terminal import echo, notice, one_line, plain, progress
from recollect.errors import LlmError, UsageError

if TYPE_CHECKING:
    from recollect.ingest import Report
    from recollect.ingest.facts import Piece, Verdict
    from recollect.memory.extraction import Extraction


SKIPPED_NAMED = 5
"""Skipped files named for one reason; more are counted."""


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="PATH…")
@click.option(
    "--include", multiple=True, metavar="GLOB", help="Only files like this, as in .gitignore; may be repeated."
)
@click.option("--exclude", multiple=True, metavar="GLOB", help="No files like this, as in .gitignore; may be repeated.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Put this tag on every chunk; repeat for more.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--confirm", is_flag=True, help="Remove files that vanished, however many.")
@click.option("--force", is_flag=True, help="Index even a whole home folder.")
@common
@json_flag
def index(as_json: bool, **options: Any) -> int:
    """Mirror the text files at each PATH, a folder or a file: notes, plain text, source code.

    Run it again at any time: only what changed is read.
    """
    from recollect.cli.terminal import print_json

    asked = {name: options[name] for name in ("paths", "tags", "include", "exclude", "dry_run", "confirm", "force")}
    with open_memory(options) as memory:
        report = memory.index(**asked, reading=progress("reading"), progress=progress("embedding"))
    if as_json:
        print_json(dataclasses.asdict(report))
    else:
        _print_index(report, _owner(memory.scope.as_dict(), options["tags"]))
    return 0


def _owner(scope: Mapping[str, str], tags: Sequence[str]) -> str:
    """Whose the files are now, and with which tags."""
    whose = ", ".join(f"{part} {name}" for part, name in scope.items()) or "everybody"
    return whose + (f", with the tag{'s' if len(tags) > 1 else ''} {', '.join(tags)}" if tags else "")


def _print_index(report: Report, owner: str) -> None:
    """The counts for a reader, the reasons on the side."""
    moved = f"{len(report.moved):,} moved, " if report.moved else ""
    counts = (
        f"{len(report.added):,} added, {len(report.changed):,} changed, {moved}{len(report.removed):,} removed, "
        f"{report.unchanged:,} unchanged, {len(report.skipped):,} skipped"
    )
    echo(f"would be: {counts}" if report.dry_run else counts)
    if report.rescoped:
        count = len(report.rescoped)
        files = f"{count:,} file{'s' if count > 1 else ''}"
        belong = "would belong" if report.dry_run else "now belong" if count > 1 else "now belongs"
        echo(plain(f"{files} {belong} to {owner}"))
    if report.dry_run:
        _list_changes(report)
    reasons: dict[str, list[str]] = {}
    for path, reason in report.skipped.items():
        reasons.setdefault(reason, []).append(path)
    for reason, paths in sorted(reasons.items()):
        for path in paths[:SKIPPED_NAMED]:
            notice(f"skipped {plain(path)}: {reason}")
        if len(paths) > SKIPPED_NAMED:
            notice(f"skipped {len(paths) - SKIPPED_NAMED:,} more: {reason}")
    if report.unconfirmed:
        notice(
            f"{len(report.unconfirmed):,} files have vanished at once; they were not removed. "
            "If that is right, run again with --confirm"
        )


def _list_changes(report: Report) -> None:
    for sign, paths in (("+", report.added), ("~", report.changed), ("-", report.removed)):
        for path in paths:
            echo(f"{sign} {plain(path)}")
    for old, new in report.moved.items():
        echo(f"> {plain(old)} → {plain(new)}")


@click.command()
@common
@json_flag
def embed(as_json: bool, **options: Any) -> int:
    """Compute the vectors that are missing: after a change of model, or after adding without one."""
    from recollect.cli.terminal import print_json

    with open_memory(options) as memory:
        count = memory.embed(progress=progress("embedding"))
    if as_json:
        print_json({"embedded": count})
    else:
        echo(f"{count:,} embedded")
    return 0


FACT_WIDTH = 100
INDENT = " " * 12


@click.command("ingest-files")
@click.option("--dry-run", is_flag=True, help="Show which files and chunks would be sent; send nothing.")
@click.option("--plan", is_flag=True, help="Ask the model and show what it finds; store nothing.")
@click.option("--workspace", metavar="DIR", help="By default OPENCLAW_WORKSPACE, else the current folder.")
@click.option("--paths", metavar="GLOBS", help='Inside the workspace: "skills/**/*.md,TOOLS.md,AGENTS.md".')
@common
@json_flag
def ingest_files(
    dry_run: bool, plan: bool, workspace: str | None, paths: str | None, as_json: bool, **options: Any
) -> int:
    """Let the language model of [llm] make facts of files. What was read before is not sent again."""
    from recollect.cli.terminal import print_json

    if dry_run and plan:
        raise UsageError("--dry-run sends nothing and --plan does: give one of them", hint="--plan stores nothing")
    mode = "dry-run" if dry_run else "plan" if plan else "run"
    with open_memory(options, reads=mode != "run") as memory:
        report = memory.ingest_files(workspace, paths=paths, mode=mode, progress=progress("reading"))
    if as_json:
        print_json(report.as_dict())
    else:
        _print_extraction(report)
    if report.failed:
        raise LlmError(
            f"{len(report.failed)} of {_many(report.sent, 'chunk')} failed, the first with: {report.failed[0][1]}",
            hint="run it again: only what is missing is sent",
        )
    return 0 if report.pieces else 1


def _print_extraction(report: Extraction) -> None:
    for path, reason in report.skipped.items():
        notice(f"skipped {plain(path)}: {reason}")
    for warning in report.warnings:
        notice(warning)
    said = report.as_dict()
    if report.mode == "dry-run":
        for file in said["files"]:
            to_send = f"{len(file['waiting'])} to send, about {file['tokens']:,} tokens"
            echo(f"{plain(file['name'])}  {_many(file['chunks'], 'chunk')}, {to_send}")
            for chunk in file["waiting"]:
                echo(click.style(f"    lines {chunk['lines'][0]}-{chunk['lines'][1]}", dim=True))
    elif report.mode == "plan":
        for piece, verdict in report.verdicts:
            echo(_verdict(piece, verdict))
    for piece, error in report.failed:
        where = one_line(f"{piece.name}:{piece.lines[0]}-{piece.lines[1]}  {error}")
        echo(f"{click.style('failed', fg='red')} {where}", err=True)
    echo(_extraction_summary(report))


def _many(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'s' if count != 1 else ''}"


def _verdict(piece: Piece, verdict: Verdict) -> str:
    colour = {"add": "green", "supersedes": "yellow"}.get(verdict.action, "white")
    lines = [f"{click.style(verdict.action.ljust(11), fg=colour)} {_short(verdict.text)}"]
    first, last = verdict.lines or piece.lines
    quoted = f"  “{_short(verdict.span, FACT_WIDTH - 30)}”" if verdict.span else ""
    lines.append(click.style(f"{INDENT}{plain(piece.name)}:{first}-{last}{quoted}", dim=True))
    if verdict.other:
        how = "instead of" if verdict.action == "supersedes" else plain(verdict.reason)
        lines.append(click.style(f"{INDENT}{how}: {_short(verdict.other.text)}", dim=True))
    elif verdict.reason:
        lines.append(click.style(f"{INDENT}{plain(verdict.reason)}", dim=True))
    return "\n".join(lines)


def _short(text: str, width: int = FACT_WIDTH) -> str:
    """A text on one line, without control characters."""
    return plain(textwrap.shorten(text, width))


def _extraction_summary(report: Extraction) -> str:
    if not report.pieces:
        return f"no file to read in {plain(str(report.workspace))}"
    said = report.as_dict()
    chunks = said["chunks"]
    read = f"{_many(len(said['files']), 'file')}, {_many(chunks['total'], 'chunk')}, {chunks['done']} read before"
    if report.mode == "dry-run":
        return f"{read}; {chunks['waiting']} to send, about {said['tokens']:,} tokens; nothing was sent"
    counts = ", ".join(f"{count} {action}" for action, count in said["counts"].items())
    ended = "; nothing was stored" if report.mode == "plan" else ""
    return f"{read}, {chunks['sent']} sent, {chunks['failed']} failed: {counts}{ended}"
