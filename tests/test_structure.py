"""The shape of the source: a name means one thing, and a module is one subject of a readable size."""

import ast
from collections import defaultdict
from pathlib import Path

from support import ROOT

SOURCE = ROOT / "src" / "recollect"
MODULES = sorted(SOURCE.rglob("*.py"))
LONGEST = 450
"""Lines of a module."""

SAME_PART = {"RecollectRetriever"}
"""The same class for two frameworks: LangChain and LlamaIndex."""


def test_no_class_name_means_two_things():
    """A public class name stands for one class in the whole package."""
    places = defaultdict(set)
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(path.relative_to(SOURCE).as_posix())
    assert len(places) > 200
    assert {name: where for name, where in places.items() if len(where) > 1 and name not in SAME_PART} == {}


def test_no_file_name_means_two_things():
    """Files of the same name are the same part of different stores, with the types or rules that these share."""
    places = defaultdict(set)
    for path in MODULES:
        if path.stem not in ("__init__", "__main__"):
            folder = path.relative_to(SOURCE).parent
            shared = (
                {Path("stores"), Path("types")} if path.stem in ("records", "contents", "rows", "health") else set()
            )
            places[path.stem].add("stores" if folder.parts[:1] == ("stores",) or folder in shared else str(folder))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_no_module_is_too_long():
    """Most modules have 100 to 400 lines."""
    lengths = {str(path.relative_to(SOURCE)): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST} == {}


OPENERS = {  # modules of Python and of others that can open a connection to another machine
    "aiohttp", "asyncio.streams", "boto3", "botocore", "ftplib", "http.client", "httpcore", "httpcore2", "httpx",
    "httpx2", "imaplib", "lancedb", "poplib", "psycopg", "requests", "smtplib", "socket", "ssl", "telnetlib",
    "urllib.request", "urllib3", "websockets", "xmlrpc.client", "fastembed", "sentence_transformers", "huggingface_hub",
}  # fmt: skip
CONNECT = {
    "network/client.py": {"httpx2", "socket"},
    "stores/postgres": {"psycopg"},  # `ConnectionPool.connect` is the only call that connects
    "stores/lance/table.py": {"lancedb"},
    "models/embedders.py": {"fastembed", "sentence_transformers"},  # they download models by themselves
    "cli/serve.py": {"socket"},  # listens
    "web/middleware.py": {"socket"},  # closes connections of clients
}
ASK_FIRST = {  # the modules above that connect to others: each asks what is allowed
    "network/client.py": "check_host", "stores/postgres/connections.py": "check_host",
    "stores/lance/table.py": "check_host", "models/embedders.py": "offline", "network/wheels.py": "offline",
}  # fmt: skip
PROGRAMS = {  # modules that start programs; only pip's is known to use the network
    "network/wheels.py", "sources/transports.py", "ingest/service.py", "moving/backups.py", "process.py",
}  # fmt: skip


def _imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_one_package_makes_every_network_call():
    """A module that can open a connection is imported in `network` only, with a few exceptions."""
    wrong, used = {}, set()
    for path in MODULES:
        place = path.relative_to(SOURCE).as_posix()
        names = set(_imported(ast.parse(path.read_text(encoding="utf-8"))))
        openers = {opener for opener in OPENERS if any(f"{name}.".startswith(f"{opener}.") for name in names)}
        allowed = next((names for where, names in CONNECT.items() if place.startswith(where)), set())
        used |= {
            (where, name) for where, names in CONNECT.items() if place.startswith(where) for name in openers & names
        }
        if openers - allowed:
            wrong[place] = openers - allowed
    assert wrong == {}
    assert used == {(where, name) for where, names in CONNECT.items() for name in names}


def test_whatever_connects_asks_first():
    """The modules that connect to other machines check the host, or whether that is forbidden."""
    for place, check in ASK_FIRST.items():
        calls = {
            node.func.id
            for node in ast.walk(ast.parse((SOURCE / place).read_text(encoding="utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert check in calls, place


def test_psycopg_connects_in_one_place():
    """All connections to PostgreSQL are made by the pool, which checks the host."""
    connecting = {
        path.relative_to(SOURCE).as_posix()
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("psycopg.connect", "lancedb.connect")
    }
    assert connecting == {"stores/postgres/connections.py", "stores/lance/table.py"}


def test_few_modules_start_programs():
    """A program may use the network; each place that starts one is known."""
    starting = {
        path.relative_to(SOURCE).as_posix()
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and ast.unparse(node) in ("subprocess.Popen", "subprocess.run", "os.system")
        and isinstance(node.ctx, ast.Load)
    }
    assert starting <= PROGRAMS
    assert "network/wheels.py" in starting
