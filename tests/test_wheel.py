"""The built wheel in an empty environment: the demo and the page, as somebody who installs it sees them."""

import os
import re
import subprocess
import sys
import venv
from pathlib import Path
from urllib.request import urlopen

import pytest
from support import ROOT
from support.serving import environment, free_port, wait

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The folder of programs of an environment that holds the wheel and what it asks for, and nothing else."""
    place = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", place, ROOT], check=True)
    [wheel] = place.glob("recollect_search-*.whl")
    venv.create(place / "empty", with_pip=False)
    programs = place / "empty" / ("Scripts" if os.name == "nt" else "bin")
    subprocess.run([*pip, "--python", programs / "python", "install", f"{wheel}[serve]"], check=True)
    return programs


def test_the_demo_runs(installed, tmp_path):
    """The demo searches its notes by keyword, and by vector where the model can be downloaded."""
    ran = subprocess.run([installed / "recollect", "demo"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "32 notes indexed" in ran.stdout
    assert "work/connection-pool-postmortem.md" in ran.stdout
    assert "keyword #1" in ran.stdout


def test_the_small_reranker_is_in_the_wheel(installed, tmp_path):
    """Its files came with the package, and their hashes are right."""
    folders = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "RECOLLECT_MODELS"), str(tmp_path))
    command = [installed / "recollect", "model", "path", "small-reranker"]
    ran = subprocess.run(command, env=os.environ | folders, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (Path(ran.stdout.strip()) / "model.onnx").is_file()


def test_the_page_is_served(installed, tmp_path):
    """`recollect serve` answers with the page and with the script that the page loads."""
    port = free_port()
    command = [installed / "recollect", "serve", "--store", tmp_path / "memory.db", "--port", str(port)]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment(tmp_path), cwd=tmp_path, stdout=log, stderr=log)
    try:
        wait(f"http://127.0.0.1:{port}", process, tmp_path / "log")
        with urlopen(f"http://127.0.0.1:{port}/", timeout=60) as page:
            text = page.read().decode()
        assert "<title>Recollect" in text
        [script, *_] = re.findall(r'<script[^>]* src="([^"]+)"', text)
        with urlopen(f"http://127.0.0.1:{port}{script}", timeout=60) as answer:
            assert answer.headers["Content-Type"].startswith("text/javascript")
    finally:
        process.terminate()
        process.wait(timeout=60)
