"""Make src/recollect/words.txt: `python training/words.py`.

The words are those of BERT's vocabulary (google-research/bert, Apache-2.0), which the tokenizer of our embedder has:
about 20,000 English words and names that are common in books and encyclopedias; and about 40,000 of the small American
and British lists of SCOWL (apt-get install wamerican-small wbritish-small). The table has their terms.
"""

import json
from pathlib import Path

from recollect.analysis import Analyzer

PACKAGE = Path(__file__).parent.parent / "src" / "recollect"
TOKENIZER = PACKAGE / "models" / "files" / "small-embedder" / "tokenizer.json"
LISTS = (Path("/usr/share/dict/american-english-small"), Path("/usr/share/dict/british-english-small"))
LEAST_LETTERS = 4
NOTE = """\
Terms of English words. Made by training/words.py from BERT's vocabulary (google-research/bert, Apache-2.0)
and from SCOWL: Copyright 2000-2011 by Kevin Atkinson. Permission to use, copy, modify, distribute and sell
these word lists, the associated scripts, the output created from the scripts, and its documentation for any
purpose is hereby granted without fee, provided that the above copyright notice appears in all copies and that
both that copyright notice and this permission notice appear in supporting documentation. Kevin Atkinson makes
no representations about the suitability of this array for any purpose. It is provided "as is" without express
or implied warranty."""


def main() -> None:
    vocabulary = json.loads(TOKENIZER.read_text(encoding="utf-8"))["model"]["vocab"]
    listed = [word for path in LISTS for word in path.read_text(encoding="utf-8").split()]
    plain = (word for word in (*vocabulary, *listed) if word.isascii() and word.isalpha())
    words = [word for word in plain if len(word) >= LEAST_LETTERS]
    terms = sorted({*Analyzer("english").terms(words)} - {""})
    (PACKAGE / "words.txt").write_text(f"{NOTE}\nenglish: {' '.join(terms)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
