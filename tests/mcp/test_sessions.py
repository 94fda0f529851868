"""How many sessions one caller may have, which others do not notice."""

from __future__ import annotations

import httpx2
import pytest
from support.agents import ACCEPT, HELLO, serving_in_a_thread

from recollect import Memory
from recollect.types import Scope
from recollect.web import app
from recollect.web.access import Caller, Tokens


def test_sessions_of_one_caller_are_limited(memory: Memory, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more than the most is refused with 503, another caller is served, and a session that ends makes room."""
    monkeypatch.setattr(app, "MOST_SESSIONS", 5)
    tokens = Tokens(tmp_path / "tokens.json")
    shown = {name: f"Bearer {tokens.add(Caller(name, Scope(name)))}" for name in ("ada", "bob")}
    with serving_in_a_thread(memory, tokens) as address, httpx2.Client(base_url=address, timeout=60) as client:

        def hello(name: str) -> httpx2.Response:
            return client.post("/mcp", json=HELLO, headers={**ACCEPT, "Authorization": shown[name]})

        answers = [hello("ada") for _ in range(6)]
        assert [answer.status_code for answer in answers] == [200] * 5 + [503]
        assert hello("bob").status_code == 200
        ended = {"Authorization": shown["ada"], "Mcp-Session-Id": answers[0].headers["mcp-session-id"]}
        assert client.delete("/mcp", headers=ended).status_code in (200, 204)
        assert hello("ada").status_code == 200
