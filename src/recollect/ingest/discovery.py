"""Which files below some folders are indexed, and why the others are not.

Left out are hidden files, links, secrets, binary and very large files, and what `.gitignore` and `.recollectignore`
files name, nested as Git nests them.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO

from recollect.errors import UsageError
from recollect.ingest.globs import Globs, GlobWalk

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
"""Suffixes of files that are not opened, because they are not text."""

SECRETS = (
    ".env*", "*.env", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "id_rsa*",
    "id_dsa*", "id_ecdsa*", "id_ed25519*", ".netrc", ".pgpass", ".npmrc", ".pypirc", ".htpasswd",
)  # fmt: skip

IGNORE_FILES = (".gitignore", ".recollectignore")
"""In this order: the later file overrides the earlier one."""

MAX_BYTES, MAX_PATTERNS, MAX_LINE = 1024 * 1024, 50_000, 4096
"""Limits of one ignore file. The largest takes a third of a second for each name, whatever its patterns are."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to read: its path, the root it was found below, and its stat."""

    path: str
    root: str
    stat: os.stat_result


@dataclass(slots=True)
class Walk:
    """The result of a walk: files to read, and the other paths with the reason.

    `refused` are paths that an ignore file or their own nature excludes: nothing of them stays in the index. Those that
    are hidden or ignored have no reason in `skipped`. Files that cannot be read now are only in `skipped`: what is
    indexed of them stays.
    """

    files: list[FoundFile] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)

    def refuse(self, path: str, reason: str = "") -> None:
        """Exclude a path. Only those with a reason are reported."""
        self.refused.add(path)
        if reason:
            self.skipped[path] = reason

    def refuses(self, path: str) -> bool:
        """Whether a path, or a folder above it, is excluded."""
        return self._refusal(path) is not None

    def ignores(self, path: str) -> bool:
        """Whether a path is hidden or excluded by an ignore file."""
        refusal = self._refusal(path)
        return refusal is not None and refusal not in self.skipped

    def _refusal(self, path: str) -> str | None:
        return next((part for part in (path, *map(str, Path(path).parents)) if part in self.refused), None)


@dataclass(frozen=True, slots=True)
class PatternSelection:
    """The `--include` and `--exclude` patterns in one folder. `inside` is whether a folder above is included."""

    include: GlobWalk | None
    exclude: GlobWalk
    inside: bool = False

    @classmethod
    def at_root(cls, include: Sequence[str], exclude: Sequence[str]) -> PatternSelection:
        """The patterns at the root of a walk."""
        return cls(Globs(include).walk() if include else None, Globs(exclude).walk())

    def has(self, name: str, *, is_folder: bool = False) -> bool:
        """Whether to read a file of this folder, or to enter a folder of it."""
        return not self.exclude.decide(name, is_folder=is_folder) and (is_folder or self._includes(name))

    def enter(self, name: str) -> PatternSelection:
        """The patterns in a subfolder."""
        inside = self._includes(name, is_folder=True)
        return PatternSelection(self.include and self.include.enter(name), self.exclude.enter(name), inside)

    def reaches(self, names: Sequence[str]) -> bool:
        """Whether to read a file below this folder, given as the parts of its relative path."""
        here = self
        for name in names[:-1]:
            if not here.has(name, is_folder=True):
                return False
            here = here.enter(name)
        return not names or here.has(names[-1])

    def _includes(self, name: str, *, is_folder: bool = False) -> bool:
        decision = self.include.decide(name, is_folder=is_folder) if self.include else True
        return self.inside if decision is None else decision


def resolve_roots(paths: Iterable[str | Path], *, force: bool = False) -> list[Path]:
    """The paths, absolute and each once, without those below another. Raises UsageError for a missing path.

    A folder that contains the home folder is refused too, unless `force` is set.
    """
    roots: list[Path] = []
    for name in paths:
        path = Path(name).expanduser()
        try:
            root = path.resolve()
            exists = _is_unicode(str(root)) and (root.is_dir() or root.is_file())
        except (OSError, ValueError, RuntimeError):
            exists = False
        if not exists:
            raise UsageError(f"{_printable(path)} is not a folder or a file", hint="name folders, or single files")
        if not force and _contains_home(root):
            raise UsageError(
                f"{root} contains a whole home folder: mail, keys and caches too",
                hint="name the folders to index, or use --force",
            )
        roots.append(root)
    if not roots:
        raise UsageError("there is no path to index", hint="name folders, or single files")
    outer = [root for root in roots if not any(root != other and root.is_relative_to(other) for other in roots)]
    return sorted(set(outer))


def walk(roots: Sequence[Path], *, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> Walk:
    """Find the files to read below the roots, sorted by path."""
    result = Walk()
    for root in roots:
        if root.is_file():
            _walk_file(root, result)
        else:
            _walk_folder(root, PatternSelection.at_root(include, exclude), result)
    result.files.sort(key=lambda file: file.path)
    return result


def _contains_home(root: Path) -> bool:
    try:
        return Path.home().resolve().is_relative_to(root)
    except (OSError, RuntimeError):
        return root == Path(root.anchor)


def _walk_file(path: Path, result: Walk) -> None:
    """Add a file that was named itself: it may be hidden or ignored, but not secret or binary."""
    try:
        _add_file(str(path), path.name, str(path), path.stat(), result)
    except OSError as error:
        result.skipped[str(path)] = reason_of(error)


def _walk_folder(root: Path, selection: PatternSelection, result: Walk) -> None:
    pending: list[tuple[Path, IgnoreRules | None, PatternSelection]] = [(root, None, selection)]
    while pending:
        folder, above, selection = pending.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            rules = above.enter(folder) if above else IgnoreRules.at_root(root)
        except UnusableRules as error:
            result.skipped[str(error.path)] = f"{error.reason}; its folder was not read"
            continue
        except OSError as error:
            result.skipped[str(error.filename or folder)] = reason_of(error)
            continue
        if rules is None:
            result.refuse(str(root))
            return
        selection = selection.enter(folder.name) if above else selection
        for entry in _allowed(entries, rules, root, result):
            is_folder = entry.is_dir(follow_symlinks=False)
            if not selection.has(entry.name, is_folder=is_folder):
                continue
            if is_folder:
                pending.append((Path(entry.path), rules, selection))
                continue
            try:
                _add_file(entry.path, entry.name, str(root), entry.stat(follow_symlinks=False), result)
            except OSError as error:
                result.skipped[entry.path] = reason_of(error)


def _allowed(
    entries: list[os.DirEntry[str]], rules: IgnoreRules, root: Path, result: Walk
) -> Iterator[os.DirEntry[str]]:
    """The entries of a folder that are not hidden, not ignored and not links."""
    for entry in entries:
        path = entry.path
        if not _is_unicode(path):
            result.skipped[_printable(path)] = "a name that is not UTF-8"
        elif entry.name.startswith("."):
            result.refuse(path)
        elif entry.is_symlink():
            result.refuse(path, _describe_link(path, root))
        elif rules.ignore(entry.name, is_folder=entry.is_dir()):
            result.refuse(path)
        else:
            yield entry


def _add_file(path: str, name: str, root: str, state: os.stat_result, result: Walk) -> None:
    if reason := _unfit(name, state):
        result.refuse(path, reason)
    else:
        result.files.append(FoundFile(path, root, state))


def _unfit(name: str, state: os.stat_result) -> str:
    """Why a file is not opened, or an empty string."""
    if not stat.S_ISREG(state.st_mode):
        return "not a file"
    if _looks_secret(name):
        return "looks like a secret"
    if os.path.splitext(name)[1].lower() in BINARY:  # noqa: PTH122  (a hundred thousand times, without a Path)
        return "binary"
    if state.st_size == 0:
        return "empty"
    if state.st_size > MAX_FILE:
        return f"larger than {MAX_FILE // 1024 // 1024} MiB"
    return ""


def _looks_secret(name: str) -> bool:
    """Whether a name is usual for keys, password stores or environment files."""
    low = name.lower()
    bare_identity = low.startswith("id_") and "." not in low
    return not low.endswith((".md", ".markdown")) and (
        bare_identity or any(fnmatchcase(low, pattern) for pattern in SECRETS)
    )


def _describe_link(path: str, root: Path) -> str:
    """Where a link leads. Links are not followed: a target below the root is found there anyway."""
    target = Path(os.path.realpath(path))
    if not os.path.exists(path):  # noqa: PTH110  (also False for a circle of links)
        return "a broken link"
    return "a link into the folder" if target.is_relative_to(root) else "a link out of the folder"


def _printable(path: str | Path) -> str:
    return str(path).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _is_unicode(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


class UnusableRules(Exception):
    """An ignore file that cannot be used. Nothing in its folder is read, since its rules are not known."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(reason)
        self.path, self.reason = path, reason


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The ignore files that apply in a folder, outermost first. The innermost that matches a name decides."""

    walks: tuple[GlobWalk, ...] = ()

    @classmethod
    def at_root(cls, root: Path) -> IgnoreRules | None:
        """The rules in a root, with those of the folders above it in its Git repository; None if they ignore the root.

        Raises UnusableRules.
        """
        chain = [root, *root.parents]
        top = next((at for at, folder in enumerate(chain) if (folder / ".git").exists()), 0)
        rules = cls(_rules_of(chain[top]))
        for folder in reversed(chain[:top]):
            if rules.ignore(folder.name, is_folder=True):
                return None
            rules = rules.enter(folder)
        return rules

    def ignore(self, name: str, *, is_folder: bool = False) -> bool:
        """Whether an entry of the folder is ignored."""
        for walk in reversed(self.walks):
            decision = walk.decide(name, is_folder=is_folder)
            if decision is not None:
                return decision
        return False

    def enter(self, folder: Path) -> IgnoreRules:
        """The rules in a subfolder, with its own ignore files. Raises UnusableRules."""
        return IgnoreRules(tuple(walk.enter(folder.name) for walk in self.walks) + _rules_of(folder))


def _rules_of(folder: Path) -> tuple[GlobWalk, ...]:
    """The ignore files of one folder itself."""
    paths = [folder / name for name in IGNORE_FILES]
    return tuple(Globs(_checked_lines(path, text)).walk() for path in paths if (text := _read_rules(path)))


def _read_rules(path: Path) -> str:
    """An ignore file's text, empty where there is none. A link is not followed."""
    try:
        kind = os.lstat(path).st_mode
        if stat.S_ISDIR(kind):
            return ""
        if stat.S_ISLNK(kind):
            raise UnusableRules(path, "a link, which is not followed")
        with open_regular(path) as file:
            content = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise UnusableRules(path, reason_of(error)) from error
    if len(content) > MAX_BYTES:
        raise UnusableRules(path, f"larger than {MAX_BYTES // 1024 // 1024} MiB")
    return decode(content)


def _checked_lines(path: Path, text: str) -> list[str]:
    lines = text.split("\n")
    if len(lines) > MAX_PATTERNS:
        raise UnusableRules(path, f"more than {MAX_PATTERNS:,} lines")
    if any(len(line) > MAX_LINE and not line.startswith("#") for line in lines):
        raise UnusableRules(path, f"a line longer than {MAX_LINE:,} characters")
    return lines


HEAD = 8 * 1024
"""Bytes at the start of a file that decide whether it is text."""

SAMPLE = 64 * 1024
"""Bytes from which an encoding is guessed."""

_READ_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
"""Do not wait, and follow no link: what was a file when it was listed may be a pipe by now."""

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_WESTERN = ("cp1252", "cp1250", "cp1254", "cp1257")
_OTHER = (
    "cp1251", "koi8_r", "cp1253", "cp1255", "cp1256", "cp874", "cp932", "euc_jp", "gb18030", "big5", "euc_kr", "cp949",
)  # fmt: skip
_NOT_LATIN = 0.3
"""Share of bytes beyond ASCII from which a text is not in the Latin alphabet."""

_CONTROLS = re.compile(rb"[\x01-\x06\x0e-\x1a\x1c-\x1f\x7f]")
_MULTIBYTE = re.compile(rb"[\xc2-\xf4][\x80-\xbf]+")
_HIGH = re.compile(rb"[\x80-\xff]")


class NotAFile(OSError):
    """The path is a folder, a pipe or a device."""


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file for reading; raises NotAFile for anything else. Does not wait and follows no link."""
    file = open(os.open(path, _READ_FLAGS), "rb")  # noqa: PTH123, SIM115  (of a descriptor; the caller closes it)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise NotAFile(0, "not a file", str(path))
    return file


def reason_of(error: OSError) -> str:
    """Why a file cannot be read, in a few words."""
    return (error.strerror or "cannot be read").lower()


def is_text(content: bytes) -> bool:
    """Whether this is text, by its head: no NUL (unless marked as UTF-16 or UTF-32), and few control characters."""
    head = content[:HEAD]
    if any(head.startswith(mark) for mark, _ in _BOMS):
        return True
    return b"\0" not in head and len(_CONTROLS.findall(head)) * 50 <= len(head)


def holds_key(head: bytes) -> bool:
    """Whether the first line of a file says that it is a private key."""
    return head.startswith(b"-----BEGIN") and b"PRIVATE KEY-----" in head.partition(b"\n")[0]


def decode(content: bytes) -> str:
    """Decode text in whatever encoding. NUL becomes U+FFFD; a byte that fits nowhere changes only itself."""
    return _decode(content).replace("\0", "\ufffd")


def _decode(content: bytes) -> str:
    for mark, encoding in _BOMS:
        if content.startswith(mark):
            return content.decode(encoding, "replace")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        pass
    # UTF-8 with a bad byte here and there, or another encoding that looks like it by chance now and then?
    sequences = _MULTIBYTE.findall(content)
    bad = len(_HIGH.findall(content)) - sum(map(len, sequences))
    return content.decode("utf-8", "recollect.bytes") if len(sequences) > bad else _guess(content)


def _guess(content: bytes) -> str:
    """Western or central European by default; charset-normalizer decides about text that is mostly beyond ASCII."""
    from charset_normalizer import from_bytes

    sample = content[:SAMPLE]
    letters = sum(chr(byte).isalpha() or byte >= 0x80 for byte in sample)  # noqa: PLR2004  (the end of ASCII)
    if len(_HIGH.findall(sample)) >= _NOT_LATIN * max(letters, 1):
        best = from_bytes(sample, cp_isolation=list(_OTHER)).best()
        return content.decode(best.encoding if best else "cp1252", "recollect.bytes")
    matches = from_bytes(sample, cp_isolation=list(_WESTERN))
    coherence = {match.encoding: match.coherence for match in matches}
    encoding = max(_WESTERN, key=lambda name: coherence.get(name, 0.0))  # the first among equals
    return content.decode(encoding, "recollect.bytes")


def _as_latin(error: UnicodeError) -> tuple[str, int]:
    """Decode the bytes that an encoding does not know as Latin-1, in which every byte is a character."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error("recollect.bytes", _as_latin)
