"""Text from memory made fit to stand among a model's instructions: one line, nothing hidden, no fence, a known size."""

from __future__ import annotations

import json
import math
import string
from bisect import bisect_right
from hashlib import blake2b

import regex

from recollect.memory.lookalikes import neutralise

FENCE = "recalled-memory"
"""The name of the tags around what is recalled. It cannot stand inside: `harmless` leaves no tag, and not this name."""

ELLIPSIS = " …"

_HIDDEN = regex.compile(r"[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Default_Ignorable_Code_Point}]+")
"""What is not seen but read: control and format characters, bidirectional overrides, zero widths, tag characters."""

_LETTERS = str.maketrans(string.digits, "ghijklmnop")
"""A key is of letters alone, so that every key costs the same."""

_CHEAP = frozenset(string.ascii_letters + " \n")
_PER_LETTER, _PER_MARK, _PER_BYTE, _PER_WORD = 0.3, 0.7, 0.5, 1.3
"""Tokens. Against BERT's tokenizer: English prose and code a fifth too many, Chinese a half; a hexadecimal id a fifth
too few, German a twentieth."""


def harmless(text: str, most: int | None = None) -> str:
    """The text in one line of visible characters, with nothing that looks like a fence, a tag or a number of ours."""
    shown = " ".join(text.split())[:most]
    shown = " ".join(_HIDDEN.sub("", shown).split())
    return neutralise(shown, FENCE)


def visible_json(value: object) -> str:
    """JSON whose hidden characters are escapes: the same to a program, and seen by who reads it as text."""
    return _HIDDEN.sub(lambda found: json.dumps(found[0])[1:-1], json.dumps(value, ensure_ascii=False))


def fenced(body: str, label: str) -> str:
    """The body between two tags with one key, made of the body itself, under a line that says what it is."""
    key = blake2b(body.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest().translate(_LETTERS)
    return f'<{FENCE} key="{key}">\n{label}\n{body}\n</{FENCE} key="{key}">'


def count_tokens(text: str) -> int:
    """How many tokens a text is at the most, in a model's tokenizer that nobody named: rather too many."""
    return math.ceil(cost(text))


def cost(text: str) -> float:
    """Tokens as a fraction: 0.3 a letter, 0.7 a digit or mark, 0.5 a byte of other scripts; 1.3 a word at least.

    Never more for a whole than for its parts together.
    """
    cheap = sum(map(_CHEAP.__contains__, text))
    narrow = sum(map(str.isascii, text))
    wide = len(text.encode("utf-8", "surrogatepass")) - narrow
    each = _PER_LETTER * cheap + _PER_MARK * (narrow - cheap) + _PER_BYTE * wide
    return max(each, _PER_WORD * len(text.split()))


def cut(text: str, tokens: float) -> str:
    """The text, or its longest beginning that fits with an ellipsis, up to a word's end where there is one near."""
    most = max(0, int(tokens / _PER_LETTER) + 1)
    if len(text) <= most and cost(text) <= tokens:
        return text
    room = tokens - cost(ELLIPSIS)
    length = bisect_right(range(1, min(len(text), most) + 1), room, key=lambda size: cost(text[:size]))
    space = text.rfind(" ", 0, length + 1)
    end = space if space > length // 2 else length
    return f"{text[:end].rstrip()}{ELLIPSIS}" if end else ""
