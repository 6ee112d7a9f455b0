"""Steps that are called by the addresses of their arrays give what evaluations give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.ad.functions.calls_by_address import RepeatedStep
from tests.ad.array_function_kernels import lengths, returned_well, scaled_squares, turned
from tests.devices import shares_memory

torch = pytest.importorskip("torch")
pytestmark = shares_memory  # tensors of the CPU are copied for a GPU

X = np.array([0.5, 2.0, -1.5])


@qd.kernel
def exponentials(x: qd.types.ndarray(ndim=1), y: qd.types.ndarray(), z: qd.types.ndarray()):
    for i in x:
        y[i] = qd.exp(x[i])
    for i in x:
        z[i] += y[i] * y[i] + x[i]


@qd.kernel
def shifted_in_place(x: qd.types.ndarray(ndim=1), change: qd.f64):
    for i in x:
        x[i] += change


@qd.kernel
def scaled_in_place(x: qd.types.ndarray(ndim=1), factor: qd.f64):
    for i in x:
        x[i] *= factor


@qd.kernel
def gathered(
    x: qd.types.ndarray(ndim=1),
    indices: qd.types.ndarray(qd.i64, 1),
    y: qd.types.ndarray(ndim=1),
    n: qd.types.ndarray(qd.i32, 0),
):
    for i in indices:
        y[i] = x[indices[i]] ** 2
        n[None] += 1


@qd.kernel
def total_and_squares(
    x: qd.types.ndarray(ndim=1), y: qd.types.ndarray(ndim=1), factor: qd.f64
) -> qd.f64:
    total = 0.0
    for i in range(x.shape[0]):
        y[i] = x[i] ** 2
        total += factor * x[i]
    return total


CASES: dict[str, tuple[Any, dict[str, Any], list[Any]]] = {
    "an array and numbers": (scaled_squares, {"out": {"y": "x"}}, [X, 3.0, 3]),
    "a returned number": (returned_well, {}, [X, 2.0]),
    "a result that the reverse reads": (exponentials, {"out": {"y": "x", "z": "x"}}, [X]),
    "an update": (shifted_in_place, {"inout": "x"}, [X, 3.0]),
    "an update that takes a tape": (scaled_in_place, {"inout": "x"}, [X, 3.0]),
    "integers": (
        gathered,
        {"out": {"y": lambda x, indices: (indices.shape, x.dtype), "n": ()}},
        [X, np.array([2, 0])],
    ),
    "an array and a number": (total_and_squares, {"out": {"y": "x"}}, [X, 3.0]),
    "vectors": (
        lengths,
        {"out": {"n": lambda v: v.shape[:1], "far": 2}},
        [np.array([[3.0, 4.0, 0.0], [0.0, 0.5, 1.0]])],
    ),
    "a matrix and a vector": (
        turned,
        {"out": {"y": "x"}},
        [X, np.array([[1.0, 0.4], [-0.2, 0.8]]), np.array([0.5, 1.5]), 1.2],
    ),
    "no elements": (scaled_squares, {"out": {"y": "x"}}, [X[:0], 3.0, 0]),
}


def results(function: Callable[..., Any], given: list[Any]) -> list[Any]:
    """The results of a function of torch, and gradients by all floats."""
    tensors = [
        torch.tensor(each, requires_grad=np.asarray(each).dtype.kind == "f")
        if not isinstance(each, int)
        else each
        for each in given
    ]
    found = function(*tensors)
    several = found if isinstance(found, tuple) else (found,)
    adjoints = [torch.cos(each) for each in several if each.is_floating_point()]
    floats = [each for each in several if each.is_floating_point()]
    by = [each for each in tensors if isinstance(each, torch.Tensor) and each.requires_grad]
    gradients = torch.autograd.grad(floats, by, adjoints)
    return [each.detach().numpy() for each in (*several, *gradients)]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of the steps that have been called by addresses."""
    kinds: list[str] = []
    run = RepeatedStep.run

    def observed(self: RepeatedStep, *given: Any) -> bool:
        is_done = run(self, *given)
        if is_done:
            kinds.append(self._step.kind)
        return is_done

    monkeypatch.setattr(RepeatedStep, "run", observed)
    return kinds


@pytest.mark.parametrize("case", CASES)
def test_results_and_gradients(case: str, taken: list[str]) -> None:
    kernel, how, given = CASES[case]
    function = qd.torch.function(kernel, **how)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RepeatedStep, "run", lambda *_: False)
        expected = results(function, given)
    for _ in range(2):
        found = results(function, given)
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
    assert taken.count("value") == taken.count("pullback") == 2


def test_other_numbers_shapes_and_types_are_other_calls(taken: list[str]) -> None:
    function = qd.torch.function(scaled_squares, out={"y": "x"})
    for dtype in (torch.float64, torch.float32, torch.float16):
        for factor in (2.0, 3.0, 4):
            for size in (2, 3):
                x = torch.tensor(X[:size], dtype=dtype)
                assert function(x, factor, size).tolist() == (factor * x**2).tolist()
    assert len(taken) == 18


def test_arrays_that_are_not_row_major(taken: list[str]) -> None:
    function = qd.torch.function(scaled_squares, out={"y": "x"})
    pairs = torch.tensor(np.stack([X, X], 1), requires_grad=True)
    y = function(pairs[:, 0], 2.0, 3)
    assert y.tolist() == (2 * X**2).tolist()
    y.backward(torch.ones(3, 3, dtype=torch.float64)[:, 0])
    assert pairs.grad[:, 0].tolist() == (4 * X).tolist()
    assert taken == []
    x = torch.tensor(X, requires_grad=True)
    function(x, 2.0, 3).sum().backward()  # whose adjoint is one number for all elements
    assert x.grad.tolist() == (4 * X).tolist()
    assert taken == ["value", "pullback"]


def test_the_same_array_twice(taken: list[str]) -> None:
    @qd.kernel
    def products(a: qd.types.ndarray(), b: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in a:
            y[i] = a[i] ** 2 * b[i]

    function = qd.torch.function(products, out={"y": "a"})
    x = torch.tensor(X)
    by_both = torch.func.grad(lambda a, b: function(a, b).sum(), (0, 1))
    for found, expected in zip(by_both(x, x), (2 * X**2, X**2), strict=True):
        np.testing.assert_allclose(found, expected)
    assert taken.count("pullback") == 0


SCALE = 2.0


def test_numbers_that_change_and_another_init(taken: list[str]) -> None:
    global SCALE

    @qd.kernel
    def scaled(x: qd.types.ndarray(ndim=1), y: qd.types.ndarray(ndim=1)):
        for i in x:
            y[i] = SCALE * x[i]

    function, x = qd.torch.function(scaled, out={"y": "x"}), torch.tensor(X)
    for _ in range(2):
        for SCALE in (2.0, 3.0, 5.0):
            assert function(x).tolist() == (SCALE * X).tolist()
            gradient = torch.func.grad(lambda x: function(x).sum())(x)
            assert gradient.tolist() == [SCALE] * 3
        qd.init(arch=qd.cpu)
    assert len(taken) == 18


def test_under_a_tape_launches_are_recorded(taken: list[str]) -> None:
    function = qd.torch.function(scaled_squares, out={"y": "x"})
    x = torch.tensor(X)
    assert function(x, 2.0, 3).tolist() == (2 * X**2).tolist()
    assert taken == ["value"]
    with qd.ad.Tape():
        assert function(x, 2.0, 3).tolist() == (2 * X**2).tolist()
    assert taken == ["value"]


def test_inputs_that_are_written_are_errors() -> None:
    @qd.kernel
    def spoil(x: qd.types.ndarray(ndim=1), y: qd.types.ndarray(ndim=1)):
        for i in x:
            y[i] = x[i]
            x[i] = 0.0

    jax = pytest.importorskip("jax")
    function = jax.jit(qd.jax.function(spoil, out={"y": "x"}))
    for _ in range(2):
        with pytest.raises(Exception, match="read-only"):
            jax.block_until_ready(function(jax.numpy.array(X)))


@qd.data_oriented
class Springs:
    """A chain, whose ends of springs are in a field."""

    def __init__(self) -> None:
        self.ends = qd.field(qd.i32, (2, 2))
        self.ends.from_numpy(np.array([[0, 1], [1, 2]], np.int32))

    @qd.kernel
    def pull(self, x: qd.types.ndarray(ndim=1), stiffness: qd.f64, force: qd.types.ndarray(ndim=1)):
        for k in range(2):
            a, b = self.ends[k, 0], self.ends[k, 1]
            pull = stiffness * (x[b] - x[a] - 1.0)
            force[a] += pull
            force[b] -= pull


def test_methods_that_read_fields(taken: list[str]) -> None:
    springs = Springs()
    function = qd.torch.function(springs.pull, out={"force": "x"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RepeatedStep, "run", lambda *_: False)
        expected = results(function, [X, 3.0])
    for _ in range(2):
        for found, other in zip(results(function, [X, 3.0]), expected, strict=True):
            np.testing.assert_array_equal(found, other)
    assert taken == ["value", "pullback"] * 2
    springs.ends.from_numpy(np.array([[0, 2], [2, 1]], np.int32))
    x = torch.tensor(X, requires_grad=True)
    force = function(x, 1.0)
    assert force.tolist() == [-3.0, -2.5, 5.5]
    force[0].backward()
    assert x.grad.tolist() == [-1.0, 0.0, 1.0]


def test_fields_with_gradients(taken: list[str]) -> None:
    scale = qd.field(qd.f64, (), needs_grad=True)
    scale[None] = 2.0

    @qd.kernel
    def scaled(x: qd.types.ndarray(ndim=1), y: qd.types.ndarray(ndim=1)):
        for i in x:
            y[i] = x[i] * scale[None]

    function = qd.torch.function(scaled, out={"y": "x"})
    gradient = torch.func.grad(lambda x: function(x).sum())(torch.tensor(X))
    assert gradient.tolist() == [2.0] * 3
    assert scale.grad[None] == X.sum()
    assert taken == ["value", "pullback"]


@qd.kernel
def repetitions(x: qd.types.ndarray(ndim=1), n: qd.i32, y: qd.types.ndarray(ndim=1)):
    for i in y:
        y[i] = x[0] * n


def test_functions_that_give_shapes_see_numbers_and_what_changes(taken: list[str]) -> None:
    extra = [0]
    function = qd.torch.function(repetitions, out={"y": lambda x, n: (n + extra[0],)})  # noqa: ARG005
    for number, more in (3, 0), (5, 0), (2, 1), (3, 0):
        extra[0] = more
        x = torch.ones(1, requires_grad=True)
        y = function(x, number)
        assert y.tolist() == [number] * (number + more)
        y.sum().backward()
        assert x.grad.item() == number * (number + more)
    assert taken == ["value", "pullback"] * 4
    assert function(torch.ones(1), torch.tensor(4)).tolist() == [4, 4, 4, 4]


def test_another_init_has_another_default_type(taken: list[str]) -> None:
    @qd.kernel
    def total(x: qd.types.ndarray(ndim=1)) -> float:
        found = 0.0
        for i in range(x.shape[0]):
            found += x[i]
        return found

    function = qd.torch.function(total)
    x = torch.ones(3)
    qd.init(arch=qd.cpu, default_fp=qd.f32)
    assert function(x).dtype == torch.float32
    qd.init(arch=qd.cpu, default_fp=qd.f64)
    assert function(x).dtype == torch.float64
    assert taken == ["value"] * 2


def test_adjoints_without_memory_are_zeros() -> None:
    function = qd.torch.function(scaled_in_place, inout="x")
    x = torch.ones(3, requires_grad=True)
    y = qd.torch.function(repetitions, out={"y": 3})(x, 2)
    for result in function(x, 2.0), y:
        (found,) = torch.autograd.grad(result, x, torch._efficientzerotensor((3,)))
        assert found.tolist() == [0.0, 0.0, 0.0]
