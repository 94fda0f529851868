"""Where a store is, as it may be shown and as it must be written."""

from __future__ import annotations

import os
import re
from urllib.parse import quote, unquote

SECRETS = ("password", "sslpassword")
"""Parameters of a URL that nobody should see."""

_SCHEME = re.compile(r"[A-Za-z][\w+.-]+:")
_WITH_SIGN = re.compile(r"[A-Za-z][\w+.-]+://[^/@?]*:[^/@]*\?[^/]*@")


def shown_place(place: str) -> str:
    """A place without its passwords: neither the one before the host, nor those among the parameters."""
    if not _SCHEME.match(place):
        return place
    head = _WITH_SIGN.match(place)  # a question mark in a password belongs to it, though it should be written %3F
    start = head.end() if head else 0
    rest, mark, query = place[start:].partition("?")
    where = place[:start] + rest
    said, at, host = where.rpartition("@")
    if at:
        scheme = said[: said.rfind("://") + 3] if "://" in said else said[: said.index(":") + 1]
        where = f"{scheme}{said[len(scheme) :].partition(':')[0]}@{host}"
    told = "&".join(filter(None, map(_shown_parameter, query.split("&"))))
    return f"{where}{mark if told or not query else ''}{told}"


def parameters(url: str) -> list[tuple[str, str]]:
    """What a URL says after its question mark, read as PostgreSQL's library does: a plus is a plus."""
    pairs = (said.partition("=") for said in url.partition("?")[2].split("&") if said)
    return [(unquote(name), unquote(value)) for name, _, value in pairs]


def has_secret(place: str) -> bool:
    """Whether a place carries a password."""
    return shown_place(place) != place


def misspelt(place: str) -> bool:
    """Whether a place looks like a URL whose two slashes are missing, such as `postgresql:/host`.

    Taken for a path, it would leave a folder `postgresql:` behind. A file of that name that exists is a path.
    """
    scheme = _SCHEME.match(place)
    return scheme is not None and not place.startswith("//", scheme.end()) and not os.path.lexists(place)


def _shown_parameter(said: str) -> str:
    """A parameter as it was written, but for what is secret in it: it may be a place itself, as a replica is."""
    name, sign, value = said.partition("=")
    if name in SECRETS:
        return ""
    inner = unquote(value)
    return f"{name}{sign}{quote(shown_place(inner), safe='/:@,?=')}" if has_secret(inner) else said
