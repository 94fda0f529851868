"""OpenClaw's memory settings as ours: `agents.defaults.memorySearch` of openclaw.json, and its hybrid-memory plugin.

Names, bounds and defaults are those of OpenClaw's `docs/reference/memory-config.md` and of its schema; docs/openclaw.md
has the table. A default of OpenClaw is imported where it shapes the blend, so that an import ranks as OpenClaw does:
`vectorWeight · cosine + textWeight · textScore`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from recollect.config.values import FILLED, FLAG, LONGEST, ValueCheck, brief, is_filled, number, whole
from recollect.errors import ConfigError
from recollect.registry import missing_package

MOST_BYTES = 4_000_000
"""A larger file is not read."""

MOST_RELAXED = 200_000
"""Characters of JSON5: its parser takes a second for 130,000 of a usual file, and for 15,000 of the worst."""

_PLAIN = re.compile(r"[A-Za-z_$][\w$-]*", re.ASCII)


def read_document(path: Path) -> object:
    """The JSON or JSON5 document of a file; ConfigError where it is none."""
    text = _read_text(path)
    try:
        try:
            return json.loads(text, object_pairs_hook=_object)
        except ValueError as error:
            return _read_json5(text, path, error)
    except RecursionError as error:
        raise ConfigError(f"{path} is nested too deeply to be settings", hint="name an openclaw.json") from error


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ConfigError(f"{path} is larger than {MOST_BYTES:,} bytes", hint="name an openclaw.json")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}", hint="check the name") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not text in UTF-8", hint="name an openclaw.json") from error


def _read_json5(text: str, path: Path, not_json: ValueError) -> object:
    if len(text) > MOST_RELAXED:
        raise ConfigError(
            f"{path} is not JSON ({not_json}), and too long to be read as JSON5",
            hint=f"up to {MOST_RELAXED:,} characters are; remove its comments and trailing commas",
        )
    try:
        import json5

        return json5.loads(text, object_pairs_hook=_object)
    except ImportError as error:
        raise missing_package(error, f"{path} is not JSON ({not_json}); JSON5", "openclaw") from error
    except ValueError as error:
        where = str(error).replace("<string>:", "line ")
        raise ConfigError(f"{path} is neither JSON nor JSON5: {where[:200]}", hint="correct it there") from error


def _object(pairs: Any) -> dict[str, Any]:
    """An object in which no key occurs twice, because either value could be meant."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ConfigError(f"the key {json.dumps(key)[:60]} is there twice in one object", hint="remove one of them")
        found[key] = value
    return found


# -- what became of a document -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mapped:
    """A setting of ours. `key` is its path in the document; empty if the document relies on OpenClaw's default."""

    key: str
    setting: str
    value: object
    why: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """A key that sets nothing, and the reason. Its value is not kept, because it may be a secret."""

    key: str
    why: str


@dataclass(frozen=True, slots=True)
class Imported:
    """The settings that a document stands for, and the keys that have no counterpart."""

    mapped: tuple[Mapped, ...] = ()
    ignored: tuple[Ignored, ...] = ()

    @property
    def settings(self) -> Mapping[str, object]:
        """Dotted name → value, as `config.load` would have them."""
        return MappingProxyType({line.setting: line.value for line in self.mapped})


def _is_storable(value: object) -> bool:
    """Whether this is text that can be stored: not only white space, and no half of a surrogate pair."""
    return is_filled(value) and not any("\ud800" <= sign <= "\udfff" for sign in str(value))


SHARE = number(0, 1)
TEXT = FILLED._replace(admits=_is_storable)
TEXTS = ValueCheck(lambda value: isinstance(value, list) and all(map(_is_storable, value)), "a list of texts", tuple)
FUSION = ValueCheck(lambda value: value in ("weighted", "rrf"), 'the text "weighted" or "rrf"')


@dataclass(frozen=True, slots=True)
class JsonObject:
    """An object of the document and its path there."""

    values: Mapping[str, Any]
    path: str = ""

    def at(self, key: str) -> str:
        """The path of a key, as JSON paths are written."""
        if not _PLAIN.fullmatch(key) or len(key) > LONGEST:
            return f"{self.path}[{brief(key)}]"
        return self.below(key)

    def below(self, path: str) -> str:
        """The path of a key below this object, from the top of the document."""
        return f"{self.path}.{path}" if self.path else path

    def find(self, path: str) -> JsonObject | None:
        """The object at a dotted path, or None where there is none."""
        here = self
        for key in path.split(".") if path else ():
            if key not in here.values:
                return None
            if not isinstance(here.values[key], dict):
                raise here.wrong(key, "an object, for example { }")
            here = JsonObject(here.values[key], here.at(key))
        return here

    def read(self, keys: Mapping[str, ValueCheck]) -> dict[str, Any]:
        """The values of the keys that are there, by their path below this object, each checked."""
        values: dict[str, Any] = {}
        for path, check in keys.items():
            parent, _, name = path.rpartition(".")
            place = self.find(parent)
            if place is not None and name in place.values:
                if not check.admits(place.values[name]):
                    raise place.wrong(name, check.expected)
                values[path] = check.convert(place.values[name])
        return values

    def wrong(self, key: str, expected: str) -> ConfigError:
        """The error for a key that holds something else than is expected."""
        message = f"{self.at(key)} must be {expected}, not {brief(self.values[key])}"
        return ConfigError(message, hint="correct it in the file, or remove it")

    def unknown(self, path: str, known: Iterable[str], reasons: Mapping[str, str], otherwise: str) -> Iterator[Ignored]:
        """The keys of the object at a path that are not known, each with its reason."""
        place = self.find(path)
        names = {key[len(path) :].lstrip(".").partition(".")[0] for key in known if key.startswith(path)}
        for key in place.values if place is not None else ():
            if key not in names:
                yield Ignored(place.at(key) if place else "", reasons.get(key, otherwise))


Values: TypeAlias = Mapping[str, Any]
"""Path of a key → its value, for the keys that a document sets."""


class Row(NamedTuple):
    """A row of the table: a setting, its key (the first that is set, of several after "|"), its default, the reason.

    A default that is a function computes the value from that of the key and those of all keys; None sets nothing.
    """

    setting: str
    key: str
    default: Any
    why: str

    def apply(self, values: Values, section: JsonObject) -> Iterator[Mapped]:
        """The setting that comes of a document, if any."""
        key = next((key for key in self.key.split("|") if key in values), "")
        value = values.get(key)
        value = self.default(value, values) if callable(self.default) else self.default if value is None else value
        if value is not None:
            yield Mapped(section.below(key) if key else "", self.setting, value, self.why)


# -- memorySearch --------------------------------------------------------------------------------------------------

HYBRID, MMR, DECAY = "query.hybrid", "query.hybrid.mmr", "query.hybrid.temporalDecay"
MAX_RESULTS, MULTIPLIER, MOST_CANDIDATES, MOST_MULTIPLIER = 6, 4, 200, 20
VECTOR, WORDS = f"{HYBRID}.vectorWeight", f"{HYBRID}.textWeight"
WEIGHTS = MappingProxyType({VECTOR: 0.7, WORDS: 0.3})
OPENAI_MODEL = "text-embedding-3-small"
"""The model that OpenClaw asks for at OpenAI where none is named."""

KEYS: Mapping[str, ValueCheck] = MappingProxyType(
    {
        **dict.fromkeys((f"{HYBRID}.enabled", f"{MMR}.enabled", f"{DECAY}.enabled"), FLAG),
        **dict.fromkeys((*WEIGHTS, f"{MMR}.lambda", "query.minScore", "minScore"), SHARE),
        **dict.fromkeys(("query.maxResults", "maxResults"), whole(1, 10_000)),
        **dict.fromkeys((f"{HYBRID}.candidateMultiplier", f"{DECAY}.halfLifeDays"), whole(1, 1_000_000)),
        f"{HYBRID}.fusion": FUSION,
        f"{HYBRID}.rrfK": number(0, 1_000_000),
        **dict.fromkeys(("provider", "model"), TEXT),
    }
)
"""The keys of memorySearch that are read."""

HYBRID_ONLY = ("fusion", "vectorWeight", "textWeight", "rrfK", "mmr", "temporalDecay")
"""Keys of `hybrid` that OpenClaw does not read where `hybrid.enabled` is false."""

NO_COUNTERPART = "Recollect has no such setting"
LEFT: Mapping[str, str] = MappingProxyType(
    {
        "$include": "included files are not read; import each of them that holds memorySearch",
        "enabled": "Recollect searches when it is asked to",
        "fallback": "where a model does not answer, Recollect searches by words and says so",
        "local": "Recollect runs models of its own; `recollect model list` shows them",
        "sources": "Recollect searches what was indexed: `recollect index FOLDER`",
        "extraPaths": "index them: `recollect index PATH…`",
        "rememberAcrossConversations": "Recollect searches what was indexed: `recollect index FOLDER`",
        "store": "OpenClaw's index is not read; Recollect keeps its own (`store`), made by `recollect index`",
        "chunking": "Recollect splits files at their headings and paragraphs",
        "sync": "`recollect watch FOLDER` keeps an index current",
        "cache": "embeddings are always cached, by model and text",
        "multimodal": "Recollect indexes text only",
        "experimental": "session transcripts are not indexed by themselves; `recollect index` takes their folder",
        "qmd": "qmd can be an external source, see docs/sources.md",
        "outputDimensionality": "write `dimensions` under [openai] if the model takes it",
        "inputType": "write `query_prefix` and `passage_prefix` under [openai] if the model takes them",
        "queryInputType": "write `query_prefix` under [openai] if the model takes it",
        "documentInputType": "write `passage_prefix` under [openai] if the model takes it",
        "apiKey": "keys are not copied; Recollect reads them from the environment, by default OPENAI_API_KEY",
        "headers": "headers are not copied; they may hold keys",
        "batch": "Recollect sends texts in batches of its own",
        "nonBatchConcurrency": "Recollect sends texts in batches of its own",
        "baseUrl": 'texts are sent only where you say: `base_url` under [openai], and embedder = "openai:MODEL"',
    }
)
"""Key → why it sets nothing, and what to do instead."""


def _weight(key: str) -> Callable[[Any, Values], float]:
    """A weight; where both are 0, OpenClaw takes its defaults."""

    def value(given: float | None, values: Values) -> float:
        none = not any(values.get(other, default) for other, default in WEIGHTS.items())
        return WEIGHTS[key] if given is None or none else given

    return value


def _if(key: str, wanted: object, default: object) -> Callable[[Any, Values], object]:
    """The value, or OpenClaw's default where another key has this value."""
    return lambda given, values: default if given is None and values.get(key) == wanted else given


def _half_life(given: int | None, values: Values) -> float | None:
    return float(given or 30) if values.get(f"{DECAY}.enabled") else None


BLEND = (
    Row("search.fusion", f"{HYBRID}.fusion", "weighted", "a blend of scores, or with rrf Σ weight / (k + rank)"),
    Row("search.normalisation", "", "none", "a cosine as it is, BM25's s as s / (1 + s), absent as 0"),
    Row("search.vector_weight", VECTOR, _weight(VECTOR), "over the sum of both weights; both 0 are the defaults"),
    Row("search.text_weight", WORDS, _weight(WORDS), "over the sum of both weights; both 0 are the defaults"),
    Row("search.rrf_k", f"{HYBRID}.rrfK", _if(f"{HYBRID}.fusion", "rrf", 60.0), "ranks count from 1; used under rrf"),
    Row("search.mmr", f"{MMR}.enabled", False, "OpenClaw compares the words of snippets, Recollect the vectors"),
    Row("search.mmr_lambda", f"{MMR}.lambda", _if(f"{MMR}.enabled", True, 0.7), "1 is relevance only"),
    Row("search.decay", f"{DECAY}.enabled", False, "if off, no record loses score by age"),
    Row(
        "search.half_life_days", f"{DECAY}.halfLifeDays", _half_life,
        "every record without a decay class; in OpenClaw MEMORY.md and undated files never decay",
    ),
)  # fmt: skip
"""What hybrid search of OpenClaw means here."""

VECTORS_ONLY = (
    Row("search.sources", f"{HYBRID}.enabled", lambda *_: ("vector",), "without hybrid, OpenClaw uses vectors only"),
    Row("search.fusion", "", "weighted", "of one list it gives the cosine itself, which is OpenClaw's score"),
    Row("search.normalisation", "", "none", "scores as they are"),
    Row("search.mmr", "", False, "OpenClaw does not reorder without hybrid"),
    Row("search.decay", "", False, "OpenClaw does not read the age without hybrid"),
)
"""What `hybrid.enabled: false` means here."""

RESULTS = (
    Row("search.importance_weight", "", 0.0, "OpenClaw knows no importance; the blend stays as it is"),
    Row("search.prefer_newer", "", False, "OpenClaw does not rank newer facts first"),
    Row("search.limit", "query.maxResults|maxResults", MAX_RESULTS, "maximum number of results"),
    Row(
        "search.min_score", "query.minScore|minScore", 0.0,
        "0 to 1, nothing if not set; OpenClaw (0.35) keeps keyword hits if nothing reaches it, Recollect does not",
    ),
)  # fmt: skip
"""What is imported with and without hybrid search."""


def read_openclaw(document: object) -> Imported:
    """What OpenClaw's settings mean here; ConfigError for a value that OpenClaw would not take."""
    if not isinstance(document, dict):
        message = f"the file must hold an object, not {brief(document)}"
        raise ConfigError(message, hint='it begins with { "agents": … }')
    root = JsonObject(document)
    search = root.find("agents.defaults.memorySearch") or root.find("memorySearch")
    plugin = _find_plugin(root)
    if search is None and plugin is None:
        raise ConfigError(
            "the file sets nothing for memory: it has no agents.defaults.memorySearch",
            hint="name OpenClaw's own openclaw.json; an empty memorySearch: { } stands for OpenClaw's defaults",
        )
    lines = [*(_search(search) if search else ()), *(_plugin(plugin) if plugin else ()), *_elsewhere(root)]
    mapped = tuple(line for line in lines if isinstance(line, Mapped))
    return Imported(mapped, tuple(line for line in lines if isinstance(line, Ignored)))


def _search(search: JsonObject) -> Iterator[Mapped | Ignored]:
    values = search.read(KEYS)
    hybrid = values.get(f"{HYBRID}.enabled") is not False
    for row in (*(BLEND if hybrid else VECTORS_ONLY), _depth(values), *RESULTS):
        yield from row.apply(values, search)
    if hybrid and f"{DECAY}.halfLifeDays" in values and not values.get(f"{DECAY}.enabled"):
        yield Ignored(search.below(f"{DECAY}.halfLifeDays"), "temporalDecay is not enabled")
    for name in ("maxResults", "minScore"):
        if name in values and f"query.{name}" in values:
            yield Ignored(search.at(name), f"{search.below(f'query.{name}')} is read")
    yield from _provider(search, values)
    off = () if hybrid else HYBRID_ONLY
    known = [key for key in (*KEYS, "remote.") if not key.startswith(tuple(f"{HYBRID}.{name}" for name in off))]
    reasons = {**LEFT} | dict.fromkeys(off, "OpenClaw reads it only where hybrid.enabled is true")
    for path in (*((MMR, DECAY) if hybrid else ()), "remote", HYBRID, "query", ""):
        yield from search.unknown(path, known, reasons, NO_COUNTERPART)


def _depth(values: Values) -> Row:
    """`fetch_k` is maxResults × candidateMultiplier, as OpenClaw reads each of its two lists."""
    limit = values.get("query.maxResults", values.get("maxResults", MAX_RESULTS))
    times = min(values.get(f"{HYBRID}.candidateMultiplier", MULTIPLIER), MOST_MULTIPLIER)
    why = f"maxResults × candidateMultiplier = {limit} × {times}, {MOST_MULTIPLIER} times and {MOST_CANDIDATES} at most"
    return Row("search.fetch_k", f"{HYBRID}.candidateMultiplier", lambda *_: min(MOST_CANDIDATES, limit * times), why)


def _provider(search: JsonObject, values: Values) -> Iterator[Mapped | Ignored]:
    """The same embedding model where Recollect asks it in the same place; otherwise what to write."""
    remote = search.find("remote")
    provider, model = values.get("provider"), values.get("model")
    spec = None if remote and "baseUrl" in remote.values else _spec(provider, model)
    same = "search by words only" if spec == "none" else "the same model; texts are sent to it when they are indexed"
    instead = "Recollect asks openai:MODEL, ollama:MODEL or models of its own (`recollect model list`); set `embedder`"
    if provider in ("openai", "openai-compatible", "ollama"):
        instead = 'Recollect would ask it elsewhere; write embedder = "openai:MODEL" or "ollama:MODEL" yourself'
    for key in ("provider", "model"):
        if key in values:
            path = search.at(key)
            yield Ignored(path, instead) if spec is None else Mapped(path, "embedder", spec, same)


def _spec(provider: str | None, model: str | None) -> str | None:
    if any("${" in text for text in (provider, model) if text):
        return None  # OpenClaw puts a variable of its environment there
    match provider:
        case "none":
            return "none"
        case "openai":
            return f"openai:{(model or OPENAI_MODEL).removeprefix('openai/')}"
        case "ollama" if model:
            return f"ollama:{model.removeprefix('ollama/')}"
    return None


def _elsewhere(root: JsonObject) -> Iterator[Ignored]:
    """Keys outside memorySearch that are about memory."""
    for path in ("", "agents", "agents.defaults"):
        place = root.find(path)
        if place is not None and "$include" in place.values:
            yield Ignored(place.at("$include"), LEFT["$include"])
    if root.find("agents.defaults.memorySearch") is not None and "memorySearch" in root.values:
        yield Ignored("memorySearch", "agents.defaults.memorySearch is read")
    if "memory" in root.values:
        yield Ignored("memory", f"settings of OpenClaw's other engine; {LEFT['qmd']}")
    agents = (root.find("agents") or JsonObject({})).values.get("list", [])
    for index, agent in enumerate(agents if isinstance(agents, list) else []):
        if isinstance(agent, dict) and "memorySearch" in agent:
            why = "settings of one agent; import them as a file of their own, and name that with --config"
            yield Ignored(f"agents.list[{index}].memorySearch", why)


# -- the plugin openclaw-hybrid-memory -----------------------------------------------------------------------------

PLUGIN_NAMES = ("openclaw-hybrid-memory", "memory-hybrid")
PLUGIN_ONLY = "a setting of the plugin that Recollect has no counterpart for"
NEW, OLD = "queryExpansion", "search"
"""`queryExpansion` is the plugin's new name for `search.hyde…`, and goes before it there as it does here."""

PLUGIN_KEYS: Mapping[str, ValueCheck] = MappingProxyType(
    {
        "ingest.paths": TEXTS,
        "ingest.chunkSize": whole(100, 100_000),
        "ingest.overlap": whole(0, 50_000),
        f"{NEW}.timeoutMs": number(1, 3_600_000),
        **dict.fromkeys((f"{NEW}.enabled", f"{OLD}.hydeEnabled"), FLAG),
        **dict.fromkeys((f"{NEW}.model", f"{OLD}.hydeModel"), TEXT),
    }
)
"""The keys of the plugin that are read."""

PLUGIN = (
    Row("ingest.paths", "ingest.paths", lambda given, _: given or None, "globs inside the workspace"),
    Row("ingest.chunk_size", "ingest.chunkSize", None, "characters sent at once"),
    Row("ingest.overlap", "ingest.overlap", None, "characters shared with the chunk before"),
    Row(
        "search.hyde", f"{NEW}.enabled|{OLD}.hydeEnabled",
        lambda given, _: None if given is None else "replace" if given else False,
        "if on, the answer's vector replaces the query's, as in the plugin; needs [llm]",
    ),
    Row(
        "search.hyde_model", f"{NEW}.model|{OLD}.hydeModel", lambda given, _: given and given.removeprefix("openai/"),
        "asked at the endpoint of [llm], where its name may be another",
    ),
    Row("search.hyde_timeout", f"{NEW}.timeoutMs", lambda given, _: given and given / 1000, "in seconds"),
)  # fmt: skip
"""What the settings of the plugin mean here."""


def _find_plugin(root: JsonObject) -> JsonObject | None:
    """The plugin's `config` in openclaw.json, or a file that is that and nothing else."""
    for name in PLUGIN_NAMES:
        if (entries := root.find("plugins.entries")) and (found := entries.find(f"{name}.config")) is not None:
            return found
    alone = "agents" not in root.values and "plugins" not in root.values
    search = root.values.get(OLD)
    hyde = isinstance(search, dict) and any(key.startswith("hyde") for key in search)
    return root if alone and (hyde or "ingest" in root.values or NEW in root.values) else None


def _plugin(plugin: JsonObject) -> Iterator[Mapped | Ignored]:
    values = plugin.read(PLUGIN_KEYS)
    for row in PLUGIN:
        yield from row.apply(values, plugin)
        first, *others = row.key.split("|")
        if first in values:
            yield from (Ignored(plugin.below(key), f"{plugin.below(first)} is read") for key in others if key in values)
    if values.get("ingest.paths") == ():
        yield Ignored(
            f"{plugin.path}.ingest.paths".lstrip("."), "no path is named; `recollect ingest-files` takes paths"
        )
    for path in ("ingest", OLD, NEW, ""):
        yield from plugin.unknown(path, [*PLUGIN_KEYS, "memorySearch"], {}, PLUGIN_ONLY)
