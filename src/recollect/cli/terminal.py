"""Printing: text from elsewhere made safe to show, notices, progress, tables, JSON and logs."""

from __future__ import annotations

import json
import logging
import re
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any

import click

HIDDEN = (
    "\x00-\x1f\x7f-\x9f"  # control characters, C0 and C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidirectional controls
    "\u00ad\u180e\u200b\u2028\u2029\u2060-\u2065\u206a-\u206f\ufeff\ufff0-\ufffb"  # invisible: separators, fillers
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff"  # invisible: shorthand, music, tags
    "\ud800-\udfff"  # bytes of a file name that are no text
)
"""Characters that are not seen as themselves. Joiners (U+200C, U+200D) are not among them: scripts need them."""

_HIDDEN = re.compile(f"[{HIDDEN}]")
_OURS_OR_HIDDEN = re.compile(f"(\x1b\\[[0-9;]*m)|[{HIDDEN}]")


def plain(name: str) -> str:
    """A name on one line, in which every hidden character and line break is an escape that can be seen."""
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), name)


def plain_text(text: str) -> str:
    """A text without hidden characters; its line breaks and tabs stay."""
    return _HIDDEN.sub(lambda found: found[0] if found[0] in "\n\t" else "", text)


def one_line(message: str) -> str:
    """A message on one line."""
    return plain(" ".join(part.strip() for part in message.splitlines()))


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text of ours, with colours of `click.style`. Whatever else is hidden in it is left out."""
    shown = _OURS_OR_HIDDEN.sub(lambda found: found[1] or (found[0] if found[0] in "\n\t" else ""), text)
    click.echo(shown, err=err, nl=nl)


def to_json(value: object, indent: int | None = None) -> str:
    """A value as JSON that says the same to a program and in which hidden characters are escapes."""
    written = json.dumps(value, ensure_ascii=False, indent=indent)
    return _HIDDEN.sub(lambda found: found[0] if found[0] == "\n" else json.dumps(found[0])[1:-1], written)


def log_to_stderr() -> None:
    """Let warnings of a server go to standard error, each with its hidden characters as escapes."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


class _Formatter(logging.Formatter):
    """One line for each message; a traceback below it keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (the name of logging)
        record.message = plain(record.message)
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        return plain_text(super().format(record))


WIDTH = 100
"""Columns at the most; a narrower terminal has fewer."""


def width() -> int:
    """How wide a line may be here."""
    return min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)


def print_json(value: object) -> None:
    """One JSON document on standard output."""
    echo(to_json(value, indent=2))


def print_table(rows: list[tuple[str, ...]]) -> None:
    """Columns as wide as they need to be; a cell is one line."""
    rows = [tuple(map(plain, row)) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    for row in rows:
        echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def as_text(value: Any) -> str:
    """A value as a person reads it."""
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case tuple() | list():
            return ", ".join(map(str, value))
        case int():
            return f"{value:,}"
        case float():
            return f"{value:g}"
        case _:
            return str(value)


BAR_WIDTH = 24


REDRAW_SECONDS = 0.1


def notice(message: str) -> None:
    """Something a person should know, kept out of the way of programs."""
    echo(click.style(one_line(message), dim=True), err=True)


def progress(label: str) -> Callable[[int, int], None] | None:
    """A bar with rate and time left on a terminal; nothing in a pipe."""
    if not sys.stderr.isatty():
        return None
    started = shown = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal shown
        moment = time.monotonic()
        if done < total and moment - shown < REDRAW_SECONDS:
            return
        shown = moment
        click.echo(f"\r{bar(plain(label), done, total, moment - started)}\x1b[K", err=True, nl=done >= total)

    return show


def bar(label: str, done: int, total: int, seconds: float) -> str:
    """How far long work is, how fast it goes, and how long it will still take."""
    rate = done / seconds if seconds > 0 else 0.0
    drawn = BAR_WIDTH * done // total if total else BAR_WIDTH
    ends = f"{_span((total - done) / rate)} left" if rate and done < total else f"in {_span(seconds)}"
    return f"{label} {'█' * drawn}{'░' * (BAR_WIDTH - drawn)} {done:,} of {total:,} · {rate:,.0f}/s · {ends}"


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"  # noqa: PLR2004
