from __future__ import annotations

import time
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import MANY

from recollect import analysis
from recollect.analysis import (
    LANGUAGES,
    MAX_QUERY_TERMS,
    MAX_TERM,
    WIDTH,
    Analyzer,
    lead,
    snippet,
    term_hash,
    word_hashes,
)
from recollect.stores.sqlite.segments import build

ROOT = Path(__file__).parents[2]
ENGLISH = Analyzer()
NASTY = "#+'’_-./:@&,19aAbBsSßİŉﬁⅣ½⑴ﷺ\ufe70\u037a\u0345\u0301\u200d\ufe0f\u00ad\x00\ud800京ー가कि\u0e33ﾊﾟ㌀❤🎉 \n"
NASTY_TEXT = st.text(NASTY, max_size=12)
ANY_TEXT = st.one_of(st.text(st.characters(exclude_categories=()), max_size=40), NASTY_TEXT)
AWKWARD = (
    "it's", "don't", "she\u2019ll", "Anna's", "parse_config", "HTTPServer", "C++", "C#.", "1,000", "1.0.21,", "(a-b)",
    "the", "京都は", "ไทย", "🎉", "❤\ufe0f", "caf\u00e9", "cafe\u0301", "\ufb01n", "a\u00adb", "\u0301", "\u0600",
    "x" * 90, "_", "@", ",", "2", "\u4eac" * 50,
)  # fmt: skip
MEGABYTE = 1_000_000


def terms(text: str, language: str = "english") -> list[str]:
    """The terms a document is indexed under."""
    return [token.term for token in Analyzer(language).tokens(text)]


def meet(query: str, document: str, language: str = "english") -> bool:
    """Whether the document holds every term of the query, and there are any."""
    wanted = set(Analyzer(language).query(query))
    return bool(wanted) and wanted <= set(terms(document, language))


# --- the table of traps


@pytest.mark.parametrize(
    ("query", "document"),
    [
        ("1.0.21", "What was fixed in 1.0.21?"),
        ("1.0.21", "Release v1.0.21, at last."),
        ("v1.0.21", "v1.0.21"),
        ("V1.0.21", "v1.0.21"),
        ("1000", "1,000 rows"),
        ("2024", "2024-05-08"),
        ("snakeCase", "snake_case"),
        ("snake-case", "snakeCase"),
        ("SNAKE_CASE", "snake-case"),
        ("snake", "snake_case"),
        ("case", "the SnakeCase"),
        ("parse_config", "parseConfig()"),
        ("server", "HTTPServer"),
        ("http", "HTTPServer"),
        ("fusion", "src/recollect/fusion.py"),
        ("src/recollect/fusion.py", "see `src/recollect/fusion.py`."),
        ("users", r"C:\Users\anna"),
        ("readme", "docs/readme.md#install"),
        ("notepad", "edited in notepad++"),
        ("example", "user@example.com"),
        ("state-of-the-art", "a state-of-the-art sauna"),
        ("art", "state\u2010of\u2010the\u2010art"),
        ("C++", "written in C++, mostly"),
        ("c#", "C# and F#"),
        ("Anna", "Anna's flat"),
        ("Anna", "ANNA’S flat"),
        ("Anna's", "Anna lives here"),
        ("don't", "I don’t know"),
        ("O'Reilly", "an O’Reilly book"),
        ("running", "he runs"),
    ],
)
def test_code_and_english_meet(query, document):
    """Versions, identifiers, paths, hyphens, signs and apostrophes are found however they are written."""
    assert meet(query, document)


@pytest.mark.parametrize(
    ("query", "document"),
    [
        ("नमस्ते", "सबको नमस्ते कहो"),
        ("हिन्दी", "मैं हिन्दी बोलता हूँ"),
        ("क्ष", "क्\u200dष"),
        ("السلام", "السلام عليكم"),
        ("ไทย", "ภาษาไทยยากไหม"),
        ("北京", "我在北京工作"),
        ("京", "我在北京工作"),
        ("東京タワー", "昨日は東京タワーに行った"),
        ("한국", "한국어를 배운다"),
        ("한국어", unicodedata.normalize("NFD", "한국어")),
        ("コーヒー", "朝のコーヒーを飲む"),
        ("コーヒー", "ｺｰﾋｰ"),
        ("パソコン", "ﾊﾟｿｺﾝ"),
        ("アパート", "㌀"),
        ("abc 123", "ＡＢＣ１２３"),
        ("1.0.21", "１．０．２１"),
        ("office file", "oﬃce ﬁle"),
        ("strasse", "Straße"),
        ("istanbul", "İstanbul"),
        ("ingilizce", "İngilizce"),
        ("cafe", "café"),
        ("cafés", "cafe\u0301"),
        ("resume", "résumé"),
        ("foobar", "foo\u00adbar"),
        ("ΑΘΗΝΑΣ", "αθηνας"),
        ("йод", "ЙОД"),
        ("🎉", "done 🎉🎉"),
        ("❤", "with ❤\ufe0f"),
        ("💻", "👩\u200d💻"),
    ],
)
def test_scripts_meet(query, document):
    """Scripts without spaces, marks, width, ligatures, case and Latin accents do not hide a word."""
    assert meet(query, document)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1.0", "1.0.21"),
        ("0.21", "1.0.21"),
        ("21", "1.0.21"),
        ("1.0.2", "v1.0.21"),
        ("C", "C++"),
        ("C++", "C#"),
        ("и", "й"),
        ("мои", "мой"),
        ("北海", "京北"),
        ("नमस्ते", "नमस्कार"),
        ("❤\ufe0f", "☀\ufe0f"),
    ],
)
def test_different_things_share_no_term(one, other):
    """A version is not its beginning, C is not C++, a Cyrillic mark makes a letter, an emoji's style is no word."""
    assert not set(ENGLISH.query(one)) & set(terms(other))


@pytest.mark.parametrize("word", ["नमस्ते", "हिन्दी", "السلام", "мой", "1.0.21", "c++", "❤"])
def test_words_stay_whole(word):
    """Marks stay with their letters, and dots with their numbers: one word, one term."""
    assert terms(word) == [word]


def test_possessive_is_indexed_as_its_word():
    """Under the name and no other term."""
    assert terms("Carlos's") == terms("CARLOS’S") == terms("Carlos")


def test_identifier_is_indexed_whole_and_in_parts():
    """Three spellings of a compound give the same terms: the whole first, then the parts."""
    assert terms("snake_case") == terms("snakeCase") == terms("snake-case") == ["snakecas", "snake", "case"]


def test_cjk_query_uses_pairs_or_a_single_character():
    """Pairs are precise enough; a single character is used only if there is no pair."""
    assert ENGLISH.query("北京工") == ["北京", "京工"]
    assert ENGLISH.query("京") == ["京"]
    assert ENGLISH.query("コーヒー") == ENGLISH.query("ｺｰﾋｰ") == ["コー", "ーヒ", "ヒー"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("to be or not to be", ["to", "be", "or", "not", "to", "be"]),
        ("a cat, a dog, another cat", ["cat", "dog", "anoth", "cat"]),
        ("The WHO", ["the", "who"]),
        ("the cat and the dog", ["cat", "dog"]),
        ("might a cat be better, please?", ["cat"]),
        ("better", ["better"]),
        ("what is 北京", ["北京"]),
        ("don't", ["dont"]),
    ],
)
def test_stop_words_are_dropped_unless_alone(text, expected):
    """A query of stop words only keeps them, and finds its own text."""
    assert ENGLISH.query(text) == expected
    assert meet(text, text)


@pytest.mark.parametrize(
    "contraction",
    ["don't", "it's", "we've", "you'll", "they're", "wouldn't", "I'd", "she'll", "who's", "let's", "isn’t"],
)
def test_contractions_are_stop_words(contraction):
    """A contraction such as she'll is not the word `shell`, and outweighs no real word of a query."""
    assert ENGLISH.query(f"{contraction} sauna") == ["sauna"]


@pytest.mark.parametrize("word", ["id", "ill", "well", "shell"])
def test_words_that_look_like_contractions_are_words(word):
    """The words `id` and `ill` can be searched for, although I'd and I'll cannot."""
    assert ENGLISH.query(f"{word} of the patient") == [word, "patient"]


@pytest.mark.parametrize("text", ["", " \n", "\x00", "\ud800", "?!…", "''", "_", "AND", '"', "NEAR(", "*", "col:"])
def test_queries_without_words_are_harmless(text):
    """Nothing, NUL, a lone surrogate, and query syntax give plain words or no terms."""
    assert ENGLISH.query(text) in ([], ["and"], ["near"], ["col"])
    assert ENGLISH.query(text + " sauna")[-1] == "sauna"


def test_nul_or_surrogate_separates_words():
    """Like a space."""
    assert ENGLISH.query("cat\x00dog\ud800sauna") == ["cat", "dog", "sauna"]


@pytest.mark.ci
@pytest.mark.parametrize(
    "unit",
    [
        "the quick brown fox ", "the ", "a", "a-", "aB", "A", "_", "1.", "1,", "/a.b", "a#", "\"'", "\x00",
        "é", "नमस्ते", "北京工作", "ภาษา", "🎉",
    ],
)  # fmt: skip
def test_megabyte_is_analysed_in_time(unit):
    """Any megabyte as a query in less than 3 s, into at most 512 terms."""
    text = unit * (MEGABYTE // len(unit.encode()))
    began = time.thread_time()
    found = ENGLISH.query(text)
    assert time.thread_time() - began < 3
    assert len(found) <= MAX_QUERY_TERMS


def test_a_query_has_at_most_512_terms():
    """Of a hundred thousand different words the first 512 are used."""
    words = [f"word{number}" for number in range(100_000)]
    found = ENGLISH.query(" ".join(words))
    assert len(found) == MAX_QUERY_TERMS == 512
    assert found[0] == "word0"


def test_hostile_marks_are_analysed_in_time():
    """Forty thousand combining marks on one letter do not stop a search."""
    text = "a" + "\u0301\u0316" * 20_000
    began = time.thread_time()
    ENGLISH.query(text)
    assert time.thread_time() - began < 0.5


# --- languages


@pytest.mark.parametrize(
    ("language", "query", "document"),
    [
        ("german", "Haus", "zwei Häuser"),
        ("german", "Katzen", "eine Katze"),
        ("french", "continuel", "continuellement"),
        ("french", "école", "L'ÉCOLE"),
        ("russian", "книга", "много книгами"),
        ("hindi", "लड़की", "दो लड़कियाँ"),
        ("turkish", "kitap", "kitaplar"),
    ],
)
def test_stemming_is_by_language(language, query, document):
    """A word meets its inflected forms in its own language, and mostly not in English."""
    assert meet(query, document, language)


@pytest.mark.parametrize(
    ("language", "text", "kept"),
    [("german", "Was darf nicht in die Wurmkiste?", "wurmkist"), ("french", "Où est la gare ?", "gar")],
)
def test_stop_words_are_by_language(language, text, kept):
    """A text's stop words are those of the store's language; a query's are those of its own, if that is plain."""
    words, others = (
        [token.term for token in each.tokens(text) if not token.stop] for each in (Analyzer(language), ENGLISH)
    )
    assert kept in words
    assert len(words) < len(others)
    assert len(Analyzer(language).query(text)) == len(ENGLISH.query(text)) == len(words)


def test_language_none_changes_no_word():
    """No stemming and no stop words; only case and accents are removed."""
    assert Analyzer("none").query("The runners are Running to Cafés") == [
        "the", "runners", "are", "running", "to", "cafes",
    ]  # fmt: skip
    assert not any(token.stop for token in Analyzer("none").tokens("the and of"))


def test_an_unknown_language_is_refused():
    """The message names the language and those that exist."""
    with pytest.raises(ValueError, match="unknown language 'klingon'; there are none, arabic"):
        Analyzer("klingon")


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_its_stemmer(language):
    """Each language that is offered can be used, and has a fingerprint of its own."""
    assert meet("Sauna 北京 1.0.21", "1.0.21 sauna 北京", language)
    assert Analyzer(language).fingerprint.endswith(f":{language}")


@pytest.mark.parametrize(("language", "word"), [("nepali", "का"), ("nepali", "छ"), ("arabic", "ـ")])
def test_word_without_a_stem_is_kept(language, word):
    """Some stemmers remove a short word as an ending; a term cannot be empty."""
    assert terms(word, language) == [word]


# --- properties of any text at all


@MANY
@given(text=ANY_TEXT)
def test_text_is_found_by_its_own_terms(text):
    """Every query term of a text is among its document terms."""
    assert set(ENGLISH.query(text)) <= set(terms(text))


@MANY
@given(text=ANY_TEXT)
def test_token_spans_are_valid(text):
    """Every span is inside the text, not empty, and does not start before the previous one."""
    tokens = list(ENGLISH.tokens(text))
    assert all(0 <= token.start < token.end <= len(text) for token in tokens)
    assert [token.start for token in tokens] == sorted(token.start for token in tokens)


@MANY
@given(text=ANY_TEXT, language=st.sampled_from(LANGUAGES))
def test_terms_are_valid_for_an_index(text, language):
    """No term is empty or has white space, which would split it in the index."""
    found = terms(text, language)
    assert all(found)
    assert not [term for term in found if term.split() != [term]]


def reference(text: str, language: str = "english") -> tuple[list[int], int]:
    """What `hashed` must give, from the tokens."""
    tokens = list(Analyzer(language).tokens(text))
    return [term_hash(token.term) for token in tokens], sum(not token.stop for token in tokens)


@MANY
@given(text=ANY_TEXT, language=st.sampled_from(LANGUAGES))
def test_hashes_are_those_of_the_terms(text, language):
    """The fast way to an index gives the terms of the tokens, in their order, and counts those that are no stops."""
    assert Analyzer(language).hashed(text) == reference(text, language)


@MANY
@given(
    words=st.lists(st.sampled_from(AWKWARD), max_size=8),
    spaces=st.sampled_from([" ", "\n", "\t", "\u00a0", "\u3000", "\u2028", "\x1f", "", ","]),
)
def test_hashes_of_words_in_any_company(words, spaces):
    """Contractions, identifiers, numbers, marks, emoji and scripts without spaces, next to each other."""
    assert ENGLISH.hashed(spaces.join(words)) == reference(spaces.join(words))


@MANY
@given(text=ANY_TEXT | st.lists(st.sampled_from(AWKWARD), max_size=8).map(" ".join))
def test_words_of_a_text_are_those_of_its_chunks(text):
    """The words that the index has of a text are those of the whole text, though they are cached by chunks."""
    columns = (None, None, None, 0.5, None, 0, None, None, None, bytes(16), None, 0, None)
    built = build([(1, "fact", "a title", text, *columns), (2, "chunk", "", text, *columns)], ENGLISH)
    words, sizes = built.words_at(np.array([0, 1]))
    assert sorted(words.tolist()) == sorted(set(word_hashes(text)))
    assert (sizes.tolist(), built.word_count.tolist()) == ([len(words), 0], [len(word_hashes(text)), 0])


def test_hashes_of_real_texts_are_those_of_the_terms():
    """The same for the sample notes and for this project's own pages and code, first seen and seen before."""
    files = [
        *ROOT.glob("src/recollect/sample/notes/**/*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("src/recollect/*.py"),
    ]
    texts = [file.read_text("utf-8") for file in files]
    assert len(texts) > 20
    for text in (*texts, *texts):
        assert ENGLISH.hashed(text) == reference(text)


def test_hashes_stay_right_when_the_cache_is_full(monkeypatch):
    """A full cache of chunks starts again, and gives the same."""
    monkeypatch.setattr(analysis, "CACHED_CHUNKS", 3)
    text = "one two three four five six seven one two three"
    assert ENGLISH.hashed(text) == ENGLISH.hashed(text) == reference(text)


def test_words_of_a_long_chunk_are_cached(monkeypatch):
    """A text without spaces is analysed about as fast as one with spaces, and gives the same."""
    monkeypatch.setattr(analysis, "_chunks", cache(analysis._Chunks))
    plain, accented = "|heron|kite" * 1_000, "|heron|käfer" * 1_000
    analysis._terms.cache_clear()
    terms_of_both = ENGLISH.hashed(plain), ENGLISH.hashed(accented)
    assert set(analysis._chunks("english")) == {"heron", "kite"}
    assert analysis._terms.cache_info().misses == 2
    assert terms_of_both == (reference(plain), reference(accented))


@MANY
@given(
    words=st.sampled_from([AWKWARD, [word for word in AWKWARD if word.isascii()]]).flatmap(
        lambda some: st.lists(st.sampled_from(some), min_size=8, max_size=16)
    ),
    joint=st.sampled_from('|,;="(*~#+-'),
)
def test_hashes_of_a_long_chunk_are_those_of_the_terms(words, joint):
    """Whatever stands between its words; the words of phrases are the same, too."""
    text = joint.join(word for word in words if not word.isspace())
    assert ENGLISH.hashed(text) == reference(text)
    hashes = [word for _, word, has in analysis._ENTRY.iter_unpack(ENGLISH.packed(text)) if has & analysis.WORD]
    assert not text.isascii() or hashes == word_hashes(text)


def test_hash_of_a_term_never_changes():
    """Indexes on disk hold these numbers."""
    assert term_hash("recollect") == 0x366AF11F28CF62D3


@MANY
@given(stem=NASTY_TEXT, times=st.integers(1, 60), end=st.sampled_from(["", "#", "++", "'s", "_", "-b"]))
def test_terms_are_short(stem, times, end):
    """No term is longer than 80 characters, however long the word (and its sign) is."""
    assert all(len(term) <= MAX_TERM + 2 for term in terms(stem * times + end))


@MANY
@given(text=ANY_TEXT)
def test_case_and_composition_do_not_matter(text):
    """The decomposed form of a text is found by the text."""
    assert ENGLISH.query(unicodedata.normalize("NFD", text)) == ENGLISH.query(unicodedata.normalize("NFC", text))


@pytest.mark.ci
def test_analyzer_is_thread_safe():
    """Eight threads with one analyzer get the tokens that one thread gets."""
    texts = [f"Runners number{n} were running snake_case{n} relational stories 北京 v1.0.{n}" for n in range(200)]
    analyzer = Analyzer()
    alone = [list(Analyzer().tokens(text)) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda _: [list(analyzer.tokens(text)) for text in texts], range(16)))
    assert all(each == alone for each in together)


# --- snippets


def shown(text: str, query: str, **options: int) -> str:
    """The snippet of a text for a query."""
    return snippet(text, ENGLISH.query(query), ENGLISH, **options)


FILLER = "some words that say nothing of what is wanted here and go on for a while. "


def test_a_short_text_is_shown_whole():
    """What fits is shown as it is, in one line, without an ellipsis."""
    assert shown("The boiler\nis  in the cellar.", "boiler") == "The boiler is in the cellar."


def test_a_snippet_shows_the_match_in_its_sentence():
    """A match far down is shown with words before and after it, whole words at both ends."""
    line = shown(FILLER * 20 + "the dishwasher leaks again " + FILLER * 20, "dishwashers")
    assert "the dishwasher leaks again" in line
    assert line.startswith("… ")
    assert line.endswith(" …")
    assert set(line.split()) <= {"…", *FILLER.split(), "the", "dishwasher", "leaks", "again"}


def test_a_snippet_without_match_is_the_beginning():
    """Where nothing matches, the beginning is shown."""
    assert shown(FILLER * 20, "dishwasher") == lead(FILLER * 20)


@pytest.mark.parametrize("gap", [0, 60, 120, 180, 200])
@pytest.mark.parametrize("before", [0, 50, 1000])
def test_a_snippet_shows_all_the_terms_that_fit(before, gap):
    """Two terms that fit into one window are both shown, wherever the window is."""
    filler = (FILLER * 20)[:before]
    line = shown(f"{filler} dishwasher {(FILLER * 3)[:gap]} sauna {FILLER * 20}", "sauna dishwasher")
    assert "dishwasher" in line
    assert "sauna" in line


def test_snippet_is_where_most_terms_are():
    """Also if each term alone comes earlier."""
    apart = f"the sauna {FILLER * 5} the dishwasher {FILLER * 5}"
    assert "a sauna beside the dishwasher" in shown(f"{apart} a sauna beside the dishwasher", "sauna dishwasher")


def test_a_snippet_goes_on_after_the_rarest_term():
    """A term that stands all over a table does not push the matching row to the end of the window."""
    table = " ".join(f"| item {number} | {number * 3} kg |" for number in range(100, 200))
    assert "item 177 | 531 kg" in shown(table, "item 177")


@pytest.mark.parametrize(
    ("before", "match"), [("我" * 500, "北京"), ("ภาษา" * 200, "ไทย"), (f"https://example.com/{'x' * 400} ", "sauna")]
)
def test_a_snippet_of_a_text_without_spaces_shows_the_match(before, match):
    """Chinese and Thai have no spaces to begin at, a long address has none near; the match is shown all the same."""
    line = shown(f"{before}{match} {before}", match)
    assert match in line
    assert len(line) <= WIDTH + 4


WORDS = st.text("abcdefgh京é  ", max_size=200).map(lambda text: text[:100] + " ".join(text[100:]))


@MANY
@given(before=WORDS, after=WORDS, width=st.sampled_from([120, 240]))
def test_a_snippet_contains_a_match(before, after, width):
    """Wherever the match stands among words long and short, it is in the snippet, one line of bounded length."""
    line = shown(f"{before} needle {after}", "needles", width=width)
    assert "needle" in line
    assert len(line) <= width + 4


@MANY
@given(text=ANY_TEXT, times=st.integers(1, 12), width=st.integers(10, 60))
def test_any_snippet_is_one_bounded_line(text, times, width):
    """Any text, repeated to any length, gives a line within the limit (and its two ellipses)."""
    line = shown(text * times, text, width=width)
    assert len(line) <= width + 4
    assert line == " ".join(line.split())
    assert len(lead(text * times, width=width)) <= width + 2


def test_snippet_of_a_very_long_text_is_searched_in_its_beginning():
    """Reading a million characters takes half a second, and a search shows many results."""
    analyzer = Analyzer("english")
    late = "filler " * 150_000 + "sauna"
    assert snippet(late, {"sauna"}, analyzer) == lead(late)
    assert "sauna" in snippet("sauna " + late, {"sauna"}, analyzer)
    assert "sauna" in snippet("filler " * 2_000 + "sauna " + late, {"sauna"}, analyzer)


@MANY
@given(st.one_of(st.text(st.characters(max_codepoint=127), max_size=60), st.text("aAbB19_.-/:@&,'+# ", max_size=12)))
def test_ascii_text_has_the_same_terms_beside_other_letters(text):
    """A text of ASCII is split by simpler patterns; a letter beyond ASCII after it changes none of its terms."""
    assert [*ENGLISH.tokens(text)] == [*ENGLISH.tokens(f"{text} \u00e9")][:-1]


@pytest.mark.parametrize(
    ("question", "terms"),
    [
        ("How does fusion work?", ["fusion"]),
        ("how row level security works", ["row", "level", "secur"]),
        ("What does superseded mean?", ["supersed"]),
        ("could you explain decay", ["decay"]),
        ("Please tell me about backups.", ["backup"]),
        ("how do I use tags?", ["tag"]),
        ("how does it work", ["work"]),  # there is nothing else to search for
        ("work", ["work"]),
        ("we work from home", ["work", "home"]),
        ("the mean of the scores", ["mean", "score"]),
        ("Was ist die Hauptstadt der Mongolei?", ["hauptstadt", "mongolei"]),  # in another language than the store
        ("when did he die in the war", ["die", "war"]),
    ],
)
def test_query_is_what_a_question_is_about(question: str, terms: list[str]):
    """Words that only make it a question are not searched, unless there are no others."""
    assert Analyzer().query(question) == terms
    assert Analyzer("german").query("explain fusion") == ["explain", "fusion"]
