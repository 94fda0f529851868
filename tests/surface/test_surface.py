"""The public surface is pinned: Python names and signatures, commands and flags, JSON shapes, HTTP and MCP schemas.

A change here is deliberate: `UPDATE_SURFACE=1 pytest tests/surface` writes the files anew, and the diff is reviewed.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import click
import pytest

import recollect
from recollect import Memory, errors, mcp, testing
from recollect.cli import app, main
from recollect.config import Settings
from recollect.web.access import Tokens
from recollect.web.app import build

FOLDER = Path(__file__).parent


def check(name: str, text: str) -> None:
    """Compare with the stored file, or write it where UPDATE_SURFACE is set."""
    place = FOLDER / name
    if os.environ.get("UPDATE_SURFACE"):
        place.write_text(text, encoding="utf-8")
    stored = place.read_text(encoding="utf-8")
    diff = difflib.unified_diff(stored.splitlines(), text.splitlines(), "pinned", "now", lineterm="", n=1)
    assert text == stored, "\n".join(["the public surface changed:", *diff])


def test_python_names_and_signatures() -> None:
    """Every public name, its parameters, its fields and its methods are those that were pinned."""
    lines = [line for name in sorted(recollect.__all__) for line in _python(name, getattr(recollect, name))]
    lines += [line for name in sorted(testing.__all__) for line in _python(f"testing.{name}", getattr(testing, name))]
    kinds = (kind for kind in vars(errors).values() if isinstance(kind, type))
    lines += [f"errors.{kind.__name__} code={kind.code} exit={kind.exit_code}" for kind in kinds]
    check("python.txt", "\n".join(lines) + "\n")


def test_commands_and_flags() -> None:
    """Every command and every flag is one that was pinned."""
    check("commands.txt", "\n".join(_commands(app, "recollect")) + "\n")


def test_settings() -> None:
    """Every setting and its default are those that were pinned."""
    check("settings.txt", "\n".join(sorted(_flat_values(dataclasses.asdict(Settings()), ""))) + "\n")


def test_json_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What `--json` prints has the fields and types that were pinned."""
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "hashing:64")
    monkeypatch.setenv("RECOLLECT_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("RECOLLECT_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("# Tea\n\nAda drinks green tea in the garden.\n")
    (tmp_path / "notes" / "b.md").write_text("# Garden\n\nTea grows beside [[a]], not in [[c]].\n")
    both = "Tea grows beside [[a]], not in [[c]]. Ada drinks green tea in the garden."
    (tmp_path / "notes" / "similar.md").write_text(f"# Garden\n\n{both}\n")
    (tmp_path / "lists.json").write_text('{"results": [{"id": "a", "rank": 1}, {"id": "b", "rank": 2}]}')

    def shape_of(*words: str, stdin: str = "") -> Any:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"))
        code = main([*words, "--json"])
        captured = capsys.readouterr()
        return {"exit": str(code), "out": _read(captured.out), "error": _read(captured.err)}

    key = {"id": "key-1"}
    many = json.dumps({"text": "Ada likes tea.", "scope": {"user": "ada"}, "tags": ["taste"]})
    commands: dict[str, Callable[[], Any]] = {
        "index": lambda: shape_of("index", "notes"),
        "add": lambda: shape_of("add", "The spare key is under the blue pot.", "--id", key["id"], "--tag", "home"),
        "add -": lambda: shape_of("add", "-", stdin=many),
        "supersede": lambda: shape_of("supersede", key["id"], "--text", "The spare key is with Anneke."),
        "search": lambda: shape_of("search", "where is the spare key?", "--confidence", "--explain"),
        "search nothing": lambda: shape_of("search", "tea", "--user", "ada", "--category", "none such"),
        "recall": lambda: shape_of("recall", "green tea"),
        "why-not": lambda: shape_of("why-not", "where is the spare key?", key["id"]),
        "related": lambda: shape_of("related", "notes/b.md"),
        "related, linked from": lambda: shape_of("related", "notes/a.md"),
        "get": lambda: shape_of("get", key["id"]),
        "get unknown": lambda: shape_of("get", "no such id"),
        "list": lambda: shape_of("list"),
        "edit": lambda: shape_of("edit", key["id"], "--title", "Key"),
        "history": lambda: shape_of("history", key["id"]),
        "undo": lambda: shape_of("undo", key["id"]),
        "forget": lambda: shape_of("forget", key["id"]),
        "fuse": lambda: shape_of("fuse", "lists.json", "lists.json"),
        "overlap": lambda: shape_of("overlap", "tea"),
        "embed": lambda: shape_of("embed"),
        "status": lambda: shape_of("status"),
        "config show": lambda: shape_of("config", "show"),
        "model list": lambda: shape_of("model", "list"),
        "token add": lambda: shape_of("token", "add", "ada"),
        "token list": lambda: shape_of("token", "list"),
        "export": lambda: shape_of("export", "moved.jsonl"),
        "import": lambda: shape_of("import", "moved.jsonl"),
        "backup": lambda: shape_of("backup", "moved.zip"),
        "restore": lambda: shape_of("restore", "moved.zip", "--to", "restored.db"),
        "migrate --dry-run": lambda: shape_of("migrate", "--language", "german", "--dry-run"),
        "migrate": lambda: shape_of("migrate", "--language", "german"),
        "migrate --abandon": lambda: shape_of("migrate", "--abandon"),
    }
    lines = [line for name, run in commands.items() for line in sorted(set(_flat(run(), f"{name} |")))]
    check("json.txt", "\n".join(lines) + "\n")


def test_http_routes_and_fields(tmp_path: Path) -> None:
    """Every HTTP route with its parameters and the fields of its bodies and answers is one that was pinned."""
    with Memory.open(tmp_path / "memory.db", embedder="none", settings=Settings()) as memory:
        document = build(memory, Tokens(tmp_path / "tokens.json")).openapi()
    routes = [(f"{verb.upper()} {path}", about) for path, of in document["paths"].items() for verb, about in of.items()]
    check(
        "http.txt", "\n".join(line for name, about in sorted(routes) for line in _route(name, about, document)) + "\n"
    )


def test_mcp_tools_and_fields(tmp_path: Path) -> None:
    """Every MCP tool with its arguments is one that was pinned."""
    opened = Memory.open(tmp_path / "memory.db", embedder="none", settings=Settings())
    with opened as memory, ThreadPoolExecutor(1) as pool:  # a browser test leaves an event loop running in this thread
        tools = pool.submit(anyio.run, mcp.build(memory).list_tools).result()
    lines = []
    for tool in sorted(tools, key=lambda tool: tool.name):
        about = tool.model_dump(mode="json", by_alias=True)
        lines.append(tool.name)
        lines += [f"  in {line}" for line in _fields(about["inputSchema"], about["inputSchema"])]
    check("mcp.txt", "\n".join(lines) + "\n")


def _python(name: str, thing: Any) -> Iterator[str]:
    yield f"{name}{inspect.signature(thing)}" if callable(thing) else f"{name}: {type(thing).__name__}"
    if not isinstance(thing, type) or issubclass(thing, testing.StoreContract):
        return
    for member, value in sorted(inspect.getmembers(thing)):
        if not member.startswith("_") and not hasattr(BaseException, member):
            yield f"  {member}{inspect.signature(value)}" if callable(value) else f"  {member}"


def _commands(command: click.Command, name: str) -> Iterator[str]:
    yield name
    for param in command.params:
        kind = getattr(param.type, "name", "")
        words = " ".join((*param.opts, *param.secondary_opts)) if isinstance(param, click.Option) else param.name
        more = " many" if param.multiple or param.nargs != 1 else ""
        flag = " flag" if getattr(param, "is_flag", False) else ""
        yield f"  {words} {kind}{flag}{more}{' required' if param.required else ''}"
    if isinstance(command, click.Group):
        context = click.Context(command)
        for child in sorted(command.list_commands(context)):
            found = command.get_command(context, child)
            assert found is not None
            yield from _commands(found, f"{name} {child}")


def _read(text: str) -> Any:
    """A JSON document, or the list of JSON lines; None where there is none."""
    lines = [line for line in text.splitlines() if line.startswith(("{", "["))]
    try:
        return json.loads(text)
    except ValueError:
        return [json.loads(line) for line in lines] or None


def _flat(value: Any, path: str) -> Iterator[str]:
    """Each field of a document with its type; exit codes are kept as they are."""
    match value:
        case dict() if value:
            for name, item in value.items():
                yield from _flat(item, f"{path} exit {item}" if name == "exit" else f"{path} {name}")
        case list() if value:
            for item in value:
                yield from _flat(item, f"{path}[]")
        case _:
            yield f"{path}: {type(value).__name__}"


def _route(name: str, about: dict[str, Any], document: dict[str, Any]) -> Iterator[str]:
    yield name
    for parameter in about.get("parameters", ()):
        yield f"  {parameter['in']} {parameter['name']}"
    bodies = [("body", about["requestBody"])] if "requestBody" in about else []
    answers = [(f"answer {status}", answer) for status, answer in about["responses"].items() if status < "300"]
    for label, part in (*bodies, *answers):
        for content in part.get("content", {}).values():
            yield from (f"  {label} {line}" for line in _fields(content.get("schema", {}), document))


def _fields(schema: dict[str, Any], document: dict[str, Any], path: str = "", depth: int = 6) -> Iterator[str]:
    """The dotted names of all properties of a schema; how a type is written down may differ between versions."""
    while "$ref" in schema:
        schema = _at(document, schema["$ref"])
    for name, below in schema.get("properties", {}).items():
        yield f"{path}{name}"
        if depth:
            yield from _fields(below, document, f"{path}{name}.", depth - 1)
    choices = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
    items = [schema["items"]] if isinstance(schema.get("items"), dict) else []
    for below in (*choices, *items):
        if depth:
            yield from _fields(below, document, f"{path}{'[].' if items else ''}", depth - 1)


def _at(document: dict[str, Any], reference: str) -> dict[str, Any]:
    for part in reference.removeprefix("#/").split("/"):
        document = document[part]
    return document


def _flat_values(value: dict[str, Any], path: str) -> Iterator[str]:
    for name, item in value.items():
        if isinstance(item, dict) and item:
            yield from _flat_values(item, f"{path}{name}.")
        else:
            yield f"{path}{name} = {item!r}"
