"""Answers on standard output to lines on standard input that are no message, which the SDK would pass over in silence.

A client that sent such a line waits for an answer. JSON-RPC has one: an error, with the request's id if it has one.
"""

from __future__ import annotations

import json
from typing import Any, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError


class AnsweringStream:
    """The SDK's stream of messages from a client. Exceptions in it are answered here and not passed on."""

    def __init__(self, messages: Any, answers: Any) -> None:
        self._messages = messages
        self._answers = answers

    async def receive(self) -> SessionMessage:
        """The next message."""
        while True:
            item: SessionMessage | Exception = await self._messages.receive()
            if isinstance(item, SessionMessage):
                return item
            if (answer := error_for(item)) is not None:
                await self._answers.send(SessionMessage(answer))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._messages.aclose()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._messages, name)


def error_for(problem: Exception) -> JSONRPCError | None:
    """The answer to a line that could not be read; None to an empty line, and to an answer of the client's own."""
    found = problem.errors(include_url=False) if isinstance(problem, ValidationError) else []
    if found and found[0]["type"] != "json_invalid":
        inputs = [one["input"] for one in found if isinstance(one["input"], dict)]
        return _invalid(inputs[0] if inputs else None)
    line = str(found[0]["input"]) if found else "?"
    try:
        # Python reads half a surrogate pair, which the SDK does not: then the request has an id.
        return _invalid(json.loads(line)) if line.strip() else None
    except (ValueError, RecursionError):
        return _error(None, PARSE_ERROR, "this line is not JSON")


def _invalid(message: Any) -> JSONRPCError | None:
    """The answer to JSON that is no message."""
    fields = message if isinstance(message, dict) else {}
    if "result" in fields or "error" in fields:
        return None
    return _error(fields.get("id"), INVALID_REQUEST, "this is no JSON-RPC request, or a text in it is not Unicode")


def _error(request_id: Any, code: int, message: str) -> JSONRPCError:
    """An error for a request, or for none where its id cannot be told."""
    known = isinstance(request_id, int | str) and not isinstance(request_id, bool) and str(request_id).isprintable()
    return JSONRPCError(jsonrpc="2.0", id=request_id if known else None, error=ErrorData(code=code, message=message))
