"""Authentication: from a request's token to a caller and the memory that this caller may use."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from recollect.errors import ConfigError, FailedError, Forbidden
from recollect.memory import Memory
from recollect.types import GLOBAL
from recollect.web.responses import Unauthorized
from recollect.web.tokens import Caller, Tokens

_log = logging.getLogger("recollect.web")

_bearer = HTTPBearer(auto_error=False, description="A token that `recollect token add` made.")


@dataclass(frozen=True, slots=True)
class Asker:
    """A caller and their memory: the owner's is the whole, a scoped caller's is `Memory.within(scope)`."""

    caller: Caller
    memory: Memory


@dataclass(frozen=True, slots=True)
class Access:
    """Finds the caller of a request. A token is required if `demanded`, or if any token exists."""

    memory: Memory
    tokens: Tokens
    local: Caller
    demanded: bool
    read_only: bool = False
    _askers: dict[Caller, Asker] = field(default_factory=dict)

    def asker(self, authorization: str | None) -> Asker:
        """The caller of the `Authorization` header."""
        kind, _, token = (authorization or "").partition(" ")
        caller = self._caller(token.strip() if kind.lower() == "bearer" else "")
        if caller is None:
            raise Unauthorized("a token is needed", hint="Authorization: Bearer …; `recollect token add` makes one")
        return self._asker(self._bound(caller))

    def _caller(self, token: str) -> Caller | None:
        try:
            if not self.tokens.all() and not self.demanded and not self.tokens.had_some:
                return self.local
            return self.tokens.caller(token)
        except ConfigError as error:  # it is for who runs the server to mend, and to know where the file lies
            _log.error("%s (%s)", error.message, error.hint)
            raise FailedError("tokens cannot be read: nobody is let in", hint="the server's log says why") from error

    def _bound(self, caller: Caller) -> Caller:
        """A server that was started for a scope serves that scope only, whatever the token allows."""
        scope = self.local.scope
        if scope in (GLOBAL, caller.scope):
            return caller
        if not caller.owner:
            raise Forbidden("this server is for another scope than that token's", hint="ask the server of that scope")
        return replace(caller, scope=scope, owner=False)

    def may_write(self, caller: Caller) -> bool:
        """Whether the caller may write."""
        return not (caller.read_only or self.read_only)

    def _asker(self, caller: Caller) -> Asker:
        asker = self._askers.get(caller)
        if asker is None:
            memory = self.memory if caller.owner else self.memory.within(caller.scope)
            asker = self._askers.setdefault(caller, Asker(caller, memory))
        return asker


def _reader(request: Request, _shown: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)] = None) -> Asker:
    access: Access = request.app.state.access
    asker = access.asker(request.headers.get("authorization"))
    request.state.owner = asker.caller.owner
    return asker


def _writer(request: Request, asker: Annotated[Asker, Depends(_reader)]) -> Asker:
    if not request.app.state.access.may_write(asker.caller):
        raise Forbidden("only reading is allowed here", hint="a server and a token without --read-only may write")
    return asker


def _owner(asker: Annotated[Asker, Depends(_reader)]) -> Asker:
    if not asker.caller.owner:
        raise Forbidden("only the owner of the store may do this", hint="`recollect token add NAME --owner`")
    return asker


def _owning_writer(asker: Annotated[Asker, Depends(_writer)]) -> Asker:
    return _owner(asker)


Reads = Annotated[Asker, Depends(_reader)]
Writes = Annotated[Asker, Depends(_writer)]
Owns = Annotated[Asker, Depends(_owner)]
OwnsAndWrites = Annotated[Asker, Depends(_owning_writer)]


def told(caller: Caller, access: Access) -> Mapping[str, object]:
    """The caller as JSON, with what the server lets them do."""
    return {**caller.as_dict(), "read_only": not access.may_write(caller)}
