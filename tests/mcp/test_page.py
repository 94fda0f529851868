"""docs/mcp.md agrees with the server."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import get_args

import click
from support import DOCS

from recollect import mcp
from recollect.cli import app
from recollect.cli.serve import PORT
from recollect.config import Settings
from recollect.mcp import build
from recollect.memory import shapes
from recollect.options import RECALL_TOKENS
from recollect.ranking import HALF_LIVES
from recollect.web.app import MOST_SESSIONS
from recollect.web.middleware import MOST_BYTES

PAGE = (DOCS / "mcp.md").read_text(encoding="utf-8")


def test_page_lists_every_tool(memory):
    """Names and effects equal the annotations."""
    import anyio

    with ThreadPoolExecutor(1) as pool:  # a browser test leaves an event loop running in this thread
        listed = pool.submit(anyio.run, build(memory).list_tools).result()
    rows = dict(re.findall(r"^\| `(memory_\w+)` \|.*\| (no|adds|yes) \|$", PAGE, flags=re.MULTILINE))
    tools = {tool.name: tool.annotations for tool in listed}
    words = {(True, None): "no", (False, False): "adds", (False, True): "yes"}
    assert rows == {name: words[told.read_only_hint, told.destructive_hint] for name, told in tools.items()}


def test_client_settings_start_the_command():
    """Each block is JSON with existing flags."""
    command = app.get_command(click.Context(app), "mcp")
    known = {flag for option in command.params for flag in option.opts}
    blocks = [json.loads(text) for text in re.findall(r"^```json\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)]
    assert len(blocks) == 2
    for (servers,) in (block.values() for block in blocks):
        first, *words = servers["memory"]["args"]
        assert first == "mcp"
        assert {word for word in words if word.startswith("--")} <= known


def test_documented_numbers_equal_the_code():
    """Limits, and the decay classes."""
    assert f"{shapes.BRIEF_CHARACTERS:,} characters" in PAGE
    assert f"reads {shapes.READ_CHARACTERS:,} characters at once" in PAGE
    assert f"({RECALL_TOKENS} by default)" in PAGE
    assert f"more than {MOST_BYTES // 2**20} MiB" in PAGE
    assert f"{MOST_SESSIONS:,} sessions of one caller" in PAGE
    assert f"http://127.0.0.1:{PORT}/mcp" in PAGE
    assert set(get_args(get_args(mcp.FACT["decay"][0])[0])) == {"", *HALF_LIVES}
    assert Settings().search.limit == mcp.OPTIONS["limit"][1]
