"""Ignore files are untrusted: they are read as Git reads them, within limits, and never for long."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect import Memory
from recollect.ingest.discovery import Walk, walk

NAMES = (
    "a", "b", "ab", "abc", "a.md", "b.md", "foo", "bar", "foo.bar", "a b", "-", "]", "[", "*", "!x", "#x", "A", "a-b",
)  # fmt: skip
GLOBS = (
    "a", "b", "c", ".md", "*", "*", "?", "[ab]", "[!a]", "[^b]", "[a-c]", "[]a]", "[!]a]", "[[:alpha:]]", "[a",
    "[[:digit:][:upper:]]", "\\*", "\\?", "\\[", "\\a", "foo", "bar", ".", "[a-]", "[-a]", "[\\]a]", "[c-a]",
    "[[:bad:]]", "[[a]", "[[:a]", " ", "-", "\\", "]", "[a\\-c]", "**",
)  # fmt: skip
ODD = ("", "/", "!", "//", "**/", "/**", "!/", "a//b", "\\", "\\/", "***", "#a", "a  ", "a\\ ", "a\t", "a \\ ")
UNCLEAR = re.compile(r"[^/*]\*\*+(/|$|\\/|\s)|\*\*+\\/")
"""Two stars after a letter and before a slash: Git's own versions differ, by an accident of memory."""


def seen(root: Path, **patterns: tuple[str, ...]) -> Walk:
    """What a walk finds."""
    return walk([root], **patterns)


def names(found: Walk, root: Path) -> list[str]:
    """The files worth reading, below the root."""
    return [os.path.relpath(place.path, root) for place in found.files]


def some_name(chance: random.Random) -> str:
    return chance.choice(NAMES) if chance.random() < 0.7 else "x" + "".join(chance.choices("ab.c-", k=3)) + "_"


def some_pattern(chance: random.Random) -> str:
    """A line of an ignore file, as odd as people and attackers write them."""
    if chance.random() < 0.1:
        return chance.choice(ODD)
    parts = [
        chance.choice(("**", "***", "*", "".join(chance.choices(GLOBS, k=chance.randrange(1, 5))), some_name(chance)))
        for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 4)))
    ]
    ends = [chance.random() < 0.25 for _ in range(3)]
    pattern = "!" * ends[0] + "/" * ends[1] + "/".join(parts) + "/" * ends[2]
    return "" if UNCLEAR.search(pattern) else pattern


def grow(folder: Path, chance: random.Random) -> Iterator[str]:
    """Files with random names, some of them in folders."""
    for _ in range(25):
        path = folder / "/".join(some_name(chance) for _ in range(chance.choice((1, 1, 2, 2, 3, 4))))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("a")
        except OSError:  # a file is where a folder should be, or the other way round
            continue
        yield str(path)


@pytest.mark.skipif(not shutil.which("git"), reason="Git is not installed")
@pytest.mark.parametrize("seed", range(4))
def test_random_patterns_exclude_what_git_check_ignore_names(tmp_path: Path, seed: int) -> None:
    """Sets, ranges, classes, escapes, anchors, `**` and negation, in 60 folders."""
    chance = random.Random(seed)
    files: list[str] = []
    for number in range(60):
        folder = tmp_path / f"case{number}"
        folder.mkdir()
        patterns = [some_pattern(chance) for _ in range(chance.choice((1, 2, 4)))]
        (folder / ".gitignore").write_text("\n".join(patterns) + "\n")
        files += grow(folder, chance)
    files = sorted(set(files))
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    command = ["git", "-C", str(tmp_path), "check-ignore", "-z", "--stdin", "--no-index"]
    answer = subprocess.run(command, input="\0".join(files), capture_output=True, text=True, check=False).stdout
    ignored = set(answer.split("\0"))
    assert len(files) > 500
    assert 100 < len(ignored & set(files)) < len(files) - 100
    assert [place.path for place in seen(tmp_path).files] == [path for path in files if path not in ignored]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "pattern",
    ["*a" * 24 + "*b", "**/" + "*a*/**/" * 12 + "b", "[!b]*" * 20 + "c"],
    ids=["stars", "folders", "sets"],
)
def test_no_pattern_is_slow(tmp_path: Path, pattern: str) -> None:
    """Patterns that make a backtracking matcher explode cost little, in files and on the command line."""
    deep = tmp_path.joinpath(*["a" * 10] * 20)
    deep.mkdir(parents=True)
    (deep / ("a" * 200 + ".md")).write_text("a")
    start = time.process_time()
    assert len(seen(tmp_path, exclude=(pattern,)).files) == 1
    (tmp_path / ".gitignore").write_text(pattern)
    assert len(seen(tmp_path).files) == 1
    assert time.process_time() - start < 5


@pytest.mark.ci
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "pattern", ["name{}.log", "*.x{}", "n*b{}*c?.md", "/d{}/x*/y", "**/d{}*/*y", "*a" * 100 + "*" + "a" * 50 + "b{}"]
)
def test_nine_thousand_patterns_do_not_hold_up_a_folder(tmp_path: Path, pattern: str) -> None:
    """Reading them, or as many as fit, and matching ten files takes less than a second of processor time a file."""
    patterns = "\n".join(pattern.format(number) for number in range(9_000))
    (tmp_path / ".gitignore").write_text(patterns[: 128 * 1024])
    for number in range(10):
        (tmp_path / f"name{number}.md").write_text("a")
    start = time.process_time()
    assert len(seen(tmp_path).files) == 10
    assert time.process_time() - start < 10


def many(count: int) -> bytes:
    return b"secret.md\n" + b"\n" * (count - 1)


@pytest.mark.parametrize("name", [".gitignore", ".recollectignore"])
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"secret.md\n" + b" " * 128 * 1024, "larger than 128 KiB"),
        (many(50_001), "more than 50,000 lines"),
        (b"secret.md\n" + b"x" * 5000, "a line longer than 4,096 characters"),
    ],
    ids=["size", "lines", "line"],
)
def test_folder_with_an_ignore_file_beyond_the_limits_is_not_read(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    """Files it may exclude are not indexed; the folders beside it are."""
    for folder in ("closed", "open"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "secret.md").write_text("a")
    (tmp_path / "closed" / name).write_bytes(content)
    found = seen(tmp_path)
    assert names(found, tmp_path) == ["open/secret.md"]
    assert found.skipped == {str(tmp_path / "closed" / name): f"{reason}; its folder was not read"}


def test_huge_ignore_file_is_not_read_into_memory(tmp_path: Path) -> None:
    """Three gigabytes are refused after the first block."""
    with (tmp_path / ".gitignore").open("wb") as file:
        file.truncate(3 * 1024**3)
    (tmp_path / "a.md").write_text("a")
    assert seen(tmp_path).skipped == {str(tmp_path / ".gitignore"): "larger than 128 KiB; its folder was not read"}


@pytest.mark.timeout(60)
def test_ignore_files_are_not_read_through_links_or_pipes(tmp_path: Path) -> None:
    """A link or a pipe closes its folder; a folder of that name has no effect."""
    for folder in ("link", "nowhere", "pipe", "folder"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.md").write_text("a")
    (tmp_path / "rules").write_text("zzz\n")
    (tmp_path / "link" / ".gitignore").symlink_to(tmp_path / "rules")
    (tmp_path / "nowhere" / ".gitignore").symlink_to(tmp_path / "missing")
    os.mkfifo(tmp_path / "pipe" / ".gitignore")
    (tmp_path / "folder" / ".gitignore").mkdir()
    found = seen(tmp_path)
    assert names(found, tmp_path) == ["folder/a.md", "rules"]
    assert {os.path.relpath(path, tmp_path): reason for path, reason in found.skipped.items()} == {
        "link/.gitignore": "a link, which is not followed; its folder was not read",
        "nowhere/.gitignore": "a link, which is not followed; its folder was not read",
        "pipe/.gitignore": "not a file; its folder was not read",
    }


def test_unusable_ignore_file_above_the_root_closes_it(tmp_path: Path) -> None:
    """The rules of a repository apply to a folder inside it."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("a")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").symlink_to(docs / "a.md")
    found = seen(docs)
    assert found.files == []
    assert list(found.skipped) == [str(tmp_path / ".gitignore")]


def test_folder_ignored_by_its_repository_is_not_read(tmp_path: Path) -> None:
    """Also if it is named itself, and whatever the files inside it say."""
    build = tmp_path / "build" / "deep"
    build.mkdir(parents=True)
    (build / "a.md").write_text("a")
    (build / ".gitignore").write_text("!a.md\n")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("build/\n")
    assert seen(build).files == []


def test_lines_end_as_in_git(tmp_path: Path) -> None:
    """With a newline, or a carriage return before it; a byte order mark is ignored."""
    (tmp_path / ".gitignore").write_bytes("\ufeffa.md\r\nb\u2028c.md\nd.md".encode())
    for name in ("a.md", "b\u2028c.md", "c.md", "d.md"):
        (tmp_path / name).write_text("a")
    assert names(seen(tmp_path), tmp_path) == ["c.md"]


def test_indexed_files_stay_while_an_ignore_file_is_unusable(memory: Memory, notes: Path) -> None:
    """They are not forgotten because of a broken rule; deleted ones are."""
    for name in ("a.md", "b.md"):
        (notes / name).write_text(f"Walrus {name}")
    memory.index(notes)
    (notes / ".gitignore").write_bytes(many(50_001))
    (notes / "b.md").unlink()
    (notes / "new.md").write_text("Walrus new")
    report = memory.index(notes)
    assert (report.added, report.removed) == ([], [str(notes / "b.md")])
    assert [record.path for record in memory.list()] == [str(notes / "a.md")]
