"""What a kernel was compiled for ends when the program drops it, with the compiled code."""

from __future__ import annotations

import dataclasses
import gc
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import octants as qd
from octants.launch.specialisation import Specialisation

MANY = 60


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


class Inner:
    def __init__(self, owner: Any) -> None:
        self.scale = 2.0
        self.owner = owner


@qd.data_oriented
class Owner:
    def __init__(self, number: int = 3) -> None:
        self.n = number
        self.inner = Inner(self)
        self.x = qd.field(qd.f32, shape=4, needs_grad=True)
        self.parts = [self.x, qd.field(qd.f32, shape=2)]
        self.table = np.ones(3)

    @qd.kernel
    def run(self):
        for i in self.x:
            self.x[i] += self.n * self.inner.scale + self.parts[0][i] + self.table[0]

    @qd.kernel
    def nothing(self):
        pass


@qd.kernel
def of_template(owner: qd.template()):
    for i in owner.x:
        owner.x[i] += owner.n


@qd.kernel
def of_field(x: qd.template()):
    for i in x:
        x[i] += 1


@qd.kernel
def of_two(x: qd.template(), y: qd.template()):
    for i in y:
        y[i] += x[0]


@qd.kernel
def of_tensor(x: qd.Tensor):
    for i in x:
        x[i] += 1


@dataclasses.dataclass
class Members:
    x: qd.template()
    owner: qd.template()


@qd.kernel
def of_members(members: Members):
    for i in members.x:
        members.x[i] += members.owner.n


@qd.kernel
def of_function(fn: qd.template(), x: qd.template()):
    for i in x:
        x[i] = fn(x[i])


@qd.kernel
def of_global():
    for i in FIELD:
        FIELD[i] += 1


FIELD: Any = None


class Pair(NamedTuple):
    x: Any
    y: int


@pytest.fixture
def lasting() -> Any:
    return qd.field(qd.f32, shape=4)


def make_global() -> Any:
    global FIELD
    FIELD = qd.field(qd.f32, shape=4)
    of_global()
    made, FIELD = FIELD, None
    return made


def closure() -> Any:
    x = qd.field(qd.f32, shape=4)

    @qd.kernel
    def run():
        for i in x:
            x[i] += 1

    run()
    return x


def method(owner: Owner, kernel: str = "run") -> Owner:
    getattr(owner, kernel)()
    return owner


def taped() -> Owner:
    owner, loss = Owner(), qd.field(qd.f32, shape=(), needs_grad=True)
    with qd.ad.Tape(loss=loss):
        owner.run()
        of_template(owner)
    owner.run.grad()
    return owner


def launch(kernel: Any, value: Any, *others: Any) -> Any:
    kernel(value, *others)
    return value


def make_function() -> Any:
    @qd.func
    def more(v):
        return v + 1

    return more


def in_tuple() -> Any:
    x = qd.field(qd.f32, shape=4)
    of_pair(Pair(x, 1))
    return x


@qd.kernel
def of_pair(pair: qd.template()):
    pair[0][0] += 1


def small_field() -> Any:
    return qd.field(qd.f32, shape=4)


WAYS: dict[str, Callable[[Any], Any]] = {
    "method": lambda _: method(Owner()),
    "method that reads nothing": lambda _: method(Owner(), "nothing"),
    "template": lambda _: launch(of_template, Owner()),
    "field": lambda _: launch(of_field, small_field()),
    "tensor": lambda _: launch(of_tensor, small_field()),
    "ndarray": lambda _: launch(of_tensor, qd.ndarray(qd.f32, 4)),
    "numpy": lambda _: launch(of_tensor, np.ones(4, np.float32)),
    "beside one that lasts": lambda lasting: launch(of_two, small_field(), lasting),
    "behind one that lasts": lambda lasting: launch(lambda x: of_two(lasting, x), small_field()),
    "members": lambda _: launch(lambda x: of_members(Members(x, Owner())), small_field()),
    "member object": lambda lasting: launch(
        lambda owner: of_members(Members(lasting, owner)), Owner()
    ),
    "function": lambda lasting: launch(of_function, make_function(), lasting),
    "named tuple": lambda _: in_tuple(),
    "global": lambda _: make_global(),
    "closure": lambda _: closure(),
    "tape": lambda _: taped(),
}


def specialisations() -> int:
    """How many there are in this process."""
    return sum(isinstance(each, Specialisation) for each in gc.get_objects())


@pytest.mark.parametrize("way", WAYS)
def test_all_are_gone(way: str, lasting: Any) -> None:
    """Of many objects, and of what was compiled for them, nothing is left."""
    count = MANY if way in ("method that reads nothing", "field") else 4
    WAYS[way](lasting)  # whose specialisation may stay, as that of the last launch
    qd.sync()  # a launch that is under way keeps what it runs
    gc.collect()
    before = specialisations()
    references = []
    for _ in range(count):
        made = WAYS[way](lasting)
        references.append(weakref.ref(made))
        del made
    qd.sync()
    gc.collect()
    gc.collect()  # of objects that refer to each other, the first one tells
    assert [reference() for reference in references] == [None] * count
    allowed = before + (1 if way in ("ndarray", "numpy") else 0)
    for _ in range(5):  # what a finaliser lets go of is collected next time
        if specialisations() > allowed:
            gc.collect()
    assert specialisations() <= allowed


def test_another_object_at_the_same_address_is_another_one() -> None:
    """Numbers of addresses return; what was compiled for the first object is not used again."""
    for number in range(20):
        owner = Owner(number)
        of_template(owner)
        assert owner.x[0] == number
        del owner


def test_a_tape_keeps_what_it_needs() -> None:
    global FIELD
    loss = qd.field(qd.f32, shape=(), needs_grad=True)
    start = qd.field(qd.f32, shape=4, needs_grad=True)

    @qd.kernel
    def into():
        for i in FIELD:
            FIELD[i] = start[i] * start[i]

    @qd.kernel
    def out():
        for i in FIELD:
            loss[None] += FIELD[i] * FIELD[i]

    start.fill(2)
    FIELD = qd.field(qd.f32, shape=4, needs_grad=True)
    gone = weakref.ref(FIELD)
    with qd.ad.Tape(loss=loss):
        into()
        out()
        FIELD = None
        gc.collect()
        others = [qd.ndarray(qd.f32, 4) for _ in range(10)]
        for other in others:
            other.fill(7)
        assert gone() is not None
    assert start.grad.to_numpy().tolist() == [4 * 2**3] * 4
    gc.collect()
    assert gone() is None


def test_what_a_tape_used_goes_without_the_collector_of_cycles() -> None:
    @qd.kernel
    def cube(x: qd.types.ndarray(qd.f32, 1), loss: qd.types.ndarray(qd.f32, 0)):
        for i in x:
            x[i] = x[i] * x[i] * x[i]
        for i in x:
            loss[None] += x[i] * x[i]

    def run() -> list[weakref.ref[Any]]:
        x, loss = qd.array([1.0, 2.0], needs_grad=True), qd.array(0.0, needs_grad=True)
        with qd.ad.Tape(loss=loss):
            cube(x, loss)
            x.fill(1.0)
            cube(x, loss)
        return [weakref.ref(each) for each in (x, x.grad, loss)]

    run()
    gc.disable()
    try:
        assert [each() for each in run()] == [None, None, None]
    finally:
        gc.enable()


def test_an_object_that_lasts_is_compiled_once() -> None:
    owner = Owner()
    owner.run()
    (made,) = Owner.run._specialisations.values()
    gc.collect()
    owner.run()
    assert list(Owner.run._specialisations.values()) == [made]


@pytest.mark.parametrize("make", [lambda: qd.ndarray(qd.f32, 4), lambda: np.ones(4, np.float32)])
def test_arrays_that_are_passed_come_and_go(make: Callable[[], Any]) -> None:
    of_tensor(make())
    made = list(of_tensor._specialisations.values())
    gc.collect()
    of_tensor(make())
    assert list(of_tensor._specialisations.values()) == made


def test_what_a_property_makes_anew_is_no_reason_to_compile_again() -> None:
    made = []

    @qd.data_oriented
    class WithProperty:
        @property
        def settings(self) -> Any:
            made.append(1)
            return types.SimpleNamespace(n=2, x=qd.field(qd.f32, 3))

        @qd.kernel
        def run(self) -> qd.i32:
            self.settings.x[0] = 5.0
            return self.settings.n

    owner = WithProperty()
    assert owner.run() == 2
    count = len(made)
    gc.collect()
    assert owner.run() == 2
    assert len(made) == count


def test_items_of_a_list_count_one_by_one() -> None:
    @qd.data_oriented
    class WithList:
        def __init__(self) -> None:
            self.fields = [qd.field(qd.f32, 2), qd.field(qd.f32, 2)]

        @qd.kernel
        def run(self):
            self.fields[0][0] += 1

    owner = WithList()
    owner.run()
    first = owner.fields[0]
    owner.fields[0] = qd.field(qd.f32, 2)
    owner.run()
    assert (first[0], owner.fields[0][0]) == (1, 1)
    gone = weakref.ref(first)
    del first
    gc.collect()
    assert gone() is None
