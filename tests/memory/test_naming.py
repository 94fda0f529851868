"""A record is named by its id, by the beginning of its id, or by its short id; only visible records are considered."""

import pytest

from recollect.errors import AmbiguousId, UnknownRecord
from recollect.memory.shapes import name_of
from recollect.types import Record, Scope
from recollect.types.records import first_words, new_id, short_id, short_ids

ONE, TWO = "019a8f00112200000000aaaabbbbcccc", "019a8f00112200000000aaaabbbbdddd"


def test_ids_that_a_program_made_are_shortened_and_others_are_not():
    """The end of an id differs where the beginning, which is the time, does not."""
    assert short_id(ONE) == "bbbbcccc"
    assert short_id("2f1c9a10-6f0e-4c53-9d8e-1b0a5a3e7c21") == "5a3e7c21"
    assert short_id("conversation/2026-03-14/turn-00000017") == "conversation/2026-03-14/turn-00000017"
    assert len({short_id(new_id()) for _ in range(1_000)}) > 995


def test_short_ids_that_are_shown_together_differ():
    """Those that would be equal are longer, and the others stay as they are."""
    same = ["1" * 16 + "0000" + "5" * 8, "1" * 16 + "1111" + "5" * 8]
    assert short_ids([*same, ONE]) == {same[0]: "0000" + "5" * 8, same[1]: "1111" + "5" * 8, ONE: "bbbbcccc"}
    assert short_ids([ONE, ONE]) == {ONE: "bbbbcccc"}


def test_name_of_a_text_without_spaces_is_its_beginning():
    """Whole words where they fit, else as many characters as do."""
    assert name_of(Record("a", "梅" * 300), 10) == "梅" * 9 + "…"
    assert name_of(Record("a", "x", title="https://example.com/a/b"), 10) == "https://e…"
    assert name_of(Record("a", "The  spare\nkey is here."), 12) == "The spare …"
    assert [first_words(text, 3) for text in ("", " ", "…", "abc", "a b", "abcd")] == ["", "", "…", "abc", "a b", "ab…"]


@pytest.mark.parametrize("name", [ONE, "019a8f00112200000000aaaabbbbc", "bbbbcccc", "bbbbc", "aaaabbbbcccc"])
def test_every_method_takes_a_part_of_an_id(memory, name):
    """Get, history, edit, forget, undo, why-not and supersede mean the same record."""
    memory.add("The key is under the pot.", id=ONE)
    memory.add("The bin is emptied on Mondays.", id=TWO)
    assert memory.get(name).id == memory.require(name).id == memory.resolve(name) == ONE
    assert memory.history(name)[0].id == ONE
    assert memory.edit(name, title="Key").id == ONE
    assert memory.forget(name) == [ONE]
    assert memory.get(ONE) is None
    assert memory.undo(name)[1].id == ONE
    assert memory.why_not("key", name).record.id == ONE
    newer = memory.supersede(name, text="The key is in the shed.")
    assert memory.get(ONE).superseded_by == newer.id
    other = memory.add("The key is lost.", supersedes=short_id(newer.id))
    assert memory.get(newer.id).superseded_by == other.id


def test_a_part_of_several_ids_is_an_error_that_lists_them(memory):
    """The error names each record, and nothing is changed."""
    memory.add("The key is under the pot.", id=ONE)
    memory.add("The bin is emptied on Mondays.", id=TWO)
    with pytest.raises(AmbiguousId) as refused:
        memory.forget("bbbb")
    assert "bbbbcccc (The key is under the pot.), bbbbdddd (The bin is emptied on Mondays.)" in refused.value.message
    assert memory.get(ONE)
    memory.forget(TWO)
    assert memory.get("bbbb").id == ONE  # a forgotten record comes after the others


def test_less_than_four_characters_name_nothing_but_an_id(memory):
    """A whole id may be short; a part of one must say something."""
    memory.add("one", id=ONE)
    memory.add("two", id="bb")
    assert memory.get("bb").text == "two"
    assert memory.get("bbb") is None


def test_a_whole_id_comes_before_ids_that_begin_with_it(memory):
    """A name that is an id is that id."""
    memory.add("the day", id="2026")
    memory.add("the hour", id="2026-03-14")
    assert memory.get("2026").text == "the day"
    assert memory.get("2026-").text == "the hour"


def test_records_of_other_scopes_neither_answer_nor_disturb(memory):
    """A scoped caller's names mean its own records, as in a store that holds no others."""
    memory.add("hers", id=ONE, user="ada")
    memory.add("his", id=TWO, user="bob")
    memory.add("theirs", id="bbbb", user="bob")
    ada = memory.within(Scope("ada"))
    assert ada.get("bbbb").id == ada.require("019a").id == ONE
    with pytest.raises(UnknownRecord):
        ada.require("bbbbdddd")
    memory.forget(ONE)
    assert ada.undo("bbbb")[1].id == ONE  # her own forgotten record
    memory.forget(TWO)
    with pytest.raises(UnknownRecord):
        ada.history("bbbbd")


def test_two_names_of_one_record_forget_it_once(memory):
    """An id and its short id are one record."""
    memory.add("one", id=ONE)
    assert memory.forget(ONE, "bbbbcccc") == [ONE]
