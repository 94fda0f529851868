"""`recollect search` and `recollect why-not`."""

from __future__ import annotations

from typing import Any

import click

from recollect.cli.flags import asking, ranking_options, seeing_options
from recollect.cli.options import common, json_flag, open_memory


@click.command()
@click.argument("query")
@asking
@click.option("--explain", is_flag=True, help="Show how each score came about.")
@common
@json_flag
def search(query: str, explain: bool, as_json: bool, **options: Any) -> int:
    """Find what answers QUERY, best first, with the rank that each source gave."""
    from recollect.cli.output import print_answer, print_json
    from recollect.memory.shapes import answer_dict

    with open_memory(options, ranking_options(options), reads=True) as memory:
        answer = memory.search(query, **seeing_options(options))
        # Shown before the memory closes: a source that is late must not hold up what has been found.
        if as_json:
            print_json(answer_dict(answer, explain=explain))
        else:
            print_answer(answer, explain=explain)
    return 0 if answer.results else 1


@click.command(name="why-not")
@click.argument("query")
@click.argument("target", metavar="ID_OR_PATH")
@asking
@common
@json_flag
def why_not(query: str, target: str, as_json: bool, **options: Any) -> int:
    """Say why a record is not in the answer to QUERY, and what would bring it back.

    Give the flags that the search was run with. ID_OR_PATH names a record, or a file: of its parts the nearest is
    looked at.
    """
    from recollect.cli.output import print_json
    from recollect.cli.verdict import print_verdict
    from recollect.memory.shapes import verdict_dict

    with open_memory(options, ranking_options(options), reads=True) as memory:
        verdict = memory.why_not(query, target, **seeing_options(options))
    if as_json:
        print_json(verdict_dict(query, verdict))
    else:
        print_verdict(verdict, options["tags"])
    return 0
