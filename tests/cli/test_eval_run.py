from __future__ import annotations

import json
from pathlib import Path

import pytest

from recollect.options import LIKELY

TOPICS = ("tea", "coffee", "trains", "keys", "rust", "owls", "bread", "rivers")
MEASURES = "nDCG@10 R@5 R@20 RR@10 AP P@1 Success@5"


def write_set(folder, *, corpus=True):
    """Eight questions to twenty-four documents, of which three are graded each."""
    folder.mkdir(parents=True)
    rows = [
        {"_id": f"{topic}{n}", "title": "", "text": f"{topic} {'and more ' * n}{TOPICS[n]} note {n}"}
        for topic in TOPICS
        for n in range(3)
    ]
    if corpus:
        (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = [{"_id": f"q{n}", "text": f"note {n % 3} on {topic}"} for n, topic in enumerate(TOPICS)]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    grades = [f"q{n}\t{topic}{k}\t{2 - k}\n" for n, topic in enumerate(TOPICS) for k in range(3)]
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(grades))
    return folder


@pytest.fixture
def data(home, monkeypatch):
    """A set in BEIR's layout, and a cache for the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    return write_set(home / "notes")


def test_set_is_measured_and_described(run, data):
    """One table line per system with its intervals; the last has n, fingerprint and embedder."""
    ran = run("eval", "run", data, "--embedder", "hashing:64", "--compare", "keyword,vector,rrf,weighted,default")
    assert ran.code == 0, ran.err
    assert [line.split()[0] for line in ran.out.splitlines()[1:6]] == [
        "keyword",
        "vector",
        "rrf",
        "weighted",
        "default",
    ]
    assert "keyword − default" in ran.out
    assert "has the highest nDCG@10: 0." in ran.out
    for part in ("notes · 24 documents · 8 questions", "hashing:64", "95 %"):
        assert part in ran.err
    again = run("eval", "run", data, "--embedder", "hashing:64", "--json", "--measures", MEASURES, "-m", "nDCG@3")
    assert list(again.json["systems"]["default"]["measures"]) == [*MEASURES.split(), "nDCG@3"]
    assert again.json["data"]["fingerprint"] in ran.err


def test_default_system_alone_needs_no_embedder(run, data):
    """`--embedder none` is keyword search; the set's store is in the cache, not the user's own."""
    assert "\ndefault has nDCG@10: " in run("eval", "run", data).out  # not "the highest" of one
    ran = run("eval", "run", data, "--json")
    assert list(ran.json["systems"]) == ["default"]
    assert ran.json["comparisons"] == []
    assert [file.name.startswith("notes-") for file in (data.parent / "cache" / "recollect" / "eval").glob("*.db")] == [
        True
    ]
    assert not (data.parent / "store.db").exists()
    refused = run("eval", "run", data, "--compare", "vector", "--json")
    assert refused.code == 2
    assert "needs an embedder" in refused.error["message"]


# Numba says so of a loop index of ranx's own when it first compiles it.
@pytest.mark.filterwarnings("ignore:unsafe cast from uint64 to int64")
@pytest.mark.timeout(240)
@pytest.mark.torture  # ranx is compiled anew for it, for most of a minute
def test_other_tools_score_our_run_alike(run, data):
    """pytrec_eval, ir_measures and ranx, from our files alone, give our values for each question."""
    import ir_measures
    import pytrec_eval
    import ranx

    ran = run(
        "eval", "run", data, "--json", "-m", "nDCG@10 R@5 RR AP", "--save-run", "r.trec", "--save-qrels", "q.trec"
    )
    ours = ran.json["systems"]["default"]["per_query"]
    with Path("q.trec").open() as qrels, Path("r.trec").open() as ranking:
        judged, ranked = pytrec_eval.parse_qrel(qrels), pytrec_eval.parse_run(ranking)
    names = {"nDCG@10": "ndcg_cut_10", "R@5": "recall_5", "RR": "recip_rank", "AP": "map"}
    trec = pytrec_eval.RelevanceEvaluator(judged, set(names.values())).evaluate(ranked)
    read = list(ir_measures.read_trec_qrels("q.trec")), list(ir_measures.read_trec_run("r.trec"))
    found = {(str(m.measure), m.query_id): m.value for m in ir_measures.iter_calc([ir_measures.nDCG @ 10], *read)}
    theirs = ranx.Run.from_file("r.trec", kind="trec")
    ranx.evaluate(ranx.Qrels.from_file("q.trec", kind="trec"), theirs, ["ndcg@10", "recall@5", "mrr"])
    for key in (f"q{n}" for n in range(8)):
        assert {name: trec[key][theirs_] for name, theirs_ in names.items()} == pytest.approx(
            {name: ours[name][key] for name in names}, abs=1e-9
        )
        assert found["nDCG@10", key] == pytest.approx(ours["nDCG@10"][key], abs=1e-9)
        for mine, other in (("nDCG@10", "ndcg@10"), ("R@5", "recall@5"), ("RR", "mrr")):
            assert float(theirs.scores[other][key]) == pytest.approx(ours[mine][key], abs=1e-9)


def test_runs_of_others_are_scored_beside_ours(run, data):
    """Our own run as a rival ties on every question; `--compare none` needs only judgments."""
    run("eval", "run", data, "--save-run", "ours.trec")
    both = run("eval", "run", data, "--run", "them=ours.trec", "--json").json
    assert [(one["ties"], one["p"]) for one in both["comparisons"]] == [(8, 1.0)] * 3
    assert both["systems"]["them"]["options"] == {"run": "ours.trec"}
    alone = run("eval", "run", "--qrels", data / "qrels.tsv", "--run", "ours.trec", "--compare", "none", "--json")
    assert alone.json["systems"]["ours"]["per_query"] == both["systems"]["them"]["per_query"]
    assert alone.json["settings"]["embedder"] is None


def test_each_system_is_saved_in_its_own_file(run, data):
    """The system's name is before the suffix, and is the run's tag."""
    run("eval", "run", data, "--compare", "keyword,default", "--save-run", "r.trec")
    assert (data.parent / "r-keyword.trec").read_text().split("\n")[0].endswith(" keyword")
    assert (data.parent / "r-default.trec").is_file()


def test_users_own_store_is_measured(run, home):
    """Judgments name records or files; a folder without a corpus, or two files, is reported as such."""
    notes = home / "files"
    notes.mkdir()
    for topic in TOPICS:
        (notes / f"{topic}.md").write_text(f"# {topic}\n\nAll there is to say of {topic}.\n")
    run("index", notes)
    folder = write_set(home / "mine", corpus=False)
    (folder / "qrels.tsv").write_text("".join(f"q{n}\t{topic}.md\t1\n" for n, topic in enumerate(TOPICS)))
    ran = run("eval", "run", folder, "-m", "P@1", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["systems"]["default"]["measures"]["P@1"]["mean"] == 1.0
    assert ran.json["data"]["corpora"][0]["documents"] == 8
    confidence = ran.json["systems"]["default"]["confidence"]
    assert confidence["right_first"] == 8
    assert 0 <= confidence["calibration_error"] <= 1
    text = " ".join(run("eval", "run", folder, "-m", "P@1").out.split())
    assert f"Confidence of default: calibration error {confidence['calibration_error']:.3f}" in text
    assert f"a threshold of {LIKELY:g} keeps {100 * confidence['kept']:.0f}" in text
    flags = ("--queries", folder / "queries.jsonl", "--qrels", folder / "qrels.tsv")
    assert run("eval", "run", *flags, "-m", "P@1", "--path", "tea.md", "--json").json["settings"]["filters"] == {
        "path": "tea.md"
    }
    empty = run("eval", "run", *flags, "--store", home / "other.db", "--json")
    assert empty.code == 2
    assert "none of the 8 judged documents" in empty.error["message"]


NOTHING = ("--text-weight", "0", "--vector-weight", "0")
"""Flags with which no source counts, so that nothing is found."""


def test_gate_passes_and_fails(run, data):
    """Exit code 0 without a change, 1 after a significant fall, measured again or from a report."""
    run("eval", "run", data, "--save", "old.json", "--compare", "default,keyword", "-m", "P@1 AP")
    same = run("eval", "gate", "--baseline", "old.json", data)
    assert same.code == 0, same.err
    assert "unchanged" in same.out
    worse = run("eval", "gate", "--baseline", "old.json", data, *NOTHING, "--json")
    assert worse.code == 1
    assert not worse.json["passed"]
    assert {check["system"] for check in worse.json["checks"] if check["fell"]} == {"default", "keyword"}
    assert run("eval", "gate", "--baseline", "old.json", "old.json").code == 0
    run("eval", "run", data, "--save", "bad.json", "-m", "AP", *NOTHING)
    fell = run("eval", "gate", "--baseline", "old.json", "bad.json")
    assert (fell.code, "FELL" in fell.out) == (1, True)
    other = run("eval", "gate", "--baseline", "old.json", data, "--path", "nowhere")
    assert (other.code, "cannot be compared: filters" in other.err) == (2, True)


def test_gate_refuses_other_data(run, data, home):
    """Other judgments have another fingerprint: exit code 2 with a hint."""
    run("eval", "run", data, "--save", "old.json")
    (data / "qrels.tsv").write_text("q0\ttea0\t1\n")
    ran = run("eval", "gate", "--baseline", "old.json", data, "--json")
    assert ran.code == 2
    assert "fingerprint" in ran.error["message"]
    assert "baseline" in ran.error["hint"]
    assert run("eval", "gate", data).code == 2
    assert run("eval", "gate", "--baseline", "gone.json", data).code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "nothing to measure on"),
        (("nowhere",), "is no folder"),
        (("notes", "--compare", "bm25"), "no system 'bm25'"),
        (("notes", "--measures", "Fun@3"), "Fun@3"),
        (("notes", "--run", "gone.trec"), "gone.trec does not exist"),
        (("notes", "--against", "them"), "no system 'them'"),
        (("notes", "--split", "dev"), "split 'dev'"),
        (("--queries", "q.jsonl", "--qrels", "j.tsv", "--split", "dev"), "--split needs the folder of a set"),
        (("notes", "--qrels", "x"), "its own questions"),
        (("--qrels", "notes/qrels.tsv"), "nothing to measure on"),
        (("notes", "--compare", "none"), "nothing is measured"),
        (("notes", "--fusion", "magic"), "magic"),
    ],
)
def test_wrong_use_is_reported(run, data, words, said):
    """With exit code 2."""
    ran = run("eval", "run", *words, "--json")
    assert ran.code == 2
    assert said in ran.error["message"]


def test_documents_are_measured_as_files(run, data):
    """--as-files says so in the output and the report, and the gate measures the set as its baseline did."""
    ran = run("eval", "run", data, "--embedder", "hashing:64", "--as-files", "--save", "files.json")
    assert ran.code == 0, ran.err
    assert "notes · 24 documents as files · 8 questions" in ran.err
    assert json.loads(Path("files.json").read_text())["data"]["as_files"] is True
    gated = run("eval", "gate", "--baseline", "files.json", data, "--embedder", "hashing:64")
    assert gated.code == 0, gated.err
    assert "nothing fell significantly" in gated.err
    whole = run("eval", "run", data, "--embedder", "hashing:64", "--save", "whole.json")
    assert whole.code == 0, whole.err
    mixed = run("eval", "gate", "--baseline", "whole.json", "files.json")
    assert mixed.code == 2
    assert "fingerprint" in mixed.err


@pytest.mark.parametrize("words", [("notes-own",), ("--queries", "q.jsonl", "--qrels", "q.tsv")])
def test_own_store_is_not_measured_as_files(run, home, words):
    """--as-files needs documents to write: questions to the user's own store are refused."""
    write_set(home / "notes-own", corpus=False)
    refused = run("eval", "run", *words, "--as-files")
    assert refused.code == 2
    assert "--as-files needs" in refused.err
