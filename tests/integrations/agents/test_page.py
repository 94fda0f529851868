"""docs/agents.md and the pages of the folder agree with the code."""

import re

import click
from support import ROOT

from recollect.cli import app, capture, hook

PAGE = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")


def test_documented_numbers_equal_the_code():
    """Sizes, times and counts."""
    words = " ".join(PAGE.split())
    assert f"{hook.TOKENS} tokens at most" in words
    assert f"It has {hook.BUDGET_MS / 1000:g} seconds" in words
    assert hook.GRACE_S == 1
    assert "A second later the process ends" in words
    assert f"fewer than {hook.LEAST_WORDS} words" in words
    assert f"after {hook.FAILURES} searches" in words
    assert f"{hook.QUERY_CHARACTERS // 2} characters from each end" in words
    assert f"It has {capture.BUDGET_SECONDS:g} seconds. It prints nothing" in words
    assert f"for {hook.MARK_SECONDS // 86_400} days" in words


def test_documented_flags_exist():
    """Of `recall`, `mcp`, `trust`, `forget` and `hook`, or of the client programs."""
    named = [app.get_command(click.Context(app), name) for name in ("recall", "mcp", "trust", "forget", "hook")]
    commands = [*named, *named[-1].commands.values()]
    known = {
        flag for command in commands for option in command.params for flag in (*option.opts, *option.secondary_opts)
    }
    theirs = {"--continue", "--debug", "--plugin-dir", "--trust", "--yolo"}
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", PAGE)) - theirs <= known


def test_links_resolve():
    """Every relative link of the folder's pages names an existing file."""
    for page in (ROOT / "integrations").rglob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), (page, target)
