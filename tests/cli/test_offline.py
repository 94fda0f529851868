"""`--offline` and RECOLLECT_OFFLINE: nothing leaves the machine, and everything that is here still works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.http import HttpServer, ModelServer, Response

GUARD = """
import os, socket

def _record(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        if event == "socket.connect" and args[0].family == socket.AF_UNIX:
            return
        with open(os.environ["CONNECTIONS"], "a") as file:
            file.write(f"{event} {args[1:] if event == 'socket.connect' else args}\\n")

import sys
sys.addaudithook(_record)
"""
ROWS = {"results": [{"id": "w-1", "text": "Rain tomorrow."}]}


class Train:
    """Runs commands in a home folder of their own, with a list of every connection that their processes try."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "site").mkdir()
        (folder / "site" / "sitecustomize.py").write_text(GUARD)
        (folder / "notes").mkdir()
        (folder / "notes" / "key.md").write_text("# Key\n\nThe spare key is under the blue pot.\n")
        self.list = folder / "connections"
        self.variables = {"RECOLLECT_EMBEDDER": "hashing:64", "NO_COLOR": "1"}

    def __call__(self, *words: str, code: int | None = 0, stdin: str = "") -> subprocess.CompletedProcess[str]:
        homes = ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME")
        kept = {name: value for name, value in os.environ.items() if not name.upper().endswith("_PROXY")}
        for name in ("RECOLLECT_OFFLINE", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
            kept.pop(name, None)
        environment = {**kept, **dict.fromkeys(homes, str(self.folder)), "PYTHONPATH": str(self.folder / "site")}
        environment |= {"CONNECTIONS": str(self.list), **self.variables}
        done = subprocess.run(
            [sys.executable, "-m", "recollect", *words], env=environment, cwd=self.folder, input=stdin, text=True,
            capture_output=True, check=False, timeout=240,
        )  # fmt: skip
        assert code is None or done.returncode == code, done.stderr
        return done

    def settings(self, text: str) -> None:
        (self.folder / "recollect").mkdir(exist_ok=True)
        (self.folder / "recollect" / "config.toml").write_text(text)

    @property
    def connections(self) -> list[str]:
        return self.list.read_text().splitlines() if self.list.exists() else []

    def egress(self) -> dict[str, Any]:
        return json.loads(self("status", "--egress", "--json").stdout)


@pytest.fixture
def train(tmp_path: Path) -> Train:
    return Train(tmp_path)


@pytest.fixture
def models() -> Iterator[ModelServer]:
    server = ModelServer()
    yield server
    server.close()


@pytest.fixture
def weather() -> Iterator[HttpServer]:
    server = HttpServer(lambda _: Response(content=json.dumps(ROWS).encode()))
    yield server
    server.close()


def elsewhere(server: HttpServer, path: str = "") -> str:
    """An address of the server that does not count as this machine."""
    return f"http://0.0.0.0:{server.port}{path}"


def configure(train: Train, models: ModelServer, weather: HttpServer) -> None:
    """An embedding server, a language model and a source, all on what counts as other machines."""
    del train.variables["RECOLLECT_EMBEDDER"]
    train.settings(
        f"""embedder = "openai:m"
[openai]
base_url = "{elsewhere(models, "/v1")}"
retries = 0
[llm]
base_url = "{elsewhere(models, "/v1")}"
model = "m"
retries = 0
[[sources]]
name = "weather"
kind = "http"
url = "{elsewhere(weather)}?q={{query}}"
timeout_ms = 20000
results = "results"
fields = {{ id = "id", text = "text" }}
"""
    )


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("add", "The tram leaves at nine."), ("index", "notes"), ("search", "where is the spare key?"),
    ("recall", "spare key"), ("status",), ("status", "--egress"), ("doctor",), ("list",), ("export", "all.jsonl"),
    ("embed",),     ("search", "spare key", "--hyde"),
    ("why-not", "spare key", "notes/key.md"), ("config", "show"), ("model", "list"),
)  # fmt: skip
HOOK = json.dumps(
    {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": "where is the spare key kept today?"}
)


@pytest.mark.ci
def test_nothing_is_contacted_on_a_train(train: Train, models: ModelServer, weather: HttpServer) -> None:
    """With servers in the settings, no command looks up a name or connects; and what is here is found."""
    train.variables["RECOLLECT_EMBEDDER"] = "hashing:64"
    train("index", "notes")
    configure(train, models, weather)
    for command in COMMANDS:
        done = train("--offline", *command, code=None)
        assert "Traceback" not in done.stderr
        # The vectors in the store are of another model, which `doctor` reports, and which stays.
        assert done.returncode == {"doctor": 1}.get(command[0], 0), (command, done.stderr)
    train("recall", "--hook", "--offline", stdin=HOOK, code=None)
    assert train.connections == []
    assert models.asked == weather.asked == []
    answer = json.loads(train("search", "--offline", "where is the spare key?", "--json").stdout)
    assert "blue pot" in answer["results"][0]["text"]
    failed = {source["name"]: source.get("reason", "") for source in answer["trace"]["sources"]}
    assert failed["vector"] == ""  # the model that made the vectors is on this machine
    assert "offline:" in failed["weather"]
    assert train.connections == []


@pytest.mark.ci
def test_same_commands_connect_when_they_are_not_offline(
    train: Train, models: ModelServer, weather: HttpServer
) -> None:
    """So the test above can fail; and the calls are counted by host and purpose."""
    configure(train, models, weather)
    train("index", "notes")
    train("search", "where is the spare key?")
    assert train.connections
    assert models.asked
    assert weather.asked
    report = train.egress()
    rows = {row["purpose"]: row for row in report["contacted"]}
    assert rows["embeddings"]["host"] == f"0.0.0.0:{models.port}"
    assert rows["embeddings"]["calls"] == len(models.asked)
    assert rows["source weather"]["calls"] == len(weather.asked)
    assert all(row["sent"] > 0 and row["received"] > 0 and not row["local"] for row in rows.values())
    assert {row["purpose"] for row in report["can_contact"]} == {"embeddings", "language model", "source weather"}
    text = train("status", "--egress").stdout
    assert f"0.0.0.0:{models.port}" in text
    assert "spare" not in (train.folder / "recollect" / "network.json").read_text()


def test_installed_defaults_can_contact_nothing(train: Train) -> None:
    """With an embedder that is here, the settings name no other machine."""
    assert train.egress()["can_contact"] == []
    assert "nothing" in train("status", "--egress").stdout


@pytest.mark.ci
@pytest.mark.parametrize("store", ["memory.db", "lancedb://vectors"])
def test_defaults_contact_nothing(train: Train, store: str) -> None:
    """With a model that is here, no command looks up a name or connects, although nothing forbids it."""
    train.variables["RECOLLECT_STORE"] = store
    for command in COMMANDS:
        done = train(*command, code=None)
        assert "Traceback" not in done.stderr
        assert done.returncode in (0, 1) or "--hyde" in command, (command, done.stderr)
    assert "blue pot" in train("search", "where is the spare key?").stdout
    train("recall", "--hook", stdin=HOOK)
    assert train.connections == []
    assert train.egress()["contacted"] == []


def test_missing_model_leaves_keyword_search(train: Train) -> None:
    """The reason is in the answer, and no download is tried. Vectors of another model would answer."""
    train("--embedder", "none", "index", "notes")
    train.variables |= {"RECOLLECT_EMBEDDER": "arctic-embed-s", "RECOLLECT_MODELS": str(train.folder / "none")}
    answer = json.loads(train("--offline", "search", "spare key", "--json").stdout)
    assert "blue pot" in answer["results"][0]["text"]
    assert any("offline" in str(source) for source in answer["trace"]["sources"])
    assert train.connections == []


def test_this_machine_is_allowed_offline(train: Train, models: ModelServer) -> None:
    """A local embedding server is used: nothing leaves the machine."""
    train.variables |= {"RECOLLECT_EMBEDDER": "openai:m", "RECOLLECT_OPENAI_BASE_URL": models.url}
    train("--offline", "add", "The tram leaves at nine.")
    assert models.asked


def test_ingest_files_says_offline_and_sends_nothing(train: Train, models: ModelServer, weather: HttpServer) -> None:
    """One message, not one for each piece."""
    configure(train, models, weather)
    done = train("--offline", "ingest-files", "--workspace", "notes", "--paths", "*.md", code=3)
    assert "offline: 0.0.0.0" in done.stderr
    assert models.asked == []


def test_offline_source_does_not_count_as_failing(train: Train, models: ModelServer, weather: HttpServer) -> None:
    """After four searches offline it is asked at once when the machine is online again."""
    configure(train, models, weather)
    train.variables["RECOLLECT_EMBEDDER"] = "none"
    train("add", "The tram leaves at nine.")
    for _ in range(4):
        train("--offline", "search", "tram")
    train("search", "tram")
    assert len(weather.asked) == 1


@pytest.mark.parametrize("place", [
    "postgresql://ada@db.example/notes", "postgresql://ada@10.1.2.3/notes", "postgresql:///notes?service=team",
])  # fmt: skip
def test_database_on_another_machine_is_refused(train: Train, place: str) -> None:
    """At once, with what to do."""
    pytest.importorskip("psycopg")
    done = train("--offline", "list", "--store", place, code=3)
    assert "offline:" in done.stderr
    assert "omit --offline" in done.stderr
    assert train.connections == []


def test_object_storage_is_refused_and_keywords_answer(train: Train) -> None:
    """The records are in a file here; only the vectors are elsewhere."""
    pytest.importorskip("lancedb")
    place = f"lancedb://s3://bucket/x?truth={train.folder / 'm.db'}&endpoint=http://10.1.2.3:9000&region=us-east-1"
    train("--offline", "add", "The tram leaves at nine.", "--store", place)
    answer = json.loads(train("--offline", "search", "tram", "--json", "--store", place).stdout)
    assert answer["results"]


def test_doctor_notes_what_it_did_not_check(train: Train, models: ModelServer, weather: HttpServer) -> None:
    """A server that may not be contacted is no problem."""
    configure(train, models, weather)
    train("--offline", "add", "The tram leaves at nine.")
    done = train("--offline", "doctor", "--json", code=None)
    checks = {check["check"]: check for check in json.loads(done.stdout)["checks"]}
    for name in ("model", "llm", "sources"):
        assert (checks[name]["state"], checks[name]["message"][:12]) == ("note", "not checked:")
    assert train.connections == []


def test_service_goes_on_offline(train: Train) -> None:
    """The unit file has the flag, because a service has none of this environment."""
    done = train("--offline", "service", "install", "notes", "--print", "--platform", "systemd")
    assert "--offline" in done.stdout
    assert "--offline" not in train("service", "install", "notes", "--print", "--platform", "systemd").stdout


def test_flag_ends_with_its_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It does not stay in the environment of a program that calls `main`."""
    from recollect.cli import main

    monkeypatch.delenv("RECOLLECT_OFFLINE", raising=False)
    assert main(["--offline", "model", "list"]) == 0
    assert "RECOLLECT_OFFLINE" not in os.environ
    capsys.readouterr()


def test_guard_records_connections(train: Train) -> None:
    """The guard itself records a connection."""
    code = "import socket\ntry: socket.create_connection(('127.0.0.1', 9))\nexcept OSError: pass"
    environment = {**os.environ, "PYTHONPATH": str(train.folder / "site"), "CONNECTIONS": str(train.list)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert any("socket.connect" in line for line in train.connections)
