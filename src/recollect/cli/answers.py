"""The last answer on this machine, so that `recollect get 2` means its second result.

Only ids are written, to a file for each store that only the user may read, and separately for each scope.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.errors import UnknownRecord, UsageError

if TYPE_CHECKING:
    from recollect.memory import Memory

MOST = 999  # results that have a number: longer numbers may be parts of ids
MOST_SCOPES = 100  # scopes of one store whose last answers are kept


def save_answer(memory: Memory, ids: Iterable[str]) -> None:
    """Write down the ids of an answer, if that is possible: an answer matters more than its numbers."""
    if memory.settings.place == ":memory:":
        return
    file = _file(memory)
    answers = {key: value for key, value in _read(file).items() if key != memory.scope.key}
    kept = dict(list(answers.items())[1 - MOST_SCOPES :])
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:  # noqa: PTH123
            json.dump({**kept, memory.scope.key: list(ids)[:MOST]}, out)


def record_named(memory: Memory, name: str, *, for_good: bool = False) -> str:
    """What a record is called on the command line: a number from 1 to 999 is a result of the last answer.

    A record that has the number as its id comes first. What is done `for_good` needs an id: another command may have
    answered in between.
    """
    if not is_number(name):
        return name
    with contextlib.suppress(UnknownRecord):
        memory.history(name)
        return name
    if for_good:
        message = f"this cannot be undone, so {name!r} is not taken as a result of the last answer"
        raise UsageError(message, hint="nothing was changed; name the record by its id")
    ids = _read(_file(memory)).get(memory.scope.key, [])
    if 1 <= int(name) <= len(ids):
        return ids[int(name) - 1]
    error = UnknownRecord(name)
    results = f"the last answer of this scope has {len(ids)}" if ids else "this scope has no last answer"
    error.hint = f"a number means a result of the last search, recall or list, and {results}"
    raise error


def is_number(name: str) -> bool:
    """Whether a name can be the number of a result."""
    return name.isascii() and name.isdecimal() and name[0] != "0" and len(name) <= len(str(MOST))


def _file(memory: Memory) -> Path:
    """The file of a store; its place may hold a password, so only a hash of it is the name."""
    import platformdirs

    from recollect.stores import kind_of

    place = memory.settings.place
    digest = hashlib.blake2b(kind_of(place).absolute(place).encode(errors="surrogatepass"), digest_size=12).hexdigest()
    return Path(platformdirs.user_state_dir("recollect")) / "answers" / f"{digest}.json"


def _read(file: Path) -> dict[str, list[str]]:
    """The last answers by scope; none if the file is missing or damaged."""
    try:
        answers = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    good = isinstance(answers, dict) and all(isinstance(ids, list) for ids in answers.values())
    return answers if good else {}
