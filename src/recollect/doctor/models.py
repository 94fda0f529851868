"""Checks of models: whether every byte of their files is the pinned one, or their server answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from recollect.doctor.findings import Finding, Telling
from recollect.doctor.looking import unreadable
from recollect.doctor.setup import Setup
from recollect.errors import RecollectError
from recollect.models.cache import cache_root, digest, mend
from recollect.models.catalogue import MODELS, Model

LONGEST_S = 5.0
"""How long a server of models may take, whatever the settings allow: somebody waits for the whole list."""

WORD = "test"
"""What is sent to find out whether somebody answers."""


def model(setup: Setup) -> Iterator[Finding]:
    """The model that embeds: its files, its package or its server."""
    from recollect.models.embedders import EMBEDDERS

    spec = setup.settings.embedder
    kind = spec.partition(":")[0]
    if spec == "none":
        yield Finding("model", "ok", "none is set: keyword search only")
    elif kind in MODELS:
        yield _files("model", MODELS[kind], needed=setup.kind == "postgresql" or not unreadable(setup))
    elif kind in ("openai", "ollama"):
        yield _server(setup, spec)
    else:
        try:
            EMBEDDERS.check(kind)
        except RecollectError as error:
            yield Finding("model", "failure", error.message, error.hint)
        else:
            yield Finding("model", "ok", f"{spec} has no files that could be checked")


def reranker(setup: Setup) -> Iterator[Finding]:
    """The model that reads results again, where that is switched on."""
    from recollect.models.rerankers import RERANKERS

    search = setup.settings.search
    kind = search.rerank_model.partition(":")[0]
    if not search.rerank:
        yield Finding("reranker", "ok", "switched off")
    elif kind in MODELS:
        yield _files("reranker", MODELS[kind], needed=True)
    else:
        try:
            RERANKERS.check(kind)
        except RecollectError as error:
            yield Finding("reranker", "failure", error.message, error.hint)
        else:
            yield Finding("reranker", "ok", f"{search.rerank_model} has no files that could be checked")


def _files(check: str, known: Model, *, needed: bool) -> Finding:
    folder = cache_root() / known.folder
    fix = partial(_fetch, known)
    if not folder.is_dir():
        size = f"{known.carrier.size / 1e6:.0f} MB"
        said = f"{known.name} is not on this machine; what needs it first fetches it ({size})"
        return Finding(check, "warning" if needed else "note", said, mend(known), fix)
    for file in known.files:
        try:
            right = digest(folder / file.name) in {copy.sha256 for copy in file.copies}
        except OSError as error:
            said = f"{folder / file.name} cannot be read: {error.strerror}"
            return Finding(check, "failure", said, mend(known), fix)
        if not right:
            said = f"{folder / file.name} is damaged: its SHA-256 is not the pinned one"
            return Finding(check, "failure", said, f"recollect doctor --fix, or {mend(known)}", fix)
    return Finding(check, "ok", f"{known.name}: {len(known.files)} files, every SHA-256 as pinned")


def _fetch(known: Model, telling: Telling) -> None:
    """Fetch it again."""
    from recollect.models.fetch import fetch

    fetch(known.name, announce=telling.announce, progress=telling.progress("fetching"))


def _server(setup: Setup, spec: str) -> Finding:
    from recollect.memory.opening import embedder_opener

    said = setup.settings.openai
    brief = replace(setup.settings, openai=replace(said, timeout=min(said.timeout, LONGEST_S), retries=0))
    began = time.monotonic()
    try:
        length = embedder_opener(brief, lambda _: None, None)(spec).query(WORD).shape[0]
    except RecollectError as error:
        return Finding("model", "warning", f"{spec}: {error.message}", error.hint)
    took = (time.monotonic() - began) * 1000
    return Finding("model", "ok", f"{spec} answered with a vector of {length} numbers in {took:.0f} ms")


def llm(setup: Setup) -> Iterator[Finding]:
    """The language model, where one is set or needed."""
    import os

    from recollect.models.llm import open_llm

    said, search = setup.settings.llm, setup.settings.search
    if said.base_url is None and said.model is None and not search.hyde:
        yield Finding("llm", "ok", "none is set; only ingest-files and HyDE need one")
        return
    began = time.monotonic()
    try:
        opened = open_llm(
            base_url=said.base_url,
            model=(search.hyde_model if search.hyde else None) or said.model,
            api_key=os.environ.get(said.api_key_env),
            timeout=min(said.timeout, LONGEST_S),
            retries=0,
        )
        request = {"model": opened.model, "messages": [{"role": "user", "content": WORD}], "max_tokens": 1}
        answer = opened.endpoint.post("/chat/completions", request)
    except RecollectError as error:
        yield Finding("llm", "warning", error.message, error.hint)
        return
    took = (time.monotonic() - began) * 1000
    if isinstance(answer, dict) and answer.get("choices"):
        yield Finding("llm", "ok", f"{opened.model} at {opened.endpoint.host} answered in {took:.0f} ms")
    else:
        odd = f"{opened.endpoint.host} answered something that is not a chat completion"
        yield Finding("llm", "warning", odd, "check base_url under [llm]: usually it ends in /v1")
