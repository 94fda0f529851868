"""`recollect doctor`: looks at everything that search stands on, and says how to mend what is not right.

A check is a plain function, `Setup` in and findings out; `examination.CHECKS` is the tuple of them. Looking changes
nothing: no store is made, no model fetched, no file written. Only a finding's `fix` does something, when asked.
"""

from recollect.doctor.examination import CHECKS, examine, treat
from recollect.doctor.findings import STATES, Finding, Telling, worst
from recollect.doctor.setup import Setup

__all__ = ["CHECKS", "STATES", "Finding", "Setup", "Telling", "examine", "treat", "worst"]
