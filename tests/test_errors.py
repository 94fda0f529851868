"""Every error can leave the process in which it was raised."""

import copy
import pickle

import pytest

from recollect.errors import AmbiguousId, RecollectError, UnknownRecord, UsageError


@pytest.mark.parametrize(
    "error", [UnknownRecord("r1"), AmbiguousId("r1", ["r10", "r11"]), UsageError("it is wrong", hint="mend it")]
)
def test_error_survives_copying_and_pickling(error: RecollectError) -> None:
    """Kind, message, hint and text are the same, also of errors that are not made from a message."""
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert (str(again), again.message, again.hint) == (str(error), error.message, error.hint)
