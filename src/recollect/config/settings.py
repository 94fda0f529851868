"""The settings: their tables, where they are read from, and how a settings file is changed."""

import dataclasses
import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from recollect.analysis import LANGUAGES
from recollect.config.sources import SourceSettings, read_sources
from recollect.config.trust import PROJECT_FILE, ProjectFile, is_trusted, read_project_file
from recollect.config.values import brief, misspelt, read_at_most, shown_place
from recollect.dataclass import dataclass
from recollect.disk import at_home, own_folder, write_private
from recollect.errors import ConfigError, FailedError, file_errors
from recollect.options import POSITIVE, SCOPE, SEARCH, SHARE, Bounds, Option, SearchOptions, option, options_of
from recollect.types import Scope

RETRIES = Bounds(0, 20)


@dataclass(frozen=True, slots=True)
class ScopeSettings:
    """`[scope]`: which records can be read, and to whom new records belong."""

    user: str | None = option(None, SCOPE[0].help, filled=True)
    agent: str | None = option(None, SCOPE[1].help, filled=True)
    session: str | None = option(None, SCOPE[2].help, filled=True)

    def scope(self) -> Scope:
        """These settings as a scope."""
        return Scope(self.user, self.agent, self.session)


@dataclass(frozen=True, slots=True)
class OpenAISettings:
    """`[openai]`: an OpenAI-compatible endpoint for `embedder = "openai:MODEL"` or `"ollama:MODEL"`."""

    base_url: str | None = option(None, "Its address, for example http://localhost:11434/v1.")
    api_key_env: str = option("OPENAI_API_KEY", "The environment variable that holds the key.")
    dimensions: int | None = option(None, "Length of the vectors to ask for.", bounds=Bounds(1))
    query_prefix: str = option("", "Text put before every query.")
    passage_prefix: str = option("", "Text put before every passage.")
    timeout: float = option(30.0, "Seconds allowed for one call.", bounds=POSITIVE)
    retries: int = option(3, "Number of times that a failed call is tried again.", bounds=RETRIES)


@dataclass(frozen=True, slots=True)
class LlmSettings:
    """`[llm]`: an OpenAI-compatible endpoint for commands that need a language model, such as `ingest-files`."""

    base_url: str | None = option(None, "Its address; by default OPENAI_BASE_URL, else OpenAI.", filled=True)
    model: str | None = option(None, "Name of the model; at OpenAI the default is gpt-4o-mini.", filled=True)
    api_key_env: str = option("OPENAI_API_KEY", "The environment variable that holds the key.")
    timeout: float = option(60.0, "Seconds allowed for one call.", bounds=POSITIVE)
    retries: int = option(3, "Number of times that a failed call is tried again.", bounds=RETRIES)
    max_tokens: int = option(1024, "Maximum number of tokens of an answer.", bounds=Bounds(1, 1_000_000))
    temperature: float = option(0.0, "Randomness of the answers; 0 is the most repeatable.", bounds=Bounds(0, 2))


@dataclass(frozen=True, slots=True)
class IngestSettings:
    """`[ingest]`: from which files `ingest-files` extracts facts, and how."""

    paths: tuple[str, ...] = option(("skills/**/*.md", "TOOLS.md", "AGENTS.md"), "Globs inside the workspace.")
    chunk_size: int = option(800, "Characters sent at once.", bounds=Bounds(100, 100_000))
    overlap: int = option(100, "Characters that a chunk shares with the one before it.", bounds=Bounds(0, 50_000))
    similarity: float = option(0.93, "Cosine from which a new fact is a duplicate of a known one.", bounds=SHARE)


@dataclass(frozen=True, slots=True)
class BackupSettings:
    """`[backup]`: the backups that `recollect watch`, its service and `recollect serve` make while they run."""

    folder: str | None = option(
        None,
        "The folder for scheduled backups; without it none are made.",
        check=(lambda folder: folder.startswith("~") or Path(folder).is_absolute(), "an absolute path, or one with ~"),
    )
    every_hours: float = option(24.0, "Hours between two backups.", bounds=POSITIVE)
    keep: int = option(7, "Number of backups in the folder; the oldest are removed.", bounds=Bounds(1))


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings."""

    store: str | None = option(
        None,
        "A file (by default in the user's data folder), or a URL such as postgresql://user@host/database.",
        check=(lambda place: place and not misspelt(place), "a file, or a URL with its ://"),
    )
    embedder: str = option("small-embedder", "The embedding model; `none` is keyword search only.")
    language: str | None = option(
        None,
        "Language of a new store (of the stemmer), by default english; `recollect language` changes that of a store.",
        choices=LANGUAGES,
    )
    search: SearchOptions = field(default_factory=SearchOptions)
    scope: ScopeSettings = field(default_factory=ScopeSettings)
    openai: OpenAISettings = field(default_factory=OpenAISettings)
    llm: LlmSettings = field(default_factory=LlmSettings)
    ingest: IngestSettings = field(default_factory=IngestSettings)
    backup: BackupSettings = field(default_factory=BackupSettings)
    sources: tuple[SourceSettings, ...] = option((), "External sources, each a table [[sources]].")

    @property
    def place(self) -> str:
        """The path or URL of the store, as the user wrote it; by default a file in the user's data folder."""
        return self.store or str(default_store())


Origin: TypeAlias = tuple[object, str]  # the value of a setting, and where it comes from

ENVIRONMENT = "RECOLLECT_"
OTHER_VARIABLES = (  # no settings; they are read elsewhere
    "RECOLLECT_CONFIG", "RECOLLECT_MODELS", "RECOLLECT_OFFLINE", "RECOLLECT_THREADS", "RECOLLECT_DATA",
    "RECOLLECT_TEST_POSTGRES", "RECOLLECT_TEST_OLD_POSTGRES", "RECOLLECT_TOKEN",
)  # fmt: skip

MOST_BYTES = 1024 * 1024  # a larger settings file is not read
MOST_PARTS = 16  # of a dotted name; no setting has more than three, and parsing time grows with its square
MOST_SHOWN = 80  # characters of an unknown name that an error shows
A_FLAG = "a flag"  # the origin of a setting that a flag gives

PROJECT_MAY_SET = ("search.", "scope.agent", "scope.session")
"""The settings of a trusted project file. It may not set the user, or where data is stored or sent."""

USER_ONLY = tuple(f"search.{option.name}" for option in SEARCH if option.sends or option.guarded)
"""Search options that send the query to a language model, or could name a model that does; and what models may read."""

NOT_TRUSTED = f"{PROJECT_FILE} in this folder is not trusted and was not used; `recollect trust` shows and trusts it"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings, the origin of each value by dotted name, and notes on a file that was not used."""

    settings: Settings
    origins: Mapping[str, str]
    notes: tuple[str, ...] = ()

    def value(self, name: str) -> Any:
        """The value of a setting by its dotted name."""
        return attrgetter(name)(self.settings)


def load(
    *,
    config: Path | None = None,
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Loaded:
    """Read the settings from all places; later ones override earlier ones: files, environment, flags.

    A `config` file replaces the user's and the project's. A project's file is used only if the user trusts it, and
    never replaces a part of the scope that the user has set.
    """
    environment = os.environ if environment is None else environment
    named = config or (Path(environment["RECOLLECT_CONFIG"]) if environment.get("RECOLLECT_CONFIG") else None)
    notes: tuple[str, ...] = ()
    if named is not None:
        if not named.is_file():
            raise ConfigError(f"there is no settings file {named}", hint="check --config or RECOLLECT_CONFIG")
        values = _from_file(named)
    else:
        values = _from_file(user_file())
        project, notes = _from_project((folder or Path.cwd()) / PROJECT_FILE)
        own_scope = {name for name in values if name.startswith("scope.")}
        values |= {name: value for name, value in project.items() if name not in own_scope}
    values |= {name: (environment[key], key) for key, name in variables().items() if environment.get(key)}
    values |= {name: (value, A_FLAG) for name, value in (flags or {}).items() if value is not None}
    tables: dict[str, dict[str, Any]] = {}
    for name, (value, origin) in values.items():
        table, _, key = name.rpartition(".")
        tables.setdefault(table, {})[key] = _checked(name, value, origin)
    settings = Settings(**tables.pop("", {}))
    parts = {table: dataclasses.replace(getattr(settings, table), **keys) for table, keys in tables.items()}
    origins = dict.fromkeys(names(), "default") | {name: origin for name, (_, origin) in values.items()}
    return Loaded(dataclasses.replace(settings, **parts), origins, notes)


def override(search: SearchOptions, values: Mapping[str, object]) -> SearchOptions:
    """Search options with some values replaced, checked as if they came from a file."""
    checked: dict[str, Any] = {name: _checked(f"search.{name}", value, "the call") for name, value in values.items()}
    return dataclasses.replace(search, **checked)


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Environment variables that look like settings and are none; most likely misspelt."""
    known = {*variables(), *OTHER_VARIABLES}
    return sorted(name for name in environment if name.startswith(ENVIRONMENT) and name not in known)


def variables() -> dict[str, str]:
    """The environment variable of each setting → the dotted name of the setting."""
    return {ENVIRONMENT + name.replace(".", "_").upper(): name for name in names() if name != "sources"}


def default_store() -> Path:
    """The store that is used when none is named."""
    return own_folder("data") / "memory.db"


def user_file() -> Path:
    """The path of the user's own settings file."""
    return own_folder("config") / "config.toml"


@cache
def names() -> Mapping[str, Option]:
    """Every setting by its dotted name."""
    return dict(_walk(Settings, ""))


def _walk(table: Any, prefix: str) -> Iterator[tuple[str, Option]]:
    options = {option.name: option for option in options_of(table)}
    for entry in dataclasses.fields(table):
        name = f"{prefix}{entry.name}"
        yield from [(name, options[entry.name])] if entry.name in options else _walk(entry.type, f"{name}.")


def _from_file(path: Path) -> dict[str, Origin]:
    return _read(read_at_most(path, MOST_BYTES, "settings are a few lines of TOML"), path) if path.is_file() else {}


def _read(content: bytes, path: Path) -> dict[str, Origin]:
    import tomllib  # most users have no settings file

    from recollect.config.toml import lines, most_parts

    values: dict[str, Origin] = {}
    try:
        text = content.decode("utf-8")
        if most_parts(text) > MOST_PARTS:
            raise ConfigError(f"{path} has a name of more than {MOST_PARTS} parts", hint="`recollect config show`")
        tables, numbers = tomllib.loads(text), lines(text)
        if "sources" in tables:
            values["sources"] = (read_sources(tables.pop("sources"), str(path), numbers), str(path))
        for name, value in _flatten(tables, ""):
            place = f"{path}, line {numbers[name]}" if name in numbers else str(path)
            values[name] = (_checked(name, value, place), str(path))
    except (ValueError, RecursionError) as error:  # not text, not TOML, or a number of thousands of digits
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ConfigError(f"{path} cannot be read: {reason}", hint="settings are TOML: name = value") from error
    return values


def _from_project(path: Path) -> tuple[dict[str, Origin], tuple[str, ...]]:
    try:
        file = read_project_file(path)
    except ConfigError as error:
        return {}, (f"{error.message} and was not used",)
    if file is None:
        return {}, ()
    return (read_project(file), ()) if is_trusted(file) else ({}, (NOT_TRUSTED,))


def read_project(file: ProjectFile) -> dict[str, Origin]:
    """The values of a project's file by dotted name; ConfigError names every setting that no project may set."""
    values = _read(file.content, file.path)
    refused = [name for name in values if not name.startswith(PROJECT_MAY_SET) or name in USER_ONLY]
    if refused:
        from recollect.config.toml import lines

        numbers = lines(file.content.decode("utf-8"))
        names = ", ".join(f"{name} (line {numbers[name]})" if name in numbers else name for name in refused)
        language = "; `recollect language` sets the language" if "language" in refused else ""
        message = f"{file.path} may not set {names}: a project's settings can come from someone else"
        raise ConfigError(message, hint=f"put it into {user_file()}, or name this file with --config{language}")
    return values


def _flatten(tables: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in tables.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _checked(name: str, value: object, origin: str) -> Any:
    if name not in names():
        import difflib

        name = name[:MOST_SHOWN]
        near = difflib.get_close_matches(name, names(), n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(f"unknown setting {name!r} in {origin}", hint=f"{hint}`recollect config show` lists them all")
    if name == "sources":
        return value  # each table was checked when the file was read
    option = names()[name]
    try:
        return option.fit(value)
    except ValueError as error:
        shown = shown_place(value) if name == "store" and isinstance(value, str) else value
        subject, hint = f"{name} from {origin}", "`recollect config show` lists the settings and their origin"
        if origin == A_FLAG and option.flag_names:
            subject, hint = option.flag_names[0], "--help lists the flags and their values"
        raise ConfigError(f"{subject} must be {option.expected}, not {brief(shown)}", hint=hint) from error


class Written(NamedTuple):
    """The path of a settings file that was written, and of the copy of the old file."""

    path: Path
    backup: Path | None = None
    changed: bool = True


def write_settings(path: Path, settings: Mapping[str, object], *, force: bool = False, heading: str = "") -> Written:
    """Put settings into a file. A file that has settings is changed only with `force`, after a copy of it was made."""
    import shutil
    import tomllib

    from recollect.config.toml import set_values

    with file_errors(path, hint="check the folder"):
        target = at_home(path).resolve()
        _from_file(target)  # a file that is wrong already is refused
        text = target.read_bytes().decode("utf-8") if target.exists() else ""
        changed = set_values(text, settings, heading)
        if tomllib.loads(changed) == tomllib.loads(text):
            return Written(target, changed=False)
        if tomllib.loads(text) and not force:
            hint = "--force adds these and keeps a copy of the file; --output writes another file"
            raise ConfigError(f"{target} already has settings", hint=hint)
        values = _read(changed.encode(), target)
        for name, value in settings.items():
            if values[name][0] != value:
                raise FailedError(f"{name} was written as {value!r} and read back as {values[name][0]!r}")
        target.parent.mkdir(parents=True, exist_ok=True)
        backup = None
        if target.exists():
            copies = (target.with_name(f"{target.name}.bak{number or ''}") for number in itertools.count())
            backup = next(copy for copy in copies if not copy.exists())
            shutil.copy2(target, backup)
        write_private(target, changed, like=backup)
        return Written(target, backup)
