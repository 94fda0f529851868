"""Question sets made from a user's own records: prose and words, generation, the folder of a set, and making one."""

from recollect.evaluation.questions.sets import QuestionSet, SetOptions, make_set, plan_set

__all__ = ["QuestionSet", "SetOptions", "make_set", "plan_set"]
