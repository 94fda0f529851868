"""OpenClaw's memory settings as ours: `agents.defaults.memorySearch` of openclaw.json, and its hybrid-memory plugin.

Names, bounds and defaults are those of OpenClaw's `docs/reference/memory-config.md` and of its schema; docs/openclaw.md
has the table. A default of OpenClaw is imported where it shapes the blend, so that an import ranks as OpenClaw does:
`vectorWeight · cosine + textWeight · textScore`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, Union

from recollect.config.values import FILLED, FLAG, LONGEST, ValueCheck, brief, is_filled, number, whole
from recollect.errors import ConfigError
from recollect.registry import missing_package

MOST_BYTES = 4_000_000
"""A larger file is not read."""

MOST_RELAXED = 200_000
"""Characters of JSON5: its parser takes a second for 130,000 of a usual file, and for 15,000 of the worst."""


def read_document(path: Path) -> object:
    """The JSON or JSON5 document of a file; ConfigError where it is none."""
    hint = "name an openclaw.json"
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ConfigError(f"{path} is larger than {MOST_BYTES:,} bytes", hint=hint)
        text = data.decode("utf-8-sig")
        try:
            return json.loads(text, object_pairs_hook=_object)
        except ValueError as error:
            return _read_json5(text, path, error)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}", hint="check the name") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not text in UTF-8", hint=hint) from error
    except RecursionError as error:
        raise ConfigError(f"{path} is nested too deeply to be settings", hint=hint) from error


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


class Mapped(NamedTuple):
    """A setting of ours. `key` is its path in the document; empty if the document relies on OpenClaw's default."""

    key: str
    setting: str
    value: object
    why: str


class Ignored(NamedTuple):
    """A key that sets nothing, and the reason. Its value is not kept, because it may be a secret."""

    key: str
    why: str


class Imported(NamedTuple):
    """The settings that a document stands for, and the keys that have no counterpart."""

    mapped: tuple[Mapped, ...] = ()
    ignored: tuple[Ignored, ...] = ()

    @property
    def settings(self) -> Mapping[str, object]:
        """Dotted name → value, as `config.load` would have them."""
        return MappingProxyType({line.setting: line.value for line in self.mapped})


# -- reading the keys ----------------------------------------------------------------------------------------------

Keys: TypeAlias = Mapping[str, Union[ValueCheck, "Keys"]]
"""The keys of an object that are read: each with the check of its value, or with the keys of the object below it."""

Values: TypeAlias = Mapping[str, Any]
"""An object of the document; or the values that were read, by the path of their key inside a section."""

_PLAIN = re.compile(r"[A-Za-z_$][\w$-]*", re.ASCII)


def _at(path: str, key: str) -> str:
    """The path of a key, as JSON paths are written."""
    if not _PLAIN.fullmatch(key) or len(key) > LONGEST:
        return f"{path}[{brief(key)}]"
    return _below(path, key)


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _checked(path: str, value: Any, check: ValueCheck) -> Any:
    if not check.admits(value):
        message = f"{path} must be {check.expected}, not {brief(value)}"
        raise ConfigError(message, hint="correct it in the file, or remove it")
    return check.convert(value)


def _find(document: Values, path: str) -> Values | None:
    """The object at a dotted path, or None where there is none."""
    place = ""
    for key in path.split("."):
        if key not in document:
            return None
        place = _at(place, key)
        document = _checked(place, document[key], OBJECT)
    return document


def _read(document: Values, keys: Keys, section: str, path: str = "") -> dict[str, Any]:
    """The values of the keys that a section sets, each checked."""
    values: dict[str, Any] = {}
    for key, known in keys.items():
        if key in document:
            below = _below(path, key)
            value = _checked(_below(section, below), document[key], known if isinstance(known, ValueCheck) else OBJECT)
            values |= {below: value} if isinstance(known, ValueCheck) else _read(value, known, section, below)
    return values


def _unknown(document: Values, keys: Keys, path: str, reasons: Mapping[str, str], otherwise: str) -> Iterator[Ignored]:
    """The keys that are not read, those of the objects inside first."""
    for key, known in keys.items():
        if key in document and not isinstance(known, ValueCheck):
            yield from _unknown(document[key], known, _at(path, key), reasons, otherwise)
    yield from (Ignored(_at(path, key), reasons.get(key, otherwise)) for key in document if key not in keys)


def _is_storable(value: object) -> bool:
    """Whether this is text that can be stored: not only white space, and no half of a surrogate pair."""
    return is_filled(value) and not any("\ud800" <= sign <= "\udfff" for sign in str(value))


SHARE = number(0, 1)
COUNT = whole(1, 10_000)
MANY = whole(1, 1_000_000)
TEXT = FILLED._replace(admits=_is_storable)
TEXTS = ValueCheck(lambda value: isinstance(value, list) and all(map(_is_storable, value)), "a list of texts", tuple)
OBJECT = ValueCheck(lambda value: isinstance(value, dict), "an object, for example { }")
FUSION = ValueCheck(lambda value: value in ("weighted", "rrf"), 'the text "weighted" or "rrf"')


Row: TypeAlias = tuple[str, str, Any, str]
"""A setting, the keys that stand for it (of several, divided by "|", the first that is set), its value, the reason."""


def _apply(rows: Iterable[Row], values: Values, section: str) -> Iterator[Mapped | Ignored]:
    """The settings that come of a section; a value of None sets nothing."""
    for setting, keys, value, why in rows:
        first, *others = [_below(section, key) for key in keys.split("|") if key in values] or [""]
        if value is not None:
            yield Mapped(first, setting, value, why)
        yield from (Ignored(key, f"{first} is read") for key in others)


# -- memorySearch --------------------------------------------------------------------------------------------------

HYBRID, MMR, DECAY = "query.hybrid", "query.hybrid.mmr", "query.hybrid.temporalDecay"
MAX_RESULTS, MULTIPLIER, MOST_CANDIDATES, MOST_MULTIPLIER = 6, 4, 200, 20
WEIGHTS = {f"{HYBRID}.vectorWeight": 0.7, f"{HYBRID}.textWeight": 0.3}
OPENAI_MODEL = "text-embedding-3-small"
"""The model that OpenClaw asks for at OpenAI where none is named."""

HYBRID_ONLY: Keys = {
    "fusion": FUSION, "vectorWeight": SHARE, "textWeight": SHARE, "rrfK": number(0, 1_000_000),
    "mmr": {"enabled": FLAG, "lambda": SHARE}, "temporalDecay": {"enabled": FLAG, "halfLifeDays": MANY},
}  # fmt: skip
"""Keys of `hybrid` that OpenClaw does not read where `hybrid.enabled` is false."""


def _search_keys(hybrid_only: Keys) -> Keys:
    hybrid: Keys = {"enabled": FLAG, "candidateMultiplier": MANY, **hybrid_only}
    query: Keys = {"maxResults": COUNT, "minScore": SHARE, "hybrid": hybrid}
    return {"query": query, "maxResults": COUNT, "minScore": SHARE, "provider": TEXT, "model": TEXT, "remote": {}}


NO_COUNTERPART = "Recollect has no such setting"
LEFT: Mapping[str, str] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
"""Key → why it sets nothing, and what to do instead."""


def read_openclaw(document: object) -> Imported:
    """What OpenClaw's settings mean here; ConfigError for a value that OpenClaw would not take."""
    if not isinstance(document, dict):
        message = f"the file must hold an object, not {brief(document)}"
        raise ConfigError(message, hint='it begins with { "agents": … }')
    sections = {path: _find(document, path) for path in ("agents.defaults.memorySearch", "memorySearch")}
    lines: list[Mapped | Ignored] = []
    for path, search in sections.items():
        if search is not None:
            lines += _search(search, path)
            break
    plugin = _find_plugin(document)
    if not lines and plugin is None:
        raise ConfigError(
            "the file sets nothing for memory: it has no agents.defaults.memorySearch",
            hint="name OpenClaw's own openclaw.json; an empty memorySearch: { } stands for OpenClaw's defaults",
        )
    lines += [*(_plugin(*plugin) if plugin else ()), *_elsewhere(document)]
    mapped = tuple(line for line in lines if isinstance(line, Mapped))
    return Imported(mapped, tuple(line for line in lines if isinstance(line, Ignored)))


def _search(search: Values, section: str) -> Iterator[Mapped | Ignored]:
    values = _read(search, _search_keys(HYBRID_ONLY), section)
    hybrid = values.get(f"{HYBRID}.enabled") is not False
    yield from _apply([*(_blend(values) if hybrid else VECTORS_ONLY), *_results(values)], values, section)
    if hybrid and f"{DECAY}.halfLifeDays" in values and not values.get(f"{DECAY}.enabled"):
        yield Ignored(f"{section}.{DECAY}.halfLifeDays", "temporalDecay is not enabled")
    elsewhere = "baseUrl" in search.get("remote", {})
    yield from _provider(values.get("provider"), values.get("model"), section, elsewhere)
    off = {} if hybrid else dict.fromkeys(HYBRID_ONLY, "OpenClaw reads it only where hybrid.enabled is true")
    yield from _unknown(search, _search_keys(HYBRID_ONLY if hybrid else {}), section, {**LEFT, **off}, NO_COUNTERPART)


def _blend(values: Values) -> Iterator[Row]:
    """What hybrid search of OpenClaw means here."""
    fusion, mmr, decay = values.get(f"{HYBRID}.fusion", "weighted"), f"{MMR}.enabled", f"{DECAY}.enabled"
    yield "search.fusion", f"{HYBRID}.fusion", fusion, "a blend of scores, or with rrf Σ weight / (k + rank)"
    yield "search.normalisation", "", "none", "a cosine as it is, BM25's s as s / (1 + s), absent as 0"
    weights = {key: values.get(key, default) for key, default in WEIGHTS.items()}
    for (key, weight), setting in zip(weights.items(), ("vector_weight", "text_weight"), strict=True):
        value = weight if any(weights.values()) else WEIGHTS[key]
        yield f"search.{setting}", key, value, "over the sum of both weights; both 0 are the defaults"
    rrf_k = values.get(f"{HYBRID}.rrfK", 60.0 if fusion == "rrf" else None)
    yield "search.rrf_k", f"{HYBRID}.rrfK", rrf_k, "ranks count from 1; used under rrf"
    yield "search.mmr", mmr, values.get(mmr, False), "OpenClaw compares the words of snippets, Recollect the vectors"
    balance = values.get(f"{MMR}.lambda", 0.7 if values.get(mmr) else None)
    yield "search.mmr_lambda", f"{MMR}.lambda", balance, "1 is relevance only"
    yield "search.decay", decay, values.get(decay, False), "if off, no record loses score by age"
    half_life = float(values.get(f"{DECAY}.halfLifeDays", 30)) if values.get(decay) else None
    why = "every record without a decay class; in OpenClaw MEMORY.md and undated files never decay"
    yield "search.half_life_days", f"{DECAY}.halfLifeDays", half_life, why


VECTORS_ONLY: tuple[Row, ...] = (
    ("search.sources", f"{HYBRID}.enabled", ("vector",), "without hybrid, OpenClaw uses vectors only"),
    ("search.fusion", "", "weighted", "of one list it gives the cosine itself, which is OpenClaw's score"),
    ("search.normalisation", "", "none", "scores as they are"),
    ("search.mmr", "", False, "OpenClaw does not reorder without hybrid"),
    ("search.decay", "", False, "OpenClaw does not read the age without hybrid"),
)
"""What `hybrid.enabled: false` means here."""


def _results(values: Values) -> Iterator[Row]:
    """What is imported with and without hybrid search. OpenClaw reads maxResults × candidateMultiplier of each list."""
    limit = values.get("query.maxResults", values.get("maxResults", MAX_RESULTS))
    times = min(values.get(f"{HYBRID}.candidateMultiplier", MULTIPLIER), MOST_MULTIPLIER)
    why = f"maxResults × candidateMultiplier = {limit} × {times}, {MOST_MULTIPLIER} times and {MOST_CANDIDATES} at most"
    yield "search.fetch_k", f"{HYBRID}.candidateMultiplier", min(MOST_CANDIDATES, limit * times), why
    yield "search.importance_weight", "", 0.0, "OpenClaw knows no importance; the blend stays as it is"
    yield "search.prefer_newer", "", False, "OpenClaw does not rank newer facts first"
    yield "search.limit", "query.maxResults|maxResults", limit, "maximum number of results"
    score = values.get("query.minScore", values.get("minScore", 0.0))
    why = "0 to 1, nothing if not set; OpenClaw (0.35) keeps keyword hits if nothing reaches it, Recollect does not"
    yield "search.min_score", "query.minScore|minScore", score, why


def _provider(provider: str | None, model: str | None, section: str, elsewhere: bool) -> Iterator[Mapped | Ignored]:
    """The same embedding model where Recollect asks it in the same place; otherwise what to write."""
    spec = None
    if not elsewhere and "${" not in f"{provider}{model}":  # OpenClaw puts a variable of its environment there
        match provider:
            case "none":
                spec = "none"
            case "openai":
                spec = f"openai:{(model or OPENAI_MODEL).removeprefix('openai/')}"
            case "ollama" if model:
                spec = f"ollama:{model.removeprefix('ollama/')}"
    same = "search by words only" if spec == "none" else "the same model; texts are sent to it when they are indexed"
    instead = "Recollect asks openai:MODEL, ollama:MODEL or models of its own (`recollect model list`); set `embedder`"
    if provider in ("openai", "openai-compatible", "ollama"):
        instead = 'Recollect would ask it elsewhere; write embedder = "openai:MODEL" or "ollama:MODEL" yourself'
    for path, value in ((f"{section}.provider", provider), (f"{section}.model", model)):
        if value is not None:
            yield Ignored(path, instead) if spec is None else Mapped(path, "embedder", spec, same)


def _elsewhere(document: Values) -> Iterator[Ignored]:
    """Keys outside memorySearch that are about memory."""
    agents = _find(document, "agents") or {}
    defaults = _find(document, "agents.defaults") or {}
    for path, place in (("", document), ("agents", agents), ("agents.defaults", defaults)):
        if "$include" in place:
            yield Ignored(_at(path, "$include"), LEFT["$include"])
    if "memorySearch" in defaults and "memorySearch" in document:
        yield Ignored("memorySearch", "agents.defaults.memorySearch is read")
    if "memory" in document:
        yield Ignored("memory", f"settings of OpenClaw's other engine; {LEFT['qmd']}")
    listed = agents.get("list")
    for index, agent in enumerate(listed if isinstance(listed, list) else []):
        if isinstance(agent, dict) and "memorySearch" in agent:
            why = "settings of one agent; import them as a file of their own, and name that with --config"
            yield Ignored(f"agents.list[{index}].memorySearch", why)


# -- the plugin openclaw-hybrid-memory -----------------------------------------------------------------------------

PLUGIN_NAMES = ("openclaw-hybrid-memory", "memory-hybrid")
PLUGIN_ONLY = "a setting of the plugin that Recollect has no counterpart for"
NEW, OLD = "queryExpansion", "search"
"""`queryExpansion` is the plugin's new name for `search.hyde…`, and goes before it there as it does here."""

PLUGIN_KEYS: Keys = {
    "ingest": {"paths": TEXTS, "chunkSize": whole(100, 100_000), "overlap": whole(0, 50_000)},
    OLD: {"hydeEnabled": FLAG, "hydeModel": TEXT},
    NEW: {"enabled": FLAG, "model": TEXT, "timeoutMs": number(1, 3_600_000)},
}
"""The keys of the plugin that are read."""


def _find_plugin(document: Values) -> tuple[Values, str] | None:
    """The plugin's `config` in openclaw.json and its path, or a file that is that and nothing else."""
    for name in PLUGIN_NAMES:
        path = f"plugins.entries.{name}.config"
        if (found := _find(document, path)) is not None:
            return found, path
    search = document.get(OLD)
    hyde = isinstance(search, dict) and any(key.startswith("hyde") for key in search)
    alone = not {"agents", "plugins"} & document.keys()
    return (document, "") if alone and (hyde or "ingest" in document or NEW in document) else None


def _plugin(plugin: Values, section: str) -> Iterator[Mapped | Ignored]:
    values = _read(plugin, PLUGIN_KEYS, section)
    yield from _apply(_plugin_rows(values), values, section)
    if values.get("ingest.paths") == ():
        yield Ignored(_below(section, "ingest.paths"), "no path is named; `recollect ingest-files` takes paths")
    # memorySearch may stand beside the plugin's keys in a file of its own, and was read before.
    yield from _unknown(plugin, {**PLUGIN_KEYS, "memorySearch": FLAG}, section, {}, PLUGIN_ONLY)


def _plugin_rows(values: Values) -> Iterator[Row]:
    yield "ingest.paths", "ingest.paths", values.get("ingest.paths") or None, "globs inside the workspace"
    yield "ingest.chunk_size", "ingest.chunkSize", values.get("ingest.chunkSize"), "characters sent at once"
    yield "ingest.overlap", "ingest.overlap", values.get("ingest.overlap"), "characters shared with the chunk before"
    hyde = values.get(f"{NEW}.enabled", values.get(f"{OLD}.hydeEnabled"))
    why = "if on, the answer's vector replaces the query's, as in the plugin; needs [llm]"
    yield "search.hyde", f"{NEW}.enabled|{OLD}.hydeEnabled", "replace" if hyde else hyde, why
    model = values.get(f"{NEW}.model", values.get(f"{OLD}.hydeModel"))
    why = "asked at the endpoint of [llm], where its name may be another"
    yield "search.hyde_model", f"{NEW}.model|{OLD}.hydeModel", model and model.removeprefix("openai/"), why
    timeout = values.get(f"{NEW}.timeoutMs")
    yield "search.hyde_timeout", f"{NEW}.timeoutMs", timeout and timeout / 1000, "in seconds"
