"""What lets a system run the watch by itself: units for systemd, property lists for launchd.

A service is two things for the same folders: a watch, and a mirror that runs every ten minutes, for places where
watching cannot work (network drives, too many folders). Both are written; one of them is switched on.
"""

from __future__ import annotations

import hashlib
import os
import plistlib
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from recollect.errors import FailedError, UsageError

Platform: TypeAlias = Literal["systemd", "launchd"]

EVERY_SECONDS = 600
RESTART_SECONDS = 30
"""How long a watch that failed waits before it is started again: a drive may be mounted by then."""


@dataclass(frozen=True, slots=True)
class UnitFile:
    """A file that the system reads."""

    path: Path
    text: str


@dataclass(frozen=True, slots=True)
class Service:
    """What is to be run: `recollect watch`, its flags and its folders, all of them absolute."""

    folders: tuple[Path, ...]
    flags: tuple[str, ...] = ()
    timer: bool = False

    @property
    def name(self) -> str:
        """Of this set of folders: the first one's name to read, a hash of all of them to tell them apart."""
        paths = sorted(str(folder) for folder in self.folders)
        word = re.sub(r"[^a-z0-9]+", "-", self.folders[0].name.lower()).strip("-")[:24]
        mark = hashlib.blake2b("\0".join(paths).encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()
        return "-".join(filter(None, (word, mark)))

    def command(self, *more: str) -> list[str]:
        """The command in full."""
        words = [*executable(), "watch", *more, *self.flags, *map(str, self.folders)]
        try:
            "".join(words).encode()
        except UnicodeEncodeError:
            raise UsageError(
                "a service cannot name a path that is not UTF-8", hint="rename the folder, or run `recollect watch`"
            ) from None
        return words


def native_platform() -> Platform:
    """What this machine has."""
    return "launchd" if sys.platform == "darwin" else "systemd"


def executable() -> list[str]:
    """How to run what is running now, from any folder and without its environment being active."""
    beside = Path(sysconfig.get_path("scripts")) / "recollect"
    found = str(beside) if beside.is_file() else shutil.which("recollect")
    return [str(Path(found).absolute())] if found else [sys.executable, "-m", "recollect"]


def units(service: Service, platform: Platform) -> list[UnitFile]:
    """The files of a service."""
    return list(_systemd(service) if platform == "systemd" else _launchd(service))


def installed(platform: Platform, name: str | None = None) -> list[Path]:
    """The files that are there, of one service or of all."""
    before, after, ends = ("recollect-", "-", ("service", "timer")) if platform == "systemd" else _LAUNCHD_NAMES
    found = (
        path
        for kind in ("watch", "mirror")
        for end in ends
        for path in _folder(platform).glob(f"{before}{kind}{after}{name or '*'}.{end}")
    )
    return sorted(found)


def enable_commands(service: Service, platform: Platform) -> list[list[str]]:
    """The commands that let a service run, now and after the next login, as its files say now."""
    if platform == "systemd":
        watch, timer = f"recollect-watch-{service.name}.service", f"recollect-mirror-{service.name}.timer"
        wanted, other = (timer, watch) if service.timer else (watch, timer)
        words = (("daemon-reload",), ("disable", "--now", other), ("enable", wanted), ("restart", wanted))
        return [["systemctl", "--user", *each] for each in words]
    watch, mirror = (str(_folder(platform) / f"recollect.{kind}.{service.name}.plist") for kind in ("watch", "mirror"))
    wanted, other = (mirror, watch) if service.timer else (watch, mirror)
    return [["launchctl", "unload", "-w", other], ["launchctl", "unload", wanted], ["launchctl", "load", "-w", wanted]]


def disable_commands(paths: Sequence[Path], platform: Platform) -> list[list[str]]:
    """The commands that end services, to be run before their files go."""
    if platform == "systemd":
        switched = [path.name for path in paths if path.name.startswith("recollect-watch-") or path.suffix == ".timer"]
        return [["systemctl", "--user", "disable", "--now", *switched]] if switched else []
    return [["launchctl", "unload", "-w", str(path)] for path in paths]


def reload_commands(platform: Platform) -> list[list[str]]:
    """The commands after files have gone."""
    return [["systemctl", "--user", "daemon-reload"]] if platform == "systemd" else []


def state(path: Path, platform: Platform) -> str:
    """What the system says of a unit: active, inactive, failed."""
    if platform == "systemd":
        return _run(["systemctl", "--user", "is-active", path.name]).stdout.strip() or "unknown"
    return "active" if _run(["launchctl", "list", path.stem]).returncode == 0 else "inactive"


def reachable(platform: Platform) -> bool:
    """Whether the system's manager of services answers to this user, here and now."""
    asking = ["systemctl", "--user", "show-environment"] if platform == "systemd" else ["launchctl", "list"]
    if platform != native_platform() or shutil.which(asking[0]) is None:
        return False
    return _run(asking).returncode == 0


def run(commands: Sequence[Sequence[str]]) -> None:
    """Run the manager's commands, and stop at the first that fails."""
    for command in commands:
        done = _run(command)
        if done.returncode:
            raise FailedError(
                f"`{' '.join(command)}` failed: {done.stderr.strip() or f'exit {done.returncode}'}",
                hint="the files are written; run it again by hand when that is mended",
            )


def write(files: Sequence[UnitFile]) -> None:
    """Write the files where the system looks for them."""
    for unit in files:
        try:
            unit.path.parent.mkdir(parents=True, exist_ok=True)
            unit.path.write_text(unit.text, encoding="utf-8")
        except OSError as error:
            raise FailedError(
                f"{unit.path} cannot be written: {error.strerror}", hint="`--print` shows it; put it there by hand"
            ) from error


_LAUNCHD_NAMES = ("recollect.", ".", ("plist",))


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603  (a list, no shell)


def _folder(platform: Platform) -> Path:
    if platform == "launchd":
        return Path.home() / "Library" / "LaunchAgents"
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"


def _systemd(service: Service) -> Iterator[UnitFile]:
    folder, name = _folder("systemd"), service.name
    watch = f"""\
[Unit]
Description=Recollect watches folders ({name})

[Service]
Type=exec
ExecStart={_quoted(service.command())}
Restart=on-failure
RestartSec={RESTART_SECONDS}
Nice=10

[Install]
WantedBy=default.target
"""
    mirror = f"""\
[Unit]
Description=Recollect mirrors folders once ({name})

[Service]
Type=oneshot
ExecStart={_quoted(service.command("--once"))}
Nice=10
"""
    timer = f"""\
[Unit]
Description=Recollect mirrors folders every ten minutes ({name})

[Timer]
OnActiveSec=0
OnUnitActiveSec={EVERY_SECONDS}

[Install]
WantedBy=timers.target
"""
    yield UnitFile(folder / f"recollect-watch-{name}.service", watch)
    yield UnitFile(folder / f"recollect-mirror-{name}.service", mirror)
    yield UnitFile(folder / f"recollect-mirror-{name}.timer", timer)


def _quoted(command: Sequence[str]) -> str:
    """A command line for ExecStart: every word in quotes; %, $, quotes and backslashes mean themselves."""
    program, *words = (_escaped(word) for word in command)
    # The program's own path is not searched for variables, so that a dollar in it must stay single.
    return " ".join(f'"{word}"' for word in (program, *(word.replace("$", "$$") for word in words)))


def _escaped(word: str) -> str:
    word = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return "".join(f"\\x{ord(letter):02x}" if ord(letter) < ord(" ") else letter for letter in word)


def _launchd(service: Service) -> Iterator[UnitFile]:
    folder, name = _folder("launchd"), service.name
    log = str(Path.home() / "Library" / "Logs" / f"recollect-{name}.log")
    both = {"RunAtLoad": True, "ProcessType": "Background", "StandardOutPath": log, "StandardErrorPath": log}
    watch = {
        "Label": f"recollect.watch.{name}",
        "ProgramArguments": service.command(),
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": RESTART_SECONDS,
        # launchd loads whatever lies in the folder at the next login, so that the one not wanted says so itself.
        "Disabled": service.timer,
    }
    mirror = {
        "Label": f"recollect.mirror.{name}",
        "ProgramArguments": service.command("--once"),
        "StartInterval": EVERY_SECONDS,
        "Disabled": not service.timer,
    }
    for job in (watch, mirror):
        yield UnitFile(folder / f"{job['Label']}.plist", plistlib.dumps(both | job, sort_keys=False).decode())
