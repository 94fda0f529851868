"""Patterns of a `.gitignore` file, read as Git reads them; atomic groups make the time linear, whatever they are."""

import re
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter

_POSIX = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "blank": " \t", "cntrl": "\x00-\x1f\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": "!-/:-@\\[-`{-~", "space": " \t-\r", "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}  # fmt: skip
# A member of a set: a class, or a character and perhaps the end of a range.
_MEMBER = re.compile(r"\[:([^\]]*):\]|(?:\\(.)|([^\\]))(?:-(?:\\(.)|([^\]\\])))?", re.DOTALL)
_TOKEN = re.compile(rf"\[(?P<negated>[!^]?+)(?P<members>(?>{_MEMBER.pattern})+?)\]|\\?.", re.DOTALL)
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
    except (ValueError, KeyError):  # Git never matches it: an open bracket, an unknown class, a backslash at the end
        return None


def _path(text: str) -> str:
    """A regular expression for a path. `**` between slashes is any number of folders; at the end, one name or more."""
    pieces = [[""]]  # of each name, what its stars divide
    for token in _TOKEN.finditer(text):
        match token[0]:
            case "/" | r"\/":
                pieces.append([""])
            case "*":
                pieces[-1].append("")
            case "?":
                pieces[-1][-1] += "[^/]"
            case "[" | "\\":
                raise ValueError(text)
            case sign:
                pieces[-1][-1] += _set(token) if token["members"] else re.escape(sign[-1])
    names = [_name(*each) for each in pieces]
    if _STARS.fullmatch(names[-1]):
        names.append("[^/]+")
    regex = block = ""
    for name in names[:-1]:
        if _STARS.fullmatch(name):
            regex, block = f"{regex}(?>{block})", "(?:[^/]+/)*?"
        else:
            block += f"{name}/"
    return regex + block + names[-1]


def _name(first: str, *others: str) -> str:
    """A name with a star before each of the others; two or more stars alone stay as they are."""
    if not others:
        return first
    if not first and not any(others):
        return "*" * len(others) if len(others) > 1 else "[^/]+"
    middle = "".join(f"(?>[^/]*?{piece})" for piece in others[:-1] if piece)
    return f"{first}{middle}[^/]*{others[-1]}"


def _set(token: re.Match[str]) -> str:
    body = ""
    for name, *signs in _MEMBER.findall(token["members"]):
        low, high = signs[0] or signs[1], signs[2] or signs[3]
        body += re.escape(low) if low else _POSIX[name]
        if high and low <= high:
            body += f"-{re.escape(high)}"
    return f"(?!/)[{'^' if token['negated'] else ''}{body}]"
