from __future__ import annotations

import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.evaluation.overlap import FusionSetup, Overlap, advice, compare, overlaps, rbo, same_documents
from recollect.fusion import fuse
from recollect.types import Record

RANKING = st.lists(st.sampled_from("abcdefghijklmnop"), unique=True, max_size=12)


def exact_rbo(first: list[str], second: list[str], p: Fraction) -> Fraction:
    """Equation 32 of Webber, Moffat and Zobel (2010), term by term, in fractions."""
    short, long = sorted((first, second), key=len)
    s, l = len(short), len(long)  # noqa: E741  (the paper's letters)
    x = [Fraction(len(set(short[:d]) & set(long[:d]))) for d in range(l + 1)]
    seen = sum(x[d] / d * p**d for d in range(1, l + 1))
    unseen = sum(x[s] * (d - s) / (s * d) * p**d for d in range(s + 1, l + 1))
    return (1 - p) / p * (seen + unseen) + ((x[l] - x[s]) / l + x[s] / s) * p**l


def numbers(one: Overlap) -> tuple[float, ...]:
    return (one.both, one.only_a, one.only_b, one.share, one.rbo)


@given(RANKING, RANKING)
def test_overlap_is_symmetric(first, second):
    """The order of the sources changes only which is `a`."""
    there, back = compare("a", "b", first, second), compare("b", "a", second, first)
    assert (there.both, there.only_a, there.only_b, there.share) == (back.both, back.only_b, back.only_a, back.share)
    assert there.rbo == pytest.approx(back.rbo, abs=1e-12)


@given(RANKING.filter(bool))
def test_list_overlaps_itself_completely(ranking):
    """All is shared, and RBO is 1."""
    assert numbers(compare("a", "b", ranking, ranking)) == pytest.approx((len(ranking), 0, 0, 1.0, 1.0))


@given(RANKING, RANKING)
def test_disjoint_lists_share_nothing(first, second):
    """RBO is 0."""
    apart = [name.upper() for name in second]
    assert numbers(compare("a", "b", first, apart)) == (0, len(first), len(second), 0.0, 0.0)


@given(RANKING, RANKING, st.randoms(use_true_random=False))
def test_order_changes_only_rbo(first, second, rng):
    """Shuffling a list keeps every count; renaming all documents keeps RBO too."""
    shuffled = rng.sample(first, len(first))
    assert numbers(compare("a", "b", shuffled, second))[:4] == numbers(compare("a", "b", first, second))[:4]
    renamed = dict(zip("abcdefghijklmnop", rng.sample(range(100), 16), strict=True))
    same = compare("a", "b", [f"{renamed[key]}" for key in first], [f"{renamed[key]}" for key in second])
    assert numbers(same) == numbers(compare("a", "b", first, second))


@given(RANKING, RANKING)
def test_values_are_between_0_and_1(first, second):
    """Share and RBO; the counts add up to the lists."""
    one = compare("a", "b", first, second)
    assert 0 <= one.share <= 1
    assert 0 <= one.rbo <= 1
    assert (one.both + one.only_a, one.both + one.only_b) == (len(first), len(second))


@given(RANKING.filter(bool), RANKING.filter(bool), st.sampled_from([0.5, 0.9, 0.98]))
def test_rbo_equals_the_papers_equation(first, second, p):
    """For lists of any two lengths, in fractions."""
    assert rbo(first, second, p) == pytest.approx(float(exact_rbo(first, second, Fraction(p))), abs=1e-12)


def test_rbo_equals_published_values():
    """0.828 is the example of b4ny4n/rankmeasures; a swap at the top costs more than one at the bottom."""
    assert rbo(list("12345"), list("23415"), 0.9) == pytest.approx(0.828, abs=1e-9)
    assert rbo(list("abcdef"), list("bacdef")) < rbo(list("abcdef"), list("abcdfe")) < 1


def test_many_questions_are_averaged():
    """Over the questions in which one of the two found something; depth is the longest list."""
    questions = [
        {"a": ["x", "y"], "b": ["x", "y"]},
        {"a": ["x"], "b": ["z", "w", "v"]},
        {"a": [], "b": []},
        {"a": ["x"]},
    ]
    (one,) = overlaps(questions)
    assert (one.queries, one.depth) == (2, 3)
    assert numbers(one) == pytest.approx((1.0, 0.5, 1.5, 0.5, 0.5))
    assert overlaps([{"a": [], "b": []}]) == [Overlap("a", "b", 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0)]
    assert [(pair.a, pair.b) for pair in overlaps([{"x": [], "y": [], "z": []}])] == [
        ("x", "y"),
        ("x", "z"),
        ("y", "z"),
    ]


def test_same_text_is_the_same_document():
    """Two ids with one text are one document, as in fusion; so are two texts of one id."""
    found = {
        "a": [Record("1", "Tea with Ada."), Record("2", "Milk")],
        "b": [Record("3", "tea  with ADA."), Record("2", "Milk, as another system shows it"), Record("4", "Bread")],
    }
    assert same_documents(found) == {"a": ["1", "2"], "b": ["1", "2", "4"]}


def test_both_first_condition_agrees_with_fusion():
    """For 300 settings of weights, k and depths, in the worst case."""
    rng, seen = random.Random(4), set()
    for _ in range(300):
        weights = {"a": rng.choice([0.25, 0.5, 1.0, 2.0]), "b": rng.choice([0.25, 0.5, 1.0, 2.0])}
        k, depths = rng.choice([0, 1, 2, 5, 10]), {"a": rng.randint(1, 15), "b": rng.randint(1, 15)}
        first = []
        for lead in "ab":
            # The worst that can be: the shared document is last in both lists, another is first in one of them alone.
            lists = {name: [f"{name}{place}" for place in range(depths[name] - 1)] + ["shared"] for name in "ab"}
            if depths[lead] > 1:
                fused = {one.id: one.fused for one in fuse(lists, k=k, weights=weights)}
                first.append(fused["shared"] > fused[f"{lead}0"] * (1 + 1e-12))
            else:
                first.append(sum(weights[name] / (k + depths[name]) for name in "ab") > weights[lead] / (k + 1))
        said = FusionSetup("rrf", k, weights, depths).both_first("a", "b")
        assert said == all(first), (weights, k, depths)
        seen.add(said)
    assert seen == {True, False}


@pytest.mark.parametrize(("depth", "holds"), [(1, True), (20, True), (61, True), (62, False), (100, False)])
def test_two_equal_lists_up_to_k_plus_1(depth, holds):
    """The documented rule: fetch_k ≤ k + 1. One deeper is a tie, which the better single rank wins."""
    fusing = FusionSetup("rrf", 60.0, {"a": 1.0, "b": 1.0}, {"a": depth, "b": depth})
    assert fusing.both_first("a", "b") is holds
    assert not FusionSetup("rrf", 60.0, {"a": 1.0, "b": 0.0}, fusing.depths).both_first("a", "b")


def test_third_list_of_more_weight_counts_too():
    """A document in two light sources need not precede the first of a heavy one."""
    depths = {"a": 5, "b": 5, "c": 5}
    assert FusionSetup("rrf", 60.0, {"a": 1.0, "b": 1.0, "c": 1.0}, depths).both_first("a", "b")
    assert not FusionSetup("rrf", 60.0, {"a": 1.0, "b": 1.0, "c": 3.0}, depths).both_first("a", "b")


def words(share: float, *, depth: int = 20, fetch_k: int = 20, k: float = 60.0, method: str = "rrf", **weights: float):
    both = share * depth
    one = Overlap("a", "b", 1, depth, both, depth - both, depth - both, share, share)
    weights = {"a": 1.0, "b": 1.0} | weights
    return advice(one, FusionSetup(method, k, weights, dict.fromkeys(weights, fetch_k)))


def test_advice_for_small_overlap():
    """Four per cent of the top 20, with fetch_k 20: the documented sentence."""
    assert words(0.04) == [
        "your two sources share 4 % of their top 20, and with fetch_k 20 ≤ k + 1 = 61 whatever both find comes first",
        "they have next to nothing in common, so that RRF does little more than interleave them",
    ]


def test_advice_fits_the_situation():
    """Depth beyond k + 1, short lists, weights, other methods and a third source each have their text."""
    (deep,) = words(0.3, depth=100, fetch_k=100)
    assert deep.startswith("your two sources share 30 % of their top 100; with fetch_k 100 > k + 1 = 61 what one alone")
    assert deep.endswith("puts first can come before what both find far down")
    assert words(0.3, depth=34, fetch_k=100)[0].endswith(
        "; these lists are short enough, at k 60, that whatever both find comes first"
    )
    assert words(0.3, b=0.5)[0].endswith("fetch_k 20, k 60 and the weights a 1, b 0.5 whatever both find comes first")
    assert "can come before" in words(0.3, b=0.1)[0]
    assert words(0.3, b=0.0)[1:] == ["b has weight 0 and takes no part in fusing"]
    assert words(0.3, method="weighted")[0].endswith("k + 1 = 61 whatever both find under rrf comes first")
    assert words(0.01, method="weighted")[1].endswith("fusing does little more than join them")
    assert words(0.3, c=1.0)[0].startswith("a and b share 30 %")
    assert words(0.3, c=1.0)[0].endswith("whatever both find comes before what one finds alone")


@pytest.mark.parametrize("share", [0.71, 0.9, 1.0])
def test_much_overlap_gains_little(share):
    """Above 70 %, not at 70 %."""
    assert words(share)[-1] == "more than 70 % is the same, so that fusing them gains little"
    assert len(words(0.7)) == 1


def test_source_without_hits_is_named():
    """Nothing is concluded from an empty list."""
    fusing = FusionSetup("rrf", 60.0, {"a": 1.0, "b": 1.0}, {"a": 20, "b": 20})
    assert advice(compare("a", "b", [], ["x"]), fusing) == ["a found nothing"]
    assert advice(compare("a", "b", [], []), fusing) == ["a found nothing", "b found nothing"]


def test_rrf_interleaves_disjoint_lists():
    """Of equal weight."""
    fused = [one.id for one in fuse({"a": list("abc"), "b": list("xyz")})]
    assert fused == list("axbycz")
