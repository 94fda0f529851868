"""Make src/recollect/words.txt: `python training/words.py`.

The words are those of BERT's vocabulary (google-research/bert, Apache-2.0), which the tokenizer of our embedder has:
about 20,000 English words and names that are common in books and encyclopedias. The table has their terms.
"""

import json
from pathlib import Path

from recollect.analysis import Analyzer

PACKAGE = Path(__file__).parent.parent / "src" / "recollect"
TOKENIZER = PACKAGE / "models" / "files" / "small-embedder" / "tokenizer.json"
LEAST_LETTERS = 4
NOTE = "Terms of English words. Made by training/words.py from BERT's vocabulary (google-research/bert, Apache-2.0)"


def main() -> None:
    vocabulary = json.loads(TOKENIZER.read_text(encoding="utf-8"))["model"]["vocab"]
    words = [word for word in vocabulary if word.isascii() and word.isalpha() and len(word) >= LEAST_LETTERS]
    terms = sorted({*Analyzer("english").terms(words)} - {""})
    (PACKAGE / "words.txt").write_text(f"{NOTE}\nenglish: {' '.join(terms)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
