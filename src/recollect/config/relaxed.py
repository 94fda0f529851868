"""JSON from a file, or JSON5 (comments, trailing commas, bare keys) where it is not JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from recollect.errors import ConfigError
from recollect.registry import missing_package

MOST_BYTES = 4_000_000
"""Larger files are no settings."""

MOST_RELAXED = 200_000
"""Characters of JSON5: its parser takes a second for 130,000 of a usual file, and for 15,000 of the worst."""


def read_document(path: Path) -> object:
    """What the file holds; ConfigError where that is not one JSON or JSON5 document."""
    text = _text(path)
    try:
        return json.loads(text, object_pairs_hook=_object)
    except RecursionError as error:
        raise _too_deep(path) from error
    except ValueError as error:
        return _relaxed(text, path, error)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ConfigError(f"{path} is larger than {MOST_BYTES:,} bytes", hint="name an openclaw.json")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}", hint="check the name") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not text in UTF-8", hint="name an openclaw.json") from error


def _relaxed(text: str, path: Path, not_json: ValueError) -> object:
    if len(text) > MOST_RELAXED:
        raise ConfigError(
            f"{path} is not JSON ({not_json}), and too long to be read as JSON5",
            hint=f"up to {MOST_RELAXED:,} characters are; remove its comments and trailing commas",
        )
    try:
        import json5
    except ImportError as error:
        raise missing_package(error, f"{path} is not JSON ({not_json}); JSON5", "openclaw") from error
    try:
        return json5.loads(text, object_pairs_hook=_object)
    except RecursionError as error:
        raise _too_deep(path) from error
    except ValueError as error:
        where = str(error).replace("<string>:", "line ")
        raise ConfigError(f"{path} is neither JSON nor JSON5: {where[:200]}", hint="correct it there") from error


def _object(pairs: Any) -> dict[str, Any]:
    """An object whose keys are each there once: of two values nobody knows which is meant."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ConfigError(f"the key {json.dumps(key)[:60]} is there twice in one object", hint="remove one of them")
        found[key] = value
    return found


def _too_deep(path: Path) -> ConfigError:
    return ConfigError(f"{path} is nested too deeply to be settings", hint="name an openclaw.json")
