"""Places as they are shown: without passwords, otherwise as written."""

import pytest

from recollect import config
from recollect.config import has_secret, shown_place
from recollect.errors import ConfigError

SECRETS = [
    ("postgresql://ada:quiet@host:5432/memory", "postgresql://ada@host:5432/memory"),
    ("postgresql://ada:qu@iet:x@host/memory", "postgresql://ada@host/memory"),
    ("postgresql://ada@host/memory?password=quiet&schema=notes", "postgresql://ada@host/memory?schema=notes"),
    ("postgresql:///memory?sslpassword=quiet", "postgresql:///memory"),
    ("postgresql://host/m?read=postgresql%3A//r%3Aquiet%40other/m", "postgresql://host/m?read=postgresql://r@other/m"),
    ("lancedb://s3://key:quiet@bucket/x?truth=/a%20b", "lancedb://s3://key@bucket/x?truth=/a%20b"),
    ("lancedb:///x?endpoint=http://ada:quiet@minio", "lancedb:///x?endpoint=http://ada@minio"),
    ("postgresql:ada:quiet@host", "postgresql:ada@host"),
    ("postgresql://ada:qui?et@host/memory", "postgresql://ada@host/memory"),
]

PLAIN = [
    "memory.db", ":memory:", "/home/ada:x@y/memory.db", "sqlite:///home/ada/memory.db", "lancedb:///srv/memory?batch=10",
    "postgresql://ada@host/memory?host=/run/pg&read=postgresql://ada@other/memory", "http://wiki/?q={query}&n=%20",
    "postgresql://host/memory?",
]  # fmt: skip


@pytest.mark.parametrize(("place", "shown"), SECRETS)
def test_password_is_not_shown(place, shown):
    """Before the host, as a parameter, or in a nested URL."""
    assert (shown_place(place), has_secret(place)) == (shown, True)


@pytest.mark.parametrize("place", PLAIN)
def test_place_without_a_password_is_unchanged(place):
    """To the letter."""
    assert (shown_place(place), has_secret(place)) == (place, False)


@pytest.mark.parametrize("place", ["postgresql:/memory", "lancedb:memory", "postgres:ada:quiet@host/memory"])
def test_url_without_slashes_is_not_a_file(place):
    """It would leave a folder of that name."""
    with pytest.raises(ConfigError, match="--store must be a file, or a URL") as caught:
        config.load(flags={"store": place}, environment={})
    assert "quiet" not in str(caught.value)


def test_external_recollect_may_be_named_by_a_url(tmp_path):
    """A path is relative to the settings file; a URL is unchanged, and shown without its password."""
    file = tmp_path / "config.toml"
    table = '[[sources]]\nname = "{0}"\nkind = "recollect"\nstore = "{1}"\n'
    file.write_text(table.format("one", "other.db") + table.format("two", "postgresql://ada:quiet@host/memory"))
    sources = config.load(config=file, environment={}).settings.sources
    assert [source.options["store"] for source in sources] == [
        str(tmp_path / "other.db"), "postgresql://ada:quiet@host/memory",
    ]  # fmt: skip
    assert dict(config.shown(sources))["sources.two.store"] == "postgresql://ada@host/memory"
