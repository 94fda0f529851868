"""Random stores and queries, in which ties, duplicates and shared words are frequent; and how answers are compared."""

from __future__ import annotations

import contextlib
import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
import pytest

from recollect import Memory
from recollect.errors import RecollectError, StoreError
from recollect.sources import local
from recollect.types import Answer, Put, Record, Restore, Scope
from reference.search import CATCH_UP, DEFAULTS, Outcome, World, obstacle, search

NOW = datetime.now(UTC)
WORDS = (
    "heron", "Heron", "lake", "reeds", "boats", "boat", "dawn", "the", "in", "oar", "parse_config", "parseConfig",
    "1.0.21", "café", "straße", "STRASSE", "ﬁsh", "fish", "東京", "C++", "qqq",
)  # fmt: skip
PLAIN = ("heron", "lake", "reeds", "boats", "boat", "dawn", "fish", "the")  # words of phrases and exclusions
MISSPELLED = ("herron", "lakke", "baot", "rees", "dwan boat", "parseconfig", "herons", "fihs")
FOREIGN = "qqq"  # a word that the embedder does not read
AGES = [timedelta(days=days) for days in (-400, -30, -2, -1)] + [timedelta(microseconds=-86_400_000_001)]
AHEAD = [timedelta(days=1), timedelta(days=30)]
USERS, AGENTS, SESSIONS = ("ada", "bob"), ("planner", "cook"), ("s1", "s2")
FOLDERS = ("/nowhere/docs", "/nowhere/Docs", "/nowhere/[a]", "notes")
METHODS = ("blend", "rrf", "weighted", "combmnz", "borda")
NORMALISATIONS = ("none", "minmax", "zscore", "dbsf")
SHAPES = ((4,), (2, 2, 2, 2), (3, 2, 1, 1, 1), (3, 1, 1, 1, 1, 1, 1, 1), (2, 2, 2, 1, 1, 1, 1))  # squares sum to 16
DIMENSION, DIFFERENT = 8, 24


class TinyEmbedder:
    """Maps each text to one of a few unit vectors, so that many cosines are equal.

    The components of `exact` ones are quarters, so that cosines are computed without rounding. While it `refuses`,
    passages get no vector, as in a store that cannot be written.
    """

    def __init__(self, *, exact: bool = True) -> None:
        self.name = self.fingerprint = f"tiny {exact}"
        self.exact, self.refuses = exact, False
        chance = random.Random(7)
        self._vectors = [_exact(chance) if exact else _rough(chance) for _ in range(DIFFERENT)]

    def query(self, text: str) -> np.ndarray:
        return self._vectors[zlib.crc32(text.encode()) % DIFFERENT]

    def passages(self, texts: Sequence[str]) -> np.ndarray:
        if self.refuses:
            raise StoreError("the embedder refuses")
        return np.array([self.query(text) for text in texts], dtype=np.float32).reshape(len(texts), DIMENSION)

    def legibility(self, text: str) -> float:
        """The share of words that are not foreign, in quarters."""
        words = text.split()
        return round(4 * (1 - words.count(FOREIGN) / max(1, len(words)))) / 4


def _exact(chance: random.Random) -> np.ndarray:
    shape = chance.choice(SHAPES)
    values = [chance.choice((-0.25, 0.25, 0.25)) * number for number in (*shape, *[0] * (DIMENSION - len(shape)))]
    return np.array(chance.sample(values, DIMENSION), dtype=np.float32)


def _rough(chance: random.Random) -> np.ndarray:
    vector = np.array([chance.gauss(0, 1) for _ in range(DIMENSION)])
    return (vector / np.linalg.norm(vector)).astype(np.float32)


SMALL: Mapping[str, Sequence[tuple[str, Mapping[str, int]]]] = {
    "sqlite": (
        ("sqlite.manifest", {"WRITTEN_ROWS": 2, "FACTOR": 3}),
        ("sqlite.index", {"WRITTEN_ROWS": 2, "COLD_ROWS": 1, "BATCH_ROWS": 3, "LARGEST_ROWS": 64}),
        ("sqlite.keywords", {"SEARCH_FACTOR": 0}),
        ("sqlite.views", {"TAIL_FACTOR": 2, "TAIL_ROWS": 8}),
        ("sqlite.blocks", {"PIECE_ROWS": 2, "SHARED_ROWS": 3}),
        (
            "sqlite.vectors",
            {
                "WRITTEN_ROWS": 2,
                "COLD_ROWS": 1,
                "BATCH_ROWS": 3,
                "LARGEST_ROWS": 64,
                "FEW": 0,
                "ALL_BELOW": 1,
                "GATHER_BELOW": 2,
            },
        ),
    ),
    "postgresql": (
        ("postgres.records", {"MERGE_CHANCE": 2, "SETTLE_CHANCE": 2}),
        ("postgres.keywords", {"MERGE_BATCH": 3, "SPARSE": 0, "DENSE": 0}),
        ("postgres.postings", {"TALLY_MERGE_CHANCE": 2}),
        ("postgres.vectors", {"EXACT_UP_TO": 0, "MAX_UNSETTLED": 1, "SETTLE_BATCH": 2}),
    ),
}
"""Sizes from which a store does things another way, so small that a store of a few records does them, too."""


@contextlib.contextmanager
def small_sizes(place: str) -> Iterator[None]:
    """Let a store of a few records write, merge and look up parts of its index as a large one does."""
    kind = "postgresql" if place.startswith("postgresql") else "sqlite"
    with pytest.MonkeyPatch.context() as patch:
        for module, sizes in SMALL[kind]:
            for name, size in sizes.items():
                patch.setattr(f"recollect.stores.{module}.{name}", size)
        yield


# -- random records, changes and options -------------------------------------------------------------------


def a_text(chance: random.Random) -> str:
    """Few different texts, in several spellings, some as code; rarely one that is too long for a statement."""
    length = chance.choice((1, 2, 2, 3, 3, 4, 6)) if chance.random() < 0.97 else chance.choice((58, 60, 62, 200))
    text = " ".join(chance.choice(WORDS) for _ in range(length))
    spellings = [text] * 4 + [text.upper(), text.title(), f"  {text}\n", text.replace(" ", "  "), f"{text}();"]
    return chance.choice(spellings)


def a_scope(chance: random.Random) -> Scope:
    parts = [chance.choice([None] * 3 + list(names)) for names in (USERS, AGENTS, SESSIONS)]
    return Scope(*parts) if chance.random() < 0.4 else Scope()


def a_record(chance: random.Random, texts: Sequence[str]) -> Record:
    """A record as it could be after many changes."""
    kind = chance.choice(("fact",) * 5 + ("chunk",) * 3 + ("turn",) * 2)
    chunk, turn = kind == "chunk", kind == "turn"
    superseded = chance.random() < 0.1
    return Record(
        id=f"{chance.choice('aBé')}{chance.randrange(10**6):06}",
        text=chance.choice(texts) if texts and chance.random() < 0.4 else a_text(chance),
        kind=kind,
        title=chance.choice(["", "", "", a_text(chance).strip()]),
        category=chance.choice([None, "work", "home", "Work"]),
        tags=tuple(chance.sample(["red", "blue", "Red", "a b"], chance.choice((0, 0, 1, 2)))),
        scope=a_scope(chance),
        importance=chance.choice((0.5, 0.5, 0.0, 0.8, 1.0)),
        decay=chance.choice((None, None, "stable", "active", "session", "permanent")),
        created_at=NOW + (AGES[0] + timedelta(microseconds=chance.randrange(9)) if turn else chance.choice(AGES)),
        source="chat" if turn else None,
        happened_at=chance.choice([None, None, NOW + chance.choice(AGES + AHEAD)]),
        expires_at=NOW + chance.choice(AGES + AHEAD) if chance.random() < 0.1 else None,
        edited_at=NOW + chance.choice(AGES) if chance.random() < 0.1 else None,
        superseded_by="another" if superseded else None,
        superseded_at=NOW + chance.choice(AGES + AHEAD) if superseded else None,
        origin=chance.choice(("user", "user", "file", "agent", "tool", "web", "import")),
        author=chance.choice((None, "scribe", "crawler")),
        author_session=chance.choice((None, None, "s1", "s2")),
        path=f"{chance.choice(FOLDERS)}/{chance.choice(('x.md', 'y.md', 'deep/x.md'))}" if chunk else None,
        lines=(1, 2) if chunk else None,
    )


def a_change(chance: random.Random, memory: Memory, known: list[str]) -> str:
    """Make one change to the store, and return its name. A change that is refused changes nothing."""
    key, other = chance.choice(known), chance.choice(known)
    when = chance.choice([None, NOW + chance.choice(AGES + AHEAD)])
    name = chance.choice(("add", "edit", "edit", "tag", "supersede", "replace", "forget", "restore", "undo", "undo"))
    with contextlib.suppress(RecollectError):
        match name:
            case "add":
                scope = a_scope(chance).as_dict()
                known.append(memory.add(a_text(chance), scope=scope, decay=chance.choice((None, "active"))).id)
            case "edit":
                memory.edit(key, text=a_text(chance), title=chance.choice(("", "lake")))
            case "tag":
                memory.edit(key, tags=[chance.choice(("red", "blue"))], importance=chance.choice((0.0, 1.0)))
            case "supersede":
                memory.supersede(key, by=other, at=when)
            case "replace":
                known.append(memory.supersede(key, text=a_text(chance), at=when).id)
            case "forget":
                memory.forget(key, purge=chance.random() < 0.1)
            case "restore":
                memory.store.records.apply([[Restore(key)]])
            case "undo":
                memory.undo(key)
    return name


CHOICES: Mapping[str, Sequence[Any]] = {
    "limit": (1, 2, 3, 5, 100),
    "fetch_k": (1, 2, 3, 4, 6, 10),
    "budget_ms": (600_000.0,),
    "sources": (("keyword",), ("vector",), ("vector", "keyword")),
    "fusion": METHODS,
    "normalisation": NORMALISATIONS,
    "rrf_k": (0.0, 1.0),
    "text_weight": (0.0, 0.3, 2.0),
    "vector_weight": (0.0, 0.7),
    "decay": (False,),
    "half_life_days": (3.0,),
    "importance_weight": (0.0, 1.0),
    "by": ("chunk",),
    "prefer_newer": (False,),
    "mmr": (True,),
    "mmr_lambda": (0.0, 0.2, 0.5, 1.0),
    "min_score": (0.1234, 0.3456, 0.7654),
    "user": USERS,
    "agent": AGENTS,
    "session": SESSIONS,
    "any_scope": (True,),
    "category": ("work", ("home", "work"), "other"),
    "tags": ("red", ("red", "blue")),
    "kind": ("fact", "chunk", "turn"),
    "origin": (("user", "file", "agent", "outside"), ("web",), ("tool", "user"), ("file", "any")),
    "author": (("scribe",), ("crawler", "nobody")),
    "author_session": (("s1",),),
    "path": ("docs", "./docs/", "/nowhere", "*.md", "x.md", "[a]", "deep", "n*s"),
    "since": [NOW + age for age in AGES],
    "until": [NOW + age for age in AGES],
    "as_of": [NOW + age for age in AGES + AHEAD],
    "superseded": (True,),
}
SCOPED = ("user", "agent", "session", "any_scope")
RARE = ("category", "tags", "kind", "origin", "author", "author_session", "path", "since", "until", "as_of")


def some_options(chance: random.Random) -> dict[str, Any]:
    """A few of the options of `Memory.search`, most of them left to their defaults."""
    likely = chance.choice((0.0, 0.1, 0.25))
    options = {
        name: chance.choice(values)
        for name, values in CHOICES.items()
        if chance.random() < (likely / 2 if name in RARE else likely)
    }
    if chance.random() < 0.4:
        options |= {"fusion": chance.choice(METHODS), "normalisation": chance.choice(NORMALISATIONS)}
    return options


def a_query(chance: random.Random) -> str:
    words = " ".join(chance.choice(WORDS) for _ in range(chance.choice((1, 2, 3))))
    return chance.choice(["", " ", "unknown", FOREIGN, *[words] * 20, *[f"{words} {chance.choice(MISSPELLED)}"] * 4])


def with_operators(chance: random.Random, text: str) -> tuple[str, str, dict[str, tuple[Any, ...]]]:
    """Now and then a phrase, joined words or an excluded word: the text to search for, the written query, and these."""
    if not text.strip() or chance.random() < 0.8:
        return text, text, {}
    phrase = " ".join(chance.choices(PLAIN, k=chance.choice((1, 1, 2))))
    without = chance.choice(PLAIN)
    match chance.choice(("phrase", "without", "both", "required")):
        case "required":
            one, two = chance.sample(PLAIN, 2)
            return f"{text.strip()} {one} {two}", f"{text} ({one} OR {two})", {"required": ((one, two),)}
        case "phrase":
            return f"{text.strip()} {phrase}", f'{text} "{phrase}"', {"phrases": (phrase,)}
        case "without":
            return text.strip(), f"{text} -{without}", {"without": (without,)}
    both = {"phrases": (phrase,), "without": (without,)}
    return f"{phrase} {text.strip()}", f'"{phrase}" {text} -{without}', both


@dataclass
class Case:
    """A memory of random records, with the ids that it ever had."""

    memory: Memory
    embedder: TinyEmbedder
    known: list[str]

    @classmethod
    def fill(cls, chance: random.Random, memory: Memory, embedder: TinyEmbedder) -> Case:
        """Store random records, a part of them while the embedder refuses, and make a few changes."""
        case = cls(memory, embedder, [])
        count = chance.choice((1, 3, 8, 8, 15, 15, 25, 25, 60))
        records: list[Record] = []
        for _ in range(count):
            record = a_record(chance, [known.text for known in records])
            if count > CATCH_UP:  # how many passages are embedded at once is counted in records
                record = replace(record, text=f"{record.text} {len(records)}")
            if record.id not in case.known:
                records.append(record)
                case.known.append(record.id)
        first = chance.choice((0, count // 2, count))  # these get their vectors now
        memory.store.records.apply([[Put(record) for record in records[:first]]])
        memory.embed()
        memory.store.records.apply([[Put(record)] for record in records[first:]])
        for _ in range(chance.choice((0, 0, 2, 6))):
            case.change(chance)
        return case

    def change(self, chance: random.Random) -> str:
        """Make one change, while the embedder works or refuses."""
        self.embedder.refuses = chance.random() < 0.5
        return a_change(chance, self.memory, self.known)

    def compare(self, chance: random.Random) -> Outcome:
        """Run one random query, and compare the answer with the reference."""
        text, options = a_query(chance), some_options(chance)
        self.embedder.refuses = chance.random() < 0.4
        local._refused.clear()  # as if time had passed since it refused
        if not self.embedder.exact:
            options.pop("mmr", None)  # its cosines are of single precision: ties would be decided by chance
        memory = self.memory
        if chance.random() < 0.2:
            options = {name: value for name, value in options.items() if name not in SCOPED}
            memory = memory.within(a_scope(chance))
        world = world_of(self.memory, self.embedder, self.known)
        text, written, wording = with_operators(chance, text)
        answer = memory.search(written, **options)
        now = answer.query.filter.now
        outcome = search(world, text, {**options, **memory.scope.as_dict(), **wording}, now)
        check(described(answer), outcome)
        if any(ranking.source == "vector" for ranking in outcome.lists) and text.strip():
            everything = {**DEFAULTS, **memory.scope.as_dict(), "superseded": True}
            visible = [r for r in outcome.lacking if memory.caller is None or obstacle(r, everything, now) is None]
            assert answer.trace.lag["vectors"] == len(visible)
        return outcome


def world_of(memory: Memory, embedder: TinyEmbedder, known: Sequence[str]) -> World:
    """What a search in a store reads."""
    records = memory.store.records.get(list(dict.fromkeys(known)))  # the same text twice has one id
    active = memory.store.spaces.active
    passages = {record.id: record.passage for record in records}
    stored = memory.store.spaces.open(active).known(list(passages.values())) if active else set()
    vectors = {key: vector_of(embedder, passage) for key, passage in passages.items() if passage in stored}
    return World(
        records,
        vectors,
        partial(vector_of, embedder),
        not embedder.refuses,
        embedder.legibility,
        memory.store.keywords.analyzer,
    )


def vector_of(embedder: TinyEmbedder, text: str) -> list[float]:
    numbers: list[float] = embedder.query(text).tolist()
    return numbers


# -- comparing ---------------------------------------------------------------------------------------------


def described(answer: Answer) -> dict[str, Any]:
    """What an answer and the reference must agree on."""
    return {
        "results": [
            {
                "id": result.record.id,
                "record": result.record,
                "shares": {name: (s.rank, s.score, s.contribution) for name, s in result.shares.items()},
                "fused": result.fused,
                "score": result.score,
                "similarity": result.similarity,
                "factors": dict(result.factors),
                "moves": dict(result.moves),
                "snippet": result.snippet,
                "freshness": result.freshness,
                "passages": [(one.record.id, one.score, one.snippet, one.freshness) for one in result.passages],
            }
            for result in answer.results
        ],
        "sources": [(source.name, source.status, source.hits, source.trust) for source in answer.trace.sources],
        "filtered": dict(answer.trace.filtered),
    }


def expected(outcome: Outcome) -> dict[str, Any]:
    """The same of the reference; the number of duplicates is checked apart."""
    rows = outcome.steps
    return {
        "results": [
            {
                "id": row.record.id,
                "record": row.record,
                "shares": row.shares,
                "fused": row.fused,
                "score": row.score,
                "similarity": row.shares["vector"][1] if "vector" in row.shares else None,
                "factors": row.factors,
                "moves": row.moves,
                "snippet": row.excerpt,
                "freshness": "missing" if row.record.path else None,
                "passages": [(one.record.id, one.score, one.excerpt, "missing") for one in row.passages],
            }
            for row in outcome.results
        ],
        "sources": [(ranking.source, "ok", len(ranking.hits), ranking.trust) for ranking in outcome.lists],
        "filtered": {
            "superseded": 0, "scope": 0, "confidence": 0,
            "threshold": len(rows["importance"]) - len(rows["threshold"]),
        },
    }  # fmt: skip


def check(description: Mapping[str, Any], outcome: Outcome) -> None:
    """Assert that the description of an answer is what the reference says."""
    real, wanted = dict(description), expected(outcome)
    filtered, (least, most) = dict(real["filtered"]), outcome.duplicates
    assert least <= filtered.pop("duplicate") <= most
    real["filtered"] = filtered
    if outcome.delicate:  # two totals differ by rounding only
        real, wanted = ([row["score"] for row in each["results"]] for each in (real, wanted))
        assert real == pytest.approx(wanted, abs=1e-9)
        return
    assert [row["id"] for row in real["results"]] == [row["id"] for row in wanted["results"]]
    assert_close(real, wanted)


def assert_close(real: Any, wanted: Any, where: str = "answer") -> None:
    """Assert equality; numbers may differ by 1e-9. Source scores are rounded to six or nine places: they are equal."""
    match wanted:
        case dict():
            assert real.keys() == wanted.keys(), where
            for key, value in wanted.items():
                assert_close(real[key], value, f"{where}.{key}")
        case list() | tuple():
            assert len(real) == len(wanted), where
            for place, pair in enumerate(zip(real, wanted, strict=True)):
                assert_close(*pair, f"{where}[{place}]")
        case float():
            assert real == pytest.approx(wanted, abs=1e-9, rel=1e-9), where
        case _:
            assert real == wanted, where
