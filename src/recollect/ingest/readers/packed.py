"""Files inside a zip file, as DOCX, PPTX and EPUB are: read with limits, and XML without entities."""

import io
import posixpath
import re
import zipfile
from xml.etree import ElementTree as ET

from recollect.ingest.readers import MAX_ENTRIES, MAX_UNPACKED, MIB, Unreadable

_ENTITY = re.compile(rb"<!\s*(?:ENTITY|DOCTYPE[^>]*\[)")
OLE = b"\xd0\xcf\x11\xe0"  # the beginning of an Office file with a password, or of one older than 2007


class Package:
    """A zip file whose entries are read whole."""

    def __init__(self, content: bytes) -> None:
        if content.startswith(OLE):
            raise Unreadable("encrypted, or in the format of Office before 2007")
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(content))
            entries = self._zip.infolist()
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:  # not implemented by zipfile
            raise Unreadable("damaged: not a zip file") from error
        if len(entries) > MAX_ENTRIES or sum(entry.file_size for entry in entries) > MAX_UNPACKED:
            raise Unreadable(f"unpacks to more than {MAX_UNPACKED // MIB} MiB or {MAX_ENTRIES:,} files")
        if any(entry.flag_bits & 1 for entry in entries):
            raise Unreadable("encrypted: it needs a password")
        self.names = frozenset(entry.filename for entry in entries)

    def read(self, name: str) -> bytes:
        """The content of an entry. zipfile raises NotImplementedError for a compression that it does not know."""
        try:
            return self._zip.read(name)
        except (KeyError, zipfile.BadZipFile, NotImplementedError, OSError, EOFError, ValueError) as error:
            raise Unreadable(f"damaged: {posixpath.basename(name)} is missing or broken") from error

    def xml(self, name: str) -> ET.Element:
        """An entry as XML. One that declares entities is refused: they can be used to fill the memory."""
        data = self.read(name)
        if _ENTITY.search(data):
            raise Unreadable("damaged: it declares entities")
        try:
            return ET.fromstring(data)  # noqa: S314  (entities are refused above, and expat fetches nothing)
        except ET.ParseError as error:
            raise Unreadable(f"damaged: {posixpath.basename(name)} is not XML") from error

    def targets(self, name: str) -> dict[str, str]:
        """The relations of an Office part: id → the entry that it names."""
        folder, base = posixpath.split(name)
        relations = f"{folder}/_rels/{base}.rels"
        if relations not in self.names:
            return {}
        return {
            each.get("Id", ""): posixpath.normpath(posixpath.join(folder, each.get("Target", ""))).lstrip("/")
            for each in self.xml(relations)
            if each.get("TargetMode") != "External"
        }
