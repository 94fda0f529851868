"""Search by meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from recollect.analysis import lead
from recollect.errors import EmbedderError, StoreError
from recollect.types import Embedder, Filter, Found, Hit, Query, Reader, Serving

CATCH_UP = 32
"""Records without a vector that a search embeds before it answers: about half a second; more are left, and said."""


READ, READ_CHARACTERS = 1, 500
"""Records, and characters of each, that are looked at to tell whether the model reads their language."""

MOST_MISSING = 0.05
"""Share of records without a vector from which on words alone rank better."""


@dataclass(frozen=True, slots=True)
class VectorSource:
    """Embeds the query and asks a store's vector index. Its scores are cosines.

    What serves is asked for at each search, inside the source's own thread and only until the query's deadline:
    loading a model must not hold up others.
    `alone` says that no other source is asked, so that some vectors are better than none.
    """

    serving: Callable[[float | None], Serving]
    alone: bool = False
    name: str = "vector"
    bounded: bool = True
    timeout: float | None = None

    def search(self, query: Query) -> Found:
        """The visible records nearest to the query."""
        if not query.text.strip():
            return Found(warnings=("the query is empty",))
        serving = self.serving(query.deadline)
        warnings = _catch_up(serving, query.filter)
        if not self.alone:
            _refuse_half(serving, query.filter)
        matches = serving.index.search(serving.embedder.query(query.text), query.filter, query.depth)
        hits = (Hit(match.record, match.fold, match.score, partial(lead, match.record.text)) for match in matches.found)
        trust = legibility(serving.embedder, query.text, [match.record.text for match in matches.found[:READ]])
        if trust < 1:
            warnings += (f"{serving.embedder.name} does not read this language well; meaning counts less",)
        return Found(tuple(hits), warnings, matches.folded, trust=trust)


def legibility(embedder: Embedder, question: str, texts: Sequence[str]) -> float:
    """How well a model reads a question and the records it found; a model that cannot tell is taken to read all."""
    if not isinstance(embedder, Reader):
        return 1.0
    found = embedder.legibility("\n".join(text[:READ_CHARACTERS] for text in texts)) if texts else 1.0
    return min(embedder.legibility(question), found)


def _refuse_half(serving: Serving, where: Filter) -> None:
    """Stand back while many records have no vector: those that happen to have one would outrank better ones."""
    if serving.index.coverage()[1] <= CATCH_UP:
        return
    covered, missing = serving.index.coverage(where)  # what others are still waiting for is no reason
    if missing > CATCH_UP and missing > MOST_MISSING * (covered + missing):
        raise EmbedderError(
            f"only {covered:,} of {covered + missing:,} records have a vector yet",
            hint="`recollect embed` computes the missing ones",
        )


def _catch_up(serving: Serving, where: Filter) -> tuple[str, ...]:
    """Embed what has no vector yet where that is quick; say so where it is not."""
    warnings = [serving.warning] if serving.warning else []
    waiting = serving.index.missing(CATCH_UP + 1, where)
    if len(waiting) > CATCH_UP:
        warnings.append("some records have no vector yet; `recollect embed` computes the missing ones")
    elif waiting:
        try:
            serving.index.save(waiting, serving.embedder.passages(waiting))
        except StoreError:  # its message names the store's place, which is not for every caller
            warnings.append("some records have no vector, and none can be stored now: `recollect doctor` says why")
    return tuple(warnings)
