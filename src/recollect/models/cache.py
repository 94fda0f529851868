"""What is on this machine, and whether it is whole.

A model is one folder, renamed into place when every file in it was verified, so half a model is never seen. Each time
a model is loaded its files are hashed (34 MB: about 23 ms where the processor has SHA instructions). No note of an
earlier check is kept: whoever can change a file could change a note beside it.
"""

from __future__ import annotations

import os
from pathlib import Path

from recollect.errors import ModelError
from recollect.models.catalogue import Model, ModelFile, find
from recollect.models.staging import staging


def cache_root() -> Path:
    """The folder that holds the models: `RECOLLECT_MODELS`, else in the user's cache."""
    if chosen := os.environ.get("RECOLLECT_MODELS"):
        return Path(chosen).expanduser()
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("recollect")) / "models"


def model_path(name: str) -> Path:
    """The folder of a model whose files are all there and as pinned."""
    model = find(name)
    folder = cache_root() / model.folder
    if not folder.is_dir():
        raise ModelError(f"the model {name} is not on this machine ({folder})", hint=mend(model))
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
    model = find(name)
    try:
        return all(
            (cache_root() / model.folder / file.name).stat().st_size in {copy.size for copy in file.copies}
            for file in model.files
        )
    except OSError:
        return False


def remove(name: str) -> bool:
    """Delete a model's files; whether there were any. It is out of sight at once, whatever happens to the deletion."""
    folder = cache_root() / find(name).folder
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


def mend(model: Model) -> str:
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
            f"{path} of the model {model.name} cannot be read: {error.strerror}", hint=mend(model)
        ) from error
    if not right:
        raise ModelError(
            f"{path} is not the {file.name} of the model {model.name}: its SHA-256 is not the pinned one",
            hint=mend(model),
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
