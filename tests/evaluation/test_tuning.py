import itertools
import random

import pytest

from recollect.config import SearchOptions
from recollect.evaluation.results import setting_label
from recollect.evaluation.tuning import (
    INNER,
    OUTER,
    TuningPlan,
    candidates,
    changes,
    choose,
    curves,
    deal,
    default_settings,
    refinements,
    simplest,
    tune,
)
from recollect.fusion import METHODS

DEFAULT = default_settings(SearchOptions())
QUESTIONS = [f"q{number}" for number in range(120)]
GRID = [
    {"fusion": "weighted", "fetch_k": depth, "vector_weight": weight} for depth in (50, 200) for weight in range(15)
]


def refine(chosen):
    return [{**chosen, "mmr": True}, {**chosen, "half_life_days": 30.0}]


PLAN = TuningPlan(DEFAULT, GRID, refine)


def noise(seed, gain=lambda _options: 0.0, spread=0.15):
    """Values that differ between questions much, and between settings by chance, and by what a test plants."""
    easy = random.Random(str(seed))
    bases = {key: easy.random() for key in QUESTIONS}

    def values(options):
        chance = random.Random(f"{seed} {sorted(map(str, options.items()))}")
        moved = {key: base + chance.gauss(0, spread) + gain(options) for key, base in bases.items()}
        return {key: min(1.0, max(0.0, value)) for key, value in moved.items()}

    return values


@pytest.mark.ci
def test_no_signal_keeps_the_default():
    """The best of thirty by chance is not chosen."""
    kept = [tune(noise(seed), PLAN)["keep_default"] for seed in range(40)]
    assert sum(kept) >= 38


@pytest.mark.ci
def test_shuffled_judgments_keep_the_default():
    """A gain of some questions under every setting is none after shuffling."""
    real = noise("real", spread=0.05)

    def shuffled(seed):
        def values(options):
            rows = list(real(options).values())
            random.Random(f"{seed} {sorted(map(str, options.items()))}").shuffle(rows)
            return dict(zip(QUESTIONS, rows, strict=True))

        return values

    assert sum(tune(shuffled(seed), PLAN)["keep_default"] for seed in range(40)) >= 38


def test_planted_gain_is_found():
    """A better setting is chosen by nearly every fold, and its gain is measured correctly."""
    best = {"fusion": "weighted", "fetch_k": 200, "vector_weight": 7}

    def gain(options):
        return 0.15 if all(options[name] == value for name, value in best.items()) else 0.0

    found = tune(noise("planted", gain), PLAN)
    assert not found["keep_default"]
    assert found["chosen"] == best
    assert found["stability"][0]["settings"] == best
    assert found["stability"][0]["folds"] >= OUTER - 1
    assert 0.05 < found["gain"]["mean"] < 0.2
    assert found["held_out"]["n"] == len(QUESTIONS)


def test_gain_of_a_refinement_is_found():
    found = tune(noise("aged", lambda options: 0.2 if options["half_life_days"] else 0.0), PLAN)
    assert not found["keep_default"]
    assert found["chosen"]["half_life_days"] == 30.0


def test_worse_setting_is_not_chosen():
    found = tune(noise("worse", lambda options: -0.3 * (options["fusion"] == "weighted"), spread=0), PLAN)
    assert found["keep_default"]
    assert found["chosen"] == {}
    assert found["gain"]["mean"] == 0
    assert found["p"] == 1


@pytest.mark.parametrize("held_out", range(OUTER))
def test_held_out_judgments_do_not_affect_the_choice(held_out):
    """Whatever the judgments of a fold are, its settings stay the same."""
    fold = deal(QUESTIONS, OUTER, "outer")[held_out]
    true = noise("leak", lambda options: 0.1 * (options["vector_weight"] == 3))

    def changed(options):
        bribe = float(options["vector_weight"] == 11)
        return {key: bribe if key in fold else value for key, value in true(options).items()}

    before, after = tune(true, PLAN), tune(changed, PLAN)
    assert before["folds"][held_out]["chosen"] == after["folds"][held_out]["chosen"]
    others = [place for place in range(OUTER) if place != held_out]
    assert any(before["folds"][place]["chosen"] != after["folds"][place]["chosen"] for place in others), (
        "the bribe was too small"
    )


def test_choice_uses_only_its_own_questions():
    """A question outside of them is not even looked at."""

    def values(options):
        return {key: value for key, value in noise("few")(options).items() if key in seen}

    seen = set(QUESTIONS[:60])
    assert choose(values, PLAN, QUESTIONS[:60]) == choose(noise("few"), PLAN, QUESTIONS[:60])


def test_each_setting_is_tried_once():
    asked = []

    def values(options):
        asked.append(tuple(sorted(map(str, options.items()))))
        return noise("once")(options)

    found = tune(values, PLAN)
    assert len(asked) == len(set(asked)) == found["tried"]


def test_folds_are_equal_disjoint_and_complete():
    folds = deal(QUESTIONS, OUTER, "outer")
    assert sorted(itertools.chain.from_iterable(folds)) == sorted(QUESTIONS)
    assert {len(fold) for fold in folds} == {24}
    assert folds == deal(QUESTIONS[::-1], OUTER, "outer")
    assert set(folds) != set(deal(QUESTIONS, OUTER, "inner"))


def test_simplest_within_one_standard_error_is_chosen():
    rivals = [{"fetch_k": 100}, {"fetch_k": 200}, {"fetch_k": 200, "mmr": True}]
    unsure = [[0.5, 0.5, 0.5, 0.5], [0.6, 0.4, 0.6, 0.42], [0.7, 0.3, 0.7, 0.34]]
    assert simplest(rivals, {"fetch_k": 100}, unsure) == rivals[0]
    sure = [[0.5, 0.5, 0.5, 0.5], [0.6, 0.61, 0.6, 0.61], [0.605, 0.606, 0.604, 0.609]]
    assert simplest(rivals, {"fetch_k": 100}, sure) == rivals[1]
    assert len(sure[0]) == INNER


def test_grid_is_small_and_varies_only_relevant_options():
    grid = candidates()
    refined = refinements(grid[0])
    assert len(grid) + 6 * len(refined) <= 200
    assert {options["fusion"] for options in grid} == set(METHODS)
    assert all(("rrf_k" in options) == (options["fusion"] == "rrf") for options in grid)
    assert all(("normalisation" in options) == (options["fusion"] in ("weighted", "combmnz")) for options in grid)
    assert len({tuple(sorted(options.items())) for options in grid}) == len(grid)


def test_default_is_among_the_tried_settings():
    """Equal weights are equal whatever their size."""
    none = [options for options in candidates() if not changes({**DEFAULT, **options}, DEFAULT)]
    assert len(none) == 1
    assert changes({**DEFAULT, "text_weight": 0.5, "vector_weight": 0.5}, DEFAULT) == {}
    assert changes({**DEFAULT, "mmr_lambda": 0.9}, DEFAULT) == {}


def test_curve_has_only_options_of_its_method():
    found = curves(["rrf", "weighted", "borda"], ks=[1, 60], normalisations=["minmax"], shares=[0.7])
    assert [setting_label(options) for options in found] == [
        "rrf k=1 0.3/0.7", "rrf k=60 0.3/0.7", "weighted minmax 0.3/0.7", "borda 0.3/0.7",
    ]  # fmt: skip
    assert curves(["rrf", "weighted"]) == [{"fusion": "rrf"}, {"fusion": "weighted"}]
