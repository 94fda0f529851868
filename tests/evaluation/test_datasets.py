from __future__ import annotations

import json

import pytest

from recollect.errors import UsageError
from recollect.evaluation.datasets import read_dataset, read_judged, read_qrels, write_qrels

CORPUS = [{"_id": "d1", "title": "Tea", "text": "Green tea."}, {"_id": 2, "text": "Coffee\u2028black."}]
QUERIES = [{"_id": "q1", "text": "tea?"}, {"_id": "q2", "text": "coffee?"}, {"_id": "q3", "text": "neither?"}]
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t2\nq2\t2\t1\nq2\td1\t0\n"


def jsonl(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


@pytest.fixture
def folder(tmp_path):
    """Writes a set in BEIR's layout; a file that is None is left out."""

    def write(name="set", **files):
        where = tmp_path / name
        where.mkdir(parents=True, exist_ok=True)
        said = {"corpus.jsonl": jsonl(CORPUS), "queries.jsonl": jsonl(QUERIES), "qrels.tsv": QRELS} | {
            key.replace("__", "/").replace("_dot_", "."): text for key, text in files.items()
        }
        for file, text in said.items():
            if text is not None:
                (where / file).parent.mkdir(exist_ok=True)
                (where / file).write_text(text, encoding="utf-8")
        return where

    return write


def test_set_is_read_as_beir_writes_it(folder):
    """Documents, judged questions and grades; a line separator inside a text ends no line."""
    (dataset,) = read_dataset(folder())
    assert [row["_id"] for row in dataset.corpus] == ["d1", "2"]
    assert dataset.corpus[1]["text"] == "Coffee\u2028black."
    assert dataset.queries == {"q1": "tea?", "q2": "coffee?"}
    assert dataset.qrels == {"q1": {"d1": 2}, "q2": {"2": 1, "d1": 0}}
    assert (dataset.name, dataset.unjudged, dataset.without_text, dataset.unknown) == ("set", 1, 0, 0)


@pytest.mark.parametrize(
    "text",
    [
        "q1\td1\t2\nq2\t2\t1\nq2\td1\t0\n",
        "q1 0 d1 2\nq2 0 2 1\nq2 0 d1 0\n",
        "q1\tQ0\td1\t2\r\n\r\nq2\tQ0\t2\t1\r\nq2\tQ0\td1\t0\r\n",
        "\ufeffQUERY-ID\tcorpus-id\tscore\nq1\td1\t2.0\nq2\t2\t1\nq2\td1\t0",
    ],
)
def test_judgments_are_read_in_every_usual_format(folder, text):
    """With or without a heading, three columns or TREC's four, tabs or spaces, any line end."""
    assert read_qrels(folder(qrels_dot_tsv=text) / "qrels.tsv") == {"q1": {"d1": 2}, "q2": {"2": 1, "d1": 0}}


def test_judgments_can_be_written_and_read(folder, tmp_path):
    """As TREC qrels, in which white space separates: in an id it is percent-encoded."""
    qrels = {"q1": {"d1": 2, "d2": -1}, "q2": {"d1": 0}}
    (tmp_path / "qrels.trec").write_text("\n".join(write_qrels(qrels)))
    assert read_qrels(tmp_path / "qrels.trec") == qrels
    assert list(write_qrels({"q": {"a b\t50%.md": 1, "50%.md": 0}})) == ["q 0 a%20b%0950%25.md 1", "q 0 50%.md 0"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"queries_dot_jsonl": jsonl([{"_id": "q1", "text": "x"}, {"_id": "q1", "text": "y"}])}, "another question"),
        ({"qrels_dot_tsv": "q1\td1\t1\nq1\td1\t0\n"}, "a second time"),
    ],
)
def test_id_or_judgment_that_contradicts_another_is_refused(folder, files, message):
    """Otherwise the last line would silently change the figures."""
    with pytest.raises(UsageError, match=f"line 2 .*{message}"):
        read_dataset(folder(**files))


def test_splits_are_found_in_both_layouts(folder):
    """`qrels/test.tsv` is the default, `qrels_train.tsv` and `qrels/train.tsv` are train, with their own queries."""
    beir = folder("beir", qrels_dot_tsv=None, qrels__test_dot_tsv=QRELS, qrels__train_dot_tsv="q3\td1\t1\n")
    assert set(read_dataset(beir)[0].queries) == {"q1", "q2"}
    assert read_dataset(beir, split="test") == read_dataset(beir)
    assert read_dataset(beir, split="train")[0].queries == {"q3": "neither?"}
    ours = folder(
        "ours", qrels_train_dot_tsv="t1\td1\t1\n", queries_train_dot_jsonl=jsonl([{"_id": "t1", "text": "x"}])
    )
    assert read_dataset(ours, split="train")[0].queries == {"t1": "x"}
    with pytest.raises(UsageError, match="split 'dev'"):
        read_dataset(ours, split="dev")


def test_subfolders_are_separate_corpora(folder, tmp_path):
    """Repeated question ids get the corpus's name as a prefix; others are unchanged."""
    folder("many/a")
    folder("many/b", queries_dot_jsonl=jsonl([{"_id": "q9", "text": "tea?"}]), qrels_dot_tsv="q9\td1\t1\n")
    first, second = read_dataset(tmp_path / "many")
    assert (list(first.queries), list(second.queries), first.prefix) == (["q1", "q2"], ["q9"], "")
    folder("many/c")
    first, _, third = read_dataset(tmp_path / "many")
    assert (list(first.queries), list(third.qrels), third.prefix) == (["a/q1", "a/q2"], ["c/q1", "c/q2"], "c/")


def test_fingerprints_depend_only_on_their_content(folder):
    """On the corpus, or on the judged questions, and not on order."""
    (first,) = read_dataset(folder("one"))
    swapped = "".join(reversed(QRELS.splitlines(keepends=True)[1:]))
    (same,) = read_dataset(folder("two", qrels_dot_tsv=swapped, queries_dot_jsonl=jsonl(QUERIES[::-1])))
    (other,) = read_dataset(folder("three", qrels_dot_tsv="q1\td1\t1\n"))
    (grown,) = read_dataset(folder("four", corpus_dot_jsonl=jsonl([*CORPUS, {"_id": "d3", "text": "x"}])))
    assert (first.fingerprint, first.judged) == (same.fingerprint, same.judged)
    assert first.fingerprint == other.fingerprint != grown.fingerprint
    assert first.judged == grown.judged != other.judged


def test_mismatches_are_counted(folder):
    """Judged questions without a text are left out; missing judged documents are counted."""
    (dataset,) = read_dataset(folder(qrels_dot_tsv="q1\td1\t1\nq1\tgone\t1\nghost\td1\t1\n"))
    assert (dataset.unjudged, dataset.without_text, dataset.unknown) == (2, 1, 1)
    assert dataset.qrels == {"q1": {"d1": 1, "gone": 1}}


@pytest.mark.parametrize(
    ("files", "where"),
    [
        ({"qrels_dot_tsv": "q1\td1\t1\nq1 d1\n"}, r"qrels.tsv: line 2 has 2 columns"),
        ({"qrels_dot_tsv": "q1\td1\tgood\n"}, r"qrels.tsv: line 1 has the grade 'good'"),
        ({"qrels_dot_tsv": "q1\td1\t0.5\n"}, r"qrels.tsv: line 1 has the grade '0.5'"),
        ({"qrels_dot_tsv": "\n"}, r"qrels.tsv holds no judgments"),
        ({"qrels_dot_tsv": None}, "holds no judgments"),
        ({"queries_dot_jsonl": None}, r"queries.jsonl is no file"),
        ({"queries_dot_jsonl": '{"_id": "q1", "text": "x"}\n{"_id": "q2"\n'}, r"queries.jsonl: line 2 is not JSON"),
        ({"queries_dot_jsonl": '{"_id": "q1"}\n'}, r'queries.jsonl: line 1 has no "text"'),
        ({"queries_dot_jsonl": '{"_id": "z", "text": "x"}\n'}, "no judged question has a text"),
        ({"corpus_dot_jsonl": '\n{"text": "x"}\n'}, r'corpus.jsonl: line 2 has no "_id"'),
        ({"corpus_dot_jsonl": "[1]\n"}, r"corpus.jsonl: line 1 is no JSON object"),
        ({"corpus_dot_jsonl": '{"_id": "a", "text": 5}\n'}, r"corpus.jsonl: line 1 has a"),
    ],
)
def test_broken_file_is_named_with_its_line(folder, files, where):
    """With the mistake and an example line."""
    with pytest.raises(UsageError, match=where) as caught:
        read_dataset(folder(**files))
    assert caught.value.hint


def test_folder_that_is_no_set_is_refused(tmp_path):
    """A missing and an empty one."""
    for place, reason in ((tmp_path / "gone", "is no folder"), (tmp_path, "holds no corpus.jsonl")):
        with pytest.raises(UsageError, match=reason):
            read_dataset(place)


def test_set_without_a_corpus_uses_the_users_store(folder, tmp_path):
    """It has no corpus fingerprint; judgments alone can score runs."""
    (dataset,) = read_dataset(folder(corpus_dot_jsonl=None))
    assert dataset.own
    assert dataset.queries == {"q1": "tea?", "q2": "coffee?"}
    (tmp_path / "questions.tsv").write_text("q1\ttea?\nq2\tcoffee?\n")
    (tmp_path / "j.txt").write_text("q1 0 d1 2\nq2 0 2 1\nq2 0 d1 0\n")
    assert read_judged(tmp_path / "questions.tsv", tmp_path / "j.txt").judged == dataset.judged
    assert read_judged(None, tmp_path / "j.txt").qrels == dataset.qrels
