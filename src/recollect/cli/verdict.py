"""How a verdict of `why-not` looks on a terminal."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import click

from recollect.cli.output import where, width
from recollect.cli.plain import echo, one_line, plain, plain_text
from recollect.memory.explain import Place, Verdict

FLAGS = {"tags": "--tag"}
"""Options whose flag has another name."""


def print_verdict(verdict: Verdict, tags: Sequence[str] = ()) -> None:
    """What became of the record, each source's rank of it, and what to do."""
    if verdict.record is not None:
        name = textwrap.shorten(verdict.record.title or verdict.record.text, width() - 4, placeholder=" …")
        echo(click.style(plain_text(name), bold=True))
        echo(click.style(f"    {plain(verdict.record.id)}  {where(verdict.record)}".rstrip(), dim=True))
    color = "green" if verdict.stage == "found" else "yellow"
    label = "found" if verdict.stage == "found" else f"lost at: {verdict.stage}"
    echo(f"{click.style(label, fg=color)}")
    echo(textwrap.fill(one_line(verdict.reason), width(), initial_indent="    ", subsequent_indent="    "))
    for source, place in verdict.places.items():
        echo(click.style(f"    {plain(source):<10} {_place(place)}", dim=True))
    if verdict.change:
        kept = verdict.change.get("tags", ())
        wrong = [f"--tag {shlex.quote(tag)}" for tag in tags if kept and tag not in kept]
        dropped = [flag(name) for name, value in verdict.change.items() if value in (None, ())] + wrong
        added = flags({name: value for name, value in verdict.change.items() if name != "tags"})
        words = [added, f"without {', '.join(dropped)}" if dropped else ""]
        echo(plain(f"brings it back: the same search {' and '.join(word for word in words if word)}"))
    elif verdict.advice:
        echo(f"what to do: {one_line(verdict.advice)}")
    elif verdict.stage != "found":
        echo("no single option of search brings it back")


def flags(change: Mapping[str, Any]) -> str:
    """Options of `search` as they are written on the command line; what is taken away is not written."""
    words: list[str] = []
    for name, value in change.items():
        match value:
            case None | ():
                continue
            case True:
                words.append(flag(name))
            case False:
                words.append(f"--no-{name.replace('_', '-')}")
            case tuple() | list():
                words += [f"{flag(name)} {shlex.quote(str(part))}" for part in value]
            case _:
                words.append(f"{flag(name)} {shlex.quote(str(value))}")
    return " ".join(words)


def flag(name: str) -> str:
    """The flag of an option."""
    return FLAGS.get(name, f"--{name.replace('_', '-')}")


def _place(place: Place) -> str:
    if place.rank is None:
        return plain(place.note)
    score = "" if place.score is None else f", score {place.score:.4f}"
    return plain(f"rank {place.rank:,} of a list read to {place.fetch_k:,}{score} {place.note}".rstrip())
