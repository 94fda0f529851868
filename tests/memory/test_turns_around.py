"""What was said around a turn of a conversation counts for it."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from recollect import Memory
from recollect.candidates import BEFORE_SHARE
from recollect.stages import in_conversation
from recollect.types import Candidate, Query, Scope
from recollect.types.search import Pool

TALK = (
    "Good morning!",  # the title of the conversation
    "When did you run the charity race for the heron reserve?",
    "Last Saturday, with the children, and it rained all day.",
    "How far was it?",
    "Ten kilometres, with a heron at the end.",
    "Shall we cook something?",
    "Lentils, as on every Tuesday.",
)


def talk(folder: Path, name: str = "race", turns: Sequence[str] = TALK) -> Path:
    """A file with one conversation."""
    path = folder / f"{name}.jsonl"
    rows = [
        {"role": ("user", "assistant")[at % 2], "content": text, "conversation": name} for at, text in enumerate(turns)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def factors(memory: Memory, query: str, **options: object) -> dict[str, float]:
    """The factor of each turn, by its text."""
    results = memory.search(query, sources=["keyword"], **options).results
    return {result.record.text: result.factors["turns"] for result in results if "turns" in result.factors}


def candidates(*turns: tuple[str | None, int, float]) -> list[Candidate]:
    """Candidates of conversations: which one, when they were stored, and their score."""
    pool = Pool()
    return [
        Candidate(pool, key, score, score, (bytes(16), 0, 0.5, None, file, -time))
        for key, (file, time, score) in enumerate(turns)
    ]


def test_confidence_of_an_answer_follows_from_the_question_before_it(memory: Memory, tmp_path: Path) -> None:
    """It has no word of the query. What follows the answer has no such reason to be likely."""
    memory.import_chat(str(talk(tmp_path)))
    found = memory.search("when was the charity race for the heron reserve", limit=20)
    likely = {result.record.text: result.confidence or 0.0 for result in found.results}
    question, answer, after = (likely[text] for text in TALK[1:4])
    assert question > 0.5
    assert answer > BEFORE_SHARE * question > after
    assert TALK[2] in memory.recall("when was the charity race for the heron reserve").text


def test_two_turns_before_and_after_count() -> None:
    """By the scores that they had before; the third one adds nothing."""
    given = candidates(("a", 101, 0.8), ("a", 103, 0.2), ("a", 105, 0.4), ("a", 107, 0.4))
    ranked = in_conversation(Query(""), given)
    assert [1 - one.total for one in given] == pytest.approx([
        0.2 * 0.93 * 0.86, 0.8 * 0.72 * 0.86 * 0.86, 0.6 * 0.72 * 0.93 * 0.86, 0.6 * 0.93 * 0.86,
    ])  # fmt: skip
    assert [one.key for one in ranked] == [0, 2, 1, 3]
    first, second = candidates(("a", 101, 1.0), ("a", 103, 1.0))
    in_conversation(Query(""), [first, second])
    assert first.total == second.total == 1.0


def test_other_methods_keep_their_scores(memory: Memory, tmp_path: Path) -> None:
    """Their formulas are known: RRF, OpenClaw's blend."""
    memory.import_chat(talk(tmp_path))
    query = "charity Saturday"
    assert factors(memory, query)
    assert not any(factors(memory, query, fusion=method) for method in ("rrf", "weighted", "combmnz", "borda"))


@pytest.mark.parametrize("other", [("b", 103), ("a", 106), (None, 103)])
def test_other_conversations_later_turns_and_facts_add_nothing(other: tuple[str | None, int]) -> None:
    """They were not said around it."""
    given = candidates(("a", 101, 0.8), (*other, 0.6))
    assert in_conversation(Query(""), given) is given
    assert all(not one.factors for one in given)


def test_question_counts_for_its_answer(memory: Memory, tmp_path: Path) -> None:
    """The score is explained; that of a fact stays as it is, and so do scores where there is no conversation."""
    memory.import_chat(talk(tmp_path))
    fact = memory.add("Saturday is the day.")
    results = {one.record.text: one for one in memory.search("charity Saturday", sources=["keyword"]).results}
    question, answer = results[TALK[1]], results[TALK[2]]
    assert 1 - answer.total == pytest.approx((1 - answer.base) * (1 - 0.35 * question.base))
    assert answer.total == pytest.approx(answer.base * answer.factors["turns"])
    assert not results[fact.text].factors


def test_turns_of_others_change_nothing(open_memory: Callable[..., Memory], tmp_path: Path) -> None:
    """Stored between two imports of one's own, and visible to somebody else."""
    shared, own = open_memory(tmp_path / "shared.db"), open_memory(tmp_path / "own.db")
    for name in ("race", "again"):
        for memory in (shared, own):
            memory.scoped(Scope("ada")).import_chat(talk(tmp_path, name))
        shared.scoped(Scope("bob")).import_chat(talk(tmp_path, name))
    query = "charity race heron Saturday"
    expected = factors(own, query, user="ada")
    assert expected
    assert factors(shared, query, user="ada") == expected


def test_long_turn_is_around_the_next_one(memory: Memory, tmp_path: Path) -> None:
    """It is stored in parts, of which the last ones are before the next turn."""
    long = "\n\n".join(f"Paragraph {number} about the heron reserve and its long history." * 12 for number in range(12))
    memory.import_chat(talk(tmp_path, turns=[long, "Last Saturday it was, my friend."]))
    assert memory.status()["records"]["total"] > 2
    assert "Last Saturday it was, my friend." in factors(memory, "reserve Saturday", limit=50)
