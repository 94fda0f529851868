"""What a source thinks of its own list: stray words count less, a language that a model cannot read counts nothing."""

from collections.abc import Callable

import pytest

from recollect import Memory
from recollect.models.embedders import open_embedder
from recollect.models.onnx import OnnxEmbedder


@pytest.fixture(scope="session")
def reader() -> OnnxEmbedder:
    """The default model."""
    return open_embedder("arctic-embed-s")


ENGLISH = (
    "Where did I put the spare key?",
    "What does error E4031 mean?",
    "parseConfig timeout",
    "WH-7740-B",
    "1.0.21",
)
UNREAD = ("备用钥匙在蓝色花盆下面吗？", "अतिरिक्त चाबी कहाँ रखी है?", "Как пройти в библиотеку?", "안녕하세요 세계 여러분")


@pytest.mark.parametrize("text", ENGLISH)
def test_the_model_reads_what_it_was_made_for(reader: OnnxEmbedder, text: str):
    """Questions, names, codes and numbers."""
    assert reader.legibility(text) == 1.0


@pytest.mark.parametrize("text", UNREAD)
def test_the_model_cannot_read_what_it_sees_as_single_letters(reader: OnnxEmbedder, text: str):
    """Other scripts."""
    assert reader.legibility(text) == 0.0


def test_german_is_read(reader: OnnxEmbedder):
    """In pieces, but well enough to help."""
    assert reader.legibility("Was darf nicht in die Wurmkiste?") == 1.0


@pytest.mark.parametrize("fusion", ["blend", "rrf", "weighted", "combmnz", "borda"])
def test_a_list_that_was_not_understood_is_left_out(open_memory: Callable[..., Memory], fusion: str):
    """Under every method; the trace says so, and the ranking is that of words alone."""
    memory = open_memory(embedder="arctic-embed-s")
    for text in ("备用钥匙在蓝色花盆下面", "新的会议室在三楼", "The spare key is under the blue pot", "火车晚点了"):
        memory.add(text)
    both = memory.search("备用钥匙在哪里", fusion=fusion)
    words = memory.search("备用钥匙在哪里", fusion=fusion, sources=["keyword"])
    assert [result.record.id for result in both.results] == [result.record.id for result in words.results]
    vector = next(source for source in both.trace.sources if source.name == "vector")
    assert (vector.status, vector.trust) == ("ok", 0.0)
    assert any("does not read" in warning for warning in both.trace.warnings)


def test_a_list_that_was_not_understood_is_better_than_none(open_memory: Callable[..., Memory]):
    """Where nothing else was found, or nothing else was asked, it is heard."""
    memory = open_memory(embedder="arctic-embed-s")
    memory.add("备用钥匙在蓝色花盆下面")
    assert memory.search("अतिरिक्त चाबी कहाँ रखी है?").results
    assert memory.search("备用钥匙在哪里", sources=["vector"]).results


def test_stray_words_are_trusted_less(memory: Memory):
    """One weak word of many says little; the question's own words say all."""
    for number in range(30):
        memory.add(f"Note {number} tells of herons and lakes, when it rains.")
    stray = memory.search("which microscopic animal survives being parched and revives decades later if it rains")
    asked = memory.search("herons and lakes")
    trust = [answer.trace.sources[0].trust for answer in (stray, asked)]
    assert trust[0] < 0.5 < trust[1] == 1.0


def test_a_plain_formula_stays_plain(memory: Memory):
    """RRF is Σ w / (k + rank), whatever a source thinks of its list."""
    for number in range(30):
        memory.add(f"Note {number} tells of herons and lakes, when it rains.")
    answer = memory.search("which microscopic animal survives parched decades if it rains", fusion="rrf")
    for result in answer.results:
        expected = sum(1 / (60 + share.rank) for share in result.shares.values())
        assert result.fused == pytest.approx(expected, abs=1e-12)


def test_where_the_others_weigh_nothing_it_is_heard(open_memory: Callable[..., Memory]):
    """A source that was not understood is better than an empty answer; why-not names it where it is left out."""
    memory = open_memory(embedder="arctic-embed-s")
    memory.add("备用钥匙在蓝色花盆下面", id="key")
    memory.add("新的会议室在三楼", id="room")
    memory.add("火车晚点了", id="train")
    assert len(memory.search("备用钥匙在哪里", text_weight=0).results) == 3
    verdict = memory.why_not("备用钥匙在哪里", "train")
    assert verdict.stage == "trust"
    found = memory.search("备用钥匙在哪里", **verdict.change).results
    assert "train" in [result.record.id for result in found]
