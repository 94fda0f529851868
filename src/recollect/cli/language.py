"""`recollect language`: the language of a store's keyword index."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from recollect.cli.options import common, json_flag, load_settings, notice, open_memory
from recollect.cli.plain import echo


@click.command()
@click.argument("name", required=False)
@common
@json_flag
def language(name: str | None, as_json: bool, **options: Any) -> int:
    """Show the store's language, or change it to NAME and read the words of every record again.

    A store has the language that was set when it was made. Afterwards only this command changes it: the setting
    `language` counts for new stores.
    """
    from recollect.cli.output import print_json

    before, after = _change(name, options) if name else (None, _current(options))
    if as_json:
        print_json({"language": after, **({"before": before} if name else {})})
    else:
        echo(after)
    return 0


def _current(options: dict[str, Any]) -> str:
    with open_memory(options, reads=True) as memory:
        return memory.store.keywords.analyzer.language


def _change(name: str, options: dict[str, Any]) -> tuple[str, str]:
    from recollect.memory import Memory

    settings = replace(load_settings(options).settings, language=None)
    with Memory.open(settings=settings, announce=notice) as memory:
        before = memory.store.keywords.analyzer.language
        if name != before:
            notice("reading the words of all records again")
            memory.change_language(name)
        return before, memory.store.keywords.analyzer.language
