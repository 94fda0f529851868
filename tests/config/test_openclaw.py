"""OpenClaw's memory settings: the mapping of each key, what is refused, and that the blend is OpenClaw's own."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import DOCS

from recollect import Memory, config
from recollect.config.openclaw import MOST_BYTES, Imported, read_document, read_openclaw
from recollect.config.settings import write_settings
from recollect.config.toml import set_values
from recollect.errors import ConfigError, RecollectError, UsageError
from recollect.models.embedders import open_embedder

PLACE = "agents.defaults.memorySearch"
HYBRID = f"{PLACE}.query.hybrid"

DEFAULTS = {
    "search.fusion": "weighted",
    "search.normalisation": "none",
    "search.vector_weight": 0.7,
    "search.text_weight": 0.3,
    "search.mmr": False,
    "search.decay": False,
    "search.importance_weight": 0.0,
    "search.prefer_newer": False,
    "search.limit": 6,
    "search.fetch_k": 24,
    "search.min_score": 0.0,
}
"""What an empty memorySearch means."""


def search(**keys: Any) -> Imported:
    return read_openclaw({"agents": {"defaults": {"memorySearch": keys}}})


def hybrid(**keys: Any) -> Imported:
    return search(query={"hybrid": keys})


def plugin(**keys: Any) -> Imported:
    return read_openclaw({"plugins": {"entries": {"openclaw-hybrid-memory": {"enabled": True, "config": keys}}}})


def ignored(imported: Imported) -> dict[str, str]:
    return {line.key: line.why for line in imported.ignored}


def changed(imported: Imported) -> dict[str, object]:
    """The settings that are not those of an empty memorySearch."""
    return {name: value for name, value in imported.settings.items() if DEFAULTS.get(name, object()) != value}


def test_default_is_openclaws_blend():
    """Without `fusion`, or with an empty memorySearch: weighted 0.7 / 0.3."""
    imported = search()
    assert dict(imported.settings) == DEFAULTS
    assert imported.ignored == ()
    assert {line.key for line in imported.mapped} == {""}
    assert dict(hybrid(fusion="weighted").settings) == DEFAULTS


KEYS: dict[str, tuple[Imported, dict[str, object]]] = {
    "vectorWeight": (hybrid(vectorWeight=0.55), {"search.vector_weight": 0.55}),
    "textWeight": (hybrid(textWeight=1), {"search.text_weight": 1.0}),
    "both weights 0 are OpenClaw's defaults": (hybrid(vectorWeight=0, textWeight=0), {}),
    "rrf": (hybrid(fusion="rrf"), {"search.fusion": "rrf", "search.rrf_k": 60.0}),
    "rrfK": (hybrid(fusion="rrf", rrfK=20), {"search.fusion": "rrf", "search.rrf_k": 20.0}),
    "rrfK without rrf": (hybrid(rrfK=20), {"search.rrf_k": 20.0}),
    "mmr": (hybrid(mmr={"enabled": True}), {"search.mmr": True, "search.mmr_lambda": 0.7}),
    "lambda": (hybrid(mmr={"enabled": True, "lambda": 0.4}), {"search.mmr": True, "search.mmr_lambda": 0.4}),
    "lambda alone": (hybrid(mmr={"lambda": 0.4}), {"search.mmr_lambda": 0.4}),
    "temporalDecay": (
        hybrid(temporalDecay={"enabled": True}),
        {"search.decay": True, "search.half_life_days": 30.0},
    ),
    "halfLifeDays": (
        hybrid(temporalDecay={"enabled": True, "halfLifeDays": 14}),
        {"search.decay": True, "search.half_life_days": 14.0},
    ),
    "halfLifeDays alone": (hybrid(temporalDecay={"halfLifeDays": 14}), {}),
    "maxResults": (search(query={"maxResults": 10}), {"search.limit": 10, "search.fetch_k": 40}),
    "maxResults beside query": (search(maxResults=10), {"search.limit": 10, "search.fetch_k": 40}),
    "candidateMultiplier": (hybrid(candidateMultiplier=10), {"search.fetch_k": 60}),
    "a multiplier that OpenClaw cuts to 20": (hybrid(candidateMultiplier=500), {"search.fetch_k": 120}),
    "a depth that OpenClaw cuts to 200": (
        search(query={"maxResults": 50, "hybrid": {"candidateMultiplier": 20}}),
        {"search.limit": 50, "search.fetch_k": 200},
    ),
    "minScore": (search(query={"minScore": 0.35}), {"search.min_score": 0.35}),
    "minScore beside query": (search(minScore=0.35), {"search.min_score": 0.35}),
    "hybrid off": (hybrid(enabled=False, vectorWeight=0, mmr={"enabled": True}), {"search.sources": ("vector",)}),
    "hybrid on": (hybrid(enabled=True), {}),
    "openai": (search(provider="openai"), {"embedder": "openai:text-embedding-3-small"}),
    "a model of openai": (search(provider="openai", model="m"), {"embedder": "openai:m"}),
    "a model of ollama": (search(provider="ollama", model="nomic-embed-text"), {"embedder": "ollama:nomic-embed-text"}),
    "no model": (search(provider="none"), {"embedder": "none"}),
    "a model of somebody else": (search(provider="gemini", model="gemini-embedding-001"), {}),
    "a model elsewhere": (search(provider="openai", model="m", remote={"baseUrl": "https://example.com/v1"}), {}),
    "a model from the environment": (search(provider="openai", model="${MODEL}"), {}),
    "ollama without a model": (search(provider="ollama"), {}),
    "a model without a provider": (search(model="m"), {}),
}


@pytest.mark.parametrize("name", KEYS)
def test_each_key_becomes_its_setting(name):
    """Only what the key says, each with a reason, and all valid settings."""
    imported, expected = KEYS[name]
    assert changed(imported) == expected
    assert all(line.why for line in (*imported.mapped, *imported.ignored))


@pytest.mark.parametrize("name", KEYS)
def test_imported_settings_can_be_loaded(name, tmp_path):
    """Every import makes a settings file that `config.load` accepts."""
    imported, _ = KEYS[name]
    write_settings(tmp_path / "config.toml", imported.settings)
    loaded = config.load(config=tmp_path / "config.toml", environment={})
    assert {key: loaded.value(key) for key in imported.settings} == dict(imported.settings)


IGNORED: dict[str, tuple[Imported, list[str]]] = {
    "groups": (
        search(
            enabled=True, fallback="none", local={"modelPath": "/m.gguf"}, sources=["memory"], extraPaths=["../x"],
            store={"path": "/x"}, chunking={"tokens": 400}, sync={"watch": True}, cache={"enabled": True},
            multimodal={}, experimental={}, qmd={}, outputDimensionality=768, inputType="q",
        ),
        ["enabled", "fallback", "local", "sources", "extraPaths", "store", "chunking", "sync", "cache", "multimodal",
         "experimental", "qmd", "outputDimensionality", "inputType"],
    ),
    "unknown keys at every depth": (
        search(a=1, query={"b": 1, "hybrid": {"c": 1, "mmr": {"d": 1}, "temporalDecay": {"e": 1}}}, remote={"f": 1}),
        ["query.hybrid.mmr.d", "query.hybrid.temporalDecay.e", "query.hybrid.c", "query.b", "remote.f", "a"],
    ),
    "without hybrid": (
        hybrid(enabled=False, fusion="rrf", vectorWeight=1, textWeight=0, rrfK=1, mmr={}, temporalDecay={}),
        [f"query.hybrid.{key}" for key in ("fusion", "vectorWeight", "textWeight", "rrfK", "mmr", "temporalDecay")],
    ),
    "a half-life that is off": (
        hybrid(temporalDecay={"enabled": False, "halfLifeDays": 3}),
        ["query.hybrid.temporalDecay.halfLifeDays"],
    ),
    "a key and where it is sent": (
        search(provider="openai", remote={"baseUrl": "http://x/v1", "apiKey": "sk-secret", "headers": {}}),
        ["provider", "remote.baseUrl", "remote.apiKey", "remote.headers"],
    ),
    "the same thing twice": (
        search(maxResults=3, minScore=0.1, query={"maxResults": 5, "minScore": 0.2}),
        ["maxResults", "minScore"],
    ),
    "a key that is no name": (search(**{"a.b\x1b[31m": 1, "": 2}), ['["a.b\\u001b[31m"]', '[""]']),
}  # fmt: skip


@pytest.mark.parametrize("name", IGNORED)
def test_unmapped_keys_are_named_with_a_reason(name):
    """By their path, without their value, which may be a secret."""
    imported, keys = IGNORED[name]
    assert list(ignored(imported)) == [f"{PLACE}{key}" if key.startswith("[") else f"{PLACE}.{key}" for key in keys]
    assert all(ignored(imported).values())
    assert "sk-secret" not in repr(imported)


def test_settings_in_other_places_are_named():
    """Single agents, includes, the other engine, and an old place for the same settings."""
    document = {
        "$include": "more.json",
        "memory": {"backend": "qmd"},
        "memorySearch": {"query": {"maxResults": 99}},
        "agents": {
            "defaults": {"memorySearch": {"query": {"maxResults": 5}}, "$include": "x"},
            "list": [{"id": "main"}, {"id": "ops", "memorySearch": {"query": {"maxResults": 7}}}, "odd"],
        },
    }
    imported = read_openclaw(document)
    assert imported.settings["search.limit"] == 5
    keys = ["$include", "agents.defaults.$include", "memorySearch", "memory", "agents.list[1].memorySearch"]
    assert list(ignored(imported)) == keys
    assert read_openclaw({"memorySearch": {"query": {"maxResults": 99}}}).settings["search.limit"] == 99


def test_former_place_is_not_read_beside_the_new_one():
    """Whatever stands there."""
    imported = read_openclaw({"agents": {"defaults": {"memorySearch": {}}}, "memorySearch": 5})
    assert "memorySearch" in [line.key for line in imported.ignored]


def test_plugins_ingest_and_hyde_are_imported():
    """Under either name of the plugin, or as its own file; the blend is unchanged."""
    keys = {
        "ingest": {"paths": ["skills/**/*.md", "TOOLS.md"], "chunkSize": 900, "overlap": 50},
        "search": {"hydeEnabled": True, "hydeModel": "openai/gpt-4.1-nano"},
    }
    expected = {
        "ingest.paths": ("skills/**/*.md", "TOOLS.md"),
        "ingest.chunk_size": 900,
        "ingest.overlap": 50,
        "search.hyde": "replace",
        "search.hyde_model": "gpt-4.1-nano",
    }
    assert dict(plugin(**keys).settings) == dict(read_openclaw(keys).settings) == expected
    old = {"plugins": {"entries": {"memory-core": {}, "memory-hybrid": {"config": keys}}}}
    assert dict(read_openclaw(old).settings) == expected
    both = {**old, "agents": {"defaults": {"memorySearch": {}}}}
    assert dict(read_openclaw(both).settings) == DEFAULTS | expected


def test_plugins_newer_name_for_hyde_wins():
    """`queryExpansion`, as in the plugin itself."""
    imported = plugin(
        search={"hydeEnabled": True, "hydeModel": "old", "other": 1},
        queryExpansion={"enabled": False, "model": "new", "timeoutMs": 15000, "mode": "always"},
        autoRecall=True,
        ingest={"paths": [], "x": 1},
    )
    assert dict(imported.settings) == {"search.hyde": False, "search.hyde_model": "new", "search.hyde_timeout": 15.0}
    place = "plugins.entries.openclaw-hybrid-memory.config"
    named = {key.removeprefix(f"{place}.") for key in ignored(imported)}
    assert named == {
        "ingest.paths", "ingest.x", "search.hydeEnabled", "search.hydeModel", "search.other", "queryExpansion.mode",
        "autoRecall",
    }  # fmt: skip


WRONG: dict[str, tuple[Any, str, str]] = {
    # what is wrong: (the document, the path that is named, what is expected)
    "not an object": ([1], "the file", "an object"),
    "text": ("x", "the file", "an object"),
    "nothing": (None, "the file", "an object"),
    "agents of text": ({"agents": "x"}, "agents", "an object"),
    "memorySearch of a list": ({"agents": {"defaults": {"memorySearch": []}}}, PLACE, "an object"),
    "a null": ({"agents": {"defaults": {"memorySearch": {"query": None}}}}, f"{PLACE}.query", "an object"),
}
for _key, _values, _words in (
    (
        "vectorWeight",
        ("0.7", True, None, -0.1, 1.5, float("nan"), float("inf"), [0.7], 10**400),
        "a number from 0 to 1",
    ),
    ("textWeight", ("x", 2), "a number from 0 to 1"),
    ("rrfK", ("60", -1, float("nan")), "a number from 0"),
    ("candidateMultiplier", (0, 1.5, "4", -3, float("nan"), 10**5000), "a whole number from 1"),
    ("enabled", (1, "true", None), "true or false"),
    ("fusion", ("RRF", "borda", "x" * 500), '"weighted" or "rrf"'),
    ("fusion", (1, "", None, "\ud800"), "text"),
    ("mmr", (True, "on"), "an object"),
    ("temporalDecay", (30,), "an object"),
):
    for _value in _values:
        WRONG[f"{_key} of {str(_value)[:12] if not isinstance(_value, int) or abs(_value) < 10**9 else 'digits'!r}"] = (
            {"agents": {"defaults": {"memorySearch": {"query": {"hybrid": {_key: _value}}}}}},
            f"{HYBRID}.{_key}",
            _words,
        )
for _path, _value, _words in (
    ("query.maxResults", 0, "a whole number from 1"),
    ("query.minScore", 1.1, "a number from 0 to 1"),
    ("query.hybrid.mmr.lambda", 7, "a number from 0 to 1"),
    ("query.hybrid.mmr.enabled", "yes", "true or false"),
    ("query.hybrid.temporalDecay.halfLifeDays", 0, "a whole number from 1"),
    ("provider", 5, "text"),
    ("model", "  ", "text"),
    ("remote", "http://x", "an object"),
):
    _document: Any = _value
    for _part in reversed(f"{PLACE}.{_path}".split(".")):
        _document = {_part: _document}
    WRONG[f"a wrong {_path}"] = (_document, f"{PLACE}.{_path}", _words)
for _path, _value, _words in (
    ("ingest", [], "an object"),
    ("ingest.paths", "a.md", "a list of texts"),
    ("ingest.paths", ["a", 5], "a list of texts"),
    ("ingest.chunkSize", 10, "a whole number from 100"),
    ("ingest.overlap", -1, "a whole number from 0"),
    ("search.hydeEnabled", "yes", "true or false"),
    ("search.hydeModel", 4, "text"),
    ("queryExpansion.timeoutMs", 0, "a number from 1"),
):
    _document = _value
    for _part in reversed(_path.split(".")):
        _document = {_part: _document}
    _document = {"plugins": {"entries": {"openclaw-hybrid-memory": {"config": _document}}}}
    WRONG[f"a wrong {_path} {_value}"] = (_document, f"plugins.entries.openclaw-hybrid-memory.config.{_path}", _words)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_type_is_refused_by_its_path(name):
    """With the expected type, in one short line."""
    document, path, words = WRONG[name]
    with pytest.raises(ConfigError) as caught:
        read_openclaw(document)
    assert caught.value.message.startswith(f"{path} must ")
    assert words in caught.value.message
    assert len(caught.value.message) < 250
    assert caught.value.hint


@pytest.mark.parametrize("document", [{}, {"name": "package"}, {"agents": {"defaults": {}}}, {"search": {"x": 1}}])
def test_file_without_memory_settings_is_refused(document):
    """Unrelated JSON does not become OpenClaw's defaults."""
    with pytest.raises(ConfigError, match=PLACE.replace(".", r"\.")):
        read_openclaw(document)


def written(tmp_path: Path, text: str | bytes) -> Path:
    file = tmp_path / "openclaw.json"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def test_json5_is_read_with_comments_and_trailing_commas(tmp_path):
    """As OpenClaw itself reads it."""
    text = """// mine
    { agents: { defaults: { memorySearch: { /* all */ query: { hybrid: {
        vectorWeight: .6, 'textWeight': +0.4, "candidateMultiplier": 0x5, }, }, }, }, }, }"""
    imported = read_openclaw(read_document(written(tmp_path, text)))
    assert changed(imported) == {
        "search.vector_weight": 0.6, "search.text_weight": 0.4, "search.fetch_k": 30,
    }  # fmt: skip


def test_plain_json_needs_no_package(tmp_path, monkeypatch):
    """Also with a byte order mark; for JSON5 the error names the extra."""
    monkeypatch.setitem(__import__("sys").modules, "json5", None)
    assert read_document(written(tmp_path, b'\xef\xbb\xbf{"a": [1, 2.5, null]}')) == {"a": [1, 2.5, None]}
    with pytest.raises(UsageError) as caught:
        read_document(written(tmp_path, "{a: 1}"))
    assert "recollect-search[openclaw]" in caught.value.hint


HOSTILE: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "neither JSON nor JSON5"),
    "words": (b"hello there", "neither JSON nor JSON5"),
    "half a document": (b'{"agents": {', "neither JSON nor JSON5"),
    "bytes": (b"\xff\xfe\x00\x01", "not text in UTF-8"),
    "deep nesting": (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
    "deep nesting in JSON5": (b"//\n" + b"{a:" * 5_000 + b"1" + b"}" * 5_000, "nested too deeply"),
    "ten megabytes": (b'{"a": "' + b"x" * 10_000_000 + b'"}', f"larger than {MOST_BYTES // 1024} KiB"),
    "long JSON5": (b"// " + b"x" * 300_000 + b"\n{}", "too long to be read as JSON5"),
    "a key twice": (b'{"agents": {}, "agents": {}}', '"agents" is there twice'),
    "a key twice in JSON5": (b"{agents: {}, 'agents': {}}", '"agents" is there twice'),
    "a number of 5,000 digits": (b'{"a": ' + b"9" * 5_000 + b"}", "neither JSON nor JSON5"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_invalid_file_is_refused_in_one_line(name, tmp_path):
    """No crash, no hang, and the file is not printed."""
    data, words = HOSTILE[name]
    with pytest.raises(RecollectError) as caught:
        read_document(written(tmp_path, data))
    assert words in caught.value.message
    assert len(caught.value.message) < 500
    assert caught.value.hint


def test_not_a_number_is_refused_by_its_path(tmp_path):
    """JSON5 and Python's JSON accept NaN and Infinity; a weight does not."""
    for word in ("NaN", "Infinity", "-Infinity", "1e999"):
        text = f'{{"agents": {{"defaults": {{"memorySearch": {{"query": {{"hybrid": {{"textWeight": {word}}}}}}}}}}}}}'
        with pytest.raises(ConfigError, match="textWeight must be a number from 0 to 1"):
            read_openclaw(read_document(written(tmp_path, text)))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_document(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_document(tmp_path)


# The fixed example: twelve notes, and OpenClaw's arithmetic beside ours.

NOTES = {
    "pot": "The spare key is under the blue pot by the door.",
    "anneke": "Anneke has the second spare key of the house.",
    "door": "The front door sticks when it rains; push it hard.",
    "garden": "Water the garden pots every second evening in summer.",
    "safe": "The safe opens with the key from the kitchen drawer.",
    "car": "The car key hangs beside the coat rack.",
    "wifi": "The key of the wireless network is written on the router.",
    "piano": "The piano was tuned in March, the low key still sticks.",
    "bread": "Bread needs flour, water, salt and time.",
    "train": "The train to Utrecht leaves at ten past the hour.",
    "cat": "The cat sleeps on the blue chair by the window.",
    "blue": "Blue paint for the door is in the shed, second shelf.",
}
QUESTIONS = ("where is the spare key", "blue door", "key", "second", "water the garden", "tuned")
EMBEDDER = "hashing:96"


def remembered(tmp_path: Path, imported: Imported) -> Memory:
    """A memory of the notes with the imported settings, through the file that would be written."""
    write_settings(tmp_path / "config.toml", imported.settings, force=True)
    settings = config.load(config=tmp_path / "config.toml", environment={}).settings
    memory = Memory.open(":memory:", settings=dataclasses.replace(settings, embedder=EMBEDDER))
    for number, (key, text) in enumerate(NOTES.items()):
        memory.add(text, id=key, importance=0.1 * (number % 10))
    return memory


def expected(memory: Memory, question: str, vector_weight: float, text_weight: float) -> list[tuple[str, float]]:
    """OpenClaw's own arithmetic over both lists: (wv · cosine + wt · s / (1 + s)) / (wv + wt), absent as 0."""
    depth = memory.settings.search.fetch_k
    embedder = open_embedder(EMBEDDER)
    cosines = np.asarray(embedder.passages(list(NOTES.values()))) @ embedder.query(question)
    nearest = sorted(zip(NOTES, map(float, cosines), strict=True), key=lambda pair: -pair[1])[:depth]
    found = memory.search(question, sources=["keyword"], limit=depth).results
    words = {result.record.id: result.shares["keyword"].score for result in found}
    vector = dict(nearest)
    scores = {}
    for key in {*vector, *words}:
        bm25 = words.get(key, 0.0)
        blend = vector_weight * vector.get(key, 0.0) + text_weight * bm25 / (1 + bm25)
        scores[key] = blend / (vector_weight + text_weight)
    return sorted(scores.items(), key=lambda pair: -pair[1])


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize(
    ("said", "weights"),
    [
        ({}, (0.7, 0.3)),
        ({"fusion": "weighted", "vectorWeight": 0.4, "textWeight": 0.6}, (0.4, 0.6)),
        ({"vectorWeight": 1, "textWeight": 1}, (1.0, 1.0)),
        ({"candidateMultiplier": 1}, (0.7, 0.3)),
    ],
)
def test_import_ranks_by_openclaws_blend(tmp_path, question, said, weights):
    """Every score is vectorWeight · cosine + textWeight · textScore, and the order follows."""
    document = {"agents": {"defaults": {"memorySearch": {"query": {"maxResults": 4, "hybrid": said}}}}}
    with remembered(tmp_path, read_openclaw(document)) as memory:
        assert memory.settings.search.fetch_k == 4 * said.get("candidateMultiplier", 4)
        answer = memory.search(question)
        want = expected(memory, question, *weights)
    assert [result.record.id for result in answer.results] == [key for key, _ in want[:4]]
    for result, (_, score) in zip(answer.results, want, strict=False):
        assert result.fused == pytest.approx(score, abs=1e-6)
        assert result.score == pytest.approx(max(0.0, score), abs=1e-6)
        assert result.total == pytest.approx(result.score)


def test_without_hybrid_the_score_is_the_cosine(tmp_path):
    """As in OpenClaw: by vectors alone."""
    document = {"agents": {"defaults": {"memorySearch": {"query": {"hybrid": {"enabled": False}}}}}}
    with remembered(tmp_path, read_openclaw(document)) as memory:
        answer = memory.search("where is the spare key")
    assert answer.trace.mode == "vector-only"
    assert all(result.fused == pytest.approx(result.similarity) for result in answer.results)


def test_page_shows_what_an_import_makes():
    """docs/openclaw.md: its example gives the settings beside it, and every possible setting is named."""
    import re
    import tomllib

    import json5

    page = (DOCS / "openclaw.md").read_text(encoding="utf-8")
    blocks = dict(re.findall(r"^```(\w+)\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL))
    imported = read_openclaw(json5.loads(blocks["json5"]))
    assert tomllib.loads(set_values("", imported.settings)) == tomllib.loads(blocks["toml"])
    for imported, _ in KEYS.values():
        assert all(setting.rpartition(".")[2] in page for setting in imported.settings)


def test_text_of_the_file_equals_its_settings():
    """Strings, lists and numbers are written so that TOML reads the same."""
    import tomllib

    values = {
        "embedder": 'openai:"\\\x7f\x9b\n',
        "ingest.paths": ("a b", "ü"),
        "search.rrf_k": 1e-7,
        "search.mmr": True,
    }
    read = tomllib.loads(set_values("", values, "From a\nb"))
    assert read == {
        "embedder": 'openai:"\\\x7f\x9b\n',
        "ingest": {"paths": ["a b", "ü"]},
        "search": {"rrf_k": 1e-7, "mmr": True},
    }
    assert json.loads(json.dumps(read)) == read
