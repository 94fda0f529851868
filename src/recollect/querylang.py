"""The query language: phrases, exclusions, prefixes and fields in the text of a query; all other text is plain.

An operator is recognised only at the start of a word, with a value that is not empty: `"two weeks off"`, `-redis`,
`tardig*`, `tag:work`. So URLs, `std::map`, `-5 degrees`, `note: buy milk` and `state-of-the-art` are plain text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from recollect.analysis import Analyzer

FIELDS = ("tag", "path", "category", "user", "since", "before")
LONGEST = 150  # characters of a query that has operators; a longer text, or several lines, was pasted and is plain
LEAST_EXCLUDED = 3  # ASCII letters of an excluded word: `ls -la`, `rm -rf` and `a -b` are plain text
CACHED = 256

PartKind: TypeAlias = Literal["text", "phrase", "without", "prefix", "field"]

_END = r"""(?=[.,;!?)]*(?:\s|$))"""
_QUOTED = r"""(?:"(?P<{0}>[^"]*)"|[“„](?P<{0}_curly>[^“”"]*)[“”])"""
# Compiled with the first query that has an operator: plain queries do not wait for that.
_OPERATOR = rf"""(?<!\S)(?:
        (?P<minus>-?){_QUOTED.format("phrase")}{_END}
      | -(?P<word>[^\W\d_][\w.'’+\#-]*?){_END}
      | (?P<prefix>[^\W\d_][\w-]+)\*{_END}
      | (?P<field>{"|".join(FIELDS)}):(?:{_QUOTED.format("value")}|(?P<bare>[^\s":“„][^\s"“„]*?)){_END}
      | (?P<open>-?["“„])(?=\w[^"“”„]*$)
    )"""
_MAY_HAVE = re.compile(r'["“„*:]|(?:^|\s)-')
_PIECE = r"[0-9]+(?:[.,][0-9]+)+|\w+(?:\+\+|#)?"
_CONTRACTED = r"\w+(?:['’]\w+)+"
_SPACELESS = r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"


class QueryPart(NamedTuple):
    """A piece of a query: what it is, as it was written, and its value; a field has a name."""

    kind: PartKind
    raw: str
    value: str
    name: str = ""


class ParsedQuery(NamedTuple):
    """The parts of a query in their order, and notes about what looks like an operator and is none."""

    parts: tuple[QueryPart, ...]
    notes: tuple[str, ...] = ()


def parse(text: str) -> ParsedQuery:
    """The parts of a query. Never fails: what is no operator is text."""
    if len(text) > LONGEST or "\n" in text or not _MAY_HAVE.search(text):
        return ParsedQuery((QueryPart("text", text, text),))
    parts, notes, end = list[QueryPart](), list[str](), 0
    question = text.rstrip().endswith("?")
    for match in re.finditer(_OPERATOR, text, re.VERBOSE):
        if question and not match["field"]:  # it may name a title in quotation marks, which the answer need not do
            continue
        if match["open"]:
            notes.append(f"the quotation mark before {_word_at(text, match.end())!r} is not closed: it is plain text")
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
    """Whether an exclusion is one word, which is compared by its index term; others are phrases."""
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


def unwanted(without: Iterable[str], title: str, text: str, analyzer: Analyzer) -> Iterator[str]:
    """The excluded words and phrases that a record contains."""
    terms: frozenset[str] | None = None
    for wording in without:
        if is_word(wording):
            if terms is None:
                terms = frozenset(token.term for part in (title, text) for token in analyzer.tokens(part))
            if term_of(wording, analyzer) in terms:
                yield wording
        elif has_phrase(wording, title, text):
            yield wording
