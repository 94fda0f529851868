"""Which hosts may be contacted: only this machine while offline, and never the metadata service of a cloud."""

import os
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from recollect.errors import NotContacted, Offline

VARIABLE = "RECOLLECT_OFFLINE"
GO_ONLINE = f"omit --offline, or unset {VARIABLE}"

METADATA_NAMES = frozenset({"metadata", "metadata.google.internal", "metadata.goog", "instance-data"})
METADATA_NETWORKS = (
    ip_network("169.254.0.0/16"),  # link-local: AWS, Google, Azure, Oracle, DigitalOcean and others
    ip_network("fe80::/10"),  # link-local
    ip_network("fd00:ec2::/32"),  # AWS
    ip_network("100.100.100.200/32"),  # Alibaba
    ip_network("168.63.129.16/32"),  # Azure
    ip_network("192.0.0.192/32"),  # Oracle
)
"""Inside a cloud, the servers at these addresses give out the keys of the machine."""


def offline() -> bool:
    """Whether `--offline` or `RECOLLECT_OFFLINE` forbids to contact other machines."""
    return os.environ.get(VARIABLE, "").strip().lower() not in ("", "0", "false", "no", "off")


def host_of(url: str) -> str:
    """The host of a URL and its port if it names one, without user and password; empty if there is none."""
    try:
        parts, port = urlsplit(url), urlsplit(url).port
    except ValueError:  # a port that is no number, or half an IPv6 address
        return ""
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{port}" if port else host


def is_local(host: str) -> bool:
    """Whether a host, with or without a port, is this machine itself: `localhost`, 127.0.0.0/8 or ::1.

    Another name is not looked up, because that would ask a name server.
    """
    name = _name(host)
    address = _address(name)
    return name == "localhost" if address is None else address.is_loopback


def check_host(host: str, purpose: str) -> None:
    """Raise NotContacted for a metadata service, and Offline for another machine while offline."""
    name = _name(host)
    address = _address(name)
    if name in METADATA_NAMES or (address is not None and _is_metadata(address)):
        raise _metadata(host, purpose)
    if offline() and not is_local(host):
        raise Offline(f"offline: {host} is not contacted ({purpose})", hint=GO_ONLINE)


def check_peer(peer: str, host: str, purpose: str) -> None:
    """Check the address that a connection has reached, as `check_host` does a host: a name may lead anywhere."""
    address = _address(peer)
    if address is None:
        return
    if _is_metadata(address):
        raise _metadata(f"{host} ({peer})", purpose)
    if offline() and not address.is_loopback:
        raise Offline(f"offline: {host} leads to {peer}, another machine ({purpose})", hint=GO_ONLINE)


def _metadata(host: str, purpose: str) -> NotContacted:
    message = f"{host} is not contacted ({purpose}): link-local and metadata addresses give away a machine's keys"
    return NotContacted(message, hint="name the server by another address")


def _name(host: str) -> str:
    """A host in lower case, without port, brackets and the dot at its end."""
    host = host.strip().lower()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    return host.rstrip(".")


def _address(name: str) -> IPv4Address | IPv6Address | None:
    """The address that a text is; None for a name. An IPv4 address inside an IPv6 address is the IPv4 address."""
    try:
        address = ip_address(name.partition("%")[0])
    except ValueError:
        return None
    return (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address


def _is_metadata(address: IPv4Address | IPv6Address) -> bool:
    return any(address in network for network in METADATA_NETWORKS)
