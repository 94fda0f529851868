"""From text to index terms: one chain for documents and for queries, so that every keyword engine matches alike.

Unicode words (marks stay with their letters) → case folding → stop words marked → Snowball stem → accents off
Latin letters. An identifier, a path or a hyphenated word gives its parts and its whole (`parse_config`,
`parseConfig` and `parse-config` meet in `parseconfig`); a dotted number (`1.0.21`) stays one term. Scripts
written without spaces give single characters and pairs.
"""

from __future__ import annotations

import threading
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from regex import Match, Pattern


_LISTS = {
    "english": """
        a about above after again against all am an and any are arent as at be because been before being below
        between both but by can cannot cant could couldnt d did didnt do does doesnt doing dont down during each
        few for from further had hadnt has hasnt have havent having he her here hers herself him himself his how
        i if im in into is isnt it its itself ive just let ll m me more most my myself no nor not now
        of off on once only or other our ours ourselves out over own re s same shall she should shouldnt so some
        such t than that thats the their theirs them themselves then there theres these they theyre this those
        through to too under until up us ve very was wasnt we were werent what whats when where which while who
        whom whose why will with wont would wouldnt you your youre yours yourself yourselves
    """,
    "german": """
        aber als am an auch auf aus bei bin bis bist da damit dann das dass dein deine dem den der des dich die dir
        doch du durch ein eine einem einen einer eines er es euch euer für hat hatte hatten hier ich ihm ihn ihnen
        ihr ihre im in ins ist ja kann kein keine können man mein meine mich mir mit nach nicht noch nun nur ob oder
        ohne sehr sein seine sich sie sind so soll über um und uns unser unter vom von vor war waren was weil welche
        wenn wer werden wie wir wird wo wurde wurden zu zum zur
    """,
    "french": """
        à au aux avec ce ces cet cette c d dans de des du elle elles en est et été être eu eux fait il ils j je l la
        le les leur leurs lui m ma mais me même mes moi mon n ne nos notre nous on ont ou où par pas pour qu que quel
        quelle qui s sa se ses si son sont sur t ta te tes toi ton tu un une vos votre vous y
    """,
    "spanish": """
        a al algo ante antes como con contra cual cuando de del desde donde dos el él ella ellas ellos en entre era
        es esa ese eso esta está estas este esto estos fue ha hasta hay la las le les lo los más me mi mis muy nada
        ni no nos o os para pero por porque que qué quien se ser si sí sin sobre son su sus también te tiene todo tu
        tus un una uno y ya yo
    """,
    "italian": """
        a ad ai al alla alle allo anche c che chi ci come con cui da dal dalla dei del della delle di do e è ed era
        essere gli ha hanno ho i il in io l la le lei li lo loro lui ma me mi mia mio ne nei nel nella no noi non o per
        perché più quale quando quanto quella quello questa questo se sei si sì sia sono su sua sul sulla suo tra tu
        tua tuo tutti tutto un una uno vi voi
    """,
    "portuguese": """
        a ao aos as às até com como da das de dela dele do dos e é ela elas ele eles em entre era essa esse esta está
        este eu foi há isso isto já lhe mais mas me mesmo meu minha muito na não nas nem no nos nós o os ou para pela
        pelo por qual quando que quem se sem ser seu sua são só também te tem um uma você
    """,
    "dutch": """
        aan al als bij dan dat de der deze die dit doch door dus een en er ge geen had heb hebben heeft hem het hier
        hij hoe hun iets ik in is ja je kan maar me meer men met mij mijn na naar niet nog nu of om omdat onder ons
        ook op over te tegen toch toen tot u uit uw van veel voor want waren was wat we wel werd wie wij wil worden
        zal ze zei zich zij zijn zo zonder zou
    """,
    "swedish": """
        alla att av blev bli blir de dem den denna deras det detta dig din du där då efter ej eller en er ett från för
        ha hade han hans har hon hur här i icke in inte jag kan man med men mig min mitt mot mycket ni nu när och om
        oss på sedan sig sin sitt skulle som så till under upp ut utan vad var vara vem vi vid vilken än är över
    """,
    "russian": """
        а без бы был была были было быть в вам вас во вот все всё вы да для до его ее её если есть еще ещё же за и из
        или им их к как ко когда кто ли мне мы на над нас не него нее нет ни них но ну о об он она они оно от по под
        при с со так там то тогда того тоже только ты у уже что чтобы эта эти это этот я
    """,
}

STOPWORDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {language: frozenset(words.split()) for language, words in _LISTS.items()}
)


VERSION = 2
"""Raised whenever the same text would give other terms: an index built by another version is rebuilt."""

LANGUAGES = (
    "none", "arabic", "armenian", "basque", "catalan", "danish", "dutch", "english", "esperanto", "estonian",
    "finnish", "french", "german", "greek", "hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian",
    "nepali", "norwegian", "portuguese", "romanian", "russian", "serbian", "spanish", "swedish", "tamil",
    "turkish", "yiddish",
)  # fmt: skip
"""Languages with a Snowball stemmer; `none` keeps words as they are written."""

MAX_TERM = 80
"""Characters of a term; longer "words" are encoded data that nobody types, and are cut."""

MAX_QUERY_TERMS = 512
"""Distinct terms of one query; further terms of a long pasted text make no visible difference."""

KEPT_WORDS = 100_000
"""Words whose terms are cached, in each thread: about 20 MB."""

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
_IGNORED = r"\p{Default_Ignorable_Code_Point}"  # soft hyphens, joiners, directions, the style of an emoji
_PIECES = r"[\x00-\x7f]+(?![^\x00-\x7f]) | \X"  # plain stretches whole, the rest letter by letter
_TOO_MANY_MARKS = r"(?<=\p{M}{30})\p{M}+"

_CONTRACTED = frozenset(
    ("ain", "aren", "can", "couldn", "didn", "doesn", "don", "hadn", "hasn", "haven", "here", "how", "isn", "let",
     "mustn", "needn", "shan", "shouldn", "that", "there", "wasn", "weren", "what", "when", "where", "who", "why",
     "won", "wouldn")
)  # fmt: skip
"""The first parts of contractions that are stop words, besides the stop words themselves."""


@dataclass(frozen=True, slots=True)
class Token:
    """One index term and its position in the text."""

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
        normal, places = _normalised(text)
        for match in _patterns().words.finditer(normal):
            for term, start, end, stop in self._terms_at(match):
                yield Token(term, places[start][0] if places else start, places[end - 1][1] if places else end, stop)

    def query(self, text: str) -> list[str]:
        """The distinct terms of a query: no stop words, unless it has nothing else; pairs, not single characters."""
        kept: dict[str, None] = {}
        stops: dict[str, None] = {}
        for match in _patterns().words.finditer(_normalised(text)[0]):
            if match.lastgroup == "run":
                kept.update(dict.fromkeys(_query_grams(match.group())))
            else:
                for term, stop in self._terms_of(match.group()):
                    (stops if stop else kept)[term] = None
            if len(kept) >= MAX_QUERY_TERMS:
                break
        return list(kept or stops)[:MAX_QUERY_TERMS]

    def _terms_at(self, match: Match[str]) -> Iterator[tuple[str, int, int, bool]]:
        start, end = match.span()
        if match.lastgroup == "run":
            yield from _grams(match.group(), start)
        else:
            for term, stop in self._terms_of(match.group()):
                yield term, start, end, stop

    def _terms_of(self, word: str) -> tuple[tuple[str, bool], ...]:
        cache: dict[str, tuple[tuple[str, bool], ...]] = self._local.__dict__.setdefault("cache", {})
        known = cache.get(word)
        if known is None:
            if len(cache) > KEPT_WORDS:
                cache.clear()
            known = cache[word] = tuple(self._analyse(word).items())
        return known

    def _analyse(self, word: str) -> dict[str, bool]:
        """The terms of one word of the text, each with whether it is a stop word."""
        plain = word.replace("\u2019", "'").removesuffix("'s").removesuffix("'S")
        if plain[-1:] in "+#":
            return self._signed(plain.casefold())
        if "'" in plain and self._says_nothing(plain.casefold()):
            lower = plain.casefold()
            # "dont" is what many type; "she'll" without its apostrophe would be another word.
            return {lower.replace("'", "") if lower.endswith("'t") else lower: True}
        parts = [part.casefold().replace(",", "") for part in _patterns().parts.findall(plain)]
        if not parts:
            return {plain: False} if len(plain) == 1 and plain != "_" else {}  # an emoji, or underlining
        whole = "".join(parts)
        if len(parts) > 1 and not any(c.isalpha() for c in plain):
            whole = plain.casefold()
        terms = {self._stem(whole)[:MAX_TERM]: whole in self._stops}
        if len(parts) > 1 and whole not in self._stops:
            for part in parts:
                if len(part) > 1 or part.isdigit():
                    terms.setdefault(self._stem(part)[:MAX_TERM], part in self._stops)
        return terms

    def _signed(self, word: str) -> dict[str, bool]:
        """`C++` is not C; `notepad++` is also a notepad."""
        name = word.rstrip("+#")
        terms = {f"{name[:MAX_TERM]}{word[len(name) :]}": False}
        return terms | self._analyse(name) if len(name) > 1 else terms

    def _says_nothing(self, word: str) -> bool:
        """Whether a contraction consists of stop words."""
        before, _, after = word.partition("'")
        known = before in self._stops or before in _CONTRACTED
        return self.language == "english" and known and after in ("t", "d", "ll", "m", "re", "ve", "s")

    @property
    def _stops(self) -> frozenset[str]:
        return STOPWORDS.get(self.language, frozenset())

    def _stem(self, word: str) -> str:
        """The stem without accents. English has accents on loans only, and stems them better without."""
        if self.language == "english" and not word.isascii():
            word = _plain_latin(word)
        if self.language != "none" and word[0].isalpha() and not any(letter.isnumeric() for letter in word):
            word = self._stemmer.stemWord(word) or word
        return word if word.isascii() else _plain_latin(word)

    @property
    def _stemmer(self) -> Any:
        # A Snowball stemmer keeps state while it works: one for each thread.
        if not hasattr(self._local, "stemmer"):
            import Stemmer

            self._local.stemmer = Stemmer.Stemmer(self.language)
        return self._local.stemmer


def _grams(run: str, start: int) -> Iterator[tuple[str, int, int, bool]]:
    places = [match.span() for match in _patterns().characters.finditer(run)]
    for i, (left, right) in enumerate(places):
        yield run[left:right].casefold()[:MAX_TERM], start + left, start + right, False
        if i + 1 < len(places):
            end = places[i + 1][1]
            yield run[left:end].casefold()[:MAX_TERM], start + left, start + end, False


def _query_grams(run: str) -> list[str]:
    characters = _patterns().characters.findall(run)
    if len(characters) == 1:
        return [run.casefold()[:MAX_TERM]]
    return [(a + b).casefold()[:MAX_TERM] for a, b in pairwise(characters)]


def _normalised(text: str) -> tuple[str, list[tuple[int, int]]]:
    """The text in NFKC without invisible characters, and the original span of each character; no spans if unchanged.

    One letter with its marks is normalised at a time, so that every span is known.
    """
    patterns = _patterns()
    if text.isascii() or (unicodedata.is_normalized("NFKC", text) and not patterns.ignored.search(text)):
        return text, []
    pieces: list[str] = []
    places: list[tuple[int, int]] = []
    for match in patterns.pieces.finditer(text):
        start, end = match.span()
        if match.group().isascii():
            pieces.append(match.group())
            places += [(at, at + 1) for at in range(start, end)]
            continue
        seen = patterns.ignored.sub("", patterns.marks.sub("", match.group()))
        pieces.append(unicodedata.normalize("NFKC", seen))
        places += [(start, end)] * len(pieces[-1])
    return "".join(pieces), places


def _plain_latin(word: str) -> str:
    """The word without the accents of Latin letters; in other scripts marks are letters of their own."""
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


class _Patterns(NamedTuple):
    words: Pattern[str]
    parts: Pattern[str]
    characters: Pattern[str]
    ignored: Pattern[str]
    marks: Pattern[str]
    pieces: Pattern[str]


@cache
def _patterns() -> _Patterns:
    # `regex` is loaded by the first text, not by `import recollect`.
    import regex

    sources = (_WORDS, _PARTS, r"\X", _IGNORED, _TOO_MANY_MARKS, _PIECES)
    return _Patterns(*(regex.compile(source, regex.VERSION1 | regex.VERBOSE) for source in sources))


WIDTH = 240
"""Characters of a snippet: three or four lines of a terminal."""


SEEN = 20_000
"""Characters of a text that are searched for the window: a whole book would take half a second."""


def snippet(text: str, terms: Collection[str], analyzer: Analyzer, *, width: int = WIDTH) -> str:
    """The window of `text` with the most different query terms, on one line; its beginning if none matches.

    Only the first characters of a very long text are searched.
    """
    wanted = set(terms)
    hits = [(token.start, token.end, token.term) for token in analyzer.tokens(text[:SEEN]) if token.term in wanted]
    if not hits:
        return lead(text, width=width)
    first, last = _best_stretch(hits, width)
    # At most a third of the window is what comes before, so that the match is read in its sentence.
    start = max(0, first - min(width // 3, width - (last - first)))
    if start > 0:
        start = _after_space(text, start, first)
    return _line(text, start, _before_space(text, min(len(text), start + width), last))


def lead(text: str, *, width: int = WIDTH) -> str:
    """The beginning of `text` on one line."""
    return _line(text, 0, _before_space(text, min(len(text), width), width // 2))


def _best_stretch(hits: list[tuple[int, int, str]], width: int) -> tuple[int, int]:
    """The stretch of at most `width` characters with the most different terms: its start and end."""
    best, stretch, left = 0, (0, 0), 0
    inside: Counter[str] = Counter()
    for start, end, term in hits:
        inside[term] += 1
        while end - hits[left][0] > width and hits[left][0] < start:
            inside[hits[left][2]] -= 1
            inside += Counter()
            left += 1
        if len(inside) > best:
            best, stretch = len(inside), (hits[left][0], min(end, hits[left][0] + width))
    return stretch


def _after_space(text: str, start: int, limit: int) -> int:
    """The first start of a word from `start` on, if there is one before `limit`."""
    if text[start - 1].isspace():
        return start
    return next((at + 1 for at in range(start, limit) if text[at].isspace()), start)


def _before_space(text: str, end: int, limit: int) -> int:
    """The last end of a word up to `end`, if there is one after `limit`."""
    if end == len(text) or text[end].isspace():
        return end
    return next((at for at in range(end - 1, limit - 1, -1) if text[at].isspace()), end)


def _line(text: str, start: int, end: int) -> str:
    words = text[start:end].split()
    return " ".join([*["…"] * (start > 0), *words, *["…"] * (end < len(text))])
