"""Vectors, matrices and structs on the host."""

from __future__ import annotations

import copy
import operator
import pickle

import numpy as np
import pytest

import octants
from octants.diagnostics.exceptions import OctantsRuntimeTypeError, OctantsTypeError
from octants.lang import exported_names, scalar_functions
from octants.types import array_factory_hooks
from octants.types.matrix_types import matrix, vector
from octants.types.matrix_values import Matrix, Vector
from octants.types.scalars import f32, f64, i32, i64, u8
from octants.types.structs import Struct, dataclass, struct

V, W = np.array([1, 2, 3]), np.array([1.5, -2.0, 3.0])
M = np.array([[1, 2], [3, 4]])


@pytest.fixture(autouse=True)
def without_init():
    octants.reset()


def same(ours, theirs):
    np.testing.assert_allclose(np.asarray(ours), theirs)
    expected = (Vector, Matrix)[np.ndim(theirs) - 1] if np.ndim(theirs) else None
    assert expected is None or type(ours) is expected


ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv]
COMPARISONS = [operator.lt, operator.le, operator.eq, operator.ne, operator.ge, operator.gt]


@pytest.mark.parametrize("op", [*ARITHMETIC, operator.mod, operator.pow, *COMPARISONS])
def test_operators(op):
    same(op(Vector(V), Vector(np.abs(W))), op(V, np.abs(W)))
    same(op(Vector(W), 2), op(W, 2))
    same(op(2.0, Vector(V)), op(2.0, V))
    same(op(Vector(V), list(V)), op(V, V))
    same(op(Matrix(M), M), op(M, M))
    same(op(np.float64(2), Vector(V)), op(2.0, V))


def test_numpy_arrays_on_the_left():
    same(np.ones(3) * Vector(V), V)
    same(np.float32(2) * Vector(W), 2 * W)
    same(M @ Vector([1, 2]), M @ [1, 2])


def test_unary_operators_and_products():
    same(-Vector(V), -V)
    same(abs(Vector(W)), abs(W))
    same(~Vector(V), ~V)
    same(Matrix(M) @ Matrix(M), M @ M)
    assert Vector(V) @ Vector(W) == V @ W
    same(Vector(V).cross(W), np.cross(V, W))
    assert Vector([1, 2]).cross([3, 4]) == -2
    same(Vector(V).outer_product(W), np.outer(V, W))
    assert Vector(V).dot(W) == V @ W


def test_elements():
    v, m = Vector(V), Matrix(M)
    assert (v[0], m[0, 1], v.y, v.b, v[-1]) == (1, 2, 2, 3, 3)
    assert isinstance(v[0], int)
    same(v[1:], V[1:])
    same(m[0], M[0])
    same(m[:, 1], M[:, 1])
    same(v.zyx, V[::-1])
    v[0], v.yz = 7, [8, 9]
    same(v, [7, 8, 9])
    m[0][1] = 5
    assert m[0, 1] == 5
    assert list(v) == [7, 8, 9]
    assert [list(row) for row in m] == [[1, 5], [3, 4]]
    assert (len(m), m.n, m.m, m.shape, v.get_shape()) == (2, 2, 2, (2, 2), (3,))
    for name in ("w", "foo", "rx"):
        with pytest.raises(AttributeError, match=name):
            getattr(v, name)
    with pytest.raises(AttributeError):
        v.foo = 3
    with pytest.raises(IndexError):
        v[3]


def test_conversion():
    v = Vector(W)
    assert v.to_list() == W.tolist()
    v.to_numpy()[0] = 9
    assert v[0] == W[0]
    assert np.asarray(v, dtype=np.float32).dtype == np.float32
    for other in (pickle.loads(pickle.dumps(v)), copy.deepcopy(v), copy.copy(v)):
        same(other, W)
        other[0] = 5
        assert v[0] == W[0]
    assert str(Vector(V)) == "[1 2 3]"
    assert len({v, Vector(W)}) == 2


def test_declared_types():
    assert Vector(V).declared_dtype is None
    v = Vector(V, dt=f32)
    assert v.declared_dtype is f32
    assert v.to_numpy().dtype == np.float32
    assert (2.5 * v).declared_dtype is f32  # type: ignore[attr-defined]
    assert (v + v).declared_dtype is f32
    assert (v > 1).declared_dtype is None  # type: ignore[attr-defined]
    assert Vector(W, dt=i32).to_list() == [1, -2, 3]
    assert Vector([300.0, -1.0], dt=u8).to_list() == [255, 0]
    assert Vector(np.ones(2, np.float32)).declared_dtype is f32


def test_construction():
    same(Matrix.zero(f32, 2, 3), np.zeros((2, 3)))
    same(Vector.one(int, 2), [1, 1])
    same(Vector.unit(3, 1), [0, 1, 0])
    same(Matrix.identity(f32, 2), np.eye(2))
    same(Matrix.diag(2, 1.5), 1.5 * np.eye(2))
    same(Matrix.rows([V, W]), [V, W])
    same(Matrix.cols([Vector(V), Vector(W)]), np.array([V, W]).T)
    same(Matrix([Vector(V), Vector(W)]), [V, W])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Vector([]),
        lambda: Vector([1, "a"]),
        lambda: Matrix([[1, 2], [3]]),
        lambda: Vector([[1, 2]]),
        lambda: Vector(V) + Vector([1, 2]),
        lambda: Vector(V) @ Matrix(M),
        lambda: bool(Vector(V)),
        lambda: Vector(V).trace(),
        lambda: Vector(V).transpose(),
        lambda: Matrix(M).dot(M),
        lambda: vector(3, f32)(1, 2),
        lambda: vector(3, f32)([1]),
        lambda: vector(2, f32)(np.array([1])),
        lambda: matrix(2, 2, f32)(Vector([1])),
        lambda: struct(a=vector(2, i32))(a=[1]),
        lambda: vector(0, f32),
        lambda: struct(),
        lambda: struct(a=i32)(a="3 pieces"),
        lambda: struct(a=octants.types.ndarray(f32, 1)),
    ],
)
def test_mistakes(wrong):
    with pytest.raises(OctantsRuntimeTypeError, match="OCT231"):
        wrong()


@pytest.mark.parametrize(
    "made",
    [
        lambda number: vector(2, i32)(number, 1),
        lambda number: matrix(1, 1, i32)(number),
        lambda number: Vector([number, 1], i32),
        lambda number: Matrix([[number]], i32),
        lambda number: operator.setitem(vector(2, i32)(1, 2), 0, number),
        lambda number: struct(a=i32)(a=number),
        lambda number: struct(a=vector(2, i32))(a=[1, number]),
        lambda number: setattr(struct(a=i32)(a=1), "a", number),
    ],
)
def test_integers_that_a_stated_type_cannot_hold(made):
    for number in (2**31, -(2**31) - 1):
        with pytest.raises(OctantsRuntimeTypeError, match=rf"{number} does not fit in i32; `qd"):
            made(number)
        made(i32(number))
    made(2**31 - 1)


def test_vector_and_matrix_types():
    vec = vector(3, f32)
    same(vec(1, 2, 3), V)
    same(vec(5), [5, 5, 5])
    same(vector(4, f32)(vec(1, 2, 3), 4), [1, 2, 3, 4])
    same(matrix(2, 2, f64)([1, 2], [3, 4]), M)
    assert vec == vector(3, f32) != vector(3, f64)
    assert hash(vec) == hash(vector(3, f32))
    assert (vec.n, vec.dtype, vec.element_shape) == (3, f32, (3,))
    assert vector(3, float).dtype is f32
    assert vector(3, i32)(1.7, 2, 3)[0] == 1
    same(vector(1, f32)([4]), [4])
    same(vec(np.float32(5)), [5, 5, 5])
    same(vector(2, i64)(2**53 + 1, 0.5), [2**53 + 1, 0])
    same(vector(2, i32)(i32(1 << 40), 2.5), [0, 2])
    with pytest.raises(TypeError, match="None"):
        struct(a=f32)(a=None)
    assert vec(1, 2, 3).declared_dtype is f32
    with pytest.raises(TypeError, match="scalar type"):
        vector(3, "f32")


def test_functions_on_the_host():
    same(scalar_functions.sin(Vector(W)), np.sin(W))
    same(scalar_functions.max(Vector(V), Vector(W), 2), np.maximum(np.maximum(V, W), 2))
    same(scalar_functions.select(Vector(W) > 0, Vector(W), 0), np.where(W > 0, W, 0))
    same(scalar_functions.floor(Vector(W), i32), np.floor(W))
    assert scalar_functions.sqrt(4) == 2.0
    assert isinstance(scalar_functions.sqrt(4), float)


def test_structs():
    kind = struct(mass=f32, place=vector(2, f32))
    s = kind(1.1, [2, 3])
    assert s.mass == np.float32(1.1)
    same(s.place, [2, 3])
    s.place.x = 9
    s.mass = 0.25
    s["place"] = [4, 5]
    assert s.to_dict() == {"mass": 0.25, "place": [4.0, 5.0]}
    assert kind(mass=2).place.to_list() == [0, 0]
    assert (s.keys, len(s), list(s)) == (["mass", "place"], 2, ["mass", "place"])
    assert pickle.loads(pickle.dumps(s)).to_dict() == s.to_dict()
    nested = struct(inner=kind, count=i32)(inner=s, count=2.7)
    assert nested.to_dict() == {"inner": s.to_dict(), "count": 2}
    with pytest.raises(AttributeError, match="speed"):
        s.speed
    with pytest.raises(AttributeError, match="speed"):
        s.speed = 1
    for wrong in (lambda: kind(1, 2, 3), lambda: kind(speed=1), lambda: kind(1, mass=2)):
        with pytest.raises(OctantsTypeError, match="OCT223"):
            wrong()


def test_structs_without_a_type():
    s = Struct(a=1, b=[1.5, 2])
    assert s.to_dict() == {"a": 1, "b": [1.5, 2.0]}
    assert Struct({"a": 1}).a == 1
    assert dict(s.items)["a"] == 1


def test_dataclasses_of_the_language():
    @dataclass
    class Ball:
        place: vector(2, f32)  # noqa: F821
        mass: f32

        def weight(self):
            return self.mass * 9.81

    ball = Ball([1, 2], 2.0)  # type: ignore[call-arg]
    assert ball.weight() == pytest.approx(19.62)
    assert list(Ball.members) == ["place", "mass"]  # type: ignore[attr-defined]


def test_fields_are_made_by_the_layer_that_registered(monkeypatch):
    made = []

    def note(kind):
        return lambda *args, **options: made.append((kind, args, options))

    for kind in ("field", "ndarray", "tensor", "struct_field"):
        monkeypatch.setitem(array_factory_hooks.FACTORIES, kind, note(kind))
    Vector.field(3, f32, shape=4, needs_grad=True)
    Matrix.ndarray(2, 3, dtype=f64, shape=(4, 5))
    Matrix.tensor(2, 2, f32, 5)
    vector(3, f32).field(shape=2)
    Struct.field({"mass": f32}, shape=7)
    kind, given, options = made[0]
    assert (kind, given) == ("field", (f32, 4))
    assert (options["element_shape"], options["needs_grad"], options["order"]) == ((3,), True, None)
    assert made[1] == ("ndarray", (f64, (4, 5)), {"element_shape": (2, 3), "needs_grad": False})
    assert made[2] == ("tensor", (f32, 5), {"element_shape": (2, 2)})
    assert made[3] == ("field", (f32, 2), {"element_shape": (3,)})
    assert made[4][0] == "struct_field"
    assert made[4][1][1] == 7


def test_every_name_of_the_library_is_exported():
    for name, found in vars(exported_names).items():
        if not name.startswith("_") and name != "annotations":
            assert getattr(octants, name) is found, name


def test_inverses_are_those_of_kernels() -> None:
    m = Matrix([[1, 2], [3, 4]])
    assert m.determinant() == -2.0
    assert m.inverse().to_list() == [[-2.0, 1.0], [1.5, -0.5]]
    for n in range(1, 6):
        values = np.random.default_rng(n).random((n, n))
        np.testing.assert_allclose(Matrix(values).inverse(), np.linalg.inv(values))
        np.testing.assert_allclose(Matrix(values).determinant(), np.linalg.det(values))
    with pytest.raises(np.linalg.LinAlgError):
        Matrix([[1, 2], [2, 4]]).inverse()
