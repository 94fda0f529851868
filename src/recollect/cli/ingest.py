"""The command that lets a language model make facts of files: ingest-files."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.options import common, json_flag, notice, open_memory, progress
from recollect.cli.plain import echo, one_line, plain
from recollect.errors import LlmError, UsageError

if TYPE_CHECKING:
    from recollect.ingest.facts import Piece, Verdict
    from recollect.memory.extraction import Extraction

WIDTH = 100
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
    from recollect.cli.output import print_json

    if dry_run and plan:
        raise UsageError("--dry-run sends nothing and --plan does: give one of them", hint="--plan stores nothing")
    mode = "dry-run" if dry_run else "plan" if plan else "run"
    with open_memory(options, reads=mode != "run") as memory:
        report = memory.ingest_files(workspace, paths=paths, mode=mode, progress=progress("reading"))
    if as_json:
        print_json(report.as_dict())
    else:
        _print(report)
    if report.failed:
        raise LlmError(
            f"{len(report.failed)} of {_many(report.sent, 'chunk')} failed, the first with: {report.failed[0][1]}",
            hint="run it again: only what is missing is sent",
        )
    return 0 if report.pieces else 1


def _print(report: Extraction) -> None:
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
    echo(_summary(report))


def _many(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'s' if count != 1 else ''}"


def _verdict(piece: Piece, verdict: Verdict) -> str:
    colour = {"add": "green", "supersedes": "yellow"}.get(verdict.action, "white")
    lines = [f"{click.style(verdict.action.ljust(11), fg=colour)} {_short(verdict.text)}"]
    first, last = verdict.lines or piece.lines
    quoted = f"  “{_short(verdict.span, WIDTH - 30)}”" if verdict.span else ""
    lines.append(click.style(f"{INDENT}{plain(piece.name)}:{first}-{last}{quoted}", dim=True))
    if verdict.other:
        how = "instead of" if verdict.action == "supersedes" else plain(verdict.reason)
        lines.append(click.style(f"{INDENT}{how}: {_short(verdict.other.text)}", dim=True))
    elif verdict.reason:
        lines.append(click.style(f"{INDENT}{plain(verdict.reason)}", dim=True))
    return "\n".join(lines)


def _short(text: str, width: int = WIDTH) -> str:
    """A text on one line, without control characters."""
    return plain(textwrap.shorten(text, width))


def _summary(report: Extraction) -> str:
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
