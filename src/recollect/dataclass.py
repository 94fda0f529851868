"""`dataclass` as in the standard library, except that a class is made in a third to half the time.

The standard one compiles the methods of each class one by one. Here only `__init__` is compiled, and all classes share
the other methods. A class of five fields takes 0.14 ms instead of 0.46, and a keyword search makes 73 classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from operator import attrgetter
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414  (type checkers see the standard one)
else:

    def dataclass(cls: Any = None, /, *, frozen: bool = False, slots: bool = False, eq: bool = True) -> Any:
        """The class as a dataclass, which `dataclasses.fields`, `dataclasses.replace` and the like know."""
        if cls is None:
            return lambda cls: _build(cls, frozen, slots, eq)
        return _build(cls, frozen, slots, eq)


class _Factory:
    """In a signature, the default of a field that is made anew for each instance."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _build(plain: type, frozen: bool, slots: bool, eq: bool) -> Any:
    own = vars(plain)
    cls: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(plain)
    fields = dataclasses.fields(cls)
    # The class itself is compared first, so that there is always a tuple.
    cls.__compared__ = attrgetter("__class__", "__class__", *(entry.name for entry in fields if entry.compare))
    methods: dict[str, Any] = {"__init__": _init(cls, fields), "__repr__": _repr}
    methods |= {"__eq__": _equal, "__hash__": _hash if frozen else None} if eq else {}
    methods |= _FROZEN if frozen else {}
    methods |= _STATE if frozen and slots else {}
    for name, method in methods.items():
        if name not in own or (eq and own[name] is None):  # a class with an `__eq__` of its own has None for `__hash__`
            setattr(cls, name, method)
    return cls


def _init(cls: Any, fields: Sequence[dataclasses.Field[Any]]) -> Callable[..., None]:
    """`__init__`, compiled. It fills slots themselves, which is faster than setting attributes by name."""
    names: dict[str, Any] = {"_factory": _FACTORY, "_set": object.__setattr__}
    parameters, keywords, body = ["self"], ["*"], []
    for entry in fields:
        name = value = entry.name
        default = ""
        if entry.default is not dataclasses.MISSING:
            default, names[f"_default_{name}"] = f"=_default_{name}", entry.default
            value = name if entry.init else f"_default_{name}"
        elif entry.default_factory is not dataclasses.MISSING:
            default, names[f"_make_{name}"] = "=_factory", entry.default_factory
            value = f"_make_{name}() if {name} is _factory else {name}" if entry.init else f"_make_{name}()"
        elif not entry.init:
            continue
        if entry.init:
            (keywords if entry.kw_only else parameters).append(f"{name}{default}")
        if isinstance(slot := getattr(cls, name, None), MemberDescriptorType):
            names[f"_set_{name}"] = slot.__set__
            body.append(f"_set_{name}(self, {value})")
        else:
            body.append(f"_set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    listed = [*parameters, *(keywords if len(keywords) > 1 else ())]
    exec(f"def __init__({', '.join(listed)}):\n " + "\n ".join(body or ["pass"]), names)  # noqa: S102
    init: Callable[..., None] = names["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {entry.name: entry.type for entry in fields if entry.init} | {"return": None}
    return init


def _equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return self.__compared__(self) == self.__compared__(other)


def _hash(self: Any) -> int:
    return hash(self.__compared__(self))


@recursive_repr()
def _repr(self: Any) -> str:
    values = (f"{entry.name}={getattr(self, entry.name)!r}" for entry in dataclasses.fields(self) if entry.repr)
    return f"{self.__class__.__qualname__}({', '.join(values)})"


def _refuse_to_set(_self: Any, name: str, _value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, entry.name) for entry in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for entry, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, entry.name, value)


_FROZEN = {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
_STATE = {"__getstate__": _state, "__setstate__": _set_state}
