"""Searches over HTTP, and the server's reports: status, settings, facets, metrics, health."""

from __future__ import annotations

import dataclasses
import re
import uuid

import pytest

from recollect import Memory, __version__
from recollect.config import Settings
from recollect.memory.shapes import FOUND_CHARACTERS, answer_dict
from recollect.web.inputs import SearchBody

from .conftest import refused


@pytest.fixture(scope="module")
def stocked(add):
    """A few records that share one unique word."""
    # Of letters alone: a number in it would be a word of its own.
    word = "".join(chr(ord("a") + int(digit, 16)) for digit in uuid.uuid4().hex)
    records = {
        "key": add(f"The spare key is under the blue pot. {word}", category="home", tags=["key"], title="Key"),
        "old": add(f"The office is in Aarhus. {word}", happened_at="2020-01-01"),
        "long": add(f"{word} " + "A long story without an end. " * 400),
        "ada": add(f"Ada's locker has the code four. {word}", scope={"user": "ada"}),
    }
    return {"word": word, **{name: record["id"] for name, record in records.items()}}


def ids(answer):
    assert answer.status_code == 200, answer.text
    return [result["id"] for result in answer.json()["results"]]


def test_search_equals_memory_search(api, shared, stocked):
    """The same results in the same format as the library gives for the same store."""
    body = {"query": f"spare key {stocked['word']}", "limit": 2, "explain": True}
    answer = api.post("/v1/search", json=body).json()
    with Memory.open(shared.store, embedder="hashing:64", settings=Settings()) as memory:
        expected = answer_dict(memory.search(body["query"], limit=2), explain=True)
    assert set(answer) == {*expected, "matched"}
    assert answer["results"][0] == expected["results"][0]
    assert answer["fusion"] == expected["fusion"]
    assert answer["results"][0]["id"] == stocked["key"]
    assert {"factors", "moves", "base", "total"} <= set(answer["results"][0])
    assert "factors" not in api.post("/v1/search", json={**body, "explain": False}).json()["results"][0]


def test_every_search_option_is_accepted(api, stocked):
    """Each alone, and all compatible ones at once."""
    options = {
        "limit": 3, "fetch_k": 50, "sources": ["keyword"], "fusion": "weighted", "rrf_k": 10, "normalisation": "minmax",
        "text_weight": 2, "vector_weight": 0.5, "decay": True, "half_life_days": 30, "importance_weight": 0.5,
        "mmr": True,
        "mmr_lambda": 0.5, "prefer_newer": True, "min_score": 0.1, "confidence": False, "rerank": False, "hyde": False,
        "rerank_ms": 100, "by": "chunk", "origin": ["user"], "plain": True, "typos": True, "dates": True,
        "typing": True,
        "budget_ms": 60_000, "category": ["home"], "tags": ["key"], "kind": "fact", "since": "2019-01-01",
        "until": "2999-01-01", "superseded": True, "scope": {"user": "ada"}, "any_scope": False, "explain": True,
    }  # fmt: skip
    known = set(SearchBody.model_fields) - {"query"}
    assert known - set(options) == {"path", "as_of", "min_confidence", "author", "author_session"}
    for name, value in options.items():
        answer = api.post("/v1/search", json={"query": stocked["word"], name: value})
        assert answer.status_code == 200, (name, answer.text)
    assert ids(api.post("/v1/search", json={"query": stocked["word"], **options})) == [stocked["key"]]
    nothing = dict.fromkeys(known - {"explain"})
    assert ids(api.post("/v1/search", json={"query": stocked["word"], **nothing})) == ids(
        api.post("/v1/search", json={"query": stocked["word"]})
    )


def test_filters_and_scopes_narrow(api, stocked):
    """By category, tag, time and scope."""

    def found(**filters):
        return set(ids(api.post("/v1/search", json={"query": stocked["word"], "sources": ["keyword"], **filters})))

    assert found() == {stocked["key"], stocked["old"], stocked["long"]}
    assert found(category=["home"]) == found(tags=["key"]) == {stocked["key"]}
    assert found(until="2021-01-01") == {stocked["old"]}
    assert found(as_of="2021-01-01") == {stocked["old"]}
    assert found(scope={"user": "ada"}) - found() == found(any_scope=True) - found() == {stocked["ada"]}
    assert found(path="nowhere") == found(kind="chunk") == set()


def test_long_text_is_cut_in_answers_but_not_in_the_record(api, stocked):
    """`text_chars` is its full length."""
    found = api.post("/v1/search", json={"query": stocked["word"], "sources": ["keyword"]}).json()["results"]
    (long,) = (result for result in found if result["id"] == stocked["long"])
    whole = api.get(f"/v1/records/{stocked['long']}").json()
    assert len(long["text"]) == FOUND_CHARACTERS
    assert long["text_chars"] == len(whole["text"]) > FOUND_CHARACTERS
    assert whole["text"].startswith(long["text"])
    verdict = api.post("/v1/why-not", json={"query": stocked["word"], "target": stocked["long"]}).json()
    assert len(verdict["record"]["text"]) == FOUND_CHARACTERS


def test_recall_block_is_returned(api, stocked):
    """Within its tokens, with numbers to cite."""
    block = api.post("/v1/recall", json={"query": f"spare key {stocked['word']}", "tokens": 300, "limit": 2}).json()
    assert set(block) == {"query", "text", "tokens", "citations", "left_out", "warnings"}
    assert block["tokens"] <= 300
    assert "[1]" in block["text"]
    assert block["citations"][0]["id"] == stocked["key"]
    for tokens in (0, -1, 10**9, "many", 1.5):
        refused(api.post("/v1/recall", json={"query": "x", "tokens": tokens}), 422, "invalid")
    refused(api.post("/v1/recall", json={"query": "x", "by": "file"}), 422, "invalid")


def test_why_not_names_the_stage(api, stocked):
    """Found, or the stage that lost the record, and the change that would bring it back."""
    keys = {"query", "target", "stage", "reason", "rank", "sources", "change", "advice", "record"}
    found = api.post("/v1/why-not", json={"query": f"spare key {stocked['word']}", "target": stocked["key"]}).json()
    assert set(found) == keys
    assert (found["stage"], found["rank"]) == ("found", 1)
    lost = api.post("/v1/why-not", json={"query": "locker", "target": stocked["ada"]}).json()
    assert (lost["stage"], lost["record"]["id"]) == ("scope", stocked["ada"])
    assert lost["change"] == {"scope": {"user": "ada"}}
    again = api.post("/v1/search", json={"query": "locker code", "limit": 50, **lost["change"]})
    assert stocked["ada"] in ids(again)
    assert api.post("/v1/why-not", json={"query": "x", "target": "no-such-thing"}).status_code in (400, 404)
    refused(api.post("/v1/why-not", json={"query": "x"}), 422, "invalid")
    refused(api.post("/v1/why-not", json={"query": "x", "target": ""}), 422, "invalid")


def test_unknown_source_is_named(api):
    """In the error message."""
    error = refused(api.post("/v1/search", json={"query": "x", "sources": ["oracle"]}), 400, "usage")
    assert "oracle" in error["message"]


def test_impossible_time_budget_is_an_error(api):
    """503 with its code, and when to try again."""
    words = " ".join(f"word{number}" for number in range(10_000))
    # The hashing embedder reads every word; the keyword source only the first terms, in less than the budget.
    answer = api.post("/v1/search", json={"query": words, "budget_ms": 1, "sources": ["vector"]})
    refused(answer, 503, "search_failed")
    assert answer.headers["retry-after"] == "1"


def test_settings_are_listed_with_the_caller(api):
    """Every search setting by its name, the caller and the version."""
    answer = api.get("/v1/settings").json()
    assert set(answer) == {"search", "controls", "vectors", "caller", "version", "sample"}
    assert set(answer["search"]) == {field.name for field in dataclasses.fields(Settings().search)}
    assert answer["version"] == __version__


def test_facets_list_the_filter_values(api, stocked):
    """Categories, tags and sources; a name selects one."""
    answer = api.get("/v1/facets").json()
    assert set(answer) == {"categories", "tags", "scopes", "roots", "sources"}
    assert "home" in answer["categories"]
    assert "key" in answer["tags"]
    assert {"user": "ada"} in answer["scopes"]
    assert answer["sources"] == ["keyword", "vector"]
    refused(api.get("/v1/facets", params={"user": "x" * 1001}), 422, "invalid")


def test_status_has_all_parts(api, stocked):
    """Counts of the store, its parts, search times, and the index."""
    api.post("/v1/search", json={"query": stocked["word"]})
    answer = api.get("/v1/status").json()
    assert {"records", "vectors", "keyword_lag", "bytes", "scope", "sources", "latency", "uptime_s", "index"} <= set(
        answer
    )
    assert answer["records"]["facts"] >= 4
    assert {"embedder", "with", "without"} <= set(answer["vectors"])
    assert [source["state"] for source in answer["sources"]] == ["ok", "ok"]
    latency = answer["latency"]["search"]
    assert set(latency) == {"count", "p50_ms", "p95_ms", "buckets"}
    assert sum(bucket["count"] for bucket in latency["buckets"]) == latency["count"] > 0
    assert latency["p50_ms"] <= latency["p95_ms"]
    assert [bucket["le_ms"] for bucket in latency["buckets"]][-1] is None
    assert answer["index"]["state"] in ("idle", "done")
    assert answer["uptime_s"] > 0


def test_metrics_contain_no_content(api, add):
    """No id, text or user name, and no new labels however many routes are tried."""
    secret = f"s{uuid.uuid4().hex}"
    record = add(f"Very private {secret}.", category=secret, tags=[secret], scope={"user": secret}, id=f"id-{secret}")
    api.get(f"/v1/records/{record['id']}")
    api.post("/v1/search", json={"query": secret, "scope": {"user": secret}})

    def series():
        answer = api.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=")
        assert secret not in answer.text
        return {line.rpartition(" ")[0] for line in answer.text.splitlines() if not line.startswith("#")}

    for address in ("/nothing", "/v1/nothing", "/static/nothing.js", "/v1/records/nothing"):
        api.get(address)
    api.request("BREW", "/nothing")
    series()
    before = series()
    for number in range(20):
        api.get(f"/{secret}/{number}")
        api.get(f"/v1/records/{secret}-{number}")
        api.get(f"/static/{secret}-{number}")
        api.request(f"BREW{number}", f"/{number}")
        api.post("/v1/search", json={"query": f"{secret} {number}"})
    assert series() == before
    names = {re.split(r"[{ ]", line)[0] for line in before}
    assert {"recollect_requests_total", "recollect_search_seconds_bucket", "recollect_source_seconds_count",
            "recollect_records", "recollect_records_without_vector", "recollect_store_bytes"} <= names  # fmt: skip
    assert any('route="/v1/search"' in line for line in before)


def test_prometheus_can_parse_the_metrics(api):
    """With the parser of its own client."""
    from prometheus_client.parser import text_string_to_metric_families

    families = {family.name: family for family in text_string_to_metric_families(api.get("/metrics").text)}
    (total,) = {sample.value for sample in families["recollect_records"].samples if sample.labels["kind"] == "total"}
    assert total == api.get("/v1/status").json()["records"]["total"]


def test_health_is_one_word(api):
    """HEAD returns an empty body."""
    assert api.get("/healthz").json() == {"status": "ok"}
    assert api.head("/healthz").content == b""
