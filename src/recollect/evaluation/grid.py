"""Settings worth trying: which of them a fusion method reads, the curves of a sweep, the candidates of tuning."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from recollect.config import SearchSettings
from recollect.fusion import METHODS, NORMALISATIONS

Options: TypeAlias = Mapping[str, Any]
"""Some settings of `[search]`, by name."""

FETCH_KS = (50, 100, 200)
RRF_KS = (5.0, 20.0, 60.0)
SHARES = (0.3, 0.5, 0.7)
"""The vector source's part of the weights; the keyword source has the rest."""

HALF_LIVES_DAYS = (30.0, 180.0)
LAMBDAS = (0.9, 0.7)

TUNED = (
    "fusion", "rrf_k", "normalisation", "text_weight", "vector_weight", "fetch_k", "decay", "half_life_days", "mmr",
    "mmr_lambda",
)  # fmt: skip
"""What tuning may set."""


def curves(
    fusions: Sequence[str],
    *,
    ks: Sequence[float] = (),
    normalisations: Sequence[str] = (),
    shares: Sequence[float] = (),
) -> list[Options]:
    """Every fusion method with each value of what it reads; what is left empty stays as the settings have it."""
    values: dict[str, Sequence[Any]] = {"rrf_k": ks, "normalisation": normalisations}
    found: list[Options] = []
    for fusion in fusions:
        names = [name for name in _reads(fusion) if values[name]]
        for picked in itertools.product(*(values[name] for name in names)):
            read = {"fusion": fusion, **dict(zip(names, picked, strict=True))}
            found += [{**read, **weights(share)} for share in shares] or [read]
    return found


def _reads(fusion: str) -> tuple[str, ...]:
    """The settings that a fusion method reads beside the weights; none of a name that is not known."""
    return METHODS[fusion].reads if fusion in METHODS else ()


def weights(share: float) -> dict[str, float]:
    """The two weights of which the vector source's is this part; equal ones are the default's 1 and 1."""
    equal = share == 0.5  # noqa: PLR2004
    return {"text_weight": 1.0 if equal else round(1 - share, 6), "vector_weight": 1.0 if equal else share}


def candidates() -> list[Options]:
    """What tuning tries before it looks at decay and diversity."""
    scored = curves(["weighted"], normalisations=tuple(NORMALISATIONS), shares=SHARES)
    scored += curves(["combmnz"], normalisations=["minmax"], shares=SHARES)
    ranked = curves(["rrf"], ks=RRF_KS, shares=SHARES)
    others = curves([name for name in METHODS if not _reads(name)], shares=SHARES)
    return [{**curve, "fetch_k": fetch_k} for curve in (*ranked, *scored, *others) for fetch_k in FETCH_KS]


def refinements(chosen: Options) -> list[Options]:
    """The chosen settings with every way to let age and likeness count."""
    ages: list[Options] = [{}, {"decay": False}]
    ages += [{"decay": True, "half_life_days": days} for days in HALF_LIVES_DAYS]
    likeness: list[Options] = [{}, {"mmr": False}, *({"mmr": True, "mmr_lambda": balance} for balance in LAMBDAS)]
    return [{**chosen, **age, **like} for age in ages for like in likeness]


def completed(options: Options, search: SearchSettings) -> dict[str, Any]:
    """All that tuning may set, with what the options leave out as the settings have it."""
    return {name: options.get(name, getattr(search, name)) for name in TUNED}


def changes(options: Options, default: Options) -> dict[str, Any]:
    """What a candidate changes, and counts for something: equal weights are equal whatever their size."""
    return dict(_changes(options, default))


def _changes(options: Options, default: Options) -> Iterator[tuple[str, Any]]:
    for name in options:
        if name in ("text_weight", "vector_weight") and _share(options) == _share(default):
            continue
        if name == "mmr_lambda" and not options.get("mmr"):
            continue
        if options[name] != default.get(name):
            yield name, options[name]


def _share(options: Options) -> float:
    text, vector = options.get("text_weight", 1.0), options.get("vector_weight", 1.0)
    return round(vector / (text + vector), 6) if text + vector else 0.5


def label(options: Options) -> str:
    """Settings as a person reads them: `rrf k=60`, `weighted minmax .3/.7`."""
    words = [str(options["fusion"])] if "fusion" in options else []
    words += [f"k={options['rrf_k']:g}"] if "rrf_k" in options else []
    words += [str(options["normalisation"])] if "normalisation" in options else []
    if "vector_weight" in options:
        words.append(f"{options.get('text_weight', 1.0):g}/{options['vector_weight']:g}")
    return " ".join(words)
