"""DOCX by way of HTML, which Mammoth makes of it; pages where the writer has recorded them."""

import io
import re
import zipfile

from recollect.ingest.readers import DocumentText
from recollect.ingest.readers.html import html_blocks
from recollect.ingest.readers.packed import Package

MAIN = "word/document.xml"
_RENDERED = re.compile(rb"<w:lastRenderedPageBreak\s*/>")  # Word records with each save where its pages began
_BREAK = re.compile(rb'<w:br\s[^>]*w:type="page"[^>]*/>')
STYLES = "br[type='page'] => hr.page\np[style-name='Title'] => h1:fresh\np[style-name='Subtitle'] => p:fresh"


def read(content: bytes) -> DocumentText:
    """Read a DOCX file."""
    import mammoth

    package = Package(content)
    for name in package.names:
        if name.endswith((".xml", ".rels")):
            package.xml(name)  # refuses entities and broken files before Mammoth reads them
    content, has_pages = _with_page_breaks(content, package)
    page = mammoth.convert_to_html(
        io.BytesIO(content), style_map=STYLES, convert_image=mammoth.images.img_element(lambda _image: {}),
        external_file_access=False,
    ).value  # fmt: skip
    _, blocks = html_blocks(page, part=1 if has_pages else 0)
    title = next((block.text for block in blocks if block.level == 1), "")
    return DocumentText(blocks, title, "page")


def _with_page_breaks(content: bytes, package: Package) -> tuple[bytes, bool]:
    """The file with breaks where the writer's pages began; and whether it records any pages."""
    document = package.read(MAIN) if MAIN in package.names else b""
    if not _RENDERED.search(document):
        return content, bool(_BREAK.search(document))
    document = _RENDERED.sub(b'<w:br w:type="page"/>', _BREAK.sub(b"", document))
    changed = io.BytesIO()
    with zipfile.ZipFile(changed, "w") as target:
        for name in package.names:
            target.writestr(name, document if name == MAIN else package.read(name))
    return changed.getvalue(), True
