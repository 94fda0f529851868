"""The rules by which files are cut have a version: a release that cuts differently must raise it."""

import hashlib

from recollect.ingest.documents import RULES, read_document
from recollect.sample import NOTES

PINNED = {4: "a1d8e373fe2db29f"}
"""Version of the rules → a hash of the chunks of the sample notes and of the texts below."""

TEXTS = {
    "table.md": "# Birds\n\nSeen:\n\n| name | place |\n|---|---|\n"
    + "| grey heron | the reeds by the old mill |\n" * 80,
    "code.py": "class Heron:\n" + "".join(f"    def wade{n}(self):\n        return {n}\n\n" for n in range(90)),
    "page.rst": "Tides\n=====\n\n" + "High water comes twice a day. " * 90 + "\n\nMoon\n----\n\nIt pulls.\n",
    "house.org": "* Kitchen\nFix the tap.\n* Roof\n" + "A tile is loose above the attic, look at it.\n" * 60,
    "title.md": "---\ntitle: Heron\n---\n",
    "list.txt": "\n\n".join(f"Paragraph {n} of a plain text, {'x' * n}." for n in range(90)),
    "note.md": "---\naliases: [Grey bird]\nup: '[[Birds]]'\n---\n# Heron\n\n"
    "- [home] @valid[2026-01-01,2026-02-01) The mill.\n- It wades.\n",
    "long.txt": "One line, very long; it has commas, too. " * 200,
}


def test_other_chunks_need_another_version() -> None:
    """If this fails, raise RULES and add its hash: `recollect migrate --chunks` then reaches files cut before."""
    files = {path.name: path.read_bytes() for path in sorted(NOTES.rglob("*.md"))}
    files |= {name: text.encode() for name, text in TEXTS.items()}
    chunks = [(name, read_document(content, name)) for name, content in sorted(files.items())]
    cut = repr([(name, document.title, document.chunks) for name, document in chunks])
    assert hashlib.blake2b(cut.encode(), digest_size=8).hexdigest() == PINNED[RULES]
