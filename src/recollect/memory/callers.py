"""Who calls and who writes: views of a memory for a scope or a writer, and the rollback of writers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Self

from recollect.errors import Forbidden
from recollect.memory.changes import Writer, retried
from recollect.memory.provenance import claimed, of_caller
from recollect.memory.validation import make_fields
from recollect.types import Provenance, Scope

if TYPE_CHECKING:
    from recollect.memory.rollback import Rollback


class ScopedWriter(Writer):
    """The methods of `Memory` that are about who calls: in which scope, in whose name."""

    def within(self, scope: Scope) -> Self:
        """Return a view of this memory for a scoped caller, such as a client of a server.

        The view behaves like a store that holds only what `scope` may see. It can change only records that the scope
        owns, and no call can name another scope: that raises `Forbidden`. View and memory share everything; closing one
        closes both.
        """
        view = copy.copy(self)
        view.scope, view.caller, view.store = scope, scope, self.store.within(scope)
        view.provenance = of_caller(scope, self.provenance)
        return view

    def scoped(self, scope: Scope) -> Self:
        """Return a view of this memory with another default scope; calls may still name other scopes.

        A scoped caller can only name its own scope here; another one raises `Forbidden`.
        """
        if scope == self.scope:
            return self
        if self.caller is not None:
            raise Forbidden("another scope than the caller's cannot be used", hint="leave the scope out")
        view = self.within(scope)
        view.caller, view.provenance = None, self.provenance
        return view

    def written_by(self, author: str | None, *, origin: str | None = None, session: str | None = None) -> Self:
        """Return a view of this memory whose new records name this author, origin and session.

        What is None stays as it is. A scoped caller cannot claim an origin that is trusted more than its own.
        """
        named = {"origin": origin, "author": author, "author_session": session}
        view = copy.copy(self)
        view.provenance = Provenance(**make_fields(claimed(named, self.provenance, self.caller)))
        return view

    @retried
    def roll_back(
        self,
        *,
        origin: str | Sequence[str] = (),
        author: str | Sequence[str] = (),
        author_session: str | Sequence[str] = (),
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        purge: bool = False,
        confirm: bool = False,
    ) -> Rollback:
        """Forget the facts of some writers, and bring back what they replaced; without `confirm`, only say what.

        `since` and `until` are about when a fact was stored or changed. A fact that one of these writers only changed
        gets its earlier version back. All facts of the scope of this memory are looked at; for the owner without a
        scope, those of all scopes. Up to 500 facts are one transaction: if a longer rollback fails on the way, run it
        again. Each record can be brought back with `undo`, unless `purge` erases it.
        """
        from recollect.memory.rollback import plan

        names = {"origin": origin, "author": author, "author_session": author_session}
        rollback = plan(self, {**names, "since": since, "until": until}, purge=purge)
        if not confirm or not rollback.groups:
            return rollback
        self.store.records.apply(rollback.groups)
        if purge and (warning := self.store.scrub()):
            self.announce(warning)
        return replace(rollback, done=True)

    def _require_owner(self, action: str = "index files", command: str = "index") -> None:
        if self.caller is not None:
            raise Forbidden(f"only the owner of the store can {action}", hint=f"ask them to `recollect {command}`")
