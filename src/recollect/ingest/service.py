"""Unit files for systemd and launchd: one watches folders, one indexes them by a timer; one of both is enabled."""

import hashlib
import os
import plistlib
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Any, Literal, TypeAlias

from recollect.errors import FailedError, UsageError, file_errors
from recollect.ingest.discovery import is_unicode

Platform: TypeAlias = Literal["systemd", "launchd"]

INTERVAL_SECONDS = 600
RESTART_SECONDS = 30  # time before a watch that failed is started again: a drive may be mounted by then


@dataclass(frozen=True, slots=True)
class Service:
    """`recollect watch` with its flags and folders, all absolute. `timer` enables indexing every ten minutes."""

    folders: tuple[Path, ...]
    flags: tuple[str, ...] = ()
    timer: bool = False

    @property
    def name(self) -> str:
        """The first folder's name, and a hash of all folders."""
        paths = sorted(str(folder) for folder in self.folders)
        word = re.sub(r"[^a-z0-9]+", "-", self.folders[0].name.lower()).strip("-")[:24]
        mark = hashlib.blake2b("\0".join(paths).encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()
        return "-".join(filter(None, (word, mark)))

    def command(self, *more: str) -> list[str]:
        """The command line."""
        words = [*executable(), "watch", *more, *self.flags, *map(str, self.folders)]
        if not is_unicode("".join(words)):
            hint = "rename the folder, or run `recollect watch`"
            raise UsageError("a service cannot name a path that is not UTF-8", hint=hint)
        return words


def native_platform() -> Platform:
    """The service manager of this machine."""
    return "launchd" if sys.platform == "darwin" else "systemd"


def executable() -> list[str]:
    """The command that runs this installation from any folder, without its environment being active."""
    script = Path(sysconfig.get_path("scripts")) / "recollect"
    path = str(script) if script.is_file() else shutil.which("recollect")
    return [str(Path(path).absolute())] if path else [sys.executable, "-P", "-m", "recollect"]


def units(service: Service, platform: Platform) -> dict[Path, str]:
    """The files of a service, which the service manager reads, with their text."""
    texts = _systemd_units(service) if platform == "systemd" else _launchd_units(service)
    return {_folder(platform) / name: text for name, text in texts.items()}


def installed(platform: Platform, name: str | None = None) -> list[Path]:
    """The installed files of one service, or of all."""
    pattern = {"systemd": "recollect-{}-{}.*", "launchd": "recollect.{}.{}.plist"}[platform]
    globs = [pattern.format(kind, name or "*") for kind in ("watch", "mirror")]
    paths = (path for glob in globs for path in _folder(platform).glob(glob))
    return sorted(path for path in paths if path.suffix in (".service", ".timer", ".plist"))


def enable_commands(service: Service, platform: Platform) -> list[list[str]]:
    """The commands that start a service now and at every login, with its files as they are now."""
    if platform == "systemd":
        names = [f"recollect-watch-{service.name}.service", f"recollect-mirror-{service.name}.timer"]
        chosen, other = reversed(names) if service.timer else names
        words = (("daemon-reload",), ("disable", "--now", other), ("enable", chosen), ("restart", chosen))
        return [["systemctl", "--user", *each] for each in words]
    paths = [str(_folder(platform) / f"recollect.{kind}.{service.name}.plist") for kind in ("watch", "mirror")]
    chosen, other = reversed(paths) if service.timer else paths
    return [["launchctl", "unload", "-w", other], ["launchctl", "unload", chosen], ["launchctl", "load", "-w", chosen]]


def disable_commands(paths: Sequence[Path], platform: Platform) -> list[list[str]]:
    """The commands that stop services, to be run before their files are deleted."""
    if platform == "systemd":
        names = [path.name for path in paths if path.name.startswith("recollect-watch-") or path.suffix == ".timer"]
        return [["systemctl", "--user", "disable", "--now", *names]] if names else []
    return [["launchctl", "unload", "-w", str(path)] for path in paths]


def reload_commands(platform: Platform) -> list[list[str]]:
    """The commands to run after files were deleted."""
    return [["systemctl", "--user", "daemon-reload"]] if platform == "systemd" else []


def state(path: Path, platform: Platform) -> str:
    """The state of a unit: active, inactive, failed."""
    if platform == "systemd":
        return _run(["systemctl", "--user", "is-active", path.name]).stdout.strip() or "unknown"
    return "active" if _run(["launchctl", "list", path.stem]).returncode == 0 else "inactive"


def reachable(platform: Platform) -> bool:
    """Whether the service manager of this user answers."""
    command = ["systemctl", "--user", "show-environment"] if platform == "systemd" else ["launchctl", "list"]
    is_here = platform == native_platform() and shutil.which(command[0])
    return bool(is_here) and _run(command).returncode == 0


def run(commands: Sequence[Sequence[str]]) -> None:
    """Run commands of the service manager; raises FailedError at the first that fails."""
    for command in commands:
        done = _run(command)
        if done.returncode:
            reason = done.stderr.strip() or f"exit {done.returncode}"
            hint = "the files are written; correct the cause and run the command again"
            raise FailedError(f"`{' '.join(command)}` failed: {reason}", hint=hint)


def write(files: Mapping[Path, str]) -> None:
    """Write the files where the service manager looks for them."""
    for path, text in files.items():
        with file_errors(path, hint="`--print` prints the file; write it there by hand"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603  (a list, no shell)


def _folder(platform: Platform) -> Path:
    if platform == "launchd":
        return Path.home() / "Library" / "LaunchAgents"
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"


def _systemd_units(service: Service) -> dict[str, str]:
    name = service.name
    watch = {"Type": "exec", "ExecStart": _quoted(service.command())}
    restart = {"Restart": "on-failure", "RestartSec": RESTART_SECONDS}
    sections: dict[str, dict[str, dict[str, Any]]] = {
        f"recollect-watch-{name}.service": {
            "Unit": {"Description": f"Recollect watches folders ({name})"},
            "Service": watch | restart | {"Nice": 10},
            "Install": {"WantedBy": "default.target"},
        },
        f"recollect-mirror-{name}.service": {
            "Unit": {"Description": f"Recollect indexes folders once ({name})"},
            "Service": {"Type": "oneshot", "ExecStart": _quoted(service.command("--once")), "Nice": 10},
        },
        f"recollect-mirror-{name}.timer": {
            "Unit": {"Description": f"Recollect indexes folders every ten minutes ({name})"},
            "Timer": {"OnActiveSec": 0, "OnUnitActiveSec": INTERVAL_SECONDS},
            "Install": {"WantedBy": "timers.target"},
        },
    }
    return {file: "\n".join(starmap(_section, parts.items())) for file, parts in sections.items()}


def _section(name: str, values: Mapping[str, Any]) -> str:
    return f"[{name}]\n" + "".join(f"{key}={value}\n" for key, value in values.items())


def _quoted(command: Sequence[str]) -> str:
    """A command line for ExecStart: every word in quotes; %, $, quotes and backslashes are literal."""
    table = {code: f"\\x{code:02x}" for code in range(ord(" "))}
    table |= {ord("\\"): "\\\\", ord('"'): '\\"', ord("%"): "%%"}
    program, *words = (word.translate(table) for word in command)
    # systemd expands no variables in the program's own path, so a dollar there stays single.
    return " ".join(f'"{word}"' for word in (program, *(word.replace("$", "$$") for word in words)))


def _launchd_units(service: Service) -> dict[str, str]:
    log = str(Path.home() / "Library" / "Logs" / f"recollect-{service.name}.log")
    common = {"RunAtLoad": True, "ProcessType": "Background", "StandardOutPath": log, "StandardErrorPath": log}
    # launchd loads every file in the folder at the next login, so the one that is not used is disabled in itself.
    watch = {
        "Label": f"recollect.watch.{service.name}",
        "ProgramArguments": service.command(),
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": RESTART_SECONDS,
        "Disabled": service.timer,
    }
    index = {
        "Label": f"recollect.mirror.{service.name}",
        "ProgramArguments": service.command("--once"),
        "StartInterval": INTERVAL_SECONDS,
        "Disabled": not service.timer,
    }
    return {f"{job['Label']}.plist": plistlib.dumps(common | job, sort_keys=False).decode() for job in (watch, index)}
