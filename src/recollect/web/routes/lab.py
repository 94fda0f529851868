"""The laboratory: reports and plots of the user's own data."""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter(tags=["laboratory"])
