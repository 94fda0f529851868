"""`recollect migrate`: the old model, language and chunks answer until the new ones are complete and not worse."""

import json

import pytest

from recollect.config import Settings, user_file
from recollect.ingest import documents
from recollect.memory import Memory
from recollect.memory.filling import exclusive
from recollect.memory.migration import unused
from recollect.sample import NOTES


@pytest.fixture(autouse=True)
def state(home, monkeypatch):
    """The lock and the report of a migration are in the test's own folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))


@pytest.fixture
def notes(run, home, monkeypatch):
    """The sample notes, with vectors of a hashing embedder of 256 dimensions that the settings name."""
    monkeypatch.delenv("RECOLLECT_EMBEDDER")
    user_file().parent.mkdir(parents=True, exist_ok=True)
    user_file().write_text('embedder = "hashing:256"\n')
    assert run("index", NOTES).code == 0


@pytest.fixture
def by_meaning(monkeypatch):
    """Searches use vectors only, so that a bad model shows at once."""
    monkeypatch.setenv("RECOLLECT_SEARCH_SOURCES", "vector")


def answering(run):
    return run("status", "--json").json["vectors"]["embedder"]


def vectors_that_do_not_answer(home):
    with Memory.open(home / "store.db", embedder="none", settings=Settings()) as memory:
        return {space.embedder: count for space, count in unused(memory).items()}


def test_worse_model_is_kept_out(run, notes, by_meaning, home):
    """The old model answers on, the figures and the ways to go on are shown, and the exit code is 1."""
    before = run("search", "how do I bleed the radiators?", "--json").json["results"]
    refused = run("migrate", "--embedder", "hashing:8", "--evaluate")
    assert refused.code == 1
    assert "not switched to hashing:8 from hashing:256" in refused.out
    assert "nDCG@10" in refused.out
    assert "recollect migrate --embedder hashing:8 --switch" in refused.err
    assert "recollect migrate --embedder hashing:8 --abandon" in refused.err
    assert answering(run) == "hashing:256"
    assert run("search", "how do I bleed the radiators?", "--json").json["results"] == before
    assert vectors_that_do_not_answer(home)["hashing:8"] > 0


@pytest.mark.ci
def test_worse_model_can_be_switched_to_all_the_same(run, notes, by_meaning):
    """Nothing is computed a second time, and the settings that name the old model are mentioned."""
    refused = run("migrate", "--embedder", "hashing:8", "--evaluate", "--json")
    (step,) = refused.json["steps"]
    assert (refused.code, step["switched"], step["evaluation"]["worse"]) == (1, False, True)
    assert step["computed"] > 0
    assert step["evaluation"]["measures"]["nDCG@10"]["difference"]["high"] < 0
    switched = run("migrate", "--embedder", "hashing:8", "--switch", "--json")
    (step,) = switched.json["steps"]
    assert (switched.code, step["switched"], step["computed"]) == (0, True, 0)
    assert 'set embedder = "hashing:8"' in switched.err
    assert answering(run) == "hashing:8"


def test_better_model_gets_in(run, notes, by_meaning, home):
    """It is switched to, and the vectors of the old one can be deleted then."""
    switched = run("migrate", "--embedder", "hashing:512", "--evaluate", "--json")
    (step,) = switched.json["steps"]
    assert (switched.code, step["switched"], step["evaluation"]["worse"]) == (0, True, False)
    assert step["evaluation"]["measures"]["nDCG@10"]["difference"]["mean"] > 0
    assert answering(run) == "hashing:512"
    assert set(vectors_that_do_not_answer(home)) == {"hashing:256"}
    assert run("migrate", "--abandon", "--json").json["deleted"][0]["embedder"] == "hashing:256"
    assert vectors_that_do_not_answer(home) == {}


@pytest.mark.ci
def test_abandoned_vectors_are_gone_and_computed_again_when_wanted(run, notes, by_meaning, home):
    """The old model answers as before, and a second attempt computes all of them."""
    first = run("migrate", "--embedder", "hashing:8", "--evaluate", "--json").json["steps"][0]["computed"]
    before = run("search", "how do I bleed the radiators?", "--json").json["results"]
    planned = run("migrate", "--embedder", "hashing:8", "--abandon", "--dry-run", "--json").json
    assert planned == {"deleted": [{"embedder": "hashing:8", "vectors": first}], "dry_run": True}
    assert vectors_that_do_not_answer(home) == {"hashing:8": first}
    assert run("migrate", "--embedder", "hashing:256", "--abandon", "--json").json["deleted"] == []
    assert run("migrate", "--embedder", "hashing:8", "--abandon").out == f"deleted: {first} vectors of hashing:8\n"
    assert vectors_that_do_not_answer(home) == {}
    assert run("search", "how do I bleed the radiators?", "--json").json["results"] == before
    assert run("migrate", "--embedder", "hashing:8", "--json").json["steps"][0]["computed"] == first
    assert answering(run) == "hashing:8"


@pytest.mark.ci
def test_given_set_is_used_and_a_wrong_one_is_refused(run, notes, home):
    """A set with a corpus of its own, or without questions, says nothing about the store: nothing is computed."""
    assert run("eval", "make-set", "-o", home / "set").code == 0
    with_corpus = home / "corpus"
    with_corpus.mkdir()
    (with_corpus / "corpus.jsonl").write_text('{"_id": "a", "text": "heron"}\n')
    for folder, problem in (
        (with_corpus, "corpus of its own"),
        (NOTES, "no queries.jsonl"),
        (home / "nowhere", "no folder"),
    ):
        refused = run("migrate", "--embedder", "hashing:512", "--evaluate", folder, "--json")
        assert (refused.code, refused.error["code"]) == (2, "usage")
        assert problem in refused.error["message"]
    assert vectors_that_do_not_answer(home) == {}
    (step,) = run("migrate", "--embedder", "hashing:512", "--evaluate", home / "set", "--json").json["steps"]
    questions = len((home / "set" / "queries.jsonl").read_text().splitlines())
    assert (step["evaluation"]["name"], step["evaluation"]["questions"]) == ("set", questions)


def test_too_few_questions_decide_nothing(run, home):
    """Nothing is computed or switched, unless --switch says so."""
    run("add", "The spare key is under the blue pot.", "--embedder", "hashing:64")
    for place in ([], ["--json"]):
        refused = run("migrate", "--embedder", "hashing:128", "--evaluate", *place)
        assert refused.code == 1
        assert "too few to tell" in refused.out
    assert refused.json["steps"][0]["computed"] == 0
    assert answering(run) == "hashing:64"
    assert run("migrate", "--embedder", "hashing:128", "--evaluate", "--switch").code == 0
    assert answering(run) == "hashing:128"


def test_without_flags_it_shows_what_could_be_moved(run, notes, home):
    """What the settings name and the store does not have; nothing changes until --evaluate or --switch."""
    assert run("migrate").out.startswith("nothing to migrate")
    user_file().write_text('embedder = "hashing:512"\nlanguage = "german"\n')
    shown = run("migrate", "--json").json
    assert [(step["kind"], step["old"], step["new"]) for step in shown["steps"]] == [
        ("embedder", "hashing:256", "hashing:512"),
        ("language", "english", "german"),
    ]
    assert shown["steps"][0]["command"] == "recollect migrate --embedder hashing:512 --evaluate"
    assert "compute the vectors of 34 of 34 records" in run("migrate", "--embedder", "hashing:512", "--dry-run").out
    assert (answering(run), vectors_that_do_not_answer(home)) == ("hashing:256", {})
    done = run("migrate", "--switch", "--json")
    assert [step["switched"] for step in done.json["steps"]] == [True, True]
    assert (answering(run), run("language").out) == ("hashing:512", "german\n")


def test_unknown_language_is_refused_before_anything_is_done(run, notes):
    """By name, and the store keeps its own."""
    refused = run("migrate", "--language", "klingon", "--evaluate", "--json")
    assert refused.error["code"] == "usage"
    assert "klingon" in refused.error["message"]
    assert run("language").out == "english\n"


def test_worse_language_is_kept_out(run, home, monkeypatch):
    """Plural questions of German notes are answered with German stems, and not with English ones."""
    monkeypatch.setenv("RECOLLECT_SEARCH_TYPOS", "false")  # by which a plural is found as a misspelled singular
    folder = home / "set"
    folder.mkdir()
    starts = ("Bind", "Leit", "Rein", "Klar", "Frei", "Wohn", "Ord", "Zeich", "Hoff", "Send")
    words = [f"{start}{end}" for start in starts for end in ("ung", "heit", "keit", "schaft")]
    records = [
        json.dumps({"id": f"n{number}", "text": f"Die {word} liegt am See"}) for number, word in enumerate(words)
    ]
    assert run("add", "-", stdin="\n".join(records)).code == 0
    run("language", "german")
    queries = [json.dumps({"_id": f"q{number}", "text": f"{word}en"}) for number, word in enumerate(words)]
    (folder / "queries.jsonl").write_text("\n".join(queries))
    (folder / "qrels.tsv").write_text("\n".join(f"q{number}\tn{number}\t1" for number in range(len(words))))
    refused = run("migrate", "--language", "english", "--evaluate", folder, "--json")
    (step,) = refused.json["steps"]
    assert (refused.code, step["switched"]) == (1, False)
    assert step["evaluation"]["measures"]["R@5"]["fell"]
    assert run("language").out == "german\n"


@pytest.fixture
def newer_rules(monkeypatch):
    """A later release, whose chunks are a third as long."""
    monkeypatch.setattr(documents, "RULES", documents.RULES + 1)
    monkeypatch.setattr(documents, "MAX_TOKENS", 130)
    monkeypatch.setattr(documents, "MIN_TOKENS", 40)


def test_files_that_older_rules_cut_are_reported_and_cut_again(run, notes, request, home):
    """An unchanged file is never read by `index`; `status`, `doctor` and `migrate` name it, and `migrate` reads it."""
    request.getfixturevalue("newer_rules")
    before = run("list", "--limit", "500", "--json").json
    assert run("index", NOTES, "--json").json["unchanged"] == 32
    assert run("status", "--json").json["outdated_files"] == 32
    checks = run("doctor", "--json").json["checks"]
    assert any("rules of an older release" in one["message"] and "--chunks" in one["mend"] for one in checks)
    assert run("migrate", "--json").json["steps"][0]["work"] == "cut 32 files of 1 folders again"
    assert run("list", "--limit", "500", "--json").json == before
    done = run("migrate", "--chunks", "--evaluate", "--json")
    (step,) = done.json["steps"]
    assert (done.code, step["switched"]) == (0, True)
    after = run("list", "--limit", "500", "--json").json
    assert len(after) > len(before)
    assert "outdated_files" not in run("status", "--json").json
    assert run("status", "--json").json["vectors"]["without"] == 0
    assert run("migrate", "--chunks", "--json").json == {"steps": []}
    assert run("index", NOTES, "--json").json["unchanged"] == 32


def test_second_migration_at_the_same_time_is_refused(run, notes, home):
    """It says that another process is at work, and changes nothing."""
    with (
        Memory.open(home / "store.db", embedder="hashing:512", settings=Settings()) as memory,
        exclusive(memory) as reported,
    ):
        reported(None)(3, 34)
        refused = run("migrate", "--embedder", "hashing:512", "--json")
        assert (refused.code, refused.error["code"]) == (3, "failed")
        assert "another process is computing vectors of this store (3 of 34" in refused.error["message"]
    assert vectors_that_do_not_answer(home) == {}
    assert run("migrate", "--embedder", "hashing:512").code == 0


def test_nothing_to_do_is_not_taken_for_the_model_of_the_settings(run, notes):
    """What the flags name is there already; the settings still ask for another model."""
    user_file().write_text('embedder = "hashing:512"\n')
    for flags in (["--chunks"], ["--language", "english"], ["--embedder", "hashing:256"]):
        assert run("migrate", *flags).out == "nothing to migrate: the store already has what the flags name\n"
    assert run("migrate").out.startswith("embedder: hashing:256 → hashing:512")


def test_vectors_that_answer_are_not_abandoned(run, notes):
    """The reason is given, and which vectors could be deleted is not denied."""
    run("migrate", "--embedder", "hashing:64")
    for flags in ([], ["--dry-run"]):
        answer = run("migrate", "--abandon", "--embedder", "hashing:64", *flags)
        assert (answer.code, answer.out) == (0, "hashing:64 answers now, so its vectors stay\n")
    answer = run("migrate", "--abandon", "--embedder", "hashing:32")
    assert answer.out == "there are no vectors of hashing:32\n"
    assert answering(run) == "hashing:64"


def test_missing_store_is_not_created(run, home):
    """There is nothing to migrate."""
    answer = run("migrate", "--language", "german")
    assert (answer.code, answer.out) == (0, "nothing to migrate: there are no records\n")
    assert not (home / "store.db").exists()


@pytest.mark.parametrize("flag", ["--switch", "--chunks", "--evaluate"])
def test_deleting_and_migrating_exclude_each_other(run, notes, flag):
    """Nothing is deleted by a command that asks for both."""
    assert run("migrate", "--abandon", flag, "--json").error["code"] == "usage"


def test_no_model_is_no_target(run, notes):
    """`none` is a setting, not a migration."""
    assert run("migrate", "--embedder", "none", "--json").error["code"] == "usage"


def test_newcomer_changes_the_model(run, notes, home):
    """Change the setting, look, migrate with a check, clean up: each command says the next one."""
    user_file().write_text('embedder = "hashing:512"\n')
    shown = run("migrate").out
    command = shown[shown.index("recollect migrate") :].split()[1:]
    assert command == ["migrate", "--embedder", "hashing:512", "--evaluate"]
    done = run(*command)
    assert "switched to hashing:512 from hashing:256 (34 vectors computed)" in done.out
    assert "now set" not in done.err
    shown = run("migrate").out
    assert run(*shown[shown.index("recollect migrate") :].split()[1:]).out == "deleted: 34 vectors of hashing:256\n"
    assert run("migrate").out.startswith("nothing to migrate")
    assert run("search", "how do I bleed the radiators?", "--json").json["trace"]["mode"] == "hybrid"


@pytest.mark.parametrize("words", [("embed",), ("index", "more"), ("watch", "more", "--once")])
def test_command_keeps_the_model_of_the_store(run, notes, home, words):
    """The settings name another model: new files get vectors of the store's, and a note says how to change it."""
    user_file().write_text('embedder = "hashing:64"\n')
    (home / "more").mkdir()
    (home / "more" / "otters.md").write_text("# Otters\n\nAn otter holds hands.\n")
    if words == ("embed",):
        run("add", "Seals do not.", "--embedder", "none")
    done = run(*words)
    assert done.code == 0
    stays = "the store keeps its model hashing:256, the settings name hashing:64"
    assert done.err.count(stays) == 1
    assert "`recollect migrate --embedder hashing:64 --evaluate` compares and switches" in done.err
    assert answering(run) == "hashing:256"
    assert run("status", "--json").json["vectors"]["without"] == 0


def test_embed_moves_to_the_model_that_is_named(run, notes):
    """It says so before it computes vectors, with the command that compares first; afterwards it is silent."""
    words = ("embed", "--embedder", "hashing:64")
    moved = run(*words)
    assert moved.err.count("searches move from hashing:256 to hashing:64 when its vectors are complete") == 1
    assert "`recollect migrate --embedder hashing:64 --evaluate` instead compares" in moved.err
    assert answering(run) == "hashing:64"
    assert "searches move" not in run(*words).err


def test_migration_does_not_advise_itself(run, notes):
    """`migrate --switch` moves without a word about comparing instead."""
    moved = run("migrate", "--embedder", "hashing:64", "--switch")
    assert (moved.code, answering(run)) == (0, "hashing:64")
    assert "searches move" not in moved.err


def test_set_that_is_no_folder_is_refused_with_the_way_to_make_one(run, notes, home):
    """The hint is about sets for one's own store, not about sets with a corpus."""
    for name, words in (("nofolder", "nofolder is no folder"), (".", "holds no queries.jsonl")):
        refused = run("migrate", "--embedder", "hashing:64", "--evaluate", name)
        assert (refused.code, words in refused.err) == (2, True)
        assert "recollect eval make-set" in refused.err
        assert "corpus.jsonl" not in refused.err


def test_store_without_vectors_is_told_of_embed(run, monkeypatch):
    """By `status` and `migrate`, until `embed` has run; not where keyword search is all that is wanted."""
    run("add", "The spare key is under the blue pot.")
    assert "recollect embed" not in run("status").err + run("migrate").err
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "hashing:64")
    assert "1 record without a vector: `recollect embed`" in run("status").err
    assert "the store has no vectors yet: `recollect embed`" in run("migrate").err
    run("embed")
    assert "recollect embed" not in run("status").err + run("migrate").err
