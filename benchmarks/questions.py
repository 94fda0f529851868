"""Typos, dates, phrases, exclusions and other spellings, before and after: `python -m benchmarks.questions`.

25 questions of each kind are made by rules from the sample notes. "Before" reads a query as plain text, without typos
and dates. A question is answered if the right note is first; with a phrase, if every result has it; with an exclusion,
if no result has the word. Questions with dates are asked of minutes of two meetings about each note, a year apart.
"""

import argparse
import random
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from recollect import Memory, sample
from recollect.config import Settings
from recollect.types import Record

EACH = 25
BEFORE = {"plain": True, "typos": False, "dates": False}


class Question(NamedTuple):
    """A query, and whether its results are right."""

    text: str
    is_right: Callable[[list[Record]], bool]


def main() -> None:
    """Print how many questions of each kind are answered."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--embedder", default="arctic-embed-s")
    parser.add_argument("--show", action="store_true", help="print the questions, too")
    arguments = parser.parse_args()
    with Memory.open(":memory:", embedder=arguments.embedder, settings=Settings()) as memory:
        memory.index(sample.NOTES)
        notes = sorted(memory.list(), key=lambda record: record.path or "")
        dated = Memory.open(":memory:", embedder=arguments.embedder, settings=Settings())
        dated.add_many(minutes(notes))
        print("| kind | n | before | after |\n|---|---|---|---|")
        for name, make in KINDS.items():
            questions = list(make(notes, random.Random(7)))[:EACH]
            asked = dated if name == "dates" else memory
            before, after = (
                sum(one.is_right([result.record for result in asked.search(one.text, limit=3, **how).results])
                    for one in questions)
                for how in (BEFORE, {})
            )  # fmt: skip
            print(f"| {name} | {len(questions)} | {before} | {after} |")
            for one in questions if arguments.show else ():
                print(f"    {one.text}")


def rare_words(note: Record, notes: list[Record], count: int) -> list[str]:
    """The longest words of a note that no other note has."""
    others = " ".join(other.passage.lower() for other in notes if other.path != note.path)
    words = dict.fromkeys(re.findall(r"[a-z]{6,}", note.passage.lower()))
    return sorted((word for word in words if word[:5] not in others), key=len, reverse=True)[:count]


def of_note(note: Record) -> Callable[[list[Record]], bool]:
    """Whether the note is first."""
    return lambda found: bool(found) and found[0].path == note.path


def typos(notes: list[Record], chance: random.Random) -> Iterator[Question]:
    """Two words of a note, each with a letter missing, doubled, or exchanged with the next."""
    for note in notes:
        words = rare_words(note, notes, 2)
        if len(words) == 2:
            yield Question(" ".join(misspelled(word, chance) for word in words), of_note(note))


def misspelled(word: str, chance: random.Random) -> str:
    """The word with one edit after its second letter."""
    at = chance.randrange(2, len(word) - 1)
    return chance.choice(
        [
            word[:at] + word[at + 1 :],
            word[:at] + word[at] + word[at:],
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
        ]
    )


def dates(notes: list[Record], chance: random.Random) -> Iterator[Question]:
    """Which minutes about a subject are of a month: half of the questions ask for the older ones."""
    for number, note in enumerate(notes):
        at = MEETINGS[number % 2] + number * timedelta(days=9)
        which = ("first", "second")[number % 2]
        ask = chance.choice(["what did we say about {} in {}?", "{}, in {}"])
        text = ask.format(note.title, f"{at:%B %Y}")
        wanted = f"{note.title}: minutes of the {which} meeting."
        yield Question(text, lambda found, wanted=wanted: bool(found) and found[0].text == wanted)


MEETINGS = (datetime(2025, 1, 5, tzinfo=UTC), datetime(2026, 1, 5, tzinfo=UTC))


def minutes(notes: list[Record]) -> Iterator[dict[str, Any]]:
    """Two facts about each note, a year apart."""
    for number, note in enumerate(notes):
        for which, first in zip(("first", "second"), MEETINGS, strict=True):
            at = first + number * timedelta(days=9)
            yield {"text": f"{note.title}: minutes of the {which} meeting.", "happened_at": at}


def phrases(notes: list[Record], chance: random.Random) -> Iterator[Question]:
    """Three words that follow each other in a note."""
    for note in notes:
        words = re.findall(r"\w+ \w+ \w+", note.text)
        phrase = chance.choice(words)
        yield Question(
            f'"{phrase}"', lambda found, phrase=phrase: bool(found) and all(has(record, phrase) for record in found)
        )


def has(record: Record, words: str) -> bool:
    """Whether a record contains words as they are written."""
    return words.lower() in " ".join(record.passage.lower().split())


def exclusions(notes: list[Record], chance: random.Random) -> Iterator[Question]:
    """Words of the title of a note, without the notes that have a word of it."""
    for note in notes:
        words = rare_words(note, notes, 3)
        if words:
            word = chance.choice(words)
            title = " ".join(re.findall(r"\w+", note.title))
            yield Question(f"{title} -{word}", lambda found, word=word: not any(has(one, word) for one in found))


def spellings(notes: list[Record], chance: random.Random) -> Iterator[Question]:
    """Two words of a note in capitals, joined by a hyphen, or written together."""
    for note in notes:
        words = rare_words(note, notes, 2)
        if len(words) == 2:
            one, other = words
            written = chance.choice([f"{one} {other}".upper(), f"{one}-{other}", f"{one}_{other}", f"{one}s {other}s"])
            yield Question(written, of_note(note))


KINDS = {
    "typos": typos, "dates": dates, "phrases": phrases, "exclusions": exclusions, "other spellings": spellings,
}  # fmt: skip


if __name__ == "__main__":
    main()
