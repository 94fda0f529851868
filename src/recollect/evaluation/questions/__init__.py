"""Question sets from what a person has stored: how questions are made, what they give away, how a set is kept.

making ← prose, linking, phrases: questions out of records · leakage: what they give away · choosing: which are taken ·
paraphrase: a language model's · masking: their words out of a copy · folders: the files · authoring: all of it.
"""

from recollect.evaluation.questions.sets import Made, SetWishes, make_set, plan_set

__all__ = ["Made", "SetWishes", "make_set", "plan_set"]
