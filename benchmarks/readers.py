"""Compares libraries that read documents, on the documents that `benchmarks.written` makes (decision 065).

python -m benchmarks.written FOLDER
uv venv /tmp/readers && uv pip install --python /tmp/readers/bin/python pypdf pdfminer.six pdfplumber pypdfium2 \
    python-docx mammoth docx2python trafilatura readability-lxml resiliparse html-to-markdown python-pptx \
    charset-normalizer markdown-it-py
PYTHONPATH=src /tmp/readers/bin/python -m benchmarks.readers FOLDER

Each library reads all documents of a kind in a process of its own. `recovered` is the share of the words of the source
that the text holds, `foreign` the share of its words that the source does not hold.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

WORD = re.compile(r"[^\W_]+")


def words(text: str) -> Counter[str]:
    return Counter(word.lower() for word in WORD.findall(text))


def source_of(path: Path) -> str:
    return (path.parents[2] / "source" / f"{path.name[:6]}.txt").read_text(encoding="utf-8")


def scores(path: Path, text: str) -> tuple[float, float]:
    """The share of the source's words that were recovered, and the share of foreign words."""
    wanted, got = words(source_of(path)), words(text)
    common = (wanted & got).total()
    return common / wanted.total(), 1 - common / max(got.total(), 1)


def pypdf(content: bytes) -> str:
    from pypdf import PdfReader

    return "\n".join(page.extract_text() for page in PdfReader(io.BytesIO(content)).pages)


def pdfminer(content: bytes) -> str:
    from pdfminer.high_level import extract_text

    return extract_text(io.BytesIO(content))


def pdfplumber(content: bytes) -> str:
    import pdfplumber

    with pdfplumber.open(io.BytesIO(content)) as pdf:
        return "\n".join(page.extract_text() for page in pdf.pages)


def pypdfium2(content: bytes) -> str:
    import pypdfium2

    return "\n".join(page.get_textpage().get_text_range() for page in pypdfium2.PdfDocument(content))


def python_docx(content: bytes) -> str:
    from docx import Document
    from docx.table import Table

    texts = []
    for part in Document(io.BytesIO(content)).iter_inner_content():
        if isinstance(part, Table):
            texts += [cell.text for row in part.rows for cell in row.cells]
        else:
            texts.append(part.text)
    return "\n".join(texts)


def mammoth(content: bytes) -> str:
    import mammoth

    return own_html(mammoth.convert_to_html(io.BytesIO(content)).value.encode())


def docx2python(content: bytes) -> str:
    from docx2python import docx2python

    with docx2python(io.BytesIO(content)) as document:
        return document.text


def python_pptx(content: bytes) -> str:
    from pptx import Presentation

    texts = []
    for slide in Presentation(io.BytesIO(content)).slides:
        texts += [shape.text_frame.text for shape in slide.shapes if shape.has_text_frame]
        tables = [shape.table for shape in slide.shapes if shape.has_table]
        texts += [cell.text for table in tables for row in table.rows for cell in row.cells]
    return "\n".join(texts)


def _own(kind: str, content: bytes) -> str:
    module = importlib.import_module(f"recollect.ingest.readers.{kind}")
    return "\n".join(block.text for block in module.read(content).blocks)


def own_pdf(content: bytes) -> str:
    return _own("pdf", content)


def own_pptx(content: bytes) -> str:
    return _own("pptx", content)


def own_html(content: bytes) -> str:
    return _own("html", content)


def trafilatura(content: bytes) -> str:
    from trafilatura import extract

    return extract(content.decode(), output_format="markdown", include_tables=True, favor_recall=True) or ""


def readability(content: bytes) -> str:
    from lxml.html import fromstring
    from readability import Document

    return str(fromstring(Document(content.decode()).summary()).text_content())


def resiliparse(content: bytes) -> str:
    from resiliparse.extract.html2text import extract_plain_text

    return extract_plain_text(content.decode(), main_content=True)


def html_to_markdown(content: bytes) -> str:
    from html_to_markdown import convert

    converted = convert(content.decode())
    return converted if isinstance(converted, str) else str(getattr(converted, "content", converted))


CONTENDERS: dict[str, list[Callable[[bytes], str]]] = {
    "pdf": [pypdf, pdfminer, pdfplumber, pypdfium2, own_pdf],
    "docx": [python_docx, mammoth, docx2python],
    "pptx": [python_pptx, own_pptx],
    "html": [own_html, trafilatura, readability, resiliparse, html_to_markdown],
}


def measure(folder: Path, kind: str, name: str) -> None:
    """One line: the means over the documents of a kind, the processor time and the largest memory of this process."""
    read = next(each for each in CONTENDERS[kind] if each.__name__ == name)
    rows = []
    files = sorted((folder / "documents" / kind).iterdir())
    with contextlib.redirect_stderr(io.StringIO()):
        read(files[0].read_bytes())  # imports are not counted
        start = time.process_time()
        for path in files:
            try:
                rows.append(scores(path, read(path.read_bytes())))
            except Exception as error:  # noqa: BLE001  (a contender that fails recovers nothing)
                print(f"  {path.name}: {type(error).__name__}", file=sys.stderr)
                rows.append((0.0, 0.0))
    took = time.process_time() - start
    recovered, foreign = (sum(column) / len(rows) for column in zip(*rows, strict=True))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    least = min(row[0] for row in rows)
    print(f"| {kind} | {name} | {recovered:.3f} | {least:.3f} | {foreign:.3f} | {took:.2f} | {memory} |")


if __name__ == "__main__":
    folder, *one = sys.argv[1:]
    if one:
        measure(Path(folder), *one)
    else:
        print(
            "| kind | library | recovered | least | foreign | CPU s | MiB |\n|---|---|---|---|---|---|---|", flush=True
        )
        for kind, contenders in CONTENDERS.items():
            for contender in contenders:
                subprocess.run(
                    [sys.executable, "-m", "benchmarks.readers", folder, kind, contender.__name__], check=False
                )
