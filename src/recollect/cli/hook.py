"""`recollect recall --hook`: answers the prompt hook of an agent program (Claude Code, Codex, Gemini) in its JSON."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from recollect.cli.flags import common_options, filters_of, load_settings, open_memory, search_options
from recollect.cli.terminal import notice
from recollect.disk import at_home, own_folder
from recollect.types import Record

BUDGET_MS = 2000.0  # time from the start of the command until the search must have answered
LEAST_MS = 250.0  # time for the search itself, even on a machine that was slow to start
GRACE_S = 1.0  # time beyond the budget, after which the process ends whatever it is doing
TOKENS = 1000

PROMPT_EVENTS = ("UserPromptSubmit", "BeforeAgent")  # of Claude Code and Codex, and of Gemini
SESSION_START = "SessionStart"
RESET_SOURCES = ("clear", "compact")  # of a session start after which earlier blocks are not in the context any more

FAILURES = 3  # searches of a session that did not end, after which it gets no more: each delays a prompt
MOST_SHOWN = 2000  # records that are remembered as shown in a session
DEEPER = 50  # results that are searched at most in the place of those that were shown already
LEAST_WORDS = 2  # besides stop words: "Go on" asks for nothing, and vectors find something for everything
REPLIES = Path(__file__).with_name("replies.txt")  # words that answer or steer an agent, in four languages
QUERY_CHARACTERS = 2000  # of a long prompt: half from its start and half from its end, around a pasted text
SAME_PROMPT_SECONDS = 5  # within which two hooks with the same prompt are two installations of one
MARK_SECONDS = 30 * 86_400  # how long the state of a session is remembered

_COMMAND = re.compile(r"/[\w:.-]+(?=\s|$)")
_OWN_COMMAND = "/recollect:"
_ASKS = re.compile(r"(who|what|when|where|which|whose|how)\b|.*\?$", re.IGNORECASE | re.DOTALL)  # one word is enough


@dataclass(slots=True)
class SessionState:
    """What a session has been shown, and how many of its searches did not end.

    Records that the session wrote itself since `since`, in seconds, are in its context.
    """

    session: str = ""
    shown: list[str] = field(default_factory=list)
    failures: int = 0
    since: float = 0.0

    @property
    def place(self) -> Path:
        """The file of the state. Its name does not reveal the session."""
        name = blake2b(self.session.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        return own_folder("cache") / "recalled" / name

    @classmethod
    def of(cls, session: str) -> SessionState:
        """The stored state of a session; a new one if there is none that can be read."""
        state = cls(session)
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            stored = json.loads(state.place.read_bytes())
            state = cls(session, [str(key) for key in stored["shown"]], int(stored["failures"]), float(stored["since"]))
        return state

    def save(self) -> None:
        """Write the state. If that fails, the session may be shown a record twice."""
        if not self.session:
            return
        with contextlib.suppress(OSError):
            self.place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            stored = {"shown": self.shown[-MOST_SHOWN:], "failures": self.failures, "since": self.since}
            self.place.write_text(json.dumps(stored), encoding="utf-8")
            for old in self.place.parent.iterdir():
                about = old.stat()
                if time.time() - about.st_mtime > (MARK_SECONDS if about.st_size else SAME_PROMPT_SECONDS):
                    old.unlink(missing_ok=True)

    def claim(self, *question: str) -> bool:
        """Whether no other process answers the same question: a plugin and the settings may both have a hook.

        The mark is an empty file, which counts for some seconds. `save` removes it when it is old.
        """
        words = "\0".join((self.session, str(self.since), *question)).encode("utf-8", "surrogatepass")
        mark = self.place.with_name(blake2b(words, digest_size=16).hexdigest())
        with contextlib.suppress(OSError):
            mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                mark.touch(exist_ok=not self.session)
            except FileExistsError:
                if time.time() - mark.stat().st_mtime <= SAME_PROMPT_SECONDS:
                    return False
                mark.touch()
        return True

    def is_new(self, record: Record) -> bool:
        """Whether a record is not in the context of the session yet."""
        own = bool(self.session) and record.author_session == self.session and record.time.timestamp() >= self.since
        return not own and shown_as(record) not in self.shown


def shown_as(record: Record) -> str:
    """A record as a state remembers it: by its id and its text, since a text that was edited is new."""
    return f"{record.id} {record.text_hash.hex()[:8]}"


Search: TypeAlias = Callable[[str, SessionState], tuple[str, list[str]]]  # the block, and the records that it shows


def run_hook(tokens: int | None, options: Mapping[str, Any]) -> NoReturn:
    """Read the program's JSON, print the reply in time or nothing, and end with 0: it takes 2 as an order to stop."""
    seconds = (options["budget_ms"] or BUDGET_MS) / 1000
    end_after(seconds + GRACE_S)
    search = partial(_block, tokens=tokens or TOKENS, options=dict(options), until=time.monotonic() + seconds)
    text = ""
    try:
        document = json.loads(sys.stdin.buffer.read())
        text = reply(document if isinstance(document, dict) else {}, search)
    except Exception as error:  # noqa: BLE001  (an edge: a hook that fails must not stop the program)
        notice(f"nothing was recalled: {error}")
    if text and sys.stdout is not None:
        with contextlib.suppress(OSError):
            sys.stdout.write(text)
            sys.stdout.flush()
    # Do not wait for a model that is still loading; the store is open for reading only.
    os._exit(0)


def end_after(seconds: float) -> None:
    """End this process after a time, with 0, whatever it is doing then."""
    deadline = threading.Timer(seconds, os._exit, (0,))
    deadline.daemon = True
    deadline.start()


def reply(document: Mapping[str, Any], search: Search) -> str:
    """The program's JSON with a recall block of what is new to the session, or nothing."""
    fields = (document.get(key) for key in ("hook_event_name", "session_id", "prompt", "source"))
    event, session, prompt, source = (field if isinstance(field, str) else "" for field in fields)
    if event == SESSION_START and source in RESET_SOURCES:
        SessionState(session, since=time.time()).save()
    query = query_for(prompt) if event in PROMPT_EVENTS else ""
    state = SessionState.of(session)
    if not query or state.failures >= FAILURES:
        return ""
    state.failures += 1
    state.save()
    block, shown = search(query, state)
    state.failures -= 1
    state.shown += shown
    state.save()
    output = {"hookEventName": event, "additionalContext": block}
    return json.dumps({"hookSpecificOutput": output}) if block else ""


def query_for(prompt: str) -> str:
    """The query for a prompt; empty if this says too little, only steers ("no, the other") or is our own command."""
    from recollect.analysis import Analyzer
    from recollect.stopwords import are_stopwords

    text = prompt.strip()
    if text.startswith(_OWN_COMMAND):
        return ""
    text = (_COMMAND.sub("", text, count=1) if _COMMAND.match(text) else text).strip()
    if len(text) > QUERY_CHARACTERS:
        half = QUERY_CHARACTERS // 2
        text = f"{text[:half]} … {text[-half:]}"
    words = {text[token.start : token.end].lower() for token in Analyzer().tokens(text) if not token.stop}
    steers = are_stopwords(words.difference(REPLIES.read_text("utf-8").split()))
    return text if not steers and len(words) >= (1 if _ASKS.match(text) else LEAST_WORDS) else ""


def _block(
    query: str, state: SessionState, *, tokens: int, options: dict[str, Any], until: float
) -> tuple[str, list[str]]:
    """The recall block, or nothing. No model is fetched; reranking and HyDE are off unless a flag turns them on."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    place = load_settings(options).settings.place
    if "://" not in place and not at_home(place).exists():
        return "", []  # so that no model is loaded for nothing
    if not state.claim(query, repr(common_options(options))):
        return "", []
    flags = {name: value for name, value in search_options(options).items() if value is not None}
    memory = open_memory(options, {"rerank": False, "hyde": "off", **flags}, reads=True, fetch=False)
    from recollect.memory.recall import recall

    budget_ms = max(LEAST_MS, (until - time.monotonic()) * 1000)
    limit = memory.settings.search.limit
    deeper = limit + min(len(state.shown), DEEPER)
    fixed: dict[str, Any] = {"limit": deeper, "budget_ms": budget_ms, "plain": True}
    answer = memory.search(query, for_model=True, **fixed, **filters_of(options))
    # A turn in which the same was asked before says nothing new.
    others = [result for result in answer.results if result.record.text.strip() != query]
    new = [result for result in others if state.is_new(result.record)][:limit]
    if not new:
        return "", []
    recalled = recall(replace(answer, results=tuple(new)), tokens=tokens)
    for warning in recalled.warnings:
        notice(f"note: {warning}")
    cited = {citation.id for citation in recalled.citations}
    return recalled.text if cited else "", [shown_as(one.record) for one in new if one.record.id in cited]
