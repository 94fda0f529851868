"""Which hosts are contacted: this machine always, others unless offline, a metadata service never."""

from __future__ import annotations

import pytest

from recollect.errors import NotContacted, Offline
from recollect.network.addresses import check_host, check_peer, host_of, is_local, offline

METADATA = (
    "169.254.169.254", "169.254.170.2:80", "[fd00:ec2::254]", "[fe80::1%25eth0]:80", "metadata.google.internal.",
    "METADATA.google.internal:80", "100.100.100.200", "[::ffff:169.254.169.254]", "metadata", "168.63.129.16",
)  # fmt: skip


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test says itself if it is offline."""
    monkeypatch.delenv("RECOLLECT_OFFLINE", raising=False)


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "127.0.0.1:9", "127.8.8.8", "[::1]:80", "::1", "::ffff:127.0.0.1"]
)
def test_this_machine_is_local_and_never_refused(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name and by every address of the loopback, also offline."""
    assert is_local(host)
    monkeypatch.setenv("RECOLLECT_OFFLINE", "1")
    check_host(host, "embeddings")


@pytest.mark.parametrize(
    "host", ["10.0.0.1", "0.0.0.0", "localhost.example", "127.0.0.1.example", "my.localhost", "", "example"]
)
def test_every_other_host_is_refused_offline(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No name is looked up, because that would ask a name server."""
    assert not is_local(host)
    check_host(host, "embeddings")
    monkeypatch.setenv("RECOLLECT_OFFLINE", "1")
    with pytest.raises(Offline, match=r"offline: .* is not contacted \(embeddings\)"):
        check_host(host, "embeddings")


@pytest.mark.parametrize("host", METADATA)
def test_metadata_services_are_always_refused(host: str) -> None:
    """By name, by address, and in every form of it."""
    with pytest.raises(NotContacted, match=r"link-local and metadata") as refused:
        check_host(host, "source x")
    assert not isinstance(refused.value, Offline)


def test_address_behind_a_name_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name may lead to a metadata service, or offline to another machine."""
    check_peer("10.0.0.1", "a.example", "embeddings")
    with pytest.raises(NotContacted, match=r"a\.example \(169\.254\.169\.254\)"):
        check_peer("169.254.169.254", "a.example", "embeddings")
    monkeypatch.setenv("RECOLLECT_OFFLINE", "yes")
    check_peer("127.0.0.1", "localhost", "embeddings")
    with pytest.raises(Offline, match=r"leads to 10\.0\.0\.1"):
        check_peer("10.0.0.1", "localhost", "embeddings")


@pytest.mark.parametrize(
    ("value", "expected"), [("", False), ("0", False), ("off", False), ("No", False), ("1", True), ("x", True)]
)
def test_offline_by_the_environment(value: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any value but an empty one and the words for no."""
    monkeypatch.setenv("RECOLLECT_OFFLINE", value)
    assert offline() is expected


def test_host_of_a_url_has_no_password() -> None:
    """Host and port are shown and counted, and nothing else of an address."""
    assert host_of("https://ada:quiet@a.example:8443/path?key=1") == "a.example:8443"
    assert host_of("http://[::1]:80/") == "[::1]:80"
    assert host_of("http://a.example:port/") == host_of("/just/a/path") == ""
