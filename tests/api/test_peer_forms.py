"""Forms that programs for Quadrants and Taichi use: types, loops, shapes, methods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pytest

import octants as qd


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


# -- vector and matrix types without an element type ----------------------------------------------


@qd.func
def _scaled(v: qd.types.vector(3), factor: qd.f32):
    v *= factor
    return v


@qd.func
def _corner(m: qd.types.matrix(2, 3)):
    return m[1, 2]


def test_a_vector_type_of_a_parameter_keeps_the_element_type() -> None:
    @qd.kernel
    def wide(x: qd.types.ndarray()) -> qd.f64:
        v = qd.Vector([x[0], 0.1, 0.2], qd.f64)
        w = _scaled(v, 0.5)
        return w[0] + v[0]

    @qd.kernel
    def whole() -> qd.i32:
        m = qd.Matrix([[1, 2, 3], [4, 5, 7]])
        return _scaled(qd.Vector([7, 8, 9]), 2.0)[2] + _corner(m)

    assert wide(np.array([0.3])) == 0.3 * 0.5 + 0.3
    assert whole() == 25


def test_a_vector_type_without_an_element_type_checks_the_shape() -> None:
    @qd.kernel
    def wrong() -> qd.f32:
        return _scaled(qd.Vector([1.0, 2.0]), 2.0)[0]

    with pytest.raises(qd.OctantsTypeError, match=r"takes a vector\(3\) as `v`"):
        wrong()


def test_the_elements_of_an_array_keep_their_type() -> None:
    @qd.kernel
    def total(x: qd.types.ndarray(qd.types.vector(2), 1)) -> qd.f64:
        s = 0.0
        for i in range(x.shape[0]):
            s += x[i][0] * x[i][1]
        return s

    for dtype in (qd.f32, qd.f64):
        x = qd.Vector.ndarray(2, dtype, 2)
        x.from_numpy(np.array([[0.5, 2.0], [3.0, 0.25]], dtype.numpy))
        assert total(x) == 1.75
    with pytest.raises(qd.OctantsArgumentError, match=r"element_shape=\(2,\)"):
        total(qd.Vector.ndarray(3, qd.f32, 2))


def test_the_type_of_a_variable_may_be_a_string_and_is_a_type() -> None:
    @qd.kernel
    def third(a: qd.i32) -> qd.f64:
        b: "qd.f64" = a  # noqa: UP037
        c: list[int] = [1, 2]
        d: "Any" = 1  # noqa: UP037
        return b / 3 + c[1] + d

    assert third(1) == pytest.approx(1 / 3 + 3, abs=1e-12)

    @qd.kernel
    def wrong() -> qd.i32:
        a: qd.field = 1  # type: ignore[valid-type]
        return a

    @qd.kernel
    def unknown() -> qd.i32:
        a: "qd.f46" = 1  # type: ignore[name-defined]  # noqa: UP037
        return a

    with pytest.raises(qd.OctantsTypeError, match="OCT170"):
        wrong()
    with pytest.raises(qd.OctantsNameError, match="f46"):
        unknown()


def test_memory_and_values_need_an_element_type() -> None:
    kind = qd.types.vector(3)
    for make in (
        lambda: qd.field(kind, 4),
        lambda: kind.ndarray(4),
        lambda: qd.types.struct(a=kind),
    ):
        with pytest.raises(qd.OctantsTypeError, match=r"qd\.types\.vector\(3, qd\.f32\)"):
            make()

    def by_value(v: qd.types.matrix(2, 2)): ...

    def by_return() -> qd.types.vector(3): ...

    for function in (by_value, by_return):
        with pytest.raises(qd.OctantsTypeError, match="has no element type"):
            qd.kernel(function)


def test_a_type_without_an_element_type_makes_values() -> None:
    @qd.kernel
    def made() -> qd.types.vector(3, qd.f32):
        return qd.types.vector(3)(1, 2.5, 3)

    assert made().to_list() == [1, 2.5, 3]
    assert qd.types.vector(2)(1, 2).to_list() == [1, 2]
    assert qd.types.vector(3, qd.f32, unpacked=True) == qd.types.vector(3, qd.f32)


# -- ndrange in another order ----------------------------------------------------------------------


def test_axes_permute_the_nesting_and_not_the_indices() -> None:
    order = qd.field(qd.i32, (3, 4, 2))
    bounds = qd.field(qd.i32, 3)
    bounds.from_numpy(np.array([3, 4, 2], np.int32))

    @qd.kernel
    def serial():
        count = 0
        for _ in range(1):
            for i, j, k in qd.ndrange(3, (0, 4), 2, axes=(2, 0, 1)):
                order[i, j, k] = count
                count += 1

    @qd.kernel
    def of_run_time():
        count = 0
        for _ in range(1):
            for i, j, k in qd.ndrange(bounds[0], bounds[1], bounds[2], axes=(2, 0, 1)):
                order[i, j, k] = count
                count += 1

    @qd.kernel
    def unrolled():
        count = 0
        for i, j, k in qd.static(qd.ndrange(3, 4, 2, axes=(2, 0, 1))):
            order[i, j, k] = count
            count += 1

    expected = np.arange(24).reshape(2, 3, 4).transpose(1, 2, 0)
    for kernel in (serial, of_run_time, unrolled):
        order.fill(-1)
        kernel()
        assert (order.to_numpy() == expected).all()
    host = list(qd.ndrange(2, (1, 3), axes=(1, 0)))
    assert host == [(0, 1), (1, 1), (0, 2), (1, 2)]
    assert repr(qd.ndrange(2, 3, axes=(1, 0))) == "ndrange((0, 2), (0, 3), axes=(1, 0))"


def test_axes_in_parallel_and_grouped_loops_and_their_gradient() -> None:
    x = qd.field(qd.f32, (3, 4), needs_grad=True)
    y = qd.field(qd.f32, (3, 4), needs_grad=True)

    @qd.kernel
    def square():
        for i, j in qd.ndrange(3, 4, axes=(1, 0)):
            y[i, j] = x[i, j] ** 2

    @qd.kernel
    def number():
        for I in qd.grouped(qd.ndrange(3, 4, axes=(1, 0))):
            x[I] = 10 * I[0] + I[1]

    number()
    square()
    expected = np.add.outer(10 * np.arange(3), np.arange(4))
    assert (y.to_numpy() == expected**2).all()
    y.grad.fill(1)
    square.grad()
    assert (x.grad.to_numpy() == 2 * expected).all()


@pytest.mark.parametrize("axes", [(0, 0), (1,), (1, 2), (0.0, 1.0)])
def test_axes_that_are_no_permutation(axes: Any) -> None:
    with pytest.raises(ValueError, match="permutation"):
        qd.ndrange(2, 3, axes=axes)

    @qd.kernel
    def wrong():
        for _i, _j in qd.ndrange(2, 3, axes=axes):
            pass

    with pytest.raises(qd.OctantsTypeError, match="permutation"):
        wrong()


# -- shapes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape", [np.array([2, 3]), [2, np.int64(3)], qd.Vector([2, 3]), range(2, 4), (2, 3)]
)
def test_shapes_are_any_sequence_of_integers(shape: Any) -> None:
    assert qd.field(qd.f32, shape).shape == (2, 3)
    assert qd.ndarray(qd.f32, shape).shape == (2, 3)
    assert qd.Vector.field(2, qd.f32, shape=shape, offset=shape).offset == (2, 3)
    x = qd.field(qd.f32)
    qd.root.dense(qd.ij, shape).place(x)
    assert x.shape == (2, 3)


@pytest.mark.parametrize("shape", [np.array([2.0]), np.ones((2, 2), int), "23", {2: 3}, [True]])
def test_shapes_of_anything_else_are_errors(shape: Any) -> None:
    with pytest.raises(qd.OctantsValueError, match="shape cannot be"):
        qd.field(qd.f32, shape)


# -- bound methods ---------------------------------------------------------------------------------


@qd.data_oriented
class _Material:
    def __init__(self, stiffness: float) -> None:
        self.stiffness = stiffness
        self.law = self.stress

    @qd.func
    def stress(self, strain):
        return strain * self.stiffness


@qd.data_oriented
class _Solver:
    def __init__(self) -> None:
        self.laws = [_Material(2).law, _Material(3).stress]
        self.table = {"soft": _Material(0.5).stress}
        self.last = _Material(5).law

    @qd.kernel
    def run(self, a: qd.types.ndarray()):
        for i in qd.static(range(2)):
            a[i] = self.laws[i](strain=10)
        a[2] = self.last(1)
        a[3] = self.table["soft"](4)


def test_bound_methods_are_called_from_lists_and_attributes() -> None:
    a = np.zeros(4, np.float32)
    _Solver().run(a)
    assert a.tolist() == [20, 30, 5, 2]


# -- fill in kernels -------------------------------------------------------------------------------


_Pair = qd.types.struct(a=qd.f32, b=qd.types.vector(2, qd.f32))


def test_fill_sets_all_elements() -> None:
    x = qd.field(qd.i32, (2, 3), offset=(1, -1))
    v, m = qd.Vector.field(2, qd.f32, 3), qd.Matrix.field(2, 2, qd.f32, 2)
    zero, pairs = qd.field(qd.f64, ()), _Pair.field(2)

    @qd.func
    def through(field: qd.template(), value):
        field.fill(value)

    @qd.kernel
    def run(a: qd.types.ndarray(), b: qd.types.ndarray(), value: qd.f32):
        x.fill(val=7)
        v.fill(qd.Vector([1.0, value]))
        m.fill(value)
        through(zero, 0.5)
        a.fill(value)
        b.fill(x[1, -1])
        pairs.fill(3)
        pairs.b.fill([5, 6])
        for i in a:
            a[i] += i

    a, b = np.zeros(3, np.float32), qd.Vector.ndarray(2, qd.f32, (1, 2))
    run(a, b, 2.5)
    assert (x.to_numpy() == 7).all()
    assert (v.to_numpy() == [1, 2.5]).all()
    assert (m.to_numpy() == 2.5).all()
    assert zero[None] == 0.5
    assert a.tolist() == [2.5, 3.5, 4.5]
    assert (b.to_numpy() == 7).all()
    assert (pairs.a.to_numpy() == 3).all()
    assert (pairs.b.to_numpy() == [5, 6]).all()


def test_fill_of_structs_takes_structs() -> None:
    pairs = _Pair.field(2)

    @qd.kernel
    def run():
        pairs.fill(_Pair(4, qd.Vector([1, 2])))

    run()
    assert (pairs.a.to_numpy() == 4).all()
    assert (pairs.b.to_numpy() == [1, 2]).all()


def test_fill_inside_of_a_loop_is_serial() -> None:
    x, total = qd.field(qd.f32, 4), qd.field(qd.f32, ())

    @qd.kernel
    def run():
        for i in range(1):
            x.fill(i + 2)
            for j in range(4):
                total[None] += x[j]

    run()
    assert total[None] == 8


def test_fill_zeroes_the_adjoint_and_passes_it_to_the_value() -> None:
    x = qd.field(qd.f32, (), needs_grad=True)
    y = qd.field(qd.f32, 3, needs_grad=True)
    total = qd.field(qd.f32, (), needs_grad=True)
    x[None] = 3

    @qd.kernel
    def run():
        y.fill(x[None] * 2)
        for i in y:
            total[None] += y[i] * y[i]

    run()
    total.grad[None] = 1
    y.grad.fill(100)
    run.grad()
    assert total[None] == 108
    assert x.grad[None] == 72 + 600
    assert (y.grad.to_numpy() == 0).all()

    @qd.kernel
    def clear():
        x.grad.fill(0)

    clear()
    assert x.grad[None] == 0


def test_fill_with_what_does_not_fit() -> None:
    x = qd.field(qd.f32, 3)

    @qd.kernel
    def vector():
        x.fill(qd.Vector([1.0, 2.0, 3.0]))

    @qd.kernel
    def nothing():
        x.fill()

    @qd.kernel
    def on_the_host():
        x.from_numpy(1)

    with pytest.raises(qd.OctantsTypeError, match=r"`x\.fill` is for numbers, not for a vector"):
        vector()
    with pytest.raises(qd.OctantsTypeError, match=r"`fill\(\)` takes one value"):
        nothing()
    with pytest.raises(qd.OctantsNameError, match="`from_numpy` works on the host"):
        on_the_host()


# -- older spellings, and what is not there --------------------------------------------------------


def test_methods_are_called_through_the_class() -> None:
    @qd.kernel
    def run(out: qd.types.ndarray()):
        v, m = qd.Vector([3.0, 4.0]), qd.Matrix([[3.0, 4.0], [1.0, 2.0]])
        out[0] = qd.Vector.normalized(v, 1.0)[0]
        out[1] = qd.Matrix.norm(v)
        out[2] = qd.Vector.dot(v, v)
        out[3] = qd.Matrix.transpose(m)[0, 1]
        out[4] = qd.Matrix.sum(self=m)
        out[5] = qd.Vector.cast(v * 0.9, qd.i32)[1]
        qd.Matrix.fill(m, 2.5)
        out[6] = m.trace()

    out = np.zeros(7)
    run(out)
    assert out.tolist() == [0.5, 5, 25, 1, 10, 3, 5]

    @qd.kernel
    def wrong() -> qd.f32:
        return qd.Vector.norm(2.0)

    with pytest.raises(qd.OctantsTypeError, match=r"`Matrix\.norm` is not defined for"):
        wrong()


def test_options_of_loops_in_their_older_spelling() -> None:
    order = qd.field(qd.i32, 64)
    count = qd.field(qd.i32, ())

    @qd.kernel
    def serial():
        qd.serialize()
        for i in order:
            order[i] = qd.atomic_add(count[None], 1)

    @qd.kernel
    def parallel():
        qd.block_dim(64)
        qd.parallelize(2)
        qd.block_local(order)
        qd.cache_read_only(count)
        for i in order:
            order[i] = 2 * i
        qd.loop_config(block_dim_adaptive=False)
        for i in order:
            order[i] += 1

    serial()
    assert (order.to_numpy() == np.arange(64)).all()
    parallel()
    assert (order.to_numpy() == 2 * np.arange(64) + 1).all()

    @qd.kernel
    def wrong():
        qd.block_dim(0)
        for i in order:
            order[i] = i

    with pytest.raises(qd.OctantsSyntaxError, match="`block_dim` cannot be the number 0"):
        wrong()


def test_hashed_blocks_say_what_to_use() -> None:
    for block in (qd.root, qd.root.dense(qd.i, 4)):
        with pytest.raises(qd.OctantsRuntimeError, match="`hash` are not .*\n.*pointer"):
            block.hash(qd.j, 8, chunk_size=4)


_SHARED = 3
_NUMBERS = np.array(2.5), np.array(4)


def test_a_variable_that_shares_its_name_with_a_global_starts_from_it() -> None:
    @qd.kernel
    def run() -> qd.i32:
        _SHARED = _SHARED + 1  # noqa: F841, F823
        return _SHARED  # noqa: RET504

    @qd.kernel
    def lost(x: qd.i32) -> qd.i32:
        if x > 0:
            _SHARED = 5
        return _SHARED  # noqa: RET504

    assert run() == 4
    with pytest.raises(qd.OctantsNameError):
        lost(1)


def test_numpy_scalars_of_no_axes_are_numbers() -> None:
    a, b = _NUMBERS

    @qd.kernel
    def run() -> qd.f32:
        v = qd.Vector([a, b])
        return v[0] + v[1] * a

    assert run() == 12.5


def test_numpy_annotations_are_those_of_arrays() -> None:
    @qd.kernel
    def typed(x: npt.NDArray[np.float32]) -> qd.f32:
        return x[1]

    @qd.kernel
    def untyped(x: np.ndarray) -> qd.f32:
        return x[1]

    assert typed(np.array([1, 2], np.float32)) == 2
    assert untyped(np.array([1, 3])) == 3
    with pytest.raises(qd.OctantsArgumentError, match="required dtype=f32"):
        typed(np.array([1.0, 2.0]))


def test_classes_of_arrays_of_other_libraries_are_annotations() -> None:
    torch = pytest.importorskip("torch")

    @qd.kernel
    def second(x: torch.Tensor) -> qd.f32:
        return x[1]

    assert second(torch.tensor([1.0, 2.0])) == 2
    assert second(np.array([1, 3])) == 3
    with pytest.raises(qd.OctantsSyntaxError, match="OCT411.*`list`"):

        @qd.kernel
        def wrong(x: list):
            pass


def test_aliases_in_annotations_are_what_they_stand_for() -> None:
    """`npt.NDArray` is such an alias since numpy 2.5."""
    extensions = pytest.importorskip("typing_extensions")
    kind = TypeVar("kind", bound=np.generic)
    array = np.ndarray[Any, np.dtype[kind]]  # type: ignore[valid-type]
    generic = extensions.TypeAliasType("NDArray", array, type_params=(kind,))
    plain = extensions.TypeAliasType("Floats", generic[np.float32])
    number = extensions.TypeAliasType("Number", qd.f64)

    @qd.kernel
    def typed(x: generic[np.float32]) -> number:
        return x[1]

    @qd.kernel
    def renamed(x: plain) -> qd.f32:
        return x[1]

    @qd.kernel
    def untyped(x: generic) -> qd.f32:
        return x[1]

    assert typed(np.array([1, 2], np.float32)) == 2
    assert renamed(np.array([1, 2], np.float32)) == 2
    assert untyped(np.array([1, 3])) == 3
    for kernel in (typed, renamed):
        with pytest.raises(qd.OctantsArgumentError, match="required dtype=f32"):
            kernel(np.array([1.0, 2.0]))


def test_structs_of_the_wrong_kind_say_so() -> None:
    @qd.kernel
    def total(p: _Pair) -> qd.f32:
        return p.a + p.b[0]

    with pytest.raises(qd.OctantsArgumentError, match="needed, not a `dict`\n.*make a struct"):
        total({"a": 1.0, "b": [1.0, 2.0]})
    with pytest.raises(qd.OctantsRuntimeTypeError, match="member `x` cannot be of ndarray"):
        qd.types.struct(x=qd.types.ndarray())


# -- what kernels return ---------------------------------------------------------------------------


@qd.dataclass
class Point:
    x: qd.i8
    y: qd.f64


@qd.dataclass
class Segment:
    ends: Point
    direction: qd.math.vec2
    turn: qd.types.matrix(2, 2, qd.f32)

    @qd.func
    def length(self):
        return self.direction.norm()


def test_kernels_return_structs() -> None:
    @qd.kernel
    def make(n: qd.i32) -> Segment:
        found = Segment(ends=Point(x=n, y=0.1), direction=[3.0, 4.0])
        if n > 1:
            found.turn = qd.Matrix([[0.0, 1.0], [2.0, 3.0]])
        return found

    made = make(2)
    assert (made.ends.x, made.ends.y, made.length()) == (2, 0.1, 5.0)
    assert made.turn.to_numpy().tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert make(1).turn.to_numpy().tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_kernels_return_structs_beside_other_values() -> None:
    alone = qd.types.struct(value=qd.f32)

    @qd.kernel
    def make(n: qd.i32) -> tuple[Point, qd.i32, alone]:
        return Point(n, 2.5), n + 1, alone(value=0.5)

    @qd.kernel
    def one() -> alone:
        return alone(value=7.0)

    point, number, other = make(4)
    assert (point.x, point.y, number, other.value) == (4, 2.5, 5, 0.5)
    assert one().value == 7.0


def test_structs_that_are_returned_have_the_members_of_the_annotation() -> None:
    other = qd.types.struct(x=qd.i8)

    @qd.kernel
    def wrong() -> Point:
        return other(x=1)

    @qd.kernel
    def one_too_few() -> tuple[Point, Point]:
        return Point(1, 2.0)

    with pytest.raises(qd.OctantsError, match="a struct with `x`, `y`, not"):
        wrong()
    with pytest.raises(qd.OctantsError, match="the number of returned values is 1, not 2"):
        one_too_few()


# -- names that are refused ------------------------------------------------------------------------


def test_masks_of_warps_are_constants() -> None:
    x = qd.field(qd.i32, shape=32)

    @qd.kernel
    def shift(mask: qd.u32):
        qd.loop_config(block_dim=32)
        for i in range(32):
            x[i] = qd.simt.warp.shfl_up_i32(mask, i, 1)

    with pytest.raises(qd.OctantsError, match="the mask of simt.warp is the constant 0xFFFFFFFF"):
        shift(0xFFFFFFFF)


def test_methods_of_python_on_numbers_that_are_known() -> None:
    @qd.func
    def half_of_bits(block: qd.template()) -> qd.i32:
        return qd.static((block.bit_length() - 1) // 2)

    @qd.kernel
    def kernel(n: qd.i32) -> qd.i32:
        block = qd.static(64)
        return half_of_bits(block) + 10 * half_of_bits(256)

    assert kernel(1) == 43

    @qd.kernel
    def unknown(n: qd.i32) -> qd.i32:
        return n.bit_length()

    with pytest.raises(qd.OctantsNameError, match="an i32 has no attribute `bit_length`"):
        unknown(1)


def test_the_type_of_an_ndarray() -> None:
    found = qd.ndarray(qd.f32, (3, 4), needs_grad=True).get_type()
    assert (found.element_type, found.shape, found.needs_grad) == (qd.f32, (3, 4), True)
    assert found.layout is qd.Layout.AOS
    vectors = qd.Vector.ndarray(3, qd.f64, 2).get_type()
    assert str(vectors.element_type) == str(qd.types.vector(3, qd.f64))
    assert vectors.shape == (2,) and not vectors.needs_grad


def test_options_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    qd.dump_compile_config()
    lines = capsys.readouterr().out.splitlines()
    assert f"default_fp={qd.cfg.default_fp}" in lines
    assert lines == sorted(lines)


def test_forward_mode_clears_its_seed() -> None:
    x = qd.field(qd.f32, 2, needs_dual=True)
    loss = qd.field(qd.f32, (), needs_dual=True)

    @qd.kernel
    def total():
        for i in x:
            loss[None] += 3.0 * x[i]

    with qd.ad.FwdMode(loss=loss, param=x, seed=[1.0, 2.0]) as mode:
        total()
        assert loss.dual[None] == 9.0
        mode.clear_seed()
        assert x.dual.to_numpy().tolist() == [0.0, 0.0]
        total()
    assert loss.dual[None] == 9.0


def test_methods_that_only_quadrants_has() -> None:
    loss = qd.field(qd.f32, (), needs_grad=True, needs_dual=True)
    tape, mode = qd.ad.Tape(loss), qd.ad.FwdMode(loss, loss)
    for owner, name in ((tape, "insert"), (mode, "insert"), (mode, "recover_kernels")):
        with pytest.raises(AttributeError, match=rf"OCT480: Octants has no `ad\.\w+\.{name}`"):
            getattr(owner, name)
    with pytest.raises(AttributeError, match="has no attribute 'inset'"):
        tape.inset()  # type: ignore[attr-defined]
    assert not hasattr(mode, "nothing")


def test_torch_shares_no_queue() -> None:
    assert qd.interop.get_mps_command_queue() == 0


def test_class_methods_are_kernels_and_funcs() -> None:
    """The class is a constant, as the object of a method is; a changed attribute is noticed."""

    @qd.data_oriented
    class Scale:
        factor = 2

        @classmethod
        @qd.func
        def moved(cls, x):  # type: ignore[no-untyped-def]
            return x + cls.factor * 100

        @classmethod
        @qd.kernel
        def apply(cls, x: qd.i32) -> qd.i32:
            return x * cls.factor + cls.moved(x)

        @qd.kernel
        def from_object(self, x: qd.i32) -> qd.i32:
            return self.moved(x) + Scale.moved(0)

        @staticmethod
        @qd.kernel
        def plain(cls: qd.i32) -> qd.i32:
            return cls + 1

    class Triple(Scale):
        factor = 3

    assert (Scale.apply(2), Scale().apply(x=2), Triple.apply(2)) == (206, 206, 308)
    assert Triple().from_object(2) == 502
    assert Scale.plain(2) == 3
    Scale.factor = 7
    assert Scale.apply(2) == 716


def test_arguments_have_the_names_of_quadrants() -> None:
    """An atomic changes its element, too, if that is named."""
    total = qd.field(qd.i32, ())
    x = qd.field(qd.i32)
    list_of_x = qd.root.dense(indices=qd.i, dimensions=2).dynamic(axis=qd.j, dimension=8)
    list_of_x.place(x)

    @qd.kernel
    def f() -> qd.f32:
        k = 1
        qd.atomic_add(y=3, x=total[None])
        qd.atomic_max(x=k, y=5)
        qd.append(node=list_of_x, indices=[1], val=k)
        angle = qd.atan2(x1=1.0, x2=1.0)
        return qd.select(cond=k > 2, x1=qd.cast(obj=angle, dtype=qd.f64), x2=0.0)

    assert f() == pytest.approx(np.pi / 4)
    assert (total[None], x[1, 0]) == (3, 5)
    assert qd.Vector.field(2, qd.f32, 3, None, "named", None, True).grad.shape == (3,)
    assert qd.Matrix(arr=[[1, 2]], dt=qd.f32).shape == (1, 2)


@qd.data_oriented
class _Spring:
    stiffness = 2.0

    def __init__(self) -> None:
        self.x = qd.field(qd.f32, shape=2)

    @qd.func
    def force(self, i: Any) -> Any:
        return -self.stiffness * self.x[i]

    @property
    def rest(self) -> float:
        return 1.0

    @qd.kernel
    def run(self) -> qd.f32:
        return self.force(1)


@qd.data_oriented
class _DampedSpring(_Spring):
    def __init__(self) -> None:
        super().__init__()
        self.drag = 0.5

    @qd.func
    def force(self, i: Any) -> Any:
        return super().force(i) - self.drag + super().rest


class _TwiceDamped(_DampedSpring):
    @qd.func
    def force(self, i: Any) -> Any:
        return super().force(i) * 10


@qd.func
def _without_a_class(x: Any) -> Any:
    return super().force(x)


def test_super_in_a_method() -> None:
    for made, wanted in ((_Spring(), -6.0), (_DampedSpring(), -5.5), (_TwiceDamped(), -55.0)):
        made.x[1] = 3.0
        assert made.run() == wanted
    assert made.drag == 0.5  # type: ignore[attr-defined]
    made.drag = 1.5  # type: ignore[attr-defined]
    assert made.run() == -65.0


def test_super_without_a_class_is_an_error() -> None:
    @qd.kernel
    def run() -> qd.f32:
        return _without_a_class(1)

    with pytest.raises(qd.OctantsCompilationError, match="OCT122: .*__class__ cell"):
        run()
