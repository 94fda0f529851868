"""Writes the reference pages from the code: commands, options, settings, HTTP routes, errors. `make docs` runs it.

`python docs/render_reference.py` writes `docs/reference.md` and `docs/reference/`; a test compares them with the code.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from recollect import errors, options
from recollect.analysis import LANGUAGES
from recollect.cli import app
from recollect.config.settings import names
from recollect.models.embedders import EMBEDDERS
from recollect.ranking import HALF_LIVES

DOCS = Path(__file__).parent

INDEX = """# Commands, settings and errors

These pages are written by `make docs` from the code.

```{toctree}
:maxdepth: 2

reference/commands
reference/options
reference/settings
reference/values
reference/http
reference/errors
```
"""

EXIT_CODES = """Exit codes: 0 found or done, 1 nothing found, 2 wrong use, 3 failed, 130 interrupted. With `--json` an
error is `{"error": {"code", "message", "hint"}}` on standard error."""

PLACES = """In the user's `config.toml` (`recollect config path`), a project's `recollect.toml` once it is
[trusted](../agents.md#trust-the-settings-of-a-project) (only `[search]`, `scope.agent` and `scope.session`: it may come
with someone else's repository), a file named by `--config`, or the environment: `search.fetch_k` is
`RECOLLECT_SEARCH_FETCH_K`."""

TIMES = """Times are ISO 8601 (`2026-03-14`, `2026-03-14T15:09Z`; without a zone, UTC) or a span: `90min`, `36h`, `3d`,
`2w`, `3mo`, `1y`, back from now, and forward for `--expires-at`. A day without a time stands for its beginning,
for `--expires-at` for its end. A record that was edited in place is not part of an `--as-of` before the edit."""

EMBEDDER_WORDS = """; after a colon the model (`openai:MODEL`, `ollama:MODEL`) or, for `hashing`, the dimension.
`none` is keyword search only."""

OPTIONS = """Where each option of a search, each filter and each part of a scope can be set. In Python they are
arguments of `Memory.search`, by these names."""

VARIABLES = """Other variables: `RECOLLECT_CONFIG` (a settings file), `RECOLLECT_MODELS` (where model files are kept),
`RECOLLECT_OFFLINE=1` ([contact no other machine](../network.md)), `RECOLLECT_THREADS` (threads of a model),
`RECOLLECT_TOKEN` (not read by Recollect: where the settings of MCP clients keep their token)."""

HTTP = """Requests and answers are JSON. An error is `{"error": {"code", "message", "hint", "request_id"}}`.
A server with tokens wants `Authorization: Bearer TOKEN`. `GET /openapi.json` of a running server describes every field;
[Serving](../serving.md) says how to start one."""

SHARED = {
    "search options": options.SEARCH,
    "filters": options.FILTERS,
    "scope": options.SCOPE,
}
"""Flags that many commands take; a command's page names them, `options.md` explains them."""


def render() -> dict[str, str]:
    """Every page by its path below `docs`."""
    pages = {
        "reference.md": [INDEX.rstrip()],
        "reference/options.md": ["# Search options, filters and scope", OPTIONS, _option_table(), *_common_flags()],
        "reference/settings.md": [
            "# Settings", PLACES, _table("setting | default | meaning", _settings()), VARIABLES,
        ],
        "reference/values.md": [
            "# Times, languages, embedders", TIMES,
            f"Decay classes and the age at which a record of that class counts half: {', '.join(_half_lives())}.",
            f"Languages of the stemmer: {', '.join(LANGUAGES)}.",
            f"Embedders: {', '.join(EMBEDDERS.names())}{EMBEDDER_WORDS}",
        ],
        "reference/http.md": ["# HTTP routes", HTTP, *_routes()],
        "reference/errors.md": ["# Errors", EXIT_CODES, _table("code | exit | meaning", _errors())],
        **dict(_command_pages()),
    }  # fmt: skip
    return {path: "\n\n".join(parts) + "\n" for path, parts in pages.items()}


def _table(head: str, rows: Iterator[str]) -> str:
    return "\n".join([f"| {head} |", "|---" * (head.count("|") + 1) + "|", *rows])


# -- commands ---------------------------------------------------------------------------------------------------------


def _command_pages() -> Iterator[tuple[str, list[str]]]:
    context = click.Context(app, info_name="recollect")
    commands = [(name, app.get_command(context, name)) for name in app.list_commands(context)]
    tree = "\n".join(f"commands/{name}" for name, _ in commands)
    yield "reference/commands.md", ["# Commands", EXIT_CODES, f"```{{toctree}}\n:maxdepth: 1\n\n{tree}\n```"]
    for name, command in commands:
        if command is not None:
            yield f"reference/commands/{name}.md", list(_command(command, f"recollect {name}", "#"))


def _command(command: click.Command, name: str, mark: str) -> Iterator[str]:
    context = click.Context(command, info_name=name)
    yield f"{mark} `{name}`"
    yield f"```text\n{' '.join([name, *command.collect_usage_pieces(context)])}\n```"
    yield from _help(command)
    rows = [row for param in command.params if (row := _row(param, context)) is not None]
    if rows:
        yield _table("argument or flag | meaning", iter(rows))
    shared = {kind: [flag for flag in flags if flag in _flags(command)] for kind, flags in _shared_flags().items()}
    if any(shared.values()):
        yield "It also takes these [shared flags](../options.md):"
        yield "\n".join(
            f"- {kind}: {', '.join(f'`{flag}`' for flag in flags)}" for kind, flags in shared.items() if flags
        )
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None:
                yield from _command(found, f"{name} {child}", f"{mark}#")


def _help(command: click.Command) -> Iterator[str]:
    for paragraph in (command.help or "").replace("\b\n", "\b").split("\n\n"):
        if paragraph.startswith("\b"):
            yield f"```text\n{paragraph[1:].rstrip()}\n```"
        elif paragraph.strip():
            yield " ".join(paragraph.split())


def _flags(command: click.Command) -> set[str]:
    return {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)}


def _shared_flags() -> dict[str, list[str]]:
    kinds = {kind: [flag for option in table for flag in option.flag_names] for kind, table in SHARED.items()}
    return kinds | {"common": [flag for param in app.params for flag in param.opts if flag not in kinds["scope"]]}


def _row(param: click.Parameter, context: click.Context) -> str | None:
    if isinstance(param, click.Argument):
        return f"| `{_cell(param.make_metavar(context))}` | {'required' if param.required else 'optional'} |"
    shared = {flag for flags in _shared_flags().values() for flag in flags}
    record = param.get_help_record(context)
    if record is None or shared & set(param.opts) or "--help" in param.opts:
        return None
    return f"| `{_cell(record[0])}` | {_cell(record[1])} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# -- options and settings ---------------------------------------------------------------------------------------------


def _option_table() -> str:
    return _table("option | setting | flag | HTTP | MCP | page | meaning", _options())


def _options() -> Iterator[str]:
    tables = {"search": options.SEARCH, "": options.FILTERS, "scope": options.SCOPE}
    for table, option in ((table, option) for table, declared in tables.items() for option in declared):
        setting = f"`{table}.{option.name}`" if table else "–"
        flags = ", ".join(f"`{flag}`" for flag in option.flag_names) or "–"
        places = ["yes" if place in option.places else "–" for place in (options.HTTP, options.MCP, options.PAGE)]
        yield f"| `{option.name}` | {setting} | {flags} | {' | '.join(places)} | {option.about} |"


def _common_flags() -> Iterator[str]:
    context = click.Context(app, info_name="recollect")
    records = (param.get_help_record(context) for param in app.params)
    rows = (f"| `{record[0]}` | {_cell(record[1])} |" for record in records if record)
    yield "## Common flags"
    yield "These can stand before the command or after it."
    yield _table("flag | meaning", rows)


def _settings() -> Iterator[str]:
    for name, option in names().items():
        default = "–" if option.default is None else f"`{_toml(option.default)}`"
        yield f"| `{name}` | {default} | {_cell(option.about)} |"


def _toml(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case tuple():
            return "[" + ", ".join(f'"{item}"' for item in value) + "]"
        case str():
            return f'"{value}"'
    return f"{value:g}" if isinstance(value, float) else str(value)


# -- HTTP and errors --------------------------------------------------------------------------------------------------


def _routes() -> Iterator[str]:
    described = _openapi()
    schemas = described["components"]["schemas"]
    for path, methods in described["paths"].items():
        for method, route in methods.items():
            yield f"## `{method.upper()} {path}`"
            yield _cell(route.get("description") or route.get("summary", ""))
            rows = [(given["name"], given["in"], given["schema"]) for given in route.get("parameters", ())]
            body = route.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            if "$ref" in body:
                fields = schemas[body["$ref"].rpartition("/")[2]].get("properties", {})
                rows += [(name, "body", schema) for name, schema in fields.items()]
            if rows:
                about = ((name, place, _cell(schema.get("description", ""))) for name, place, schema in rows)
                yield _table(
                    "parameter | in | meaning", (f"| `{name}` | {place} | {text} |" for name, place, text in about)
                )


def _openapi() -> dict[str, Any]:
    from recollect import Memory, config
    from recollect.web.access import Tokens
    from recollect.web.app import build

    with (
        tempfile.TemporaryDirectory() as folder,
        Memory.open(Path(folder) / "memory.db", embedder="none", settings=config.Settings()) as memory,
    ):
        return build(memory, Tokens(Path(folder) / "tokens.json")).openapi()


def _half_lives() -> Iterator[str]:
    for name, seconds in HALF_LIVES.items():
        yield f"`{name}` never" if seconds == math.inf else f"`{name}` {seconds / 3600:g} hours"


def _errors() -> Iterator[str]:
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.RecollectError) and kind is not errors.RecollectError:
            yield f"| `{kind.code}` | {kind.exit_code} | {(kind.__doc__ or '').splitlines()[0]} |"


def written() -> dict[str, str]:
    """The pages as they are on disk."""
    files = [DOCS / "reference.md", *(DOCS / "reference").rglob("*.md")]
    return {file.relative_to(DOCS).as_posix(): file.read_text(encoding="utf-8") for file in files if file.exists()}


if __name__ == "__main__":
    pages = render()
    for old in written().keys() - pages.keys():
        (DOCS / old).unlink()
    for name, text in pages.items():
        (DOCS / name).parent.mkdir(parents=True, exist_ok=True)
        (DOCS / name).write_text(text, encoding="utf-8")
