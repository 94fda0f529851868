"""No request makes the server download a model."""

from __future__ import annotations

import pytest
from support.http import HttpServer, Response

from .conftest import until


@pytest.fixture
def model_host():
    """A server in place of the Python index and the model hub, and the requests it received."""
    with HttpServer(lambda _: Response(404)) as server:
        yield server.url, server.asked


def online(home, url):
    """Let the home's processes use the network, which is that server."""
    home.variables.update({"RECOLLECT_OFFLINE": "", "PIP_INDEX_URL": url, "HF_ENDPOINT": url, "PIP_RETRIES": "0"})
    home.variables["PIP_CONFIG_FILE"] = "/dev/null"


def test_search_with_rerank_downloads_no_model(home, model_host):
    """It is answered without the model, with a warning and a hint; also through a link to the page."""
    url, asked = model_host
    online(home, url)
    (settings := home.folder / "models.toml").write_text('[search]\nrerank_model = "minilm-l12-reranker"\n')
    client = home.serve("--config", settings).client()
    for number in range(3):
        client.post("/v1/records", json={"text": f"Heron number {number} stands in the reeds."})
    for _ in range(2):
        answer = client.post("/v1/search", json={"query": "heron", "rerank": True}).json()
        assert len(answer["results"]) == 3
        (warning,) = answer["trace"]["warnings"]
        assert "minilm-l12-reranker is not on this machine" in warning
        assert "`recollect model fetch minilm-l12-reranker`" in warning
    assert asked == []


def test_search_downloads_no_embedder(home, model_host):
    """The server looks for its model at startup; until it is there, keyword search answers."""
    url, asked = model_host
    online(home, url)
    server = home.serve("--embedder", "arctic-embed-s")
    until(lambda: "".join(server.errors), lambda said: "searching without arctic-embed-s" in said, 60)
    at_start = len(asked)
    assert at_start > 0
    client = server.client()
    client.post("/v1/records", json={"text": "The heron stands in the reeds."})
    answer = client.post("/v1/search", json={"query": "heron"}).json()
    assert len(answer["results"]) == 1
    assert any("recollect model fetch arctic-embed-s" in warning for warning in answer["trace"]["warnings"])
    assert len(asked) == at_start
