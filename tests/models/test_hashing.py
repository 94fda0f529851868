from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.errors import UsageError
from recollect.models.embedders import open_embedder
from recollect.models.hashing import HashingEmbedder
from recollect.types import Embedder

PINNED = (-0.37796, 0.37796, 0.0, -0.37796, 0.0, 0.75593, 0.0, 0.0)
ANY_TEXT = st.text(st.characters(exclude_categories=()))


def cosine(embedder: HashingEmbedder, one: str, other: str) -> float:
    """The cosine of two texts."""
    return float(embedder.query(one) @ embedder.query(other))


def test_implements_the_embedder_protocol():
    """It has the four members, and its name opens it again."""
    embedder = open_embedder("hashing:64")
    assert isinstance(embedder, Embedder)
    assert embedder.name == "hashing:64"
    assert open_embedder("hashing").name == "hashing:256"


@given(ANY_TEXT)
def test_every_text_has_a_unit_vector(text):
    """Any string at all, lone surrogates and nothing included, gets a finite vector of length 1."""
    vector = HashingEmbedder(64).query(text)
    assert vector.dtype == np.float32
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5)


@given(st.lists(ANY_TEXT, max_size=5))
def test_passages_are_queries_in_order(texts):
    """A list of texts gives a row for each, the same as the text alone."""
    embedder = HashingEmbedder(32)
    rows = embedder.passages(texts)
    assert rows.shape == (len(texts), 32)
    assert all(np.array_equal(row, embedder.query(text)) for row, text in zip(rows, texts, strict=True))


def test_text_without_words_is_one_fixed_vector():
    """The empty text, blanks and punctuation have one direction, which no word has."""
    embedder = HashingEmbedder()
    assert cosine(embedder, "", " \n") == pytest.approx(1.0)
    assert cosine(embedder, "", "?!") == pytest.approx(1.0)
    assert abs(cosine(embedder, "", "dishwasher")) < 0.5


@pytest.mark.parametrize(
    ("text", "like", "unlike"),
    [
        ("colour", "color", "harbour master"),
        ("the dishwasher leaks", "dishwashers leaking", "autovacuum settings"),
        ("Straße", "STRASSE", "gasse"),
        ("release notes 1.0.21", "notes for release 1.0.21", "a walk in the mountains"),
        ("東京都", "東京都庁", "大阪"),
    ],
)
def test_similar_spelling_is_nearer_than_another_text(text, like, unlike):
    """Shared words and letters give a higher cosine than a text that shares none."""
    embedder = HashingEmbedder()
    assert cosine(embedder, text, like) > cosine(embedder, text, unlike) + 0.2


def test_vectors_are_the_same_in_every_process():
    """They do not depend on Python's hash seed."""
    program = "from recollect.models.hashing import HashingEmbedder as H; print(H(8).query('tide table').tolist())"
    seeds = [{"PYTHONHASHSEED": seed} for seed in ("1", "2")]
    outputs = {subprocess.check_output([sys.executable, "-c", program], env={**os.environ, **seed}) for seed in seeds}
    assert outputs == {f"{HashingEmbedder(8).query('tide table').tolist()}\n".encode()}


def test_vectors_equal_those_of_the_fingerprints_version():
    """Pinned numbers: stored vectors stay valid, or the version must be raised."""
    embedder = HashingEmbedder(8)
    assert embedder.fingerprint == "hashing@1:8d:unit:p=6e340b9c"
    assert embedder.query("tide table") == pytest.approx(PINNED, abs=1e-4)


def test_another_dimension_is_another_space():
    """The fingerprint contains the dimension."""
    assert HashingEmbedder(64).fingerprint != HashingEmbedder(128).fingerprint


@pytest.mark.parametrize("spec", ["hashing:x", "hashing:-1", "hashing:4", "hashing:1.5", "hashing:²"])
def test_invalid_dimension_is_refused(spec):
    """Anything but a whole number of at least eight is a usage error."""
    with pytest.raises(UsageError):
        open_embedder(spec)
