"""Request bodies and parameters as types, with the option names of `Memory`. Null means not set."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, Field, create_model

from recollect.errors import Forbidden
from recollect.memory.payloads import MOST_NAME, MOST_NAMES, MOST_NUMBER, Name, Names
from recollect.memory.recall import LEAST_TOKENS, MOST_TOKENS
from recollect.memory.validation import FIELDS, MAX_TEXT
from recollect.options import (
    FILTERS,
    GROUPS,
    HTTP,
    ORIGINS,
    PAGE,
    RECALL,
    RECALL_TOKENS,
    SCOPE,
    SEARCH,
    Bounds,
    Option,
    Slider,
)
from recollect.web.access import CallerMemory

MOST_QUERY = 100_000
MOST_LISTED = 1_000

Id = Annotated[str, Field(min_length=1, max_length=MOST_NAME, description="The id of a record.")]
When = Annotated[Name, Field(min_length=1, description="2026-03-14, 2026-03-14T15:09Z, or a span: 36h, 3d, 2w.")]

_bearer = HTTPBearer(auto_error=False, description="A token that `recollect token add` made.")


async def _reader(
    request: Request, _shown: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)] = None
) -> CallerMemory:
    asker: CallerMemory = request.app.state.access.asker(request.headers.get("authorization"))
    request.state.owner = asker.caller.owner
    return asker


Reads = Annotated[CallerMemory, Depends(_reader)]
"""The caller of a request; `Writes`, `Owns` and `OwnsAndWrites` also check what the caller may do."""


def _allowed(*, writes: bool = False, owns: bool = False) -> Any:
    async def check(request: Request, asker: Reads) -> CallerMemory:
        if writes and not request.app.state.access.may_write(asker.caller):
            raise Forbidden("this caller may only read", hint="use a server and a token without --read-only")
        if owns and not asker.caller.owner:
            raise Forbidden("only the owner of the store may do this", hint="`recollect token add NAME --owner`")
        return asker

    return Depends(check)


Writes = Annotated[CallerMemory, _allowed(writes=True)]
Owns = Annotated[CallerMemory, _allowed(owns=True)]
OwnsAndWrites = Annotated[CallerMemory, _allowed(writes=True, owns=True)]


async def known_parameters(request: Request, _asker: Reads) -> None:
    """Refuse a parameter of the address that this route does not have, like an unknown field of a body."""
    if not request.query_params:
        return
    operation = request.app.openapi()["paths"][request.scope["route"].path_format][request.method.lower()]
    known = {parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "query"}
    if unknown := [name for name in request.query_params if name not in known]:
        message = f"there is no such parameter, only {', '.join(sorted(known))}" if known else "it has no parameters"
        raise RequestValidationError([{"loc": ("query", name), "msg": message, "type": "extra"} for name in unknown])


# Strict: "1" for a number, or 1 for true, is most often a mistake.
class _Body(BaseModel, extra="forbid", strict=True):
    def set_fields(self, *without: str) -> dict[str, Any]:
        fields = self.model_dump(exclude=set(without), exclude_none=True)
        return {name: value for name, value in fields.items() if value not in ([], {})}


class _Parameters(BaseModel):
    def set_fields(self, *without: str) -> dict[str, Any]:
        return {name: value for name, value in self.model_dump(exclude=set(without)).items() if value}


def _fields(*options: Option, repeated: bool = False) -> dict[str, Any]:
    """Fields for options of HTTP; with `repeated` a list has the name of one part, as in an address: `tag=a&tag=b`."""
    fields: dict[str, Any] = {}
    for option in options:
        if HTTP in option.places:
            alias = option.flags[0].removeprefix("--") if repeated and option.flags else None
            about = f"{option.about} Only for a caller without a scope." if option.sends else option.about
            if repeated and option.kind == "names":
                fields[option.name] = (_type(option), Field([], alias=alias, description=about))
            else:
                fields[option.name] = (_type(option) | None, Field(None, alias=alias, description=about))
    return fields


def _type(option: Option) -> Any:
    bounds = option.http_bounds or option.bounds or Bounds()
    low: dict[str, Any] = {"gt": bounds.low} if bounds.open else {"ge": bounds.low}
    high = min(bounds.high, MOST_NUMBER)
    match option.kind:
        case "mode":
            return bool | Literal[tuple(option.allowed)]
        case "whole":
            return Annotated[int, Field(**low, le=int(high))]
        case "number":
            return Annotated[float, Field(**low, le=high, allow_inf_nan=False)]
        case "text" if option.allowed:
            return Literal[tuple(option.allowed)]
        case "names" if option.allowed:
            word: Any = Literal[tuple(option.allowed)]
            return Annotated[list[word], Field(max_length=MOST_NAMES)]
    return {"flag": bool, "names": Names, "time": When, "text": Name}[option.kind]


class ScopeBody(create_model("ScopeFields", __base__=_Body, **_fields(*SCOPE))):  # type: ignore[misc]
    """A scope; only a caller without a scope may name one."""


_ANY_SCOPE = [option for option in FILTERS if option.name == "any_scope"]
_LISTED = create_model("ListFields", __base__=_Parameters, **_fields(*FILTERS, *SCOPE, repeated=True))


class ScopeParameters(create_model("ScopeParts", __base__=_Parameters, **_fields(*SCOPE))):  # type: ignore[misc]
    """A scope, as parameters of an address."""


class FacetParameters(ScopeParameters, create_model("AnyScope", __base__=_Parameters, **_fields(*_ANY_SCOPE))):  # type: ignore[misc]
    """The scope whose facets are listed, or any."""


class ListParameters(_LISTED):  # type: ignore[misc, valid-type]
    """Which records are listed, as parameters of an address."""

    limit: int = Field(50, ge=1, le=MOST_LISTED)
    offset: int = Field(0, ge=0, le=1_000_000_000)


def _query_fields(*options: Option) -> Any:
    """The filters, the scope and these search options as a model."""
    scope: Any = (ScopeBody | None, None)
    return create_model("QueryFields", __base__=_Body, **_fields(*FILTERS), scope=scope, **_fields(*options))


class _QueryBody(BaseModel):
    """The fields of every query."""

    query: str = Field(max_length=MOST_QUERY, examples=["where is the spare key?"])
    explain: bool = Field(False, description="Also each result's factors and moves.")


class SearchBody(_QueryBody, _query_fields(*SEARCH)):  # type: ignore[misc]
    """A query and its options; an option that is left out has the value of the server's settings.

    Several categories mean any of them, several tags all of them.
    """


class RecallBody(_QueryBody, _query_fields(*RECALL)):  # type: ignore[misc]
    """A query whose answer is returned as one block for a model's context."""

    tokens: int = Field(RECALL_TOKENS, ge=LEAST_TOKENS, le=MOST_TOKENS)


class WhyNotBody(SearchBody):
    """A query, and the record that is missing from its results."""

    target: str = Field(min_length=1, max_length=MOST_NAME, description="A record's id, or a file's path.")


class _Fields(create_model("RecordFields", __base__=_Body, **_fields(*FIELDS))):  # type: ignore[misc]
    """The fields of a record."""

    origin: Literal[tuple(ORIGINS)] | None = Field(  # type: ignore[valid-type]
        None, description="Who wrote it; a token that is bound to an agent cannot name user."
    )
    author: Id | None = Field(None, description="The name of who wrote it.")
    author_session: Id | None = Field(None, description="The session in which it was written.")


class NewRecord(_Fields):
    """A record to store."""

    text: str = Field(min_length=1, max_length=MAX_TEXT, examples=["The spare key is under the blue pot."])
    id: Id | None = None
    scope: ScopeBody | None = None
    supersedes: Id | None = Field(None, description="The record whose place it takes.")


class Edited(_Fields):
    """New values of a fact's fields; null clears a field, a field that is not set stays."""

    text: str | None = Field(None, min_length=1, max_length=MAX_TEXT)


class Supersession(_Body):
    """The record to supersede, and the new text or record."""

    id: Id
    text: str | None = Field(None, min_length=1, max_length=MAX_TEXT)
    by: Id | None = None
    at: When | None = None
    origin: Literal[tuple(ORIGINS)] | None = None  # type: ignore[valid-type]
    author: Id | None = None
    scope: ScopeBody | None = None


class Forgetting(_Body):
    """The records to forget: all of them, or none if one is unknown."""

    ids: Annotated[list[Id], Field(min_length=1, max_length=MOST_NAMES)]
    scope: ScopeBody | None = None


class RollingBack(_Body):
    """The writers and the period whose facts are rolled back, of which one must be named."""

    origin: list[Literal[tuple(ORIGINS)]] = Field([], max_length=MOST_NAMES)  # type: ignore[valid-type]
    author: Names = []
    author_session: Names = []
    since: When | None = Field(None, description="Facts that were written from this time on; a span is back from now.")
    until: When | None = Field(None, description="Facts that were written before this time.")
    confirm: bool = Field(False, description="Without it, the answer only says what would be changed.")
    scope: ScopeBody | None = None


class Undoing(_Body):
    """The record whose last change is undone; with `seq`, only if that is still the last change."""

    id: Id
    seq: int | None = Field(None, ge=1, le=2**62, description="As the answer to the change said it.")
    scope: ScopeBody | None = None


class Indexing(_Body):
    """The folders to index again; by default all that are indexed."""

    paths: Names = []
    dry_run: bool = False


def controls() -> dict[str, Any]:
    """The controls of the page: search options in groups, and filters."""
    shown = [option for option in SEARCH if PAGE in option.places]
    groups = [{"title": group, "controls": [_control(option) for option in shown if option.group == group]}
              for group in GROUPS]  # fmt: skip
    filters = [_control(option) for option in (*FILTERS, *SCOPE) if PAGE in option.places]
    return {"groups": groups, "filters": filters}


def _control(option: Option) -> dict[str, Any]:
    """One control; `needs` is the other option, and its values, without which this one has no effect."""
    control: dict[str, Any] = {
        "name": option.name, "label": option.label or option.name.replace("_", " "), "about": option.help,
        "kind": _KINDS[option.kind], "optional": option.default is None, "example": option.example,
    }  # fmt: skip
    if option.allowed:
        control["choices"] = choices = [_choice(name, option.allowed) for name in option.allowed]
        explained = all(choice["about"] and choice["label"] != choice["value"] for choice in choices)
        control["kind"] = "radios" if explained else "choice"
    if option.kind in ("whole", "number"):
        bounds = option.bounds or Bounds()
        slider = option.slider or Slider(bounds.low, min(bounds.high, 100), 1 if option.kind == "whole" else 0.05)
        control |= {"low": slider.low, "high": slider.high, "step": slider.step, "whole": option.kind == "whole"}
    if option.condition:
        control["needs"] = {"name": option.condition[0], "values": list(option.condition[1])}
    return control


_KINDS = {"flag": "switch", "whole": "number", "number": "number", "names": "names", "time": "text", "text": "text"}


def _choice(name: str, choices: Any) -> dict[str, str]:
    about = choices[name] if isinstance(choices, Mapping) else name
    if isinstance(about, str):
        return {"value": name, "label": about, "about": ""}
    return {"value": name, "label": getattr(about, "label", name), "about": about.help}
