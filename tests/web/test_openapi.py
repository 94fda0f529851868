"""The OpenAPI document: valid, usable for generated clients, and equal to what the server does."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import openapi_spec_validator
import pytest
import requests
from support import tally
from support.timing import longest

NAMES = {
    "search", "recall", "why_not", "list_records", "add_record", "get_record", "edit_record", "delete_record", "forget",
    "supersede", "undo", "get_history", "get_file", "get_facets", "get_settings", "get_status", "get_index",
    "start_index", "get_metrics", "get_health", "get_changes",
}  # fmt: skip


@pytest.fixture(scope="module")
def document(api):
    """The document as it is served."""
    return api.get("/openapi.json").json()


def operations(document):
    return [
        (address, method, told) for address, methods in document["paths"].items() for method, told in methods.items()
    ]


def test_every_operation_has_a_unique_name(document):
    """Short words that make the method names of a generated client."""
    names = [told["operationId"] for _, _, told in operations(document)]
    assert len(names) == len(set(names))
    assert set(names) >= NAMES
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", name) for name in names)


def test_every_operation_has_a_summary_and_schemas(document):
    """A sentence, a tag, and a schema for each answer."""
    assert document["openapi"].startswith("3.1")
    for address, _, told in operations(document):
        assert told["tags"], address
        assert told["description"].strip(), address
        for status, answer in told["responses"].items():
            assert answer["description"], (address, status)
            kind, body = next(iter(answer["content"].items()))
            assert (kind == "text/plain") == (address == "/metrics" and status == "200")
            assert kind == "text/plain" or body["schema"], (address, status)


def test_every_protected_operation_requires_a_token(document):
    """And lists every error it may return, in the common format."""
    for address, _, told in operations(document):
        assert ("security" in told) == (address != "/healthz"), address
        if address != "/healthz":
            assert {"400", "401", "403", "404", "409", "413", "415", "422", "503"} <= set(told["responses"]), address
            for status in ("400", "401", "422", "503"):
                schema = told["responses"][status]["content"]["application/json"]["schema"]
                assert schema["$ref"].endswith("/ErrorAnswer")


def test_document_is_valid(document):
    """By the specification's own schema, where the checker is installed; every reference resolves."""
    text = str(document)
    for name in re.findall(r"#/components/schemas/([\w.-]+)", text):
        assert name in document["components"]["schemas"], name
    openapi_spec_validator.validate(document)


LONG_HEAD = 20_000  # characters that are more than 64 KiB once they are quoted


def _described(server, token):
    import schemathesis
    from schemathesis.config import SchemathesisConfig

    # Every status of the client's fault refuses a request, also 413: a wrong body may be too large as well.
    refusals = {"checks": {"negative_data_rejection": {"expected-statuses": ["4xx", "5xx"]}}}
    config = SchemathesisConfig.from_dict(refusals)
    shown = {"Authorization": f"Bearer {token}"}
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json", config=config, headers=shown)


def _unhurried(case: Any) -> None:
    """A budget within which nothing can be answered is answered with 503, and rightly; and nobody waits for changes."""
    if case.operation.path == "/v1/changes" and isinstance(case.query.get("wait", 25), int | float):
        case.query = {**case.query, "wait": min(case.query.get("wait", 25), 0)}
    budget = case.body.get("budget_ms") if isinstance(case.body, dict) else None
    if isinstance(budget, int | float) and 1 <= budget <= 1e7:  # any other is invalid, and must stay so
        case.body["budget_ms"] = None


def _is_valid_as_sent(case: Any) -> bool:
    """Whether the only error of a request was in its query, and is gone there: an address has texts alone.

    There a number, a null or a list of one text is that text, and an empty list is nothing.
    """
    from jsonschema import Draft202012Validator

    wrong = [place.name for place, info in case.meta.components.items() if info.mode.is_negative]
    if wrong != ["QUERY"]:
        return False
    sent = requests.Request(**case.as_transport_kwargs()).prepare().url
    values = parse_qs(urlsplit(sent).query, keep_blank_values=True)
    described = [each for each in case.operation.definition.raw.get("parameters", []) if each["in"] == "query"]
    if values.keys() - {each["name"] for each in described}:
        return False
    return all(
        any(map(Draft202012Validator(each["schema"]).is_valid, _readings(values[each["name"]])))
        if each["name"] in values
        else not each.get("required")
        for each in described
    )


def _readings(texts: list[str]) -> Iterator[Any]:
    """What the texts of a parameter can be read as."""
    yield texts
    if len(texts) == 1:
        yield texts[0]
        with contextlib.suppress(ValueError):
            yield json.loads(texts[0])


def _ask(strategy: Any, statuses: Counter[int], *, examples: int, end: float) -> None:
    """Send requests of one operation and check the answers; at least five, however busy the machine is."""
    from hypothesis import HealthCheck, given, settings
    from schemathesis.specs.openapi import checks

    least = statuses.total() + 5
    # A rule between two fields is beyond a schema: what breaks it is told with 400, which is named.
    left_out = [checks.positive_data_acceptance]

    @settings(
        max_examples=examples, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=strategy)
    def holds(case):
        if time.monotonic() < end or statuses.total() < least:
            _unhurried(case)
            try:
                lost = [checks.negative_data_rejection] if _is_valid_as_sent(case) else []
                statuses[case.call_and_validate(excluded_checks=[*left_out, *lost]).status_code] += 1
            except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
                # A head beyond the most is refused while it is being sent; the client may not get to read that.
                assert len(str(case.query) + str(case.path_parameters)) > LONG_HEAD
                statuses[431] += 1

    holds()


@pytest.mark.ci
@pytest.mark.parametrize(
    ("examples", "seconds"),
    [
        pytest.param(20, 120, id="short"),
        pytest.param(400, longest(300), id="long", marks=[pytest.mark.torture, pytest.mark.timeout(7200)]),
    ],
)
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_server_conforms_to_its_document(home, mode, examples, seconds):
    """Generated requests, valid and invalid, to every operation: no failure, only documented answers."""
    import schemathesis
    from hypothesis.errors import Unsatisfiable
    from schemathesis.core.errors import InvalidSchema

    token = home.token("owner", "--owner")
    server = home.serve("--folder", home.folder)
    shown = {"Authorization": f"Bearer {token}"}
    statuses: Counter[int] = Counter()
    operations = [found.ok() for found in _described(server, token).get_all_operations()]
    for operation in operations:
        assert not isinstance(operation, InvalidSchema)
        strategy = operation.as_strategy(schemathesis.GenerationMode(mode), headers=shown)
        try:
            # Each operation has its share of the time, and on a busy machine fewer requests.
            _ask(strategy, statuses, examples=examples, end=time.monotonic() + seconds / len(operations))
        except Unsatisfiable:  # nothing wrong can be said to what takes no parameters
            assert mode == "negative"
    assert len(operations) >= len(NAMES)
    assert statuses.total() > 2 * len(operations)
    server.end()
    assert "Traceback" not in "".join(server.errors)
    refused = sum(count for status, count in statuses.items() if 400 <= status < 500)
    figures = {"operations": len(operations), "requests": statuses.total(), "refused": refused, "failures": 0}
    tally.note(f"requests made from the API's description, {mode}", **figures)


@pytest.mark.torture
@pytest.mark.timeout(3000)
def test_server_conforms_to_its_document_long(home):
    """The same with schemathesis' own command, all phases and checks."""
    token = home.token("owner", "--owner")
    server = home.serve("--folder", home.folder)
    ran = subprocess.run(
        [
            sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json", "--max-examples", "100",
            "-H", f"Authorization: Bearer {token}", "--exclude-checks", "positive_data_acceptance",
            "--seed", "1", "--no-color", "--continue-on-failure",
        ],
        cwd=home.folder, env=home.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Test cases:" in ran.stdout, ran.stderr
    # Two answers are right though its checks do not know that: no time at all to answer in, and a body beyond the most.
    known = ("the query's budget", "[413] Content Too Large")
    found = [case[:2_000] for case in ran.stdout.split("Test Case ID")[1:] if not any(word in case for word in known)]
    assert not found, "\n".join(found)
