"""A tool that takes no argument it does not know, and whose errors are ours: code, message and hint."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Self

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field, ValidationError, create_model

from recollect.errors import RecollectError, UnknownRecord, UsageError
from recollect.memory.recall import visible_json

SEARCH_HINT = "memory_search finds the ids that there are"


class MemoryTool(Tool):
    """The SDK's tool, held to its schema. `public` makes of an error what its caller may read."""

    public: Callable[[RecollectError], RecollectError] = Field(default=lambda error: error, exclude=True)

    @classmethod
    def of(cls, function: Callable[..., CallToolResult], title: str, **hints: bool) -> Self:
        """A tool of that function: its name, its docstring as the description, its types as the schemas."""
        annotations = ToolAnnotations(title=title, open_world_hint=False, **hints)
        about = inspect.getdoc(function)
        tool = cls.from_function(function, title=title, description=about, annotations=annotations)
        known = tool.fn_metadata.arg_model
        strict = create_model(known.__name__, __base__=known, __cls_kwargs__={"extra": "forbid"})
        tool.fn_metadata.arg_model = strict
        tool.parameters = strict.model_json_schema(by_alias=True)
        return tool  # type: ignore[return-value]  # the SDK types its constructor as Tool; it makes a `cls`

    async def run(
        self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False
    ) -> CallToolResult:
        """Run it; what goes wrong in a way that we know comes back as our error."""
        try:
            return await super().run(arguments, context, convert_result)  # type: ignore[no-any-return]
        except ToolError as error:
            match error.__cause__:
                case UnknownRecord() as unknown:
                    return refused(UnknownRecord.code, unknown.message, SEARCH_HINT)
                case RecollectError() as ours:
                    ours = self.public(ours)
                    return refused(ours.code, ours.message, ours.hint)
                case ValidationError() as wrong:
                    return refused(UsageError.code, _in_words(wrong), f"see the input schema of {self.name}")
            raise


def answered(value: Mapping[str, Any], text: str | None = None) -> CallToolResult:
    """A result: structured, and as text for clients that read only that."""
    shown = visible_json(value) if text is None else text
    return CallToolResult(content=[TextContent(type="text", text=shown)], structured_content=dict(value))


def refused(code: str, message: str, hint: str) -> CallToolResult:
    """An error as a tool's result, in text alone: some clients hold structured errors against the output schema."""
    error = {"error": {"code": code, "message": message, "hint": hint}}
    return CallToolResult(content=[TextContent(type="text", text=visible_json(error))], is_error=True)


def _in_words(error: ValidationError) -> str:
    """What does not fit, without the values: they are the caller's, and may be long."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, one['loc']))[:100]}: {one['msg']}" for one in found[:10])
