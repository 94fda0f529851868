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


def trusted_list() -> Path:
    """The list of trusted files, in the user's data folder."""
    return own_folder("data") / "trusted.json"


def trusted_files() -> dict[str, str]:
    """Path → SHA-256 of every trusted file."""
    path = trusted_list()
    try:
        status = path.stat()
        if os.name == "posix" and (status.st_uid != os.geteuid() or status.st_mode & OTHERS_WRITE):
            raise ConfigError(f"other users may write to {path}", hint=f"delete it, or: chmod 600 {path}")
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["version"] != VERSION:
            raise ConfigError(f"{path} is of version {stored['version']}", hint=UPGRADE)
        return {str(file): str(digest) for file, digest in stored["files"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        hint = f"delete {path}, then trust the files again"
        raise ConfigError(f"{path} cannot be read: {error}", hint=hint) from error


def is_trusted(file: ProjectFile) -> bool:
    """Whether this content at this path is trusted. A list that cannot be read trusts nothing."""
    try:
        return trusted_files().get(str(file.path)) == file.digest
    except ConfigError:
        return False


def set_trusted(path: Path, digest: str | None) -> bool:
    """Trust the content with this digest at a path, or no content; whether one was trusted before."""
    from filelock import FileLock

    place, file = trusted_list(), str(project_path(path))
    with file_errors(place, hint="check the folder"):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(f"{place}.lock"):
            files = trusted_files()
            was_trusted = files.pop(file, None) is not None
            if was_trusted or digest:
                files |= {file: digest} if digest else {}
                write_private(place, json.dumps({"version": VERSION, "files": files}, indent=1))
    return was_trusted
