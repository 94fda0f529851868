"""Which files below some folders are indexed, why the others are not, and a file's content as text."""

import codecs
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from pathlib import Path
from typing import NamedTuple, TypeAlias

from recollect.disk import at_home
from recollect.errors import UsageError
from recollect.ingest.globs import Globs
from recollect.ingest.readers import kind_of

NAMES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
BINARY = frozenset(NAMES["binary"])
SECRETS = re.compile("|".join(map(translate, NAMES["secrets"])))
MAX_FILE = 2 * 1024 * 1024  # bytes; a longer "text" is data
IGNORE_FILES = (".gitignore", ".recollectignore")  # in this order: the later file overrides the earlier one
# Limits of one ignore file. The worst that was found takes a second to read, and then 0.05 s for each name; 0.5 s in a
# path of 4,000 characters, 1.3 s in 2,000 nested folders.
MAX_BYTES, MAX_PATTERNS, MAX_LINE = 128 * 1024, 50_000, 4096
MAY_HOLD_SECRETS, LARGER = "may hold secrets", "larger than"  # reasons: a name or content usual for keys; a size
NOT_UTF8 = "a name that is not UTF-8"
HEAD = 8 * 1024  # bytes at the start of a file that decide whether it is text
SAMPLE = 64 * 1024  # bytes from which an encoding is guessed
# Do not wait, and follow no link: what was a file when it was listed may be a pipe by now.
_READ_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
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
_NOT_LATIN = 0.3  # share of bytes beyond ASCII from which a text is not in the Latin alphabet
_CONTROLS = re.compile(rb"[\x01-\x06\x0e-\x1a\x1c-\x1f\x7f]")
_MULTIBYTE = re.compile(rb"[\xc2-\xf4][\x80-\xbf]+")
_HIGH, _SURROGATE = re.compile(rb"[\x80-\xff]"), re.compile("[\ud800-\udfff]")
_Rules: TypeAlias = tuple[tuple[Globs, str], ...]
"""The ignore files that apply in a folder, outermost first, each with the path from its own folder to this one."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to read: its path, the root it was found below, and its stat. An `explicit` one may hold secrets."""

    path: str
    root: str
    stat: os.stat_result
    explicit: bool = False  # the user named this file


@dataclass(slots=True)
class Walk:
    """The result of a walk: files to read, and the other paths with the reason.

    `refused` are paths that an ignore file or their own nature excludes: nothing of them stays in the index. Those that
    are ignored, and hidden ones that hold no secrets, have no reason in `skipped`. Files that cannot be read now are
    only in `skipped`: what is indexed of them stays.
    """

    files: list[FoundFile] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)

    def refuse(self, path: str, reason: str = "") -> None:
        """Exclude a path. Only those with a reason are reported."""
        self.refused.add(path)
        if reason:
            self.skipped[path] = reason

    def exclusion(self, path: str) -> str | None:
        """Why a path, or a folder above it, is excluded: empty for one that is hidden or ignored; None if it is not."""
        refused = next((part for part in (path, *map(str, Path(path).parents)) if part in self.refused), None)
        return None if refused is None else self.skipped.get(refused, "")

    def add(self, entry: Path | os.DirEntry[str], root: Path, *, explicit: bool = False) -> None:
        """Take in a file, unless it is binary, empty or too large, or may hold secrets and is not `explicit`."""
        path = os.fspath(entry)
        try:
            state = entry.stat(follow_symlinks=False)
        except OSError as error:
            self.skipped[path] = reason_of(error)
            return
        secret = MAY_HOLD_SECRETS if may_hold_secrets(entry.name) and not explicit else ""
        kind = kind_of(entry.name)
        if reason := secret or _unfit(entry.name, state):
            self.refuse(path, reason)
        elif kind and kind.missing:  # what is indexed of it stays
            self.skipped[path] = kind.missing
        else:
            self.files.append(FoundFile(path, str(root), state, explicit))


class PatternSelection:
    """The `--include` and `--exclude` patterns."""

    def __init__(self, include: Sequence[str], exclude: Sequence[str]) -> None:
        self._include = Globs(include) if include else None
        self._named = Globs(filter(names_files, include)) if include else None
        self._exclude = Globs(exclude) if exclude else None

    def has(self, path: str, *, is_folder: bool = False) -> bool:
        """Whether to read a file, or to enter a folder, by its path from the root. The innermost `include` decides."""
        included, below = self._include is None, ""
        if included and not self._exclude:
            return True
        *above, last = path.split("/")
        for name, inside in (*((name, True) for name in above), (last, is_folder)):
            if self._exclude and self._exclude.decide(below, name, is_folder=inside):
                return False
            if self._include and (decision := self._include.decide(below, name, is_folder=inside)) is not None:
                included = decision
            below += f"{name}/"
        return included or is_folder

    def names(self, below: str, name: str) -> bool:
        """Whether an `include` pattern names this file: `*.pem` or `.env` does, `*` or the folder above does not."""
        return self._named is not None and bool(self._named.decide(below, name)) and self.has(below + name)


def names_files(pattern: str) -> bool:
    """Whether a pattern says something about the names of files, so that it may name one that may hold secrets."""
    return pattern.startswith("!") or any(character.isalnum() for character in pattern.rpartition("/")[2])


def may_hold_secrets(name: str) -> bool:
    """Whether a file has a name that is usual for keys, passwords or environment files."""
    name = name.lower()
    is_key = (name.startswith("id_") and "." not in name) or bool(SECRETS.match(name))
    return is_key and not name.endswith((".md", ".markdown"))


def resolve_roots(paths: Iterable[str | Path], *, force: bool = False) -> list[Path]:
    """The paths, absolute and each once, without those below another. Raises UsageError for a missing path.

    A folder that contains the home folder is refused too, unless `force` is set.
    """
    roots: list[Path] = []
    for name in paths:
        path = at_home(name)
        try:
            root = path.resolve()
            exists = is_unicode(str(root)) and (root.is_dir() or root.is_file())
        except (OSError, ValueError, RuntimeError):
            exists = False
        if not exists:
            problem = "is not a folder or a file" if is_unicode(str(path)) else f"has {NOT_UTF8}; rename it first"
            raise UsageError(f"{_printable(path)} {problem}", hint="name folders, or single files")
        if not force and _contains_home(root):
            hint = "name the folders to index, or use --force"
            raise UsageError(f"{root} contains a whole home folder: mail, keys and caches too", hint=hint)
        roots.append(root)
    if not roots:
        raise UsageError("there is no path to index", hint="name folders, or single files")
    return sorted({root for root in roots if not any(root != other and root.is_relative_to(other) for other in roots)})


def walk(roots: Sequence[Path], *, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> Walk:
    """Find the files to read below the roots, sorted by path."""
    result = Walk()
    selection = PatternSelection(include, exclude)
    for root in roots:
        if root.is_file():  # named itself: it may be hidden, ignored or hold secrets
            result.add(root, root, explicit=True)
        else:
            _walk_folder(root, selection, result)
    result.files.sort(key=lambda file: file.path)
    return result


def unfit(path: str, *, explicit: bool = True) -> str:
    """Why a file is not indexed, even if it is `explicit`: binary, empty, too large; empty if it is indexed."""
    result = Walk()
    result.add(Path(path), Path(path), explicit=explicit)
    try:
        read_file(path, explicit=explicit)
    except OSError as error:
        return result.skipped.get(path) or reason_of(error)
    return result.skipped.get(path, "")


def exclusion(path: str, root: str, *, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> str:
    """Why a walk of a folder leaves out a file below it; empty if it does not. Only the folders above it are read."""
    result, selection, folder = Walk(), PatternSelection(include, exclude), _Folder(Path(root), "", None)
    try:
        if (rules := _rules_above(folder.root)) is None:
            return f"{' or '.join(IGNORE_FILES)} excludes {root}"
        for name in Path(path).relative_to(root).parts:
            rules = _enter(rules, folder.path)
            with os.scandir(folder.path) as entries:
                entry = next((entry for entry in entries if entry.name == name), None)
            if entry and not _take(entry, folder._replace(rules=rules), selection, result):
                return _describe_exclusion(entry, result)
            folder = folder._replace(below=f"{folder.below}{name}/")
    except OSError as error:
        return f"{error.filename or folder.path} cannot be read: {reason_of(error)}"
    return ""


def _describe_exclusion(entry: os.DirEntry[str], result: Walk) -> str:
    """Why a walk did not take in an entry, or its content is not read; empty if it is."""
    if result.files:
        return f"it {MAY_HOLD_SECRETS}" if unfit(entry.path, explicit=result.files[0].explicit) else ""
    if reason := result.skipped.get(entry.path, ""):
        return f"its name says that it {reason}" if reason == MAY_HOLD_SECRETS else f"{entry.name} is {reason}"
    if entry.path not in result.refused:
        return f"--include or --exclude leaves out {entry.name}"
    return f"{entry.name} is hidden" if entry.name[0] == "." else f"{' or '.join(IGNORE_FILES)} excludes {entry.name}"


class _Folder(NamedTuple):
    """A folder that is walked: its root, its path below the root, and its rules, which are read when it is entered."""

    root: Path
    below: str
    rules: _Rules | None

    @property
    def path(self) -> Path:
        return self.root / self.below


def _walk_folder(root: Path, selection: PatternSelection, result: Walk) -> None:
    pending = [_Folder(root, "", None)]
    while pending:
        folder = pending.pop()
        try:
            entries = sorted(os.scandir(folder.path), key=lambda entry: entry.name)
            rules = _rules_above(root) if folder.rules is None else folder.rules
            if rules is None:
                result.refuse(str(root))
                return
            rules = _enter(rules, folder.path)
        except OSError as error:
            result.skipped[str(error.filename or folder.path)] = reason_of(error)
            continue
        inner = folder._replace(rules=rules)
        pending += [
            inner._replace(below=f"{inner.below}{entry.name}/")
            for entry in entries
            if _take(entry, inner, selection, result)
        ]


def _take(entry: os.DirEntry[str], folder: _Folder, selection: PatternSelection, result: Walk) -> bool:
    """Take in an entry of a folder, or refuse it; return whether it is a folder to enter."""
    path, name, is_folder = entry.path, entry.name, entry.is_dir(follow_symlinks=False)
    is_secret = not is_folder and may_hold_secrets(name)
    if not is_unicode(path):
        result.skipped[_printable(path)] = NOT_UTF8
    elif entry.is_symlink():
        result.refuse(path, "" if name.startswith(".") else _describe_link(path, folder.root))
    elif _ignores(folder.rules or (), name, is_folder=is_folder):
        result.refuse(path)
    elif is_secret and selection.names(folder.below, name):
        result.add(entry, folder.root, explicit=True)
    elif name.startswith("."):
        result.refuse(path, MAY_HOLD_SECRETS if is_secret else "")
    elif selection.has(folder.below + name, is_folder=is_folder):
        if is_folder:
            return True
        result.add(entry, folder.root)
    return False


def _contains_home(root: Path) -> bool:
    try:
        return Path.home().resolve().is_relative_to(root)
    except (OSError, RuntimeError):
        return root == Path(root.anchor)


def _unfit(name: str, state: os.stat_result) -> str:
    if not stat.S_ISREG(state.st_mode):
        return "not a file"
    kind = kind_of(name)
    if kind is None and os.path.splitext(name.lower())[1] in BINARY:  # noqa: PTH122  (often, without a Path)
        return "binary"
    if state.st_size == 0:
        return "empty"
    most = kind.max_bytes if kind else MAX_FILE
    return f"{LARGER} {most // 1024 // 1024} MiB" if state.st_size > most else ""


def _describe_link(path: str, root: Path) -> str:
    """Where a link leads. Links are not followed: a target below the root is found there anyway."""
    if not os.path.exists(path):  # noqa: PTH110  (also False for a circle of links)
        return "a broken link"
    inside = Path(os.path.realpath(path)).is_relative_to(root)
    return "a link into the folder" if inside else "a link out of the folder"


def is_unicode(path: str) -> bool:
    """Whether a path is UTF-8; a byte that is not is a surrogate."""
    return not _SURROGATE.search(path)


def _printable(path: str | Path) -> str:
    return str(path).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _rules_above(root: Path) -> _Rules | None:
    """The rules of the folders above a root, up to the top of its Git repository; None if they ignore the root."""
    chain = [root, *root.parents]
    top = next((at for at, folder in enumerate(chain) if (folder / ".git").exists()), 0)
    rules: _Rules = ()
    for folder, inner in zip(chain[top:0:-1], chain[top - 1 :: -1], strict=False):
        rules = _enter(rules, folder)
        if _ignores(rules, inner.name, is_folder=True):
            return None
    return rules


def _enter(rules: _Rules, folder: Path) -> _Rules:
    """The rules in a subfolder, with its own ignore files. If one cannot be used, nothing in the folder is read."""
    own: list[tuple[Globs, str]] = []
    for path in (folder / name for name in IGNORE_FILES):
        try:
            own.append((Globs(_ignore_lines(path)), ""))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise OSError(0, f"{reason_of(error)}; its folder was not read", str(path)) from error
    return (*((globs, f"{below}{folder.name}/") for globs, below in rules), *own)


def _ignores(rules: _Rules, name: str, *, is_folder: bool) -> bool:
    """Whether an entry of the folder is ignored: the innermost file that matches it decides."""
    for globs, below in reversed(rules):
        decision = globs.decide(below, name, is_folder=is_folder)
        if decision is not None:
            return decision
    return False


def _ignore_lines(path: Path) -> list[str]:
    kind = os.lstat(path).st_mode
    if stat.S_ISDIR(kind):
        return []
    if stat.S_ISLNK(kind):
        raise OSError(0, "a link, which is not followed")
    lines = decode(read_regular(path, MAX_BYTES)[0]).split("\n")
    if len(lines) > MAX_PATTERNS:
        raise OSError(0, f"more than {MAX_PATTERNS:,} lines")
    if any(len(line) > MAX_LINE and not line.startswith("#") for line in lines):
        raise OSError(0, f"a line longer than {MAX_LINE:,} characters")
    return lines


class NotAFile(OSError):
    """The path is a folder, a pipe or a device; or a file that is not indexed, for what it contains."""


def read_file(path: str, *, explicit: bool = False) -> tuple[bytes, int]:
    """The content of a text or a document and its modification time; raises NotAFile for one that is not indexed.

    A private key is indexed only if its file is `explicit`.
    """
    kind = kind_of(path)
    if kind and not kind.is_text:
        return read_regular(path, kind.max_bytes)
    return read_regular(path, kind.max_bytes if kind else MAX_FILE, _unfit_text if explicit else _refusal)


def _refusal(head: bytes) -> str:
    if head.startswith(b"-----BEGIN") and b"PRIVATE KEY-----" in head.partition(b"\n")[0]:
        return MAY_HOLD_SECRETS
    return _unfit_text(head)


def _unfit_text(head: bytes) -> str:
    return "" if is_text(head) else "binary"


def read_regular(path: str | Path, limit: int, refusal: Callable[[bytes], str] = lambda _head: "") -> tuple[bytes, int]:
    """Read a regular file of at most `limit` bytes, and its modification time. Does not wait and follows no link.

    `refusal` says from the first bytes why the rest is not read.
    """
    with open(os.open(path, _READ_FLAGS), "rb") as file:  # noqa: PTH123  (of a descriptor)
        state = os.fstat(file.fileno())  # before reading: a later change is seen in the next run
        is_regular = stat.S_ISREG(state.st_mode)
        content = file.read(HEAD) if is_regular else b""
        reason = refusal(content) if is_regular else "not a file"
        content += b"" if reason else file.read(limit + 1 - len(content))
    if len(content) > limit:
        reason = f"{LARGER} " + (f"{limit // 1024} KiB" if limit < 1024 * 1024 else f"{limit // 1024 // 1024} MiB")
    if reason:
        raise NotAFile(0, reason, str(path))
    return content, state.st_mtime_ns


def reason_of(error: OSError) -> str:
    """Why a file cannot be read, in a few words."""
    reason = error.strerror or "cannot be read"
    return reason[0].lower() + reason[1:]


def is_text(content: bytes) -> bool:
    """Whether this is text, by its head: no NUL (unless marked as UTF-16 or UTF-32), and few control characters."""
    head = content[:HEAD]
    has_mark = any(head.startswith(mark) for mark, _ in _BOMS)
    return has_mark or (b"\0" not in head and len(_CONTROLS.findall(head)) * 50 <= len(head))


def decode(content: bytes) -> str:
    """Decode text in whatever encoding. NUL becomes U+FFFD; a byte that fits nowhere changes only itself."""
    encoding = next((encoding for mark, encoding in _BOMS if content.startswith(mark)), None)
    try:
        text = content.decode(encoding, "replace") if encoding else content.decode()
    except UnicodeDecodeError:
        text = content.decode(_guess(content), "recollect.bytes")
    return text.replace("\0", "\ufffd")


def _guess(content: bytes) -> str:
    """Western or central European by default; charset-normalizer decides about text that is mostly beyond ASCII."""
    # UTF-8 with a bad byte here and there, or another encoding that looks like it by chance now and then?
    sequences = _MULTIBYTE.findall(content)
    if len(sequences) > len(_HIGH.findall(content)) - sum(map(len, sequences)):
        return "utf-8"
    from charset_normalizer import from_bytes

    sample = content[:SAMPLE]
    letters = sum(chr(byte).isalpha() or byte >= 0x80 for byte in sample)  # noqa: PLR2004  (the end of ASCII)
    if len(_HIGH.findall(sample)) >= _NOT_LATIN * max(letters, 1):
        best = from_bytes(sample, cp_isolation=list(_OTHER)).best()
        return best.encoding if best else "cp1252"
    coherence = {match.encoding: match.coherence for match in from_bytes(sample, cp_isolation=list(_WESTERN))}
    return max(_WESTERN, key=lambda name: coherence.get(name, 0.0))  # the first among equals


def _as_latin(error: UnicodeError) -> tuple[str, int]:
    """Decode the bytes that an encoding does not know as Latin-1, in which every byte is a character."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error("recollect.bytes", _as_latin)
