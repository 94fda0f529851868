"""Which files of a workspace are read, and their text. Nothing outside of it is, whatever a glob or a link says."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path, PurePath

from recollect.errors import UsageError

MAX_FILE = 1024 * 1024
"""Bytes; at 800 characters a call, a longer file is a bill and not a note."""


def expand(workspace: Path, patterns: Sequence[str]) -> tuple[list[Path], dict[str, str]]:
    """The files that the globs name, each once, in their order; and what was skipped, with the reason."""
    if not workspace.is_dir():
        raise UsageError(f"the workspace {workspace} is not a folder", hint="name one with --workspace")
    root = workspace.resolve()
    files: dict[Path, Path] = {}
    skipped: dict[str, str] = {}
    for pattern in patterns:
        for path in sorted(_matches(root, pattern)):
            reason = _refusal(path, root)
            if reason is None:
                files.setdefault(path.resolve(), path)
            elif reason:
                skipped[str(path)] = reason
    return list(files), skipped


def read(path: Path) -> str:
    """The text of a file; raises ValueError with the reason where it has none."""
    try:
        if path.stat().st_size > MAX_FILE:
            raise ValueError(f"larger than {MAX_FILE // 1024 // 1024} MiB")
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(error.strerror or "cannot be read") from error
    if b"\0" in content:
        raise ValueError("not text")
    return content.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")


def _matches(root: Path, pattern: str) -> list[Path]:
    parts = PurePath(pattern)
    if not pattern.strip() or parts.is_absolute() or parts.drive or ".." in parts.parts:
        raise UsageError(
            f"the glob {pattern!r} does not stay inside the workspace", hint='for example "skills/**/*.md"'
        )
    try:
        return list(root.glob(pattern))
    except (ValueError, NotImplementedError) as error:  # pathlib's own, for a pattern it does not take
        raise UsageError(
            f"the glob {pattern!r} cannot be read: {error}", hint='for example "skills/**/*.md"'
        ) from error


def _refusal(path: Path, root: Path) -> str | None:
    """Why a path is not read: None where it is, an empty reason where nobody meant it (a folder)."""
    try:
        target = path.resolve(strict=True)
        mode = target.stat().st_mode
    except (OSError, RuntimeError):  # RuntimeError: a circle of links, before Python 3.13
        return "cannot be read"
    if not target.is_relative_to(root):
        return "a link out of the workspace"
    if stat.S_ISDIR(mode):
        return ""
    return None if stat.S_ISREG(mode) else "not a file"
