"""OpenClaw's memory settings as ours, with its defaults, so that both rank alike; docs/openclaw.md has the table."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, Union

from recollect.config.values import FILLED, FLAG, LONGEST, ValueCheck, brief, is_filled, number, read_at_most, whole
from recollect.errors import ConfigError
from recollect.registry import missing_package

MOST_BYTES = 4096 * 1024  # a larger file is not read
MOST_RELAXED = 200_000  # characters of JSON5: its parser takes a second for 130,000, or for 15,000 of the worst kind
HINT = "name an openclaw.json"


def read_document(path: Path) -> object:
    """The JSON or JSON5 document of a file; ConfigError where it is none."""
    try:
        text = read_at_most(path, MOST_BYTES, HINT).decode("utf-8-sig")
        try:
            return json.loads(text, object_pairs_hook=_object)
        except ValueError as error:
            return _read_json5(text, path, error)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not text in UTF-8", hint=HINT) from error
    except RecursionError as error:
        raise ConfigError(f"{path} is nested too deeply to be settings", hint=HINT) from error


def _read_json5(text: str, path: Path, not_json: ValueError) -> object:
    if len(text) > MOST_RELAXED:
        hint = f"up to {MOST_RELAXED:,} characters are; remove its comments and trailing commas"
        raise ConfigError(f"{path} is not JSON ({not_json}), and too long to be read as JSON5", hint=hint)
    try:
        import json5

        return json5.loads(text, object_pairs_hook=_object)
    except ImportError as error:
        raise missing_package(error, f"{path} is not JSON ({not_json}); JSON5", "openclaw") from error
    except ValueError as error:
        where = str(error).replace("<string>:", "line ")
        raise ConfigError(f"{path} is neither JSON nor JSON5: {where[:200]}", hint="correct it there") from error


def _object(pairs: Any) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:  # either value could be meant
            raise ConfigError(f"the key {json.dumps(key)[:60]} is there twice in one object", hint="remove one of them")
        members[key] = value
    return members


class Mapped(NamedTuple):
    """A setting of ours. `key` is its path in the document; empty if the document relies on OpenClaw's default."""

    key: str
    setting: str
    value: object
    why: str


class Ignored(NamedTuple):
    """A key that sets nothing, and the reason. Its value is not stored here, because it may be a secret."""

    key: str
    why: str


class Imported(NamedTuple):
    """The settings that a document means here, and the keys that have no counterpart."""

    mapped: tuple[Mapped, ...] = ()
    ignored: tuple[Ignored, ...] = ()

    @property
    def settings(self) -> Mapping[str, object]:
        """Dotted name → value, as `config.load` would have them."""
        return {line.setting: line.value for line in self.mapped}


Keys: TypeAlias = Mapping[str, Union[ValueCheck, "Keys"]]  # key → the check of its value, or the keys of its object
Values: TypeAlias = Mapping[str, Any]  # an object of the document, or its values by the path of their keys
Row: TypeAlias = tuple[str, str, Any]  # a setting, the keys for it (the first of "a|b" that is set), and its value
_PLAIN = re.compile(r"[A-Za-z_$][\w$-]*", re.ASCII)


def _at(path: str, key: str) -> str:
    if not _PLAIN.fullmatch(key) or len(key) > LONGEST:
        return f"{path}[{brief(key)}]"
    return _below(path, key)


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path and key else path or key


def _checked(path: str, value: Any, check: ValueCheck) -> Any:
    if not check.admits(value):
        message = f"{path} must be {check.expected}, not {brief(value)}"
        raise ConfigError(message, hint="correct it in the file, or remove it")
    return check.convert(value)


def _find(document: Values, path: str) -> Values | None:
    place = ""
    for key in path.split("."):
        if key not in document:
            return None
        place = _at(place, key)
        document = _checked(place, document[key], OBJECT)
    return document


def _read(document: Values, keys: Keys, section: str, path: str = "") -> tuple[dict[str, Any], dict[str, str]]:
    """The checked values of the keys that a section sets; and path and name of every other key, inner ones first."""
    values: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    for key, known in keys.items():
        if key in document:
            below = _below(path, key)
            if isinstance(known, ValueCheck):
                values[below] = _checked(_below(section, below), document[key], known)
            else:
                inner = _read(_checked(_below(section, below), document[key], OBJECT), known, section, below)
                values |= inner[0]
                unknown |= inner[1]
    return values, unknown | {_at(_below(section, path), key): key for key in document if key not in keys}


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

_REASONS = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
MAPPED: Mapping[str, str] = _REASONS["mapped"]  # setting → the reason for its value
WITHOUT_HYBRID: Mapping[str, str] = _REASONS["mapped_without_hybrid"]
LEFT: Mapping[str, str] = _REASONS["ignored"]  # key → why it sets nothing, and what to do instead


def _apply(rows: Iterable[Row], values: Values, section: str, reasons: Mapping[str, str]) -> Iterator[Mapped | Ignored]:
    """The settings that come of a section; a value of None sets nothing. A reason may name values in braces."""
    for setting, keys, value in rows:
        first, *others = [_below(section, key) for key in keys.split("|") if key in values] or [""]
        if value is not None:
            yield Mapped(first, setting, value, reasons[setting].format_map(values))
        yield from (Ignored(key, f"{first} is read") for key in others)


HYBRID, MMR, DECAY = "query.hybrid", "query.hybrid.mmr", "query.hybrid.temporalDecay"
MAX_RESULTS, MULTIPLIER, MOST_CANDIDATES, MOST_MULTIPLIER = 6, 4, 200, 20
WEIGHTS = {"vector_weight": 0.7, "text_weight": 0.3}
OPENAI_MODEL = "text-embedding-3-small"  # the model that OpenClaw asks for at OpenAI where none is named

HYBRID_ONLY: Keys = {  # keys of `hybrid` that OpenClaw does not read where `hybrid.enabled` is false
    "fusion": FUSION, "vectorWeight": SHARE, "textWeight": SHARE, "rrfK": number(0, 1_000_000),
    "mmr": {"enabled": FLAG, "lambda": SHARE}, "temporalDecay": {"enabled": FLAG, "halfLifeDays": MANY},
}  # fmt: skip


def _search_keys(hybrid_only: Keys) -> Keys:
    hybrid: Keys = {"enabled": FLAG, "candidateMultiplier": MANY, **hybrid_only}
    query: Keys = {"maxResults": COUNT, "minScore": SHARE, "hybrid": hybrid}
    return {"query": query, "maxResults": COUNT, "minScore": SHARE, "provider": TEXT, "model": TEXT, "remote": {}}


def read_openclaw(document: object) -> Imported:
    """What OpenClaw's settings mean here; ConfigError for a value that OpenClaw would not take."""
    if not isinstance(document, dict):
        message = f"the file must hold an object, not {brief(document)}"
        raise ConfigError(message, hint='it begins with { "agents": … }')
    lines: list[Mapped | Ignored] = []
    for path in ("agents.defaults.memorySearch", "memorySearch"):
        if (search := _find(document, path)) is not None:
            lines += _search(search, path)
            break
    plugin = _find_plugin(document)
    if not lines and plugin is None:
        hint = "name OpenClaw's own openclaw.json; an empty memorySearch: { } stands for OpenClaw's defaults"
        raise ConfigError("the file sets nothing for memory: it has no agents.defaults.memorySearch", hint=hint)
    lines += [*(_plugin(*plugin) if plugin else ()), *_elsewhere(document)]
    mapped = tuple(line for line in lines if isinstance(line, Mapped))
    return Imported(mapped, tuple(line for line in lines if isinstance(line, Ignored)))


def _search(search: Values, section: str) -> Iterator[Mapped | Ignored]:
    values, unknown = _read(search, _search_keys(HYBRID_ONLY), section)
    reasons = LEFT
    if values.get(f"{HYBRID}.enabled") is not False:
        yield from _apply(_blend(values), values, section, MAPPED)
        if f"{DECAY}.halfLifeDays" in values and not values.get(f"{DECAY}.enabled"):
            yield Ignored(f"{section}.{DECAY}.halfLifeDays", "temporalDecay is not enabled")
    else:
        yield from _apply(VECTORS_ONLY, values, section, WITHOUT_HYBRID)
        _, unknown = _read(search, _search_keys({}), section)
        reasons = {**LEFT} | dict.fromkeys(HYBRID_ONLY, "OpenClaw reads it only where hybrid.enabled is true")
    values["limit"] = values.get("query.maxResults", values.get("maxResults", MAX_RESULTS))
    values["times"] = min(values.get(f"{HYBRID}.candidateMultiplier", MULTIPLIER), MOST_MULTIPLIER)
    yield from _apply(_results(values), values, section, MAPPED)
    elsewhere = "baseUrl" in search.get("remote", {})
    yield from _provider(values.get("provider"), values.get("model"), section, elsewhere)
    yield from (Ignored(path, reasons.get(key, "Recollect has no such setting")) for path, key in unknown.items())


def _blend(values: Values) -> Iterator[Row]:
    fusion, mmr, decay = values.get(f"{HYBRID}.fusion", "weighted"), f"{MMR}.enabled", f"{DECAY}.enabled"
    yield "search.fusion", f"{HYBRID}.fusion", fusion
    yield "search.normalisation", "", "none"
    keys = {"vector_weight": f"{HYBRID}.vectorWeight", "text_weight": f"{HYBRID}.textWeight"}
    weights = {name: values.get(key, WEIGHTS[name]) for name, key in keys.items()}
    for name, weight in (weights if any(weights.values()) else WEIGHTS).items():
        yield f"search.{name}", keys[name], weight
    yield "search.rrf_k", f"{HYBRID}.rrfK", values.get(f"{HYBRID}.rrfK", 60.0 if fusion == "rrf" else None)
    yield "search.mmr", mmr, values.get(mmr, False)
    yield "search.mmr_lambda", f"{MMR}.lambda", values.get(f"{MMR}.lambda", 0.7 if values.get(mmr) else None)
    yield "search.decay", decay, values.get(decay, False)
    half_life = float(values.get(f"{DECAY}.halfLifeDays", 30)) if values.get(decay) else None
    yield "search.half_life_days", f"{DECAY}.halfLifeDays", half_life


VECTORS_ONLY: tuple[Row, ...] = (  # what `hybrid.enabled: false` means here
    ("search.sources", f"{HYBRID}.enabled", ("vector",)), ("search.fusion", "", "weighted"),
    ("search.normalisation", "", "none"), ("search.mmr", "", False), ("search.decay", "", False),
)  # fmt: skip


def _results(values: Values) -> Iterator[Row]:
    """What is imported with and without hybrid search. OpenClaw reads maxResults × candidateMultiplier of each list."""
    depth = min(MOST_CANDIDATES, values["limit"] * values["times"])
    yield "search.fetch_k", f"{HYBRID}.candidateMultiplier", depth
    yield "search.importance_weight", "", 0.0
    yield "search.prefer_newer", "", False
    yield "search.limit", "query.maxResults|maxResults", values["limit"]
    yield "search.min_score", "query.minScore|minScore", values.get("query.minScore", values.get("minScore", 0.0))


def _provider(provider: str | None, model: str | None, section: str, elsewhere: bool) -> Iterator[Mapped | Ignored]:
    """The embedder setting, if Recollect reaches the same model; otherwise advice."""
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


PLUGIN_NAMES = ("openclaw-hybrid-memory", "memory-hybrid")
NEW, OLD = "queryExpansion", "search"
"""`queryExpansion` is the plugin's new name for `search.hyde…`; where both are set, it is used."""

PLUGIN_KEYS: Keys = {
    "ingest": {"paths": TEXTS, "chunkSize": whole(100, 100_000), "overlap": whole(0, 50_000)},
    OLD: {"hydeEnabled": FLAG, "hydeModel": TEXT},
    NEW: {"enabled": FLAG, "model": TEXT, "timeoutMs": number(1, 3_600_000)},
}


def _find_plugin(document: Values) -> tuple[Values, str] | None:
    """The plugin's `config` in openclaw.json and its path, or a file that is that and nothing else."""
    for name in PLUGIN_NAMES:
        path = f"plugins.entries.{name}.config"
        if (config := _find(document, path)) is not None:
            return config, path
    search = document.get(OLD)
    hyde = isinstance(search, dict) and any(key.startswith("hyde") for key in search)
    alone = not {"agents", "plugins"} & document.keys()
    return (document, "") if alone and (hyde or "ingest" in document or NEW in document) else None


def _plugin(plugin: Values, section: str) -> Iterator[Mapped | Ignored]:
    values, unknown = _read(plugin, PLUGIN_KEYS, section)
    hyde = values.get(f"{NEW}.enabled", values.get(f"{OLD}.hydeEnabled"))
    model = values.get(f"{NEW}.model", values.get(f"{OLD}.hydeModel"))
    timeout = values.get(f"{NEW}.timeoutMs")
    rows = (
        ("ingest.paths", "ingest.paths", values.get("ingest.paths") or None),
        ("ingest.chunk_size", "ingest.chunkSize", values.get("ingest.chunkSize")),
        ("ingest.overlap", "ingest.overlap", values.get("ingest.overlap")),
        ("search.hyde", f"{NEW}.enabled|{OLD}.hydeEnabled", "replace" if hyde else hyde),
        ("search.hyde_model", f"{NEW}.model|{OLD}.hydeModel", model and model.removeprefix("openai/")),
        ("search.hyde_timeout", f"{NEW}.timeoutMs", timeout and timeout / 1000),
    )
    yield from _apply(rows, values, section, MAPPED)
    if values.get("ingest.paths") == ():
        yield Ignored(_below(section, "ingest.paths"), "no path is named; `recollect ingest-files` takes paths")
    why = "a setting of the plugin that Recollect has no counterpart for"
    # memorySearch may stand beside the plugin's keys in a file of its own, and was read before.
    yield from (Ignored(path, why) for path, key in unknown.items() if path != "memorySearch")
