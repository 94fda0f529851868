from __future__ import annotations

import re

from support import DOCS

from recollect import config
from recollect.ingest.facts import ACTIONS

PAGE = (DOCS / "ingest-files.md").read_text(encoding="utf-8")


def test_shown_settings_are_valid(tmp_path):
    """The page's TOML is loaded, and shows every setting of `[llm]`."""
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "config.toml").write_text(block)
    loaded = config.load(config=tmp_path / "config.toml", environment={})
    shown = {name for name, origin in loaded.origins.items() if origin != "default"}
    assert shown == {name for name in loaded.origins if name.startswith("llm.")}


def test_every_outcome_is_explained():
    """The page's table has a row for each outcome of a fact."""
    assert tuple(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == ACTIONS
