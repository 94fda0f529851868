"""Trust of a source in its own list: weak word matches count less, a language the model cannot read counts nothing."""

from collections.abc import Callable

import pytest

from recollect import Memory
from recollect.models.embedders import open_embedder
from recollect.models.onnx import OnnxEmbedder


@pytest.fixture(scope="session")
def reader() -> OnnxEmbedder:
    """arctic-embed-s."""
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
def test_model_reads_its_language(reader: OnnxEmbedder, text: str):
    """Questions, names, codes and numbers; names of code are read in pieces."""
    assert reader.legibility(text) > 0.4


@pytest.mark.parametrize("text", UNREAD)
def test_model_cannot_read_scripts_split_into_letters(reader: OnnxEmbedder, text: str):
    """Other scripts."""
    assert reader.legibility(text) == 0.0


def test_model_reads_german_in_part(reader: OnnxEmbedder):
    """In pieces: well enough to help, and not as well as English."""
    assert 0.25 < reader.legibility("Was darf nicht in die Wurmkiste?") < 0.6


@pytest.mark.parametrize("fusion", ["blend", "rrf", "weighted", "combmnz", "borda"])
def test_list_of_an_unreadable_query_is_left_out(open_memory: Callable[..., Memory], fusion: str):
    """Under every method; the trace says so, and the ranking is that of keywords."""
    memory = open_memory(embedder="arctic-embed-s")
    for text in ("备用钥匙在蓝色花盆下面", "新的会议室在三楼", "The spare key is under the blue pot", "火车晚点了"):
        memory.add(text)
    both = memory.search("备用钥匙在哪里", fusion=fusion)
    words = memory.search("备用钥匙在哪里", fusion=fusion, sources=["keyword"])
    assert [result.record.id for result in both.results] == [result.record.id for result in words.results]
    vector = next(source for source in both.trace.sources if source.name == "vector")
    assert (vector.status, vector.trust) == ("ok", 0.0)
    assert any("does not read this query well" in warning for warning in both.trace.warnings)


def test_list_of_an_unreadable_query_is_used_if_there_is_no_other(open_memory: Callable[..., Memory]):
    """If no other source found anything or was used."""
    memory = open_memory(embedder="arctic-embed-s")
    memory.add("备用钥匙在蓝色花盆下面")
    assert memory.search("अतिरिक्त चाबी कहाँ रखी है?").results
    assert memory.search("备用钥匙在哪里", sources=["vector"]).results


def test_weak_word_matches_are_trusted_less(memory: Memory):
    """One weak word of many counts little; the query's own words count as fully as they can among so many records."""
    for number in range(30):
        memory.add(f"Note {number} tells of herons and lakes, when it rains.")
    stray = memory.search("which microscopic animal survives being parched and revives decades later if it rains")
    asked = memory.search("herons and lakes")
    trust = [answer.trace.sources[0].trust for answer in (stray, asked)]
    assert trust[0] < trust[1] / 2
    assert 0.8 * 330 / 630 < trust[1] <= 330 / 630


def test_words_are_trusted_more_among_more_records(memory: Memory):
    """Among few records a common word may happen to be rare."""
    memory.add_many({"text": f"Note {number} tells of herons."} for number in range(10))
    few = memory.search("herons").trace.sources[0].trust
    memory.add_many({"text": f"Note {number} tells of herons."} for number in range(10, 3000))
    assert few < 0.55
    assert memory.search("herons").trace.sources[0].trust > 0.9


def test_plain_rrf_ignores_trust(memory: Memory):
    """RRF is Σ w / (k + rank), whatever a source's trust."""
    for number in range(30):
        memory.add(f"Note {number} tells of herons and lakes, when it rains.")
    answer = memory.search("which microscopic animal survives parched decades if it rains", fusion="rrf")
    for result in answer.results:
        expected = sum(1 / (60 + share.rank) for share in result.shares.values())
        assert result.fused == pytest.approx(expected, abs=1e-12)


def test_untrusted_source_is_used_if_the_others_have_no_weight(open_memory: Callable[..., Memory]):
    """Better than an empty answer; why-not names it where it is left out."""
    memory = open_memory(embedder="arctic-embed-s")
    memory.add("备用钥匙在蓝色花盆下面", id="key")
    memory.add("新的会议室在三楼", id="room")
    memory.add("火车晚点了", id="train")
    assert len(memory.search("备用钥匙在哪里", text_weight=0).results) == 3
    verdict = memory.why_not("备用钥匙在哪里", "train")
    assert verdict.stage == "trust"
    found = memory.search("备用钥匙在哪里", **verdict.change).results
    assert "train" in [result.record.id for result in found]


CODE = [
    "def read_config(path):\n    return json.loads(path.read_text())",
    "def close_all(self):\n    for each in self._open:\n        each.close()",
    "class LineReader(Reader):\n    size = 80",
    "if (a[i] == b[j]) { count++; }",
    "result = {key: value for key, value in rows if key}",
]
PROSE = [f"Heron number {number} (the grey one) stands in the pond and waits for a fish." for number in range(5)]


@pytest.mark.parametrize(
    ("texts", "trust"), [(CODE, 2.0), (PROSE, 1.0), ([*CODE[:4], PROSE[0]], 2.0), ([*CODE[:3], *PROSE[:2]], 1.0)]
)
def test_meaning_counts_twice_among_code(memory: Memory, texts: list[str], trust: float):
    """If four of the first five records by meaning are code, whose words are not those of a question."""
    memory.add_many({"text": text} for text in texts)
    answer = memory.search("how are settings read")
    assert next(source.trust for source in answer.trace.sources if source.name == "vector") == trust
    memory.add("read settings")
    rrf = memory.search("how are settings read", fusion="rrf").results[0]
    assert rrf.shares["vector"].contribution == pytest.approx(1 / (60 + rrf.shares["vector"].rank)), (
        "only blend reads it"
    )
