"""Quadrants' public names, one by one: those that autodiff programs use exist and do their job.

`quadrants_names.tsv` has the names with their use counts. A name with an autodiff count has a check
here; ACCEPTED are those that programs may say and that change nothing, ABSENT_BACKENDS those whose
use is a clear error where there is no code generation, or no driver, for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import octants as qd

TABLE = Path(__file__).parent / "quadrants_names.tsv"
ACCEPTED = {"qd.block_local", "qd.extension.bls"}
ABSENT_BACKENDS = {"qd.cuda", "qd.vulkan", "qd.metal", "qd.amdgpu"}


def read_table() -> dict[str, int]:
    rows = [line.split("\t") for line in TABLE.read_text().splitlines() if line[:1] != "#"]
    return {name: int(autodiff) for name, autodiff, *_ in rows[1:]}


USED = [name for name, count in read_table().items() if count > 0]
CHECKS: dict[str, Callable[[], Any]] = {}


def check(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the check of some names; it is given the name if it takes one."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        takes_name = function.__code__.co_argcount == 1
        for name in names:
            CHECKS[f"qd.{name}"] = (lambda n=name: function(n)) if takes_name else function
        return function

    return register


def lookup(name: str) -> Any:
    found: Any = qd
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


OTHER_WAYS = {"NoSuchThing"}


def test_work_items_work_together_by_the_same_names() -> None:
    names = [name for name in read_table() if name.startswith("qd.simt.")]
    absent = {name for name in names if name.rpartition(".")[2] in OTHER_WAYS}
    assert len(absent) == len(OTHER_WAYS)
    for name in set(names) - absent:
        lookup(name.removeprefix("qd."))


def test_every_used_name_has_a_check() -> None:
    assert {name for name in USED if name not in CHECKS} == set()


@pytest.mark.parametrize("name", USED)
def test_name(name: str) -> None:
    CHECKS[name]()


# -- types ----------------------------------------------------------------------------------------


@check("i8", "i32", "i64", "f16", "f32", "f64")
def dtype(name: str) -> None:
    kind = lookup(name)
    x = qd.field(kind, 2)

    @qd.kernel
    def fill():
        for i in x:
            x[i] = qd.cast(i + 1.5, kind)

    fill()
    expected = [1, 2] if name[0] == "i" else [1.5, 2.5]
    assert x.to_numpy().dtype == kind.numpy
    assert x.to_numpy().tolist() == expected


@check(
    "types.vector", "types.matrix", "math.vec2", "Vector", "Matrix", "Matrix.cols", "Matrix.diag"
)
def vectors() -> None:
    vec = qd.types.vector(2, qd.f32)
    mat = qd.types.matrix(2, 2, qd.f32)

    @qd.kernel
    def f(a: vec, m: mat) -> qd.math.vec2:
        columns = qd.Matrix.cols([a, qd.Vector([1.0, 0.0])])
        return m @ a + columns @ qd.Vector([1.0, 2.0]) + qd.Matrix.diag(2, 3.0) @ a

    assert f(vec(1, 2), mat([[0, 1], [1, 0]])).to_list() == [2 + 1 + 2 + 3, 1 + 2 + 0 + 6]
    assert (qd.Matrix([[1, 2], [3, 4]]) @ qd.Vector([1, 1])).to_list() == [3, 7]


@check("types.ndarray", "types.NDArray", "ndarray")
def ndarrays() -> None:
    x = qd.ndarray(qd.f32, (2, 3))

    @qd.kernel
    def f(a: qd.types.ndarray(dtype=qd.f32, ndim=2), b: qd.types.NDArray[qd.f32, 2]):
        for i, j in a:
            b[i, j] = i * 10 + j

    f(x, x)
    assert x.to_numpy().tolist() == [[0, 1, 2], [10, 11, 12]]


@check(
    "types.enums.SNodeGradType",
    "types.enums.SNodeGradType.ADJOINT",
    "types.enums.SNodeGradType.DUAL",
    "types.enums.SNodeGradType.PRIMAL",
)
def gradient_types() -> None:
    kinds = qd.types.enums.SNodeGradType
    x = qd.field(qd.f32, 2, needs_grad=True, needs_dual=True)
    arrays = {kinds.PRIMAL: x, kinds.ADJOINT: x.grad, kinds.DUAL: x.dual}
    for kind, array in arrays.items():
        array.fill(1)
        qd.ad.clear_all_gradients(kind)
        assert array[0] == 0


@check(
    "types.enums.AutodiffMode",
    "types.enums.AutodiffMode.NONE",
    "types.enums.AutodiffMode.VALIDATION",
)
def autodiff_modes() -> None:
    modes = qd.types.enums.AutodiffMode
    assert modes.NONE is not modes.VALIDATION


# -- arrays ---------------------------------------------------------------------------------------


@check("field", "Vector.field", "Matrix.field")
def fields() -> None:
    s = qd.field(qd.f32, shape=(), needs_grad=True)
    v = qd.Vector.field(2, qd.f32, shape=3)
    m = qd.Matrix.field(2, 2, qd.f32, shape=3)

    @qd.kernel
    def f():
        for i in v:
            v[i] = qd.Vector([i, 1.0])
            m[i] = v[i].outer_product(v[i])
        s[None] = m[2][0, 0]

    f()
    assert s[None] == 4
    assert m[2].to_list() == [[4, 2], [2, 1]]
    assert s.grad[None] == 0


@check("root.dense", "root.place", "i", "j", "ij")
def placed_fields() -> None:
    x, y = qd.field(qd.f32), qd.field(qd.f32)
    z = qd.field(qd.i32)
    qd.root.dense(qd.i, 2).dense(qd.j, 3).place(x)
    qd.root.dense(qd.ij, (2, 3)).place(y)
    qd.root.place(z)

    @qd.kernel
    def f():
        for i, j in x:
            x[i, j] = i * 10 + j
            y[i, j] = x[i, j]
            z[None] += 1

    f()
    assert y.to_numpy().tolist() == [[0, 1, 2], [10, 11, 12]]
    assert z[None] == 6


@check("root.lazy_grad", "root.lazy_dual")
def lazy_companions() -> None:
    x, loss = qd.field(qd.f32), qd.field(qd.f32)
    qd.root.dense(qd.i, 3).place(x)
    qd.root.place(loss)
    qd.root.lazy_grad()
    qd.root.lazy_dual()

    @qd.kernel
    def f():
        for i in x:
            loss[None] += 2 * x[i]

    with qd.ad.Tape(loss=loss):
        f()
    assert x.grad.to_numpy().tolist() == [2, 2, 2]
    with qd.ad.FwdMode(loss=loss, param=x, seed=[1, 0, 1]):
        f()
    assert loss.dual[None] == 4


@check(
    "tensor",
    "Tensor",
    "Vector.tensor",
    "Matrix.tensor",
    "Backend.NDARRAY",
    "Backend.FIELD",
)
def tensors() -> None:
    @qd.kernel
    def f(x: qd.Tensor) -> qd.f32:
        for i in range(2):
            x[i] += 1
        return x[1]

    @qd.kernel
    def g(v: qd.Tensor, m: qd.Tensor) -> qd.f32:
        return v[1][0] + m[0][1, 1]

    for backend in (qd.Backend.NDARRAY, qd.Backend.FIELD):
        x = qd.tensor(qd.f32, 2, backend=backend)
        assert isinstance(x, qd.Tensor)
        assert f(x) == 1
        v = qd.Vector.tensor(2, qd.f32, 2, backend=backend)
        m = qd.Matrix.tensor(2, 2, qd.f32, 2, backend=backend)
        v.fill(1)
        m.fill(2)
        assert g(v, m) == 3


@check("Struct.field")
def struct_fields() -> None:
    s = qd.Struct.field({"mass": qd.f32, "at": qd.math.vec2}, shape=2)

    @qd.kernel
    def f():
        for i in s:
            s[i].mass = i + 1.0
            s[i].at = qd.math.vec2(i, 2)

    f()
    assert s.mass.to_numpy().tolist() == [1, 2]
    assert s[1].at.to_list() == [1, 2]


# -- functions ------------------------------------------------------------------------------------


def unary(function: Any, x: float) -> float:
    @qd.kernel
    def f(x: qd.f64) -> qd.f64:
        return function(x)

    result: float = f(x)
    return result


def check_derivatives(function: Any, at: list[float]) -> None:
    """Compare reverse and forward mode with central differences, in f64."""
    n = len(at)
    x = qd.field(qd.f64, n, needs_grad=True, needs_dual=True)
    y = qd.field(qd.f64, (), needs_grad=True, needs_dual=True)

    @qd.kernel
    def f():
        for _ in range(1):
            y[None] = function(*[x[k] for k in qd.static(range(n))])

    def value(given: Any) -> float:
        x.from_numpy(np.asarray(given))
        f()
        return float(y[None])

    steps = 1e-6 * np.eye(n)
    expected = [(value(at + step) - value(at - step)) / 2e-6 for step in steps]
    x.from_numpy(np.array(at))
    with qd.ad.Tape(loss=y):
        f()
    assert x.grad.to_numpy() == pytest.approx(np.array(expected), rel=1e-8, abs=1e-8)
    for k in range(n):
        with qd.ad.FwdMode(loss=y, param=x, seed=list(np.eye(n)[k])):
            f()
        assert y.dual[None] == pytest.approx(expected[k], rel=1e-8, abs=1e-8)


@check("sin", "cos", "tan", "asin", "acos", "tanh", "exp", "log", "sqrt", "floor", "ceil", "abs")
def functions(name: str) -> None:
    expected = getattr(np, {"asin": "arcsin", "acos": "arccos"}.get(name, name))
    for x in (0.3, 0.8):
        assert unary(lookup(name), x) == pytest.approx(expected(x), rel=1e-14)
        assert lookup(name)(x) == pytest.approx(expected(x))
        check_derivatives(lookup(name), [x])


@check("rsqrt")
def reciprocal_root() -> None:
    assert unary(qd.rsqrt, 4.0) == 0.5
    check_derivatives(qd.rsqrt, [4.0])


@check("atan2", "max", "min", "select", "math.clamp")
def functions_of_several() -> None:
    @qd.kernel
    def f(a: qd.f64, b: qd.f64) -> tuple[qd.f64, qd.f64, qd.f64, qd.f64, qd.f64]:
        chosen = qd.select(a > b, a, b)
        return qd.atan2(a, b), qd.max(a, b), qd.min(a, b), chosen, qd.math.clamp(a, 0.0, 0.5)

    for a, b in ((1.0, 2.0), (2.0, -1.0)):
        expected = (math.atan2(a, b), max(a, b), min(a, b), max(a, b), 0.5)
        assert f(a, b) == pytest.approx(expected)
        for function in (qd.atan2, qd.max, qd.min):
            check_derivatives(function, [a, b])
    for x in (-1.0, 0.3, 2.0):
        check_derivatives(clamped, [x])
        check_derivatives(chosen, [x, -0.5])


@qd.func
def clamped(x):
    return qd.math.clamp(x, 0.0, 0.5) * x


@qd.func
def chosen(a, b):
    return qd.select(a > b, a * b, a - 3 * b)


@check("cast")
def casts() -> None:
    @qd.kernel
    def f(x: qd.f32) -> qd.i32:
        return qd.cast(x, qd.i32) + qd.i32(x)

    assert f(2.7) == 4
    check_derivatives(widened, [0.7])


@qd.func
def widened(x):
    return qd.cast(qd.cast(x, qd.f64) * x, qd.f64) + qd.cast(x, qd.i32)


@check("random")
def random() -> None:
    x = qd.field(qd.f32, 1000)

    @qd.kernel
    def f():
        for i in x:
            x[i] = qd.random()

    f()
    values = x.to_numpy()
    assert 0 <= values.min() < 0.1 < 0.9 < values.max() < 1
    assert len(set(values.tolist())) > 990
    p = Pair()
    drawn = qd.field(qd.f32, 2)

    @qd.kernel
    def g():
        for i in p.x:
            draw = qd.random()
            drawn[i] = draw
            p.loss[None] += draw * p.x[i]

    with qd.ad.Tape(loss=p.loss):
        g()
    assert p.x.grad.to_numpy().tolist() == drawn.to_numpy().tolist()


@check("atomic_add")
def atomics() -> None:
    total = qd.field(qd.i32, ())

    @qd.kernel
    def f() -> qd.i32:
        for i in range(100):
            qd.atomic_add(total[None], i)
        return qd.atomic_add(total[None], 1)

    assert f() == 4950
    assert total[None] == 4951
    p = Pair()

    @qd.kernel
    def g():
        for i in p.x:
            qd.atomic_add(p.loss[None], (i + 1) * p.x[i] ** 2)

    with qd.ad.Tape(loss=p.loss):
        g()
    assert p.x.grad.to_numpy().tolist() == [4, 8]


@check("polar_decompose")
def polar_decomposition() -> None:
    @qd.kernel
    def f(m: qd.types.matrix(2, 2, qd.f64)) -> qd.types.matrix(2, 2, qd.f64):
        u, p = qd.polar_decompose(m, qd.f64)
        return u @ p

    m = [[1.0, 2.0], [-0.5, 3.0]]
    assert np.asarray(f(m).to_list()) == pytest.approx(np.asarray(m))
    check_derivatives(polar, [1.0, 2.0, -0.5, 3.0])


@qd.func
def polar(a, b, c, d):
    u, p = qd.polar_decompose(qd.Matrix([[a, b], [c, d]]), qd.f64)
    return u[0, 1] + 2 * p[1, 1] + u[0, 0] * p[0, 1]


# -- kernels --------------------------------------------------------------------------------------


@check("kernel", "func", "template", "static", "ndrange", "grouped", "loop_config", "block_local")
def language() -> None:
    x = qd.field(qd.f32, (2, 3))

    @qd.func
    def twice(a: qd.template()):
        return a + a

    @qd.kernel
    def f(field: qd.template()):
        qd.block_local(field)
        qd.loop_config(serialize=True)
        for i, j in qd.ndrange(2, 3):
            for k in qd.static(range(2)):
                field[i, j] += twice(k + 1)
        for I in qd.grouped(field):
            field[I] += I[0] * 100

    f(x)
    assert x.to_numpy().tolist() == [[6, 6, 6], [106, 106, 106]]

    @qd.kernel
    def in_order() -> qd.i32:
        last = 0
        qd.loop_config(serialize=True)
        for i in range(100):
            if i == 7:
                break
            last = i
        return last

    assert in_order() == 6


@check("data_oriented")
def classes() -> None:
    @qd.data_oriented
    class Counter:
        def __init__(self) -> None:
            self.n = qd.field(qd.i32, ())

        @qd.kernel
        def add(self, k: qd.i32):
            self.n[None] += k

    counter = Counter()
    counter.add(3)
    counter.add(4)
    assert counter.n[None] == 7


@check("init", "sync", "cpu", "x64", "cfg.arch")
def runtime_names() -> None:
    if qd.cpu is qd.x64:
        qd.init(arch=qd.x64, log_level="error")
    qd.sync()
    assert qd.cfg.arch is qd.cpu


@check("gpu")
def any_gpu() -> None:
    qd.init(arch=qd.gpu, log_level="error")
    assert isinstance(qd.cfg.arch, type(qd.cpu))


@check("cuda", "vulkan", "metal", "amdgpu")
def absent_backends(name: str) -> None:
    assert f"qd.{name}" in ABSENT_BACKENDS
    assert lookup(name).name == name
    try:
        qd.init(arch=lookup(name))
        assert qd.cfg.arch.name == name
    except qd.OctantsRuntimeError as error:
        assert name in str(error)
    finally:
        qd.init(arch=qd.cpu, log_level="error")


@check("extension.adstack", "extension.data64", "extension.assertion", "extension.bls")
def extensions(name: str) -> None:
    assert qd.is_extension_enabled(lookup(name)) == (f"qd.{name}" not in ACCEPTED)


# -- errors ---------------------------------------------------------------------------------------


@check("QuadrantsCompilationError")
def compilation_error() -> None:
    @qd.kernel
    def f() -> qd.i32:
        return no_such_name  # noqa: F821

    with pytest.raises(qd.QuadrantsCompilationError):
        f()
    assert qd.QuadrantsCompilationError is qd.OctantsCompilationError


@check("QuadrantsAssertionError")
def assertion_error() -> None:
    qd.init(arch=qd.cpu, debug=True, log_level="error")

    @qd.kernel
    def f(x: qd.i32):
        assert x > 0, "x is not positive"

    f(1)
    with pytest.raises(qd.QuadrantsAssertionError, match="x is not positive"):
        f(-1)
        qd.sync()


@check("QuadrantsRuntimeError")
def runtime_error() -> None:
    with pytest.raises(qd.QuadrantsRuntimeError):
        qd.init(arch=qd.cpu, no_such_option=1)


# -- derivatives ----------------------------------------------------------------------------------


class Pair:
    """y = 3 x^2, and a loss that sums y."""

    def __init__(self) -> None:
        self.x = qd.field(qd.f32, 2, needs_grad=True, needs_dual=True)
        self.loss = qd.field(qd.f32, (), needs_grad=True, needs_dual=True)
        self.x.fill(2)

    @qd.kernel
    def f(self):
        for i in self.x:
            self.loss[None] += 3 * self.x[i] ** 2


@check("ad.Tape")
def tape() -> None:
    p = Pair()
    with qd.ad.Tape(loss=p.loss, validation=True):
        p.f()
    assert p.x.grad.to_numpy().tolist() == [12, 12]


@check("ad.FwdMode")
def forward_mode() -> None:
    p = Pair()
    with qd.ad.FwdMode(loss=p.loss, param=p.x, seed=[1, 0]):
        p.f()
    assert p.loss.dual[None] == 12


@check("ad.clear_all_gradients")
def clearing() -> None:
    p = Pair()
    p.x.grad.fill(1)
    qd.ad.clear_all_gradients()
    assert p.x.grad[0] == 0


@check("ad.no_grad")
def no_grad() -> None:
    p = Pair()
    with qd.ad.Tape(loss=p.loss):
        qd.ad.no_grad(p.f)()
    assert p.x.grad[0] == 0
    assert p.loss[None] == 24


@check("ad.grad_replaced", "ad.grad_for")
def custom_gradients() -> None:
    p = Pair()

    @qd.ad.grad_replaced
    def forward(times: int) -> None:
        for _ in range(times):
            p.f()

    @qd.ad.grad_for(forward)
    def backward(times: int) -> None:
        for _ in range(times):
            p.f.grad()

    with qd.ad.Tape(loss=p.loss):
        forward(2)
    assert p.x.grad[0] == 24


@check("stop_grad")
def stop_grad() -> None:
    p = Pair()

    @qd.kernel
    def f():
        for i in p.x:
            p.loss[None] += qd.stop_grad(p.x[i]) * p.x[i]

    with qd.ad.Tape(loss=p.loss):
        f()
    assert p.x.grad[0] == 2
