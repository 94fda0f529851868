"""Every error that Recollect raises, in one tree.

    RecollectError
    ├── UsageError            wrong use: bad value, unknown name, missing argument   exit 2
    │   ├── ConfigError       a setting that does not exist, or a value it does not take
    │   ├── UnknownRecord     no record has this id
    │   ├── AmbiguousId       several records have ids that begin or end like this
    │   ├── Forbidden         the caller may not do this: another's scope, or reading only
    │   └── SupersessionCycle a record would come to supersede itself
    └── FailedError           the request was right, something it needs failed               exit 3
        ├── StoreError        the store cannot be opened, read or written
        │   ├── Unreachable   a server that holds a part of the store does not answer
        │   └── Overtaken     a record was changed by another writer at the same time
        ├── ModelError        a model is missing, damaged or cannot be downloaded
        │   └── ModelMissing  a model is not on this machine, and may not be downloaded now
        ├── EmbedderError     an embedder did not answer, or not with vectors
        ├── LlmError          a language model did not answer, or not with text
        ├── SourceFailed      an external source did not answer, or not with results
        │   ├── TimedOut      it took longer than it may
        │   ├── TooLong       the query is too long for it; the system itself works
        │   └── LeftAlone     it failed so often that it is not queried for a while
        ├── NotContacted      a host that is never contacted, or a redirect that is not followed
        │   └── Offline       another machine is needed, and --offline or RECOLLECT_OFFLINE forbids it
        ├── SearchFailed      no source answered
        └── Cancelled         the client disconnected before the answer was ready

Each carries what happened (`message`), what to do next (`hint`) and a stable `code`.
"""

from __future__ import annotations

import contextlib
import copyreg
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DISTRIBUTION = "recollect-search"
"""The package on the Python index; the import and the command are `recollect`."""

UPGRADE = f"pip install -U {DISTRIBUTION}"


class RecollectError(Exception):
    """The base class; it is never raised itself."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 3

    def __init_subclass__(cls, code: str = "", exit_code: int | None = None) -> None:
        cls.code = code or cls.code
        cls.exit_code = cls.exit_code if exit_code is None else exit_code

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.applied = 0
        """How many groups of changes had been stored before the error."""

    def __reduce__(self) -> tuple[object, ...]:
        """Copied and pickled by what it holds, since some kinds take other arguments than the message."""
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]

    def explain(self, message: str, hint: str) -> None:
        """Replace the message and the hint."""
        self.args, self.message, self.hint = (message,), message, hint

    def as_dict(self) -> dict[str, dict[str, str]]:
        """The error as JSON, for the command line, HTTP and MCP."""
        return {"error": {"code": self.code, "message": self.message, "hint": self.hint}}


@contextlib.contextmanager
def file_errors(path: object, action: str = "written", *, hint: str = "") -> Iterator[None]:
    """Turn an error of the file system into a FailedError: `notes.json cannot be written: No space left on device`."""
    try:
        yield
    except OSError as error:
        raise FailedError(f"{path} cannot be {action}: {error.strerror or error}", hint=hint) from error


@contextlib.contextmanager
def errors_as(kind: type[RecollectError], about: str, hint: str = "") -> Iterator[None]:
    """Turn whatever third-party code raises into an error of ours, which begins with `about`."""
    try:
        yield
    except RecollectError:
        raise
    except Exception as error:
        raise kind(f"{about}: {type(error).__name__}: {error}", hint=hint) from error


class UsageError(RecollectError, code="usage", exit_code=2):
    """The request is wrong."""


class ConfigError(UsageError, code="config"):
    """A setting does not exist, or its value is not allowed."""


class UnknownRecord(UsageError, code="unknown_record"):
    """No record has this id."""

    def __init__(self, record_id: str) -> None:
        super().__init__(f"no record has the id {record_id!r}", hint="a search or a list shows the ids")


class AmbiguousId(UsageError, code="ambiguous_id"):
    """Several records could be meant by a part of an id."""

    def __init__(self, part: str, candidates: Sequence[str]) -> None:
        super().__init__(f"{part!r} could be {', '.join(candidates)}", hint="write more of the id")


class Forbidden(UsageError, code="forbidden"):
    """The caller may not do this."""


class SupersessionCycle(UsageError, code="supersession_cycle"):
    """A record would come to supersede itself."""


class FailedError(RecollectError, code="failed"):
    """The request was right, but something it needs failed."""


class StoreError(FailedError, code="store"):
    """The store cannot be opened, read or written."""


class Unreachable(StoreError):
    """A server that holds a part of the store does not answer."""


class Overtaken(StoreError, code="overtaken"):
    """A record was changed by another writer between reading and writing it."""


class ModelError(FailedError, code="model"):
    """A model's files are missing, damaged or cannot be downloaded."""


class ModelMissing(ModelError):
    """A model is not on this machine, and may not be downloaded now."""


class EmbedderError(FailedError, code="embedder"):
    """An embedder did not answer, or not with vectors."""


class LlmError(FailedError, code="llm"):
    """A language model did not answer, or not with text."""


class SourceFailed(FailedError, code="source"):
    """An external source did not answer, or not with results."""


class TimedOut(SourceFailed, code="timeout"):
    """Something took longer than it may."""


class TooLong(SourceFailed, code="too_long"):
    """The query is too long for the system. The system itself works."""


class LeftAlone(SourceFailed, code="left_alone"):
    """A source failed so often that it is not queried for a while."""


class NotContacted(FailedError, code="not_contacted"):
    """A host is not contacted: its address is refused, or a redirect leads to it."""


class Offline(NotContacted, code="offline"):
    """Another machine is needed, and `--offline` or `RECOLLECT_OFFLINE` forbids to contact it."""


class SearchFailed(FailedError, code="search_failed"):
    """No source answered."""


class Cancelled(FailedError, code="cancelled"):
    """The client disconnected before the answer was ready."""


STORE_FAILED = "the store cannot be used just now"  # the message for scoped callers when the store fails


def without_place(error: RecollectError) -> RecollectError:
    """The error for scoped callers: the location of the store is only for the owner."""
    cause = error.__cause__ if isinstance(error, SearchFailed) else error
    if not isinstance(cause, StoreError) or isinstance(cause, Overtaken):
        return error
    return StoreError(STORE_FAILED, hint="try again; the server's log says what happened")
