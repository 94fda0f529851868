"""A project's settings file has no effect until the user trusts it, and never sets more than it may."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import apsw
import pytest

from recollect import Memory
from recollect.config import user_file
from recollect.config.trust import trusted_files, trusted_list

NOT_TRUSTED = "recollect.toml in this folder is not trusted and was not used; `recollect trust` shows and trusts it"

ACT = """
import os, sys
os.chdir(sys.argv[1])
from recollect.cli import main
raise SystemExit(main(sys.argv[2:]))
"""


def shell(home, *words, stdin="", timeout=60):
    """Run a command in a process of its own."""
    command = [sys.executable, "-c", ACT, str(home), *words]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)


@pytest.fixture
def project(home):
    """Writes the project's file."""

    def write(text):
        (home / "recollect.toml").write_text(text)
        return home / "recollect.toml"

    return write


def rows(path, sql):
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def test_untrusted_project_file_changes_neither_store_nor_search(run, home, project):
    """Reading commands do not store its language, and a search finds the same."""
    run("add", "The spare key is under the pot", "--id", "key")
    before = rows(home / "store.db", "SELECT * FROM meta ORDER BY key")
    project('language = "german"\n[search]\nlimit = 1\n')
    for words in (["status"], ["search", "keys"], ["recall", "keys"], ["list"]):
        assert run(*words).err.count(NOT_TRUSTED) == 1
    assert [one["id"] for one in run("search", "keys", "--json").json["results"]] == ["key"]
    assert rows(home / "store.db", "SELECT * FROM meta ORDER BY key") == before


@pytest.mark.ci
def test_untrusted_project_file_cannot_choose_a_scope(run, home, project):
    """Not for a search, the hook or an MCP server."""
    run("add", "Ada salary is 123", "--user", "ada", "--agent", "finance")
    project('[scope]\nuser = "ada"\nagent = "finance"\n')
    assert run("search", "salary", "--json").json["results"] == []
    assert run("search", "salary", "--user", "ada", "--json").json["results"] == []
    asked = json.dumps({"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": "what is Ada's salary?"})
    hooked = shell(home, "recall", "--hook", stdin=asked)
    assert (hooked.returncode, hooked.stdout) == (0, "")
    assert hooked.stderr.count(NOT_TRUSTED) == 1
    served = shell(home, "mcp", stdin="")
    assert served.stdout == ""
    assert served.stderr.count(NOT_TRUSTED) == 1


def test_note_is_one_line_on_standard_error(run, project):
    """Standard output and JSON equal those of a folder without the file."""
    run("add", "tea")
    alone = [run("list"), run("list", "--json"), run("config", "show", "--json")]
    project("[search]\nlimit = 1\n")
    beside = [run("list"), run("list", "--json"), run("config", "show", "--json")]
    assert [one.out for one in beside] == [one.out for one in alone]
    assert [one.err.splitlines()[0] for one in beside] == [NOT_TRUSTED] * 3


def test_trust_shows_the_settings_and_applies_them(run, home, project):
    """Until one byte of the file changes; then it must be trusted again."""
    file = project('[search]\nlimit = 1\n[scope]\nagent = "helper"\n')
    run("add", "tea one")
    run("add", "tea two")
    trusted = run("trust")
    assert trusted.code == 0
    assert str(file) in trusted.out
    assert "search.limit" in trusted.out
    assert "records of this agent" in trusted.out
    found = run("search", "tea", "--json")
    assert len(found.json["results"]) == 1
    assert NOT_TRUSTED not in found.err
    assert run("config", "show", "--json").json["scope.agent"] == {"value": "helper", "from": str(file)}
    project('[search]\nlimit = 1\n[scope]\nagent = "helpers"\n')
    changed = run("search", "tea", "--json")
    assert len(changed.json["results"]) == 2
    assert NOT_TRUSTED in changed.err
    project('[search]\nlimit = 1\n[scope]\nagent = "helper"\n')
    assert len(run("search", "tea", "--json").json["results"]) == 1


def test_trust_belongs_to_one_path(run, home, project):
    """The same content in another folder is not trusted."""
    project("[search]\nlimit = 1\n")
    run("trust")
    (home / "other").mkdir()
    (home / "other" / "recollect.toml").write_text("[search]\nlimit = 1\n")
    os.chdir(home / "other")
    assert NOT_TRUSTED in run("config", "show").err


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('language = "german"', "language (line 1)"),
        ('[scope]\nuser = "ada"', "scope.user (line 2)"),
        ("store = 'x.db'", "store (line 1)"),
        ("embedder = 'openai:x'", "embedder (line 1)"),
        ("[openai]\nbase_url = 'http://evil.example/v1'", "openai.base_url (line 2)"),
        ("[llm]\nbase_url = 'http://evil.example/v1'", "llm.base_url (line 2)"),
        ("[search]\nhyde = true", "search.hyde (line 2)"),
        ("[search]\nrerank_model = 'stand:x'", "search.rerank_model (line 2)"),
        ("[ingest]\nchunk_size = 900", "ingest.chunk_size (line 2)"),
    ],
)
def test_forbidden_settings_cannot_be_trusted(run, project, text, name):
    """The error names the setting and its line, and nothing is recorded."""
    project(f"{text}\n")
    refused = run("trust", "--json")
    assert (refused.code, refused.out, refused.error["code"]) == (2, "", "config")
    assert f"may not set {name}" in refused.error["message"]
    assert trusted_files() == {}


def test_all_forbidden_settings_are_named_at_once(run, project):
    """So that one edit is enough."""
    project('language = "german"\nstore = "x.db"\n[search]\nlimit = 3\nhyde = true\n[scope]\nuser = "ada"\n')
    message = run("trust", "--json").error["message"]
    assert "language (line 1), store (line 2), search.hyde (line 5), scope.user (line 7)" in message


def test_file_trusted_under_looser_rules_is_an_error(run, home, project):
    """A later version may allow less: the file is refused by name, and not used in part."""
    file = project('[scope]\nuser = "ada"\n')
    trusted_list().parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    trusted_list().write_text(json.dumps({"version": 1, "files": {str(file): digest}}))
    refused = run("search", "x", "--json")
    assert (refused.code, refused.error["code"]) == (2, "config")
    assert "may not set scope.user (line 2)" in refused.error["message"]


def test_project_cannot_set_a_scope_part_the_user_has_set(run, project, monkeypatch):
    """In the user's file, the environment or a flag."""
    project('[scope]\nagent = "theirs"\nsession = "theirs"\n')
    assert run("trust").code == 0
    user_file().parent.mkdir(parents=True, exist_ok=True)
    user_file().write_text('[scope]\nagent = "mine"\n')

    def scope(*words):
        shown = run("config", "show", "--json", *words).json
        return shown["scope.agent"]["value"], shown["scope.session"]["value"]

    assert scope() == ("mine", "theirs")
    monkeypatch.setenv("RECOLLECT_SCOPE_SESSION", "today")
    assert scope() == ("mine", "today")
    assert scope("--session", "now", "--agent", "other") == ("other", "now")


def test_named_file_needs_no_trust(run, home, monkeypatch):
    """`--config` and RECOLLECT_CONFIG are the user's own choice."""
    (home / "mine.toml").write_text('[search]\nlimit = 3\n[scope]\nuser = "ada"\n')
    shown = run("config", "show", "--json", "--config", home / "mine.toml")
    assert shown.json["scope.user"]["value"] == "ada"
    assert shown.err == ""
    monkeypatch.setenv("RECOLLECT_CONFIG", str(home / "mine.toml"))
    assert run("config", "show", "--json").json["search.limit"]["value"] == 3


@pytest.mark.ci
def test_special_files_are_not_used(home):
    """A link, a folder, a FIFO, a large file: each command goes on with one line about it."""
    file = home / "recollect.toml"
    (home / "target.toml").write_text("[search]\nlimit = 1\n")

    def large():
        file.write_text("#" * 70_000)

    for make, words in (
        (lambda: file.symlink_to(home / "target.toml"), "is a symbolic link and was not used"),
        (lambda: file.symlink_to("/proc/kmsg"), "is a symbolic link and was not used"),
        (file.mkdir, "is not a regular file and was not used"),
        (lambda: os.mkfifo(file), "is not a regular file and was not used"),
        (large, "is larger than 64 KiB and was not used"),
    ):
        make()
        shown = shell(home, "config", "show", "--json", timeout=30)
        assert (shown.returncode, json.loads(shown.stdout)["search.limit"]["value"]) == (0, 10)
        assert shown.stderr == f"{file} {words}\n"
        refused = shell(home, "trust", timeout=30)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert words.removesuffix(" and was not used") in refused.stderr
        file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink()
    assert trusted_files() == {}


UNREADABLE = """
import os, sys
from pathlib import Path
import platformdirs.unix
from recollect import config
if os.geteuid() == 0:
    os.seteuid(65534)  # root reads every file
print(*config.load(environment={}, folder=Path(sys.argv[1])).notes)
"""


def test_unreadable_file_is_not_used():
    """It is named, and the command goes on."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        file = Path(name) / "recollect.toml"
        file.write_text("[search]\nlimit = 1\n")
        file.chmod(0)
        command = [sys.executable, "-c", UNREADABLE, name]
        ran = subprocess.run(command, env={**os.environ, "HOME": name}, capture_output=True, text=True, check=True)
    assert ran.stdout == f"{file} cannot be read (Permission denied) and was not used\n"


def test_trusted_file_that_becomes_a_link_is_not_used(run, home, project):
    """Even if the link leads to the trusted content."""
    file = project("[search]\nlimit = 1\n")
    run("trust")
    file.rename(home / "moved.toml")
    file.symlink_to(home / "moved.toml")
    shown = run("config", "show", "--json")
    assert shown.json["search.limit"]["value"] == 10
    assert "is a symbolic link and was not used" in shown.err


def test_trust_is_listed_and_revoked(run, home, project):
    """By path, with the state of each file; also for a missing file."""
    file = project("[search]\nlimit = 1\n")
    assert run("trust", "--list").out == ""
    run("trust", file)
    assert run("trust", "--list", "--json").json == [{"path": str(file), "state": "trusted"}]
    project("[search]\nlimit = 2\n")
    assert run("trust", "--list", "--json").json == [{"path": str(file), "state": "changed"}]
    file.unlink()
    assert run("trust", "--list", "--json").json == [{"path": str(file), "state": "gone"}]
    assert run("trust", "--revoke", home, "--json").json == {"path": str(file), "revoked": True}
    assert run("trust", "--list", "--json").json == []
    assert run("trust", "--revoke", "--json").json == {"path": str(file), "revoked": False}


def test_wrong_use_of_trust_is_refused(run, home):
    """A file of another name, a missing file, and conflicting flags."""
    (home / "mine.toml").write_text("")
    for words in ([home / "mine.toml"], [], ["--list", "--revoke"], ["--list", home]):
        refused = run("trust", *words, "--json")
        assert (refused.code, refused.error["code"]) == (2, "usage")


def test_list_of_trusted_files_is_private(run, home, project):
    """Mode 0600, replaced atomically; a list that others may write trusts nothing."""
    project("[search]\nlimit = 1\n")
    run("trust")
    path = trusted_list()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [one.name for one in path.parent.iterdir() if not one.name.endswith(".lock")] == ["trusted.json"]
    path.chmod(0o622)
    assert NOT_TRUSTED in run("config", "show").err
    assert "other users may write" in run("trust", "--json").error["message"]
    path.chmod(0o600)
    path.write_text("{")
    assert NOT_TRUSTED in run("config", "show").err
    refused = run("trust", "--list", "--json").error
    assert str(path) in refused["message"]
    assert "delete" in refused["hint"]


@pytest.mark.ci
def test_concurrent_trust_loses_nothing(home):
    """Each process adds its file to the list."""
    folders = [home / f"project{number}" for number in range(4)]
    for folder in folders:
        folder.mkdir()
        (folder / "recollect.toml").write_text("[search]\nlimit = 1\n")
    act = "import sys; from recollect.cli import main; raise SystemExit(main(['trust', sys.argv[1]]))"
    started = [subprocess.Popen([sys.executable, "-c", act, str(folder)]) for folder in folders]
    assert [process.wait(60) for process in started] == [0] * 4
    assert set(trusted_files()) == {str(folder / "recollect.toml") for folder in folders}


def test_library_does_not_use_an_untrusted_file_either(home, project):
    """`Memory.open` without settings reports it."""
    project('[scope]\nuser = "ada"\n')
    told = []
    with Memory.open(announce=told.append) as memory:
        assert memory.scope.as_dict() == {}
    assert told == [NOT_TRUSTED]


@pytest.mark.parametrize(
    "text",
    [
        f"{'a.' * 30_000}a = 1",
        f"[{'a.' * 30_000}a]",
        '"a".' * 15_000 + "a = 1",
        f"x = {{ {'a.' * 30_000}a = 1 }}",
        f"x = {'[' * 20_000}",
        f"x = {'[' * 20_000}{']' * 20_000}",
        f"x = {'{a=' * 15_000}",
        f"a{' ' * 60_000}.b = 1",
        f"[a{' ' * 60_000}.b]\nx = 1",
        f"x = {'9' * 60_000}",
    ],
    ids=["name", "table", "quoted", "inline", "open arrays", "arrays", "tables", "spaces", "spaced table", "digits"],
)
def test_file_made_to_be_slow_is_refused_at_once(run, home, project, text):
    """Long dotted names and deep nesting cost little time, in a project's file and in the user's."""
    project(f"{text}\n")
    begun = time.process_time()
    assert NOT_TRUSTED in run("config", "show").err
    refused = run("trust", "--json")
    assert (refused.code, refused.error["code"]) == (2, "config")
    assert len(refused.error["message"]) < 1000
    assert run("config", "show", "--config", home / "recollect.toml", "--json").error["code"] == "config"
    assert time.process_time() - begun < 5


def test_too_large_settings_file_is_refused_unread(run, home):
    """The user's own file is limited too."""
    (home / "large.toml").write_text("#" * (1024 * 1024 + 1))
    assert "larger than 1024 KiB" in run("config", "show", "--config", home / "large.toml", "--json").error["message"]
