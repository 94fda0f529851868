"""Callers of a server: their tokens, and the memory that each may use. It needs no package of the extra `serve`."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from recollect.config import user_file
from recollect.dataclass import dataclass
from recollect.disk import write_private
from recollect.errors import UPGRADE, ConfigError, FailedError, Forbidden, UsageError
from recollect.types import GLOBAL, Scope, now

if TYPE_CHECKING:
    from recollect.memory import Memory

_log = logging.getLogger("recollect.web")

PREFIX = "rcl_"  # a prefix by which secret scanners recognise a token
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
        return {**asdict(self), "scope": self.scope.as_dict()}


@dataclass(frozen=True, slots=True)
class StoredToken:
    """One entry of the file: a caller and the hash of its token."""

    caller: Caller
    digest: str
    created_at: str


class Unauthorized(UsageError, code="unauthorized"):
    """No token, or an unknown one."""


class Tokens:
    """The tokens of one file (or none), read again when it changes: a removed token stops working at once."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._read: tuple[tuple[int, int, int] | None, tuple[StoredToken, ...]] = (None, ())
        self.ever_had_tokens = False
        """Whether there ever was a token. Removing the last one must not open a running server to everyone."""

    def all(self) -> tuple[StoredToken, ...]:
        """All tokens."""
        if self.path is None:
            return ()
        try:
            stat = self.path.stat()
            marks = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            # The marks of the file and its tokens are stored together: no thread may see new marks beside old tokens.
            read_marks, tokens = self._read
            if marks != read_marks:
                document = json.loads(self.path.read_text(encoding="utf-8"))
                if document["version"] != VERSION:
                    raise ConfigError(f"{self.path} is of version {document['version']}", hint=UPGRADE)
                tokens = tuple(_token(line) for line in document["tokens"])
                self._read = (marks, tokens)
                self.ever_had_tokens = self.ever_had_tokens or bool(tokens)
        except FileNotFoundError:
            tokens = ()
            self._read = (None, tokens)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            hint = "`recollect token` writes it; all requests are refused until it can be read"
            raise ConfigError(f"{self.path} cannot be read: {error}", hint=hint) from error
        return tokens

    def caller(self, token: str) -> Caller | None:
        """The caller of a token. All tokens are compared, each in constant time."""
        digest = _digest(token)
        matches = [known.caller for known in self.all() if hmac.compare_digest(known.digest, digest)]
        return matches[0] if matches else None

    def add(self, caller: Caller) -> str:
        """Create a token for a caller and return it. Only its hash is stored."""
        if not caller.name.strip() or len(caller.name) > LONGEST_NAME or not caller.name.isprintable():
            raise UsageError("a token needs a name", hint=f"up to {LONGEST_NAME} letters, to know it by")
        if caller.owner and caller.scope != Scope():
            raise UsageError("an owner is not bound to a scope", hint="leave out --owner, or the scope")
        secret = PREFIX + secrets.token_urlsafe(32)
        with self._changing() as tokens:
            if any(token.caller.name == caller.name for token in tokens):
                raise UsageError(f"there is a token {caller.name!r} already", hint=f"token remove {caller.name!r}")
            tokens.append(StoredToken(caller, _digest(secret), now().isoformat()))
        return secret

    def remove(self, name: str) -> None:
        """Remove a token. Running servers refuse it from the next request on."""
        with self._changing() as tokens:
            left = [token for token in tokens if token.caller.name != name]
            if left == tokens:
                raise UsageError(f"there is no token {name!r}", hint="`recollect token list` shows them")
            tokens[:] = left

    @contextlib.contextmanager
    def _changing(self) -> Iterator[list[StoredToken]]:
        """The tokens as a list, which is written afterwards."""
        if self.path is None:
            raise UsageError("there is no file of tokens", hint="--tokens FILE")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{self.path}.lock"):
            yield (tokens := list(self.all()))
            lines = [{**one.caller.as_dict(), "sha256": one.digest, "created_at": one.created_at} for one in tokens]
            write_private(self.path, json.dumps({"version": VERSION, "tokens": lines}, indent=1))


def tokens_file() -> Path:
    """The default file of tokens, beside the user's settings."""
    return user_file().with_name("tokens.json")


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _token(line: Mapping[str, Any]) -> StoredToken:
    scope, digest = line["scope"], line["sha256"]
    if not _DIGEST.fullmatch(digest) or not all(isinstance(name, str) and name for name in scope.values()):
        raise ValueError("a token in it is damaged")
    owner, read_only = line["owner"] is True, line["read_only"] is not False
    caller = Caller(str(line["name"]), Scope(**scope), owner=owner, read_only=read_only)
    return StoredToken(caller, digest, str(line["created_at"]))


@dataclass(frozen=True, slots=True)
class CallerMemory:
    """A caller and their memory: the owner's is the whole, a scoped caller's is `Memory.within(scope)`."""

    caller: Caller
    memory: Memory


@dataclass(frozen=True, slots=True)
class Access:
    """Finds the caller of a request. A token is required if `token_required`, or if any exists."""

    memory: Memory
    tokens: Tokens
    local: Caller
    token_required: bool
    read_only: bool = False
    _askers: dict[Caller, CallerMemory] = field(default_factory=dict)

    def asker(self, authorization: str | None) -> CallerMemory:
        """The caller of the `Authorization` header."""
        kind, _, token = (authorization or "").partition(" ")
        try:
            is_open = not self.token_required and not self.tokens.all() and not self.tokens.ever_had_tokens
            shown = token.strip() if kind.lower() == "bearer" else ""
            caller = self.local if is_open else self.tokens.caller(shown)
        except ConfigError as error:  # only the server's log names the file
            _log.error("%s (%s)", error.message, error.hint)
            raise FailedError("the tokens cannot be read, so nobody has access", hint="see the server's log") from error
        if caller is None:
            raise Unauthorized("a token is needed", hint="Authorization: Bearer …; `recollect token add` makes one")
        scope = self.local.scope
        if scope not in (GLOBAL, caller.scope):  # a server of a scope serves that scope only, whatever the token allows
            if not caller.owner:
                raise Forbidden("this server serves another scope than the token's", hint="use that scope's server")
            caller = replace(caller, scope=scope, owner=False)
        if caller not in self._askers:
            memory = self.memory if caller.owner else self.memory.within(caller.scope)
            self._askers[caller] = CallerMemory(caller, memory if is_open else memory.written_by(caller.name))
        return self._askers[caller]

    def may_write(self, caller: Caller) -> bool:
        """Whether the caller may write."""
        return not (caller.read_only or self.read_only)
