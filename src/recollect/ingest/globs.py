"""Patterns of a `.gitignore` file, read as Git reads them and matched without backtracking.

The patterns of a file are compiled once (`Globs`). A walk then carries its position in them from folder to folder
(`GlobWalk`), so one path costs at most one step for each part of each pattern, whatever the patterns are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import TypeAlias

_POSIX = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "blank": " \t", "cntrl": "\x00-\x1f\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": "!-/:-@\\[-`{-~", "space": " \t-\r", "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}  # fmt: skip
_SPECIAL = frozenset("?[\\")
_NEVER = -1
"""A number below that of every pattern."""


class _Malformed(ValueError):
    """A pattern that Git never matches: an open bracket, an unknown class, a backslash at the end."""


class _Sets:
    """Characters and sets between two stars, each for exactly one character. The regex is compiled at first use."""

    __slots__ = ("_regex", "_source", "length")

    def __init__(self, source: str, length: int) -> None:
        self._source, self.length = source, length
        self._regex: re.Pattern[str] | None = None

    @property
    def regex(self) -> re.Pattern[str]:
        if self._regex is None:
            self._regex = re.compile(self._source, re.DOTALL)
        return self._regex


_Piece: TypeAlias = str | _Sets


class _Segment:
    """A pattern for one name: pieces with a star between each two."""

    __slots__ = ("first", "last", "least", "middle")

    def __init__(self, pieces: Sequence[_Piece]) -> None:
        self.first, self.middle = pieces[0], tuple(pieces[1:-1])
        self.last = pieces[-1] if len(pieces) > 1 else None
        self.least = sum(map(_length, pieces))

    @property
    def literal(self) -> str | None:
        """The only name that it matches, if there is only one."""
        return self.first if self.last is None and isinstance(self.first, str) else None

    def matches(self, name: str) -> bool:
        """Each piece at the first position where it fits: with stars between them, no later position is better."""
        size = len(name)
        if size < self.least or not _is_at(self.first, name, 0):
            return False
        if self.last is None:
            return size == self.least
        start, end = _length(self.first), size - _length(self.last)
        if not _is_at(self.last, name, end):
            return False
        for piece in self.middle:
            at = _find(piece, name, start, end)
            if at < 0:
                return False
            start = at + _length(piece)
        return True


def _length(piece: _Piece) -> int:
    return len(piece) if isinstance(piece, str) else piece.length


def _is_at(piece: _Piece, name: str, at: int) -> bool:
    return name.startswith(piece, at) if isinstance(piece, str) else piece.regex.match(name, at) is not None


def _find(piece: _Piece, name: str, start: int, end: int) -> int:
    if isinstance(piece, str):
        return name.find(piece, start, end)
    match = piece.regex.search(name, start, end)
    return match.start() if match else -1


@dataclass(frozen=True, slots=True)
class _Pattern:
    """One line of a file: the segments of a path. None is `**`, any number of folders."""

    number: int
    folders_only: bool
    segments: tuple[_Segment | None, ...]

    def reach(self, positions: Sequence[int]) -> tuple[int, ...]:
        """The positions, with those after a `**` that matches no folder."""
        behind = {at + 1 for at in positions if at < len(self.segments) and self.segments[at] is None}
        return tuple(sorted(behind.union(positions))) if behind else tuple(positions)

    def step(self, positions: Sequence[int], name: str) -> tuple[int, ...]:
        """The positions after one more name of the path."""
        after = []
        for at in positions:
            if at < len(self.segments):
                segment = self.segments[at]
                if segment is None:
                    after.append(at)
                elif segment.matches(name):
                    after.append(at + 1)
        return self.reach(after) if after else ()


_Table: TypeAlias = dict[tuple[str, bool], int]
"""Patterns that match only one text, for lookup: (text, only for folders) → number of the last such pattern."""


def _last(table: _Table, text: str, is_folder: bool) -> int:
    """The number of the last pattern in a table that matches a text."""
    number = table.get((text, False), _NEVER)
    return max(number, table.get((text, True), _NEVER)) if is_folder else number


class Globs:
    """The patterns of one ignore file. If several match a path, the last one decides."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.negated: list[bool] = []
        self.names: _Table = {}
        self.paths: _Table = {}
        self.endings: dict[int, _Table] = {}
        name_patterns: list[_Pattern] = []
        path_patterns: list[_Pattern] = []
        for line in lines:
            self._add(line, name_patterns, path_patterns)
        self.name_patterns = tuple(reversed(name_patterns))
        self.path_patterns = tuple(reversed(path_patterns))

    def walk(self) -> GlobWalk:
        """A walk that begins in the folder of the patterns."""
        return GlobWalk(self, "", tuple((pattern, pattern.reach((0,))) for pattern in self.path_patterns))

    def _add(self, line: str, name_patterns: list[_Pattern], path_patterns: list[_Pattern]) -> None:
        text = _trimmed(line)
        if not text or text.startswith("#"):
            return
        negated = text.startswith("!")
        text = text[negated:]
        folders_only = text.endswith("/")
        text = text[:-1] if folders_only else text
        anywhere = "/" not in text
        try:
            segments = _segments(text.removeprefix("/"))
        except _Malformed:
            return
        if not anywhere and len(segments) == 2 and segments[0] is None:  # noqa: PLR2004  (`**/name` is `name`)
            anywhere, segments = True, segments[1:]
        number = len(self.negated)
        self.negated.append(negated)
        table, key = self._table(segments, anywhere=anywhere)
        if table is not None:
            table[key, folders_only] = number
        else:
            (name_patterns if anywhere else path_patterns).append(_Pattern(number, folders_only, segments))

    def _table(self, segments: tuple[_Segment | None, ...], *, anywhere: bool) -> tuple[_Table | None, str]:
        """The table for a pattern and its key there: a name, a path, or the end of a name (`*.log`)."""
        texts = [segment.literal if segment else None for segment in segments]
        if None not in texts:
            return (self.names if anywhere else self.paths), "/".join(text or "" for text in texts)
        only = segments[0] if anywhere else None
        if only and only.first == "" and not only.middle and isinstance(only.last, str):
            return self.endings.setdefault(len(only.last), {}), only.last
        return None, ""


@dataclass(frozen=True, slots=True)
class GlobWalk:
    """The state of a walk: the folder, and how far each pattern with a path has matched it."""

    globs: Globs
    below: str
    live: tuple[tuple[_Pattern, tuple[int, ...]], ...]

    def decide(self, name: str, *, is_folder: bool = False) -> bool | None:
        """Whether a name in this folder is ignored (True) or included again (False); None if no pattern matches."""
        globs = self.globs
        best = max(_last(globs.names, name, is_folder), _last(globs.paths, self.below + name, is_folder))
        for length, endings in globs.endings.items():
            if length <= len(name):
                best = max(best, _last(endings, name[len(name) - length :], is_folder))
        best = max(best, self._last_name(name, best, is_folder), self._last_path(name, best, is_folder))
        return None if best == _NEVER else not globs.negated[best]

    def enter(self, name: str) -> GlobWalk:
        """The state in a subfolder."""
        after = []
        for pattern, positions in self.live:
            reached = pattern.step(positions, name)
            if reached and reached != (len(pattern.segments),):
                after.append((pattern, positions if reached == positions else reached))
        return GlobWalk(self.globs, f"{self.below}{name}/", tuple(after))

    def _last_name(self, name: str, best: int, is_folder: bool) -> int:
        for pattern in self.globs.name_patterns:
            if pattern.number < best:
                break
            segment = pattern.segments[0]
            if (is_folder or not pattern.folders_only) and (segment is None or segment.matches(name)):
                return pattern.number
        return _NEVER

    def _last_path(self, name: str, best: int, is_folder: bool) -> int:
        for pattern, positions in self.live:
            if pattern.number < best:
                break
            if (is_folder or not pattern.folders_only) and len(pattern.segments) in pattern.step(positions, name):
                return pattern.number
        return _NEVER


def _trimmed(line: str) -> str:
    """A line without the spaces at its end; a space after a backslash stays."""
    line = line.removesuffix("\r")
    bare = line.rstrip(" ")
    backslashes = len(bare) - len(bare.rstrip("\\"))
    return bare + " " if backslashes % 2 and bare != line else bare


def _segments(text: str) -> tuple[_Segment | None, ...]:
    """The segments of a pattern. Two or more stars between slashes are None; at the end they match one name or more."""
    segments: list[_Segment | None] = []
    for part in _parts(text):
        if len(part) < 2 or set(part) != {"*"}:  # noqa: PLR2004  (`**`)
            runs: list[list[str]] = [[]]
            for is_star, run in groupby(part, "*".__eq__):
                runs += [[]] if is_star else []
                runs[-1] += [] if is_star else run
            segments.append(_Segment([_piece(run) for run in runs]))
        elif not segments or segments[-1] is not None:
            segments.append(None)
    if segments[-1] is None:
        segments.append(_Segment(("", "")))
    return tuple(segments)


def _parts(text: str) -> Iterator[Sequence[str]]:
    """The tokens of a pattern, split at slashes."""
    if _SPECIAL.isdisjoint(text):
        yield from text.split("/")
        return
    part: list[str] = []
    for token in chain(_tokens(text), "/"):
        if token != "/":  # noqa: S105
            part.append(token)
        else:
            yield part
            part = []


def _piece(run: Sequence[str]) -> _Piece:
    """Tokens without a star: a text if all are characters, else a regular expression with as many sets."""
    if all(len(token) == 1 for token in run):
        return "".join(run)
    return _Sets("".join(re.escape(token) if len(token) == 1 else token for token in run), len(run))


def _tokens(text: str) -> Iterator[str]:
    """Tokens of a pattern: a single character, `*` or `/` is itself; a longer token is a set, as a regular expression.

    An escaped star is a set of one character, to tell it from a star.
    """
    at = 0
    while at < len(text):
        sign = text[at]
        at += 1
        if sign == "?":
            yield "(?s:.)"
        elif sign == "[":
            token, at = _set(text, at)
            yield token
        elif sign == "\\":
            if at == len(text):
                raise _Malformed
            yield "[*]" if text[at] == "*" else text[at]
            at += 1
        else:
            yield sign


def _set(text: str, at: int) -> tuple[str, int]:
    """The set that begins after a `[`, and where it ends. Ranges, classes and escapes are read as Git reads them."""
    negated = text[at : at + 1] in ("!", "^") and text[at : at + 1] != ""
    at += negated
    parts: list[str] = []
    before = ""
    first = True
    while first or text[at : at + 1] != "]":
        first = False
        part, before, at = _member(text, at, before)
        parts.append(part)
    body = "".join(parts)
    if negated:
        return f"[^{body}]" if body else "(?s:.)", at + 1
    return f"[{body}]" if body else "(?!)", at + 1


def _member(text: str, at: int, before: str) -> tuple[str, str, int]:
    """One member of a set, the character that a range may begin with, and where the next member begins."""
    sign, rest = text[at : at + 1], text[at + 1 : at + 2]
    if not sign or (sign == "\\" and not rest):
        raise _Malformed
    if sign == "\\":
        return _escaped(rest), rest, at + 2
    if sign == "-" and before and rest not in ("", "]"):
        if rest == "\\":
            at += 1
            rest = text[at + 1 : at + 2]
            if not rest:
                raise _Malformed
        return f"{_escaped(before)}-{_escaped(rest)}" if before <= rest else "", "", at + 2
    if sign == "[" and rest == ":":
        end = text.find("]", at + 2)
        if end < 0:
            raise _Malformed
        if end > at + 2 and text[end - 1] == ":":
            name = text[at + 2 : end - 1]
            if name not in _POSIX:
                raise _Malformed
            return _POSIX[name], "", end + 1
    return _escaped(sign), sign, at + 1


def _escaped(sign: str) -> str:
    return "\\" + sign if sign in "\\]^-[&~|" else sign
