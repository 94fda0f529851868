"""The command line. It holds no logic: it reads flags, calls `Memory`, and shows what came of it."""

from recollect.cli.commands import main

__all__ = ["main"]
