"""Confidence: the probability that a result is relevant, by the evidence of its sources."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect import Memory
from recollect.config import SearchOptions, Settings
from recollect.errors import EmbedderError
from recollect.memory import closeness
from recollect.memory.recall import NOTHING
from recollect.memory.shapes import recall_dict
from recollect.models.embedders import open_embedder
from recollect.options import LIKELY
from recollect.ranking import CONSTANTS, LOWEST_RANK, MOST, Closeness, Evidence, confidence
from recollect.types import Scope

NOTES = [
    "The staging database runs PostgreSQL 16 on port 5433.",
    "Backups of the staging database are taken every night at two.",
    "Anna prefers short meetings on Tuesday mornings.",
    "The office plants are watered by Lukas on Fridays.",
    "Invoices above 5,000 euros need the signature of the finance lead.",
    "The mobile application crashes when the network drops during login.",
    "We chose Rust for the parser because of its speed.",
    "The coffee machine on the third floor needs descaling every month.",
    "Customer support answers tickets within four hours on working days.",
    "The marketing site is deployed from the main branch by a GitHub action.",
    "Marie moved to Lyon in March and works remotely since then.",
    "The annual company retreat takes place in the Alps in September.",
    "Passwords are rotated every ninety days by the security team.",
    "The search index is rebuilt after every change of the analysis chain.",
    "Travel expenses are reimbursed at the end of each month.",
    "The old monolith is written in Java and nobody likes to touch it.",
    "Our largest customer is a hospital chain in northern Italy.",
    "Design reviews happen on Wednesdays in the small meeting room.",
    "The data warehouse is filled from Kafka by a nightly job.",
    "New colleagues get a laptop and a mentor on their first day.",
    "The API returns error 429 when more than a hundred requests come in a minute.",
    "Parking spaces are given to those who live farthest away.",
    "Bruno is allergic to peanuts and shellfish.",
    "The printer in the hallway only accepts paper of size A4.",
]
ANSWERED = "Which port does the staging database use?"
UNRELATED = "How tall is the tallest volcano on Mars?"
SYSTEMS = {
    "default": {},
    "rrf": {"fusion": "rrf"},
    "weighted": {"fusion": "weighted", "vector_weight": 0.7, "text_weight": 0.3},
    "keyword": {"sources": ["keyword"]},
    "vector": {"sources": ["vector"]},
}


@pytest.fixture(scope="session")
def office(arctic, tmp_path_factory):
    """Notes of an office with the real model, in a store with a finished calibration."""
    place = tmp_path_factory.mktemp("office") / "memory.db"
    with Memory.open(place, embedder=arctic, settings=Settings()) as memory:
        memory.add_many({"text": text} for text in NOTES)
        best(memory, ANSWERED)
    return place


@pytest.fixture
def notes(open_memory, path, office, arctic):
    """The notes of the office in a separate store for the test."""
    shutil.copy(office, path)
    return open_memory(embedder=arctic)


def best(memory, text, **options):
    results = memory.search(text, confidence=True, limit=50, **options).results
    return max((result.confidence or 0.0 for result in results), default=0.0)


# -- the mathematics ----------------------------------------------------------------------------------------------

strengths = st.floats(0, 1.5)


@given(strengths, st.floats(0, 1), st.integers(1, 50), st.sampled_from(list(CONSTANTS)), st.integers(0, 10**5))
def test_more_evidence_never_lowers_confidence(strength, more, rank, sources, visible):
    """It rises with the strength of each source, falls with its rank, and stays between 0 and 1."""
    base = {source: Evidence(strength, rank) for source in sources}
    value = confidence(base, visible)
    assert 0 < value < 1
    for source in sources:
        assert confidence({**base, source: Evidence(strength + more, rank)}, visible) >= value
        assert confidence({**base, source: Evidence(strength, rank + 1)}, visible) <= value


def test_size_counts_only_as_far_as_it_was_measured():
    """Else a perfect match would be unlikely among a million records."""
    best = {"keyword": Evidence(1.0, 1), "vector": Evidence(1.0, 1)}
    assert confidence(best, 100) > confidence(best, MOST) == confidence(best, 1_000_000) > LIKELY


@pytest.mark.parametrize("sources", CONSTANTS)
def test_no_evidence_is_unlikely_in_every_size(sources):
    """A record that nothing speaks for is left out of what a model reads."""
    for visible in (1, 5, 30, 300, 10**4, 10**6):
        assert confidence(dict.fromkeys(sources, Evidence(0.0, LOWEST_RANK)), visible) < LIKELY


# -- what it says -------------------------------------------------------------------------------------------------


def test_search_reports_confidence_and_leaves_out_nothing(notes):
    """`likely` is the rank of the last result that may answer; a recall has those only."""
    answered, unrelated = (notes.search(text, limit=50) for text in (ANSWERED, UNRELATED))
    assert all(0 < result.confidence < 1 for result in (*answered.results, *unrelated.results))
    assert len(answered.results) == len(unrelated.results) == len(NOTES)
    assert 0 < answered.likely < len(NOTES)
    assert unrelated.likely == 0
    assert unrelated.trace.abstained == ""


@pytest.mark.parametrize("words", ["kafka", "descaling machine", "lukas office plants", "mars"])
def test_words_that_only_one_record_has_are_likely_to_mean_it(notes, words):
    """People and agents type the words that they look for; a question with one of these words is none of that."""
    answer = notes.search(words, for_model=True)
    holding = [text for text in NOTES if set(words.split()) <= set(text.lower().replace(".", "").split())]
    assert [result.record.text for result in answer.results[: len(holding)]] == holding
    assert all(result.confidence >= 0.6 for result in answer.results[: len(holding)])


def test_words_of_many_records_are_left_to_the_evidence(open_memory, arctic):
    """By chance, more records have them than can be meant."""
    memory = open_memory(embedder=arctic)
    memory.add_many({"text": f"{text} Reported by Anna."} for text in NOTES)
    pipeline, query = memory.prepare("anna reported")
    assert [ranked.least_confidence for ranked in pipeline.ask(query)] == [(), ()]
    pipeline, query = memory.prepare("anna kafka")
    keyword = next(ranked for ranked in pipeline.ask(query) if ranked.source == "keyword")
    assert keyword.least_confidence[:2] == (0.6, 0.0)
    assert "Kafka" in keyword.entries[0].record.text


def test_results_for_a_model_are_likely(notes):
    """Unless `min_confidence` is given, here or in the settings, also as 0. An empty answer names the closest."""
    assert notes.search(ANSWERED, for_model=True).results[0].record.text == NOTES[0]
    none = notes.search(UNRELATED, for_model=True)
    assert none.results == ()
    assert none.closest.confidence == best(notes, UNRELATED)
    assert len(notes.search(UNRELATED, for_model=True, min_confidence=0, limit=50).results) == len(NOTES)
    notes.settings = Settings(search=SearchOptions(min_confidence=0.0))
    assert notes.search(UNRELATED, for_model=True).results
    assert notes.search(UNRELATED, for_model=True, min_confidence=0.99).results == ()


def test_recall_shows_the_closest_record_if_nothing_answers(notes):
    """With its confidence; nothing is cited."""
    recalled = notes.recall(UNRELATED)
    assert recalled.citations == ()
    assert NOTHING in recalled.text
    closest = recall_dict(recalled)["closest"]
    assert closest["name"] in recalled.text
    assert f"a confidence of {closest['confidence']:.2f}" in recalled.text
    assert closest["snippet"] in recalled.text
    assert NOTES[0] in notes.recall(ANSWERED).text


@pytest.mark.ci
def test_recall_is_silent_in_a_store_of_any_size(open_memory, tmp_path):
    """From one record on, the right record is recalled, and an unrelated question brings nothing."""
    for count in (1, 2, 5, len(NOTES)):
        memory = open_memory(tmp_path / f"{count}.db", embedder="small-embedder")
        memory.add_many({"text": text} for text in NOTES[:count])
        assert NOTES[0] in memory.recall(ANSWERED).text, count
        assert memory.recall("What is the capital of Mongolia?").citations == (), count


def test_closest_record_is_in_the_scope_of_the_caller(open_memory):
    """An empty answer reveals nothing of another user's records."""
    memory = open_memory()
    memory.add("The staging database runs on port 5433.", user="eve")
    memory.add("Bruno is allergic to peanuts.", user="ada")
    answer = memory.search("staging database port", user="ada", min_confidence=1)
    assert answer.results == ()
    assert answer.closest is None or answer.closest.record.scope == Scope(user="ada")


@pytest.mark.ci
@pytest.mark.parametrize("system", SYSTEMS)
def test_one_half_means_the_same_everywhere(notes, system):
    """Under every fusion and source, an answerable question passes it and another does not."""
    found = notes.search(ANSWERED, min_confidence=0.5, **SYSTEMS[system])
    assert found.results[0].record.text == NOTES[0]
    assert found.trace.abstained == ""
    none = notes.search(UNRELATED, min_confidence=0.5, **SYSTEMS[system])
    assert none.results == ()
    if system != "keyword":  # no word of it is known, so that keyword search finds nothing to abstain from
        assert "0.5" in none.trace.abstained


@pytest.mark.parametrize("other", ["rrf", "weighted"])
def test_confidence_does_not_depend_on_the_fusion(notes, other):
    """A record has the same confidence under every fusion."""
    first, second = (
        {r.record.id: r.confidence for r in notes.search(ANSWERED, confidence=True, limit=50, **SYSTEMS[said]).results}
        for said in ("default", other)
    )
    assert first == second
    assert len(set(first.values())) > 1


def test_confidence_does_not_depend_on_the_limit(notes):
    """Fewer results are a prefix of more, and the cut is made before the limit."""
    many = [(r.record.id, r.confidence) for r in notes.search(ANSWERED, confidence=True, limit=200).results]
    for limit in (1, 3, 10):
        assert [
            (r.record.id, r.confidence) for r in notes.search(ANSWERED, confidence=True, limit=limit).results
        ] == many[:limit]


def test_forgetting_the_answer_lowers_the_confidence(notes):
    """The next best record has less confidence."""
    before = best(notes, ANSWERED)
    record = notes.search(ANSWERED, limit=1).results[0].record
    notes.forget(record.id)
    assert best(notes, ANSWERED) < before


def test_results_below_the_threshold_are_left_out(notes):
    """One by one; the search abstains only if none is left."""
    every = notes.search(ANSWERED, confidence=True, limit=50).results
    middle = sorted(result.confidence for result in every)[len(every) // 2]
    kept = notes.search(ANSWERED, min_confidence=middle, limit=50)
    assert {r.record.id for r in kept.results} == {r.record.id for r in every if r.confidence >= middle}
    assert kept.trace.filtered["confidence"] == len(every) - len(kept.results)
    assert kept.trace.abstained == ""


# -- where it comes from ------------------------------------------------------------------------------------------


def kept(memory):
    with memory.store._database.read() as connection:
        found = connection.execute("SELECT key, value FROM notes WHERE key LIKE 'closeness:%'").fetchall()
    return {key: json.loads(value) for key, value in found}


@pytest.mark.parametrize(
    "name", ["small-embedder", "arctic-embed-s", pytest.param("bge-small-en", marks=pytest.mark.ci)]
)
def test_closeness_of_our_models_is_as_measured(open_memory, name):
    """The numbers in the code are what the pairs of texts give."""
    memory = open_memory(embedder=open_embedder(name))
    measured = closeness.measure(memory.embeddings.serving())
    assert measured == pytest.approx(closeness.KNOWN[name], abs=0.005)


def test_closeness_is_measured_once_and_stored(memory, monkeypatch):
    """A second search and another process do not measure it again."""
    memory.add_many({"text": text} for text in NOTES)
    first = best(memory, ANSWERED)
    assert len(kept(memory)) == 1
    monkeypatch.setattr(closeness, "measure", None)
    assert best(memory, ANSWERED) == first


@pytest.mark.parametrize("damaged", ["", "{", "[]", '[1, {"level": 2}]', '["x", {}]', "[1, 2, 3]", "null"])
def test_damaged_closeness_is_measured_again(open_memory, path, damaged):
    """A damaged entry in the store does not fail the search."""
    with open_memory() as first:
        first.add_many([{"text": text} for text in NOTES])
        before = first.search(ANSWERED, confidence=True).results[0].confidence
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE notes SET value = ? WHERE key LIKE 'closeness:%'", (damaged,))
    assert connection.changes()
    connection.close()
    assert open_memory().search(ANSWERED, confidence=True).results[0].confidence == before


def test_closeness_is_per_vector_space(open_memory):
    """A new model has its own numbers."""
    memory = open_memory(embedder="hashing:64")
    memory.add_many({"text": text} for text in NOTES)
    best(memory, ANSWERED)
    other = open_memory(embedder="hashing:32")
    other.embed()
    best(other, ANSWERED)
    assert len(kept(other)) == 2


def test_model_that_tells_nothing_apart_is_not_believed():
    """Otherwise any difference of its cosines would be certainty."""
    assert Closeness(0.5, 0.5).strength(0.6) == pytest.approx(0.5)


SCRIPT = """
import json, sys
from recollect import Memory
from recollect.config import Settings
with Memory.open(sys.argv[1], embedder="hashing:64", settings=Settings()) as memory:
    print(json.dumps([(r.record.text, r.confidence) for r in memory.search(sys.argv[2], confidence=True).results]))
"""


@pytest.mark.ci
def test_confidence_is_the_same_in_every_process(tmp_path):
    """Equal stores, searched by processes with different hash seeds, agree to the last digit."""
    said = []
    for seed in ("1", "2"):
        place = tmp_path / f"{seed}.db"
        with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
            memory.add_many({"text": text, "created_at": "2026-01-01T00:00:00Z"} for text in NOTES)
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT, place, ANSWERED],
            capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed},
        )  # fmt: skip
        said.append(dict(json.loads(run.stdout)))
    assert said[0] == said[1]
    assert said[0]


def test_confidence_depends_only_on_visible_records(open_memory, tmp_path):
    """It equals that of a store with only the caller's visible records."""
    own, shared = open_memory(tmp_path / "own.db"), open_memory(tmp_path / "shared.db")
    for memory in (own, shared):
        for number, text in enumerate(NOTES):
            scope = Scope(user="anna") if number % 2 else Scope()
            memory.add(text, scope=scope, created_at=f"2026-01-{number + 1:02}T00:00:00Z")
    for number in range(60):
        shared.add(f"Secret {number}: the staging database has port {number}.", user="eve")
    said = [
        [(r.record.text, r.confidence) for r in memory.search(ANSWERED, user="anna", confidence=True).results]
        for memory in (own, shared)
    ]
    assert said[0] == said[1]


# -- at the edges -------------------------------------------------------------------------------------------------


READ_ONLY = """
import json, os, sys
from recollect import Memory
from recollect.config import Settings
def look(place):
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
        if place == ":memory:":
            memory.add("The staging database is small.")
        else:
            assert memory.store._database.read_only
        found = [memory.search(sys.argv[2], confidence=True).results for _ in range(2)]
        return [[result.confidence for result in results] for results in found]
# Everything is loaded first: a user without rights may not read Python's own files here.
look(":memory:")
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
print(json.dumps(look(sys.argv[1])))
"""


@pytest.fixture
def sealed(path):
    """Copies the store to a folder that is readable but not writable."""
    folder = Path(tempfile.mkdtemp(prefix="recollect-sealed-"))

    def seal():
        shutil.copy(path, folder / "memory.db").chmod(0o444)
        folder.chmod(0o555)
        return folder / "memory.db"

    yield seal
    folder.chmod(0o700)
    shutil.rmtree(folder)


@pytest.mark.ci
def test_confidence_in_a_read_only_store(memory, sealed):
    """Nothing can be stored there, and the confidence is the same."""
    memory.add_many({"text": text} for text in NOTES)
    memory.search("staging")
    memory.close()
    ran = subprocess.run(
        [sys.executable, "-c", READ_ONLY, sealed(), ANSWERED], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    first, second = json.loads(ran.stdout)
    assert first == second
    assert 0 < max(first) < 1


def test_confidence_in_a_store_without_caches(memory, monkeypatch):
    """The closeness stays in memory and is measured once."""
    memory.add_many({"text": text} for text in NOTES)
    monkeypatch.setattr(memory.store.notes, "put", lambda *_: None)
    first = best(memory, ANSWERED)
    assert kept(memory) == {}
    monkeypatch.setattr(closeness, "measure", None)
    assert best(memory, ANSWERED) == first


def test_empty_store_does_not_abstain(memory):
    """Nothing is found, so nothing is left out."""
    answer = memory.search(ANSWERED, min_confidence=0.5)
    assert answer.results == ()
    assert answer.trace.abstained == ""


@pytest.mark.ci
@pytest.mark.parametrize("count", [1, 2, 3])
def test_confidence_with_very_few_records(open_memory, arctic, count):
    """With one to three records the numbers are finite and the order is right."""
    memory = open_memory(embedder=arctic)
    memory.add_many({"text": text} for text in NOTES[:count])
    assert 0 < best(memory, UNRELATED) < best(memory, ANSWERED) < 1


@pytest.mark.parametrize("text", ["", "   ", "the of and", "?!", "🙂", "AND NEAR( *", "x" * 10_000, "staging " * 500])
def test_any_query_has_a_confidence(memory, text):
    """Also queries without words, or with too many."""
    memory.add_many({"text": text} for text in NOTES)
    for result in memory.search(text, confidence=True).results:
        assert (result.confidence == 0) if text == "the of and" else 0 < result.confidence < 1


def test_records_without_words_are_answered(memory):
    """A store of punctuation has no words."""
    memory.add_many({"text": text} for text in ("🙂", "…", "!!!"))
    for result in memory.search("🙂", confidence=True).results:
        assert 0 < result.confidence <= 1


def test_a_record_without_the_words_is_judged_by_its_vector(notes, open_memory):
    """A fact is seldom asked for in its own words, so their absence says nothing against it."""
    query = "volcano eruptions magma"
    assert best(notes, query) == best(notes, query, sources=["vector"])
    memory = open_memory()
    memory.add_many({"text": text} for text in (*NOTES, "Lena drives a blue Skoda Octavia."))
    assert "Skoda" in memory.recall("which car does she own?").text


CHINESE = [
    "会议室在三楼，需要提前预订。", "数据库的备份每天晚上两点进行。", "安娜喜欢在星期二早上开短会。",
    "打印机只接受A4纸。", "公司的年度旅行在九月。", "新同事第一天会收到一台笔记本电脑。",
    "咖啡机每个月需要清洗一次。", "密码每九十天更换一次。",
]  # fmt: skip
GERMAN = [
    "Der Drucker im Flur nimmt nur Papier der Größe A4.", "Die Sicherung der Datenbank läuft jede Nacht um zwei Uhr.",
    "Anna mag kurze Besprechungen am Dienstagmorgen.", "Neue Kollegen bekommen am ersten Tag einen Rechner.",
    "Die Kaffeemaschine wird jeden Monat entkalkt.", "Passwörter werden alle neunzig Tage gewechselt.",
]  # fmt: skip


@pytest.mark.parametrize(
    ("texts", "language", "answered", "unrelated"),
    [
        (CHINESE, "none", "数据库什么时候备份？", "火星上最高的火山有多高？"),
        (GERMAN, "german", "Wann läuft die Sicherung der Datenbank?", "Wie hoch ist der höchste Vulkan auf dem Mars?"),
    ],
    ids=["chinese", "german"],
)
def test_confidence_in_other_languages(open_memory, texts, language, answered, unrelated):
    """By keywords alone, since our models read English."""
    memory = open_memory(embedder="none", language=language)
    memory.add_many({"text": text} for text in texts)
    assert best(memory, unrelated) < 0.35 < best(memory, answered)


def test_failed_source_costs_only_its_own_evidence(notes, monkeypatch):
    """Without vectors, confidence equals that of a keyword search."""
    alone = best(notes, ANSWERED, sources=["keyword"])

    def fail(*_):
        raise RuntimeError("no model today")

    monkeypatch.setattr(notes.embeddings, "serving", fail)
    assert best(notes, ANSWERED) == alone


def test_model_that_fails_while_it_is_measured(memory, monkeypatch):
    """Keywords are judged alone; what only vectors found has no confidence."""
    memory.add_many({"text": text} for text in NOTES)
    alone = best(memory, ANSWERED, sources=["keyword"])

    def fail(*_):
        raise EmbedderError("no model today")

    monkeypatch.setattr(closeness, "measure", fail)
    assert best(memory, ANSWERED) == alone
    found = memory.search(ANSWERED, sources=["vector"], confidence=True).results
    assert found
    assert {result.confidence for result in found} == {None}


def test_what_only_an_unreadable_list_found_is_unlikely(tmp_path: Path) -> None:
    """The model reads no Chinese, so its list says nothing, and no word matches: all is below the line."""
    with Memory.open(tmp_path / "memory.db", settings=Settings()) as memory:
        memory.add("我们决定使用数据库连接池。")
        memory.add("Ids: getUserName")
        answer = memory.search("when does the plumber come")
        assert len(answer.results) == 2
        assert answer.likely == 0
        assert all(result.confidence is not None and result.confidence < LIKELY for result in answer.results)


def test_words_that_make_a_question_do_not_lower_confidence(tmp_path: Path) -> None:
    """Among records of which many have "work" or "fusion", a question about fusion is answered, another one is not."""
    with Memory.open(tmp_path / "memory.db", embedder="arctic-embed-s", settings=Settings()) as memory:
        memory.add("Fusion merges the ranked lists of all sources into one ranking.")
        memory.add_many({"text": f"Method {i} of fusion was measured on set {i}."} for i in range(20))
        memory.add_many({"text": f"Backups of disk {i} work while the server runs."} for i in range(20))
        assert memory.search("How does fusion work?", for_model=True).results
        assert not memory.search("How does photosynthesis work?", for_model=True).results


@pytest.mark.parametrize("query", ["who am I?", "the a of", "it is what it is", "the"])
@pytest.mark.parametrize("sources", [None, ["keyword"], ["vector"]])
def test_query_of_stop_words_alone_has_no_likely_result(tmp_path: Path, query: str, sources: list[str] | None) -> None:
    """Nor a note about the model: no record can answer it. A phrase of such words is what a record must contain."""
    with Memory.open(tmp_path / "memory.db", embedder="small-embedder", settings=Settings()) as memory:
        memory.add_many({"text": text} for text in (*NOTES, "The who, the what, the a of it is: I am who I am."))
        answer = memory.search(query, sources=sources)
        assert (answer.likely, answer.trace.warnings) == (0, ())
        assert memory.recall(query, sources=sources).citations == ()
        assert memory.search('"who I am"', sources=["keyword"]).results[0].confidence > 0
        assert memory.search("which port has the staging database", sources=["keyword"]).likely > 0
