"""docs/serving.md: its tables, commands and numbers agree with the server."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess

import click
import pytest
import yaml
from support import DOCS

from recollect.cli import app
from recollect.cli.serve import GRACE_SECONDS, PORT
from recollect.evaluation import studies
from recollect.memory.shapes import FOUND_CHARACTERS
from recollect.memory.validation import MAX_TEXT
from recollect.web import middleware, record_routes, responses, workers
from recollect.web.inputs import MOST_LISTED
from recollect.web.middleware import MOST_BYTES
from recollect.web.operations import LONGEST_SECONDS, MOST_WAITING

PAGE = (DOCS / "serving.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"^\| `(GET|POST|PATCH|DELETE) (/\S*)` \|.*\| (reading|writing|owner|all) \|$", PAGE, flags=re.MULTILINE
)


def blocks(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def commands():
    return [
        line.removeprefix("$ ") for block in blocks("console") for line in block.splitlines() if line.startswith("$")
    ]


def test_table_lists_every_route(api):
    """Those of the OpenAPI document, each with its purpose."""
    paths = api.get("/openapi.json").json()["paths"]
    served = {(method.upper(), address) for address, methods in paths.items() for method in methods}
    assert {(method, address) for method, address, _ in ROWS} == served


def test_table_names_the_permissions(askers):
    """A read-only caller is refused writing and the owner's routes; one without a token all but `all`."""
    nobody = askers.server.client()
    for method, address, may in ROWS:
        where = re.sub(r"\{\w+\}", "nothing", address)
        body = {"json": {}} if method in ("POST", "PATCH") else {}
        assert (nobody.request(method, where, **body).status_code == 401) == (may != "all"), address
        refusing = askers.reader.request(method, where, **body).status_code == 403
        if may in ("owner", "writing"):
            assert refusing, address
        else:
            assert not refusing, address


def test_every_command_parses():
    """Its flags and arguments exist; curl commands are run in the next test."""
    for line in commands():
        program, name, *words = shlex.split(line)
        if program == "curl":
            continue
        assert program == "recollect"
        command = app.get_command(click.Context(app), name)
        if isinstance(command, click.Group):
            command = command.get_command(click.Context(command), words.pop(0))
        command.make_context(name, words)


def test_curl_commands_are_answered(home):
    """As they stand, at the port of the test server."""
    if not shutil.which("curl"):
        pytest.skip("curl is not installed")
    server = home.serve()
    asked = [shlex.split(line.replace(f":{PORT}", f":{server.port}")) for line in commands() if line.startswith("curl")]
    stored, found = (json.loads(subprocess.run(words, capture_output=True, check=True).stdout) for words in asked)
    assert found["results"][0]["id"] == stored["id"]


def test_startup_message_is_documented(server):
    """The line on standard error, except for the port."""
    (shown,) = re.findall(r"^serving at .*$", PAGE, flags=re.MULTILINE)
    assert server.errors[0].strip().replace(str(server.port), str(PORT)) == shown


def test_documented_statuses_equal_the_code():
    """Each status with its code, and no other."""
    told = {int(status): words for status, words in re.findall(r"^\| (\d{3}) \| (.*) \|$", PAGE, flags=re.MULTILINE)}
    assert set(told) == {*responses.DOCUMENTED, 405} - {504}
    for kind, status in responses.STATUSES:
        if status in told and kind.code != "failed":
            assert f"`{kind.code}`" in told[status], kind
    for status, code in responses._CODES.items():
        assert f"`{code}`" in told[status]


def test_documented_numbers_equal_the_code():
    """Sizes and times."""
    assert f"{MOST_BYTES:,} bytes" in PAGE
    assert MOST_BYTES == 8 * 1024**2
    assert MAX_TEXT == 1_000_000
    assert f"a listing {MOST_LISTED:,} records, a result {FOUND_CHARACTERS:,} characters" in PAGE
    assert GRACE_SECONDS == 5
    assert f"(25, up to {LONGEST_SECONDS}). Then" in PAGE
    assert f"Up to {MOST_WAITING} may wait" in PAGE


def test_documented_limits_equal_the_code():
    """Each row of the table has the numbers of the code."""
    table = dict(
        re.findall(r"^\| ([^|`]*?(?:`[^|]*?)?) \| (.*) \|$", PAGE.partition("## Limits")[2], flags=re.MULTILINE)
    )
    rows = {
        "depth to which a source is read, also by `why-not`": [f"{workers.DEEPEST:,}"],
        "time for one request": [f"{workers.BOUND_SECONDS:g} s"],
        "time for a study (`/v1/eval/…`)": [f"{workers.STUDY_SECONDS:g} s", f"{studies.SECONDS:g} s"],
        "heavy requests at once": [f"{workers.AT_ONCE}, and {workers.EACH_AT_ONCE} of", f"{workers.OWNER_AT_ONCE}"],
        "studies at once": [f"{workers.AT_ONCE}, and {workers.EACH_AT_ONCE} of"],
        "heavy requests that wait for their turn": [
            f"{workers.WAITING} of each scope, {workers.PATIENCE_SECONDS:g} s",
            f"{workers.OWNER_WAITING}, {workers.OWNER_PATIENCE_SECONDS:g} s",
        ],
        "connections": [f"{middleware.MOST_CONNECTIONS:,} at the most"],
        "time for a request's head": [f"{middleware.HEAD_SECONDS:g} s"],
        "time for a request's body": [f"{middleware.BODY_SECONDS:g} s"],
    }
    for name, numbers in rows.items():
        assert all(number in table[name] for number in numbers), (name, table[name])
    heavy = f"a list of more than {record_routes.LIGHT_LISTED} records, and a search for more than"
    assert f"{heavy} {record_routes.LIGHT_RESULTS} results, deeper than {record_routes.LIGHT_DEPTH}\n" in PAGE
    assert f"more than {record_routes.LIGHT_CHARACTERS:,} characters" in PAGE
    assert workers.IDLE_SECONDS == 300


def test_documented_metrics_equal_the_exported_ones(api):
    """Names and labels."""
    api.post("/v1/search", json={"query": "x"})
    table = re.findall(r"^\| `(recollect_\w+)` \| (.*?) ?\|$", PAGE, flags=re.MULTILINE)
    told = {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in table}
    text = api.get("/metrics").text
    found = {}
    for line in text.splitlines():
        if line.startswith("recollect_") and "_created" not in line:
            name, _, labels = line.rpartition(" ")[0].partition("{")
            name = re.sub(r"_(bucket|sum|count)$", "", name)
            found.setdefault(name, set()).update(set(re.findall(r'(\w+)="', labels)) - {"le"})
    assert found == told


def test_prometheus_and_proxy_examples_fit_the_server():
    """The example is YAML that Prometheus knows, and both use the right port."""
    (job,) = yaml.safe_load(*blocks("yaml"))["scrape_configs"]
    assert set(job) == {"job_name", "authorization", "static_configs"}  # /metrics over http is its own default
    assert job["static_configs"] == [{"targets": [f"127.0.0.1:{PORT}"]}]
    (proxy,) = blocks("nginx")
    assert f"proxy_pass http://127.0.0.1:{PORT};" in proxy
    assert f"client_max_body_size {MOST_BYTES // 1024**2}m;" in proxy
    assert "proxy_set_header Host $host;" in proxy
