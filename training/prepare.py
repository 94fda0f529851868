"""Write the training data: `python training/prepare.py REPOSITORIES train.json.xz [--embedder] [--without SETS]`.

Needs Python, and numpy for `--without`. Beside the questions of the sources, a sentence or a few words of a passage ask
for it. `--embedder` adds the sources that only the embedder reads. `--without` names a folder of development sets:
a passage or question that has ten words in a row of one of their texts is left out. `--asked` adds questions of people
that belong to no passage: their group and their answer are -1. `--written` adds the questions that a language model
wrote (written.py), each of the kind `written: KIND`; those of its own facts, conversations and functions come last,
from the group `alone` on, each of which is searched by itself.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import re
from bisect import bisect_right
from collections import Counter
from pathlib import Path

from data import ASKED, FOR_EMBEDDER, SHORTEST, SOURCES, Group, read_all, read_asked
from overlap import Known
from written import name_of, read_written, written_for

WORD = re.compile(r"\b[A-Za-z][a-z]{3,}\b")
OWN_KINDS = ("conversation", "science", "documentation", "code", "encyclopedia")
KINDS = (*OWN_KINDS, *(f"written: {kind}" for kind in (*OWN_KINDS, "facts")))
RENAMED = 0.3  # the share of groups in which some words are others, the same in passages and questions
MADE_UP = 0.35  # the share of passages that a part of themselves asks for


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repositories", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--embedder", action="store_true", help="read the further sources of the embedder")
    parser.add_argument("--without", type=Path, help="a folder of development sets")
    parser.add_argument("--asked", action="store_true", help="add questions that belong to no passage")
    parser.add_argument("--written", action="store_true", help="add the questions that a language model wrote")
    parser.add_argument("--renamed", type=float, default=RENAMED, help="share of groups in which words are replaced")
    parser.add_argument("--made-up", type=float, default=MADE_UP, help="share of passages that a part of them asks for")
    parser.add_argument(
        "--part", type=int, nargs=2, metavar=("I", "N"), default=(0, 1), help="every Nth source, from I"
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    sets = Known(arguments.without) if arguments.without else None
    first, every = arguments.part
    sources = ((*SOURCES, *FOR_EMBEDDER) if arguments.embedder else SOURCES)[first::every]
    passages, groups, questions = list[str](), list[int](), list[tuple[str, int, int, int]]()
    known = list[str]()
    count = Counter[tuple[str, str]]()
    for source, whole in read_all(arguments.repositories, sources, arguments.seed):
        group = without(whole, sets) if sets else whole
        count[source, "passages left out"] += len(whole.passages) - len(group.passages)
        if group.kind != "code":
            known += rng.sample(words := sorted(set(WORD.findall(" ".join(group.passages)))), min(20, len(words)))
            if rng.random() < arguments.renamed:
                rename(group, known, rng)
        base, number, kind = len(passages), len(groups), KINDS.index(group.kind)
        passages += group.passages
        groups.append(len(passages))
        asked = {(text, answer) for text, answer in group.questions}
        for place, passage in enumerate(group.passages):
            if rng.random() < arguments.made_up and (made := part(passage, rng)):
                asked.add((made, place))
        # number of the group, of the answer (-1: unknown), and of the kind
        questions += ((text, number, -1 if at is None else base + at, kind) for text, at in sorted(asked, key=str))
        count[source, "passages"] += len(group.passages)
        count[source, "questions"] += len(asked)
    if arguments.asked:
        for text in read_asked(arguments.repositories):
            if not (sets and sets.shares(text)):
                questions.append((text, -1, -1, KINDS.index("encyclopedia")))
                count[ASKED.name, "questions"] += 1
    data = {"kinds": KINDS, "passages": passages, "ends": groups, "questions": questions, "alone": len(groups)}
    if arguments.written:
        add_written(data, sets, count)
    for (source, what), value in count.items():
        print(f"{source}: {value:,} {what}")
    text = json.dumps(data, ensure_ascii=False)
    arguments.target.write_bytes(lzma.compress(text.encode("utf-8", "replace"), preset=9))
    print(f"{len(passages):,} passages, {len(questions):,} questions, {arguments.target.stat().st_size:,} bytes")


def add_written(data: dict, sets: Known | None, count: Counter[tuple[str, str]]) -> None:
    """Add what a language model wrote: questions to passages that are there, and groups of its own."""
    passages, ends, questions = data["passages"], data["ends"], data["questions"]
    kind_of = {group: kind for _, group, _, kind in questions}
    wanted = written_for()
    for answer, passage in enumerate(passages):
        for text in wanted.pop(name_of(passage), ()):
            group = bisect_right(ends, answer)
            if group in kind_of and not (sets and sets.shares(text)):
                questions.append((text, group, answer, KINDS.index(f"written: {KINDS[kind_of[group]]}")))
                count["passages", "questions"] += 1
    for name, whole in read_written():
        group = without(whole, sets) if sets else whole
        kind = KINDS.index(f"written: {group.kind}")
        questions += ((text, len(ends), len(passages) + at, kind) for text, at in group.questions if at is not None)
        passages += group.passages
        ends.append(len(passages))
        count[name, "passages"] += len(group.passages)
        count[name, "questions"] += len(group.questions)


def without(group: Group, sets: Known) -> Group:
    """The group without passages and questions that are in a development set, nor questions about such passages."""
    kept = [number for number, passage in enumerate(group.passages) if not sets.shares(passage)]
    place = {None: None, **{number: new for new, number in enumerate(kept)}}
    asked = [(text, place[at]) for text, at in group.questions if at in place and not sets.shares(text)]
    return Group(group.kind, [group.passages[number] for number in kept], asked)


def rename(group: Group, known: list[str], rng: random.Random) -> None:
    """Put other words in the place of some, everywhere in a group, so that more words are seen asked for."""
    words = sorted(set(WORD.findall(" ".join(group.passages))))
    other = {word: rng.choice(known) for word in words if rng.random() < 0.35}

    def replaced(text: str) -> str:
        return WORD.sub(lambda found: other.get(found[0], found[0]), text)

    group.passages = [replaced(passage) for passage in group.passages]
    group.questions = [(replaced(question), answer) for question, answer in group.questions]


def part(passage: str, rng: random.Random) -> str:
    """A sentence of a passage, or a few words of it."""
    sentences = [one.strip() for one in re.split(r"(?<=[.!?:])\s+|\n", passage) if SHORTEST < len(one) < 200]
    if not sentences:
        return ""
    words = rng.choice(sentences).split()
    if rng.random() < 0.4 and len(words) > 4:
        most = rng.randint(2, min(8, len(words)))
        start = rng.randint(0, len(words) - most)
        words = words[start : start + most]
    text = " ".join(words)
    return text.lower() if rng.random() < 0.3 else text


if __name__ == "__main__":
    main()
