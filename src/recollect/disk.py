"""Paths, and files that get their name when they are complete and on the disk."""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Literal


def at_home(path: str | Path) -> Path:
    """The path, with `~` as the home folder; that of an unknown user stays as it is, and is not found later."""
    return Path(os.path.expanduser(path))  # noqa: PTH111  (no error without a home)


def own_folder(kind: Literal["cache", "config", "data", "state"]) -> Path:
    """The folder in which the system lets this program store its files of this kind."""
    import platformdirs

    return Path(getattr(platformdirs, f"user_{kind}_dir")("recollect"))


def hashed_name(*parts: str) -> str:
    """A file name made from a store's name or other texts: a hash, because they may hold a path or a password."""
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file, readable by its owner only, that takes the place of another when the block has ended.

    If the block fails, the other file stays as it is.
    """
    from tempfile import NamedTemporaryFile

    new = NamedTemporaryFile(prefix=f".{path.name}-", dir=path.parent, delete=False)  # noqa: SIM115  (closed below)
    try:
        with new as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(new.name).replace(path)
        sync(path.parent)
    finally:
        Path(new.name).unlink(missing_ok=True)


def write_private(path: Path, text: str, *, like: Path | None = None) -> None:
    """Replace a file by one that only its owner may read, or those who may read the file `like`."""
    with replacing(path) as file:
        file.write(text.encode())
        if like is not None:
            import shutil

            shutil.copymode(like, file.name)


def give_name(file: Path, name: Path) -> bool:
    """Give a complete file a name that is free; return False if it is taken, and leave what has it untouched."""
    try:
        os.link(file, name)
    except OSError as error:  # it is taken, or the file system has no hard links
        if isinstance(error, FileExistsError) or name.exists():
            return False
        file.rename(name)
    finally:
        sync(name.parent)
    return True


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk; not every file system can do that with folders."""
    if os.name == "posix":
        with contextlib.suppress(OSError):
            number = os.open(path, os.O_RDONLY)
            try:
                os.fsync(number)
            finally:
                os.close(number)
