"""OpenClaw's memory settings as ours."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from recollect.errors import ConfigError
from recollect.registry import missing_package

MOST_BYTES = 4_000_000
"""Larger files are no settings."""

MOST_RELAXED = 200_000
"""Characters of JSON5: its parser takes a second for 130,000 of a usual file, and for 15,000 of the worst."""


def read_document(path: Path) -> object:
    """What the file holds; ConfigError where that is not one JSON or JSON5 document."""
    text = _text(path)
    try:
        return json.loads(text, object_pairs_hook=_object)
    except RecursionError as error:
        raise _too_deep(path) from error
    except ValueError as error:
        return _relaxed(text, path, error)


def _text(path: Path) -> str:
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


def _relaxed(text: str, path: Path, not_json: ValueError) -> object:
    if len(text) > MOST_RELAXED:
        raise ConfigError(
            f"{path} is not JSON ({not_json}), and too long to be read as JSON5",
            hint=f"up to {MOST_RELAXED:,} characters are; remove its comments and trailing commas",
        )
    try:
        import json5
    except ImportError as error:
        raise missing_package(error, f"{path} is not JSON ({not_json}); JSON5", "openclaw") from error
    try:
        return json5.loads(text, object_pairs_hook=_object)
    except RecursionError as error:
        raise _too_deep(path) from error
    except ValueError as error:
        where = str(error).replace("<string>:", "line ")
        raise ConfigError(f"{path} is neither JSON nor JSON5: {where[:200]}", hint="correct it there") from error


def _object(pairs: Any) -> dict[str, Any]:
    """An object whose keys are each there once: of two values nobody knows which is meant."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ConfigError(f"the key {json.dumps(key)[:60]} is there twice in one object", hint="remove one of them")
        found[key] = value
    return found


def _too_deep(path: Path) -> ConfigError:
    return ConfigError(f"{path} is nested too deeply to be settings", hint="name an openclaw.json")


LONGEST = 60
"""Characters of a key or a value of somebody else's file that are shown."""

_PLAIN = re.compile(r"[A-Za-z_$][\w$-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Mapped:
    """One setting of ours. `key` is where the document says so; empty where it does not, and the default is meant."""

    key: str
    setting: str
    value: object
    why: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """A key that sets nothing here, and why. Its value is not kept: it may be a secret."""

    key: str
    why: str


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of a document."""

    mapped: tuple[Mapped, ...] = ()
    ignored: tuple[Ignored, ...] = ()

    @property
    def settings(self) -> Mapping[str, object]:
        """Dotted name → value, as `config.load` would have them."""
        return MappingProxyType({line.setting: line.value for line in self.mapped})


@dataclass(frozen=True, slots=True)
class Notes:
    """What has been decided so far."""

    mapped: list[Mapped] = field(default_factory=list)
    ignored: list[Ignored] = field(default_factory=list)

    def take(self, key: str, setting: str, value: object, why: str = "") -> None:
        """A setting of ours gets a value."""
        self.mapped.append(Mapped(key, setting, value, why))

    def leave(self, key: str, why: str) -> None:
        """A key sets nothing."""
        self.ignored.append(Ignored(key, why))

    def leave_rest(self, part: Part, known: tuple[str, ...], reasons: Mapping[str, str], otherwise: str) -> None:
        """Every key of an object that is not known sets nothing."""
        for key in part:
            if key not in known:
                self.leave(part.at(key), reasons.get(key, otherwise))


@dataclass(frozen=True, slots=True)
class Part:
    """An object of the document and its place there. What a key holds is checked when it is asked for."""

    values: Mapping[str, Any]
    place: str = ""

    @classmethod
    def whole(cls, document: object) -> Part:
        """The document itself."""
        if not isinstance(document, dict):
            raise ConfigError(
                f"the file must hold an object, not {brief(document)}", hint='it begins with { "agents": … }'
            )
        return cls(document)

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def at(self, key: str) -> str:
        """The path of a key, as JSON paths are written."""
        if not _PLAIN.fullmatch(key) or len(key) > LONGEST:
            return f"{self.place}[{brief(key)}]"
        return f"{self.place}.{key}" if self.place else key

    def part(self, key: str) -> Part:
        """The object under a key; an empty one where there is none."""
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise self._wrong(key, "an object, for example { }")
        return Part(value, self.at(key))

    def find(self, *keys: str) -> Part | None:
        """The object that a way of keys leads to, or None where the way ends."""
        here = self
        for key in keys:
            if key not in here:
                return None
            here = here.part(key)
        return here

    def flag(self, key: str) -> bool | None:
        """True or false, or None where it is not said."""
        value = self.values.get(key)
        if key in self and not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def number(self, key: str, low: float, high: float) -> float | None:
        """A number within bounds, or None where it is not said."""
        if key not in self:
            return None
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self._wrong(key, f"a number from {low:g} to {high:g}")
        return float(value)

    def whole_number(self, key: str, low: int, high: int) -> int | None:
        """A whole number within bounds, or None where it is not said."""
        if key not in self:
            return None
        value = self.values[key]
        fits = not isinstance(value, bool) and isinstance(value, int | float) and low <= value <= high
        if not fits or value != int(value):
            raise self._wrong(key, f"a whole number from {low} to {high}")
        return int(value)

    def text(self, key: str) -> str | None:
        """Text that says something, or None where there is none."""
        value = self.values.get(key)
        if key in self and not _says(value):
            raise self._wrong(key, "text that is not empty")
        return value.strip() if isinstance(value, str) else None

    def texts(self, key: str) -> tuple[str, ...] | None:
        """A list of texts, or None where there is none."""
        value = self.values.get(key)
        if key in self and not (isinstance(value, list) and all(map(_says, value))):
            raise self._wrong(key, "a list of texts")
        return None if value is None else tuple(value)

    def _wrong(self, key: str, wanted: str) -> ConfigError:
        return ConfigError(
            f"{self.at(key)} must be {wanted}, not {brief(self.values[key])}",
            hint="correct it in the file, or remove it",
        )


def _says(value: object) -> bool:
    """Whether this is text that can be written down: no half of a character, and not only white space."""
    return (
        isinstance(value, str) and bool(value.strip()) and not any("\ud800" <= letter <= "\udfff" for letter in value)
    )


def brief(value: object) -> str:
    """A value in a few characters, without any that could steer a terminal."""
    match value:
        case dict():
            return "an object"
        case list():
            return "a list"
        case int() if not isinstance(value, bool) and abs(value) > 10**LONGEST:
            return f"a number of more than {LONGEST} digits"
    shown = json.dumps(value)
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"


OPENAI_MODEL = "text-embedding-3-small"
"""What OpenClaw asks at OpenAI where no model is named."""

REMOTE_LEFT: Mapping[str, str] = MappingProxyType(
    {
        "apiKey": "keys are not copied; Recollect reads them from the environment, by default OPENAI_API_KEY",
        "headers": "headers are not copied; they may hold keys",
        "batch": "Recollect sends texts in batches of its own",
        "nonBatchConcurrency": "Recollect sends texts in batches of its own",
    }
)
"""Key of `remote` → why it sets nothing."""


def read_provider(search: Part, notes: Notes) -> None:
    """The same model where Recollect asks it in the same place; otherwise what to write."""
    provider, model, remote = search.text("provider"), search.text("model"), search.part("remote")
    spec = None if "baseUrl" in remote else _spec(provider, model)
    for key in ("provider", "model"):
        if key in search and spec is not None:
            notes.take(search.at(key), "embedder", spec, _same(spec))
        elif key in search:
            notes.leave(search.at(key), _instead(provider))
    if "baseUrl" in remote:
        why = 'where texts are sent is yours to say: `base_url` under [openai], and embedder = "openai:MODEL"'
        notes.leave(remote.at("baseUrl"), why)
    notes.leave_rest(remote, ("baseUrl",), REMOTE_LEFT, "Recollect has no such setting")


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


def _same(spec: str) -> str:
    return "search by words alone" if spec == "none" else "the same model; texts are sent to it when they are indexed"


def _instead(provider: str | None) -> str:
    if provider in ("openai", "openai-compatible", "ollama"):
        return 'not where Recollect would ask it; write embedder = "openai:MODEL" or "ollama:MODEL" yourself'
    return "Recollect asks openai:MODEL, ollama:MODEL or models of its own (`recollect model list`); set `embedder`"


NAMES = ("openclaw-hybrid-memory", "memory-hybrid")
OWN = ("ingest", "queryExpansion")
LONGEST_SECONDS = 3600
PLUGIN_ONLY = "a setting of the plugin that Recollect has no counterpart for"


def find_plugin(root: Part) -> Part | None:
    """The plugin's `config` in openclaw.json, or a file that is that and nothing else."""
    entries = root.find("plugins", "entries")
    for name in NAMES if entries is not None else ():
        if entries is not None and (found := entries.find(name, "config")) is not None:
            return found
    alone = "agents" not in root and "plugins" not in root
    hyde = isinstance(root.values.get("search"), dict) and any(key.startswith("hyde") for key in root.part("search"))
    return root if alone and (hyde or any(key in root for key in OWN)) else None


def read_plugin(plugin: Part, notes: Notes) -> None:
    """Take what has a counterpart, and name the rest."""
    _ingest(plugin.part("ingest"), notes)
    _hyde(plugin, notes)
    notes.leave_rest(plugin, ("search", "memorySearch", *OWN), {}, PLUGIN_ONLY)


def _ingest(ingest: Part, notes: Notes) -> None:
    paths = ingest.texts("paths")
    if paths:
        notes.take(ingest.at("paths"), "ingest.paths", paths, "globs inside the workspace of `recollect ingest-files`")
    elif paths is not None:
        notes.leave(ingest.at("paths"), "no path is named; `recollect ingest-files` takes those it is given")
    size = ingest.whole_number("chunkSize", 100, 100_000)
    if size is not None:
        notes.take(ingest.at("chunkSize"), "ingest.chunk_size", size, "characters sent at once")
    overlap = ingest.whole_number("overlap", 0, 50_000)
    if overlap is not None:
        notes.take(ingest.at("overlap"), "ingest.overlap", overlap, "characters shared with the chunk before")
    notes.leave_rest(ingest, ("paths", "chunkSize", "overlap"), {}, PLUGIN_ONLY)


def _hyde(plugin: Part, notes: Notes) -> None:
    """`queryExpansion` is the plugin's new name for `search.hyde…`, and goes before it there as it does here."""
    old, new = plugin.part("search"), plugin.part("queryExpansion")
    place, key = (new, "enabled") if "enabled" in new else (old, "hydeEnabled")
    on = place.flag(key)
    if on is not None:
        why = "the answer's vector in place of the question's, as the plugin has it; needs [llm]" if on else "off"
        notes.take(place.at(key), "search.hyde", "replace" if on else False, why)
    if place is new and "hydeEnabled" in old:
        notes.leave(old.at("hydeEnabled"), f"{new.at('enabled')} goes before it")
    _model(old, new, notes)
    limit = new.number("timeoutMs", 1, LONGEST_SECONDS * 1000)
    if limit is not None:
        notes.take(new.at("timeoutMs"), "search.hyde_timeout", limit / 1000, "in seconds")
    notes.leave_rest(old, ("hydeEnabled", "hydeModel"), {}, PLUGIN_ONLY)
    notes.leave_rest(new, ("enabled", "model", "timeoutMs"), {}, PLUGIN_ONLY)


def _model(old: Part, new: Part, notes: Notes) -> None:
    place, key = (new, "model") if "model" in new else (old, "hydeModel")
    model = place.text(key)
    if model is not None:
        why = "asked at the endpoint of [llm]; its name there may be another"
        notes.take(place.at(key), "search.hyde_model", model.removeprefix("openai/"), why)
    if place is new and "hydeModel" in old:
        notes.leave(old.at("hydeModel"), f"{new.at('model')} goes before it")


MAX_RESULTS, MULTIPLIER, MOST_CANDIDATES, MOST_MULTIPLIER = 6, 4, 200, 20
VECTOR_WEIGHT, TEXT_WEIGHT, RRF_K, LAMBDA, HALF_LIFE_DAYS = 0.7, 0.3, 60.0, 0.7, 30

HYBRID_ONLY = ("fusion", "vectorWeight", "textWeight", "rrfK", "mmr", "temporalDecay")
"""What OpenClaw does not look at where `hybrid.enabled` is false."""

NO_COUNTERPART = "Recollect has no such setting"
LEFT: Mapping[str, str] = MappingProxyType(
    {
        "$include": "files that it names are not read; import each of them that holds memorySearch",
        "enabled": "Recollect searches when it is asked to",
        "fallback": "where a model does not answer, Recollect searches by words and says so",
        "local": "Recollect runs models of its own; `recollect model list` shows them",
        "sources": "what is searched is what was indexed: `recollect index FOLDER`",
        "extraPaths": "index them: `recollect index PATH…`",
        "rememberAcrossConversations": "what is searched is what was indexed: `recollect index FOLDER`",
        "store": "OpenClaw's index is not read; Recollect keeps its own (`store`), made by `recollect index`",
        "chunking": "Recollect cuts files at their headings and paragraphs",
        "sync": "`recollect watch FOLDER` keeps an index current",
        "cache": "embeddings are always kept, by model and text",
        "multimodal": "Recollect indexes text only",
        "experimental": "session transcripts are not indexed by themselves; `recollect index` takes their folder",
        "qmd": "qmd can be asked as an outside source, see docs/sources.md",
        "outputDimensionality": "write `dimensions` under [openai] where the model takes it",
        "inputType": "write `query_prefix` and `passage_prefix` under [openai] where the model takes them",
        "queryInputType": "write `query_prefix` under [openai] where the model takes it",
        "documentInputType": "write `passage_prefix` under [openai] where the model takes it",
    }
)
"""Key → why it sets nothing, and what to do instead."""


def read_openclaw(document: object) -> Imported:
    """What OpenClaw's settings mean here; ConfigError where a value is none that OpenClaw would take."""
    root, notes = Part.whole(document), Notes()
    search = root.find("agents", "defaults", "memorySearch") or root.find("memorySearch")
    plugin = find_plugin(root)
    if search is None and plugin is None:
        raise ConfigError(
            "the file sets nothing for memory: it has no agents.defaults.memorySearch",
            hint="name OpenClaw's own openclaw.json; an empty memorySearch: { } stands for OpenClaw's defaults",
        )
    if search is not None:
        _search(search, notes)
    if plugin is not None:
        read_plugin(plugin, notes)
    _beside(root, notes)
    return Imported(tuple(notes.mapped), tuple(notes.ignored))


def _search(search: Part, notes: Notes) -> None:
    query = search.part("query")
    hybrid = query.part("hybrid")
    known = ("enabled", "candidateMultiplier", *HYBRID_ONLY)
    if hybrid.flag("enabled") is False:
        _vector_only(hybrid, notes)
    else:
        _blend(hybrid, notes)
        _diversity(hybrid.part("mmr"), notes)
        _age(hybrid.part("temporalDecay"), notes)
    _unmoved(notes)
    _depth(search, query, hybrid, notes)
    _threshold(_told(search, query, "minScore", notes), notes)
    read_provider(search, notes)
    notes.leave_rest(hybrid, known, LEFT, NO_COUNTERPART)
    notes.leave_rest(query, ("hybrid", "maxResults", "minScore"), LEFT, NO_COUNTERPART)
    notes.leave_rest(search, ("query", "provider", "model", "remote", "maxResults", "minScore"), LEFT, NO_COUNTERPART)


def _vector_only(hybrid: Part, notes: Notes) -> None:
    notes.take(hybrid.at("enabled"), "search.sources", ("vector",), "without hybrid OpenClaw searches by meaning alone")
    notes.take("", "search.fusion", "weighted", "of one list it gives the cosine itself, which is OpenClaw's score")
    notes.take("", "search.normalisation", "none", "scores as they are")
    notes.take("", "search.mmr", False, "OpenClaw does not reorder without hybrid")
    notes.take("", "search.decay", False, "OpenClaw does not look at age without hybrid")
    for key in HYBRID_ONLY:
        if key in hybrid:
            notes.leave(hybrid.at(key), "OpenClaw reads it only where hybrid.enabled is true")


def _blend(hybrid: Part, notes: Notes) -> None:
    fusion = hybrid.text("fusion")
    if fusion not in (None, "weighted", "rrf"):
        raise ConfigError(
            f'{hybrid.at("fusion")} must be "weighted" or "rrf", not {brief(fusion)}',
            hint="without it OpenClaw's blend is meant, which is weighted",
        )
    why = "OpenClaw's blend of scores" if fusion != "rrf" else "weight / (k + rank), as OpenClaw's proposal has it"
    notes.take(hybrid.at("fusion") if fusion else "", "search.fusion", fusion or "weighted", why)
    notes.take("", "search.normalisation", "none", "a cosine as it is, BM25's s as s / (1 + s), absent as 0")
    _weights(hybrid, notes)
    k = hybrid.number("rrfK", 0, 1_000_000)
    if k is not None or fusion == "rrf":
        why = "ranks count from 1" if fusion == "rrf" else "read under rrf only"
        notes.take(hybrid.at("rrfK") if k is not None else "", "search.rrf_k", RRF_K if k is None else k, why)


def _weights(hybrid: Part, notes: Notes) -> None:
    """Both divide by the sum of the weights; with both 0 OpenClaw takes its defaults."""
    said = {key: hybrid.number(key, 0, 1) for key in ("vectorWeight", "textWeight")}
    meant = {"vectorWeight": VECTOR_WEIGHT, "textWeight": TEXT_WEIGHT}
    meant |= {key: value for key, value in said.items() if value is not None}
    nothing = not any(meant.values())
    if nothing:
        meant = {"vectorWeight": VECTOR_WEIGHT, "textWeight": TEXT_WEIGHT}
    for key, setting in (("vectorWeight", "search.vector_weight"), ("textWeight", "search.text_weight")):
        why = "both weights are 0, and OpenClaw takes its defaults then" if nothing else "over the sum of both weights"
        notes.take(hybrid.at(key) if said[key] is not None else "", setting, meant[key], why)


def _diversity(mmr: Part, notes: Notes) -> None:
    on, balance = mmr.flag("enabled"), mmr.number("lambda", 0, 1)
    why = "OpenClaw compares the words of snippets, Recollect the vectors" if on else "as in OpenClaw's documentation"
    notes.take(mmr.at("enabled") if on is not None else "", "search.mmr", bool(on), why)
    if on or balance is not None:
        key = mmr.at("lambda") if balance is not None else ""
        notes.take(key, "search.mmr_lambda", LAMBDA if balance is None else balance, "1 is all relevance")
    notes.leave_rest(mmr, ("enabled", "lambda"), LEFT, NO_COUNTERPART)


def _age(decay: Part, notes: Notes) -> None:
    on, days = decay.flag("enabled"), decay.whole_number("halfLifeDays", 1, 1_000_000)
    why = "no record loses score by age" if not on else "with the half-life below"
    notes.take(decay.at("enabled") if on is not None else "", "search.decay", bool(on), why)
    if on:
        key = decay.at("halfLifeDays") if days is not None else ""
        why = "every record without a decay class; in OpenClaw MEMORY.md and undated files never fade"
        notes.take(key, "search.half_life_days", float(days or HALF_LIFE_DAYS), why)
    elif days is not None:
        notes.leave(decay.at("halfLifeDays"), "temporalDecay is not enabled")
    notes.leave_rest(decay, ("enabled", "halfLifeDays"), LEFT, NO_COUNTERPART)


def _unmoved(notes: Notes) -> None:
    """What Recollect would do to the blend, and OpenClaw does not."""
    notes.take("", "search.importance_weight", 0.0, "OpenClaw knows no importance; the blend stays as it is")
    notes.take("", "search.prefer_newer", False, "OpenClaw does not reorder by what is newer")


def _depth(search: Part, query: Part, hybrid: Part, notes: Notes) -> None:
    """`fetch_k` = maxResults × candidateMultiplier, 200 at the most, as OpenClaw reads each of its two lists."""
    place = _told(search, query, "maxResults", notes)
    limit = place.whole_number("maxResults", 1, 10_000)
    times = hybrid.whole_number("candidateMultiplier", 1, 1_000_000)
    notes.take(place.at("maxResults") if limit else "", "search.limit", limit or MAX_RESULTS, "how many results")
    used = min(times or MULTIPLIER, MOST_MULTIPLIER)
    depth = max(1, min(MOST_CANDIDATES, math.floor((limit or MAX_RESULTS) * used)))
    capped = f", {MOST_MULTIPLIER} times and {MOST_CANDIDATES} at the most"
    why = f"maxResults × candidateMultiplier = {limit or MAX_RESULTS} × {used}{capped}"
    notes.take(hybrid.at("candidateMultiplier") if times else "", "search.fetch_k", depth, why)


def _told(search: Part, query: Part, key: str, notes: Notes) -> Part:
    """Where a key of `query` stands: there, or beside it."""
    if key not in query:
        return search
    if key in search:
        notes.leave(search.at(key), f"{query.at(key)} is read")
    return query


def _threshold(place: Part, notes: Notes) -> None:
    least = place.number("minScore", 0, 1)
    if least is None:
        why = "not said, so nothing is left out; OpenClaw's own 0.35 lets keyword hits pass where nothing reaches it"
        notes.take("", "search.min_score", 0.0, why)
        return
    why = "of a score from 0 to 1; OpenClaw lets keyword hits pass where nothing reaches it, Recollect does not"
    notes.take(place.at("minScore"), "search.min_score", least, why)


def _beside(root: Part, notes: Notes) -> None:
    """What stands elsewhere in the file and bears on memory."""
    for place in (root, root.find("agents"), root.find("agents", "defaults")):
        if place is not None and "$include" in place:
            notes.leave(place.at("$include"), LEFT["$include"])
    if root.find("agents", "defaults", "memorySearch") is not None and "memorySearch" in root:
        notes.leave("memorySearch", "agents.defaults.memorySearch is read")
    if "memory" in root:
        notes.leave("memory", "settings of OpenClaw's other engine; " + LEFT["qmd"])
    agents = root.part("agents").values.get("list", [])
    for number, agent in enumerate(agents if isinstance(agents, list) else []):
        if isinstance(agent, dict) and "memorySearch" in agent:
            why = "one agent's own; import it as a file of its own and name that with --config"
            notes.ignored.append(Ignored(f"agents.list[{number}].memorySearch", why))
