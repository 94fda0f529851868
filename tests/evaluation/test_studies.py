"""Studies of questions in a request: the set, the borrowed memory, and what judgments may name."""

from __future__ import annotations

import pytest

from recollect.errors import UsageError
from recollect.evaluation import studies
from recollect.evaluation.datasets import read_dataset
from recollect.evaluation.recording import find_targets
from recollect.types import Scope

NIGHT = ("night train", {"d1": 1})


def test_questions_of_a_request_equal_a_folder(tmp_path):
    """The same fingerprint: a report made here can be gated there."""
    (tmp_path / "queries.jsonl").write_text('{"_id": "night train", "text": "night train"}\n')
    (tmp_path / "qrels.tsv").write_text("night train\td1\t1\n")
    (read,) = read_dataset(tmp_path)
    made = studies.make_dataset([NIGHT], tmp_path.name)
    assert made == read


def test_every_question_has_a_unique_id():
    """Even if a text looks like another's id."""
    texts = ["a", "a (2)", "a", "a", "\u202ea\x00", "b" * 300, "b" * 299 + "c"]
    made = studies.make_dataset([(text, {"d": 1}) for text in texts])
    assert list(made.queries.values()) == texts
    assert list(made.queries)[:5] == ["a", "a (2)", "a (3)", "a (4)", "a (5)"]
    assert list(made.qrels) == list(made.queries)


def test_a_borrowed_memory_stays_open(memory):
    """A study leaves the memory open for its owner."""
    memory.add("night train", id="d1")
    report = studies.run(memory, None, studies.make_dataset([NIGHT]), measures=("P@1",))
    assert report["systems"]["default"]["per_query"]["P@1"] == {"night train": 1.0}
    assert memory.search("night").results


@pytest.mark.parametrize("study", [studies.run, studies.sweep, studies.overlap])
def test_study_that_takes_too_long_is_stopped(memory, study):
    """Between two questions, with a hint; the memory itself has no limit."""
    memory.add("night train", id="d1")
    with pytest.raises(UsageError, match="longer than -1 s"):
        study(memory, studies.StudyWork(-1), studies.make_dataset([NIGHT]))
    assert memory.search("night").results


def test_scoped_judgments_name_only_visible_records(memory, tmp_path):
    """Another scope's id or path is the same as an unknown one."""
    note = tmp_path / "secret.md"
    note.write_text("The night train leaves at nine.")
    memory.index(note, user="bob")
    memory.add("night train", id="d1")
    memory.add("night train of Bob", id="bobs", user="bob")
    walled = memory.within(Scope(user="ada"))
    asked = studies.make_dataset([("night", {"d1": 1, "bobs": 1, str(note): 1, "nothing": 1})])
    assert find_targets(memory, asked)[1] == 1
    assert find_targets(walled, asked) == ({}, 3)
    with pytest.raises(UsageError, match=r"'bobs', 'nothing'$"):
        studies.check_known(walled, asked)
    studies.check_known(walled, studies.make_dataset([NIGHT]))
