"""`doctor` on settings: files, variables, and what a project may not set."""

import pytest

from recollect.cli import main
from recollect.config.trust import read_project_file, set_trusted


def test_empty_home_is_no_error_and_stays_empty(doctor, home, untouched):
    """Missing settings are a note; neither a store nor a file is created."""
    untouched(home)
    told = doctor()
    assert (told.code, told.state) == (0, "note")
    assert told["store"]["state"] == "note"
    assert "recollect index" in told["store"]["mend"]
    assert told.worse() == set()


def test_default_store_is_not_created(doctor, home, untouched, monkeypatch):
    """Nor its folder."""
    monkeypatch.delenv("RECOLLECT_STORE")
    monkeypatch.delenv("RECOLLECT_EMBEDDER")
    untouched(home)
    told = doctor()
    assert told.code == 0
    assert told["model"]["state"] == "ok"


def test_default_model_is_no_complaint_about_the_one_of_the_store(doctor, home, monkeypatch):
    """A store keeps the model of its vectors; nobody chose the default. Another model in the settings is a warning."""
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "hashing:64")
    assert main(["add", "The heron stands in the reeds."]) == 0
    monkeypatch.delenv("RECOLLECT_EMBEDDER")
    assert doctor()["vectors"]["message"] == "all 1 records have a vector of hashing:64"
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "hashing:32")
    assert doctor()["vectors"]["state"] == "warning"


def test_invalid_toml_is_a_failure_and_other_checks_run(doctor, settings, kept):
    """The file is named; a store named by a variable is still checked."""
    path = settings("store = \n")
    told = doctor()
    assert (told.code, told["settings"]["state"]) == (3, "failure")
    assert str(path) in told["settings"]["message"]
    assert told["settings"]["mend"]
    assert "40 records" in told["store"]["message"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[search]\nfusion = "magic"\n', ("line 2", "search.fusion", "magic")),
        ("[search]\n\nlimmit = 3\n", ("line 3", "limmit")),
        ('[[sources]]\nname = "wiki"\nkind = "http"\nurl = "ftp://x"\n', ("line 4", "url")),
    ],
)
def test_wrong_setting_is_named_with_its_line(doctor, settings, text, words):
    """Where it stands, and what to do."""
    settings(text)
    found = doctor()["settings"]
    assert found["state"] == "failure"
    assert all(word in found["message"] for word in words), found
    assert found["mend"]


def test_unknown_variable_is_a_warning_with_a_suggestion(doctor, monkeypatch):
    """A misspelt variable has no effect."""
    monkeypatch.setenv("RECOLLECT_EMBEDER", "none")
    told = doctor()
    assert (told.code, told["settings"]["state"]) == (1, "warning")
    assert "RECOLLECT_EMBEDER" in told["settings"]["message"]
    assert "did you mean RECOLLECT_EMBEDDER?" in told["settings"]["mend"]


def test_untrusted_project_file_is_a_note(doctor, settings, home):
    """It is not parsed, and not listed among the files read."""
    own = settings("[search]\nlimit = 3\n")
    (home / "recollect.toml").write_text('language = "german"\nstore = \n')
    told = doctor()
    assert told.code == 0
    (found,) = told.all("settings")
    assert (found["state"], found["mend"]) == ("note", "recollect trust")
    assert "recollect.toml in this folder is not trusted" in found["message"]
    (home / "recollect.toml").write_text("[search]\nlimit = 4\n")
    set_trusted(home / "recollect.toml", read_project_file(home / "recollect.toml").digest)
    assert doctor()["settings"]["message"] == f"read from {own}, {home / 'recollect.toml'}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('language = "german"\n[search]\nhyde = true\n', "may not set language (line 1), search.hyde (line 3)"),
        ("[search]\nlimit = 0\n", "search.limit"),
    ],
)
def test_mistake_in_a_trusted_project_file_is_a_failure(doctor, home, text, words):
    """A stricter version may find one; no command works in that folder until it is corrected."""
    (home / "recollect.toml").write_text(text)
    set_trusted(home / "recollect.toml", read_project_file(home / "recollect.toml").digest)
    found = doctor()["settings"]
    assert found["state"] == "failure"
    assert words in found["message"]


def test_named_file_replaces_the_others(doctor, settings, home):
    """With --config neither the user's nor the project's is read; a missing one is a failure."""
    settings("store = \n")
    (home / "mine.toml").write_text("[search]\nlimit = 3\n")
    assert "mine.toml" in doctor("--config", home / "mine.toml")["settings"]["message"]
    gone = doctor("--config", home / "gone.toml")
    assert (gone.code, gone["settings"]["state"]) == (3, "failure")


def test_unknown_source_is_a_failure(doctor, settings):
    """`search.sources` with an unknown name fails every search."""
    settings('[search]\nsources = ["keyword", "wiki"]\n')
    found = doctor()["settings"]
    assert (found["state"], "'wiki'" in found["message"]) == ("failure", True)
    assert "keyword, vector" in found["mend"]


def test_valid_settings_name_their_file(doctor, settings):
    """So that one knows which file counts."""
    path = settings("[search]\nlimit = 3\n")
    assert doctor()["settings"] == {"check": "settings", "state": "ok", "message": f"read from {path}", "mend": ""}


def test_nothing_is_fixed_with_unreadable_settings(doctor, settings, sql, spoil, untouched):
    """It could change the wrong store with the wrong model."""
    settings("embedder = 7\n")
    kept = spoil()
    sql(kept, "DELETE FROM embeddings")
    untouched(kept.parent)
    told = doctor("--fix")
    assert told.code == 3
    assert "nothing is fixed until the settings can be read" in told.err
    assert not any("fixed" in found for found in told.checks)
