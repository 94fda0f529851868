"""Flags of several commands (many from the table in `recollect.options`), and the settings and memory they open."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from recollect.cli.terminal import notice, progress
from recollect.errors import RecollectError, UsageError, file_errors
from recollect.options import FILTER, FILTERS, GROUPS, SCOPE, SCOPE_GROUP, SCOPE_PARTS, SEARCH, Option

if TYPE_CHECKING:
    from recollect.config import Loaded, Settings
    from recollect.memory import Memory
    from recollect.moving.backups import BackupSchedule

F = TypeVar("F", bound=Callable[..., Any])
Completer: TypeAlias = Callable[[click.Context, click.Parameter, str], list[str]]

_TYPES: Mapping[str, type] = {"whole": int, "number": float}
OFFLINE = "RECOLLECT_OFFLINE"
THREADS = "OPENBLAS_NUM_THREADS"
_OPTIONS = {option.name: option for option in (*SEARCH, *FILTERS, *SCOPE)}
_COMMON = ("store", "config", *SCOPE_PARTS, "embedder")
_PRINTED_NOTES = "recollect.notes"  # key in the context of click: the notes on settings that this command has printed


def flags(*decorators: Callable[[Any], Any]) -> Callable[[F], F]:
    """Several flags and arguments as one decorator, which adds them in this order. Commands share them."""

    def flagged() -> None: ...

    for decorator in reversed(decorators):
        decorator(flagged)
    parameters = flagged.__dict__.get("__click_params__", [])

    def decorate(command: F) -> F:
        command.__dict__.setdefault("__click_params__", []).extend(parameters)
        return command

    return decorate


def command(name: str | None = None) -> Callable[[Callable[..., Any]], click.Command]:
    """A command with the common flags and `--json`, which follow its own flags."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        own = function.__dict__.pop("__click_params__", [])
        function = flags(common, json_flag)(function)
        function.__dict__["__click_params__"] += own
        return click.command(name)(function)

    return decorate


def _flags_of(*options: Option) -> Callable[[F], F]:
    return flags(*(_flag(option.name) for option in options if option.flag_names))


@cache
def _flag(name: str) -> Callable[[Any], Any]:
    return flags(declared(_OPTIONS[name]))


def declared(option: Option) -> Callable[[F], F]:
    """The flag of an option, or of a field of a record."""
    is_filter = option.group == FILTER
    default = "on" if option.default is True else option.default
    default = f"{default:g}" if isinstance(default, float) else default
    shown = "" if default is False or default in (None, ()) else f" [default: {default}]"
    text = f"{option.flag_help or option.about}{shown}"
    flag = partial(click.option, *option.flag_names, metavar=option.metavar or None, help=text)
    if option.words:  # the flag alone means the first word
        return flag(is_flag=False, flag_value=option.words[0], shell_complete=_completer(option))
    match option.kind:
        case "flag":
            return click.option("/".join(option.flag_names), is_flag=True, default=None, help=text)
        case "names" if option.group not in GROUPS:
            return flag(option.name, multiple=True, type=click.Choice(list(option.allowed)) if option.allowed else str)
        case "text" if is_filter and option.allowed:
            return flag(type=click.Choice(list(option.allowed)), help=option.help)
    known = None if is_filter or option.group == SCOPE_GROUP else _completer(option)
    return flag(type=_TYPES.get(option.kind, str), shell_complete=known)


def complete(words: Callable[[], Iterable[str]], *, many: bool = False) -> Completer:
    """Complete a value from known words, which are looked up when they are needed; with `many` after each comma."""

    def completions(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",") if many else ("", "", incomplete)
        used = before.split(",")
        return [f"{before}{comma}{word}" for word in words() if word.startswith(last) and word not in used]

    return completions


def complete_option(name: str) -> Completer | None:
    """Complete several values of a search option, if it has known words."""
    return _completer(_OPTIONS[name], many=True)


def _completer(option: Option, *, many: bool = False) -> Completer | None:
    if option.name == "sources":
        return complete(_source_names, many=True)
    return complete(lambda: option.words or option.allowed, many=many) if option.words or option.choices else None


def _source_names() -> list[str]:
    from recollect import config

    names = ["keyword", "vector"]
    with contextlib.suppress(RecollectError):  # settings that cannot be read
        names += [source.name for source in config.load().settings.sources]
    return names


def _embedder_names() -> Iterable[str]:
    from recollect.models.embedders import embedder_specs

    return embedder_specs()


def option_flags(use: str, options: Iterable[Option] = ()) -> Callable[[F], F]:
    """The flags of search options, and of the filters of commands of this use: search, list or filter."""
    return _flags_of(*options, *(option for option in FILTERS if use in option.commands))


def filters_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The filters among the values of a command's flags, as `Memory` takes them."""
    if options.get("any_scope") and any(common_options(options)[part] for part in SCOPE_PARTS):
        raise UsageError("--any-scope and a scope exclude each other", hint="leave out --any-scope or the scope")
    filters = {option.name: options[option.name] for option in FILTERS if option.name in options}
    if (path := filters.get("path")) and {".", ".."} & set(path.split("/")):
        filters["path"] = os.path.realpath(path)  # as `index` stores it: a filter knows no current folder
    return filters


def search_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The search options among the values of a command's flags, as settings of `[search]`."""
    values = {option.name: options.get(option.name) for option in SEARCH if option.flag_names}
    values |= _decay(options["decay"])
    for option in SEARCH:
        # An option that has an effect only with a switch turns the switch on: --mmr-lambda means --mmr too.
        if option.needs and option.needs[1] is True and values.get(option.name) is not None:
            switch = option.needs[0]
            values[switch] = True if values[switch] is None else values[switch]
    return values


def _decay(text: str | None) -> dict[str, object]:
    if text in (None, "on", "off"):
        return {} if text is None else {"decay": text == "on"}
    from recollect.memory.validation import parse_span

    try:
        days = parse_span(text).total_seconds() / 86_400
    except UsageError as error:
        message = f"--decay must be on, off or a half-life, not {text!r}"
        raise UsageError(message, hint="a half-life is a span such as 36h, 30d or 2w") from error
    return {"decay": True, "half_life_days": days}


def _go_offline(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    """Set the variable that also other processes of this command inherit, until the command ends."""
    if value:
        before = os.environ.get(OFFLINE)
        os.environ[OFFLINE] = "1"
        context.call_on_close(
            lambda: os.environ.pop(OFFLINE) if before is None else os.environ.update({OFFLINE: before})
        )


common = flags(  # the flags of every command; they may stand before the command or after it
    click.option(
        "--store", metavar="PLACE", shell_complete=click.Path().shell_complete,
        help="A file, or a URL such as postgresql://user@host/database (or RECOLLECT_STORE).",
    ),
    click.option(
        "--config", metavar="FILE", help="A settings file, instead of the user's and the project's.",
        shell_complete=click.Path().shell_complete,
    ),
    _flags_of(*SCOPE),
    click.option(
        "--embedder", metavar="NAME", help="The embedding model; `none` is keyword search only.",
        shell_complete=complete(_embedder_names),
    ),
    click.option(
        "--offline", is_flag=True, expose_value=False, callback=_go_offline,
        help="Contact no other machine (or RECOLLECT_OFFLINE=1).",
    ),
)  # fmt: skip

json_flag = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def common_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the common flags; those after the command override those before it."""
    before = click.get_current_context().find_root().obj or {}
    return {name: options.get(name) if options.get(name) is not None else before.get(name) for name in _COMMON}


def settings_flags(options: Mapping[str, Any]) -> tuple[Path | None, dict[str, Any]]:
    """The settings file named by --config, and the other common flags as settings."""
    values = common_options(options)
    flags = {name: values[name] for name in ("store", "embedder")}
    flags |= {f"scope.{name}": values[name] for name in SCOPE_PARTS}
    return Path(values["config"]) if values["config"] else None, flags


def load_settings(options: Mapping[str, Any], search: Mapping[str, Any] | None = None) -> Loaded:
    """Load all settings; flags override them."""
    from recollect import config

    file, flags = settings_flags(options)
    flags |= {f"search.{name}": value for name, value in (search or {}).items()}
    loaded = config.load(config=file, flags=flags)
    printed = click.get_current_context().find_root().meta.setdefault(_PRINTED_NOTES, set())
    for note in loaded.notes:
        if note not in printed:  # some commands load the settings twice
            notice(note)
            printed.add(note)
    return loaded


def open_memory(
    options: Mapping[str, Any],
    search: Mapping[str, Any] | None = None,
    *,
    reads: bool = False,
    fetch: bool = True,
    for_model: bool = False,
) -> Memory:
    """Open the memory of the flags and settings. A command that only `reads` does not create a missing store."""
    settings = load_settings(options, search).settings
    _import_numpy()
    if reads and search is not None:
        _begin_to_load_models(settings, for_model)
    from recollect.memory import Memory
    from recollect.stores import kind_of

    place = settings.place
    if reads and place != ":memory:" and not (kind := kind_of(place)).exists(place):
        notice(f"there is no store at {kind.describe(place)} yet; `recollect index` or `recollect add` creates one")
        place = ":memory:"
    return Memory.open(place, settings=settings, announce=notice, fetching=progress("fetching"), fetch=fetch)


def environment_of(memory: Memory, options: Mapping[str, Any]) -> dict[str, str]:
    """What another process needs to open this store, as variables: its place may hold a password, so it is no flag."""
    from recollect.stores import kind_of

    place, config = memory.settings.place, common_options(options)["config"]
    environment = {"RECOLLECT_STORE": kind_of(place).absolute(place)}
    return environment | ({"RECOLLECT_CONFIG": str(Path(config).absolute())} if config else {})


def backup_schedule(memory: Memory, options: Mapping[str, Any]) -> BackupSchedule | None:
    """The schedule of the settings `[backup]` for this memory; None if there is none."""
    if memory.settings.backup.folder is None or memory.settings.place == ":memory:":
        return None
    from recollect.moving.backups import BackupSchedule

    return BackupSchedule(memory.settings.backup, memory.store, environment_of(memory, options), notice)


def scheduled_backups(memory: Memory, options: Mapping[str, Any]) -> contextlib.AbstractContextManager[None]:
    """Make the backups of the settings `[backup]` while a block runs."""
    schedule = backup_schedule(memory, options)
    return schedule.running() if schedule else contextlib.nullcontext()


def _import_numpy() -> None:
    """Import numpy with one thread for linear algebra. Recollect uses no others, and starting them takes 50 ms."""
    before = os.environ.get(THREADS)
    os.environ[THREADS] = before or "1"
    importlib.import_module("numpy")  # numpy reads the variable now; child processes must not inherit it
    if not before:
        del os.environ[THREADS]


def _begin_to_load_models(settings: Settings, for_model: bool) -> None:
    """Load the embedding model and the reranker that will be used, if on this machine, while the store is opened."""
    from recollect.models.catalogue import MODELS, is_here

    search = settings.search
    reranks = for_model if search.rerank is None else search.rerank
    used = {settings.embedder: search.sources is None or "vector" in search.sources, search.rerank_model: reranks}
    for name in (name for name, is_used in used.items() if is_used and name in MODELS and is_here(MODELS[name])):
        from recollect.models.onnx import begin_to_load

        begin_to_load(name)


def read_input(file: str, hint: str) -> bytes:
    """The content of a file, or of standard input for `-`; `hint` says what to name instead of a wrong file."""
    if file == "-":
        return sys.stdin.buffer.read()
    with file_errors(file, "read", hint="check the permissions of the file"):
        try:
            return Path(file).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            problem = "is a folder" if isinstance(error, IsADirectoryError) else "does not exist"
            raise UsageError(f"{file} {problem}", hint=hint) from error
