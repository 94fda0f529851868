"""`recollect recall --hook`: the block for an agent's program that asks before it begins, in that program's JSON.

Such a hook stands between a person and the work. It answers in time or not at all, says nothing where it has nothing
to say, and ends with 0 whatever happens: these programs take a 2 as an order to stop.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NoReturn

from recollect.cli.flags import filters_of, load_settings, open_memory, search_options
from recollect.cli.terminal import notice

BUDGET_MS = 2000.0
"""From the start of the command until the search must have answered."""

LEAST_MS = 250.0
"""Of it for the search itself, on a machine that was slow to come so far."""

GRACE_S = 1.0
"""Beyond the budget. Then the process ends, whatever it is at."""

TOKENS = 1000

ASKING = ("UserPromptSubmit", "BeforeAgent")
"""The events that bring what the user asked: of Claude Code and Codex, and of Gemini."""

STARTING = "SessionStart"
EMPTIED = ("clear", "compact")
"""Ways for a session to start with what was recalled in it gone."""

TRIES = 3
"""Prompts of a session that are looked up until one finds something: a greeting must not use up the only one."""

LEAST_WORDS = 2
"""Stop words aside. "Go on" is no question, and vectors find something for everything."""

QUESTION_CHARACTERS = 2000
"""Of a long prompt: half from its beginning and half from its end, for what is asked stands before or after a paste."""

KEPT_SECONDS = 30 * 86_400

_COMMAND = re.compile(r"/[\w:.-]+(?=\s|$)")
_OURS = "/recollect:"


@dataclass(frozen=True, slots=True)
class Asked:
    """What the program said on standard input, as far as it is of use here."""

    event: str = ""
    session: str = ""
    prompt: str = ""
    source: str = ""

    @classmethod
    def read(cls, text: bytes) -> Asked:
        """What is missing, or no text, is empty."""
        said = json.loads(text)
        fields = said if isinstance(said, dict) else {}
        named = {"event": "hook_event_name", "session": "session_id", "prompt": "prompt", "source": "source"}
        found = {name: fields.get(field) for name, field in named.items()}
        return cls(**{name: value for name, value in found.items() if isinstance(value, str)})


def hook(tokens: int | None, options: Mapping[str, Any]) -> NoReturn:
    """Read the program's JSON, print ours or nothing, and end the process with 0."""
    seconds = (options["budget_ms"] or BUDGET_MS) / 1000
    late = threading.Timer(seconds + GRACE_S, os._exit, (0,))
    late.daemon = True
    late.start()
    look = partial(_block, tokens=tokens or TOKENS, options=dict(options), until=time.monotonic() + seconds)
    said = ""
    try:
        said = reply(Asked.read(sys.stdin.buffer.read()), look)
    except Exception as error:  # noqa: BLE001  (an edge: a hook that fails must not stand in the way)
        notice(f"nothing was recalled: {error}")
    late.cancel()
    if said and sys.stdout is not None:
        with contextlib.suppress(OSError):
            sys.stdout.write(said)
            sys.stdout.flush()
    # A model that is still being loaded is not waited for; of the store nothing is open but for reading.
    os._exit(0)


def reply(asked: Asked, look: Callable[[str], str]) -> str:
    """The program's JSON with a block in it, or nothing. It is said once a session, and again when that was emptied."""
    mark = _mark(asked.session)
    if asked.event == STARTING and asked.source in EMPTIED:
        mark.unlink(missing_ok=True)
    if asked.event not in ASKING or _tries(mark) >= TRIES:
        return ""
    words = question(asked.prompt)
    if not words:
        return ""
    if asked.session:
        _note(mark, 1)  # before: where looking hangs, it must not hang at every prompt
    text = look(words)
    if not text:
        return ""
    if asked.session:
        _note(mark, TRIES)
    return json.dumps({"hookSpecificOutput": {"hookEventName": asked.event, "additionalContext": text}})


def question(prompt: str) -> str:
    """What to look up for a prompt; nothing where it says too little, or is a command that looks up by itself."""
    from recollect.analysis import Analyzer

    text = prompt.strip()
    if text.startswith(_OURS):
        return ""
    text = _COMMAND.sub("", text, count=1) if _COMMAND.match(text) else text
    if len(text) > QUESTION_CHARACTERS:
        half = QUESTION_CHARACTERS // 2
        text = f"{text[:half]} … {text[-half:]}"
    said = {token.term for token in Analyzer().tokens(text) if not token.stop}
    return text.strip() if len(said) >= LEAST_WORDS else ""


def _block(words: str, *, tokens: int, options: dict[str, Any], until: float) -> str:
    """What memory has on it, or nothing. Nothing is fetched, and what takes long is off unless a flag asks for it."""
    os.environ |= {"RECOLLECT_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}
    if not _there(options):
        return ""
    asked_for = {name: value for name, value in search_options(options).items() if value is not None}
    memory = open_memory(options, {"rerank": False, "hyde": "off", **asked_for}, reads=True)
    left = max(LEAST_MS, (until - time.monotonic()) * 1000)
    recalled = memory.recall(words, tokens=tokens, budget_ms=left, **filters_of(options))
    for warning in recalled.warnings:
        notice(f"note: {warning}")
    return recalled.text if recalled.citations else ""


def _there(options: Mapping[str, Any]) -> bool:
    """Whether there is a store: no model is loaded to ask one that is not."""
    place = load_settings(options).settings.store
    if place is None:
        from recollect.memory import default_store

        place = str(default_store())
    return "://" in place or Path(place).expanduser().exists()


def _mark(session: str) -> Path:
    """The file whose size says how often a session was answered; its name tells nothing of the session."""
    from platformdirs import user_cache_dir

    name = blake2b(session.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return Path(user_cache_dir("recollect")) / "recalled" / name


def _tries(mark: Path) -> int:
    try:
        return mark.stat().st_size
    except OSError:
        return 0


def _note(mark: Path, count: int) -> None:
    """One byte for each try. Where it cannot be written, the session is answered again: better than never."""
    with contextlib.suppress(OSError):
        mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with mark.open("ab") as file:
            file.write(b"." * count)
        for old in mark.parent.iterdir():
            if time.time() - old.stat().st_mtime > KEPT_SECONDS:
                old.unlink(missing_ok=True)
