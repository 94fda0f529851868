"""The text of TOML files: the line on which a name is set, and settings put into a text."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

_PIECE = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|\#[^\n]*|\n|[\[\]{}]|[^"\'\#\n\[\]{}]+',
    re.DOTALL,
)
_TABLE = re.compile(r"\s*(\[\[?)([^\[\]#]+)\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""([A-Za-z0-9_\-."' \t]+)=""")
"""In both, no two neighbouring parts match the same characters, so that the time is linear in the line."""


def lines(text: str) -> dict[str, int]:
    """Dotted name → line of a text that is valid TOML; the tables of a list are numbered from 0.

    `[[sources]]` with `kind = …` gives `sources.0` and `sources.0.kind`, and `sources = [{ … }]` gives `sources.0`.
    """
    numbers: dict[str, int] = {}
    counts: Counter[str] = Counter()
    table = key = ""
    for number, line, tables in _statements(text):
        if header := _TABLE.match(line):
            name = _bare(header[2])
            counts[name] += header[1] == "[["
            table = key = _numbered(name, counts)
            numbers.setdefault(table, number)
        elif setting := _KEY.match(line):
            key = opens = f"{table}.{_bare(setting[1])}".lstrip(".")
            while opens not in numbers and opens != table:  # a dotted key also opens the tables above it
                numbers[opens] = number
                opens = opens.rpartition(".")[0]
        for place, start in enumerate(tables):
            numbers.setdefault(f"{key}.{place}", start)
    return numbers


def _statements(text: str) -> Iterator[tuple[int, str, list[int]]]:
    """Each header and setting: the number of its first line, that line, and the lines of the tables in its list."""
    source, number, open_brackets = text.split("\n"), 1, ""
    start, tables = 0, list[int]()  # a start of 0: between two statements
    for piece in _PIECE.findall(text):
        if not start and piece.strip() and piece[0] != "#":
            start, tables = number, []
        if piece == "\n" and start and not open_brackets:
            yield start, source[start - 1], tables
            start = 0
        elif piece in ("]", "}"):
            open_brackets = open_brackets[:-1]
        elif piece in ("[", "{"):
            if piece == "{" and open_brackets == "[":
                tables.append(number)
            open_brackets += piece
        number += piece.count("\n")
    if start:
        yield start, source[start - 1], tables


def most_parts(text: str) -> int:
    """The parts of the longest dotted name, or a few more, also in invalid text; parsing time grows with its square."""
    most = dots = 0
    for piece in _PIECE.findall(text):
        if piece in ("\n", "[", "]", "{", "}"):
            dots = 0
        elif piece[0] not in "\"'#":
            for number, part in enumerate(re.split("[=,]", piece)):
                dots = part.count(".") + (0 if number else dots)
                most = max(most, dots)
    return most + 1


def _bare(name: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in name.split("."))


def _numbered(name: str, counts: Counter[str]) -> str:
    parts: list[str] = []
    for part in name.split("."):
        parts.append(part)
        if count := counts[".".join(piece for piece in parts if not piece.isdigit())]:
            parts.append(str(count - 1))
    return ".".join(parts)


_CONTROL = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that JSON does not escape, but TOML or a terminal needs escaped: control and bidirectional ones."""


def set_values(text: str, settings: Mapping[str, object], heading: str = "") -> str:
    """The text of a settings file with these settings changed or added. Comments and all else stay as they are."""
    import tomlkit

    document = tomlkit.parse(text)
    if heading and not text:
        document.add(tomlkit.comment(_value(heading)[1:-1]))
    for name, value in settings.items():
        table, _, key = name.rpartition(".")
        place: Any = document.setdefault(table, tomlkit.table()) if table else document
        after = _trailing_comments(place) if isinstance(place, tomlkit.items.Table) and key not in place else []
        place[key] = tomlkit.value(_value(value))
        for item in after:
            place.add(item)
    return tomlkit.dumps(document)


def _trailing_comments(table: Any) -> list[Any]:
    """Take off the comments and blank lines at the end of a table: most often they belong to the next table."""
    body = table.value.body
    keys = [number for number, (key, _) in enumerate(body, 1) if key is not None]
    end = keys[-1] if keys else len(body)
    items = [item for _, item in body[end:]]
    del body[end:]
    return items


def _value(value: object) -> str:
    """The value as TOML, which is JSON with more characters escaped."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))
