"""Where stores are: opened where they must be there, recognised where two names are one store."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from recollect import stores
from recollect.config import shown_place
from recollect.errors import UsageError
from recollect.stores import open_store
from recollect.types import Store
from recollect.types.contents import Contents

Place: TypeAlias = str | Path | Store
"""A path, a URL, or a store that is open."""


@contextlib.contextmanager
def opened(place: Place) -> Iterator[Contents]:
    """The store of a place, to be moved from or to; one that was opened here is closed again."""
    if not isinstance(place, str | Path):
        yield place.contents
        return
    store = open_store(str(place))
    try:
        yield store.contents
    finally:
        store.close()


def exists(place: Place) -> bool:
    """Whether there is a store; nothing is made."""
    return not isinstance(place, str | Path) or stores.exists(str(place))


def require(place: Place) -> None:
    """Refuse a place where there is no store: nothing could come from it."""
    if not exists(place):
        raise UsageError(
            f"there is no store at {shown_place(str(place))}", hint="check the name; nothing was made there"
        )
