"""From text to index terms: one chain for documents and for queries, so that every keyword engine matches alike.

Unicode words (marks stay with their letters) → case folding → stop words marked → Snowball stem → accents off
Latin letters. An identifier, a path or a hyphenated word gives its parts and its whole (`parse_config`,
`parseConfig` and `parse-config` meet in `parseconfig`); a dotted number (`1.0.21`) stays one term. Scripts
written without spaces give single characters and pairs.
"""

from recollect.analysis.analyzer import LANGUAGES, Analyzer, Token
from recollect.analysis.snippets import lead, snippet

__all__ = ["LANGUAGES", "Analyzer", "Token", "lead", "snippet"]
