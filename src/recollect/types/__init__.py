"""The words of the project as frozen data, and the seams as Protocols.

A `Query` goes to each `Source`, which answers `Hit`s; fusion and the stages turn these into `Result`s; the
`Answer` holds them with a `Trace` of what happened. `Record` is what a store keeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recollect.types.answers import (
    Answer,
    Found,
    Hit,
    Noted,
    Query,
    Ranking,
    Result,
    SourceTrace,
    StageTrace,
    Trace,
)
from recollect.types.records import (
    EVERYTHING,
    GLOBAL,
    KINDS,
    Change,
    Event,
    FileState,
    Filter,
    Forget,
    Ingested,
    Put,
    Record,
    Restore,
    SawFile,
    Scope,
    Still,
    Supersede,
    now,
)
from recollect.types.seams import (
    Asked,
    Embedder,
    Files,
    Joins,
    KeywordIndex,
    Match,
    Matches,
    Notes,
    Progress,
    Reader,
    Records,
    Reranker,
    Serving,
    Source,
    Stage,
    Store,
    System,
    VectorIndex,
    VectorSpace,
    VectorSpaces,
)

if TYPE_CHECKING:
    from recollect.types.seams import Matrix as Matrix
    from recollect.types.seams import Vector as Vector

__all__ = [
    "EVERYTHING",
    "GLOBAL",
    "KINDS",
    "Answer",
    "Asked",
    "Change",
    "Embedder",
    "Event",
    "FileState",
    "Files",
    "Filter",
    "Forget",
    "Found",
    "Hit",
    "Ingested",
    "Joins",
    "KeywordIndex",
    "Match",
    "Matches",
    "Noted",
    "Notes",
    "Progress",
    "Put",
    "Query",
    "Ranking",
    "Reader",
    "Record",
    "Records",
    "Reranker",
    "Restore",
    "Result",
    "SawFile",
    "Scope",
    "Serving",
    "Source",
    "SourceTrace",
    "Stage",
    "StageTrace",
    "Still",
    "Store",
    "Supersede",
    "System",
    "Trace",
    "VectorIndex",
    "VectorSpace",
    "VectorSpaces",
    "now",
]
