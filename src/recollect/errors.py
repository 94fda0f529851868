"""Every error a caller can meet, in one tree.

    RecollectError
    ├── UsageError            wrong use: bad value, unknown name, missing argument   exit 2
    │   ├── ConfigError       a setting that does not exist or does not fit
    │   ├── UnknownRecord     no record has this id
    │   ├── Forbidden         the caller may not do this: another's scope, or reading only
    │   └── SupersessionCycle a record would come to supersede itself
    └── FailedError           the request was right, the world was not               exit 3
        ├── StoreError        the store cannot be opened, read or written
        │   └── Overtaken     a record was changed by another in the same moment
        ├── ModelError        a model is missing, damaged or cannot be fetched
        │   └── ModelMissing  a model is not on this machine, and may not be fetched now
        ├── EmbedderError     an embedder did not answer, or not with vectors
        ├── LlmError          a language model did not answer, or not with text
        ├── SourceFailed      an outside search system did not answer, or not with results
        │   ├── TimedOut      it took longer than it may
        │   ├── TooLong       the question is longer than it takes; the system itself is well
        │   └── LeftAlone     it failed so often that it is not asked for a while
        ├── SearchFailed      no source answered
        └── Cancelled         the client left before the answer was ready

Each carries what happened (`message`), what to do next (`hint`) and a stable `code`.
"""

from __future__ import annotations

from typing import ClassVar


class RecollectError(Exception):
    """The root of the tree; never raised itself."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 3

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.applied = 0
        """Of several groups of changes, how many had been stored before this happened."""

    def explain(self, message: str, hint: str) -> None:
        """Say more about what happened."""
        self.args, self.message, self.hint = (message,), message, hint

    def as_dict(self) -> dict[str, dict[str, str]]:
        """The error as the JSON that every edge prints."""
        return {"error": {"code": self.code, "message": self.message, "hint": self.hint}}


class UsageError(RecollectError):
    """The caller asked for something that cannot be."""

    code = "usage"
    exit_code = 2


class ConfigError(UsageError):
    """A setting does not exist or its value does not fit."""

    code = "config"


class UnknownRecord(UsageError):
    """No record has the id that was given."""

    code = "unknown_record"

    def __init__(self, record_id: str) -> None:
        super().__init__(
            f"no record has the id {record_id!r}",
            hint="`recollect list` shows the ids that are there",
        )


class Forbidden(UsageError):
    """The caller may not do this."""

    code = "forbidden"


class SupersessionCycle(UsageError):
    """A chain of supersession would lead back to its start."""

    code = "supersession_cycle"


class FailedError(RecollectError):
    """The request was right; something it needs was not."""

    code = "failed"


class StoreError(FailedError):
    """The store cannot be opened, read or written."""

    code = "store"


class Overtaken(StoreError):
    """A record was changed by another between reading and writing it."""

    code = "overtaken"


class ModelError(FailedError):
    """A model's files are missing, damaged or out of reach."""

    code = "model"


class ModelMissing(ModelError):
    """A model is not on this machine, and may not be fetched now."""


class EmbedderError(FailedError):
    """An embedder did not answer, or not with vectors."""

    code = "embedder"


class LlmError(FailedError):
    """A language model did not answer, or not with text."""

    code = "llm"


class SourceFailed(FailedError):
    """An outside search system did not answer, or not with results."""

    code = "source"


class TimedOut(SourceFailed):
    """Something took longer than it may."""

    code = "timeout"


class TooLong(SourceFailed):
    """The question is longer than the system takes. That says nothing about the system."""

    code = "too_long"


class LeftAlone(SourceFailed):
    """A source failed so often that it is not asked for a while."""

    code = "left_alone"


class SearchFailed(FailedError):
    """No source answered."""

    code = "search_failed"


class Cancelled(FailedError):
    """The client left before the answer was ready."""

    code = "cancelled"


STORE_FAILED = "the store cannot be used just now"
"""What callers with a scope read of an error of the store."""


def without_place(error: RecollectError) -> RecollectError:
    """The error as others than the owner may read it: where the store is kept is not for them."""
    cause = error.__cause__ if isinstance(error, SearchFailed) else error
    if not isinstance(cause, StoreError) or isinstance(cause, Overtaken):
        return error
    return StoreError(STORE_FAILED, hint="try again; the server's log says what happened")
