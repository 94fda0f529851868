"""The chain itself: `Analyzer.tokens` for documents, `Analyzer.query` for queries."""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from recollect.analysis.stopwords import STOPWORDS

if TYPE_CHECKING:
    from regex import Pattern

VERSION = 1
"""Raised whenever the same text would give other terms: an index built by another version is rebuilt."""

LANGUAGES = (
    "none", "arabic", "armenian", "basque", "catalan", "danish", "dutch", "english", "esperanto", "estonian",
    "finnish", "french", "german", "greek", "hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian",
    "nepali", "norwegian", "portuguese", "romanian", "russian", "serbian", "spanish", "swedish", "tamil",
    "turkish", "yiddish",
)  # fmt: skip
"""Languages with a Snowball stemmer; `none` keeps words as they are written."""

MAX_TERM = 80
"""Characters; longer "words" are encoded data that nobody types, and are cut."""

MAX_QUERY_TERMS = 512
"""Distinct terms of one query; what follows in a megabyte of pasted text changes nothing a person would notice."""

KEPT_WORDS = 100_000
"""Words whose terms are remembered, in each thread: about 20 MB; a language has no more that matter."""

_SPACELESS = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\u30fc\uff70"
_LETTER = rf"[[\p{{L}}\p{{M}}\p{{N}}_]--[{_SPACELESS}]]"
_WORDS = rf"""
    (?P<run>[{_SPACELESS}][{_SPACELESS}\p{{M}}]*)
  | (?P<word>{_LETTER}+ (?: (?:[.\-\u2010\u2011/\\:@&'\u2019] | (?<=\p{{N}}),(?=\p{{N}})) {_LETTER}+)* (?:\+\+|\#)?)
  | (?P<sign>\p{{Extended_Pictographic}})
"""
_PARTS = r"""
    \p{N}+(?:[.,]\p{N}+)+                # a version or a number stays whole
  | \p{N}+
  | \p{Lu}+(?![\p{Ll}\p{M}])             # HTTP in HTTPServer
  | \p{Lu}?[\p{L}\p{M}--\p{Lu}]+         # Server, server, and scripts without case
  | \p{Lu}
"""


@dataclass(frozen=True, slots=True)
class Token:
    """One index term and where in the text it stands."""

    term: str
    start: int
    end: int
    stop: bool = False


@dataclass(frozen=True)
class Analyzer:
    """Turns text into terms for one language."""

    language: str = "english"
    _local: threading.local = field(default_factory=threading.local, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.language not in LANGUAGES:
            raise ValueError(f"unknown language {self.language!r}; there are {', '.join(LANGUAGES)}")

    @property
    def fingerprint(self) -> str:
        """Two analyzers with the same fingerprint give the same terms."""
        return f"{VERSION}:{self.language}"

    def tokens(self, text: str) -> Iterator[Token]:
        """The terms of a document, stop words marked, in the order of the text."""
        words, terms_of = self._words, self._terms_of
        for match in words.finditer(text):
            start, end = match.span()
            if match.lastgroup == "run":
                yield from _grams(match.group(), start)
            else:
                for term, stop in terms_of(match.group()):
                    yield Token(term, start, end, stop)

    def query(self, text: str) -> list[str]:
        """The distinct terms of a query: no stop words, unless it has nothing else; pairs, not single characters."""
        kept: dict[str, None] = {}
        stops: dict[str, None] = {}
        for match in self._words.finditer(text):
            if match.lastgroup == "run":
                kept.update(dict.fromkeys(_query_grams(match.group())))
            else:
                for term, stop in self._terms_of(match.group()):
                    (stops if stop else kept)[term] = None
            if len(kept) >= MAX_QUERY_TERMS:
                break
        return list(kept or stops)[:MAX_QUERY_TERMS]

    @property
    def _words(self) -> Pattern[str]:
        return _patterns()[0]

    def _terms_of(self, word: str) -> tuple[tuple[str, bool], ...]:
        cache: dict[str, tuple[tuple[str, bool], ...]] = self._local.__dict__.setdefault("cache", {})
        known = cache.get(word)
        if known is None:
            if len(cache) > KEPT_WORDS:
                cache.clear()
            known = cache[word] = tuple(self._analyse(word).items())
        return known

    def _analyse(self, word: str) -> dict[str, bool]:
        """One word as found in the text → its terms, each with whether it is a stop word."""
        plain = unicodedata.normalize("NFKC", word).replace("\u2019", "'").removesuffix("'s").removesuffix("'S")
        if plain[-1:] in "+#":
            return {plain.casefold(): False}  # C++, C#
        parts = [part.casefold().replace(",", "") for part in _patterns()[1].findall(plain)]
        if not parts:
            return {} if plain.strip("_'") == "" else {plain: False}  # an emoji
        whole = "".join(parts)
        if len(parts) > 1 and not any(c.isalpha() for c in plain):
            whole = plain.casefold()
        terms = {self._stem(whole)[:MAX_TERM]: whole in self._stops}
        if len(parts) > 1 and whole not in self._stops:
            for part in parts:
                if len(part) > 1 or part.isdigit():
                    terms.setdefault(self._stem(part)[:MAX_TERM], part in self._stops)
        return terms

    @property
    def _stops(self) -> frozenset[str]:
        return STOPWORDS.get(self.language, frozenset())

    def _stem(self, word: str) -> str:
        if self.language != "none" and word.isalpha():
            word = self._stemmer.stemWord(word)
        return word if word.isascii() else _plain_latin(word)

    @property
    def _stemmer(self) -> Any:
        # A Snowball stemmer keeps state while it works: one for each thread.
        if not hasattr(self._local, "stemmer"):
            import Stemmer

            self._local.stemmer = Stemmer.Stemmer(self.language)
        return self._local.stemmer


def _grams(run: str, start: int) -> Iterator[Token]:
    places = [match.span() for match in _patterns()[2].finditer(run)]
    for i, (left, right) in enumerate(places):
        yield Token(_normal(run[left:right]), start + left, start + right)
        if i + 1 < len(places):
            end = places[i + 1][1]
            yield Token(_normal(run[left:end]), start + left, start + end)


def _query_grams(run: str) -> list[str]:
    characters = _patterns()[2].findall(run)
    if len(characters) == 1:
        return [_normal(run)]
    return [_normal(a + b) for a, b in pairwise(characters)]


def _normal(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _plain_latin(word: str) -> str:
    """Take the accents off Latin letters, and off those only: in other scripts marks are letters of their own."""
    kept: list[str] = []
    latin = False
    for character in unicodedata.normalize("NFD", word):
        if unicodedata.combining(character):
            if latin:
                continue
        else:
            latin = unicodedata.name(character, "").startswith("LATIN")
        kept.append(character)
    return unicodedata.normalize("NFC", "".join(kept))


_compiled: list[Pattern[str]] = []


def _patterns() -> list[Pattern[str]]:
    # `regex` is loaded by the first text, not by `import recollect`.
    if not _compiled:
        import regex

        flags = regex.VERSION1 | regex.VERBOSE
        _compiled.extend(regex.compile(pattern, flags) for pattern in (_WORDS, _PARTS, r"\X"))
    return _compiled
