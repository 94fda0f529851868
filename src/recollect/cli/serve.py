"""Commands that serve a memory: serve, token, mcp."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.flags import common, json_flag, open_memory, scheduled_backups
from recollect.cli.hook import end_after
from recollect.cli.terminal import emit, notice, plain, plain_text, print_table
from recollect.errors import FailedError, ModelError, UsageError
from recollect.network.addresses import is_local, offline
from recollect.registry import missing_package
from recollect.web.access import Caller, Tokens, tokens_file

if TYPE_CHECKING:
    from recollect.memory import Memory

PORT = 8377
GRACE_SECONDS = 5  # how long requests in progress may take after a signal to end

_HOST = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?", re.ASCII)
_ORIGIN = re.compile(r"https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:\d{1,5})?", re.ASCII)

tokens_flag = click.option(
    "--tokens", "tokens_at", type=click.Path(path_type=Path), default=tokens_file, metavar="FILE",
    help="The file that holds the tokens.",
)  # fmt: skip


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address; others than loopback need a token.")
@click.option(
    "--port", default=PORT, show_default=True, type=click.IntRange(0, 65535), help="The port; 0 is any free one."
)
@click.option("--read-only", is_flag=True, help="Refuse every change.")
@click.option("--folder", "folders", multiple=True, metavar="DIR", help="Let the page index this folder; repeatable.")
@click.option("--lab", type=click.Path(path_type=Path), metavar="DIR", help="The folder for reports of `eval`.")
@click.option("--allow-host", "allowed_hosts", multiple=True, metavar="NAME", help="Accept this host name; repeatable.")
@click.option("--allow-origin", "allowed_origins", multiple=True, metavar="URL", help="Accept pages of this site.")
@click.option("--no-token", is_flag=True, help="Require no token, even if there are some; on loopback only.")
@tokens_flag
@common
def serve(host: str, port: int, no_token: bool, tokens_at: Path, **options: Any) -> None:
    """Serve the web page, the JSON API (/v1, /openapi.json) and MCP (/mcp) over HTTP.

    Without --host, only this machine can connect. On other addresses, and whenever there are tokens, every request
    needs a token.
    """
    _log_to_stderr()
    try:
        import uvicorn

        from recollect.web import middleware
        from recollect.web.app import build
    except ImportError as error:
        raise missing_package(error, "`recollect serve`", "serve") from error
    for folder in options["folders"]:
        if not Path(folder).is_dir():
            raise UsageError(f"{folder} is not a folder", hint="--folder DIR")
    serving = {name: options[name] for name in ("read_only", "folders", "lab")}
    serving["allowed_hosts"] = _names(options["allowed_hosts"], ".", _HOST)
    serving["allowed_origins"] = _names(options["allowed_origins"], "/", _ORIGIN)
    tokens = Tokens(None if no_token else tokens_at)
    if not tokens.all() and not is_local(host):
        hint = "recollect token add NAME creates one; without tokens, only --host 127.0.0.1 is allowed"
        raise UsageError(f"listening on {host} needs a token", hint=hint)
    with _listen(host, port) as listener, open_memory(options, fetch=False) as memory:
        place = memory.settings.place
        # How another process opens the same memory; none can open a store in memory.
        opened = partial(type(memory).open, place, settings=memory.settings, fetch=False)
        reopen = opened if place != ":memory:" else None
        app = build(memory, tokens, host=host, reopen=reopen, **serving)
        logging.getLogger("asyncio").addFilter(middleware.AcceptFilter())
        settings = uvicorn.Config(
            app, http=middleware.limited_protocol(), ws="none", backlog=middleware.ACCEPTED_AT_ONCE, log_config=None,
            access_log=False, server_header=False, timeout_graceful_shutdown=GRACE_SECONDS,
        )  # fmt: skip
        server = middleware.DrainingServer(settings)
        address = f"[{host.strip('[]')}]" if ":" in host else host
        threading.Thread(target=_fetch_models, args=(memory,), name="fetching", daemon=True).start()
        # uvicorn raises the signal again after it has shut down; the handler ignores that.
        with _on_signal(lambda: setattr(server, "should_exit", True)), scheduled_backups(memory, options):
            notice(f"serving at http://{address}:{listener.getsockname()[1]}/ (Ctrl-C ends it)")
            gc.freeze()  # no collection looks at what the start has made
            server.run(sockets=[listener])


def _names(values: Sequence[str], ending: str, pattern: re.Pattern[str]) -> tuple[str, ...]:
    """Host names or origins in the form that browsers send: in lower case, without a final dot or slash."""
    names = tuple(value.lower().removesuffix(ending) for value in values)
    for name in names:
        if not pattern.fullmatch(name):
            hint = "--allow-host memory.example.com, or --allow-origin https://app.example.com"
            raise UsageError(f"{name!r} is not a valid host name or origin", hint=hint)
    return names


def _listen(host: str, port: int) -> socket.socket:
    """Open the socket first, so that a port in use is reported before the store is opened."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family)
    except (OSError, UnicodeError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        hint = "choose another --port, or --port 0 for any free one"
        raise FailedError(f"cannot listen on {host}:{port}: {reason}", hint=hint) from error


def _fetch_models(memory: Memory) -> None:
    """Fetch missing models; until then, searches are answered without them. A request never starts a download."""
    from recollect.models.catalogue import MODELS, installed
    from recollect.models.fetch import fetch_automatically

    settings, active = memory.settings, memory.store.spaces.active
    reranker = settings.search.rerank_model if settings.search.rerank else "none"
    for name in (settings.embedder, active.embedder if active else "none", reranker):
        if name in MODELS and not offline() and not installed(name):
            try:
                fetch_automatically(name, announce=notice)
            except ModelError as error:
                notice(f"searching without {name}: {error.message} ({error.hint})")


@contextlib.contextmanager
def _on_signal(end: Callable[[], None]) -> Iterator[None]:
    before = {number: signal.signal(number, lambda *_: end()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@click.group()
def token() -> None:
    """Create, list and remove access tokens for `serve`."""


@token.command("add")
@click.argument("name")
@click.option("--owner", is_flag=True, help="May use every scope, index folders and read the metrics.")
@click.option("--read-only", is_flag=True, help="May change nothing.")
@click.option("--session", metavar="NAME", help="The session of its scope.")
@click.option("--agent", metavar="NAME", help="The agent of its scope.")
@click.option("--user", metavar="NAME", help="The user of its scope.")
@tokens_flag
@json_flag
def add(name: str, owner: bool, read_only: bool, tokens_at: Path, as_json: bool, **scope: str | None) -> None:
    """Create a token called NAME and print it. It is printed only once: the file holds its hash.

    A caller with this token reads its scope and global records, and changes only records of its scope. Without a
    scope it reads and changes global records.
    """
    from recollect.memory.validation import merge_scope
    from recollect.types import GLOBAL

    caller = Caller(name, merge_scope(GLOBAL, None, scope), owner=owner, read_only=read_only)
    secret = Tokens(tokens_at).add(caller)
    emit(as_json, {**caller.as_dict(), "token": secret}, secret)
    if not as_json:
        notice("save it now: it cannot be shown again")


@token.command("list")
@tokens_flag
@json_flag
def list_(tokens_at: Path, as_json: bool) -> int:
    """List the tokens and what each may do. The tokens themselves are not stored."""
    tokens = Tokens(tokens_at).all()
    rows = []
    for one in tokens:
        scope = ", ".join(f"{part} {name}" for part, name in one.caller.scope.as_dict().items())
        access = "everything" if one.caller.owner else scope or "global records"
        access += ", read only" if one.caller.read_only else ""
        rows.append((one.caller.name, access, one.created_at[:19]))
    document = [{**one.caller.as_dict(), "created_at": one.created_at} for one in tokens]
    empty = "there are no tokens; `recollect token add NAME` creates one"
    emit(as_json, document, lambda: print_table(rows, empty=empty))
    return 0 if tokens else 1


@token.command()
@click.argument("name")
@tokens_flag
@json_flag
def remove(name: str, tokens_at: Path, as_json: bool) -> None:
    """Remove a token. Running servers refuse it at once."""
    Tokens(tokens_at).remove(name)
    emit(as_json, {"removed": name}, lambda: notice(f"removed {name}"))


@click.command()
@click.option("--read-only", is_flag=True, help="Offer only the tools that read.")
@common
def mcp(read_only: bool, **options: Any) -> None:
    """Serve the memory to an agent over MCP, on standard input and output.

    --user, --agent and --session fix the scope: no call can widen it. An MCP client starts this command itself;
    docs/mcp.md has the settings.
    """
    # Standard output belongs to the protocol: send the log to standard error before the SDK sets up its own.
    _log_to_stderr()
    try:
        from recollect.mcp import build
    except ImportError as error:
        raise missing_package(error, "`recollect mcp`", "mcp") from error
    with open_memory(options) as memory, _on_signal(lambda: _close_and_exit(memory)):
        server = build(memory, read_only=read_only)
        try:
            server.run("stdio")
        except* BrokenPipeError:
            notice("the client closed the connection")


def _close_and_exit(memory: Memory) -> None:
    """Close the memory and end the process, since the thread that reads standard input cannot be interrupted."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    end_after(GRACE_SECONDS)
    # A call may be in the store: its transaction is committed or rolled back, and nobody reads its notices.
    with contextlib.suppress(Exception), contextlib.redirect_stderr(None):
        memory.close()
    os._exit(0)


def _log_to_stderr() -> None:
    """Send warnings of a server to standard error, escaped."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_EscapingFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


class _EscapingFormatter(logging.Formatter):
    """One line for each message; the traceback below it keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (the name of logging)
        record.message = plain(record.message)
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        return plain_text(super().format(record))
