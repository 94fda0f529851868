"""What the terminal prints of texts from outside."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from recollect.cli import main, terminal


@pytest.mark.parametrize(
    ("markdown", "words"),
    [
        ("## Why\nIt *must* be **so**, __here__ too.", "Why:\nIt must be so, here too."),
        ("# Is it so? #", "Is it so?"),
        (
            "See [the docs](https://example.org/a_(b)) and ![a heron](h.png), [one][1].",
            "See the docs and a heron, one.",
        ),
        ("- [[Alpha]], [[a/Beta#Budget|the second]] and ![[plan.png]]", "• Alpha, the second and plan.png"),
        ("| [[Anselm\\|Ans]] | x |", "• Ans · x"),
        ("- one\n* [x] two\n  3. three", "• one\n• two\n• three"),
        ("| a | `b` |\n|---|:-:|\n| 1 | 2 |", "• a · b\n• 1 · 2"),
        ("```sh\n# a **comment**\n- x\n```\nend", "# a **comment**\n- x\nend"),
        ("> quoted <https://example.org><!-- hidden -->", "quoted https://example.org"),
        ("snake_case_name, 2 * 3 * 4, a|b, #5, -x, [open", "snake_case_name, 2 * 3 * 4, a|b, #5, -x, [open"),
    ],
)
def test_markdown_becomes_plain_text(markdown: str, words: str) -> None:
    """Marks of headings, links, emphasis, tables and code are removed; items are separated; the rest stays."""
    assert terminal.without_markdown(markdown) == words


def test_lines_of_a_list_fit_on_the_terminal(run, monkeypatch) -> None:
    """A Chinese character takes two columns, a combining mark none."""
    monkeypatch.setenv("COLUMNS", "80")
    assert terminal.columns("tea 茶 e\u0301") == 8
    for text in ("我们在湖边看到一只苍鹭" * 9, "a heron by the lake " * 9, "茶 and heron " * 20):
        run("add", text, "--origin", "agent")
    lines = run("list").out.splitlines()
    assert len(lines) == 3
    assert all(70 <= terminal.columns(line) <= 80 for line in lines), lines


def test_empty_query_has_one_note(run) -> None:
    """Every source has nothing to look for, for the same reason."""
    run("add", "A heron by the lake.")
    (note,) = [line for line in run("search", "").err.splitlines() if "query" in line]
    assert note == "note: the query is empty"


def test_json_is_made_only_for_a_program(run, monkeypatch) -> None:
    """A search for a person does not compute the document that `--json` prints."""
    from recollect.cli import queries

    run("add", "A heron by the lake.")
    made, document = [], queries.answer_dict
    monkeypatch.setattr(queries, "answer_dict", lambda *args, **options: made.append(1) or document(*args, **options))
    assert "A heron by the lake." in run("search", "heron").out
    assert made == []
    assert len(run("search", "heron", "--json").json["results"]) == len(made) == 1


@pytest.mark.parametrize("part", ["*a ", "[", "[[a|", "[[a\\|b]", "[a](", "`", "<!--", "_x", "> ", "| a ", "(("])
def test_long_lines_of_marks_take_little_time(part: str) -> None:
    """No pattern takes time that grows with the square of a line."""
    began = time.process_time()
    terminal.without_markdown(part * 30_000)
    assert time.process_time() - began < 2


def test_snippets_are_plain_and_json_is_as_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of Markdown; source code is shown as it is written."""
    (tmp_path / "note.md").write_text("# Herons\n\n## Food\n\n- They eat [fish](fish.md).\n- Or **frogs**.\n")
    (tmp_path / "code.py").write_text("# [herons](x) **eat**\nheron_food = ['fish']\n")
    flags = ["--store", str(tmp_path / "memory.db"), "--embedder", "none"]
    assert main(["index", str(tmp_path), *flags]) == 0
    assert main(["search", "frogs", *flags]) == 0
    assert "• They eat fish. • Or frogs." in capsys.readouterr().out
    assert main(["search", "heron_food", *flags]) == 0
    assert "# [herons](x) **eat**" in capsys.readouterr().out
    assert main(["search", "frogs", "--json", *flags]) == 0
    assert "- They eat [fish](fish.md). - Or **frogs**." in json.loads(capsys.readouterr().out)["results"][0]["snippet"]
