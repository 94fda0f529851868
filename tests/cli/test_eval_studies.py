import json
import random
import re

import pytest

from recollect import config
from recollect.cli.lab import tune
from recollect.evaluation import tuning

WORDS = [
    "night",
    "train",
    "water",
    "garden",
    "piano",
    "budget",
    "harbour",
    "winter",
    "letter",
    "window",
    "bread",
    "stone",
    "river",
    "market",
    "lamp",
]


@pytest.fixture
def small(home, monkeypatch):
    """A folder with a set of 60 documents and 36 questions, a cache of its own, and the hashing embedder."""
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "hashing:64")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    return write(home / "small")


def write(folder, documents=60, questions=36):
    draw = random.Random(3)
    folder.mkdir(parents=True)
    texts = {f"d{number}": " ".join([*draw.sample(WORDS, 6), str(number)]) for number in range(documents)}
    targets = {f"q{number}": f"d{draw.randrange(documents)}" for number in range(questions)}
    queries = {key: " ".join(draw.sample(texts[target].split(), 3)) for key, target in targets.items()}
    rows = [{"_id": key, "title": "", "text": text} for key, text in texts.items()]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "queries.jsonl").write_text("\n".join(json.dumps({"_id": k, "text": t}) for k, t in queries.items()))
    lines = ["query-id\tcorpus-id\tscore", *(f"{key}\t{target}\t1" for key, target in targets.items())]
    (folder / "qrels.tsv").write_text("\n".join(lines))
    return folder


@pytest.mark.ci
def test_sweep_prints_a_table_a_plot_a_knee_and_a_certificate(run, small):
    ran = run("eval", "sweep", small, "--fetch-k", "5,50,100", "--k", "1,60", "--fusion", "rrf,weighted")
    assert ran.code == 0, ran.err
    assert "rrf k=60  50       0." in ran.out
    assert re.search(r"rrf k=60  50 .*\d\.\d %\n", ran.out), "a space before the sign, as everywhere"
    assert "knee at" in ran.out
    assert any(block in ran.out for block in tune.BLOCKS)
    assert "A shorter answer began the longer one in all" in " ".join(ran.out.split())
    assert "36 questions" in ran.err


def test_sweep_of_one_depth_compares_the_settings(run, small):
    """There is no knee, and settings without a `k` are among those compared."""
    ran = run("eval", "sweep", small, "--fetch-k", "50", "--k", "1,60", "--fusion", "rrf,weighted")
    assert ran.code == 0, ran.err
    assert "weighted" in ran.out
    assert "The knee is" not in ran.out


def test_sweep_as_json_has_the_data_of_the_plots(run, small):
    ran = run("eval", "sweep", small, "--fetch-k", "5,50", "--k", "60", "--fusion", "rrf,weighted", "--json")
    report = ran.json
    assert set(report) == {"data", "measure", "rows", "knee", "knees", "churn", "prefix"}
    assert report["data"]["questions"] == 36
    assert report["measure"] == "nDCG@10"
    assert set(report["rows"][0]) == {"options", "mean", "low", "high"}
    assert report["knee"]["options"]["fetch_k"] in (5, 50)
    assert {step["along"] for step in report["churn"]} == {"fetch_k", "settings"}
    assert [row["options"] for row in report["rows"]] == [
        {"fusion": "rrf", "rrf_k": 60, "fetch_k": 5},
        {"fusion": "rrf", "rrf_k": 60, "fetch_k": 50},
        {"fusion": "weighted", "fetch_k": 5},
        {"fusion": "weighted", "fetch_k": 50},
    ]
    assert report["prefix"]["held"]
    assert report["prefix"]["checked"] == 2 * report["prefix"]["questions"]
    assert report["prefix"]["questions"] <= 20


def test_sweep_includes_the_current_settings(run, small):
    """If no method is named."""
    ran = run("eval", "sweep", small, "--fetch-k", "10", "--k", "60", "--json")
    fusion = config.SearchOptions().fusion
    assert ran.json["rows"][0]["options"]["fusion"] == fusion
    assert {row["options"]["fusion"] for row in ran.json["rows"]} == {fusion, "rrf", "weighted"}


@pytest.mark.ci
def test_sweep_is_plotted_on_request(run, small):
    pytest.importorskip("matplotlib")
    ran = run("eval", "sweep", small, "--fetch-k", "5,50", "--k", "60", "--plot", "sweep.svg")
    assert ran.code == 0, ran.err
    assert "<svg" in (small.parent / "sweep.svg").read_text()


@pytest.mark.parametrize(
    "flags",
    [
        ("--fetch-k", "0,5"),
        ("--fetch-k", "5.5"),
        ("--k", "-1"),
        ("--k", "nan"),
        ("--fusion", "magic"),
        ("--fusion", "weighted", "--normalisation", "magic"),
        ("--vector-weight", "1.5"),
        ("--plot", "sweep.gif"),
        ("--plot", "nowhere/sweep.png"),
        ("--measure", "magic@10"),
        ("--measure", "nDCG@10 R@5"),
    ],
)
def test_sweep_refuses_invalid_options(run, small, flags):
    ran = run("eval", "sweep", small, *flags, "--json")
    assert ran.code in (2, 3)
    assert ran.error["message"]
    assert not ran.out


@pytest.mark.ci
def test_overlap_counts_each_corpus_and_advises_for_the_set(run, home, small):
    write(home / "two" / "a", 30, 10)
    write(home / "two" / "b", 40, 12)
    ran = run("eval", "overlap", small, home / "two", "--fetch-k", 5, "--json")
    assert ran.code == 0, ran.err
    told = ran.json
    assert told["data"]["questions"] == 36 + 22
    assert [one["set"] for one in told["pairs"]] == ["small", "two"]
    assert [one["set"] for one in told["corpora"]] == ["two/a", "two/b"]
    for one in (*told["pairs"], *told["corpora"]):
        assert one["both"] + one["only_a"] + one["only_b"] + one["neither"] == one["relevant"]
        assert one["advice"] in ("fuse", "gains little", "undecided")
    assert told["pairs"][1]["relevant"] == 22
    shown = run("eval", "overlap", small, home / "two", "--fetch-k", 5)
    assert [line.split(" ")[0] for line in shown.out.splitlines()[1:5]] == ["two/a:", "two/b:", "small:", "two:"]
    words = " ".join(shown.out.split())
    assert f"small: keyword and vector: {told['pairs'][0]['advice']}: {told['pairs'][0]['why']}." in words


def test_overlap_without_a_relevant_record_says_so(run, small):
    """Every judgment is 0."""
    (small / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq0\td1\t0\nq1\td2\t0")
    ran = run("eval", "overlap", small)
    assert (ran.code, ran.out.strip()) == (0, "No question has a relevant record."), ran.err


def test_overlap_of_one_source_is_refused(run, small):
    ran = run("eval", "overlap", small, "--embedder", "none", "--json")
    assert ran.code == 3
    assert "only keyword answered" in ran.error["message"]


@pytest.fixture
def few_settings(monkeypatch):
    """A grid that is tried quickly."""
    tried = [{**curve, "fetch_k": 100} for curve in tuning.curves(["blend", "rrf"], ks=[60], shares=[0.3, 0.5])]
    monkeypatch.setattr(tuning, "candidates", lambda: tried)
    monkeypatch.setattr(tuning, "refinements", lambda chosen: [{**chosen, "mmr": True}])


@pytest.mark.usefixtures("few_settings")
def test_tune_keeps_the_default_without_a_gain(run, home, small):
    ran = run("eval", "tune", small, "-o", "tuned.toml", "--json")
    assert ran.code == 0, ran.err
    told = ran.json
    assert told["keep_default"]
    assert told["verdict"].startswith("keep the default")
    assert sum(fold["questions"] for fold in told["folds"]) == 36
    assert sum(one["folds"] for one in told["stability"]) == 5
    assert told["gain"]["n"] == 36
    assert not (home / "tuned.toml").exists()


def test_tune_refuses_too_few_questions(run, home, small):
    ran = run("eval", "tune", write(home / "few", 20, 8), "-o", "tuned.toml")
    assert ran.code == 0, ran.err
    assert "keep the default: 8 questions are too few to tell (at least 30)" in ran.out
    assert not (home / "tuned.toml").exists()


@pytest.fixture
def mirrored(home, small):
    """A set that only keyword search can answer: rare words in the questions, common ones in the vectors."""
    draw = random.Random(5)
    folder = home / "rare"
    folder.mkdir()
    texts = {f"d{number}": f"{' '.join(draw.choices(WORDS, k=8))} rare{number}word" for number in range(80)}
    (folder / "corpus.jsonl").write_text("\n".join(json.dumps({"_id": k, "text": t}) for k, t in texts.items()))
    targets = [(f"q{number}", draw.randrange(80)) for number in range(40)]
    asked = {key: f"{' '.join(draw.choices(WORDS, k=6))} rare{place}word" for key, place in targets}
    (folder / "queries.jsonl").write_text("\n".join(json.dumps({"_id": k, "text": t}) for k, t in asked.items()))
    (folder / "qrels.tsv").write_text("\n".join(f"{key}\td{place}\t1" for key, place in targets))
    return folder


@pytest.mark.ci
@pytest.mark.usefixtures("few_settings")
def test_tune_writes_valid_settings(run, home, mirrored, monkeypatch):
    """A gain on held-out questions is written with its evidence, and not over an existing file."""
    monkeypatch.setenv("RECOLLECT_SEARCH_VECTOR_WEIGHT", "9")
    ran = run("eval", "tune", mirrored, "-o", "tuned.toml", "--json")
    assert ran.code == 0, ran.err
    told = ran.json
    assert not told["keep_default"], told["verdict"]
    assert told["written"] == "tuned.toml"
    text = (home / "tuned.toml").read_text()
    assert told["data"]["fingerprint"] in text
    assert "40 questions" in text
    assert f"p = {told['p']:.4f}" in text
    monkeypatch.delenv("RECOLLECT_SEARCH_VECTOR_WEIGHT")
    search = config.load(config=home / "tuned.toml").settings.search
    assert all(getattr(search, name) == value for name, value in told["settings"].items())
    shown = run("eval", "tune", mirrored, "--config", "tuned.toml")
    assert "keep the default" in shown.out, "what was chosen is the default now"
    again = run("eval", "tune", mirrored, "-o", "tuned.toml", "--json")
    assert again.code == 2
    assert "tuned.toml exists already" in again.error["message"]


def test_study_of_the_users_store_reads_files(run, home, small):
    """Questions about one's own notes, judged by file names."""
    notes = home / "notes"
    notes.mkdir()
    for word in WORDS:
        (notes / f"{word}.md").write_text(f"# {word}\n\nEverything about the {word} is here.\n")
    assert run("index", notes).code == 0
    (home / "queries.tsv").write_text("\n".join(f"q{word}\tabout the {word}" for word in WORDS))
    (home / "own.tsv").write_text("\n".join(f"q{word}\tnotes/{word}.md\t1" for word in WORDS))
    where = ("--queries", home / "queries.tsv", "--qrels", home / "own.tsv")
    swept = run("eval", "sweep", *where, "--fetch-k", "10", "--fusion", "rrf", "--k", "60", "--json")
    assert swept.code == 0, swept.err
    assert swept.json["rows"][0]["mean"] > 0.5
    found = run("eval", "overlap", *where, "--json")
    assert found.code == 0, found.err
    assert found.json["pairs"][0]["recall_a"] > 0.9


def test_a_study_needs_questions(run, small):
    assert run("eval", "sweep", "--json").code == 2
    assert run("eval", "tune", small, "--qrels", "x", "--queries", "y", "--json").code == 2
    assert run("eval", "overlap", "nowhere", "--json").code == 2


def test_set_biased_to_words_is_reported(run, tmp_path):
    """Questions made of their answers' words must not decide between keyword and vector search."""
    from recollect.evaluation.sets import bias

    assert bias(tmp_path) == ""
    for made, words in (
        ({"leakage": [{"kind": "all", "leaking": 0.9}]}, "90 % of these questions"),
        ({"leakage": [{"kind": "all", "leaking": 0.2}]}, ""),
        ({"leakage": [{"kind": "all", "leaking": 0.2}], "masked": True}, "favours vector search"),
        ([], ""),
    ):
        (tmp_path / "manifest.json").write_text(json.dumps(made), encoding="utf-8")
        assert words in bias(tmp_path)
        assert bool(words) == bool(bias(tmp_path))


@pytest.fixture
def long_files(home, run, monkeypatch):
    """A store of files of many chunks each, and 40 questions whose judgments name the files."""
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "hashing:64")
    draw = random.Random(5)
    folder, judged = home / "notes", home / "judged"
    folder.mkdir()
    judged.mkdir()
    queries, qrels = [], ["query-id\tcorpus-id\tscore"]
    for number in range(20):
        topic = draw.sample(WORDS, 4)
        parts = (f"## Part {place}\n\n{' '.join([*topic, f'{number}-{place}'] * 40)}\n" for place in range(12))
        (folder / f"note{number}.md").write_text("\n".join(parts))
        for place in range(2):
            queries.append(json.dumps({"_id": f"q{number}-{place}", "text": " ".join(draw.sample(topic, 2))}))
            qrels.append(f"q{number}-{place}\tnote{number}.md\t1")
    (judged / "queries.jsonl").write_text("\n".join(queries))
    (judged / "qrels.tsv").write_text("\n".join(qrels))
    assert run("index", folder).code == 0
    return judged


@pytest.mark.usefixtures("few_settings")
def test_run_sweep_and_tune_agree_on_one_configuration(run, long_files):
    """The default on the same questions, also where ten chunks are fewer than ten files."""
    measured = run("eval", "run", long_files, "-m", "nDCG@10", "--json").json["systems"]["default"]["measures"]
    tuned = run("eval", "tune", long_files, "--json").json["default"]
    search = config.SearchOptions()
    flags = ("--fetch-k", search.fetch_k, "--fusion", search.fusion)
    swept = run("eval", "sweep", long_files, *flags, "--json").json["rows"][0]
    assert measured["nDCG@10"] == tuned
    assert [tuned[name] for name in ("mean", "low", "high")] == [swept[name] for name in ("mean", "low", "high")]
    assert 0 < tuned["mean"] < 1
