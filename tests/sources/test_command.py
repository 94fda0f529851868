"""A program as a search system, with real processes: its input, its failures, and what it leaves behind."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import textwrap
import threading
import time
import uuid

import pytest
from support.timing import within

from recollect.config import SYSTEMS
from recollect.errors import SourceFailed, TimedOut, UsageError
from recollect.sources import transports as module
from recollect.sources.matcher import MOST_BYTES
from recollect.sources.transports import CommandSystem

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")

SHOW = "import os, sys, json; print(json.dumps([os.fsencode(a).hex() for a in sys.argv[1:]]))"

HOSTILE = [
    "; rm -rf /",
    "$(touch /tmp/owned) `id` ${HOME}",
    "'single' \"double\" \\ back\\slash",
    "two\nlines\r\nand\ttabs",
    "--help",
    "-n 1000",
    "{fetch_k} {query} {{scope}} {0} {nope}",
    "%s %(query)s %n",
    "* ? [a-z] ~ !! | & > /dev/null",
    "naïve 日本語 \U0001f600 \u202e",
    " leading and trailing ",
    "",
    "x" * 100_000,
]


@pytest.fixture
def system(settings):
    """A source of one command."""

    def make(*command, **options):
        return CommandSystem(settings("command", command=[str(part) for part in command], **options))

    return make


@pytest.fixture
def python(system):
    """A source of one Python program."""

    def make(code, *arguments, **options):
        return system(sys.executable, "-S", "-E", "-c", textwrap.dedent(code), *arguments, **options)

    return make


@pytest.fixture
def script(system, tmp_path):
    """A source of one shell script, which starts faster than Python."""

    def make(text, *arguments, **options):
        path = tmp_path / f"{uuid.uuid4().hex}.sh"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return system(path, *arguments, **options)

    return make


def arguments(shown):
    """The arguments that the program saw."""
    return [bytes.fromhex(part) for part in shown]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_query_arrives_byte_for_byte_as_one_argument(python, ask, text):
    """No shell reads it, and placeholders in it are not filled."""
    shown = ask(python(SHOW, "{query}", "--q={query}!", "-n", "{fetch_k}"), text, fetch_k=7)
    assert arguments(shown) == [text.encode(), f"--q={text}!".encode(), b"-n", b"7"]


def test_nul_is_removed(python, ask):
    """An argument would end there."""
    assert arguments(ask(python(SHOW, "{query}"), "a\0b\0")) == [b"ab"]


def test_undecodable_bytes_arrive_unchanged(python, ask):
    """Bytes from a terminal are passed on; a lone surrogate cannot be."""
    assert arguments(ask(python(SHOW, "{query}"), os.fsdecode(b"caf\xe9"))) == [b"caf\xe9"]
    assert arguments(ask(python(SHOW, "{query}"), "a\ud800b")) == [b"a?b"]


def test_query_longer_than_an_argument_is_an_error(python, ask):
    """Linux allows 128 KiB for each argument; the reason says so and names the program."""
    with pytest.raises(SourceFailed, match=re.escape(sys.executable)) as caught:
        ask(python(SHOW, "{query}"), "x" * 2_000_000)
    assert "shorter" in caught.value.hint


def test_scope_arrives_as_json(python, ask):
    """Only its set parts; no user name can break out of the JSON."""
    (shown,) = arguments(ask(python(SHOW, "{scope}"), user='a"b', session="s\0 1"))
    assert json.loads(shown) == {"user": 'a"b', "session": "s\0 1"}
    assert arguments(ask(python(SHOW, "{scope}"))) == [b"{}"]


def test_environment_and_folder_come_from_the_settings(python, ask, tmp_path, monkeypatch):
    """Variables are added to ours and may have placeholders; the folder may begin with ~."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KEPT", "ours")
    (tmp_path / "notes").mkdir()
    code = "import os, json; print(json.dumps([os.getcwd(), os.environ['ASKED'], os.environ['KEPT']]))"
    system = python(code, env={"ASKED": "{query}|{fetch_k}|{scope}"}, cwd="~/notes")
    assert ask(system, "a\nb;c", user="u") == [str(tmp_path / "notes"), 'a\nb;c|20|{"user": "u"}', "ours"]
    assert "ASKED" not in os.environ


def test_program_in_the_home_folder_is_found(system, ask, tmp_path, monkeypatch):
    """The settings may contain ~/bin/search."""
    monkeypatch.setenv("HOME", str(tmp_path))
    program = tmp_path / "search"
    program.write_text("#!/bin/sh\necho '[1]'\n")
    program.chmod(0o755)
    assert ask(system("~/search")) == [1]


def test_standard_input_is_empty(script, ask):
    """A program that reads it does not hang."""
    assert ask(script('cat; echo "[1]"'), seconds=10) == [1]


def test_json_lines_are_a_list(script, ask):
    """One document on each line, as many tools print."""
    assert ask(script("""printf '{"id": 1}\\n{"id": 2}\\n'""")) == [{"id": 1}, {"id": 2}]


def test_large_answer_arrives_whole(python, ask):
    """Much more than a pipe holds, with as much on standard error."""
    code = """
        import json, sys
        for _ in range(200):
            sys.stderr.write("e" * 10000)
        json.dump(["x" * 1000] * 5000, sys.stdout)
    """
    assert ask(python(code)) == ["x" * 1000] * 5000


@pytest.mark.ci
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exit 3", "exit code 3: nothing on standard error"),
        ("echo 'no index here' >&2; exit 1", "exit code 1: “no index here”"),
        ("echo '[]'; echo broken >&2; exit 2", "exit code 2: “broken”"),
        ("yes 'a long story' | head -n 99999 >&2; printf 'the \\033[31mend' >&2; exit 4", "the [31mend”"),
        ("kill -SEGV $$", "signal 11"),
        ("echo rubbish", "not JSON: Expecting value at “rubbish”"),
        ("""printf '{"results": [{"id"'""", "not JSON"),
        ("printf '\\377\\376'", "not UTF-8"),
    ],
)
def test_failure_has_its_reason(script, ask, nothing_left, text, said):
    """Exit codes with the end of standard error, signals, and invalid answers."""
    system = script(text)
    with nothing_left(), pytest.raises(SourceFailed) as caught:
        ask(system)
    assert said in caught.value.message
    assert ".sh" in caught.value.message
    assert caught.value.message.isprintable()
    assert caught.value.hint


@pytest.mark.ci
@pytest.mark.parametrize("text", ["true", "exec >&-; exec 2>&-", "printf '\\n'"])
def test_success_without_output_is_no_hits(script, ask, nothing_left, text):
    """As for grep."""
    with nothing_left():
        assert ask(script(text)) == []


@pytest.mark.ci
def test_missing_program_is_named(system, ask, nothing_left):
    """By its name in PATH or by its path."""
    for name in ("no-such-program-here", "/no/such/program"):
        with nothing_left(), pytest.raises(SourceFailed, match=f"{name} cannot be started: No such file") as caught:
            ask(system(name, "{query}"))
        assert "installed" in caught.value.hint


def test_file_that_is_not_executable_is_named(system, ask, tmp_path):
    """A script without its execute bit, and a folder."""
    (tmp_path / "search").write_text("#!/bin/sh\n")
    for place in (tmp_path / "search", tmp_path):
        with pytest.raises(SourceFailed, match=f"{place} cannot be started: Permission denied"):
            ask(system(place))


def test_missing_folder_is_named(script, ask):
    """The error names the folder, not the program."""
    with pytest.raises(SourceFailed, match="cannot be run in /no/such/folder"):
        ask(script("echo []", cwd="/no/such/folder"))


def test_invalid_variable_is_refused(script, ask):
    """Names in the environment have no equals sign."""
    with pytest.raises(SourceFailed, match="cannot be started"):
        ask(script("echo []", env={"A=B": "c"}))


def test_query_cannot_choose_the_program(settings):
    """Otherwise a query could run anything."""
    with pytest.raises(UsageError, match="takes the program to run from the query"):
        CommandSystem(settings("command", command=["{query}", "x"]))


def test_secrets_of_the_environment_are_not_repeated(script, ask):
    """A failing program may print its environment; the error does not."""
    system = script("env >&2; exit 1", env={"SEARCH_API_KEY": "hunter22"})
    with pytest.raises(SourceFailed, match="exit code 1") as caught:
        ask(system)
    assert "hunter22" not in caught.value.message


def test_system_without_process_groups_is_an_error(settings, monkeypatch):
    """On Windows no program is started that could not be ended."""
    monkeypatch.delattr(os, "killpg")
    with pytest.raises(UsageError, match="process groups"):
        CommandSystem(settings("command", command=["x"]))


@pytest.mark.ci
def test_works_without_waitid(script, ask, nothing_left, monkeypatch):
    """On macOS only newer Pythons have it."""
    monkeypatch.delattr(os, "waitid")
    with nothing_left():
        assert ask(script("echo '[1]'")) == [1]
        assert ask(script("sleep 60 & echo '[2]'")) == [2]


@pytest.mark.ci
def test_output_above_the_limit_is_stopped(system, ask, nothing_left):
    """It is an error, and the output is not read to its end."""
    with nothing_left(), pytest.raises(SourceFailed, match=f"yes printed more than {MOST_BYTES // 2**20} MiB"):
        ask(system("yes"))


@pytest.mark.ci
def test_flood_on_standard_error_is_stopped_at_the_deadline(script, ask, cut_in_time):
    """It is read and dropped, so that it neither fills the memory nor blocks the program."""
    system = script("exec yes >&2")
    cut_in_time(lambda: ask(system, seconds=0.3), 0.3)


@pytest.mark.ci
@pytest.mark.parametrize(
    "text",
    [
        "exec sleep 60",
        "sleep 60",
        "echo '[1]'; sleep 60",
        "exec >&-; exec 2>&-; sleep 60",
        "trap '' TERM INT HUP; sleep 60; sleep 60",
        "sleep 60 & sleep 60 & (sleep 60; sleep 60) & wait",
        "while :; do printf ' '; sleep 0.05; done",
        "kill -STOP $$",
    ],
)
def test_program_past_its_deadline_is_killed_with_its_children(script, ask, cut_in_time, gone, text):
    """Wherever it hangs, and whether or not it handles signals."""
    marker = f"60.{uuid.uuid4().int % 10**12}"
    system = script(text.replace("60", marker))
    cut_in_time(lambda: ask(system, seconds=0.2), 0.2)
    assert gone(marker)


def test_passed_deadline_starts_nothing(script, ask, tmp_path):
    """Without time left the program is not run."""
    with pytest.raises(TimedOut):
        ask(script(f"touch {tmp_path}/ran"), seconds=-1)
    assert not (tmp_path / "ran").exists()


@pytest.mark.ci
@pytest.mark.parametrize("text", ["sleep 60 &\necho '[1]'", "sleep 60 >/dev/null 2>&1 &\necho '[1]'"])
def test_children_of_an_ended_program_are_not_waited_for(script, ask, nothing_left, gone, text):
    """Its answer counts when it ends, and its children are killed, even if they hold the output."""
    marker = f"60.{uuid.uuid4().int % 10**12}"
    began = time.monotonic()
    with nothing_left():
        assert ask(script(text.replace("60", marker)), seconds=30) == [1]
    assert within(time.monotonic() - began, 3)
    assert gone(marker)


def test_fast_answer_is_returned_at_once(script, ask):
    """No sleep delays a fast program."""
    system = script("echo '[1]'")
    quickest = 1.0
    for _ in range(50):
        began = time.monotonic()
        ask(system)
        quickest = min(quickest, time.monotonic() - began)
    assert within(quickest, module.POLL_S)


@pytest.mark.ci
def test_parallel_queries_get_their_own_answers(script, ask, nothing_left):
    """No pipe leaks into another thread's program."""
    system = script('sleep 0.05; echo "[$1]"', "{query}")
    answers = {}

    def one(number):
        answers[number] = ask(system, str(number))

    with nothing_left():
        threads = [threading.Thread(target=one, args=(number,)) for number in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == {number: [number] for number in range(30)}


@pytest.mark.ci
def test_interrupt_leaves_nothing_behind(script, ask, nothing_left, gone):
    """The program has its own session, so Ctrl-C reaches only us: we end it."""
    marker = f"60.{uuid.uuid4().int % 10**12}"
    system = script(f"sleep {marker} & sleep {marker}")
    with nothing_left():
        timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            ask(system)
        timer.join()
    assert gone(marker)


@pytest.mark.ci
def test_unkillable_program_is_reaped_when_it_ends(script, ask, nothing_left, monkeypatch):
    """For example under another user: nothing waits for it, and it becomes no zombie."""
    monkeypatch.setattr(module, "REAP_S", 0.05)

    def refuse(group, number):
        raise PermissionError

    monkeypatch.setattr(os, "killpg", refuse)
    system = script("exec sleep 1.5")
    with nothing_left():
        began = time.monotonic()
        with pytest.raises(TimedOut):
            ask(system, seconds=0.05)
        assert within(time.monotonic() - began, 1.2)


@pytest.mark.ci
@pytest.mark.parametrize(
    "times",
    [
        pytest.param(100, id="short"),
        pytest.param(1000, id="long", marks=[pytest.mark.torture, pytest.mark.timeout(600)]),
    ],
)
def test_timeouts_leave_nothing_behind(script, nothing_left, ask, gone, times):
    """Repeatedly: no child, grandchild, zombie, open file or thread, and each within its time."""
    marker = f"60.{uuid.uuid4().int % 10**12}"
    system = script(f"sleep {marker} & sleep {marker}")
    late = []
    with nothing_left():
        for _ in range(times):
            began = time.monotonic()
            with pytest.raises(TimedOut):
                ask(system, seconds=0.02)
            late.append((time.monotonic() - began - 0.02) * 1000)
    assert gone(marker)
    late.sort()
    print(f"{times} timeouts at 20 ms: late by {late[times // 2]:.1f} ms (median), {late[-1]:.1f} ms (worst)")  # noqa: T201
    assert late[times * 95 // 100] < 250


def test_imports_without_posix(start):
    """The module can be imported where there are no process groups, so that the error can be raised."""
    code = "import os; del os.killpg; import recollect.sources.transports; print('fine')"
    assert start("-c", code).stdout.read().strip() == "fine"


def test_registry_opens_the_kind():
    """The entry of the kind is this class."""
    assert SYSTEMS.load("command") is CommandSystem
