"""Makes the documents of this folder with Pandoc, LibreOffice and Chromium; they are kept in the repository.

apt-get install pandoc libreoffice-writer-nogui libreoffice-impress-nogui chromium
"""

import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = """# Heron field guide

Herons are wading birds of rivers and lakes. This guide was written for a test.

## Sizes

| Bird | Length | Colour |
|---|---|---|
| Grey heron | 98 cm | grey |
| Little egret | 60 cm | white |

- they eat fish
- they eat frogs

{break}

## Nests

A heronry is a colony of nests in tall trees. The stork is not a heron.
"""
SLIDES = """## Sizes

| Bird | Length |
|---|---|
| Grey heron | 98 cm |

## Nests

- A heronry is a colony of nests.
    - in tall trees

::: notes
Show the picture of the heronry.
:::
"""
BREAKS = {
    "docx": '```{=openxml}\n<w:p><w:r><w:br w:type="page"/></w:r></w:p>\n```',
    "html": '<div style="break-after: page"></div>',
    "": "",
}


def run(*words: object) -> None:
    """Run a program that must succeed."""
    subprocess.run([*map(str, words)], check=True, capture_output=True, timeout=300)


def source(folder: Path, kind: str) -> Path:
    """The guide as Markdown, with a page break as the writer of this kind understands it."""
    path = folder / f"guide-{kind}.md"
    path.write_text(SOURCE.replace("{break}", BREAKS[kind]))
    return path


def main() -> None:
    """Make all files."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain, office = source(folder, ""), ["soffice", "--headless", f"-env:UserInstallation=file://{folder}/profile"]
        run("pandoc", source(folder, "docx"), "-o", HERE / "pandoc.docx")
        slides = folder / "slides.md"
        slides.write_text(SLIDES)
        run("pandoc", slides, "--slide-level=2", "-o", HERE / "pandoc.pptx")
        run(
            "pandoc",
            plain,
            "--metadata",
            "title=Heron field guide",
            "--epub-chapter-level=2",
            "-o",
            HERE / "pandoc.epub",
        )
        run("pandoc", plain, "-o", HERE / "pandoc.ipynb")
        run("pandoc", "-s", source(folder, "html"), "--metadata", "title=Herons", "-o", folder / "guide.html")
        run("chromium", "--headless", "--no-sandbox", "--no-pdf-header-footer", f"--user-data-dir={folder}/chromium",
            f"--print-to-pdf={HERE}/chromium.pdf", folder / "guide.html")  # fmt: skip
        run(*office, "--convert-to", "pdf", "--outdir", folder, HERE / "pandoc.docx")
        (folder / "pandoc.pdf").rename(HERE / "libreoffice.pdf")
        run(*office, "--convert-to", "odt", "--outdir", folder, HERE / "pandoc.docx")
        run(*office, "--convert-to", "docx", "--outdir", folder, folder / "pandoc.odt")
        (folder / "pandoc.docx").rename(HERE / "libreoffice.docx")


if __name__ == "__main__":
    main()
