"""A set whose documents are indexed as files: names, content, and results that are judged by their files."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from recollect.config import Settings
from recollect.errors import FailedError, UsageError
from recollect.evaluation.datasets import Dataset, fingerprint_of
from recollect.evaluation.recording import (
    file_names,
    markdown,
    open_corpus,
    place_of,
    record_set,
    record_sets,
    write_files,
)
from recollect.evaluation.trials import TrialPlan, gate, make_report, run_trials

HASHING = Settings(embedder="hashing:64")
LONG = "\n\n".join(
    f"Paragraph {number} on the heron. " + "It stands in the reeds and waits. " * 40 for number in range(9)
)
CORPUS = tuple(
    {"_id": key, "title": title, "text": text}
    for key, title, text in (
        ("birds/heron", "Heron", LONG),
        ("birds/owl", "Owl", "The owl hears a mouse below the snow."),
        ("birds_owl", "", "The tawny owl calls from the barn at dusk."),
        ("BIRDS/owl", "Owl pellets", "Pellets hold the bones of mice."),
        ("../.env", "Kettle", ""),
        ("鳥", "", "A text whose id has no letter of ASCII."),
        ("twin one", "", "Two documents have this text about the kingfisher."),
        ("twin two", "", "Two documents have this text about the kingfisher."),
        ("nothing", "", ""),
    )
)
QUERIES = {"q1": "heron in the reeds", "q2": "owl hears a mouse", "q3": "kettle", "q4": "kingfisher"}
QRELS = {"q1": {"birds/heron": 1}, "q2": {"birds/owl": 1}, "q3": {"../.env": 1}, "q4": {"twin one": 1, "twin two": 1}}


def make_set(**fields):
    return replace(Dataset("birds", CORPUS, QUERIES, QRELS, "f00d", as_files=True), **fields)


@pytest.fixture
def opened(tmp_path):
    """Opens sets in the test's folder, with the hashing embedder."""
    return partial(open_corpus, settings=HASHING, folder=tmp_path / "cache")


def test_every_document_has_a_file_name_of_its_own():
    """Ids with slashes, ids that differ in case only and ids of dots give safe names that lead back to them."""
    names = file_names(CORPUS)
    assert list(names.values()) == [row["_id"] for row in CORPUS]
    assert len({name.lower() for name in names}) == len(CORPUS)
    assert list(names)[:6] == [
        "birds-heron.md", "birds-owl.md", "birds_owl.md", "BIRDS-owl-2.md", "env.md", "document.md",
    ]  # fmt: skip
    (name,) = file_names([{"_id": "x" * 5000}])
    assert len(name) < 100


@pytest.mark.parametrize(
    ("title", "text", "content"),
    [
        ("Owl", "Hoots.", "# Owl\n\nHoots."),
        ("Owl", "# Owl\n\nHoots.", "# Owl\n\nHoots."),
        ("Owl", "# Owls\n", "# Owl\n\n# Owls\n"),
        ("A\nB", "x", "# A B\n\nx"),
        ("", "  as is\r\n", "  as is\r\n"),
        ("Owl", "", "# Owl\n\n"),
        ("", "", "-"),
    ],
)
def test_file_is_the_text_below_its_title(title, text, content):
    """The title is a heading, unless the text begins with it; the text is not changed."""
    assert markdown({"title": title, "text": text}) == content


def test_folder_is_written_once_and_completely(tmp_path):
    """A folder that exists is not written again; nothing else stays beside it."""
    folder = tmp_path / "deep" / "files"
    write_files(CORPUS, folder)
    (folder / "birds-owl.md").write_text("changed")
    write_files(CORPUS, folder)
    assert (folder / "birds-owl.md").read_text() == "changed"
    assert len(list(folder.iterdir())) == len(CORPUS)
    assert list(folder.parent.iterdir()) == [folder]


def test_text_that_is_no_unicode_is_written(tmp_path):
    """Half of a surrogate pair, which JSON can hold, becomes a question mark."""
    write_files([{"_id": "a", "title": "", "text": "x \ud800 y"}], tmp_path / "files")
    assert (tmp_path / "files" / "a.md").read_text() == "x ? y"


def test_folder_that_cannot_be_written_is_named(tmp_path):
    """A file in place of the cache folder is an error that names the folder, not a traceback."""
    (tmp_path / "cache").write_text("in the way")
    with pytest.raises(FailedError, match="files cannot be written"):
        write_files(CORPUS, tmp_path / "cache" / "files")


def test_results_are_documents_by_file(opened):
    """Several chunks of a file are one document, found by its id; by chunk the first one counts."""
    with opened(make_set()) as memory:
        assert memory.status()["records"]["total"] > len(CORPUS)
        judged = record_set(memory, make_set())
        for by in ("file", "chunk"):
            run = judged.run({"by": by}, limit=100)
            assert {name: next(iter(run[name])) for name in ("q1", "q2", "q3")} == {
                "q1": "birds/heron", "q2": "birds/owl", "q3": "../.env",
            }  # fmt: skip
            assert all(set(ranking) <= {row["_id"] for row in CORPUS} for ranking in run.values())
        assert judged.unknown == 0
        text, shown = QUERIES["q1"], judged.run({}, limit=100)["q1"]
        paths = [str(result.record.path) for result in memory.search(text, limit=100).results]
        assert [judged.documents[path] for path in paths] == list(shown)


def test_equal_texts_are_one_result(opened):
    """Search merges records with the same text, so one of two equal documents is found, at the first place."""
    with opened(make_set()) as memory:
        ranking = list(record_set(memory, make_set()).run({}, limit=100)["q4"])
    assert ranking[0] in {"twin one", "twin two"}
    assert len({"twin one", "twin two"} & set(ranking)) == 1


def test_confidence_and_own_document_are_judged_by_file(opened):
    """A chunk of the right file counts as relevant; `exclude_self` drops the file of the question's own document."""
    dataset = make_set(queries={"birds/owl": "owl hears a mouse"}, qrels={"birds/owl": {"birds/owl": 1}})
    with opened(dataset) as memory:
        judged = record_set(memory, dataset, options={"confidence": True})
        ((first, *_),) = judged.confidences({})
        assert first[1] is True
        assert not any(relevant for _, relevant in judged.confidences({}, exclude_self=True)[0])
    trials, _ = run_trials(TrialPlan(exclude_self=True), [dataset], opened)
    assert "birds/owl" not in trials[0].run["birds/owl"]


def test_second_run_reads_and_embeds_nothing(opened, tmp_path):
    """Store and files are cached beside each other, apart from the store of whole documents."""
    first = opened(make_set())
    sequence = first.status()["sequence"]
    first.close()
    moved = []
    with opened(make_set(), progress=lambda label: lambda *done: moved.append((label, *done))) as memory:
        assert memory.status()["sequence"] == sequence
    assert {label for label, *_ in moved} <= {"indexing birds"}
    opened(make_set(as_files=False)).close()
    names = sorted(path.name for path in (tmp_path / "cache").iterdir() if path.suffix in ("", ".db"))
    assert names == ["birds-f00d-files-hashing-64", "birds-f00d-files-hashing-64.db", "birds-f00d-hashing-64.db"]


def test_file_that_is_not_indexed_is_reported(opened):
    """The indexer leaves out a file that is too long; its document counts as not found."""
    row = {"_id": "long", "title": "", "text": "heron " * 400_000}
    dataset = make_set(corpus=(*CORPUS, row), qrels={**QRELS, "q1": {"long": 1}})
    trials, corpora = run_trials(TrialPlan(), [dataset], opened)
    report = make_report("birds", TrialPlan(), HASHING, trials, corpora)
    assert "1 judged documents are missing and count as not found" in report["warnings"]
    assert report["data"]["as_files"] is True


def test_reports_of_files_and_of_whole_documents_are_not_compared(opened):
    """The fingerprint says whether documents were files, so that the gate refuses to mix the two."""
    reports = [
        make_report("birds", TrialPlan(), HASHING, *run_trials(TrialPlan(), [make_set(as_files=files)], opened))
        for files in (False, True)
    ]
    assert fingerprint_of([make_set(as_files=False)]) == reports[0]["data"]["fingerprint"]
    with pytest.raises(UsageError, match="fingerprint"):
        gate(*reports)


def test_settings_are_replayed_on_files(opened):
    """A sweep measures documents, too: by file a long file is one of the first results, not several."""
    with record_sets("birds", [make_set()], opened, depth=50) as judged:
        outcome = judged({})
        assert outcome.values["q1"] == outcome.values["q2"] == 1.0
        assert outcome.tops["q1"][0] == "birds/heron"
        assert len(set(outcome.tops["q1"])) == len(outcome.tops["q1"])


def test_files_have_a_store_of_their_own():
    """The name says that documents are files, before the model."""
    assert place_of(make_set(), Settings()) == "birds-f00d-files-small-embedder.db"
    assert place_of(replace(make_set(), as_files=False), Settings()) == "birds-f00d-small-embedder.db"
