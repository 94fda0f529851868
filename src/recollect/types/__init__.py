"""The data types of the project and its interfaces.

A `Query` goes to each `Source`, which returns a `RankedList` of `Hit`s. Fusion turns the lists into `Candidate`s, which
the stages reorder and drop. Those that are left become the `Result`s of the `Answer`, with a `Trace` of what happened.
A store contains `Record`s.
"""

# ruff: noqa: I001  (one import for each module, though every name has its alias)
from recollect.options import KINDS as KINDS, ORIGINS as ORIGINS
from recollect.types.parts import Progress as Progress, Steps as Steps
from recollect.types.protocols import (
    ActiveSpace as ActiveSpace,
    Changes as Changes,
    Embedder as Embedder,
    ExternalQuery as ExternalQuery,
    ExternalSystem as ExternalSystem,
    Files as Files,
    Joins as Joins,
    KeywordIndex as KeywordIndex,
    Matrix as Matrix,
    Notes as Notes,
    Records as Records,
    Reranker as Reranker,
    Source as Source,
    Stage as Stage,
    Store as Store,
    Vector as Vector,
    VectorIndex as VectorIndex,
    VectorSpace as VectorSpace,
    VectorSpaces as VectorSpaces,
)
from recollect.types.records import (
    EVERYTHING as EVERYTHING,
    GLOBAL as GLOBAL,
    Change as Change,
    Event as Event,
    ExpectUnchanged as ExpectUnchanged,
    FileState as FileState,
    Filter as Filter,
    Forget as Forget,
    MarkIngested as MarkIngested,
    MarkUndo as MarkUndo,
    Provenance as Provenance,
    Put as Put,
    Record as Record,
    Restore as Restore,
    Scope as Scope,
    SetFileState as SetFileState,
    SetFolderOptions as SetFolderOptions,
    Supersede as Supersede,
    now as now,
)
from recollect.types.search import (
    Answer as Answer,
    Candidate as Candidate,
    Columns as Columns,
    Contribution as Contribution,
    Hit as Hit,
    Pool as Pool,
    Query as Query,
    RankedList as RankedList,
    RankedRows as RankedRows,
    Result as Result,
    SourceTrace as SourceTrace,
    StageTrace as StageTrace,
    Trace as Trace,
    Warned as Warned,
    Work as Work,
)
