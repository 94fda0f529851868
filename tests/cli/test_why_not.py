"""`recollect why-not`: its output, its exit codes, and that its advice works as printed."""

import json
import re
import shlex

import pytest

from recollect import Memory
from recollect.config import Settings
from recollect.types import Put, Record, Scope


@pytest.fixture(autouse=True)
def _ranked_by_score(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages are tested by score; newer-first has separate tests."""
    monkeypatch.setenv("RECOLLECT_SEARCH_PREFER_NEWER", "false")
    monkeypatch.setenv("RECOLLECT_SEARCH_FUSION", "rrf")


@pytest.fixture
def memory(home):
    """The store of the commands, opened beside them."""
    with Memory.open(home / "store.db", embedder="none", settings=Settings()) as memory:
        yield memory


@pytest.fixture
def herons(memory):
    """Records r000 to r029, in rank order."""
    memory.store.records.apply([[Put(Record(f"r{i:03}", "heron" + " reed" * i + f" n{i}")) for i in range(30)]])
    return memory


def advised(shown, *said):
    """The flags of a search after doing what was printed: those said, less what is dropped, and what is added."""
    (line,) = [line for line in shown.out.splitlines() if line.startswith("brings it back: ")]
    words = line.removeprefix("brings it back: the same search").strip()
    added, _, dropped = words.partition("without ") if "without " in words else (words, "", "")
    kept = list(said)
    for option in [word.strip() for word in dropped.split(",") if word.strip()]:
        name, *value = shlex.split(option)
        for at in [i for i, word in enumerate(kept) if word == name and (not value or kept[i + 1] == value[0])][::-1]:
            del kept[at : at + 2]
    return [*kept, *shlex.split(added.strip().removesuffix(" and").removesuffix("and"))]


def brought_back(run, query, target, *said):
    """Run `why-not`, then the search that it advises, and give back what `why-not` printed."""
    found = run("search", query, "--json", *said)
    assert target not in [result["id"] for result in found.json["results"]]
    shown = run("why-not", query, target, *said)
    assert (shown.code, shown.err) == (0, "")
    flags = advised(shown, *said)
    again = run("search", query, "--json", *flags)
    assert target in [result["id"] for result in again.json["results"]], (shown.out, flags)
    return shown


def test_record_in_the_answer_is_found(run, herons):
    """Name, id, rank and each source's rank, and no advice."""
    shown = run("why-not", "heron", "r001")
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert lines[:4] == ["heron reed n1", "    r001", "found", "    it is in the answer, at rank 2"]
    assert re.fullmatch(r"    keyword    rank 2 of a list read to 100, score \d\.\d{4}", lines[4])
    assert lines[5:] == ["    vector     no embedder is configured"]


def test_verdict_as_json(run, herons):
    """The verdict, the sources' ranks, the change and the record."""
    said = run("why-not", "heron", "r011", "--json")
    assert said.code == 0
    assert said.json.keys() == {
        "query", "target", "stage", "reason", "rank", "sources", "change", "advice", "record"
    }  # fmt: skip
    assert (said.json["query"], said.json["target"], said.json["stage"]) == ("heron", "r011", "limit")
    assert said.json["change"] == {"limit": 12}
    assert said.json["sources"]["keyword"]["rank"] == 12
    assert said.json["record"]["id"] == "r011"
    assert run("why-not", "heron", "r000", "--json").json["rank"] == 1


def test_exit_codes(run, herons, home):
    """0 for an explanation, 2 for wrong use, 3 if no source answers."""
    for target in ("r000", "r029"):
        assert run("why-not", "heron", target).code == 0
    assert run("why-not", "stork", "r000").code == 0
    (home / "x.md").write_text("heron")
    assert run("why-not", "heron", "x.md").code == 0
    for words in (
        ("heron", "no-such-id"),
        ("heron", home),
        ("heron", ""),
        ("heron",),
        (),
        ("heron", "r000", "--limit", "0"),
        ("heron", "r000", "--since", "whenever"),
        ("heron", "r000", "--no-such-flag"),
        ("heron", "r000", "--kind", "poem"),
    ):
        refused = run("why-not", *words)
        assert (refused.code, refused.out) == (2, ""), words
        assert refused.err
    assert run("why-not", "heron", "r000", "--sources", "vector").code == 3


@pytest.mark.parametrize("target", ["~no_such_user_here/x.md", "x" * 5000, "bad\udcff.md"], ids=["home", "long", "raw"])
def test_name_that_cannot_be_looked_up_is_a_usage_error(run, herons, target):
    """Undecodable bytes, an unknown home, a name too long for the disk."""
    assert run("why-not", "heron", target).code == 2


def test_errors_as_json(run, herons):
    """On standard error, with a code and a hint."""
    refused = run("why-not", "heron", "no-such-id", "--json")
    assert (refused.code, refused.out, refused.error["code"]) == (2, "", "usage")
    assert refused.error["hint"]


def test_missing_store_is_not_created(run, home):
    """Asking is reading."""
    assert run("why-not", "heron", "a").code == 2
    assert not (home / "store.db").exists()


def test_help_lists_the_command(run):
    """And shows the flags of `search`."""
    assert "why-not" in run("--help").out
    shown = run("why-not", "--help")
    assert shown.code == 0
    for flag in ("--fetch-k", "--min-score", "--mmr", "--tag", "--as-of", "--user", "--json"):
        assert flag in shown.out


# -- advice that works --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "said", "stage"),
    [
        ("r020", (), "limit"),
        ("r020", ("--limit", "3"), "limit"),
        ("r020", ("--fetch-k", "5", "--limit", "5"), "fetch_k"),
        ("r020", ("--min-score", "0.99"), "threshold"),
        ("r020", ("--min-score", "0.99", "--fetch-k", "4", "--limit", "2"), "fetch_k"),
        ("r000", ("--category", "home", "--category", "garden"), "category"),
        ("r000", ("--kind", "chunk"), "kind"),
        ("r000", ("--path", "notes"), "path"),
        ("r000", ("--since", "2100-01-01"), "since"),
        ("r000", ("--until", "1999-01-01"), "until"),
        ("r000", ("--as-of", "1999-01-01"), "as_of"),
        ("r000", ("--tag", "red"), "tag"),
        ("r000", ("--tag", "red", "--tag", "blue", "--path", "x", "--limit", "1"), "tag"),
        ("r029", ("--tag", "red", "--path", "x", "--limit", "1", "--kind", "chunk"), "kind"),
    ],
    ids=str,
)
def test_advised_flags_work(run, herons, target, said, stage):
    """Added to the same search, less those to remove, they bring the record back."""
    assert f"lost at: {stage}" in brought_back(run, "heron", target, *said).out


def test_advised_scope_works(run, memory):
    """Names with spaces and quotes are quoted for the shell."""
    memory.add("heron", id="a", user="Ana María", agent="o'clock", session="$HOME")
    shown = brought_back(run, "heron", "a")
    assert "lost at: scope" in shown.out
    assert "--user 'Ana María'" in shown.out
    brought_back(run, "heron", "a", "--user", "Ana María")


def test_record_of_another_scope_is_not_shown(run, memory):
    """Asked as bob, ana's record is out of scope, without any detail."""
    memory.add("heron secret", id="a", user="ana", category="hush", path="/hidden/x.md")
    for flags in ((), ("--json",), ("--category", "work"), ("--path", "y", "--json")):
        shown = run("why-not", "heron", "a", "--user", "bob", *flags)
        assert shown.code == 0
        assert "scope" in shown.out
        assert not [word for word in ("secret", "ana", "hush", "hidden") if word in shown.out], shown.out


def test_superseded_and_expired_records_are_brought_back(run, memory):
    """By `--superseded`, and by `--as-of` the moment before."""
    memory.add("heron on the lake", id="old", created_at="2026-01-01")
    memory.add("heron in the oak", id="new", created_at="2026-02-01")
    memory.supersede("old", "new", at="2026-02-01")
    shown = brought_back(run, "heron", "old")
    assert "superseded by new on 2026-02-01T00:00:00Z" in shown.out
    assert "the same search --superseded" in shown.out
    memory.add("heron for now", id="short", created_at="2026-01-01", expires_at="2026-03-01")
    shown = brought_back(run, "heron", "short")
    assert "--as-of 2026-03-01T23:59:59.999999Z" in shown.out


def test_mmr_is_turned_off(run, memory):
    """By `--no-mmr`, whatever turned it on."""
    memory.add("heron lake reeds dawn", id="top")
    memory.add("heron lake reeds dawn yonder", id="near")
    memory.add("heron harbour oar boat winter snow", id="new")
    for said in (("--mmr", "--mmr-lambda", "0.1"), ("--mmr-lambda", "0.1")):
        shown = brought_back(run, "heron lake reeds dawn", "near", "--limit", "2", *said)
        assert "in favour of new" in shown.out
        assert "--no-mmr" in shown.out


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (("--path", "notes"), "the same search without --path"),
        (("--tag", "blue"), "the same search without --tag"),
        (("--category", "home", "--kind", "chunk"), "the same search without --category, --kind"),
        (("--limit", "1", "--path", "notes"), "the same search --limit 2 and without --path"),
    ],
    ids=str,
)
def test_flags_to_remove_are_named(run, memory, said, words):
    """In words, and no flag is added."""
    memory.add("heron", id="first")
    memory.add("heron reed", id="a", tags=["red"], category="work")
    assert f"brings it back: {words}" in brought_back(run, "heron", "a", *said).out


def test_only_the_wrong_tag_is_to_be_removed(run, memory):
    """Repeating the right one does not remove the other."""
    memory.add("heron", id="a", tags=["red"])
    brought_back(run, "heron", "a", "--tag", "red", "--tag", "blue")


def test_lost_record_without_a_flag_gets_advice(run, memory, home):
    """Never an empty line."""
    memory.add("heron", id="a")
    assert "what to do: use words that occur in it" in run("why-not", "stork", "a").out
    memory.add("Heron ", id="twin", created_at="2020-01-01")
    assert "what to do: nothing is lost: a is shown instead" in run("why-not", "heron", "twin").out
    memory.forget("a")
    assert "lost at: forgotten" in run("why-not", "heron", "a").out
    assert "what to do: recollect undo a" in run("why-not", "heron", "a").out


def test_advised_index_command_works(run, home):
    """Also for a path with a space."""
    folder = home / "my notes"
    folder.mkdir()
    (folder / "a b.md").write_text("# Heron\n\nA heron by the lake.\n")
    run("add", "something else")
    for text in ("heron", "walrus"):
        shown = run("why-not", text, "my notes/a b.md")
        assert ("not indexed" if text == "heron" else "changed") in shown.out
        (line,) = [line for line in shown.out.splitlines() if line.startswith("what to do: ")]
        command, *words = shlex.split(line.removeprefix("what to do: "))
        assert (command, run(*words).code) == ("recollect", 0)
        assert "\nfound\n" in run("why-not", text, "my notes/a b.md").out
        (folder / "a b.md").write_text("# Heron\n\nA walrus now.\n")


# -- what a terminal is told --------------------------------------------------------------------------------

STEERING = "\x1b]0;owned\x07\x1b[31m\x9b31m\x08\r"


def test_control_characters_are_not_printed(run, memory):
    """From text, title, id, category, scope, tags or path."""
    evil = f"heron{STEERING}evil"
    memory.store.records.apply(
        [
            [Put(Record("text", evil))],
            [Put(Record("title", "heron reed", title=evil))],
            [Put(Record("category", "heron dawn", category=evil))],
            [Put(Record("path", "heron lake", path=f"/x/{evil}"))],
            [Put(Record(f"id{STEERING}", "heron boat"))],
            [Put(Record("scope", "heron ice", scope=Scope(evil, evil, evil)))],
            [Put(Record("tags", "heron oar", tags=(evil,)))],
        ]
    )
    memory.add("heron lake reeds", id="new")
    for target in ("text", "title", "category", "path", f"id{STEERING}", "scope", "tags"):
        for flags in ((), ("--category", "x"), ("--path", "y"), ("--limit", "1"), ("--tag", evil, "--tag", "z")):
            shown = run("why-not", "heron", target, *flags)
            assert shown.code == 0
            assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown.out), (target, flags, shown.out)


def test_control_characters_are_not_printed_in_errors(run, memory, home):
    """The name of a folder may contain them."""
    folder = home / f"notes{STEERING}"
    folder.mkdir()
    for target in (folder, f"nothing{STEERING}"):
        shown = run("why-not", "heron", target)
        assert shown.code == 2
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown.err), shown.err


def test_json_has_the_exact_text(run, memory):
    """Escaped as JSON."""
    memory.add(f"heron{STEERING}", id="a")
    said = run("why-not", "heron", "a", "--json")
    assert json.loads(said.out)["record"]["text"] == f"heron{STEERING}"
    assert "\x1b" not in said.out


def test_long_text_is_one_line(run, memory):
    """The first words, cut to the width."""
    memory.add("heron\n\n" + "and another heron\n" * 90, id="a")
    first, second, *_ = run("why-not", "heron", "a").out.splitlines()
    assert first.startswith("heron and another heron")
    assert len(first) <= 100
    assert second.strip() == "a"


def test_file_that_may_hold_secrets_is_not_suggested_without_a_word(run, home):
    """`index` left it out on purpose; the reason stands beside the command that reads it all the same."""
    folder = home / "keys"
    folder.mkdir()
    (folder / "id_rsa").write_text("heron")
    assert "may hold secrets" in run("index", folder).err
    shown = run("why-not", "heron", folder / "id_rsa")
    assert "lost at: not indexed" in shown.out
    assert "may hold secrets" in " ".join(shown.out.split())
