from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path

import bm25s
import numpy as np
import pytest
from support import DATA

from recollect.analysis import Analyzer
from recollect.evaluation import evaluate, read_dataset
from recollect.ranking import fold
from recollect.stores.database import TITLE_WEIGHT
from recollect.stores.sqlite import SqliteStore
from recollect.types import Filter, Put, Record, Scope

DEPTH = 100
SAMPLE = Path(str(files("recollect") / "sample"))
THEN = datetime(2024, 5, 8, tzinfo=UTC)


@dataclass(frozen=True)
class Collection:
    """Texts, questions and judgments."""

    texts: dict[str, str]
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]


@dataclass(frozen=True)
class Compared:
    """What two engines answer to the same terms: question → document → score, best first."""

    qrels: dict[str, dict[str, int]]
    ours: dict[str, dict[str, float]]
    theirs: dict[str, dict[str, float]]


def sample_notes() -> Collection:
    """The notes that come with the package, a file a record, and their questions."""
    notes = SAMPLE / "notes"
    texts = {str(path.relative_to(notes)): path.read_text(encoding="utf-8") for path in sorted(notes.rglob("*.md"))}
    rows = [json.loads(line) for line in (SAMPLE / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
    queries = {str(number): row["question"] for number, row in enumerate(rows)}
    return Collection(
        texts, queries, {str(number): dict.fromkeys(row["relevant"], 1) for number, row in enumerate(rows)}
    )


def judged_set(name: str) -> Collection:
    """A development set, title and text in one."""
    if not (DATA / name / "corpus.jsonl").is_file():
        pytest.skip(f"the development set {name} is not in {DATA} (RECOLLECT_DATA)")
    dataset = read_dataset(DATA / name)[0]
    texts = {row["_id"]: f"{row['title']}\n{row['text']}".strip() for row in dataset.corpus}
    return Collection(texts, dataset.queries, dataset.qrels)


def distinct(texts: dict[str, str]) -> dict[str, str]:
    """Without repeated texts: our index shows one of them, the other engine all."""
    return {key: texts[key] for key in {fold(text): key for key, text in texts.items()}.values()}


def compare(collection: Collection, folder: Path) -> Compared:
    """Ask our keyword index and bm25s, fed with our terms, the same questions.

    In no language: then there are no stop words, which have no part in our lengths, and no frequencies of general text.
    """
    texts = distinct(collection.texts)
    tokens = {key: list(Analyzer("none").tokens(text)) for key, text in texts.items()}
    queries = {key: Analyzer("none").query(text) for key, text in collection.queries.items()}
    ours = _ask_us(texts, queries, folder)
    theirs = _ask_bm25s({key: [t.term for t in found if not t.stop] for key, found in tokens.items()}, queries)
    return Compared(collection.qrels, ours, theirs)


def _ask_us(texts: dict[str, str], queries: dict[str, list[str]], folder: Path) -> dict[str, dict[str, float]]:
    store = SqliteStore(folder / "memory.db", language="none")
    store.records.apply([Put(Record(id=key, text=text, created_at=THEN))] for key, text in texts.items())
    answers = {key: list(store.keywords.search(terms, Filter(), DEPTH).entries) for key, terms in queries.items()}
    store.close()
    return {key: {match.record.id: match.score for match in found} for key, found in answers.items()}


def _ask_bm25s(documents: dict[str, list[str]], queries: dict[str, list[str]]) -> dict[str, dict[str, float]]:
    engine = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    engine.index(list(documents.values()), show_progress=False)
    names = list(documents)
    answers = {}
    for key, terms in queries.items():
        scores = engine.get_scores([term for term in terms if term in engine.vocab_dict])
        order = np.argsort(-scores, kind="stable")[:DEPTH]
        answers[key] = {names[place]: float(scores[place]) for place in order if scores[place] > 0}
    return answers


@pytest.fixture(
    scope="module",
    params=[
        "sample",
        pytest.param("cranfield", marks=pytest.mark.data),
        pytest.param("locomo/conv-26", marks=pytest.mark.data),
    ],
)
def compared(request, tmp_path_factory) -> Compared:
    """The answers of both engines on one collection."""
    collection = sample_notes() if request.param == "sample" else judged_set(request.param)
    return compare(collection, tmp_path_factory.mktemp("bm25"))


def spearman(one: dict[str, float], other: dict[str, float]) -> float:
    """The rank correlation over what both hold; scores that differ by rounding only share their rank."""
    both = sorted(one.keys() & other.keys())
    ranks = [_mean_ranks([scores[key] for key in both]) for scores in (one, other)]
    if all(np.ptp(each) == 0 for each in ranks):
        return 1.0
    return float(np.corrcoef(*ranks)[0, 1])


def _mean_ranks(scores: list[float]) -> np.ndarray:
    values = np.array([float(f"{score:.4g}") for score in scores])
    return np.array([(values > value).sum() + ((values == value).sum() + 1) / 2 for value in values])


@pytest.mark.ci
def test_scores_equal_bm25s(compared):
    """For every question the best hundred scores, within single precision, document by document."""
    assert compared.ours
    for key, ours in compared.ours.items():
        theirs = compared.theirs[key]
        assert list(ours.values()) == pytest.approx(list(theirs.values()), rel=1e-4), key
        assert {doc: ours[doc] for doc in ours.keys() & theirs.keys()} == pytest.approx(
            {doc: theirs[doc] for doc in ours.keys() & theirs.keys()}, rel=1e-4
        )


@pytest.mark.ci
def test_documents_equal_bm25s(compared):
    """A document that only one engine has in its best hundred is tied with the hundredth."""
    for key, ours in compared.ours.items():
        theirs = compared.theirs[key]
        last = min(ours.values(), default=0.0)
        odd = [{**ours, **theirs}[doc] for doc in ours.keys() ^ theirs.keys()]
        assert odd == pytest.approx([last] * len(odd), rel=1e-4), key


def test_order_equals_bm25s(compared):
    """The rank correlation over common documents is above 0.99 for every question."""
    worst = min(spearman(ours, compared.theirs[key]) for key, ours in compared.ours.items() if len(ours) > 1)
    assert worst > 0.99


@pytest.mark.ci
def test_quality_equals_bm25s(compared):
    """nDCG@10 over all questions differs by less than 0.01, and is above zero."""
    ours, theirs = (
        np.mean(list(evaluate(compared.qrels, run, ["nDCG@10"])["nDCG@10"].values()))
        for run in (compared.ours, compared.theirs)
    )
    assert ours == pytest.approx(theirs, abs=0.01)
    assert ours > 0.2


# --- statistics are of what is visible


@pytest.fixture
def notes() -> list[Record]:
    """The sample's paragraphs, some global and some Ada's."""
    paragraphs = [part for text in sample_notes().texts.values() for part in text.split("\n\n") if part.strip()]
    return [
        Record(f"n{number}", text, scope=Scope(user="ada" if number % 3 else None), created_at=THEN)
        for number, text in enumerate(paragraphs)
    ]


@pytest.fixture
def open_store(tmp_path) -> Iterator:
    """Makes stores with records in them, and closes them."""
    stores: list[SqliteStore] = []

    def build(records: list[Record]) -> SqliteStore:
        stores.append(SqliteStore(tmp_path / f"{len(stores)}.db"))
        stores[-1].records.apply([Put(record)] for record in records)
        return stores[-1]

    yield build
    for store in stores:
        store.close()


def test_other_scopes_do_not_change_a_score(notes, open_store):
    """Among five hundred records of others with the same words, every score is equal to the last bit."""
    others = [
        Record(f"o{number}", f"{notes[number % len(notes)].text} {'sauna postgres ' * (number % 5)}", scope=scope)
        for number in range(500)
        for scope in [Scope(user=f"user{number % 7}")]
    ]
    crowded = [record for pair in zip(others, notes, strict=False) for record in pair]
    crowded += others[len(notes) :] + notes[len(others) :]
    alone, shared = open_store(notes), open_store(crowded)
    where = Filter(scope=Scope(user="ada"))
    for question in sample_notes().queries.values():
        terms = Analyzer().query(question)
        answers = [store.keywords.search(terms, where, DEPTH).entries for store in (alone, shared)]
        assert answers[0], question
        assert answers[0] == answers[1], question


def test_title_counts_more_than_the_text(open_store):
    """A word in it counts `TITLE_WEIGHT` times, also in the record's length."""
    records = [
        Record("in-text", "sauna cellar", title="boiler", created_at=THEN),
        Record("in-title", "boiler cellar", title="sauna", created_at=THEN),
    ]
    title, text = open_store(records).keywords.search(["sauna"], Filter(), 2).entries
    assert (title.record.id, text.record.id) == ("in-title", "in-text")
    assert title.score / text.score == pytest.approx((TITLE_WEIGHT / (TITLE_WEIGHT + 1.2)) / (1 / (1 + 1.2)))


# --- ties inside one source


def test_equal_scores_go_newer_first(open_store):
    """Although its id is higher."""
    old = Record("a", "the boiler leaks", created_at=THEN)
    new = Record("b", "a boiler leaks", created_at=THEN + timedelta(days=1))
    store = open_store([new, old])
    assert [match.record.id for match in store.keywords.search(["boiler"], Filter(), 2).entries] == ["b", "a"]


def test_equal_scores_and_times_go_by_id(open_store):
    """The lower id first, whichever was stored first."""
    records = [Record("b", "a boiler leaks", created_at=THEN), Record("a", "the boiler leaks", created_at=THEN)]
    for order in (records, records[::-1]):
        found = open_store(order).keywords.search(["boiler"], Filter(), 1).entries
        assert [match.record.id for match in found] == ["a"]
