"""The plugin for Claude Code is whole: every part where the client looks for it, and of the project's version."""

import json
import re

import yaml
from support import ROOT

from recollect import __version__
from recollect.cli import hook

PLUGIN = ROOT / "integrations" / "claude-code"


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_manifest_is_of_this_version():
    """Claude Code updates a plugin only when its version changes."""
    manifest = read(PLUGIN / ".claude-plugin" / "plugin.json")
    assert manifest["name"] == "recollect"
    assert manifest["version"] == __version__
    assert [path.name for path in (PLUGIN / ".claude-plugin").iterdir()] == ["plugin.json"]


def test_the_marketplace_leads_to_the_plugin():
    """The repository is a marketplace: its entry names a folder in it whose manifest has the same name."""
    market = read(ROOT / ".claude-plugin" / "marketplace.json")
    assert re.fullmatch(r"[a-z][a-z0-9-]*", market["name"])
    assert market["owner"]["name"]
    (entry,) = market["plugins"]
    assert entry["source"].startswith("./")
    assert (ROOT / entry["source"]).resolve() == PLUGIN
    assert entry["name"] == read(PLUGIN / ".claude-plugin" / "plugin.json")["name"]


def test_the_hooks_are_those_that_the_command_knows():
    """The events it answers, on the starts that empty a session, with more time than it will take."""
    events = read(PLUGIN / "hooks" / "hooks.json")["hooks"]
    assert events.keys() == {"UserPromptSubmit", hook.SESSION_START}
    assert "UserPromptSubmit" in hook.PROMPT_EVENTS
    (starting,) = events[hook.SESSION_START]
    assert set(starting["matcher"].split("|")) == set(hook.RESET_SOURCES)
    for group in (group for groups in events.values() for group in groups):
        (run,) = group["hooks"]
        assert run["type"] == "command"
        assert run["command"].endswith("; exit 0")
        assert hook.BUDGET_MS / 1000 + hook.GRACE_S < run["timeout"] <= 10


def test_the_skill_says_when_it_is_of_use():
    """Its name is its folder's; its description is what the model chooses by; its tools are the server's."""
    text = (PLUGIN / "skills" / "recall" / "SKILL.md").read_text(encoding="utf-8")
    _, head, body = text.split("---\n", 2)
    about = yaml.safe_load(head)
    assert about["name"] == "recall"
    assert "Use when" in about["description"]
    assert len(about["description"]) <= 1024
    assert "$ARGUMENTS" in body
    assert set(re.findall(r"memory_\w+", body)) <= {"memory_recall", "memory_search"}
