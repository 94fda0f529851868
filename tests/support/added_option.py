"""Prints as JSON what every surface offers when declarations are added to the table of options, and nothing else.

Run as a process of its own: `python added_option.py OPTION FILTER FOLDER`. The declarations are put into the source of
`recollect.options` before anything else of the package is imported.
"""

import importlib.util
import json
import sys
from pathlib import Path

PLACES = ("    limit: int = option(", '    Option(\n        (), "Only records of any of these cat')
"""Lines of the table before which a search option and a filter are added."""


def add(*declarations: str) -> None:
    """Import `recollect.options` with these declarations in its source."""
    spec = importlib.util.find_spec("recollect.options")
    source = Path(spec.origin).read_text(encoding="utf-8")
    for place, declaration in zip(PLACES, declarations, strict=True):
        assert source.count(place) == 1, place
        source = source.replace(place, declaration + place)
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    exec(compile(source, spec.origin, "exec"), module.__dict__)


def surfaces(folder: Path) -> dict:
    """What settings, Python, flags, completion, HTTP, MCP, the reference and the page have."""
    import anyio
    import click
    from click.shell_completion import ShellComplete

    from recollect import Memory, config, mcp
    from recollect.cli import app
    from recollect.web.access import Tokens
    from recollect.web.app import build
    from recollect.web.inputs import controls

    sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
    import render_reference

    def completed(*words: str) -> list[str]:
        shell = ShellComplete(app, {}, "recollect", "_RECOLLECT_COMPLETE")
        return [item.value for item in shell.get_completions(["search", "q", *words[:-1]], words[-1])]

    search = app.get_command(click.Context(app), "search")
    with Memory.open(":memory:", embedder="none", settings=config.Settings()) as memory:
        tools = {tool.name: tool for tool in anyio.run(mcp.build(memory).list_tools)}
        schemas = build(memory, Tokens(folder / "tokens.json")).openapi()["components"]["schemas"]
        return {
            "settings": config.load(environment={"RECOLLECT_SEARCH_TONE": "bold"}).settings.search.tone,
            "refused": _refusal(),
            "python": memory.prepare("", tone="bold")[1].ranking.tone,
            "docstring": [name in Memory.search.__doc__ for name in ("`tone`", "`voice`")],
            "flags": {param.name: param.help for param in search.params if param.name in ("tone", "voice")},
            "completion": [completed("--to"), completed("--tone", "b"), completed("--voice", "")],
            "http": schemas["SearchBody"]["properties"],
            "mcp": tools["memory_search"].model_dump(mode="json", by_alias=True)["inputSchema"]["properties"],
            "reference": "".join(render_reference.render().values()),
            "page": controls(),
        }


def _refusal() -> str:
    from recollect import config
    from recollect.errors import ConfigError

    try:
        config.load(environment={"RECOLLECT_SEARCH_TONE": "shrill"})
    except ConfigError as error:
        return error.message
    return ""


if __name__ == "__main__":
    add(*sys.argv[1:3])
    sys.stdout.write(json.dumps(surfaces(Path(sys.argv[3]))))
