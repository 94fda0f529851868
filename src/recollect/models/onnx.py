"""Catalogue models on this machine's processor, by ONNX Runtime: the embedder and the reranker.

Each text goes through the graph by itself, in one thread: the graphs are quantised by the whole input, so in a batch
one person's record would shift another's vector. Since nothing is padded, that is also faster than batches.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from recollect.errors import ConfigError, ModelError
from recollect.models.catalogue import Model, get_model, model_path
from recollect.models.embedders import CachedQueries, fingerprint, unit_rows
from recollect.ranking import well_formed
from recollect.registry import missing_package
from recollect.types import Matrix, Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    Array: TypeAlias = NDArray[np.float32]

Text: TypeAlias = str | tuple[str, str]  # the input of a graph: a text, or a pair of texts
UNKNOWN = "[UNK]"

MOST_THREADS = 32  # each needs up to 40 MB for a text of 512 tokens
BULK = 32  # more texts than a search embeds: they are computed at low priority, so that the machine stays usable
NICE = 10
CHARACTERS_A_TOKEN = 64  # text beyond is cut before it is tokenized: a megabyte must not cost a second
SHORT_WORD = 3  # letters of a word that says nothing about the language: most languages have such words
MIN_LETTERS = 4  # a query with fewer letters is a number or part of a name, and has no language
ILLEGIBLE, LEGIBLE = 1.6, 4.0  # letters a token: below the first a model understands nothing, from the second all


class Runtime:
    """A model's graph and tokenizer, loaded once, at first use."""

    def __init__(self, model: Model | str) -> None:
        self.model = get_model(model) if isinstance(model, str) else model
        self.threads = default_threads()
        self._lock = threading.Lock()
        self._loaded: tuple[Tokenizer, Any] | None = None

    def each(self, texts: Sequence[Text], reduce: Callable[[Array], Array]) -> list[Array]:
        """`reduce` of the graph's first output for each text, in order. The output has no batch axis and no padding."""
        if not texts:
            return []
        run = partial(self._run, *self.load(), reduce)
        workers, bulk = min(self.threads, len(texts)), len(texts) > BULK
        if workers == 1 and not bulk:
            return [run(text) for text in texts]
        # The longest first, so that no thread begins a long text when the others have finished.
        order = sorted(range(len(texts)), key=lambda number: -len("".join(texts[number])))
        with ThreadPoolExecutor(workers, "recollect-model", _lower_priority if bulk else None) as pool:
            rows = pool.map(run, (texts[number] for number in order))  # an error cancels the texts that have not begun
            by_number = dict(zip(order, rows, strict=True))
        return [by_number[number] for number in range(len(texts))]

    def load(self) -> tuple[Tokenizer, Any]:
        """The tokenizer and the session."""
        with self._lock:
            if self._loaded is None:
                begun = _BEGUN.pop(str(self.model.folder), None)
                self._loaded = _load(self.model) if begun is None or begun.exception() else begun.result()
            return self._loaded

    def readable(self, text: str) -> str:
        """The part of a text that the tokenizer reads."""
        return well_formed(text[: self.model.max_tokens * CHARACTERS_A_TOKEN])

    def beginning(self, text: str) -> str:
        """The part of a text that the model reads: its first `max_tokens` tokens."""
        if len(text) <= self.model.max_tokens:
            return text
        offsets = self.load()[0].encode(self.readable(text), add_special_tokens=False).offsets
        return text[: offsets[-1][1]] if offsets else ""

    def _run(self, tokenizer: Tokenizer, session: Any, reduce: Callable[[Array], Array], text: Text) -> Array:
        first, second = (text, None) if isinstance(text, str) else text
        encoding = tokenizer.encode(self.readable(first), second and self.readable(second))
        numbers = {
            "input_ids": encoding.ids,
            "attention_mask": encoding.attention_mask,
            "token_type_ids": encoding.type_ids,
        }
        names = {entry.name for entry in session.get_inputs()}
        feeds = {name: np.array([row], dtype=np.int64) for name, row in numbers.items() if name in names}
        output: Array = session.run(None, feeds)[0][0]
        return reduce(output)


def default_threads() -> int:
    """`RECOLLECT_THREADS`, else the number of processor cores that this process may use."""
    value = os.environ.get("RECOLLECT_THREADS")
    if not value:
        return min(usable_cores(), MOST_THREADS)
    if not value.isdecimal() or int(value) < 1:
        raise ConfigError(f"RECOLLECT_THREADS is {value!r}", hint="set it to a whole number from 1")
    return int(value)


def usable_cores(system: Path = Path("/sys")) -> int:
    """The cores that this process may use, within the affinity of the process and the limits of its container.

    Two hardware threads of a core count once: they share the units that multiply matrices.
    """
    if not hasattr(os, "sched_getaffinity"):  # Apple's processors have one thread a core, others for Windows mostly two
        count = os.cpu_count() or 1
        return count if sys.platform == "darwin" else max(1, count // 2)
    cores = set()
    for processor in os.sched_getaffinity(0):
        try:
            siblings = (system / f"devices/system/cpu/cpu{processor}/topology/thread_siblings_list").read_text()
        except OSError:
            siblings = str(processor)
        cores.add(siblings.strip())
    return max(1, math.ceil(min(len(cores), *_processor_limits(system / "fs/cgroup"))))


def _processor_limits(groups: Path) -> Iterator[float]:
    """How many processors' time the control groups of this process may use, of both versions of Linux's interface."""
    yield math.inf
    own = Path("/")
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        own = next((Path(line.removeprefix("0::")) for line in lines if line.startswith("0::")), own)
    for group in (own, *own.parents):
        with contextlib.suppress(OSError, ValueError):  # no such file, or no limit
            quota, period = map(int, (groups / group.relative_to("/") / "cpu.max").read_text().split())
            yield quota / period
    with contextlib.suppress(OSError, ValueError):
        quota, period = (int((groups / f"cpu/cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        yield quota / period if quota > 0 else math.inf


def _lower_priority() -> None:
    """Let other programs go first. Only on Linux is the priority that of a thread and not of the whole process."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, max(NICE, os.getpriority(os.PRIO_PROCESS, thread)))


_BEGUN: dict[str, Future[tuple[Tokenizer, Any]]] = {}  # models that are loaded ahead, by folder


def begin_to_load(name: str) -> None:
    """Load a model in a thread, while the rest of the program starts. Its first use waits for it."""
    model = get_model(name)
    pool = ThreadPoolExecutor(1, thread_name_prefix="recollect-model")
    _BEGUN[str(model.folder)] = pool.submit(_load, model)
    pool.shutdown(wait=False)


def _load(model: Model) -> tuple[Tokenizer, Any]:
    """Load both parts, in two threads, when their hashes have been compared.

    The libraries are imported here, meanwhile, because importing them takes longer than importing all the rest.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="recollect-model") as beside:
        verified = beside.submit(model_path, model.name)
        try:
            from onnxruntime import InferenceSession, SessionOptions  # type: ignore[import-untyped]
            from tokenizers import Tokenizer
        except ImportError as error:
            raise missing_package(error, f"the model {model.name}", None) from error
        folder = verified.result()
        options = SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors only: standard error is the user's
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            reading = beside.submit(Tokenizer.from_file, str(folder / "tokenizer.json"))
            session = InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
            tokenizer = reading.result()
        except Exception as error:  # both libraries raise classes of their own, down to Exception itself
            message = f"the model {model.name} in {folder} cannot be loaded: {error}"
            raise ModelError(message, hint=model.fetch_command) from error
    tokenizer.enable_truncation(model.max_tokens)
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # "[SEP]" in a text is text
    return tokenizer, session


class OnnxEmbedder(CachedQueries):
    """Text to unit vectors by a model's ONNX graph. Nothing is loaded before the first text."""

    def __init__(self, model: Model | str) -> None:
        self._runtime = Runtime(model)
        self.model = self._runtime.model
        self.name = self.model.name
        super().__init__()

    def embed_query(self, text: str) -> Vector:
        vector: Vector = self._embed([self.model.query_prefix + text])[0]
        return vector

    @property
    def fingerprint(self) -> str:
        """Model, hashes of graph and tokenizer, pooling, tokens read, dimension, prefixes."""
        model = self.model
        hashes = "+".join(file.sha256[:8] for file in model.files)
        parts = ("cls", model.max_tokens, f"{model.dimension}d")  # cls: the state of the first token
        return fingerprint(f"{model.name}@{hashes}", *parts, prefixes=(model.query_prefix, model.passage_prefix))

    def passages(self, texts: Sequence[str]) -> Matrix:
        """A text's vector does not depend on the texts beside it."""
        return self._embed([self.model.passage_prefix + text for text in texts])

    def is_word(self, word: str) -> bool:
        """Whether the model has a token for the whole word. Misspelled words have none, nor have rare ones."""
        return self._runtime.load()[0].token_to_id(word.lower()) is not None

    def legibility(self, text: str) -> float:
        """How well the model reads a text: 1 where it sees words, 0 where it sees single letters or unknown tokens.

        Measured in letters a token, without short words that are one token ("of"): English queries have five (one in
        twenty has about four), German ones two to three and a half, Hindi and Chinese ones one or fewer.
        """
        if sum(map(str.isalpha, text)) < MIN_LETTERS:
            return 1.0
        text, words, end = self._runtime.readable(text), list[list[str]](), -1
        encoding = self._runtime.load()[0].encode(text, add_special_tokens=False)
        for token, place in zip(encoding.tokens, encoding.offsets, strict=True):
            letters = "" if token == UNKNOWN else "".join(filter(str.isalpha, text[slice(*place)]))
            if letters or token == UNKNOWN:
                if place[0] != end:
                    words.append([])
                words[-1].append(letters)
                end = place[1]
        pieces = [piece for word in words if len(word) > 1 or not _is_short(word[0]) for piece in word]
        share = sum(map(len, pieces)) / len(pieces) if pieces else LEGIBLE
        return min(1.0, max(0.0, (share - ILLEGIBLE) / (LEGIBLE - ILLEGIBLE)))

    def _embed(self, texts: Sequence[str]) -> Matrix:
        """The state of the first token, which stands for the text: a copy, so that the others can be freed."""
        rows = self._runtime.each(texts, lambda states: np.array(states[0]))
        return unit_rows(rows, self.model.dimension, name=self.name)


def _is_short(word: str) -> bool:
    return 0 < len(word) <= SHORT_WORD and word.isascii()


class OnnxReranker:
    """A cross-encoder: reads query and passage as one text. Nothing is loaded before the first pair."""

    def __init__(self, model: Model | str) -> None:
        self._runtime = Runtime(model)
        self.name = self._runtime.model.name

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """The logit of each passage. It does not depend on the passages beside it.

        Long texts are cut first. The tokenizer would cut a pair, too, but it also makes all the pairs of their further
        parts, which takes up to a hundred megabytes.
        """
        beginning = self._runtime.beginning
        query = beginning(query)
        pairs = [(query, beginning(text)) for text in passages]
        return [float(logit[0]) for logit in self._runtime.each(pairs, np.copy)]
