"""What a tool can be asked with, in words that an agent reads. There is no scope among it, by design."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from recollect.memory.recall import LEAST_TOKENS, MOST_TOKENS
from recollect.memory.validation import MAX_TEXT

MOST_RESULTS = 50
MOST_QUERY = 20_000
MOST_NAME = 1_000
MOST_NAMES = 100

Name = Annotated[str, Field(max_length=MOST_NAME)]
Names = Annotated[list[Name], Field(max_length=MOST_NAMES)]

QueryText = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MOST_QUERY,
        description="What you want to know, as a question or as words. A whole question finds more than one word.",
    ),
]
Limit = Annotated[int, Field(ge=1, le=MOST_RESULTS, description="How many results at the most.")]
Tokens = Annotated[
    int, Field(ge=LEAST_TOKENS, le=MOST_TOKENS, description="How many tokens the block may take of your context.")
]
Categories = Annotated[Names, Field(description="Only records of any of these categories.")]
Tags = Annotated[Names, Field(description="Only records that have all of these tags.")]
Kind = Annotated[
    Literal["", "fact", "chunk"], Field(description="Only facts, or only chunks of files; empty for both.")
]
PathGlob = Annotated[
    Name, Field(description="Only from this file or folder: `docs/`, `*.md`. Empty for no restriction.")
]
Since = Annotated[
    Name, Field(description="Only what is from then on: 2026-03-14, 2026-03-14T15:09Z, or a span back: 36h, 2w.")
]
Until = Annotated[Name, Field(description="Only what is from before then.")]
AsOf = Annotated[Name, Field(description="Answer as memory stood then, with what was superseded since.")]
Superseded = Annotated[bool, Field(description="Also find what has been superseded.")]
MinScore = Annotated[float, Field(ge=0, le=1, description="Leave out results that score less, 0 to 1.")]

RecordId = Annotated[
    str, Field(min_length=1, max_length=MOST_NAME, description="The id of a record, as search and recall give it.")
]
RecordIds = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=MOST_NAME)]],
    Field(min_length=1, max_length=MOST_NAMES, description="The ids of the records; all are forgotten, or none."),
]
Offset = Annotated[
    int, Field(ge=0, le=MAX_TEXT, description="From which character of a long text on; `next_offset` says where.")
]

Text = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_TEXT,
        description="What to remember, in one or two sentences that can be understood without this conversation.",
    ),
]
NewText = Annotated[
    str, Field(max_length=MAX_TEXT, description="The new text that holds from now on; or give `by`, not both.")
]
By = Annotated[Name, Field(description="The id of an existing record that holds from now on; or give `text`.")]
At = Annotated[Name, Field(description="Since when the new one holds; empty for now.")]
Title = Annotated[Name, Field(description="A short title; may be empty.")]
Category = Annotated[Name, Field(description="One word for what it is about: preference, decision, technical, …")]
NewTags = Annotated[Names, Field(description="Tags to find it by.")]
Importance = Annotated[
    float | None, Field(ge=0, le=1, description="0.5 is the middle; 1 is what must never be missed.")
]
Decay = Annotated[
    Literal["", "permanent", "stable", "active", "session", "checkpoint"],
    Field(description="How fast it loses weight as it ages; empty for the default."),
]
ExpiresAt = Annotated[
    Name, Field(description="From then on it is not found any more: 2026-03-14, or a span ahead: 36h, 2w.")
]
Supersedes = Annotated[Name, Field(description="The id of the record whose place it takes; empty for none.")]
