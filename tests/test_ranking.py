from __future__ import annotations

import math
import time
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import MANY

from recollect.ranking import DAY, HALF_LIVES, decay, fold, fold_hash, importance_factor, mmr

ODD = "ßİıſẞᾳ\u0345\u0301\u0307\u0308ŉǰΐΣςﬁ①½㌀ﷺ゛\u037a\u3000\u00a0\u2028\ud800\x1caAiIjJ \n\t"
ANY_TEXT = st.one_of(st.text(st.characters(exclude_categories=()), max_size=20), st.text(ODD, max_size=20))
AGES = st.floats(0, 1e11)
HALVES = st.floats(1e-3, 1e11)


# --- folding


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Hello  World", " hello\n\tworld "),
        ("Straße", "STRASSE"),
        ("ﬁle ①", "FILE 1"),
        ("ＦＵＬＬ　ｗｉｄｔｈ", "full width"),
        ("cafe\u0301", "café"),
        ("ΣΊΣΥΦΟΣ", "σίσυφος"),
        ("a\u00a0b\u2028c", "a b c"),
    ],
)
def test_folding_ignores_form_case_and_white_space(one, other):
    """For texts and their hashes."""
    assert fold(one) == fold(other)
    assert fold_hash(one) == fold_hash(other)


@pytest.mark.parametrize(("one", "other"), [("café", "cafe"), ("a b", "ab"), ("a.", "a"), ("й", "и"), ("", "a")])
def test_folding_distinguishes_accents_and_punctuation(one, other):
    """Also the positions of spaces, for texts and their hashes."""
    assert fold(one) != fold(other)
    assert fold_hash(one) != fold_hash(other)


@MANY
@given(text=ANY_TEXT)
def test_folding_is_idempotent(text):
    """Any string: the result is in NFKC, in one line, trimmed."""
    folded = fold(text)
    assert fold(folded) == folded
    assert unicodedata.is_normalized("NFKC", folded)
    assert folded == " ".join(folded.split())


@MANY
@given(text=ANY_TEXT, other=ANY_TEXT, form=st.sampled_from(["NFC", "NFD"]))
def test_hashes_are_equal_if_folds_are(text, other, form):
    """Sixteen bytes for the folded text."""
    same = " \n" + unicodedata.normalize(form, text) + "\t"
    assert fold_hash(same) == fold_hash(text)
    assert (fold_hash(text) == fold_hash(other)) == (fold(text) == fold(other))
    assert len(fold_hash(text)) == 16


def test_folding_hostile_marks_is_fast():
    """Forty thousand combining marks in a row."""
    text = "a" + "\u0301\u0316" * 20_000
    began = time.thread_time()
    fold(text)
    assert time.thread_time() - began < 0.5


# --- decay


@MANY
@given(half_life=HALVES)
def test_decay_halves_at_the_half_life(half_life):
    """New counts 1, one half-life 1/2, two half-lives 1/4."""
    assert [decay(age * half_life, half_life) for age in (0, 1, 2)] == [1.0, 0.5, 0.25]


@MANY
@given(ages=st.tuples(AGES, AGES), halves=st.tuples(HALVES, HALVES))
def test_decay_is_monotone(ages, halves):
    """Older never counts more, a longer half-life never less, and the factor stays within 0 and 1."""
    young, old = sorted(ages)
    short, long = sorted(halves)
    assert 0 <= decay(old, short) <= decay(young, short) <= decay(young, long) <= 1


@MANY
@given(age=AGES, half_life=HALVES)
def test_future_counts_as_now(age, half_life):
    """A date ahead of the clock counts like a new one."""
    assert decay(-age, half_life) == 1.0


@MANY
@given(age=AGES)
def test_permanent_never_decays(age):
    """A permanent record counts 1 at any age."""
    assert decay(age, HALF_LIVES["permanent"]) == 1.0


@pytest.mark.parametrize("half_life", [0, -1.0, -math.inf, math.nan])
def test_invalid_half_life_is_refused(half_life):
    """Not above 0, or NaN."""
    with pytest.raises(ValueError, match="half-life must be more than 0"):
        decay(DAY, half_life)


def test_decay_classes_are_ordered():
    """From permanent to checkpoint, a week-old record counts less and less."""
    factors = [decay(7 * DAY, HALF_LIVES[name]) for name in ("permanent", "stable", "active", "session", "checkpoint")]
    assert factors == sorted(set(factors), reverse=True)
    assert factors[0] == 1.0


# --- how importance moves a score


@pytest.mark.parametrize(("importance", "factor"), [(0.0, 0.8), (0.5, 1.0), (1.0, 1.2), (0.75, 1.1)])
def test_importance_factor_is_centred_on_one(importance, factor):
    """The middle changes nothing; the ends subtract or add the weight."""
    assert importance_factor(importance, 0.2) == pytest.approx(factor)
    assert importance_factor(importance, 0.0) == 1.0


# --- MMR


def pool(code: bytes) -> tuple[list[float], list[list[float]]]:
    """Relevances and similarities on a coarse grid, so that there are many ties, three bytes a candidate."""
    grid = [byte % 9 - 4 for byte in code]
    plane = list(zip(grid[1::3], grid[2::3], strict=False))
    return [value / 4 for value in grid[::3][: len(plane)]], [
        [(a * c + b * d) / 32 for c, d in plane] for a, b in plane
    ]


POOLS = st.one_of(st.binary(min_size=12, max_size=27), st.binary(max_size=27)).map(pool)
BALANCES = st.one_of(st.sampled_from([0.0, 0.5, 0.7, 1.0]), st.floats(0, 1))


def naive(relevance, similarity, balance, picks):
    """MMR as the paper writes it: every pick compares everything left with everything chosen."""
    chosen: list[int] = []
    while len(chosen) < min(picks, len(relevance)):
        left = [i for i in range(len(relevance)) if i not in chosen]

        def gain(i):
            nearest = max((similarity[j][i] for j in chosen), default=0.0)
            return balance * relevance[i] - (1 - balance) * nearest if chosen else relevance[i]

        chosen.append(max(left, key=lambda i: (gain(i), relevance[i], -i)))
    return chosen


@pytest.mark.ci
@MANY
@given(pool=POOLS, balance=BALANCES, picks=st.integers(0, 12))
def test_mmr_equals_a_naive_reference(pool, balance, picks):
    """Ties go to the more relevant, then to the earlier."""
    relevance, similarity = pool
    assert mmr(relevance, similarity.__getitem__, balance=balance, picks=picks) == naive(
        relevance, similarity, balance, picks
    )


@MANY
@given(pool=POOLS, balance=BALANCES, picks=st.integers(0, 12))
def test_mmr_picks_nothing_twice_and_begins_with_the_most_relevant(pool, balance, picks):
    """As many different positions as requested and available."""
    relevance, similarity = pool
    chosen = mmr(relevance, similarity.__getitem__, balance=balance, picks=picks)
    assert len(chosen) == len(set(chosen)) == min(picks, len(relevance))
    assert not chosen or relevance[chosen[0]] == max(relevance)


@MANY
@given(pool=POOLS, picks=st.integers(0, 12))
def test_mmr_with_balance_one_is_the_order_by_relevance(pool, picks):
    """It does not even compute similarities."""
    relevance, _ = pool
    by_relevance = sorted(range(len(relevance)), key=lambda i: -relevance[i])
    assert mmr(relevance, lambda i: pytest.fail("asked"), balance=1, picks=picks) == by_relevance[:picks]


@pytest.mark.ci
@MANY
@given(pool=POOLS, balance=BALANCES, picks=st.integers(0, 9), more=st.integers(0, 9))
def test_fewer_picks_are_a_prefix_of_more(pool, balance, picks, more):
    """Asking for more never changes what came before."""
    relevance, similarity = pool
    few = mmr(relevance, similarity.__getitem__, balance=balance, picks=picks)
    many = mmr(relevance, similarity.__getitem__, balance=balance, picks=picks + more)
    assert many[: len(few)] == few


def test_mmr_postpones_a_near_copy():
    """Until something different has been picked."""
    similarity = [[1.0, 0.99, 0.0], [0.99, 1.0, 0.0], [0.0, 0.0, 1.0]]
    assert mmr([1.0, 0.9, 0.5], similarity.__getitem__, balance=0.5, picks=3) == [0, 2, 1]


@pytest.mark.parametrize("balance", [-0.1, 1.1, math.nan])
def test_invalid_balance_is_refused(balance):
    """It is between 0 and 1."""
    with pytest.raises(ValueError, match="balance lies between 0 and 1"):
        mmr([1.0], lambda i: [1.0], balance=balance, picks=1)


def test_mmr_on_five_thousand_candidates_is_fast():
    """Ten picks of 384 dimensions use at most ten rows, and take well under a second."""
    random = np.random.default_rng(7)
    vectors = random.standard_normal((5000, 384), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    asked: list[int] = []

    def similarity(i):
        asked.append(i)
        return vectors @ vectors[i]

    began = time.thread_time()
    chosen = mmr(random.random(5000).tolist(), similarity, balance=0.7, picks=10)
    took = time.thread_time() - began
    assert len(set(chosen)) == 10
    assert len(asked) <= 10
    assert took < 1.0
