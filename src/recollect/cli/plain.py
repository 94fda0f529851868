"""Text from elsewhere made safe to show: on a terminal it must not steer the cursor, forge a line or hide a word."""

from __future__ import annotations

import json
import re

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
