"""Callers of a server: their tokens, and the memory that each may use.

This module does not import the packages of the extra `serve`, so that tokens can be made without them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from recollect.config.toml import write_private
from recollect.errors import ConfigError, FailedError, Forbidden, UsageError
from recollect.types import GLOBAL, Scope, now

if TYPE_CHECKING:
    from recollect.memory import Memory

_log = logging.getLogger("recollect.web")

PREFIX = "rcl_"
"""A prefix by which secret scanners recognise a token."""

VERSION = 1
LONGEST_NAME = 100

_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller: bound to a scope, or the owner, who may name any scope; `read_only` callers cannot write."""

    name: str
    scope: Scope = field(default_factory=Scope)
    owner: bool = False
    read_only: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The caller as JSON."""
        return {
            "name": self.name, "scope": self.scope.as_dict(), "owner": self.owner, "read_only": self.read_only,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kept:
    """One entry of the file: a caller and the hash of its token."""

    caller: Caller
    digest: str
    created_at: str


class Unauthorized(UsageError):
    """No token, or an unknown one."""

    code: ClassVar[str] = "unauthorized"


class Tokens:
    """The tokens of one file (or none), read again when it changes: a removed token stops working at once."""

    def __init__(self, path: Path | None) -> None:
        self.path = path or Path()
        self._none = path is None
        self._read: tuple[tuple[int, int, int] | None, tuple[Kept, ...]] = (None, ())
        self.had_some = False
        """Whether there ever was a token. Removing the last one must not open a running server to everyone."""

    def all(self) -> tuple[Kept, ...]:
        """All tokens."""
        if self._none:
            return ()
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            self._read = (None, ())
            return ()
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be read: {error.strerror}", hint="who may read it?") from error
        seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        # What was read and of which file stand in one place: no thread may see new marks beside old tokens.
        marks, kept = self._read
        if seen != marks:
            kept = _read(self.path)
            self._read = (seen, kept)
            self.had_some = self.had_some or bool(kept)
        return kept

    def caller(self, token: str) -> Caller | None:
        """The caller of a token. All tokens are compared, each in constant time."""
        digest = _digest(token)
        found = None
        for kept in self.all():
            if hmac.compare_digest(kept.digest, digest):
                found = kept.caller
        return found

    def add(self, caller: Caller) -> str:
        """Create a token for a caller and return it. Only its hash is stored."""
        if not caller.name.strip() or len(caller.name) > LONGEST_NAME or not caller.name.isprintable():
            raise UsageError("a token needs a name", hint=f"up to {LONGEST_NAME} letters, to know it by")
        if caller.owner and caller.scope != Scope():
            raise UsageError("an owner is not bound to a scope", hint="leave out --owner, or the scope")
        token = PREFIX + secrets.token_urlsafe(32)
        with self._locked():
            if any(kept.caller.name == caller.name for kept in self.all()):
                raise UsageError(f"there is a token {caller.name!r} already", hint=f"token remove {caller.name!r}")
            self._write((*self.all(), Kept(caller, _digest(token), now().isoformat())))
        return token

    def remove(self, name: str) -> None:
        """Remove a token. Running servers refuse it from the next request on."""
        with self._locked():
            left = tuple(kept for kept in self.all() if kept.caller.name != name)
            if left == self.all():
                raise UsageError(f"there is no token {name!r}", hint="`recollect token list` shows them")
            self._write(left)

    def _locked(self) -> Any:
        from filelock import FileLock

        self.path.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(f"{self.path}.lock")

    def _write(self, kept: tuple[Kept, ...]) -> None:
        """Write the file atomically, readable by this user only."""
        lines = [{**one.caller.as_dict(), "sha256": one.digest, "created_at": one.created_at} for one in kept]
        write_private(self.path, json.dumps({"version": VERSION, "tokens": lines}, indent=1))


def tokens_file() -> Path:
    """The default file of tokens, beside the user's settings."""
    from recollect.config import user_file

    return user_file().with_name("tokens.json")


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _read(path: Path) -> tuple[Kept, ...]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["version"] != VERSION:
            raise ConfigError(f"{path} is of version {found['version']}", hint="upgrade: pip install -U recollect")
        return tuple(_kept(one) for one in found["tokens"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        hint = "it is written by `recollect token`; nobody is let in until it can be read"
        raise ConfigError(f"{path} cannot be read: {error}", hint=hint) from error


def _kept(line: Mapping[str, Any]) -> Kept:
    owner, read_only = line["owner"] is True, line["read_only"] is not False
    scope, digest = line["scope"], line["sha256"]
    if not _DIGEST.fullmatch(digest) or not all(isinstance(name, str) and name for name in scope.values()):
        raise ValueError("a token in it is damaged")
    caller = Caller(str(line["name"]), Scope(**scope), owner=owner, read_only=read_only)
    return Kept(caller, digest, str(line["created_at"]))


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
