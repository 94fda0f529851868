"""`python -m recollect` is `recollect`."""

import sys

from recollect.cli import main

sys.exit(main())
