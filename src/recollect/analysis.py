"""From text to index terms: one chain for documents and for queries, so that every keyword engine matches alike.

Unicode words (marks stay with their letters) → case folding → stop words marked → Snowball stem → accents off
Latin letters. An identifier, a path or a hyphenated word gives its parts and its whole (`parse_config`,
`parseConfig` and `parse-config` meet in `parseconfig`); a dotted number (`1.0.21`) stays one term. Scripts
written without spaces give single characters and pairs.
"""

from __future__ import annotations

import re
import struct
import threading
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator
from functools import cache, lru_cache
from hashlib import blake2b
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from recollect.dataclass import dataclass
from recollect.stopwords import foreign_stopwords, stopwords

if TYPE_CHECKING:
    from regex import Pattern

VERSION = 3  # raised whenever the same text would give other terms: an index built by another version is rebuilt

LANGUAGES = (  # languages with a Snowball stemmer; `none` keeps words as they are written
    "none", "arabic", "armenian", "basque", "catalan", "danish", "dutch", "english", "esperanto", "estonian",
    "finnish", "french", "german", "greek", "hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian",
    "nepali", "norwegian", "portuguese", "romanian", "russian", "serbian", "spanish", "swedish", "tamil",
    "turkish", "yiddish",
)  # fmt: skip

MAX_TERM = 80  # characters of a term; longer "words" are encoded data that nobody types, and are cut
MAX_QUERY_TERMS = 512  # terms of one query; further terms of a long pasted text make no visible difference
CACHED_WORDS = 20_000  # words whose terms are cached: about 6 MB
CACHED_CHUNKS = 200_000  # chunks between white space whose entries are cached: about 40 MB, in a process that indexes
MOST_SPELLED = 200_000  # terms that are known by their hashes: about 26 MB, in a process that indexes
LONGEST_CACHED = 40  # characters of a chunk between white space whose hashes are cached: longer ones rarely repeat

_SPACELESS = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\u30fc"
_LETTER = rf"[[\p{{L}}\p{{N}}_]--[{_SPACELESS}]]"
_WORD = rf"{_LETTER}[[\p{{L}}\p{{M}}\p{{N}}_]--[{_SPACELESS}]]*"
_WORDS = rf"""
    (?P<run>[[{_SPACELESS}]--\p{{M}}][{_SPACELESS}\p{{M}}]*)
  | (?P<word>{_WORD} (?: (?:[.\-\u2010\u2011/\\:@&'\u2019] | (?<=\p{{N}}),(?=\p{{N}})) {_WORD})* (?:\+\+|\#)?)
  | (?P<sign>\p{{Extended_Pictographic}})
"""
_PARTS = r"""
    \p{N}+(?:[.,]\p{N}+)+                # a version or a number stays whole
  | \p{N}+
  | \p{Lu}+(?![\p{Ll}\p{M}])             # HTTP in HTTPServer
  | \p{Lu}?[\p{L}\p{M}--\p{Lu}]+         # Server, server, and scripts without case
  | \p{Lu}
"""
# The same for text that is ASCII, without the package `regex`, which takes 10 ms to load.
_ASCII_WORDS = re.compile(r"(?P<word>\w+(?:(?:[.\-/\\:@&']|(?<=[0-9]),(?=[0-9]))\w+)*(?:\+\+|\#)?)", re.ASCII)
_ASCII_PARTS = re.compile(r"[0-9]+(?:[.,][0-9]+)+|[0-9]+|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[A-Z]")
_IGNORED = r"\p{Default_Ignorable_Code_Point}"  # soft hyphens, joiners, directions, the style of an emoji
_PIECES = r"[\x00-\x7f]+(?![^\x00-\x7f]) | \X"  # plain stretches whole, the rest letter by letter
_TOO_MANY_MARKS = r"(?<=\p{M}{30})\p{M}+"
_AROUND = ".,;:!?()[]{}<>\"'`*-/\\=|~&@$%^\u2018\u2019\u201c\u201d\u2013\u2014"  # never the first or last of a word
LONGEST_QUESTION = 200  # characters; a longer query is more than one question
_QUESTION = re.compile(  # English words around what a question is about: no record needs to contain them
    r"\W*(?:please |(?:can|could) you |i (?:want|would like) to know )*"
    r"(?:(?:explain|describe|tell (?:me|us) about|show (?:me|us)) (?P<what>.+)"
    r"|how (?P<how>.+) works?\W*|what (?P<word>.+) means?\W*|how (?:do|can|should) (?:i|we|you|one) use (?P<used>.+))",
    re.IGNORECASE,
)
_ENDINGS = ("t", "d", "ll", "m", "re", "ve", "s")  # of English contractions


class Token(NamedTuple):
    """One index term and its position in the text."""

    term: str
    start: int
    end: int
    stop: bool = False


@dataclass(frozen=True)
class Analyzer:
    """Turns text into terms for one language."""

    language: str = "english"

    def __post_init__(self) -> None:
        if self.language not in LANGUAGES:
            raise ValueError(f"unknown language {self.language!r}; there are {', '.join(LANGUAGES)}")

    @property
    def fingerprint(self) -> str:
        """Two analyzers with the same fingerprint give the same terms."""
        return f"{VERSION}:{self.language}"

    def tokens(self, text: str) -> Iterator[Token]:
        """The terms of a document, stop words marked, in the order of the text."""
        normal, places = _normalised(text)
        for match in _words(normal):
            if match.lastgroup == "run":
                terms = _grams(match.group(), match.start())
            else:
                terms = [(term, *match.span(), stop) for term, stop in _terms(self.language, match.group())]
            for term, start, end, stop in terms:
                yield Token(term, places[start][0] if places else start, places[end - 1][1] if places else end, stop)

    def hashed(self, text: str) -> tuple[list[int], int]:
        """The hashes of the terms of `tokens`, in their order, and how many of the terms are not stop words."""
        entries = list(_ENTRY.iter_unpack(self.packed(text)))
        return [term for term, _, has in entries if has & TERM], sum(1 for *_, has in entries if has & CONTENT)

    def packed(self, text: str) -> bytes:
        """The terms and words of a text as entries of ENTRY_BYTES, for an index of many texts.

        An entry is the hash of a term (64 bits, little endian), a hash of `word_hashes` (32 bits), and which of the two
        it has (32 bits: TERM, CONTENT, WORD). No term and no word contains white space, so the entries of each chunk
        between white space can be cached. Words are those of the normalised text, which may differ if it is not ASCII.
        """
        chunks = _chunks(self.language)
        return b"".join([chunks[chunk.strip(_AROUND)] for chunk in _normalised(text)[0].split()])

    def spellings(self) -> dict[int, str]:
        """The terms of all that `packed` has read, by their hashes; emptied when it is large. One thread at a time."""
        chunks = _chunks(self.language)
        if len(chunks.spelled) > MOST_SPELLED:
            chunks.forget()
        return chunks.spelled

    def terms(self, words: list[str]) -> list[str]:
        """The term of each of many words of small letters; empty for a stop word."""
        language, letters = self.language, "".join(words)
        if language != "none" and letters.isascii() and letters.isalpha():
            stems = _stemmer(language).stemWords(words)  # a tenth of the time of one at a time
        else:
            stems = [_stem(language, word) for word in words]
        stops = stopwords(language)
        return ["" if word in stops else (stem or word)[:MAX_TERM] for word, stem in zip(words, stems, strict=True)]

    def query(self, text: str) -> list[str]:
        """The terms of a query, each as often as it occurs: no stop words, unless it has nothing else.

        Scripts without spaces give pairs, not single characters. "How does fusion work" asks about fusion, not work.
        """
        if self.language == "english" and len(text) < LONGEST_QUESTION and (asked := _QUESTION.fullmatch(text)):
            words, _ = self._query_words(asked[asked.lastgroup or 0])
            if words:
                return words
        words, stops = self._query_words(text)
        return words or stops[:MAX_QUERY_TERMS]

    def has_only_stopwords(self, text: str) -> bool:
        """Whether a query consists of stop words, such as "who am I?": it asks about nothing that a record can say."""
        words, stops = self._query_words(text)
        return bool(stops) and not words

    def _query_words(self, text: str) -> tuple[list[str], list[str]]:
        """The terms of a query that are no stop words, and those that are."""
        words, stops = list[str](), list[str]()
        normal = _normalised(text)[0]
        foreign = foreign_stopwords(self.language, _WORD_RUN.findall(normal.lower()))
        for match in _words(normal):
            if match.lastgroup == "run":
                grams = _grams(match.group(), 0)
                words += [gram[0] for gram in grams[1::2] or grams]
            else:
                is_foreign = match.group().lower() in foreign
                for term, stop in _terms(self.language, match.group()):
                    (stops if stop or is_foreign else words).append(term)
            if len(words) >= MAX_QUERY_TERMS:
                break
        return words[:MAX_QUERY_TERMS], stops


def term_hash(term: str) -> int:
    """The hash of a term: 64 bits, without sign, the same on every machine."""
    return int.from_bytes(blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


_WORD_RUN, _ASCII_WORD_RUN = re.compile(r"\w+"), re.compile(rb"\w+")


def word_hashes(text: str) -> list[int]:
    """A hash of 32 bits for each word of a text as it is written, but for its case."""
    if text.isascii():
        return list(map(crc32, _ASCII_WORD_RUN.findall(text.lower().encode())))
    return [crc32(word.encode("utf-8", "surrogatepass")) for word in _WORD_RUN.findall(text.casefold())]


_ENTRY = struct.Struct("<QII")
ENTRY_BYTES = _ENTRY.size
TERM, CONTENT, WORD = 1, 2, 4  # what an entry has: a term; a term that is no stop word; a word


class _Chunks(dict[str, bytes]):
    """Each chunk of normalised text → its entries."""

    def __init__(self, language: str) -> None:
        super().__init__()
        self._language = language
        self.spelled: dict[int, str] = {}  # hash → term
        self._hashes: dict[str, int] = {}  # and the reverse

    def __missing__(self, chunk: str) -> bytes:
        if chunk.isascii() and chunk.isalpha() and (chunk.islower() or chunk.istitle() or chunk.isupper()):
            # Most chunks are one plain word; what follows gives the same, in ten times the time.
            if chunk.islower():
                has = TERM | WORD if chunk in stopwords(self._language) else TERM | WORD | CONTENT
                entry = _ENTRY.pack(self._spell(_stem(self._language, chunk)[:MAX_TERM]), crc32(chunk.encode()), has)
            else:
                entry = self[chunk.lower()]
        elif len(chunk) > LONGEST_CACHED and chunk.isascii() and (words := _ASCII_WORDS.findall(chunk)) != [chunk]:
            entry = b"".join([self[word] for word in words])  # many words, such as a table without spaces
        else:
            entry = self._entry(chunk)
        if len(chunk) <= LONGEST_CACHED:
            if len(self) >= CACHED_CHUNKS:  # the newest go: frequent words came early
                for _ in range(CACHED_CHUNKS // 10):
                    self.popitem()
            self[chunk] = entry
        return entry

    def _entry(self, chunk: str) -> bytes:
        """The entries of any chunk."""
        terms: list[tuple[int, int]] = []
        for match in _words(chunk):
            word = match.group()
            if match.lastgroup == "run":
                found = tuple((gram[0], False) for gram in _grams(word, 0))
            elif len(word) <= LONGEST_CACHED < len(chunk):
                found = _terms(self._language, word)
            else:  # the chunk is cached as a whole, or the word rarely repeats
                found = _terms.__wrapped__(self._language, word)
            terms += [(self._spell(term), TERM if stop else TERM | CONTENT) for term, stop in found]
        words = [(word, WORD) for word in word_hashes(chunk)]
        pairs = zip_longest(terms, words, fillvalue=(0, 0))
        return b"".join([_ENTRY.pack(term, word, has | also) for (term, has), (word, also) in pairs])

    def _spell(self, term: str) -> int:
        """The hash of a term, which is then known by it."""
        hashed = self._hashes.get(term)
        if hashed is None:
            hashed = self._hashes[term] = term_hash(term)
            self.spelled[hashed] = term
        return hashed

    def forget(self) -> None:
        """Empty all: what is cached would not be spelled again."""
        for each in (self, self.spelled, self._hashes):
            each.clear()


_chunks = cache(_Chunks)


@lru_cache(CACHED_WORDS)
def _terms(language: str, word: str) -> tuple[tuple[str, bool], ...]:
    """The terms of one word of the text, each with whether it is a stop word."""
    stops = stopwords(language)
    plain = word.replace("\u2019", "'").removesuffix("'s").removesuffix("'S")
    lower = plain.casefold()
    if plain[-1:] in "+#":  # `C++` is not C; `notepad++` is also a notepad
        name = lower.rstrip("+#")
        return (f"{name[:MAX_TERM]}{lower[len(name) :]}", False), *(_terms(language, name) if len(name) > 1 else ())
    before, apostrophe, after = lower.partition("'")
    contracted = before in stops or before in stopwords("contracted")
    if apostrophe and language == "english" and contracted and after in _ENDINGS:
        # "dont" is what many type; "she'll" without its apostrophe would be another word.
        return ((lower.replace("'", "") if lower.endswith("'t") else lower, True),)
    parts = [
        part.casefold().replace(",", "")
        for part in (_ASCII_PARTS if plain.isascii() else _pattern(_PARTS)).findall(plain)
    ]
    if not parts:
        return ((plain, False),) if len(plain) == 1 and plain != "_" else ()  # an emoji, or underlining
    whole = "".join(parts)
    if len(parts) > 1 and not any(c.isalpha() for c in plain):
        whole = lower
    terms = {_stem(language, whole)[:MAX_TERM]: whole in stops}
    if len(parts) > 1 and whole not in stops:
        for part in parts:
            if len(part) > 1 or part.isdigit():
                terms.setdefault(_stem(language, part)[:MAX_TERM], part in stops)
    return tuple(terms.items())


_stemmers = threading.local()  # the stemmer of each language, for each thread: it keeps state while it works


def _stemmer(language: str) -> Any:
    stemmer = getattr(_stemmers, language, None)
    if stemmer is None:
        import Stemmer

        stemmer = Stemmer.Stemmer(language, 0)  # words are cached here
        setattr(_stemmers, language, stemmer)
    return stemmer


def _stem(language: str, word: str) -> str:
    """The stem without accents. English has accents on loans only, and stems them better without."""
    if language == "english" and not word.isascii():
        word = _plain_latin(word)
    plain = word.isascii() and word.isalpha()
    if language != "none" and (plain or (word[0].isalpha() and not any(map(str.isnumeric, word)))):
        word = _stemmer(language).stemWord(word) or word
    return word if word.isascii() else _plain_latin(word)


def _grams(run: str, start: int) -> list[tuple[str, int, int, bool]]:
    """The characters of a run and the pair that begins with each: character, pair, character, …, character."""
    places = [match.span() for match in _pattern(r"\X").finditer(run)]
    following = zip_longest(places, places[1:])
    spans = [span for place, after in following for span in (place, after and (place[0], after[1])) if span]
    return [(run[left:right].casefold()[:MAX_TERM], start + left, start + right, False) for left, right in spans]


def _normalised(text: str) -> tuple[str, list[tuple[int, int]]]:
    """The text in NFKC without invisible characters, and the original span of each character; no spans if unchanged.

    One letter with its marks is normalised at a time, so that every span is known.
    """
    if text.isascii() or (unicodedata.is_normalized("NFKC", text) and not _pattern(_IGNORED).search(text)):
        return text, []
    pieces: list[str] = []
    places: list[tuple[int, int]] = []
    for match in _pattern(_PIECES).finditer(text):
        start, end = match.span()
        if match.group().isascii():
            pieces.append(match.group())
            places += [(at, at + 1) for at in range(start, end)]
            continue
        visible = _pattern(_IGNORED).sub("", _pattern(_TOO_MANY_MARKS).sub("", match.group()))
        pieces.append(unicodedata.normalize("NFKC", visible))
        places += [(start, end)] * len(pieces[-1])
    return "".join(pieces), places


def _plain_latin(word: str) -> str:
    """The word without the accents of Latin letters; in other scripts marks are letters of their own."""
    letters: list[str] = []
    latin = False
    for character in unicodedata.normalize("NFD", word):
        if not unicodedata.combining(character):
            latin = unicodedata.name(character, "").startswith("LATIN")
            letters.append(character)
        elif not latin:
            letters.append(character)
    return unicodedata.normalize("NFC", "".join(letters))


def _words(text: str) -> Iterator[Any]:
    """The words of normalised text, and its runs of characters that are written without spaces."""
    return _ASCII_WORDS.finditer(text) if text.isascii() else _pattern(_WORDS).finditer(text)


@cache
def _pattern(source: str) -> Pattern[str]:
    import regex  # loaded by the first text, not by `import recollect`

    return regex.compile(source, regex.VERSION1 | regex.VERBOSE)


WIDTH = 240  # characters of a snippet: three or four lines of a terminal
SEARCHED = 20_000  # characters of a text that are searched for the window: a whole book would take half a second


def snippet(text: str, terms: Collection[str], analyzer: Analyzer, *, width: int = WIDTH) -> str:
    """The window of `text` with the most different query terms, on one line; its beginning if none matches.

    Only the first characters of a very long text are searched.
    """
    hits = _hits(text[:SEARCHED], frozenset(terms), analyzer)
    if not hits:
        return lead(text, width=width)
    first, last = _best_stretch(hits, width)
    # At most a third of the window is what comes before, so that the match is read in its sentence.
    start = max(0, first - min(width // 3, width - (last - first)))
    if start > 0 and not text[start - 1].isspace():
        start = next((at + 1 for at in range(start, first) if text[at].isspace()), start)
    return _line(text, start, _before_space(text, min(len(text), start + width), last))


def lead(text: str, *, width: int = WIDTH) -> str:
    """The beginning of `text` on one line."""
    return _line(text, 0, _before_space(text, min(len(text), width), width // 2))


def _hits(text: str, terms: Collection[str], analyzer: Analyzer) -> list[tuple[int, int, str]]:
    """The places of these terms in a text: start, end and term."""
    if text.isascii():  # as below, in a quarter of the time
        language, words = analyzer.language, _ASCII_WORDS.finditer(text)
        return [(*match.span(), term) for match in words for term, _ in _terms(language, match[0]) if term in terms]
    return [(token.start, token.end, token.term) for token in analyzer.tokens(text) if token.term in terms]


def matching_words(text: str, query: str, analyzer: Analyzer) -> set[str]:
    """The words of a text that match a query, in lower case: what to mark."""
    return {text[start:end].lower() for start, end, _ in _hits(text, frozenset(analyzer.query(query)), analyzer)}


def _best_stretch(hits: list[tuple[int, int, str]], width: int) -> tuple[int, int]:
    """The shortest stretch with the most different terms in at most `width` characters: its start and end."""
    best, stretch, left = 0, (0, 0), 0
    inside: Counter[str] = Counter()
    for start, end, term in hits:
        inside[term] += 1
        while (end - hits[left][0] > width or inside[hits[left][2]] > 1) and hits[left][0] < start:
            inside[hits[left][2]] -= 1
            inside += Counter()
            left += 1
        if len(inside) > best:
            best, stretch = len(inside), (hits[left][0], min(end, hits[left][0] + width))
    return stretch


def _before_space(text: str, end: int, limit: int) -> int:
    """The last end of a word up to `end`, if there is one after `limit`."""
    if end == len(text) or text[end].isspace():
        return end
    return next((at for at in range(end - 1, limit - 1, -1) if text[at].isspace()), end)


def _line(text: str, start: int, end: int) -> str:
    words = text[start:end].split()
    return " ".join([*["…"] * (start > 0), *words, *["…"] * (end < len(text))])
