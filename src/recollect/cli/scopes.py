"""A note for the owner of a store who finds nothing, because the records belong to a scope that was not named."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from recollect.cli.terminal import counted, notice, plain
from recollect.types import GLOBAL, Filter, Scope

if TYPE_CHECKING:
    from recollect.memory import Memory

NAMED_SCOPES = 3  # scopes that the note names


def note_other_scopes(memory: Memory) -> None:
    """Say how many records belong to scopes, after a search without a scope has found nothing.

    Only the owner, who may name every scope, learns of it: never a caller that is bound to a scope.
    """
    if memory.caller is not None or memory.scope != GLOBAL:
        return
    everything = Filter(any_scope=True)
    hidden = memory.store.count(everything)["total"] - memory.store.count(Filter())["total"]
    scopes = [Scope(**parts) for parts in memory.store.facets(everything)["scopes"] if parts] if hidden > 0 else []
    if not scopes:
        return
    names = [" ".join(f"{part}={plain(name)}" for part, name in scope.as_dict().items()) for scope in scopes]
    listed = ", ".join(names[:NAMED_SCOPES]) + (", …" if len(names) > NAMED_SCOPES else "")
    flags = " ".join(f"--{part} {shlex.quote(name)}" for part, name in scopes[0].as_dict().items())
    belong = "belongs" if hidden == 1 else "belong"
    notice(f"{counted(hidden, 'record')} {belong} to {listed}: the same command with {flags} looks there")
