"""Commands that serve a memory: serve, token, mcp."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.options import common, json_flag, open_memory
from recollect.cli.terminal import echo, log_to_stderr, notice
from recollect.errors import FailedError, ModelError, UsageError
from recollect.registry import missing_package

if TYPE_CHECKING:
    import uvicorn

    from recollect.config import Settings
    from recollect.memory import Memory
    from recollect.types import Scope
    from recollect.web.tokens import Tokens
    from recollect.web.workers import Recipe


PORT = 8377
GRACE_SECONDS = 5
BACKLOG = 2048
"""Connections that the system keeps until they are accepted."""
_SERVING = ("read_only", "folders", "lab", "allowed_hosts", "allowed_origins")

tokens_flag = click.option(
    "--tokens", "tokens_at", type=click.Path(path_type=Path), metavar="FILE", help="Where tokens are kept."
)

_HOST = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?", re.ASCII)
_ORIGIN = re.compile(r"https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:\d{1,5})?", re.ASCII)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; beyond loopback needs a token.")
@click.option("--port", default=PORT, show_default=True, type=click.IntRange(0, 65535), help="0 takes any free one.")
@click.option("--read-only", is_flag=True, help="Nobody may change anything.")
@click.option("--folder", "folders", multiple=True, metavar="DIR", help="May be indexed from the page; repeatable.")
@click.option("--lab", type=click.Path(path_type=Path), metavar="DIR", help="Where reports of `eval` are kept.")
@click.option(
    "--allow-host", "allowed_hosts", multiple=True, metavar="NAME", help="A name that leads here; repeatable."
)
@click.option(
    "--allow-origin", "allowed_origins", multiple=True, metavar="URL", help="A site whose pages may ask here."
)
@click.option("--no-token", is_flag=True, help="Ask for none though there are some; on loopback only.")
@tokens_flag
@common
def serve(host: str, port: int, no_token: bool, tokens_at: Path | None, **options: Any) -> int:
    """Serve the page, the JSON API (/v1, /openapi.json) and MCP (/mcp) over HTTP.

    On this machine alone unless --host says otherwise; then, and whenever there are tokens, each request needs one.
    """
    log_to_stderr()
    try:
        import uvicorn

        from recollect.web.app import Serving, build
        from recollect.web.connections import ACCEPTED_AT_ONCE, AcceptFilter, limited_protocol
        from recollect.web.guard import is_loopback
    except ImportError as error:
        raise missing_package(error, "`recollect serve`", "serve") from error
    for folder in options["folders"]:
        if not Path(folder).is_dir():
            raise UsageError(f"{folder} is no folder", hint="--folder DIR")
    options["allowed_hosts"] = _named(options["allowed_hosts"], ".", _HOST, "--allow-host memory.example.com")
    options["allowed_origins"] = _named(
        options["allowed_origins"], "/", _ORIGIN, "--allow-origin https://app.example.com"
    )
    tokens = open_tokens(tokens_at, none=no_token)
    if not tokens.all() and not is_loopback(host):
        hint = "recollect token add NAME makes one; without a token only this machine may ask (--host 127.0.0.1)"
        raise UsageError(f"listening on {host} needs a token", hint=hint)
    with _listening(host, port) as listener, open_memory(options, fetch=False) as memory:
        app = build(memory, tokens, Serving(host, **{name: options[name] for name in _SERVING}, recipe=_recipe(memory)))
        logging.getLogger("asyncio").addFilter(AcceptFilter())
        settings = uvicorn.Config(
            app, http=limited_protocol(), ws="none", backlog=ACCEPTED_AT_ONCE, log_config=None, access_log=False,
            server_header=False, timeout_graceful_shutdown=GRACE_SECONDS,
        )  # fmt: skip
        server = _server(settings, app.state.changes.end)
        shown = f"[{host.strip('[]')}]" if ":" in host else host
        threading.Thread(target=_fetch_models, args=(memory.settings,), name="fetching", daemon=True).start()
        with _ended_by_signals(server):
            notice(f"serving at http://{shown}:{listener.getsockname()[1]}/ (Ctrl-C ends it)")
            server.run(sockets=[listener])
    return 0


def _fetch_models(settings: Settings) -> None:
    """Fetch the models that the settings name, where they are not on this machine. No request makes the server do that.

    Until they are here, searches are answered without them.
    """
    from recollect.models.cache import installed
    from recollect.models.catalogue import MODELS
    from recollect.models.fetch import fetch_automatically, offline

    search = settings.search
    for name in (settings.embedder, search.rerank_model if search.rerank else "none"):
        if name in MODELS and not offline() and not installed(name):
            try:
                fetch_automatically(name, announce=notice)
            except ModelError as error:
                notice(f"searching without {name}: {error.message} ({error.hint})")


def _recipe(memory: Memory) -> Recipe | None:
    """How another process opens the same memory; one that is kept in this process's memory alone cannot be opened."""
    from recollect.memory import default_store
    from recollect.web.workers import Recipe

    place = memory.settings.store or str(default_store())
    return None if place == ":memory:" else Recipe(place, memory.settings)


def _server(settings: uvicorn.Config, ending: Callable[[], None]) -> uvicorn.Server:
    """A server that says when it is about to end: who waits for nothing but a change must not be waited for."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            for listener in sockets or []:
                listener.listen(BACKLOG)  # uvicorn's `backlog` is also how many asyncio accepts in one go

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            ending()
            await super().shutdown(sockets)

    return Server(settings)


@contextlib.contextmanager
def _ended_by_signals(server: uvicorn.Server) -> Iterator[None]:
    """Ctrl-C and SIGTERM are how a server ends, not how it fails. It raises them again when it has ended: unheard."""

    def end(_number: int, _frame: object) -> None:
        server.should_exit = True

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _named(said: Sequence[str], end: str, form: re.Pattern[str], example: str) -> tuple[str, ...]:
    """Names as browsers send them: in small letters, and without what may stand at their end."""
    names = tuple(name.lower().removesuffix(end) for name in said)
    for name in names:
        if not form.fullmatch(name):
            raise UsageError(f"{name!r} is nothing that a request could name", hint=example)
    return names


def _listening(host: str, port: int) -> socket.socket:
    """A socket of our own, so that a port that is taken is an error of ours, told before anything is opened."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError, OverflowError) as error:
        hint = "another --port, or --port 0 for any"
        raise FailedError(
            f"cannot listen on {host}:{port}: {getattr(error, 'strerror', None) or error}", hint=hint
        ) from error


@click.group()
def token() -> None:
    """Make, list and remove the tokens that `serve` lets in."""


@token.command("add")
@click.argument("name")
@click.option("--owner", is_flag=True, help="May name any scope, index folders and read the metrics.")
@click.option("--read-only", is_flag=True, help="May change nothing.")
@click.option("--session", metavar="NAME", help="The session it is bound to.")
@click.option("--agent", metavar="NAME", help="The agent it is bound to.")
@click.option("--user", metavar="NAME", help="The user it is bound to.")
@tokens_flag
@json_flag
def add(name: str, owner: bool, read_only: bool, tokens_at: Path | None, as_json: bool, **scope: str | None) -> int:
    """Make a token called NAME and print it, this once: only its hash is kept.

    Its bearer sees the scope that is named here and no other, and changes only what belongs to that scope; without a
    scope, what is nobody's.
    """
    from recollect.cli.terminal import print_json
    from recollect.web.tokens import Caller

    caller = Caller(name, _scope(scope), owner=owner, read_only=read_only)
    made = open_tokens(tokens_at).add(caller)
    if as_json:
        print_json({**caller.as_dict(), "token": made})
    else:
        echo(made)
        notice("keep it now: it cannot be shown again")
    return 0


@token.command("list")
@tokens_flag
@json_flag
def list_(tokens_at: Path | None, as_json: bool) -> int:
    """Show what each token may see and do; the tokens themselves are not kept."""
    from recollect.cli.terminal import print_json, print_table

    kept = open_tokens(tokens_at).all()
    if as_json:
        print_json([{**one.caller.as_dict(), "created_at": one.created_at} for one in kept])
        return 0 if kept else 1
    rows: list[tuple[str, ...]] = [(one.caller.name, _reach(one.caller.as_dict()), one.created_at[:19]) for one in kept]
    print_table(rows)
    if not rows:
        notice("there are no tokens; `recollect token add NAME` makes one")
    return 0 if rows else 1


@token.command()
@click.argument("name")
@tokens_flag
@json_flag
def remove(name: str, tokens_at: Path | None, as_json: bool) -> int:
    """Take a token back. Servers that run stop taking it at once."""
    from recollect.cli.terminal import print_json

    open_tokens(tokens_at).remove(name)
    if as_json:
        print_json({"removed": name})
    else:
        notice(f"removed {name}")
    return 0


def open_tokens(at: Path | None, *, none: bool = False) -> Tokens:
    """The tokens of a file, of the user's own where none is named; or none at all."""
    from recollect.web.tokens import Tokens, tokens_file

    return Tokens(None if none else at or tokens_file())


def _scope(said: dict[str, str | None]) -> Scope:
    from recollect.memory.validation import merge_scope
    from recollect.types import GLOBAL

    return merge_scope(GLOBAL, None, said)


def _reach(caller: dict[str, Any]) -> str:
    scope = ", ".join(f"{part} {name}" for part, name in caller["scope"].items()) or "what is nobody's"
    return ("everything" if caller["owner"] else scope) + (", reading only" if caller["read_only"] else "")


SIGNALS = (signal.SIGTERM, signal.SIGINT)

MCP_GRACE_SECONDS = 5.0
"""How long what is being written may take when the process is told to end."""


@click.command()
@click.option("--read-only", is_flag=True, help="Offer only the tools that read.")
@common
def mcp(read_only: bool, **options: Any) -> int:
    """Serve the memory to an agent over MCP, on standard input and output.

    The scope is fixed by --user, --agent and --session: no call can widen it. An MCP client starts this itself; see
    docs/mcp.md for its settings.
    """
    # Standard output is the protocol's alone: whatever is logged goes the other way, before the SDK chooses.
    log_to_stderr()
    try:
        from recollect.mcp.server import build
    except ImportError as error:
        raise missing_package(error, "`recollect mcp`", "mcp") from error
    with open_memory(options) as memory, _closed_by_signals(memory):
        server = build(memory, read_only=read_only)
        try:
            server.run("stdio")
        except* BrokenPipeError:
            notice("the client has gone")
    return 0


@contextlib.contextmanager
def _closed_by_signals(memory: Memory) -> Iterator[None]:
    """SIGTERM and Ctrl-C close the memory and end the process: the thread that reads standard input cannot be woken."""

    def end(_number: int, _frame: FrameType | None) -> None:
        for name in SIGNALS:
            signal.signal(name, signal.SIG_IGN)
        late = threading.Timer(MCP_GRACE_SECONDS, os._exit, (0,))
        late.daemon = True
        late.start()
        with contextlib.suppress(Exception):  # a call may still be in the store; its transaction holds or is undone
            memory.close()
        os._exit(0)

    before = {name: signal.signal(name, end) for name in SIGNALS}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
