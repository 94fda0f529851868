"""Only the extra `eval` needs scipy and matplotlib."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
HEAVY = {"scipy", "matplotlib", "ir-measures", "pytrec-eval-terrier", "pandas"}


def needed(extra):
    """Every package that an installation with this extra brings, by the metadata of the installed packages."""
    lines = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"].get(extra, ())]
    waiting = [Requirement(line) for line in lines]
    found = {}
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        if one.extras <= found.get(name, set()) and name in found:
            continue
        found[name] = found.get(name, set()) | one.extras
        try:
            further = [Requirement(line) for line in requires(name) or ()]
        except PackageNotFoundError:
            continue
        environments = [{"extra": extra} for extra in (found[name] or {""})]
        waiting += [two for two in further if not two.marker or any(map(two.marker.evaluate, environments))]
    return set(found)


@pytest.mark.parametrize("extra", ["", "serve", "mcp", "postgres", "openclaw"])
def test_serving_needs_neither_scipy_nor_matplotlib(extra):
    """Neither directly nor through another package."""
    names = needed(extra)
    assert "numpy" in names
    assert names & HEAVY == set()


def test_eval_extra_has_both():
    """So that the test above would find them."""
    assert {"scipy", "matplotlib", "ir-measures"} <= needed("eval")


@pytest.mark.ci
def test_web_application_and_mcp_server_load_neither():
    """They work without the packages, and do not import them if installed."""
    code = """
import sys
for name in ("matplotlib", "scipy", "ir_measures"):
    sys.modules[name] = None
import recollect.web.app, recollect.mcp, recollect.cli.lab.run
assert not {"pytrec_eval", "matplotlib.figure", "pandas"} & set(sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
