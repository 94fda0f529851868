"""The interactive search, driven by its library's own test driver and, in a terminal, as a process."""

import asyncio
import contextlib
import os
import pty
import re
import select
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from textual.widgets import Input, Markdown, OptionList, Static

from recollect import Memory
from recollect.cli.interactive import SearchScreen
from recollect.config import Settings


@pytest.fixture
def memory(tmp_path):
    """Two notes and a fact with control characters."""
    (tmp_path / "heron.md").write_text("# Heron\n\nThe grey heron waits in the reeds.\n")
    (tmp_path / "otter.md").write_text("# Otter\n\nThe otter sleeps by the reeds.\n")
    with Memory.open(tmp_path / "m.db", embedder="hashing:64", settings=Settings()) as opened:
        opened.index([tmp_path / "heron.md", tmp_path / "otter.md"])
        opened.add("Reeds \x1b[2J\u202e grow tall.")
        yield opened


def drive(memory, test):
    """Run a coroutine with the program where no other event loop is."""

    async def session():
        async with SearchScreen(memory).run_test(size=(120, 40)) as pilot:
            await test(pilot)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, session()).result()


@pytest.mark.ci
def test_results_and_note_follow_what_is_typed(memory):
    """Typing searches, the arrow shows the next note, and nothing of a record moves the cursor."""

    async def look(pilot):
        await pilot.press(*"grey heron")
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()
        rows, note = pilot.app.query_one(OptionList), pilot.app.query_one(Markdown)
        assert "Heron" in str(rows.get_option_at_index(0).prompt)
        assert "The grey heron waits in the reeds." in note.source
        assert re.match(r"\d results, \d likely", str(pilot.app.query_one(Static).content))
        pilot.app.query_one(Input).value = "reeds"
        await pilot.pause()
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()
        shown = []
        for _ in range(3):
            shown.append(note.source)
            await pilot.press("down")
            await pilot.pause()
        assert len(set(shown)) == 3
        assert not [text for text in shown if "\x1b" in text or "\u202e" in text]

    drive(memory, look)


@contextlib.contextmanager
def terminal(tmp_path, *words):
    """A command in a terminal: a function that reads until some bytes were printed, or the end, and one that types."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "HOME": str(tmp_path), "RECOLLECT_STORE": str(tmp_path / "m.db"), "TERM": "xterm",
                   "RECOLLECT_OFFLINE": "1", "RECOLLECT_EMBEDDER": "none"}  # fmt: skip
    command = [sys.executable, "-m", "recollect", *words]
    process = subprocess.Popen(command, env=environment, stdin=follower, stdout=follower, stderr=follower)
    os.close(follower)
    seen = bytearray()

    def read(wanted=None):
        with contextlib.suppress(OSError):  # the terminal is closed when the program has ended
            while (wanted is None or wanted not in seen) and select.select([leader], [], [], 60)[0]:
                seen.extend(os.read(leader, 65536))
        return bytes(seen)

    try:
        yield read, lambda keys: os.write(leader, keys)
        read()
        assert process.wait(60) == 0
    finally:
        process.kill()
        os.close(leader)


@pytest.mark.ci
def test_terminal_gets_the_search_and_a_pipe_the_help(memory, tmp_path):
    """`recollect` draws its field in a terminal and ends with Escape; without a terminal it prints the help."""
    piped = subprocess.run([sys.executable, "-m", "recollect"], capture_output=True, text=True, timeout=60, check=False)
    assert (piped.returncode, "Commands:" in piped.stdout) == (0, True)
    with terminal(tmp_path) as (read, write):
        assert b"Search your memory" in read(b"Search your memory")
        write(b"\x1b")


@pytest.mark.ci
def test_terminal_gets_links_to_files(memory, tmp_path):
    """The place of a result is a link to its file; a pipe gets plain text."""
    with terminal(tmp_path, "search", "grey heron") as (read, _):
        assert f"\x1b]8;;file://{tmp_path}/heron.md\x1b\\".encode() in read()
