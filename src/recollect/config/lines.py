"""On which line of a TOML file a name is set, which its parser does not tell."""

from __future__ import annotations

import re
from collections import Counter

_TABLE = re.compile(r"\s*(\[\[?)\s*([^\[\]#]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""\s*([A-Za-z0-9_\-."' ]+?)\s*=""")


def lines(text: str) -> dict[str, int]:
    """Dotted name → line, of a file that has been parsed already; the tables of a list are numbered from 0.

    `[[sources]]` with `kind = …` gives `sources.0` and `sources.0.kind`.
    """
    found: dict[str, int] = {}
    counts: Counter[str] = Counter()
    table = ""
    for number, line in enumerate(text.split("\n"), 1):
        if header := _TABLE.match(line):
            name = _bare(header[2])
            counts[name] += header[1] == "[["
            table = _numbered(name, counts)
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            found.setdefault(f"{table}.{_bare(key[1])}".lstrip("."), number)
    return found


def _bare(name: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in name.split("."))


def _numbered(name: str, counts: Counter[str]) -> str:
    """The name with the number of the list's table it stands in."""
    parts: list[str] = []
    for part in name.split("."):
        parts.append(part)
        seen = counts[".".join(piece for piece in parts if not piece.isdigit())]
        if seen:
            parts.append(str(seen - 1))
    return ".".join(parts)
