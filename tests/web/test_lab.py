"""Evaluation over HTTP: the output of the commands, limited to the caller's scope; and reports with their plots."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import httpx2
import pytest
from support.timing import within

from recollect import Memory
from recollect.config import Settings

from .conftest import Home, Server, homes, refused

WORDS = [
    "night", "train", "water", "garden", "piano", "budget", "harbour", "winter", "letter", "window", "bread", "stone",
    "river", "market", "lamp", "ladder", "copper", "violin", "meadow", "ticket",
]  # fmt: skip
DOCUMENTS, QUESTIONS = 60, 8
SOUND = {"text": "night", "relevant": ["d1"]}
SYSTEMS = ["keyword", "vector", "rrf", "weighted", "default"]


@dataclass
class Lab:
    """A server with a folder for reports, its callers, and questions to the records that all may see."""

    home: Home
    server: Server
    owner: httpx2.Client
    ada: httpx2.Client
    reader: httpx2.Client
    questions: list[dict[str, Any]]

    @property
    def folder(self) -> Path:
        return self.home.folder / "reports"

    def more(self, count: int) -> list[dict[str, Any]]:
        """As many questions, each a little different."""
        several = itertools.islice(itertools.cycle(self.questions), count)
        return [{**one, "text": f"{one['text']} {number}"} for number, one in enumerate(several)]

    def write_set(self, name: str) -> Path:
        """The same questions as the folder that `recollect eval` reads."""
        folder = self.home.folder / name
        folder.mkdir()
        rows = [json.dumps({"_id": one["text"], "text": one["text"]}) for one in self.questions]
        (folder / "queries.jsonl").write_text("\n".join(rows))
        graded = [(one["text"], one["relevant"]) for one in self.questions]
        lines = [f"{text}\t{key}\t{grade}" for text, grades in graded for key, grade in grades.items()]
        (folder / "qrels.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]))
        return folder

    def printed(self, study: str, folder: Path, *words: str) -> dict[str, Any]:
        """What the command prints."""
        store = ("--store", self.home.store, "--embedder", "hashing:64")
        ran = self.home.run("eval", study, folder, *words, *store, "--json")
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)


def fill(store: Path) -> list[dict[str, Any]]:
    """Records for all, one of Ada's and one of Bob's; gives back judged questions, some with two grades."""
    draw = random.Random(5)
    texts = {f"d{number}": " ".join([*draw.sample(WORDS, 6), str(number)]) for number in range(DOCUMENTS)}
    with Memory.open(store, embedder="hashing:64", settings=Settings()) as memory:
        memory.add_many([{"id": key, "text": text} for key, text in texts.items()])
        memory.add("night train of Ada", id="adas", user="ada")
        memory.add("night train of Bob", id="bobs", user="bob")
    picked = draw.sample(sorted(texts), 2 * QUESTIONS)
    pairs = zip(picked[:QUESTIONS], picked[QUESTIONS:], strict=True)
    return [
        {"text": " ".join(draw.sample(texts[best].split()[:6], 3)), "relevant": {best: 2, other: place % 2}}
        for place, (best, other) in enumerate(pairs)
    ]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    for home in homes(tmp_path_factory.mktemp("lab")):
        questions = fill(home.store)
        tokens = [home.token("owner", "--owner"), home.token("ada", "--user", "ada")]
        tokens.append(home.token("reader", "--owner", "--read-only"))
        server = home.serve("--lab", home.folder / "reports")
        yield Lab(home, server, *map(server.client, tokens), questions)


def study(client, name, questions, **more):
    return client.post(f"/v1/eval/{name}", json={"questions": questions, **more})


def report_of(answer):
    assert answer.status_code == 200, answer.text
    return answer.json()


# -- studies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words", "more"),
    [
        ("run", ("--compare", ",".join(SYSTEMS), "-m", "nDCG@10", "-m", "P@1"),
         {"compare": SYSTEMS, "measures": ["nDCG@10", "P@1"]}),
        ("run", (), {}),
        ("overlap", (), {}),
        ("sweep", ("--measure", "RR@10"), {"measures": ["RR@10"]}),
    ],
)  # fmt: skip
def test_study_equals_the_output_of_the_command(lab, name, words, more, request):
    """Number by number for the same questions; only the run time and the name of the set differ."""
    answered = report_of(study(lab.owner, name, lab.questions, **more))
    printed = lab.printed(name, lab.write_set(request.node.callspec.id), *words)
    for told in (answered, printed):
        told.pop("at", None)
        told["data"].pop("name")
        for row in (*told["data"]["corpora"], *told.get("pairs", ())):
            row.pop("name", None)
            row.pop("set", None)
    assert answered == printed


def test_listed_ids_are_equally_relevant(lab):
    """A list of ids equals grade 1 for each."""
    listed = [{"text": one["text"], "relevant": sorted(one["relevant"])} for one in lab.questions]
    graded = [{**one, "relevant": dict.fromkeys(one["relevant"], 1)} for one in listed]
    first, second = (report_of(study(lab.owner, "run", some)) for some in (listed, graded))
    assert first["data"] == second["data"]
    assert first["systems"] == second["systems"]


def test_question_is_identified_by_its_text(lab):
    """Reports name questions by their text; a repeated text is two questions."""
    text, found = lab.questions[0]["text"], lab.questions[0]["relevant"]
    twice = [{"text": text, "relevant": found}, {"text": f" {text}\n", "relevant": found}]
    (system,) = report_of(study(lab.owner, "run", [*twice, {"text": "x" * 5000, "relevant": found}]))[
        "systems"
    ].values()
    first, second, long = system["per_query"]["nDCG@10"]
    assert [first, second] == [text, f"{text} (2)"]
    assert len(long) == 100


def test_a_hundred_questions_take_seconds(lab):
    """With every system."""
    many = [
        {"text": f"{one['text']} {number}", "relevant": one["relevant"]}
        for number in range(13)
        for one in lab.questions
    ]
    start = time.monotonic()
    assert report_of(study(lab.owner, "run", many[:100], compare=SYSTEMS))["data"]["questions"] == 100
    assert within(time.monotonic() - start, 30)


def test_server_searches_after_a_study(lab):
    """A study does not close what it borrows from the server."""
    report_of(study(lab.owner, "overlap", lab.questions))
    assert lab.owner.post("/v1/search", json={"query": "night train"}).json()["results"]


# -- scoped callers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["run", "overlap", "sweep"])
def test_scoped_caller_studies_only_its_visible_records(lab, name):
    """Its own and global records; another scope's is unknown, by id and by path."""
    asked = [{"text": "night train of Ada", "relevant": ["adas"]}]
    told = report_of(study(lab.ada, name, asked))
    assert "bobs" not in json.dumps(told)
    foreign = refused(study(lab.ada, name, [{"text": "night train", "relevant": ["bobs"]}]), 400, "usage")
    absent = refused(study(lab.ada, name, [{"text": "night train", "relevant": ["none"]}]), 400, "usage")
    assert foreign["message"].replace("bobs", "none") == absent["message"]


def test_scoped_study_counts_only_visible_records(lab):
    """Counts and changes of other scopes are not in the report."""
    theirs = report_of(study(lab.ada, "run", [{"text": "night train of Ada", "relevant": ["adas"]}]))
    assert theirs["data"]["documents"] == DOCUMENTS + 1
    assert theirs["data"]["corpora"][0]["fingerprint"] == ""
    assert theirs["systems"]["default"]["measures"]["RR@10"]["mean"] == 1.0
    owners = report_of(study(lab.owner, "run", [{"text": "night train of Ada", "relevant": ["adas"]}]))
    assert owners["data"]["documents"] == DOCUMENTS + 2


def test_only_the_owner_has_reports(lab):
    """A scoped caller cannot list, read or store reports; a read-only one cannot store them."""
    refused(lab.ada.get("/v1/eval/reports"), 403, "forbidden")
    refused(lab.ada.get("/v1/eval/reports/any"), 403, "forbidden")
    refused(study(lab.ada, "run", lab.questions, save="mine"), 403, "forbidden")
    refused(study(lab.reader, "run", lab.questions, save="mine"), 403, "forbidden")
    refused(study(lab.server.client(), "run", lab.questions), 401, "unauthorized")
    assert lab.reader.get("/v1/eval/reports").status_code == 200
    assert not (lab.folder / "mine.json").exists()


def test_only_the_owner_sends_questions_to_a_language_model(home):
    """A study of many questions would be expensive."""
    fill(home.store)
    (home.folder / "recollect").mkdir()
    (home.folder / "recollect" / "config.toml").write_text("[search]\nhyde = true\n")
    api = home.serve("--no-token", "--user", "ada").client()
    assert "language model" in refused(study(api, "run", [SOUND]), 403, "forbidden")["message"]


# -- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"questions": []},
        {"questions": [SOUND] * 501},
        {"questions": [{"text": "", "relevant": ["d1"]}]},
        {"questions": [{"text": "night"}]},
        {"questions": [{"text": "night", "relevant": []}]},
        {"questions": [{"text": "night", "relevant": {}}]},
        {"questions": [{"text": "night", "relevant": {"d1": -1}}]},
        {"questions": [{"text": "night", "relevant": {"d1": 10**30}}]},
        {"questions": [{"text": "night", "relevant": {"d1": 0.5}}]},
        {"questions": [{"text": "night", "relevant": {"": 1}}]},
        {"questions": [{"text": "night", "relevant": [""]}]},
        {"questions": [{"text": "night", "relevant": "d1"}]},
        {"questions": [{"text": "night", "relevant": [f"d{number}" for number in range(101)]}]},
        {"questions": [{"text": "n" * 10_001, "relevant": ["d1"]}]},
        {"questions": [{"text": "\ud800", "relevant": ["d1"]}]},
        {"questions": [{"text": "night", "relevant": ["\ud800"]}]},
        {"questions": [{**SOUND, "any_scope": True}]},
        {"questions": [SOUND], "scope": {"user": "bob"}},
        {"questions": [SOUND], "compare": ["none"]},
        {"questions": [SOUND], "compare": []},
        {"questions": [SOUND], "measures": []},
        {"questions": [SOUND], "measures": ["__import__('os')"]},
        {"questions": [SOUND], "measures": ["nDCG@10"] * 11},
        {"questions": [SOUND], "save": ""},
    ],
)
def test_invalid_study_is_refused(lab, body):
    """Before any search."""
    refused(lab.owner.post("/v1/eval/run", content=json.dumps(body), headers=JSON), 422, "invalid")


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"questions": [SOUND, {"text": " \n", "relevant": ["d1"]}]}, "question 2 has no text"),
        ({"questions": [{"text": "night", "relevant": ["d1", "a/../b", "\x00", "~x", "ключ"]}]}, "and 1 more"),
        ({"questions": [{"text": "night", "relevant": ["no such"]}]}, "there is no record 'no such'"),
        ({"questions": [SOUND], "measures": ["Fun@10"]}, "'Fun@10' is not a measure"),
        ({"questions": [SOUND], "measures": ["R"]}, "needs a cutoff"),
        ({"questions": [SOUND], "measures": ["nDCG(rel=2)@10"]}, "no parameter"),
        ({"questions": [SOUND], "measures": ["nDCG@99999"]}, "between 1 and"),
    ],
)
def test_impossible_study_is_explained(lab, body, said):
    """In the same words as the command."""
    assert said in refused(lab.owner.post("/v1/eval/run", json=body), 400, "usage")["message"]


def test_only_zero_grades_count_as_nothing_found(lab):
    """A score of 0, not an error."""
    told = report_of(study(lab.owner, "run", [{"text": "night", "relevant": {"d1": 0}}]))
    assert told["systems"]["default"]["measures"]["nDCG@10"]["mean"] == 0.0
    report_of(study(lab.owner, "sweep", [{"text": "night", "relevant": {"d1": 0}}]))
    (pair,) = report_of(study(lab.owner, "overlap", [{"text": "night", "relevant": {"d1": 0}}]))["pairs"]
    assert pair["relevant"] == 0


@pytest.mark.ci
def test_second_study_is_refused_while_one_runs(lab):
    """Searches are still answered."""
    many = [
        {"text": f"{one['text']} {number}", "relevant": one["relevant"]} for number in range(8) for one in lab.questions
    ]
    first = []

    def begin():
        while not first or first[-1].status_code == 409:
            first.append(study(lab.owner, "sweep", many))

    thread = threading.Thread(target=begin)
    thread.start()
    while thread.is_alive() and (second := study(lab.reader, "overlap", lab.questions[:1])).status_code != 409:
        time.sleep(0.02)
    assert lab.reader.post("/v1/search", json={"query": "night train"}).status_code == 200
    assert thread.is_alive(), "the search was answered meanwhile"
    assert "a study is under way" in refused(second, 409, "busy")["message"]
    thread.join()
    report_of(first[-1])
    report_of(study(lab.reader, "overlap", lab.questions[:1]))


def test_overlap_without_a_second_source_is_an_error(home):
    """It is a configuration error, not a failure; nor can vector search be measured."""
    with Memory.open(home.store, embedder="none", settings=Settings()) as memory:
        memory.add("night train", id="d1")
    api = home.serve("--embedder", "none").client()
    assert "two sources" in refused(study(api, "overlap", [SOUND]), 400, "usage")["message"]
    assert "embedder" in refused(study(api, "run", [SOUND], compare=["vector"]), 400, "usage")["message"]
    report_of(study(api, "sweep", [SOUND]))
    report_of(study(api, "run", [SOUND], save="kept beside the data"))
    (kept,) = api.get("/v1/eval/reports").json()["reports"]
    assert kept["name"] == kept["data"] == "kept beside the data"
    assert (home.folder / "recollect" / "lab" / "kept beside the data.json").is_file()


# -- reports ------------------------------------------------------------------------------------------------


@pytest.mark.ci
def test_stored_report_is_listed_and_drawn(lab):
    """Each study can be stored; its SVG plots have unique ids, with text and tables beside them."""
    made = {"run": {"compare": SYSTEMS}, "sweep": {}, "overlap": {}}
    for name, more in made.items():
        told = report_of(study(lab.owner, name, lab.questions, save=f"Küche 1.{name}", **more))
        assert json.loads((lab.folder / f"Küche 1.{name}.json").read_bytes()) == told
    listed = {one["name"]: one for one in lab.reader.get("/v1/eval/reports").json()["reports"]}
    for name in made:
        kept = listed[f"Küche 1.{name}"]
        assert kept["kind"] == name
        assert kept["data"] == f"Küche 1.{name}"
        assert kept["at"].endswith("+00:00")
        drawn = report_of(lab.owner.get(f"/v1/eval/reports/Küche 1.{name}"))
        assert drawn["name"] == f"Küche 1.{name}"
        check_sections(drawn["sections"])
    assert not [path for path in lab.folder.iterdir() if path.suffix != ".json"]


def check_sections(sections):
    assert sections
    ids = []
    for one in sections:
        assert all(one[part] for part in ("title", "lead", "shows", "source"))
        root = ET.fromstring(one["svg"])
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        ids += [element.get("id") for element in root.iter() if element.get("id")]
        for table in one["tables"]:
            assert all(len(row) == len(table["head"]) for row in table["rows"])
            assert set(table["words"]) <= set(range(len(table["head"])))
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    "name",
    [
        "../out", "a/b", "a\\b", ".hidden", "CON", "nul.txt", "a\x00b", "trailing.", "trailing ", " x", "a:b", "x" * 81,
        "\u202ex", "语" * 80,
    ],
)  # fmt: skip
def test_report_names_are_safe_file_names(lab, name):
    """No folder, no device name, no hidden or reversed name."""
    before = sorted(lab.home.folder.rglob("*.json"))
    answer = study(lab.owner, "run", lab.questions[:1], save=name)
    assert "cannot be the name" in refused(answer, 400, "usage")["message"]
    assert sorted(lab.home.folder.rglob("*.json")) == before


def test_reports_are_not_overwritten(lab):
    """Later studies are compared with earlier ones."""
    report_of(study(lab.owner, "run", lab.questions[:1], save="once"))
    kept = (lab.folder / "once.json").read_bytes()
    assert "already" in refused(study(lab.owner, "run", lab.questions, save="once"), 400, "usage")["message"]
    assert (lab.folder / "once.json").read_bytes() == kept


def test_only_valid_reports_in_the_folder_are_listed(lab):
    """Damaged, foreign and hidden files and links to other folders are skipped."""
    lab.folder.mkdir(exist_ok=True)
    outside = lab.home.folder / "outside.json"
    outside.write_text(json.dumps({"systems": {}, "data": {"name": "outside"}}))
    (lab.folder / "link.json").symlink_to(outside)
    (lab.folder / "gone.json").symlink_to(lab.home.folder / "nothing.json")
    (lab.folder / "round.json").symlink_to(lab.folder / "round.json")
    (lab.folder / "damaged.json").write_text('{"systems": ')
    (lab.folder / "foreign.json").write_text('["no report"]')
    (lab.folder / "deep.json").write_text("[" * 100_000)
    (lab.folder / "latin.json").write_bytes(b'{"systems": "\xff"}')
    (lab.folder / ".hidden.json").write_text(outside.read_text())
    (lab.folder / "folder.json").mkdir()
    os.mkfifo(lab.folder / "pipe.json")
    (lab.folder / os.fsdecode(b"\xff.json")).write_text(outside.read_text())
    odd = {"systems": {}, "data": {"name": "\ud800\u202e" + "n" * 500}}
    (lab.folder / "odd.json").write_text(json.dumps(odd))
    try:
        listed = {one["name"]: one for one in lab.owner.get("/v1/eval/reports").json()["reports"]}
        names = {"link", "gone", "round", "damaged", "foreign", "deep", "latin", ".hidden", "folder", "pipe"}
        assert not names & set(listed)
        assert len(listed["odd"]["data"]) <= 44
        for name in (*names, "..", "%2e%2e%2foutside", "..%2Foutside", "outside", "x" * 900):
            refused(lab.owner.get(f"/v1/eval/reports/{name}"), 404, "not_found")
        message = refused(lab.owner.get("/v1/eval/reports/odd"), 400, "usage")["message"]
        assert "nothing that can be drawn" in message
    finally:
        (lab.folder / "pipe.json").unlink()


def test_changed_report_is_drawn_again(lab):
    """A cached plot is used only while the file is the same."""
    told = report_of(study(lab.owner, "overlap", lab.questions, save="changing"))
    first = lab.owner.get("/v1/eval/reports/changing").json()
    assert lab.owner.get("/v1/eval/reports/changing").json() == first
    told["pairs"][0]["a"] = "renamed"
    (lab.folder / "changing.json").write_text(json.dumps(told))
    assert "renamed" in lab.owner.get("/v1/eval/reports/changing").json()["sections"][0]["lead"]


def test_plots_drawn_at_once_are_complete(lab):
    """Plots of different reports that are drawn at the same time do not mix."""
    names = [f"at once {number}" for number in range(3)]
    for number, name in enumerate(names):
        report_of(study(lab.owner, "overlap", lab.questions[number:], save=name))
    drawn: dict[str, Any] = {}
    threads = [
        threading.Thread(
            target=lambda name=name: drawn.update({name: lab.owner.get(f"/v1/eval/reports/{name}").json()})
        )
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in names:
        check_sections(drawn[name]["sections"])
        assert drawn[name]["sections"][0]["source"].startswith(name)


def test_report_without_matplotlib_has_text_and_tables():
    """The plots are empty, and each section names the extra to install."""
    code = """
import sys, pathlib, tempfile
sys.modules["matplotlib"] = None
from recollect.evaluation.studies import ReportLibrary
library = ReportLibrary(pathlib.Path(tempfile.mkdtemp()))
pairs = [{"a": "keyword", "b": "vector", "both": 1, "only_a": 1, "only_b": 1, "neither": 1}]
library.put("one", {"pairs": pairs, "data": {"name": "set"}})
assert [stored.kind for stored in library.all()] == ["overlap"]
(section,) = library.sections("one")
assert section.svg == ""
assert "recollect-search[eval]" in section.more[-1], section.more
assert section.tables[0].rows
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
