"""`recollect recall --hook`: answers the prompt hook of an agent program (Claude Code, Codex, Gemini) in its JSON."""

import contextlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NoReturn

from recollect.cli.flags import filters_of, load_settings, open_memory, search_options
from recollect.cli.terminal import notice

BUDGET_MS = 2000.0  # time from the start of the command until the search must have answered
LEAST_MS = 250.0  # time for the search itself, even on a machine that was slow to start
GRACE_S = 1.0  # time beyond the budget, after which the process ends whatever it is doing
TOKENS = 1000

PROMPT_EVENTS = ("UserPromptSubmit", "BeforeAgent")  # of Claude Code and Codex, and of Gemini
SESSION_START = "SessionStart"
RESET_SOURCES = ("clear", "compact")  # of a session start after which the earlier block is not in the context any more

TRIES = 30  # prompts of a session that are searched until one has results: most prompts are about something else
FAILURE = 10  # tries that a search costs which does not end: it must not hang at every prompt
LEAST_WORDS = 2  # besides stop words: "Go on" is no question, and vectors find something for everything
QUERY_CHARACTERS = 2000  # of a long prompt: half from its start and half from its end, around a pasted text
MARK_SECONDS = 30 * 86_400  # how long the tries of a session are remembered

_COMMAND = re.compile(r"/[\w:.-]+(?=\s|$)")
_OWN_COMMAND = "/recollect:"


def run_hook(tokens: int | None, options: Mapping[str, Any]) -> NoReturn:
    """Read the program's JSON, print the reply in time or nothing, and end with 0: it takes 2 as an order to stop."""
    seconds = (options["budget_ms"] or BUDGET_MS) / 1000
    deadline = threading.Timer(seconds + GRACE_S, os._exit, (0,))
    deadline.daemon = True
    deadline.start()
    search = partial(_block, tokens=tokens or TOKENS, options=dict(options), until=time.monotonic() + seconds)
    text = ""
    try:
        document = json.loads(sys.stdin.buffer.read())
        text = reply(document if isinstance(document, dict) else {}, search)
    except Exception as error:  # noqa: BLE001  (an edge: a hook that fails must not stop the program)
        notice(f"nothing was recalled: {error}")
    deadline.cancel()
    if text and sys.stdout is not None:
        with contextlib.suppress(OSError):
            sys.stdout.write(text)
            sys.stdout.flush()
    # Do not wait for a model that is still loading; the store is open for reading only.
    os._exit(0)


def reply(document: Mapping[str, Any], search: Callable[[str], str]) -> str:
    """The program's JSON with a recall block, or nothing. A session gets one block, and another after a reset."""
    from platformdirs import user_cache_dir

    fields = (document.get(key) for key in ("hook_event_name", "session_id", "prompt", "source"))
    event, session, prompt, source = (field if isinstance(field, str) else "" for field in fields)
    name = blake2b(session.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()  # does not reveal the session
    mark = Path(user_cache_dir("recollect")) / "recalled" / name  # its size counts the tries of the session
    if event == SESSION_START and source in RESET_SOURCES:
        mark.unlink(missing_ok=True)
    try:
        tries = mark.stat().st_size
    except OSError:
        tries = 0
    if event not in PROMPT_EVENTS or tries >= TRIES:
        return ""
    query = query_for(prompt)
    if query and session:
        _set_tries(mark, tries + FAILURE)
    block = search(query) if query else ""
    if query and session:
        _set_tries(mark, TRIES if block else tries + 1)
    output = {"hookEventName": event, "additionalContext": block}
    return json.dumps({"hookSpecificOutput": output}) if block else ""


def query_for(prompt: str) -> str:
    """The query for a prompt; empty if it says too little, or is a command of ours that searches itself."""
    from recollect.analysis import Analyzer

    text = prompt.strip()
    if text.startswith(_OWN_COMMAND):
        return ""
    text = _COMMAND.sub("", text, count=1) if _COMMAND.match(text) else text
    if len(text) > QUERY_CHARACTERS:
        half = QUERY_CHARACTERS // 2
        text = f"{text[:half]} … {text[-half:]}"
    words = {token.term for token in Analyzer().tokens(text) if not token.stop}
    return text.strip() if len(words) >= LEAST_WORDS else ""


def _block(query: str, *, tokens: int, options: dict[str, Any], until: float) -> str:
    """The recall block, or nothing. No model is fetched; reranking and HyDE are off unless a flag turns them on."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    place = load_settings(options).settings.place
    if "://" not in place and not Path(place).expanduser().exists():
        return ""  # so that no model is loaded for nothing
    flags = {name: value for name, value in search_options(options).items() if value is not None}
    memory = open_memory(options, {"rerank": False, "hyde": "off", **flags}, reads=True, fetch=False)
    budget_ms = max(LEAST_MS, (until - time.monotonic()) * 1000)
    recalled = memory.recall(query, tokens=tokens, budget_ms=budget_ms, **filters_of(options))
    for warning in recalled.warnings:
        notice(f"note: {warning}")
    return recalled.text if recalled.citations else ""


def _set_tries(mark: Path, count: int) -> None:
    """Write one byte for each try. If the file cannot be written, the session may get a second block."""
    with contextlib.suppress(OSError):
        mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark.write_bytes(b"." * count)
        for old in mark.parent.iterdir():
            if time.time() - old.stat().st_mtime > MARK_SECONDS:
                old.unlink(missing_ok=True)
