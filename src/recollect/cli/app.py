"""The group of commands, and the one place where an error becomes text and an exit code."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from recollect import __version__
from recollect.cli.commands import Commands
from recollect.cli.options import common
from recollect.cli.plain import echo, one_line, plain_text
from recollect.errors import RecollectError

COMMANDS = {
    "search": ("search", "Find what answers a question."),
    "recall": ("recall", "Put what answers a question into a block for a model."),
    "fuse": ("fuse", "Fuse ranked lists from files into one."),
    "overlap": ("overlap", "Show how far the sources find the same."),
    "why-not": ("search", "Say why a record is not in an answer."),
    "add": ("records", "Remember a text, or many from standard input."),
    "get": ("records", "Show one record."),
    "list": ("records", "Show records, newest first."),
    "supersede": ("records", "Let one record take another's place."),
    "edit": ("records", "Change what is said of a fact."),
    "forget": ("records", "Take records out of every answer."),
    "undo": ("records", "Take back the last that happened to a record."),
    "history": ("records", "Show everything that happened to a record."),
    "index": ("files", "Mirror a folder of markdown files."),
    "watch": ("watch", "Mirror folders, and keep them current."),
    "service": ("service", "Let the system run `watch` for you."),
    "ingest-files": ("ingest", "Let a language model make facts of files."),
    "embed": ("files", "Compute the vectors that are missing."),
    "language": ("language", "Show or change the language of the keyword index."),
    "copy": ("moving", "Copy all that a store holds into another."),
    "export": ("moving", "Write all that the store holds as JSON lines."),
    "import": ("moving", "Add what an export holds."),
    "eval": ("lab", "Measure search on judged questions: yours, or public sets."),
    "serve": ("serve", "Serve the page, the JSON API and MCP over HTTP."),
    "token": ("token", "Make, list and remove the tokens that `serve` lets in."),
    "mcp": ("mcp", "Serve the memory to agents over MCP."),
    "status": ("inspect", "Show what the store holds and how current it is."),
    "doctor": ("doctor", "Find what is wrong, and say how to mend it."),
    "config": ("inspect", "Show the settings and where each came from, or import OpenClaw's."),
    "trust": ("trust", "Let a project's settings file have effect."),
    "model": ("models", "List, fetch, find or remove models."),
    "demo": ("demo", "Try it on the notes that come with it."),
    "completion": ("completion", "Print the script that completes commands in a shell."),
}
"""Command → the module that has it, and its line in the help, so that `--help` imports none of them."""


@click.command(
    cls=Commands,
    table=COMMANDS,
    package="recollect.cli",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="recollect")
@common
@click.pass_context
def app(context: click.Context, /, **options: Any) -> None:
    """Recollect remembers, and finds again: hybrid search over your facts and notes.

    \b
    Start here:
      recollect index ~/notes
      recollect search "where did I put the spare key?"
    """  # noqa: D301  (click reads the backspace as "keep these lines")
    context.obj = options


def main(arguments: Sequence[str] | None = None) -> int:  # noqa: PLR0911  (one way out for each way to end)
    """Run a command; 0 found or done, 1 nothing found, 2 wrong use, 3 failed."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in words
    try:
        color = False if os.environ.get("NO_COLOR") else None
        outcome = app.main(args=words, prog_name="recollect", standalone_mode=False, color=color)
        sys.stdout.flush()
    except RecollectError as error:
        shown = {"code": error.code, "message": one_line(error.message), "hint": one_line(error.hint)}
        return _say(error.as_dict() if as_json else {"error": shown}, as_json, error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        echo(error.format_message())
        return 0
    except click.ClickException as error:
        hint = f"recollect {words[0]} --help" if words and words[0] in COMMANDS else "recollect --help"
        message = plain_text(error.format_message())  # of several lines where it lists what can be chosen
        return _say({"error": {"code": "usage", "message": message, "hint": hint}}, as_json, 2)
    except (click.Abort, KeyboardInterrupt):
        echo("interrupted; what was stored stays", err=True)
        return 130
    except SystemExit as stop:
        # click leaves this way when the reader has seen enough (`| head`).
        return _pipe_closed() if isinstance(stop.__context__, BrokenPipeError) else int(stop.code or 0)
    except BrokenPipeError:
        return _pipe_closed()
    except OSError as error:
        message = f"the answer cannot be written: {error.strerror or error}"
        return _say({"error": {"code": "failed", "message": message, "hint": ""}}, as_json, 3)
    return outcome if isinstance(outcome, int) else 0


def _pipe_closed() -> int:
    """No error: and the interpreter must not complain about it at exit either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _say(error: dict[str, dict[str, str]], as_json: bool, code: int) -> int:
    if as_json:
        echo(json.dumps(error), err=True)
    else:
        shown = error["error"]
        echo(f"{click.style('error:', fg='red', bold=True)} {shown['message']}", err=True)
        if shown["hint"]:
            echo(f"  {shown['hint']}", err=True)
    return code
