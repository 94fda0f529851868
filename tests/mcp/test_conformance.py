"""The protocol's own conformance suite and its inspector, against the real server.

`make ci` installs them into `.node` where npm is present; `make .node/.installed` does so alone.
"""

import json
import os
import subprocess

import pytest
from support import ROOT
from support.agents import READING, WRITING

BIN = ROOT / ".node" / "node_modules" / ".bin"
INSTALLED = {name: (BIN / name).exists() for name in ("conformance", "mcp-inspector")}

OURS = (
    "server-initialize", "ping", "tools-list", "server-sse-multiple-streams", "resources-list", "prompts-list",
    "dns-rebinding-protection",
)  # fmt: skip
"""Scenarios for any server. The others call tools, resources and prompts that only a server made for the suite has."""


def ran(*words, **environment):
    """A command that ended well, and what it said."""
    settings = {**os.environ, **environment, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [BIN / words[0], *words[1:]], capture_output=True, text=True, check=False, timeout=120, env=settings
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(
    not INSTALLED["conformance"], reason="the suite is not installed here: make .node/.installed, with npm"
)
@pytest.mark.parametrize("scenario", OURS)
def test_conformance_suite_passes(bare, scenario, tmp_path):
    """Each scenario for any server, over HTTP."""
    ran("conformance", "server", "--url", bare.url, "--scenario", scenario, "-o", str(tmp_path))


@pytest.mark.skipif(
    not INSTALLED["mcp-inspector"], reason="the inspector is not installed here: make .node/.installed, with npm"
)
@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_inspector_works(bare, served, tmp_path, transport):
    """Another client lists the tools and stores a fact, over either transport."""
    target = [bare.url] if transport == "http" else served.words()
    start = ["mcp-inspector", "--cli", *target, "--method"]
    home = {**served.environment, "HOME": str(tmp_path)}
    assert len(json.loads(ran(*start, "tools/list", **home))["tools"]) == len(READING | WRITING)
    call = ["tools/call", "--tool-name", "memory_store", "--tool-arg", "text=The kettle is in the shed."]
    stored = json.loads(ran(*start, *call, **home))
    assert stored["structuredContent"]["text"] == "The kettle is in the shed."
