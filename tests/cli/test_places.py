"""Stores that are not files, on the command line: no password is shown, and reading creates nothing."""

import pytest

URL = "postgresql://ada:quiet@127.0.0.1:9/memory"


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_config_show_hides_passwords(run, form):
    """Their origin is shown."""
    shown = run("config", "show", *form, "--store", URL)
    assert shown.code == 0
    assert "postgresql://ada@127.0.0.1:9/memory" in shown.out
    assert "quiet" not in shown.out


@pytest.mark.parametrize("words", [["search", "tea"], ["status"], ["add", "tea"], ["doctor"]])
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_unreachable_server_is_reported_without_its_password(run, words, form):
    """In text and in JSON."""
    told = run(*words, *form, "--store", URL)
    assert told.code == 3
    assert "cannot be reached" in " ".join((told.out + told.err).split())
    assert "quiet" not in told.out + told.err


def test_password_of_the_settings_is_not_written_into_a_service(run, home, monkeypatch):
    """The user's file is used at run time; a flag or variable with a password gets a warning."""
    monkeypatch.delenv("RECOLLECT_STORE")
    notes, file = home / "notes", home / "xdg_config_home" / "recollect" / "config.toml"
    notes.mkdir()
    file.parent.mkdir(parents=True)
    file.write_text(f'store = "{URL}"\n')
    install = ("service", "install", notes, "--print", "--platform", "systemd")
    told = run(*install)
    assert (told.code, "--store" in told.out, told.err) == (0, False, "")
    told = run(*install, "--store", URL)
    assert (told.code, f"--store={URL}" in told.out, "~/.pgpass" in told.err) == (0, True, True)
    told = run(*install, "--store", "lancedb://memory?batch=10")
    assert f"--store=lancedb://{home}/memory?batch=10" in told.out


@pytest.mark.parametrize("form", ["{}/made/memory.db", "sqlite://{}/made/memory.db", "lancedb://{}/made"])
def test_reading_creates_no_store(run, home, form):
    """A file, a URL, or a LanceDB folder."""
    told = run("status", "--json", "--store", form.format(home))
    assert (told.code, told.json["records"]["total"]) == (0, 0)
    assert ("made" in told.json["store"], told.json["bytes"]) == (True, 0)
    assert "there is no store at" in told.err
    assert not (home / "made").exists()


@pytest.mark.parametrize("place", ["postgresql:/x/memory", "lancedb:memory"])
def test_url_without_slashes_leaves_no_folder_behind(run, home, place):
    """It is a usage error."""
    told = run("add", "tea", "--store", place)
    assert told.code == 2
    assert "a URL with its ://" in told.err
    assert not list(home.iterdir())


@pytest.mark.parametrize(
    "words", [["search", "tea"], ["list"], ["status"], ["get", "x"], ["add", "tea"], ["export", "-"], ["doctor"]]
)
@pytest.mark.parametrize("form", ["{}/empty.db", "sqlite://{}/empty.db"])
def test_empty_file_is_not_treated_as_a_missing_store(run, home, words, form):
    """It may be the remains of one: exit code 3, and no command creates a store in it."""
    (home / "empty.db").touch()
    told = run(*words, "--store", form.format(home))
    assert told.code == 3
    said = " ".join((told.out + told.err).split())
    assert "is empty: there is no store in it" in said
    assert "restore it from a backup" in said
    assert (home / "empty.db").read_bytes() == b""
