"""A fact that nearly repeats or contradicts another is noticed when it is added; others are not."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from recollect.memory.resemblance import resembling
from recollect.ranking import NEAR, SAME, same_subject
from recollect.types import Scope

OLD = "My dentist is Dr. Okafor."


@pytest.fixture
def memory(open_memory):
    """A memory with the real model, whose cosines are known."""
    return open_memory(embedder="arctic-embed-s")


@pytest.mark.parametrize(
    ("new", "alike"),
    [
        ("My dentist is Dr. Weiss.", True),
        ("My dentist was Dr. Okafor.", False),  # two words of five begin alike: it may be about something else
        ("My doctor is Dr. Weiss.", False),
        ("", False),
        ("My dentist is " + "Dr. Weiss " * 200, False),
    ],
)
def test_texts_that_begin_alike_are_about_one_thing(new, alike):
    """The vectors must be near, too, and the texts of about one length."""
    assert same_subject(OLD, new, NEAR) is alike
    assert not same_subject(OLD, new, NEAR - 0.01)


def test_nearly_the_same_words_need_nearer_vectors():
    """Where the beginnings differ."""
    old, new = "The spare key is under the blue pot.", "Spare key is under the blue pot"
    assert same_subject(old, new, SAME)
    assert not same_subject(old, new, SAME - 0.01)


@pytest.mark.ci
def test_contradiction_is_found_and_unrelated_facts_are_not(memory):
    """The other fact is named; one that is superseded is not current any more."""
    old = memory.add(OLD)
    memory.add("Ada likes tea.")
    new = memory.add("My dentist is Dr. Weiss.")
    similar = resembling(memory, new)
    assert (similar.record.id, similar.replaceable) == (old.id, True)
    assert resembling(memory, memory.add("Bob likes coffee.")) is None
    memory.supersede(old.id, new.id)
    assert resembling(memory, new) is None


@pytest.mark.ci
def test_only_visible_facts_of_trusted_origins_are_named(memory):
    """A fact of another scope is not compared, nor for a model one of a web page; a global one cannot be replaced."""
    memory.add(OLD, user="bob")
    ada = memory.within(Scope("ada"))
    new = ada.add("My dentist is Dr. Weiss.")
    assert resembling(ada, new) is None
    memory.add("My dentist is Dr. Brown.", origin="web")
    assert resembling(ada, new, for_model=True) is None
    assert not resembling(ada, new).replaceable


def test_without_vectors_nothing_is_said(open_memory):
    """Keyword search alone does not judge closeness."""
    memory = open_memory(embedder="none")
    memory.add(OLD)
    assert resembling(memory, memory.add("My dentist is Dr. Weiss.")) is None


@pytest.mark.ci
def test_repeated_fact_is_current_again_after_a_contradiction(memory):
    """A new record has its tags; the old one is what was true until then. Repeating it once more changes nothing."""
    old = memory.add(OLD, tags=["health"], created_at="2026-01-01")
    memory.add("My dentist is Dr. Weiss.", created_at="2026-03-01")
    new = memory.add(OLD, created_at="2026-05-01")
    assert (new.id == old.id, new.tags, memory.get(old.id).superseded_by) == (False, ("health",), new.id)
    assert memory.add(OLD, created_at="2026-06-01") == new
    asked = {when: memory.search("Who is my dentist?", as_of=when, limit=1) for when in ("2026-02", "2026-04", None)}
    assert [answer.results[0].record.text for answer in asked.values()] == [OLD, "My dentist is Dr. Weiss.", OLD]
    assert memory.undo(new.id) == ("supersede", None)
    assert memory.get(old.id).superseded_by is None


@pytest.mark.ci
def test_repeated_fact_stays_one_record_unless_it_was_contradicted(memory):
    """Not by an older fact, one of the same form, nor if it is repeated by a writer who is trusted less."""
    for month in ("2025-01", "2025-02"):
        for day in range(10, 20):
            text = f"Order {day} was shipped to the old mill at the end of the lake."
            memory.add(text, created_at=f"{month}-{day}")
    assert memory.status()["records"] == {**memory.status()["records"], "total": 10, "superseded": 0}
    old = memory.add(OLD, created_at="2026-03-01")
    memory.add("Ada likes tea.", created_at="2026-04-01")
    memory.add("My dentist is Dr. Weiss.", created_at="2026-01-01")
    assert memory.add(OLD, created_at="2026-05-01").id == old.id
    memory.add("My dentist is Dr. Voss.", created_at="2026-06-01")
    assert memory.written_by("scribe", origin="agent").add(OLD, created_at="2026-07-01").id == old.id
    assert memory.get(old.id).superseded_by is None


@pytest.mark.ci
def test_fact_that_several_threads_repeat_is_one_record(memory):
    """Whichever is first; the others find it, and none fails."""
    old = memory.add(OLD, created_at="2026-01-01")
    memory.add("My dentist is Dr. Weiss.", created_at="2026-03-01")
    with ThreadPoolExecutor(8) as pool:
        added = set(pool.map(lambda _: memory.add(OLD).id, range(8)))
    (current,) = {record.id for record in memory.list() if record.text == OLD}
    assert current in added <= {current, old.id}


RELATIONS = (
    ("Ada lives in {}.", "Porto", "Lisbon", "Where does Ada live?"),
    ("Ada works at {}.", "Initech", "Globex", "Who does Ada work for?"),
    ("Ada is {}.", "vegetarian", "an omnivore", "What is Ada's diet?"),
    ("Ada drives a {}.", "Toyota Yaris", "Volvo V60", "Which car does Ada drive?"),
    ("Ada's favourite editor is {}.", "Vim", "Emacs", "What is Ada's favourite editor?"),
    ("Ada prefers to code in {}.", "Python", "Rust", "Which programming language does Ada prefer?"),
    ("Ada's next dentist appointment is on {}.", "3 March", "10 June", "When is Ada's next dentist appointment?"),
    ("Ada's phone number is {}.", "555-0101", "555-0199", "What is Ada's phone number?"),
    ("The Falcon project is deployed with {}.", "Helm", "Kustomize", "How is the Falcon project deployed?"),
    ("Ada's team standup is at {}.", "9:00", "9:30", "When is Ada's team standup?"),
    ("The wifi password in Ada's office is {}.", "bluepot", "redfox", "What's the wifi password in Ada's office?"),
    ("Ada's manager is {}.", "Priya", "Tomasz", "Who is Ada's manager?"),
    ("Ada's travel budget is {} euros.", "2000", "3500", "How large is Ada's travel budget?"),
    ("Ada wears shoe size {}.", "42", "43", "What shoe size does Ada wear?"),
)


@pytest.mark.ci
def test_newest_statement_comes_first(open_memory):
    """Facts that change and change back; the decision about similar facts has the numbers."""
    memory = open_memory(embedder="small-embedder")
    for month, value in enumerate((1, 2, 1), 1):
        for relation in RELATIONS:
            memory.add(relation[0].format(relation[value]), created_at=f"2026-0{month}-01")
    for statement, value, _, question in RELATIONS:
        assert memory.search(question).results[0].record.text == statement.format(value)
