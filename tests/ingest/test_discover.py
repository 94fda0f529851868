"""Which files are read: ignore files as in Git, nothing hidden, no secret, nothing outside the folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from recollect.ingest.discovery import resolve_roots, walk


def names(root: Path, **patterns: tuple[str, ...]) -> list[str]:
    """The files that a walk finds, relative to the root."""
    result = walk(resolve_roots([root]), **patterns)
    return [os.path.relpath(file.path, root) for file in result.files]


def make(root: Path, files: dict[str, str]) -> None:
    """Files with their content; folders as needed."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


TREE = {
    ".gitignore": "*.log\nbuild/\n/top.md\n!keep.log\ndocs/**/draft.md\n\\#odd.md\nspace.md   \n[\n",
    "a.md": "a",
    "top.md": "a",
    "sub/top.md": "a",
    "x.log": "a",
    "keep.log": "a",
    "sub/y.log": "a",
    "build/in.md": "a",
    "sub/build/in.md": "a",
    "docs/draft.md": "a",
    "docs/a/b/draft.md": "a",
    "docs/a/final.md": "a",
    "#odd.md": "a",
    "space.md": "a",
    "sub/.gitignore": "!y.log\n*.txt\n/deep/\n",
    "sub/b.txt": "a",
    "b.txt": "a",
    "sub/deep/c.md": "a",
    "sub/more/deep/c.md": "a",
    "sub/more/.gitignore": "!b.txt\n",
    "sub/more/b.txt": "a",
}


@pytest.mark.skipif(not shutil.which("git"), reason="Git is not installed")
def test_ignore_files_are_read_as_git_reads_them(tmp_path: Path) -> None:
    """Anchors, folders, `**`, negation, escapes, nested files and a broken line: the same files as `git ls-files`."""
    make(tmp_path, TREE)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    command = ["git", "-C", str(tmp_path), "-c", "core.quotePath=false", "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert names(tmp_path) == sorted(name for name in listed if not Path(name).name.startswith("."))


def test_recollectignore_takes_precedence(tmp_path: Path) -> None:
    """It excludes what Git includes, and includes what Git excludes."""
    make(tmp_path, {".gitignore": "private.md\n", ".recollectignore": "public.md\n!private.md\n"})
    make(tmp_path, {"private.md": "a", "public.md": "a", "other.md": "a"})
    assert names(tmp_path) == ["other.md", "private.md"]


def test_a_folder_inside_a_repository_inherits_its_ignore_files(tmp_path: Path) -> None:
    """Up to the top of the repository, and not beyond."""
    make(
        tmp_path, {".gitignore": "*.md\n", "repo/.gitignore": "*.log\n", "repo/docs/a.md": "a", "repo/docs/b.log": "a"}
    )
    (tmp_path / "repo" / ".git").mkdir()
    assert names(tmp_path / "repo" / "docs") == ["a.md"]


def test_newly_ignored_files_leave_the_index(memory, notes):
    """Files that an ignore file now excludes are forgotten; unreadable ones are not."""
    make(notes, {"a.md": "Tea.", "diary/b.md": "Secret walrus."})
    memory.index(notes)
    (notes / ".recollectignore").write_text("diary/\n")
    assert memory.index(notes).removed == [str(notes / "diary" / "b.md")]
    assert not memory.search("walrus", sources=["keyword"]).results


def test_hidden_files_and_secrets_are_excluded(tmp_path: Path) -> None:
    """By name, and by the first line of a private key; a note about keys is indexed."""
    make(tmp_path, dict.fromkeys((".env", "prod.env", "server.pem", "id_rsa", "id_work", "x.key", ".hidden/a.md"), "x"))
    make(tmp_path, dict.fromkeys(("id_generator.py", "environment.md", "id_rsa.md", "monkey.txt"), "x"))
    assert names(tmp_path) == ["environment.md", "id_generator.py", "id_rsa.md", "monkey.txt"]


def test_private_key_under_any_name_is_excluded(memory, notes):
    """By its content."""
    make(notes, {"backup.txt": "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\n", "a.md": "-----BEGIN a talk-----\n"})
    report = memory.index(notes)
    assert report.skipped == {str(notes / "backup.txt"): "may hold secrets"}
    assert report.added == [str(notes / "a.md")]


SECRET_NAMES = (
    ".env", ".env.local", "prod.env", "server.pem", "x.key", "id_ed25519", "id_rsa.pub", ".netrc", ".pgpass",
    "credentials", "credentials.json", "service-account-prod.json", "vault.kdbx", "a.p12", "b.pfx", "c.ppk", ".npmrc",
    ".pypirc", "terraform.tfstate", "Credentials.JSON", ".git-credentials",
)  # fmt: skip
ORDINARY_NAMES = (
    "credentials-policy.md", "environment.md", "id_rsa.md", "keys.md", "monkey.txt", "identity.py",
    "service-accounts.md", "env.md", "pem.txt", "secrets.md", "netrc.md", "passwords.txt",
)  # fmt: skip


def test_files_that_may_hold_secrets_are_skipped_with_the_reason(memory, notes):
    """Also hidden ones, and each is in the report; notes about keys and passwords are indexed."""
    make(notes, dict.fromkeys((*SECRET_NAMES, *ORDINARY_NAMES, ".hidden.md", "sub/deep/.env"), "walrus"))
    report = memory.index(notes)
    secret = {str(notes / name): "may hold secrets" for name in (*SECRET_NAMES, "sub/deep/.env")}
    assert report.skipped == secret
    assert report.added == sorted(str(notes / name) for name in ORDINARY_NAMES)


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        ("*.env", [".env", "prod.env"]),
        (".env", [".env"]),
        ("sub/*.pem", ["sub/a.pem"]),
        ("*", ["a.md"]),
        ("sub/", []),
        ("**/*", ["a.md"]),
    ],
)
def test_pattern_that_names_secrets_includes_them(tmp_path: Path, include: str, expected: list[str]) -> None:
    """A pattern that only means every file, or a folder, does not."""
    make(tmp_path, dict.fromkeys((".env", "prod.env", "sub/a.pem", "a.md"), "x"))
    assert names(tmp_path, include=(include,)) == expected


def test_named_file_is_indexed_whatever_it_holds(memory, notes):
    """The user asks for this very file."""
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\n"
    make(notes, {"prod.env": "COLOUR=walrus", "backup.txt": key})
    report = memory.index([notes / "prod.env", notes / "backup.txt"])
    assert len(report.added) == 2
    assert memory.search("walrus", sources=["keyword"]).results


def test_indexed_files_that_may_hold_secrets_leave_the_index_without_confirm(memory, notes):
    """However many they are, as with files that an ignore file excludes."""
    files = [f"n{number}.env" for number in range(30)]
    make(notes, {**dict.fromkeys(files, "walrus"), "a.md": "Tea."})
    memory.index([notes / name for name in files])
    report = memory.index(notes)
    assert report.removed == sorted(str(notes / name) for name in files)
    assert report.unconfirmed == []
    assert not memory.search("walrus", sources=["keyword"]).results


def test_include_and_exclude_have_ignore_file_syntax(tmp_path: Path) -> None:
    """Names anywhere, folders by a slash, several of each."""
    make(tmp_path, dict.fromkeys(("a.md", "b.txt", "src/c.py", "src/d.md", "old/e.md"), "x"))
    assert names(tmp_path, include=("*.md", "*.py")) == ["a.md", "old/e.md", "src/c.py", "src/d.md"]
    assert names(tmp_path, include=("src/",)) == ["src/c.py", "src/d.md"]
    assert names(tmp_path, exclude=("old/", "*.txt")) == ["a.md", "src/c.py", "src/d.md"]
    assert names(tmp_path, include=("*.md",), exclude=("/a.md",)) == ["old/e.md", "src/d.md"]


def test_file_name_that_is_not_unicode_is_reported(memory, notes):
    """It cannot be stored; the rest is indexed."""
    with open(os.fsencode(notes) + b"/caf\xe9.md", "w") as file:  # noqa: PTH123  (a name of bytes)
        file.write("x")
    make(notes, {"a.md": "Tea."})
    report = memory.index(notes)
    assert report.skipped == {f"{notes}/caf\\xe9.md": "a name that is not UTF-8"}
    assert len(report.added) == 1
