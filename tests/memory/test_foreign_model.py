"""A store made by somebody else names a model: texts are sent to it only if the user's own settings name it too."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import apsw
import pytest
from support.forking import recollect_words
from support.http import ModelServer

from recollect import Memory, moving
from recollect.config import Settings
from recollect.config.settings import OpenAISettings
from recollect.memory.closeness import PAIRS

PRIVATE = "my very private question about the spare key"
HOOK = json.dumps({"hook_event_name": "UserPromptSubmit", "session_id": "one", "prompt": PRIVATE})


@pytest.fixture(scope="module")
def recorder() -> Iterator[ModelServer]:
    """The server to which a hostile store would send texts."""
    with ModelServer() as server:
        yield server


@pytest.fixture(scope="module")
def made(recorder: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose vectors were made by an endpoint: `ollama:evil`."""
    place = tmp_path_factory.mktemp("made") / "hostile.db"
    settings = Settings(openai=OpenAISettings(base_url=recorder.url))
    with Memory.open(place, embedder="ollama:evil", settings=settings) as memory:
        memory.add_many([{"id": f"key-{n}", "text": f"The spare key is under fern {n}."} for n in range(3)])
        assert memory.status()["vectors"]["embedder"] == "ollama:evil"
    return place


@pytest.fixture
def hostile(made: Path, recorder: ModelServer, path: Path) -> Path:
    """A copy of that store, with the server's recorded requests cleared."""
    shutil.copy(made, path)
    recorder.asked.clear()
    return path


def rename(path: Path, embedder: str) -> None:
    """Let a store name another model for the same vectors."""
    connection = apsw.Connection(str(path))
    new = "replace(fingerprint, embedder, ?1)"
    connection.execute(f"UPDATE meta SET value = (SELECT {new} FROM spaces) WHERE key = 'space'", (embedder,))
    connection.execute(f"UPDATE spaces SET fingerprint = {new}, embedder = ?1", (embedder,))
    connection.close()


class Shell:
    """Commands of a user who embeds on this machine, and whose endpoint settings lead to the recorder."""

    def __init__(self, home: Path, store: Path, recorder: ModelServer) -> None:
        self.home = home
        self.store = store
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RECOLLECT_")}
        folders = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "RECOLLECT_MODELS")
        self.environment = {
            **kept,
            **dict.fromkeys(folders, str(home)),
            "RECOLLECT_STORE": str(store),
            "RECOLLECT_EMBEDDER": "hashing:64",
            "RECOLLECT_OPENAI_BASE_URL": recorder.url,
            "OPENAI_BASE_URL": recorder.url,
            "OPENAI_API_KEY": "secret",
            "RECOLLECT_OFFLINE": "1",
            "NO_PROXY": "*",
        }

    def __call__(self, *words: object, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            recollect_words(*words), env=self.environment, cwd=self.home, input=given,
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip


@pytest.fixture
def shell(tmp_path: Path, hostile: Path, recorder: ModelServer) -> Shell:
    """Commands on the hostile store."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "notes").mkdir()
    (home / "notes" / "diary.md").write_text("# Diary\n\nPrivate.\n")
    return Shell(home, hostile, recorder)


def speak_mcp(shell: Shell) -> subprocess.CompletedProcess[str]:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    said = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call",
         "params": {"name": "memory_search", "arguments": {"query": PRIVATE}}},
        {"jsonrpc": "2.0", "id": 3, "method": "tools/call",
         "params": {"name": "memory_store", "arguments": {"text": "my diary"}}},
    ]  # fmt: skip
    process = subprocess.Popen(
        recollect_words("mcp"), env=shell.environment, cwd=shell.home, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        process.stdin.write("".join(f"{json.dumps(line)}\n" for line in said))
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(3)]
    finally:
        process.kill()
        process.communicate()
    assert {answer["id"] for answer in answers} == {1, 2, 3}
    assert not any(answer["result"].get("isError") for answer in answers), answers
    return subprocess.CompletedProcess([], 0, json.dumps(answers), "")


def ask_server(shell: Shell) -> subprocess.CompletedProcess[str]:
    process = subprocess.Popen(
        recollect_words("serve", "--port", "0"), env=shell.environment, cwd=shell.home, text=True,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        url = next(word for line in process.stderr for word in line.split() if word.startswith("http://")).rstrip("/")
        answers = [
            urllib.request.urlopen(
                urllib.request.Request(
                    f"{url}/v1/{route}", json.dumps(body).encode(), {"Content-Type": "application/json"}
                ),
                timeout=60,
            ).read()
            for route, body in (("search", {"query": PRIVATE}), ("records", {"text": "my diary"}))
        ]
    finally:
        process.kill()
        process.communicate()
    return subprocess.CompletedProcess([], 0, str(answers), "")


COMMANDS: dict[str, Callable[[Shell], subprocess.CompletedProcess[str]]] = {
    "search": lambda shell: shell("search", PRIVATE),
    "search with confidence": lambda shell: shell("search", "spare key", "--min-confidence", "0.1"),
    "recall": lambda shell: shell("recall", PRIVATE),
    "hook": lambda shell: shell("recall", "--hook", given=HOOK),
    "why-not": lambda shell: shell("why-not", PRIVATE, "key-1"),
    "add": lambda shell: shell("add", "my diary"),
    "add many": lambda shell: shell("add", "-", given='{"text": "my diary"}\n'),
    "index": lambda shell: shell("index", "notes"),
    "embed": lambda shell: shell("embed", "--embedder", "hashing:64"),
    "status": lambda shell: shell("status"),
    "list": lambda shell: shell("list"),
    "doctor": lambda shell: shell("doctor"),
    "mcp": speak_mcp,
    "serve": ask_server,
}


@pytest.mark.ci
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["ollama:evil", "openai:evil"])
def test_nothing_is_sent_to_an_endpoint_that_only_the_store_names(
    shell: Shell, recorder: ModelServer, name: str, command: str
) -> None:
    """Every command works, and the endpoint receives no request."""
    rename(shell.store, name)
    done = COMMANDS[command](shell)
    assert recorder.asked == []
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.ci
def test_nothing_is_sent_after_an_import(shell: Shell, recorder: ModelServer, tmp_path: Path) -> None:
    """An export that names an endpoint does not choose it in a new store either."""
    moving.export(shell.store, tmp_path / "shared.jsonl")
    shell.environment["RECOLLECT_STORE"] = str(tmp_path / "new.db")
    assert shell("import", tmp_path / "shared.jsonl").returncode == 0
    assert "fern" in shell("search", "spare key").stdout
    assert shell("add", "my diary").returncode == 0
    assert recorder.asked == []


@pytest.mark.ci
def test_search_falls_back_to_keywords_with_a_note(shell: Shell) -> None:
    """The note names the model that was not used, and what to do."""
    done = shell("search", "spare key")
    assert "fern" in done.stdout
    assert "the store's vectors were made by ollama:evil, which your settings do not name" in done.stderr
    assert "`recollect embed --embedder hashing:64` moves to hashing:64" in done.stderr
    sources = json.loads(shell("search", "key", "--json").stdout)["trace"]["sources"]
    assert {source["name"]: source["status"] for source in sources} == {"keyword": "ok", "vector": "failed"}


@pytest.mark.ci
def test_embed_moves_to_a_model_only_if_it_is_named(shell: Shell, recorder: ModelServer) -> None:
    """Without a name it refuses and says what to do; afterwards the search uses vectors. Nothing was sent."""
    refused = shell("embed")
    assert refused.returncode == 3
    assert "`recollect embed --embedder hashing:64` moves to hashing:64" in refused.stderr
    assert shell("embed", "--embedder", "hashing:64").returncode == 0
    trace = json.loads(shell("search", "spare key", "--json").stdout)["trace"]
    assert {source["name"]: source["status"] for source in trace["sources"]} == {"keyword": "ok", "vector": "ok"}
    assert recorder.asked == []


def test_endpoint_named_in_the_settings_is_used(shell: Shell, recorder: ModelServer) -> None:
    """The user's own settings allow it. Besides the query it gets the pairs by which its cosines are read."""
    shell.environment["RECOLLECT_EMBEDDER"] = "ollama:evil"
    assert "fern" in shell("search", PRIVATE).stdout
    pairs = [text for pair in PAIRS for text in pair]
    sent = [text for request in recorder.asked for text in request.body["input"]]
    assert [text for text in sent if text not in pairs] == [PRIVATE]


LOADED = "import pathlib\npathlib.Path({marker!r}).write_text('loaded')\n"


@pytest.mark.ci
@pytest.mark.parametrize("package", ["fastembed", "sentence_transformers"])
def test_package_that_only_the_store_names_is_not_imported(shell: Shell, tmp_path: Path, package: str) -> None:
    """A model by path or repository could run code, so its package is not imported."""
    site, marker = tmp_path / "site", tmp_path / "marker"
    site.mkdir()
    (site / f"{package}.py").write_text(LOADED.format(marker=str(marker)))
    shell.environment["PYTHONPATH"] = str(site)
    rename(shell.store, f"{package.replace('_', '-')}:{tmp_path}/evil-model")
    assert "fern" in shell("search", "spare key").stdout
    assert shell("add", "my diary").returncode == 0
    assert not marker.exists()
    shell.environment["RECOLLECT_EMBEDDER"] = f"{package.replace('_', '-')}:{tmp_path}/evil-model"
    shell("search", "spare key")
    assert marker.exists(), "named by the settings, it is imported, so that the check above can fail"


def test_plugin_embedder_needs_the_settings(
    hostile: Path, open_memory: Callable[..., Memory], offer: Callable[..., ModuleType]
) -> None:
    """An embedder from an installed package is refused until the settings name it."""
    package = offer("recollect.embedders", "acme", "OPENED = []\n\ndef open(spec):\n    OPENED.append(spec)\n")
    rename(hostile, "acme:large")
    memory = open_memory(hostile)
    assert memory.search("spare key").results
    memory.add("my diary")
    assert package.OPENED == []


def test_built_in_embedder_of_the_store_still_answers(open_memory: Callable[..., Memory], path: Path) -> None:
    """It sends and loads nothing, and is used until the new vectors are complete."""
    with open_memory() as memory:
        memory.add("The spare key is under the fern.")
    answer = open_memory(embedder="hashing:32").search("spare key")
    assert "hashing:64 still answers" in str(answer.trace.warnings)


def test_hashing_without_its_dimension_is_the_model_of_the_store(path: Path) -> None:
    """A search does not advise to move to the model that answers."""
    for embedder in ("hashing", "hashing:256", "hashing"):
        with Memory.open(path, embedder=embedder, settings=Settings()) as memory:
            memory.add("The spare key is under the fern.")
            assert (memory.search("spare key").trace.warnings, memory.status()["vectors"]["with"]) == ((), 1)


def test_model_of_the_store_answers_if_that_of_the_settings_is_not_there(
    open_memory: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing is fetched for a mere search, and what is added meanwhile gets the vectors of the store's model."""
    monkeypatch.setenv("RECOLLECT_OFFLINE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with open_memory() as memory:
        memory.add("The spare key is under the fern.")
    memory = open_memory(embedder="arctic-embed-s")
    answer = memory.search("spare key")
    assert answer.trace.mode == "hybrid"
    assert "hashing:64 still answers" in str(answer.trace.warnings)
    memory.add("The heron by the lake.")
    assert memory.status()["vectors"]["with"] == 2


@pytest.mark.ci
@pytest.mark.parametrize("named", [False, True])
def test_external_recollect_store_cannot_choose_its_model_either(
    shell: Shell, recorder: ModelServer, tmp_path: Path, named: bool
) -> None:
    """It answers by keywords unless its table in the settings names the model."""
    shell.environment["RECOLLECT_STORE"] = str(tmp_path / "own.db")
    table = f'[[sources]]\nname = "other"\nkind = "recollect"\nstore = "{shell.store}"\ntimeout_ms = 20000\n'
    (shell.home / "recollect").mkdir()
    (shell.home / "recollect" / "config.toml").write_text(table + ('embedder = "ollama:evil"\n' if named else ""))
    shell("add", "something else")
    done = shell("search", "spare key")
    assert "fern" in done.stdout, done.stderr
    assert [request.body["input"] for request in recorder.asked] == ([["spare key"]] if named else [])
    assert ("made by ollama:evil" in done.stderr) != named


def test_excessive_dimension_is_refused(hostile: Path, open_memory: Callable[..., Memory]) -> None:
    """A store cannot make the built-in embedder fill the memory."""
    rename(hostile, "hashing:4000000000")
    (vector,) = [one for one in open_memory(hostile).search("spare key").trace.sources if one.name == "vector"]
    assert "cannot have 4,000,000,000 dimensions" in vector.reason
