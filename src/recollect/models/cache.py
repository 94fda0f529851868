"""The models on this machine: where they are, whether they are complete, and how one is put in place.

A model is one folder, renamed into place when every file in it was verified, so half a model is never seen. Each time
a model is loaded its files are hashed (34 MB: about 23 ms where the processor has SHA instructions). No note of an
earlier check is kept: whoever can change a file could change a note beside it.

Files are prepared in a staging folder that is deleted when the work ends, however it ends. Only a killed process leaves
one behind; the kernel then releases the lock on it, which tells the next fetch that nobody works in it.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from recollect.errors import ModelError, ModelMissing
from recollect.models.catalogue import Model, ModelFile, get_model
from recollect.types import Progress


def cache_root() -> Path:
    """The folder that holds the models: `RECOLLECT_MODELS`, else in the user's cache."""
    if chosen := os.environ.get("RECOLLECT_MODELS"):
        return Path(chosen).expanduser()
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("recollect")) / "models"


def model_path(name: str) -> Path:
    """The folder of a model whose files are all there and as pinned."""
    model = get_model(name)
    folder = cache_root() / model.folder
    if not folder.is_dir():
        raise ModelError(f"the model {name} is not on this machine ({folder})", hint=fetch_command(model))
    for file in model.files:
        _verify(model, file, folder / file.name)
    return folder


def installed(name: str) -> bool:
    """Whether the model is here and whole, by the hash of every file."""
    try:
        model_path(name)
    except ModelError:
        return False
    return True


def seems_installed(name: str) -> bool:
    """Whether files of the right names and sizes are here. What is in them is checked when they are loaded."""
    model = get_model(name)
    try:
        return all(
            (cache_root() / model.folder / file.name).stat().st_size in {copy.size for copy in file.copies}
            for file in model.files
        )
    except OSError:
        return False


def ensure_model(name: str, *, announce: Callable[[str], None] | None, progress: Progress | None, fetch: bool) -> None:
    """See to it that a model is on this machine: fetch it, or raise ModelMissing if `fetch` is false."""
    if seems_installed(name):
        return
    if not fetch:
        hint = f"`{fetch_command(get_model(name))}` fetches it"
        raise ModelMissing(f"the model {name} is not on this machine", hint=hint)
    from recollect.models.fetch import fetch_automatically

    fetch_automatically(name, announce=announce or (lambda _: None), progress=progress)


def remove(name: str) -> bool:
    """Delete a model's files; whether there were any. It is out of sight at once, whatever happens to the deletion."""
    folder = cache_root() / get_model(name).folder
    if not folder.is_dir():
        return False
    with staging(cache_root()) as aside:
        folder.rename(aside / "removed")
    return True


def put_in_place(model: Model, ready: Path) -> Path:
    """Make a folder of verified files the model's, in one step; another process may do the same at the same time."""
    for file in model.files:
        _verify(model, file, ready / file.name)
    target = cache_root() / model.folder
    try:
        ready.rename(target)
    except OSError:
        if not installed(model.name):  # something damaged is in the way
            _set_aside(target, ready.parent / "damaged")
            _rename_unless_done(model, ready, target)
    return target


def fetch_command(model: Model) -> str:
    """The command that brings a model in, and back in order."""
    return f"recollect model fetch {model.name}"


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    import hashlib

    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _verify(model: Model, file: ModelFile, path: Path) -> None:
    """Refuse a file that is not as pinned."""
    try:
        size = path.stat().st_size
        accepted = {copy.sha256 for copy in file.copies if copy.size == size}
        right = bool(accepted) and digest(path) in accepted
    except OSError as error:
        raise ModelError(
            f"{path} of the model {model.name} cannot be read: {error.strerror}", hint=fetch_command(model)
        ) from error
    if not right:
        raise ModelError(
            f"{path} is not the {file.name} of the model {model.name}: its SHA-256 is not the pinned one",
            hint=fetch_command(model),
        )


def _rename_unless_done(model: Model, ready: Path, target: Path) -> None:
    """Put the folder in place, unless another process just did."""
    try:
        ready.rename(target)
    except OSError:
        if not installed(model.name):
            raise


def _set_aside(target: Path, aside: Path) -> None:
    """Move what is damaged out of the way; another process may have done so already."""
    try:
        target.rename(aside)
    except FileNotFoundError:
        return


PREFIX = ".staging-"

ABANDONED_AFTER_S = 3600.0
"""Where folders cannot be locked (Windows), one this old is taken for abandoned: no fetch takes an hour."""


@contextmanager
def staging(root: Path) -> Iterator[Path]:
    """An empty folder inside `root`, gone afterwards. Those that killed processes left there are swept first."""
    root.mkdir(parents=True, exist_ok=True)
    _sweep(root)
    folder, lock = _create(root)
    try:
        yield folder
    finally:
        if lock is not None:
            os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)


def _create(root: Path) -> tuple[Path, int | None]:
    """A new folder and the lock on it. A sweep may take the folder before it is locked; then another is made."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
        try:
            lock = _lock(folder, wait=True)
        except FileNotFoundError:
            continue
        except OSError:  # a file system without locks: nothing is swept there either
            return folder, None
        if folder.is_dir():
            return folder, lock
        if lock is not None:
            os.close(lock)


def _sweep(root: Path) -> None:
    """Delete the folders that nobody works in."""
    for folder in root.glob(f"{PREFIX}*"):
        try:
            lock = _lock(folder, wait=False)
            age_s = time.time() - folder.stat().st_mtime
        except OSError:  # another process works in it, or has just deleted it
            continue
        if lock is not None or age_s > ABANDONED_AFTER_S:
            shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


if sys.platform == "win32":

    def _lock(folder: Path, *, wait: bool) -> int | None:  # noqa: ARG001
        """Folders cannot be locked here."""
        return None

else:
    import fcntl

    def _lock(folder: Path, *, wait: bool) -> int | None:
        """A lock on the folder, held until it is closed or the process ends; BlockingIOError if another has it."""
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise
        return handle
