"""Addresses of stores: without their passwords, and with their parameters."""

from __future__ import annotations

import os
import re
from urllib.parse import quote, unquote

SECRETS = ("password", "sslpassword")
"""Parameters of a URL that are never shown."""

_SCHEME = re.compile(r"[A-Za-z][\w+.-]+:")
_WITH_SIGN = re.compile(r"[A-Za-z][\w+.-]+://[^/@?]*:[^/@]*\?[^/]*@")


def shown_place(place: str) -> str:
    """An address without its passwords, before the host and among the parameters."""
    if not _SCHEME.match(place):
        return place
    head = _WITH_SIGN.match(place)  # a password may hold a question mark, though it should be written %3F
    start = head.end() if head else 0
    rest, mark, query = place[start:].partition("?")
    where = place[:start] + rest
    account, at, host = where.rpartition("@")
    if at:
        scheme = account[: account.rfind("://") + 3] if "://" in account else account[: account.index(":") + 1]
        where = f"{scheme}{account[len(scheme) :].partition(':')[0]}@{host}"
    shown = "&".join(filter(None, map(_shown_parameter, query.split("&"))))
    return f"{where}{mark if shown or not query else ''}{shown}"


def parameters(url: str) -> list[tuple[str, str]]:
    """The parameters of a URL, read as libpq does: a plus sign is not a space."""
    pairs = (pair.partition("=") for pair in url.partition("?")[2].split("&") if pair)
    return [(unquote(name), unquote(value)) for name, _, value in pairs]


def has_secret(place: str) -> bool:
    """Whether an address holds a password."""
    return shown_place(place) != place


def misspelt(place: str) -> bool:
    """Whether an address looks like a URL whose two slashes are missing, such as `postgresql:/host`.

    Taken for a path, it would leave a folder `postgresql:` behind. A file of that name that exists is a path.
    """
    scheme = _SCHEME.match(place)
    return scheme is not None and not place.startswith("//", scheme.end()) and not os.path.lexists(place)


def _shown_parameter(parameter: str) -> str:
    """A parameter without secrets. Its value may be an address too, such as that of a replica."""
    name, sign, value = parameter.partition("=")
    if name in SECRETS:
        return ""
    inner = unquote(value)
    return f"{name}{sign}{quote(shown_place(inner), safe='/:@,?=')}" if has_secret(inner) else parameter
