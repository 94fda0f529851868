"""The page, as it lies in the package: no build step, and nothing from anywhere else."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter, FastAPI
from starlette.responses import FileResponse
from starlette.staticfiles import StaticFiles

FOLDER = files("recollect.web") / "static"

router = APIRouter(include_in_schema=False)


@router.head("/")
@router.get("/")
def page() -> FileResponse:
    """The page itself; what it shows it asks the API for."""
    return FileResponse(str(FOLDER / "index.html"), media_type="text/html", headers={"Cache-Control": "no-cache"})


def mount(app: FastAPI) -> None:
    """Its styles and scripts."""
    app.include_router(router)
    app.mount("/static", StaticFiles(directory=str(FOLDER)), name="static")
