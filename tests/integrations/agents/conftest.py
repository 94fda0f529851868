"""An empty home, `recollect` on the PATH, and hooks run as an agent's program runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support import ROOT

from recollect import Memory
from recollect.config import Settings

PATIENT = "--budget-ms 30000"
"""On a machine that runs other tests beside this one, two seconds are too few to tell late from wrong."""

PLUGIN = ROOT / "integrations" / "claude-code"
BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def silent(self) -> bool:
        return (self.code, self.out) == (0, "")

    @property
    def context(self) -> str:
        """What the program puts before the model: the shape that its documentation has, and nothing beside it."""
        assert self.code == 0, self.err
        said = json.loads(self.out)
        assert said.keys() == {"hookSpecificOutput"}
        assert said["hookSpecificOutput"].keys() == {"hookEventName", "additionalContext"}
        assert isinstance(said["hookSpecificOutput"]["additionalContext"], str)
        return said["hookSpecificOutput"]["additionalContext"]


@dataclass
class Home:
    """A new user's home, in which commands are run as in their shell."""

    folder: Path
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def store(self) -> Path:
        return self.folder / "memory.db"

    @property
    def environment(self) -> dict[str, str]:
        folders = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "RECOLLECT_MODELS", "LOCALAPPDATA")
        return {
            **{name: str(self.folder / name.lower()) for name in folders},
            "PATH": f"{BIN}{os.pathsep}{os.defpath}",
            "RECOLLECT_STORE": str(self.store),
            "RECOLLECT_EMBEDDER": "hashing:64",
            "RECOLLECT_OFFLINE": "1",
            "CLAUDE_PLUGIN_ROOT": str(PLUGIN),
            "CLAUDE_PROJECT_DIR": str(self.folder),
            **self.extra,
        }

    @property
    def marks(self) -> Path:
        return self.folder / "xdg_cache_home" / "recollect" / "recalled"

    def shell(self, command: str, stdin: str | bytes = "", *, seconds: float = 60) -> Ran:
        """Run a command line in this home."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        words, place = ["/bin/sh", "-c", command], {"cwd": self.folder, "env": self.environment}
        start = time.monotonic()
        ran = subprocess.run(words, input=given, capture_output=True, timeout=seconds, check=False, **place)
        return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode(), time.monotonic() - start)

    def add(self, text: str, **fields: Any) -> None:
        """Remember a text, with the embedder that the commands will have."""
        with Memory.open(self.store, embedder=self.environment["RECOLLECT_EMBEDDER"], settings=Settings()) as memory:
            memory.add(text, **fields)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with nothing in it."""
    return Home(tmp_path)


@pytest.fixture
def kept(home: Home) -> Home:
    """A home whose memory has the place of the key."""
    home.add("The spare key of the boathouse is under the blue pot.", title="Key")
    return home


def hook_command(event: str) -> str:
    """The command of the plugin's hook for an event."""
    (group,) = json.loads((PLUGIN / "hooks" / "hooks.json").read_text())["hooks"][event]
    (entry,) = group["hooks"]
    return entry["command"]


@pytest.fixture
def submit() -> Callable[..., Ran]:
    """Sends a prompt in a session to the plugin's hook like Claude Code, with more time by default."""

    def run(home: Home, prompt: Any, session: str = "one", flags: str = PATIENT, **fields: Any) -> Ran:
        said = {
            "session_id": session,
            "transcript_path": str(home.folder / "transcript.jsonl"),
            "cwd": str(home.folder),
            "permission_mode": "default",
            "hook_event_name": "UserPromptSubmit",
            "prompt": prompt,
            **fields,
        }
        command = hook_command("UserPromptSubmit")
        return home.shell(command.replace("--hook", f"--hook {flags}".rstrip()), json.dumps(said))

    return run


@pytest.fixture
def begin() -> Callable[..., Ran]:
    """Begins a session, as Claude Code reports it to the plugin's hook."""

    def run(home: Home, source: str, session: str = "one") -> Ran:
        said = {"session_id": session, "cwd": str(home.folder), "hook_event_name": "SessionStart", "source": source}
        return home.shell(hook_command("SessionStart"), json.dumps(said))

    return run
