"""`recollect search` by file and by chunk: its text, its JSON, and what why-not says of a further passage."""

import pytest

PART = "The deploy script copies the files to the staging server and restarts the queue worker there. " * 12


@pytest.fixture
def notes(home, run):
    """A file of four chunks about deploys, indexed by its words, and a fact."""
    folder = home / "notes"
    folder.mkdir()
    parts = [f"## Part {number}\n\nNumber {number}. {PART}\n" for number in range(1, 5)]
    parts[0] = parts[0].replace("Number 1.", "Deploy to the staging server.")  # the best passage
    (folder / "deploy.md").write_text("# Deploy\n\n" + "\n".join(parts), encoding="utf-8")
    assert run("index", str(folder), "--embedder", "none").code == 0
    run("add", "Deploys are frozen on Fridays", "--embedder", "none")
    return folder


def search(run, *flags):
    return run("search", "deploy staging server", "--embedder", "none", *flags)


def test_file_is_shown_once_with_the_lines_of_its_other_passages(run, notes):
    """Neighbours are one range of lines; what they say is shown with a flag."""
    shown = search(run).out
    assert shown.count("deploy.md:") == 1
    assert "and 3 more passages: lines 7–17" in shown
    assert "Part 2" not in shown
    opened = search(run, "--passages").out
    assert all(f"Part {number}" in opened for number in range(1, 5))


def test_by_chunk_lists_every_chunk(run, notes):
    """As many results as chunks, and the limit counts them."""
    assert len(search(run, "--by", "chunk", "--json").json["results"]) == 5
    assert len(search(run, "--json").json["results"]) == 2
    assert len(search(run, "--json", "-n", "1").json["results"][0]["passages"]) == 3


def test_unknown_way_to_list_is_refused(run, notes):
    """The message names the two that there are."""
    refused = search(run, "--by", "page")
    assert refused.code == 2
    assert "file, chunk" in refused.err


def test_why_not_says_that_a_passage_is_listed_with_its_file(run, notes):
    """And --by chunk shows it by itself."""
    passage = search(run, "--json").json["results"][0]["passages"][0]["id"]
    shown = run("why-not", "deploy staging server", passage, "--embedder", "none")
    assert "lost at: files" in shown.out
    assert "--by chunk" in shown.out
