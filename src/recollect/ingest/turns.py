"""Conversations in the formats of the programs that wrote them: JSON values in, turns of people and assistants out.

Tool calls, system text, reasoning and text that a program wrote in the user's name are left out. A format is a
function that reads the values of one file; `FORMATS` tells them apart by the fields of a value.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from recollect.types.records import first_words

USER, ASSISTANT = "user", "assistant"
SPEAKERS = {
    **dict.fromkeys(("user", "human", "me"), USER),
    **dict.fromkeys(("assistant", "ai", "bot", "model", "gemini", "chatgpt", "claude"), ASSISTANT),
}
NOT_SPEAKERS = frozenset(("system", "developer", "tool", "function", "toolresult", "tool_result", "info", "error"))
TEXT_BLOCKS = ("text", "input_text", "output_text")
TITLE_CHARACTERS = 80
RUN = 1000  # turns of one conversation in JSON lines that are handed on together
MILLISECONDS = 100_000_000_000  # a larger time is in milliseconds: as seconds it would be in the year 5138

# The beginning of a block of a user's message that the program wrote.
_INJECTED = re.compile(
    r"<(?:environment_context|user_instructions|permissions instructions|turn_aborted|recommended_plugins|skill\b"
    r"|subagent_notification|collaboration_mode|command-(?:name|message|args)|local-command-|bash-(?:input|stdout)"
    r"|task-notification|system-reminder|user-prompt-submit-hook|hook_context|session_context)"
    r"|# AGENTS\.md instructions|<INSTRUCTIONS>|Caveat: The messages below were generated|\[Request interrupted"
    r"|Read HEARTBEAT\.md"
)
_NO_ANSWERS = frozenset(("HEARTBEAT_OK", "NO_REPLY", "No response requested."))
_CITATION = re.compile("\ue200[^\ue201]*\ue201")  # marks of ChatGPT for its sources


@dataclass(frozen=True, slots=True)
class Turn:
    """What one speaker said at a time. `id` is the message's own id, or a hash of its content."""

    id: str
    speaker: str
    text: str
    time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns in order. `replaced` are ids of messages that an edit or another answer has taken the place of."""

    id: str
    title: str
    source: str
    turns: Sequence[Turn]
    replaced: tuple[str, ...] = ()


Values: TypeAlias = Iterable[Mapping[str, Any]]
Skip: TypeAlias = Callable[[str], None]  # notes why a value is left out
Reader: TypeAlias = Callable[[Values, str, Skip], Iterator[Conversation]]


class Format(NamedTuple):
    """How to read a format, and how to recognise one of its values."""

    read: Reader
    matches: Callable[[Mapping[str, Any]], bool]


def moment(value: object) -> datetime | None:
    """A time from seconds or milliseconds since 1970, or from ISO 8601; None for anything else."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if value > MILLISECONDS else value, UTC)
        if isinstance(value, str) and value.strip():
            at = datetime.fromisoformat(value.strip())
            return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def text_of(content: object, *, kinds: Sequence[str] = TEXT_BLOCKS) -> str:
    """The text of a message: the text itself, or its blocks of these kinds. Other blocks call tools or show images."""
    if isinstance(content, str):
        return content.strip()
    blocks = content if isinstance(content, list) else []
    parts = [block if isinstance(block, str) else _block_text(block, kinds) for block in blocks]
    return "\n\n".join(part.strip() for part in parts if part.strip())


def _block_text(block: object, kinds: Sequence[str]) -> str:
    if isinstance(block, dict) and block.get("type", kinds[0]) in kinds and isinstance(block.get("text"), str):
        return str(block["text"])
    return ""


def chatgpt(values: Values, _name: str, skip: Skip) -> Iterator[Conversation]:
    """The export of ChatGPT: each conversation is a tree of messages, read from its current node up to the root."""
    for value in values:
        mapping = value.get("mapping")
        if not isinstance(mapping, dict):
            skip("a conversation without messages")
            continue
        nodes = {key: node for key, node in mapping.items() if isinstance(node, dict)}
        parents = {key: node.get("parent") for key, node in nodes.items()}
        times = {key: _message(node).get("create_time") for key, node in nodes.items()}
        path = _branch(parents, value.get("current_node"), times)
        turns = [turn for key in path if (turn := _chatgpt_turn(key, _message(nodes[key])))]
        replaced = tuple(key for key in nodes.keys() - set(path) if _chatgpt_turn(key, _message(nodes[key])))
        key = value.get("conversation_id") or value.get("id") or _digest(str(value.get("title")), str(times))
        yield Conversation(str(key), _title(value.get("title"), turns), "chatgpt", turns, replaced)


def _message(node: Mapping[str, Any]) -> Mapping[str, Any]:
    message = node.get("message")
    return message if isinstance(message, dict) else {}


def _chatgpt_turn(key: str, message: Mapping[str, Any]) -> Turn | None:
    author, content, metadata = (message.get(name) for name in ("author", "content", "metadata"))
    if not isinstance(author, dict) or not isinstance(content, dict):
        return None
    hidden = isinstance(metadata, dict) and metadata.get("is_visually_hidden_from_conversation")
    to_tool = message.get("recipient") not in (None, "all")
    speaker = SPEAKERS.get(str(author.get("role")))
    if hidden or to_tool or speaker is None or message.get("weight") == 0:
        return None
    if content.get("content_type") not in ("text", "multimodal_text"):  # code for a tool, its output, reasoning
        return None
    parts = listed(content.get("parts"))
    texts = [part.get("text", "") if isinstance(part, dict) else part for part in parts]  # a dict: speech
    text = _CITATION.sub("", "\n\n".join(part for part in texts if isinstance(part, str) and part)).strip()
    return Turn(str(message.get("id") or key), speaker, text, moment(message.get("create_time"))) if text else None


def _branch(parents: Mapping[str, object], leaf: object, times: Mapping[str, object]) -> list[str]:
    """The ids from the root of a tree to a leaf; without a leaf, to the newest one."""
    if not isinstance(leaf, str) or leaf not in parents:
        inner = {parent for parent in parents.values() if isinstance(parent, str)}
        leaves = [key for key in parents if key not in inner]
        leaf = max(leaves, key=lambda key: moment(times.get(key)) or datetime.min.replace(tzinfo=UTC), default=None)
    path: list[str] = []
    while isinstance(leaf, str) and leaf in parents and leaf not in path[-1:] and len(path) <= len(parents):
        path.append(leaf)
        leaf = parents[leaf]
    return list(dict.fromkeys(reversed(path)))


def claude(values: Values, _name: str, skip: Skip) -> Iterator[Conversation]:
    """The export of Claude. Messages that name their parent are a tree, as ChatGPT's; others are a list."""
    for value in values:
        if not isinstance(value.get("chat_messages"), list):
            skip("a conversation without messages")
            continue
        messages = [one for one in value["chat_messages"] if isinstance(one, dict)]
        by_id = {str(one.get("uuid") or number): one for number, one in enumerate(messages)}
        path = list(by_id)
        if messages and all(isinstance(one.get("parent_message_uuid"), str) for one in messages):
            parents = {key: one["parent_message_uuid"] for key, one in by_id.items()}
            times = {key: one.get("created_at") for key, one in by_id.items()}
            path = _branch(parents, value.get("current_leaf_message_uuid"), times)
        turns = [turn for key in path if (turn := _claude_turn(key, by_id[key]))]
        replaced = tuple(key for key in by_id.keys() - set(path) if _claude_turn(key, by_id[key]))
        key = str(value.get("uuid") or _digest(str(value.get("name")), *by_id))
        yield Conversation(key, _title(value.get("name"), turns), "claude", turns, replaced)


def _claude_turn(key: str, message: Mapping[str, Any]) -> Turn | None:
    speaker = SPEAKERS.get(str(message.get("sender")))
    text = text_of(message.get("content"), kinds=("text",)) or text_of(message.get("text"))
    if not text:  # a long paste is an attachment
        pasted = [one.get("extracted_content") for one in listed(message.get("attachments")) if isinstance(one, dict)]
        text = text_of([one for one in pasted if isinstance(one, str)])
    return Turn(key, speaker, text, moment(message.get("created_at"))) if speaker and text else None


def claude_code(values: Values, name: str, _skip: Skip) -> Iterator[Conversation]:
    """A transcript of Claude Code: one line for each block of a message. Work of subagents is left out.

    A forked session repeats the turns before the fork; their answers name the session in which they were given.
    """
    turns: dict[str, list[Turn]] = {}
    numbers = _Numbers()
    unanswered: list[tuple[str, Turn]] = []
    for value in values:
        if value.get("type") not in (USER, ASSISTANT) or any(value.get(flag) for flag in _CLAUDE_CODE_FLAGS):
            continue
        message = _message(value)
        if message.get("model") != "<synthetic>":
            at, session = moment(value.get("timestamp")), str(value.get("sessionId") or name)
            spoken = numbers.spoken_turns(
                value.get("uuid"), session, value["type"], message.get("content"), at, kinds=("text",)
            )
            unanswered += [(session, turn) for turn in spoken]
        if value["type"] == ASSISTANT:
            for session, turn in unanswered:
                turns.setdefault(str(value.get("requestSessionId") or session), []).append(turn)
            unanswered = []
    for session, turn in unanswered:
        turns.setdefault(session, []).append(turn)
    for session, own in turns.items():
        yield Conversation(session, _title(None, own), "claude-code", own)


_CLAUDE_CODE_FLAGS = ("isMeta", "isSidechain", "isCompactSummary", "isApiErrorMessage")


def codex(values: Values, name: str, _skip: Skip) -> Iterator[Conversation]:
    """A rollout of Codex: lines with a payload, or as older versions wrote them, the payloads themselves."""
    session, begun, turns, numbers = "", None, list[Turn](), _Numbers()
    for value in values:
        payload = value["payload"] if isinstance(value.get("payload"), dict) else value
        if value.get("type") == "session_meta" or (not session and "id" in payload and "type" not in value):
            if payload.get("thread_source") == "subagent" or isinstance(payload.get("source"), dict):
                return
            session, begun = session or str(payload.get("id") or ""), begun or moment(payload.get("timestamp"))
        summary = str(payload.get("message")) if value.get("type") == "compacted" else ""
        if turns and turns[-1].speaker == ASSISTANT and summary.endswith(turns[-1].text):
            turns.pop()  # it summed up the conversation for the model itself
        if value.get("type") in ("response_item", "message") and payload.get("type") == "message":
            at = moment(value.get("timestamp")) or begun
            turns += numbers.spoken_turns(None, session, payload.get("role"), payload.get("content"), at)
    if turns:
        yield Conversation(session or name, _title(None, turns), "codex", turns)


def openclaw(values: Values, name: str, _skip: Skip) -> Iterator[Conversation]:
    """A session of OpenClaw: a line about the session, and one for each message."""
    session, turns, numbers = "", list[Turn](), _Numbers()
    for value in values:
        if value.get("type") == "session":
            session = str(value.get("id") or "")
        elif value.get("type") == "message":
            message = _message(value)
            role, content = message.get("role"), message.get("content")
            at = moment(value.get("timestamp")) or moment(message.get("timestamp"))
            turns += numbers.spoken_turns(value.get("id"), "", role, content, at, kinds=("text",))
    if turns:
        yield Conversation(session or name, _title(None, turns), "openclaw", turns)


def gemini(values: Values, name: str, _skip: Skip) -> Iterator[Conversation]:
    """A session of Gemini CLI: one object with all messages, or lines; a line may go back to an earlier message."""
    session, turns, numbers = "", dict[str, Turn](), _Numbers()
    for value in values:
        session = session or str(value.get("sessionId") or "")
        if isinstance(back := value.get("$rewindTo"), str) and back in turns:
            turns = dict(islice(turns.items(), list(turns).index(back)))
        for message in map(_dict, listed(value["messages"]) if "messages" in value else [value]):
            speaker = {"user": USER, "gemini": ASSISTANT}.get(str(message.get("type")))
            key, content, at = message.get("id"), message.get("content"), moment(message.get("timestamp"))
            turns |= {turn.id: turn for turn in numbers.spoken_turns(key, "", speaker, content, at)}
    if turns:
        ordered = list(turns.values())
        yield Conversation(session or name, _title(None, ordered), "gemini", ordered)


def opencode(values: Values, name: str, _skip: Skip) -> Iterator[Conversation]:
    """A session of OpenCode as `opencode export` prints it; a part that is synthetic was not written by the user."""
    numbers = _Numbers()
    for value in values:
        session, turns = str(_dict(value.get("info")).get("id") or name), list[Turn]()
        for message in map(_dict, listed(value.get("messages"))):
            about, parts = _dict(message.get("info")), listed(message.get("parts"))
            own = [part for part in parts if not _dict(part).get("synthetic") and not _dict(part).get("ignored")]
            if about.get("summary") is not True:
                at = moment(_dict(about.get("time")).get("created"))
                turns += numbers.spoken_turns(about.get("id"), session, about.get("role"), own, at, kinds=("text",))
        if turns:
            yield Conversation(session, _title(_dict(value.get("info")).get("title"), turns), "opencode", turns)


def listed(value: object) -> list[Any]:
    """A value that should be a list; empty if it is none."""
    return value if isinstance(value, list) else []


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def plain(values: Values, name: str, skip: Skip) -> Iterator[Conversation]:
    """Messages with a speaker and a text each; or objects that list the messages of a conversation.

    Messages of one conversation that follow each other are handed on in runs, so that a file may be of any length.
    """
    numbers, titles = _Numbers(), dict[str, str]()
    key, turns = name, list[Turn]()
    for conversation, title, message in _plain_messages(values, name):
        speaker = message.get("speaker") or message.get("role")
        text = text_of(message.get("text") or message.get("content"))
        if not isinstance(speaker, str) or not speaker.strip() or not text:
            skip("no speaker" if text else "no text")
            continue
        if speaker.lower() in NOT_SPEAKERS:
            continue
        if turns and (conversation != key or len(turns) == RUN):
            yield Conversation(key, titles.setdefault(key, _title(None, turns)), "plain", turns)
            turns = []
        key = conversation
        if title:
            titles.setdefault(key, title)
        at = next(filter(None, (moment(message.get(field)) for field in ("time", "timestamp", "created_at"))), None)
        speaker = SPEAKERS.get(speaker.lower(), speaker.strip())
        turns.append(numbers.turn(message.get("id"), key, speaker, text, at))
    if turns:
        yield Conversation(key, titles.setdefault(key, _title(None, turns)), "plain", turns)


def _plain_messages(values: Values, name: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """The messages with the id and the title of their conversation."""
    for number, value in enumerate(values, 1):
        title = value.get("title")
        title = " ".join(title.split()) if isinstance(title, str) else ""
        messages = value.get("messages")
        if isinstance(messages, list):
            key = str(value.get("conversation") or value.get("id") or f"{name}-{number}")
            yield from ((key, title, message) for message in messages if isinstance(message, dict))
        else:
            yield str(value.get("conversation") or name), title, value


class _Numbers:
    """Makes turns. The id of a message without one is a hash of all it has, and a number among equal ones."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def turn(self, key: object, conversation: str, speaker: str, text: str, at: datetime | None) -> Turn:
        if not key:
            digest = _digest(conversation, speaker, at.isoformat() if at else "", text)
            self._counts[digest] += 1
            key = f"{digest}-{self._counts[digest]}"
        return Turn(str(key), speaker, text, at)

    def spoken_turns(
        self, key: object, conversation: str, speaker: object, content: object, at: datetime | None, *,
        kinds: Sequence[str] = TEXT_BLOCKS,
    ) -> list[Turn]:  # fmt: skip
        """The turn of a message that the user or an assistant has written; none without text of their own."""
        if speaker not in (USER, ASSISTANT):
            return []
        blocks = content if isinstance(content, list) else [content]
        own = [block for block in blocks if speaker != USER or not _INJECTED.match(text_of([block], kinds=kinds))]
        text = text_of(own, kinds=kinds)
        return [self.turn(key, conversation, speaker, text, at)] if text and text not in _NO_ANSWERS else []


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _title(title: object, turns: Sequence[Turn]) -> str:
    """The title of a conversation, or how the user began: that stays as it is while they talk."""
    if isinstance(title, str) and title.strip():
        return " ".join(title.split())
    first = next((turn.text for turn in turns if turn.speaker == USER), turns[0].text if turns else "")
    return first_words(first[: TITLE_CHARACTERS * 10], TITLE_CHARACTERS) or "conversation"


def _is_message(value: Mapping[str, Any]) -> bool:
    named = any(isinstance(value.get(name), str) for name in ("role", "speaker"))
    return (named and any(name in value for name in ("text", "content"))) or isinstance(value.get("messages"), list)


FORMATS: Mapping[str, Format] = {  # the order in which they are tried
    "chatgpt": Format(chatgpt, lambda value: isinstance(value.get("mapping"), dict)),
    "claude": Format(claude, lambda value: isinstance(value.get("chat_messages"), list)),
    "gemini": Format(
        gemini,
        lambda value: "sessionId" in value and "type" not in value and ("startTime" in value or "projectHash" in value),
    ),
    "opencode": Format(opencode, lambda value: isinstance(value.get("info"), dict) and "messages" in value),
    "claude-code": Format(claude_code, lambda value: "type" in value and ("sessionId" in value or "leafUuid" in value)),
    "codex": Format(
        codex,
        lambda value: (
            (value.get("type") in ("session_meta", "response_item", "event_msg") and "payload" in value)
            or {"id", "timestamp", "instructions"} <= value.keys()
        ),
    ),
    "openclaw": Format(
        openclaw,
        lambda value: (
            (value.get("type") == "session" and "id" in value)
            or (value.get("type") == "message" and isinstance(value.get("message"), dict))
        ),
    ),
    "plain": Format(plain, _is_message),
}
