"""The steps after fusion. A stage is a callable `(query, results) -> results`; `order` lists them all.

To add a stage, write it in `order.py`, add it to `order`, and declare its option in `recollect/options.py`.
"""

from recollect.stages.confidence import Confidence
from recollect.stages.order import Rerank, RerankScores, freshness, order

__all__ = ["Confidence", "Rerank", "RerankScores", "freshness", "order"]
