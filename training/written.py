"""The questions that a language model wrote for training: facts, conversations and functions of its own, and passages.

The files are in `training/written`. `facts.txt` has stores of facts: `F:` a fact, `S:` a question in its words, `O:`
and `K:` questions and queries in other words. `conversations.txt` has turns (`T:`), and questions with the number of
the turn that answers (`Q 3:`). `functions.txt` has functions and queries for them. `passages.txt` has questions to
passages of the sources, each below the beginning of a hash of its passage (`=`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path

from data import Group

FOLDER = Path(__file__).with_name("written")


def read_written() -> Iterator[tuple[str, Group]]:
    """Each store, conversation and file of functions, with the name of its file."""
    for name, read in (
        ("facts", partial(signed, "facts")),
        ("conversations", partial(signed, "conversation")),
        ("functions", functions),
    ):
        for part in re.split(
            r"^# (?:Store|Conversation|Functions)\b.*\n",
            (FOLDER / f"{name}.txt").read_text(encoding="utf-8"),
            flags=re.MULTILINE,
        ):
            if (group := read(part)).passages:
                yield name, group


def signed(kind: str, text: str) -> Group:
    """Facts or turns, and the questions to the one before (`S`, `O`, `K`) or to the turn with this number (`Q 3`)."""
    group = Group(kind)
    for line in text.splitlines():
        sign, _, said = line.partition(": ")
        if sign in ("F", "T"):
            group.passages.append(said)
        elif sign in ("S", "O", "K"):
            group.ask(said, len(group.passages) - 1)
        elif sign.startswith("Q "):
            group.ask(said, int(sign[2:]) - 1)
    group.questions = [(asked, at) for asked, at in group.questions if at is not None and at < len(group.passages)]
    return group


def functions(text: str) -> Group:
    group = Group("code")
    for part in re.split(r"^===\s*\n", text, flags=re.MULTILINE):
        code, *asked = re.split(r"^Q: ", part, flags=re.MULTILINE)
        if asked:
            group.passages.append(code.rstrip())
            for question in asked:
                group.ask(question, len(group.passages) - 1)
    return group


def written_for() -> dict[str, list[str]]:
    """The name of a passage (`name_of`) → the questions written for it."""
    found: dict[str, list[str]] = {}
    for part in re.split(r"^= ", (FOLDER / "passages.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        name, *asked = part.splitlines()
        found.setdefault(name, []).extend(asked)
    return found


def name_of(passage: str) -> str:
    return sha256(passage.encode()).hexdigest()[:16]
