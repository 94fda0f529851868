"""The front matter of a note: its properties, and which of them a search reads."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import date
from itertools import pairwise
from typing import Any

from recollect.ingest.lengths import MAX_CONTEXT, bounded, tokens
from recollect.ranking import well_formed

MAX_FRONT_MATTER = 64 * 1024
MAX_PROPERTY = MAX_CONTEXT // 2  # tokens of one property; all of a note have MAX_CONTEXT
ALIASES = ("aliases", "alias")
NOT_SEARCHED = re.compile(
    r"title|tags|category|date|valid_(from|until)|"  # these are fields of the records
    r"(date |last )?(created|modified|updated)([ _-]?(at|on|time))?|(u?u|gu)?id|hash|checksum|slug|permalink|"
    r"publish|draft|css-?class(es)?|banner.*|cover|image|icon|thumbnail|sticker|layout|template|"
    r"sidebar.*|(kanban|excalidraw|obsidian|linter|dg|sr)-.*",
    re.IGNORECASE,
)
"""Names of properties whose values are read already, or are meant for a program and say nothing about the note."""
MACHINE = re.compile(r"[a-z][a-z0-9+.-]*://\S+|[\w+/=-]{32,}|", re.ASCII | re.IGNORECASE)  # an address, a hash, nothing


def read_front_matter(lines: list[str]) -> tuple[dict[str, Any], int]:
    """The YAML between two lines of `---` at the top, and the number of the line after it. Invalid YAML is text."""
    if not lines or lines[0].rstrip() != "---":
        return {}, 0
    end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() in ("---", "...")), None)
    block = "".join(lines[1:end]) if end else ""
    if end is None or len(block) > MAX_FRONT_MATTER:
        return {}, 0
    import yaml

    try:
        values = yaml.safe_load(block)
    except (yaml.YAMLError, ValueError, RecursionError):
        # A date of the 45th of May is a ValueError, a thousand brackets are a RecursionError.
        return {}, 0
    return (values, end + 1) if isinstance(values, dict) else ({}, 0)


def metadata_text(value: object) -> str:
    """A value of the front matter as one line of text; empty for a list or a mapping.

    Escapes of YAML may write what no store holds: surrogate pairs are joined, halves of one and zero bytes replaced.
    """
    return well_formed(str(value).strip()) if isinstance(value, str | int | float | date) else ""


def searched(lines: Sequence[str], metadata: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The lines of front matter that are searched: first the aliases and the links, then the other properties."""
    names, properties = ["\n"] * len(lines), ["\n"] * len(lines)
    keys = [at for at, line in enumerate(lines) if at and re.match(r"[^\s#-]", line)]
    room = MAX_CONTEXT
    for start, end in pairwise((*keys, len(lines))):
        name, _, written = (part.strip() for part in lines[start].partition(":"))
        if name in ALIASES:
            aliases = [words for value in _listed(metadata.get(name)) if (words := metadata_text(value))]
            names[start] = f"aliases: {json.dumps(aliases, ensure_ascii=False)}\n" if aliases else "\n"
        elif any("[[" in line for line in lines[start:end]):
            names[start:end] = lines[start:end]
        else:
            text = bounded(_property(name.strip("\"'"), metadata, written), MAX_PROPERTY)
            if (size := tokens(text)) <= room:
                properties[start] = f"{text}\n"
                room -= size
    return names, properties


def _property(name: str, metadata: Mapping[str, Any], written: str) -> str:
    """A property on one line, `name: value`; empty if its value says nothing to a reader, or is read already."""
    value = metadata.get(name)
    if isinstance(value, int | float):  # `1:30` and `007` are written in a way that YAML changes
        texts = [] if isinstance(value, bool) else [written.partition(" #")[0].strip()]
    else:
        texts = [metadata_text(one) for one in _listed(value) if isinstance(one, str | date)]
    words = ", ".join(text for text in texts if not MACHINE.fullmatch(text))
    return f"{name}: {words}" if words and not NOT_SEARCHED.fullmatch(name) else ""


def _listed(value: object) -> list[Any]:
    """A value as a list: its own elements, or itself."""
    return value if isinstance(value, list) else [value]
