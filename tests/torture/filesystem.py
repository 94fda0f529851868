"""Someone who changes a folder at random while it is watched, and what must be in the index then (test_watcher.py).

Run as a program, it drops root's rights, for which no file is unreadable, watches a folder in a thread, changes it, and
compares the index with a new one at every quiet point. It prints a report as one line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from recollect import Memory
from recollect.config import Settings
from recollect.ingest.folder import Report
from recollect.ingest.watch import Pass, watch

NOBODY = 65534
MOST_VANISHED = 18  # between two quiet points: 21 files that vanish at once are taken for a missing disk
FILES = (50, 90)  # the number of files stays between these
PATIENCE_SECONDS = 90.0
IGNORE = (".gitignore", ".recollectignore")
SETTLED = "settled.md"  # written at quiet points, to cause a pass
NAMES = [f"{word}.md" for word in ("tea", "oar", "reed", "lake", "boat", "dawn", "moss", "fern")] + [
    "log.txt",
    "a b.md",
]
FOLDERS = ["work", "home", "drafts", "old", "ünï"]


class Folder:
    """A folder of notes that changes at random; `closed` has what may not be read, with the lines of ignore files."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.root, self.chance = root, chance
        self.closed: dict[Path, str] = {}
        self.written: dict[str, set[str]] = {}
        self.left: set[str] = set()
        self.ignored: set[str] = set()
        self.journal: list[str] = []
        self.counts: Counter[str] = Counter()
        self.vanished = self.number = 0

    # -- what is there --------------------------------------------------------------------------------------

    def entries(self) -> tuple[list[Path], list[Path]]:
        """The folders, the root first, and the files that can be reached."""
        folders, files = [], []
        for place, below, names in os.walk(self.root):
            if Path(place) in self.closed:
                below.clear()
                continue
            folders.append(Path(place))
            files += [Path(place) / name for name in names if name not in (*IGNORE, SETTLED)]
        return folders, files

    def open_files(self) -> list[Path]:
        return [path for path in self.entries()[1] if path not in self.closed and not path.is_symlink()]

    def new_path(self) -> Path:
        """A path for a file, in a folder that may be new; what is there may be replaced."""
        folder = self.chance.choice(self.entries()[0])
        if self.chance.random() < 0.2 and len(folder.relative_to(self.root).parts) < 4:
            folder /= self.chance.choice(FOLDERS)
        if folder in self.closed or folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            folder = self.root
        folder.mkdir(exist_ok=True)
        self.number += 1
        name = self.chance.choice([*NAMES, f"n{self.number}.md", f"n{self.number}.md", f"n{self.number}.md"])
        return folder / name

    def holds_closed(self, folder: Path) -> bool:
        return any(path.is_relative_to(folder) for path in self.closed)

    def journal_of(self, path: Path) -> list[str]:
        """The changes since the last quiet point that name a path or a folder above it."""
        names = [f" {place}" for place in (path, *path.parents) if place.is_relative_to(self.root)]
        return [line for line in self.journal if any(name in line for name in names[:-1]) or "root" in line]

    def forget_changes(self, indexed: Iterable[str]) -> None:
        """At a quiet point: only what happened to files that cannot be read now may still come into the index.

        A file may have been edited, deleted or ignored before it was closed, and be read before it is closed again.
        """
        paths = {path for path in (*indexed, *self.written, *self.left) if self.is_covered(Path(path))}
        self.left = {path for path in paths if path in self.left or self.may_be_ignored(Path(path))}
        self.written = {path: texts for path, texts in self.written.items() if path in paths}
        self.journal.clear()
        self.ignored, self.vanished = set(), 0

    # -- changes --------------------------------------------------------------------------------------------

    def change(self) -> None:
        """One change of a random kind; what makes a file vanish only as often as a working disk does."""
        vanishing = (
            self.delete, self.rename, self.rename_folder, self.delete_folder, self.swap_folder, self.distort,
        )  # fmt: skip
        others = (self.write, self.write, self.edit, self.edit, self.replace, self.touch, self.close, self.close_folder,
                  self.reopen, self.reopen, self.ignore, self.close_ignore, self.replace_root)  # fmt: skip
        count = len(self.entries()[1])
        kinds = others if self.vanished >= MOST_VANISHED or count < FILES[0] else (*others, *vanishing)
        kind = self.chance.choice((*vanishing, self.edit) if count > FILES[1] and kinds != others else kinds)
        if kind() is not False:
            self.counts[kind.__name__] += 1
            self.counts["ops"] += 1

    def put(self, path: Path, *, through: Path | None = None) -> bool:
        if path.is_symlink() or path.is_dir() or (path.exists() and not path.is_file()):
            return False
        self.number += 1
        text = f"The heron number {self.number} stands in the reeds."
        content = f"# {path.stem}\n\n{text}\n" if path.suffix == ".md" else text
        self.journal.append(f"put {path} {self.number}")
        (through or path).write_text(content)
        if through:
            through.replace(path)
            self.closed.pop(path, None)
        else:
            self.left.add(str(path))  # it was empty for a moment, and what is empty is not indexed
        self.written.setdefault(str(path), set()).add(text)
        return True

    def write(self) -> bool:
        path = self.new_path()
        return path not in self.closed and self.put(path)

    def edit(self) -> bool:
        files = self.open_files()
        return bool(files) and self.put(self.chance.choice(files))

    def replace(self) -> bool:
        path = self.chance.choice(self.entries()[1] or [self.root])
        return path != self.root and self.put(path, through=path.with_name(f".{path.name}.tmp"))

    def touch(self) -> bool:
        files = self.open_files()
        if files:
            self.chance.choice(files).touch()
        return bool(files)

    def delete(self) -> bool:
        files = self.entries()[1]
        if files:
            path = self.chance.choice(files)
            self.leave(path)
            path.unlink()
            self.closed.pop(path, None)
        return bool(files)

    def leave(self, place: Path) -> None:
        """Note that a file, or a folder with its files, is about to vanish."""
        self.journal.append(f"leave {place}")
        paths = [Path(folder) / name for folder, _, names in os.walk(place) for name in names] or [place]
        self.left |= set(map(str, paths))
        self.vanished += len(paths)

    def rename(self) -> bool:
        files, target = self.open_files(), self.new_path()
        if not files or target in self.closed or target.is_symlink() or target.is_dir():
            return False
        path = self.chance.choice(files)
        if path.is_file():  # a pipe would be waited for
            self.written.setdefault(str(target), set()).add(path.read_text().rpartition("\n\n")[2].strip())
        self.leave(path)
        self.journal.append(f"rename {path} to {target}")
        path.replace(target)
        return True

    def small_folder(self) -> Path | None:
        """A folder below the root with few files, all of which can be read."""
        small = [
            folder for folder in self.entries()[0][1:]
            if not self.holds_closed(folder) and sum(len(names) for _, _, names in os.walk(folder)) <= 6
        ]  # fmt: skip
        return self.chance.choice(small) if small else None

    def rename_folder(self) -> bool:
        folder = self.small_folder()
        target = folder and folder.with_name(self.chance.choice([*FOLDERS, f"f{self.number}"]))
        if not folder or target.is_symlink() or target.exists():  # a link may lead into a closed folder
            return False
        self.leave(folder)
        self.journal.append(f"rename {folder} to {target}")
        folder.rename(target)
        return True

    def delete_folder(self) -> bool:
        folder = self.small_folder()
        if folder:
            self.leave(folder)
            shutil.rmtree(folder)
        return bool(folder)

    def swap_folder(self) -> bool:
        """A folder is replaced by a new one, or by a file of its name."""
        folder = self.small_folder()
        if not folder:
            return False
        self.leave(folder)
        aside = self.root.with_name("aside")
        folder.rename(aside)
        if self.chance.random() < 0.7:
            folder.mkdir()
            self.put(folder / self.chance.choice(NAMES))
        else:
            self.put(folder)
        shutil.rmtree(aside)
        return True

    def distort(self) -> bool:
        """A file becomes something that is not indexed."""
        files = self.open_files()
        if not files:
            return False
        path = self.chance.choice(files)
        self.leave(path)
        path.unlink()
        kind = self.chance.choice(["binary", "empty", "pipe", "link", "folder", "broken"])
        if kind == "pipe":
            os.mkfifo(path)
        elif kind in ("link", "broken"):
            path.symlink_to(self.chance.choice(files) if kind == "link" else "nowhere")
        elif kind == "folder":
            path.mkdir()
        else:
            path.write_bytes(b"\0\1\2" if kind == "binary" else b"")
        return True

    def close(self) -> bool:
        files = [path for path in self.open_files() if path.is_file()]
        if not files or len(self.closed) > 8:
            return False
        path = self.chance.choice(files)
        self.journal.append(f"close {path}")
        path.chmod(0)
        self.closed[path] = ""
        return True

    def close_folder(self) -> bool:
        folders = [folder for folder in self.entries()[0][1:] if not self.holds_closed(folder)]
        if not folders or len(self.closed) > 8:
            return False
        folder = self.chance.choice(folders)
        self.journal.append(f"close {folder}")
        self.closed[folder] = "*" if any(folder.rglob(".*ignore")) else ""
        folder.chmod(self.chance.choice([0, 0o100, 0o400, 0o200]))
        return True

    def close_ignore(self) -> bool:
        ignores = [folder / name for folder in self.entries()[0] for name in IGNORE if (folder / name).exists()]
        ignores = [path for path in ignores if path not in self.closed]
        if not ignores or self.chance.random() < 0.7:
            return False
        path = self.chance.choice(ignores)
        self.journal.append(f"close {path}")
        self.closed[path] = path.read_text()
        path.chmod(0)
        return True

    def reopen(self) -> bool:
        if not self.closed:
            return False
        path = self.chance.choice(list(self.closed))
        self.journal.append(f"open {path}")
        path.chmod(0o700)
        del self.closed[path]
        return True

    def ignore(self) -> bool:
        """An ignore file is written, in place or through a rename, or deleted."""
        folder = self.chance.choice(self.entries()[0])
        path = folder / self.chance.choice(IGNORE)
        if path in self.closed:
            return False
        exists = path.exists()
        if exists:
            self.ignored |= {line.rstrip("/") for line in path.read_text().splitlines()}
        if exists and self.chance.random() < 0.6:
            self.journal.append(f"delete {path}")
            path.unlink()
            return True
        names = self.chance.sample([*NAMES[:4], "drafts/", "old/", f"n{self.chance.randrange(1 + self.number)}.md"], 2)
        aside = self.root.with_name("ignore.tmp") if self.chance.random() < 0.5 else path
        self.ignored |= {name.rstrip("/") for name in names}
        self.journal.append(f"ignore {path}: {names}")
        aside.write_text("\n".join(names) + "\n")
        aside.replace(path)
        return True

    def replace_root(self) -> bool:
        """The watched folder itself is exchanged for a copy, now and then."""
        if self.chance.random() > 0.05:
            return False
        while self.closed:
            self.reopen()
        aside, copy = self.root.with_name("aside"), self.root.with_name("copy")
        with contextlib.suppress(shutil.Error):  # a pipe is not copied
            shutil.copytree(self.root, copy, symlinks=True, ignore=_pipes)
        self.journal.append("replace the root")
        self.root.rename(aside)
        copy.rename(self.root)
        shutil.rmtree(aside)
        return True

    # -- what must be in the index --------------------------------------------------------------------------

    def is_covered(self, path: Path) -> bool:
        """Whether a file cannot be read now: itself, a folder above it, or an ignore file that decides about it."""
        for place in (path, *path.parents):
            if place in self.closed or any(place / name in self.closed for name in IGNORE):
                return True
        return False

    def may_be_ignored(self, path: Path) -> bool:
        """Whether any ignore file above a file has, or had since the last quiet point, a name of its path."""
        parts = set(path.relative_to(self.root).parts)
        if parts & self.ignored:
            return True
        for folder in path.parents:
            if not folder.is_relative_to(self.root):
                break
            for name in IGNORE:
                lines = self.closed.get(folder / name, "")
                with contextlib.suppress(OSError):
                    lines += (folder / name).read_text()
                if parts & {line.rstrip("/") for line in lines.splitlines()}:
                    return True
            if self.closed.get(folder) == "*":
                return True
        return False


def _pipes(place: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(place) / name).is_fifo()]


Chunks = dict[str, list[tuple[object, ...]]]


def chunks(memory: Memory) -> Chunks:
    """The chunks of an index by path: text, lines and, where the text has one, the title."""
    found: Chunks = {}
    for record in memory.list(limit=100_000):
        title = (
            record.title if record.lines != (1, 1) else ""
        )  # a moved text without a title keeps that of its old name
        found.setdefault(record.path, []).append((record.text, record.lines, title))
    return {path: sorted(parts, key=repr) for path, parts in found.items()}


def fresh(root: Path) -> Chunks:
    """What a new index of the folder has."""
    with Memory.open(":memory:", embedder="none", settings=Settings()) as memory:
        memory.index(root)
        return chunks(memory)


class Experiment:
    """A watcher, the one who changes the folder, and the comparisons."""

    def __init__(self, place: Path, seed: int) -> None:
        self.root, self.store = place / "notes", place / "store.db"
        self.chance = random.Random(seed)
        self.folder = Folder(self.root, self.chance)
        self.passes: list[Pass] = []
        self.stop = threading.Event()
        self.counts: Counter[str] = Counter()
        self.before: Chunks = {}
        self.last_started = 0.0

    def watch(self) -> None:
        """Follow the folder until the end."""
        with Memory.open(self.store, embedder="hashing:64", settings=Settings()) as memory:
            options = {"quiet_ms": 20, "stop": self.stop, "announce": lambda _: None, "ignore": self.store}
            started = 0.0

            def index(root: Path) -> Report:
                nonlocal started
                started = time.monotonic()
                return memory.index(root)

            for done in watch([self.root], index, **options):
                self.passes.append(done)
                self.last_started = started

    def run(self, ops: int, seconds: float) -> Iterator[str]:
        """Change and compare until so many changes are made or the time is up; yields what is wrong."""
        end = time.monotonic() + seconds
        thread = threading.Thread(target=self.watch, daemon=True)
        thread.start()
        with Memory.open(self.store, embedder="none", settings=Settings()) as memory:
            while self.folder.counts["ops"] < ops and time.monotonic() < end:
                for _ in range(self.chance.randint(1, 120)):
                    self.folder.change()
                    time.sleep(self.chance.choice([0, 0, 0, 0, 0.001, 0.005]))
                yield from self.compare(memory)
        self.stop.set()
        thread.join(30)

    def compare(self, memory: Memory) -> Iterator[str]:
        """At a quiet point the index is that of the folder, and unreadable files still have their records."""
        wanted, end = self.readable(fresh(self.root)), time.monotonic() + PATIENCE_SECONDS
        while self.readable(found := chunks(memory)) != wanted:
            if time.monotonic() > end:
                paths = [path for path in {**found, **wanted} if self.readable(found).get(path) != wanted.get(path)]
                last = f"{time.monotonic() - self.last_started:.1f} s after {self.passes[-1]}"
                for path in paths[:3]:
                    journal = self.folder.journal_of(Path(path))
                    yield f"{path}: {found.get(path)} in place of {wanted.get(path)}; {last}; {journal}"
                return
            time.sleep(0.02)
        self.settle()
        if (wanted := self.readable(fresh(self.root))) != self.readable(found := chunks(memory)):
            yield f"a further pass changed the index: {set(map(str, found.items())) ^ set(map(str, wanted.items()))}"
        yield from self.lost(found)
        self.counts["points"] += 1
        self.counts["files"] += len(found)
        self.counts["unreadable"] += sum(self.folder.is_covered(Path(path)) for path in found)
        self.before = found
        self.folder.forget_changes(found)

    def settle(self) -> None:
        """Wait for the end of a pass that began after the last change: none that began before is left to write."""
        written, end = math.inf, 0.0
        while self.last_started <= written:
            if time.monotonic() > end:  # again, because a pass may have begun before the time was noted
                (self.root / SETTLED).write_text(f"settled {time.monotonic()}")
                written = time.monotonic()
                end = written + 1
            time.sleep(0.005)

    def readable(self, found: Chunks) -> Chunks:
        return {path: parts for path, parts in found.items() if not self.folder.is_covered(Path(path))}

    def lost(self, found: Chunks) -> Iterator[str]:
        """Records of files that cannot be read now, and that are missing or of no text that the file ever had."""
        for path, parts in self.before.items():
            place = Path(path)
            if not self.folder.is_covered(place) or self.folder.may_be_ignored(place):
                continue
            if place.name == SETTLED or path in self.folder.left or is_gone(place):
                continue
            self.counts["checked_unreadable"] += 1
            known = {text for text, *_ in parts} | self.folder.written.get(path, set())
            texts = {text for text, *_ in found.get(path, [])}
            if not texts or not texts <= known:
                yield f"{path} cannot be read; {texts} in place of {known}; {self.folder.journal_of(place)}"


def is_gone(path: Path) -> bool:
    """Whether a file was deleted, or replaced by what is not indexed, where that can be seen."""
    try:
        return path.is_symlink() or not path.is_file() or path.stat().st_size == 0 or b"\0" in path.read_bytes()
    except PermissionError:
        return False
    except OSError:
        return True


def main() -> None:
    """Drop root's rights once everything is loaded, run, and print the report."""
    place, ops, seconds, seed = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    warm = Experiment(place / "warm", seed)
    warm.root.mkdir(parents=True)
    (warm.root / "a.md").write_text("---\na: 1\n---\nx")
    (warm.root / ".gitignore").write_text("z")
    list(warm.run(20, 60))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    experiment = Experiment(place, seed)
    faults: list[str] = []
    for fault in experiment.run(ops, seconds):
        faults.append(fault[:2000])
        if len(faults) >= 3:
            break
    errors = Counter(done.error.message for done in experiment.passes if done.error)
    kinds = dict(experiment.folder.counts)
    report = {**experiment.counts, "kinds": kinds, "passes": len(experiment.passes), "errors": errors, "faults": faults}
    print(json.dumps(report), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
