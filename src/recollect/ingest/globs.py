"""Patterns as Git reads them in a `.gitignore`, matched without backtracking.

The patterns of a file are compiled once (`Globs`). A walk then carries its position in them from folder to folder
(`GlobWalk`), so that one path costs at most one step for each part of each pattern, however the patterns are written.
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
_SETS = frozenset("?[\\")
_STARS = re.compile(r"\*+")
_NEVER = -1
"""The number of no pattern."""


class _Malformed(ValueError):
    """A pattern that Git never matches: an open bracket, an unknown class, a backslash at the end."""


class _Sets:
    """Characters and sets between two stars, each of which takes exactly one character. Compiled when first needed."""

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
    """A pattern for one name: pieces, with a star between each two of them."""

    __slots__ = ("first", "last", "least", "middle")

    def __init__(self, pieces: Sequence[_Piece]) -> None:
        self.first, self.middle = pieces[0], tuple(pieces[1:-1])
        self.last = pieces[-1] if len(pieces) > 1 else None
        self.least = sum(map(_length, pieces))

    @property
    def literal(self) -> str | None:
        """The one name that it matches, where there is only one."""
        return self.first if self.last is None and isinstance(self.first, str) else None

    def matches(self, name: str) -> bool:
        """Each piece at the first place where it fits: with stars between them, no later place could do better."""
        size = len(name)
        if size < self.least or not _stands(self.first, name, 0):
            return False
        if self.last is None:
            return size == self.least
        start, end = _length(self.first), size - _length(self.last)
        if not _stands(self.last, name, end):
            return False
        for piece in self.middle:
            at = _find(piece, name, start, end)
            if at < 0:
                return False
            start = at + _length(piece)
        return True


def _length(piece: _Piece) -> int:
    return len(piece) if isinstance(piece, str) else piece.length


def _stands(piece: _Piece, name: str, at: int) -> bool:
    return name.startswith(piece, at) if isinstance(piece, str) else piece.regex.match(name, at) is not None


def _find(piece: _Piece, name: str, start: int, end: int) -> int:
    if isinstance(piece, str):
        return name.find(piece, start, end)
    found = piece.regex.search(name, start, end)
    return found.start() if found else -1


@dataclass(frozen=True, slots=True)
class _Pattern:
    """One line: the segments of a path, where None is `**`, any number of folders."""

    number: int
    folders_only: bool
    segments: tuple[_Segment | None, ...]

    def reach(self, positions: Sequence[int]) -> tuple[int, ...]:
        """Positions, and those behind a `**` that takes no folder."""
        behind = {at + 1 for at in positions if at < len(self.segments) and self.segments[at] is None}
        return tuple(sorted(behind.union(positions))) if behind else tuple(positions)

    def step(self, positions: Sequence[int], name: str) -> tuple[int, ...]:
        """The positions after one more name of the path; behind the last segment nothing goes on."""
        after = []
        for at in positions:
            if at < len(self.segments):
                segment = self.segments[at]
                if segment is None:
                    after.append(at)
                elif segment.matches(name):
                    after.append(at + 1)
        return self.reach(after) if after else ()


class _Literals:
    """Patterns that name one text each, looked up instead of tried one by one; of equal ones the last counts."""

    def __init__(self) -> None:
        self._any: dict[str, int] = {}
        self._folders: dict[str, int] = {}

    def add(self, text: str, number: int, *, folders_only: bool) -> None:
        (self._folders if folders_only else self._any)[text] = number

    def last(self, text: str, *, is_folder: bool) -> int:
        """The number of the last pattern that names this text."""
        return max(self._any.get(text, _NEVER), self._folders.get(text, _NEVER) if is_folder else _NEVER)


class Globs:
    """The patterns of one ignore file. Of several that match a path, the last one decides."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.negated: list[bool] = []
        self.names, self.paths = _Literals(), _Literals()
        self.endings: dict[int, _Literals] = {}
        name_patterns: list[_Pattern] = []
        path_patterns: list[_Pattern] = []
        for line in lines:
            self._add(line, name_patterns, path_patterns)
        self.name_patterns = tuple(reversed(name_patterns))
        self.path_patterns = tuple(reversed(path_patterns))

    def walk(self) -> GlobWalk:
        """The position of a walk in the folder that the patterns belong to."""
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
        table = self._table(segments, anywhere=anywhere)
        if table is not None:
            table[0].add(table[1], number, folders_only=folders_only)
        else:
            (name_patterns if anywhere else path_patterns).append(_Pattern(number, folders_only, segments))

    def _table(self, segments: tuple[_Segment | None, ...], *, anywhere: bool) -> tuple[_Literals, str] | None:
        """Where a pattern can be looked up and as what: a name, a path, or the end of a name (`*.log`)."""
        texts = [segment.literal if segment else None for segment in segments]
        if None not in texts:
            return (self.names if anywhere else self.paths), "/".join(text or "" for text in texts)
        only = segments[0] if anywhere else None
        if only and only.first == "" and not only.middle and isinstance(only.last, str):
            return self.endings.setdefault(len(only.last), _Literals()), only.last
        return None


@dataclass(frozen=True, slots=True)
class GlobWalk:
    """Where a walk stands in some patterns: the folder, and how far each pattern with a path has matched it."""

    globs: Globs
    below: str
    live: tuple[tuple[_Pattern, tuple[int, ...]], ...]

    def decide(self, name: str, *, is_folder: bool = False) -> bool | None:
        """What the last pattern that matches a name in this folder says; None where none matches."""
        globs = self.globs
        best = max(
            globs.names.last(name, is_folder=is_folder), globs.paths.last(self.below + name, is_folder=is_folder)
        )
        for length, endings in globs.endings.items():
            if length <= len(name):
                best = max(best, endings.last(name[len(name) - length :], is_folder=is_folder))
        best = max(best, self._last_name(name, best, is_folder), self._last_path(name, best, is_folder))
        return None if best == _NEVER else not globs.negated[best]

    def enter(self, name: str) -> GlobWalk:
        """The position in a folder of this folder."""
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
    """A line without the spaces at its end, unless a backslash is before them."""
    line = line.removesuffix("\r")
    bare = line.rstrip(" ")
    backslashes = len(bare) - len(bare.rstrip("\\"))
    return bare + " " if backslashes % 2 and bare != line else bare


def _segments(text: str) -> tuple[_Segment | None, ...]:
    """A pattern in its parts. Two or more stars between slashes are None; at the end they take at least one name."""
    segments: list[_Segment | None] = []
    for stars, pieces in _quick_parts(text) if _SETS.isdisjoint(text) else _parts(_tokens(text)):
        if not stars:
            segments.append(_Segment(pieces))
        elif not segments or segments[-1] is not None:
            segments.append(None)
    if segments[-1] is None:
        segments.append(_Segment(("", "")))
    return tuple(segments)


def _quick_parts(text: str) -> Iterator[tuple[bool, Sequence[_Piece]]]:
    """The parts of a pattern that has no sets and no escapes: whether it is `**`, and its pieces."""
    for part in text.split("/"):
        yield len(part) > 1 and not part.strip("*"), _STARS.split(part)


def _parts(tokens: Iterable[str]) -> Iterator[tuple[bool, Sequence[_Piece]]]:
    """The same of any pattern."""
    part: list[str] = []
    for sign in chain(tokens, "/"):
        if sign != "/":
            part.append(sign)
            continue
        runs: list[list[str]] = [[]]
        for star, run in groupby(part, "*".__eq__):
            runs += [[]] if star else []
            runs[-1] += [] if star else run
        yield len(part) > 1 and set(part) == {"*"}, [_piece(run) for run in runs]
        part = []


def _piece(run: Sequence[str]) -> _Piece:
    """Tokens without a star: a text where they are only characters, else a regular expression of as many sets."""
    if all(len(token) == 1 for token in run):
        return "".join(run)
    return _Sets("".join(re.escape(token) if len(token) == 1 else token for token in run), len(run))


def _tokens(text: str) -> Iterator[str]:
    """Single characters stand for themselves, `*` for a star, `/` for a slash; what is longer is a set.

    An escaped star is a set of one, so that it is not taken for a star.
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
    """The set that begins behind a `[`, and where it ends. It follows Git's reading of ranges, classes and escapes."""
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
