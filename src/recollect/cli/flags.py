"""The flags of search options and filters, built from the table of options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import click

from recollect.options import FILTERS, SEARCH, Option

F = TypeVar("F", bound=Callable[..., Any])

_TYPES: Mapping[str, type] = {"whole": int, "number": float}


def add_flags(options: Iterable[Option], command: F) -> F:
    """A command with the flags of these options, in their order; an option without a flag is passed over."""
    for option in reversed([option for option in options if option.flag_names]):
        command = _flag(option)(command)
    return command


def _flag(option: Option) -> Callable[[F], F]:
    names, metavar = option.flag_names, option.metavar or None
    about = f"{option.flag_help or option.about}{_default(option)}"
    if option.words:  # the flag alone means "on"
        return click.option(*names, metavar=metavar, is_flag=False, flag_value=option.words[0], help=about)
    match option.kind:
        case "flag":
            return click.option("/".join(names), is_flag=True, default=None, help=about)
        case "names" if option in FILTERS:
            return click.option(*names, option.name, multiple=True, metavar=metavar, help=about)
        case "text" if option in FILTERS and option.allowed:
            return click.option(*names, type=click.Choice(list(option.allowed)), help=option.help)
    return click.option(*names, type=_TYPES.get(option.kind, str), metavar=metavar, help=about)


def _default(option: Option) -> str:
    match option.default:
        case None | () | False:
            return ""
        case True:
            return " [default: on]"
        case float(number):
            return f" [default: {number:g}]"
    return f" [default: {option.default}]"


def search_flags(command: F) -> F:
    """The flags of `search`, for every command that runs one."""
    return add_flags((*SEARCH, *_of("search")), command)


def filter_flags(command: F) -> F:
    """The flags that select records, for commands that read the records themselves."""
    return add_flags(_of("filter"), command)


def list_flags(command: F) -> F:
    """The flags that select records, as `list` has them."""
    return add_flags(_of("list"), command)


def filters_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The filters among the values of a command's flags, as `Memory` takes them."""
    return {option.name: options[option.name] for option in FILTERS if option.name in options}


def search_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The search options among the values of a command's flags, as settings of `[search]`."""
    given = {option.name: options[option.name] for option in SEARCH if option.flag_names} | _decay(options["decay"])
    for option in SEARCH:
        # An option that has an effect only with a switch turns the switch on: --mmr-lambda means --mmr too.
        if option.needs and option.needs[1] is True and given.get(option.name) is not None:
            given[option.needs[0]] = True if given[option.needs[0]] is None else given[option.needs[0]]
    return given


def _of(command: str) -> tuple[Option, ...]:
    return tuple(option for option in FILTERS if command in option.commands)


def _decay(words: str | None) -> dict[str, object]:
    """The value of --decay as settings: `on`, `off`, or a half-life."""
    match words:
        case None:
            return {}
        case "on" | "off":
            return {"decay": words == "on"}
        case _:
            return {"decay": True, "half_life_days": _days(words)}


def _days(words: str) -> str | float:
    """A span (`30d`, `2w`) in days; other text is returned as it is, and the settings refuse it."""
    from recollect.errors import UsageError
    from recollect.memory.validation import parse_span

    try:
        return parse_span(words).total_seconds() / 86_400
    except UsageError:
        return words
