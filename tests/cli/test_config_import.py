"""`recollect config import`: shows the changes first, writes on request, and loses no existing setting."""

import json
import os
import tomllib

import pytest

from recollect.config import user_file

JSON5 = """{
  // comments and trailing commas, as OpenClaw takes them
  agents: { defaults: { memorySearch: {
    extraPaths: ["../team"], remote: { apiKey: "sk-very-secret" }, colour: "red",
    query: { maxResults: 8, hybrid: { vectorWeight: 0.6, textWeight: 0.4, candidateMultiplier: 5 }, },
  }, }, },
}"""


@pytest.fixture
def file(home):
    place = home / "openclaw.json"
    place.write_text(JSON5, encoding="utf-8")
    return place


def test_import_shows_each_key_and_changes_nothing(run, file):
    """Mapped, ignored with the reason, and the file that would be written; secrets are not repeated."""
    ran = run("config", "import", file)
    assert ran.code == 0
    for words in (
        "agents.defaults.memorySearch.query.hybrid.vectorWeight → search.vector_weight = 0.6",
        "(not set) → search.fusion = weighted",
        "8 × 5",
        "recollect index PATH",
        "agents.defaults.memorySearch.colour\n    Recollect has no such setting",
        "[search]\n",
        "fetch_k = 40\n",
    ):
        assert words in ran.out
    assert "nothing was changed" in ran.err
    assert "sk-very-secret" not in ran.out + ran.err
    assert not user_file().exists()


def test_print_outputs_only_the_file(run, file):
    """So that it can be redirected."""
    ran = run("config", "import", file, "--print")
    assert ran.out.startswith("# From openclaw.json")
    assert tomllib.loads(ran.out)["search"]["fusion"] == "weighted"
    assert ran.err == ""


def test_write_creates_the_users_file(run, file):
    """`config show` then has the values with their file; writing again changes nothing."""
    ran = run("config", "import", file, "--write")
    assert (ran.code, str(user_file()) in ran.err) == (0, True)
    shown = run("config", "show", "--json").json
    for name, value in (("search.fusion", "weighted"), ("search.vector_weight", 0.6), ("search.fetch_k", 40)):
        assert shown[name] == {"value": value, "from": str(user_file())}
    assert shown["search.rrf_k"]["from"] == "default"
    before = user_file().read_bytes()
    again = run("config", "import", file, "--write", "--json")
    assert (again.code, again.json["changed"], user_file().read_bytes()) == (0, False, before)
    assert os.listdir(user_file().parent) == ["config.toml"]  # noqa: PTH208


def test_existing_settings_are_changed_only_with_force(run, file):
    """Other settings, external sources and comments stay, and a backup is made."""
    target = user_file()
    target.parent.mkdir(parents=True)
    old = (
        '# mine\nlanguage = "german"\n[search]\n# how many\nlimit = 3  # three\nbudget_ms = 90.5\n\n# the wiki\n'
        '[[sources]]\nname = "wiki"\nkind = "http"\nurl = "http://x/?q={query}"\n'
        'fields = { id = "id" }\nheaders = { "X-A b" = "\\"q\\"" }\n'
    )
    target.write_text(old, encoding="utf-8")
    target.chmod(0o600)
    refused = run("config", "import", file, "--write", "--json")
    assert (refused.code, refused.error["code"], "--force" in refused.error["hint"]) == (2, "config", True)
    assert target.read_text(encoding="utf-8") == old
    ran = run("config", "import", file, "--write", "--force", "--json")
    assert ran.json["backup"] == f"{target}.bak"
    assert (target.parent / "config.toml.bak").read_text(encoding="utf-8") == old
    assert target.stat().st_mode & 0o777 == 0o600
    new, was = tomllib.loads(target.read_text(encoding="utf-8")), tomllib.loads(old)
    assert (new["sources"], new["language"]) == (was["sources"], "german")
    assert (new["search"]["limit"], new["search"]["budget_ms"]) == (8, 90.5)
    text = target.read_text(encoding="utf-8")
    assert text.startswith(
        '# mine\nlanguage = "german"\n[search]\n# how many\nlimit = 8  # three\nbudget_ms = 90.5\nfusion'
    )
    assert '\n\n# the wiki\n[[sources]]\nname = "wiki"\n' in text
    target.write_text(old, encoding="utf-8")
    assert run("config", "import", file, "--write", "--force", "--json").json["backup"] == f"{target}.bak1"


def test_output_writes_a_file_for_config(run, file, home):
    """With its folder; a link is followed, and the user's own file is unchanged."""
    place = home / "new" / "claw.toml"
    assert run("config", "import", file, "--output", place).code == 0
    assert run("--config", place, "config", "show", "--json").json["search.limit"]["value"] == 8
    link = home / "link.toml"
    link.symlink_to(place)
    other = home / "other.json"
    other.write_text('{"memorySearch": {"query": {"maxResults": 2}}}')
    assert run("config", "import", other, "--output", link, "--force").code == 0
    assert link.is_symlink()
    assert tomllib.loads(place.read_text())["search"]["limit"] == 2
    assert not user_file().exists()


def test_write_uses_the_file_that_config_names(run, file, home):
    """`--config` and RECOLLECT_CONFIG as in every command."""
    place = home / "mine.toml"
    assert run("--config", place, "config", "import", file, "--write").code == 0
    assert place.is_file()
    assert not user_file().exists()


def test_json_has_everything(run, file):
    """Settings, mapped and ignored keys with reasons, the text, and that nothing was written."""
    said = run("config", "import", file, "--json").json
    assert said["settings"]["search.text_weight"] == 0.4
    assert {"key", "setting", "value", "why"} == set(said["mapped"][0])
    assert [line["key"].rpartition(".")[2] for line in said["ignored"]] == ["apiKey", "extraPaths", "colour"]
    assert tomllib.loads(said["toml"])["search"]["text_weight"] == 0.4
    assert (said["written"], said["changed"], said["backup"]) == (None, False, None)


def test_overriding_variables_are_reported(run, file, monkeypatch):
    """A variable with another value would make the import look broken."""
    monkeypatch.setenv("RECOLLECT_SEARCH_FUSION", "borda")
    ran = run("config", "import", file, "--write")
    assert "search.fusion is borda here: RECOLLECT_SEARCH_FUSION overrides the file" in ran.err


def test_wrong_use_is_reported_in_one_line(run, file, home):
    """Two targets, no file, an unrelated file, broken settings, an unwritable folder."""
    assert run("config", "import", file, "--write", "--print", "--json").error["message"].startswith("--print and --w")
    assert run("config", "import", home / "none.json", "--json").code == 2
    bad = home / "bad.json"
    bad.write_text(json.dumps({"memorySearch": {"query": {"minScore": "high"}}}))
    assert "memorySearch.query.minScore must be a number" in run("config", "import", bad, "--json").error["message"]
    broken = home / "broken.toml"
    broken.write_text("[search]\nlimits = 3\n")
    ran = run("config", "import", file, "--output", broken, "--force", "--json")
    assert (ran.code, "line 2" in ran.error["message"]) == (2, True)
    ran = run("config", "import", file, "--output", bad / "x" / "y.toml", "--json")
    assert (ran.code, ran.error["code"]) == (3, "failed")
    ran = run("config", "import", file, "--output", home, "--force", "--json")
    assert ran.code in (2, 3)
    assert not list(home.glob(".*.new"))


def test_failed_write_leaves_the_old_file(run, file, home, monkeypatch):
    """The file is replaced atomically."""
    from pathlib import Path

    place = home / "mine.toml"
    place.write_text("[search]\nlimit = 3\n")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    ran = run("config", "import", file, "--output", place, "--force", "--json")
    assert (ran.code, "No space left" in ran.error["message"]) == (3, True)
    assert place.read_text() == "[search]\nlimit = 3\n"
    assert not list(home.glob(".*.new"))
