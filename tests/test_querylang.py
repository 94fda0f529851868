"""The query language: what is an operator, what is plain text, and which records contain a wording."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.analysis import Analyzer
from recollect.querylang import contained, has_phrase, is_word, needed_terms, parse, term_of


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        ('"two weeks off"', ["phrase:two weeks off"]),
        ("“two weeks off”, please", ["phrase:two weeks off", "text:, please"]),
        ("job queue -redis", ["text:job queue", "without:redis"]),
        ('queue -"dead letter"', ["text:queue", "without:dead letter"]),
        ("-東京 旅行", ["without:東京", "text:旅行"]),
        ("tardig* water", ["prefix:tardig", "text:water"]),
        ("tag:work path:notes/a.md plan", ["tag:work", "path:notes/a.md", "text:plan"]),
        ('category:decision user:ada since:2w before:"last week"',
         ["category:decision", "user:ada", "since:2w", "before:last week"]),
        ('path:"my notes/a b.md" x', ["path:my notes/a b.md", "text:x"]),
        ("kind:fact after:2020-01-01 until:today", ["kind:fact", "after:2020-01-01", "until:today"]),
        ("queue NOT redis", ["text:queue", "without:redis"]),
        ("NOT (redis OR kafka) queue", ["without:redis", "without:kafka", "text:queue"]),
    ],
)  # fmt: skip
def test_operators(query: str, parts: list[str]) -> None:
    """An operator stands at the start of a word and has a value."""
    parsed = parse(query)
    assert [f"{part.name or part.kind}:{part.value}" for part in parsed.parts] == parts
    assert not parsed.notes


@pytest.mark.parametrize(
    "query",
    [
        "ada@example.org", "https://example.org/a:b?c=-d", "std::map", "C:\\x", "note: buy milk", "tag: work", "tag:",
        "tag::x", "a -b", "-5 degrees", "state-of-the-art", "a - b", "--force", "-", "*", "**bold**", "SELECT * FROM x",
        "foo*bar", "a*", "2*", '12" pipe', '{"a": "b"}', "TAG:work", "mytag:work", 'path://x?"', "",
        "file:///etc", "localhost:8080", "x" * 5000 + " -word",
    ],
)  # fmt: skip
def test_plain_text(query: str) -> None:
    """Addresses, code, prose and long pasted texts are plain text, without a note."""
    parsed = parse(query)
    assert [part.raw for part in parsed.parts] == ([query] if query.strip() or not query else [])
    assert not parsed.notes


@pytest.mark.parametrize(
    ("query", "groups"),
    [
        ("redis OR postgres", [("redis", "postgres")]),
        ("job queue redis OR postgres, or OR so", [("redis", "postgres"), ("or", "so")]),
        ('"job queue" AND postgres', [("job queue",), ("postgres",)]),
        ("redis AND queue OR kafka", [("redis", "kafka"), ("queue", "kafka")]),
        ("redis AND (queue OR kafka) today", [("redis",), ("queue", "kafka")]),
        ('(("two weeks" OR holiday) AND may), please', [("two weeks", "holiday"), ("may",)]),
        ("(see below) redis OR kafka", [("redis", "kafka")]),
        ("queue AND NOT redis", [("queue",)]),
        ("queue AND -redis", [("queue",)]),
    ],
)
def test_required_wordings(query: str, groups: list[tuple[str, ...]]) -> None:
    """AND comes before OR, parentheses before both; words that nothing joins are text."""
    parsed = parse(query)
    assert [group for part in parsed.parts for group in part.groups] == groups
    assert ("without" in [part.kind for part in parsed.parts]) is ("NOT" in query or "-" in query)
    assert not parsed.notes


@pytest.mark.parametrize(
    "query",
    [
        "redis OR", "OR redis", "AND", "TO BE OR NOT TO BE", "NOT (a AND b) c", "redis OR (job queue)",
        "(redis OR kafka", "f(x) OR g(y)", "redis AND ...", " OR ".join(["aa AND bb"] * 7), "it does NOT work",
        "404 NOT FOUND",
    ],
)  # fmt: skip
def test_expressions_that_cannot_be_read_are_plain_text_with_a_note(query: str) -> None:
    """A word may be missing, or NOT stresses a word; fields and phrases beside them still hold."""
    parsed = parse(query)
    assert [(part.kind, part.value) for part in parsed.parts] == [("text", query)]
    assert len(parsed.notes) == 1
    assert "plain text" in parsed.notes[0]
    assert [part.kind for part in parse(f'{query} tag:work "x y"').parts if part.kind != "text"] == ["field", "phrase"]


@pytest.mark.parametrize(
    "query",
    [
        '"two weeks off',
        "rm -rf",
        '""',
        '"::"',
        'well -"known',
        'tag:""',
        "-tag:work",
        "queues NOT tag:work",
        "queue NOT",
        "author:ada",
        "-type:pdf plan",
    ],
)
def test_broken_operators_are_plain_text_with_a_note(query: str) -> None:
    """What looks like an operator and is none is named."""
    parsed = parse(query)
    assert [part.kind for part in parsed.parts] == ["text"]
    assert len(parsed.notes) == 1
    assert "plain text" in parsed.notes[0]


def test_field_beside_or_is_named_in_the_note() -> None:
    """Both fields hold, as without OR."""
    parsed = parse("tag:work OR tag:ops plan")
    assert [part.value for part in parsed.parts if part.kind == "field"] == ["work", "ops"]
    assert parsed.notes == ("OR is plain text: tag:work cannot be joined; a record must match every field",)


@given(
    st.text(alphabet='"“”„-*: \nabtgusertag:é東1_.', max_size=60)
    | st.lists(st.sampled_from([*"ab().,", "AND", "OR", "NOT", "-red", '"a b"', "f(x)", "tag:x", "re*"])).map(" ".join)
)
def test_no_word_of_a_query_is_lost(query: str) -> None:
    """Whatever the query is, its parts stand in their order, and only white space is between them."""
    at = 0
    for part in parse(query).parts:
        start = query.index(part.raw, at)
        assert not query[at:start].strip()
        at = start + len(part.raw)
    assert not query[at:].strip()


@pytest.mark.parametrize(
    ("phrase", "text", "holds"),
    [
        ("two weeks off", "She asked for Two **weeks**\n off.", True),
        ("two weeks off", "two weeks offline", False),
        ("two weeks off", "two or three weeks off", False),
        ("1.0.21", "release 1.0.21-beta", True),
        ("1.0.2", "release 1.0.21", False),
        ("0.21", "release 1.0.21", False),
        ("std::map", "a std::map<int>", True),
        ("C++", "written in C++.", True),
        ("C++", "written in C.", False),
        ("京都", "東京都の夜", True),
        ("straße", "in der STRASSE", True),
        ("parseConfig", "self.parseConfig(x)", True),
    ],
)
def test_phrases(phrase: str, text: str, holds: bool) -> None:
    """A phrase is its words next to each other, in any case, with any punctuation between them."""
    assert has_phrase(phrase, "", text) is holds
    terms = {token.term for token in Analyzer().tokens(text)}
    if holds:
        assert all(any(set(one) <= terms for one in words) for words in needed_terms(phrase, Analyzer()))


WORDS = st.sampled_from(
    ["two", "Weeks", "off", "the", "parse_config", "1.0.21", "we'll", "h200", "東京", "don't", "A-b"]
)


@given(st.lists(WORDS, min_size=1, max_size=5), st.data())
def test_records_with_a_phrase_have_its_terms(words: list[str], data: st.DataObject) -> None:
    """So the index leads to every record that contains the phrase."""
    text = " ".join(words)
    start = data.draw(st.integers(0, len(words) - 1))
    phrase = " ".join(words[start : data.draw(st.integers(start + 1, len(words)))])
    terms = {token.term for token in Analyzer().tokens(text)}
    assert has_phrase(phrase, text)
    assert all(any(set(one) <= terms for one in alternatives) for alternatives in needed_terms(phrase, Analyzer()))


def test_exclusions_are_compared_by_index_term() -> None:
    """`-install` excludes "installing"; a word with a hyphen is a phrase."""
    analyzer = Analyzer()
    text = "Installing is state of the art"
    assert list(contained(["install", "redis", "state-of-the-art"], "", text, analyzer)) == [
        "install",
        "state-of-the-art",
    ]
    assert [is_word(word) for word in ("install", "C++", "state-of-the-art", "東京", "two words")] == [
        True, True, False, False, False,
    ]  # fmt: skip
    assert term_of("parse_config", analyzer) == "parseconfig"


def test_pasted_text_is_plain():
    """Several lines, or a long text, quote somebody: nothing in them is an operator."""
    for text in ('<Bart>: "I do magic."\n<Ada>: "Where?"', 'He said "keep it real" ' + "and went on " * 20):
        (part,) = parse(text).parts
        assert part.value == text


def test_question_has_fields_only():
    """A title in quotation marks need not be in the answer; a field still narrows."""
    (part,) = parse('What did Caroline learn from "Becoming Nicole"?').parts
    assert part.kind == "text"
    assert [part.kind for part in parse('who said "no" tag:work -often?').parts] == ["text", "field", "text"]
    assert parse('is "this open?').notes == ()
