"""Catalogue models on this machine's processor, by ONNX Runtime: the embedder and the reranker.

Each text goes through the graph by itself. The graphs are quantised dynamically: the scale of the numbers is taken from
the whole input, so that in a batch a text's vector depends on the texts beside it (cosine 0.994 to its own, measured),
and one person's record would shift another's. Texts run side by side in threads instead, one thread each, which is also
faster than batches (nothing is padded) and takes less memory.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from recollect.errors import ConfigError, ModelError, UsageError
from recollect.models.cache import fetch_command, model_path
from recollect.models.catalogue import Model, get_model
from recollect.models.embedders import QUERIES_KEPT, fingerprint, frozen, unit_rows
from recollect.models.endpoint import well_formed
from recollect.registry import missing_package

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Encoding, Tokenizer

    Array: TypeAlias = NDArray[np.float32]
    from recollect.types import Matrix, Vector


Text: TypeAlias = str | tuple[str, str]
"""What a graph reads: a text, or a pair of them."""

UNKNOWN = "[UNK]"

MOST_THREADS = 4
"""More gain little for such small models, and take the machine from whoever works on it."""

CHARACTERS_A_TOKEN = 64
"""Text beyond this many characters a token is cut before it is tokenized: a megabyte must not cost a second."""


class Runtime:
    """A model's graph and tokenizer, loaded at first use and once, whichever thread comes first."""

    def __init__(self, model: Model, *, threads: int | None = None) -> None:
        self.model = model
        self.threads = threads or default_threads()
        self._lock = threading.Lock()
        self._loaded: tuple[Tokenizer, Any] | None = None

    def each(self, texts: Sequence[Text], reduce: Callable[[Array], Array]) -> list[Array]:
        """`reduce` of the graph's first output for each text, in order. The output has no batch axis and no padding."""
        tokenizer, session = self.load()
        one = partial(self._run, tokenizer, session, reduce)
        workers = min(self.threads, len(texts))
        if workers <= 1:
            return [one(text) for text in texts]
        pool = ThreadPoolExecutor(workers, thread_name_prefix="recollect-model")
        try:
            return list(pool.map(one, texts))
        finally:
            pool.shutdown(cancel_futures=True)

    def pieces(self, text: str) -> list[str]:
        """The letters of each token that has any; an unknown sign is a piece without letters."""
        tokenizer, _ = self.load()
        text = well_formed(text[: self.model.max_tokens * CHARACTERS_A_TOKEN])
        found = tokenizer.encode(text, add_special_tokens=False)
        seen = [
            "" if token == UNKNOWN else "".join(filter(str.isalpha, text[start:end]))
            for token, (start, end) in zip(found.tokens, found.offsets, strict=True)
        ]
        return [piece for piece, token in zip(seen, found.tokens, strict=True) if piece or token == UNKNOWN]

    def load(self) -> tuple[Tokenizer, Any]:
        """The tokenizer and the session, loaded if they were not."""
        with self._lock:
            if self._loaded is None:
                folder = model_path(self.model.name)
                self._loaded = _load(self.model, folder)
            return self._loaded

    def _run(self, tokenizer: Tokenizer, session: Any, reduce: Callable[[Array], Array], text: Text) -> Array:
        most = self.model.max_tokens * CHARACTERS_A_TOKEN
        first, second = (text, None) if isinstance(text, str) else text
        encoding = tokenizer.encode(well_formed(first[:most]), second and well_formed(second[:most]))
        wanted = {entry.name for entry in session.get_inputs()}
        feeds = {name: array for name, array in _inputs(encoding).items() if name in wanted}
        output: Array = session.run(None, feeds)[0][0]
        return reduce(output)


def default_threads() -> int:
    """`RECOLLECT_THREADS`, else as many as there are processors, up to four."""
    chosen = os.environ.get("RECOLLECT_THREADS")
    if not chosen:
        return min(os.cpu_count() or 1, MOST_THREADS)
    if not chosen.isdecimal() or int(chosen) < 1:
        raise ConfigError(f"RECOLLECT_THREADS is {chosen!r}", hint="give a whole number from 1")
    return int(chosen)


def _inputs(encoding: Encoding) -> dict[str, NDArray[np.int64]]:
    named = {
        "input_ids": encoding.ids,
        "attention_mask": encoding.attention_mask,
        "token_type_ids": encoding.type_ids,
    }
    return {name: np.array([numbers], dtype=np.int64) for name, numbers in named.items()}


def _load(model: Model, folder: Path) -> tuple[Tokenizer, Any]:
    """Both parts from a folder. The libraries are imported here: they cost more than all the rest of the program."""
    try:
        from onnxruntime import InferenceSession  # type: ignore[import-untyped]
        from tokenizers import Tokenizer
    except ImportError as error:
        raise missing_package(error, f"the model {model.name}", None) from error
    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        session = InferenceSession(str(folder / "model.onnx"), _options(), providers=["CPUExecutionProvider"])
    except Exception as error:  # both libraries raise their own, down to Exception itself
        raise ModelError(
            f"the model {model.name} in {folder} cannot be loaded: {error}", hint=fetch_command(model)
        ) from error
    tokenizer.enable_truncation(model.max_tokens)
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # "[SEP]" in a text is text
    return tokenizer, session


def _options() -> Any:
    from onnxruntime import SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors only: standard error is the user's
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


LEAST_LETTERS = 4
"""Fewer are a number or a part of a name, of which nobody can tell the language."""

ILLEGIBLE, LEGIBLE = 1.2, 2.0
"""Letters a token at which a model reads nothing, and from which on it reads enough."""


class OnnxEmbedder:
    """Text to unit vectors by a model's ONNX graph. Nothing is loaded before the first text."""

    def __init__(self, model: Model, *, threads: int | None = None) -> None:
        if model.kind != "embedder" or model.pooling not in POOLINGS:
            raise UsageError(
                f"{model.name} is a {model.kind}, not an embedder", hint="`recollect model list` says which are"
            )
        self.model = model
        self._runtime = Runtime(model, threads=threads)
        self._pool = POOLINGS[model.pooling]
        self._query = lru_cache(maxsize=QUERIES_KEPT)(self._embed_query)

    @property
    def name(self) -> str:
        """The model's name in the catalogue."""
        return self.model.name

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""
        return self.model.dimension

    @property
    def fingerprint(self) -> str:
        """Model, graph and tokenizer by hash, pooling, tokens read, dimension, length, prefixes."""
        model = self.model
        hashes = "+".join(file.sha256[:8] for file in model.files)
        facts = (model.pooling, model.max_tokens, f"{model.dimension}d")
        return fingerprint(f"{model.name}@{hashes}", *facts, prefixes=(model.query_prefix, model.passage_prefix))

    def passages(self, texts: Sequence[str]) -> Matrix:
        """One unit vector a text, in order. A text's vector does not depend on the texts beside it."""
        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        rows = self._runtime.each([self.model.passage_prefix + text for text in texts], self._pool)
        return unit_rows(rows, name=self.name)

    def query(self, text: str) -> Vector:
        """The unit vector of a query."""
        return self._query("", text)

    def query_of(self, asker: str, text: str) -> Vector:
        """The same, kept apart for each who asks: how fast it comes does not tell what others have asked."""
        return self._query(asker, text)

    def legibility(self, text: str) -> float:
        """How well the model reads a text: 1 where it sees words, 0 where it sees single letters or unknown signs.

        Measured in letters a token: English questions have four (one in twenty has fewer than three), German ones
        two to three, Hindi and Chinese ones one or fewer.
        """
        letters = sum(map(str.isalpha, text))
        if letters < LEAST_LETTERS:
            return 1.0
        pieces = self._runtime.pieces(text)
        read = sum(len(piece) for piece in pieces)
        return min(1.0, max(0.0, (read / max(1, len(pieces)) - ILLEGIBLE) / (LEGIBLE - ILLEGIBLE)))

    def _embed_query(self, _asker: str, text: str) -> Vector:
        rows = self._runtime.each([self.model.query_prefix + text], self._pool)
        vector: Vector = unit_rows(rows, name=self.name)[0]
        return frozen(vector)


def first_token(states: Array) -> Array:
    """CLS pooling: the state of the token that stands for the whole text. Copied, so that the rest can be let go."""
    state: Array = states[0].copy()
    return state


def mean_of_tokens(states: Array) -> Array:
    """Mean pooling; there is no padding to leave out."""
    mean: Array = states.mean(axis=0, dtype=np.float32)
    return mean


POOLINGS = {"cls": first_token, "mean": mean_of_tokens}


def open_onnx_embedder(spec: str, *, threads: int | None = None) -> OnnxEmbedder:
    """`arctic-embed-s`: the catalogue's model of that name."""
    return OnnxEmbedder(get_model(spec), threads=threads)


class OnnxReranker:
    """Pairs to logits by a model's ONNX graph. Nothing is loaded before the first pair."""

    def __init__(self, model: Model, *, threads: int | None = None) -> None:
        if model.kind != "reranker":
            raise UsageError(
                f"{model.name} is an {model.kind}, not a reranker", hint="`recollect model list` says which are"
            )
        self.model = model
        self._runtime = Runtime(model, threads=threads)

    @property
    def name(self) -> str:
        """The model's name in the catalogue."""
        return self.model.name

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """The logit of each passage, in order. It does not depend on the passages beside it."""
        return [float(logit[0]) for logit in self._runtime.each([(query, text) for text in passages], _copied)]


def _copied(logits: Array) -> Array:
    """The graph's output, let go of the graph's memory."""
    copy: Array = logits.copy()
    return copy


def open_onnx_reranker(spec: str) -> OnnxReranker:
    """`minilm-l12-reranker`: the catalogue's model of that name."""
    return OnnxReranker(get_model(spec))
