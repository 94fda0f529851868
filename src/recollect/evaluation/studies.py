"""Studies of questions that were asked, as the JSON that `recollect eval` prints and the server answers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from recollect.config import SearchSettings, override
from recollect.errors import SearchFailed
from recollect.evaluation.finding import Finding, answering, findings, pooled
from recollect.evaluation.grid import Options, curves
from recollect.evaluation.judged import Judged, Part
from recollect.evaluation.sweep import Prefix, certify, sweep
from recollect.types import Progress

DEPTHS = (5, 10, 20, 50, 100, 200)
KS = (1.0, 10.0, 60.0, 100.0)
"""What is swept where nothing is said: how deep sources are read, and RRF's constant."""

CERTIFIED = 20
"""Questions that are searched for live, to see that a short answer begins a long one."""


def curves_of(
    search: SearchSettings,
    *,
    fusions: Sequence[str] = (),
    ks: Sequence[float] = KS,
    normalisations: Sequence[str] = (),
    shares: Sequence[float] = (),
) -> list[Options]:
    """The settings that are swept at every depth, of the user's method, rrf and weighted where none is named.

    Names that nothing has are refused.
    """
    methods = tuple(fusions) or tuple(dict.fromkeys((search.fusion, "rrf", "weighted")))
    found = curves(methods, ks=ks, normalisations=normalisations, shares=shares)
    for curve in found:
        override(search, curve)
    return found


def swept(
    judged: Judged, lines: Sequence[Options], depths: Sequence[int], *, progress: Progress | None = None
) -> dict[str, Any]:
    """A sweep of these settings, with the certificate that a short answer begins a long one."""
    found = sweep(judged, lines, depths, progress=progress)
    prefix = Prefix.joined([_certified(part, lines, len(judged.parts)) for part in judged.parts])
    return {"data": judged.as_dict(), "measure": judged.measure, **found.as_dict(), "prefix": prefix.as_dict()}


def shared(judged: Judged, depth: int) -> dict[str, Any]:
    """What each pair of sources finds, over the whole set and over each of its corpora."""
    found = [(part.dataset.name, _pairs(part, depth)) for part in judged.parts]
    by_pair: dict[tuple[str, str], list[Finding]] = {}
    for one in itertools.chain.from_iterable(pairs for _, pairs in found):
        by_pair.setdefault((one.a, one.b), []).append(one)
    whole = [{"set": judged.name, **pooled(several).as_dict()} for several in by_pair.values()]
    parts = [
        {"set": f"{judged.name}/{name}", **one.as_dict()} for name, pairs in found for one in pairs if len(found) > 1
    ]
    return {"data": judged.as_dict(), "depth": depth, "pairs": whole, "corpora": parts}


def together(several: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What was found of several sets, one after the other."""
    if len(several) == 1:
        return dict(several[0])
    sets = [one["data"] for one in several]
    name, questions = ", ".join(one["name"] for one in sets), sum(one["questions"] for one in sets)
    data = {"name": name, "questions": questions, "sets": sets}
    pairs, corpora = ([row for one in several for row in one[part]] for part in ("pairs", "corpora"))
    return {"data": data, "depth": several[0]["depth"], "pairs": pairs, "corpora": corpora}


def _pairs(part: Part, depth: int) -> list[Finding]:
    if len(names := answering(part.recording)) < 2:  # noqa: PLR2004
        message = f"only {' '.join(names) or 'no source'} answered, and overlap compares two sources"
        raise SearchFailed(message, hint="is an embedder set? `recollect status`")
    return findings(part.recording, part.dataset.qrels, depth=depth)


def _certified(part: Part, lines: Sequence[Options], parts: int) -> Prefix:
    """The certificate on a few questions of a corpus, fewer where there are more corpora."""
    texts = list(part.recording.texts.values())
    return certify(part.recording.memory, texts[:: max(1, -(-len(texts) * parts // CERTIFIED))], lines)
