"""Texts with `{query}`, `{fetch_k}` and `{scope}` in them, as an outside source's command, address or body has."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any

FIELDS = ("query", "fetch_k", "scope")


def fields(template: str) -> list[str]:
    """The names in braces; ValueError where the braces do not pair up."""
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
    """A JSON value with its texts filled. A text that is one name and nothing else becomes the value itself."""
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
