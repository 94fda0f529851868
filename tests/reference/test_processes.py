"""No cache can be wrong: after every change by one process, identical queries in two processes equal the reference.

A store that is opened anew for each query, which has nothing cached, must give the same answers.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recollect import Memory
from recollect.config import Settings
from reference import search, worker
from reference.stores import TinyEmbedder, check, described, some_options, world_of

WORKER = Path(worker.__file__)
MOMENT = timedelta(seconds=3)  # until a record expires: enough for the queries before it
QUERIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("the heron in the lake", {}),
    ("boats", {"sources": ("keyword",), "user": "ada", "fetch_k": 3}),
    ("heron", {"sources": ("vector",), "superseded": True}),
    ("heron lake", {"tags": "red", "fusion": "rrf"}),
)


@dataclass
class Processes:
    """Two processes on one store. They embed only what they are told to, so that a search changes nothing."""

    place: str
    pair: list[subprocess.Popen[str]]
    known: list[str] = field(default_factory=list)

    def call(self, number: int, name: str, *arguments: Any, refuses: bool = False, **options: Any) -> Any:
        """Let one of the processes call a method of its memory."""
        process = self.pair[number % 2]
        process.stdin.write(worker.encoded((refuses, name, arguments, options)) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, "the process has ended"
        return worker.decoded(line)

    def add(self, number: int, text: str, **options: Any) -> str:
        """Let one of the processes add a record."""
        self.known.append(self.call(number, "add", text, **options).id)
        return self.known[-1]

    def compare(self, queries: tuple[tuple[str, dict[str, Any]], ...] = QUERIES) -> None:
        """Run identical queries in both processes and in a store that is opened anew."""
        embedder = TinyEmbedder()
        embedder.refuses = True
        with Memory.open(self.place, embedder=embedder, settings=Settings(), announce=lambda _: None) as fresh:
            for text, options in queries:
                answer = fresh.search(text, **options)
                answers = [self.call(number, "search", text, refuses=True, **options) for number in (0, 1)]
                world = world_of(fresh, embedder, self.known)
                for description, now in [*answers, (described(answer), answer.query.filter.now)]:
                    check(description, search.search(world, text, options, now))


@pytest.fixture
def processes(place: str, start: Callable[..., subprocess.Popen[str]]) -> Processes:
    """Two processes on the test's store; one of them writes parts of its index early."""
    return Processes(place, [start(WORKER, place, sizes) for sizes in ("small", "usual")])


def test_every_kind_of_change_is_seen_by_both_processes(processes: Processes) -> None:
    """Whichever process makes it."""
    call, add, compare = processes.call, processes.add, processes.compare
    compare()
    first = add(0, "The heron stands in the lake.", tags=["red"])
    compare()
    second = add(1, "Boats on the lake at dawn", user="ada")
    compare()
    third = add(0, "the  HERON stands in the lake.", user="ada", tags=["red"])  # a duplicate for ada only
    compare()
    call(1, "edit", first, text="A heron stands in the reeds.")
    compare()
    call(0, "edit", first, text="The heron stands in the lake.", tags=["blue"], importance=1.0)
    compare()
    call(1, "undo", first)
    compare()
    processes.known.append(call(0, "supersede", second, text="Boats on the river at dawn").id)
    compare()
    call(1, "undo", second)
    compare()
    call(0, "supersede", first, by=add(1, "The heron has left the lake."))
    compare()
    call(1, "undo", first)
    compare()
    call(0, "forget", first)
    compare()
    call(1, "undo", first)
    compare()
    call(1, "forget", third, purge=True)
    compare()
    add(0, "heron and boats", id=third, user="bob")  # the id of a purged record, in another scope
    compare()


def test_vectors_that_one_process_saves_are_found_by_both(processes: Processes) -> None:
    """Records without a vector are found by words only, until either process has embedded them."""
    for number in range(4):
        processes.add(number, f"heron {number} on the lake", refuses=number > 0)
        processes.compare()
    assert processes.call(1, "embed") == 3
    processes.compare()


def test_another_language_is_used_by_both(processes: Processes) -> None:
    """German stems other words together than English does."""
    processes.add(0, "boats boat Boote Boot heron herons Reiher", tags=["red"])
    processes.add(1, "lake lakes See Seen heron Herons", user="ada")
    processes.compare()
    for number, language in enumerate(("german", "none", "english")):
        processes.call(number, "change_language", language)
        processes.compare()
        processes.add(number, f"herons of the lake, {language}")
        processes.compare()


def test_time_that_passes_is_noticed_by_both(processes: Processes) -> None:
    """A record expires and a planned supersession begins without any change to the store."""
    old = processes.add(0, "the heron of the lake", tags=["red"])
    new = processes.add(1, "the heron of the river", tags=["red"])
    moment = datetime.now(UTC) + MOMENT
    processes.add(1, "heron on loan", tags=["red"], expires_at=moment)
    processes.call(0, "supersede", old, by=new, at=moment)
    processes.compare()
    time.sleep(max(0.0, (moment - datetime.now(UTC)).total_seconds()))
    processes.compare()
    description, _ = processes.call(0, "search", "heron", refuses=True)
    assert [row["id"] for row in description["results"]] == [new]


@pytest.mark.parametrize(
    ("place", "seed"),
    [
        ("sqlite", 1),
        *(pytest.param(place, seed, marks=pytest.mark.ci) for seed in (2, 3, 4) for place in ("sqlite", "postgres")),
    ],
    indirect=["place"],
)
def test_random_changes_are_seen_by_both(processes: Processes, seed: int) -> None:
    """Twenty-five changes by either process, the same queries after each."""
    chance = random.Random(seed)
    for number in range(5):
        processes.add(number, f"heron {number} on the lake", refuses=number % 2 == 0)
    queries = (*QUERIES[:2], ("heron dawn oar", some_options(chance)))
    for step in range(25):
        _, processes.known = processes.call(chance.randrange(2), "change", seed * 100 + step, processes.known)
        processes.compare(queries)
