"""`recollect recall`: what answers a question, as a block for a model's context."""

from __future__ import annotations

from typing import Any

import click

from recollect.cli.flags import asking, ranking_options, seeing_options
from recollect.cli.options import common, json_flag, notice, open_memory
from recollect.cli.plain import echo


@click.command()
@click.argument("query", required=False)
@click.option("--tokens", type=int, metavar="N", help="How large the block may be (1500; 1000 for a hook).")
@click.option("--hook", is_flag=True, help="Answer the hook of an agent's program: its JSON in, its JSON out.")
@asking
@common
@json_flag
def recall(query: str | None, tokens: int | None, hook: bool, as_json: bool, **options: Any) -> int:
    """Print what answers QUERY as one block of text: fenced, labelled as data, with numbers to cite.

    Put it into a model's context as it stands. With --json, what each number stands for comes with it.
    With --hook there is no QUERY: docs/agents.md says what is read and printed.
    """
    if hook:
        from recollect.cli import hook as hooks

        hooks.hook(tokens, options)
    if query is None:
        raise click.MissingParameter(param_hint="'QUERY'", param_type="argument")
    from recollect.cli.output import print_json
    from recollect.memory.recall import TOKENS
    from recollect.memory.shapes import recall_dict

    with open_memory(options, ranking_options(options), reads=True) as memory:
        recalled = memory.recall(query, tokens=TOKENS if tokens is None else tokens, **seeing_options(options))
        if as_json:
            print_json(recall_dict(recalled))
        else:
            echo(recalled.text)
    if not as_json:
        for warning in recalled.warnings:
            notice(f"note: {warning}")
        if recalled.left_out:
            notice(f"{recalled.left_out} more had no room in {recalled.tokens} tokens; see --tokens")
    return 0 if recalled.citations else 1
