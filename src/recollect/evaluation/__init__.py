"""The laboratory: judged questions in, measures out. It scores any `Callable[[Query], Answer]`, ours or a rival's."""

from recollect.evaluation.datasets import Dataset, read_dataset
from recollect.evaluation.scoring import evaluate, rank_all

__all__ = ["Dataset", "evaluate", "rank_all", "read_dataset"]
