"""A settings file is changed only where needed."""

import tomllib

import pytest

from recollect.config.toml import set_values

SETTINGS = {"embedder": "openai:x", "search.limit": 8, "search.fusion": "weighted"}

FILES = {
    "tables and comments": (
        (
            '# mine\nlanguage = "german"  # why\n\n[search]  # how\n# top\nlimit = 3   # three\n\n# the wiki\n'
            '[[sources]]\nname = "wiki"\n'
        ),
        (
            '# mine\nlanguage = "german"  # why\nembedder = "openai:x"\n\n[search]  # how\n# top\nlimit = 8   # three\n'
            'fusion = "weighted"\n\n# the wiki\n[[sources]]\nname = "wiki"\n'
        ),
    ),
    "dotted names": (
        "search.limit = 3  # three\nsearch.mmr = true\n",
        'search.limit = 8  # three\nsearch.fusion = "weighted"\nsearch.mmr = true\nembedder = "openai:x"\n',
    ),
    "an inline table": (
        "search = { limit = 3 }  # short\n",
        'search = { limit = 8, fusion = "weighted"}  # short\nembedder = "openai:x"\n',
    ),
    "comments only": (
        "# nothing yet\n",
        '# nothing yet\nembedder = "openai:x"\n\n[search]\nlimit = 8\nfusion = "weighted"\n',
    ),
    "a list over several lines": (
        '[ingest]\npaths = [\n  "a.md",  # first\n  "b.md",\n]\n[search]\nlimit = 1\n',
        (
            'embedder = "openai:x"\n\n[ingest]\npaths = [\n  "a.md",  # first\n  "b.md",\n]\n[search]\nlimit = 8\n'
            'fusion = "weighted"\n'
        ),
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_comments_order_and_notation_survive(name):
    """Only set values change; new ones are at the end of their table."""
    text, expected = FILES[name]
    assert set_values(text, SETTINGS) == expected


def test_windows_line_ends_stay():
    """And the text is valid TOML."""
    changed = set_values("[search]\r\nlimit = 3  # three\r\n", SETTINGS)
    assert "limit = 8  # three\r\n" in changed
    assert tomllib.loads(changed)["search"] == {"limit": 8, "fusion": "weighted"}


def test_setting_the_same_values_changes_nothing():
    """An import can be repeated."""
    for text, _ in FILES.values():
        once = set_values(text, SETTINGS)
        assert set_values(once, SETTINGS) == once
