"""OpenTelemetry spans, read with its own SDK: their content, their parents, and what they never contain."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support import DOCS

from recollect import Memory
from recollect.config import Settings, SourceSettings
from recollect.errors import SearchFailed, StoreError
from recollect.memory.spans import traced

PAGE = (DOCS / "telemetry.md").read_text(encoding="utf-8")


@dataclass
class Telemetry:
    """An application's tracer, and the spans that its exporter was given."""

    tracer: Any
    exporter: Any

    @property
    def spans(self) -> list[Any]:
        return list(self.exporter.get_finished_spans())

    def one(self, name: str) -> Any:
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def ours(self, name: str) -> dict[str, Any]:
        """The attributes of that span."""
        return dict(self.one(name).attributes)

    def under(self, name: str) -> set[str]:
        """The names of that span's children."""
        parent = self.one(name).context.span_id
        return {span.name for span in self.spans if span.parent and span.parent.span_id == parent}


@pytest.fixture
def set_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Telemetry]]:
    """Sets up the SDK as an application would, until the test ends."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    providers = []

    def configure(**options: Any) -> Telemetry:
        exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False, **options)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        providers.append(provider)
        monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)  # it can be set for good only once
        return Telemetry(provider.get_tracer("application"), exporter)

    yield configure
    for provider in providers:
        provider.shutdown()


@pytest.fixture
def telemetry(set_up: Callable[..., Telemetry]) -> Telemetry:
    """An application that records every span."""
    return set_up()


@pytest.fixture
def failing(open_memory: Callable[..., Memory], stand: ModuleType) -> Memory:
    """A memory with a source that fails and repeats the query in its error."""

    def ask(asked: Any) -> Any:
        raise RuntimeError(f"cannot answer {asked.text}")

    stand.ASK["broken"] = ask
    source = SourceSettings(kind="stand", name="broken", timeout_ms=20_000)
    memory = open_memory(settings=Settings(sources=(source,)))
    memory.add("The key is under the pot.")
    return memory


def test_search_is_a_span_with_a_child_per_source(memory, telemetry):
    """Its attributes are options and counts, in numbers and setting names."""
    memory.add_many([{"text": f"Key {number}"} for number in range(5)])
    answer = memory.search("key", limit=3, fetch_k=50, fusion="rrf")
    assert telemetry.ours("recollect.search") == {
        "recollect.fusion": "rrf",
        "recollect.limit": 3,
        "recollect.fetch_k": 50,
        "recollect.results": 3,
        "recollect.mode": "hybrid",
        "recollect.grade": answer.trace.grade,
        "recollect.warnings": 0,
        "recollect.abstained": False,
    }
    assert {"recollect.source keyword", "recollect.source vector"} <= telemetry.under("recollect.search")
    assert telemetry.ours("recollect.source keyword") == {
        "recollect.source": "keyword",
        "recollect.status": "ok",
        "recollect.hits": 5,
    }
    assert telemetry.one("recollect.search").instrumentation_scope.name == "recollect"


def test_span_times_equal_the_trace(memory, telemetry):
    """Sources begin with the search and end when they answered; no child exceeds its parent."""
    memory.add("The key is under the pot.")
    answer = memory.search("key")
    whole = telemetry.one("recollect.search")
    for source in answer.trace.sources:
        part = telemetry.one(f"recollect.source {source.name}")
        assert part.start_time == whole.start_time
        assert part.end_time - part.start_time == int(source.took_ms * 1e6)
        assert part.end_time <= whole.end_time


def test_slow_stage_is_a_span(memory, telemetry, monkeypatch):
    """Stages follow each other to the end of the search; fast ones are left out."""
    from recollect.memory import spans

    memory.add("The key is under the pot.")
    monkeypatch.setattr(spans, "SHORTEST_STAGE_MS", 60_000.0)
    memory.search("key")
    assert [span.name for span in telemetry.spans if "stage" in span.name] == []
    monkeypatch.setattr(spans, "SHORTEST_STAGE_MS", 0.0)
    stages = [stage.name for stage in memory.search("key").trace.stages]
    parts = [span for span in telemetry.spans if "stage" in span.name][::-1]  # the last stage ends first
    assert [part.name for part in parts] == [f"recollect.stage {name}" for name in stages]
    assert parts[0].attributes["recollect.given"] == 1
    for earlier, later in itertools.pairwise(parts):
        assert earlier.end_time <= later.start_time + 1000 * len(parts)  # each is rounded to a millionth of a second


def test_failing_source_is_marked_without_its_reason(failing, telemetry):
    """The reason may contain the query, so it is only in the answer's trace."""
    failing.search("where is xylophone?")
    broken = telemetry.one("recollect.source broken")
    assert broken.status.status_code.name == "ERROR"
    assert dict(broken.attributes) == {
        "recollect.source": "broken",
        "recollect.status": "failed",
        "recollect.hits": 0,
    }
    assert telemetry.one("recollect.search").status.status_code.name == "UNSET"
    assert telemetry.ours("recollect.search")["recollect.warnings"] == 1


def test_error_is_recorded_by_class_and_code(failing, telemetry):
    """The exception is unchanged; the span does not have its message."""
    with pytest.raises(SearchFailed, match="xylophone"):
        failing.search("where is xylophone?", sources=["broken"])
    whole = telemetry.one("recollect.search")
    assert whole.status.status_code.name == "ERROR"
    assert whole.attributes["error.type"] == "search_failed"
    (event,) = whole.events
    assert (event.name, dict(event.attributes)) == ("exception", {"exception.type": "recollect.errors.SearchFailed"})
    failing.close()
    telemetry.exporter.clear()
    with pytest.raises(StoreError):
        failing.search("where is xylophone?")
    assert telemetry.ours("recollect.search") == {"error.type": "store"}


def test_span_is_a_child_of_the_callers_span(memory, telemetry):
    """The caller's span is current again afterwards."""
    from opentelemetry import trace

    memory.add("The key is under the pot.")
    with telemetry.tracer.start_as_current_span("request") as request:
        memory.search("key")
        assert trace.get_current_span() is request
    assert telemetry.under("request") == {"recollect.search"}


def test_parent_from_another_process_is_used(memory, telemetry):
    """A `traceparent` of a request is the trace of the search."""
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    trace_id, span_id = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    came = TraceContextTextMapPropagator().extract({"traceparent": f"00-{trace_id}-{span_id}-01"})
    token = context.attach(came)
    try:
        memory.add("The key is under the pot.")
        memory.search("key")
    finally:
        context.detach(token)
    assert {f"{span.context.trace_id:032x}" for span in telemetry.spans} == {trace_id}
    assert f"{telemetry.one('recollect.search').parent.span_id:016x}" == span_id


def test_index_embed_and_recall_are_spans(memory, telemetry, tmp_path):
    """Each has its counts, and nested operations are children."""
    folder = tmp_path / "notes"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.md").write_text(f"# Note {number}\n\nThe key is on hook {number}.\n")
    memory.index(folder)
    told = telemetry.ours("recollect.index")
    assert (told["recollect.added"], told["recollect.unchanged"], told["recollect.embedded"]) == (3, 0, 3)
    assert telemetry.under("recollect.index") == {"recollect.embed"}
    assert telemetry.ours("recollect.embed") == {"recollect.embedded": 3}
    recall = memory.recall("key", limit=2)
    assert telemetry.under("recollect.recall") == {"recollect.search"}
    assert telemetry.ours("recollect.recall") == {
        "recollect.tokens": recall.tokens,
        "recollect.citations": 2,
        "recollect.left_out": 0,
    }
    telemetry.exporter.clear()
    (folder / "0.md").unlink()
    (folder / "1.md").write_text("# Changed\n")
    memory.index(folder, dry_run=True)
    told = telemetry.ours("recollect.index")
    counts = {name: told[f"recollect.{name}"] for name in ("changed", "removed", "unchanged", "dry_run")}
    assert counts == {"changed": 1, "removed": 1, "unchanged": 1, "dry_run": True}


def test_spans_contain_no_text(failing, telemetry, tmp_path):
    """No query, record, title, tag, category, path or scope name."""
    secret = "xylophone"
    folder = tmp_path / secret
    folder.mkdir()
    (folder / f"{secret}.md").write_text(f"# {secret}\n\nThe {secret} is here.\n")
    failing.add(secret, title=secret, tags=[secret], category=secret, user=secret)
    failing.index(folder, tags=[secret])
    failing.recall(secret, user=secret, category=secret, tags=[secret], path=f"*{secret}*")
    for wrong in ({"since": secret}, {"kind": secret}, {"fusion": secret}, {secret: secret}, {"sources": [secret]}):
        with pytest.raises(Exception, match=secret):
            failing.search(secret, **wrong)
    assert len(telemetry.spans) > 8
    assert [span.name for span in telemetry.spans if secret in span.to_json()] == []


def test_unsampled_spans_have_no_children(memory, set_up):
    """If the sampler declines, nothing is exported and no child is created."""
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

    telemetry = set_up(sampler=ALWAYS_OFF)
    memory.add("The key is under the pot.")
    assert len(memory.search("key").results) == 1
    assert telemetry.spans == []


def test_custom_span_records_its_attributes(telemetry):
    """A span records what it gets, except None, also in another thread."""

    @traced("work", lambda span, results: span.set(limit=3, results=results, grade=None))
    def work() -> int:
        return 2

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert telemetry.ours("recollect.work") == {"recollect.limit": 3, "recollect.results": 2}


@pytest.mark.parametrize("there", [None, ModuleType("opentelemetry.trace")])
def test_without_opentelemetry_nothing_happens(memory, monkeypatch, there):
    """Also if its import is blocked, or another thread is importing it."""
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", there)
    memory.add("The key is under the pot.")
    assert len(memory.search("key").results) == 1


@pytest.mark.parametrize(
    ("first", "never"), [("import sys", "opentelemetry"), ("import opentelemetry.trace", "opentelemetry.sdk")]
)
def test_opentelemetry_is_not_loaded_unless_used(first, never):
    """Not by the package, a search, an embedding or a recall; with only the API nothing is recorded."""
    code = (
        f"{first}\n"
        "import sys\n"
        "from recollect import Memory\n"
        "from recollect.memory.spans import traced\n"
        "with Memory.open(':memory:', embedder='hashing:64') as memory:\n"
        "    memory.add('The key is under the pot.')\n"
        "    memory.embed()\n"
        "    memory.recall('key')\n"
        "traced('work', lambda *_: print('recorded'))(lambda: None)()\n"
        f"print([name for name in sys.modules if name.startswith({never!r})])\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "[]\n"), ran.stderr


@pytest.mark.parametrize("code", re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL))
def test_every_python_block_of_the_page_runs(code, tmp_path):
    """As it stands, in a new folder."""
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "recollect.search" in ran.stdout


def test_page_lists_every_attribute():
    """And no other."""
    code = Path(sys.modules["recollect.memory.spans"].__file__).read_text(encoding="utf-8")
    told = set(re.findall(r"\b(\w+)=(?:len|query|trace|report|recall|stage|count|bool)\b", code))
    told |= {name for line in re.findall(r"lists = \((.*)\)", code) for name in re.findall(r"\w+", line)}
    told |= set(re.findall(r'"(source|status|hits)":', code))
    assert len(told) >= 20
    assert set(re.findall(r"`recollect\.(\w+)`", PAGE)) == told | {"search", "index", "embed", "recall"}
