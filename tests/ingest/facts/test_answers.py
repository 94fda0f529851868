from __future__ import annotations

import tracemalloc

import pytest

from recollect.errors import LlmError
from recollect.ingest.facts import ProposedFact, parse

ONE = '{"text": "The port is 8080.", "span": "port 8080"}'
TWO = '{"text": "It runs on Linux.", "span": "runs on Linux"}'


def texts(answer):
    return [candidate.text for candidate in parse(answer)[0]]


@pytest.mark.parametrize(
    "answer",
    [
        f"{ONE}\n{TWO}",
        f"Sure! Here are the facts:\n\n```json\n{ONE}\n{TWO}\n```\nLet me know if {{you}} need more.",
        f"[{ONE},\n {TWO}]",
        f"[{ONE}, {TWO}]",
        f"- {ONE}\n- {TWO}",
        f"1. {ONE}\n2) {TWO}",
        f'{{"facts": [{ONE}, {TWO}]}}',
        f"{ONE} {TWO}",
        '{\n  "text": "The port is 8080.",\n  "span": "port 8080"\n}\n' + TWO,
        f"{ONE}\r\n{TWO}\r\n",
    ],
)
def test_facts_are_read_from_any_surrounding_text(answer):
    """Fences, prose, bullets, lists and multi-line objects give the same two facts."""
    candidates, malformed = parse(answer)
    assert [(each.text, each.span) for each in candidates] == [
        ("The port is 8080.", "port 8080"),
        ("It runs on Linux.", "runs on Linux"),
    ]
    assert malformed == []


@pytest.mark.parametrize(
    "bad",
    [
        '{"text": "cut of',
        '{"text": "a" "span": "b"}',
        "{text: nothing}",
        '{"span": "only a span"}',
        '{"text": 5, "span": "five"}',
        '{"text": "  ", "span": "blank"}',
        '{"text": "' + "x" * 2001 + '", "span": "long"}',
        '{"a":' * 100_000,
    ],
)
def test_invalid_line_costs_only_itself(bad):
    """The other lines are read, and it is counted once."""
    candidates, malformed = parse(f"{ONE}\n{bad}\n{TWO}")
    assert [each.text for each in candidates] == ["The port is 8080.", "It runs on Linux."]
    assert len(malformed) == 1


@pytest.mark.parametrize("bad", ["{}" * 10_000, '{"facts": [' + "1," * 10_000 + "1]}"], ids=["objects", "a list"])
def test_many_invalid_objects_on_one_line_take_little_memory(bad):
    """Each of them is kept without the rest of its line."""
    tracemalloc.start()
    try:
        malformed = parse(f"{ONE}\n{bad}")[1]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(malformed) >= 10_000
    assert peak < 5_000_000


@pytest.mark.parametrize(
    "answer", ["[]", " [ ]\n", "```json\n[]\n```", '{"facts": []}', '```\n{"facts": []}\n```', "No facts here:\n\n[]"]
)
def test_empty_list_is_a_valid_answer(answer):
    """It means that there is no fact, with or without a fence or words around it."""
    assert parse(answer) == ([], [])


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "the model answered nothing"),
        (" \n\t", "the model answered nothing"),
        ("There are no facts in this piece.", "not JSON lines: “There are no facts in this piece.”"),
        ("Sorry, we are overloaded.\x1b[2J", "not JSON lines: “Sorry, we are overloaded. [2J”"),
        ("```json\n```", "not JSON lines"),
        ("null", "not JSON lines"),
        ("[1, 2]", "not JSON lines"),
        ('{"error": {"message": "overloaded"}}', "no line of the answer is a fact"),
        ('{"text": "cut of', "ends in the middle of a fact"),
        (f'{ONE}\n{{"text": "cut of', "ends in the middle of a fact"),
        (f'[{ONE},\n{{"text": "The camera is", "span": ', "ends in the middle of a fact"),
        (f'```json\n{ONE}\n{{"text": "The', "ends in the middle of a fact"),
        ("x" * 5000, "not JSON lines: “" + "x" * 100),
    ],
)
def test_unrequested_format_is_an_error(answer, reason):
    """Prose, a refusal, another object, nothing, or half a line: an error with a short, safe reason."""
    with pytest.raises(LlmError) as caught:
        parse(answer)
    assert reason in caught.value.message
    assert len(caught.value.message) < 200
    assert caught.value.message.isprintable()


def test_invalid_labels_are_dropped_and_the_fact_stays():
    """A category or tag of the wrong type or length."""
    (said,), _ = parse(
        '{"text": " A  fact. ", "span": 5, "category": ["x"], "tags": ["Ops", 7, "ops", "y%s"]}' % ("y" * 50)
    )
    assert said == ProposedFact("A fact.", tags=("ops",))
    (said,), _ = parse('{"text": "A.", "category": "Decision", "tags": "not a list", "supersedes": " id-1 "}')
    assert said == ProposedFact("A.", category="decision", supersedes="id-1")


def test_lone_surrogate_does_not_reach_the_store():
    """A model may write what no encoding can store."""
    assert texts('{"text": "a\\ud800b", "span": "x"}') == ["a\ufffdb"]
