import apsw
import pytest


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["search", "x", "--fusion", "magic"], 2, "--fusion must be one of"),
        (["search", "x", "--rrf-k", "-1"], 2, "--rrf-k must be 0 or more"),
        (["search", "x", "--limit", "0"], 2, "--limit must be a whole number between 1 and 10000"),
        (["search", "x", "--fetch-k", "0"], 2, "--fetch-k"),
        (["search", "x", "--min-score", "2"], 2, "--min-score"),
        (["search", "x", "--sources", "telepathy"], 2, "telepathy"),
        (["search", "x", "--since", "yesterdayish"], 2, "not a time"),
        (["search", "x", "--decay", "soon"], 2, "--decay must be on, off or a half-life"),
        (["search", "x", "--decay", "999999999y"], 2, "--decay must be on, off or a half-life"),
        (["search", "x", "--embedder", "nonsense"], 2, "nonsense"),
        (["search"], 2, "QUERY"),
        (["serach", "x"], 2, "No such command 'serach'. Did you mean 'search'?"),
        (["remember", "x"], 2, "Did you mean 'add'?"),
        (["find", "x"], 2, "Did you mean 'search'?"),
        (["ask", "x"], 2, "Did you mean 'recall'?"),
        (["delete", "x"], 2, "Did you mean 'forget'?"),
        (["xyzzy", "x"], 2, "No such command 'xyzzy'."),
        (["eval", "rnu", "x"], 2, "Did you mean 'run'?"),
        (["add", "  "], 2, "text must not be empty"),
        (["add", "x", "--importance", "7"], 2, "importance"),
        (["add", "x", "--decay", "quickly"], 2, "quickly"),
        (["add", "x", "--supersedes", "nobody"], 2, "nobody"),
        (["edit", "kept", "--tag", "z", "--clear", "tags"], 2, "tags cannot be set and cleared at once"),
        (["edit", "kept", "--title", "q", "--clear", "title"], 2, "title cannot be set and cleared at once"),
        (["list", "--user", "bob", "--any-scope"], 2, "--any-scope and a scope exclude each other"),
        (["--agent", "b", "list", "--any-scope"], 2, "--any-scope and a scope exclude each other"),
        (["get", "nobody"], 2, "nobody"),
        (["forget", "nobody"], 2, "nobody"),
        (["history", "nobody"], 2, "nobody"),
        (["supersede", "nobody", "--text", "x"], 2, "nobody"),
        (["supersede", "nobody"], 2, "by an id or by a new text"),
        (["config", "show", "--config", "nowhere.toml"], 2, "nowhere.toml"),
        (["status", "--store", "mysql://x"], 2, "mysql"),
        (["index", "~nobody-of-this-name/x"], 2, "not a folder or a file"),
        (["import", "~nobody-of-this-name/x"], 3, "cannot be read"),
        (["import-chat", "~nobody-of-this-name/x"], 2, "does not exist"),
        (["import-memory", "~nobody-of-this-name/x"], 2, "does not exist"),
        (["add", "x", "--store", "~nobody-of-this-name/x.db"], 3, "cannot be a store"),
        (["why-not", "something", "~\0"], 2, "~"),
    ],
)
def test_wrong_use_is_named_and_changes_nothing(run, words, code, part):
    """The exit code, the mistake in JSON and in text, and nothing stored."""
    run("add", "something to find", "--id", "kept")
    before = run("list", "--json", "--superseded").out
    in_words = run(*words)
    assert (in_words.code, in_words.out) == (code, "")
    assert part in in_words.err
    in_json = run(*words, "--json")
    assert in_json.error["message"]
    assert run("list", "--json", "--superseded").out == before


def test_unknown_settings_are_refused_also_nested_ones(run, home):
    """The error names the file and the nearest setting."""
    for text, near in (
        ("fusoin = 'rrf'", ""),
        ("[search]\nfetchk = 5", "search.fetch_k"),
        ("[serch]\nlimit = 5", "search"),
    ):
        (home / "mine.toml").write_text(text)
        refused = run("search", "x", "--json", "--config", home / "mine.toml")
        assert (refused.code, refused.error["code"]) == (2, "config")
        assert "mine.toml" in refused.error["message"]
        assert near in refused.error["hint"]


def test_a_settings_file_that_is_not_toml_is_refused(run, home):
    """Broken TOML, and a value of the wrong type, name the file."""
    for text in ("[search", "[search]\nlimit = 'many'", "[search]\nmmr = 1", "search = 3"):
        (home / "mine.toml").write_text(text)
        refused = run("search", "x", "--json", "--config", home / "mine.toml")
        assert (refused.code, refused.error["code"]) == (2, "config")
        assert "mine.toml" in refused.error["message"]


def test_project_file_cannot_redirect_data(run, home):
    """A cloned repository's settings cannot set the store or the embedder."""
    for text in (
        "store = 'x.db'",
        "embedder = 'openai:x'",
        "[openai]\nbase_url = 'http://evil.example/v1'",
        "[llm]\nbase_url = 'http://evil.example/v1'",
        "[search]\nhyde = true",
    ):
        (home / "recollect.toml").write_text(text)
        refused = run("trust", "--json")
        assert (refused.code, refused.error["code"]) == (2, "config")
        assert run("search", "x", "--json").json["results"] == []
    (home / "recollect.toml").write_text("[search]\nlimit = 1")
    run("trust")
    run("add", "tea one")
    run("add", "tea two")
    assert len(run("search", "tea", "--json").json["results"]) == 1
    assert run("config", "show", "--json").json["search.limit"] == {"value": 1, "from": str(home / "recollect.toml")}


def test_env_file_of_a_project_is_not_read(run, home, monkeypatch):
    """A cloned repository's `.env` sets no variable of Recollect's."""
    monkeypatch.delenv("RECOLLECT_STORE")
    (home / ".env").write_text("RECOLLECT_STORE=evil.db\nRECOLLECT_EMBEDDER=openai:x\nOPENAI_BASE_URL=http://evil/v1\n")
    assert run("add", "tea at five").code == 0
    shown = run("config", "show", "--json").json
    assert shown["embedder"]["value"] == "none"
    assert "evil" not in str(shown)
    assert not (home / "evil.db").exists()


def test_invalid_store_is_exit_3_and_unchanged(run, home):
    """A folder, another program's database and a text file."""
    foreign = home / "foreign.db"
    connection = apsw.Connection(str(foreign))
    connection.execute("CREATE TABLE t (x); INSERT INTO t VALUES (1)")
    connection.close()
    text = home / "text.db"
    text.write_text("these are my shopping notes, not a database\n" * 50)
    for place in (foreign, text):
        before = place.read_bytes()
        for words in (["add", "x"], ["search", "x"], ["status"]):
            refused = run(*words, "--store", place, "--json")
            assert (refused.code, refused.error["code"]) == (3, "store")
            assert str(place) in refused.error["message"]
            assert refused.error["hint"]
        assert place.read_bytes() == before
        assert not list(home.glob(f"{place.name}-*"))
    assert run("add", "x", "--store", home).code == 3
    assert run("add", "x", "--store", "/proc/recollect.db").code == 3


def test_every_source_failing_is_an_error(run):
    """Search by vectors alone without a model is exit 3, never an empty answer."""
    run("add", "x")
    refused = run("search", "x", "--sources", "vector", "--json")
    assert (refused.code, refused.error["code"]) == (3, "search_failed")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["xyzzy"], "recollect --help"),
        (["list", "--origin", "elsewhere"], "recollect list --help"),
        (["eval", "xyzzy"], "recollect eval --help"),
        (["eval", "run", "--xyzzy"], "recollect eval run --help"),
        (["model", "fetch"], "recollect model fetch --help"),
        (["search", "spare", "key"], "recollect search --help; put a text of several words in quotation marks"),
        (["add", "-5 degrees"], "recollect add --help; a text that begins with a dash is given last, after --"),
        (["search", "x", "--xyzzy"], "recollect search --help"),
        (["search", "x", "--limit", "0"], "--help lists the flags and their values"),
    ],
)
def test_wrong_words_name_the_help_of_their_command(run, words, hint):
    """Also of a command below another one; and how a text is given that the shell or the parser took apart."""
    refused = run(*words)
    assert (refused.code, refused.err.splitlines()[-1].strip()) == (2, hint)
