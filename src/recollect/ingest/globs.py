"""Patterns of a `.gitignore` file, read as Git reads them.

A pattern becomes a regular expression in which a star that has found its text does not try another position (an atomic
group). No later position is better, so a path costs about one step for each part of each pattern, whatever they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter

_POSIX: dict[str | None, str] = {
    None: "",
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "blank": " \t", "cntrl": "\x00-\x1f\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": "!-/:-@\\[-`{-~", "space": " \t-\r", "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}  # fmt: skip
_MEMBER = re.compile(r"\[:(?P<name>[^\]]*):\]|(?:\\(.)|([^\\]))(?:-(?:\\(.)|([^\]\\])))?", re.DOTALL)
"""A member of a set: a class, or a character and perhaps the end of a range."""

_STARS = re.compile(r"\*\*+")


class Globs:
    """The patterns of one ignore file. If several match a path, the last one decides."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._runs: list[tuple[bool, re.Pattern[str] | None, re.Pattern[str] | None]] = []
        rules = filter(None, map(_rule, lines))
        for negated, group in groupby(rules, key=itemgetter(0)):
            run = list(group)
            names = "|".join(regex for _, anywhere, regex in run if anywhere)
            paths = "|".join(regex for _, anywhere, regex in run if not anywhere)
            self._runs.append((negated, re.compile(names) if names else None, re.compile(paths) if paths else None))
        self._runs.reverse()

    def decide(self, below: str, name: str, *, is_folder: bool = False) -> bool | None:
        """Whether a name is ignored (True) or included again (False); None if no pattern matches.

        `below` is the path of its folder from that of the patterns, empty or with a slash at the end.
        """
        name = f"{name}/" if is_folder else name
        for negated, names, paths in self._runs:
            if (names and names.fullmatch(name)) or (paths and paths.fullmatch(below + name)):
                return not negated
        return None


def _rule(line: str) -> tuple[bool, bool, str] | None:
    """Whether a line is negated, whether it is for a name in any folder, and its regular expression."""
    line = line.removesuffix("\r")
    text = line.rstrip(" ")
    if text != line and (len(text) - len(text.rstrip("\\"))) % 2:
        text += " "  # a space after a backslash stays
    if not text or text.startswith("#"):
        return None
    negated = text.startswith("!")
    text = text[negated:]
    end = "/" if text.endswith("/") else "/?"
    text = text.removesuffix("/")
    try:
        return negated, "/" not in text, _path(text.removeprefix("/")) + end
    except ValueError:  # Git never matches it: an open bracket, an unknown class, a backslash at the end
        return None


def _path(text: str) -> str:
    """A regular expression for a path. `**` between slashes is any number of folders; at the end, one name or more."""
    names = list(_names(text))
    if _STARS.fullmatch(names[-1]):
        names.append("[^/]+")
    regex = block = ""
    for name in names[:-1]:
        if _STARS.fullmatch(name):
            regex, block = f"{regex}(?>{block})", "(?:[^/]+/)*?"
        else:
            block += f"{name}/"
    return regex + block + names[-1]


def _names(text: str) -> Iterator[str]:
    """The parts of a pattern between its slashes, as regular expressions; two or more stars alone as they are."""
    pieces = [""]
    for token in (*_tokens(text), "/"):
        if token == "*":  # noqa: S105
            pieces.append("")
        elif token != "/":  # noqa: S105
            pieces[-1] += token
        else:
            yield _name(pieces)
            pieces = [""]


def _name(pieces: list[str]) -> str:
    """One name: a star stands between each two of the pieces."""
    first, *others = pieces
    if not others:
        return first
    if not any(pieces):
        return "*" * len(others) if len(others) > 1 else "[^/]+"
    middle = "".join(f"(?>[^/]*?{piece})" for piece in others[:-1] if piece)
    return f"{first}{middle}[^/]*{others[-1]}"


def _tokens(text: str) -> Iterator[str]:
    """A star and a slash as they are, everything else as a regular expression for one character."""
    at = 0
    while at < len(text):
        sign = text[at]
        at += 1
        if sign == "?":
            yield "[^/]"
        elif sign == "[":
            token, at = _set(text, at)
            yield token
        elif sign == "\\":
            if at == len(text):
                raise ValueError(text)
            yield "/" if text[at] == "/" else re.escape(text[at])
            at += 1
        else:
            yield sign if sign in "*/" else re.escape(sign)


def _set(text: str, at: int) -> tuple[str, int]:
    """The set that begins after a `[`, and where it ends. Ranges, classes and escapes are read as Git reads them."""
    negated = text.startswith(("!", "^"), at)
    start = at = at + negated
    body = ""
    while at == start or not text.startswith("]", at):
        member = _MEMBER.match(text, at)
        if member is None or member["name"] not in _POSIX:
            raise ValueError(text)
        low, high = member[2] or member[3], member[4] or member[5]
        body += _POSIX[member["name"]] or _escaped(low)
        if high and low <= high:
            body += f"-{_escaped(high)}"
        at = member.end()
    return f"(?!/)[{'^' * negated}{body}]", at + 1


def _escaped(sign: str) -> str:
    return "\\" + sign if sign in "\\]^-[&~|" else sign
