"""docs/fusing.md: its commands run one after the other in a new folder, and print what the page shows."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import DOCS

from recollect.sample import NOTES

PAGE = (DOCS / "fusing.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.ci
@pytest.mark.xdist_group("readme")
def test_every_command_of_the_page_prints_its_output(tmp_path):
    """All succeed; shown output is complete."""
    shutil.copytree(NOTES, tmp_path / "src" / "recollect" / "sample" / "notes")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "RECOLLECT_STORE": str(tmp_path / "store.db"),
        "XDG_CONFIG_HOME": str(tmp_path),
        "COLUMNS": "100",
    }
    text = "".join(code for language, code in BLOCKS if language == "console")
    steps = [step.partition("\n")[::2] for step in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]]
    assert len(steps) >= 10
    for command, shown in steps:
        ran = subprocess.run(
            ["sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, (command, ran.stderr)
        if shown:
            assert ran.stdout == shown, command


def test_python_of_the_page_runs(tmp_path):
    """As it stands, in a new folder."""
    (code,) = [code for language, code in BLOCKS if language == "python"]
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, len(ran.stdout.splitlines())) == (0, 3), ran.stderr
