"""HyDE: search with a hypothetical answer, which lies nearer to real ones than the question does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from recollect.analysis import lead
from recollect.errors import RecollectError
from recollect.sources.vector import READ, legibility
from recollect.types import Found, Hit, Query, Serving


@dataclass(frozen=True, slots=True)
class HydeSource:
    """Has an answer written, embeds it as a passage, and asks the vector index.

    Beside the vector source it adds a list of its own, and fails like any source. Where it `replaces` that source it
    bears its name, and falls back to the question itself.
    """

    serving: Callable[[float | None], Serving]
    write: Callable[[str], str]
    replaces: bool = False
    bounded: bool = True
    timeout: float | None = None

    @property
    def name(self) -> str:
        """`hyde`, or the name of the source it stands for."""
        return "vector" if self.replaces else "hyde"

    def search(self, query: Query) -> Found:
        """The visible records nearest to the hypothetical answer."""
        if not query.text.strip():
            return Found(warnings=("the query is empty",))
        serving = self.serving(query.deadline)
        warnings: tuple[str, ...] = ()
        try:
            vector = serving.embedder.passages([self.write(query.text)])[0]
        except RecollectError as error:
            if not self.replaces:
                raise
            warnings = (f"HyDE fell back to the question itself: {error.message}",)
            vector = serving.embedder.query(query.text)
        matches = serving.index.search(vector, query.filter, query.depth)
        hits = (Hit(match.record, match.fold, match.score, partial(lead, match.record.text)) for match in matches.found)
        trust = legibility(serving.embedder, query.text, [match.record.text for match in matches.found[:READ]])
        return Found(tuple(hits), warnings, matches.folded, trust=trust)
