"""Single records over HTTP: store, read, edit, supersede, forget, undo, and what is refused."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from .conftest import head_and_body, refused

ODD_IDS = [
    "a/b/c", "/etc/passwd", "a b", "ключ-🔑", "100%", "100%25", "a?b#c&d=e", "a+b", "...", "../../v1/status", "a\nb",
    "a\n", "\x01", '"quoted"', "'; DROP TABLE records; --", "x" * 1000, "{id}", "a//b", "a/", "history",
]  # fmt: skip


def unchanged(stored):
    """A record as it stands, without what was just done to it."""
    assert set(stored["change"]) == {"id", "seq", "action"}
    return {name: value for name, value in stored.items() if name != "change"}


def test_undo_does_not_undo_a_later_change(api, add):
    """Of two edits, undoing the first is refused because another followed; nothing is lost."""
    record = add("The meeting is at nine.")
    where = f"/v1/records/{record['id']}"
    mine = api.patch(where, json={"text": "The meeting is at ten."}).json()["change"]
    theirs = api.patch(where, json={"title": "Meeting"}).json()["change"]
    assert (mine["action"], theirs["action"], theirs["seq"] > mine["seq"]) == ("update", "update", True)
    refused(api.post("/v1/undo", json={"id": record["id"], "seq": mine["seq"]}), 409, "overtaken")
    assert api.get(where).json()["title"] == "Meeting"
    assert api.post("/v1/undo", json={"id": record["id"], "seq": theirs["seq"]}).json()["record"]["title"] == ""
    gone = api.delete(where).json()["changes"][0]
    assert api.post("/v1/undo", json={"id": gone["id"], "seq": gone["seq"]}).json()["undone"] == "forget"
    again = api.post("/v1/records", json={"text": "The meeting is at ten."}).json()
    assert (again["id"], again["change"]["action"]) == (record["id"], "nothing")


def test_long_text_is_cut_in_a_list(api, add):
    """As in search; the record itself has the whole text."""
    record = add("long " * 2_000, tags=["long"])
    (listed,) = api.get("/v1/records", params={"tag": "long"}).json()["records"]
    assert (len(listed["text"]), listed["text_chars"]) == (4_000, 10_000)
    assert len(api.get(f"/v1/records/{record['id']}").json()["text"]) == 10_000


def test_record_is_stored_with_all_fields(api):
    """All fields come back; unset ones are absent, except for those always present."""
    said = {
        "text": "The spare key is under the blue pot.", "title": "Key", "category": "home", "tags": ["key", "pot"],
        "importance": 0.9, "decay": "permanent", "happened_at": "2026-01-02T03:04:05Z",
        "expires_at": "2999-01-01", "source": "Ada said so", "id": "spare-key", "scope": {"user": "ada"},
    }  # fmt: skip
    answer = api.post("/v1/records", json=said)
    assert answer.status_code == 201
    stored = unchanged(answer.json())
    assert stored | said == {**stored, **said, "expires_at": "2999-01-01"}
    assert stored["expires_at"] == "2999-01-02T00:00:00Z"  # the end of the day
    assert api.get("/v1/records/spare-key").json() == stored
    plain = unchanged(api.post("/v1/records", json={"text": "A bare one."}).json())
    assert set(plain) == {
        "id",
        "short_id",
        "kind",
        "text",
        "title",
        "scope",
        "category",
        "tags",
        "created_at",
        "origin",
    }


def test_expiry_in_words_lies_ahead(api):
    """Friday is the next one."""
    stored = api.post("/v1/records", json={"text": "The permit.", "expires_at": "Friday"}).json()
    assert stored["expires_at"] > stored["created_at"]


def test_null_equals_an_absent_field(api):
    """A client that writes all fields, with null for empty ones, is accepted."""
    fields = ("title", "category", "tags", "importance", "decay", "happened_at", "expires_at", "source", "id", "scope")
    answer = api.post("/v1/records", json={"text": "Nothing else is known.", **dict.fromkeys(fields)})
    assert answer.status_code == 201
    assert answer.json()["title"] == ""


def test_same_text_is_one_record(add):
    """Adding it again updates it, and tags are merged."""
    first = add("The milk is in the fridge.", tags=["milk"])
    again = add("The milk is in the fridge.", tags=["fridge"], category="food")
    assert (again["id"], again["category"], again["tags"]) == (first["id"], "food", ["milk", "fridge"])


@pytest.mark.parametrize("record_id", ODD_IDS)
def test_id_may_be_any_name(server, api, record_id):
    """Stored, read, edited, forgotten and restored by it, and its history is found."""
    text = f"Known as {record_id!r}."
    assert api.post("/v1/records", json={"text": text, "id": record_id}).json()["id"] == record_id

    def ask(method, address, body=b""):
        # By hand: a client of the library would tidy up the dots.
        lines = [f"{method} {address}{quote(record_id, safe='')} HTTP/1.1", f"Host: 127.0.0.1:{server.port}",
                 "Connection: close", "Content-Type: application/json", f"Content-Length: {len(body)}"]  # fmt: skip
        return head_and_body(server.raw("\r\n".join([*lines, "", ""]).encode(), then=body))

    status, _, record = ask("GET", "/v1/records/")
    assert (status, record["id"], record["text"]) == (200, record_id, text)
    status, _, record = ask("PATCH", "/v1/records/", b'{"title": "Odd"}')
    assert (status, record["title"]) == (200, "Odd")
    status, _, told = ask("GET", "/v1/history/")
    assert (status, told["chain"], [event["action"] for event in told["events"]]) == (
        200,
        [record_id],
        ["add", "update"],
    )
    assert ask("GET", "/v1/file/")[0] == 400
    status, _, told = ask("DELETE", "/v1/records/")
    assert (status, told["forgotten"], told["changes"][0]["action"]) == (200, [record_id], "forget")
    assert ask("GET", "/v1/records/")[0] == 404
    undone = api.post("/v1/undo", json={"id": record_id})
    assert undone.json()["record"]["id"] == record_id
    verdict = api.post("/v1/why-not", json={"query": "odd", "target": record_id})
    assert verdict.json()["record"]["id"] == record_id


@pytest.mark.parametrize("record_id", ["", " ", "x" * 1001, None, 5, ["a"], {"a": 1}])
def test_invalid_id_is_refused(api, record_id):
    """Empty, too long, or not a text."""
    answer = api.post("/v1/undo", json={"id": record_id})
    assert answer.status_code in (404, 422)
    if record_id is not None:
        assert api.post("/v1/records", json={"text": "x", "id": record_id}).status_code in (400, 422)


def test_unknown_id_is_404_on_every_route(api):
    """With its code, whatever the request."""
    gone = "no-such-record"
    for method, address, body in (
        ("GET", f"/v1/records/{gone}", None), ("PATCH", f"/v1/records/{gone}", {"title": "x"}),
        ("DELETE", f"/v1/records/{gone}", None), ("GET", f"/v1/history/{gone}", None),
        ("GET", f"/v1/related/{gone}", None),
        ("GET", f"/v1/file/{gone}", None), ("POST", "/v1/undo", {"id": gone}), ("POST", "/v1/forget", {"ids": [gone]}),
        ("POST", "/v1/supersede", {"id": gone, "text": "x"}), ("POST", "/v1/supersede", {"id": gone, "by": gone}),
        ("POST", "/v1/records", {"text": "x", "supersedes": gone}),
    ):  # fmt: skip
        error = refused(api.request(method, address, json=body), 404, "unknown_record")
        assert gone in error["message"]


def test_edit_changes_named_fields_and_null_clears(api, add):
    """The rest stays; every field but the text can be cleared."""
    fields = {
        "title": "T", "category": "c", "tags": ["a"], "importance": 0.9, "decay": "permanent",
        "happened_at": "2026-01-01", "expires_at": "2999-01-01", "source": "s",
    }  # fmt: skip
    record = add("An edited thing.", **fields)
    edited = api.patch(f"/v1/records/{record['id']}", json={"text": "An edited thing, put right."}).json()
    assert {name: edited[name] for name in fields} == {name: record[name] for name in fields}
    assert edited["edited_at"]
    cleared = unchanged(api.patch(f"/v1/records/{record['id']}", json=dict.fromkeys(fields)).json())
    assert set(cleared) == {
        "id",
        "short_id",
        "kind",
        "text",
        "title",
        "scope",
        "category",
        "tags",
        "created_at",
        "edited_at",
        "origin",
    }
    assert (cleared["title"], cleared["category"], cleared["tags"]) == ("", None, [])
    same = api.patch(f"/v1/records/{record['id']}", json={})
    assert same.json()["change"]["action"] == "nothing"
    assert unchanged(same.json()) == cleared
    assert api.patch(f"/v1/records/{record['id']}", json={"tags": ["b"]}).json()["tags"] == ["b"]


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({"text": None}, 400), ({"text": ""}, 422), ({"text": "  "}, 400), ({"id": "another"}, 422),
        ({"scope": {}}, 422),
        ({"path": "/etc/passwd"}, 422), ({"kind": "chunk"}, 422), ({"importance": 2}, 422), ({"decay": "soon"}, 422),
        ({"happened_at": "once"}, 400), ({"tags": "a"}, 422), ({"superseded_by": "x"}, 422), ([], 422), ("text", 422),
    ],
)  # fmt: skip
def test_invalid_edit_changes_nothing(api, add, said, status):
    """The text cannot be cleared, and the kind of a record cannot be changed."""
    record = add("A steady thing.")
    assert api.patch(f"/v1/records/{record['id']}", json=said).status_code == status
    assert api.get(f"/v1/records/{record['id']}").json() == unchanged(record)


def test_each_undo_takes_back_one_change(api, add):
    """Of two edits the second, then a forget, then the first edit, then the creation."""
    record = add("Version one.", title="One", tags=["a"], happened_at="2026-01-01")
    where = f"/v1/records/{record['id']}"
    api.patch(where, json={"text": "Version two.", "tags": None, "happened_at": None})
    api.patch(where, json={"text": "Version three.", "title": "Three"})

    def undo():
        answer = api.post("/v1/undo", json={"id": record["id"]})
        assert answer.status_code == 200, answer.text
        return answer.json()

    second = undo()
    assert (second["undone"], second["record"]["text"]) == ("update", "Version two.")
    assert (second["record"]["title"], second["record"]["tags"]) == ("One", [])
    api.delete(where)
    assert undo() == {"undone": "forget", "record": api.get(where).json(), "forgotten": []}
    first = undo()["record"]
    assert (first["text"], first["title"], first["tags"]) == ("Version one.", "One", ["a"])
    assert first["happened_at"] == record["happened_at"]
    assert undo() == {"undone": "add", "record": None, "forgotten": [record["id"]]}
    other = add("Added by mistake.")
    assert api.post("/v1/undo", json={"id": other["id"]}).json()["forgotten"] == [other["id"]]
    refused(api.get(f"/v1/records/{other['id']}"), 404, "unknown_record")


@pytest.mark.parametrize("which", ["old", "new"])
def test_undoing_a_supersession_restores_the_old_record(api, add, which):
    """Whichever of the two is named; a record created for it is forgotten."""
    old = add(f"The office is in Aarhus, {which}.", category="work")
    new = api.post("/v1/supersede", json={"id": old["id"], "text": f"The office is in Bergen, {which}."}).json()
    assert new["category"] == "work"
    assert api.get(f"/v1/records/{old['id']}").json()["superseded_by"] == new["id"]
    undone = api.post("/v1/undo", json={"id": {"old": old, "new": new}[which]["id"]}).json()
    assert (undone["undone"], undone["forgotten"]) == ("supersede", [new["id"]])
    assert "superseded_by" not in api.get(f"/v1/records/{old['id']}").json()
    refused(api.get(f"/v1/records/{new['id']}"), 404, "unknown_record")


def test_undo_goes_back_and_brings_a_forgotten_record_back(api, add):
    """Forgotten, restored, creation undone, restored again."""
    record = add("Back and forth.")
    api.delete(f"/v1/records/{record['id']}")
    undone = [api.post("/v1/undo", json={"id": record["id"]}).json() for _ in range(3)]
    assert [each["undone"] for each in undone] == ["forget", "add", "forget"]
    assert [bool(each["record"]) for each in undone] == [True, False, True]


def test_forget_is_all_or_nothing_and_counts_each_id_once(api, add):
    """With one unknown id all stay; a repeated id is forgotten once."""
    one, two = add("First of two."), add("Second of two.")
    refused(api.post("/v1/forget", json={"ids": [one["id"], "nothing", two["id"]]}), 404, "unknown_record")
    assert api.get(f"/v1/records/{one['id']}").status_code == 200
    answer = api.post("/v1/forget", json={"ids": [one["id"], two["id"], one["id"]]})
    assert answer.json()["forgotten"] == [one["id"], two["id"]]
    assert [change["id"] for change in answer.json()["changes"]] == [one["id"], two["id"]]
    for ids in ([], ["x"] * 101, [""], "x", None):
        assert api.post("/v1/forget", json={"ids": ids}).status_code == 422


def test_chain_is_the_same_from_every_record(api, add):
    """Oldest first, from whichever record; the events name what superseded what."""
    first = add("Plan A.")
    second = api.post("/v1/supersede", json={"id": first["id"], "text": "Plan B."}).json()
    third = api.post("/v1/records", json={"text": "Plan C.", "supersedes": second["id"]}).json()
    ids = [first["id"], second["id"], third["id"]]
    for record_id in ids:
        told = api.get(f"/v1/history/{record_id}").json()
        assert told["chain"] == ids
        assert all(set(event) == {"seq", "id", "action", "at", "detail"} for event in told["events"])
    assert [event["action"] for event in told["events"]] == ["add", "supersedes"]
    error = refused(api.post("/v1/supersede", json={"id": ids[2], "by": ids[0]}), 409, "supersession_cycle")
    assert ids[0] in error["message"]
    refused(api.post("/v1/supersede", json={"id": ids[0], "text": "Plan D."}), 400, "usage")


def test_history_outlives_the_record(api, add):
    """The history of a forgotten record can be read, so that it can be restored."""
    record = add("Gone but not lost.")
    api.delete(f"/v1/records/{record['id']}")
    told = api.get(f"/v1/history/{record['id']}").json()
    assert [event["action"] for event in told["events"]] == ["add", "forget"]
    assert told["chain"] == [record["id"]]


@pytest.mark.parametrize("said", [{}, {"text": "x", "by": "y"}])
def test_supersede_needs_a_text_or_a_record(api, add, said):
    """Not both, and not none."""
    record = add("To be replaced.")
    refused(api.post("/v1/supersede", json={"id": record["id"], **said}), 400, "usage")


def test_supersession_can_have_an_earlier_date(api, add):
    """As of an earlier time, the old record is valid."""
    old = add("Lunch is at noon.", happened_at="2020-01-01")
    new = api.post("/v1/supersede", json={"id": old["id"], "text": "Lunch is at one.", "at": "2021-01-01"}).json()
    assert new["happened_at"] == "2021-01-01T00:00:00Z"
    assert api.get(f"/v1/records/{old['id']}").json()["superseded_at"] == "2021-01-01T00:00:00Z"
    refused(api.post("/v1/supersede", json={"id": new["id"], "text": "x", "at": "someday"}), 400, "usage")


def test_records_are_listed_newest_first_in_pages(api, add):
    """Filters apply, pages follow each other, and nothing is listed twice."""
    for number in range(5):
        add(f"Listed {number}.", category="listed", tags=["odd" if number % 2 else "even", "all"],
            happened_at=f"2025-01-0{number + 1}")  # fmt: skip

    def listed(**filters):
        answer = api.get("/v1/records", params={"category": "listed", **filters})
        assert answer.status_code == 200, answer.text
        return [record["text"] for record in answer.json()["records"]]

    assert listed() == [f"Listed {number}." for number in (4, 3, 2, 1, 0)]
    assert listed(limit=2, offset=2) == ["Listed 2.", "Listed 1."]
    assert listed(tag=["odd", "all"]) == ["Listed 3.", "Listed 1."]
    assert listed(category=["listed", "other"], kind="fact", since="2025-01-02", until="2025-01-04") == [
        "Listed 2.", "Listed 1.",
    ]  # fmt: skip
    assert listed(kind="chunk") == listed(path="notes") == listed(tag="none") == listed(offset=1_000_000) == []
    page = api.get("/v1/records", params={"limit": 1}).json()
    assert set(page) == {"records", "limit", "offset"}
    assert (page["limit"], page["offset"]) == (1, 0)


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=1001", "limit=-1", "limit=x", "limit=1e400", "limit=1.5", f"limit={'9' * 5000}", "offset=-1",
     "offset=99999999999999999999", "kind=outside", "superseded=perhaps", f"user={'x' * 1001}",
     "&".join(["tag=a"] * 101), "tags=x", "limt=1"],
)  # fmt: skip
def test_invalid_list_request_is_refused(api, query):
    """With 422, and never more than the limit."""
    refused(api.get(f"/v1/records?{query}"), 422, "invalid")


def test_unknown_parameter_is_refused_on_every_route(api, askers, add):
    """Like an unknown field of a body, and only after the token was checked; all known ones are accepted."""
    key = add("A heron stands in the reeds.")["id"]
    for method, address in (
        ("GET", "/v1/records"), ("GET", f"/v1/records/{key}"), ("DELETE", f"/v1/records/{key}"), ("GET", "/v1/status"),
        ("GET", f"/v1/reading/{key}"), ("GET", f"/v1/related/{key}"), ("GET", f"/v1/history/{key}"),
        ("GET", "/v1/facets"), ("GET", "/v1/changes"), ("POST", "/v1/search"), ("GET", "/metrics"),
    ):  # fmt: skip
        error = refused(api.request(method, f"{address}?nothing=1"), 422, "invalid")
        assert "query.nothing" in error["message"]
    assert api.get(f"/v1/records/{key}?user=").status_code == 200
    assert api.get(f"/v1/related/{key}?limit=1&user=").status_code == 200
    assert api.get("/v1/changes?after=0&wait=0").status_code == 200
    assert api.get("/v1/records?limit=3&tag=a&any_scope=true").status_code == 200
    refused(askers.server.client().get("/v1/records?nothing=1"), 401, "unauthorized")


def test_invalid_time_in_a_list_request_is_refused(api):
    """Times are checked where they are parsed."""
    refused(api.get("/v1/records?since=yesterdayish"), 400, "usage")


def test_superseded_records_are_listed_on_request(api, add):
    """Otherwise only the current record."""
    old = add("Old listing.", category="replaced")
    new = api.post("/v1/supersede", json={"id": old["id"], "text": "New listing."}).json()
    ids = [record["id"] for record in api.get("/v1/records?category=replaced").json()["records"]]
    both = [record["id"] for record in api.get("/v1/records?category=replaced&superseded=true").json()["records"]]
    assert (ids, set(both)) == ([new["id"]], {old["id"], new["id"]})


def test_owner_can_name_scopes(api, add):
    """One user, every scope, or only global records."""
    add("Nobody's.", category="scoped")
    add("Ada's own.", category="scoped", scope={"user": "ada"})
    add("Bob's own.", category="scoped", scope={"user": "bob", "session": "s"})

    def texts(**scope):
        found = api.get("/v1/records", params={"category": "scoped", **scope}).json()["records"]
        return {record["text"] for record in found}

    assert texts() == {"Nobody's."}
    assert texts(user="ada") == {"Nobody's.", "Ada's own."}
    assert texts(user="bob", session="s") == {"Nobody's.", "Bob's own."}
    assert len(texts(any_scope="true")) == 3


def test_short_id_is_accepted_on_every_route(api, add):
    """Answers name the whole id; a part that several records share is refused with their short ids."""
    ids = [f"2f1c9a10-6f0e-4c53-9d8e-1b0a5a3e7c2{number}" for number in (1, 2)]
    record, other = add("A first thing.", id=ids[0]), add("A second thing.", id=ids[1])
    short = record["short_id"]
    assert api.get(f"/v1/records/{short}").json()["id"] == record["id"]
    assert api.patch(f"/v1/records/{short}", json={"title": "First"}).json()["id"] == record["id"]
    assert api.get(f"/v1/history/{short}").json()["chain"] == [record["id"]]
    assert api.get(f"/v1/related/{short}").json()["id"] == record["id"]
    assert api.delete(f"/v1/records/{short}").json()["forgotten"] == [record["id"]]
    assert api.post("/v1/undo", json={"id": short}).json()["record"]["id"] == record["id"]
    error = refused(api.get("/v1/records/2f1c9a10"), 400, "ambiguous_id")
    assert short in error["message"]
    assert other["short_id"] in error["message"]
    assert api.post("/v1/supersede", json={"id": short, "by": other["short_id"]}).json()["id"] == other["id"]


@pytest.mark.ci
def test_similar_fact_is_named(api, add):
    """A new fact comes with the earlier one that it contradicts, once a search has measured the model's cosines."""
    old = add("The mayor of Springfield is Quimby.")
    api.post("/v1/search", json={"query": "mayor"})
    text = "The mayor of Springfield is Simpson."
    assert "similar" not in api.post("/v1/records", json={"text": text}).json()  # nobody asked
    new = api.post("/v1/records?similar=true", json={"text": text}).json()
    assert new["similar"] == {name: old[name] for name in ("id", "short_id", "text")} | {"replaceable": True}
    assert api.post("/v1/supersede", json={"id": new["similar"]["id"], "by": new["id"]}).status_code == 200
