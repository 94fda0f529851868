from __future__ import annotations

import itertools
import random

import pytest

from recollect.evaluation.scoring import PERMUTATIONS, compare, estimate, noticeable


def pairs(seed, size):
    rng = random.Random(seed)
    before = {f"q{n}": rng.random() for n in range(size)}
    return {key: value + rng.choice((0.0, rng.gauss(-0.05, 0.2))) for key, value in before.items()}, before


def exact(after, before):
    """The share of all ways to swap that do as much as the data."""
    moved = [after[key] - before[key] for key in before if after[key] != before[key]]
    sums = [abs(sum(sign * gain for sign, gain in zip(signs, moved, strict=True)))
            for signs in itertools.product((1, -1), repeat=len(moved))]  # fmt: skip
    return sum(one >= abs(sum(moved)) - 1e-12 for one in sums) / len(sums)


@pytest.mark.parametrize("seed", range(10))
def test_p_value_equals_the_exact_one(seed):
    """Within four of its standard errors."""
    after, before = pairs(seed, 16)
    p = exact(after, before)
    assert compare(after, before).p == pytest.approx(p, abs=4 * (p * (1 - p) / PERMUTATIONS) ** 0.5 + 2 / PERMUTATIONS)


@pytest.mark.parametrize("seed", range(30))
def test_noticeable_difference_equals_significance(seed):
    """A difference is significant exactly if it exceeds `noticeable`."""
    after, before = pairs(seed, 40)
    found, edge = compare(after, before), noticeable(after, before)
    assert found.significant == (edge is not None and abs(found.difference.mean) > edge + 1e-12)


def test_equal_systems_do_not_differ():
    """No wins, no losses, p of 1."""
    values = {"a": 0.1, "b": 0.7}
    found = compare(values, dict(values))
    assert (found.p, found.wins, found.losses, found.ties, found.difference.mean) == (1.0, 0, 0, 2, 0.0)
    assert noticeable(values, values) is None


def test_interval_contains_the_mean_and_narrows_with_more_questions():
    """The same draws give the same interval; no questions give zeros."""
    rng = random.Random(1)
    few, many = ([rng.random() for _ in range(size)] for size in (20, 2000))
    for values in (few, many):
        found = estimate(values)
        assert found.low < found.mean < found.high
        assert found == estimate(values)
    assert estimate(many).high - estimate(many).low < (estimate(few).high - estimate(few).low) / 5
    assert estimate([]).n == 0
