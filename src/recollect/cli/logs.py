"""Where the log of a server goes."""

from __future__ import annotations

import logging
import sys

from recollect.cli.plain import plain, plain_text


def log_to_stderr() -> None:
    """Let warnings of a server go to standard error, each with its hidden characters as escapes."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


class _Formatter(logging.Formatter):
    """One line for each message; a traceback below it keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (the name of logging)
        record.message = plain(record.message)
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        return plain_text(super().format(record))
