"""Classes that become struct types: bases, defaults, properties, constants, operators."""

# ruff: noqa: RET503

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pytest

import octants as qd
from octants.diagnostics.exceptions import OctantsRuntimeTypeError, OctantsWarning
from tests.devices import ARCH
from tests.golden_files import check_golden


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=getattr(qd, ARCH), log_level="error")
    yield
    qd.reset()


class Sized:
    FACTOR = 5.0

    @qd.func
    def scaled(self):
        return self.size * self.FACTOR

    @qd.func
    def named(self):
        return 1.0


@qd.dataclass
class Box(Sized):
    size: qd.f64 = 3.0
    corner: qd.types.vector(2, qd.f64) = (1.0, 2.0)
    COUNT: ClassVar[int] = 4

    @qd.func
    def named(self):
        return 2.0

    @staticmethod
    @qd.func
    def of_area(area):
        return Box(qd.sqrt(area))

    @classmethod
    def unit(cls):
        return cls(1.0)

    @property
    @qd.func
    def area(self):
        return self.size**2


@qd.dataclass
class Tall(Box):
    height: qd.f64

    @qd.func
    def scaled(self):
        return self.size * self.height


@qd.dataclass
class Quaternion:
    w: qd.f64
    v: qd.types.vector(3, qd.f64)

    @qd.func
    def __mul__(self, other):
        w = self.w * other.w - self.v.dot(other.v)
        return Quaternion(w, self.w * other.v + other.w * self.v + self.v.cross(other.v))

    @qd.func
    def __rmul__(self, factor):
        return Quaternion(factor * self.w, factor * self.v)

    @qd.func
    def __add__(self, other):
        return Quaternion(self.w + other.w, self.v + other.v)

    @qd.func
    def __neg__(self):
        return Quaternion(-self.w, -self.v)

    @qd.func
    def __eq__(self, other):
        return self.w == other.w and all(self.v == other.v)

    @qd.func
    def __lt__(self, other):
        return self.w < other.w


def test_bases_give_members_and_methods() -> None:
    @qd.kernel
    def run() -> qd.types.vector(8, qd.f64):
        b = Box()
        t = Tall(2.0, height=7.0)
        return qd.Vector(
            [b.scaled(), b.named(), t.scaled(), t.named(), b.FACTOR, t.COUNT, t.corner[1], t.height]
        )

    assert run().to_list() == [15, 2, 14, 2, 5, 4, 2, 7]
    assert (Box().scaled(), Tall(2.0, height=7.0).scaled(), Tall().COUNT) == (15.0, 14.0, 4)
    assert list(Tall.members) == ["size", "corner", "height"]


def test_defaults_properties_and_methods_without_a_struct() -> None:
    boxes = Box.field(shape=2)

    @qd.kernel
    def run() -> qd.types.vector(6, qd.f64):
        boxes[1] = Box.of_area(16.0)
        b = Box.unit()
        b.size += 1.0
        inner = boxes[1].of_area(boxes[1].area)
        return qd.Vector([boxes[1].area, b.area, inner.size, Box().size, b.corner[1], Box.COUNT])

    assert run().to_list() == [16, 4, 4, 3, 2, 4]
    assert (Box.of_area(16.0).size, boxes[1].area, Box.unit().corner[1]) == (4.0, 16.0, 2.0)
    assert Box(2.0).corner.to_list() == [1.0, 2.0]
    assert boxes[0].size == 0.0, "elements of fields begin with zero"


@qd.dataclass
class Limits:
    low: float = -1.1
    high: qd.f64 = 2.0


@qd.dataclass
class Joint:
    limits: Limits
    other: Limits = Limits(low=5.0)  # noqa: RUF009


def test_default_of_float_has_the_type_of_its_use() -> None:
    qd.init(arch=getattr(qd, ARCH), default_fp=qd.f64, log_level="error")

    @qd.kernel
    def run() -> qd.f64:
        return Limits().low

    assert run() == Limits().low == -1.1


def test_struct_in_a_struct_has_its_own_defaults() -> None:
    @qd.kernel
    def run() -> qd.types.vector(4, qd.f32):
        j = Joint()
        return qd.Vector([j.limits.low, j.limits.high, j.other.low, j.other.high])

    j = Joint()
    on_host = [j.limits.low, j.limits.high, j.other.low, j.other.high]
    assert on_host == run().to_list() == [np.float32(-1.1), 2.0, 5.0, 2.0]


def test_types_with_vectors_as_defaults_compare() -> None:
    def made(default: float) -> object:
        @qd.dataclass
        class Point:
            position: qd.math.vec2 = (default, 1.0)

        return Point

    assert made(1.0) == made(1.0)
    assert made(1.0) != made(2.0)


def test_operators_in_kernels_and_on_the_host() -> None:
    @qd.kernel
    def run() -> qd.types.vector(8, qd.f64):
        p = Quaternion(1.0, qd.Vector([2.0, 3.0, 4.0]))
        q = Quaternion(5.0, qd.Vector([6.0, 7.0, 8.0]))
        r = -(2.0 * (p * q)) + p
        r += q
        facts = (p == q) + 10 * (p != q) + 100 * (p < q) + 1000 * (p > q) + 10000 * (p == p)
        return qd.Vector([r.w, r.v[0], r.v[1], r.v[2], facts, (q * p).v[0], 0.0, 0.0])

    p, q = Quaternion(1.0, (2.0, 3.0, 4.0)), Quaternion(5.0, (6.0, 7.0, 8.0))
    r = -(2.0 * (p * q)) + p + q
    facts = (p == q) + 10 * (p != q) + 100 * (p < q) + 1000 * (p > q) + 10000 * (p == p)  # noqa: PLR0124
    expected = [r.w, *r.v, facts, (q * p).v[0], 0.0, 0.0]
    assert run().to_list() == expected
    assert expected[:4] == [126.0, -16.0, -50.0, -36.0] and facts == 10110


def test_gradients_go_through_operators() -> None:
    x = Quaternion.field(shape=3, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def run():
        for i in range(3):
            product = x[i] * x[(i + 1) % 3]
            product += x[i]
            loss[None] += product.w**2 + product.v.dot(product.v)

    def value(at: np.ndarray) -> float:
        for i in range(3):
            x[i] = Quaternion(at[i, 0], at[i, 1:])
        loss[None] = 0.0
        run()
        return loss[None]

    at = np.random.default_rng(3).normal(size=(3, 4))
    value(at)
    loss[None] = 0.0
    with qd.ad.Tape(loss=loss):
        run()
    found = np.column_stack([x.w.grad.to_numpy(), x.v.grad.to_numpy()])
    for index in np.ndindex(3, 4):
        step = np.zeros((3, 4))
        step[index] = 1e-5
        slope = (value(at + step) - value(at - step)) / 2e-5
        assert found[index] == pytest.approx(slope, rel=1e-6, abs=1e-6)


def test_operators_that_are_not_defined_are_errors() -> None:
    @qd.kernel
    def run() -> qd.f64:
        return (Box(1.0) - Box(2.0)).size

    with pytest.raises(qd.QuadrantsCompilationError, match="define `__sub__` in its class"):
        run()
    with pytest.raises(TypeError, match="unsupported operand"):
        Box(1.0) - Box(2.0)
    assert Box(1.0) != Box(1.0), "structs without `__eq__` are equal to themselves only"


def test_changed_constants_of_a_class_are_noticed() -> None:
    @qd.dataclass
    class Point:
        x: qd.f64
        WEIGHTS = [1.0, 2.0]  # noqa: RUF012

    @qd.kernel
    def run() -> qd.f64:
        return Point(2.0).x * Point.WEIGHTS[1] + Point().WEIGHTS[0]

    assert run() == 5.0
    Point.WEIGHTS[1] = 3.0
    assert run() == 7.0
    Point.WEIGHTS = [3.0, 5.0]
    assert run() == 13.0 and Point(1.0).WEIGHTS == [3.0, 5.0]


def test_methods_that_nothing_calls_are_named() -> None:
    with pytest.warns(OctantsWarning, match="nothing calls its `__init__`") as caught:

        @qd.dataclass
        class Point:
            x: qd.f64

            def __init__(self, x):
                pass

    check_golden("errors/OCT477_special_method", str(caught[0].message))


def test_python_dataclasses_have_them_too() -> None:
    @dataclasses.dataclass(frozen=True)
    class Rows:
        x: qd.types.NDArray[qd.f64, 1]
        FACTOR = 3

        @staticmethod
        @qd.func
        def double(a):
            return 2 * a

        @qd.func
        def scaled(self, i):
            return self.x[i] * self.FACTOR

        @property
        def first(self):
            return self.x[0]

    @qd.kernel
    def run(rows: Rows) -> qd.types.vector(3, qd.f64):
        return qd.Vector([rows.double(4.0), rows.scaled(1), rows.first])

    x = qd.ndarray(qd.f64, 2)
    x.from_numpy(np.array([5.0, 6.0]))
    assert run(Rows(x)).to_list() == [8.0, 18.0, 5.0]


def test_defaults_have_to_fit() -> None:
    with pytest.raises(OctantsRuntimeTypeError, match="`x` of type f64 cannot have the default"):

        @qd.dataclass
        class Point:
            x: qd.f64 = "zero"

    with pytest.raises(OctantsRuntimeTypeError, match="without a class cannot be a base"):

        class Other(qd.types.struct(x=qd.f64)):
            pass


def test_pickles_and_copies() -> None:
    @qd.dataclass
    class Local:
        x: qd.f64 = 2.0

    box = pickle.loads(pickle.dumps(Box(5.0)))
    assert box.struct_type is Box and box.area == 25.0
    assert pickle.loads(pickle.dumps(Tall)) is Tall
    local = pickle.loads(pickle.dumps(Local(4.0)))
    assert local.struct_type == Local and local.struct_type().x == 2.0
