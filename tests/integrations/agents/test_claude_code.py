"""The plugin for Claude Code: every part where the client looks for it, with the project's version."""

import json
import re

import yaml
from support import ROOT

from recollect import __version__
from recollect.cli import hook

PLUGIN = ROOT / "integrations" / "claude-code"


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_manifest_has_this_version():
    """Claude Code updates a plugin only when its version changes."""
    manifest = read(PLUGIN / ".claude-plugin" / "plugin.json")
    assert manifest["name"] == "recollect"
    assert manifest["version"] == __version__
    assert [path.name for path in (PLUGIN / ".claude-plugin").iterdir()] == ["plugin.json"]


def test_marketplace_names_the_plugin():
    """Its entry names a folder in the repository whose manifest has the same name."""
    market = read(ROOT / ".claude-plugin" / "marketplace.json")
    assert re.fullmatch(r"[a-z][a-z0-9-]*", market["name"])
    assert market["owner"]["name"]
    (entry,) = market["plugins"]
    assert entry["source"].startswith("./")
    assert (ROOT / entry["source"]).resolve() == PLUGIN
    assert entry["name"] == read(PLUGIN / ".claude-plugin" / "plugin.json")["name"]


def test_hooks_are_known_to_the_command():
    """The events it answers, on the starts that empty a session, with a long enough timeout."""
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


def test_skill_describes_its_use():
    """Its name is its folder's; the model chooses by the description; its tools are the server's."""
    text = (PLUGIN / "skills" / "recall" / "SKILL.md").read_text(encoding="utf-8")
    _, head, body = text.split("---\n", 2)
    about = yaml.safe_load(head)
    assert about["name"] == "recall"
    assert "Use when" in about["description"]
    assert len(about["description"]) <= 1024
    assert "$ARGUMENTS" in body
    assert set(re.findall(r"memory_\w+", body)) <= {"memory_recall", "memory_search"}
