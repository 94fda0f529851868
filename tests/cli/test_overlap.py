import json
import sys

import pytest

from recollect.sample import NOTES

WORDS = ("night", "train", "water", "garden", "piano", "budget", "harbour", "winter")


@pytest.fixture
def notes(run, monkeypatch):
    """A store of the sample notes with vectors of the hashing embedder."""
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "hashing:64")
    assert run("index", NOTES).code == 0


def pair(ran):
    (only,) = ran.json["pairs"]
    return only


def searched(run, query, source, depth, *flags):
    ran = run(
        "search", query, "--sources", source, "--limit", depth, "--fetch-k", depth, "--by", "chunk", "--json", *flags
    )
    return [result["id"] for result in ran.json["results"]]


def test_counts_equal_those_of_single_sources(run, notes):
    """Both, only A, only B and the share follow from what each source finds alone."""
    for word in WORDS:
        one = pair(run("overlap", f"the {word} and the day", "--fetch-k", "10", "--json"))
        keyword, vector = (set(searched(run, f"the {word} and the day", name, 10)) for name in ("keyword", "vector"))
        assert (one["a"], one["b"]) == ("keyword", "vector")
        both = len(keyword & vector)
        assert (one["both"], one["only_a"], one["only_b"]) == (both, len(keyword) - both, len(vector) - both)
        assert one["share"] == pytest.approx(both / max(len(keyword), len(vector)))


def test_table_and_explanation(run, notes):
    """One line per pair, then its meaning with the real fetch_k and k."""
    shown = run("overlap", "night train to the mountains", "--fetch-k", "20")
    assert shown.code == 0
    assert shown.out.splitlines()[0].split() == ["sources", "both", "only", "keyword", "only", "vector", "share", "RBO"]
    assert "of their top 20, and with fetch_k 20 ≤ k + 1 = 61 whatever both find under rrf comes first." in " ".join(
        shown.out.split()
    )
    assert "1 query\n" in shown.err
    deep = run("overlap", "night train to the mountains", "--fetch-k", "20", "--rrf-k", "3")
    assert "with fetch_k 20 > k + 1 = 4 what one alone puts first can under rrf come before" in " ".join(
        deep.out.split()
    )


def test_weights_of_the_settings_are_used_in_the_explanation(run, notes, monkeypatch):
    """The claim is checked for the weights that search uses."""
    monkeypatch.setenv("RECOLLECT_SEARCH_TEXT_WEIGHT", "0.1")
    one = pair(run("overlap", "night train", "--fetch-k", "20", "--json"))
    assert "the weights keyword 0.1, vector 1 what one alone puts first can under rrf come before" in one["advice"][0]
    monkeypatch.setenv("RECOLLECT_SEARCH_TEXT_WEIGHT", "0")
    weightless = pair(run("overlap", "night train", "--fetch-k", "20", "--json"))
    assert weightless["both"] == one["both"] > 0
    assert "keyword has weight 0 and takes no part in fusing" in weightless["advice"]


def test_queries_come_from_arguments_files_and_standard_input(run, notes, home):
    """Plain lines and JSON lines, with a BOM and CRLF; each query has its own numbers."""
    (home / "plain.txt").write_text("\ufeffnight train\r\n\r\nwater for the garden\r\n", encoding="utf-8")
    (home / "lines.jsonl").write_text('{"_id": "1", "text": "night train"}\n{"query": "water for the garden"}\n')
    plain = run("overlap", "--queries", "plain.txt", "--json").json
    assert plain == run("overlap", "--queries", "lines.jsonl", "--json").json
    assert plain == run("overlap", "night train", "water for the garden", "--json").json
    assert plain == run("overlap", "night train", "--queries", "-", "--json", stdin="water for the garden").json
    assert [each["query"] for each in plain["queries"]] == ["night train", "water for the garden"]
    singles = [each["pairs"][0]["share"] for each in plain["queries"]]
    assert plain["pairs"][0]["share"] == pytest.approx(sum(singles) / 2)
    assert "2 queries; means over those with results" in run("overlap", "--queries", "plain.txt").err


def test_settings_after_fusion_change_no_number(run, notes, monkeypatch):
    """Decay, importance, threshold and MMR do not apply to a source's own list."""
    plain = run("overlap", *WORDS, "--fetch-k", "15", "--json").json["pairs"][0]
    for name, value in (("MIN_SCORE", "0.9"), ("MMR", "true"), ("IMPORTANCE_WEIGHT", "1"), ("LIMIT", "2")):
        monkeypatch.setenv(f"RECOLLECT_SEARCH_{name}", value)
    assert run("overlap", *WORDS, "--fetch-k", "15", "--json").json["pairs"][0] == plain
    monkeypatch.setenv("RECOLLECT_SEARCH_FUSION", "borda")
    other = run("overlap", *WORDS, "--fetch-k", "15", "--json").json["pairs"][0]
    assert {**other, "advice": ()} == {**plain, "advice": ()}


def test_importance_does_not_change_a_sources_ranks(run, monkeypatch):
    """RBO uses the sources' ranks, also where importance reverses the results."""
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "hashing:64")
    monkeypatch.setenv("RECOLLECT_SEARCH_IMPORTANCE_WEIGHT", "1")
    for number in range(6):
        run("add", f"tea {'tea ' * number}with guest {number}", "--id", number, "--importance", number % 2)
    weighed = pair(run("overlap", "tea", "--json"))["rbo"]
    monkeypatch.setenv("RECOLLECT_SEARCH_IMPORTANCE_WEIGHT", "0")
    assert pair(run("overlap", "tea", "--json"))["rbo"] == weighed


def test_much_overlap_is_reported(run, monkeypatch):
    """Three records that both sources find: all is shared, so fusion gains little."""
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "hashing:64")
    for name in ("Ada", "Bob", "Cyd"):
        run("add", f"Tea with {name}")
    one = pair(run("overlap", "tea", "--json"))
    assert (one["both"], one["share"]) == (3, 1.0)
    assert one["advice"][-1] == "more than 70 % is the same, so that fusing them gains little"


def test_filters_and_scope_reach_every_source(run, monkeypatch):
    """Only visible records are compared."""
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "hashing:64")
    for number in range(4):
        run("add", f"Tea number {number}", "--tag", "odd" if number % 2 else "even", "--user", "ada")
    run("add", "Tea for all")
    assert pair(run("overlap", "tea", "--json"))["both"] == 1
    assert pair(run("overlap", "tea", "--json", "--user", "ada"))["both"] == 5
    assert pair(run("overlap", "tea", "--json", "--user", "ada", "--tag", "odd"))["both"] == 2


def test_two_sources_are_needed(run, notes):
    """One source is a usage error; one that cannot answer is a failure with its reason."""
    refused = run("overlap", "tea", "--sources", "keyword", "--json")
    assert (refused.code, refused.out) == (2, "")
    assert "only keyword is searched" in refused.error["message"]
    failed = run("overlap", "tea", "--embedder", "none", "--json")
    assert (failed.code, failed.error["code"]) == (3, "search_failed")
    assert "vector: no embedder is configured" in failed.error["message"]


def test_nothing_found_is_exit_1_and_creates_no_store(run, home, monkeypatch):
    """An empty memory has nothing to compare, and reading does not make one."""
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "hashing:64")
    ran = run("overlap", "tea")
    assert ran.code == 1
    assert "Keyword found nothing." in ran.out
    assert not (home / "store.db").exists()


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["overlap"], "there is no query"),
        (["overlap", "--queries", "empty.txt"], "there is no query"),
        (["overlap", "--queries", "nowhere.txt"], "nowhere.txt"),
        (["overlap", "--queries", "."], "is a folder"),
        (["overlap", "--queries", "broken.jsonl"], "broken.jsonl: line 2 is not JSON"),
        (["overlap", "--queries", "wrong.jsonl"], 'wrong.jsonl: line 1 has no "text" or "query"'),
        (["overlap", "--queries", "bytes.txt"], "not text in UTF-8"),
        (["overlap", "x", "--fetch-k", "0"], "--fetch-k"),
        (["overlap", "x", "--sources", "keyword,telepathy"], "telepathy"),
        (["overlap", "x", "--since", "yesterdayish"], "not a time"),
    ],
)
def test_wrong_use_is_named(run, home, words, part):
    """Exit code 2 with the place of the mistake."""
    (home / "empty.txt").write_text("\n\n")
    (home / "broken.jsonl").write_text('{"text": "a"}\n{"text": \n')
    (home / "wrong.jsonl").write_text(json.dumps({"text": 5}))
    (home / "bytes.txt").write_bytes(b"caf\xe9")
    refused = run(*words, "--json")
    assert (refused.code, refused.out) == (2, "")
    assert part in refused.error["message"]


def test_hyde_is_a_third_source(run, notes, server, reply, monkeypatch):
    """Three pairs; a query for which the model fails is left out for hyde."""
    for name, value in (("SEARCH_HYDE", "true"), ("LLM_BASE_URL", server.url), ("LLM_MODEL", "scripted")):
        monkeypatch.setenv(f"RECOLLECT_{name}", value)
    monkeypatch.setenv("RECOLLECT_LLM_RETRIES", "0")
    server.answer = lambda _: "Tardigrades live in moss."
    ran = run("overlap", "night train", "--fetch-k", "10", "--json")
    pairs = {(one["a"], one["b"]): one for one in ran.json["pairs"]}
    assert list(pairs) == [("keyword", "vector"), ("keyword", "hyde"), ("vector", "hyde")]
    assert pairs["vector", "hyde"]["rbo"] < 1
    assert pairs["vector", "hyde"]["advice"][0].startswith("vector and hyde share")
    server.script = [reply(status=400)] * 4
    failed = run("overlap", "night train", "water", "--fetch-k", "10", "--json")
    assert "'water' is left out for hyde" in failed.err
    assert [one["queries"] for one in failed.json["pairs"]] == [2, 1, 1]


def test_external_source_is_compared_at_its_own_depth(run, notes, home):
    """Its own fetch_k is used in the explanation."""
    found = searched(run, "night train", "keyword", 3)
    answer = json.dumps([{"id": key, "score": 1.0} for key in found])
    (home / "wiki.py").write_text(f"print({answer!r})")
    command = json.dumps([sys.executable, str(home / "wiki.py")])
    (home / "config.toml").write_text(
        f'[[sources]]\nname = "wiki"\nkind = "command"\nfetch_k = 5\ncommand = {command}\nfields = {{ id = "id" }}\n'
    )
    flags = ("--config", "config.toml", "--sources", "keyword,wiki", "--fetch-k", "20", "--json")
    one = pair(run("overlap", "night train", *flags))
    assert (one["b"], one["both"], one["only_b"]) == ("wiki", len(found), 0)
    assert "fetch_k 20 and 5, k 60" in one["advice"][0]
