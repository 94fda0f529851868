"""The words of the project as frozen data, and the seams as Protocols.

A `Query` goes to each `Source`, which answers `Hit`s; fusion and the stages turn these into `Result`s; the
`Answer` holds them with a `Trace` of what happened. `Record` is what a store keeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recollect.options import KINDS
from recollect.types.contents import Contents, Progress
from recollect.types.protocols import (
    ActiveSpace,
    CachingEmbedder,
    Changes,
    Embedder,
    ExternalQuery,
    ExternalSystem,
    Files,
    Joins,
    KeywordIndex,
    LegibilityEmbedder,
    Notes,
    Records,
    Reranker,
    Source,
    Stage,
    Store,
    VectorIndex,
    VectorSpace,
    VectorSpaces,
)
from recollect.types.records import (
    EVERYTHING,
    GLOBAL,
    Change,
    Event,
    FileState,
    Filter,
    Forget,
    Ingested,
    Mirrors,
    Put,
    Record,
    Restore,
    SawFile,
    Scope,
    Still,
    Supersede,
    Undid,
    now,
)
from recollect.types.search import (
    Answer,
    Contribution,
    Hit,
    Query,
    RankedList,
    Result,
    SourceTrace,
    StageTrace,
    Trace,
    WarnedResults,
    Work,
)

if TYPE_CHECKING:
    from recollect.types.protocols import Matrix as Matrix
    from recollect.types.protocols import Vector as Vector

__all__ = [
    "EVERYTHING",
    "GLOBAL",
    "KINDS",
    "ActiveSpace",
    "Answer",
    "CachingEmbedder",
    "Change",
    "Changes",
    "Contents",
    "Contribution",
    "Embedder",
    "Event",
    "ExternalQuery",
    "ExternalSystem",
    "FileState",
    "Files",
    "Filter",
    "Forget",
    "Hit",
    "Ingested",
    "Joins",
    "KeywordIndex",
    "LegibilityEmbedder",
    "Mirrors",
    "Notes",
    "Progress",
    "Put",
    "Query",
    "RankedList",
    "Record",
    "Records",
    "Reranker",
    "Restore",
    "Result",
    "SawFile",
    "Scope",
    "Source",
    "SourceTrace",
    "Stage",
    "StageTrace",
    "Still",
    "Store",
    "Supersede",
    "Trace",
    "Undid",
    "VectorIndex",
    "VectorSpace",
    "VectorSpaces",
    "WarnedResults",
    "Work",
    "now",
]
