"""Every search option, filter and scope part, declared once.

The settings file, the command-line flags and their completion, the HTTP bodies, the parameters of the MCP tools, the
controls of the web page and the reference page are all built from these declarations. To add a search option, add a
field to `SearchOptions`, and read it where it takes effect: a stage finds it as `query.ranking.NAME`.
"""

import dataclasses
import importlib
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from datetime import datetime
from functools import cache, partial
from typing import Any, Self

from recollect.dataclass import dataclass

RECALL_TOKENS = 1500  # size limit of a recall block
SIMILAR = 5  # similar notes that are listed beside the links of a note
LIKELY = 0.17  # least confidence of what recall, the hook and MCP return; `search` draws a line there
RERANK_MS = 150.0  # time for reranking that nobody asked for, before a model reads the results
DEFAULT_K = 60  # RRF's constant from Cormack, Clarke and Büttcher (2009); ranks count from 1

METHODS, NORMALISATIONS = "recollect.fusion:METHODS", "recollect.fusion:NORMALISATIONS"
"""Tables of choices, named and not imported: fusion imports the types, and the types import this module."""

FLAG, HTTP, MCP, PAGE = _ALL = ("flag", "http", "mcp", "page")
"""Where an option can be set, besides the settings file and Python."""

FUSION, DEPTH, AFTER, FILTER, SCOPE_GROUP = "Fusion", "Sources and depth", "After fusion", "Filters", "Scope"
GROUPS = (FUSION, DEPTH, AFTER)  # the headings of search options, in the order of the page

KINDS: Mapping[str, str] = types.MappingProxyType({"fact": "facts", "chunk": "files", "turn": "conversations"})
"""The kinds of records that a store holds, and their labels."""

ORIGINS: Mapping[str, str] = types.MappingProxyType({
    "user": "the user's own words", "file": "text of the user's files", "agent": "written by an agent",
    "tool": "output of a tool", "web": "text of a web page", "import": "of somebody else's export",
})  # fmt: skip
"""Who can have written a record, and their labels."""

TRUSTED = ("user", "file", "agent")  # text of tools, web pages and strangers may hold instructions to a model
OUTSIDE = "outside"  # the origin of documents of other systems, which the user's settings name as sources
ANY_ORIGIN = "any"  # among the origins of a filter: records of all origins


@dataclass(frozen=True, slots=True)
class Bounds:
    """An interval of finite numbers; with `open` its lower end is not part of it."""

    low: float = 0.0
    high: float = math.inf
    open: bool = False

    def __contains__(self, value: float) -> bool:
        return (self.low < value if self.open else self.low <= value) and value <= self.high and value != math.inf

    def __str__(self) -> str:
        if self.open:
            return f"more than {self.low:g}"
        return f"{self.low:g} or more" if self.high == math.inf else f"between {self.low:g} and {self.high:g}"


POSITIVE = Bounds(0, open=True)
SHARE = Bounds(0, 1)
WEIGHT = Bounds(0)


@dataclass(frozen=True, slots=True)
class Slider:
    """The range of an option's slider on the page. Values beyond it can be typed."""

    low: float = 0
    high: float = 1
    step: float = 0.05


@dataclass(frozen=True, slots=True)
class Option:
    """One option: what it means, which values it takes, and where it can be set."""

    default: Any
    help: str
    name: str = ""
    type: Any = str
    group: str = ""
    bounds: Bounds | None = None
    choices: Mapping[str, Any] | tuple[str, ...] | str = ()
    filled: bool = False
    check: tuple[Callable[[Any], bool], str] | None = None
    places: tuple[str, ...] = (FLAG, HTTP, PAGE)  # agents see few parameters: MCP is named where it is meant
    sends: bool = False
    guarded: bool = False
    tuned: bool = False
    needs: tuple[str, Any] | None = None

    flags: tuple[str, ...] = ()
    metavar: str = ""
    flag_help: str = ""
    words: tuple[str, ...] = ()
    commands: tuple[str, ...] = ("search", "list", "filter")
    http_bounds: Bounds | None = None
    mcp_bounds: Bounds | None = None
    label: str = ""
    slider: Slider | None = None
    example: str = ""
    column: str = ""

    @property
    def kind(self) -> str:
        """The kind of its value: flag, whole, number, text, time, names, or mode (true, false or a word)."""
        return _kind(self.type)

    @property
    def allowed(self) -> Mapping[str, Any] | tuple[str, ...]:
        """The words that it takes, with what is known about each; empty where it takes other values too."""
        return _looked_up(self.choices) if isinstance(self.choices, str) else self.choices

    def admits(self, value: Any) -> bool:
        """Whether a value of the right type is one that this option takes; None stands for the default."""
        if value is None:
            return True
        if self.check is not None:
            return self.check[0](value)
        if self.allowed:
            return value in self.allowed or (self.kind == "mode" and isinstance(value, bool))
        if self.bounds is not None:
            return value in self.bounds
        return not self.filled or bool(value.strip())

    def fit(self, value: Any) -> Any:
        """The value as the type of this option, text read as TOML would be; ValueError where it takes no such value."""
        fitted = _converted(self.kind, value)
        if not self.admits(fitted):
            raise ValueError(f"must be {self.expected}")
        return fitted

    @property
    def expected(self) -> str:
        """The values that it takes, in words."""
        if self.check is not None:
            return self.check[1]
        if self.kind == "mode":
            return " or ".join(["true, false", *(f'"{word}"' for word in self.allowed)])
        if self.allowed:
            return f"one of {', '.join(self.allowed)}"
        if self.bounds is not None:
            return f"a whole number {self.bounds}" if self.kind == "whole" else str(self.bounds)
        if self.filled:
            return "a name that is not empty"
        words = {"flag": "true or false", "whole": "a whole number", "number": "a number", "names": "a list of names"}
        return words.get(self.kind, "text")

    @property
    def about(self) -> str:
        """The help, with the words that can be chosen."""
        return f"{self.help} One of {', '.join(self.allowed)}." if self.allowed and self.kind == "text" else self.help

    @property
    def flag_names(self) -> tuple[str, ...]:
        """Its flags on the command line; a switch has the negated one last."""
        if FLAG not in self.places:
            return ()
        names = self.flags or ("--" + self.name.replace("_", "-"),)
        negated = self.kind == "flag" and self.group in GROUPS and not self.words
        return (*names, f"--no-{names[0][2:]}") if negated else names

    @property
    def condition(self) -> tuple[str, tuple[Any, ...]] | None:
        """(other option, values): this option has an effect only where the other has one of these values."""
        methods = tuple(method.name for method in _looked_up(METHODS).values() if self.name in method.reads)
        if methods:
            return "fusion", methods
        return (self.needs[0], (self.needs[1],)) if self.needs else None


@cache
def _kind(type_: Any) -> str:
    hints = [hint for hint in typing.get_args(type_) if hint is not types.NoneType]
    hints = hints if isinstance(type_, types.UnionType) else [type_]
    kinds: dict[Any, str] = {bool: "flag", int: "whole", float: "number", datetime: "time", tuple: "names"}
    return "mode" if hints == [bool, str] else kinds.get(typing.get_origin(hints[0]) or hints[0], "text")


def _looked_up(name: str) -> Mapping[str, Any]:
    module, _, table = name.partition(":")
    choices: Mapping[str, Any] = getattr(importlib.import_module(module), table)
    return choices


_WORDS = {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False}
HUGE = 10**300  # no setting is a number of this size, and a float could hardly hold it


def _converted(kind: str, value: Any) -> Any:
    if kind == "names":
        names = value.split(",") if isinstance(value, str) else value
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise ValueError("not a list of names")
        return tuple(name.strip() for name in names)
    if kind == "mode":
        return _WORDS.get(value.lower(), value) if isinstance(value, str) else value
    type_: type = {"flag": bool, "whole": int, "number": float, "text": str}[kind]
    if isinstance(value, str) and type_ is not str:
        value = _WORDS.get(value.lower(), value) if type_ is bool else type_(value)
    if type_ is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < HUGE:
        value = float(value)
    if not isinstance(value, type_) or (isinstance(value, bool) and type_ is not bool):
        raise ValueError(f"not a {type_.__name__}")
    return value


def option(default: Any, about: str, **declared: Any) -> Any:
    """A field of a settings class that is an option."""
    return field(default=default, metadata={"option": partial(Option, default, about, **declared)})


@cache
def options_of(table: Any) -> tuple[Option, ...]:
    """The options that a settings class declares."""
    declared = (entry for entry in dataclasses.fields(table) if "option" in entry.metadata)
    return tuple(entry.metadata["option"](name=entry.name, type=entry.type) for entry in declared)


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """`[search]`: how a query is answered."""

    limit: int = option(
        10, "Maximum number of results.", group=DEPTH, bounds=Bounds(1, 10_000), flags=("--limit", "-n"),
        label="Results", places=_ALL, http_bounds=Bounds(1, 1_000), mcp_bounds=Bounds(1, 50),
        slider=Slider(1, 50, 1),
    )  # fmt: skip
    fetch_k: int = option(
        100, "Number of hits read from each source.", group=DEPTH, bounds=Bounds(1, 100_000), metavar="N",
        label="Depth", tuned=True, slider=Slider(1, 500, 1),
    )  # fmt: skip
    sources: tuple[str, ...] | None = option(
        None, "Sources to search, of keyword, vector and [[sources]]; by default all.", group=DEPTH, metavar="NAMES",
        label="Sources",
    )  # fmt: skip
    plain: bool = option(
        False, 'Read the query as plain text: no "phrases", -words, prefixes*, AND, OR, NOT, fields such as tag:work.',
        group=DEPTH, places=(FLAG, HTTP),
    )  # fmt: skip
    typos: bool = option(
        True, "Also search words that are spelled nearly like a word of the query that no record has.", group=DEPTH,
        places=(FLAG, HTTP),
    )  # fmt: skip
    dates: bool = option(
        True, 'Favour records of the time that the query names: "last week", "in January 2026".', group=AFTER,
        places=(FLAG, HTTP),
    )  # fmt: skip
    typing: bool = option(
        False, "Take the last word of the query for the beginning of a word, while one types.", group=DEPTH,
        places=(FLAG, HTTP),
    )  # fmt: skip
    budget_ms: float | None = option(
        None, "Milliseconds after which the answer is made of the lists that have arrived.", group=DEPTH,
        bounds=POSITIVE, metavar="MS", places=(FLAG, HTTP), http_bounds=Bounds(1, 1e7),
    )  # fmt: skip
    fusion: str = option(
        "blend", "How the lists of the sources are merged.", group=FUSION, choices=METHODS, metavar="METHOD",
        tuned=True, label="Method",
    )  # fmt: skip
    rrf_k: float = option(
        float(DEFAULT_K), "Constant of RRF: the smaller it is, the more the first ranks count.", group=FUSION,
        bounds=WEIGHT, metavar="K", tuned=True, label="k", slider=Slider(0, 200, 1),
    )  # fmt: skip
    normalisation: str = option(
        "none", "How scores are normalised before they are merged, for weighted and combmnz.", group=FUSION,
        choices=NORMALISATIONS, metavar="NAME", tuned=True, label="Normalisation",
    )  # fmt: skip
    text_weight: float = option(
        1.0, "Weight of the keyword source.", group=FUSION, bounds=WEIGHT, metavar="W", tuned=True,
        label="Keyword weight", slider=Slider(0, 2), needs=("sources", "keyword"),
    )  # fmt: skip
    vector_weight: float = option(
        1.0, "Weight of the vector source.", group=FUSION, bounds=WEIGHT, metavar="W", tuned=True,
        label="Vector weight", slider=Slider(0, 2), needs=("sources", "vector"),
    )  # fmt: skip
    decay: bool = option(
        True, "Lower the score of records of a decaying class as they age.", group=AFTER, flags=("--decay",),
        metavar="[WHEN]", words=("on", "off"), tuned=True, label="Decay with age",
        flag_help="on, off, or a half-life for records without a decay class: 30d.",
    )  # fmt: skip
    half_life_days: float | None = option(
        None, "Half-life in days of records without a decay class; by default they do not decay.", group=AFTER,
        bounds=POSITIVE, places=(HTTP, PAGE), http_bounds=Bounds(0, 1e6, open=True), tuned=True,
        label="Half-life, days", slider=Slider(1, 365, 1), needs=("decay", True),
    )  # fmt: skip
    importance_weight: float = option(
        0.1, "How strongly the importance of a record changes its score, 0 to 1.", group=AFTER, bounds=SHARE,
        metavar="W", label="Importance", slider=Slider(),
    )  # fmt: skip
    by: str = option(
        "file", "What a result is: a file, with its best passage and the further ones attached, or a single chunk.",
        group=AFTER, choices=("file", "chunk"), metavar="WHAT", label="Results by",
    )  # fmt: skip
    prefer_newer: bool = option(
        True, "Of two facts that say nearly the same, rank the newer first.", group=AFTER, label="Prefer the newer"
    )
    mmr: bool = option(False, "Reorder the results for diversity.", group=AFTER, tuned=True, label="Diversity (MMR)")
    mmr_lambda: float = option(
        0.7, "Balance of MMR: 1 is relevance only, 0 is diversity only.", group=AFTER, bounds=SHARE, metavar="L",
        tuned=True, label="λ", slider=Slider(), needs=("mmr", True),
    )  # fmt: skip
    min_score: float = option(
        0.0, "Leave out results with a lower score, 0 to 1.", group=DEPTH, bounds=SHARE, metavar="S",
        label="Minimum score", slider=Slider(step=0.01),
    )  # fmt: skip
    confidence: bool = option(
        False, "Print the confidence of each result: the probability that it is relevant. JSON always has it.",
        group=AFTER, places=(FLAG, HTTP),
    )  # fmt: skip
    min_confidence: float | None = option(
        None, f"Leave out results with a lower confidence, 0 to 1; by default recall and MCP do so below {LIKELY}.",
        group=AFTER, bounds=SHARE, metavar="C", places=_ALL, label="Minimum confidence", slider=Slider(step=0.01),
    )  # fmt: skip
    rerank: bool | None = option(
        None, "Let a reranker read the first results again; by default for recall and MCP.", group=AFTER, label="Rerank"
    )
    rerank_ms: float | None = option(
        None, f"Milliseconds for reranking: as many results as fit; {RERANK_MS:g} where `rerank` is not set.",
        group=AFTER, bounds=POSITIVE, metavar="MS", places=(FLAG, HTTP), http_bounds=Bounds(1, 1e7),
        needs=("rerank", True),
    )  # fmt: skip
    rerank_model: str = option(
        "small-reranker", "The reranker; minilm-l12-reranker is better, takes four times as long and is fetched.",
        filled=True, places=(), sends=True,
    )  # fmt: skip
    rerank_head: int = option(20, "Number of results that the reranker reads.", bounds=Bounds(2, 1000), places=())
    hyde: bool | str = option(
        False,
        'Also search with a hypothetical answer by the language model of [llm]; "replace" searches with it alone.',
        choices=("replace",), places=(FLAG, HTTP), sends=True, metavar="[HOW]", words=("on", "off", "replace"),
        flag_help="on, off or replace: search with a hypothetical answer by the language model of [llm].",
    )  # fmt: skip
    hyde_model: str | None = option(
        None, "The model that writes the hypothetical answer; by default that of [llm].", places=(), sends=True
    )
    hyde_timeout: float = option(10.0, "Seconds that it may take.", bounds=POSITIVE, places=(), sends=True)
    hyde_weight: float = option(1.0, "Weight of the list that it finds.", bounds=WEIGHT, places=(), sends=True)
    trusted_origins: tuple[str, ...] = option(
        TRUSTED, "The origins of records that recall, the hook and MCP search; the filter `origin` names others.",
        check=(lambda names: bool(names) and set(names) <= set(ORIGINS), f"some of {', '.join(ORIGINS)}"), places=(),
        guarded=True,
    )  # fmt: skip

    def for_model(self, *, reranks: bool) -> Self:
        """These options for results that a language model reads: what is not set is chosen for it.

        A model cannot see that a result is unrelated, so those are left out. And it waits longer than a person does, so
        the results are reranked if it `reranks`. Results are chunks: a model reads the text of each, and would need
        another call to open the further passages of a file.
        """
        chosen: dict[str, Any] = {"by": "chunk"} | ({"min_confidence": LIKELY} if self.min_confidence is None else {})
        if self.rerank is None:
            chosen |= {"rerank": reranks, "rerank_ms": self.rerank_ms or RERANK_MS}
        return replace(self, **chosen)

    def weights(self) -> dict[str, float]:
        """The weights of the built-in sources."""
        return {"keyword": self.text_weight, "vector": self.vector_weight, "hyde": self.hyde_weight}


SEARCH: tuple[Option, ...] = options_of(SearchOptions)
"""The search options, by which the settings of `[search]` are checked."""

RECALL: tuple[Option, ...] = tuple(option for option in SEARCH if option.name != "by")
"""The search options of `recall`, whose blocks are made of passages, never of files."""

_TIME = "2026-03-14, 2026-03-14T15:09Z, a span back: 36h, 2w, or words: yesterday"

FILTERS: tuple[Option, ...] = (  # what a search and a listing can be narrowed by, besides the scope
    Option(
        (), "Only records of any of these categories.", "category", tuple[str, ...], FILTER, places=_ALL,
        metavar="NAME", flag_help="Only records of this category; repeat it for any of several.", label="Category",
        column="categories",
    ),
    Option(
        (), "Only records that have all of these tags.", "tags", tuple[str, ...], FILTER, places=_ALL,
        flags=("--tag",), metavar="TAG", flag_help="Only records with this tag; repeat it for several, all required.",
        label="Tags (all required)",
    ),
    Option(
        None, "Only facts, chunks of files, or turns of conversations.", "kind", str | None, FILTER,
        choices=KINDS, places=_ALL, label="Kind", column="kinds",
    ),
    Option(
        (), "Only records of any of these origins; outside: documents of other systems.", "origin",
        tuple[str, ...], FILTER, choices=(*ORIGINS, OUTSIDE, ANY_ORIGIN), places=(FLAG, HTTP, MCP), metavar="NAME",
        flag_help=f"Only records of this origin, repeatable: {', '.join(ORIGINS)}; outside; any for all.",
        column="origins",
    ),
    Option(
        (), "Only records that any of these authors wrote.", "author", tuple[str, ...], FILTER, places=(FLAG, HTTP),
        metavar="NAME", flag_help="Only records of this author; repeat it for any of several.", column="authors",
    ),
    Option(
        (), "Only records that were written in any of these sessions.", "author_session", tuple[str, ...], FILTER,
        places=(FLAG, HTTP), metavar="NAME", flag_help="Only records written in this session, or any of several.",
        column="author_sessions",
    ),
    Option(
        None, "Only from this file or folder: `docs/`, `*.md`.", "path", str | None, FILTER,
        places=_ALL, metavar="GLOB", label="File or folder", example="notes/work",
    ),
    Option(
        None, f"Only records from this time on: {_TIME}.", "since", datetime | None, FILTER, places=_ALL,
        metavar="TIME", label="Since", example="7d or 2026-01-31",
    ),
    Option(
        None, "Only records from before this time.", "until", datetime | None, FILTER, places=_ALL, metavar="TIME",
        label="Until", example="7d or 2026-01-31",
    ),
    Option(
        None, "Answer as memory stood at this time.", "as_of", datetime | None, FILTER,
        places=_ALL, metavar="TIME", label="As of", example="what was true then",
    ),
    Option(
        False, "Also find superseded records.", "superseded", bool, FILTER, places=_ALL, commands=("search", "list"),
        label="Include superseded",
    ),
    Option(
        False, "Records of every user, agent and session; only for a caller without a scope.", "any_scope", bool,
        FILTER, commands=("search", "list"), label="Any scope",
    ),
)  # fmt: skip

SCOPE: tuple[Option, ...] = tuple(  # the parts of a scope
    Option(
        None, f"Only records of this {part} (and global ones); new records belong to this {part}.", part, str | None,
        SCOPE_GROUP, filled=True, metavar="NAME", label=f"Of {part}", example=part,
    )
    for part in ("user", "agent", "session")
)  # fmt: skip

SCOPE_PARTS = tuple(part.name for part in SCOPE)
FILTER_NAMES = tuple(filter_.name for filter_ in FILTERS)


def described(options: tuple[Option, ...]) -> str:
    """The options as the lines of a docstring, with their defaults."""
    defaults = {option.name: "" if option.default in (None, ()) else f" ({option.default})" for option in options}
    return "\n".join(f"- `{option.name}`{defaults[option.name]}: {option.about}" for option in options)
