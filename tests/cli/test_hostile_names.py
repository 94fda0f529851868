"""Whatever a name or a text contains, no command prints characters that control a terminal or forge a line."""

import json
import os
import pty
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from recollect.cli.terminal import HIDDEN, echo, one_line, plain, plain_text, to_json
from recollect.config import user_file
from recollect.config.toml import set_values

EVIL = (
    "a\x1b]52;c;Y3VybA==\x07b\x1b[8mc\x9b2Jd\u202ee\u2066f\u200fg\u061ch\x7fi\rj\x08k\u2028l\U000e0041m\ufeffn\u200bo"
)
FORGED = f"{EVIL}\nerror: forged line"

SEEN = "\u200c\u200d"
"""Joiners, which scripts need."""


def is_hidden(letter):
    return re.fullmatch(f"[{HIDDEN}]", letter) is not None


def hidden(text):
    return sorted({hex(ord(letter)) for letter in text if is_hidden(letter) and letter != "\n"})


def test_no_hidden_character_is_printable():
    """A text whose characters are all printable needs no look at each of them."""
    assert [hex(code) for code in range(sys.maxunicode + 1) if is_hidden(chr(code)) and chr(code).isprintable()] == []


@pytest.fixture
def clean(run):
    """Runs a command and checks every character of its output."""

    def call(*words, code=None, stdin=""):
        ran = run(*words, stdin=stdin)
        assert code is None or ran.code == code, ran
        assert (hidden(ran.out), hidden(ran.err)) == ([], []), words
        assert "\nerror: forged line" not in f"\n{ran.out}", words
        assert ran.err.count("\nerror: forged line") == 0, words
        return ran

    return call


@pytest.fixture
def evil(run):
    """A store with only hostile names, in a record and in a chunk's path."""
    line = {
        "id": FORGED, "text": f"tea {EVIL}", "title": f"Title {FORGED}", "category": FORGED, "tags": [FORGED],
        "source": FORGED, "scope": {"user": FORGED},
    }  # fmt: skip
    other = {"id": "other", "text": f"tea other {EVIL}", "scope": {"user": FORGED}}
    lines = f"{json.dumps(line)}\n{json.dumps(other)}\n"
    assert run("add", "-", "--embedder", "hashing:64", stdin=lines).code == 0
    return FORGED


def test_commands_on_records_print_no_hidden_character(clean, evil):
    """In text and in JSON; parsed JSON has the stored values."""
    as_user = ("--user", evil)
    asked = ("tea", *as_user)
    for flags in ((), ("--json",)):
        clean("get", evil, *as_user, *flags, code=0)
        clean("list", *as_user, *flags, code=0)
        clean("search", *asked, "--explain", *flags, code=0)
        clean("recall", *asked, *flags, code=0)
        clean("why-not", *asked[:1], evil, *as_user, *flags, code=0)
        clean("history", evil, *flags, code=0)
        clean("status", *flags, code=0)
        clean("overlap", *asked, *flags, "--embedder", "hashing:64", code=0)
    assert clean("get", evil, "--json").json["id"] == evil
    assert evil in [one["id"] for one in clean("list", *as_user, "--json").json]
    clean("edit", evil, "--category", f"new {evil}", *as_user, code=0)
    clean("history", evil, code=0)
    clean("add", "more tea", "--id", f"new {evil}", *as_user, code=0)
    clean("supersede", evil, "--text", f"later {evil}", *as_user, code=0)
    clean("get", evil, *as_user, code=0)
    clean("undo", evil, *as_user, code=0)
    clean("forget", f"new {evil}", *as_user, code=0)


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_errors_print_no_hidden_character(clean, evil, home, flags):
    """The message and the hint of an error are one line each."""
    (home / "bad.toml").write_text(set_values("", {"search.fusion": EVIL}))
    for words in (
        ["get", f"unknown {evil}"],
        ["search", "x", "--since", evil],
        ["search", "x", "--fusion", evil],
        ["search", "x", "--sources", evil],
        ["search", "x", "--embedder", evil],
        ["search", "x", "--config", f"{evil}.toml"],
        ["search", "x", "--config", home / "bad.toml"],
        ["search", "x", "--store", f"mysql:{evil}"],
        ["status", "--store", home / "folder" / evil / "store.db"],
        ["language", evil],
        ["model", "path", evil],
        ["import", f"{evil}.jsonl"],
        ["token", "remove", evil],
        ["fuse", f"{evil}.json"],
        ["eval", "run", f"{evil}"],
        ["trust", f"{evil}"],
        [evil],
        ["search", "x", f"--{EVIL}"],
    ):
        ran = clean(*words, *flags)
        assert ran.code in (0, 1, 2, 3), words


def test_settings_commands_print_no_hidden_character(clean, run, home, monkeypatch):
    """`config show`, `config path`, `trust`, `doctor` and `config import` in a folder with a hostile name."""
    folder = home / f"repo {EVIL}"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "recollect.toml").write_text(set_values("", {"scope.agent": EVIL}))
    for flags in ((), ("--json",)):
        clean("trust", *flags, code=0)
        clean("config", "show", *flags, code=0)
        clean("trust", "--list", *flags, code=0)
        clean("doctor", *flags)
    assert EVIL in clean("config", "show", "--json").json["scope.agent"]["value"]
    (folder / "recollect.toml").write_text(set_values("", {EVIL.replace(".", ""): 1}))
    clean("trust", code=2)
    clean("trust", "--revoke", code=0)
    user_file().parent.mkdir(parents=True, exist_ok=True)
    user_file().write_text(set_values("", {"scope.session": EVIL}))
    clean("config", "show", code=0)
    clean("config", "path", code=0)
    settings = {"agents": {"defaults": {"memorySearch": {"model": EVIL, f"odd {EVIL}": 1, "extraPaths": [EVIL]}}}}
    (folder / f"{EVIL}.json").write_text(json.dumps(settings))
    for flags in ((), ("--json",), ("--print",)):
        clean("config", "import", folder / f"{EVIL}.json", *flags)


def test_external_sources_and_tokens_print_no_hidden_character(clean, home):
    """A program's standard error, and scopes beside a token's name."""
    user_file().parent.mkdir(parents=True, exist_ok=True)
    say = f"import sys; sys.stderr.write({EVIL!r}); sys.exit(3)"
    command = json.dumps([sys.executable, "-c", say, "{query}"])
    table = f'[[sources]]\nname = "wiki"\nkind = "command"\ncommand = {command}\n'
    user_file().write_text(f'{table}fields = {{ id = "id" }}\n')
    clean("add", "tea", code=0)
    for flags in ((), ("--json",)):
        ran = clean("search", "tea", "--explain", *flags)
        assert "wiki" in ran.out + ran.err
        clean("doctor", *flags)
    clean("token", "add", "laptop", "--user", FORGED, code=0)
    clean("token", "list", code=0)
    clean("token", "list", "--json", code=0)


def test_moving_and_fusing_print_no_hidden_character(clean, evil, home):
    """Differing ids, named files, runs and their questions."""
    place = home / f"export {EVIL}.jsonl"
    clean("export", place, code=0)
    clean("copy", home / "store.db", home / f"copy {EVIL}.db", code=0)
    clean("add", "tea for another", "--id", "only-here", "--store", home / "third.db", code=0)
    clean("add", "tea of a third", "--id", evil, "--store", home / "third.db", code=0)
    clean("import", place, "--merge", "--store", home / "third.db", code=0)
    clean("import", place, "--store", home / "third.db")
    for name, ids in (("one", [FORGED, "b"]), ("two", ["b", FORGED])):
        (home / f"{name} {EVIL}.json").write_text(json.dumps(ids))
    files = (home / f"one {EVIL}.json", home / f"two {EVIL}.json")
    clean("fuse", *files, code=0)
    clean("fuse", *files, "--json", code=0)


def test_evaluation_prints_no_hidden_character(clean, home):
    """The set's name, its questions, and the folder of a new set."""
    folder = home / f"set {EVIL}"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(json.dumps({"_id": "d1", "text": f"tea {EVIL}"}) + "\n")
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "q1", "text": f"tea {EVIL}"}) + "\n")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    clean("add", f"The spare key of {EVIL} is under the blue pot in the garden.", "--title", EVIL, code=0)
    for flags in ((), ("--json",)):
        clean("eval", "run", folder, "--compare", "keyword", *flags, code=0)
        clean("eval", "sweep", folder, "--embedder", "hashing:64", *flags)
        clean("eval", "make-set", "-o", home / f"made {EVIL}", "--force", *flags)


TALK = """
import os, sys
from recollect.cli import main
raise SystemExit(main(sys.argv[1:]))
"""


def on_terminal(*words):
    """What a command writes to a real terminal, both streams."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", TALK, *map(str, words)], stdin=follower, stdout=follower, stderr=follower
    )
    os.close(follower)
    parts = []
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(leader)
    process.wait(60)
    return b"".join(parts).decode("utf-8", "surrogateescape")


@pytest.mark.ci
def test_terminal_gets_only_our_colours(run, evil):
    """A record's own escape sequences do not arrive."""
    for words in (
        ["get", evil, "--user", evil],
        ["list", "--user", evil],
        ["search", "tea", "--user", evil, "--explain"],
        ["why-not", "tea", evil, "--user", evil],
        ["history", evil],
        ["get", f"unknown {evil}"],
    ):
        shown = on_terminal(*words)
        assert "\x1b[" in shown or words[0] == "history", "no colour: this is no terminal"
        assert "\x1b[8m" not in shown
        rest = re.sub(r"\x1b\[(\d{1,2}(;\d{1,2})*)m", "", shown).replace("\r\n", "\n")
        assert hidden(rest) == [], words
        assert "\nerror: forged line" not in rest


def test_every_invisible_character_of_unicode_is_covered():
    """Each control and format character, except visible joiners and marks."""
    signs = "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
    hieroglyphs = "".join(map(chr, range(0x13430, 0x13440)))
    seen = {*signs, *hieroglyphs, *SEEN}
    wrong = [
        hex(code)
        for code in range(0x110000)
        if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        and is_hidden(chr(code)) == (chr(code) in seen)
    ]
    assert wrong == []


def test_ordinary_text_is_unchanged():
    """Words of every script, emoji, symbols and backslashes."""
    text = "naïve café, 日本語, עברית, العربية, می\u200cخواهم, 👩\u200d👩\u200d👧, a\\nb, x < y | z → 100 %"
    assert plain(text) == plain_text(text) == one_line(text) == text
    assert plain_text("two\nlines\tand tabs") == "two\nlines\tand tabs"
    assert plain("two\nlines\tand tabs") == "two\\nlines\\tand tabs"
    assert json.loads(to_json({"text": f"{text}{EVIL}"}, indent=2)) == {"text": f"{text}{EVIL}"}


def test_no_command_prints_without_cleaning():
    """Every module prints with `echo`; a few named ones clean their names themselves."""
    import recollect.cli

    allowed = {"terminal.py"}
    folder = Path(recollect.cli.__file__).parent
    direct = {file.name for file in folder.rglob("*.py") if re.search(r"click\.echo\(|\bprint\(", file.read_text())}
    assert direct <= allowed


def test_uncleaned_output_is_cleaned_too(capsys):
    """The last filter leaves colours and line breaks, and no other hidden character."""
    echo(f"one\n{EVIL}")
    shown = capsys.readouterr().out
    assert hidden(shown) == []
    assert shown.startswith("one\na")
