"""`recollect service`: units and property lists with the exact command."""

from __future__ import annotations

import configparser
import json
import os
import plistlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RECOLLECT = str(Path(sys.executable).parent / "recollect")
ODD = """a b 100% %h $HOME "q" 'p' \\n back\\ ü ;"""


@pytest.fixture
def odd(tmp_path):
    """A folder whose name has every special character."""
    folder = tmp_path / ODD
    folder.mkdir()
    return folder


@pytest.fixture
def printed(run, odd):
    """The files that `install --print` shows, by name, for a platform."""

    def show(platform, *flags):
        shown = run("service", "install", odd, "--print", "--json", "--platform", platform, *flags)
        assert shown.returncode == 0, shown.stderr
        return {Path(unit["path"]).name: unit["text"] for unit in json.loads(shown.stdout)}

    return show


@pytest.fixture
def manager(tmp_path):
    """A systemctl that records its calls and ends as set; first in the PATH."""
    folder, calls = tmp_path / "bin", tmp_path / "calls"
    folder.mkdir()
    calls.touch()

    def behave(code):
        for name in ("systemctl", "launchctl"):
            script = folder / name
            script.write_text(f'#!/bin/sh\necho "$@" >> "{calls}"\necho active\nexit {code}\n')
            script.chmod(0o755)
        return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}

    behave.calls = lambda: calls.read_text().splitlines()
    return behave


def parsed(text):
    parser = configparser.RawConfigParser(strict=True, delimiters=("=",), comment_prefixes=("#", ";"))
    parser.optionxform = str
    parser.read_string(text)
    return parser


def words_of(line):
    """What systemd makes of a command line in which every word is quoted (systemd.service(5), systemd.syntax(7))."""
    words = re.findall(r'"((?:[^"\\]|\\.)*)"(?: |$)', line)
    assert " ".join(f'"{word}"' for word in words) == line
    plain = [re.sub(r"\\(x..|.)", lambda found: _letter(found[1]), word) for word in words]
    for word in plain:
        assert not re.search(r"(?<!%)(%%)*%(?!%)", word), "a lone % would be a specifier"
        assert not re.search(r"(?<!\$)(\$\$)*\$(?!\$)", word), "a lone $ would be a variable"
    return [word.replace("%%", "%").replace("$$", "$") for word in plain]


def _letter(escape):
    return chr(int(escape[1:], 16)) if len(escape) > 1 else escape


@pytest.mark.ci
def test_systemd_units_run_the_right_command(printed, odd, tmp_path):
    """Watch and mirror name the executable, the store and the folder absolutely, with any characters."""
    files = printed(
        "systemd", "--store", "some %store.db", "--user", "ada $x", "--tag", ";", "--exclude", "*.log", "--force"
    )
    watch, mirror, timer = (parsed(text) for text in files.values())
    flags = [f"--store={tmp_path}/some %store.db", "--embedder=hashing:64", "--user=ada $x"]
    flags += ["--exclude=*.log", "--tag=;", "--force"]
    assert words_of(watch["Service"]["ExecStart"]) == [RECOLLECT, "watch", *flags, str(odd)]
    assert words_of(mirror["Service"]["ExecStart"]) == [RECOLLECT, "watch", "--once", *flags, str(odd)]
    assert (watch["Service"]["Restart"], watch["Install"]["WantedBy"]) == ("on-failure", "default.target")
    assert (mirror["Service"]["Type"], "Install" in mirror) == ("oneshot", False)
    assert (timer["Timer"]["OnUnitActiveSec"], timer["Install"]["WantedBy"]) == ("600", "timers.target")
    stems = [name.rpartition(".")[0] for name in files]
    assert stems[1] == stems[2], "a timer starts the service of its own name"


@pytest.mark.ci
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze to check the units with")
def test_systemd_accepts_the_units(printed, tmp_path):
    """`systemd-analyze verify` accepts all three without output, and rejects a broken one."""
    for name, text in printed("systemd").items():
        (tmp_path / name).write_text(text)
    units = [*tmp_path.glob("recollect-*.service"), *tmp_path.glob("recollect-*.timer")]
    assert len(units) == 3

    def verify(*paths):
        return subprocess.run(
            ["systemd-analyze", "--user", "verify", *paths],
            env=os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )

    checked = verify(*units)
    assert (checked.returncode, checked.stderr) == (0, "")
    broken = tmp_path / "broken.service"
    broken.write_text(units[0].read_text().replace("ExecStart=", "ExecStrt="))
    assert verify(broken).returncode != 0


@pytest.mark.ci
def test_launchd_lists_run_the_right_command(printed, odd, tmp_path):
    """Both lists load, name everything absolutely, and only one is enabled."""
    for flags, disabled in (((), [False, True]), (("--timer",), [True, False])):
        files = printed("launchd", *flags)
        watch, mirror = (plistlib.loads(text.encode()) for text in files.values())
        store = f"--store={tmp_path}/memory.db"
        assert watch["ProgramArguments"] == [RECOLLECT, "watch", store, "--embedder=hashing:64", str(odd)]
        assert mirror["ProgramArguments"][1:3] == ["watch", "--once"]
        assert mirror["StartInterval"] == 600
        assert watch["KeepAlive"] == {"SuccessfulExit": False}
        assert [watch["Disabled"], mirror["Disabled"]] == disabled
        assert [f"{plist['Label']}.plist" for plist in (watch, mirror)] == list(files)


@pytest.mark.ci
def test_command_of_a_unit_runs(printed, odd, home, texts):
    """Without a shell and from another folder, it indexes the folder."""
    (odd / "a.md").write_text("tea in the morning")
    mirror = list(printed("systemd").values())[1]
    bare = {name: value for name, value in home.items() if not name.startswith("RECOLLECT_")}
    command = words_of(parsed(mirror)["Service"]["ExecStart"])
    subprocess.run(command, env=bare, cwd="/", check=True, capture_output=True)
    assert texts() == {"a.md": "tea in the morning"}


@pytest.mark.ci
def test_print_installs_nothing(run, notes, tmp_path, manager):
    """`--print` shows the files with their paths, writes none and calls no manager."""
    shown = run("service", "install", notes, "--print", "--platform", "systemd", **manager(0))
    assert shown.returncode == 0
    assert shown.stdout.count("\n[Unit]\n") == 3
    assert f"# {tmp_path}/xdg_config_home/systemd/user/recollect-watch-notes-" in shown.stdout
    assert list(tmp_path.rglob("recollect-*")) == []
    assert manager.calls() == []


@pytest.mark.ci
@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has launchd, whose plist has a test of its own")
def test_service_is_installed_shown_and_removed(run, notes, manager, tmp_path):
    """The manager gets its commands in order; afterwards nothing is left."""
    systemd = manager(0)
    installed = run("service", "install", notes, **systemd)
    assert installed.returncode == 0, installed.stderr
    files = sorted(path.name for path in (tmp_path / "xdg_config_home/systemd/user").iterdir())
    assert len(files) == 3
    timer, watch = files[1], files[2]
    assert manager.calls()[1:] == [
        "--user daemon-reload",
        f"--user disable --now {timer}",
        f"--user enable {watch}",
        f"--user restart {watch}",
    ]
    states = json.loads(run("service", "status", "--json", **systemd).stdout)
    assert [(Path(row["path"]).name, row["state"]) for row in states] == [(name, "active") for name in files]
    assert run("service", "status", tmp_path, **systemd).returncode == 1
    assert run("service", "uninstall", tmp_path, **systemd).returncode == 1
    removed = run("service", "uninstall", notes, **systemd)
    assert (removed.returncode, removed.stdout.count("removed ")) == (0, 3)
    assert manager.calls()[-2:] == [f"--user disable --now {timer} {watch}", "--user daemon-reload"]
    assert list((tmp_path / "xdg_config_home/systemd/user").iterdir()) == []
    assert run("service", "status", **systemd).returncode == 1


@pytest.mark.ci
def test_without_a_manager_the_commands_are_shown(run, notes, manager, tmp_path):
    """The files are written and the commands are shown, not run."""
    for platform, command in (("systemd", "systemctl --user enable "), ("launchd", "launchctl load -w ")):
        installed = run("service", "install", notes, "--timer", "--platform", platform, **manager(1))
        assert installed.returncode == 0
        said = installed.stdout.partition("now run:\n")[2]
        assert command in said
        assert "mirror" in said.splitlines()[-1]
    assert len(list(tmp_path.rglob("recollect[-.]*.*"))) == 5
    assert all("enable" not in call and " load" not in call for call in manager.calls())


@pytest.mark.ci
@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has launchd, whose plist has a test of its own")
def test_failing_manager_is_an_error(run, notes, manager, tmp_path):
    """The failed command is named, and the exit code is 3."""
    environment = manager(0)
    script = tmp_path / "bin" / "systemctl"
    script.write_text('#!/bin/sh\ncase "$*" in *enable*) echo "not today" >&2; exit 1;; esac\n')
    refused = run("service", "install", notes, "--json", **environment)
    assert refused.returncode == 3
    assert "enable recollect-watch-notes-" in refused.stderr
    assert "not today" in refused.stderr


@pytest.mark.ci
def test_service_name_depends_on_the_folders(printed, run, odd, notes):
    """Not on their order or flags."""

    def names(*words):
        shown = run("service", "install", *words, "--print", "--json", "--platform", "systemd")
        return [Path(unit["path"]).name for unit in json.loads(shown.stdout)]

    assert names(notes, odd)[0].rpartition("-")[2] == names(odd, notes, "--tag", "x")[0].rpartition("-")[2]
    assert names(notes) == names(notes, "--timer")
    assert names(notes) != names(odd)
    assert all(re.fullmatch(r"[a-z0-9.-]+", name) for name in names(odd))


def test_missing_folder_is_a_usage_error(run, tmp_path):
    """Exit code 2, also without a folder."""
    assert run("service", "install", tmp_path / "nowhere", "--print").returncode == 2
    assert run("service", "install", "--print").returncode == 2
