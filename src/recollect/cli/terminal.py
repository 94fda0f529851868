"""All printing. Text from outside is escaped, so that it cannot move the cursor, forge a line or hide a word."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from recollect.errors import RecollectError
    from recollect.types import Record

HIDDEN = (
    "\x00-\x1f\x7f-\x9f"  # control characters, C0 and C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidirectional controls
    "\u00ad\u180e\u200b\u2028\u2029\u2060-\u2065\u206a-\u206f\ufeff\ufff0-\ufffb"  # invisible: separators, fillers
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff"  # invisible: shorthand, music, tags
    "\ud800-\udfff"  # bytes of a file name that are not text
)
"""Characters that cannot be seen as themselves. Joiners (U+200C, U+200D) are allowed: some scripts need them."""

WIDTH = 100  # the longest line, in columns; a narrower terminal gets shorter lines
MARGIN = "    "
BAR_WIDTH = 24
REDRAW_SECONDS = 0.1

_OURS_OR_HIDDEN = re.compile(f"(\x1b\\[[0-9;]*m|\x1b\\]8;;(?:file://[!-~]*)?\x1b\\\\)|[{HIDDEN}]")
"""The escapes that commands print themselves, colours and links to files; and hidden characters."""


def plain(name: str) -> str:
    """The name on one line; every hidden character and line break becomes a visible escape."""
    return _replace_hidden(lambda match: match[0].encode("unicode_escape").decode("ascii"), name)


def plain_text(text: str) -> str:
    """The text without hidden characters; line breaks and tabs stay."""
    return _replace_hidden(lambda match: match[0] if match[0] in "\n\t" else "", text)


def _replace_hidden(replacement: Callable[[re.Match[str]], str], text: str) -> str:
    # No hidden character is printable: most texts need no pattern, which takes 0.5 ms to compile.
    return text if text.isprintable() else re.sub(f"[{HIDDEN}]", replacement, text)


# Patterns are compiled, and cached by `re`, with the first text in Markdown.
_FENCE = r" {0,3}(?:```|~~~)"
_TABLE_RULE = r"\s*\|?[\s:|-]*-{2,}[\s:|-]*"
_COMMENT = r"<!--[^<>]*-->"
_MARK_CHARACTERS = frozenset("`~|-<>#*+[_0123456789")  # every mark has one of them
_MARKS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (  # and what stands in their place
    (r"^\s*(?:> ?)+", ""),
    (r"^\s*#{1,6}\s+(.*?)([:.?!]?)[\s#]*$", lambda heading: heading[1] + (heading[2] or ":")),
    (r"^\s*(?:[-*+]|\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?(?=\S)", "• "),
    (r"!?\[\[(?:[^\[\]|]{0,300}?\\?\|)?([^\[\]|]{1,300})\]\]", r"\1"),
    (
        r"!?\[([^\[\]]{0,300})\](?:\([^()]{0,500}(?:\([^()]{0,100}\)[^()]{0,100})?\)|\[[^\[\]]{0,100}\])",
        r"\1",
    ),
    (r"<(https?://[^<>\s]{1,500})>", r"\1"),
    (r"(?<!\w)(\*\*|__|\*|_|~~)(?=[^\s*_])(.{1,300}?)(?<=[^\s*_])\1(?!\w)", r"\2"),
    (r"(`{1,3})([^`]{1,300})\1", r"\2"),
)


def without_markdown(text: str) -> str:
    """Markdown as plain text: the words without marks, items and rows after a bullet each; code stays as it is."""
    if _MARK_CHARACTERS.isdisjoint(text):
        return text
    lines, in_code = [], False
    for line in re.sub(_COMMENT, "", text).split("\n"):
        if re.match(_FENCE, line):
            in_code = not in_code
        elif in_code:
            lines.append(line)
        elif not re.fullmatch(_TABLE_RULE, line):
            cells = re.split(r"(?<!\\)\|", line) if line.lstrip().startswith("|") else []
            words = f"• {' · '.join(filter(None, map(str.strip, cells)))}" if cells else line
            for mark, replacement in _MARKS:
                words = re.sub(mark, replacement, words)
            lines.append(words)
    return "\n".join(lines)


def one_line(message: str) -> str:
    """The message on one line, escaped like a name."""
    return plain(" ".join(part.strip() for part in message.splitlines()))


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text with the colours of `click.style` and links to files; any other hidden character is removed."""
    cleaned = _OURS_OR_HIDDEN.sub(lambda match: match[1] or (match[0] if match[0] in "\n\t" else ""), text)
    click.echo(cleaned, err=err, nl=nl)


def to_json(value: object, indent: int | None = None) -> str:
    """The value as JSON in which hidden characters are escapes, so that a program reads the same value."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _replace_hidden(lambda match: match[0] if match[0] == "\n" else json.dumps(match[0])[1:-1], text)


def emit(as_json: bool, value: object | Callable[[], object], text: str | Callable[[], None]) -> None:
    """Print `value`, or what it returns, as JSON for a program; for a person print `text`, or call it."""
    if as_json:
        echo(to_json(value() if callable(value) else value, indent=2))
    elif callable(text):
        text()
    else:
        echo(text)


def dim(text: str) -> str:
    """The text in a weak colour."""
    return click.style(text, dim=True)


def notice(message: str) -> None:
    """Print a message for a person on standard error."""
    echo(dim(one_line(message)), err=True)


def print_error(error: RecollectError, as_json: bool) -> None:
    """Print an error on standard error: as JSON on one line, or the message and below it the hint."""
    hint = f"\n  {one_line(error.hint)}" if error.hint else ""
    text = f"{click.style('error:', fg='red', bold=True)} {one_line(error.message)}{hint}"
    echo(to_json(error.as_dict()) if as_json else text, err=True)


def print_table(rows: Sequence[tuple[str, ...]], empty: str = "") -> None:
    """Print rows in aligned columns, or the notice `empty` where there are none."""
    if not rows and empty:
        notice(empty)
    rows = [tuple(map(plain, row)) for row in rows]
    widths = [max(map(columns, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell + " " * (width - columns(cell)) for cell, width in zip(row, widths, strict=True))
        echo("  ".join(cells).rstrip())


def columns(text: str) -> int:
    """How many columns of a terminal a text takes: a Chinese, Japanese or Korean character takes two."""
    if text.isascii():
        return len(text)
    import unicodedata

    marks = sum(map(bool, map(unicodedata.combining, text)))
    return len(text) - marks + sum(unicodedata.east_asian_width(one) in "WF" for one in text)


def fitting(text: str, most: int) -> str:
    """The first words of a text that fit in so many columns."""
    from recollect.types.records import first_words

    room, line = most, first_words(text, most)
    while columns(line) > most:
        room -= 1
        line = first_words(text, room)
    return line


def width() -> int:
    """The length of a line on this terminal."""
    return min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)


def indented(text: str, margin: str = MARGIN) -> str:
    """The text wrapped to the width of the terminal, with a margin."""
    return textwrap.fill(text, width(), initial_indent=margin, subsequent_indent=margin)


def where(record: Record) -> str:
    """The file and the lines or page of a record, relative to the current folder or the home folder where possible."""
    if record.path is None:
        return ""
    path = Path(record.path)
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    elif path.is_relative_to(Path.home()):
        path = "~" / path.relative_to(Path.home())
    if record.place:
        return plain(f"{path}, {record.place}")
    first, last = record.lines or (0, 0)
    return plain(f"{path}:{first}-{last}" if last > first else f"{path}:{first}" if first else str(path))


def linked_where(record: Record) -> str:
    """`where`, as a link that terminals open, if this is a terminal."""
    text = where(record)
    if record.path is None or not sys.stdout.isatty():
        return text
    page = re.match(r"pages? (\d+)", record.place or "")
    address = f"{Path(record.path).absolute().as_uri()}{f'#page={page[1]}' if page else ''}"
    return f"\x1b]8;;{address}\x1b\\{text}\x1b]8;;\x1b\\"


def as_text(value: Any) -> str:
    """A setting or a count as a person reads it."""
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


def counted(count: int, noun: str) -> str:
    """`1 file`, `2 files`, `2 queries`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def progress(label: str) -> Callable[[int, int], None] | None:
    """A callback that draws a progress bar; None where standard error is not a terminal."""
    drawn = started = 0.0
    pace: Callable[[int], float] | None = None

    def draw(done: int, total: int) -> None:
        nonlocal drawn, started, pace
        moment = time.monotonic()
        if pace is None:
            from recollect.memory.filling import Rate

            started, pace = moment, Rate()
        rate, ended = pace(done), done >= total
        if ended or moment - drawn >= REDRAW_SECONDS:
            drawn = moment
            line = bar(plain(label), done, total, moment - started, None if ended else rate)
            click.echo(f"\r{line}\x1b[K", err=True, nl=ended)

    return draw if sys.stderr.isatty() else None


def bar(label: str, done: int, total: int, seconds: float, rate: float | None = None) -> str:
    """A progress bar with count, rate and time left. By default the rate is the mean; a rate of 0 is not known yet."""
    if rate is None:
        rate = done / seconds if seconds > 0 else 0.0
    filled = BAR_WIDTH * done // total if total else BAR_WIDTH
    parts = [f"{done:,} of {total:,}", *([f"{rate:,.0f}/s"] if rate else [])]
    if done >= total:
        parts.append(f"in {_span(seconds)}")
    elif rate:
        parts.append(f"{_span((total - done) / rate)} left")
    return f"{label} {'█' * filled}{'░' * (BAR_WIDTH - filled)} {' · '.join(parts)}"


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"  # noqa: PLR2004


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM interrupt a command as Ctrl-C does, so that it removes its temporary files."""
    import signal

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def until_interrupted() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end a command that runs on and on; what is not committed is rolled back."""
    with interruptible(), contextlib.suppress(KeyboardInterrupt):
        yield
