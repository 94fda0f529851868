"""The command line: the group of commands, and the one place where an error becomes text and an exit code."""

from __future__ import annotations

import atexit
import builtins
import gc
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

import click

from recollect import __version__
from recollect.cli.flags import common
from recollect.cli.terminal import echo, print_error
from recollect.errors import FailedError, RecollectError, UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS = {  # command → its module and its line in the help, so that `--help` imports no command
    "search": ("queries", "Search facts and files."),
    "recall": ("queries", "Search, and print one block of text for a model's context."),
    "fuse": ("rankings", "Fuse ranked lists from files into one."),
    "overlap": ("rankings", "Compare what the sources find."),
    "related": ("queries", "List the notes that a note links to, those that link to it, and similar ones."),
    "why-not": ("queries", "Explain why a record is missing from the results."),
    "add": ("crud", "Add a fact, or many from standard input."),
    "get": ("crud", "Show one record."),
    "list": ("crud", "List records, newest first."),
    "supersede": ("crud", "Replace a record by a newer one."),
    "edit": ("crud", "Edit a fact."),
    "forget": ("crud", "Hide records from every search (`undo` restores them)."),
    "undo": ("crud", "Undo the last change to a record."),
    "history": ("crud", "Show the changes to a record."),
    "index": ("ingestion", "Index folders and files: notes, source code, PDF, DOCX, HTML, notebooks and mail."),
    "folders": ("indexed", "List, describe, remove or rename the indexed folders."),
    "watch": ("ingestion", "Index folders, and again whenever their files change."),
    "service": ("ingestion", "Run `watch` in the background (systemd or launchd)."),
    "ingest-files": ("ingestion", "Extract facts from files with a language model."),
    "import-chat": ("dialogue", "Import conversations: ChatGPT, Claude, Claude Code, Codex, Gemini, OpenClaw."),
    "import-memory": ("dialogue", "Import the memories of mem0, the MCP memory server or basic-memory."),
    "conversation": ("dialogue", "Read a whole conversation, or list the newest ones."),
    "embed": ("ingestion", "Compute missing vectors."),
    "migrate": ("migrate", "Move to another model, language or chunker, if it is not worse."),
    "language": ("maintenance", "Show or change the language of the keyword index."),
    "copy": ("maintenance", "Copy a store into another store."),
    "export": ("maintenance", "Export the store as JSON lines."),
    "import": ("maintenance", "Import what `export` wrote."),
    "backup": ("maintenance", "Back up the store to a file, or to dated files in a folder."),
    "restore": ("maintenance", "Restore a backup to a new place."),
    "eval": ("lab", "Measure search on judged questions: yours, or public sets."),
    "serve": ("serve", "Serve the web page, the JSON API and MCP over HTTP."),
    "token": ("serve", "Create, list and remove access tokens for `serve`."),
    "mcp": ("serve", "Serve the memory to an agent over MCP, on standard input and output."),
    "hook": ("capture", "Install hooks in Claude Code, Codex and Gemini CLI: recall, and capture of sessions."),
    "postgres": ("maintenance", "Distribute a PostgreSQL store over a Citus cluster."),
    "status": ("maintenance", "Show what the store holds and how current its indexes are."),
    "doctor": ("maintenance", "Find problems, and say how to fix them."),
    "config": ("configuration", "Show the settings and where each comes from, or import OpenClaw's."),
    "trust": ("configuration", "Trust the settings file of a project."),
    "model": ("configuration", "List, fetch, locate or remove models."),
    "demo": ("queries", "Try search on the sample notes of the package."),
    "completion": ("configuration", "Print a completion script for your shell."),
}

YOUNG_OBJECTS = 100_000  # new objects between two collections: more than a search makes; Python's own number is 700

SYNONYMS = {  # names that newcomers try → the command they mean
    "remember": "add", "store": "add", "save": "add", "find": "search", "query": "search", "ask": "recall",
    "context": "recall", "delete": "forget", "remove": "forget", "rm": "forget", "update": "edit", "show": "get",
    "ls": "list", "log": "history", "ingest": "index", "settings": "config", "explain": "why-not",
    "links": "related", "backlinks": "related",
}  # fmt: skip


class Commands(click.Group):
    """A group that imports a command's module, from the `table` with its line in the help, only when it is run."""

    def __init__(
        self, *arguments: Any, table: Mapping[str, tuple[str, str]], package: str, synonyms: Mapping[str, str] = {},
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(*arguments, **options)
        self._table, self._package, self._synonyms = table, package, synonyms

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click passes it)
        """The commands in the order of the table."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command, whose module is imported now."""
        if cmd_name not in self._table:
            return None
        module = importlib.import_module(f"{self._package}.{self._table[cmd_name][0]}")
        name = cmd_name.replace("-", "_")
        # A function whose name Python uses itself has a trailing underscore.
        command: click.Command = getattr(module, f"{name}_" if hasattr(builtins, name) or iskeyword(name) else name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of the first argument; an unknown one gets a suggestion."""
        name = args[0]
        if name in self._table or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        from difflib import get_close_matches

        likely = [self._synonyms[name]] if name in self._synonyms else get_close_matches(name, self._table, 1)
        hint = f" Did you mean {likely[0]!r}?" if likely else ""
        raise click.UsageError(f"No such command {name!r}.{hint}", ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        """The commands that begin like this, from the table alone, and the flags."""
        from click.shell_completion import CompletionItem

        names = [CompletionItem(name, help=text) for name, (_, text) in self._table.items()]
        # Not the group's own method: it would import every module for its command's help.
        flags = super(click.Group, self).shell_complete(ctx, incomplete)
        return [*(item for item in names if item.value.startswith(incomplete)), *flags]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of commands, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._table.items()])


@click.command(
    cls=Commands,
    table=COMMANDS,
    package="recollect.cli",
    synonyms=SYNONYMS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="recollect")
@common
@click.pass_context
def app(context: click.Context, /, **options: Any) -> None:
    """Hybrid memory search: keyword and vector search over your facts and notes.

    \b
    Start here:
      recollect index ~/notes
      recollect search "where did I put the spare key?"

    Without a command, a terminal gets an interactive search (pip install 'recollect-search[tui]').
    """  # noqa: D301  (click reads the backspace as "keep these lines")
    context.obj = options
    if context.invoked_subcommand is None:
        _without_command(context)


def _without_command(context: click.Context) -> None:
    """Start the interactive search in a terminal, if its library is installed; otherwise print the help."""
    from importlib.util import find_spec

    if not (sys.stdin.isatty() and sys.stdout.isatty()) or find_spec("textual") is None:
        echo(context.get_help())
        return
    from recollect.cli.flags import open_memory
    from recollect.cli.interactive import SearchScreen

    with open_memory({}, {}, reads=True) as memory:
        SearchScreen(memory).run()


def main(arguments: Sequence[str] | None = None) -> int:  # noqa: PLR0911  (one return for each way to end)
    """Run a command and return its exit code: 0 found or done, 1 nothing found, 2 wrong usage, 3 failed."""
    words, output = list(sys.argv[1:] if arguments is None else arguments), sys.stdout
    _collect_rarely()
    try:
        color = False if os.environ.get("NO_COLOR") else None
        outcome = app.main(args=words, prog_name="recollect", standalone_mode=False, color=color)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        echo(error.format_message())
        return 0
    except (RecollectError, click.ClickException) as error:
        return _failed(error, words)
    except (click.Abort, KeyboardInterrupt):
        echo("interrupted; everything stored so far is kept", err=True)
        return 130
    except (SystemExit, BrokenPipeError) as stop:
        # When the reader of a pipe has closed it (`| head`), click replaces the output and exits.
        if isinstance(stop, SystemExit) and sys.stdout is output:
            return int(stop.code or 0)
        # A closed pipe is no error; without this the interpreter would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())
        return 0
    except OSError as error:  # an error of the output names no file
        problem = "cannot write the output" if error.filename is None else f"cannot use {os.fsdecode(error.filename)}"
        return _failed(FailedError(f"{problem}: {error.strerror or error}"), words)
    return outcome if isinstance(outcome, int) else 0


def _collect_rarely() -> None:
    """Make the garbage collector run less often, and leave out its last run when the process ends.

    Both together save a sixth of the time of a search.
    """
    gc.set_threshold(YOUNG_OBJECTS)
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)


def _failed(error: RecollectError | click.ClickException, words: Sequence[str]) -> int:
    if isinstance(error, click.ClickException):
        error = UsageError(error.format_message(), hint=_hint_for(error, words))
    print_error(error, "--json" in words)
    return 0 if _is_hook(words) else error.exit_code


def _is_hook(words: Sequence[str]) -> bool:
    """Whether an agent program runs this command: it takes exit code 2 as an order to stop."""
    captures = {"hook", "capture"}.issubset(words) and not any(word.startswith("--transcript") for word in words)
    return captures or {"recall", "--hook"}.issubset(words)


def _hint_for(error: click.ClickException, words: Sequence[str]) -> str:
    """The help of the command that refused its words: of `eval run`, not of `recollect`; and how a text is given."""
    context = getattr(error, "ctx", None)
    if context is None:
        return f"recollect {words[0]} --help" if words and words[0] in COMMANDS else "recollect --help"
    hint, takes = f"{context.command_path} --help", {parameter.name for parameter in context.command.params}
    if not takes & {"query", "text"}:
        return hint
    if isinstance(error, click.NoSuchOption) and not error.option_name.startswith("--"):
        return f"{hint}; a text that begins with a dash is given last, after --"
    return f"{hint}; put a text of several words in quotation marks" if "unexpected extra" in error.message else hint
