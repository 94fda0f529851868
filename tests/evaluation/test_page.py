"""The report page: made of any part of the studies, safe with any data, deterministic; and its command."""

import contextlib
import copy
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support import DOCS, samples

from recollect.cli import main
from recollect.errors import UsageError
from recollect.evaluation import results
from recollect.evaluation.report import compose, render, write_pngs

OURS = {
    "html", "head", "meta", "link", "title", "style", "body", "header", "fieldset", "legend", "label",
    "input", "span", "main", "div", "h1", "p", "section", "h2", "ul", "li", "a", "figure", "figcaption",
    "table", "caption", "thead", "tbody", "tr", "th", "td", "dl", "dt", "dd", "svg", "desc", "defs", "g",
    "path", "use", "text", "rect", "clippath",
}  # fmt: skip


class Reader(HTMLParser):
    """Collects the elements, their attributes, and the text."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.attributes, self.text = [], [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def page():
    return render([samples.run(), samples.sweep(), samples.overlap()])


def leads(*reports):
    return {key: section.lead for key, section in compose(reports).items()}


def test_page_sends_no_request(page):
    """No address but XML namespaces, no script, and a policy that would refuse both."""
    read = Reader(page)
    assert set(read.elements) <= OURS
    assert set(re.findall(r"\w+://[^\s\"'<)]+", page)) == {"http://www.w3.org/2000/svg"}
    links = [value for name, value in read.attributes if name in ("href", "src", "srcset", "action", "xlink:href")]
    assert all(link.startswith("#") or link == "data:," for link in links)
    assert re.findall(r"url\((?!#)|@import", page) == []
    assert "default-src 'none'" in dict(read.attributes)["content"] or "default-src 'none'" in page
    assert not [name for name, _ in read.attributes if name.startswith("on")]


def test_ids_are_unique_and_links_resolve(page):
    """Also with two reports of a kind on one page."""
    for one in (page, render([samples.sweep(), samples.sweep(), samples.overlap(), samples.overlap()])):
        read = Reader(one)
        ids = [value for name, value in read.attributes if name == "id"]
        assert len(ids) == len(set(ids))
        assert {value[1:] for name, value in read.attributes if name == "href" and value.startswith("#")} <= set(ids)


def test_every_plot_has_its_numbers_and_its_origin(page):
    """Below it the set, its size and fingerprint; beside it a table; in it a title and a description."""
    read = Reader(page)
    plots = read.elements.count("figure")
    assert plots == 6
    assert page.count("harbour notes: 60 questions, 5,183 documents, fingerprint 3fa8c1d2e4b59607</figcaption>") == 4
    assert read.elements.count("table") >= plots
    assert read.elements.count("desc") == plots
    for row in samples.sweep()["rows"]:
        assert f"{row['mean']:.3f}" in read.text
        assert f"[{row['low']:.3f}, {row['high']:.3f}]" in read.text


@pytest.mark.ci
def test_names_in_the_data_stay_text():
    """Markup, mathematics, control characters and lone surrogates are shown, never interpreted."""
    page = render(samples.hostile())
    page.encode("utf-8")
    read = Reader(page)
    assert set(read.elements) <= OURS
    assert samples.HOSTILE in read.text
    assert "${body}" in read.text
    assert not re.search(r"[\x00\x1b]", page)
    assert samples.LONG not in page


def test_page_is_deterministic():
    """The same reports give the same page."""
    reports = [samples.sweep(), samples.overlap()]
    assert render(reports) == render(copy.deepcopy(reports))


@pytest.mark.ci
def test_large_set_makes_a_page_of_reasonable_size():
    """Twelve hundred questions and four systems are far below two megabytes."""
    page = render(
        [samples.run(1200, ("a", "b", "c", "d", "e")), samples.sweep(ks=tuple(range(1, 20))), samples.overlap()]
    )
    assert len(page.encode()) < 700_000


@pytest.mark.parametrize(
    ("report", "found"),
    [
        (samples.run, ["systems", "wins-1", "wins-2", "latency"]),
        (samples.sweep, ["sweep"]),
        (samples.overlap, ["overlap"]),
    ],
)
def test_single_report_is_enough(report, found):
    """Whatever there is is shown."""
    assert list(compose([report()])) == found


def test_missing_parts_are_left_out():
    """Times, comparisons and values are optional."""
    told = samples.run()
    for system in told["systems"].values():
        del system["latency_ms"]
    assert "latency" not in compose([told])
    del told["comparisons"]
    assert [key for key in compose([told]) if key.startswith("wins")] == ["wins-1", "wins-2"]
    for system in told["systems"].values():
        del system["per_query"]
    assert list(compose([told])) == ["systems"]
    del told["data"]
    assert "data without a name" in render([told])


def test_times_with_only_quantiles_are_shown():
    """A line from the median to the 95 %, and the grade in the table."""
    told = samples.run()
    told["systems"] = {"fused": {"latency_ms": {"p50": 12.0, "p95": 640.0, "n": 100}}}
    assert leads(told) == {"latency": "The slowest, fused, answers 95 of 100 questions within 640\u00a0ms (slow)."}
    assert "12\u00a0ms" in render([told])


def test_measures_are_computed_from_values_without_a_mean():
    """The values of the questions are enough."""
    told = samples.run()
    known = results.systems(told)
    for system in told["systems"].values():
        del system["measures"]
    assert [one.measures["nDCG@10"] for one in results.systems(told)] == [one.measures["nDCG@10"] for one in known]


def test_claims_follow_the_numbers():
    """A difference is claimed only if the test found one, and in its direction."""
    told = samples.run()
    told["comparisons"] = [
        {
            "a": a,
            "b": b,
            "measure": "nDCG@10",
            "difference": {"mean": mean, "low": mean - 0.01, "high": mean + 0.01},
            "p": p,
        }
        for a, b, mean, p in (
            ("fused", "keyword", 0.03, 0.001),
            ("keyword", "fused", -0.03, 0.00001),
            ("fused", "vector", 0.02, 0.3),
        )
    ]
    said = leads(told)
    assert said["wins-1"] == (
        "fused is significantly better than keyword (nDCG@10 +0.030 [+0.020, +0.040], p = 0.0010)."
    )
    assert said["wins-2"].startswith("keyword is significantly worse than fused (")
    assert said["wins-2"].endswith("p < 0.0001).")
    assert said["wins-3"].startswith("fused and vector: no significant difference")


def test_broken_prefix_is_reported():
    """The certificate's failure, and its success."""
    told = samples.sweep()
    assert "began the longer one in all 100 pairs" in render([told])
    told["prefix"]["held"] = False
    assert "did NOT begin the longer one in some of 100 pairs" in render([told])


def test_overlap_without_judgments_claims_no_ceiling():
    """`recollect overlap --json` has no relevant documents."""
    told = {"pairs": [{"a": "keyword", "b": "vector", "both": 2, "only_a": 0, "only_b": 18, "advice": ["they differ"]}]}
    assert leads(told) == {"overlap": "Of what either finds, keyword and vector both find 10 %."}
    page = render([told])
    assert "keyword and vector: they differ." in page
    assert "no fusion can find more" not in page


JUNK = st.sampled_from(
    [None, True, 0, -1, 1e308, 10**400, float("nan"), float("inf"), "", "<x>", [], {}, [1], {"mean": "x"}, [[]]]
)


def places(value, path=()):
    """Every place in a JSON value."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inside:
        yield from places(child, (*path, key))


def broken(draw, report):
    """The report with junk in a few places."""
    told = copy.deepcopy(report)
    for _ in range(draw(st.integers(1, 4))):
        *path, last = draw(st.sampled_from([place for place in places(told) if place]))
        parent = told
        for step in path:
            parent = parent[step]
        parent[last] = copy.deepcopy(draw(JUNK))
    return told


SMALL = [samples.run(4, ("a", "b")), samples.sweep(("rrf", "weighted"), (5, 50)), samples.overlap()]


QUICK = {"deadline": None, "phases": [Phase.generate], "suppress_health_check": list(HealthCheck)}


@settings(max_examples=150, **QUICK)
@given(st.data())
def test_invalid_values_are_left_out_or_refused(data):
    """If nothing is left, that is reported."""
    report = broken(data.draw, data.draw(st.sampled_from(SMALL)))
    try:
        assert compose([report])
    except UsageError as error:
        assert error.hint  # noqa: PT017


@settings(max_examples=8, **QUICK)
@given(st.data())
def test_any_remaining_data_can_be_drawn(data):
    """The page has only our elements."""
    report = broken(data.draw, data.draw(st.sampled_from(SMALL)))
    with contextlib.suppress(UsageError):
        assert set(Reader(render([report])).elements) <= OURS


def test_pngs_are_named_after_their_sections(tmp_path):
    """Each plot is a file, in a new folder."""
    named = compose([samples.sweep(), samples.overlap()])
    paths = write_pngs(named, tmp_path / "a" / "b")
    assert [path.name for path in paths] == ["sweep.png", "overlap.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The reports as files in the current folder."""
    monkeypatch.chdir(tmp_path)
    for name, told in (("run", samples.run()), ("sweep", samples.sweep()), ("overlap", samples.overlap())):
        (tmp_path / f"{name}.json").write_text(json.dumps(told))
    return tmp_path


def test_command_writes_the_page_and_the_plots(files, capsys):
    """The written files are printed, as text and as JSON."""
    assert main(["eval", "report", "sweep.json", "overlap.json", "-o", "out.html", "--png", "plots"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "out.html"
    assert {path.name for path in (files / "plots").iterdir()} == {"sweep.png", "overlap.png"}
    assert (files / "out.html").read_text(encoding="utf-8").count("<figure>") == 2
    assert main(["eval", "report", "overlap.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"written": ["report.html"]}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "there is nothing to report on"),
        (["none.json"], 2, "none.json does not exist"),
        (["broken.json"], 2, "broken.json is not JSON"),
        (["list.json"], 2, "list.json is no JSON object"),
        (["other.json"], 2, "other.json is no evaluation report"),
        (["empty.json"], 2, "nothing that can be drawn"),
        (["sweep.json", "-o", "no/such/page.html"], 3, "page.html cannot be written: No such file"),
    ],
)
def test_impossible_reports_are_refused(files, capsys, words, code, message):
    """With the file's name, and the right exit code."""
    (files / "broken.json").write_text('{"rows": [')
    (files / "list.json").write_text("[1, 2]")
    (files / "other.json").write_text('{"a": 1}')
    (files / "empty.json").write_text('{"rows": []}')
    assert main(["eval", "report", *words]) == code
    assert message in capsys.readouterr().err


@pytest.fixture
def dataset(tmp_path, monkeypatch):
    """A judged set of twelve documents in a folder, in an empty home."""
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)
    words = ["harbour", "tide", "winch", "anchor", "sail", "mast", "hull", "keel", "rope", "crane", "pilot", "buoy"]
    folder = tmp_path / "boats"
    folder.mkdir()
    corpus = [{"_id": f"d{at}", "title": "", "text": f"The {word} of boat {at}."} for at, word in enumerate(words)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in corpus))
    asked = [{"_id": f"q{at}", "text": f"where is the {word}?"} for at, word in enumerate(words[:8])]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    judged = "".join(f"q{at}\td{at}\t1\n" for at in range(8))
    (folder / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    return folder


@pytest.mark.ci
def test_set_runs_through_all_studies(dataset, capsys):
    """One command from the judged set to the page, with flags in any position."""
    assert main(["--embedder", "hashing:64", "eval", "report", "boats", "-o", "boats.html"]) == 0
    told = capsys.readouterr()
    assert told.out == "boats.html\n"
    assert [line for line in told.err.splitlines() if line.startswith("eval")] == [
        "eval run boats",
        "eval sweep boats",
        "eval overlap boats",
    ]
    page = (dataset.parent / "boats.html").read_text(encoding="utf-8")
    assert {"systems", "wins-1", "latency", "sweep", "overlap"} <= set(re.findall(r'<section id="([\w-]+)"', page))
    assert "boats: 8 questions, 12 documents, fingerprint" in page


@pytest.mark.ci
def test_set_without_an_embedder_is_measured_by_keyword(dataset, capsys):
    """What can be studied is."""
    assert main(["eval", "report", "boats", "--embedder", "none"]) == 0
    assert "keyword has nDCG@10" in (dataset.parent / "report.html").read_text(encoding="utf-8")


@pytest.mark.ci
def test_documented_commands_run(dataset):
    """docs/reports.md, block by block."""
    text = (DOCS / "reports.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```console\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    script = block.replace("$ ", "").replace("DATASET", "boats")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "RECOLLECT_EMBEDDER": "hashing:64"}
    ran = subprocess.run(["sh", "-ec", script], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[0] == "report.html"
    assert (dataset.parent / "plots" / "sweep.png").is_file()
