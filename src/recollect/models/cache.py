"""What is on this machine, and whether it is whole.

A model is one folder, renamed into place when every file in it was verified, so half a model is never seen. Hashing
34 MB at each start would be felt; so what was verified is noted beside the files, and a file is hashed again only where
its size or times are no longer those in the note.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TypeAlias

from recollect.errors import ModelError
from recollect.models.catalogue import Model, ModelFile, find
from recollect.models.staging import staging

NOTE = "verified.json"

Stamp: TypeAlias = dict[str, str | int]
"""What was true of a file when it was hashed."""


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
    noted = _read_note(folder)
    stamps = {file.name: _verify(model, file, folder / file.name, noted.get(file.name)) for file in model.files}
    if stamps != noted:
        _write_note_if_possible(folder, stamps)
    return folder


def installed(name: str) -> bool:
    """Whether the model is here and whole."""
    try:
        model_path(name)
    except ModelError:
        return False
    return True


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
    write_note(ready, {file.name: _verify(model, file, ready / file.name, None) for file in model.files})
    target = cache_root() / model.folder
    try:
        ready.rename(target)
    except OSError:
        if not installed(model.name):  # something damaged is in the way
            _set_aside(target, ready.parent / "damaged")
            _rename_unless_done(model, ready, target)
    return target


def write_note(folder: Path, stamps: dict[str, Stamp]) -> None:
    """Note what was verified. Written whole or not at all: two processes may write it."""
    draft = folder / f"{NOTE}.{os.getpid()}"
    try:
        draft.write_text(json.dumps({"files": stamps}, indent=1), encoding="utf-8")
        draft.replace(folder / NOTE)
    finally:
        draft.unlink(missing_ok=True)


def mend(model: Model) -> str:
    """The command that brings a model in, and back in order."""
    return f"recollect model fetch {model.name}"


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    import hashlib

    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _verify(model: Model, file: ModelFile, path: Path, noted: Stamp | None) -> Stamp:
    """The file's stamp, if the file is as pinned: by the note where it was not touched since, else by its hash."""
    try:
        state = path.stat()
        times: Stamp = {"size": state.st_size, "mtime_ns": state.st_mtime_ns, "ctime_ns": state.st_ctime_ns}
        accepted = {copy.sha256 for copy in file.copies if copy.size == state.st_size}
        if noted and noted.get("sha256") in accepted and noted == {**times, "sha256": noted["sha256"]}:
            return noted
        found = digest(path) if accepted else ""
    except OSError as error:
        raise ModelError(
            f"{path} of the model {model.name} cannot be read: {error.strerror}", hint=mend(model)
        ) from error
    if found not in accepted:
        raise ModelError(
            f"{path} is not the {file.name} of the model {model.name}: its content is not what was verified",
            hint=mend(model),
        )
    return {**times, "sha256": found}


def _read_note(folder: Path) -> dict[str, Stamp]:
    """What was noted; nothing, where the note is missing or not ours, so that everything is hashed again."""
    try:
        files = json.loads((folder / NOTE).read_text(encoding="utf-8"))["files"]
        return {str(name): dict(stamp) for name, stamp in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _write_note_if_possible(folder: Path, stamps: dict[str, Stamp]) -> None:
    """The note only saves time: in a cache that may not be written, files are hashed at each start instead."""
    try:
        write_note(folder, stamps)
    except OSError:
        return


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
