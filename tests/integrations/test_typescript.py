"""The TypeScript client: generated from the server's description, compiled strictly, and run in Node."""

import os
import shutil
import subprocess

import pytest
from support import ROOT
from support.agents import hosting

NODE = ROOT / ".node" / "node_modules"


@pytest.mark.ci
@pytest.mark.skipif(
    not (NODE / "openapi-typescript").exists(), reason="not installed here: make .node/.installed, with npm"
)
def test_client_is_generated_compiled_and_works(tmp_path):
    """The example stores, supersedes and finds a fact as the caller of its token, and shows an error."""
    folder = tmp_path / "client"
    shutil.copytree(ROOT / "integrations" / "typescript", folder, ignore=shutil.ignore_patterns("node_modules", "dist"))
    (folder / "node_modules").symlink_to(NODE)
    (tmp_path / "home").mkdir()
    with hosting(tmp_path / "home") as hosted:
        url, token = hosted.url.removesuffix("/mcp"), hosted.token("ada")

        def ran(*words):
            environment = {
                **os.environ,
                "RECOLLECT_URL": url,
                "PATH": f"{NODE / '.bin'}{os.pathsep}{os.environ['PATH']}",
            }
            done = subprocess.run(
                words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        ran("npm", "run", "--silent", "build")
        assert ran("node", "dist/example.js", url, token).splitlines() == [
            "1 The spare key is with Anneke. keyword+vector",
            "404 unknown_record no record has the id 'unknown'",
        ]
