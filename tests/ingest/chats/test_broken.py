"""Files that are broken, foreign or hostile: what can be read is read, and the rest is counted with a reason."""

import json
import zipfile
from pathlib import Path

import pytest

from recollect.errors import UsageError
from recollect.ingest import chats
from recollect.ingest.chats import chat_files, read_chats

FILES = Path(__file__).parent / "files"
CUT = "the JSON is cut off or broken; complete conversations before that: 1"


def outcome(path):
    """How many turns the files of a path have, and what was skipped in them."""
    count, skipped = 0, {}
    for file, conversations in read_chats(path):
        count += sum(len(one.turns) for one in conversations)
        skipped |= file.skipped
    return count, skipped


def test_broken_lines_are_counted(tmp_path):
    """A cut line, a number, an empty line and zero bytes do not stop the rest."""
    good = (FILES / "codex.jsonl").read_bytes()
    file = tmp_path / "rollout.jsonl"
    file.write_bytes(
        b"\xef\xbb\xbf" + good + b'{"timestamp": "2026-05\n17\n\n\0\0\0\n' + b"[" * 100_000 + b"\n" + good[:99]
    )
    count, skipped = outcome(file)
    assert count == 2
    assert skipped == {"a line that is not JSON": 3, "not a JSON object": 1}


def test_export_that_is_cut_off_gives_what_is_complete(tmp_path):
    """Of two conversations the first."""
    file = tmp_path / "conversations.json"
    content = (FILES / "chatgpt.json").read_bytes()
    file.write_bytes(content[:-20])
    assert outcome(file) == (4, {CUT: 1})
    file.write_bytes(content.replace(b'"current_node": "w"', b"current node w"))
    assert outcome(file) == (4, {CUT: 1})


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "empty"), (b"  \n", "empty"), (b"{}", chats.UNKNOWN), (b"[]", "empty"), (b'[{"a": 1}]', chats.UNKNOWN),
     (b"not json at all", "a line that is not JSON"), (b'{\n "a": [1,\n', "a line that is not JSON")],
)  # fmt: skip
def test_other_files_are_named(tmp_path, content, reason):
    """With the reason for which nothing was found."""
    file = tmp_path / "some.json"
    file.write_bytes(content)
    count, skipped = outcome(file)
    assert count == 0
    assert reason in skipped


def test_archives(tmp_path):
    """Every numbered member is read, others are not; broken archives and bombs are skipped with a reason."""
    values = json.loads((FILES / "chatgpt.json").read_text(encoding="utf-8"))
    archive = tmp_path / "export.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        for number, value in enumerate(values):
            made.writestr(f"export/conversations-{number:03}.json", json.dumps([value]))
        made.writestr("export/user.json", "{}")
        made.writestr("conversations.json", b"[" + b" " * 5_000_000)
    assert outcome(archive) == (6, {"its compressed size cannot be that of a conversation": 1})
    archive.write_bytes(archive.read_bytes()[:200])
    assert outcome(archive) == (0, {"not a zip archive": 1})
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("other.json", "{}")
    assert outcome(archive) == (0, {"no conversations.json in the archive": 1})


def test_paths_that_name_nothing(tmp_path):
    """A missing file and a folder without exports are errors that say what to name."""
    with pytest.raises(UsageError, match="does not exist"):
        chat_files([tmp_path / "gone.json"])
    (tmp_path / "note.md").write_text("x")
    with pytest.raises(UsageError, match="no file of conversations"):
        chat_files([tmp_path])


def test_folder_is_searched_to_its_depth(tmp_path):
    """As ~/.codex/sessions has one folder a day; links are not followed."""
    deep = tmp_path / "2026" / "05" / "02" / "rollout-1.jsonl"
    deep.parent.mkdir(parents=True)
    deep.write_bytes((FILES / "codex.jsonl").read_bytes())
    (tmp_path / "link.jsonl").symlink_to(deep)
    assert chat_files([tmp_path]) == [deep]


def test_unreadable_file_is_skipped(tmp_path):
    """A folder with the name of a file."""
    (tmp_path / "x.jsonl").mkdir()
    assert outcome(tmp_path / "x.jsonl")[0] == 0
    assert outcome(tmp_path / "x.jsonl")[1]


def test_long_lines_are_bounded(tmp_path, monkeypatch):
    """A line beyond the limit is skipped in pieces, and the next is read."""
    monkeypatch.setattr(chats, "MAX_LINE", 4096)
    file = tmp_path / "x.jsonl"
    file.write_bytes((FILES / "plain.jsonl").read_bytes() + b'{"role": "user", "content": "' + b"x" * 10_000 + b'"}\n')
    count, skipped = outcome(file)
    assert count == 4
    assert skipped == {"a line that is not JSON": 3}
