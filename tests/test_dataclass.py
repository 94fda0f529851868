"""The faster `dataclass` behaves like the standard one."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from recollect.dataclass import dataclass

T = TypeVar("T")


def twins(declare):
    """The class that a function declares, by the standard decorator and by ours."""
    return declare(dataclasses.dataclass), declare(dataclass)


def point(decorator):
    @decorator(frozen=True, slots=True)
    class Point:
        """A class with every kind of field."""

        x: int
        y: float = 0.5
        names: Mapping[str, Any] = field(default_factory=dict)
        quiet: str = field(default="", repr=False, compare=False)
        made: list[int] = field(default_factory=list, init=False, compare=False)
        fixed: int = field(default=7, init=False)
        last: int = field(default=1, kw_only=True, metadata={"unit": "s"})
        kind: ClassVar[str] = "point"

        def double(self) -> int:
            return 2 * self.x

    return Point


def checked(decorator):
    @decorator(frozen=True, slots=True)
    class Checked(point(decorator)):  # noqa: PLW1641  (the decorator adds the hash)
        """A class that inherits fields, checks them, and is compared in its own way."""

        y: float = 2.0
        z: str = "z"

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("negative")

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self)) and self.x == other.x

        def __repr__(self) -> str:
            return f"<{self.x}>"

    return Checked


def empty(decorator):
    @decorator(frozen=True, slots=True)
    class Empty:
        """No field at all."""

    return Empty


def generic(decorator):
    @decorator(frozen=True, slots=True)
    class Box(Generic[T]):
        """One field, which may be the box itself."""

        content: T

    return Box


def cached(decorator):
    @decorator(frozen=True, eq=False)
    class Cached:
        """Instances have a dictionary, which holds what was computed, and each equals itself only."""

        x: int
        y: list[int] = field(default_factory=list)

        @cached_property
        def double(self) -> int:
            return 2 * self.x

    return Cached


def changing(decorator):
    @decorator(slots=True)
    class Changing:
        """Its fields can be set."""

        x: int = 0
        y: list[int] = field(default_factory=list)

        def __post_init__(self) -> None:
            self.y = [*self.y, self.x]

    return Changing


@pytest.mark.parametrize("declare", [point, checked, empty, generic, cached, changing])
def test_a_class_has_the_same_fields_signature_and_slots(declare):
    """Fields, signature, match arguments and slots are those of the standard class."""
    theirs, ours = map(about, twins(declare))
    assert ours == theirs


def about(cls):
    fields = dataclasses.fields(cls)
    declared = [(entry.name, entry.type, entry.init, entry.kw_only, dict(entry.metadata)) for entry in fields]
    return declared, cls.__match_args__, getattr(cls, "__slots__", None), cls.__doc__, str(inspect.signature(cls))


def test_instances_behave_alike():
    """Representation, equality, hash, replacement, copies and the refusal to change are the same."""
    shown = []
    for cls in twins(point):
        one, other = cls(1, names={"a": 1}), cls(1, 0.5, {"a": 1}, "differs", last=1)
        assert one == other
        assert one != cls(2, names={"a": 1})
        assert one != "text"
        assert cls(1).names is not cls(1).names
        assert dataclasses.replace(one, x=3, last=4) == cls(3, names={"a": 1}, last=4)
        assert copy.deepcopy(one) == copy.copy(one) == one
        assert dataclasses.asdict(one)["names"] == {"a": 1}
        assert hash(cls(1, names=())) == hash(cls(1, names=()))
        for change in (lambda one=one: setattr(one, "x", 2), lambda one=one: delattr(one, "x")):
            with pytest.raises(dataclasses.FrozenInstanceError, match="'x'"):
                change()
        for wrong in (lambda cls=cls: cls(), lambda cls=cls: cls(1, fixed=2), lambda cls=cls: cls(1, 2, 3, 4, 5)):
            with pytest.raises(TypeError):
                wrong()
        with pytest.raises(TypeError, match="unhashable"):
            hash(one)
        match one:
            case cls(x, y):
                shown.append((repr(one), x, y, one.double(), one.fixed, one.made, cls.kind))
    assert shown[0] == shown[1]


def test_own_methods_stay_and_inherited_fields_come_first():
    """A class's own `__eq__`, `__repr__` and `__post_init__` are used."""
    for cls in twins(checked):
        assert cls(1, z="a") == cls(1, z="b")
        assert hash(cls(1, names=(), z="a")) != hash(cls(1, names=(), z="b"))
        assert repr(cls(1)) == "<1>"
        assert cls(1).y == 2.0
        with pytest.raises(ValueError, match="negative"):
            cls(-1)


def test_empty_generic_and_recursive_classes():
    """A class without fields equals itself; a box that holds itself can be shown."""
    for cls in twins(empty):
        assert cls() == cls()
        assert repr(cls()).endswith("Empty()")
    assert twins(empty)[0]() != twins(empty)[1]()
    for cls in twins(generic):
        box = cls([])
        box.content.append(box)
        assert repr(box).endswith("Box(content=[...])")


@dataclass(frozen=True, slots=True)
class Stored:
    """A class that pickle can find."""

    text: str = ""


@dataclass(frozen=True)
class Plain:
    """A class without slots that pickle can find."""

    text: str = ""


def test_instances_can_be_pickled():
    """An instance survives a pickle."""
    assert pickle.loads(pickle.dumps(Stored("tea"))) == Stored("tea")
    assert pickle.loads(pickle.dumps(Plain("tea"))) == Plain("tea")


def test_frozen_classes_without_slots_behave_alike():
    """What a property computes is stored in the instance; nothing can be set; two instances differ."""
    for cls in twins(cached):
        one = cls(1)
        assert (one.double, vars(one)) == (2, {"x": 1, "y": [], "double": 2})
        assert one != cls(1)
        assert hash(one) == object.__hash__(one)
        assert vars(dataclasses.replace(one, x=2)) == {"x": 2, "y": []}
        with pytest.raises(dataclasses.FrozenInstanceError):
            one.x = 2


def test_classes_that_can_be_changed_behave_alike():
    """A field can be set, equal fields make equal instances, and there is no hash."""
    for cls in twins(changing):
        one = cls()
        one.x, one.y = 1, [1]
        assert one == cls(1) == copy.deepcopy(one)
        assert repr(one).endswith("Changing(x=1, y=[1])")
        with pytest.raises(TypeError, match="unhashable"):
            hash(one)
        with pytest.raises(AttributeError):
            one.z = 1
