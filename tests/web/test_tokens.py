"""Tokens: authentication, storage, and adding, removing or damaging them while the server runs."""

from __future__ import annotations

import json
import re
import stat
import subprocess

import pytest

from recollect.types import Scope
from recollect.web import access as module
from recollect.web.access import Caller, Tokens

from .conftest import refused

NEEDED = [
    ("GET", "/v1/status"), ("GET", "/metrics"), ("GET", "/v1/records"), ("GET", "/v1/records/x"),
    ("GET", "/v1/facets"), ("GET", "/v1/settings"), ("GET", "/v1/index"), ("GET", "/v1/history/x"),
    ("GET", "/v1/file/x"), ("GET", "/v1/eval/reports"), ("POST", "/mcp"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "address"), NEEDED)
@pytest.mark.parametrize(
    "shown", [None, "", "Bearer", "Bearer nobody's", "Basic dTpw", "bearer rcl_" + "x" * 43, "Bearer " + "x" * 9000]
)
def test_request_without_a_token_is_401(askers, method, address, shown):
    """With a hint, on every route and with any other credentials."""
    client = askers.server.client(**({} if shown is None else {"Authorization": shown}))
    error = refused(client.request(method, address), 401, "unauthorized")
    assert "recollect token add" in error["hint"]
    assert client.request(method, address).headers["www-authenticate"] == "Bearer"


def test_token_is_checked_before_the_body(askers):
    """A caller without one learns nothing about the body."""
    client = askers.server.client()
    for address, body in (("/v1/search", {"query": "x"}), ("/v1/search", {}), ("/v1/records", {"text": "x"}),
                          ("/v1/undo", {"id": "x"}), ("/v1/index", {})):  # fmt: skip
        refused(client.post(address, json=body), 401, "unauthorized")


@pytest.mark.parametrize("address", ["/healthz", "/", "/openapi.json", "/static/style.css"])
def test_public_routes_need_no_token(askers, address):
    """The page asks for the token itself."""
    assert askers.server.client().get(address).status_code == 200


def test_bearer_may_have_any_case(home):
    """And any number of spaces."""
    token = home.token("ada", "--user", "ada")
    server = home.serve()
    for shown in (f"bearer {token}", f"BEARER {token}", f"Bearer   {token}"):
        assert server.client(Authorization=shown).get("/v1/status").status_code == 200
    for shown in (
        token,
        f"Bearer {token}x",
        f"Bearer {token[:-1]}",
        f"Bearer {token.upper()}",
        f"Bearer {token} {token}",
    ):
        refused(server.client(Authorization=shown).get("/v1/status"), 401, "unauthorized")


def test_tokens_can_change_while_the_server_runs(home):
    """Without tokens every local caller is the owner; with the first one each needs one; removal is immediate."""
    server = home.serve()
    anybody = server.client()
    assert anybody.get("/v1/settings").json()["caller"] == {
        "name": "local", "scope": {}, "owner": True, "read_only": False,
    }  # fmt: skip
    ada = server.client(home.token("ada", "--user", "ada"))
    assert ada.get("/v1/settings").json()["caller"]["scope"] == {"user": "ada"}
    refused(anybody.get("/v1/status"), 401, "unauthorized")
    bob = server.client(home.token("bob", "--user", "bob"))
    assert bob.get("/v1/status").status_code == 200
    assert home.run("token", "remove", "bob").returncode == 0
    refused(bob.get("/v1/status"), 401, "unauthorized")
    assert ada.get("/v1/status").status_code == 200
    assert home.run("token", "remove", "ada").returncode == 0
    refused(ada.get("/v1/status"), 401, "unauthorized")
    refused(anybody.get("/v1/status"), 401, "unauthorized")  # to lock all out is not to let all in
    home.tokens.unlink()
    refused(anybody.get("/v1/status"), 401, "unauthorized")


def _line(**said):
    """A file of one token, of which this is said."""
    sound = {"name": "x", "owner": True, "read_only": False, "scope": {}, "sha256": "a" * 64, "created_at": ""}
    return json.dumps({"version": 1, "tokens": [sound | said]}).encode()


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe\x00", b'{"version": 2, "tokens": []}', b'{"version": 1}',
     b'{"version": 1, "tokens": {}, "x": 1}'[:27] + b"5}", b"[" * 100_000,
     b'{"version": 1, "tokens": [{"name": "x"}]}', b'{"version": 1, "tokens": ["x"]}',
     _line(scope={}, sha256=""), _line(scope={"user": []}), _line(scope={"pet": "x"}), _line(scope=[]),
     _line(sha256="ä" * 64), _line(scope={"user": ""}), _line(sha256=None)],
)  # fmt: skip
def test_damaged_token_file_is_an_error(tmp_path, content):
    """It is not treated as a file without tokens."""
    from recollect.errors import ConfigError

    file = tmp_path / "tokens.json"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"tokens\.json"):
        Tokens(file).all()


def test_token_file_damaged_at_run_time_refuses_everybody(home):
    """503 without its path, which is in the log; repaired, it works again."""
    token = home.token("ada", "--owner")
    server = home.serve()
    ada, anybody = server.client(token), server.client()
    assert ada.get("/v1/status").status_code == 200
    kept = home.tokens.read_bytes()
    home.tokens.write_bytes(kept[:-10])
    for client in (ada, anybody):
        answer = client.get("/v1/status")
        refused(answer, 503, "failed")
        assert str(home.folder) not in answer.text
        refused(client.post("/mcp", json={}), 503, "failed")
    assert anybody.get("/healthz").status_code == 200
    home.tokens.write_bytes(kept)
    assert ada.get("/v1/status").status_code == 200
    refused(anybody.get("/v1/status"), 401, "unauthorized")
    server.end()
    log = "".join(server.errors)
    assert str(home.tokens) in log
    assert "Traceback" not in log
    assert token not in log


def test_damaged_token_file_is_reported_before_listening(home):
    """Exit code 2 with its name, by `serve` and by `token`."""
    home.tokens.parent.mkdir(parents=True)
    home.tokens.write_text("{")
    tried = (("serve", "--port", "0"), ("token", "list"), ("token", "add", "x"), ("token", "remove", "x"))
    codes, said = home.tries(*tried)
    assert codes == [2] * len(tried)
    assert said.count(str(home.tokens)) == len(tried)
    assert "Traceback" not in said
    assert home.tokens.read_text() == "{"


def test_token_file_is_private_and_has_only_hashes(home):
    """Mode 0600, also if it was wider; the token is in no file and is shown once."""
    first = home.token("ada", "--user", "ada", "--session", "s")
    home.tokens.chmod(0o644)
    second = home.token("boss", "--owner")
    assert re.fullmatch(r"rcl_[\w-]{43}", first)
    assert first != second
    assert stat.S_IMODE(home.tokens.stat().st_mode) == 0o600
    for file in home.folder.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert first.encode() not in content
            assert first.removeprefix("rcl_").encode() not in content
    listed = home.run("token", "list", "--json")
    assert [line["name"] for line in json.loads(listed.stdout)] == ["ada", "boss"]
    assert "sha256" not in listed.stdout
    assert json.loads(listed.stdout)[0]["scope"] == {"user": "ada", "session": "s"}
    assert "everything" in home.run("token", "list").stdout


def test_token_as_json_is_one_object(home):
    """For programs that create tokens."""
    ran = home.run("token", "add", "ci", "--read-only", "--agent", "ci", "--json")
    made = json.loads(ran.stdout)
    assert made | {"token": ""} == {
        "name": "ci", "scope": {"agent": "ci"}, "owner": False, "read_only": True, "token": "",
    }  # fmt: skip
    assert Tokens(home.tokens).caller(made["token"]) == Caller("ci", module.Scope(agent="ci"), read_only=True)


def test_invalid_tokens_are_refused(home):
    """Repeated, missing or unprintable name, an owner with a scope, an unknown name."""
    tried = [
        ("add", "ada"), ("add", ""), ("add", "x" * 101), ("add", "a\nb"), ("add", "x", "--owner", "--user", "u"),
        ("add", "x", "--user", ""), ("remove", "bob"),
    ]  # fmt: skip
    codes, said = home.tries(("token", "add", "ada"), *(("token", *words) for words in tried))
    assert codes == [0] + [2] * len(tried)
    assert "Traceback" not in said
    assert [kept.caller.name for kept in Tokens(home.tokens).all()] == ["ada"]


def test_tokens_added_at_once_are_all_stored(home):
    """Eight processes at the same time: each token works."""
    started = [
        subprocess.Popen(
            home.words("token", "add", f"t{number}", "--user", f"u{number}"), env=home.environment,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        for number in range(8)
    ]  # fmt: skip
    made = [process.communicate(timeout=60)[0].strip() for process in started]
    assert [process.returncode for process in started] == [0] * 8
    kept = Tokens(home.tokens)
    assert {kept.caller(token).name for token in made} == {f"t{number}" for number in range(8)}
    assert [file.name for file in home.tokens.parent.iterdir() if "-" in file.name] == []


def test_every_token_is_compared_in_constant_time(tmp_path, monkeypatch):
    """All of them, whichever matches, with `compare_digest`."""
    kept = Tokens(tmp_path / "tokens.json")
    made = [kept.add(Caller(f"t{number}")) for number in range(5)]
    compared = []
    honest = module.hmac.compare_digest
    monkeypatch.setattr(module.hmac, "compare_digest", lambda a, b: compared.append(a) or honest(a, b))
    for token in (made[0], made[-1], "nobody's"):
        compared.clear()
        kept.caller(token)
        assert len(compared) == 5


def test_other_addresses_need_a_token(home):
    """Exit code 2 with a hint before listening; --no-token does not help."""
    hosts = (["0.0.0.0"], ["::"], [""], ["0.0.0.0", "--no-token"])
    codes, said = home.tries(*(["serve", "--port", "0", "--host", *flags] for flags in hosts))
    assert codes == [2] * len(hosts)
    assert said.count("needs a token") == said.count("recollect token add") == len(hosts)
    assert "serving" not in said


def test_with_a_token_the_server_listens_on_all_addresses(home):
    """Foreign host names are still refused."""
    token = home.token("ada", "--user", "ada")
    server = home.serve("--host", "0.0.0.0")
    local = server.client(token)
    assert local.get("/v1/status", headers={"Host": f"127.0.0.1:{server.port}"}).status_code == 200
    assert local.get("/v1/status", headers={"Host": f"192.168.1.5:{server.port}"}).status_code == 200
    refused(local.get("/v1/status", headers={"Host": "evil.test"}), 403, "forbidden_host")
    refused(server.client().get("/v1/status"), 401, "unauthorized")


def test_no_token_option_works_on_this_machine(home):
    """--no-token; and --tokens names another file."""
    home.token("ada", "--user", "ada")
    assert home.serve("--no-token").client().get("/v1/settings").json()["caller"]["owner"]
    other = home.folder / "other.json"
    token = home.run("token", "add", "eve", "--owner", "--tokens", other).stdout.strip()
    server = home.serve("--tokens", other)
    assert server.client(token).get("/v1/settings").json()["caller"]["name"] == "eve"


def test_serve_with_a_user_scopes_every_caller(home):
    """`serve --user ada` without tokens: the caller is scoped to Ada and is no owner."""
    server = home.serve("--user", "ada")
    client = server.client()
    assert client.get("/v1/settings").json()["caller"] == {
        "name": "local", "scope": {"user": "ada"}, "owner": False, "read_only": False,
    }  # fmt: skip
    assert client.post("/v1/records", json={"text": "x"}).json()["scope"] == {"user": "ada"}
    refused(client.post("/v1/search", json={"query": "x", "scope": {"user": "bob"}}), 403, "forbidden")
    refused(client.get("/metrics"), 403, "forbidden")


def test_serve_with_a_user_scopes_every_token(home):
    """An owner's token is scoped to Ada, Ada's own is unchanged, another user's is refused."""
    tokens = Tokens(home.tokens)
    made = {name: tokens.add(caller) for name, caller in {
        "owner": Caller("owner", owner=True), "ada": Caller("ada", Scope("ada")), "bob": Caller("bob", Scope("bob")),
    }.items()}  # fmt: skip
    server = home.serve("--user", "ada")
    for name in ("owner", "ada"):
        caller = server.client(made[name]).get("/v1/settings").json()["caller"]
        assert (caller["scope"], caller["owner"]) == ({"user": "ada"}, False)
    refused(server.client(made["bob"]).get("/v1/settings"), 403, "forbidden")


def test_server_can_be_read_only(home):
    """For the owner too."""
    client = home.serve("--read-only").client()
    refused(client.post("/v1/records", json={"text": "x"}), 403, "forbidden")
    refused(client.post("/v1/index", json={}), 403, "forbidden")
    assert client.get("/v1/settings").json()["caller"]["read_only"] is True
    assert client.post("/v1/search", json={"query": "x"}).status_code == 200
