"""Makes a folder of documents by real writers: 20 of each kind from pages of documentation, and hostile ones.

Needs pandoc, LibreOffice (writer and impress), Chromium, groff, mutt, s-nail and git:
apt-get install pandoc libreoffice-writer-nogui libreoffice-impress-nogui chromium groff mutt s-nail git
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

COUNT = 20
PAGES = Path(os.environ.get("RECOLLECT_DATA", "../shared/data")) / "openclaw_docs" / "corpus.jsonl"
SECONDS = 300
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
CATCHER = '#!/bin/sh\ncat > "$OUT"\n'  # a sendmail that sends nothing and keeps the message


def run(*words: object, **more: object) -> None:
    subprocess.run([*map(str, words)], check=True, timeout=SECONDS, capture_output=True, **more)  # type: ignore[call-overload]


def sources(folder: Path, offset: int) -> list[Path]:
    """20 English pages of 4,000 to 20,000 characters, as Markdown and as plain text.

    The readers were corrected on the pages of offset 0; figures are reported on those of offset 7.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in PAGES.read_text(encoding="utf-8").splitlines()]
    fitting = [row for row in rows if 4_000 < len(row["text"]) < 20_000 and row["text"].isascii()]
    pages = []
    for number, row in enumerate(fitting[offset :: len(fitting) // COUNT][:COUNT], 1):
        text = re.sub(r"\A---\n.*?\n---\n", "", row["text"], flags=re.DOTALL)
        text = re.sub(r"</?[A-Z]\w*[^>]*>", "", text)  # components of the site that made the pages
        text = re.sub(r"(?m)^[ \t]+(?=\S)(?![-*\d])", "", text)
        page = folder / f"page{number:02}.md"
        page.write_text(
            f"# {row['title'] or row['_id']}\n\n{text}" if "\n# " not in text[:300] else text, encoding="utf-8"
        )
        run("pandoc", "-f", "gfm", "-t", "plain", "--wrap=none", page, "-o", page.with_suffix(".txt"))
        pages.append(page)
    return pages


def office(target: str, folder: Path, files: list[Path]) -> None:
    """Let LibreOffice convert files."""
    run(
        "soffice",
        "--headless",
        f"-env:UserInstallation=file://{folder}/profile",
        "--convert-to",
        target,
        "--outdir",
        folder,
        *files,
    )


def make(folder: Path, offset: int = 7) -> Path:
    """Write all documents below `folder`, 20 of each kind in a folder of its own, and return it."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = sources(folder / "source", offset)
    work = folder / "work"
    work.mkdir()
    for page in pages:
        run(
            "pandoc",
            "-f",
            "gfm",
            "-s",
            "--metadata",
            f"title={page.stem}",
            "--toc",
            page,
            "-o",
            work / f"{page.stem}.html",
        )
        run("pandoc", "-f", "gfm", page, "-o", work / f"{page.stem}.docx")
        run("pandoc", "-f", "gfm", page, "--slide-level=2", "-o", work / f"{page.stem}.pptx")
        run("pandoc", "-f", "gfm", "--metadata", f"title={page.stem}", page, "-o", work / f"{page.stem}.epub")
        run("pandoc", "-f", "gfm", page, "-o", work / f"{page.stem}.ipynb")
    for maker in (html, pdf, docx, pptx, epub, notebooks, mail, mailboxes):
        maker(folder, pages, work)
    hostile(folder / "hostile")
    return folder


def _out(folder: Path, kind: str) -> Path:
    made = folder / "documents" / kind
    made.mkdir(parents=True, exist_ok=True)
    return made


def html(folder: Path, pages: list[Path], work: Path) -> None:
    """Ten pages by Pandoc, with a table of contents; ten by Sphinx with the theme Furo, with menus on both sides."""
    out = _out(folder, "html")
    for page in pages[:10]:
        shutil.copy(work / f"{page.stem}.html", out / f"{page.stem}-pandoc.html")
    site = work / "site"
    site.mkdir()
    names = [page.stem for page in pages[10:]]
    for page in pages[10:]:
        shutil.copy(page, site)
    (site / "conf.py").write_text("extensions = ['myst_parser']\nhtml_theme = 'furo'\nproject = 'Pages'\n")
    (site / "index.rst").write_text("Pages\n=====\n\n.. toctree::\n\n" + "".join(f"   {name}\n" for name in names))
    run(sys.executable, "-m", "sphinx", "-q", site, site / "built")
    for name in names:
        shutil.copy(site / "built" / f"{name}.html", out / f"{name}-sphinx.html")


def pdf(folder: Path, pages: list[Path], work: Path) -> None:
    """Seven by Chromium, seven by LibreOffice, six by groff."""
    out = _out(folder, "pdf")
    for page in pages[:7]:
        run("chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={work}/chromium",
            "--no-pdf-header-footer", f"--print-to-pdf={out / page.stem}-chromium.pdf",
            f"file://{(work / page.stem).resolve()}.html")  # fmt: skip
    office("pdf", work, [work / f"{page.stem}.docx" for page in pages[7:14]])
    for page in pages[7:14]:
        shutil.copy(work / f"{page.stem}.pdf", out / f"{page.stem}-libreoffice.pdf")
    for page in pages[14:]:
        run("pandoc", "-f", "gfm", "-s", "-t", "ms", page, "-o", work / f"{page.stem}.ms")
        with (out / f"{page.stem}-groff.pdf").open("wb") as file:
            subprocess.run(["groff", "-k", "-t", "-ms", "-Tpdf", work / f"{page.stem}.ms"], stdout=file,
                           stderr=subprocess.DEVNULL, check=True, timeout=SECONDS)  # fmt: skip


def _half_by_office(folder: Path, pages: list[Path], work: Path, kind: str, between: str) -> None:
    """Ten by Pandoc; ten that LibreOffice read and wrote again, by way of its own format."""
    out = _out(folder, kind)
    for page in pages[:10]:
        shutil.copy(work / f"{page.stem}.{kind}", out / f"{page.stem}-pandoc.{kind}")
    own, again = work / f"own-{kind}", work / f"again-{kind}"
    own.mkdir()
    again.mkdir()
    first = kind if between != "odt" or kind != "epub" else "docx"
    office(between, own, [work / f"{page.stem}.{first}" for page in pages[10:]])
    office(kind, again, [own / f"{page.stem}.{between}" for page in pages[10:]])
    for page in pages[10:]:
        shutil.copy(again / f"{page.stem}.{kind}", out / f"{page.stem}-libreoffice.{kind}")


def docx(folder: Path, pages: list[Path], work: Path) -> None:
    """Ten by Pandoc, ten by LibreOffice."""
    _half_by_office(folder, pages, work, "docx", "odt")


def pptx(folder: Path, pages: list[Path], work: Path) -> None:
    """Ten by Pandoc, ten by LibreOffice."""
    _half_by_office(folder, pages, work, "pptx", "odp")


def epub(folder: Path, pages: list[Path], work: Path) -> None:
    """Ten by Pandoc, ten by LibreOffice."""
    _half_by_office(folder, pages, work, "epub", "odt")


def notebooks(folder: Path, pages: list[Path], work: Path) -> None:
    """Twenty by Pandoc."""
    for page in pages:
        shutil.copy(work / f"{page.stem}.ipynb", _out(folder, "ipynb") / f"{page.stem}-pandoc.ipynb")


def mail(folder: Path, pages: list[Path], work: Path) -> None:
    """Ten messages by mutt, ten by s-nail; both hand them to a program that keeps them."""
    out, catcher = _out(folder, "eml"), work / "catcher"
    catcher.write_text(CATCHER)
    catcher.chmod(catcher.stat().st_mode | stat.S_IXUSR)
    for number, page in enumerate(pages):
        name = "mutt" if number < 10 else "s-nail"
        environment = {**os.environ, "OUT": str(out / f"{page.stem}-{name}.eml"), "HOME": str(work)}
        options = ["-n", "-e", f"set sendmail={catcher}"] if name == "mutt" else ["-:/", "-S", f"mta={catcher}"]
        with page.with_suffix(".txt").open() as text:
            run(name, *options, "-s", f"Page {page.stem}", "reader@example.org", stdin=text, env=environment)


def mailboxes(folder: Path, pages: list[Path], work: Path) -> None:
    """Ten by git (patches of this repository), ten to which mutt appended three pages each."""
    out = _out(folder, "mbox")
    for number in range(10):
        with (out / f"patches{number:02}-git.mbox").open("wb") as file:
            commit = f"HEAD~{3 * number}"
            subprocess.run(["git", "format-patch", "--stdout", "-3", "--no-binary", commit, "--", "docs", "src"],
                           stdout=file, check=True, timeout=SECONDS)  # fmt: skip
    environment = {**os.environ, "OUT": "/dev/null", "HOME": str(work)}
    for number in range(10):
        for page in pages[number : number + 3]:
            box = out / f"page{number:02}-mutt.mbox"
            options = ["-n", "-e", f"set sendmail={work / 'catcher'}", "-e", f"set record={box}", "-e", "set copy=yes"]
            with page.with_suffix(".txt").open() as text:
                run("mutt", *options, "-s", f"Page {page.stem}", "reader@example.org", stdin=text, env=environment)


def hostile(folder: Path) -> None:
    """Files that must be skipped with a reason, or read in bounded time."""
    from PIL import Image
    from pypdf import PdfReader, PdfWriter

    folder.mkdir(parents=True)
    pdfs = sorted((folder.parent / "documents" / "pdf").glob("*.pdf"))
    locked = PdfWriter(clone_from=PdfReader(pdfs[0]))
    locked.encrypt("secret", algorithm="RC4-128")
    locked.write(folder / "encrypted.pdf")
    Image.effect_mandelbrot((800, 1100), (-2, -1, 1, 1), 50).save(folder / "scanned.pdf")
    (folder / "truncated.pdf").write_bytes(pdfs[0].read_bytes()[:2_000])
    (folder / "not-a-pdf.pdf").write_bytes(b"%PDF-1.7\n" + os.urandom(5_000))
    docx = next((folder.parent / "documents" / "docx").glob("*-pandoc.docx")).read_bytes()
    (folder / "truncated.docx").write_bytes(docx[: len(docx) // 2])
    _replace_entry(docx, "word/document.xml", b"<x>" + b" " * 2**30 + b"</x>", folder / "bomb.docx")
    entity = (
        b'<!DOCTYPE d [<!ENTITY a "lol">'
        + b"".join(b'<!ENTITY %c "%s">' % (98 + n, b"&%c;" % (97 + n) * 10) for n in range(9))
        + b"]><d>&j;</d>"
    )
    _replace_entry(docx, "word/document.xml", entity, folder / "entities.docx")
    outside = b'<!DOCTYPE d [<!ENTITY a SYSTEM "file:///etc/passwd">]><d>&a;</d>'
    _replace_entry(docx, "word/document.xml", outside, folder / "outside-entity.docx")
    rows = [[f"{row}x{column}" for column in range(100)] for row in range(10_000)]
    cells = "".join("<tr>" + "".join(f"<td>{cell}" for cell in row) for row in rows)
    (folder / "million-cells.html").write_text(f"<table>{cells}</table>")
    cells = "".join(
        "<w:tr>" + "".join(f"<w:tc><w:p><w:r><w:t>{cell}</w:t></w:r></w:p></w:tc>" for cell in row) + "</w:tr>"
        for row in rows
    )
    data = f'<w:document xmlns:w="{WORD}"><w:body><w:tbl>{cells}</w:tbl></w:body></w:document>'
    _replace_entry(docx, "word/document.xml", data.encode(), folder / "million-cells.docx")
    (folder / "nested.html").write_text("<div><ul><li><table><tr><td>" * 30_000 + "deep")
    nested = b"Subject: innermost\n\nx\n"
    for depth in range(500):
        nested = b"Subject: depth %d\nContent-Type: message/rfc822\n\n%s" % (depth, nested)
    (folder / "nested.mbox").write_bytes(b"From x Mon Mar  2 10:00:00 2026\n" + nested)
    (folder / "deep.ipynb").write_text("[" * 1_000_000)


def _replace_entry(content: bytes, name: str, data: bytes, path: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.namelist():
            new.writestr(entry, data if entry == name else old.read(entry))


if __name__ == "__main__":
    print(make(Path(sys.argv[1]).resolve(), *map(int, sys.argv[2:3])))
