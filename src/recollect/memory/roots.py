"""The indexed folders: what they hold, a description for agents, and what to do when one is gone or has moved."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recollect.dataclass import dataclass
from recollect.disk import at_home
from recollect.errors import RecollectError, UsageError
from recollect.memory.memory import Memory
from recollect.memory.shapes import iso
from recollect.types import EVERYTHING, Change, Put, Scope, SetFileState, SetFolderOptions, Store, now

DESCRIPTION, INDEXED_AT = "description", "indexed_at"  # fields beside the options of a folder
MOST_CHARACTERS = 500  # of a description: agents read all of them
MOST_FOLDERS = 10  # whose descriptions stand in the instructions of a server; memory_status has all
GONE = "`recollect folders rename {0} NEW` if it has moved, `recollect folders remove {0}` if it is gone for good"


@dataclass(frozen=True, slots=True)
class IndexedFolder:
    """An indexed folder, or a single file that was indexed by its name."""

    path: str
    files: int
    chunks: int
    indexed_at: str | None
    description: str
    exists: bool
    scope: Mapping[str, str]
    tags: Sequence[str]


def folders(store: Store) -> list[IndexedFolder]:
    """All indexed folders, by path."""
    return [_folder(store, root, options or {}) for root, options in sorted(store.files.roots().items())]


def _folder(store: Store, root: str, options: Mapping[str, Any]) -> IndexedFolder:
    files = sum(not state.problem for state in store.files.known(root).values())
    chunks = store.count(replace(EVERYTHING, kinds=("chunk",), path=root))["total"]
    return IndexedFolder(
        root, files, chunks, options.get(INDEXED_AT), options.get(DESCRIPTION, ""), Path(root).exists(),
        options.get("scope", {}), options.get("tags", []),
    )  # fmt: skip


def described(memory: Memory) -> list[dict[str, str]]:
    """The folders with a description that the caller's scope may see: what agents are told."""
    listed = []
    for root, options in sorted(memory.store.files.roots().items()):
        if options and options.get(DESCRIPTION) and memory.scope.admits(Scope(**options.get("scope", {}))):
            listed.append({"path": root, "description": options[DESCRIPTION]})
    return listed


def for_agents(memory: Memory) -> str:
    """What the owner says about the indexed folders that this memory sees, for the instructions of a server."""
    from recollect.memory.recall import harmless

    try:
        listed = described(memory)[:MOST_FOLDERS]
    except RecollectError:  # the store may be away when the server starts
        return ""
    lines = (f"\n- {harmless(folder['path'], 200)}: {harmless(folder['description'], 500)}" for folder in listed)
    return " Indexed folders:" + "".join(lines) if listed else ""


def kept_fields(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """What is stored beside the options of a folder when it is indexed: its description, and when that was."""
    described = {DESCRIPTION: options[DESCRIPTION]} if options and options.get(DESCRIPTION) else {}
    return {**described, INDEXED_AT: iso(now().replace(microsecond=0))}


def check_there(store: Store, paths: Sequence[str | Path]) -> None:
    """Refuse to index an indexed folder that is not there, with the commands that help."""
    for path in paths:
        root = _absolute(path)
        if not Path(root).exists() and root in store.files.roots():
            raise UsageError(f"{path} is indexed, and is not there any more", hint=GONE.format(path))


def describe(memory: Memory, path: str, text: str) -> IndexedFolder:
    """Set what agents are told about an indexed folder; an empty text removes it."""
    text = " ".join(text.split())
    if len(text) > MOST_CHARACTERS:
        raise UsageError(
            f"a description has at most {MOST_CHARACTERS} characters, not {len(text):,}", hint="shorten it"
        )
    root, options = _known(memory.store, path)
    if options is None:
        raise UsageError(f"the options of {root} are not known", hint=f"index it once more: recollect index {path}")
    fields = {name: value for name, value in options.items() if name != DESCRIPTION}
    fields |= {DESCRIPTION: text} if text else {}
    memory.store.records.apply([[SetFolderOptions(root, fields)]])
    return _folder(memory.store, root, fields)


def remove(memory: Memory, path: str) -> IndexedFolder:
    """Remove a folder, with all in it, from the index, whether or not it is there. Its files are not touched."""
    from recollect.ingest.folder import chunk_changes  # servers for agents need the descriptions only

    store = memory.store
    root, options = _known(store, path)
    folder = _folder(store, root, options or {})
    changes: list[Change] = [SetFolderOptions(inner, None) for inner in _inside(store, root)]
    for file in store.files.known(root):
        changes += [*chunk_changes(store.files.chunks(file), ()), SetFileState(file, None)]
    store.records.apply([changes])  # in one transaction: if it is interrupted, it can be repeated
    return folder


def rename(memory: Memory, old: str, new: str) -> IndexedFolder:
    """Let an indexed folder have a new path, with all its files and chunks. Nothing is read or embedded again."""
    from recollect.ingest.forgetting import stay_forgotten  # as above

    store = memory.store
    root, options = _known(store, old)
    place, states = _absolute(new), store.files.known(root)
    if not Path(place).exists():
        raise UsageError(f"{new} is not there", hint="move the folder first, or name where it is now")
    if place in store.files.roots() or store.files.known(place).keys() - states.keys():
        raise UsageError(f"{new} is indexed already", hint=f"`recollect folders remove {old}` removes the old one")
    if Path(root).is_dir() and Path(place).is_relative_to(root):
        raise UsageError(f"{new} is inside {old}", hint="index the part as a folder of its own")

    def moved(path: str) -> str:
        # The root of a file lies outside the renamed folder if an outer folder is indexed, too.
        return str(Path(place, Path(path).relative_to(root))) if Path(path).is_relative_to(root) else place

    inside = _inside(store, root).items()
    # All old paths go first: one of them may be the new path of another file.
    changes: list[Change] = [SetFolderOptions(folder, None) for folder, _ in inside]
    changes += [SetFileState(file, None) for file in states]
    changes += [SetFolderOptions(moved(folder), options) for folder, options in inside if options is not None]
    for file, state in states.items():
        there = replace(state, path=moved(file), root=moved(state.root))
        changes += [Put(replace(chunk, path=there.path)) for chunk in store.files.chunks(file)]
        changes += stay_forgotten(store.files.chunks(file, forgotten=True), (), there.path)
        changes.append(SetFileState(there.path, there))
    store.records.apply([changes])  # in one transaction: if it is interrupted, it can be repeated
    return _folder(store, place, options or {})


def _inside(store: Store, root: str) -> dict[str, Mapping[str, Any] | None]:
    """An indexed folder and the indexed folders inside it, with their options."""
    roots = store.files.roots()
    return {inner: options for inner, options in roots.items() if Path(inner).is_relative_to(root)}


def _known(store: Store, path: str) -> tuple[str, Mapping[str, Any] | None]:
    """The indexed folder that a path names, with its options."""
    roots = store.files.roots()
    for root in (_absolute(path), path.rstrip("/")):
        if root in roots:
            return root, roots[root]
    around = [root for root in roots if Path(_absolute(path)).is_relative_to(root)]
    hint = "`recollect folders` lists the indexed folders"
    if around:
        hint = f"it is part of the indexed folder {max(around, key=len)}; a line in .recollectignore leaves it out"
    raise UsageError(f"{path} is not an indexed folder", hint=hint)


def _absolute(path: str | Path) -> str:
    """A path as `index` stores it, also of a folder that is gone."""
    return os.path.realpath(at_home(path))
