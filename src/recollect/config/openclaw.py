"""OpenClaw's memory settings as ours: `agents.defaults.memorySearch` of openclaw.json, and its hybrid-memory plugin.

Names, bounds and defaults are those of OpenClaw's `docs/reference/memory-config.md` and of its schema; docs/openclaw.md
has the table. What is not said there is OpenClaw's default here too as far as it shapes the blend, so that an import
ranks as OpenClaw does: `vectorWeight · cosine + textWeight · textScore`, and nothing of ours on top of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from recollect.config.imported import Ignored, Imported, Notes, Part, brief
from recollect.config.plugin import find_plugin, read_plugin
from recollect.config.provider import read_provider
from recollect.errors import ConfigError

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
