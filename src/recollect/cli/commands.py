"""Groups of commands whose modules are loaded when one is run, so that `--help` and start-up stay fast."""

from __future__ import annotations

import builtins
import importlib
import keyword
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

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
    plain = name.replace("-", "_")
    return f"{plain}_" if hasattr(builtins, plain) or keyword.iskeyword(plain) else plain
