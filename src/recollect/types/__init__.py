"""The words of the project as frozen data, and the seams as Protocols.

A `Query` goes to each `Source`, which answers `Hit`s; fusion and the stages turn these into `Result`s; the
`Answer` holds them with a `Trace` of what happened. `Record` is what a store keeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recollect.options import KINDS
from recollect.types.contents import Contents, Progress
from recollect.types.protocols import (
    Asked,
    Changes,
    Embedder,
    Files,
    Joins,
    Keeper,
    KeywordIndex,
    Notes,
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
    "Answer",
    "Asked",
    "Change",
    "Changes",
    "Contents",
    "Contribution",
    "Embedder",
    "Event",
    "FileState",
    "Files",
    "Filter",
    "Forget",
    "Hit",
    "Ingested",
    "Joins",
    "Keeper",
    "KeywordIndex",
    "Mirrors",
    "Notes",
    "Progress",
    "Put",
    "Query",
    "RankedList",
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
    "Undid",
    "VectorIndex",
    "VectorSpace",
    "VectorSpaces",
    "WarnedResults",
    "Work",
    "now",
]
