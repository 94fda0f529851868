from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest

from recollect.config import Settings
from recollect.errors import UsageError
from recollect.evaluation.datasets import Dataset, apart, read_judged
from recollect.evaluation.recording import open_corpus, place_of
from recollect.evaluation.runs import write_trec
from recollect.evaluation.scoring import calibration_error, estimate
from recollect.evaluation.trials import (
    SYSTEMS,
    Trial,
    TrialPlan,
    gate,
    make_report,
    named_systems,
    read_external,
    read_report,
    run_trials,
)
from recollect.options import LIKELY

HASHING = Settings(embedder="hashing:64")
TOPICS = ("tea", "coffee", "trains", "keys", "rust", "owls", "bread", "rivers")
CORPUS = tuple(
    {
        "_id": f"{topic}{number}",
        "title": topic.title(),
        "text": f"Note {number} on {topic} and what belongs to {topic}.",
    }
    for topic in TOPICS
    for number in range(3)
)


def make_set(name="notes", fingerprint="f00d", **fields):
    queries = {f"q{number}": f"what about {topic}?" for number, topic in enumerate(TOPICS)}
    qrels = {f"q{number}": {f"{topic}1": 2, f"{topic}2": 1} for number, topic in enumerate(TOPICS)}
    return Dataset(name, CORPUS, **{"queries": queries, "qrels": qrels, "fingerprint": fingerprint, **fields})


@pytest.fixture
def opened(tmp_path):
    """Opens corpora in the test's folder, with the hashing embedder."""
    return partial(open_corpus, settings=HASHING, folder=tmp_path / "cache")


def test_system_ranks_like_a_search_with_its_options(opened):
    """The replay equals `search`, for every named system."""
    dataset = make_set()
    trials, _ = run_trials(TrialPlan(SYSTEMS), [dataset], opened)
    with opened(dataset) as memory:
        for trial in trials:
            for key, text in dataset.queries.items():
                found = memory.search(text, limit=100, **SYSTEMS[trial.system]).results
                assert list(trial.run[key]) == [result.record.id for result in found], trial.system


def test_second_run_stores_and_embeds_nothing(opened, tmp_path):
    """The file is named after set and fingerprint."""
    moved = []

    def steps(label):
        return lambda done, total: moved.append((label, done, total))

    opened(make_set(), progress=steps).close()
    assert moved == [("storing notes", 24, 24), ("embedding notes", 0, 24), ("embedding notes", 24, 24)]
    opened(make_set(), progress=steps).close()
    assert len(moved) == 3
    assert [file.name for file in (tmp_path / "cache").glob("*.db")] == ["notes-f00d-hashing-64.db"]


def test_each_model_and_language_has_a_file():
    """Without a model and a language, the set alone names it."""
    dataset = make_set()
    names = [
        place_of(dataset, settings)
        for settings in (
            Settings(embedder="arctic-embed-s"), Settings(embedder="none"),
            Settings(embedder="none", language="english"), Settings(embedder="none", language="german"),
            Settings(), Settings(embedder="openai:a/b"),
        )
    ]  # fmt: skip
    assert names == [
        "notes-f00d-arctic-embed-s.db", "notes-f00d.db", "notes-f00d.db",
        *(f"notes-f00d-{end}.db" for end in ("german", "small-embedder", "openai-a-b")),
    ]  # fmt: skip


def test_corpora_are_averaged_over_their_questions(opened):
    """Eight and one questions: the mean is over nine, and repeated ids are distinguished."""
    small = make_set("small", "beef", queries={"q0": "what about tea?"}, qrels={"q0": {"owls0": 1}})
    plan = TrialPlan(measures=("RR@10",))
    trials, parts = run_trials(plan, apart([make_set(), small]), opened)
    values = trials[0].values["RR@10"]
    assert len(values) == 9
    assert {"notes/q0", "small/q0"} <= set(values)
    report = make_report("both", plan, HASHING, trials, parts)
    assert report["data"]["documents"] == 48
    assert [one["questions"] for one in report["data"]["corpora"]] == [8, 1]
    assert report["systems"]["default"]["measures"]["RR@10"]["mean"] == pytest.approx(sum(values.values()) / 9)


def test_report_has_everything_to_compare(opened, tmp_path):
    """n, fingerprint, settings, intervals and the randomisation test, as JSON that can be loaded."""
    plan = TrialPlan(named_systems("keyword, default"), ("nDCG@10", "R@5"), latency=3)
    trials, parts = run_trials(plan, [make_set(unjudged=2)], opened)
    report = make_report("notes", plan, HASHING, trials, parts, split="dev")
    assert list(report) == ["format", "version", "at", "data", "settings", "systems", "comparisons", "warnings"]
    assert report["data"]["left_out"] == {"unjudged": 2, "without_text": 0, "unknown_documents": 0}
    assert (report["data"]["questions"], report["data"]["split"]) == (8, "dev")
    assert report["settings"]["embedder"] == "hashing:64"
    assert report["settings"]["search"]["fetch_k"] == 100
    keyword = report["systems"]["keyword"]
    assert keyword["options"] == {"sources": ["keyword"]}
    expected = estimate(list(keyword["per_query"]["nDCG@10"].values()))
    assert keyword["measures"]["nDCG@10"] == {
        "mean": expected.mean, "low": expected.low, "high": expected.high, "n": 8,
    }  # fmt: skip
    assert keyword["latency_ms"]["n"] == 3
    assert 0 < keyword["latency_ms"]["p50"] <= keyword["latency_ms"]["p99"]
    assert [(one["a"], one["b"], one["measure"]) for one in report["comparisons"]] == [
        ("keyword", "default", "nDCG@10"), ("keyword", "default", "R@5"),
    ]  # fmt: skip
    assert {"difference", "p", "wins", "losses", "ties"} < set(report["comparisons"][0])
    assert report["warnings"] == ["2 questions without judgments are left out"]
    (tmp_path / "report.json").write_text(json.dumps(report, indent=1))
    assert read_report(tmp_path / "report.json") == json.loads(json.dumps(report))


def test_confidence_is_compared_with_the_judgments(opened):
    """The figures follow from the confidences that a search shows, and from the threshold of the settings."""
    dataset, plan = make_set(), TrialPlan(named_systems("keyword,default"), ("P@1",))
    trials, parts = run_trials(plan, [dataset], opened, external=[Trial("theirs", {"run": "x"}, {"q0": {"tea1": 1.0}})])
    reports = {}
    for least in (None, 0.6):
        settings = replace(HASHING, search=replace(HASHING.search, min_confidence=least))
        reports[least] = make_report("notes", plan, settings, trials, parts)["systems"]
        assert reports[least]["theirs"]["confidence"] == {}
    with opened(dataset) as memory:
        answers = {key: memory.search(text, confidence=True).results for key, text in dataset.queries.items()}
    results = [(one.confidence, one.record.id in dataset.qrels[key]) for key in answers for one in answers[key]]
    right = [one[0].confidence for key, one in answers.items() if one[0].record.id in dataset.qrels[key]]
    for least, systems in reports.items():
        threshold, best = least or LIKELY, [max(one.confidence for one in found) for found in answers.values()]
        assert systems["default"]["confidence"] == {
            "results": len(results),
            "calibration_error": pytest.approx(calibration_error(*zip(*results, strict=True))),
            "threshold": threshold,
            "right_first": len(right),
            "kept": pytest.approx(sum(one >= threshold for one in right) / len(right)),
            "unanswered": pytest.approx(sum(one < threshold for one in best) / len(best)),
        }
    assert reports[None]["keyword"]["confidence"] != reports[None]["default"]["confidence"]


def test_rival_equal_to_our_run_scores_the_same(opened):
    """What a rival leaves out counts as zero, and is reported."""
    plan = TrialPlan(measures=("nDCG@10", "RR@10", "AP"))
    trials, _ = run_trials(plan, [make_set()], opened)
    lines = "\n".join(write_trec({key: list(of.items()) for key, of in trials[0].run.items()}))
    cut = "\n".join(line for line in lines.split("\n") if not line.startswith("q3 "))
    runs = [read_external(name, name, data.encode(), ["q0"]) for name, data in (("all", lines), ("some", cut))]
    trials, parts = run_trials(plan, [make_set()], opened, external=runs)
    assert trials[1].values == trials[0].values
    assert trials[2].values["AP"] == {**trials[0].values["AP"], "q3": 0.0}
    report = make_report("notes", plan, HASHING, trials, parts)
    assert report["warnings"] == ["some has no results for 1 questions, which count as zero"]
    with pytest.raises(UsageError, match="answers none of the 1 judged questions"):
        read_external("x", "x.trec", lines.encode(), ["other"])


def test_self_retrieval_can_be_excluded(opened):
    """A document searched with its own text is dropped, and the following move up."""
    texts = {row["_id"]: row["text"] for row in CORPUS}
    dataset = make_set(queries={"tea0": texts["tea0"]}, qrels={"tea0": {"tea1": 1, "tea0": 1}})
    (plain,), _ = run_trials(TrialPlan(measures=("P@1",)), [dataset], opened)
    (without,), _ = run_trials(TrialPlan(measures=("P@1",), exclude_self=True), [dataset], opened)
    assert next(iter(plain.run["tea0"])) == "tea0"
    assert "tea0" not in without.run["tea0"]
    assert list(without.run["tea0"]) == [key for key in plain.run["tea0"] if key != "tea0"]


@pytest.fixture
def own(open_memory, tmp_path):
    """A store of indexed files and a fact, and questions to it."""
    notes = tmp_path / "notes"
    for name in ("tea", "coffee", "deep/rust"):
        file = notes / f"{name}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        topic = name.rpartition("/")[2]
        file.write_text(
            "".join(f"# {topic} part {n}\n\n{f'Words about {topic} number {n}. ' * 60}\n\n" for n in range(4))
        )
    with open_memory() as memory:
        memory.index(notes)
        fact = memory.add("The owl sleeps in the barn.")

    def judged(*grades):
        (tmp_path / "queries.jsonl").write_text(
            '{"_id": "q1", "text": "tea part 2"}\n{"_id": "q2", "text": "rust"}\n{"_id": "q3", "text": "owl barn"}\n'
        )
        (tmp_path / "qrels.tsv").write_text("".join("\t".join(grade) + "\n" for grade in grades))
        return read_judged(tmp_path / "queries.jsonl", tmp_path / "qrels.tsv")

    return judged, (lambda _: open_memory()), notes, fact.id


def test_judged_files_count_for_any_chunk(own):
    """Results are files, each once, however the judgments write the path."""
    judged, open_store, notes, fact = own
    dataset = judged(("q1", str(notes / "tea.md"), "1"), ("q2", "deep/rust.md", "1"), ("q3", fact, "1"))
    trials, (part,) = run_trials(TrialPlan(measures=("P@1", "R@5")), [dataset], open_store)
    assert trials[0].values == {name: {"q1": 1.0, "q2": 1.0, "q3": 1.0} for name in ("P@1", "R@5")}
    assert list(trials[0].run["q1"]).count(str(notes / "tea.md")) == 1
    assert set(trials[0].run["q1"]) <= {*(str(path) for path in notes.rglob("*.md")), fact}
    assert part.unknown == 0
    assert part.documents > 4


def test_judged_records_stay_records(own):
    """If judgments name ids only; missing ones are counted."""
    judged, open_store, _, fact = own
    trials, (part,) = run_trials(
        TrialPlan(measures=("P@1",)), [judged(("q3", fact, "1"), ("q3", "gone", "1"))], open_store
    )
    assert trials[0].values["P@1"] == {"q3": 1.0}
    assert part.unknown == 1
    with pytest.raises(UsageError, match="none of the 1 judged documents is in the store"):
        run_trials(TrialPlan(), [judged(("q3", "gone", "1"))], open_store)


def test_growing_store_can_be_compared(own, open_memory):
    """The fingerprint is of questions and judgments; that of the corpus changes."""
    judged, open_store, _, fact = own
    plan, dataset = TrialPlan(measures=("P@1",)), judged(("q3", fact, "1"))
    before = make_report("own", plan, HASHING, *run_trials(plan, [dataset], open_store))
    open_memory().add("Something new.")
    after = make_report("own", plan, HASHING, *run_trials(plan, [dataset], open_store))
    assert before["data"]["fingerprint"] == after["data"]["fingerprint"]
    assert before["data"]["corpora"] != after["data"]["corpora"]


def test_filters_and_sources_apply_to_every_system(own):
    """Filters inside the sources; settings with keyword only do not exclude `vector`."""
    judged, _, notes, fact = own
    dataset = judged(("q3", fact, "1"), ("q1", "tea.md", "1"))
    from recollect.config import SearchOptions
    from recollect.memory import Memory

    settings = Settings(embedder="hashing:64", search=SearchOptions(sources=("keyword",)))
    plan = TrialPlan(named_systems("vector,default"), ("P@1",), {"kind": "fact"})
    trials, _ = run_trials(plan, [dataset], lambda _: Memory.open(notes.parent / "memory.db", settings=settings))
    assert [set(trial.run["q3"]) for trial in trials] == [{fact}, {fact}]


def test_invalid_systems_are_refused(opened, tmp_path):
    """An unknown name, one without its embedder, a repeated name, none at all."""
    with pytest.raises(UsageError, match="no system 'bm25'"):
        named_systems("keyword,bm25")
    assert named_systems("none") == {}
    plain = partial(open_corpus, settings=Settings(embedder="none"), folder=tmp_path)
    with pytest.raises(UsageError, match="'vector' needs an embedder"):
        run_trials(TrialPlan(named_systems("vector")), [make_set()], plain)
    with pytest.raises(UsageError, match="nothing is measured"):
        run_trials(TrialPlan({}), [make_set()], opened)
    run = read_external("default", "default.trec", b"q0 Q0 tea1 1 1.0 x\n", ["q0"])
    with pytest.raises(UsageError, match="two systems are called 'default'"):
        run_trials(TrialPlan(), [make_set()], opened, external=[run])


def fake(values, fingerprint="f", **settings):
    return {
        "data": {"fingerprint": fingerprint},
        "settings": {"exclude_self": False, **settings},
        "systems": {"default": {"per_query": {"AP": {f"q{n}": value for n, value in enumerate(values)}}}},
    }


def test_gate_distinguishes_a_fall_from_noise():
    """Many questions falling together is a fall; as many up as down is noise."""
    before = [0.5] * 40
    (fall,) = gate(fake(before), fake([0.4] * 20 + [0.5] * 20))
    assert fall["fell"]
    assert fall["difference"]["mean"] == pytest.approx(-0.05)
    (noise,) = gate(fake(before), fake([0.3, 0.68] * 20))
    assert not noise["fell"]
    assert noise["difference"]["mean"] < 0
    assert noise["noticeable"] == pytest.approx(1.96 * 0.19 / 40**0.5, rel=0.1)
    assert abs(noise["difference"]["mean"]) < noise["noticeable"]
    assert not gate(fake(before), fake([0.9] * 40))[0]["fell"]
    assert gate(fake(before), fake(before))[0]["p"] == 1.0


def test_gate_reports_if_there_is_too_little_evidence():
    """With fewer than six changed questions no fall is significant."""
    (check,) = gate(fake([1.0] * 40), fake([0.0] * 5 + [1.0] * 35))
    assert not check["fell"]
    assert check["noticeable"] is None
    (check,) = gate(fake([1.0] * 40), fake([0.0] * 6 + [1.0] * 34))
    assert check["fell"]
    assert check["noticeable"] == pytest.approx(4 / 40)


def test_gate_refuses_incomparable_reports():
    """Other data, self-retrieval or questions, or nothing in common."""
    old = fake([0.5] * 9)
    for new, reason in (
        (fake([0.5] * 9, fingerprint="g"), "fingerprint was f and is g"),
        (fake([0.5] * 9, exclude_self=True), "exclude_self"),
        (fake([0.5] * 8), "other questions"),
        ({**old, "systems": {}}, "in common"),
    ):
        with pytest.raises(UsageError, match=reason):
            gate(old, new)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"systems": {}}',
        '{"format": 9, "systems": {}, "data": {"fingerprint": ""}}',
        '{"format": 1, "systems": {"a": {"per_query": {"AP": {"q": "x"}}}}, "data": {"fingerprint": ""}}',
    ],
)
def test_invalid_report_is_refused(text, tmp_path):
    """The file is named, and how to make a report."""
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(UsageError, match=r"r\.json is no") as caught:
        read_report(tmp_path / "r.json")
    assert "--save" in caught.value.hint
