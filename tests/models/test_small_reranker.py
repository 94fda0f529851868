"""The reranker that is part of the package."""

import json

import pytest

from recollect.cli import main
from recollect.errors import UsageError
from recollect.models.catalogue import remove
from recollect.models.onnx import OnnxReranker, Runtime
from recollect.models.rerankers import is_ready, open_reranker


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """No model in the cache, and no network."""
    monkeypatch.setenv("RECOLLECT_MODELS", str(tmp_path / "empty"))
    monkeypatch.setenv("RECOLLECT_OFFLINE", "1")


def test_small_reranker_needs_no_download(bare):
    """It is ready, and puts the passage that answers first."""
    assert is_ready("small-reranker")
    assert not is_ready("minilm-l12-reranker")
    passages = ["Bob: the weather is bad.", "Ann: I moved to Lisbon last year.", "Ann likes tea."]
    scores = open_reranker("small-reranker", fetch=False).scores("Which city does Ann live in?", passages)
    assert scores.index(max(scores)) == 1


@pytest.mark.parametrize("text", ["(" * 30_000, "heron lake " * 3_000, "\0" * 5_000], ids=["signs", "words", "nothing"])
def test_long_texts_are_cut_before_they_are_paired(bare, monkeypatch, text):
    """The tokenizer makes pairs of all that it cuts off; the score is that of the beginnings."""
    pairs = []
    each = Runtime.each

    def noted(self, texts, reduce):
        pairs.extend(texts)
        return each(self, texts, reduce)

    monkeypatch.setattr(Runtime, "each", noted)
    monkeypatch.setenv("RECOLLECT_THREADS", "1")
    reranker = OnnxReranker("small-reranker")
    (score,) = reranker.scores(text, [text])
    [(query, passage)] = pairs
    tokenizer, _ = reranker._runtime.load()
    assert all(not tokenizer.encode(part, add_special_tokens=False).overflowing for part in (query, passage))
    assert text.startswith(query)
    assert reranker.scores(query, [passage]) == [score]


def test_small_reranker_counts_in_a_search(bare, memory):
    """What it says of a record that answers raises it above one with more words of the question."""
    memory.add_many([
        {"id": "words", "text": "Which city would Ann like, which city would Bob like?"},
        {"id": "answer", "text": "Ann moved to Lisbon, a city in Portugal, last year."},
        {"id": "other", "text": "Tea is grown in the Azores by Ann."},
    ])  # fmt: skip
    answer = memory.search("Which city did Ann move to?", rerank=True)
    assert not answer.trace.warnings
    factors = {result.record.id: result.factors["rerank"] for result in answer.results}
    assert factors["answer"] > factors["words"]


def test_results_for_a_model_are_reranked_by_it(bare, memory):
    """Nothing has to be set or fetched."""
    memory.add_many([{"text": "A heron stands in the reeds."}, {"text": "Where the heron stands is a secret."}])
    answer = memory.search("Where does the heron stand?", for_model=True, min_confidence=0.0, rerank_ms=60_000)
    assert not answer.trace.warnings
    assert all("rerank" in result.factors for result in answer.results)


def test_small_reranker_is_listed_and_stays(bare, capsys):
    """`model list` calls it built in; it is fetched by doing nothing, and not removed."""
    assert main(["model", "list", "--json"]) == 0
    [listed] = [row for row in json.loads(capsys.readouterr().out) if row["name"] == "small-reranker"]
    assert listed["built_in"]
    assert listed["installed"]
    with pytest.raises(UsageError, match="part of Recollect"):
        remove("small-reranker")
    assert is_ready("small-reranker")
