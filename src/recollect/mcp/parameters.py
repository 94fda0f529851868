"""The parameters of the tools, with descriptions for agents. A scope is not among them: the server has a fixed one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from recollect.memory.recall import LEAST_TOKENS, MOST_TOKENS
from recollect.memory.validation import MAX_TEXT
from recollect.options import FILTERS, MCP, SEARCH, Bounds, Option

F = TypeVar("F", bound=Callable[..., Any])

MOST_QUERY = 20_000
MOST_NAME = 1_000
MOST_NAMES = 100
MOST_NUMBER = 1e9

Name = Annotated[str, Field(max_length=MOST_NAME)]
Names = Annotated[list[Name], Field(max_length=MOST_NAMES)]


def _parameter(option: Option) -> inspect.Parameter:
    """A search option or filter as a keyword parameter. Its default is never null, which some agents cannot send."""
    bounds, text, default = option.mcp_bounds or option.bounds or Bounds(), option.help, option.default
    low: dict[str, Any] = {"gt": bounds.low} if bounds.open else {"ge": bounds.low}
    kind: Any
    match option.kind:
        case "flag":
            kind = bool
        case "whole" | "number":
            number = int if option.kind == "whole" else float
            kind = Annotated[number, Field(**low, le=min(bounds.high, MOST_NUMBER))]
        case "names":
            kind, default = Names, []
        case _:
            kind = Literal["", *option.choices] if option.choices else Name
            text, default = f"{text} Empty for no restriction.", option.default or ""
    annotation = Annotated[kind, Field(description=text)]
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


PARAMETERS = {option.name: _parameter(option) for option in (*SEARCH, *FILTERS) if MCP in option.places}
"""The search options and filters that agents can set, by name."""

Limit = PARAMETERS["limit"].annotation
DEFAULT_LIMIT: int = PARAMETERS["limit"].default


def with_options(tool: F) -> F:
    """Give a tool that takes `**options` a named parameter for each option that agents can set."""
    signature = inspect.signature(tool, eval_str=True)
    named = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    tool.__signature__ = signature.replace(parameters=[*named, *PARAMETERS.values()])  # type: ignore[attr-defined]
    return tool


def without_empty(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options without empty values; an empty value stays where the default is not empty."""
    return {name: value for name, value in options.items() if value or PARAMETERS[name].default}


QueryText = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MOST_QUERY,
        description="What you want to know, as a question or as words. A whole question finds more than one word.",
    ),
]
Tokens = Annotated[int, Field(ge=LEAST_TOKENS, le=MOST_TOKENS, description="Size limit of the block in tokens.")]
RecordId = Annotated[
    str,
    Field(min_length=1, max_length=MOST_NAME, description="The id of a record, from memory_search or memory_recall."),
]
RecordIds = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=MOST_NAME)]],
    Field(
        min_length=1, max_length=MOST_NAMES, description="The ids of the records. If one is unknown, none is forgotten."
    ),
]
Offset = Annotated[
    int,
    Field(ge=0, le=MAX_TEXT, description="The first character to return of a long text; take it from `next_offset`."),
]

Text = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_TEXT,
        description="What to remember, in one or two sentences that can be understood without this conversation.",
    ),
]
NewText = Annotated[str, Field(max_length=MAX_TEXT, description="The new text. Give either `text` or `by`.")]
By = Annotated[Name, Field(description="The id of an existing record that replaces it. Give either `text` or `by`.")]
At = Annotated[Name, Field(description="When it was replaced; empty for now.")]
Title = Annotated[Name, Field(description="A short title; may be empty.")]
Category = Annotated[Name, Field(description="One word for what it is about: preference, decision, technical, …")]
NewTags = Annotated[Names, Field(description="Tags to find it by.")]
Importance = Annotated[
    float | None, Field(ge=0, le=1, description="0 to 1; 0.5 is the default, 1 is for facts that must never be missed.")
]
Decay = Annotated[
    Literal["", "permanent", "stable", "active", "session", "checkpoint"],
    Field(description="How fast its score falls with age; empty for the default."),
]
ExpiresAt = Annotated[
    Name,
    Field(description="When it expires: 2026-03-14, or a span from now: 36h, 2w. Searches do not find it after that."),
]
Supersedes = Annotated[Name, Field(description="The id of the record that it replaces; empty for none.")]
