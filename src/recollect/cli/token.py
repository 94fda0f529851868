"""`recollect token`: who may ask a server, and what they may see."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.options import json_flag, notice
from recollect.cli.plain import echo

if TYPE_CHECKING:
    from recollect.types import Scope
    from recollect.web.tokens import Tokens

tokens_flag = click.option(
    "--tokens", "tokens_at", type=click.Path(path_type=Path), metavar="FILE", help="Where tokens are kept."
)


@click.group()
def token() -> None:
    """Make, list and remove the tokens that `serve` lets in."""


@token.command("add")
@click.argument("name")
@click.option("--owner", is_flag=True, help="May name any scope, index folders and read the metrics.")
@click.option("--read-only", is_flag=True, help="May change nothing.")
@click.option("--session", metavar="NAME", help="The session it is bound to.")
@click.option("--agent", metavar="NAME", help="The agent it is bound to.")
@click.option("--user", metavar="NAME", help="The user it is bound to.")
@tokens_flag
@json_flag
def add(name: str, owner: bool, read_only: bool, tokens_at: Path | None, as_json: bool, **scope: str | None) -> int:
    """Make a token called NAME and print it, this once: only its hash is kept.

    Its bearer sees the scope that is named here and no other, and changes only what belongs to that scope; without a
    scope, what is nobody's.
    """
    from recollect.cli.output import print_json
    from recollect.web.tokens import Caller

    caller = Caller(name, _scope(scope), owner=owner, read_only=read_only)
    made = open_tokens(tokens_at).add(caller)
    if as_json:
        print_json({**caller.as_dict(), "token": made})
    else:
        echo(made)
        notice("keep it now: it cannot be shown again")
    return 0


@token.command("list")
@tokens_flag
@json_flag
def list_(tokens_at: Path | None, as_json: bool) -> int:
    """Show what each token may see and do; the tokens themselves are not kept."""
    from recollect.cli.output import print_json, print_table

    kept = open_tokens(tokens_at).all()
    if as_json:
        print_json([{**one.caller.as_dict(), "created_at": one.created_at} for one in kept])
        return 0 if kept else 1
    rows: list[tuple[str, ...]] = [(one.caller.name, _reach(one.caller.as_dict()), one.created_at[:19]) for one in kept]
    print_table(rows)
    if not rows:
        notice("there are no tokens; `recollect token add NAME` makes one")
    return 0 if rows else 1


@token.command()
@click.argument("name")
@tokens_flag
@json_flag
def remove(name: str, tokens_at: Path | None, as_json: bool) -> int:
    """Take a token back. Servers that run stop taking it at once."""
    from recollect.cli.output import print_json

    open_tokens(tokens_at).remove(name)
    if as_json:
        print_json({"removed": name})
    else:
        notice(f"removed {name}")
    return 0


def open_tokens(at: Path | None, *, none: bool = False) -> Tokens:
    """The tokens of a file, of the user's own where none is named; or none at all."""
    from recollect.web.tokens import Tokens, tokens_file

    return Tokens(None if none else at or tokens_file())


def _scope(said: dict[str, str | None]) -> Scope:
    from recollect.memory.validation import merge_scope
    from recollect.types import GLOBAL

    return merge_scope(GLOBAL, None, said)


def _reach(caller: dict[str, Any]) -> str:
    scope = ", ".join(f"{part} {name}" for part, name in caller["scope"].items()) or "what is nobody's"
    return ("everything" if caller["owner"] else scope) + (", reading only" if caller["read_only"] else "")
