"""Names of scopes are compared as they are: no name means another, is a pattern, or reaches a query language."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from recollect import Memory, Scope
from recollect.config import Settings
from recollect.errors import UsageError

NAMES = (
    "ada", "Ada", "ADA", "ada ", "ad", "adaa", "аda", "a\u200dda", "a%", "%", "_da", "a*", "*", "a?a", "[a]da", "ada'",
    'ada"',
    "' OR '1'='1", "ada'; DROP TABLE records; --", "ada\\", "\\", "ada/bot", "../ada", "None", "null", "NULL", "0",
    "false", "{user}", "%s", "$1", "?1", "ada\n", "ada\t", unicodedata.normalize("NFC", "é"),
    unicodedata.normalize("NFD", "é"),
    "ｅ", "ß", "ss", "ﬁ", "fi", "İ", "i", "😀", "\u202eada", "x" * 1000,
)  # fmt: skip


@pytest.mark.ci
def test_no_scope_name_is_taken_for_another(place: str) -> None:
    """In SQLite and PostgreSQL, as a user and as an agent: each sees its own record and the global one."""
    with Memory.open(place, embedder="none", settings=Settings()) as memory:
        memory.add("heron of nobody", id="global")
        accepted = []
        for number, name in enumerate(NAMES):
            try:
                memory.add(f"heron number {number}", id=f"u{number}", user=name)
                memory.add(f"heron of agent {number}", id=f"a{number}", agent=name)
            except UsageError:
                continue
            accepted.append(number)
        assert len(accepted) > 35
        stored = {number: memory.get(f"u{number}").scope.user for number in accepted}
        for number, name in stored.items():
            user = memory.within(Scope(name))
            wanted = {"global", *(f"u{other}" for other in accepted if stored[other] == name)}
            assert {record.id for record in user.list()} == wanted, name
            assert {result.record.id for result in user.search("heron", limit=200).results} == wanted, name
            agent = memory.within(Scope(None, memory.get(f"a{number}").scope.agent))
            assert f"u{number}" not in {record.id for record in agent.list()}
        assert len(set(stored.values())) >= len(accepted) - 3, "only names with white space around them are one"


@pytest.mark.parametrize("name", ["", " ", "\n", "\u3000"])
def test_blank_scope_name_is_refused(tmp_path: Path, name: str) -> None:
    """It would look like no scope."""
    with Memory.open(tmp_path / "m.db", embedder="none", settings=Settings()) as memory:
        with pytest.raises(UsageError):
            memory.add("heron", user=name)
        assert memory.list(any_scope=True) == []


def test_path_filter_of_many_stars_is_fast(tmp_path: Path) -> None:
    """A careless matcher would try every way to match it, and never end."""
    with Memory.open(tmp_path / "m.db", embedder="none", settings=Settings()) as memory:
        folder = tmp_path / "notes"
        folder.mkdir()
        for number in range(20):
            (folder / f"{'a' * 120}{number}.md").write_text(f"heron {number}")
        memory.index(folder)
        for glob in ("*a" * 40 + "b", "*" * 500 + "b", "[a-z]*" * 30 + "!", "?*" * 60 + "b", "**/" * 40 + "b"):
            assert memory.search("heron", path=glob).results == ()
        assert len(memory.search("heron", path="*a*", limit=50).results) == 20
