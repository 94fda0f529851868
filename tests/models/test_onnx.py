from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from recollect.errors import ConfigError, ModelError, UsageError
from recollect.models import onnx
from recollect.models.catalogue import MODELS
from recollect.models.embedders import open_embedder
from recollect.models.onnx import OnnxEmbedder
from recollect.types import Embedder

ARCTIC_EMBED_S = MODELS["arctic-embed-s"]
MINILM_L12_RERANKER = MODELS["minilm-l12-reranker"]

QUESTION = "How do I repair a leaking dishwasher?"
SENTENCES = (
    "The dishwasher leaks when the door seal is worn; replace the gasket.",
    "A recipe for sourdough bread with rye flour.",
    "PostgreSQL autovacuum reclaims dead tuples.",
)
QUESTION_TO_SENTENCES = (0.750, 0.464, 0.524)
FIRST_SENTENCE_TO_ALL = (1.0, 0.651, 0.676)


def test_implements_the_embedder_protocol(arctic):
    """It has the four members, and its name opens it again."""
    assert isinstance(arctic, Embedder)
    assert open_embedder(arctic.name).fingerprint == arctic.fingerprint


def test_cosines_equal_the_pinned_ones(arctic):
    """So pooling and prefixes are right."""
    matrix = arctic.passages(SENTENCES)
    assert matrix @ arctic.query(QUESTION) == pytest.approx(QUESTION_TO_SENTENCES, abs=0.01)
    assert matrix @ matrix[0] == pytest.approx(FIRST_SENTENCE_TO_ALL, abs=0.01)


def test_rows_are_unit_vectors_of_32_bits(arctic):
    """What comes out is what the seam promises."""
    matrix = arctic.passages(SENTENCES)
    assert matrix.dtype == np.float32
    assert matrix.shape == (3, 384)
    assert np.linalg.norm(matrix, axis=1) == pytest.approx(1.0, abs=1e-5)
    assert arctic.query("").dtype == np.float32


def test_query_is_not_embedded_as_a_passage(arctic):
    """Without the query prefix this model finds half as much."""
    assert float(arctic.query(QUESTION) @ arctic.passages([QUESTION])[0]) < 0.99
    bare = OnnxEmbedder(replace(ARCTIC_EMBED_S, query_prefix=""))
    assert np.array_equal(bare.query(QUESTION), arctic.passages([QUESTION])[0])


def test_vector_does_not_depend_on_its_neighbours(arctic):
    """Bit for bit the same alone and beside others."""
    texts = [*SENTENCES, "x", "a longer neighbour " * 60, *SENTENCES[::-1]]
    together = arctic.passages(texts)
    alone = np.concatenate([arctic.passages([text]) for text in texts])
    assert np.array_equal(together, alone)


def test_no_texts_give_an_empty_matrix(arctic):
    """Of the right width, and nothing is loaded."""
    fresh = OnnxEmbedder(ARCTIC_EMBED_S)
    assert fresh.passages([]).shape == (0, 384)
    assert fresh._runtime._loaded is None


@pytest.mark.parametrize("text", ["", " ", "\0", "a\0b", "\ud800", "x\udfffy", "😀", "\u2028", "ॐ", "[SEP][CLS]"])
def test_any_text_has_a_vector(arctic, text):
    """Empty, unreadable and hostile texts."""
    for vector in (arctic.query(text), arctic.passages([text])[0]):
        assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5)


def test_special_tokens_in_a_text_are_text(arctic):
    """A text cannot end early or become two by spelling one."""
    tokenizer, _ = arctic._runtime.load()
    assert tokenizer.encode("a [SEP] b").tokens.count("[SEP]") == 1


@pytest.mark.ci
def test_text_beyond_the_models_limit_changes_nothing(arctic):
    """Only the beginning counts, also of a megabyte."""
    long, longer, longest = arctic.passages(["word " * 600, "word " * 1200, "word " * 200_000])
    assert np.array_equal(long, longer)
    assert np.array_equal(long, longest)
    assert not np.array_equal(long, arctic.passages(["word " * 400])[0])


def test_model_is_loaded_once_by_many_threads(arctic, monkeypatch):
    """Sixteen threads agree."""
    loads = []
    real = onnx._load
    monkeypatch.setattr(onnx, "_load", lambda *parts: loads.append(parts) or real(*parts))
    fresh = OnnxEmbedder(ARCTIC_EMBED_S)
    with ThreadPoolExecutor(16) as pool:
        vectors = list(pool.map(fresh.query, [QUESTION] * 16))
    assert len(loads) == 1
    assert all(np.array_equal(vector, vectors[0]) for vector in vectors)


def test_repeated_query_is_cached(arctic):
    """The cached vectors cannot be changed by callers."""
    first = arctic.query("asked twice")
    assert arctic.query("asked twice") is first
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1.0


@pytest.mark.parametrize(
    "change",
    [
        {"max_tokens": 256},
        {"dimension": 256},
        {"query_prefix": ""},
        {"passage_prefix": "passage: "},
        {"name": "other"},
        {"files": MINILM_L12_RERANKER.files},
        {"files": (ARCTIC_EMBED_S.files[0], MINILM_L12_RERANKER.files[1])},
    ],
    ids=lambda change: next(iter(change)),
)
def test_fingerprint_changes_with_everything_that_changes_vectors(change):
    """Model and tokenizer files, pooling, tokens, dimension, prefixes."""
    assert OnnxEmbedder(replace(ARCTIC_EMBED_S, **change)).fingerprint != OnnxEmbedder(ARCTIC_EMBED_S).fingerprint


def test_fingerprint_is_short_and_stable():
    """Stored vectors depend on it."""
    expected = "arctic-embed-s@f93ff225+87eb7217:cls:512:384d:unit:p=c30321bb"
    assert OnnxEmbedder(ARCTIC_EMBED_S).fingerprint == expected


def test_reranker_is_refused_as_an_embedder():
    """A model of the catalogue that is no embedder is none of the names that are available."""
    with pytest.raises(UsageError, match="unknown embedder 'minilm-l12-reranker'; available: arctic-embed-s"):
        open_embedder("minilm-l12-reranker")


def test_threads_are_configurable(monkeypatch):
    """RECOLLECT_THREADS; an invalid number is refused by name."""
    monkeypatch.setenv("RECOLLECT_THREADS", "3")
    assert OnnxEmbedder(ARCTIC_EMBED_S)._runtime.threads == 3
    monkeypatch.setenv("RECOLLECT_THREADS", "many")
    with pytest.raises(ConfigError, match="RECOLLECT_THREADS is 'many'"):
        OnnxEmbedder(ARCTIC_EMBED_S)


def test_many_texts_come_back_in_their_order(arctic):
    """They are computed longest first, at low priority, and each vector is the one that the text has alone."""
    texts = [f"{'heron ' * (number * 7 % 11)}{number}" for number in range(onnx.BULK + 3)]
    assert np.array_equal(arctic.passages(texts), np.vstack([arctic.passages([text]) for text in texts]))


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the affinity of a process is Linux's")
def test_threads_are_the_cores_that_the_process_may_use(tmp_path):
    """Two threads of a core count once; a container's share of the processors limits them, in both of its forms."""
    allowed = os.sched_getaffinity(0)
    assert onnx.usable_cores(tmp_path) == len(allowed)
    for processor in allowed:
        topology = tmp_path / f"devices/system/cpu/cpu{processor}/topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{processor // 2}\n")
    pairs = len({processor // 2 for processor in allowed})
    assert onnx.usable_cores(tmp_path) == pairs
    groups = tmp_path / "fs/cgroup"
    (groups / "cpu").mkdir(parents=True)
    for limit, cores in (("max 100000\n", pairs), ("50000 100000\n", 1)):
        (groups / "cpu.max").write_text(limit)
        assert onnx.usable_cores(tmp_path) == cores
    (groups / "cpu.max").unlink()
    (groups / "cpu/cpu.cfs_period_us").write_text("100000\n")
    for quota, cores in (("-1\n", pairs), ("50000\n", 1)):
        (groups / "cpu/cpu.cfs_quota_us").write_text(quota)
        assert onnx.usable_cores(tmp_path) == cores


def test_missing_model_fails_at_first_use(arctic, monkeypatch, tmp_path):
    """With the command to run."""
    monkeypatch.setenv("RECOLLECT_MODELS", str(tmp_path))
    with pytest.raises(ModelError) as caught:
        OnnxEmbedder(ARCTIC_EMBED_S).query("hello")
    assert caught.value.hint == "recollect model fetch arctic-embed-s"


def test_opening_it_imports_no_heavy_library(arctic):
    """Neither onnxruntime nor tokenizers."""
    program = "import sys; from recollect.models.embedders import open_embedder; open_embedder('arctic-embed-s');"
    program += "sys.exit(any(name in sys.modules for name in ('onnxruntime', 'tokenizers', 'httpx2')))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
