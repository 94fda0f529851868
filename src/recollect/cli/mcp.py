"""`recollect mcp`: the memory for agents, over standard input and output."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.logs import log_to_stderr
from recollect.cli.options import common, notice, open_memory
from recollect.registry import missing_package

if TYPE_CHECKING:
    from recollect.memory import Memory

SIGNALS = (signal.SIGTERM, signal.SIGINT)

GRACE_SECONDS = 5.0
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
    with open_memory(options) as memory, _ending(memory):
        server = build(memory, read_only=read_only)
        try:
            server.run("stdio")
        except* BrokenPipeError:
            notice("the client has gone")
    return 0


@contextlib.contextmanager
def _ending(memory: Memory) -> Iterator[None]:
    """SIGTERM and Ctrl-C close the memory and end the process: the thread that reads standard input cannot be woken."""

    def end(_number: int, _frame: FrameType | None) -> None:
        for name in SIGNALS:
            signal.signal(name, signal.SIG_IGN)
        late = threading.Timer(GRACE_SECONDS, os._exit, (0,))
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
