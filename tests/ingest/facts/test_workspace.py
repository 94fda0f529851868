from __future__ import annotations

import os

import pytest

from recollect.errors import UsageError
from recollect.ingest.facts import expand, read_for_facts
from recollect.ingest.readers.worker import Worker


def test_globs_select_files_once_and_in_order(workspace):
    """In the order of the globs, each once; folders are ignored."""
    for name in ("skills/b/SKILL.md", "skills/a.md", "TOOLS.md", "other.md", "skills/x.txt"):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(name)
    (workspace / "skills" / "folder.md").mkdir()
    files, skipped = expand(workspace, ["TOOLS.md", "skills/**/*.md", "*.md"])
    assert [path.relative_to(workspace).as_posix() for path in files] == [
        "TOOLS.md",
        "skills/a.md",
        "skills/b/SKILL.md",
        "other.md",
    ]
    assert skipped == {}


def test_link_out_of_the_workspace_is_refused(workspace, tmp_path):
    """Neither a linked file nor one in a linked folder is read, with the reason; a link inside is."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.md").write_text("secret")
    (workspace / "file.md").symlink_to(tmp_path / "secret" / "key.md")
    (workspace / "folder").symlink_to(tmp_path / "secret")
    (workspace / "circle.md").symlink_to(workspace / "circle.md")
    (workspace / "real.md").write_text("mine")
    (workspace / "again.md").symlink_to(workspace / "real.md")
    files, skipped = expand(workspace, ["*.md", "folder/*.md"])
    assert files == [workspace / "real.md"]
    assert {os.path.relpath(path, workspace): reason for path, reason in skipped.items()} == {
        "file.md": "a link out of the workspace",
        "folder/key.md": "a link out of the workspace",
        "circle.md": "cannot be read",
    }


@pytest.mark.parametrize("pattern", ["../*.md", "/etc/*", "skills/../../x.md", "", " ", "a**b/../.."])
def test_glob_that_leaves_the_workspace_is_refused(workspace, pattern):
    """Absolute globs and those with `..` are usage errors."""
    with pytest.raises(UsageError, match="the glob"):
        expand(workspace, [pattern])


def test_pipe_is_skipped(workspace):
    """A FIFO does not hang the run."""
    os.mkfifo(workspace / "pipe.md")
    assert expand(workspace, ["*.md"]) == ([], {str(workspace / "pipe.md"): "not a file"})


def test_missing_workspace_is_a_usage_error(tmp_path):
    """The error names the folder."""
    with pytest.raises(UsageError, match="nowhere is not a folder"):
        expand(tmp_path / "nowhere", ["*.md"])


def test_unreadable_file_has_its_reason(workspace):
    """Binary and oversized files are refused; a byte that is not UTF-8 does not cost the rest of a file."""
    file = workspace / "a.md"
    for content, reason in ((b"a\0b", "not text"), (b"x" * (1024 * 1024 + 1), "larger than 1 MiB")):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=reason):
            read_for_facts(file, Worker())
    file.write_bytes(b"\xef\xbb\xbfone\r\ntwo \xff\rthree")
    assert read_for_facts(file, Worker()) == ("one\ntwo \ufffd\nthree", None)
