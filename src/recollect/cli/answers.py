"""After an answer: its ids are saved, so that `recollect get 2` means its second result; an empty one gets a note.

Only ids are written, to a file for each store that only the user may read, and separately for each scope.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.cli.terminal import counted, notice, plain
from recollect.disk import hashed_name, own_folder
from recollect.errors import UnknownRecord, UsageError
from recollect.types import GLOBAL, Filter, Scope

if TYPE_CHECKING:
    from recollect.memory import Memory

MOST = 999  # results that have a number: longer numbers may be parts of ids
NAMED_SCOPES = 3  # scopes that the note on an empty answer names
MOST_SCOPES = 100  # scopes of one store whose last answers are kept


def save_answer(memory: Memory, ids: Iterable[str]) -> None:
    """Write the ids of an answer to the file of its store. A failure is ignored: the answer itself was printed."""
    if memory.settings.place == ":memory:":
        return
    file = _file(memory)
    others = [(key, value) for key, value in _read(file).items() if key != memory.scope.key]
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:  # noqa: PTH123
            json.dump({**dict(others[1 - MOST_SCOPES :]), memory.scope.key: list(ids)[:MOST]}, out)


def record_named(memory: Memory, name: str, *, for_good: bool = False) -> str:
    """The name of a record for `Memory`: a number from 1 to 999 becomes the id of that result of the last answer.

    A record that has the number as its id comes first. A change that is made `for_good` cannot name a record by number,
    because another command may have answered in between.
    """
    if not is_number(name):
        return name
    with contextlib.suppress(UnknownRecord):
        memory.history(name)
        return name
    if for_good:
        message = f"this cannot be undone, so {name!r} is not taken as a result of the last answer"
        raise UsageError(message, hint="nothing was changed; name the record by its id")
    ids = _read(_file(memory)).get(memory.scope.key)
    if ids and 1 <= int(name) <= len(ids):
        return ids[int(name) - 1]
    error = UnknownRecord(name)
    results = "this scope has no last answer" if ids is None else f"the last answer of this scope has {len(ids)}"
    error.hint = f"a number means a result of the last search, recall, list, related or conversation, and {results}"
    raise error


def is_number(name: str) -> bool:
    """Whether a name can be the number of a result."""
    return name.isascii() and name.isdecimal() and name[0] != "0" and len(name) <= len(str(MOST))


def note_other_scopes(memory: Memory, where: Filter) -> None:
    """Say how many records of scopes pass the filter of a command without a scope, which has found nothing.

    Only the owner, who may name every scope, learns of it: never a caller that is bound to a scope.
    """
    import shlex

    if memory.caller is not None or where.scope != GLOBAL:
        return
    everything = replace(where, any_scope=True)
    hidden = memory.store.count(everything)["total"] - memory.store.count(where)["total"]
    scopes = [Scope(**parts) for parts in memory.store.facets(everything)["scopes"] if parts] if hidden > 0 else []
    if not scopes:
        return
    names = [" ".join(f"{part}={plain(name)}" for part, name in scope.as_dict().items()) for scope in scopes]
    listed = ", ".join(names[:NAMED_SCOPES]) + (", …" if len(names) > NAMED_SCOPES else "")
    flags = " ".join(f"--{part} {shlex.quote(name)}" for part, name in scopes[0].as_dict().items())
    belong = "belongs" if hidden == 1 else "belong"
    notice(f"{counted(hidden, 'record')} {belong} to {listed}: the same command with {flags} looks there")


def _file(memory: Memory) -> Path:
    """The file of a store; its place may hold a password, so only a hash of it is the name."""
    from recollect.stores import kind_of

    place = memory.settings.place
    return own_folder("state") / "answers" / f"{hashed_name(kind_of(place).absolute(place))}.json"


def _read(file: Path) -> dict[str, list[str]]:
    """The last answers by scope; none if the file is missing or damaged."""
    try:
        answers = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    good = isinstance(answers, dict) and all(isinstance(ids, list) for ids in answers.values())
    return answers if good else {}
