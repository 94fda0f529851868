"""What a folder asks to leave out: `.gitignore` and `.recollectignore`, nested, and what looks like a secret."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from recollect.ingest.globs import Globs, GlobWalk
from recollect.ingest.text import decode

IGNORE_FILES = (".gitignore", ".recollectignore")
"""The later one has the last word."""

MAX_BYTES, MAX_PATTERNS, MAX_LINE = 1024 * 1024, 50_000, 4096
"""Of one ignore file. The largest take a third of a second for each name, whatever their patterns are."""

READ_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
"""Not waiting, and not through a link: what was a file when it was listed may be a pipe by now."""

_SECRETS = (
    ".env*", "*.env", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "id_rsa*",
    "id_dsa*", "id_ecdsa*", "id_ed25519*", ".netrc", ".pgpass", ".npmrc", ".pypirc", ".htpasswd",
)  # fmt: skip
_PRIVATE_KEY = b"PRIVATE KEY-----"


class UnusableRules(Exception):
    """An ignore file that cannot be used. Nothing in its folder is read, since nobody knows what it keeps out."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(reason)
        self.path, self.reason = path, reason


@dataclass(frozen=True, slots=True)
class Rules:
    """The ignore files that hold in a folder, the nearest last: the nearest that says anything of a name decides."""

    walks: tuple[GlobWalk, ...] = ()

    def ignore(self, name: str, *, is_folder: bool = False) -> bool:
        """Whether what has this name in the folder is left out."""
        for walk in reversed(self.walks):
            decision = walk.decide(name, is_folder=is_folder)
            if decision is not None:
                return decision
        return False

    def enter(self, folder: Path) -> Rules:
        """The rules inside a folder of this folder, with its own ignore files; raises UnusableRules."""
        return Rules(tuple(walk.enter(folder.name) for walk in self.walks) + own_rules(folder))


def own_rules(folder: Path) -> tuple[GlobWalk, ...]:
    """The ignore files of one folder; raises UnusableRules where one is there and cannot be used."""
    paths = [folder / name for name in IGNORE_FILES]
    return tuple(Globs(_lines(path, text)).walk() for path in paths if (text := _read(path)))


def rules_at(root: Path) -> Rules | None:
    """The rules that hold in a root, with those of the folders above it in its Git repository; None if they ignore it.

    Raises UnusableRules.
    """
    chain = [root, *root.parents]
    top = next((at for at, folder in enumerate(chain) if (folder / ".git").exists()), 0)
    rules = Rules(own_rules(chain[top]))
    for folder in reversed(chain[:top]):
        if rules.ignore(folder.name, is_folder=True):
            return None
        rules = rules.enter(folder)
    return rules


def _read(path: Path) -> str:
    """An ignore file's text, empty where there is none. Links are not followed, and nothing but a file is opened."""
    try:
        kind = os.lstat(path).st_mode
        if stat.S_ISDIR(kind):
            return ""
        if stat.S_ISLNK(kind):
            raise UnusableRules(path, "a link, which is not followed")
        with open(os.open(path, READ_FLAGS), "rb") as file:  # noqa: PTH123  (of a descriptor)
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UnusableRules(path, "not a file")
            content = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise UnusableRules(path, (error.strerror or "cannot be read").lower()) from error
    if len(content) > MAX_BYTES:
        raise UnusableRules(path, f"larger than {MAX_BYTES // 1024 // 1024} MiB")
    return decode(content)


def _lines(path: Path, text: str) -> list[str]:
    lines = text.split("\n")
    if len(lines) > MAX_PATTERNS:
        raise UnusableRules(path, f"more than {MAX_PATTERNS:,} lines")
    if any(len(line) > MAX_LINE and not line.startswith("#") for line in lines):
        raise UnusableRules(path, f"a line longer than {MAX_LINE:,} characters")
    return lines


def looks_secret(name: str) -> bool:
    """By its name: keys, password stores, environments."""
    low = name.lower()
    bare_identity = low.startswith("id_") and "." not in low
    return not low.endswith((".md", ".markdown")) and (
        bare_identity or any(fnmatchcase(low, pattern) for pattern in _SECRETS)
    )


def holds_key(head: bytes) -> bool:
    """By its first line: a private key under any name."""
    return head.startswith(b"-----BEGIN") and _PRIVATE_KEY in head.partition(b"\n")[0]
