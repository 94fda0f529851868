"""Writes docs/reference.md from the code: every command, setting and error. `make docs` runs it, a test compares."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import click

from recollect import errors, options
from recollect.analysis import LANGUAGES
from recollect.cli.commands import app
from recollect.config.settings import names
from recollect.models.embedders import EMBEDDERS
from recollect.ranking import HALF_LIVES

PAGE = Path(__file__).parent / "reference.md"

EXIT_CODES = """Exit codes: 0 found or done, 1 nothing found, 2 wrong use, 3 failed, 130 interrupted. With `--json` an
error is `{"error": {"code", "message", "hint"}}` on standard error."""

PLACES = """In the user's `config.toml` (`recollect config path`), a project's `recollect.toml` once it is
[trusted](agents.md#trust-the-settings-of-a-project) (only `[search]`, `scope.agent` and `scope.session`: it may come
with someone else's repository), a file named by `--config`, or the environment: `search.fetch_k` is
`RECOLLECT_SEARCH_FETCH_K`."""

TIMES = """Times are ISO 8601 (`2026-03-14`, `2026-03-14T15:09Z`; without a zone, UTC) or a span: `90min`, `36h`, `3d`,
`2w`, `3mo`, `1y`, back from now, and forward for `--expires-at`. A record that was edited in place is not part of an
`--as-of` before the edit."""

EMBEDDER_WORDS = """; after a colon the model (`openai:MODEL`, `ollama:MODEL`) or, for `hashing`, the dimension.
`none` is keyword search only."""

OPTIONS = """Where each option of a search, each filter and each part of a scope can be set. In Python they are
arguments of `Memory.search`, by these names."""

OPTIONS_HEAD = "| option | setting | flag | HTTP | MCP | page | meaning |\n|---|---|---|---|---|---|---|\n"

VARIABLES = """Other variables: `RECOLLECT_CONFIG` (a settings file), `RECOLLECT_MODELS` (where model files are kept),
`RECOLLECT_OFFLINE=1` (fetch nothing), `RECOLLECT_THREADS` (threads of a model), `RECOLLECT_TOKEN`
(not read by Recollect: where the settings of MCP clients keep their token)."""


def render() -> str:
    """The whole page."""
    parts = [
        "# Reference",
        "Written by `make docs`; do not edit by hand.",
        "## Commands",
        EXIT_CODES,
        *_commands(app, "recollect"),
        "## Settings",
        PLACES,
        "| setting | default | meaning |\n|---|---|---|\n" + "\n".join(_settings()),
        VARIABLES,
        "## Search options",
        OPTIONS,
        OPTIONS_HEAD + "\n".join(_options()),
        "## Words and values",
        TIMES,
        "Decay classes and the time after which a record of that class counts half: " + ", ".join(_half_lives()) + ".",
        "Languages (of the stemmer): " + ", ".join(LANGUAGES) + ".",
        "Embedders: " + ", ".join(EMBEDDERS.names()) + EMBEDDER_WORDS,
        "## Errors",
        "| code | exit | meaning |\n|---|---|---|\n" + "\n".join(_errors()),
    ]
    return "\n\n".join(parts) + "\n"


def _commands(command: click.Command, name: str) -> Iterator[str]:
    context = click.Context(
        command, info_name=name, max_content_width=100, terminal_width=100, help_option_names=["-h", "--help"]
    )
    yield f"### `{name}`\n\n```text\n{command.get_help(context)}\n```"
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None:
                yield from _commands(found, f"{name} {child}")


def _settings() -> Iterator[str]:
    for name, option in names().items():
        shown = "–" if option.default is None else f"`{_toml(option.default)}`"
        yield f"| `{name}` | {shown} | {option.about} |"


def _options() -> Iterator[str]:
    tables = {"search": options.SEARCH, "": options.FILTERS, "scope": options.SCOPE}
    for table, option in ((table, option) for table, declared in tables.items() for option in declared):
        setting = f"`{table}.{option.name}`" if table else "–"
        flags = ", ".join(f"`{flag}`" for flag in option.flag_names) or "–"
        places = ["yes" if place in option.places else "–" for place in (options.HTTP, options.MCP, options.PAGE)]
        yield f"| `{option.name}` | {setting} | {flags} | {' | '.join(places)} | {option.about} |"


def _toml(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case tuple():
            return "[" + ", ".join(f'"{item}"' for item in value) + "]"
        case str():
            return f'"{value}"'
    return f"{value:g}" if isinstance(value, float) else str(value)


def _half_lives() -> Iterator[str]:
    for name, seconds in HALF_LIVES.items():
        yield f"`{name}` never" if seconds == math.inf else f"`{name}` {seconds / 3600:g} hours"


def _errors() -> Iterator[str]:
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.RecollectError) and kind is not errors.RecollectError:
            yield f"| `{kind.code}` | {kind.exit_code} | {(kind.__doc__ or '').splitlines()[0]} |"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
