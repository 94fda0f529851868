from __future__ import annotations

import sys
from pathlib import Path

import pytest

from recollect.config import Settings
from recollect.config.settings import OpenAISettings
from recollect.errors import UsageError
from recollect.models.embedders import EMBEDDERS, embedder_specs, open_embedder
from recollect.registry import Entry, Registry


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package that adds two embedders, one under a built-in name."""
    about = tmp_path / "acme-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[recollect.embedders]\nacme = acme_embedders:opened\nhashing = acme_embedders:opened\n"
    )
    (tmp_path / "acme_embedders.py").write_text("def opened(spec):\n    return (spec, 1)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "acme_embedders", raising=False)
    return tmp_path


def test_built_in_embedders_are_listed():
    """The default first."""
    assert EMBEDDERS.names()[:8] == [
        "arctic-embed-s",
        "bge-small-en",
        "small-embedder",
        "hashing",
        "openai",
        "ollama",
        "fastembed",
        "sentence-transformers",
    ]


def test_unknown_name_lists_the_known_ones():
    """The error lists the names that can be given."""
    with pytest.raises(
        UsageError, match=r"unknown embedder 'word2vec'; available: arctic-embed-s, .*hashing"
    ) as caught:
        open_embedder("word2vec:large")
    assert "recollect.embedders" in caught.value.hint


def test_a_reranker_cannot_be_opened_as_an_embedder():
    """A model of another kind is not among the names."""
    with pytest.raises(UsageError, match="unknown embedder 'minilm-l12-reranker'"):
        open_embedder("minilm-l12-reranker")


def test_package_adds_an_embedder(foreign):
    """A name from an entry point is listed, loaded and called with the whole spec."""
    assert "acme" in EMBEDDERS.names()
    assert open_embedder("acme:large") == ("acme:large", 1)


def test_package_cannot_replace_a_built_in_embedder(foreign):
    """The name is listed once."""
    assert open_embedder("hashing").name == "hashing:256"
    assert EMBEDDERS.names().count("hashing") == 1


def test_package_without_its_module_is_named(foreign):
    """A usage error that names what is missing."""
    (foreign / "acme_embedders.py").write_text("import acme_core\n")
    with pytest.raises(UsageError, match="the embedder 'acme' needs the package 'acme_core'") as caught:
        open_embedder("acme")
    assert caught.value.hint == "pip install acme_core"


@pytest.mark.parametrize(
    ("spec", "package", "extra"),
    [
        ("fastembed:BAAI/bge-small-en-v1.5", "fastembed", "fastembed"),
        ("sentence-transformers:all-MiniLM-L6-v2", "sentence_transformers", "sentence-transformers"),
    ],
)
def test_missing_package_names_the_extra(monkeypatch, spec, package, extra):
    """The error names the package and the extra to install."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=f"needs the package '{package}'") as caught:
        open_embedder(spec)
    assert caught.value.hint == f"pip install 'recollect-search[{extra}]'"


def test_function_that_wants_more_than_a_spec_is_a_usage_error(offer):
    """The error names what it wants."""
    offer("recollect.embedders", "acme", "def open(spec, *, colour): ...\n")
    with pytest.raises(UsageError, match=r"acme cannot be opened with these options.*colour"):
        open_embedder("acme")


def test_listing_imports_nothing():
    """Loading does."""
    registry: Registry[object] = Registry("thing", {"page": Entry("this:d")}, "recollect.things")
    sys.modules.pop("this", None)
    assert registry.names() == ["page"]
    assert "this" not in sys.modules


def test_broken_import_of_ours_is_not_reported_as_missing():
    """A missing module of this project is a bug, not a package to install."""
    registry: Registry[object] = Registry(
        "thing", {"lost": Entry("recollect.no_such_module:x", "all")}, "recollect.things"
    )
    with pytest.raises(ModuleNotFoundError, match=r"recollect\.no_such_module"):
        registry.load("lost")


def test_package_gets_the_settings_if_it_has_the_parameter(offer):
    """A function without a parameter `settings` is called without."""
    code = "OPENED = []\n\ndef open(spec, *, settings=None):\n    OPENED.append(settings)\n"
    package = offer("recollect.embedders", "acme", code)
    settings = Settings(openai=OpenAISettings(base_url="http://localhost:1/v1"))
    open_embedder("acme:large", settings=settings)
    assert [settings] == package.OPENED
    assert open_embedder("hashing:16", settings=settings).name == "hashing:16"


def test_endpoint_of_the_settings_is_used(server):
    """`openai:MODEL` takes address, prefixes and dimension from `[openai]`."""
    settings = Settings(openai=OpenAISettings(base_url=server.url, query_prefix="query: ", dimensions=32))
    assert open_embedder("openai:tide", settings=settings).query("low water").shape == (32,)
    assert server.asked[0].body["input"] == ["query: low water"]


def test_completion_offers_every_embedder(offer):
    """From the registry, those of packages too."""
    offer("recollect.embedders", "acme", "open = None")
    words = embedder_specs()
    assert {"arctic-embed-s", "none", "hashing", "openai:", "sentence-transformers:", "acme"} <= set(words)
    assert {word.rstrip(":") for word in words} == {*EMBEDDERS.names(), "none"}
