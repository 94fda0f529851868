"""`[[sources]]`: external sources, checked when the settings are read, and the templates of their requests."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Formatter
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from recollect.config.values import (
    FILLED,
    FLAG,
    TEXT,
    ValueCheck,
    brief,
    is_filled,
    is_text,
    number,
    one_of,
    shown_place,
    whole,
)
from recollect.errors import ConfigError, UsageError
from recollect.registry import Entry, Registry
from recollect.types import ExternalSystem

FIELDS = ("query", "fetch_k", "scope")


def fields(template: str) -> list[str]:
    """The names in braces; ValueError where the braces do not match."""
    return [name for _, name, _, _ in Formatter().parse(template) if name is not None]


def fill(template: str, values: Mapping[str, Any], quote: Callable[[str], str] = str) -> str:
    """The template with each name replaced by its value, an object as JSON, each through `quote`."""
    parts = []
    for text, name, _, _ in Formatter().parse(template):
        parts.append(text)
        if name is not None:
            parts.append(quote(_as_text(values[name])))
    return "".join(parts)


def fill_json(template: Any, values: Mapping[str, Any]) -> Any:
    """A JSON value with its texts filled. A text that is only one name in braces becomes the value itself."""
    match template:
        case str():
            alone = template[1:-1] if template.startswith("{") and template.endswith("}") else ""
            return values[alone] if alone in values else fill(template, values)
        case dict():
            return {key: fill_json(value, values) for key, value in template.items()}
        case list():
            return [fill_json(value, values) for value in template]
    return template


def texts(value: Any) -> list[str]:
    """Every text inside a JSON value."""
    match value:
        case str():
            return [value]
        case dict():
            return [text for part in value.values() for text in texts(part)]
        case list():
            return [text for part in value for text in texts(part)]
    return []


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


SYSTEMS: Registry[Callable[[Any], ExternalSystem]] = Registry(
    "source kind",
    {
        "command": Entry("recollect.sources.transports:CommandSystem"),
        "http": Entry("recollect.sources.transports:HttpSystem"),
        "recollect": Entry("recollect.memory.systems:open_peer"),
    },
    "recollect.sources",
)
"""Kind → the class that queries such a system. Packages add kinds with an entry point in `recollect.sources`."""

RETRIEVERS = ("keyword", "vector", "hyde")
JOINS = ("id", "path", "text")
MAPPED = ("id", "text", "title", "path", "score")
LONGEST_MS = 600_000
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_EXAMPLE = MappingProxyType(
    {
        "command": 'command = ["qmd", "search", "{query}", "--json", "-n", "{fetch_k}"]',
        "http": 'url = "http://localhost:9200/search?q={query}&size={fetch_k}"',
        "recollect": 'url = "http://host:8765" or store = "other.db"',
        "fields": 'fields = { id = "id", text = "text", score = "score" }',
    }
)


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """One external source. `options` are the settings of its kind."""

    name: str
    kind: str
    fetch_k: int = 20
    weight: float = 1.0
    timeout_ms: int = 2000
    join: str = "id"
    results: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    bounded: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Changes with every setting: what was recorded about a source does not hold for other settings."""
        return f"{self.name}:{hashlib.blake2b(repr(self).encode('utf-8', 'replace'), digest_size=6).hexdigest()}"


def _mapping(value: object) -> bool:
    return isinstance(value, dict) and set(value) <= set(MAPPED) and all(map(is_filled, value.values()))


def _address(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        parts = urlsplit(value)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none
        return False


COMMON: Mapping[str, ValueCheck] = MappingProxyType(
    {
        "name": ValueCheck(lambda v: is_text(v) and bool(_NAME.fullmatch(v)), 'a short name: small letters, "-", "_"'),
        "kind": FILLED._replace(expected="the name of a kind"),
        "fetch_k": whole(1, 10_000).such_as("fetch_k = 20"),
        "weight": number(0).such_as("weight = 1.0"),
        "timeout_ms": whole(1, LONGEST_MS).such_as("timeout_ms = 2000"),
        "join": one_of(JOINS),
        "results": TEXT._replace(expected='the path of its list: results = "hits.hits"'),
        "fields": ValueCheck(_mapping, f"a mapping of {', '.join(MAPPED)} to its own names: {_EXAMPLE['fields']}"),
        "bounded": FLAG._replace(expected="true or false: whether scores lie between -1 and 1"),
    }
)
"""The settings of every source."""

_TEXTS_BY_NAME = ValueCheck(lambda v: isinstance(v, dict) and all(map(is_filled, v.values())), "names and texts")
_TOKEN = FILLED._replace(expected="the environment variable that holds a bearer token")

OWN: Mapping[str, Mapping[str, ValueCheck]] = MappingProxyType(
    {
        "command": {
            "command": ValueCheck(
                lambda v: isinstance(v, list) and bool(v) and all(map(is_text, v)) and is_filled(v[0]),
                f"a list of arguments, the program first: {_EXAMPLE['command']}",
            ),
            "env": _TEXTS_BY_NAME,
            "cwd": FILLED._replace(expected="a folder"),
        },
        "http": {
            "url": ValueCheck(_address, f"an http or https address: {_EXAMPLE['http']}"),
            "method": one_of(("GET", "POST")),
            "body": ValueCheck(lambda v: isinstance(v, dict | list), 'JSON as TOML: body = { query = "{query}" }'),
            "headers": _TEXTS_BY_NAME,
            "token_env": _TOKEN,
        },
        "recollect": {
            "url": ValueCheck(_address, "the address of a `recollect serve`"),
            "store": FILLED._replace(expected="another store's file"),
            "token_env": _TOKEN,
            "embedder": FILLED._replace(expected="the model that embeds the query; by default that of its vectors"),
        },
    }
)
"""Built-in kind → its own settings."""

NEEDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"command": ("command",), "http": ("url",), "recollect": ("url", "store")}
)
"""Built-in kind → the settings of which it must set exactly one."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a source's table in the file, for error messages."""

    path: str
    lines: Mapping[str, int]
    number: int

    def wrong(self, key: str, message: str, hint: str) -> ConfigError:
        table = f"sources.{self.number}"
        line = self.lines.get(f"{table}.{key}") or self.lines.get(table) or self.lines.get("sources")
        return ConfigError(f"{self.path}{f', line {line}' if line else ''}: {message}", hint=hint)

    def check(self, table: Mapping[str, Any], checks: Mapping[str, ValueCheck]) -> None:
        for key, check in checks.items():
            if key in table and not check.admits(table[key]):
                message = f"{key} must be {check.expected.partition(':')[0]}, not {brief(table[key])}"
                raise self.wrong(key, message, f"write {check.expected}")


def read_sources(tables: object, path: str, lines: Mapping[str, int]) -> tuple[SourceSettings, ...]:
    """The sources of a settings file; ConfigError for the first mistake."""
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise _Place(path, lines, 0).wrong("", "sources must be tables", hint="begin each with a line [[sources]]")
    read: list[SourceSettings] = []
    for index, table in enumerate(tables):
        place = _Place(path, lines, index)
        source = _read(table, place)
        if source.name in {other.name for other in read}:
            raise place.wrong("name", f"two sources are named {source.name!r}", "give each a name of its own")
        read.append(source)
    return tuple(read)


def _read(table: dict[str, Any], place: _Place) -> SourceSettings:
    for key in ("name", "kind"):
        if key not in table:
            hint = 'write name = "wiki"' if key == "name" else f'write kind = "command"; there are {_kinds()}'
            raise place.wrong(key, f"a source needs a {key}", hint)
    place.check(table, COMMON)
    if table["name"] in RETRIEVERS:
        message = f"{table['name']!r} is the name of a built-in source"
        raise place.wrong("name", message, 'write another name: name = "wiki"')
    _check_kind(table, place)
    _check_mapping(table, place)
    _check_templates(table, place)
    if isinstance(table.get("store"), str) and "://" not in table["store"]:
        # A relative path starts at the settings file, wherever a command is run.
        table = {**table, "store": str(Path(place.path).parent / Path(table["store"]).expanduser())}
    # A kind that needs no mapping answers with our own names.
    common = {key: COMMON[key].convert(table[key]) for key in table if key in COMMON}
    common = {"fields": {name: name for name in MAPPED}} | common
    return SourceSettings(**common, options={key: value for key, value in table.items() if key not in COMMON})


def _check_kind(table: dict[str, Any], place: _Place) -> None:
    kind = table["kind"]
    try:
        SYSTEMS.check(kind)
    except UsageError as error:
        raise place.wrong("kind", f"unknown kind {kind!r}", f"there are {_kinds()}; {error.hint}") from error
    if kind not in OWN:
        return  # a kind of another package checks its own settings
    own = OWN[kind]
    for key in table:
        if key not in COMMON and key not in own:
            near = difflib.get_close_matches(key, [*COMMON, *own], n=1)
            known = f"a {kind} source may set {', '.join([*COMMON, *own])}"
            raise place.wrong(key, f"unknown setting {key!r}", f"did you mean {near[0]}?" if near else known)
    place.check(table, own)
    given = [key for key in NEEDS[kind] if key in table]
    if len(given) != 1:
        several = " or ".join(NEEDS[kind])
        raise place.wrong("kind", f"a {kind} source needs one {several}", f"write {_EXAMPLE[kind]}")


def _check_mapping(table: dict[str, Any], place: _Place) -> None:
    """`fields` is needed, and has the field to join by; another Recollect answers with our own names."""
    if table["kind"] not in ("command", "http"):
        return
    if not table.get("fields"):
        message = f"the source {table['name']!r} needs `fields`: the names of its id, text and so on"
        raise place.wrong("fields", message, f"write {_EXAMPLE['fields']}")
    join = table.get("join", "id")
    if join not in table["fields"]:
        hint = f'add {join} = "…" to fields, or write join = "{next(iter(table["fields"]))}"'
        raise place.wrong("fields", f"it joins by {join}, which `fields` does not have", hint)


def _check_templates(table: dict[str, Any], place: _Place) -> None:
    """A query may fill arguments and parameters; it may not choose the program or the host."""
    for key, fixed in (("command", texts(table.get("command"))[:1]), ("url", _host(table.get("url")))):
        if any("{" in text for text in fixed):
            raise place.wrong(key, f"{fixed[0]!r} must not depend on the query", "write the name itself")
    for key in ("command", "url", "body", "env", "headers"):
        for text in texts(table.get(key)):
            try:
                unknown = [name for name in fields(text) if name not in FIELDS]
            except ValueError as error:
                raise place.wrong(key, f"{text!r}: {error}", "write {{ and }} for literal braces") from error
            if unknown:
                known = ", ".join(f"{{{name}}}" for name in FIELDS)
                raise place.wrong(
                    key,
                    f"{text!r} has an unknown field {{{unknown[0]}}}",
                    f"there are {known}; write {{{{ and }}}} for literal braces",
                )


def _host(url: object) -> list[str]:
    return [urlsplit(url).netloc] if isinstance(url, str) else []


def _kinds() -> str:
    return ", ".join(SYSTEMS.names())


def shown(sources: tuple[SourceSettings, ...]) -> Iterator[tuple[str, object]]:
    """The settings of each source by dotted name, for `config show`."""
    for source in sources:
        for name in COMMON:
            if name != "name":
                yield f"sources.{source.name}.{name}", getattr(source, name)
        for name, value in source.options.items():
            # The value of a header or a variable may be a secret, so only its name is shown.
            hidden = shown_place(value) if name in ("store", "url") else value
            yield f"sources.{source.name}.{name}", list(value) if name in ("headers", "env") else hidden
