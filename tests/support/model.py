"""A language model for agent programs: the streams of the Messages, Responses and Gemini APIs with a fixed answer.

The model calls the tool `memory_status` once in a session whose prompts have the words of `CALL`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from support.http import HttpServer, Request, Response

ANSWER = "The wheel turns clockwise."
TOOL, CALL = "memory_status", "ask the server once"
Event = Mapping[str, Any]


class ModelServer(HttpServer):
    """Answers the model requests of Claude Code, Codex and Gemini CLI, and keeps what they asked."""

    def __init__(self) -> None:
        super().__init__(_respond)

    @property
    def prompts(self) -> list[str]:
        """The bodies of the requests that a model answers, as JSON."""
        return [json.dumps(one.body, ensure_ascii=False) for one in self.asked if _events(one) is not None]


def _respond(request: Request) -> Response:
    if "countTokens" in request.path or "count_tokens" in request.path:
        return _json({"totalTokens": 10, "input_tokens": 10})
    events = _events(request)
    if events is None:
        return Response(404, b"{}", {"Content-Type": "application/json"})
    if ":generateContent" in request.path or request.body.get("stream") is False:
        return _json(events[-1])
    lines = (_head(one) + f"data: {json.dumps(one)}\n\n" for one in events)
    return Response(200, "".join(lines).encode(), {"Content-Type": "text/event-stream"})


def _head(event: Event) -> str:
    return f"event: {event['type']}\n" if "type" in event else ""  # Gemini has none


def _json(value: object) -> Response:
    return Response(200, json.dumps(value).encode(), {"Content-Type": "application/json"})


def _events(request: Request) -> list[Event] | None:
    if not isinstance(request.body, dict):
        return None
    tool = _tool(request.body)
    if "/messages" in request.path:
        return _messages(tool)
    if "/responses" in request.path:
        return _responses(tool)
    return _gemini(tool) if "enerateContent" in request.path else None


def _tool(body: Mapping[str, Any]) -> str:
    """The name under which the program offers the tool, if the model is to call it now."""
    text = json.dumps(body)
    results = ('"tool_result"', '"function_call_output"', '"functionResponse"')
    if CALL not in text or any(mark in text for mark in results):
        return ""
    names = re.findall(rf"(?:mcp_\w*)?{TOOL}\b", text)
    return max(names, key=len, default="")


def _messages(tool: str) -> list[Event]:
    block = {"type": "tool_use", "id": "toolu_1", "name": tool, "input": {}} if tool else {"type": "text", "text": ""}
    delta = {"type": "input_json_delta", "partial_json": "{}"} if tool else {"type": "text_delta", "text": ANSWER}
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-stub", "stop_reason": None,
        "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 1}, "content": [],
    }  # fmt: skip
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta", "delta": {"stop_reason": "tool_use" if tool else "end_turn"},
            "usage": {"output_tokens": 5},
        },
        {"type": "message_stop"},
    ]  # fmt: skip


def _responses(tool: str) -> list[Event]:
    if tool:
        item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": tool, "arguments": "{}"}
        item["namespace"] = "mcp__memory"
    else:
        content = [{"type": "output_text", "text": ANSWER, "annotations": []}]
        item = {"type": "message", "id": "item_1", "role": "assistant", "status": "completed", "content": content}
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    response = {"id": "resp_1", "object": "response", "model": "stub", "output": [item], "usage": usage}
    return [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    ]


def _gemini(tool: str) -> list[Event]:
    part = {"functionCall": {"name": tool, "args": {}}} if tool else {"text": ANSWER}
    content = {"role": "model", "parts": [part]}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    return [{"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}]
