"""What looks like a tag, a fence or a citation, whatever characters it is written with.

Patterns are matched on the shape of a text: the same text with each character replaced by the ASCII mark that it looks
like. `＜｜im_start｜＞` and `<|im_start|>` have one shape. What is found is replaced in the text itself.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache

import regex

_ROLES = (
    r"(?:system|user|assistant|human|developer|tool|function|instructions?|prompt|think|sys|inst|bos|eos|s"
    r"|im_\w{1,20}|\w{1,20}_of_\w{1,20}|endoftext)\b"
)
"""Names of tags by which models know who speaks, or where a turn begins."""

_MARKS = {
    **dict.fromkeys("˂˱ᐸ≪⋖⋘⪡⫷⦓", "‹"),
    **dict.fromkeys("˃˲ᐳ≫⋗⋙⪢⫸⦔", "›"),
    **dict.fromkeys("∣│┃❘❙❚⏐ǀǁ¦‖∥׀⫾", "|"),
    **dict.fromkeys("∕⁄⧸╱⟋", "/"),
    **dict.fromkeys("ˋ˴", "`"),
    **dict.fromkeys("∼〜˷", "~"),
    **dict.fromkeys("،、", ","),
    "−": "-",
}
"""Marks that look like one of ASCII and that Unicode does not fold to it; ‹ and › stand for all angle brackets."""

_TAG = regex.compile(
    r"(?:[<‹](?=\s?[/|])|<(?=\s?[!?]|[<‹]))(?:[^<>‹›]{0,100}[>›])?"  # </x>, <|x|>, <!x>, << x
    rf"|[<‹]\s?{_ROLES}[^<>‹›]{{0,100}}[>›]",  # <system>
    regex.IGNORECASE,
)
"""Tags that mean something to a model. They are replaced also where a bracket only looks like <."""

_OPENING, _CLOSING = regex.compile(r"<(?=[\p{L}_])"), regex.compile(r"(?<=[/|\p{L}_\"'])>|>{3,}")
"""Of any other tag; those are shown with ‹ and ›."""

_CITATION = regex.compile(r"\[[\s,;-]*\d[\s\d,;-]*\]")
"""[1], [1, 2], [1-3]: the numbers of a recall block."""

_BACKTICKS, _TILDES = regex.compile("`{3,}"), regex.compile("~{3,}")


def neutralise(text: str, fence: str) -> str:
    """The text in which nothing can be read as a tag, a code fence, a citation or the name `fence`."""
    name = regex.compile(regex.escape(fence).replace(r"\-", r"[\W_]?"), regex.IGNORECASE)
    for pattern, instead in (
        (_TAG, _in_parentheses),
        (_OPENING, lambda _: "‹"),
        (_CLOSING, lambda _: "›"),
        (_BACKTICKS, lambda _: "'''"),
        (_TILDES, lambda _: "''"),
        (_CITATION, _in_parentheses),
        (name, lambda _: fence.replace("-", " ")),
    ):
        text = "".join(_replaced(text, pattern, instead))
    return text


def _replaced(text: str, pattern: regex.Pattern[str], instead: Callable[[str], str]) -> Iterator[str]:
    """The text in parts, those whose shape the pattern matches replaced."""
    end = 0
    for found in pattern.finditer(shape(text)):
        yield text[end : found.start()]
        yield instead(text[found.start() : found.end()])
        end = found.end()
    yield text[end:]


def _in_parentheses(found: str) -> str:
    """`<system>` and `[1]` as (system) and (1); a tag that is not closed loses its first mark only."""
    closed = len(found) > 1 and shape_of(found[-1]) in (">", "›", "]")
    return f"({found[1:-1]})" if closed else f"({found[1:]}"


def shape(text: str) -> str:
    """The text with each character as the ASCII mark that it looks like; it has the same length."""
    if text.isascii():
        return text
    return text.translate({ord(letter): shape_of(letter) for letter in set(text) if not letter.isascii()})


@lru_cache(4096)
def shape_of(letter: str) -> str:
    """The mark that one character looks like, or the character itself."""
    folded = unicodedata.normalize("NFKC", letter)
    if len(folded) == 1 and folded.isascii():
        return folded
    digit = unicodedata.digit(letter, None)
    if digit is not None:
        return str(digit)
    category = unicodedata.category(letter)
    if category in ("Ps", "Pi", "Pe", "Pf"):
        return _bracket(unicodedata.name(letter, ""), opening=category in ("Ps", "Pi")) or letter
    return "-" if category == "Pd" else _MARKS.get(letter, letter)


def _bracket(name: str, *, opening: bool) -> str:
    """The bracket that has such a name in Unicode looks like."""
    if "ANGLE" in name:
        return "‹" if opening else "›"
    if "BRACKET" in name and "CORNER" not in name and "CURLY" not in name:
        return "[" if opening else "]"
    return ""
