"""The flags of the commands that ask a question: how its answer is ranked and what it may see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from recollect.cli.options import filter_options, filters

F = TypeVar("F", bound=Callable[..., Any])

_RANKING = (
    "limit", "fetch_k", "sources", "fusion", "rrf_k", "normalisation", "text_weight", "vector_weight", "prefer_newer",
    "mmr", "mmr_lambda", "min_score", "confidence", "min_confidence", "budget_ms", "rerank", "hyde",
)  # fmt: skip


def asking(command: F) -> F:
    """The flags of `search`, for every command that runs one."""
    command = filters(command)
    for option in (
        click.option(
            "--hyde",
            metavar="[HOW]",
            is_flag=False,
            flag_value="on",
            help="on, off or replace: search with a hypothetical answer by the language model of [llm].",
        ),
        click.option(
            "--rerank/--no-rerank",
            default=None,
            help="Let a model read the first results again: slower; better on conversations.",
        ),
        click.option("--budget-ms", type=float, metavar="MS", help="Answer with what has come by then."),
        click.option(
            "--min-confidence", type=float, metavar="C", help="Answer nothing rather than less than this, 0 to 1."
        ),
        click.option(
            "--confidence", is_flag=True, default=None, help="Say how far each result stands out from chance."
        ),
        click.option("--min-score", type=float, metavar="S", help="Leave out results that score less, 0 to 1."),
        click.option(
            "--decay",
            metavar="[WHEN]",
            is_flag=False,
            flag_value="on",
            help="on, off, or a half-life for records without a class: 30d.",
        ),
        click.option("--mmr-lambda", type=float, metavar="L", help="1 is all relevance, 0 all diversity (0.7)."),
        click.option(
            "--prefer-newer/--no-prefer-newer", default=None, help="Of two facts that say nearly the same, the newer."
        ),
        click.option("--mmr/--no-mmr", default=None, help="Reorder for diversity."),
        click.option("--vector-weight", type=float, metavar="W", help="Weight of the vector source (1)."),
        click.option("--text-weight", type=float, metavar="W", help="Weight of the keyword source (1)."),
        click.option(
            "--normalisation", metavar="NAME", help="Of scores, when fusing by score: none, minmax, zscore, dbsf."
        ),
        click.option("--rrf-k", type=float, metavar="K", help="RRF's constant (60)."),
        click.option("--fusion", metavar="METHOD", help="blend (default), rrf, weighted, combmnz or borda."),
        click.option("--fetch-k", type=int, metavar="N", help="How deep each source is read (100)."),
        click.option(
            "--sources", metavar="NAMES", help="Which sources are asked, of keyword, vector and [[sources]] (all)."
        ),
        click.option("--limit", "-n", type=int, help="How many results (10)."),
        click.option("--superseded", is_flag=True, default=None, help="Also what has been superseded."),
    ):
        command = option(command)
    return command


def ranking_options(options: dict[str, Any]) -> dict[str, Any]:
    """The flags that set how results are ranked, as settings of `[search]`."""
    ranking = {name: options[name] for name in _RANKING} | _decay(options["decay"])
    if ranking["mmr_lambda"] is not None and ranking["mmr"] is None:
        ranking["mmr"] = True  # whoever sets its balance wants it
    return ranking


def seeing_options(options: dict[str, Any]) -> dict[str, Any]:
    """The flags that set what is seen, as `Memory.search` takes them."""
    return {"superseded": options["superseded"], **filter_options(options)}


def _decay(words: str | None) -> dict[str, object]:
    """`on`, `off`, or a half-life in days."""
    match words:
        case None:
            return {}
        case "on" | "off":
            return {"decay": words == "on"}
        case _:
            return {"decay": True, "half_life_days": _days(words)}


def _days(words: str) -> str | float:
    """A span (`30d`, `2w`) in days; anything else is left for the settings to refuse."""
    from recollect.errors import UsageError
    from recollect.memory.validation import parse_span

    try:
        return parse_span(words).total_seconds() / 86_400
    except UsageError:
        return words
