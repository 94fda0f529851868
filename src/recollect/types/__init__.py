"""The data types of the project and its interfaces.

A `Query` goes to each `Source`, which returns a `RankedList` of `Hit`s. Fusion and the stages turn the lists into
`Result`s. The `Answer` contains them with a `Trace` of what happened. A store contains `Record`s.
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
    ExpectUnchanged,
    FileState,
    Filter,
    Forget,
    MarkIngested,
    MarkUndo,
    Put,
    Record,
    Restore,
    Scope,
    SetFileState,
    SetFolderOptions,
    Supersede,
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
    "ExpectUnchanged",
    "ExternalQuery",
    "ExternalSystem",
    "FileState",
    "Files",
    "Filter",
    "Forget",
    "Hit",
    "Joins",
    "KeywordIndex",
    "LegibilityEmbedder",
    "MarkIngested",
    "MarkUndo",
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
    "Scope",
    "SetFileState",
    "SetFolderOptions",
    "Source",
    "SourceTrace",
    "Stage",
    "StageTrace",
    "Store",
    "Supersede",
    "Trace",
    "VectorIndex",
    "VectorSpace",
    "VectorSpaces",
    "WarnedResults",
    "Work",
    "now",
]
