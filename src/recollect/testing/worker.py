"""Another process that has the same store open and does as it is told, line by line."""

from __future__ import annotations

import importlib
import itertools
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, cast

from recollect.testing.asking import EMBEDDER, SEARCHES, index_of, keep, texts
from recollect.types import Filter, Forget, Put, Record, Store


def open_named(opener: str, place: str, **options: Any) -> Store:
    """Open a place with an opener that is named as `module:function`."""
    module, _, name = opener.partition(":")
    return cast("Store", getattr(importlib.import_module(module), name)(place, **options))


def put(store: Store, said: Mapping[str, Any]) -> Any:
    """Put one record with its vector."""
    return keep(store, Record(said["id"], said["text"]))[0].id


def forget(store: Store, said: Mapping[str, Any]) -> Any:
    """Forget one record."""
    store.records.apply([[Forget(said["id"])]])
    return said["id"]


def find(store: Store, said: Mapping[str, Any]) -> Any:
    """What each index finds."""
    return [texts(search(store, said["text"], Filter(), 9)) for search in SEARCHES]


def fill(store: Store, said: Mapping[str, Any]) -> Any:
    """Put records of one's own, group by group, each with its vector first; the ids that were acknowledged."""
    index, acknowledged = index_of(store), []
    for number in range(said["count"]):
        text = f"walrus {said['name']} says {said['name']}x{number}"
        index.save([text], EMBEDDER.passages([text]))
        mine, shared = Record(f"{said['name']}-{number}", text), Record("all", f"{text} last")
        acknowledged.append(store.records.apply([[Put(mine), Put(shared)]])[0].id)
    return acknowledged


def groups(store: Store, said: Mapping[str, Any]) -> Any:
    """Put groups of three without end, and say each number once it is acknowledged; it is killed at that."""
    for number in itertools.count(said["start"]):
        store.records.apply([[Put(Record(f"{number}-{part}", f"walrus number {number}")) for part in "abc"]])
        print(number, flush=True)  # noqa: T201
    return None


ORDERS: Mapping[str, Callable[[Store, Mapping[str, Any]], Any]] = {
    "put": put, "forget": forget, "find": find, "fill": fill, "groups": groups,
}  # fmt: skip


def serve(opener: str, place: str) -> None:
    """Say "ready", then answer each line of standard input with one of JSON."""
    store = open_named(opener, place)
    index_of(store)
    print(json.dumps("ready"), flush=True)  # noqa: T201
    for line in sys.stdin:
        said = json.loads(line)
        print(json.dumps(ORDERS[said["order"]](store, said)), flush=True)  # noqa: T201
    store.close()


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
