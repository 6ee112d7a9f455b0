"""Gradients of several launches, called by addresses, are those of evaluations."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.ad.functions import calls_by_address
from octants.ad.functions.calls_by_address import RepeatedStep
from tests.devices import shares_memory

jax = pytest.importorskip("jax")
jnp: Any = pytest.importorskip("jax.numpy")
pytestmark = shares_memory

X = jnp.array([0.5, 2.0, -1.5], jnp.float32)


@qd.kernel
def squares(x: qd.types.ndarray(ndim=1), y: qd.types.ndarray(ndim=1)):
    for i in x:
        y[i] += x[i] ** 2


@qd.kernel
def scale(x: qd.types.ndarray(ndim=1), factor: qd.f32):
    for i in x:
        x[i] *= factor * x[i]


def twice(x: Any) -> None:
    scale(x, 2.0)
    scale(x, 0.5)


def through_an_output(x: Any, y: Any, z: Any) -> None:
    squares(x, y)
    squares(y, z)


def through_an_ndarray(x: Any, z: Any) -> None:
    y = qd.ndarray(qd.f32, x.shape, needs_grad=True)
    squares(x, y)
    squares(y, z)


def by_numbers(x: Any, count: int, z: Any) -> None:
    squares(x, z)
    for _ in range(count):
        scale(z, 1.0)


CASES: dict[str, tuple[Any, dict[str, Any], list[Any]]] = {
    "in place": (twice, {"inout": "x"}, []),
    "one launch in place": (scale, {"inout": "x"}, [2.0]),
    "through an output": (through_an_output, {"out": {"y": "x", "z": "x"}}, []),
    "through an ndarray": (through_an_ndarray, {"out": {"z": "x"}}, []),
    "by numbers": (by_numbers, {"out": {"z": "x"}}, [2]),
}


def gradients(program: Any, given: list[Any]) -> list[Any]:
    """Gradients at several points, so that later calls repeat earlier ones."""
    return [program(X * k, *given).tolist() for k in (1.0, 0.5, -1.0, 0.25, 2.0, 1.0)]


@pytest.mark.parametrize("case", CASES)
def test_gradients(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    launches, how, given = CASES[case]
    taken: list[str] = []
    run = RepeatedStep.run

    def observed(self: RepeatedStep, *given: Any) -> bool:
        is_done = run(self, *given)
        taken.append(f"{self._step.kind} {is_done}")
        return is_done

    monkeypatch.setattr(RepeatedStep, "run", observed)
    function = qd.jax.function(launches, **how)

    def loss(x: Any, *given: Any) -> Any:
        found = function(x, *given)
        return jnp.sum(jnp.sin(jnp.stack(found if isinstance(found, tuple) else [found])))

    statics = tuple(range(1, 1 + len(given)))
    program = jax.jit(jax.grad(loss), static_argnums=statics)
    found = gradients(program, given)
    assert taken.count("pullback True") == 6
    monkeypatch.setattr(RepeatedStep, "run", lambda *_: False)
    assert found == gradients(jax.jit(jax.grad(loss), static_argnums=statics), given)


def test_what_is_between_calls_does_not_matter() -> None:
    between = qd.field(qd.f32, 3, needs_grad=True)

    @qd.kernel
    def store(x: qd.types.ndarray(ndim=1)):
        for i in x:
            between[i] = x[i] ** 2

    @qd.kernel
    def load(y: qd.types.ndarray(ndim=1)):
        for i in y:
            y[i] = between[i] ** 2

    def fourth_powers(x: Any, y: Any) -> None:
        store(x)
        load(y)

    function = qd.jax.function(fourth_powers, out={"y": "x"})
    program = jax.jit(jax.grad(lambda x: function(x).sum()))
    for k in range(1, 8):
        between.fill(7.0)
        between.grad.fill(k)
        np.testing.assert_allclose(program(X * k), 4 * (X * k) ** 3, rtol=1e-6)
        if k == 5:
            qd.reset()
            qd.init(arch=qd.cpu)
            return


def test_large_arrays_are_not_copied() -> None:
    function = qd.jax.function(twice, inout="x")
    program = jax.jit(jax.grad(lambda x: function(x).sum()))
    for size in (1 << 18, 3, 1 << 18):
        found = program(jnp.full(size, 0.5, jnp.float32))
        np.testing.assert_array_equal(np.asarray(found), np.full(size, 4 * 2 * 0.5**3, np.float32))


def test_large_outputs_are_not_kept() -> None:
    def through_scratch(x: Any, y: Any, z: Any) -> None:
        squares(x, y)
        squares(x, z)

    found, taken = tensors(through_scratch, out={"y": 1 << 18, "z": "x"})
    assert taken == [False] * 6
    for x, gradient in found:
        np.testing.assert_allclose(gradient, 2 * x)


def test_a_function_that_raises_and_then_does_not() -> None:
    fails = [False]

    def guarded(x: Any) -> None:
        scale(x, 2.0)
        if fails[0]:
            raise ValueError("not now")
        scale(x, 0.5)

    function = qd.jax.function(guarded, inout="x")
    program = jax.jit(jax.grad(lambda x: function(x).sum()))
    for k in range(8):
        fails[0] = k in (3, 5)
        if fails[0]:
            with pytest.raises(Exception, match="not now"):
                jax.block_until_ready(program(X))
        else:
            np.testing.assert_allclose(program(X), 8 * X**3, rtol=1e-6)


def test_inputs_that_are_written_are_errors() -> None:
    def spoils(x: Any, y: Any) -> None:
        squares(x, y)
        scale(x, 2.0)

    function = qd.jax.function(spoils, out={"y": "x"})
    program = jax.jit(jax.grad(lambda x: function(x).sum()))
    with pytest.raises(Exception, match="read-only"):
        jax.block_until_ready(program(X))


def test_arrays_that_a_program_keeps_are_not_used_again() -> None:
    kept: list[Any] = []

    def keeping(x: Any, z: Any) -> None:
        kept.append(x)
        through_an_ndarray(x, z)

    function = qd.jax.function(keeping, out={"z": "x"})
    program = jax.jit(jax.grad(lambda x: function(x).sum()))
    for k in range(1, 6):
        np.testing.assert_allclose(program(X * k), 4 * (X * k) ** 3, rtol=1e-6)
    for k, array in enumerate(kept, 1):
        np.testing.assert_array_equal(array.to_numpy(), X * k)


def tensors(launches: Any, **how: Any) -> tuple[list[Any], list[bool]]:
    """Gradients of a function of torch at several points, and whether they were recycled."""
    torch = pytest.importorskip("torch")
    function, taken = qd.torch.function(launches, **how), []
    run = RepeatedStep.run

    def observed(self: RepeatedStep, *given: Any) -> bool:
        is_done = run(self, *given)
        if self._step.kind == "pullback":
            taken.append(is_done)
        return is_done

    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RepeatedStep, "run", observed)
        for k in (1.0, 0.5, -1.0, 0.25, 2.0, 1.0):
            x = torch.tensor(np.asarray(X) * k, dtype=torch.float64, requires_grad=True)
            results = function(x)
            (results[-1] if isinstance(results, tuple) else results).sum().backward()
            found.append((x.detach(), x.grad))
    return found, taken


def test_functions_of_torch_that_launch_kernels() -> None:
    def fourth_powers(x: Any, y: Any, z: Any) -> None:
        assert x.shape == y.shape == (len(x),)
        squares(x, y)
        squares(y, z)

    found, taken = tensors(fourth_powers, out={"y": "x", "z": "x"})
    assert taken == [True] * 6
    for x, gradient in found:
        np.testing.assert_allclose(gradient, 4 * x**3)


def test_functions_of_torch_that_use_tensors() -> None:
    torch = pytest.importorskip("torch")

    def scaled_by_largest(x: Any, z: Any) -> None:
        z += 0.5
        z = torch.atleast_1d(z.add_(0.5), x.contiguous())[0]
        squares(x, z)
        scale(z, x.detach().abs().max().item())

    found, taken = tensors(scaled_by_largest, out={"z": "x"})
    assert taken == [True, *[False] * 5]
    for x, gradient in found:
        expected = x.abs().max() * 2 * (1 + x**2) * 2 * x
        np.testing.assert_allclose(gradient, expected)


def test_functions_of_torch_with_a_gradient_of_their_own_are_errors() -> None:
    torch: Any = pytest.importorskip("torch")

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return 2 * x

        @staticmethod
        def backward(ctx: Any, adjoint: Any) -> Any:
            return 2 * adjoint

    def squares_of_doubles(x: Any, z: Any) -> None:
        squares(Double.apply(x), z)

    with pytest.raises(qd.OctantsRuntimeError, match="OCT350"):
        tensors(squares_of_doubles, out={"z": "x"})


def test_functions_of_torch_that_use_tensors_only_at_times() -> None:
    calls = [0]

    def at_times(x: Any, z: Any) -> None:
        calls[0] += 1
        squares(x * 1.0 if calls[0] in (7, 8) else x, z)

    with pytest.raises(qd.OctantsRuntimeError, match="OCT350"):
        tensors(at_times, out={"z": "x"})
    assert calls[0] == 8


def test_few_steps_keep_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_by_address, "_MOST_RECYCLED", 3)
    monkeypatch.setattr(calls_by_address, "_recycling", weakref.WeakKeyDictionary())
    gradient = jax.jit(jax.grad(lambda x: qd.jax.function(twice, inout="x")(x).sum()))
    for size in (1, 2, 3, 4, 5, 4, 1):
        x = jnp.arange(1.0, size + 1, dtype=jnp.float32)
        np.testing.assert_allclose(gradient(x), 8 * x**3, 1e-6)
    kept = [each for each in calls_by_address._recycling if each._recycled is not None]
    assert len(kept) == len(calls_by_address._recycling) == 3
