"""Documents on the command line: a result names its page, and a missing extra is named once."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from recollect.cli import main
from recollect.ingest import readers

FILES = Path(__file__).parents[1] / "ingest" / "readers" / "files"


@pytest.fixture
def papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a PDF and a presentation."""
    monkeypatch.setenv("RECOLLECT_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "none")
    folder = tmp_path / "papers"
    folder.mkdir()
    shutil.copy(FILES / "libreoffice.pdf", folder / "herons guide.pdf")
    return folder


def test_result_names_its_page(
    papers: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In text, in JSON, and on a terminal as a link that opens the page."""
    assert main(["index", str(papers)]) == 0
    assert main(["search", "heronry colony"]) == 0
    assert "herons guide.pdf, pages 1–2\n" in capsys.readouterr().out
    assert main(["search", "heronry colony", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["place"] == "pages 1–2"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["search", "heronry colony"]) == 0
    assert f"\x1b]8;;{(papers / 'herons guide.pdf').as_uri()}#page=1\x1b\\" in capsys.readouterr().out


def test_missing_extra_is_named_once(
    papers: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many files need it, one line says what to install."""
    for number in range(9):
        shutil.copy(FILES / "libreoffice.pdf", papers / f"{number}.pdf")
    lacking = readers.Kind("PDF", readers.KINDS[".pdf"].module, needs=("no_such_package",))
    monkeypatch.setattr(readers, "KINDS", {".pdf": lacking})
    assert main(["index", str(papers)]) == 0
    out, err = capsys.readouterr()
    assert "10 skipped" in out
    assert [line for line in err.splitlines() if "skipped" in line] == [
        "skipped 10 files: PDF needs: pip install 'recollect-search[documents]'"
    ]
