import json
import subprocess
import sys
from pathlib import Path

import pytest

from recollect.evaluation.runs import read_run, write_trec
from recollect.fusion import METHODS


def listed(*items):
    return json.dumps({"results": list(items)})


def ids(ran):
    return [result["id"] for result in ran.json["results"]]


def order(text):
    """The ids of a list without a question, as they were read."""
    return [entry.id for entry in read_run(text.encode(), "a file").get(None, ())]


@pytest.fixture
def files(home):
    """Three lists, one in each format."""
    (home / "a.json").write_text(listed({"id": "x", "rank": 1}, {"id": "y", "rank": 2}))
    (home / "b.jsonl").write_text('{"id": "y", "score": 0.9}\n{"id": "z", "score": 0.4}\n')
    (home / "run.trec").write_text("q1 Q0 z 1 7.5 bm25\nq1 Q0 x 2 3.5 bm25\n")
    return home


def test_three_formats_are_fused_in_one_command(run, files):
    """The documented command, with the contribution of each list."""
    ran = run("fuse", "a.json", "b.jsonl", "run.trec", "--method", "rrf", "--k", "60", "--json")
    assert (ran.code, ids(ran)) == (0, ["x", "y", "z"])
    assert ran.json["fusion"] == {"method": "rrf", "k": 60, "weights": {"a": 1.0, "b": 1.0, "run": 1.0}}
    first = ran.json["results"][0]
    assert first["fused"] == pytest.approx(1 / 61 + 1 / 62)
    assert first["sources"] == {
        "a": {"rank": 1, "score": None, "contribution": 1 / 61},
        "run": {"rank": 2, "score": 3.5, "contribution": 1 / 62},
    }


@pytest.mark.parametrize(
    ("ranks", "fused"), [((1,), 0.016393), ((1, 1), 0.032787), ((1, 5), 0.031778), ((10, 10), 0.028571)]
)
def test_explicit_rank_is_used_unchanged(run, home, ranks, fused):
    """The project's test vectors, with files of a single document each."""
    names = [f"{number}.json" for number in range(len(ranks))]
    for name, rank in zip(names, ranks, strict=True):
        (home / name).write_text(listed({"id": "d", "rank": rank}))
    assert run("fuse", *names, "--json").json["results"][0]["fused"] == pytest.approx(fused, abs=5e-7)


def test_borda_with_explicit_ranks_is_never_below_absence(run, home):
    """A rank beyond the number of documents still earns something."""
    (home / "a.json").write_text(listed({"id": "deep", "rank": 50}))
    (home / "b.json").write_text(listed({"id": "top", "rank": 1}))
    results = run("fuse", "a.json", "b.json", "--method", "borda", "--json").json["results"]
    assert [(one["id"], one["fused"]) for one in results] == [("top", 1.0), ("deep", pytest.approx(1 / 50))]


def test_standard_input_is_a_list_of_any_format(run, files):
    """`-` is named stdin."""
    for text in (listed("x"), '["x"]', '"x"\n', '{"id": "x"}', "q Q0 x 1 1 t\n", "\ufeff" + listed("x")):
        ran = run("fuse", "b.jsonl", "-", "--json", stdin=text)
        assert ran.code == 0, ran.err
        assert "stdin" in next(one for one in ran.json["results"] if one["id"] == "x")["sources"]
    assert run("fuse", "-", "-").code == 2


def test_ids_are_texts_or_whole_numbers(run):
    """Alone or in an object, in every kind of list."""
    assert order("[3, 1]") == order("3\n1\n") == order('{"id": 3}\n{"id": 1}') == ["3", "1"]


def test_list_is_ordered_by_rank_then_score_then_position():
    """FTS5's negative scores, best first, are left in place."""
    assert order(listed({"id": "a", "rank": 2, "score": 9}, {"id": "b", "rank": 1, "score": 1})) == ["b", "a"]
    assert order(listed({"id": "a", "score": 1}, {"id": "b", "score": 9}, {"id": "c", "score": 9})) == ["b", "c", "a"]
    assert order(listed({"id": "b"}, {"id": "a"})) == order('["b", "a"]') == ["b", "a"]
    assert order(listed({"id": "a", "score": -8.5}, {"id": "b", "score": -3}, {"id": "c", "score": -1})) == [
        "a",
        "b",
        "c",
    ]
    assert order(listed({"id": "a", "score": -8.5}, {"id": "b", "score": -1}, {"id": "c", "score": -3})) == [
        "b",
        "c",
        "a",
    ]


def test_repeated_id_keeps_its_better_rank():
    """In every format; in a list without ranks the following ones move up."""
    assert order('["a", "b", "a", "c"]') == ["a", "b", "c"]
    assert order(listed({"id": "a", "rank": 3}, {"id": "b", "rank": 2}, {"id": "a", "rank": 1})) == ["a", "b"]
    run = read_run(b"q Q0 a 1 1 t\nq Q0 b 2 2 t\nq Q0 a 3 3 t\n", "f")
    assert [(entry.id, entry.score) for entry in run["q"]] == [("a", 3.0), ("b", 2.0)]


def test_trec_run_is_ordered_like_trec_eval():
    """By falling score, equal scores by falling id, whatever the ranks; comments and blank lines are ignored."""
    text = (
        "# made by hand\r\n\r\nq Q0 a 1 2.0 t\r\nq\tQ0\tb\t2\t2.0\tt\r\nq Q0 c 3 5 t\r\np Q0 no\u00a0break 9 1e-3 t\r\n"
    )
    run = read_run(text.encode(), "f")
    assert {key: [entry.id for entry in of] for key, of in run.items()} == {
        "q": ["c", "b", "a"],
        "p": ["no\u00a0break"],
    }


def test_our_order_is_what_trec_eval_reads_from_our_run():
    """Broken ties stay: pytrec_eval finds each document at its rank."""
    import pytrec_eval

    ranking = [("b", 0.5), ("c", 0.5), ("a", 0.5 - 1e-9), ("d", 0.0), ("e", 0.0), ("f", -0.25), ("g", -0.25)]
    lines = [line.split() for line in write_trec({"q": ranking})]
    scores = {document: float(score) for _, _, document, _, score, _ in lines}
    for place, (document, _) in enumerate(ranking, 1):
        found = pytrec_eval.RelevanceEvaluator({"q": {document: 1}}, {"recip_rank"}).evaluate({"q": scores})
        assert found["q"]["recip_rank"] == pytest.approx(1 / place)
    assert [entry.id for entry in read_run("\n".join(map(" ".join, lines)).encode(), "f")["q"]] == list("bcadefg")


def test_our_own_answers_can_be_fused(run, home):
    """The JSON of `search`, and that of `fuse` for one question and for many."""
    run("add", "Tea with Ada", "--id", "ada")
    run("add", "Tea with Bob and milk", "--id", "bob")
    (home / "s.json").write_text(run("search", "tea milk", "--json").out)
    ran = run("fuse", "s.json", "--json")
    assert ids(ran) == ["bob", "ada"]
    (home / "t.json").write_text(ran.out)
    assert ids(run("fuse", "s.json", "t.json", "--json")) == ["bob", "ada"]
    (home / "many.trec").write_text("p Q0 a 1 2 t\nq Q0 b 1 2 t\nq Q0 c 1 1 t\n")
    (home / "many.json").write_text(run("fuse", "many.trec", "--json").out)
    again = run("fuse", "many.json", "many.trec", "--json").json["queries"]
    assert {key: [one["id"] for one in of] for key, of in again.items()} == {"p": ["a"], "q": ["b", "c"]}


def test_runs_of_many_questions_are_fused_per_question(run, home):
    """A question missing in one run is answered by the other."""
    (home / "a.trec").write_text("1 Q0 x 1 2 a\n1 Q0 y 2 1 a\n2 Q0 x 1 2 a\n")
    (home / "b.trec").write_text("1 Q0 y 1 2 b\n3 Q0 z 1 2 b\n")
    answers = run("fuse", "a.trec", "b.trec", "--json").json["queries"]
    assert {key: [one["id"] for one in of] for key, of in answers.items()} == {"1": ["y", "x"], "2": ["x"], "3": ["z"]}
    assert answers["2"][0]["score"] == pytest.approx(0.5)
    lines = [line.split() for line in run("fuse", "a.trec", "b.trec", "--trec").out.splitlines()]
    assert [(line[0], line[2], line[3]) for line in lines] == [
        ("1", "y", "1"),
        ("1", "x", "2"),
        ("2", "x", "1"),
        ("3", "z", "1"),
    ]
    shown = run("fuse", "a.trec", "b.trec")
    assert shown.out.splitlines()[:2] == ["1", "    id  score  fused     a   b"]
    assert "4 results for 3 queries · rrf k=60" in shown.err


def test_list_without_a_question_needs_a_single_question(run, home):
    """With a run of several questions it is a usage error."""
    (home / "plain.json").write_text('["x"]')
    (home / "one.trec").write_text("q7 Q0 y 1 2 a\n")
    (home / "two.trec").write_text("q7 Q0 y 1 2 a\nq8 Q0 y 1 2 a\n")
    joined = run("fuse", "plain.json", "one.trec", "--json").json
    assert (joined["query"], len(joined["results"])) == ("q7", 2)
    refused = run("fuse", "plain.json", "two.trec", "--json")
    assert refused.code == 2
    assert "'plain' is a list without a question, and the others answer 2 questions" in refused.error["message"]
    (home / "empty.json").write_text("[]")
    assert run("fuse", "empty.json", "two.trec").code == 0


def test_weights_go_by_name_or_in_order(run, files):
    """Unnamed lists have weight 1, and weight 0 is absence."""
    named = run("fuse", "a.json", "b.jsonl", "--weights", "b=3", "--json")
    assert named.json == run("fuse", "a.json", "b.jsonl", "--weights", "1,3", "--json").json
    assert ids(named)[0] == "y"
    assert ids(run("fuse", "a.json", "b.jsonl", "--weights", "b=0", "--json")) == ["x", "y"]


def test_lists_are_named_after_their_files_or_by_option(run, home):
    """Two files of one stem get different names; --names sets others."""
    for folder in ("one", "two"):
        (home / folder).mkdir()
        (home / folder / "r.json").write_text('["x"]')
    both = ("fuse", "one/r.json", "two/r.json", "--json")
    assert list(run(*both).json["fusion"]["weights"]) == ["r", "r-2"]
    assert list(run(*both, "--names", "old, new", "--weights", "new=2").json["fusion"]["weights"]) == ["old", "new"]
    for bad in ("old", "old,old", "old,", "a,b,c"):
        assert run(*both, "--names", bad).code == 2


def test_every_method_and_normalisation(run, files):
    """Fusing by score needs scores in every list; `--bounded` uses them unchanged."""
    (files / "c.json").write_text(listed({"id": "x", "score": 3.0}, {"id": "z", "score": 1.0}))
    for method in METHODS:
        ran = run("fuse", "b.jsonl", "c.json", "--method", method, "--normalisation", "minmax", "--json")
        assert (ran.code, ran.json["fusion"]["method"]) == (0, method)
    refused = run("fuse", "a.json", "c.json", "--method", "weighted", "--json")
    assert (refused.code, "entries without a score" in refused.error["message"]) == (2, True)
    blend = run("fuse", "c.json", "b.jsonl", "--method", "weighted", "--weights", "0.3,0.7", "--bounded", "b", "--json")
    assert {one["id"]: one["fused"] for one in blend.json["results"]} == pytest.approx(
        {"y": 0.7 * 0.9, "z": 0.7 * 0.4 + 0.3 * 0.5, "x": 0.3 * 0.75}
    )


def test_limit_is_a_prefix(run, files):
    """`--limit` cuts every question's ranking, and nothing else changes."""
    whole = run("fuse", "a.json", "b.jsonl", "--json").json["results"]
    assert run("fuse", "a.json", "b.jsonl", "--json", "--limit", "1").json["results"] == whole[:1]
    assert len(run("fuse", "a.json", "b.jsonl", "--trec", "-n", "2").out.splitlines()) == 2


def test_text_output_is_a_table_of_ranks(run, files):
    """One line per document, with its rank in each list."""
    shown = run("fuse", "a.json", "b.jsonl")
    assert [line.split() for line in shown.out.splitlines()] == [
        ["id", "score", "fused", "a", "b"],
        ["1.", "y", "0.99", "0.032522", "#2", "#1"],
        ["2.", "x", "0.50", "0.016393", "#1", "–"],
        ["3.", "z", "0.49", "0.016129", "–", "#2"],
    ]
    assert shown.err == "3 results · rrf k=60\n"


def test_id_cannot_control_the_terminal(run, home):
    """Control characters are not printed."""
    (home / "a.json").write_text(json.dumps(["evil\x1b[2J", "fine"]))
    assert "\x1b" not in run("fuse", "a.json").out


def test_nothing_to_fuse_is_exit_1(run, home):
    """Empty files and lists count as empty lists, with a note."""
    (home / "some.json").write_text('["x"]')
    for text in ("", "\n \n", "[]", '{"results": []}', "\ufeff", "# only a comment\n"):
        (home / "empty.json").write_text(text)
        ran = run("fuse", "empty.json")
        assert (ran.code, ran.out) == (1, "")
        assert "empty.json holds no results" in ran.err
        assert run("fuse", "empty.json", "--json").json["results"] == []
        assert run("fuse", "empty.json", "--trec").out == ""
        assert ids(run("fuse", "empty.json", "some.json", "--json")) == ["x"]


BAD = [
    ("{", "line 1 is not JSON"),
    ('{"id": "a"}\n{"id": \n', "line 2 is not JSON"),
    ('{"id": "a"}\nb\n', "line 2 is not JSON"),
    ('{\n"results": [\n{"id": "a"}\n{"id": "b"}]}', "line 4 is not JSON"),
    ('{"results": 5}', "holds no list"),
    ('{"queries": {"q": 5}}', "holds no list"),
    (listed({"rank": 1}), 'result 1 has no "id"'),
    ('{"id": "a"}\n{"ID": "b"}', 'line 2 has no "id"'),
    (listed({"id": None}), "needs an id"),
    (listed({"id": True}), "needs an id"),
    (listed({"id": " "}), "needs an id"),
    (listed(["a"]), "needs an id"),
    ('["a", 1.5]', "result 2 needs an id"),
    ('["\\ud800"]', "no Unicode text"),
    (listed({"id": "a", "rank": 0}), "ranks are whole numbers from 1"),
    (listed({"id": "a", "rank": 1.5}), "ranks are whole numbers from 1"),
    (listed({"id": "a", "rank": "1"}), "ranks are whole numbers from 1"),
    (listed({"id": "a", "rank": True}), "ranks are whole numbers from 1"),
    (listed({"id": "a", "rank": 1}, {"id": "b"}), "result 2 has no rank, and others have one"),
    (listed({"id": "a"}, {"id": "b", "score": 1}), "result 1 has no score, and others have one"),
    ('[{"id": "a", "score": NaN}]', "scores are finite numbers"),
    ('[{"id": "a", "score": 1e999}]', "scores are finite numbers"),
    ('[{"id": "a", "score": 1' + 400 * "0" + "}]", "scores are finite numbers"),
    ('[{"id": "a", "score": "high"}]', "scores are finite numbers"),
    ('[{"id": "a", "score": 1' + 5000 * "0" + "}]", "not JSON that can be read"),
    ("[" * 100_000, "not JSON"),
    ("q Q0 a 1 nan t", "line 1 has the score 'nan'"),
    ("q Q0 a 1 2 t\nq Q0 b 2 -inf t", "line 2 has the score '-inf'"),
    ("q Q0 a 1 high t", "line 1 has the score 'high'"),
    ("q Q0 a 1 2", "line 1 has 5 columns, not six"),
    ("q Q0 a 1 2 t\n\nq Q0 a b 1 2 t", "line 3 has 7 columns, not six"),
    ("shopping\nlist", "line 1 has 1 column, not six"),
]


@pytest.mark.parametrize(("text", "part"), BAD)
def test_invalid_file_is_named_with_its_line(run, home, text, part):
    """Exit code 2: the file, the place, the mistake, and the valid formats."""
    (home / "bad.txt").write_text(text)
    refused = run("fuse", "bad.txt", "--json")
    assert (refused.code, refused.out) == (2, "")
    assert refused.error["message"].startswith("bad.txt: ")
    assert part in refused.error["message"]
    assert len(refused.error["message"]) < 300
    assert "TREC run" in refused.error["hint"]


def test_invalid_encoding_is_refused(run, home):
    """Not UTF-8 is named with its line; UTF-16 with its mark, as PowerShell writes it, is read."""
    (home / "bad.json").write_bytes(b'["a",\n "\xff"]')
    assert "bad.json: line 2 is not text" in run("fuse", "bad.json", "--json").error["message"]
    (home / "wide.json").write_text('["ä"]\r\n', encoding="utf-16")
    assert ids(run("fuse", "wide.json", "--json")) == ["ä"]


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["fuse"], 2, "FILE"),
        (["fuse", "nowhere.json"], 2, "nowhere.json does not exist"),
        (["fuse", "."], 2, "is a folder"),
        (["fuse", "a.json/x"], 2, "does not exist"),
        (["fuse", "a.json", "--k", "-1"], 2, "k must be"),
        (["fuse", "a.json", "--k", "nan"], 2, "k must be"),
        (["fuse", "a.json", "--k", "many"], 2, "many"),
        (["fuse", "a.json", "--method", "magic"], 2, "magic"),
        (["fuse", "a.json", "--normalisation", "magic"], 2, "magic"),
        (["fuse", "a.json", "--limit", "0"], 2, "limit"),
        (["fuse", "a.json", "--weights", "0.5,0.5"], 2, "2 weights for 1 lists"),
        (["fuse", "a.json", "--weights", "much"], 2, "cannot be read"),
        (["fuse", "a.json", "--weights", "a=1,a=2"], 2, "cannot be read"),
        (["fuse", "a.json", "b.jsonl", "--weights", "a=1,2"], 2, "cannot be read"),
        (["fuse", "a.json", "--weights", "c=1"], 2, "there is no list named 'c'"),
        (["fuse", "a.json", "--bounded", "c"], 2, "there is no list named 'c'"),
        (["fuse", "a.json", "--weights", "-1"], 2, "weight of 'a'"),
        (["fuse", "a.json", "--weights", "a=inf"], 2, "weight of 'a'"),
        (["fuse", "b.jsonl", "run.trec", "--method", "weighted", "--weights", "1e308,1e308"], 2, "overflow"),
    ],
)
def test_wrong_use_is_named(run, files, words, code, part):
    """Each mistake has its exit code and its words, in JSON and on the terminal, and no output."""
    in_json = run(*words, "--json")
    assert (in_json.code, in_json.out, part in in_json.error["message"]) == (code, "", True)
    assert part in run(*words).err


def test_json_and_trec_exclude_each_other(run, files):
    """--json and --trec exclude each other."""
    assert run("fuse", "a.json", "--trec", "--json").code == 2


def test_space_in_an_id_is_encoded_for_trec(run, home):
    """There, white space separates."""
    (home / "a.json").write_text('["good", "not good"]')
    assert [line.split()[2] for line in run("fuse", "a.json", "--trec").out.splitlines()] == ["good", "not%20good"]


def test_weights_of_0_are_refused(run, home):
    """Nothing could be ranked."""
    (home / "a.json").write_text('["good"]')
    refused = run("fuse", "a.json", "--weights", "0")
    assert (refused.code, "every list has the weight 0" in refused.err) == (2, True)


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="only Linux has a file that even root cannot read")
def test_unreadable_file_is_exit_3(run):
    """The request was right, the world was not."""
    refused = run("fuse", "/proc/self/mem", "--json")
    assert (refused.code, refused.error["code"]) == (3, "failed")
    assert "/proc/self/mem cannot be read" in refused.error["message"]


def test_large_file_is_read(run, home):
    """Seventeen megabytes of JSON lines, of which the best is last."""
    lines = [json.dumps({"id": f"d{number}", "score": number, "text": "x" * 1000}) for number in range(17_000)]
    (home / "large.jsonl").write_text("\n".join(lines))
    assert (home / "large.jsonl").stat().st_size > 16 * 1024 * 1024
    assert ids(run("fuse", "large.jsonl", "--json", "--limit", "2")) == ["d16999", "d16998"]


def test_fuse_opens_no_store_and_loads_only_click(files):
    """In a separate process: only the standard library, click and Recollect, and no new file."""
    code = (
        "import sys\nbefore = set(sys.modules)\nfrom recollect.cli import main\n"
        "code = main(['fuse', 'a.json', 'b.jsonl', 'run.trec', '--json'])\n"
        "names = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(code, sorted(names - set(sys.stdlib_module_names) - {'recollect'}),\n"
        "      sorted(name for name in sys.modules if name.startswith(('recollect.stores', 'recollect.memory'))))\n"
    )
    before = sorted(files.rglob("*"))
    shown = subprocess.run([sys.executable, "-c", code], cwd=files, capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "0 ['click'] []"
    assert sorted(files.rglob("*")) == before


def test_fuse_from_python_loads_no_other_package(files):
    """`recollect.fuse` gives the command's result with the standard library alone."""
    code = (
        "import sys\nbefore = set(sys.modules)\nimport recollect\n"
        "found = recollect.fuse({'a': ['x', 'y'], 'b': ['y', 'z']}, k=60)\n"
        "names = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print([one.id for one in found], sorted(names - set(sys.stdlib_module_names) - {'recollect'}))\n"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "['y', 'x', 'z'] []"
