"""`recollect completion`: what a shell needs to complete commands, flags and their words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import click
from click.shell_completion import CompletionItem

from recollect.cli.terminal import echo
from recollect.options import SEARCH

PROGRAM, VARIABLE = "recollect", "_RECOLLECT_COMPLETE"
SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> int:
    """Print the script that completes commands, flags and their words in SHELL.

    \b
    For this session:  source <(recollect completion bash)
    For good: see docs/doctor.md. Bash must be 4.4 or newer; the one of macOS is older.
    """  # noqa: D301  (click reads the backspace as "keep these lines")
    from click.shell_completion import get_completion_class

    from recollect.cli.app import app
    from recollect.errors import UsageError

    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(f"this click cannot complete in {shell}", hint="pip install -U click")
    script = kind(app, {}, PROGRAM, VARIABLE).source()
    # click's script for fish would cut words and their help at every comma, not at the first.
    echo(script.replace('string split ","', 'string split --max 1 ","'), nl=False)
    return 0


def taught(command: click.Command) -> click.Command:
    """A command whose free-text flags know the words that can be said; for completing only."""
    for option in command.params:
        if isinstance(option, click.Option):
            option.type = WORDS.get(f"{option.opts[0]} {option.metavar}", option.type)
    if isinstance(command, click.Group):
        for child in command.commands.values():
            taught(child)
    return command


class Words(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """Text for which there are known words; what is not among them is left for the settings to refuse."""

    name = "text"

    def __init__(self, known: Callable[[], Iterable[str]], *, many: bool = False) -> None:
        self._known = known
        self._many = many

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:  # noqa: ARG002
        """The words that begin like this; where many can be named, the last of them."""
        before, comma, last = incomplete.rpartition(",") if self._many else ("", "", incomplete)
        taken = before.split(",")
        return [
            CompletionItem(f"{before}{comma}{word}")
            for word in self._known()
            if word.startswith(last) and word not in taken
        ]


def _classes() -> Iterable[str]:
    from recollect.ranking import HALF_LIVES

    return HALF_LIVES


def _embedders() -> Iterable[str]:
    from recollect.models.embedders import embedder_specs

    return embedder_specs()


def _sources() -> Iterable[str]:
    """Ours, and those of the settings as they stand; settings that cannot be read name none."""
    from recollect import config
    from recollect.errors import RecollectError

    try:
        named = config.load().settings.sources
    except RecollectError:
        named = ()
    return ["keyword", "vector", *(source.name for source in named)]


def _words_of_options() -> Iterator[tuple[str, Words]]:
    """The words of every search option that has some; evaluation takes lists of them."""
    for option in SEARCH:
        if option.flag_names and (option.words or option.allowed):
            known = partial(tuple, option.words or option.allowed)
            yield f"{option.flag_names[0]} {option.metavar}", Words(known)
            yield f"{option.flag_names[0]} LIST", Words(known, many=True)


WORDS: dict[str, click.ParamType[Any]] = {
    **dict(_words_of_options()),
    "--sources NAMES": Words(_sources, many=True),
    "--embedder NAME": Words(_embedders),
    "--decay CLASS": Words(_classes),
    "--store PLACE": click.Path(),
    "--config FILE": click.Path(),
}
"""A flag as its help shows it → what it can be given."""
