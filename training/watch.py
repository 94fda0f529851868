"""Write the tuning questions of the development sets, to be measured while an embedder is trained.

`python training/watch.py SETS questions.json.xz`; needs Recollect. SETS is the folder of development sets. Of each
question the file has the judgments and the first hundred documents by words. `facts` are those of benchmarks/facts,
asked for in other words. No held-out question is in it.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from recollect.evaluation.datasets import Dataset

sys.path.insert(0, str(Path(__file__).parent.parent))

LONGEST = 3000  # characters of a document
DEPTH = 100
NAMES = (
    "scifact", "nfcorpus", "cranfield", "locomo", "longmemeval", "openclaw_docs", "cosqa_dev", "vespa_rag_blueprint",
    "madial_en",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path)
    parser.add_argument("target", type=Path)
    arguments = parser.parse_args()
    os.environ["RECOLLECT_DATA"] = str(arguments.sets)
    from benchmarks.quality import questions
    from recollect.config import Settings
    from recollect.evaluation.recording import open_corpus, record

    written = []
    with tempfile.TemporaryDirectory() as folder:
        for name in (*NAMES, "facts"):
            for dataset in facts() if name == "facts" else questions(name, "tuning"):
                place = {row["_id"]: number for number, row in enumerate(dataset.corpus)}
                with open_corpus(dataset, settings=Settings(embedder="none"), folder=Path(folder)) as memory:
                    replies = record(memory, dataset.queries, depth=DEPTH).replies
                    words = {
                        key: [(place[hit.record.id], hit.score) for one in found for hit in one.entries]
                        for key, found in replies.items()
                    }
                rows = []
                for key, text in dataset.queries.items():
                    grades = {
                        place[one]: grade for one, grade in dataset.qrels[key].items() if grade > 0 and one in place
                    }
                    if grades:
                        rows.append({"text": text, "grades": grades, "words": words[key]})
                documents = [
                    f"{row.get('title') or ''}\n{row.get('text') or ''}".strip()[:LONGEST] for row in dataset.corpus
                ]
                written.append({"set": name, "documents": documents, "questions": rows})
                print(f"{name} {dataset.name}: {len(rows):,} questions, {len(documents):,} documents")
    text = json.dumps(written, ensure_ascii=False)
    arguments.target.write_bytes(lzma.compress(text.encode("utf-8", "replace"), preset=9))
    print(f"{arguments.target.stat().st_size:,} bytes")


def facts() -> Iterator[Dataset]:
    """Each store of facts, with the question in other words of each of them."""
    path = Path(__file__).parent.parent / "benchmarks/facts/tuning.json"
    for store in json.loads(path.read_text(encoding="utf-8"))["stores"]:
        rows = {str(number): fact for number, fact in enumerate(store["facts"])}
        yield Dataset(
            name=store["name"],
            fingerprint=store["name"],
            corpus=tuple({"_id": key, "text": fact["text"]} for key, fact in rows.items()),
            queries={key: fact["questions"][1] for key, fact in rows.items()},
            qrels={key: {key: 1} for key in rows},
        )


if __name__ == "__main__":
    main()
