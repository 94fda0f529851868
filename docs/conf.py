"""How the documentation site is built: `make docs`."""

from importlib.metadata import version as _version

from pygments.lexers.data import JsonLexer
from sphinx.application import Sphinx

project = "Recollect"
author = "The Recollect authors"
version = release = _version("recollect-search")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "Recollect"
myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
suppress_warnings = ["misc.highlighting_failure"]  # psql's commands among SQL


def setup(app: Sphinx) -> None:
    """Highlight JSON Lines as JSON."""
    app.add_lexer("jsonl", JsonLexer)
