"""What the integrations load, and when: nothing before it is used, nothing from the network."""

from __future__ import annotations

import re

import pytest
from support import DOCS

PAGES = {name: (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("frameworks",)}
BLOCKS = [
    pytest.param(code, id=f"{name}-{number}")
    for name, page in PAGES.items()
    for number, code in enumerate(re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL), 1)
]

FRAMEWORKS = (
    ("langchain", "langchain_core", "LangChain"),
    ("llamaindex", "llama_index", "LlamaIndex"),
)


@pytest.mark.parametrize(("module", "package", "name"), FRAMEWORKS)
def test_missing_framework_names_its_extra(run_sealed, module, package, name):
    """A Recollect error with the command to run."""
    ran = run_sealed(
        f"sys.modules[{package!r}] = None\n"
        "from recollect.errors import UsageError\n"
        f"try: import recollect.integrations.{module}\n"
        "except UsageError as error: print(error.message, error.hint, sep='\\n')\n"
    )
    assert ran.returncode == 0, ran.stderr
    message, hint = ran.stdout.splitlines()
    assert message.startswith(f"the retriever for {name} needs the package {package!r}")
    assert hint == f"pip install 'recollect-search[{module}]'"


@pytest.mark.ci
@pytest.mark.parametrize(("module", "package", "name"), FRAMEWORKS)
def test_framework_is_loaded_alone_and_downloads_nothing(run_sealed, tmp_path, module, package, name):
    """Neither at import nor in a search; the other framework is not loaded, and the home stays empty."""
    others = [other for _, other, _ in FRAMEWORKS if other != package]
    ran = run_sealed(
        "import recollect.integrations\n"
        f"assert not {{'langchain_core', 'llama_index'}} & sys.modules.keys()\n"
        f"from recollect.integrations.{module} import RecollectRetriever\n"
        f"assert not set({others}) & sys.modules.keys()\n"
        "from recollect import Memory\n"
        "memory = Memory.open(':memory:', embedder='hashing:64')\n"
        "memory.add('The key is under the pot.')\n"
        "retriever = RecollectRetriever(memory)\n"
        "print(len(getattr(retriever, 'invoke', None) and retriever.invoke('key') or retriever.retrieve('key')))\n"
        "memory.close()\n"
    )
    assert (ran.returncode, ran.stdout) == (0, "1\n"), ran.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.ci
@pytest.mark.parametrize("code", BLOCKS)
def test_every_python_block_of_the_page_runs(run_sealed, code):
    """As it stands, in a new folder."""
    ran = run_sealed(code)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout
