"""Groups of commands whose modules are loaded when one is run, so that `--help` and start-up stay fast."""

from __future__ import annotations

import builtins
import importlib
import keyword
from collections.abc import Mapping
from typing import Any

import click


class Commands(click.Group):
    """A group made of a table: command → the module of `package` that has it, and its line in the help."""

    def __init__(self, *arguments: Any, table: Mapping[str, tuple[str, str]], package: str, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._table = table
        self._package = package

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click gives it)
        """The commands in the order a newcomer meets them."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command itself."""
        if cmd_name not in self._table:
            return None
        module = importlib.import_module(f"{self._package}.{self._table[cmd_name][0]}")
        command = getattr(module, _attribute(cmd_name))
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of commands, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in self._table.items()])


def _attribute(name: str) -> str:
    """The function of a command: its name, with an underscore behind it where Python has that name already."""
    plain = name.replace("-", "_")
    return f"{plain}_" if hasattr(builtins, plain) or keyword.iskeyword(plain) else plain
