"""Many rows at once: what is moved into a store goes in by COPY, with what is derived from it."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recollect.errors import StoreError
from recollect.ranking import fold_hash
from recollect.stores.postgres.database import Connection
from recollect.stores.postgres.derived import Terms, spaces
from recollect.stores.postgres.rows import text
from recollect.stores.postgres.scopes import scope_number
from recollect.stores.rows import passage_hash
from recollect.types import Scope
from recollect.types.moving import FIELDS, Part

_SCOPE = ("user", "agent", "session")
_SAID = tuple(name for name in FIELDS["record"] if name not in (*_SCOPE, "purged"))
_COPIED = (*_SAID, "time", "fold", "passage", "scope", "length")

_BEGIN = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
_END = struct.pack("!h", -1)
"""How PostgreSQL's binary COPY begins and ends."""


def add_records(connection: Connection, parts: Mapping[Part, Terms]) -> None:
    """New records with their terms, their scopes' tallies, and the vectors that are there for them."""
    if not parts:
        return
    scopes = _scopes(connection, parts)
    with connection.cursor().copy(f"COPY records ({', '.join(_COPIED)}) FROM STDIN") as copy:
        for part, terms in parts.items():
            copy.write_row(_row(part, scopes[_scope(part)], terms))
    keys = [text(part.values[0]) for part in parts]
    rows: dict[str, int] = dict(
        connection.execute("SELECT id, row FROM records WHERE id = ANY(%s)", (keys,)).fetchall()
    )
    live = {rows[text(part.values[0])]: (scopes[_scope(part)], terms) for part, terms in parts.items() if _lives(part)}
    _add_postings(connection, live)
    for space in spaces(connection):
        connection.execute(
            f"INSERT INTO vectors_{space} (row, scope, vector)"
            " SELECT row, scope, (SELECT vector::halfvec FROM embeddings WHERE space = %s"
            " AND embeddings.passage = records.passage FOR KEY SHARE)"  # it must not go before we are there
            " FROM records WHERE row = ANY(%s) ON CONFLICT DO NOTHING",
            (space, list(live)),
        )


def add_events(connection: Connection, parts: Sequence[Part], *, renumber: bool) -> None:
    """New lines of history, with their own numbers or the next ones."""
    if not parts:
        return
    keys = list({text(part.values[1]) for part in parts})
    known = connection.execute("SELECT id, row, scope FROM records WHERE id = ANY(%s)", (keys,))
    places = {key: (row, scope) for key, row, scope in known}
    numbered = "" if renumber else ", seq"
    with connection.cursor().copy(f"COPY history (row, scope, id, action, at, detail{numbered}) FROM STDIN") as copy:
        for part in parts:
            seq, key, action, at, detail = part.values
            if text(key) not in places:
                raise StoreError(f"line {seq} of the history is of {key!r}, which there is no record of")
            line = [*places[text(key)], text(key), action, at, json.dumps(detail)]
            copy.write_row(line if renumber else [*line, seq])
    if not renumber:
        last = max(part.values[0] for part in parts)
        connection.execute(
            "SELECT setval(numbers::regclass, greatest(%s, nextval(numbers::regclass) - 1))"
            " FROM pg_get_serial_sequence('history', 'seq') AS numbers",
            (last,),
        )


def add_vectors(connection: Connection, parts: Sequence[Part]) -> None:
    """New vectors, every bit of them; and beside the rows of live records, where searches look for them."""
    known = connection.execute("SELECT fingerprint, space, dimension FROM spaces").fetchall()
    numbers = {fingerprint: (space, dimension) for fingerprint, space, dimension in known}
    if not parts:
        return
    with connection.cursor().copy("COPY embeddings (space, passage, vector) FROM STDIN (FORMAT BINARY)") as copy:
        copy.write(_BEGIN)
        copy.write(b"".join(_packed(part, *numbers.get(part.values[0], (0, 0))) for part in parts))
        copy.write(_END)
    for fingerprint in {part.values[0] for part in parts}:
        passages = [part.values[1] for part in parts if part.values[0] == fingerprint]
        connection.execute("SELECT attach_vectors(%s, %s)", (numbers[fingerprint][0], passages))


def little(vector: bytes) -> bytes:
    """A vector as pgvector sends it, two short numbers and big-endian floats, as little-endian floats alone."""
    return np.frombuffer(bytes(vector)[4:], dtype=">f4").astype("<f4").tobytes()


def _packed(part: Part, space: int, dimension: int) -> bytes:
    """A row of `embeddings` as binary COPY reads it: the fields' number, then each with its length before it."""
    fingerprint, passage, vector = part.values
    if len(vector) != 4 * dimension:
        raise StoreError(f"a vector of {fingerprint} has {len(vector) // 4} numbers, the space has {dimension}")
    numbers = np.frombuffer(vector, dtype="<f4").astype(">f4").tobytes()
    head: bytes = struct.pack("!hiii", 3, 4, space, len(passage))
    return head + bytes(passage) + struct.pack("!ihh", 4 + len(numbers), dimension, 0) + numbers


def _lives(part: Part) -> bool:
    return part.values[FIELDS["record"].index("forgotten_at")] is None


def _scope(part: Part) -> Scope:
    return Scope(*part.values[6:9])


def _scopes(connection: Connection, parts: Mapping[Part, Terms]) -> dict[Scope, int]:
    """In a fixed order, so that two who make the same scopes do not wait for each other."""
    wanted = sorted({_scope(part) for part in parts}, key=lambda scope: sorted(scope.as_dict().items()))
    return {scope: scope_number(connection, scope) for scope in wanted}


def _row(part: Part, scope: int, terms: Terms) -> list[Any]:
    said: dict[str, Any] = dict(zip(FIELDS["record"], part.values, strict=True))
    passage = f"{said['title']}\n{said['text']}" if said["title"] else said["text"]
    said["time"] = said["created_at"] if said["happened_at"] is None else said["happened_at"]
    said["fold"], said["passage"] = (b"", b"") if said["purged"] else (fold_hash(said["text"]), passage_hash(passage))
    said["tags"] = [text(tag) for tag in said["tags"]]
    said["scope"], said["length"] = scope, terms.length
    return [text(said[name]) if isinstance(said[name], str) else said[name] for name in _COPIED]


def _add_postings(connection: Connection, live: Mapping[int, tuple[int, Terms]]) -> None:
    postings = [
        (name, scope, row, often, terms.length)
        for row, (scope, terms) in live.items()
        for name, often in zip(terms.names, terms.often, strict=True)
    ]
    with connection.cursor().copy("COPY postings (term, scope, row, often, length) FROM STDIN") as copy:
        for posting in sorted(postings):  # as the index has them, so that neighbours go into one page
            copy.write_row(posting)
    records: Counter[int] = Counter(scope for scope, _ in live.values())
    lengths: Counter[int] = Counter()
    for scope, terms in live.values():
        lengths[scope] += terms.length
    with connection.cursor() as cursor:
        tallies = [(scope, count, lengths[scope]) for scope, count in sorted(records.items())]
        cursor.executemany("INSERT INTO tallies (scope, records, length) VALUES (%s, %s, %s)", tallies)
