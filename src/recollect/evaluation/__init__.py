"""Evaluation: measure any `Callable[[Query], Answer]` on judged questions, ours or another system."""

from recollect.evaluation.datasets import Dataset, read_dataset
from recollect.evaluation.scoring import evaluate

__all__ = ["Dataset", "evaluate", "read_dataset"]
