from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import MANY

from recollect.fusion import METHODS, NORMALISATIONS, Fused, Hit, RankedList, calculate_rrf_score, fuse

CASES = [
    *itertools.product(("rrf", "borda"), ("none",)),
    *itertools.product(("weighted", "combmnz"), NORMALISATIONS),
]
IDS = [f"d{number}" for number in range(6)]
CODES = st.one_of(st.binary(min_size=9, max_size=13), st.binary(max_size=13))
THREE = st.integers(0, 3)


def ranked_list(code: bytes, source: str = "only", *, lowest: float = -1.0) -> RankedList:
    """One source's list: weight and kind from the first byte, ids and falling scores, no two alike, from the others.

    Hypothesis draws a string of bytes ten times as fast as it draws lists of pairs, and shrinks it as well.
    """
    kind = code[0] if code else 0
    by_score = dict(zip(code[2::2], code[1::2], strict=False))
    by_id = {IDS[which % len(IDS)]: score for score, which in sorted(by_score.items())}
    bounded = kind >= 128
    scale = (lambda score: lowest + score * (1 - lowest) / 255) if bounded else (lambda score: score / 5)
    entries = [Hit(key, scale(score)) for key, score in sorted(by_id.items(), key=lambda pair: -pair[1])]
    return RankedList(source, entries, (1 + kind % 128) / 13, bounded)


def named(codes: list[bytes], **options: float) -> list[RankedList]:
    """A list of each code, under names of their own."""
    return [ranked_list(code, f"s{number}", **options) for number, code in enumerate(codes)]


RANKED_LIST = CODES.map(ranked_list)
RANKED_LISTS = st.lists(CODES, max_size=3).map(named)


def won_everywhere(codes: list[bytes]) -> list[RankedList]:
    """Lists in each of which `winner` stands above `loser`, or `loser` does not stand at all."""
    # From 0 up: a cosine below 0 is worth less than absence, so that there "above" would not mean "better".
    return [_with_both(one, code) for one, code in zip(named(codes, lowest=0.0), codes, strict=True)]


def _with_both(ranking: RankedList, code: bytes) -> RankedList:
    entries = list(ranking.entries)
    high = sum(code) % (len(entries) + 1)
    most = 1.0 if ranking.bounded else 60.0
    entries.insert(high, Hit("winner", entries[high - 1].score if high else most))
    if len(code) % 2:
        low = high + 1 + sum(code) // 7 % (len(entries) - high)
        entries.insert(low, Hit("loser", entries[low - 1].score))
    return RankedList(ranking.source, entries, ranking.weight, ranking.bounded)


def ids(results: list[Fused]) -> list[str]:
    """The order of a ranking."""
    return [result.id for result in results]


def best_rank(result: Fused) -> int:
    """The best place a document has in any list."""
    return min(share.rank for share in result.shares.values())


def rrf_of(*rankings: list[str]) -> dict[str, float]:
    """The RRF score of each document of some plain rankings, at the default k."""
    return {result.id: result.fused for result in fuse({str(n): ranking for n, ranking in enumerate(rankings)})}


def down_to(rank: int, key: str) -> list[str]:
    """A ranking with `key` at this place."""
    return [*(f"{key}-above-{place}" for place in range(1, rank)), key]


# --- the design's test vectors


@pytest.mark.parametrize(
    ("ranks", "expected"), [((1,), 0.016393), ((1, 1), 0.032787), ((1, 5), 0.031778), ((10, 10), 0.028571)]
)
def test_rrf_gives_the_documented_scores(ranks, expected):
    """The ranks of DESIGN §5.5 give its scores, through the formula and a whole fusion."""
    assert calculate_rrf_score(ranks) == pytest.approx(expected, abs=5e-7)
    assert rrf_of(*(down_to(rank, "x") for rank in ranks))["x"] == pytest.approx(expected, abs=5e-7)


def test_rrf_of_ranks_one_and_two_is_the_plain_sum():
    """Ranks count from 1: ranks 1 and 2 give 1/61 + 1/62, to the last bit."""
    assert calculate_rrf_score([1, 2], k=60) == 1 / 61 + 1 / 62
    assert rrf_of(["x"], ["y", "x"])["x"] == 1 / 61 + 1 / 62


def test_weighted_without_normalisation_is_openclaws_blend():
    """At 0.7 / 0.3 a document scores 0.7 · cosine + 0.3 · s / (1 + s), and an absent one adds 0."""
    vector = RankedList("vector", [Hit("a", 0.8), Hit("b", 0.5)], weight=0.7, bounded=True)
    keyword = RankedList("keyword", [Hit("b", 4.0), Hit("c", 1.0)], weight=0.3)
    results = fuse([keyword, vector], method="weighted", normalisation="none")
    assert ids(results) == ["b", "a", "c"]
    assert [result.fused for result in results] == pytest.approx([0.7 * 0.5 + 0.3 * 0.8, 0.7 * 0.8, 0.3 * 0.5])


def test_borda_counts_the_documents_below():
    """With four documents, ranks 1 to 4 earn 1, 3/4, 1/2 and 1/4."""
    results = fuse({"a": ["p", "q", "r", "s"], "b": ["q"]}, method="borda")
    assert {result.id: result.fused for result in results} == {"q": 1.75, "p": 1.0, "r": 0.5, "s": 0.25}


def test_combmnz_multiplies_by_the_lists_that_hold_a_document():
    """A document in two of two lists counts double, one in a single list once."""
    lists = {"a": [("x", 1.0), ("y", 1.0)], "b": [("x", 1.0)]}
    both, one = fuse(lists, method="combmnz")
    assert (both.id, both.fused, both.score) == ("x", 2 * (0.25 + 0.25), 0.5)
    assert (one.id, one.fused) == ("y", 0.25)


# --- properties of every method


@pytest.mark.ci
@MANY
@given(lists=RANKED_LISTS, order=st.permutations(range(3)))
def test_order_of_the_lists_does_not_matter(lists, order):
    """Permuted lists give the same scores and order, except for ties that only source order decides."""
    permuted = [lists[number] for number in order if number < len(lists)]
    for method, normalisation in CASES:
        one = fuse(lists, method=method, normalisation=normalisation)
        other = fuse(permuted, method=method, normalisation=normalisation)
        assert {r.id: (r.fused, r.score) for r in one} == {r.id: (r.fused, r.score) for r in other}, method
        assert [(r.fused, best_rank(r)) for r in one] == [(r.fused, best_rank(r)) for r in other], method


@MANY
@given(ranking=RANKED_LIST)
def test_single_list_keeps_its_order(ranking):
    """Under every method."""
    for method, normalisation in CASES:
        assert ids(fuse([ranking], method=method, normalisation=normalisation)) == [e.id for e in ranking.entries]


@pytest.mark.ci
@MANY
@given(lists=st.lists(CODES, min_size=1, max_size=3).map(won_everywhere))
def test_better_in_every_list_is_better_after_fusion(lists):
    """A document above another in every list that has the other."""
    for method, normalisation in CASES:
        order = ids(fuse(lists, method=method, normalisation=normalisation))
        assert "loser" not in order or order.index("winner") < order.index("loser"), (method, normalisation)


@pytest.mark.ci
@MANY
@given(lists=RANKED_LISTS, silent=RANKED_LIST, place=THREE)
def test_weight_zero_equals_absence(lists, silent, place):
    """At any position."""
    muted = RankedList("silent", [*silent.entries, Hit("unscored")], 0.0, silent.bounded)
    for method, normalisation in CASES:
        alone = fuse(lists, method=method, normalisation=normalisation)
        beside = fuse([*lists[:place], muted, *lists[place:]], method=method, normalisation=normalisation)
        assert beside == alone, method


@pytest.mark.ci
@MANY
@given(lists=RANKED_LISTS)
def test_score_is_the_sum_of_its_contributions(lists):
    """`fused` is exactly their sum, and the ranking falls by it."""
    for method, normalisation in CASES:
        results = fuse(lists, method=method, normalisation=normalisation)
        sums = [math.fsum(share.contribution for share in result.shares.values()) for result in results]
        assert [result.fused for result in results] == sums == sorted(sums, reverse=True), method


@pytest.mark.ci
@MANY
@given(lists=RANKED_LISTS)
def test_scores_are_between_0_and_1(lists):
    """Under every fusion, rising with `fused`."""
    for method, normalisation in CASES:
        scores = [result.score for result in fuse(lists, method=method, normalisation=normalisation)]
        assert all(0 <= score <= 1 for score in scores), (method, normalisation)
        assert scores == sorted(scores, reverse=True), (method, normalisation)


@pytest.mark.ci
@MANY
@given(lists=st.lists(CODES, min_size=1, max_size=3).map(named))
def test_first_in_every_list_scores_1(lists):
    """Under the methods that use ranks."""
    topped = [RankedList(one.source, [Hit("top", 99.0), *one.entries], one.weight, one.bounded) for one in lists]
    for method in ("rrf", "borda"):
        first = fuse(topped, method=method)[0]
        assert (first.id, first.score) == ("top", pytest.approx(1.0)), method


@pytest.mark.ci
@MANY
@given(lists=RANKED_LISTS, which=st.integers(0, 5), below=st.integers(1, 6))
def test_repeated_document_keeps_its_better_rank(lists, which, below):
    """Later repeats change nothing, and the following documents move up."""
    repeated = []
    for one in lists:
        again = [Hit(entry.id, 0.0) for entry in one.entries[which : which + 1]]
        place = which + below
        entries = [*one.entries[:place], *again, *one.entries[place:], *again]
        repeated.append(RankedList(one.source, entries, one.weight, one.bounded))
    for method, normalisation in CASES:
        assert fuse(repeated, method=method, normalisation=normalisation) == fuse(
            lists, method=method, normalisation=normalisation
        )


@pytest.mark.ci
@MANY
@given(lists=RANKED_LISTS)
def test_absent_document_adds_nothing(lists):
    """A document has contributions of exactly the lists that have it, with rank and score."""
    places = {(entry.id, one.source): (rank, entry.score) for one in lists for rank, entry in enumerate(one.entries, 1)}
    for method, normalisation in CASES:
        results = fuse(lists, method=method, normalisation=normalisation)
        shown = {(r.id, source): (share.rank, share.score) for r in results for source, share in r.shares.items()}
        assert shown == places, method


@pytest.mark.ci
@MANY
@given(lists=RANKED_LISTS, k=st.floats(0, 1000))
def test_rrf_equals_its_formula(lists, k):
    """For any k and weights the score is Σ w / (k + rank)."""
    expected: dict[str, list[float]] = {}
    for one in lists:
        for rank, entry in enumerate(one.entries, 1):
            expected.setdefault(entry.id, []).append(one.weight / (k + rank))
    assert {r.id: r.fused for r in fuse(lists, k=k)} == {key: math.fsum(given) for key, given in expected.items()}


@MANY
@given(left=st.binary(max_size=13), right=st.binary(max_size=13), k=st.integers(0, 12))
def test_in_both_lists_comes_before_in_one(left, right, k):
    """Two equal lists no deeper than k + 1, with rrf."""
    left, right = (list(dict.fromkeys(f"d{byte % 16}" for byte in code))[: k + 1] for code in (left, right))
    found = [len(result.shares) for result in fuse({"left": left, "right": right}, k=k)]
    assert found == sorted(found, reverse=True)


def test_fusing_does_not_depend_on_the_hash_seed():
    """Two processes with different string hashes print the same ranking, ties and all."""
    program = (
        "from recollect.fusion import fuse\n"
        "lists = {f's{n}': [(f'd{(n * 7 + i * 3) % 11}', 9.0 - i) for i in range(9)] for n in range(4)}\n"
        "for method in ('rrf', 'weighted', 'combmnz', 'borda'): print(fuse(lists, method=method))\n"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(printed) == 1
    assert printed != {b""}


# --- ties


def test_ties_score_comes_first():
    """The higher score wins over a better rank, an earlier source and a later date."""
    lists = [
        RankedList("a", [Hit("aa"), Hit("zz")]),
        RankedList("b", [Hit("filler"), Hit("zz")]),
    ]
    assert ids(fuse(lists)) == ["zz", "aa", "filler"]


def test_ties_then_the_best_rank():
    """Of equal scores, the better best rank wins over date and id."""
    new, old = Hit("aa"), Hit("zz")
    lists = [
        RankedList("a", [old, new, Hit("p"), Hit("q")]),
        RankedList("b", [Hit("q"), new, old, Hit("p")]),
    ]
    first, second = fuse(lists, method="borda")[:2]
    assert first.fused == second.fused
    assert (first.id, second.id) == ("zz", "aa")


def test_ties_then_source_order():
    """Of equal scores and ranks, the earlier source wins over the id."""
    keyword = RankedList("keyword", [Hit("zz")])
    vector = RankedList("vector", [Hit("aa")])
    assert ids(fuse([keyword, vector])) == ["zz", "aa"]
    assert ids(fuse([vector, keyword])) == ["aa", "zz"]


# --- traps


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
@pytest.mark.parametrize("method", ["weighted", "combmnz"])
def test_negative_fts5_scores_keep_their_order(method, normalisation):
    """FTS5's best match is the most negative."""
    lists = {"fts5": [("best", -9.5), ("middle", -4.0), ("worst", -0.5)]}
    assert ids(fuse(lists, method=method, normalisation=normalisation)) == ["best", "middle", "worst"]


def test_negative_fts5_scores_blend_like_positive_ones():
    """Under `none` a BM25 score of -4 counts as 4."""
    negative, positive = (fuse({"k": [("x", sign * 4.0)]}, method="weighted")[0].fused for sign in (-1, 1))
    assert negative == positive == pytest.approx(0.8)


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
@pytest.mark.parametrize("scores", [(2.0, -0.5, -3.0), (-0.1, -2.0, -5.0)])
def test_descending_scores_below_zero_keep_their_order(scores, normalisation):
    """Logits of a cross-encoder and Okapi BM25."""
    lists = {"logits": list(zip(("best", "middle", "worst"), scores, strict=True))}
    assert ids(fuse(lists, method="weighted", normalisation=normalisation)) == ["best", "middle", "worst"]


@pytest.mark.parametrize(("method", "normalisation"), CASES)
def test_equal_scores_do_not_divide_by_zero(method, normalisation):
    """The order stays and every contribution is above zero."""
    for score in (0.1, 7.0):
        results = fuse({"a": [(key, score) for key in "xyz"]}, method=method, normalisation=normalisation)
        assert ids(results) == ["x", "y", "z"]
        assert all(0 < result.score <= 1 for result in results)


def test_equal_scores_under_each_normalisation():
    """All best under minmax, and the middle under zscore and dbsf."""
    given_ = {name: normalise([3.3] * 3, False) for name, normalise in NORMALISATIONS.items() if name != "none"}
    assert given_ == {"minmax": [1.0] * 3, "zscore": [0.5] * 3, "dbsf": [0.5] * 3}


@pytest.mark.parametrize(
    ("normalisation", "expected"),
    [("minmax", [1.0, 0.5, 0.0]), ("zscore", [0.889664, 0.5, 0.110336]), ("dbsf", [0.704124, 0.5, 0.295876])],
)
def test_normalisations_equal_their_formulas(normalisation, expected):
    """Three scores at equal steps: the outer ones are 1.2247 standard deviations away."""
    assert NORMALISATIONS[normalisation]([8.0, 5.0, 2.0], False) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("normalisation", ["minmax", "zscore", "dbsf"])
def test_normalising_does_not_depend_on_the_unit(normalisation):
    """Much larger scores in the same proportion."""
    scores = [3.0, 2.0, 0.5]
    small = NORMALISATIONS[normalisation]([score * 1e-15 for score in scores], False)
    assert small == pytest.approx(NORMALISATIONS[normalisation](scores, False))


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
def test_finite_scores_of_any_size_fuse(normalisation):
    """To finite scores, in order."""
    results = fuse({"a": [("x", 1e308), ("y", 1.0), ("z", -1e308)]}, method="weighted", normalisation=normalisation)
    assert ids(results) == ["x", "y", "z"]
    assert all(math.isfinite(result.fused) for result in results)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("weight", [1e-300, 1e300])
def test_very_small_and_very_large_weights_fuse(method, weight):
    """Only their proportions matter to `score`."""
    results = fuse({"a": [("x", 1.0)], "b": [("x", 1.0)]}, method=method, weights={"a": weight, "b": weight})
    assert results[0].score == pytest.approx(fuse({"a": [("x", 1.0)], "b": [("x", 1.0)]}, method=method)[0].score)


@pytest.mark.parametrize(("method", "normalisation"), CASES)
def test_empty_list_removes_nothing(method, normalisation):
    """The other list's documents stay in order."""
    lists = {"keyword": [], "vector": [("x", 0.9), ("y", 0.4)]}
    results = fuse(lists, method=method, normalisation=normalisation)
    assert ids(results) == ["x", "y"]
    assert all(set(result.shares) == {"vector"} for result in results)


@pytest.mark.parametrize(("method", "normalisation"), CASES)
def test_empty_lists_give_an_empty_ranking(method, normalisation):
    """Also no lists, and lists of weight 0."""
    for lists in ([], {}, {"a": [], "b": []}, [RankedList("a", [Hit("x", 1.0)], weight=0)]):
        assert fuse(lists, method=method, normalisation=normalisation) == []


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_scores_that_are_not_numbers_are_refused(bad):
    """NaN and infinity; the message names the source and the document."""
    with pytest.raises(ValueError, match=r"'keyword' gave 'x' the score"):
        fuse({"keyword": [("x", bad)]})


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -0.1])
def test_invalid_weights_are_refused(bad):
    """A weight is a number of 0 or more; the message names the source."""
    with pytest.raises(ValueError, match="weight of 'keyword'"):
        fuse({"keyword": ["x"]}, weights={"keyword": bad})
    with pytest.raises(ValueError, match="weight of 'keyword'"):
        RankedList("keyword", [Hit("x")], weight=bad)


@pytest.mark.parametrize("bad", [-1, -0.001, math.nan, math.inf])
def test_invalid_k_is_refused(bad):
    """Below 0 it could divide by 0."""
    with pytest.raises(ValueError, match="k must be"):
        fuse({"a": ["x"]}, k=bad)
    with pytest.raises(ValueError, match="k must be"):
        calculate_rrf_score([1], k=bad)


def test_unknown_names_are_refused():
    """Method or normalisation, with the known ones."""
    with pytest.raises(ValueError, match="unknown fusion method 'rff'; there are blend, rrf, weighted, combmnz, borda"):
        fuse({"a": ["x"]}, method="rff")
    with pytest.raises(ValueError, match="unknown normalisation 'l2'; there are none, minmax, zscore, dbsf"):
        fuse({"a": ["x"]}, normalisation="l2")


def test_repeated_source_name_is_refused():
    """Two lists of one name would overwrite each other's contributions."""
    with pytest.raises(ValueError, match="same source name"):
        fuse([RankedList("a", [Hit("x")]), RankedList("a", [Hit("y")])])


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
@pytest.mark.parametrize("method", ["weighted", "combmnz"])
def test_entries_without_score_need_a_method_by_rank(method, normalisation):
    """The list is named, and the message says what to use."""
    with pytest.raises(ValueError, match=r"'keyword' has entries without a score.*'rrf' or 'borda'"):
        fuse({"vector": [("x", 0.3)], "keyword": [("x", 1.0), "y"]}, method=method, normalisation=normalisation)


def test_weights_must_name_a_list():
    """An unknown source, or weights beside lists with their own, is an error."""
    with pytest.raises(ValueError, match="not there: vektor"):
        fuse({"vector": ["x"]}, weights={"vektor": 2.0})
    with pytest.raises(ValueError, match="carries its own weight"):
        fuse([RankedList("vector", [Hit("x")])], weights={"vector": 2.0})


@pytest.mark.parametrize("item", [7, None, ("x",), ("x", "high"), (1, 2.0)])
def test_invalid_items_are_refused(item):
    """A ranking has ids or (id, score) pairs."""
    with pytest.raises(ValueError, match="ids or"):
        fuse({"a": [item]})
    with pytest.raises(ValueError, match="rankings without a name"):
        fuse([["x"], ["y"]])


def test_explicit_rank_replaces_the_position():
    """Gaps stay, equal ranks earn the same and are ordered by id."""
    lists = [RankedList("a", [Hit("y", rank=2), Hit("x", rank=2), Hit("x", rank=3), Hit("z", rank=7)])]
    assert [(one.id, one.fused) for one in fuse(lists)] == [("x", 1 / 62), ("y", 1 / 62), ("z", 1 / 67)]
    assert [one.shares["a"].rank for one in fuse(lists, method="borda")] == [2, 2, 7]


@pytest.mark.parametrize("ranks", [(0,), (-1, 2), (2, 1), (1, None), (None, 1)])
def test_explicit_ranks_are_whole_and_in_order(ranks):
    """From 1, best first, for every entry or for none."""
    with pytest.raises(ValueError, match="from 1, best first"):
        RankedList("a", [Hit(str(number), rank=rank) for number, rank in enumerate(ranks)])


def test_blend_measures_the_distance_from_the_tail():
    """A list with clear leaders counts more than a flat one, and the first of every list scores 1."""
    sure = RankedList("sure", [Hit("a", 9.0), Hit("b", 2.0), Hit("c", 1.9), Hit("d", 1.8), Hit("e", 1.7)])
    level = RankedList("level", [Hit("b", 5.0), Hit("c", 4.9), Hit("d", 4.8), Hit("e", 4.7), Hit("a", 4.6)])
    results = fuse([sure, level], method="blend")
    assert results[0].id == "a"
    assert fuse([sure], method="blend")[0].score == 1.0
    both = fuse([sure, RankedList("other", [Hit("a", 3.0), Hit("z", 1.0)])], method="blend")
    assert both[0].score == 1.0


def test_blend_counts_what_a_complete_list_omits_as_zero():
    """One hit among a hundred documents stands out; one hit of a truncated list does not."""
    vectors = RankedList("vector", [Hit(f"d{i}", 0.7 - i / 1000) for i in range(100)], bounded=True)
    alone = RankedList("keyword", [Hit("d50", 3.0)], among=100)
    cut = RankedList("keyword", [Hit("d50", 3.0)])
    best = fuse([alone, vectors], method="blend")[0]
    assert (best.id, best.shares["keyword"].contribution) == ("d50", 0.5)
    (same,) = (one for one in fuse([cut, vectors], method="blend") if one.id == "d50")
    assert same.shares["keyword"].contribution == pytest.approx(0.5 / 6)


def test_blend_treats_equal_scores_alike_and_needs_scores():
    """Equal scores make no difference; missing ones are an error with a hint."""
    equal = fuse([RankedList("a", [Hit("x", 1.0), Hit("y", 1.0)])], method="blend")
    assert equal[0].fused == equal[1].fused > 0
    with pytest.raises(ValueError, match="without a score"):
        fuse({"a": ["x", "y"]}, method="blend")
