"""Waiting until something has changed, for pages and whoever else keeps what they were told."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Query, Request

from recollect.web.access import Reads
from recollect.web.answers import ChangesAnswer, Json, documented

router = APIRouter(tags=["operations"])

LONGEST_SECONDS = 55
"""Less than the minute after which proxies give up."""


@router.get("/v1/changes", **documented(ChangesAnswer))
async def get_changes(  # holds no thread while it waits
    asker: Reads,
    request: Request,
    *,
    after: Annotated[int | None, Query(ge=0, le=2**62, description="The `seq` of the last answer.")] = None,
    wait: Annotated[float, Query(ge=0, le=LONGEST_SECONDS, description="Seconds, at the most.")] = 25,
) -> Json:
    """Whether something that the caller may see has changed: as soon as it does, or when the wait is over.

    Without `after` it says at once where things stand.
    """
    start = time.monotonic()
    seq, changed = await request.app.state.changes.changed(request, asker.memory, after, wait)
    request.state.waited = time.monotonic() - start
    return Json({"seq": seq, "changed": changed})
