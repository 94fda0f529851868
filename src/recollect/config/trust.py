"""The settings files of projects that the user trusts, by absolute path and SHA-256 of the content."""

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import NamedTuple

from recollect.disk import own_folder, write_private
from recollect.errors import UPGRADE, ConfigError, file_errors

PROJECT_FILE = "recollect.toml"
MOST_BYTES = 64 * 1024  # a larger project file is not read
VERSION = 1
OTHERS_WRITE = 0o022


class ProjectFile(NamedTuple):
    """A project's settings file, read once: the content that is checked is the content that is applied."""

    path: Path
    content: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return hashlib.sha256(self.content).hexdigest()


def read_project_file(path: Path) -> ProjectFile | None:
    """The file at `path`, or None; ConfigError if it is not a regular file, cannot be read, or is too large.

    A symbolic link is not followed, and reading never waits for a FIFO or a device.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        if path.is_symlink():
            raise _unusable(path, "is a symbolic link", "put the file itself there")
        if not path.exists():
            return None
        if not path.is_file():
            raise _unusable(path, "is not a regular file", "settings are a file of TOML")
        with os.fdopen(os.open(path, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _unusable(path, "is not a regular file", "settings are a file of TOML")
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise _unusable(path, f"cannot be read ({error.strerror})", "check the permissions of the file") from error
    if len(content) > MOST_BYTES:
        raise _unusable(path, f"is larger than {MOST_BYTES // 1024} KiB", "a project's settings are a few lines")
    return ProjectFile(project_path(path), content)


def project_path(path: Path) -> Path:
    """The absolute path of a project's file: links above it are resolved, the file itself is not followed."""
    return path.parent.resolve() / path.name


def _unusable(path: Path, reason: str, hint: str) -> ConfigError:
    return ConfigError(f"{project_path(path)} {reason}", hint=hint)


class TrustedFiles:
    """The list of trusted files, stored in the user's data folder."""

    def __init__(self) -> None:
        self.path = own_folder("data") / "trusted.json"

    def all(self) -> dict[str, str]:
        """Path → SHA-256 of every trusted file."""
        try:
            status = self.path.stat()
            if os.name == "posix" and (status.st_uid != os.geteuid() or status.st_mode & OTHERS_WRITE):
                raise ConfigError(f"other users may write to {self.path}", hint=f"delete it, or: chmod 600 {self.path}")
            stored = json.loads(self.path.read_text(encoding="utf-8"))
            if stored["version"] != VERSION:
                raise ConfigError(f"{self.path} is of version {stored['version']}", hint=UPGRADE)
            return {str(path): str(digest) for path, digest in stored["files"].items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            hint = f"delete {self.path}, then trust the files again"
            raise ConfigError(f"{self.path} cannot be read: {error}", hint=hint) from error

    def holds(self, file: ProjectFile) -> bool:
        """Whether this content at this path is trusted. A list that cannot be read trusts nothing."""
        try:
            return self.all().get(str(file.path)) == file.digest
        except ConfigError:
            return False

    def add(self, file: ProjectFile) -> None:
        """Trust this content at this path."""
        self._change(str(file.path), {str(file.path): file.digest})

    def remove(self, path: Path) -> bool:
        """Trust the file at this path no longer; whether it was trusted."""
        return self._change(str(project_path(path)), {})

    def _change(self, path: str, added: dict[str, str]) -> bool:
        from filelock import FileLock

        with file_errors(self.path, hint="check the folder"):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with FileLock(f"{self.path}.lock"):
                files = self.all()
                known = files.pop(path, None) is not None
                if known or added:
                    write_private(self.path, json.dumps({"version": VERSION, "files": files | added}, indent=1))
        return known
