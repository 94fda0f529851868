"""The group of commands, and the one place where an error becomes text and an exit code."""

from __future__ import annotations

import builtins
import importlib
import json
import keyword
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from recollect import __version__
from recollect.cli.options import common
from recollect.cli.terminal import echo, one_line, plain_text
from recollect.errors import RecollectError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Commands(click.Group):
    """A group made of a table: command → the module of `package` that has it, and its line in the help."""

    def __init__(self, *arguments: Any, table: Mapping[str, tuple[str, str]], package: str, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._table = table
        self._package = package

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click gives it)
        """The commands in the order a newcomer meets them."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command itself; for a shell that completes, with the words that its flags can be given."""
        if cmd_name not in self._table:
            return None
        module = importlib.import_module(f"{self._package}.{self._table[cmd_name][0]}")
        command = getattr(module, _attribute(cmd_name))
        if not isinstance(command, click.Command):
            return None
        return _taught(command) if ctx.resilient_parsing else command

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The flags before a command, taught likewise."""
        if ctx.resilient_parsing:
            _taught(self)
        return super().get_params(ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        """The commands that begin like this, from the table alone, and the flags."""
        from click.shell_completion import CompletionItem

        named = [CompletionItem(name, help=about) for name, (_, about) in self._table.items()]
        # Past the group's own, which would import every module for its command's help.
        flags = super(click.Group, self).shell_complete(ctx, incomplete)
        return [*(item for item in named if item.value.startswith(incomplete)), *flags]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of commands, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in self._table.items()])


def _taught(command: click.Command) -> click.Command:
    from recollect.cli.completion import taught

    return taught(command)


def _attribute(name: str) -> str:
    """The function of a command: its name, with an underscore behind it where Python has that name already."""
    plain_name = name.replace("-", "_")
    return f"{plain_name}_" if hasattr(builtins, plain_name) or keyword.iskeyword(plain_name) else plain_name


COMMANDS = {
    "search": ("search", "Find what answers a question."),
    "recall": ("search", "Put what answers a question into a block for a model."),
    "fuse": ("rankings", "Fuse ranked lists from files into one."),
    "overlap": ("rankings", "Show how far the sources find the same."),
    "why-not": ("search", "Say why a record is not in an answer."),
    "add": ("lifecycle", "Remember a text, or many from standard input."),
    "get": ("lifecycle", "Show one record."),
    "list": ("lifecycle", "Show records, newest first."),
    "supersede": ("lifecycle", "Let one record take another's place."),
    "edit": ("lifecycle", "Change what is said of a fact."),
    "forget": ("lifecycle", "Take records out of every answer."),
    "undo": ("lifecycle", "Take back the last that happened to a record."),
    "history": ("lifecycle", "Show everything that happened to a record."),
    "index": ("files", "Mirror a folder of markdown files."),
    "watch": ("background", "Mirror folders, and keep them current."),
    "service": ("background", "Let the system run `watch` for you."),
    "ingest-files": ("files", "Let a language model make facts of files."),
    "embed": ("files", "Compute the vectors that are missing."),
    "language": ("maintenance", "Show or change the language of the keyword index."),
    "copy": ("maintenance", "Copy all that a store holds into another."),
    "export": ("maintenance", "Write all that the store holds as JSON lines."),
    "import": ("maintenance", "Add what an export holds."),
    "eval": ("lab", "Measure search on judged questions: yours, or public sets."),
    "serve": ("serve", "Serve the page, the JSON API and MCP over HTTP."),
    "token": ("serve", "Make, list and remove the tokens that `serve` lets in."),
    "mcp": ("serve", "Serve the memory to agents over MCP."),
    "status": ("maintenance", "Show what the store holds and how current it is."),
    "doctor": ("maintenance", "Find what is wrong, and say how to mend it."),
    "config": ("configuration", "Show the settings and where each came from, or import OpenClaw's."),
    "trust": ("configuration", "Let a project's settings file have effect."),
    "model": ("configuration", "List, fetch, find or remove models."),
    "demo": ("search", "Try it on the notes that come with it."),
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
