"""The models on this machine: where they are, whether they are complete, and how one is put in place.

A model is one folder. Its files are prepared and verified in a staging folder and then renamed into place, so half a
model is never visible. Its files are hashed each time it is loaded (34 MB take about 23 ms where the processor has SHA
instructions). The result is not stored: whoever can change a file could change a note beside it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from recollect.errors import ModelError, ModelMissing
from recollect.models.catalogue import Model, get_model
from recollect.types import Progress

STAGING = ".staging-"


def cache_root() -> Path:
    """The folder that holds the models: `RECOLLECT_MODELS`, else one in the user's cache."""
    if chosen := os.environ.get("RECOLLECT_MODELS"):
        return Path(chosen).expanduser()
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("recollect")) / "models"


def model_path(name: str) -> Path:
    """The folder of a model. Raises ModelError unless every file is there and has its pinned hash."""
    model = get_model(name)
    folder = cache_root() / model.folder
    if not folder.is_dir():
        raise ModelError(f"the model {name} is not on this machine ({folder})", hint=fetch_command(model))
    verify(model, folder)
    return folder


def installed(name: str) -> bool:
    """Whether the model is here and every file has its pinned hash."""
    try:
        model_path(name)
    except ModelError:
        return False
    return True


def seems_installed(name: str) -> bool:
    """Whether files of the right names and sizes are here. Their content is checked when they are loaded."""
    model = get_model(name)
    try:
        return all(
            (cache_root() / model.folder / file.name).stat().st_size in {copy.size for copy in file.copies}
            for file in model.files
        )
    except OSError:
        return False


def ensure_model(name: str, *, announce: Callable[[str], None] | None, progress: Progress | None, fetch: bool) -> None:
    """Fetch a model that is not on this machine, or raise ModelMissing if `fetch` is false."""
    if seems_installed(name):
        return
    if not fetch:
        hint = f"`{fetch_command(get_model(name))}` fetches it"
        raise ModelMissing(f"the model {name} is not on this machine", hint=hint)
    from recollect.models.fetch import fetch_automatically

    fetch_automatically(name, announce=announce or (lambda _: None), progress=progress)


def remove(name: str) -> bool:
    """Delete a model's files; returns whether there were any. The model is gone at once, even if deleting fails."""
    folder = cache_root() / get_model(name).folder
    if not folder.is_dir():
        return False
    with staging(cache_root()) as temporary:
        folder.rename(temporary / "removed")
    return True


def install(model: Model, ready: Path) -> Path:
    """Verify a folder of files and make it the model's folder in one step.

    Another process may install the same model at the same time: the first one stays.
    """
    verify(model, ready)
    target = cache_root() / model.folder
    for attempt in ("first", "last"):
        try:
            ready.rename(target)
        except OSError:
            if installed(model.name):
                break
            if attempt == "last":
                raise
            with contextlib.suppress(FileNotFoundError):
                target.rename(ready.parent / "damaged")
        else:
            break
    return target


def fetch_command(model: Model) -> str:
    """The command that fetches a model, or repairs it."""
    return f"recollect model fetch {model.name}"


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    import hashlib

    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def verify(model: Model, folder: Path) -> None:
    """Raise ModelError unless every file of the model in this folder has its pinned hash."""
    for file in model.files:
        path = folder / file.name
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


@contextlib.contextmanager
def staging(root: Path) -> Iterator[Path]:
    """An empty folder inside `root` that is deleted afterwards. Folders that killed processes left are deleted first.

    The folder exists only while its lock is held, and the system releases the lock of a killed process: a folder whose
    lock is free belongs to nobody.
    """
    from filelock import FileLock, Timeout

    root.mkdir(parents=True, exist_ok=True)
    for abandoned in [path for path in root.glob(f"{STAGING}*") if path.is_dir()]:
        with contextlib.suppress(Timeout, OSError), FileLock(_lock_file(abandoned), timeout=0):
            _delete(abandoned)
    folder = root / f"{STAGING}{uuid.uuid4().hex}"
    with contextlib.ExitStack() as lock:
        with contextlib.suppress(OSError):  # a file system without locks, where no folder counts as abandoned either
            lock.enter_context(FileLock(_lock_file(folder)))
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            _delete(folder)


def _lock_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _delete(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # Windows does not delete an open file
        _lock_file(folder).unlink()
