"""Constants of kernels that are changed in place: a kernel means what they are when it runs."""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import enum
import subprocess
import sys
import typing
from collections import ChainMap, UserDict, UserList, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import octants as qd
from octants.frontend.syntax.reads_of_functions import ReadsOfCall
from octants.launch.warm.specialisation_guards import KernelReads, guard_terms, make_guard
from octants.types.compile_time_reads import Read

VECTOR = qd.Vector([1.0, 2.0])
MATRIX = qd.Matrix([[1.0, 2.0], [3.0, 4.0]])
ARRAY = np.array([1.0, 2.0])
NESTED = [[1.0, 2.0], [3.0, 4.0]]
TABLE = {"a": {"b": 1.0}}
STRUCT = qd.Struct(a=1.0, v=qd.Vector([1.0, 2.0]))
CONFIG = type("Config", (), {})()


@qd.kernel
def read() -> qd.types.vector(8, qd.f32):
    absent = 0.0
    if qd.static(hasattr(CONFIG, "n")):
        absent = 1.0
    return qd.Vector(
        [
            VECTOR[0],
            MATRIX[1, 0],
            ARRAY[0],
            NESTED[1][0],
            TABLE["a"]["b"],
            STRUCT.a,
            STRUCT.v[1],
            absent,
        ]
    )


@pytest.fixture(autouse=True)
def start() -> None:
    qd.init(arch=qd.cpu, log_level="error")


def test_each_change_is_noticed() -> None:
    expected = [1.0, 3.0, 1.0, 3.0, 1.0, 1.0, 2.0, 0.0]
    assert read().to_list() == expected

    def change(position: int) -> None:
        expected[position] = 9.0
        assert read().to_list() == expected

    VECTOR[0] = 9.0
    change(0)
    MATRIX[1, 0] = 9.0
    change(1)
    ARRAY[0] = 9.0
    change(2)
    NESTED[1][0] = 9.0
    change(3)
    TABLE["a"]["b"] = 9.0
    change(4)
    STRUCT.a = 9.0
    change(5)
    STRUCT.v[1] = 9.0
    change(6)
    CONFIG.n = 1  # type: ignore[attr-defined]
    expected[7] = 1.0
    assert read().to_list() == expected


class _Part:
    """An object that says it equals all others."""

    def __init__(self, value: float) -> None:
        self.value, self.values = value, [value]

    def __eq__(self, _: object) -> bool:
        return True

    __hash__ = object.__hash__


class _Pair(NamedTuple):
    first: Any
    second: Any


_MANY = list(range(1, 40))
Change = Callable[[Any], None]


def _at(*path: Any, of: Any) -> Change:
    """Assign to an item of a container, or to an attribute."""

    def change(value: Any) -> None:
        for each in path[:-1]:
            value = (
                getattr(value, each) if isinstance(each, str) and each[0] == "." else value[each]
            )
        value[path[-1]] = of

    return change


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Change, float, float]] = {
    # what is made, what a kernel reads of it, a change, and what it reads before and after that
    "type in a list": (lambda: [1, 2], lambda c: c[0], _at(0, of=1.0), 1.0, 1.75),
    "type in a long list": (lambda: [*_MANY], lambda c: c[0], _at(0, of=1.0), 1.0, 1.75),
    "bool in a list": (lambda: [1.0, 2], lambda c: c[0], _at(0, of=True), 1.75, 1.0),
    "number of numpy": (
        lambda: [np.float32(1)],
        lambda c: c[0],
        _at(0, of=np.float32(2)),
        1.75,
        2.75,
    ),
    "type of numpy": (lambda: [np.float32(1)], lambda c: c[0], _at(0, of=np.int8(1)), 1.75, 1.0),
    "type in a dict": (lambda: {"a": 1}, lambda c: c["a"], _at("a", of=1.0), 1.0, 1.75),
    "list in a tuple": (lambda: ([1.5], 2), lambda c: c[0][0], _at(0, 0, of=4.5), 2.25, 5.25),
    "list in a pair": (lambda: _Pair([1.5], 2), lambda c: c[0][0], _at(0, 0, of=4.5), 2.25, 5.25),
    "many and a pair": (
        lambda: [*_MANY, _Pair([1.5], 2)],
        lambda c: c[39][0][0],
        _at(39, 0, 0, of=4.5),
        2.25,
        5.25,
    ),
    "tuple in a dict": (
        lambda: {"k": [1, (2, 3)]},
        lambda c: c["k"][1][0],
        _at("k", 1, of=(2.0, 3)),
        2.0,
        2.75,
    ),
    "array in a list": (lambda: [np.ones(2)], lambda c: c[0][1], _at(0, 1, of=4.0), 1.75, 4.75),
    "vector in a list": (
        lambda: [qd.Vector([1.0, 2.0])],
        lambda c: c[0][1],
        _at(0, 1, of=4.0),
        2.75,
        4.75,
    ),
    "struct in a list": (
        lambda: [qd.Struct(a=1.0)],
        lambda c: c[0].a,
        lambda c: setattr(c[0], "a", 4.0),
        1.75,
        4.75,
    ),
    "vector": (lambda: qd.Vector([1.5, 2]), lambda c: c[0], _at(0, of=4.5), 2.25, 5.25),
    "objects that are equal": (
        lambda: [_Part(1.5)],
        lambda c: c[0].value,
        _at(0, of=_Part(2.5)),
        2.25,
        3.25,
    ),
    "number beside an object": (
        lambda: [_Part(1.5), 1],
        lambda c: c[1],
        _at(1, of=1.0),
        1.0,
        1.75,
    ),
    "set": (
        lambda: {1, 2},
        lambda c: 5.0 if 5 in c else 2.0,
        lambda c: c.add(5),
        2.75,
        5.75,
    ),
    "deque": (lambda: deque([1.5]), lambda c: c[0], _at(0, of=2.5), 2.25, 3.25),
    "bytearray": (lambda: bytearray(b"ab"), lambda c: c[0] * 1.0, _at(0, of=99), 97.75, 99.75),
    "user list": (lambda: UserList([1.5]), lambda c: c[0], _at(0, of=2.5), 2.25, 3.25),
    "user dict": (lambda: UserDict(a=1.5), lambda c: c["a"], _at("a", of=2.5), 2.25, 3.25),
    "chain map": (lambda: ChainMap({"a": 1.5}), lambda c: c["a"], _at("a", of=2.5), 2.25, 3.25),
    "memoryview": (
        lambda: memoryview(bytearray(b"ab")),
        lambda c: qd.static(c[0] * 1.0),
        _at(0, of=99),
        97.75,
        99.75,
    ),
    "array of C": (
        lambda: (ctypes.c_double * 2)(1.5, 0.0),
        lambda c: qd.static(c[0]),
        _at(0, of=2.5),
        2.25,
        3.25,
    ),
    "order of a dict": (
        lambda: {"a": 1.5, "b": 2.5},
        lambda c: list(c.values())[0],
        lambda c: c.update(a=c.pop("a")),
        2.25,
        3.25,
    ),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("is_template", [False, True], ids=["global", "template"])
def test_what_is_changed_in_place_is_noticed(name: str, is_template: bool) -> None:
    make, look, change, before, after = CHANGES[name]
    constant = make()

    look_at = look if name == "order of a dict" else qd.func(look)

    @qd.kernel
    def of_global() -> qd.f64:
        total = look_at(constant)
        total += 0.75
        return total

    @qd.kernel
    def of_template(given: qd.template()) -> qd.f64:
        total = look_at(given)
        total += 0.75
        return total

    def found() -> float:
        return of_template(constant) if is_template else of_global()  # type: ignore[no-any-return]

    assert (found(), found()) == (before, before)
    change(constant)
    assert (found(), found()) == (after, after)


def test_a_zero_changes_its_sign() -> None:
    zero, zeros = 0.0, [0.0, 0.0]

    @qd.kernel
    def angle() -> qd.f64:
        return qd.atan2(zero * 1.0, -1.0)

    @qd.kernel
    def angle_of_item() -> qd.f64:
        return qd.atan2(zeros[0] * 1.0, -1.0)

    assert angle() > 3.0 and angle_of_item() > 3.0
    zero = zeros[0] = -0.0
    assert angle() < -3.0 and angle_of_item() < -3.0


@pytest.mark.parametrize("name", CHANGES)
def test_what_has_not_changed_compiles_nothing(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    make, look, *_ = CHANGES[name]
    constant = make()
    look_at = look if name == "order of a dict" else qd.func(look)

    @qd.kernel
    def of_global() -> qd.f64:
        return look_at(constant)

    found = of_global()
    compiled: list[Any] = []
    monkeypatch.setattr(type(of_global), "specialise", lambda *given: compiled.append(given))
    assert [of_global() for _ in range(3)] == [found] * 3
    assert not compiled


def test_a_function_that_an_object_or_a_variable_holds_is_replaced() -> None:
    @qd.func
    def plus_one(v):
        return v + 1.0

    def doubled(v):
        return 2.0 * v

    class Layer:
        def __init__(self) -> None:
            self.activation = plus_one

        @qd.kernel
        def apply(self) -> qd.f32:
            return self.activation(3.0)

    @qd.kernel
    def call() -> qd.f32:
        return activation(3.0)

    activation = plus_one
    layer = Layer()
    assert (layer.apply(), call()) == (4.0, 4.0)
    layer.activation = activation = doubled
    assert (layer.apply(), call()) == (6.0, 6.0)


def test_a_function_of_the_main_module_is_defined_again(tmp_path: Path) -> None:
    """As in a notebook, where a cell is changed and runs again."""
    script = tmp_path / "session.py"
    script.write_text(
        """
import octants as qd

qd.init(arch=qd.cpu)

@qd.func
def inner(v):
    return v + 1

@qd.func
def shift(v):
    return inner(v)

@qd.kernel
def call() -> qd.i32:
    return shift(1)

print(call())

@qd.func
def inner(v):
    return v + 10

print(call())

def shift(v):
    return v + 100

print(call())
"""
    )
    command = [sys.executable, str(script)]
    assert subprocess.check_output(command, text=True).split() == ["2", "11", "101"]


def test_names_and_defaults_of_the_main_module_change(tmp_path: Path) -> None:
    script = tmp_path / "session.py"
    script.write_text(
        """
import octants as qd

qd.init(arch=qd.cpu)

@qd.func
def shift(v, by=1, *, twice=0):
    return v + by + 2 * twice

def on_host(by=10):
    return by

@qd.kernel
def call() -> qd.i32:
    return max(shift(1), min(1, 2)) + qd.static(on_host())

print(call())
shift.__defaults__ = (2,)
print(call())
on_host.__defaults__ = (20,)
print(call())
shift.__kwdefaults__["twice"] = 1
print(call())
shift.__kwdefaults__ = {"twice": 2}
print(call())
shift.__kwdefaults__["twice"] = 0

@qd.func
def max(a, b):
    return a * 100 + b

print(call())
del max
print(call())
"""
    )
    command = [sys.executable, str(script)]
    printed = subprocess.check_output(command, text=True).split()
    assert printed == ["12", "13", "23", "25", "27", "321", "23"]


def test_a_default_that_is_changed_in_place_is_noticed() -> None:
    @qd.func
    def total(scale, terms=[1, 2], *, more=[3]):  # noqa: B006
        result = 0
        for term in qd.static((*terms, *more)):
            result += scale * term
        return result

    @qd.kernel
    def call() -> qd.i32:
        return total(1)

    assert call() == 6
    total.__defaults__[0][1] = 5
    assert call() == 9
    total.__kwdefaults__["more"].append(4)
    assert call() == 13


def test_a_kernel_has_the_present_defaults_of_its_function() -> None:
    @qd.kernel
    def call(a: qd.i32, b: qd.i32 = 2, *, c: qd.i32 = 3) -> qd.i32:
        return a * 100 + b * 10 + c

    assert call(1) == 123
    call.__wrapped__.__defaults__ = (4,)
    assert call(1) == 143
    call.__wrapped__.__kwdefaults__["c"] = 5
    assert call(1) == call(1, 4) == call(c=5, a=1) == 145


def test_what_a_function_of_python_reads_is_noticed() -> None:
    """Python calls a function of constants when a kernel is compiled; it reads what may change."""

    class Body:
        def __init__(self) -> None:
            self.lengths = [1.0, 2.0]

        def longest(self):
            return max(self.lengths) * scale

        def __getitem__(self, index):
            return self.lengths[index]

        def __call__(self):
            return self.total

        @property
        def total(self):
            return sum(self.lengths)

    def twice():
        return helper(2.0) * CONFIG.m

    scale, body, results = 1.0, Body(), {}

    def scaled(x):
        return x + scale

    def negative(x):
        return -x

    helper = scaled

    def remembered(x):
        if x not in results:
            results[x] = helper(x)
        return results[x]

    @qd.kernel
    def look() -> qd.types.vector(6, qd.f64):
        found = [twice(), body.longest(), body[0], body(), remembered(1.0), helper(1.0)]
        return qd.Vector(found)

    CONFIG.m = 1.0
    assert look().to_list() == [3.0, 2.0, 1.0, 3.0, 2.0, 2.0]
    scale = 2.0
    assert look().to_list() == [4.0, 4.0, 1.0, 3.0, 2.0, 3.0]  # as Python, it remembers
    body.lengths[0] = 5.0
    assert look().to_list() == [4.0, 10.0, 5.0, 7.0, 2.0, 3.0]
    CONFIG.m = 2.0
    assert look()[0] == 8.0
    body = Body()
    assert look()[1] == 4.0
    helper = negative
    assert look().to_list() == [-4.0, 4.0, 1.0, 3.0, 2.0, -1.0]


class _Spring:
    """An object that a Python function reads; its operators read its attributes."""

    shared = 1.0

    def __init__(self, rest: float) -> None:
        self.rest = rest
        self.nested = {"ends": [rest]}

    def __bool__(self) -> bool:
        return self.rest > 1.5

    def __iter__(self):
        return iter([self.rest])

    def __neg__(self):
        return -self.rest

    def stiffness(self):
        return self.rest * self.shared


SPRINGS = [_Spring(1.0), _Spring(2.0)]
NAMED = {"a": _Spring(1.0)}
OBJECTS = np.array([*SPRINGS, None])


def _own(spring):
    return spring.rest


READERS: dict[str, Callable[[], Any]] = {
    "items of a list": lambda: sum(each.rest for each in SPRINGS),
    "an item of a dict": lambda: NAMED["a"].rest + SPRINGS[0].rest - 1.0,
    "an item of an attribute": lambda: SPRINGS[0].nested["ends"][0] + SPRINGS[0].rest,
    "a method of an item": lambda: SPRINGS[0].stiffness(),
    "an item of an array of objects": lambda: OBJECTS[0].rest,
    "an argument of a function inside": lambda: _own(SPRINGS[0]),
    "a key function": lambda: _own(max(SPRINGS[:1], key=_own)),
    "a name in a string": lambda: getattr(SPRINGS[0], "rest"),  # noqa: B009
    "all attributes": lambda: sum(v for k, v in vars(SPRINGS[0]).items() if k != "nested"),
}


@pytest.mark.parametrize("name", READERS)
def test_what_a_function_of_python_reads_of_items_is_noticed(name: str) -> None:
    read_items = READERS[name]

    @qd.kernel
    def look() -> qd.f64:
        return read_items()

    before = look()
    SPRINGS[0].rest += 8.0
    assert look() == before + 8.0
    SPRINGS[0].rest -= 8.0
    assert look() == before


def test_what_a_function_of_python_reads_of_its_arguments_is_noticed() -> None:
    @qd.kernel
    def look(spring: qd.template()) -> qd.types.vector(2, qd.f64):
        return qd.Vector([_own(spring), _own(spring=spring)])

    spring = _Spring(1.0)
    assert look(spring).to_list() == [1.0, 1.0]
    spring.rest = 4.0
    assert look(spring).to_list() == [4.0, 4.0]


def test_what_the_standard_library_reads_is_noticed() -> None:
    @dataclasses.dataclass
    class Point:
        x: float
        tail: list[float]

    point = Point(1.0, [2.0])

    @qd.kernel
    def look() -> qd.f64:
        return dataclasses.astuple(point)[0] + copy.deepcopy(point).tail[0]

    assert look() == 3.0
    point.x = 5.0
    assert look() == 7.0
    point.tail[0] = 1.0
    assert look() == 6.0


def test_what_the_standard_library_refers_to_is_not_searched() -> None:
    """It leads to `sys.modules`, and so to the whole program."""
    for function in (copy.deepcopy, dataclasses.astuple, typing.get_type_hints):
        assert len(ReadsOfCall(function, ([1, 2],)).unchanged()) < 20


class _Kind(enum.Enum):
    SOFT = 1
    HARD = 2


def test_attributes_that_only_some_have_are_noticed() -> None:
    """An enumeration has no `name`, which its members have, and a slot may be empty."""

    class Body:
        __slots__ = ("__weakref__", "name")

    def stiffness(kind):
        return 10.0 if _Kind[kind.name] is _Kind.SOFT else 20.0

    def name_of(body):
        return getattr(body, "name", 0.0)

    body = Body()

    @qd.kernel
    def look(kind: qd.template()) -> qd.f64:
        return stiffness(kind) + name_of(body)

    assert look(_Kind.SOFT) == 10.0
    assert look(_Kind.HARD) == 20.0
    body.name = 3.0  # type: ignore[attr-defined]
    assert look(_Kind.HARD) == 23.0
    del body.name  # type: ignore[attr-defined]
    assert look(_Kind.HARD) == 20.0


def test_another_object_in_an_array_is_noticed() -> None:
    @qd.kernel
    def look() -> qd.f64:
        return _own(OBJECTS[0])

    assert look() == 1.0
    OBJECTS[0] = _Spring(5.0)
    try:
        assert look() == 5.0
    finally:
        OBJECTS[0] = SPRINGS[0]


def test_what_an_operator_of_an_object_reads_is_noticed() -> None:
    spring = _Spring(1.0)

    @qd.kernel
    def look() -> qd.types.vector(3, qd.f64):
        chosen = 1.0
        if qd.static(spring):
            chosen = 2.0
        (item,) = spring
        return qd.Vector([chosen, item, -spring])

    assert look().to_list() == [1.0, 1.0, -1.0]
    spring.rest = 4.0
    assert look().to_list() == [2.0, 4.0, -4.0]


def test_what_a_function_keeps_for_itself_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, seen = 0, []

    def counted():
        nonlocal calls
        calls += 1
        seen.append(calls)
        return 3

    @qd.kernel
    def look() -> qd.i32:
        return counted()

    assert look() == 3
    monkeypatch.setattr(type(look), "specialise", lambda *_: pytest.fail("compiled again"))
    assert (look(), calls) == (3, 1)


_METHODS = """
class World:
    def plain(self):
        return 1

    @qd.func
    def inlined(self, x):
        return x + 1

    @staticmethod
    def static():
        return 1

    @classmethod
    def of_class(cls):
        return 1

    @qd.kernel
    def look(self) -> qd.i32:
        return self.plain() + self.inlined(0) * 10 + self.static() * 100 + self.of_class() * 1000
"""


def test_methods_of_the_main_module_are_replaced() -> None:
    """At a prompt or in a notebook a class gets another method, or an object one of its own."""
    names: dict[str, Any] = {"__name__": "__main__", "qd": qd}
    text = _METHODS
    exec(text, names)
    first, second = names["World"](), names["World"]()
    assert first.look() == second.look() == 1111
    names["World"].plain = lambda self: 2
    assert first.look() == second.look() == 1112
    names["World"].inlined = qd.func(lambda self, x: x + 2)
    names["World"].static = staticmethod(lambda: 2)
    names["World"].of_class = classmethod(lambda cls: 2)
    assert first.look() == second.look() == 2222
    first.plain = lambda: 3
    first.inlined = qd.func(lambda x: x + 3)
    assert first.look() == 2233
    assert second.look() == 2222
    del first.plain
    assert first.look() == 2232


class Wheel:
    def radius(self) -> int:
        return 1

    @qd.kernel
    def look(self) -> qd.i32:
        return self.radius()


def test_methods_of_other_modules_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = Wheel()
    assert wheel.look() == 1
    monkeypatch.setattr(Wheel, "radius", lambda _: 2)
    assert wheel.look() == 2


class Material:
    def __init__(self, stiffness: int) -> None:
        self.stiffness = stiffness


class Body:
    __slots__ = ("_force", "_material", "slot")
    _force: Any
    _material: Material
    slot: Any

    @property
    def material(self) -> Material:
        return self._material

    @property
    def force(self) -> Any:
        return self._force

    @qd.kernel
    def look(self) -> qd.i32:
        return self.force(1) + 10 * self.material.stiffness + 100 * self.slot(1)


@qd.func
def once(x):
    return x


@qd.func
def twice(x):
    return 2 * x


def test_what_a_property_returns_is_noticed_if_it_is_stored() -> None:
    body = Body()
    body._force, body._material, body.slot = once, Material(1), once
    assert body.look() == 111
    body._material = Material(2)
    assert body.look() == 121
    body._material.stiffness = 3
    assert body.look() == 131
    body._force = twice
    assert body.look() == 132
    body.slot = twice
    assert body.look() == 232


ROWS: tuple[Any, ...] = ((1, 2.0), (3, "a")) * 50


def test_a_launch_compares_no_items_of_the_same_tuple() -> None:
    """A tuple of numbers cannot change, and a large one takes long to compare."""

    class Uncompared:
        def __eq__(self, other: object) -> bool:
            raise AssertionError(other)

    @qd.kernel
    def k() -> qd.f32:
        return ROWS[0][1] + len(ROWS)

    global ROWS
    assert k() == 102.0
    reads = KernelReads([Read("global", k.function, "ROWS", ROWS)], k.function, ())
    (condition,), scope = guard_terms(reads)
    like = next(name for name, value in scope.items() if type(value) is tuple and value is not ROWS)
    guard = make_guard(([condition], {**scope, like: Uncompared()}))
    assert guard is not None
    assert guard()
    ROWS = ((1, 4.0),)
    assert k() == 5.0
    with pytest.raises(AssertionError):
        guard()
