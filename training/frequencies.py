"""Make src/recollect/frequencies.txt: `pip install wordfreq==3.1.1`, then `python training/frequencies.py`.

The frequencies of words come from wordfreq (Robyn Speer, doi:10.5281/zenodo.7199437): Wikipedia, subtitles, news,
books, the web. Its data, and so the table made of it, may be used under CC BY-SA 4.0. A term's share is how many
records of RECORD_WORDS words are expected to contain it, in thousandths; those below LEAST are left out.
"""

import math
from collections import Counter
from pathlib import Path

import wordfreq

from recollect.analysis import LANGUAGES, Analyzer

TABLE = Path(__file__).parent.parent / "src" / "recollect" / "frequencies.txt"
RECORD_WORDS = 60
LEAST = 0.003
CODES = {
    "arabic": "ar", "catalan": "ca", "danish": "da", "dutch": "nl", "english": "en", "finnish": "fi", "french": "fr",
    "german": "de", "greek": "el", "hindi": "hi", "hungarian": "hu", "indonesian": "id", "italian": "it",
    "lithuanian": "lt", "norwegian": "nb", "portuguese": "pt", "romanian": "ro", "russian": "ru", "spanish": "es",
    "swedish": "sv", "tamil": "ta", "turkish": "tr",
}  # fmt: skip
NOTE = (
    "Shares, in thousandths, of records that contain each term. Made by training/frequencies.py from wordfreq"
    " (Robyn Speer, doi:10.5281/zenodo.7199437) under CC BY-SA 4.0, https://creativecommons.org/licenses/by-sa/4.0/"
)


def main() -> None:
    rows = [f"{language}: {' '.join(row(language))}" for language in LANGUAGES if language in CODES]
    TABLE.write_text("\n".join([NOTE, *rows, ""]), encoding="utf-8")


def row(language: str) -> list[str]:
    """Each term with its share, the most frequent first. wordfreq counts all numbers of a length as one: left out."""
    analyzer, frequencies = Analyzer(language), Counter[str]()
    for word, frequency in wordfreq.get_frequency_dict(CODES[language], "best").items():
        if any(map(str.isnumeric, word)):
            continue
        for term in {token.term for token in analyzer.tokens(word) if not token.stop}:
            frequencies[term] += frequency  # type: ignore[assignment]  (a Counter also counts fractions)
    shares = ((term, 1 - math.exp(-RECORD_WORDS * frequency)) for term, frequency in frequencies.most_common())
    return [f"{term} {round(1000 * share)}" for term, share in shares if share >= LEAST and " " not in term]


if __name__ == "__main__":
    main()
