"""Which files below some paths are indexed, and why the others are not.

`.gitignore` and `.recollectignore` files, nested as Git nests them, hidden files, links, secrets and binary files.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from recollect.errors import UsageError
from recollect.ingest.globs import Globs, GlobWalk
from recollect.ingest.text import decode

MAX_FILE = 2 * 1024 * 1024
"""Bytes; a longer "text" is data."""

BINARY = frozenset((
    ".7z", ".a", ".avi", ".bin", ".bmp", ".bz2", ".class", ".db", ".db-shm", ".db-wal", ".dll", ".dmg", ".doc",
    ".docx", ".dylib", ".eot", ".epub", ".exe", ".flac", ".gif", ".gz", ".heic", ".ico", ".iso", ".jar", ".jpeg",
    ".jpg", ".m4a", ".mkv", ".mobi", ".mov", ".mp3", ".mp4", ".o", ".odp", ".ods", ".odt", ".ogg", ".onnx", ".otf",
    ".parquet", ".pdf", ".png", ".ppt", ".pptx", ".psd", ".pyc", ".pyo", ".rar", ".so", ".sqlite", ".sqlite3",
    ".tar", ".tgz", ".tif", ".tiff", ".ttf", ".wasm", ".wav", ".webm", ".webp", ".whl", ".woff", ".woff2", ".xls",
    ".xlsx", ".xz", ".zip", ".zst",
))  # fmt: skip
"""Suffixes of files that need not be opened to know that they are no text."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the one who indexes asks for: patterns as in `.gitignore`, and whether a whole home is meant."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    force: bool = False


@dataclass(frozen=True, slots=True)
class Selection:
    """What `--include` and `--exclude` let through in one folder; `inside` is whether a folder above is included."""

    include: GlobWalk | None
    exclude: GlobWalk
    inside: bool = False

    @classmethod
    def of(cls, wishes: Wishes) -> Selection:
        """In the root."""
        return cls(Globs(wishes.include).walk() if wishes.include else None, Globs(wishes.exclude).walk())

    def has(self, name: str, *, is_folder: bool = False) -> bool:
        """Whether a file of the folder is read, or a folder entered."""
        return not self.exclude.decide(name, is_folder=is_folder) and (is_folder or self._includes(name))

    def enter(self, name: str) -> Selection:
        """In a folder of the folder."""
        inside = self._includes(name, is_folder=True)
        return Selection(self.include and self.include.enter(name), self.exclude.enter(name), inside)

    def reaches(self, names: Sequence[str]) -> bool:
        """Whether a file below the folder is read, given by the names on the way to it."""
        here = self
        for name in names[:-1]:
            if not here.has(name, is_folder=True):
                return False
            here = here.enter(name)
        return not names or here.has(names[-1])

    def _includes(self, name: str, *, is_folder: bool = False) -> bool:
        decision = self.include.decide(name, is_folder=is_folder) if self.include else True
        return self.inside if decision is None else decision


@dataclass(frozen=True, slots=True)
class Place:
    """A file worth reading: where it is, below which root, and what stat says of it."""

    path: str
    root: str
    stat: os.stat_result


@dataclass(slots=True)
class Walk:
    """What a walk found: files worth reading, others with the reason, and what happens to those known before.

    `refused` are paths that the folder's rules or their own nature keep out: nothing of them stays in the index.
    Those that the rules keep out have no reason in `skipped`. What cannot be read now is there too; it stays as it was.
    """

    places: list[Place] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)

    def refuse(self, path: str, reason: str = "") -> None:
        """Keep a path out; without a reason nobody needs to hear of it."""
        self.refused.add(path)
        if reason:
            self.skipped[path] = reason

    def refuses(self, path: str) -> bool:
        """Whether a path, or a folder above it, is kept out."""
        return self._refusal(path) is not None

    def ignores(self, path: str) -> bool:
        """Whether an ignore file keeps a path out, or it is hidden."""
        refused = self._refusal(path)
        return refused is not None and refused not in self.skipped

    def _refusal(self, path: str) -> str | None:
        """The path, or the folder above it, that is kept out."""
        return next((part for part in (path, *map(str, Path(path).parents)) if part in self.refused), None)


def roots_of(paths: Iterable[str | Path], wishes: Wishes) -> list[Path]:
    """The paths as whole paths, each once, none below another; wrong use where one is not there or is far too wide."""
    roots: list[Path] = []
    for said in paths:
        path = Path(said).expanduser()
        try:
            root = path.resolve()
            there = _is_unicode(str(root)) and (root.is_dir() or root.is_file())
        except (OSError, ValueError, RuntimeError):
            there = False
        if not there:
            raise UsageError(f"{_shown(path)} is not a folder or a file", hint="name folders, or single files")
        if not wishes.force and _holds_home(root):
            raise UsageError(
                f"{root} holds a whole home: mail, keys and caches too",
                hint="name the folders that are meant, or say --force",
            )
        roots.append(root)
    if not roots:
        raise UsageError("nothing to index is named", hint="name folders, or single files")
    outer = [root for root in roots if not any(root != other and root.is_relative_to(other) for other in roots)]
    return sorted(set(outer))


def walk(roots: Sequence[Path], wishes: Wishes) -> Walk:
    """Every file worth reading below the roots, by path."""
    found = Walk()
    for root in roots:
        if root.is_file():
            _named(root, found)
        else:
            _folder(root, wishes, found)
    found.places.sort(key=lambda place: place.path)
    return found


def _holds_home(root: Path) -> bool:
    try:
        return Path.home().resolve().is_relative_to(root)
    except (OSError, RuntimeError):
        return root == Path(root.anchor)


def _named(path: Path, found: Walk) -> None:
    """A file that was named is meant, hidden or ignored; a secret or a heap of data is not."""
    try:
        reason = _unfit(path.name, path.stat())
    except OSError as error:
        found.skipped[str(path)] = _why(error)
        return
    if reason:
        found.refuse(str(path), reason)
    else:
        found.places.append(Place(str(path), str(path), path.stat()))


def _folder(root: Path, wishes: Wishes, found: Walk) -> None:
    waiting: list[tuple[Path, Rules | None, Selection]] = [(root, None, Selection.of(wishes))]
    while waiting:
        folder, above, selection = waiting.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            rules = above.enter(folder) if above else rules_at(root)
        except UnusableRules as error:
            found.skipped[str(error.path)] = f"{error.reason}; its folder was not read"
            continue
        except OSError as error:
            found.skipped[str(error.filename or folder)] = _why(error)
            continue
        if rules is None:
            found.refuse(str(root))
            return
        selection = selection.enter(folder.name) if above else selection
        for entry in _kept(entries, rules, root, found):
            is_folder = entry.is_dir(follow_symlinks=False)
            if selection.has(entry.name, is_folder=is_folder):
                if is_folder:
                    waiting.append((Path(entry.path), rules, selection))
                else:
                    _file(entry, root, found)


def _kept(entries: list[os.DirEntry[str]], rules: Rules, root: Path, found: Walk) -> Iterator[os.DirEntry[str]]:
    """Entries that no rule keeps out."""
    for entry in entries:
        path = entry.path
        if not _is_unicode(path):
            found.skipped[_shown(path)] = "a name that is not UTF-8"
        elif entry.name.startswith("."):
            found.refuse(path)
        elif entry.is_symlink():
            found.refuse(path, _link(path, root))
        elif rules.ignore(entry.name, is_folder=entry.is_dir()):
            found.refuse(path)
        else:
            yield entry


def _file(entry: os.DirEntry[str], root: Path, found: Walk) -> None:
    try:
        state = entry.stat(follow_symlinks=False)
    except OSError as error:
        found.skipped[entry.path] = _why(error)
        return
    if reason := _unfit(entry.name, state):
        found.refuse(entry.path, reason)
    else:
        found.places.append(Place(entry.path, str(root), state))


def _unfit(name: str, state: os.stat_result) -> str:
    """Why a file is not worth opening, or nothing."""
    if not stat.S_ISREG(state.st_mode):
        return "not a file"
    if looks_secret(name):
        return "looks like a secret"
    if os.path.splitext(name)[1].lower() in BINARY:  # noqa: PTH122  (a hundred thousand times, without a Path)
        return "binary"
    if state.st_size == 0:
        return "empty"
    if state.st_size > MAX_FILE:
        return f"larger than {MAX_FILE // 1024 // 1024} MiB"
    return ""


def _link(path: str, root: Path) -> str:
    """Links are not followed: what they lead to below the root is found there anyway."""
    target = Path(os.path.realpath(path))
    if not os.path.exists(path):  # noqa: PTH110  (a link in a circle is not there either)
        return "a link that leads nowhere"
    return "a link into the folder" if target.is_relative_to(root) else "a link out of the folder"


def _shown(path: str | Path) -> str:
    """A path that can be printed, whatever its bytes."""
    return str(path).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _is_unicode(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _why(error: OSError) -> str:
    return (error.strerror or "cannot be read").lower()


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
