"""The catalogue of models (`catalogue.toml`), and those on this machine: where they are, and whether complete."""

from __future__ import annotations

import contextlib
import os
import shutil
import tomllib
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from recollect.dataclass import dataclass
from recollect.errors import ModelError, ModelMissing, UsageError
from recollect.types import Progress

DEFAULT = "arctic-embed-s"
STAGING = ".staging-"


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One file of a model: its path in the wheel, its size and hash; and perhaps the same file on the hub."""

    path: str
    size: int
    sha256: str
    hub: ModelFile | None = None

    @property
    def name(self) -> str:
        """The name of the file on this machine."""
        return self.path.rpartition("/")[2]

    @property
    def copies(self) -> tuple[ModelFile, ...]:
        """Every accepted form of the file."""
        return (self, self.hub) if self.hub else (self,)


@dataclass(frozen=True, slots=True)
class Model:
    """A model, with everything that determines its output. `wheel` is the package that contains its files."""

    name: str
    repository: str
    revision: str
    licence: str
    kind: str
    dimension: int
    max_tokens: int
    pooling: str
    files: tuple[ModelFile, ...]
    wheel: str
    wheel_size: int
    query_prefix: str = ""
    passage_prefix: str = ""

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.size for file in self.files)

    @property
    def folder(self) -> str:
        """The name of its folder in the cache; other versions of its files have other folders."""
        return f"{self.name}-{self.files[0].sha256[:8]}"

    @property
    def fetch_command(self) -> str:
        """The command that fetches it, or repairs it."""
        return f"recollect model fetch {self.name}"


def _model(name: str, table: dict[str, Any]) -> Model:
    files = (file | {"hub": ModelFile(**file["hub"]) if "hub" in file else None} for file in table.pop("files"))
    return Model(name, **table, files=tuple(ModelFile(**file) for file in files))


MODELS: Mapping[str, Model] = MappingProxyType(
    {
        name: _model(name, table)
        for name, table in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items()
    }
)


def get_model(name: str) -> Model:
    """The model with this name; raises UsageError if there is none."""
    if name in MODELS:
        return MODELS[name]
    available = ", ".join(MODELS)
    raise UsageError(f"unknown model {name!r}; available: {available}", hint="`recollect model list` describes each")


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
        raise ModelError(f"the model {name} is not on this machine ({folder})", hint=model.fetch_command)
    verify(model, folder)
    return folder


def installed(name: str) -> bool:
    """Whether the model is here and every file has its pinned hash."""
    try:
        model_path(name)
    except ModelError:
        return False
    return True


def ensure_model(name: str, *, announce: Callable[[str], None] | None, progress: Progress | None, fetch: bool) -> None:
    """Fetch a model that is not on this machine, or raise ModelMissing if `fetch` is false.

    Only names and sizes are looked at here. The content is checked when it is loaded.
    """
    model = get_model(name)
    folder = cache_root() / model.folder
    with contextlib.suppress(OSError):
        if all((folder / file.name).stat().st_size in {copy.size for copy in file.copies} for file in model.files):
            return
    if not fetch:
        raise ModelMissing(f"the model {name} is not on this machine", hint=f"`{model.fetch_command}` fetches it")
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
    if target.exists() and not installed(model.name):
        with contextlib.suppress(FileNotFoundError):
            target.rename(ready.parent / "damaged")
    try:
        return ready.rename(target)
    except OSError:
        if installed(model.name):
            return target
        raise


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    import hashlib

    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def verify(model: Model, folder: Path) -> None:
    """Raise ModelError unless every file of the model in this folder has its pinned hash."""
    for file in model.files:
        path, reason = folder / file.name, ""
        try:
            accepted = {copy.sha256 for copy in file.copies if copy.size == path.stat().st_size}
            if not accepted or digest(path) not in accepted:
                reason = f"{path} is damaged: its SHA-256 is not that of the {file.name} of the model {model.name}"
        except OSError as error:
            reason = f"{path} of the model {model.name} cannot be read: {error.strerror}"
        if reason:
            raise ModelError(reason, hint=model.fetch_command)


@contextlib.contextmanager
def staging(root: Path) -> Iterator[Path]:
    """An empty folder inside `root` that is deleted afterwards. Folders that killed processes left are deleted first.

    The folder exists only while its lock is held, and the system releases the lock of a killed process: a folder whose
    lock is free belongs to nobody.
    """
    from filelock import FileLock, Timeout

    root.mkdir(parents=True, exist_ok=True)
    for abandoned in [path for path in root.glob(f"{STAGING}*") if path.is_dir()]:
        with contextlib.suppress(Timeout, OSError), FileLock(f"{abandoned}.lock", timeout=0):
            _delete(abandoned)
    folder = root / f"{STAGING}{uuid.uuid4().hex}"
    with contextlib.ExitStack() as lock:
        with contextlib.suppress(OSError):  # a file system without locks, where no folder counts as abandoned either
            lock.enter_context(FileLock(f"{folder}.lock"))
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            _delete(folder)


def _delete(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # Windows does not delete an open file
        Path(f"{folder}.lock").unlink()
