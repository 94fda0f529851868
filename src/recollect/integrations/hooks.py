"""Hooks of agent programs: the entries of their settings that recall and capture, added and removed."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from recollect.disk import write_private
from recollect.errors import FailedError, UsageError, file_errors
from recollect.ingest.service import executable

RECALL, CAPTURE = "recall --hook", "hook capture"
OURS = re.compile(rf"\brecollect(?:\.exe)?'? (?:{RECALL}|{CAPTURE})")  # identifies our own entries


class Program(NamedTuple):
    """An agent program: its settings, the events of its hooks, and how many of its units of time a second has.

    `recall` maps each event to the matcher of its hook.
    """

    file: str
    variable: str  # the environment variable that names another folder for the settings, if there is one
    recall: Mapping[str, str] = MappingProxyType({"UserPromptSubmit": "", "SessionStart": "clear|compact"})
    capture: tuple[str, ...] = ("Stop", "PreCompact", "SessionEnd")
    second: int = 1

    @property
    def path(self) -> Path:
        """The settings file of this user."""
        folder, _, name = self.file.rpartition("/")
        home = os.environ.get(self.variable) if self.variable else None
        return (Path(home) if home else Path.home() / folder) / name


PROGRAMS: Mapping[str, Program] = {
    "claude-code": Program(".claude/settings.json", "CLAUDE_CONFIG_DIR"),
    "codex": Program(".codex/hooks.json", "CODEX_HOME"),
    "gemini": Program(
        ".gemini/settings.json", "", {"BeforeAgent": "", "SessionStart": "clear"},
        ("AfterAgent", "PreCompress", "SessionEnd"), second=1000,
    ),
}  # fmt: skip
OPENCODE = "opencode"  # it has no settings for hooks: a plug-in of ours runs the commands
RECALL_SECONDS, CAPTURE_SECONDS = 5, 3  # Codex allows no more than 3 at the end of a session


def command() -> list[str]:
    """The words that run this installation: `recollect` if the program finds that on its PATH, else the whole path.

    The folder of a virtual environment is on the PATH only of shells in which the environment is active.
    """
    running, on_path = executable(), shutil.which("recollect")
    if on_path is None or Path(on_path).resolve() != Path(running[0]).resolve():
        return running
    in_environment = sys.prefix != sys.base_prefix and Path(on_path).parent == Path(running[0]).parent
    return running if in_environment else ["recollect"]


class Plan(NamedTuple):
    """What a program's file will hold: its text, the events of our hooks, and our plugin that recalls as well."""

    path: Path
    text: str  # empty: the file is ours alone and has nothing to do
    events: list[str]
    plugin: str = ""


def plan(
    program: str, words: Sequence[str] = (), flags: Sequence[str] = (), *, recall: bool = False, capture: bool = False,
    more: Sequence[str] = (),
) -> Plan:  # fmt: skip
    """A program's file with these hooks in the place of earlier ones. `words` run Recollect; `more` is for capture."""
    recalling = [*words, *RECALL.split(), *flags] if recall else []
    capturing = [*words, *CAPTURE.split(), *flags, *more] if capture else []
    if program == OPENCODE:
        events = ["recall"] * recall + ["capture"] * capture
        return Plan(_opencode_plugin(), _opencode_text(recalling, capturing) if events else "", events)
    hooks = _entries(PROGRAMS[program], recalling, capturing)
    settings = _installed(PROGRAMS[program], hooks)
    text = f"{json.dumps(settings, indent=2, ensure_ascii=False)}\n"
    return Plan(PROGRAMS[program].path, text, list(hooks), _plugin_of(settings))


def _opencode_plugin() -> Path:
    """The place of our plug-in for OpenCode."""
    home = os.environ.get("OPENCODE_CONFIG_DIR") or os.environ.get("XDG_CONFIG_HOME")
    folder = Path(home) if home else Path.home() / ".config"
    return folder / ("" if os.environ.get("OPENCODE_CONFIG_DIR") else OPENCODE) / "plugin" / "recollect.js"


def _opencode_text(recalling: Sequence[str], capturing: Sequence[str]) -> str:
    """The plug-in for OpenCode with its commands."""
    text = files("recollect.integrations").joinpath("opencode.js").read_text(encoding="utf-8")
    for name, line in (("RECALL", recalling), ("CAPTURE", capturing)):
        text = text.replace(f"const {name} = [];", f"const {name} = {json.dumps(line)};", 1)
    return text


def _entries(program: Program, recalling: Sequence[str], capturing: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """The hooks to add, by event, which run these commands; none of one that is empty."""
    hooks: dict[str, list[dict[str, Any]]] = {}
    for event, matcher in program.recall.items() if recalling else ():
        hooks[event] = [_entry(recalling, RECALL_SECONDS * program.second, matcher)]
    for event in program.capture if capturing else ():
        hooks.setdefault(event, []).append(_entry(capturing, CAPTURE_SECONDS * program.second))
    return hooks


def _entry(words: Sequence[str], timeout: int, matcher: str = "") -> dict[str, Any]:
    # The command always exits with 0: a program stops when a hook exits with 2.
    line = f"command -v {shlex.quote(words[0])} >/dev/null 2>&1 && {shlex.join(words)}; exit 0"
    hook = {"type": "command", "command": line, "timeout": timeout}
    return {**({"matcher": matcher} if matcher else {}), "hooks": [hook]}


def _installed(program: Program, hooks: Mapping[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The settings of a program with these hooks in the place of earlier ones of ours; all else stays as it is."""
    settings = _read(program.path)
    events = settings.get("hooks", {})
    if not isinstance(events, dict):
        raise UsageError(f"`hooks` in {program.path} is not an object", hint="correct the file, then run it again")
    groups_of = {
        event: [group for group in groups if not _is_ours(group)] if isinstance(groups, list) else groups
        for event, groups in events.items()
    }
    for event, groups in hooks.items():
        others = groups_of.get(event)
        groups_of[event] = [*(others if isinstance(others, list) else ()), *groups]
    filled = {event: groups for event, groups in groups_of.items() if groups != []}
    rest = {name: value for name, value in settings.items() if name != "hooks"}
    return {**rest, **({"hooks": filled} if filled else {})}


def _plugin_of(settings: Mapping[str, Any]) -> str:
    """The name of our plugin, if the settings of Claude Code enable it."""
    plugins = settings.get("enabledPlugins")
    names = plugins if isinstance(plugins, dict) else {}
    return next((name for name, on in names.items() if on and name.startswith("recollect@")), "")


def _is_ours(group: object) -> bool:
    hooks = group.get("hooks") if isinstance(group, dict) else None
    commands = [str(one.get("command")) for one in hooks or () if isinstance(one, dict)]
    return any(map(OURS.search, commands))


def _read(path: Path) -> dict[str, Any]:
    try:
        content = path.read_text(encoding="utf-8")
        settings = json.loads(content) if content.strip() else {}
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}", hint="correct the file, or use --print") from error
    except OSError as error:
        raise FailedError(f"{path} cannot be read: {error.strerror or error}") from error
    if not isinstance(settings, dict):
        raise UsageError(f"{path} is not a JSON object", hint="correct the file, or use --print")
    return settings


def write(path: Path, text: str) -> None:
    """Write the settings file or the plug-in of a program."""
    with file_errors(path, hint="--print prints it"):
        place = path.resolve()  # a link stays one
        place.parent.mkdir(parents=True, exist_ok=True)
        write_private(place, text, like=place if place.exists() else None)
