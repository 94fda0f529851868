"""How far LanceDB has read the file, as the file itself says: the file is the truth of that, too."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, replace

import apsw

from recollect.stores.sqlite.rows import meta, set_meta


@dataclass(frozen=True, slots=True)
class State:
    """The table of one space: every vector up to `number` is in it, as of its `version`.

    `indexed` is how many of its rows have an index; `tidied` the version that was merged last, `settled` how far it
    had come by then.
    """

    table: str = ""
    dataset: str = ""
    number: int = 0
    version: int = 0
    indexed: int = 0
    tidied: int = 0
    settled: int = 0

    def reached(self, number: int, version: int) -> State:
        """After a commit."""
        return replace(self, number=number, version=version)


def state_of(connection: apsw.Connection, space: int) -> State:
    """What the file says of a space's table; one without a name where there is none yet."""
    noted = meta(connection, f"lance {space}")
    return State() if noted is None else State(**json.loads(noted))


def note(connection: apsw.Connection, space: int, state: State) -> State:
    """Write it down."""
    set_meta(connection, f"lance {space}", json.dumps(asdict(state)))
    return state


def new_state(dataset: str) -> State:
    """A table of its own, under a name that nobody else has: several stores may share a bucket's prefix."""
    return State(f"vectors_{uuid.uuid4().hex[:16]}", dataset)
