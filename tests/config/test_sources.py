"""`[[sources]]` in a settings file: mistakes are refused at startup with the file, the line and a correction."""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from recollect import Memory, config
from recollect.cli import main
from recollect.config import Settings, SourceSettings
from recollect.config.trust import read_project_file, set_trusted
from recollect.errors import ConfigError, RecollectError, UsageError

FIELDS = 'fields = { id = "id", text = "text" }'
COMMAND = 'command = ["qmd", "{query}"]'
WIKI = f'[[sources]]\nname = "wiki"\nkind = "command"\n{COMMAND}\n{FIELDS}\n'
"""A source with which nothing is wrong, on five lines."""

BAD: dict[str, tuple[str, int, str, str]] = {
    # what is wrong: (the file, the line that is named, a part of the message, a part of the hint)
    "no mapping": (
        f'[[sources]]\nname = "wiki"\nkind = "command"\n{COMMAND}\n',
        1,
        "needs `fields`",
        "fields = {",
    ),
    "an empty mapping": (
        f'[[sources]]\nname = "wiki"\nkind = "command"\n{COMMAND}\nfields = {{}}\n',
        5,
        "needs `fields`",
        "fields = {",
    ),
    "no mapping of an address": (
        '# a comment\n\n[[sources]]\nname = "wiki"\nkind = "http"\nurl = "http://x/?q={query}"\n',
        3,
        "needs `fields`",
        "fields = {",
    ),
    "a negative timeout": (
        f'[[sources]]\nname = "wiki"\nkind = "command"\ntimeout_ms = -1\n{COMMAND}\n{FIELDS}\n',
        4,
        "timeout_ms",
        "2000",
    ),
    "a timeout of 0": (f"{WIKI}timeout_ms = 0\n", 6, "timeout_ms", "2000"),
    "a timeout of half a millisecond": (
        f"{WIKI}timeout_ms = 0.5\n",
        6,
        "timeout_ms",
        "2000",
    ),
    "a timeout of text": (f'{WIKI}timeout_ms = "2 s"\n', 6, '"2 s"', "2000"),
    "a timeout of true": (f"{WIKI}timeout_ms = true\n", 6, "not true", "2000"),
    "a timeout of a day": (
        f"{WIKI}timeout_ms = 86_400_000\n",
        6,
        "timeout_ms",
        "600000",
    ),
    "the same name twice": (
        (f'{WIKI}\n[[sources]]\nkind = "command"\n{COMMAND}\n{FIELDS}\nname = "wiki"\n'),
        11,
        "two sources are named 'wiki'",
        "name of its own",
    ),
    "an unknown kind": (
        f'[[sources]]\nname = "wiki"\nkind = "telepathy"\n{FIELDS}\n',
        3,
        "unknown kind 'telepathy'",
        "command, http, recollect",
    ),
    "a kind of a number": (f'[[sources]]\nname = "wiki"\nkind = 7\n{FIELDS}\n', 3, "kind must be", "kind"),
    "an unknown field in a command": (
        f'[[sources]]\nname = "wiki"\nkind = "command"\ncommand = ["qmd", "{{quary}}"]\n{FIELDS}\n',
        4,
        "{quary}",
        "{query}, {fetch_k}, {scope}",
    ),
    "a format in a field": (
        f'[[sources]]\nname = "wiki"\nkind = "command"\ncommand = ["qmd", "{{fetch_k:03d}}"]\n{FIELDS}\n',
        4,
        "{fetch_k:03d}",
        "{query}, {fetch_k}, {scope}",
    ),
    "an unknown field in an address": (
        f'[[sources]]\nname = "wiki"\nkind = "http"\nurl = "http://x/?n={{limit}}"\n{FIELDS}\n',
        4,
        "{limit}",
        "{fetch_k}",
    ),
    "an unknown field deep in a body": (
        (
            f'[[sources]]\nname = "wiki"\nkind = "http"\nurl = "http://x/"\n{FIELDS}\n'
            'body = { a = [{ b = "{user}" }] }\n'
        ),
        6,
        "{user}",
        "{scope}",
    ),
    "an unknown field in the environment": (
        f'{WIKI}env = {{ Q = "{{q}}" }}\n',
        6,
        "{q}",
        "{query}",
    ),
    "an unknown field in a header": (
        f'[[sources]]\nname = "wiki"\nkind = "http"\nurl = "http://x/"\n{FIELDS}\nheaders = {{ X = "{{0}}" }}\n',
        6,
        "{0}",
        "{query}",
    ),
    "a field without a name": (
        f'[[sources]]\nname = "wiki"\nkind = "command"\ncommand = ["qmd", "{{}}"]\n{FIELDS}\n',
        4,
        "{}",
        "{query}",
    ),
    "an attribute of a field": (
        f'[[sources]]\nname = "wiki"\nkind = "command"\ncommand = ["qmd", "{{scope.user}}"]\n{FIELDS}\n',
        4,
        "{scope.user}",
        "{scope}",
    ),
    "a brace that is not closed": (
        f'[[sources]]\nname = "wiki"\nkind = "command"\ncommand = ["qmd", "{{query"]\n{FIELDS}\n',
        4,
        "{query",
        "{{",
    ),
    "a brace that is not opened": (
        f'[[sources]]\nname = "wiki"\nkind = "http"\nurl = "http://x/?q=query}}"\n{FIELDS}\n',
        4,
        "query}",
        "}}",
    ),
    "a name of ours": (
        f'[[sources]]\nname = "keyword"\nkind = "command"\n{COMMAND}\n{FIELDS}\n',
        2,
        "'keyword'",
        "name = ",
    ),
    "another name of ours": (
        f'[[sources]]\nkind = "command"\nname = "hyde"\n{COMMAND}\n{FIELDS}\n',
        3,
        "'hyde'",
        "name = ",
    ),
    "no name": (f'[[sources]]\nkind = "command"\n{COMMAND}\n{FIELDS}\n', 1, "needs a name", 'name = "wiki"'),
    "no kind": (f'\n\n[[sources]]\nname = "wiki"\n{COMMAND}\n{FIELDS}\n', 3, "needs a kind", 'kind = "command"'),
    "nothing at all": ("[[sources]]\n", 1, "needs a name", "name"),
    "an empty name": (f'[[sources]]\nname = ""\nkind = "command"\n{COMMAND}\n{FIELDS}\n', 2, "name", "name"),
    "a name with a space": (f'[[sources]]\nname = "my wiki"\nkind = "command"\n{COMMAND}\n{FIELDS}\n', 2, "name", "-"),
    "a name with capitals": (f'[[sources]]\nname = "Wiki"\nkind = "command"\n{COMMAND}\n{FIELDS}\n', 2, "name", "-"),
    "a name with a comma": (f'[[sources]]\nname = "a,b"\nkind = "command"\n{COMMAND}\n{FIELDS}\n', 2, "name", "-"),
    "a name of a number": (f'[[sources]]\nname = 7\nkind = "command"\n{COMMAND}\n{FIELDS}\n', 2, "name", "-"),
    "fields of text": (
        f'[[sources]]\nname = "wiki"\nkind = "command"\n{COMMAND}\nfields = "id"\n',
        5,
        "fields",
        "fields = {",
    ),
    "fields of a list": (
        f'[[sources]]\nname = "wiki"\nkind = "command"\n{COMMAND}\nfields = ["id"]\n',
        5,
        "fields",
        "fields = {",
    ),
    "fields that are not ours": (
        f'[[sources]]\nname = "wiki"\nkind = "command"\n{COMMAND}\nfields = {{ id = "id", colour = "c" }}\n',
        5,
        "colour",
        "id, text, title, path, score",
    ),
    "fields of numbers": (
        f'[[sources]]\nname = "wiki"\nkind = "command"\n{COMMAND}\nfields = {{ id = 1 }}\n',
        5,
        "fields",
        "fields = {",
    ),
    "a join that the fields do not map": (
        f'[[sources]]\nname = "wiki"\nkind = "command"\n{COMMAND}\njoin = "path"\n{FIELDS}\n',
        6,
        "joins by path",
        "add path",
    ),
    "an unknown join": (
        f'[[sources]]\nname = "wiki"\nkind = "command"\n{COMMAND}\njoin = "title"\n{FIELDS}\n',
        5,
        '"title"',
        "id, path, text",
    ),
    "an unknown key": (
        f"{WIKI}timeout = 5\n",
        6,
        "unknown setting 'timeout'",
        "did you mean timeout_ms?",
    ),
    "a key of another kind": (
        f'{WIKI}headers = {{ A = "b" }}\n',
        6,
        "unknown setting 'headers'",
        "",
    ),
    "a key like no other": (f"{WIKI}zzz = 1\n", 6, "'zzz'", "may set"),
    "no command": (f'[[sources]]\nname = "wiki"\nkind = "command"\n{FIELDS}\n', 3, "needs one command", "command = ["),
    "a command of text": (
        f'[[sources]]\nname = "wiki"\nkind = "command"\ncommand = "qmd {{query}}"\n{FIELDS}\n',
        4,
        "command",
        "command = [",
    ),
    "a command of nothing": (
        f'[[sources]]\nname = "wiki"\nkind = "command"\ncommand = []\n{FIELDS}\n',
        4,
        "command",
        "command = [",
    ),
    "a command with a number": (
        f'[[sources]]\nname = "wiki"\nkind = "command"\ncommand = ["qmd", 5]\n{FIELDS}\n',
        4,
        "command",
        "command = [",
    ),
    "a program without a name": (
        f'[[sources]]\nname = "wiki"\nkind = "command"\ncommand = [" ", "x"]\n{FIELDS}\n',
        4,
        "command",
        "command = [",
    ),
    "an address that is not http": (
        f'[[sources]]\nname = "wiki"\nkind = "http"\nurl = "ftp://x/{{query}}"\n{FIELDS}\n',
        4,
        "url",
        "http://",
    ),
    "an address of a file": (
        f'[[sources]]\nname = "wiki"\nkind = "http"\nurl = "file:///etc/passwd"\n{FIELDS}\n',
        4,
        "url",
        "http://",
    ),
    "an address without a host": (
        f'[[sources]]\nname = "wiki"\nkind = "http"\nurl = "http:///search"\n{FIELDS}\n',
        4,
        "url",
        "http://",
    ),
    "an address that cannot be split": (
        f'[[sources]]\nname = "wiki"\nkind = "http"\nurl = "http://[::1/"\n{FIELDS}\n',
        4,
        "url",
        "http://",
    ),
    "a method that is not": (
        f'[[sources]]\nname = "wiki"\nkind = "http"\nurl = "http://x/"\nmethod = "get"\n{FIELDS}\n',
        5,
        "method",
        "one of GET, POST",
    ),
    "a body of text": (
        f'[[sources]]\nname = "wiki"\nkind = "http"\nurl = "http://x/"\nbody = "{{query}}"\n{FIELDS}\n',
        5,
        "body",
        "body = {",
    ),
    "another Recollect by two ways": (
        '[[sources]]\nname = "home"\nkind = "recollect"\nurl = "http://x:1"\nstore = "a.db"\n',
        3,
        "url or store",
        "store =",
    ),
    "another Recollect by none": ('[[sources]]\nname = "home"\nkind = "recollect"\n', 3, "url or store", "store ="),
    "a store of a number": ('[[sources]]\nname = "home"\nkind = "recollect"\nstore = 7\n', 4, "store", "file"),
    "a depth of 0": (f"{WIKI}fetch_k = 0\n", 6, "fetch_k", "20"),
    "a depth of text": (f'{WIKI}fetch_k = "20"\n', 6, "fetch_k", "20"),
    "a weight below 0": (f"{WIKI}weight = -0.5\n", 6, "weight", "1.0"),
    "a weight of NaN": (f"{WIKI}weight = nan\n", 6, "weight", "1.0"),
    "a weight of infinity": (f"{WIKI}weight = inf\n", 6, "weight", "1.0"),
    "a weight no float can hold": (
        f"{WIKI}weight = 1{'0' * 400}\n",
        6,
        "weight",
        "1.0",
    ),
    "a timeout too long to print": (
        f"{WIKI}timeout_ms = 0x{'f' * 5000}\n",
        6,
        "timeout_ms",
        "2000",
    ),
    "bounded of text": (f'{WIKI}bounded = "yes"\n', 6, "bounded", "true"),
    "results of a list": (
        f'{WIKI}results = ["hits"]\n',
        6,
        "results",
        "hits",
    ),
    "sources of text": ('embedder = "none"\nsources = "x"\n', 2, "sources must be tables", "[[sources]]"),
    "sources of one table": (f'\n[sources]\nname = "wiki"\n{FIELDS}\n', 2, "sources must be tables", "[[sources]]"),
    "sources of texts": ('sources = ["a", "b"]\n', 1, "sources must be tables", "[[sources]]"),
}
"""Everything that can be wrong with one table, as a file."""

LINES: dict[str, tuple[str, int]] = {
    # where it stands: (the file, the line that is named)
    "in the second of three tables": (
        (
            f"[search]\nlimit = 5\n\n{WIKI}\n"
            f'[[sources]]\nname = "b"\nkind = "command"\n{COMMAND}\n{FIELDS}\nweight = -1\n\n'
            f'[[sources]]\nname = "c"\nkind = "command"\nweight = -1\n{COMMAND}\n{FIELDS}\n'
        ),
        15,
    ),
    "after an array over many lines": (
        (
            '[[sources]]\nname = "a"\nkind = "command"\ncommand = [\n  "qmd",  # the program\n  "{query}",\n]\n'
            f"{FIELDS}\nweight = -1\n"
        ),
        9,
    ),
    "in an array over many lines": (
        f'[[sources]]\nname = "a"\nkind = "command"\n{FIELDS}\ncommand = [\n  "qmd",\n  "{{quary}}",\n]\n',
        5,
    ),
    "after an argument that looks like a setting": (
        f'[[sources]]\nname = "a"\nkind = "command"\n{FIELDS}\ncommand = [\n  "qmd",\n  "weight=3",\n]\nweight = -1\n',
        9,
    ),
    "after a list that looks like a table": (
        f'[[sources]]\nname = "a"\nkind = "http"\nurl = "http://x/"\n{FIELDS}\nbody = [\n  ["a"]\n]\nweight = -1\n',
        9,
    ),
    "after a text over many lines": (
        (
            '[[sources]]\nname = "a"\nkind = "http"\nurl = "http://x/"\n'
            f'body = {{ q = """\nweight = 3\n[[sources]]\n""" }}\n{FIELDS}\nweight = -1\n'
        ),
        10,
    ),
    "after a comment that looks like it": (
        f'[[sources]]\n# weight = 3\nname = "a"  # weight = 4\nkind = "command"\n{COMMAND}\n{FIELDS}\nweight = -1\n',
        7,
    ),
    "in a table of its own": (
        f'[[sources]]\nname = "a"\nkind = "command"\n{COMMAND}\n\n[sources.fields]\nid = "id"\ncolour = "c"\n',
        6,
    ),
    "in a table of the second source": (
        (
            f'[[sources]]\nname = "a"\nkind = "command"\n{COMMAND}\n[sources.fields]\nid = "id"\n\n'
            f'[[sources]]\nname = "b"\nkind = "command"\n{COMMAND}\n[sources.fields]\nname = "id"\n'
        ),
        12,
    ),
    "in dotted keys": (
        f'[[sources]]\nname = "a"\nkind = "command"\n{COMMAND}\nfields.id = "id"\nfields.colour = "c"\n',
        5,
    ),
    "in a table on one line": (
        'embedder = "none"\nsources = [{ name = "a", kind = "command", command = ["qmd"], weight = -1 }]\n',
        2,
    ),
    "in the second table of a list over many lines": (
        (
            'sources = [\n  { name = "a", kind = "recollect", store = "a.db" },\n'
            '  { name = "b", kind = "recollect", store = "b.db", weight = -1 },\n]\n'
        ),
        3,
    ),
    "under a header with blanks and a comment": (
        f'  [[ sources ]]  # the wiki\n  name = "a"\n  kind = "command"\n  {COMMAND}\n  {FIELDS}\n  weight = -1\n',
        6,
    ),
    "under quoted names": (f'[["sources"]]\n"name" = "a"\n"kind" = "command"\n{COMMAND}\n{FIELDS}\n"weight" = -1\n', 6),
    "in a file with the line ends of Windows": (
        f'[[sources]]\r\nname = "a"\r\nkind = "command"\r\n{COMMAND}\r\n{FIELDS}\r\nweight = -1\r\n',
        6,
    ),
    "after other tables with the same keys": (
        (
            f"[search]\nlimit = 5\n\n{WIKI}"
            '[sources.env]\nweight = "5"\ntimeout_ms = "7"\n\n[openai]\ntimeout = 3\n\n'
            f'[[sources]]\nname = "b"\nkind = "command"\n{COMMAND}\n{FIELDS}\ntimeout_ms = -1\n'
        ),
        21,
    ),
}
"""One mistake, in all the ways a file can be written."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home and current folder."""
    for name in list(os.environ):
        if name.startswith("RECOLLECT_") and name != "RECOLLECT_MODELS":
            monkeypatch.delenv(name)
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a settings file, byte by byte."""

    def write(text: str) -> Path:
        place = tmp_path / "settings.toml"
        place.write_bytes(text.encode())
        return place

    return write


def refused(place: Path) -> ConfigError:
    """The error with which the file is refused."""
    with pytest.raises(ConfigError) as caught:
        config.load(config=place)
    return caught.value


def line_of(message: str) -> int:
    """The line that a message names."""
    return int(re.search(r", line (\d+)", message)[1])


def source_of(place: Path) -> SourceSettings:
    """The one source of a file."""
    (source,) = config.load(config=place).settings.sources
    return source


# -- what is wrong ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", BAD)
def test_invalid_source_is_refused_with_file_line_and_hint(file: Callable[[str], Path], what: str) -> None:
    """The hint says what to write instead."""
    text, line, message, hint = BAD[what]
    place = file(text)
    error = refused(place)
    assert error.message.startswith(f"{place}, line {line}: "), error.message
    assert message in error.message
    assert error.hint
    assert hint in error.hint
    assert error.exit_code == 2


@pytest.mark.parametrize("where", LINES)
def test_line_number_is_right_in_any_notation(file: Callable[[str], Path], where: str) -> None:
    """Comments, long arrays, sub-tables and inline tables."""
    text, line = LINES[where]
    assert line_of(refused(file(text)).message) == line


@pytest.mark.parametrize(
    "what",
    ["no mapping", "a negative timeout", "the same name twice", "an unknown kind", "an unknown field in a command"],
)
def test_command_line_refuses_it_before_anything_runs(
    file: Callable[[str], Path], capsys: pytest.CaptureFixture[str], home: Path, what: str
) -> None:
    """Exit code 2 with the error as JSON on standard error, and no store is created."""
    text, line, message, hint = BAD[what]
    place = file(text)
    for words in (["search", "heron"], ["add", "heron"], ["config", "show"], ["status"]):
        code = main([*words, "--config", str(place), "--store", str(home / "new.db"), "--embedder", "none", "--json"])
        said = capsys.readouterr()
        assert (code, said.out) == (2, "")
        error = json.loads(said.err)["error"]
        assert error["code"] == "config"
        assert error["message"].startswith(f"{place}, line {line}: ")
        assert message in error["message"]
        assert hint in error["hint"]
    assert not (home / "new.db").exists()


def test_separate_process_refuses_it(file: Callable[[str], Path], home: Path) -> None:
    """In text."""
    place = file(BAD["an unknown kind"][0])
    ran = subprocess.run(
        [sys.executable, "-m", "recollect", "search", "heron", "--config", place, "--store", home / "new.db"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"{place}, line 3: unknown kind 'telepathy'" in ran.stderr
    assert "there are command, http, recollect" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ('embedder = "none"\n\n[search]\nlimit = 0\n', 4, "search.limit"),
        ("[search]\n# limit\nfetchk = 5\n", 3, "search.fetchk"),
        ("[search]\nlimit = 'many'\n", 2, "search.limit"),
        ("search.limit = 5\nsearch.fusion = 'magic'\n", 2, "search.fusion"),
        ('[search]\nsources = [\n  "keyword",\n]\nbudget_ms = -5\n', 5, "search.budget_ms"),
        ('[search]\nsources = [\n  "limit=3",\n]\nlimit = 0\n', 5, "search.limit"),
        ('[openai]\nquery_prefix = """\ntimeout = 3\n"""\ntimeout = -1\n', 5, "openai.timeout"),
        ('[[sources]]\nname = "a"\nkind = "recollect"\nstore = "a.db"\n\n[search]\nrrf_k = -1\n', 7, "search.rrf_k"),
    ],
)
def test_other_settings_name_the_line_too(file: Callable[[str], Path], text: str, line: int, part: str) -> None:
    """What was refused before is now refused with its line."""
    place = file(text)
    error = refused(place)
    assert f"{place}, line {line}" in error.message
    assert part in error.message


def test_broken_toml_names_the_line(file: Callable[[str], Path]) -> None:
    """The parser's own words say where."""
    assert "line 3" in refused(file('[[sources]]\nname = "a"\nkind = = "b"\n')).message


def test_unreadable_number_is_reported(file: Callable[[str], Path]) -> None:
    """Python reads no whole number of 5,000 digits."""
    with pytest.raises(RecollectError):
        config.load(config=file(f"[[sources]]\nweight = 1{'0' * 5000}\n"))


@pytest.mark.parametrize("budget", ["0", "-5", "nan", "inf", "soon"])
def test_invalid_budget_is_refused(capsys: pytest.CaptureFixture[str], budget: str) -> None:
    """By flag and by setting, exit code 2."""
    for words in (["--budget-ms", budget], ["--budget-ms", budget, "--sources", "keyword"]):
        assert main(["search", "heron", "--embedder", "none", "--store", "new.db", "--json", *words]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert "budget" in json.loads(said.err)["error"]["message"]


# -- what is right ------------------------------------------------------------------------------------------


def test_defaults_are_the_documented_ones(file: Callable[[str], Path]) -> None:
    """`fetch_k` 20, join by id, weight 1."""
    source = source_of(file(f"{WIKI}"))
    assert (source.fetch_k, source.weight, source.join, source.bounded) == (20, 1.0, "id", False)
    assert source.timeout_ms > 0
    assert source.fields == {"id": "id", "text": "text"}
    assert source.options == {"command": ["qmd", "{query}"]}


def test_every_setting_of_a_source_is_read(file: Callable[[str], Path]) -> None:
    """With doubled braces as literal ones."""
    text = (
        '[[sources]]\nname = "a-wiki_2"\nkind = "http"\nurl = "https://x/?q={query}&f={{}}"\nmethod = "POST"\n'
        'body = { size = "{fetch_k}", who = ["{scope}"] }\nheaders = { X-Q = "{query}" }\ntoken_env = "TOKEN"\n'
        'fetch_k = 10000\nweight = 0\ntimeout_ms = 600000\njoin = "path"\nresults = "hits.hits"\nbounded = true\n'
        '[sources.fields]\nid = "_id"\ntext = "_source.body"\ntitle = "t"\npath = "p"\nscore = "_score"\n'
    )
    source = source_of(file(text))
    assert (source.name, source.kind, source.fetch_k, source.weight) == ("a-wiki_2", "http", 10_000, 0)
    assert (source.timeout_ms, source.join, source.results, source.bounded) == (600_000, "path", "hits.hits", True)
    assert source.fields["text"] == "_source.body"
    assert set(source.options) == {"url", "method", "body", "headers", "token_env"}


def test_recollect_source_needs_no_mapping(file: Callable[[str], Path]) -> None:
    """It uses our own format."""
    source = source_of(file('[[sources]]\nname = "home"\nkind = "recollect"\nstore = "a.db"\n'))
    assert source.fields == {name: name for name in ("id", "text", "title", "path", "score")}


def test_empty_list_means_no_sources(file: Callable[[str], Path]) -> None:
    """One may say that there are none."""
    assert config.load(config=file("sources = []\n")).settings.sources == ()


def test_kind_of_a_package_is_known(file: Callable[[str], Path], stand: ModuleType) -> None:
    """It gets its own settings, and the common ones are checked."""
    table = '[[sources]]\nname = "mine"\nkind = "stand"\n'
    source = source_of(file(f"{table}anything = {{ goes = [1] }}\nfetch_k = 3\n"))
    assert (source.kind, source.fetch_k, source.options) == ("stand", 3, {"anything": {"goes": [1]}})
    assert line_of(refused(file(f"{table}fetch_k = -3\n")).message) == 4
    hint = refused(file('[[sources]]\nname = "mine"\nkind = "stnad"\n')).hint
    assert "stand" in hint
    assert "recollect.sources" in hint


# -- where they come from -----------------------------------------------------------------------------------


def test_project_file_may_not_set_sources(home: Path) -> None:
    """It can come with a cloned repository, and a source runs a program."""
    (home / "recollect.toml").write_text(f"{WIKI}")
    set_trusted(home / "recollect.toml", read_project_file(home / "recollect.toml").digest)
    with pytest.raises(ConfigError, match="may not set sources") as caught:
        config.load(environment={}, folder=home)
    assert str(home / "recollect.toml") in caught.value.message
    assert "--config" in caught.value.hint


def test_users_own_file_may_set_sources(home: Path) -> None:
    """A project's file does not change them."""
    own = config.user_file()
    own.parent.mkdir(parents=True)
    own.write_text('[[sources]]\nname = "home"\nkind = "recollect"\nstore = "a.db"\n')
    (home / "recollect.toml").write_text("[search]\nlimit = 3\n")
    set_trusted(home / "recollect.toml", read_project_file(home / "recollect.toml").digest)
    loaded = config.load(environment={}, folder=home)
    assert [source.name for source in loaded.settings.sources] == ["home"]
    assert loaded.origins["sources"] == str(own)
    assert loaded.settings.search.limit == 3


def test_named_file_replaces_the_users_sources(home: Path, file: Callable[[str], Path]) -> None:
    """They are one setting: a later list replaces an earlier one."""
    own = config.user_file()
    own.parent.mkdir(parents=True)
    own.write_text('[[sources]]\nname = "home"\nkind = "recollect"\nstore = "a.db"\n')
    named = file('[[sources]]\nname = "other"\nkind = "recollect"\nstore = "b.db"\n')
    assert [source.name for source in config.load(config=named).settings.sources] == ["other"]
    assert config.load(config=file("")).settings.sources == ()


def test_environment_cannot_set_sources(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The variable is reported as ignored."""
    assert config.load(environment={"RECOLLECT_SOURCES": "wiki"}).settings.sources == ()
    assert config.unknown_variables({"RECOLLECT_SOURCES": "wiki"}) == ["RECOLLECT_SOURCES"]


def test_config_show_lists_sources_with_their_origin(
    file: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each setting by its dotted name, as JSON and as a table."""
    text = f"{WIKI}weight = 0.5\n\n"
    place = file(f'{text}[[sources]]\nname = "home"\nkind = "recollect"\nstore = "a.db"\n')
    assert main(["config", "show", "--config", str(place), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    expected: dict[str, Any] = {
        "sources.wiki.kind": "command",
        "sources.wiki.command": ["qmd", "{query}"],
        "sources.wiki.weight": 0.5,
        "sources.wiki.fetch_k": 20,
        "sources.wiki.fields": {"id": "id", "text": "text"},
        "sources.home.store": str(place.parent / "a.db"),
    }
    for name, value in expected.items():
        assert shown[name] == {"value": value, "from": str(place)}
    assert main(["config", "show", "--config", str(place)]) == 0
    table = capsys.readouterr().out
    assert any("sources.wiki.weight" in line and "0.5" in line and str(place) in line for line in table.splitlines())


def test_config_show_without_sources_lists_none(capsys: pytest.CaptureFixture[str]) -> None:
    """And says nothing of them."""
    assert main(["config", "show", "--json"]) == 0
    assert not [name for name in json.loads(capsys.readouterr().out) if name.startswith("sources")]


# -- what only the system itself can tell -------------------------------------------------------------------

LATE: dict[str, dict[str, Any]] = {
    "a program from the question": {"kind": "command", "options": {"command": ["{query}"]}},
    "a host from the question": {"kind": "http", "options": {"url": "http://{query}/"}},
}


@pytest.mark.parametrize("what", LATE)
def test_templates_cannot_choose_the_program_or_host(what: str) -> None:
    """Refused when the source is first used, before anything is run or sent."""
    settings = Settings(embedder="none", sources=(SourceSettings("wiki", fields={"id": "id"}, **LATE[what]),))
    with Memory.open(":memory:", settings=settings) as memory, pytest.raises(UsageError) as caught:
        memory.search("true")
    assert "wiki" in caught.value.message
    assert caught.value.hint
    del caught
    gc.collect()  # a store that was left open complains here


def test_package_that_cannot_be_opened_is_a_recollect_error(offer: Callable[..., ModuleType]) -> None:
    """Whatever its constructor raises; the source is named."""
    offer("recollect.sources", "broken", "def open(said):\n    raise KeyError('no key')\n")
    settings = Settings(embedder="none", sources=(SourceSettings("mine", "broken"),))
    with Memory.open(":memory:", settings=settings) as memory, pytest.raises(RecollectError) as caught:
        memory.search("true")
    assert "mine" in caught.value.message
    del caught
    gc.collect()
