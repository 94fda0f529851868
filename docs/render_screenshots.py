"""Takes the pictures of docs/images from a real server and a real browser. `make screenshots` runs it.

The store is made of the sample notes and of a few facts; the pictures are what a newcomer sees.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from recollect import Memory
from recollect.sample import NOTES

IMAGES = Path(__file__).parent / "images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDE, NARROW = {"width": 1200, "height": 860}, {"width": 390, "height": 844}
SETTLED_MS = 900

QUESTION = "why does the line get so long when the server is nearly full?"
COMPARED = "why do waiting times explode when everyone is busy?"
"""One on which the two rankings differ."""
OLDER = {
    1: "Mirela takes two weeks off in March.",
    3: "The dentist is Dr. Okafor, on the second floor.",
    9: "We decided to move the job queue to Postgres.",
}
"""Facts by their age in days."""


def main() -> None:
    """Every picture there is."""
    from playwright.sync_api import sync_playwright

    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "memory.db"
        key = _fill(place)
        with _serving(place) as address, sync_playwright() as playwright:
            found = next(path for name in BROWSERS if (path := shutil.which(name)))
            browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
            _shoot(browser, f"{address}{_views(key)['search']}", Path(folder) / "warm.png", "light", WIDE)
            for scheme in ("light", "dark"):
                for name, route in _views(key).items():
                    _shoot(browser, f"{address}{route}", IMAGES / f"{name}-{scheme}.png", scheme, WIDE)
            _shoot(browser, f"{address}{_views(key)['search']}", IMAGES / "phone-light.png", "light", NARROW)
            browser.close()


def _views(key: str) -> dict[str, str]:
    return {
        "search": f"#/search?q={quote(QUESTION)}",
        "compare": f"#/search?q={quote(COMPARED)}&compare=1&a.fusion=rrf"
        "&b.fusion=weighted&b.text_weight=0.3&b.vector_weight=0.7",
        "record": f"#/record/{key}",
        "facts": "#/facts",
        "status": "#/status",
    }


def _fill(place: Path) -> str:
    """The sample notes, and facts of several days, one of them superseded twice; the id of the last of these."""
    with Memory.open(place) as memory:
        memory.index(NOTES)
        for ago, text in OLDER.items():
            memory.add(text, happened_at=datetime.now(UTC) - timedelta(days=ago))
        first = memory.add("The spare key is under the blue pot.", tags=["home"], category="home")
        second = memory.supersede(first.id, text="The spare key is with Anneke, next door.")
        last = memory.supersede(second.id, text="The spare key is in the lock box; the code is with Anneke.")
        return last.id


@contextmanager
def _serving(place: Path) -> Iterator[str]:
    words = [sys.executable, "-m", "recollect", "serve", "--port", "0", "--store", str(place), "--no-token"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = ""
            while not (told := re.search(r"http://\S+", line)):
                line = process.stderr.readline() if process.stderr else ""
            yield told[0]
        finally:
            process.terminate()


def _shoot(browser: Any, address: str, file: Path, scheme: str, size: dict[str, int]) -> None:
    context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
    page = context.new_page()
    page.route("**/v1/changes*", lambda route: route.fulfill(status=404, json={"error": {}}))  # or it waits for ever
    page.goto(address)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(SETTLED_MS)
    page.screenshot(path=file)
    context.close()
    print(file.name)  # noqa: T201


if __name__ == "__main__":
    main()
