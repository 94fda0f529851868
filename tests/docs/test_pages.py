"""Documentation pages that describe settings and names: they agree with the code."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import DOCS

from recollect import config
from recollect.memory import explain


def test_sources_page_shows_valid_settings(tmp_path):
    """Its example is loaded, and every setting of a source has its row."""
    page = (DOCS / "sources.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```toml\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    file = tmp_path / "config.toml"
    file.write_text(example, encoding="utf-8")
    sources = config.load(config=file, environment={}).settings.sources
    assert [source.kind for source in sources] == ["command", "http", "recollect", "recollect"]
    from recollect.config.sources import COMMON, OWN

    for name in {*COMMON, *(name for own in OWN.values() for name in own if name != "embedder")}:
        assert f"`{name}" in page or f"{name} =" in page, name


def test_why_not_page_names_every_stage():
    """A verdict's word can be looked up."""
    page = (DOCS / "why-not.md").read_text(encoding="utf-8")
    code = Path(explain.__file__).read_text(encoding="utf-8")
    stages = set(re.findall(r'Verdict\(\s*"([\w ]+)"', code))
    stages |= {"threshold", "confidence", "mmr", "changed", "missing"}
    assert len(stages) > 18
    for stage in stages - {"found"}:
        assert f"`{stage}`" in page, stage


@pytest.mark.ci
def test_site_builds_without_a_warning(tmp_path):
    """Links, navigation and docstrings."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", DOCS, tmp_path]
    built = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert (built.returncode, built.stderr) == (0, "")
    assert (tmp_path / "glossary.html").exists()
