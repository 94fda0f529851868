"""What a folder asks to leave out: `.gitignore` and `.recollectignore`, nested, and what looks like a secret."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.ingest.text import decode

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILES = (".gitignore", ".recollectignore")
"""The later one has the last word."""

_SECRETS = (
    ".env*", "*.env", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "id_rsa*",
    "id_dsa*", "id_ecdsa*", "id_ed25519*", ".netrc", ".pgpass", ".npmrc", ".pypirc", ".htpasswd",
)  # fmt: skip
_PRIVATE_KEY = b"PRIVATE KEY-----"


@dataclass(frozen=True, slots=True)
class Rules:
    """The patterns of one folder, over those of the folders above it; the nearest that says anything decides."""

    folder: str
    specs: tuple[GitIgnoreSpec, ...]
    above: Rules | None = None

    def ignore(self, path: str, *, is_folder: bool = False) -> bool:
        """Whether this path, below the folder, is to be left out."""
        below = path[len(self.folder.rstrip("/")) + 1 :] + ("/" if is_folder else "")
        for spec in reversed(self.specs):
            said = spec.check_file(below).include
            if said is not None:
                return said
        return self.above.ignore(path, is_folder=is_folder) if self.above else False


def rules_of(folder: Path, above: Rules | None) -> Rules | None:
    """The rules that hold in a folder: its own ignore files over those above. An unreadable one raises OSError."""
    texts = [decode((folder / name).read_bytes()) for name in IGNORE_FILES if (folder / name).is_file()]
    if not texts:
        return above
    return Rules(str(folder), tuple(compile_globs(text.splitlines()) for text in texts), above)


def rules_above(root: Path) -> Rules | None:
    """The rules that a root inherits: of the folders above it, up to the top of its Git repository."""
    if (root / ".git").exists():
        return None
    chain = [root.parent, *root.parent.parents]
    top = next((at for at, folder in enumerate(chain) if (folder / ".git").exists()), None)
    rules: Rules | None = None
    for folder in reversed(chain[: top + 1] if top is not None else []):
        with contextlib.suppress(OSError):
            rules = rules_of(folder, rules)
    return rules


def compile_globs(lines: Iterable[str]) -> GitIgnoreSpec:
    """Patterns as Git reads them; a line that is none costs only itself."""
    from pathspec import GitIgnoreSpec

    good = []
    for line in lines:
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError:
            continue
        good.append(line)
    return GitIgnoreSpec.from_lines(good)


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
