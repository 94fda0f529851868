"""Markdown as nested lists: what notes hold is rendered, and nothing that was written becomes HTML."""

import base64
import json
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from recollect.memory.conversations import StoredTurn
from recollect.types import Scope
from recollect.web.access import Caller, Tokens
from recollect.web.rendering import MOST_RENDERED, TAGS, nodes, turn_nodes

HERONS = Path(__file__).parents[1] / "ingest" / "readers" / "files" / "chromium.pdf"


def test_blocks_have_their_lines_and_front_matter_is_left_out():
    """Headings, lists, tables and code, each with the lines that it stands on."""
    text = "---\ntitle: x\n---\n# Head\n\n- one\n- two\n\n| a |\n|--:|\n| 1 |\n\n```py\nx = 1\n```\n"
    head, items, table, code = nodes(text)
    assert head == ["h1", {"lines": [4, 4]}, ["Head"]]
    assert items == [
        "ul", {"lines": [6, 8]}, [["li", {"lines": [6, 6]}, ["one"]], ["li", {"lines": [7, 8]}, ["two"]]],
    ]  # fmt: skip
    assert table[0] == "table"
    assert table[2][0][2][0][2][0] == ["th", {"align": "right"}, ["a"]]
    assert code == ["pre", {"lines": [13, 15]}, [["code", {}, ["x = 1\n"]]]]


@pytest.mark.parametrize("asked", [1, 500, 1_000])
def test_of_a_long_text_only_the_part_around_a_line_is_rendered(asked):
    """The rest is plain text, cut at the ends of lines, so that every line is shown once."""
    text = "\n".join(f"- *{number:099}*" for number in range(1, 1_001))
    blocks = nodes(text, 11, around=10 + asked)
    rendered = next(block for block in blocks if block[0] == "ul")
    assert rendered[1]["lines"][0] <= 10 + asked <= rendered[1]["lines"][1]
    assert 0.4 * MOST_RENDERED < sum(len(item[2][0][2][0]) for item in rendered[2]) < MOST_RENDERED
    assert [block[0] for block in blocks if block is not rendered] == ["pre"] * (2 if asked == 500 else 1)
    spans = [block[1]["lines"] for block in blocks]
    assert (spans[0][0], spans[-1][1]) == (11, 1_010)
    assert all(first[1] + 1 == second[0] for first, second in pairwise(spans))


def test_a_line_that_is_longer_than_what_is_rendered_is_cut():
    """It has no line end to cut at."""
    paragraph, rest = nodes("*a* " * MOST_RENDERED)
    assert (paragraph[0], rest[0], rest[1]) == ("p", "pre", {"lines": [1, 1]})
    assert len(rest[2][0]) == 3 * MOST_RENDERED


def test_of_long_turns_the_nearest_are_rendered():
    """The others are plain text: all turns of one answer share its limit."""
    texts = ["*a* " * (MOST_RENDERED // 10) for _ in range(5)]
    at = datetime(2026, 3, 14, tzinfo=UTC)
    blocks, _ = turn_nodes([StoredTurn("user", at, text, (str(n),)) for n, text in enumerate(texts)], "2")
    assert [block[0] for block in blocks if block[0] != "h4"] == ["pre", "p", "p", "pre", "pre"]


def test_deeply_nested_emphasis_is_plain_text(api, add):
    """The parser nests elements without a limit, and Python's stack has one."""
    text = "*a " * 300 + "b* " * 300
    reading = api.get(f"/v1/reading/{add(text)['id']}")
    assert (reading.status_code, reading.json()["nodes"]) == (200, [["pre", {"lines": [1, 1]}, [text]]])


def test_links_to_notes_name_their_files():
    """Wikilinks and Markdown links, without the heading; an embedded image is one."""
    (text,) = nodes("[[Garden#Bed|the bed]], [[#here]], [a](x%20y.md#z) ![[bed.PNG]] ![[Note]] `[[code]]`")
    assert text[2] == [
        ["a", {"file": "Garden"}, ["the bed"]], ", ", "#here", ", ", ["a", {"file": "x y.md"}, ["a"]], " ",
        ["img", {"src": "bed.PNG", "alt": "bed.PNG"}, []], " ", ["a", {"file": "Note"}, ["Note"]], " ",
        ["code", {}, ["[[code]]"]],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "hostile",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[x](javascript:alert(1))",
        "[x](data:text/html,<script>1</script>)",
        '[x](http://e.org "t" onclick=1)',
        "![x](javascript:alert(1))",
        "> " * 300 + "deep",
        "[" * 3000,
        "[[javascript:alert(1)]] ![[x.svg|<b>]]",
        "*" * 5000 + "a",
    ],
)
def test_only_known_tags_and_attributes_are_made(hostile):
    """Raw HTML is text, and a link leads only to the web or names a file."""

    def look(node):
        if isinstance(node, str):
            return
        tag, attributes, children = node
        assert tag in TAGS | {"pre", "code", "img"}
        assert attributes.keys() <= {"lines", "href", "file", "src", "alt", "start", "align"}
        assert attributes.get("href", "http://").startswith(("http://", "https://", "mailto:"))
        for child in children:
            look(child)

    for node in nodes(hostile):
        look(node)


def test_reading_shows_the_note_around_a_chunk(home):
    """A Markdown file is rendered, another file is one block of code, and an image comes from the folder only."""
    folder = home.folder / "notes"
    folder.mkdir()
    (folder / "a.md").write_text("# Heron\n\nA *grey* bird.\n\n![nest](nest.png)\n")
    (folder / "nest.png").write_bytes(b"\x89PNG nest")
    (folder / "a.py").write_text("def heron():\n    return 'reeds'\n")
    (home.folder / "secret.png").write_bytes(b"\x89PNG secret")
    assert home.run("index", folder, "--store", home.store, "--embedder", "none").returncode == 0
    api = home.serve().client()
    note, code = (
        api.post("/v1/search", json={"query": words}).json()["results"][0] for words in ("grey bird", "return reeds")
    )
    reading = api.get(f"/v1/reading/{note['id']}").json()
    assert reading["nodes"][1][2] == ["A ", ["em", {}, ["grey"]], " bird."]
    assert reading["lines"] == note["lines"]
    assert api.get(f"/v1/reading/{code['id']}").json()["nodes"][0][0] == "pre"
    image = api.get(f"/v1/image/{note['id']}", params={"name": "nest.png"}).json()
    assert (image["media_type"], base64.b64decode(image["base64"])) == ("image/png", b"\x89PNG nest")
    for name in ("../secret.png", str(home.folder / "secret.png"), "a.md", "nothing.png", "\0.png", 300 * "a" + ".png"):
        assert api.get(f"/v1/image/{note['id']}", params={"name": name}).status_code == 400, name


def test_fact_is_rendered_and_matching_words_are_named(api, add):
    """The page marks what the analysis matched: "resignation" for "resign", not "even" for "evening"."""
    fact = add("The **spare** resignation letter, even so.")
    assert api.get(f"/v1/reading/{fact['id']}").json()["nodes"] == [
        ["p", {"lines": [1, 1]}, ["The ", ["strong", {}, ["spare"]], " resignation letter, even so."]]
    ]
    answer = api.post("/v1/search", json={"query": "who resigned one evening?", "explain": True}).json()
    assert "resignation" in answer["matched"]
    assert "even" not in answer["matched"]
    add("She resigned in May. " + "Nothing else is known. " * 40 + "One evening she came back.")
    answer = api.post("/v1/search", json={"query": "who resigned one evening?", "explain": True}).json()
    assert {"resigned", "evening"} <= set(answer["matched"]), "the whole text is shown beside the results"


def test_turn_is_read_in_its_conversation(home):
    """The turns around it stand below their speakers, and its own lines are named."""
    spoken = [("user", "Where do herons nest?"), ("assistant", "In *alders*.")]
    turns = [
        {"role": role, "text": text, "time": f"2026-03-14T10:0{at}:00Z", "conversation": "c1"}
        for at, (role, text) in enumerate(spoken)
    ]
    (home.folder / "chat.jsonl").write_text("\n".join(map(json.dumps, turns)))
    ran = home.run("import-chat", home.folder / "chat.jsonl", "--store", home.store, "--embedder", "none")
    assert ran.returncode == 0, ran.stderr
    api = home.serve().client()
    found = api.post("/v1/search", json={"query": "alders"}).json()["results"][0]
    reading = api.get(f"/v1/reading/{found['id']}").json()
    assert [node[2][0] for node in reading["nodes"] if node[0] == "h4"] == [
        "user, 2026-03-14 10:00", "assistant, 2026-03-14 10:01",
    ]  # fmt: skip
    assert reading["nodes"][-1] == ["p", {"lines": [4, 4]}, ["In ", ["em", {}, ["alders"]], "."]]
    assert reading["lines"] == [3, 4]
    assert api.get(f"/v1/reading/{found['short_id']}").json() == reading
    ran = home.run(
        "import-chat", home.folder / "chat.jsonl", "--store", home.store, "--embedder", "none", "--user", "ada"
    )
    assert ran.returncode == 0, ran.stderr
    assert api.get(f"/v1/reading/{found['id']}").json() == reading, "of two copies the one that has the turn"


def test_image_is_for_the_owner(askers):
    """A folder's images were not indexed for a scope."""
    assert askers.ada.get("/v1/image/x", params={"name": "a.png"}).status_code == 403


def test_pdf_is_sent_to_whoever_may_read_its_chunk(home):
    """As a PDF that has no origin; another caller's, another kind of file, and a link to one are not sent."""
    folder, tokens = home.folder / "papers", Tokens(home.tokens)
    folder.mkdir()
    place = folder / "herons.pdf"
    place.write_bytes(HERONS.read_bytes())
    (folder / "note.md").write_text("# Alders\n")
    assert home.run("index", folder, "--store", home.store, "--embedder", "none", "--user", "ada").returncode == 0
    made = {name: tokens.add(caller) for name, caller in {
        "owner": Caller("owner", owner=True), "ada": Caller("ada", Scope("ada")), "bob": Caller("bob", Scope("bob")),
    }.items()}  # fmt: skip
    server = home.serve()
    owner, ada, bob = (server.client(made[name]) for name in ("owner", "ada", "bob"))
    chunk, note = (
        ada.post("/v1/search", json={"query": words}).json()["results"][0] for words in ("wading birds", "alders")
    )
    assert chunk["place"] == "pages 1–2"
    answer = ada.get(f"/v1/pdf/{chunk['id']}")
    assert answer.content == HERONS.read_bytes()
    headers = {name: answer.headers[name] for name in ("content-type", "content-disposition", "x-frame-options")}
    assert headers == {"content-type": "application/pdf", "content-disposition": "inline", "x-frame-options": "DENY"}
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("sandbox;")
    assert bob.get(f"/v1/pdf/{chunk['id']}").status_code == 404
    assert server.client().get(f"/v1/pdf/{chunk['id']}").status_code == 401
    assert ada.get(f"/v1/pdf/{note['id']}").status_code == 400
    place.write_bytes(HERONS.read_bytes() + b"more")
    assert (ada.get(f"/v1/pdf/{chunk['id']}").status_code, owner.get(f"/v1/pdf/{chunk['id']}").status_code) == (
        400,
        200,
    )
    place.write_bytes(b"<script>alert(1)</script>")
    assert owner.get(f"/v1/pdf/{chunk['id']}").status_code == 400
    place.unlink()
    (home.folder / "secret.pdf").write_bytes(HERONS.read_bytes())
    place.symlink_to(home.folder / "secret.pdf")
    assert owner.get(f"/v1/pdf/{chunk['id']}").status_code == 400
