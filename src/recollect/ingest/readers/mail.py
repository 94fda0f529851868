"""E-mail: one message, or the messages of an mbox file, with subject, people, date and text."""

import email
import email.policy
import re
from collections.abc import Callable, Iterator
from datetime import UTC
from email.message import EmailMessage
from email.utils import parsedate_to_datetime

from recollect.ingest.readers import MAX_PARTS, DocumentText, TextBlock, Unreadable
from recollect.ingest.readers.html import html_blocks

MAX_DEPTH = 10  # of messages inside messages
_FROM = re.compile(rb"^From [^\r\n]*(?:\d{4}|\d\d:\d\d)[^\r\n]*\r?\n(?=[!-9;-~]+:|>?From |\r?\n)", re.MULTILINE)
_HEADERS = ("From", "To", "Cc", "Date")
_PARAGRAPH = re.compile(r"\n[ \t]*\n")


def read(content: bytes) -> DocumentText:
    """Read a message, or all messages of an mbox file."""
    messages = list(_messages(content))
    is_mailbox = content.startswith(b"From ")
    blocks: list[TextBlock] = []
    dates: dict[int, str] = {}
    title = ""
    for number, raw in enumerate(messages, 1):
        message = email.message_from_bytes(raw, policy=email.policy.default)
        assert isinstance(message, EmailMessage)  # noqa: S101  (what the policy makes)
        if not message.keys():
            continue
        part = number if is_mailbox else 0
        subject = _header(message, "Subject") or "(no subject)"
        title = "" if is_mailbox else subject
        blocks.append(TextBlock(subject, part, 1))
        blocks += _head(message, part)
        blocks += _body(message, part, 0)
        if date := _date(message):
            dates[part] = date
    if not blocks:
        raise Unreadable("damaged: no message in it")
    return DocumentText(blocks, title, "message", separate=True, dates=dates)


def _messages(content: bytes) -> Iterator[bytes]:
    """The messages of a file: one, or those between the lines of an mbox file that begin with `From `."""
    if not content.startswith(b"From "):
        yield content
        return
    starts = [(match.start(), match.end()) for match in _FROM.finditer(content)]
    if len(starts) > MAX_PARTS:
        raise Unreadable(f"more than {MAX_PARTS:,} messages")
    ends = (*(start for start, _ in starts[1:]), len(content))
    for (_, start), end in zip(starts, ends, strict=False):
        yield re.sub(rb"(?m)^>(>*From )", rb"\1", content[start:end])


def _head(message: EmailMessage, part: int) -> Iterator[TextBlock]:
    lines = [f"{name}: {value}" for name in _HEADERS if (value := _header(message, name))]
    names = [name for attached in _walk(message, 0) if (name := _or_empty(attached.get_filename))]
    if names:
        lines.append(f"Attached: {', '.join(names)}")
    if lines:
        yield TextBlock("\n".join(lines), part)


def _body(message: EmailMessage, part: int, depth: int) -> Iterator[TextBlock]:
    """The text of a message, plain where it has both, and the messages attached to it."""
    body = _preferred(message)
    if body is not None:
        text = _decoded(body)
        if body.get_content_subtype() == "html":
            for block in html_blocks(text)[1]:
                level = min(block.level + 1, 6) if block.level else 0  # below the subject
                yield TextBlock(block.text, part, level, block.is_table)
        else:
            yield from (TextBlock(each.strip("\n"), part) for each in _PARAGRAPH.split(text) if each.strip())
    for inner in _walk(message, 0):
        if inner.get_content_type() == "message/rfc822" and depth < MAX_DEPTH:
            for attached in inner.get_payload() if isinstance(inner.get_payload(), list) else ():
                if isinstance(attached, EmailMessage):
                    yield TextBlock(_header(attached, "Subject") or "(no subject)", part, min(depth + 2, 6))
                    yield from _head(attached, part)
                    yield from _body(attached, part, depth + 1)


def _walk(message: EmailMessage, depth: int) -> Iterator[EmailMessage]:
    """The parts of a message, but not those of messages attached to it."""
    yield message
    if message.get_content_maintype() == "multipart" and depth < MAX_DEPTH:
        payload = message.get_payload()
        for inner in payload if isinstance(payload, list) else ():
            if isinstance(inner, EmailMessage):
                yield from _walk(inner, depth + 1)


def _preferred(message: EmailMessage) -> EmailMessage | None:
    """The first plain text that is not attached, or else the first page of HTML."""
    texts = [
        each
        for each in _walk(message, 0)
        if each.get_content_maintype() == "text" and each.get_content_disposition() != "attachment"
    ]
    plain = (each for each in texts if each.get_content_subtype() == "plain" and _decoded(each).strip())
    return next(plain, None) or next((each for each in texts if each.get_content_subtype() == "html"), None)


def _decoded(part: EmailMessage) -> str:
    payload = part.get_payload(decode=True)
    if not isinstance(payload, bytes):
        return ""
    try:
        text = payload.decode(part.get_content_charset("utf-8"), "replace")
    except LookupError:
        text = payload.decode("utf-8", "replace")
    return text.replace("\r\n", "\n").replace("\0", "\ufffd")


def _header(message: EmailMessage, name: str) -> str:
    return " ".join(_or_empty(lambda: str(message.get(name, ""))).split())


def _or_empty(read: Callable[[], str | None]) -> str:
    try:
        return read() or ""
    except (ValueError, IndexError, AttributeError, TypeError):  # the parser of headers fails on some broken ones
        return ""


def _date(message: EmailMessage) -> str:
    try:
        date = parsedate_to_datetime(str(message.get("Date", "")))
    except (ValueError, TypeError, IndexError, OverflowError):
        return ""
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).isoformat()
