"""A fact that nearly repeats or contradicts another is noticed when it is added; others are not."""

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
