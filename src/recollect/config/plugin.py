"""The settings of openclaw-hybrid-memory, a plugin of OpenClaw's, as ours: `ingest`, and HyDE."""

from __future__ import annotations

from recollect.config.imported import Notes, Part

NAMES = ("openclaw-hybrid-memory", "memory-hybrid")
OWN = ("ingest", "queryExpansion")
LONGEST_SECONDS = 3600
NO_COUNTERPART = "a setting of the plugin that Recollect has no counterpart for"


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
    notes.leave_rest(plugin, ("search", "memorySearch", *OWN), {}, NO_COUNTERPART)


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
    notes.leave_rest(ingest, ("paths", "chunkSize", "overlap"), {}, NO_COUNTERPART)


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
    notes.leave_rest(old, ("hydeEnabled", "hydeModel"), {}, NO_COUNTERPART)
    notes.leave_rest(new, ("enabled", "model", "timeoutMs"), {}, NO_COUNTERPART)


def _model(old: Part, new: Part, notes: Notes) -> None:
    place, key = (new, "model") if "model" in new else (old, "hydeModel")
    model = place.text(key)
    if model is not None:
        why = "asked at the endpoint of [llm]; its name there may be another"
        notes.take(place.at(key), "search.hyde_model", model.removeprefix("openai/"), why)
    if place is new and "hydeModel" in old:
        notes.leave(old.at("hydeModel"), f"{new.at('model')} goes before it")
