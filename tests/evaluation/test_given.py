"""Questions given inline: the set they make, the memory they are lent, and what they may name."""

from __future__ import annotations

import pytest

from recollect.errors import UsageError
from recollect.evaluation import studies
from recollect.evaluation.corpora import find_targets
from recollect.evaluation.datasets import read_any
from recollect.types import Scope

NIGHT = ("night train", {"d1": 1})


def test_given_questions_are_the_set_that_a_folder_would_be(tmp_path):
    """Same words and judgments, same fingerprint: a report made here can be gated there."""
    (tmp_path / "queries.jsonl").write_text('{"_id": "night train", "text": "night train"}\n')
    (tmp_path / "qrels.tsv").write_text("night train\td1\t1\n")
    (read,) = read_any(tmp_path)
    made = studies.given([NIGHT], tmp_path.name)
    assert made == read


def test_every_question_has_an_id_of_its_own():
    """Even where a text looks like another's id."""
    texts = ["a", "a (2)", "a", "a", "\u202ea\x00", "b" * 300, "b" * 299 + "c"]
    made = studies.given([(text, {"d": 1}) for text in texts])
    assert list(made.queries.values()) == texts
    assert list(made.queries)[:5] == ["a", "a (2)", "a (3)", "a (4)", "a (5)"]
    assert list(made.qrels) == list(made.queries)


def test_a_memory_that_was_lent_stays_open(memory):
    """Leaving it is not closing it."""
    memory.add("night train", id="d1")
    with studies.Lent(memory) as lent:
        assert [result.record.id for result in lent.search("night").results] == ["d1"]
    assert memory.search("night").results


def test_a_study_that_takes_too_long_is_given_up(memory):
    """Between two questions, with a word about what to do."""
    memory.add("night train", id="d1")
    lent = studies.Lent(memory, seconds=-1)
    with pytest.raises(UsageError, match="longer than -1 s"):
        lent.search("night")
    with pytest.raises(UsageError, match="longer than -1 s"):
        lent.prepare("night")


def test_behind_a_wall_judgments_name_only_what_is_seen(memory, tmp_path):
    """Neither another's record by its id nor another's file by its path, and neither is told from what never was."""
    note = tmp_path / "secret.md"
    note.write_text("The night train leaves at nine.")
    memory.index(note, user="bob")
    memory.add("night train", id="d1")
    memory.add("night train of Bob", id="bobs", user="bob")
    walled = memory.within(Scope(user="ada"))
    asked = studies.given([("night", {"d1": 1, "bobs": 1, str(note): 1, "nothing": 1})])
    assert find_targets(memory, asked).unknown == 1
    found = find_targets(walled, asked)
    assert (found.unknown, found.paths) == (3, {})
    with pytest.raises(UsageError, match=r"'bobs', 'nothing'$"):
        studies.check_known(walled, asked)
    studies.check_known(walled, studies.given([NIGHT]))
