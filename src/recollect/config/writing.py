"""Settings into a TOML file: beside what is there already, read back and checked before it takes the file's place."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.config.loading import load
from recollect.errors import ConfigError, FailedError

_CONTROL = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What JSON leaves as it is, and TOML or a terminal does not: control characters, bidirectional controls."""


@dataclass(frozen=True, slots=True)
class Written:
    """Where settings are now, and where the file that was there before is kept."""

    path: Path
    backup: Path | None = None
    changed: bool = True


def as_toml(settings: Mapping[str, object], heading: str = "") -> str:
    """Settings by dotted name as the text of a settings file."""
    return _rendered(_nested(settings, {}), heading)


def write_settings(path: Path, settings: Mapping[str, object], *, force: bool = False, heading: str = "") -> Written:
    """Put settings into a file. One that holds others is changed with `force` only, and a copy of it is kept."""
    try:
        target = path.expanduser().resolve()
        old = _existing(target)
        new = _nested(settings, _copied(old))
        if old == new:
            return Written(target, changed=False)
        if old and not force:
            raise ConfigError(
                f"{target} holds settings already",
                hint="--force puts these among them and keeps a copy of the file; --output writes another file",
            )
        return _replaced(target, _rendered(new, heading), settings)
    except OSError as error:
        raise FailedError(f"{path} cannot be written: {error.strerror or error}", hint="check the folder") from error


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step; only its owner may read it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # made with mode 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)


def _existing(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    load(config=path, environment={})  # says by file and line what is wrong with it
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _replaced(path: Path, text: str, settings: Mapping[str, object]) -> Written:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with beside.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        _check(beside, settings)
        backup = _backup(path) if path.exists() else None
        if backup is not None:
            shutil.copymode(path, beside)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return Written(path, backup)


def _check(path: Path, settings: Mapping[str, object]) -> None:
    """What is read back is what was meant."""
    loaded = load(config=path, environment={})
    for name, value in settings.items():
        if loaded.value(name) != value:
            raise FailedError(f"{name} was written as {value!r} and read back as {loaded.value(name)!r}")


def _backup(path: Path) -> Path:
    """A copy beside the file, under a name that nothing has."""
    number = 0
    while (copy := path.with_name(f"{path.name}.bak{number or ''}")).exists():
        number += 1
    shutil.copy2(path, copy)
    return copy


def _copied(tables: Mapping[str, Any]) -> dict[str, Any]:
    return {key: dict(value) if isinstance(value, dict) else value for key, value in tables.items()}


def _nested(settings: Mapping[str, object], tables: dict[str, Any]) -> dict[str, Any]:
    for name, value in settings.items():
        table, _, key = name.rpartition(".")
        (tables.setdefault(table, {}) if table else tables)[key] = list(value) if isinstance(value, tuple) else value
    return tables


def _rendered(tables: Mapping[str, Any], heading: str) -> str:
    """Plain settings first, then each table; what is inside a table stands on one line."""
    lines = [f"# {_value(heading)[1:-1]}"] if heading else []
    lines += [f"{_name(key)} = {_value(value)}" for key, value in tables.items() if not isinstance(value, dict)]
    for key, table in tables.items():
        if isinstance(table, dict):
            lines += ["", f"[{_name(key)}]", *(f"{_name(name)} = {_value(value)}" for name, value in table.items())]
    return "\n".join(lines).lstrip("\n") + "\n"


def _value(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case dict():
            return f"{{ {', '.join(f'{_name(key)} = {_value(item)}' for key, item in value.items())} }}"
    return str(value)


def _name(key: str) -> str:
    plain = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if plain else _value(key)
