"""How the cosines of a model are read: what it gives to unrelated texts, and to a question and its answer."""

from __future__ import annotations

import contextlib
import json
import threading

from recollect.errors import EmbedderError, RecollectError, StoreError, errors_as
from recollect.ranking import Closeness
from recollect.types import ActiveSpace, Store, VectorSpace

PAIRS = (
    ("When does the dentist open on Monday?", "The dental practice opens at eight on weekdays."),
    ("How do I renew my passport?", "To extend a travel document, bring the form and two photographs."),
    ("Which port does the database listen on?", "PostgreSQL accepts connections on 5432."),
    ("Who painted the ceiling of the chapel?", "Michelangelo worked for four years on the frescoes above the altar."),
    ("What should I feed a young cat?", "Kittens need small meals with much protein, four times a day."),
    ("Why did the build fail last night?", "The nightly job stopped because the disk of the runner was full."),
    ("How long should I boil eggs?", "For a soft yolk, leave them in simmering water for five minutes."),
    ("What did Maria say about the budget?", "In the meeting Maria asked us to cut the costs of travel by a tenth."),
    ("Is aspirin safe during pregnancy?", "Expectant mothers should avoid acetylsalicylic acid."),
    ("Where did we leave the spare key?", "The second key hangs behind the blue door in the garage."),
    ("How does a bicycle gear work?", "The chain moves between sprockets of different sizes."),
    ("When was the treaty signed?", "The peace agreement between the two kingdoms dates from 1648."),
)  # fmt: skip
KNOWN = {
    "small-embedder": Closeness(0.3703, 0.6245), "arctic-embed-s": Closeness(0.4616, 0.6622),
    "bge-small-en": Closeness(0.3586, 0.6188),
}  # measured with PAIRS  # fmt: skip


class ClosenessOf:
    """Finds how the cosines of a model are read.

    Where that is not known, it is measured once for each model with `PAIRS`, which have nothing to do with anybody's
    records, and the two numbers are stored.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._measured: dict[str, Closeness | None] = {}

    def __call__(self, serving: ActiveSpace, deadline: float | None = None) -> Closeness | None:
        """None if the model failed, or is not known yet and there is a deadline; then confidence does without it."""
        if serving.embedder.name in KNOWN:
            return KNOWN[serving.embedder.name]
        key = f"closeness:{serving.space.fingerprint}"
        with self._lock:
            if key not in self._measured:
                self._measured[key] = self._read(key)
            if self._measured[key] is None and deadline is None:
                with contextlib.suppress(RecollectError):
                    self._measured[key] = measure(serving)
                    with contextlib.suppress(StoreError):  # a store that cannot be written to
                        self._store.notes.put(key, json.dumps(self._measured[key]))
            return self._measured[key]

    def known(self, space: VectorSpace) -> Closeness | None:
        """What is known without opening the model; None for a model that was not measured yet."""
        return KNOWN.get(space.embedder) or self._read(f"closeness:{space.fingerprint}")

    def _read(self, key: str) -> Closeness | None:
        with contextlib.suppress(ValueError, TypeError):  # damaged: measured again
            unrelated, related = json.loads(self._store.notes.get(key) or "")
            return Closeness(float(unrelated), float(related))
        return None


def measure(serving: ActiveSpace) -> Closeness:
    """The mean cosine of questions with answers to others, and with their own."""
    import numpy as np

    with errors_as(EmbedderError, f"{serving.embedder.name} failed"):
        questions = np.stack([serving.query(question) for question, _ in PAIRS])
        cosines = questions @ serving.embed([answer for _, answer in PAIRS]).T
    own = float(np.trace(cosines))
    others = (float(cosines.sum()) - own) / (len(PAIRS) * (len(PAIRS) - 1))
    return Closeness(round(others, 4), round(own / len(PAIRS), 4))
