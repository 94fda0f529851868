"""Commands that look at the whole: status, config."""

from __future__ import annotations

import os
from typing import Any

import click

from recollect.cli.openclaw import import_settings
from recollect.cli.options import common, json_flag, load_settings, notice, open_memory
from recollect.cli.plain import echo, plain


@click.command()
@common
@json_flag
def status(as_json: bool, **options: Any) -> int:
    """Show what the store holds and how current its indexes are."""
    from recollect.cli.output import as_text, print_json, print_table

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


@click.group()
def config() -> None:
    """Show the settings and where each came from, or import OpenClaw's."""


config.add_command(import_settings)


@config.command()
@common
@json_flag
def show(as_json: bool, **options: Any) -> int:
    """Every setting, its value, and the place that gave it."""
    from recollect.cli.output import as_text, print_json, print_table
    from recollect.config import shown, shown_place, unknown_variables
    from recollect.memory import default_store

    loaded = load_settings(options)
    rows = [(name, loaded.value(name), origin) for name, origin in loaded.origins.items()]
    rows = [row for row in rows if row[0] != "sources"]
    rows += [(name, value, loaded.origins["sources"]) for name, value in shown(loaded.settings.sources)]
    place = shown_place(loaded.settings.store or str(default_store()))
    rows = [(name, place if name == "store" else value, origin) for name, value, origin in rows]
    for variable in unknown_variables(os.environ):
        notice(f"{variable} is no setting and was ignored")
    if as_json:
        print_json({name: {"value": value, "from": origin} for name, value, origin in rows})
    else:
        print_table([(name, as_text(value), origin) for name, value, origin in rows])
    return 0


@config.command()
@json_flag
def path(as_json: bool) -> int:
    """Where the user's own settings file is."""
    from recollect.cli.output import print_json
    from recollect.config import user_file

    if as_json:
        print_json({"path": str(user_file())})
    else:
        echo(plain(str(user_file())))
    return 0
