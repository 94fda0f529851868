import pytest

from recollect.evaluation.overlap import COUNTS, answering_sources, pair_recall, pair_recalls, pool
from recollect.evaluation.recording import Recording, record
from recollect.types import Hit, RankedList, Record


def reply(name, ids, error=None, texts=None):
    texts_by_id = {key: (texts or {}).get(key, key) for key in ids}
    hits = tuple(Hit(key, record=Record(key, text), text_hash=text.encode()) for key, text in texts_by_id.items())
    return RankedList(name, hits, error=error)


def recording(**questions):
    return Recording(None, dict.fromkeys(questions, ""), questions)


def finding(both=0, only_a=0, only_b=0, neither=0):
    counts = dict(zip(COUNTS, (both, only_a, only_b, neither), strict=True))
    return pair_recall("keyword", "vector", 100, 10, counts)


def test_counts_are_over_relevant_records():
    """Each pair of a question and a relevant record counts once, whatever else the lists hold."""
    found = recording(
        one=[reply("keyword", ["a", "x", "b"]), reply("vector", ["y", "a", "c"])],
        two=[reply("keyword", ["a"]), reply("vector", ["z"])],
    )
    (pair,) = pair_recalls(found, {"one": {"a": 2, "b": 1, "c": 1, "d": 1, "x": 0}, "two": {"a": 1}}, depth=100)
    assert pair == {**finding(1, 2, 1, 1), "questions": 2}
    assert [pair[name] for name in ("recall_a", "recall_b", "union", "overlap")] == [3 / 5, 2 / 5, 4 / 5, 1 / 4]
    assert pair["gain"] == pytest.approx(1 / 5)


def test_depth_cuts_the_lists():
    found = recording(one=[reply("keyword", ["x", "a"]), reply("vector", ["a", "x"])])
    (pair,) = pair_recalls(found, {"one": {"a": 1}}, depth=1)
    assert (pair["both"], pair["only_b"]) == (0, 1)


def test_text_under_another_id_is_found():
    """Equal texts are one result, so either id counts for both."""
    found = recording(one=[reply("keyword", ["a"], texts={"a": "t"}), reply("vector", ["b"], texts={"b": "t"})])
    (pair,) = pair_recalls(found, {"one": {"a": 1}}, depth=9)
    assert pair["both"] == 1


def test_several_sources_are_compared_in_pairs():
    found = recording(
        one=[reply("keyword", ["a"]), reply("vector", ["a"]), reply("wiki", [])],
        two=[reply("keyword", ["a"]), reply("vector", [], error=ValueError("no")), reply("wiki", ["a"])],
        three=[reply("silent", [], error=ValueError("no"))],
    )
    assert answering_sources(found) == ["keyword", "vector", "wiki"]
    pairs = pair_recalls(found, {"one": {"a": 1}, "two": {"a": 1}}, depth=9)
    assert [(pair["a"], pair["b"], pair["both"], pair["only_a"], pair["only_b"]) for pair in pairs] == [
        ("keyword", "vector", 1, 1, 0), ("keyword", "wiki", 1, 1, 0), ("vector", "wiki", 0, 1, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "word"),
    [
        ({"both": 59, "only_a": 21, "only_b": 20, "neither": 0}, "fuse"),
        ({"both": 59, "only_a": 26, "only_b": 15}, "fuse"),
        ({"both": 59, "only_a": 27, "only_b": 14}, "undecided"),
        ({"both": 60, "only_a": 20, "only_b": 20}, "undecided"),
        ({"both": 70, "only_a": 15, "only_b": 15}, "undecided"),
        ({"both": 71, "only_a": 15, "only_b": 14}, "gains little"),
        ({"both": 0, "only_a": 50, "only_b": 0, "neither": 50}, "undecided"),
        ({"neither": 9}, "undecided"),
        ({}, "undecided"),
    ],
)
def test_advice_follows_the_thresholds(counts, word):
    """Fuse below 60 % with 15 points or more, gains little above 70 %, and undecided in between."""
    assert finding(**counts)["advice"] == word


def test_advice_has_its_numbers():
    pair = finding(both=40, only_a=20, only_b=15, neither=25)
    assert pair["advice"] == "fuse"
    assert (
        "both find 53.3 %, less than 60 %; together they reach 75.0 %, 15.0 points above keyword alone" in pair["why"]
    )
    assert finding(both=80, only_b=10, neither=10)["why"].endswith("0.0 points above vector alone and less than 15")
    assert finding(neither=3)["why"] == "neither keyword nor vector finds a relevant record"


def test_several_corpora_are_added_up():
    assert pool([finding(1, 2, 3, 4), finding(10, 20, 30, 40)]) == {**finding(11, 22, 33, 44), "questions": 20}


def test_real_sources_are_counted_by_their_own_lists(memory):
    """What each source returns alone."""
    texts = ["the night train to Vienna", "water for the garden", "piano lessons on Monday", "harbour in winter"]
    ids = [memory.add(text).id for text in texts]
    questions = {"q1": "night train", "q2": "garden water", "q3": "vineyard harbours"}
    judged = {"q1": {ids[0]: 1}, "q2": {ids[1]: 1}, "q3": {ids[3]: 1}}
    (pair,) = pair_recalls(record(memory, questions, depth=2), judged, depth=2)
    alone = {
        name: {
            key: {result.record.id for result in memory.search(text, sources=[name], fetch_k=2, limit=2).results}
            for key, text in questions.items()
        }
        for name in ("keyword", "vector")
    }
    hits = [[next(iter(judged[key])) in alone[name][key] for key in questions] for name in ("keyword", "vector")]
    assert pair["both"] == sum(a and b for a, b in zip(*hits, strict=True))
    assert pair["only_a"] == sum(a and not b for a, b in zip(*hits, strict=True))
    assert pair["relevant"] == 3
