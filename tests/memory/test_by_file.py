"""Results of files: one result a file, its further passages attached; recall, agents and retrievers get chunks."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from recollect import Memory
from recollect.config import Settings
from recollect.errors import UsageError
from recollect.memory.shapes import answer_dict
from recollect.stages import by_file
from recollect.types import Candidate, Put, Query, Record
from recollect.types.search import Pool

QUERY = "heron lake"
TEXTS = {  # file → its chunks; the more often the words, the better the rank
    "pond.md": ["heron lake heron lake", "heron lake reeds", "the heron", "boats are blue and red, white and black"],
    "sea.md": ["heron lake heron lake dawn"],
    "hill.md": ["a heron on the hill", "sheep on the hill"],
}


@pytest.fixture
def birds(memory: Memory) -> Memory:
    """Three files in ten-line chunks, and one fact."""
    changes = [
        Put(Record(f"{file[:-3]}{at}", text, kind="chunk", path=f"/birds/{file}", lines=(10 * at + 1, 10 * at + 9)))
        for file, texts in TEXTS.items()
        for at, text in enumerate(texts)
    ]
    memory.store.records.apply([changes])
    memory.add("heron lake, says the almanac", id="fact")
    return memory


def ids(memory: Memory, **options: object) -> list[str]:
    return [result.record.id for result in memory.search(QUERY, sources=["keyword"], **options).results]


def test_file_is_one_result(birds: Memory) -> None:
    """Each file occurs once, with its best passage; a fact counts as itself."""
    results = birds.search(QUERY, sources=["keyword"]).results
    assert sorted(result.record.id for result in results) == ["fact", "hill0", "pond0", "sea0"]
    (pond,) = [result for result in results if result.record.id == "pond0"]
    assert [passage.record.id for passage in pond.passages] == ["pond1"]  # the others have less than half its score
    assert all(not result.passages for result in results if result.record.id != "pond0")


@pytest.mark.parametrize("kind", ["file", pytest.param("server", marks=pytest.mark.ci)])
def test_message_of_a_mailbox_is_one_result(tmp_path: Path, request: pytest.FixtureRequest, kind: str) -> None:
    """A message counts as a file: others of its mailbox neither hide it nor change its score; its own chunks add up."""
    place = tmp_path / "m.db" if kind == "file" else request.getfixturevalue("new_schema")()
    texts = [("message 1", "boats"), ("message 2", "heron lake"), ("message 3", "heron lake dawn")]
    chunks = [
        Record(f"{at}", text, kind="chunk", path="/mail/all.mbox", lines=(20 * at, 20 * at + 9), place=message)
        for at, (message, text) in enumerate([*texts, ("message 3", "heron lake reeds")], 1)
    ]
    with Memory.open(place, settings=Settings(), embedder="none") as mail:
        mail.store.records.apply([[Put(record) for record in chunks]])
        results = mail.search(QUERY).results
        assert {one.record.place: len(one.passages) for one in results} == {"message 2": 0, "message 3": 1}
        assert all(result.factors.get("files", 1) >= 1 for result in results)


def test_chunks_are_listed_by_themselves(birds: Memory) -> None:
    """`by="chunk"` gives every chunk its own place and score."""
    results = birds.search(QUERY, sources=["keyword"], by="chunk").results
    assert {result.record.id for result in results} == {"fact", "hill0", "pond0", "pond1", "pond2", "sea0"}
    assert all("files" not in result.factors and not result.passages for result in results)


def test_passages_add_to_the_score(birds: Memory) -> None:
    """The factor is a fifth of the second passage's score, relative to the first; the score is still explained."""
    by_chunk = {one.record.id: one for one in birds.search(QUERY, sources=["keyword"], by="chunk").results}
    (pond,) = [one for one in birds.search(QUERY, sources=["keyword"]).results if one.record.id == "pond0"]
    gain = 0.2 * by_chunk["pond1"].total
    assert pond.factors["files"] == pytest.approx(1 + gain / by_chunk["pond0"].total)
    assert pond.total == pytest.approx(pond.base * pond.factors["files"])


def test_limit_counts_files_and_fewer_results_are_the_head_of_more(birds: Memory) -> None:
    """A file that takes three places by chunk takes one."""
    whole = ids(birds)
    assert [ids(birds, limit=count) for count in range(1, 5)] == [whole[:count] for count in range(1, 5)]


def test_filter_applies_before_passages_add_up(birds: Memory) -> None:
    """What a filter hides neither stands for its file nor adds to it."""
    birds.forget("pond0")
    assert "pond1" in ids(birds)
    assert ids(birds, kind="fact") == ["fact"]
    assert ids(birds, path="pond.md") == ["pond1"]


def test_threshold_applies_to_the_score_of_the_file(birds: Memory) -> None:
    """Results are files: what their passages add counts."""
    results = birds.search(QUERY, sources=["keyword"]).results
    least = sorted(result.score for result in results)[1]
    found = birds.search(QUERY, sources=["keyword"], min_score=least).results
    assert [one.record.id for one in found] == [one.record.id for one in results if one.score >= least]


def test_facts_are_ranked_as_before(memory: Memory) -> None:
    """A store without files gives the same answer by file as by chunk, with paths of extracted facts, too."""
    texts = ("heron lake", "heron lake reeds", "a heron")
    memory.store.records.apply([[Put(Record(f"f{at}", text, path="/notes.md")) for at, text in enumerate(texts)]])
    answers = [answer_dict(memory.search(QUERY, by=by), explain=True) for by in ("file", "chunk")]
    assert answers[0]["results"] == answers[1]["results"]


def test_json_lists_the_further_passages(birds: Memory) -> None:
    """Each with its id, title, lines, snippet and own score; results without have no such field."""
    results = {one["id"]: one for one in answer_dict(birds.search(QUERY, sources=["keyword"]))["results"]}
    (passage,) = results["pond0"]["passages"]
    assert (passage["id"], passage["lines"]) == ("pond1", [11, 19])
    assert passage["snippet"] == "heron lake reeds"
    assert 0 < passage["score"] < results["pond0"]["score"]
    assert "passages" not in results["sea0"]


def test_recall_gets_passages(birds: Memory) -> None:
    """A block for a model has every chunk that fits, also several of one file."""
    cited = [citation.id for citation in birds.recall(QUERY, sources=["keyword"]).citations]
    assert {"pond0", "pond1"} <= set(cited)


def test_settings_can_choose_chunks(birds: Memory, path: Path) -> None:
    """`[search] by = "chunk"` is the default of a user who wants lists of chunks."""
    birds.close()
    settings = replace(Settings(), search=replace(Settings().search, by="chunk"))
    with Memory.open(path, embedder="hashing:64", settings=settings) as memory:
        assert "pond1" in ids(memory)


def test_why_not_names_the_passage_that_stands_for_the_file(birds: Memory) -> None:
    """A further passage is listed with its file; a weak one is not; both are back by chunk."""
    options = {"sources": ["keyword"]}
    listed, weak = (birds.why_not(QUERY, key, **options) for key in ("pond1", "pond2"))
    assert "shown at rank" in listed.reason
    assert "listed as a further passage" in listed.reason
    assert "pond0" in listed.reason
    assert "less than half" in weak.reason


def candidates(*rows: tuple[str | None, float], lines: Sequence[int] = ()) -> list[Candidate]:
    """Candidates of files with their totals; `lines` are where they begin, by default at the opening."""
    pool, numbered = Pool(), zip(lines or [1] * len(rows), rows, strict=True)
    return [
        Candidate(pool, at, total, total, (b"", 0, 0.5, None, file, line))
        for at, (line, (file, total)) in enumerate(numbered)
    ]


def keys(found: Sequence[Candidate]) -> list[int | str]:
    return [candidate.key for candidate in found]


def test_stage_keeps_the_order_of_what_has_no_further_passage() -> None:
    """Where no file occurs twice, the very list is returned."""
    given = candidates(("a", 0.9), (None, 0.9), ("b", 0.5), (None, 0.1))
    assert by_file(Query("x"), given) is given


def test_file_with_several_passages_overtakes() -> None:
    """Each further passage adds a fifth of what the one before would."""
    given = candidates(("a", 0.6), ("b", 0.55), ("b", 0.5), ("b", 0.5), ("b", 0.1))
    found = by_file(Query("x"), given)
    assert keys(found) == [1, 0]
    assert found[0].total == pytest.approx(0.55 + 0.2 * 0.5 + 0.04 * 0.5)
    assert keys(found[0].passages) == [2, 3]


def test_file_whose_opening_matches_overtakes() -> None:
    """Three thirteenths of a file's score are its opening's: 0 where that is not among the candidates."""
    given = candidates(("deep", 0.6), ("about", 0.55), (None, 0.5), ("about", 0.2), lines=[80, 40, 0, 3])
    found = by_file(Query("x"), given)
    assert keys(found) == [2, 1, 0]
    assert [one.total for one in found] == pytest.approx([0.5, (0.55 + 0.3 * 0.2) / 1.3, 0.6 / 1.3])
    assert "files" not in found[0].factors


def test_note_that_is_all_opening_counts_like_a_fact() -> None:
    """Its only passage is its opening, also below front matter, and its score stays."""
    given = candidates(("note", 0.6), (None, 0.6), lines=[15, 0])
    assert by_file(Query("x"), given) is given
    assert given[0].total == given[1].total
    (later, _) = candidates(("note", 0.6), (None, 0.6), lines=[16, 0])
    assert by_file(Query("x"), [later])[0].total == pytest.approx(0.6 / 1.3)


def test_scores_of_zero_stay_zero() -> None:
    """Nothing is divided by zero."""
    found = by_file(Query("x"), candidates(("a", 0.0), ("a", 0.0)))
    assert keys(found) == [0]
    assert found[0].total == 0


def test_recall_refuses_to_be_made_of_files(birds: Memory) -> None:
    """A block is made of passages: `by` is an error in Python too, not an option without effect."""
    with pytest.raises(UsageError, match="no option 'by'"):
        birds.recall(QUERY, by="file")
