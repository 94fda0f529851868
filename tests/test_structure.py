"""The shape of the source: a name means one thing, and a module is one subject of a readable size."""

import ast
from collections import defaultdict
from pathlib import Path

from support import ROOT

SOURCE = ROOT / "src" / "recollect"
MODULES = sorted(SOURCE.rglob("*.py"))
LONGEST = 450
"""Lines of a module."""

SAME_PART = {"RecollectRetriever"}
"""The same class for two frameworks: LangChain and LlamaIndex."""


def test_no_class_name_means_two_things():
    """A public class name stands for one class in the whole package."""
    places = defaultdict(set)
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(path.relative_to(SOURCE).as_posix())
    assert len(places) > 200
    assert {name: where for name, where in places.items() if len(where) > 1 and name not in SAME_PART} == {}


def test_no_file_name_means_two_things():
    """Files of the same name are the same part of different stores, with the types or rules that these share."""
    places = defaultdict(set)
    for path in MODULES:
        if path.stem not in ("__init__", "__main__"):
            folder = path.relative_to(SOURCE).parent
            shared = (
                {Path("stores"), Path("types")} if path.stem in ("records", "contents", "rows", "health") else set()
            )
            places[path.stem].add("stores" if folder.parts[:1] == ("stores",) or folder in shared else str(folder))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_no_module_is_too_long():
    """Most modules have 100 to 400 lines."""
    lengths = {str(path.relative_to(SOURCE)): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST} == {}
