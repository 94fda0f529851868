"""The command line as a process: speed of a cold start, pipes, and standard streams."""

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from support.timing import child_cpu_seconds, within

from recollect.models.catalogue import DEFAULT, MODELS

RECOLLECT = Path(sys.executable).parent / "recollect"


@pytest.fixture
def environment(tmp_path):
    return {**os.environ, "RECOLLECT_STORE": str(tmp_path / "store.db"), "HOME": str(tmp_path)}


def run(environment, *words, **options):
    return subprocess.run(
        [RECOLLECT, *words], env=environment, capture_output=True, text=True, timeout=60, check=False, **options
    )


@pytest.mark.ci
def test_help_loads_nothing_heavy(environment):
    """`--help` imports neither numpy, apsw, regex nor onnxruntime, and takes less than 0.4 s of processor time."""
    code = (
        "import sys\nfrom recollect.cli import main\nmain(['--help'])\n"
        "print(sorted({'numpy','apsw','regex','onnxruntime','httpx2','tokenizers','yaml'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert shown.stdout.splitlines()[-1] == "[]"
    assert child_cpu_seconds(lambda: run(environment, "--help")) < 0.4


def test_import_recollect_loads_no_third_party_package():
    """`import recollect` and `recollect.fuse` need the standard library alone."""
    code = (
        "import sys\nbefore = set(sys.modules)\nimport recollect\nrecollect.fuse({'a': ['x']})\n"
        "names = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(names - set(sys.stdlib_module_names) - {'recollect'}))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def loaded(environment, *words):
    """The modules that a command has loaded when it ends."""
    code = f"import sys\nfrom recollect.cli import main\nmain({list(words)!r})\nprint(*sorted(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return set(shown.stdout.splitlines()[-1].split())


NOT_FOR_KEYWORDS = {
    "onnxruntime", "tokenizers", "httpx2", "pydantic", "yaml", "tomlkit", "markdown_it", "watchfiles", "filelock",
    "statistics", "difflib", "email", "socket", "importlib.metadata", "numpy.random", "numpy.ma", "numpy.typing",
    "logging", "concurrent.futures", "signal", "shlex", "string",
    "recollect.models.onnx", "recollect.models.openai", "recollect.models.fetch", "recollect.memory.recall",
    "recollect.memory.explain", "recollect.sources.external", "recollect.sources.transports",
    "recollect.ingest", "recollect.evaluation", "recollect.web", "recollect.mcp",
}  # fmt: skip


def test_keyword_search_loads_only_what_it_runs(environment):
    """A keyword search imports no model, no HTTP client and none of the other commands' modules."""
    run(environment, "add", "tea with Ada", "--embedder", "none")
    modules = loaded(environment, "search", "tea", "--embedder", "none")
    assert sorted(NOT_FOR_KEYWORDS & modules) == []
    own = {name for name in modules if name.startswith("recollect")}
    assert len(own) <= 75, sorted(own)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in Linux's /proc")
def test_numpy_starts_no_threads_and_passes_no_variable_on(environment):
    """A command that has imported numpy has one thread, and child processes get the variable of the user, if any."""
    variable = "OPENBLAS_NUM_THREADS"
    code = (
        "import os, sys\nfrom recollect.cli import main\nmain(['status'])\n"
        f"print('numpy' in sys.modules, os.environ.get({variable!r}), len(os.listdir('/proc/self/task')))"
    )
    cores = str(min(2, len(os.sched_getaffinity(0))))
    for chosen, threads in ((None, "1"), ("1", "1"), ("2", cores)):
        own = {name: value for name, value in environment.items() if name != variable}
        own |= {variable: chosen} if chosen else {}
        shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=own)
        assert shown.stdout.splitlines()[-1] == f"True {chosen} {threads}"


@pytest.mark.ci
def test_help_and_cold_keyword_search_are_fast(environment):
    """A new process prints its help in 0.06 s and answers in 0.15 s of processor time, on a quiet machine."""
    run(environment, "add", "tea with Ada", "--embedder", "none")
    assert within(child_cpu_seconds(lambda: run(environment, "--help"), 10), 0.06)
    took = child_cpu_seconds(lambda: run(environment, "search", "tea", "--embedder", "none"), 10)
    assert took < 1.0
    assert within(took, 0.15)


BARE = """
import hashlib, pathlib, sys
import numpy, onnxruntime, tokenizers
folder = pathlib.Path(sys.argv[1])
with (folder / "model.onnx").open("rb") as file:
    hashlib.file_digest(file, "sha256")
tokens = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode("hot drink")
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
numbers = (tokens.ids, tokens.attention_mask, tokens.type_ids)
session.run(None, {entry.name: numpy.array([row]) for entry, row in zip(session.get_inputs(), numbers)})
"""


@pytest.mark.ci
def test_cold_hybrid_search_is_fast(environment, tmp_path):
    """A new process uses less processor time than a keyword search and its libraries, and 0.35 s on a quiet machine.

    The libraries load the same model and compute one vector.
    """
    model_home = {**environment, "HOME": os.environ["HOME"], "PYTHONPYCACHEPREFIX": str(tmp_path / "compiled")}
    model_home.pop("PYTHONDONTWRITEBYTECODE", None)
    run(model_home, "add", "tea with Ada")
    bare = [sys.executable, "-c", BARE, MODELS[DEFAULT].folder]
    search = partial(run, model_home, "search", "tea")
    actions = (
        search,
        partial(search, "--embedder", "none"),
        partial(subprocess.run, bare, check=True, env={**model_home, "OPENBLAS_NUM_THREADS": "1"}),
    )
    assert {search().returncode, actions[1]().returncode} == {0}
    turns = [  # in turns, so that a busy machine slows all three
        [child_cpu_seconds(action, 1) for action in actions] for _ in range(6)
    ]
    hybrid, keyword, libraries = map(min, zip(*turns, strict=True))
    assert hybrid < keyword + libraries
    assert "numpy.ma" not in loaded(model_home, "search", "hot drink")
    assert within(min(seconds(model_home, "search", "hot drink") for _ in range(5)), 0.35)


def seconds(environment, *words):
    """How long a command takes by the clock."""
    started = time.monotonic()
    run(environment, *words)
    return time.monotonic() - started


def test_web_application_loads_the_mcp_sdk_for_the_first_agent():
    """Importing the application imports neither the SDK of MCP nor numpy."""
    heavy = {"mcp", "numpy", "matplotlib", "httpx2"}
    code = f"import sys\nimport recollect.web.app\nprint(sorted({heavy} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_mcp_server_loads_no_reader_of_files():
    """The server for agents imports nothing of what indexes files, and no numpy."""
    code = "import sys\nimport recollect.mcp\nprint(sorted({'recollect.ingest', 'numpy'} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


@pytest.mark.ci
def test_data_goes_to_standard_output_and_messages_to_standard_error(environment):
    """With `--json` standard output is one JSON document; an error leaves it empty."""
    run(environment, "add", "tea", "--embedder", "none")
    found = run(environment, "search", "tea", "--embedder", "none", "--json")
    assert found.stdout.startswith("{")
    assert found.stderr == ""
    wrong = run(environment, "search", "tea", "--fusion", "magic", "--json")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith('{"error"')


@pytest.mark.ci
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_closed_pipe_is_no_error(environment, unbuffered):
    """`recollect … | head` ends without a message, though the answer is larger than a pipe."""
    environment = {**environment, "PYTHONUNBUFFERED": unbuffered}
    lines = "\n".join(json.dumps({"text": f"tea number {n} {'and more ' * 40}"}) for n in range(400))
    run(environment, "add", "-", "--embedder", "none", input=lines)
    command = f"set -o pipefail; '{RECOLLECT}' list --limit 400 --json --embedder none | head -c 1"
    shown = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "[", "")


@pytest.mark.ci
def test_unwritable_output_is_exit_3(environment):
    """A full disk behind standard output is an error message."""
    run(environment, "add", "tea", "--embedder", "none")
    command = f"'{RECOLLECT}' list --json --embedder none >/dev/full"
    shown = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert shown.returncode == 3
    assert "cannot write the output" in shown.stderr
    assert "Traceback" not in shown.stderr


def test_python_dash_m_works(environment):
    """`python -m recollect` is the same program."""
    shown = subprocess.run(
        [sys.executable, "-m", "recollect", "--version"], capture_output=True, text=True, check=True, env=environment
    )
    assert shown.stdout.startswith("recollect, version ")
