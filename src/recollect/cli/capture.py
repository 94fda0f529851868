"""`recollect hook`: installs hooks in agent programs, and stores the turns of a session when its hook says so."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from recollect import process
from recollect.cli.flags import common, common_options, load_settings, open_memory
from recollect.cli.hook import end_after
from recollect.cli.terminal import echo, notice, plain
from recollect.disk import at_home, hashed_name, own_folder
from recollect.errors import RecollectError, UsageError
from recollect.options import SCOPE_PARTS

if TYPE_CHECKING:
    from recollect.memory import Memory

BUDGET_SECONDS = 2.0  # of the hook itself, which only starts another process; then it ends whatever it is doing
WAIT_SECONDS = 300  # of a capture for an earlier one of the same session
NICE = 10  # the priority of a process that stores turns: the agent goes first
LOG_BYTES = 256 * 1024  # from which a log begins anew
NAMES = ("claude-code", "codex", "gemini", "opencode")


@click.group()
def hook() -> None:
    """Install hooks in agent programs: they recall at each prompt and, if you want, store what was said."""


_program = click.argument("program", type=click.Choice(NAMES))
_facts = click.option(
    "--facts/--no-facts", default=True, help="Extract facts with the language model of [llm], if there is one."
)
_print = click.option("--print", "only_print", is_flag=True, help="Print the settings of the program; change nothing.")


@hook.command()
@_program
@click.option("--capture/--no-capture", default=False, help="Store what was said in each session. [default: no]")
@click.option("--recall/--no-recall", default=True, help="Recall at each prompt. [default: yes]")
@_facts
@_print
@common
def install(program: str, *, capture: bool, recall: bool, facts: bool, only_print: bool, **options: Any) -> None:
    """Add the hooks to the settings of PROGRAM, in the place of earlier ones. Run it again to change them.

    The hooks use the store and the scope of the flags that are given here, else those of your settings.
    """
    if not capture and not recall:
        raise UsageError("there is no hook to install", hint="--capture, or leave out --no-recall")
    from recollect.config import has_secret
    from recollect.integrations import hooks

    words, more = hooks.command(), () if facts else ("--no-facts",)
    path, text, events, plugin = hooks.plan(
        program, words, list(_flags(options)), recall=recall, capture=capture, more=more
    )
    if only_print:
        echo(text.rstrip("\n"))
        return
    hooks.write(path, text)
    notice(f"wrote {plain(str(path))}: {', '.join(events)}")
    if words != ["recollect"]:
        notice(f"the hooks run {plain(words[0])}: `recollect` on the PATH of {program} may be missing or another one")
    if recall and plugin:
        notice(
            f"the plugin {plain(plugin)} recalls at each prompt, too, with its own flags: install with --no-recall,"
            f" or run `claude plugin disable {plain(plugin)}`"
        )
    if has_secret(common_options(options)["store"] or ""):
        notice("the file now holds the password of the store; put it into ~/.pgpass instead")
    if capture:
        scope = load_settings(options).settings.scope.scope().as_dict()
        owner = ", ".join(f"{part} {name}" for part, name in scope.items()) or "everybody who uses this store"
        parts = "".join(f" --{part} {name}" for part, name in scope.items())
        notice(plain(f"sessions are stored for {owner}; `recollect conversation{parts}` lists them"))
    if program == "codex":
        notice(
            "start `codex` once and choose to trust the hooks: until then no session runs them, nor does `codex exec`"
        )


@hook.command()
@_program
@_print
def uninstall(program: str, only_print: bool) -> int:
    """Remove the hooks of Recollect from the settings of PROGRAM. What was stored stays."""
    from recollect.integrations import hooks

    path, text, *_ = hooks.plan(program)
    if only_print:
        echo(text.rstrip("\n"))
    elif not path.exists():
        notice(f"there is no {plain(str(path))}")
        return 1
    elif text:
        hooks.write(path, text)
        notice(f"wrote {plain(str(path))}")
    else:
        path.unlink()
        notice(f"removed {plain(str(path))}")
    return 0


def _flags(options: Mapping[str, Any]) -> Iterator[str]:
    """The common flags that were given, as words for a command; a file is named by its whole path."""
    values = common_options(options)
    for name in ("store", "config"):
        if value := values[name]:
            yield f"--{name}={value if '://' in value else at_home(value).absolute()}"
    for name in (*SCOPE_PARTS, "embedder"):
        if value := values[name]:
            yield f"--{name}={value}"


@hook.command()
@_facts
@click.option("--transcript", type=click.Path(), metavar="FILE", help="Store this transcript now, and show the result.")
@click.option("--remove", is_flag=True, hidden=True, help="Remove the transcript, and its folder, afterwards.")
@common
def capture(facts: bool, transcript: str | None, remove: bool, **options: Any) -> None:
    """Store the new turns of a session; the hook of an agent program runs it, with its JSON on standard input.

    The hook only starts a process that stores the turns, and ends: it does not delay the program. What goes wrong is
    written to a log.
    """
    if transcript is None:
        _start(list(_flags(options)) + ([] if facts else ["--no-facts"]))
    place = Path(transcript)
    if hasattr(os, "nice"):
        os.nice(NICE)
    try:
        with _alone(place):
            report = _store(place, options, facts)
    except (RecollectError, OSError, TimeoutError) as error:
        _log(f"{place}: {error}")
        raise
    finally:
        if remove:
            with contextlib.suppress(OSError):
                place.unlink()
                place.parent.rmdir()
    echo("turns: {added:,} added, {updated:,} updated; {facts:,} facts".format(**report))


def _start(words: Sequence[str]) -> NoReturn:
    """Start the process that stores the turns of the transcript that the program names, and end with 0."""
    end_after(BUDGET_SECONDS)
    try:
        document = json.loads(sys.stdin.buffer.read())
        path = document.get("transcript_path") if isinstance(document, dict) else None
        if isinstance(path, str) and Path(path).is_file():  # Codex has none for a session that is not kept
            process.detach(["hook", "capture", f"--transcript={Path(path).absolute()}", *words], {})
    except Exception as error:  # noqa: BLE001  (an edge: a hook that fails must not stop the program)
        with contextlib.suppress(OSError):
            _log(f"the hook: {error}")
    os._exit(0)


def _store(transcript: Path, options: Mapping[str, Any], facts: bool) -> dict[str, int]:
    """Store the new turns of a transcript, compute their vectors, and extract facts if a language model is set up."""
    from recollect.memory.filling import fill

    extracted = 0
    with open_memory(options, fetch=False) as memory:
        report = memory.import_chat(transcript)
        for reasons in report.skipped.values():
            _log(f"{transcript}: skipped: {', '.join(f'{reason} ({count})' for reason, count in reasons.items())}")
        if report.added + report.updated:
            with _logged(transcript):
                if memory.embeddings.configured:
                    fill(memory)
            llm = memory.settings.llm
            if facts and (llm.model or llm.base_url):  # a key in the environment alone does not ask for it
                with _logged(transcript):
                    extracted = _extract(memory, transcript)
    return {"added": report.added, "updated": report.updated, "facts": extracted}


def _extract(memory: Memory, transcript: Path) -> int:
    """Extract facts from the conversations of a transcript; return how many were stored."""
    from recollect.ingest.chats import read_chats
    from recollect.memory.conversations import extract_facts

    stored = 0
    for key in [conversation.id for _, conversations in read_chats(transcript) for conversation in conversations]:
        report = extract_facts(memory, key)
        stored += report.counts["add"] + report.counts["supersedes"]
        for _, error in report.failed:
            _log(f"{transcript}: {error}")
    return stored


@contextlib.contextmanager
def _logged(transcript: Path) -> Iterator[None]:
    """Write an error to the log and go on: the turns are stored."""
    try:
        yield
    except RecollectError as error:
        _log(f"{transcript}: {error.message}")


@contextlib.contextmanager
def _alone(transcript: Path) -> Iterator[None]:
    """Let no two processes store the same transcript at once."""
    from filelock import FileLock

    folder = _folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(folder / f"{hashed_name(str(transcript))}.lock", timeout=WAIT_SECONDS):
        yield


def _folder() -> Path:
    return own_folder("cache") / "captured"


def _log(message: str) -> None:
    """Add a line to the log of captures."""
    log = _folder() / "capture.log"
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    begin_anew = log.exists() and log.stat().st_size > LOG_BYTES
    with log.open("w" if begin_anew else "a", encoding="utf-8", errors="replace") as file:
        file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {plain(message)}\n")
