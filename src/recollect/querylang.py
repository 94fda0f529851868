"""The query language: phrases, exclusions, prefixes, fields, AND, OR and NOT in a query; all other text is plain.

An operator is recognised only at the start of a word, with a value that is not empty: `"two weeks off"`, `-redis`,
`tardig*`, `tag:work`. So URLs, `std::map`, `-5 degrees`, `note: buy milk` and `state-of-the-art` are plain text.
AND, OR and NOT are written in capital letters, and stand between words or phrases.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from recollect.analysis import Analyzer

FIELDS = ("tag", "path", "category", "kind", "user", "since", "after", "before", "until")
UNKNOWN_FIELDS = (  # of other programs, or our own filters: a note says that they are none here
    "agent", "as-of", "as_of", "author", "created", "date", "dir", "file", "filename", "folder", "from", "has", "in",
    "is", "label", "modified", "on", "origin", "scope", "session", "source", "superseded", "tags", "title", "to",
    "type",
)  # fmt: skip
LONGEST = 150  # characters of a query that has operators; a longer text, or several lines, was pasted and is plain
LEAST_EXCLUDED = 3  # ASCII letters of an excluded word: `ls -la`, `rm -rf` and `a -b` are plain text
CACHED = 256

NO_EXCLUDED_FIELD = "records cannot be excluded by a field"
MOST_GROUPS = 32  # groups of wordings that AND and OR may make

PartKind: TypeAlias = Literal["text", "phrase", "without", "prefix", "field", "required"]

_END = r"""(?=[.,;!?)]*(?:\s|$))"""
_QUOTED = r"""(?:"(?P<{0}>[^"]*)"|[“„](?P<{0}_curly>[^“”"]*)[“”])"""
# Compiled with the first query that has an operator: plain queries do not wait for that.
_OPERATOR = rf"""(?:
        (?P<minus>-?){_QUOTED.format("phrase")}{_END}
      | -(?P<word>[^\W\d_][\w.'’+\#-]*?){_END}
      | (?P<prefix>[^\W\d_][\w-]+)\*{_END}
      | (?P<field>{"|".join(FIELDS)}):(?:{_QUOTED.format("value")}|(?P<bare>[^\s":“„][^\s"“„]*?)){_END}
      | (?P<excluded_field>-(?:{"|".join(FIELDS)}):\S+){_END}
      | (?P<unknown_field>-?(?:{"|".join(UNKNOWN_FIELDS)}):[^\s:/\\]\S*)
      | (?P<open>-?["“„])(?=\w[^"“”„]*$)
    )"""
_MAY_HAVE = re.compile(r'["“„*:]|(?:^|\s)-')
_JOINS = ("AND", "OR", "NOT")
_MAY_JOIN = re.compile(rf"(?<![^\s(])(?:{'|'.join(_JOINS)})(?!\S)")
_BRACKETED = r"(?=\S)(\(*)(\S*?)(?:(\)+)[.,;:!?]*)?(?!\S)"
_STRESSED_AFTER = (  # NOT excludes nothing there: "does NOT work"
    r"(?i:if|why|am|are|can|could|did|do|does|had|has|have|is|may|might|must|shall|should|was|were|will|would)"
)
_PIECE = r"[0-9]+(?:[.,][0-9]+)+|\w+(?:\+\+|#)?"
_CONTRACTED = r"\w+(?:['’]\w+)+"
_SPACELESS = r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"


class QueryPart(NamedTuple):
    """A piece of a query: what it is, as it was written, and its value; a field has a name.

    Of wordings that AND and OR join, the value is the text to search for; a record has one wording of each group.
    """

    kind: PartKind
    raw: str
    value: str
    name: str = ""
    groups: tuple[tuple[str, ...], ...] = ()


class ParsedQuery(NamedTuple):
    """The parts of a query in their order, and notes about what looks like an operator and is none."""

    parts: tuple[QueryPart, ...]
    notes: tuple[str, ...] = ()


def parse(text: str) -> ParsedQuery:
    """The parts of a query. Never fails: what is no operator is text."""
    if len(text) > LONGEST or "\n" in text:
        return ParsedQuery((QueryPart("text", text, text),))
    if _MAY_JOIN.search(text) and not text.rstrip().endswith("?"):
        return _joined(text)
    return _parse(text) if _MAY_HAVE.search(text) else ParsedQuery((QueryPart("text", text, text),))


def _joined(text: str) -> ParsedQuery:
    """The parts of a query with AND, OR or NOT. If these cannot be read, they are plain text."""
    parsed = _parse(text, before=r"(?<![^\s(])")
    try:
        joins = _Joins(text, parsed.parts)
        return ParsedQuery(tuple(joins.parts()), (*parsed.notes, *joins.notes))
    except _NotJoined as reason:
        parsed = _parse(text, before=r"(?<!\S)(?<!NOT\s)")  # what NOT excludes must not be required
        return ParsedQuery(parsed.parts, (*parsed.notes, f"{reason.operator} is plain text: {reason}"))


def _parse(text: str, before: str = r"(?<!\S)") -> ParsedQuery:
    """The parts of a query without AND, OR and NOT; `before` is a pattern of what stands before an operator."""
    parts, notes, end = list[QueryPart](), list[str](), 0
    question = text.rstrip().endswith("?")
    for match in re.finditer(before + _OPERATOR, text, re.VERBOSE):
        if question and not match["field"]:  # it may name a title in quotation marks, which the answer need not do
            continue
        if match["open"]:
            notes.append(f"the quotation mark before {_word_at(text, match.end())!r} is not closed: it is plain text")
            continue
        if match["excluded_field"]:
            notes.append(f"{match.group()} is plain text: {NO_EXCLUDED_FIELD}")
            continue
        if match["unknown_field"]:
            notes.append(f"{match.group()} is plain text: the fields are {', '.join(FIELDS)}")
            continue
        part, note = _part(match)
        notes += [note] if note else []
        if part is not None:
            parts += _plain(text[end : match.start()])
            parts.append(part)
            end = match.end()
    return ParsedQuery((*parts, *_plain(text[end:])), tuple(notes))


def _plain(text: str) -> list[QueryPart]:
    return [QueryPart("text", text, text.strip())] if text.strip() else []


def _word_at(text: str, start: int) -> str:
    return text[start : start + 30].split(maxsplit=1)[0]


def _part(match: re.Match[str]) -> tuple[QueryPart | None, str]:
    """The operator that a match is, or None and perhaps the reason why it is plain text."""
    raw = match.group()
    if (prefix := match["prefix"]) is not None:
        return QueryPart("prefix", raw, prefix), ""
    if (word := match["word"]) is not None:
        word = word.rstrip(".-'’")
        if word.isascii() and len(word) < LEAST_EXCLUDED:
            note = f"{raw} is plain text: an excluded word has {LEAST_EXCLUDED} letters or more"
            return None, note if len(word) > 1 else ""
        return QueryPart("without", raw, word), ""
    if (name := match["field"]) is not None:
        value = next(filter(None, (match["value"], match["value_curly"], match["bare"])), "").strip()
        return (QueryPart("field", raw, value, name), "") if value else (None, f"{raw} is plain text: it has no value")
    phrase = (match["phrase"] or match["phrase_curly"] or "").strip()
    if not re.search(_PIECE, phrase):
        return None, f"{raw} is plain text: there is no word between the quotation marks"
    return QueryPart("without" if match["minus"] else "phrase", raw, phrase), ""


# -- AND, OR and NOT -----------------------------------------------------------------------------------------


class _NotJoined(Exception):
    """Why one of AND, OR and NOT is plain text."""

    def __init__(self, operator: str, reason: str) -> None:
        super().__init__(reason)
        self.operator = operator


class _Token(NamedTuple):
    """A word, a parenthesis, one of AND, OR and NOT, or an operator, and where it stands in the query."""

    part: QueryPart
    start: int
    join: str = ""

    @property
    def end(self) -> int:
        return self.start + len(self.part.raw)


class _Wording(NamedTuple):
    """A word or a phrase that a record must contain, or must not."""

    value: str
    excluded: bool = False


class _Joins:
    """Reads what AND, OR and NOT join. AND comes before OR; parentheses come before both.

    An expression is a list of groups. A record meets it if it meets one wording of each group.
    """

    def __init__(self, text: str, parts: Sequence[QueryPart]) -> None:
        self._text, self._tokens, self._at = text, list(_tokens(text, parts)), 0
        stressed = any(token.part.value == "NOT" and not token.join for token in self._tokens)
        self.notes = ("NOT is plain text where it stresses a word: write -word to exclude one",) if stressed else ()

    def parts(self) -> Iterator[QueryPart]:
        """The parts of the query, in order. Words that nothing joins are text, also in parentheses."""
        end = 0
        while self._at < len(self._tokens):
            start = self._tokens[self._at].start
            parts = self._expression()
            if parts[0].kind != "text":
                yield from _plain(self._text[end:start])
                yield from parts
                end = self._tokens[self._at - 1].end
        yield from _plain(self._text[end:])

    def _expression(self) -> list[QueryPart]:
        """The next expression; one token, if nothing is joined there."""
        first = self._at
        try:
            groups = self._either()
        except _NotJoined:
            if self._joined(first):
                raise
        else:
            if self._joined(first):
                return self._required(first, groups)
        self._at = first + 1
        return [self._tokens[first].part]

    def _joined(self, first: int) -> bool:
        return any(token.join in _JOINS for token in self._tokens[first : max(self._at, first + 1)])

    def _required(self, first: int, groups: Sequence[Sequence[_Wording]]) -> list[QueryPart]:
        raw = self._text[self._tokens[first].start : self._tokens[self._at - 1].end]
        wanted = [tuple(wording.value for wording in group) for group in groups if not group[0].excluded]
        value = " ".join(dict.fromkeys(wording for group in wanted for wording in group))
        parts = [QueryPart("required", raw, value, groups=tuple(wanted))] if wanted else []
        parts += [QueryPart("without", raw, group[0].value) for group in groups if group[0].excluded]
        return [parts[0], *(part._replace(raw="") for part in parts[1:])]

    def _next(self) -> str:
        return self._tokens[self._at].join if self._at < len(self._tokens) else ""

    def _either(self) -> list[tuple[_Wording, ...]]:
        groups = self._both()
        while self._next() == "OR":
            self._at += 1
            groups = [(*group, *other) for other in self._both() for group in groups]
            if any(wording.excluded for group in groups for wording in group):
                raise _NotJoined("OR", "it cannot join an excluded word")
            if len(groups) > MOST_GROUPS:
                raise _NotJoined("OR", "the expression is too long")
        return groups

    def _both(self) -> list[tuple[_Wording, ...]]:
        groups = self._one()
        while self._next() == "AND":
            self._at += 1
            groups += self._one()
        return groups

    def _one(self) -> list[tuple[_Wording, ...]]:
        """An expression in parentheses, or a wording, perhaps after NOT."""
        before = [token.join for token in self._tokens[: self._at + 1] if token.join in _JOINS]
        join = before[-1] if before else "AND"
        if self._at == len(self._tokens) or self._next() in ("AND", "OR", ")"):
            if self._at and self._tokens[self._at - 1].part.kind == "field":
                _wording(self._tokens[self._at - 1].part, join)
            raise _NotJoined(join, "a word or a phrase is missing beside it")
        token = self._tokens[self._at]
        self._at += 1
        if token.join == "(":
            groups = self._either()
            if self._next() != ")":
                raise _NotJoined(join, "the words in parentheses are not all joined by AND or OR")
            self._at += 1
            return groups
        if token.join == "NOT":
            group, *others = self._one()
            if others or any(wording.excluded for wording in group):
                raise _NotJoined("NOT", "it excludes words and phrases, and those that OR joins in parentheses")
            return [(_Wording(wording.value, excluded=True),) for wording in group]
        return [(_wording(token.part, join),)]


def _wording(part: QueryPart, join: str) -> _Wording:
    if part.kind == "field" and join == "NOT":
        raise _NotJoined(join, NO_EXCLUDED_FIELD)
    if part.kind in ("field", "prefix"):
        instead = "a record must match every field" if part.kind == "field" else "write it beside the other words"
        raise _NotJoined(join, f"{part.raw} cannot be joined; {instead}")
    value = part.value.strip(".,;:!?'’[]{}<>") if part.kind == "text" else part.value
    if not re.search(_PIECE, value):
        raise _NotJoined(join, f"there is no word in {part.raw}")
    return _Wording(value, part.kind == "without")


def _is_stressed(before: str, after: str) -> bool:
    """Whether NOT is plain text between two others: "does NOT work", "MUST NOT", "404 NOT FOUND"."""
    *_, last = before.split() or [""]
    if re.fullmatch(_STRESSED_AFTER, last):
        return True
    return last not in _JOINS and re.match(r"\s+[A-Z]{2,}\b", after) is not None


def _tokens(text: str, parts: Sequence[QueryPart]) -> Iterator[_Token]:
    """The operators, and the words of the rest without the parentheses around them."""
    end = 0
    for part in parts:
        start = text.index(part.raw, end)
        end = start + len(part.raw)
        if part.kind != "text":
            yield _Token(part, start)
            continue
        for word in re.compile(_BRACKETED).finditer(text, start, end):
            at = word.start()
            for piece in filter(None, (*word[1], word[2], *(word[3] or ""))):
                stressed = piece == "NOT" and _is_stressed(text[:at], text[word.end() :])
                is_join = piece in (*_JOINS, "(", ")") and not stressed
                yield _Token(QueryPart("text", piece, piece), at, piece if is_join else "")
                at += len(piece)


# -- which records contain a wording -----------------------------------------------------------------------


@lru_cache(CACHED)
def _pattern(phrase: str) -> re.Pattern[str]:
    """Matches the words of a phrase in folded text, with anything but words between them."""
    pieces = re.findall(_PIECE, folded(phrase))
    joined = r"[\W_]+?".join(map(re.escape, pieces))
    number = r"(?<![0-9][.,])" if pieces[0][0].isdigit() else ""
    before = "" if re.match(_SPACELESS, pieces[0][0]) else rf"(?<!\w){number}"
    after = "" if re.match(_SPACELESS, pieces[-1][-1]) else r"(?!\w)"
    after += r"(?![.,][0-9])" if pieces[-1][-1].isdigit() else ""
    return re.compile(f"{before}{joined}{after}")


def folded(text: str) -> str:
    """The text in one form for all spellings of case and width."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def has_phrase(phrase: str, *texts: str) -> bool:
    """Whether one of the texts contains the words of a phrase, next to each other and in this order."""
    pattern = _pattern(phrase)
    return any(pattern.search(folded(text)) is not None for text in texts)


def is_word(wording: str) -> bool:
    """Whether a wording is one word, which is compared by its index term; others are phrases."""
    return re.fullmatch(_PIECE, wording) is not None and not re.search(_SPACELESS, wording)


def term_of(word: str, analyzer: Analyzer) -> str:
    """The index term of a word; of an identifier, that of the whole."""
    return next((token.term for token in analyzer.tokens(word)), word)


def needed_terms(phrase: str, analyzer: Analyzer) -> list[list[list[str]]]:
    """For each word of a phrase the sets of index terms of which a record with the phrase has one, whole.

    Words that are part of a longer one give other terms, so the terms only lead to records that are then read. A word
    with an apostrophe is one term or several, depending on what it is, and is left out, as are single letters.
    """
    pieces = [
        piece
        for piece in dict.fromkeys(re.findall(_PIECE, re.sub(_CONTRACTED, " ", phrase)))
        if len(piece) > 1 or piece.isdecimal() or re.match(_SPACELESS, piece)
    ]
    return _needed(pieces, analyzer, stops=False) or _needed(pieces, analyzer, stops=True)


def _needed(pieces: Sequence[str], analyzer: Analyzer, *, stops: bool) -> list[list[list[str]]]:
    needed = []
    for piece in pieces:
        parts, whole = (
            [token.term for token in analyzer.tokens(text) if stops or not token.stop]
            for text in (piece, folded(piece))
        )
        if re.search(_SPACELESS, piece):
            needed.append([parts])
        elif parts and whole:
            needed.append([whole[:1], parts[1:]] if len(parts) > 1 else [whole[:1]])
    return needed


def missing(phrases: Sequence[str], title: str, text: str) -> list[str]:
    """The phrases that a record does not contain."""
    return [phrase for phrase in phrases if not has_phrase(phrase, title, text)]


def contained(wordings: Iterable[str], title: str, text: str, analyzer: Analyzer) -> Iterator[str]:
    """The words and phrases that a record contains. Words are compared by their index terms."""
    terms: frozenset[str] | None = None
    for wording in wordings:
        if is_word(wording):
            if terms is None:
                terms = frozenset(token.term for part in (title, text) for token in analyzer.tokens(part))
            if term_of(wording, analyzer) in terms:
                yield wording
        elif has_phrase(wording, title, text):
            yield wording
