"""`[[sources]]`: external sources, checked when the settings are read, and the templates of their requests."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from recollect.config.values import FILLED, FLAG, TEXT, ValueCheck, brief, is_filled, number, one_of, shown_place, whole
from recollect.dataclass import dataclass
from recollect.disk import at_home
from recollect.errors import ConfigError, UsageError
from recollect.registry import Entry, Registry
from recollect.types import ExternalSystem

FIELDS = ("query", "fetch_k", "scope")


def fields(template: str) -> list[str]:
    """The names in braces, each with its format, as `fetch_k:03d`. ValueError if a brace has no partner."""
    from string import Formatter  # most users have no such source

    parsed = Formatter().parse(template)
    parts = ((name, f"!{mark}" if mark else "", f":{spec}" if spec else "") for _, name, spec, mark in parsed)
    return ["".join((name, *form)) for name, *form in parts if name is not None]


def fill(template: str, values: Mapping[str, Any], quote: Callable[[str], str] = str) -> str:
    """The template with each name replaced by its value, an object as JSON, each through `quote`."""
    texts = {name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
             for name, value in values.items()}  # fmt: skip
    return template.format_map({name: quote(text) for name, text in texts.items()})


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
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in parts for text in texts(part)]


SYSTEMS: Registry[Callable[[Any], ExternalSystem]] = Registry(
    "source kind",
    {
        "command": Entry("recollect.sources.transports:CommandSystem"),
        "http": Entry("recollect.sources.transports:HttpSystem"),
        "recollect": Entry("recollect.memory.assembly:open_peer"),
    },
    "recollect.sources",
)
"""Kind → the class that queries such a system. Packages add kinds with an entry point in `recollect.sources`."""

RETRIEVERS = ("keyword", "vector", "hyde")
JOINS = ("id", "path", "text")
MAPPED = ("id", "text", "title", "path", "score")
LONGEST_MS = 600_000
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_EXAMPLE = {
    "command": 'command = ["qmd", "search", "{query}", "--json", "-n", "{fetch_k}"]',
    "http": 'url = "http://localhost:9200/search?q={query}&size={fetch_k}"',
    "recollect": 'url = "http://host:8377" or store = "other.db"',
    "fields": 'fields = { id = "id", text = "text", score = "score" }',
}


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


def _is_mapping(value: Any, keys: Iterable[str] | None = None) -> bool:
    known = isinstance(value, dict) and (keys is None or value.keys() <= set(keys))
    return known and all(map(is_filled, value.values()))


def _is_address(value: object) -> bool:
    try:
        parts = urlsplit(value if isinstance(value, str) else "")
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none
        return False


def _is_command(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value) and is_filled("".join(value[:1]))


def _filled(expected: str) -> ValueCheck:
    return FILLED._replace(expected=expected)


COMMON: Mapping[str, ValueCheck] = {  # the settings of every source
    "name": ValueCheck(lambda v: isinstance(v, str) and bool(_NAME.fullmatch(v)), "a short name: small letters, -, _"),
    "kind": _filled("the name of a kind"),
    "fetch_k": whole(1, 10_000, ": fetch_k = 20"),
    "weight": number(0, example=": weight = 1.0"),
    "timeout_ms": whole(1, LONGEST_MS, ": timeout_ms = 2000"),
    "join": one_of(JOINS),
    "results": TEXT._replace(expected='the path of its list: results = "hits.hits"'),
    "fields": ValueCheck(
        lambda v: _is_mapping(v, MAPPED), f"a mapping of {', '.join(MAPPED)} to its own names: {_EXAMPLE['fields']}"
    ),
    "bounded": FLAG._replace(expected="true or false: whether scores lie between -1 and 1"),
}

_TEXTS_BY_NAME = ValueCheck(_is_mapping, "names and texts")
_TOKEN = _filled("the environment variable that holds a bearer token")

OWN: Mapping[str, Mapping[str, ValueCheck]] = {  # built-in kind → its own settings
    "command": {
        "command": ValueCheck(_is_command, f"a list of arguments, the program first: {_EXAMPLE['command']}"),
        "env": _TEXTS_BY_NAME,
        "cwd": _filled("a folder"),
    },
    "http": {
        "url": ValueCheck(_is_address, f"an http or https address: {_EXAMPLE['http']}"),
        "method": one_of(("GET", "POST")),
        "body": ValueCheck(lambda v: isinstance(v, dict | list), 'JSON as TOML: body = { query = "{query}" }'),
        "headers": _TEXTS_BY_NAME,
        "token_env": _TOKEN,
    },
    "recollect": {
        "url": ValueCheck(_is_address, "the address of a `recollect serve`"),
        "store": _filled("another store's file"),
        "token_env": _TOKEN,
        "embedder": _filled("the model that embeds the query; by default that of its vectors"),
    },
}

NEEDS = {"command": ("command",), "http": ("url",), "recollect": ("url", "store")}  # of which exactly one must be set

Mistakes: TypeAlias = Iterator[tuple[str, str, str]]
"""Mistakes in the table of a source: the key, what is wrong, and what to write. Only the first is read."""


def read_sources(tables: object, path: str, lines: Mapping[str, int]) -> tuple[SourceSettings, ...]:
    """The sources of a settings file; ConfigError for the first mistake, with its line."""
    read: dict[str, SourceSettings] = {}
    for index, table in enumerate(tables if isinstance(tables, list) else [None]):
        mistake = next(_mistakes(table), None)
        if mistake is None and table["name"] in read:
            mistake = ("name", f"two sources are named {table['name']!r}", "give each a name of its own")
        if mistake is not None:
            key, message, hint = mistake
            keys = (f"sources.{index}.{key}", f"sources.{index}", "sources")
            line = next((f", line {lines[key]}" for key in keys if key in lines), "")
            raise ConfigError(f"{path}{line}: {message}", hint=hint)
        options = {key: value for key, value in table.items() if key not in COMMON}
        if isinstance(options.get("store"), str) and "://" not in options["store"]:
            # A relative path starts at the settings file, wherever a command is run.
            options["store"] = str(Path(path).parent / at_home(options["store"]))
        # A kind that needs no mapping answers with our own names.
        common: dict[str, Any] = {"fields": {name: name for name in MAPPED}}
        common |= {key: check.convert(table[key]) for key, check in COMMON.items() if key in table}
        read[table["name"]] = SourceSettings(**common, options=options)
    return tuple(read.values())


def _mistakes(table: Any) -> Mistakes:
    if not isinstance(table, dict):
        yield "", "sources must be tables", "begin each with a line [[sources]]"
    if "name" not in table:
        yield "name", "a source needs a name", 'write name = "wiki"'
    if "kind" not in table:
        yield "kind", "a source needs a kind", f'write kind = "command"; there are {", ".join(SYSTEMS.names())}'
    yield from _wrong_values(table, COMMON)
    if table["name"] in RETRIEVERS:
        yield "name", f"{table['name']!r} is the name of a built-in source", 'write another name: name = "wiki"'
    yield from _mistakes_of_kind(table)
    yield from _mistakes_of_templates(table)


def _wrong_values(table: Mapping[str, Any], checks: Mapping[str, ValueCheck]) -> Mistakes:
    for key, check in checks.items():
        if key in table and not check.admits(table[key]):
            expected = check.expected.partition(":")[0]
            yield key, f"{key} must be {expected}, not {brief(table[key])}", f"write {check.expected}"


def _mistakes_of_kind(table: Mapping[str, Any]) -> Mistakes:
    kind = table["kind"]
    try:
        SYSTEMS.check(kind)
    except UsageError as error:
        yield "kind", f"unknown kind {kind!r}", f"there are {', '.join(SYSTEMS.names())}; {error.hint}"
    if kind not in OWN:
        return  # a kind of another package checks its own settings
    known = [*COMMON, *OWN[kind]]
    for key in table:
        if key not in known:
            import difflib

            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"a {kind} source may set {', '.join(known)}"
            yield key, f"unknown setting {key!r}", hint
    yield from _wrong_values(table, OWN[kind])
    if sum(key in table for key in NEEDS[kind]) != 1:
        yield "kind", f"a {kind} source needs one {' or '.join(NEEDS[kind])}", f"write {_EXAMPLE[kind]}"
    if kind == "recollect":
        return  # it answers with our own names
    if not table.get("fields"):
        message = f"the source {table['name']!r} needs `fields`: the names of its id, text and so on"
        yield "fields", message, f"write {_EXAMPLE['fields']}"
    join = table.get("join", "id")
    if join not in table["fields"]:
        hint = f'add {join} = "…" to fields, or write join = "{next(iter(table["fields"]))}"'
        yield "fields", f"it joins by {join}, which `fields` does not have", hint


def _mistakes_of_templates(table: Mapping[str, Any]) -> Mistakes:
    """A query may fill arguments and parameters; it may not choose the program or the host."""
    url = table.get("url")
    host = urlsplit(url).netloc if isinstance(url, str) else ""
    for key, fixed in (("command", "".join(texts(table.get("command"))[:1])), ("url", host)):
        if "{" in fixed:
            yield key, f"{fixed!r} must not depend on the query", "write the name itself"
    escape = "write {{ and }} for literal braces"
    for key in ("command", "url", "body", "env", "headers"):
        for text in texts(table.get(key)):
            try:
                unknown = [name for name in fields(text) if name not in FIELDS]
            except ValueError as error:
                yield key, f"{text!r}: {error}", escape
            if unknown:
                known = ", ".join(f"{{{name}}}" for name in FIELDS)
                yield key, f"{text!r} has an unknown field {{{unknown[0]}}}", f"there are {known}; {escape}"


def shown(sources: tuple[SourceSettings, ...]) -> Iterator[tuple[str, object]]:
    """The settings of each source by dotted name, for `config show`."""
    for source in sources:
        values = {name: getattr(source, name) for name in COMMON if name != "name"} | {**source.options}
        for name, value in values.items():
            # The value of a header or a variable may be a secret, so only its name is shown.
            hidden = shown_place(value) if name in ("store", "url") else value
            yield f"sources.{source.name}.{name}", list(value) if name in ("headers", "env") else hidden
