"""Claude Code, Codex, Gemini CLI and OpenCode with our hooks and server, and a model that always answers the same.

`make torture` installs them into `.agents` where npm is present; `make .agents/.installed` does so alone.
"""

import json
import os
import re
import sys
import time
from pathlib import Path

import pytest
from support import ROOT
from support.model import ANSWER, CALL, TOOL, ModelServer

from recollect import Memory
from recollect.config import Settings
from recollect.integrations.hooks import PROGRAMS

PROGRAMS_BIN = ROOT / ".agents" / "node_modules" / ".bin"
QUESTION = "Where is the spare key of the boathouse?"
REQUEST = f"Please {CALL} and print its output."
SECONDS = 300  # for a program that needs five seconds on a machine that runs nothing else
KEY = "under the blue pot"
ENVIRONMENT = {  # no telemetry and no updates; all tools in the first request; a server may be slow to start
    "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "MCP_CONNECT_TIMEOUT_MS": "120000", "MCP_CONNECTION_NONBLOCKING": "0", "MCP_TIMEOUT": "120000",
    "ENABLE_TOOL_SEARCH": "false", "GEMINI_TELEMETRY_ENABLED": "false", "GEMINI_CLI_TRUST_WORKSPACE": "true",
}  # fmt: skip
FIRST = {
    "claude-code": f"claude -p --allowedTools mcp__memory__{TOOL} --",
    "codex": "codex exec --skip-git-repo-check --dangerously-bypass-hook-trust",
    "gemini": "gemini -m gemini-2.5-flash -p",
    "opencode": "opencode run",
}
NEXT = {
    "claude-code": f"claude --continue -p --allowedTools mcp__memory__{TOOL} --",
    "codex": "codex exec resume --last --skip-git-repo-check --dangerously-bypass-hook-trust "
    "-c mcp_servers.memory.required=true -c mcp_servers.memory.startup_timeout_sec=120",
    "gemini": "gemini -m gemini-2.5-flash --resume latest -p",
}
ADD_SERVER = {
    "claude-code": "claude mcp add memory -- recollect",
    "codex": "codex mcp add memory -- recollect",
    "gemini": "gemini mcp add --trust -s user memory recollect",
}
CODEX = """
model = "stub"
model_provider = "stub"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.stub]
name = "stub"
base_url = "{url}/v1"
env_key = "ANTHROPIC_API_KEY"
wire_api = "responses"
"""


@pytest.fixture
def model():
    """The model that the programs talk to."""
    with ModelServer() as server:
        yield server


@pytest.fixture
def prepared(kept, model, request):
    """A home whose memory has the place of the key, with the settings that a program needs to reach the model."""
    program = request.param
    word = FIRST[program].split()[0]
    if not (PROGRAMS_BIN / word).exists():
        pytest.skip(f"{word} is not installed here: make .agents/.installed, with npm")
    key = {"ANTHROPIC_API_KEY": "none", "GEMINI_API_KEY": "none"}
    urls = dict.fromkeys(("ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL"), model.url)
    path = os.pathsep.join((str(Path(sys.executable).parent), str(PROGRAMS_BIN), os.defpath))
    kept.extra |= {**ENVIRONMENT, **key, **urls, "PATH": path}
    folder = Path(kept.environment["HOME"])
    for name in (".codex", ".gemini"):
        (folder / name).mkdir(parents=True)
    (folder / ".codex" / "config.toml").write_text(CODEX.format(url=model.url))
    (folder / ".gemini" / "settings.json").write_text('{"security": {"auth": {"selectedType": "gemini-api-key"}}}')
    return program, kept


@pytest.fixture
def opencode(prepared, model):
    """A home in which OpenCode has the model, and the package that it else fetches for every folder of plug-ins."""
    _, home = prepared
    folder = home.folder / "xdg_config_home" / "opencode"
    folder.mkdir(parents=True)
    options = {"baseURL": f"{model.url}/v1", "apiKey": "none"}
    models = {"stub": {"limit": {"context": 100_000, "output": 1000}}}
    provider = {"npm": "@ai-sdk/anthropic", "options": options, "models": models}
    settings = {"autoupdate": False, "share": "disabled", "model": "stub/stub", "provider": {"stub": provider}}
    (folder / "opencode.json").write_text(json.dumps(settings))
    version = json.loads((ROOT / ".agents/node_modules/@opencode-ai/plugin/package.json").read_text())["version"]
    (folder / "package.json").write_text(json.dumps({"dependencies": {"@opencode-ai/plugin": version}}))
    (folder / "node_modules").symlink_to(ROOT / ".agents" / "node_modules")
    home.extra |= {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}
    return home


def patient(file):
    """Give the installed hooks more time: other tests use the machine, too."""
    text = file.read_text().replace("recall --hook", "recall --hook --budget-ms 30000")
    file.write_text(re.sub(r'"timeout": [35]', '"timeout": 60', text))


def captured(home, count):
    """The turns of Ada's sessions, in order, when there are so many."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with Memory.open(home.store, embedder="none", settings=Settings()) as memory:
            turns = memory.list(kind="turn", limit=100, user="ada")
        if len(turns) >= count:
            break
        time.sleep(0.2)
    return sorted(turns, key=lambda turn: turn.time)


@pytest.mark.torture
@pytest.mark.parametrize("prepared", PROGRAMS, indirect=True)
def test_program_recalls_captures_and_calls_a_tool(prepared, model):
    """The block reaches the model once, each turn is stored once, and a tool of the server is called."""
    program, home = prepared
    assert home.shell(f"recollect hook install {program} --capture --user ada").code == 0
    patient(Path(home.environment["HOME"]) / PROGRAMS[program].file)
    ran = home.shell(f"{ADD_SERVER[program]} mcp --store {home.store} --embedder hashing:64", seconds=SECONDS)
    assert ran.code == 0, ran.err

    ran = home.shell(f"{FIRST[program]} '{QUESTION}'", seconds=SECONDS)
    assert (ran.code, ANSWER in ran.out) == (0, True), ran.out + ran.err
    assert model.prompts[-1].count(KEY) == 1
    first = captured(home, 2)
    assert [(turn.author, turn.text) for turn in first] == [("user", QUESTION), ("assistant", ANSWER)]

    ran = home.shell(f"{NEXT[program]} '{REQUEST}'", seconds=SECONDS)
    assert (ran.code, ANSWER in ran.out) == (0, True), ran.out + ran.err
    assert model.prompts[-1].count(KEY) == 1
    assert all(name in model.prompts[-1] for name in ("memory_search", "memory_recall", "memory_store"))
    assert re.search(r"records\W+total\W+1\b", model.prompts[-1])
    turns = captured(home, 4)
    assert [turn.id for turn in turns[:2]] == [turn.id for turn in first]
    assert [(turn.author, turn.text) for turn in turns[2:]] == [("user", REQUEST), ("assistant", ANSWER)]
    assert len({turn.author_session for turn in turns}) == 1
    assert all(turn.source == program and turn.happened_at for turn in turns)
    if program == "claude-code":
        ran = home.shell(f"claude --continue --fork-session -p -- '{QUESTION}'", seconds=SECONDS)
        assert (ran.code, ANSWER in ran.out) == (0, True), ran.out + ran.err
        forked = captured(home, 6)
        assert [turn.id for turn in forked[:4]] == [turn.id for turn in turns]
        assert {turn.author_session for turn in forked[4:]}.isdisjoint(turn.author_session for turn in turns)
    log = home.folder / "xdg_cache_home" / "recollect" / "captured" / "capture.log"
    assert not log.exists(), log.read_text()


@pytest.mark.torture
@pytest.mark.parametrize("prepared", ["opencode"], indirect=True)
def test_opencode_recalls_and_captures(opencode, model):
    """The block reaches the model and is no turn; each turn is stored once; nothing is left in the temporary folder."""
    opencode.extra["TMPDIR"] = str(opencode.folder / "tmp")
    (opencode.folder / "tmp").mkdir()
    assert opencode.shell("recollect hook install opencode --capture --user ada").code == 0
    plugin = opencode.folder / "xdg_config_home" / "opencode" / "plugin" / "recollect.js"
    plugin.write_text(
        plugin.read_text().replace('"--hook"', '"--hook", "--budget-ms", "30000"').replace("5000", "60000")
    )
    for command in ("opencode run", "opencode run --continue"):
        ran = opencode.shell(f"{command} '{QUESTION}'", seconds=SECONDS)
        assert (ran.code, ANSWER in ran.out) == (0, True), ran.out + ran.err
        assert model.prompts[-1].count(KEY) == 1
    turns = captured(opencode, 4)
    assert [(turn.author, turn.text.strip('"')) for turn in turns] == [("user", QUESTION), ("assistant", ANSWER)] * 2
    assert {turn.source for turn in turns} == {"opencode"}
    assert len({turn.author_session for turn in turns}) == 1
    end = time.monotonic() + 60
    while (left := [*(opencode.folder / "tmp").glob("recollect-*")]) and time.monotonic() < end:
        time.sleep(0.2)
    assert left == []
    assert opencode.shell("recollect hook uninstall opencode").code == 0
    assert not plugin.exists()
