"""`recollect doctor`: checks everything that search depends on, and says how to repair what is wrong.

A check is a function, `Setup` in and findings out; `checks.CHECKS` is the tuple of them. Checks change nothing: they
make no store, fetch no model and write no file. Only a finding's `fix` does something, when asked. What concerns one
kind of store is checked by that store: `StoreKind.examine`.
"""

from recollect.doctor.checks import CHECKS, examine, treat
from recollect.doctor.setup import Setup
from recollect.stores.health import STATES, Finding, Reporter, worst

__all__ = ["CHECKS", "STATES", "Finding", "Reporter", "Setup", "examine", "treat", "worst"]
