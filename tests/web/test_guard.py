"""The checks on every request: host name, origin, request id; and the headers of every answer."""

from __future__ import annotations

import pytest

from .conftest import head_and_body, refused

HEADERS = {
    "x-content-type-options": "nosniff", "x-frame-options": "DENY", "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin", "cross-origin-opener-policy": "same-origin",
}  # fmt: skip


def asked_by(server, *lines, method="GET", address="/v1/status", version="1.1"):
    """The answer to a request with just these lines at its head."""
    said = "\r\n".join([f"{method} {address} HTTP/{version}", *lines, "Connection: close", "", ""])
    return head_and_body(server.raw(said.encode("latin-1")))


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:{port}", "127.0.0.1:1", "localhost", "LocalHost:{port}", "localhost.", "localhost.:80",
     "[::1]", "[::1]:{port}", "127.0.0.2"],
)  # fmt: skip
def test_names_of_this_machine_are_accepted(server, host):
    """By name or number, with or without a port."""
    assert asked_by(server, f"Host: {host.format(port=server.port)}")[0] == 200


@pytest.mark.parametrize(
    "host",
    ["evil.test", "evil.test:{port}", "localhost.evil.test", "127.0.0.1.evil.test", "evil.test#localhost",
     "localhost@evil.test", "evil.test@localhost", "user:localhost@evil.test", "localhost:80:80", "localhost:port",
     "localhost:123456", "[::1", "::1", "[evil.test]", "[::1]evil.test", "192.168.0.1", "8.8.8.8", "0.0.0.0", "[::2]",
     "localhost/", "localhost, evil.test", "xn--lcalhost-ofc", "", "2130706433", "127.1", "0x7f.1",
     "localhost\x00", "locälhost"],
)  # fmt: skip
def test_foreign_host_names_are_refused(server, host):
    """Otherwise another site could read answers through DNS rebinding."""
    status, headers, body = asked_by(server, f"Host: {host.format(port=server.port)}")
    # What is no HTTP at all is refused before it is read as a request.
    assert (status, body["error"]["code"]) in ((403, "forbidden_host"), (400, "usage"))
    assert headers["x-request-id"] == body["error"]["request_id"]


def test_request_has_exactly_one_host(server):
    """None or two is refused."""
    for lines in ([], ["Host: localhost", "Host: evil.test"], ["Host: localhost", "Host: localhost"]):
        assert asked_by(server, *lines)[0] in (400, 403)
    assert asked_by(server, version="1.0")[0] == 403


def test_absolute_url_does_not_replace_the_host_header(server):
    """With a whole URL, as sent to a proxy, the header still counts."""
    assert asked_by(server, "Host: evil.test", address="http://localhost/v1/status")[0] in (400, 403, 404)


@pytest.mark.parametrize(
    "address", ["/", "/healthz", "/openapi.json", "/metrics", "/static/style.css", "/mcp", "/nothing"]
)
def test_foreign_host_name_is_refused_on_every_route(server, address):
    """Also on routes that need no token."""
    assert asked_by(server, "Host: evil.test", address=address)[0] == 403


@pytest.mark.parametrize(
    "origin",
    ["http://evil.test", "https://evil.test", "null", "http://localhost:1", "http://127.0.0.1", "file://", "",
     "http://localhost.evil.test:{port}", "http://127.0.0.1:{port}.evil.test", "http://evil.test@127.0.0.1:{port}",
     "http://127.0.0.1:{port}/", "chrome-extension://abc", "http://127.0.0.1:{port}, http://evil.test"],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_pages_of_other_sites_are_refused(server, origin, method):
    """On every route, and no header lets them read the answer."""
    lines = [f"Host: 127.0.0.1:{server.port}", f"Origin: {origin.format(port=server.port)}"]
    status, headers, body = asked_by(server, *lines, method=method, address="/v1/search")
    assert (status, body["error"]["code"]) == (403, "forbidden_origin")
    assert not [name for name in headers if name.startswith("access-control")]


def test_two_origin_headers_are_refused(server):
    """One known origin does not vouch for the other."""
    ours = f"Origin: http://127.0.0.1:{server.port}"
    for pair in ([ours, "Origin: http://evil.test"], ["Origin: http://evil.test", ours]):
        assert asked_by(server, f"Host: 127.0.0.1:{server.port}", *pair)[0] == 403


def test_own_page_may_send_requests(server):
    """Under the name it was opened by, also through a TLS proxy; CORS stays closed."""
    for host in (f"127.0.0.1:{server.port}", f"localhost:{server.port}", f"[::1]:{server.port}"):
        for scheme in ("http", "https"):
            status, headers, _ = asked_by(server, f"Host: {host}", f"Origin: {scheme}://{host}")
            assert status == 200
            assert not [name for name in headers if name.startswith("access-control")]


@pytest.mark.parametrize("said", ["abc-123", "A.b_c:d"[:1], "x" * 128, "00-4bf92f3577b34da6a3ce929d0e0e4736-01"])
def test_valid_request_id_is_kept(api, said):
    """A client finds its own request in the log."""
    assert api.get("/healthz", headers={"X-Request-Id": said}).headers["x-request-id"] == said


@pytest.mark.parametrize(
    "said", ["", "x" * 129, "a b", "<script>", 'a"b', "a,b", "a;b", "a/b", "ä".encode().decode("latin-1")]
)
def test_invalid_request_id_is_replaced(server, said):
    """It would go into headers, bodies and logs."""
    _, headers, _ = asked_by(server, f"Host: 127.0.0.1:{server.port}", f"X-Request-Id: {said}")
    assert headers["x-request-id"] != said
    assert len(headers["x-request-id"]) == 32


@pytest.mark.parametrize(
    ("method", "address", "status"),
    [
        ("GET", "/healthz", 200), ("GET", "/", 200), ("GET", "/openapi.json", 200), ("GET", "/metrics", 200),
        ("GET", "/v1/status", 200), ("GET", "/nothing", 404), ("GET", "/v1/records/nothing", 404),
        ("PUT", "/v1/records", 405), ("POST", "/v1/search", 422), ("GET", "/static/nothing", 404),
        ("GET", "/static/style.css", 200), ("TRACE", "/v1/status", 405), ("OPTIONS", "/v1/status", 405),
        ("GET", "/docs", 404), ("GET", "/redoc", 404), ("HEAD", "/healthz", 200), ("HEAD", "/", 200),
    ],
)  # fmt: skip
def test_every_answer_has_the_security_headers(api, method, address, status):
    """Also errors: the request id, and no sniffing, framing or referrer."""
    answer = api.request(method, address)
    assert answer.status_code == status
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-request-id"]
    assert "server" not in answer.headers


@pytest.mark.parametrize(
    ("address", "allowed"),
    [("/v1/records", "GET, POST"), ("/v1/records/x", "DELETE, GET, PATCH"), ("/v1/search", "POST"),
     ("/v1/index", "GET, POST"), ("/healthz", "GET, HEAD")],
)  # fmt: skip
@pytest.mark.parametrize("method", ["PUT", "TRACE", "OPTIONS", "BREW"])
def test_unknown_method_is_answered_with_the_allowed_ones(api, address, allowed, method):
    """405 with all of them, without any of the input."""
    answer = api.request(method, address, headers={"X-Secret": "nobody else's"})
    refused(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == allowed
    assert "nobody else's" not in answer.text


@pytest.mark.parametrize(
    "path",
    ["../__init__.py", "..%2f__init__.py", "%2e%2e/app.py", "....//app.py", "..\\app.py", "%2e%2e%5capp.py",
     "//etc/passwd", "%2fetc%2fpasswd", "js/../../app.py", "%00", "index.html%00.css", "", ".", "js", "~root"],
)  # fmt: skip
def test_only_the_files_of_the_page_are_served(server, path):
    """No path leads out of their folder, and folders are not listed."""
    status, _, body = asked_by(server, f"Host: 127.0.0.1:{server.port}", address=f"/static/{path}")
    assert status in (400, 404, 405)
    assert b"import" not in (body if isinstance(body, bytes) else b"")


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """A server that allows one other site and has a second host name."""
    from .conftest import homes

    for home in homes(tmp_path_factory.mktemp("opened")):
        yield home.serve(
            "--allow-origin", "https://App.example.com/", "--allow-host", "Memory.Example.com.", "--host", "localhost"
        )


SITE = "https://app.example.com"


def test_allowed_site_may_send_requests(opened):
    """Preflight and requests are answered, and only this site may read the answers."""
    asks = {"Origin": SITE, "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type,mcp-method,mcp-name"}  # fmt: skip
    client = opened.client()
    before = client.options("/v1/search", headers=asks)
    assert before.status_code == 200
    assert before.headers["access-control-allow-origin"] == SITE
    assert "POST" in before.headers["access-control-allow-methods"]
    assert before.headers["x-request-id"]
    assert "access-control-allow-credentials" not in before.headers
    answer = client.post("/v1/search", json={"query": "x"}, headers={"Origin": SITE})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, SITE)
    assert answer.headers["access-control-expose-headers"] == "X-Request-Id, Mcp-Session-Id"
    assert "Origin" in answer.headers["vary"]
    wrong = client.post("/v1/search", json={}, headers={"Origin": SITE})
    assert (wrong.status_code, wrong.headers["access-control-allow-origin"]) == (422, SITE)


@pytest.mark.parametrize(
    "origin", ["https://evil.test", "null", "https://app.example.com.evil.test", "http://app.example.com"]
)
def test_other_site_may_not_send_requests(opened, origin):
    """Neither the preflight nor the request."""
    client = opened.client()
    asks = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    for answer in (
        client.options("/v1/search", headers=asks), client.post("/v1/search", json={"query": "x"}, headers=asks),
    ):  # fmt: skip
        refused(answer, 403, "forbidden_origin")
        assert "access-control-allow-origin" not in answer.headers


def test_allowed_host_name_is_accepted(opened):
    """In any spelling; others are still refused."""
    for host in ("memory.example.com", "MEMORY.example.com:443", "memory.example.com."):
        assert asked_by(opened, f"Host: {host}")[0] == 200
    assert asked_by(opened, "Host: www.memory.example.com")[0] == 403
    assert asked_by(opened, "Host: memory.example.com", "Origin: https://memory.example.com")[0] == 200


def test_invalid_origins_and_hosts_are_refused_as_settings(home):
    """Exit code 2 before the server listens; one process tries them all."""
    tried = [
        ("--allow-origin", "*"), ("--allow-origin", "null"), ("--allow-origin", "app.example.com"),
        ("--allow-origin", "https://a.example/page"), ("--allow-host", "*"), ("--allow-host", "https://a.example"),
        ("--allow-host", "a.example:80"), ("--allow-host", ""),
    ]  # fmt: skip
    codes, said = home.tries(*(("serve", "--port", "0", *words) for words in tried))
    assert codes == [2] * len(tried), said
    assert said.count("is not a valid host name or origin") == len(tried)


@pytest.mark.parametrize("site", ["cross-site", "same-site", "CROSS-SITE", "cross-site, same-origin", "", "other"])
@pytest.mark.parametrize("address", ["/v1/status", "/v1/records", "/healthz", "/openapi.json", "/metrics", "/mcp"])
def test_cross_site_requests_without_origin_are_refused(server, site, address):
    """An image, a script or a link sends no Origin, but the browser sends Sec-Fetch-Site."""
    status, _, body = asked_by(server, f"Host: 127.0.0.1:{server.port}", f"Sec-Fetch-Site: {site}", address=address)
    assert (status, body["error"]["code"]) == (403, "forbidden_origin")


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_requests_of_the_page_and_the_user_are_answered(server, site):
    """The page's own requests, and a typed address."""
    assert asked_by(server, f"Host: 127.0.0.1:{server.port}", f"Sec-Fetch-Site: {site}")[0] == 200


def test_links_from_other_sites_open_the_page(server):
    """The page and its files contain no records and can be opened from anywhere."""
    navigation = ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")
    for address in ("/", "/static/style.css"):
        assert asked_by(server, f"Host: 127.0.0.1:{server.port}", *navigation, address=address)[0] == 200


def test_allowed_site_needs_its_origin_across_sites(opened):
    """Without its Origin header, or with another, the request is refused."""
    client, across = opened.client(), {"Sec-Fetch-Site": "cross-site"}
    asks = {"Origin": SITE, "Access-Control-Request-Method": "POST"}
    assert client.options("/v1/search", headers={**asks, **across}).status_code == 200
    assert client.post("/v1/search", json={"query": "x"}, headers={"Origin": SITE, **across}).status_code == 200
    refused(client.get("/v1/status", headers=across), 403, "forbidden_origin")
    refused(client.get("/v1/status", headers={"Origin": "https://evil.test", **across}), 403, "forbidden_origin")


@pytest.mark.parametrize(
    "address", ["/v1/status", "/v1/records", "/v1/records/nothing", "/nothing", "/openapi.json", "/metrics", "/healthz"]
)
def test_answers_are_not_cached(api, address):
    """Neither by a browser nor by a proxy, errors included."""
    assert api.get(address).headers["cache-control"] == "no-store"


def test_page_may_be_cached(api):
    """It is revalidated, and its files are compared by their ETags."""
    assert api.get("/").headers["cache-control"] == "no-cache"
    style = api.get("/static/style.css")
    assert style.headers["cache-control"] == "no-cache"
    assert api.get("/static/style.css", headers={"If-None-Match": style.headers["etag"]}).status_code == 304
