"""The how-to pages, followed exactly on a copy of the source."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from support import DOCS, ROOT

BLOCK = re.compile(r"^```python\n# (src/\S+), before `([^`\n]*)`\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def follow(tmp_path):
    """Makes the changes of a page in a copy of the package; runs commands with it and returns their output."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src"), "HOME": str(tmp_path), "XDG_CONFIG_HOME": ""}
    environment |= {"RECOLLECT_STORE": str(tmp_path / "memory.db"), "RECOLLECT_EMBEDDER": "none"}

    def run(*words):
        command = [sys.executable, "-m", "recollect", *words]
        ran = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def change(name):
        blocks = BLOCK.findall((DOCS / "howto" / name).read_text(encoding="utf-8"))
        for file, place, code in blocks:
            text = (tmp_path / file).read_text(encoding="utf-8")
            assert text.count(f"\n{place}") == 1, (file, place)
            (tmp_path / file).write_text(text.replace(f"\n{place}", f"\n{code}{place}"), encoding="utf-8")
        return {file for file, _, _ in blocks}, run

    return change


def test_fusion_method_is_added_in_one_place(follow, tmp_path):
    """The flag, its help and `fuse` have it, and it fuses."""
    files, run = follow("add-a-fusion-method.md")
    assert files == {"src/recollect/fusion.py"}
    assert "isr" in run("search", "--help")
    run("add", "A heron by the lake.")
    (result,) = json.loads(run("search", "heron", "--fusion", "isr", "--json"))["results"]
    assert (result["fused"], result["score"]) == (1.0, 1.0)


def test_stage_is_added_in_two_places(follow):
    """The flag, the settings and the trace have it, and it changes scores."""
    files, run = follow("add-a-stage.md")
    assert files == {"src/recollect/options.py", "src/recollect/stages.py"}
    run("add", "heron")
    plain = json.loads(run("search", "heron", "--json", "--explain"))
    halved = json.loads(run("search", "heron", "--short-penalty", "--json", "--explain"))
    assert halved["results"][0]["score"] == plain["results"][0]["score"] / 2
    assert halved["results"][0]["factors"]["short"] == 0.5
    assert "short" in [stage["name"] for stage in halved["trace"]["stages"]]
    assert "search.short_penalty" in run("config", "show")


def test_store_is_added_by_an_entry_point():
    """The page's names are those of the plugin in the tests of stores."""
    page = (DOCS / "howto" / "add-a-store.md").read_text(encoding="utf-8")
    plugin = ROOT / "tests" / "stores" / "plugin"
    (code,) = plugin.glob("*.py")
    assert f"in {len(code.read_text(encoding='utf-8').splitlines())} lines" in page
    assert "[recollect.stores]" in next(plugin.glob("*/entry_points.txt")).read_text(encoding="utf-8")
    for name in ("StoreKind", "def open(self, place", "def exists(self, place"):
        assert name in page
        assert name in code.read_text(encoding="utf-8")
