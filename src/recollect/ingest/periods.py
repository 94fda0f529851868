"""Observations in a note (`- [decision] We use Redis.`), and the period in which one holds, as in basic-memory."""

import re
from datetime import MAXYEAR, datetime, timedelta
from typing import NamedTuple

from recollect.ingest.turns import moment

DAY_LENGTH = len("2026-06-10")

_OBSERVATION = re.compile(r"\s*[-*]\s+\[(?P<category>[^\[\]()]+)\]\s+(?P<text>\S.*)")
_TASKS = frozenset((" ", "x", "X", "-"))  # `- [x] done` is a task, not an observation
# When an observation holds: `@effective[2026-06-10,2026-07-27) text`, `@2026-06-10 text`.
_PERIOD = re.compile(
    r"@(?P<kind>effective|valid|occurred)?"
    r"(?:(?P<left>[\[(])(?P<since>[^\s,\[\]()]*),(?P<until>[^\s,\[\]()]*)(?P<right>[\])])|(?(kind):)(?P<day>\d{4}-\d\d-\d\d\S*))\s+"
)


class Validity(NamedTuple):
    """When an observation begins to hold, and when it ends."""

    since: datetime | None
    until: datetime | None


def observation(line: str) -> tuple[str, str] | None:
    """The category and the text of a line that is an observation."""
    match = _OBSERVATION.fullmatch(line)
    return (match["category"].strip(), match["text"]) if match and match["category"] not in _TASKS else None


def period(text: str) -> tuple[str, datetime | None, datetime | None]:
    """An observation without the period that it begins with, and when that begins and ends. What is no time is text."""
    match = _PERIOD.match(text)
    if not match:
        return text, None, None
    names = match["day"] or match["since"] or "", match["until"] or ""
    since = _bound(names[0], after=match["left"] == "(")
    until = _bound(names[1], after=match["right"] == "]")
    if (names[0] and not since) or (names[1] and not until) or not (since or until):
        return text, None, None
    return text[match.end() :], since, None if match["kind"] == "occurred" else until


def validity(line: str) -> Validity | None:
    """The period of a line that is an observation."""
    written = observation(line.strip()) if "@" in line else None
    bounds = Validity(*period(written[1])[1:]) if written else None
    return bounds if bounds and any(bounds) else None


def _bound(name: str, *, after: bool) -> datetime | None:
    """One end of a period; with `after`, a day ends it, and does not begin it."""
    at = moment(name)
    return at + timedelta(days=1) if at and after and len(name) == DAY_LENGTH and at.year < MAXYEAR else at
