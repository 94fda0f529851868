"""A corpus as a folder of markdown files, one for each document, so that search is measured as people use it."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from recollect.errors import FailedError

LONGEST_NAME = 80  # characters of a document's id in the name of its file


def file_names(corpus: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Name the file of every document after its id: file name → id.

    Names differ also where a file system ignores case. Each consists of letters, digits, dots, dashes and underscores.
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for row in corpus:
        stem = re.sub(r"[^\w.-]+", "-", row["_id"], flags=re.ASCII).strip("-.")[:LONGEST_NAME] or "document"
        name, number = stem, 1
        while name.lower() in taken:
            number += 1
            name = f"{stem}-{number}"
        taken.add(name.lower())
        names[f"{name}.md"] = row["_id"]
    return names


def write_files(corpus: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Write every document as a markdown file. A folder that exists is complete: it gets its name last."""
    if folder.is_dir():
        return
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent) as beside:
            made = Path(beside, folder.name)
            made.mkdir()
            for name, row in zip(file_names(corpus), corpus, strict=True):
                made.joinpath(name).write_text(markdown(row), encoding="utf-8", errors="replace", newline="")
            made.rename(folder)
    except OSError as error:
        if folder.is_dir():  # another process was faster
            return
        message = f"{folder} cannot be written: {error.strerror or error}"
        raise FailedError(message, hint="check the disk and the permissions of the cache folder") from error


def markdown(row: Mapping[str, Any]) -> str:
    """Return a document's text below its title as a heading, unless the text begins with that heading."""
    heading, text = f"# {' '.join(row['title'].split())}", row["text"]
    if heading == "# ":
        return text or "-"
    return text if text.lstrip().split("\n", 1)[0].strip() == heading else f"{heading}\n\n{text}"
