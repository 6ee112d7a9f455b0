"""Our dataclasses do what those of the standard library do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

import pytest

from octants import lazy_dataclass

OPTIONS = [
    {},
    {"eq": False},
    {"frozen": True},
    {"frozen": True, "eq": False},
    {"slots": True},
    {"eq": False, "slots": True},
    {"frozen": True, "slots": True},
]
KINDS: dict[str, Callable[..., Any]] = {
    "ours": getattr(lazy_dataclass, "dataclass"),  # noqa: B009  # not what mypy takes it for
    "standard": dataclasses.dataclass,
}


def point(decorator: Callable[..., Any], options: dict[str, bool]) -> Any:
    """A class with fields of all sorts."""

    class Point:
        """A point."""

        count: ClassVar[int] = 3
        x: float
        y: float = 2.0
        names: list[str] = field(default_factory=list)
        hidden: int = field(default=7, repr=False, compare=False)
        unset: int = field(init=False, repr=False, compare=False)
        far: bool = field(default=False, kw_only=True)

        def length(self) -> float:
            return math.hypot(self.x, self.y)

    return decorator(**options)(Point)


@pytest.fixture(params=OPTIONS, ids=str)
def options(request: pytest.FixtureRequest) -> dict[str, bool]:
    chosen: dict[str, bool] = request.param
    return chosen


@pytest.fixture(params=["interpreted", "compiled"])
def both(
    request: pytest.FixtureRequest, options: dict[str, bool]
) -> tuple[Any, Any, dict[str, bool]]:
    ours, standard = (point(decorator, options) for decorator in KINDS.values())
    if request.param == "compiled":
        before = ours.__init__
        for _ in range(50):
            ours(1.0)
        assert ours.__init__ is not before
    return ours, standard, options


def outcome(action: Callable[[], Any]) -> Any:
    """What an action gives, or the kind of error that it raises."""
    try:
        return action()
    except Exception as error:
        return type(error)


ACTIONS: dict[str, Callable[[Any], Any]] = {
    "repr": lambda kind: repr(kind(1.0, 3.0, ["a"], 9, far=True)).rpartition(".")[2],
    "defaults": lambda kind: (kind(1.0).y, kind(1.0).names, kind(1.0).hidden, kind(1.0).far),
    "fresh lists": lambda kind: kind(1.0).names is kind(1.0).names,
    "by name": lambda kind: kind(names=["z"], x=4.0).names,
    "too few": lambda kind: kind(),
    "too many": lambda kind: kind(1.0, 2.0, [], 4, True),
    "unknown": lambda kind: kind(1.0, z=3),
    "methods": lambda kind: kind(3.0, 4.0).length(),
    "class variable": lambda kind: kind.count,
    "equal": lambda kind: kind(1.0, hidden=1) == kind(1.0, hidden=2),
    "different": lambda kind: kind(1.0) == kind(1.5),
    "other type": lambda kind: kind(1.0) == 1.0,
    "hash": lambda kind: hash(kind(1.0, 2.0)) and None,
    "not a number": lambda kind: kind(math.nan) == kind(math.nan),
    "set": lambda kind: setattr(kind(1.0), "x", 2.0),
    "set another": lambda kind: setattr(kind(1.0), "other", 2.0),
    "delete": lambda kind: delattr(kind(1.0), "x"),
    "never set": lambda kind: kind(1.0).unset,
    "replace": lambda kind: dataclasses.replace(kind(1.0), y=5.0).y,
    "fields": lambda kind: [(e.name, e.type, e.init, e.kw_only) for e in dataclasses.fields(kind)],
    "is one": lambda kind: dataclasses.is_dataclass(kind(1.0)),
    "copy": lambda kind: copy.copy(kind(1.0, 3.0)).y,
    "match": lambda kind: kind.__match_args__,
    "slots": lambda kind: getattr(kind, "__slots__", None),
    "has dict": lambda kind: hasattr(kind(1.0), "__dict__"),
    "documentation": lambda kind: kind.__doc__,
    "class attribute": lambda kind: isinstance(getattr(kind, "hidden", None), int),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_it_does_what_the_standard_library_does(
    action: str, both: tuple[Any, Any, dict[str, bool]]
) -> None:
    ours, standard, options = both
    if action == "hash" and options == {"frozen": True, "slots": True}:
        assert hash(ours(1.0, names=())) == hash(ours(1.0, names=(), hidden=8))
    if action == "not a number":
        assert ACTIONS[action](ours) is options.get("eq", True)
    varies = action == "set another" and options == {"frozen": True, "slots": True}
    if varies or action == "not a number":
        pytest.skip("depends on the version of Python")
    assert outcome(lambda: ACTIONS[action](ours)) == outcome(lambda: ACTIONS[action](standard))


@pytest.mark.parametrize("decorator", KINDS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_fields_are_inherited(decorator: str, options: dict[str, bool]) -> None:
    base = point(KINDS[decorator], options)

    class Marked(base):  # type: ignore[misc, valid-type]
        y: float = 5.0
        mark: str = "m"

    derived = KINDS[decorator](**options)(Marked)
    made = derived(1.0)
    assert (made.x, made.y, made.mark, made.hidden) == (1.0, 5.0, "m", 7)
    order = ["x", "y", "names", "hidden", "unset", "far", "mark"]
    assert [entry.name for entry in dataclasses.fields(made)] == order
    assert hasattr(made, "__dict__") is not options.get("slots", False)
    assert base(1.0).y == 2.0


@pytest.mark.parametrize("decorator", KINDS)
@pytest.mark.parametrize("frozen", [False, True])
def test_what_a_class_defines_stays(decorator: str, frozen: bool) -> None:
    @KINDS[decorator](frozen=frozen)
    class Own:
        x: int

        def __post_init__(self) -> None:
            object.__setattr__(self, "twice", 2 * self.x)

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

    made = Own(3)  # type: ignore[call-arg]
    assert (repr(made), made.twice, made == Own(4)) == ("own", 6, True)  # type: ignore[attr-defined, call-arg]
    assert (Own.__hash__ is None) is not frozen


@dataclasses.dataclass
class Outside:
    inside: Any


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Kept:
    x: float
    y: tuple[int, ...] = ()


def test_frozen_ones_with_slots_can_be_pickled() -> None:
    found = pickle.loads(pickle.dumps(Outside(Kept(1.0, (2, 3)))))
    assert found.inside == Kept(1.0, (2, 3))
    assert hash(found.inside) == hash(Kept(1.0, (2, 3)))


def test_what_refers_to_itself_can_be_shown() -> None:
    kept = Kept(1.0)
    object.__setattr__(kept, "y", [kept])
    assert repr(kept) == "Kept(x=1.0, y=[...])"


def test_octants_has_no_dataclasses_of_the_standard_library() -> None:
    code = """
        import dataclasses
        made, make = [], dataclasses._process_class
        dataclasses._process_class = lambda kind, *a, **k: made.append(kind) or make(kind, *a, **k)
        import octants.pipeline, octants.frontend, octants.codegen.llvm.cpu, octants.interpreter
        print([kind for kind in made if kind.__module__.startswith("octants.")])
    """
    lines = "\n".join(line.strip() for line in code.splitlines())
    command = [sys.executable, "-c", lines]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert shown.stdout == "[]\n"


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_signature_does_not_depend_on_calls(options: dict[str, bool]) -> None:
    """`help` shows it, and tests of docstrings read it."""
    ours = point(KINDS["ours"], options)

    class Own(ours):
        def __init__(self, z: float) -> None:
            super().__init__(z)

    class Inheriting(ours):
        pass

    def names(cls: Any) -> list[str]:
        return [*inspect.signature(cls).parameters]

    expected = [*inspect.signature(point(KINDS["standard"], options)).parameters]
    assert [names(ours), names(Inheriting)] == [expected] * 2
    assert inspect.signature(ours).parameters["y"].default == 2.0
    ours(1.0)
    assert [names(ours), names(Inheriting)] == [expected] * 2
    assert names(Own) == ["z"]
