"""An option is declared once, and every surface takes it from there."""

import dataclasses
import inspect
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from recollect import Memory
from recollect.cli import app
from recollect.options import FILTERS, FLAG, HTTP, MCP, PAGE, SCOPE, SEARCH, SearchOptions, options_of
from recollect.types import Filter
from recollect.web.inputs import SearchBody

OPTION = """    tone: str = option(
        "plain", "Tone of the ranking.", group=AFTER, choices=("plain", "bold"), metavar="TONE",
        places=(FLAG, HTTP, MCP, PAGE), label="Tone of it",
    )
"""
FILTER = """    Option(
        None, "Only records in this voice.", "voice", str | None, FILTER, choices=("loud", "soft"), places=_ALL,
    ),
"""

SURFACES = Path(__file__).parent / "support" / "added_option.py"


@pytest.fixture(scope="module")
def surfaces(tmp_path_factory):
    """What every interface offers when one search option and one filter are added to the table."""
    folder = tmp_path_factory.mktemp("surfaces")
    command = [sys.executable, "-P", str(SURFACES), OPTION, FILTER, str(folder)]
    environment = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "RECOLLECT_OFFLINE": "1", "LC_ALL": "C.UTF-8"}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def test_new_option_is_a_setting_and_an_argument(surfaces):
    """Read from the settings with its bounds, and documented in `Memory.search`."""
    assert surfaces["settings"] == surfaces["python"] == "bold"
    assert "search.tone" in surfaces["refused"]
    assert "one of plain, bold" in surfaces["refused"]
    assert surfaces["docstring"] == [True, True]


def test_new_option_is_a_flag(surfaces):
    """With the table's help and default."""
    assert surfaces["flags"] == {
        "tone": "Tone of the ranking. One of plain, bold. [default: plain]",
        "voice": "Only records in this voice.",
    }


def test_new_option_is_completed(surfaces):
    """The flag and its values."""
    assert surfaces["completion"] == [["--tone"], ["bold"], ["loud", "soft"]]


def test_new_option_is_in_http_and_mcp(surfaces):
    """With its choices and its help, in OpenAPI and in the tool's schema."""
    for name, words in (("tone", ["plain", "bold"]), ("voice", ["loud", "soft"])):
        field, parameter = surfaces["http"][name], surfaces["mcp"][name]
        assert [kind.get("enum") for kind in field["anyOf"]] == [words, None]
        assert [word for word in parameter["enum"] if word] == words
        assert field["description"].split(".")[0] == parameter["description"].split(".")[0]


def test_new_option_is_on_the_page(surfaces):
    """As a control with its label and choices."""
    controls = {control["name"]: control for group in surfaces["page"]["groups"] for control in group["controls"]}
    filters = {control["name"]: control for control in surfaces["page"]["filters"]}
    assert controls["tone"]["label"] == "Tone of it"
    assert [choice["value"] for choice in controls["tone"]["choices"]] == ["plain", "bold"]
    assert [choice["value"] for choice in filters["voice"]["choices"]] == ["loud", "soft"]


def test_new_option_is_in_the_reference(surfaces):
    """Among the settings, the flags of `search`, and the table of options."""
    page = surfaces["reference"]
    assert '| `search.tone` | `"plain"` | Tone of the ranking. One of plain, bold. |' in page
    assert "| `tone` | `search.tone` | `--tone` | yes | yes | yes | Tone of the ranking." in page
    assert "| `voice` | – | `--voice` | yes | yes | yes | Only records in this voice." in page
    assert "`--tone`, " in page


@pytest.mark.parametrize("option", [*SEARCH, *FILTERS], ids=lambda option: option.name)
def test_every_option_is_where_the_table_says(option):
    """Flag, HTTP field and docstring; a default is a valid value."""
    search = app.get_command(click.Context(app), "search")
    flags = {name for param in search.params for name in (*param.opts, *param.secondary_opts)}
    if "search" in option.commands:
        assert set(option.flag_names) <= flags
    assert (option.name in SearchBody.model_fields) == (HTTP in option.places)
    assert f"`{option.name}`" in inspect.getdoc(Memory.search)
    assert option.admits(option.default) or option in FILTERS
    assert option.help.endswith(".")


def test_limits_of_http_and_mcp_are_within_those_of_the_settings():
    """What HTTP and MCP let through, the settings do not refuse."""
    for option in SEARCH:
        for bounds in filter(None, (option.http_bounds, option.mcp_bounds)):
            assert bounds.high <= option.bounds.high
            assert bounds.low >= option.bounds.low


def test_filters_are_columns_of_the_filter():
    """Each filter sets a field of `Filter`; others are for rollbacks alone, or come from the text of a query."""
    fields = {entry.name for entry in dataclasses.fields(Filter)}
    assert {option.column or option.name for option in FILTERS} == fields - {
        "scope",
        "now",
        "phrases",
        "required",
        "without",
        "written_since",
        "written_until",
    }


def test_every_option_is_on_the_command_line():
    """Except for the half-life, which --decay takes."""
    missing = {option.name for option in SEARCH if option.places and FLAG not in option.places}
    assert missing == {"half_life_days"}
    assert {place for option in (*SEARCH, *FILTERS, *SCOPE) for place in option.places} == {FLAG, HTTP, MCP, PAGE}
    assert options_of(SearchOptions) == SEARCH
