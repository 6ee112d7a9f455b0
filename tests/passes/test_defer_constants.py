"""Constants are added where several sums have them in common, and nowhere else."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver, options
from octants.interpreter import Interpreter
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Block, Companion, Module, Task, Value
from octants.ir.rewriter import copy_module
from octants.ir.verifier import verify
from octants.passes.defer_constants import defer_constants
from octants.types.scalars import f64, i32
from tests.codegen.compiled import ndarray


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    yield
    qd.reset()


# -- modules ---------------------------------------------------------------------------------------


class Written:
    """A serial task over an array of numbers, whose sums are built by a function."""

    def __init__(self) -> None:
        self.array = ndarray("x", f64)
        self.builder = Builder(Block())
        self.loaded = [self.load(k) for k in range(4)]

    def load(self, place: int) -> Value:
        return self.builder.load(self.array, [self.builder.constant(place, i32)])

    def store(self, place: int, value: Value) -> None:
        self.builder.store(self.array, [self.builder.constant(place, i32)], value)

    def number(self, x: float) -> Value:
        return self.builder.constant(x, f64)

    def fma(self, *values: Value) -> Value:
        return self.builder.append(ops.Fma(*values, results=[Value(f64)])).result

    def add(self, x: Value, y: Value) -> Value:
        return self.builder.append(ops.Binary("add", x, y, results=[Value(f64)])).result

    def module(self) -> Module:
        self.builder.yield_()
        module = Module("k", [self.array], tasks=[Task("k_0", self.builder.block, None)])
        verify(module)
        return module


def additions(module: Module) -> int:
    return sum(isinstance(op, ops.Binary) and op.fn in ("add", "sub") for op in module.walk())


def deferred(module: Module) -> Module:
    result = copy_module(module)
    defer_constants(result)
    verify(result)
    return result


def after(module: Module, x: Any) -> Any:
    """What an array holds when a module has run on it."""
    (array,) = module.arrays
    found = np.array(x)
    Interpreter({(array, Companion.PRIMAL): found}).run(module)
    return found


# -- which -----------------------------------------------------------------------------------------


def stages(w: Written, count: int = 2) -> None:
    """Scaled sums with a constant each, which are added to one number."""
    number = w.loaded[0]
    for k in range(count):
        slope = w.add(w.fma(number, w.loaded[1], w.loaded[2]), w.number(2.0))
        number = w.fma(w.number(0.5), slope, w.loaded[0])
        w.store(k, number)


def test_sums_share_an_addition() -> None:
    w = Written()
    stages(w, 3)
    module = w.module()
    assert additions(module) == 3
    assert additions(deferred(module)) == 1
    np.testing.assert_allclose(after(deferred(module), [1, 2, 3, 4]), after(module, [1, 2, 3, 4]))


def test_one_alone_has_nobody_to_share_with() -> None:
    w = Written()
    stages(w, 1)
    module = w.module()
    before = [type(op) for op in module.walk()]
    assert [type(op) for op in deferred(module).walk()] == before


def test_a_sum_that_is_seen_is_added_up() -> None:
    w = Written()
    for k in range(3):
        slope = w.add(w.fma(w.loaded[k], w.loaded[1], w.loaded[2]), w.number(2.0))
        w.store(k, w.fma(w.number(0.5), slope, w.loaded[0]))
        w.store(10 + k, slope)
    module = w.module()
    assert additions(deferred(module)) == additions(module) == 3


def test_exact_numbers_keep_their_differences() -> None:
    w = Written()
    for k in range(3):
        difference = w.add(w.loaded[k], w.number(-273.15))
        w.store(k, w.fma(w.number(0.5), difference, w.loaded[3]))
    module = w.module()
    assert additions(deferred(module)) == additions(module) == 3


def test_what_a_loop_uses_is_there_before_it() -> None:
    w = Written()
    slopes = [w.add(w.fma(w.loaded[k], w.loaded[1], w.loaded[2]), w.number(2.0)) for k in range(3)]
    body = Block([Value(i32)])
    with w.builder.into(body):
        for slope in slopes:
            w.store(1, w.fma(w.number(0.5), slope, w.loaded[0]))
        w.builder.yield_()
    zero, three = w.builder.constant(0, i32), w.builder.constant(3, i32)
    w.builder.for_(zero, three, [], body)
    module = w.module()
    assert additions(deferred(module)) == additions(module) == 3


@pytest.mark.parametrize("seed", range(30))
def test_random_sums_are_the_same(seed: int) -> None:
    rng = random.Random(seed)
    w = Written()
    values = list(w.loaded)
    for _ in range(40):
        x, y, z = (rng.choice(values[-9:]) for _ in range(3))
        constant = w.number(rng.choice([0.5, -2.0, 0.25, 3.0]))
        kind = rng.randrange(6)
        if kind == 0:
            found = w.fma(constant, x, y)
        elif kind == 1:
            found = w.fma(x, y, z) if rng.random() < 0.3 else w.fma(x, constant, w.loaded[0])
        elif kind == 2:
            found = w.builder.append(ops.Binary("sub", x, y, results=[Value(f64)])).result
        elif kind == 3:
            found = w.builder.append(ops.Unary("neg", x, results=[Value(f64)])).result
        else:
            found = w.add(x, constant) if rng.random() < 0.8 else w.add(constant, x)
        values.append(found)
    seen = rng.sample(values[4:], 4)
    for k, value in enumerate([*seen, values[-1]]):
        w.store(4 + k, w.fma(w.number(0.125), value, w.loaded[k % 2]))
    module = w.module()
    x = np.zeros(10)
    x[:4] = np.random.default_rng(seed).uniform(-1, 1, 4)
    found, wanted = after(deferred(module), x), after(module, x)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9 * np.abs(wanted).max())


# -- programs --------------------------------------------------------------------------------------


def results(dtype: Any, fast_math: bool) -> tuple[Any, Any, int]:
    """Values, gradients, and the additions of the Lorenz 96 model by a Runge-Kutta method."""
    qd.init(arch=qd.cpu, default_fp=dtype, fast_math=fast_math, log_level="error")
    if fast_math and not driver.capabilities(options.current()).contracts:
        pytest.skip("fast_math changes nothing on this machine")
    x, y = (qd.field(dtype, (20, 6), needs_grad=True) for _ in "xy")

    @qd.func
    def slope(v):
        rates = qd.Vector([0.0] * 6, dt=dtype)
        for k in qd.static(range(6)):
            rates[k] = (v[(k + 1) % 6] - v[(k + 4) % 6]) * v[(k + 5) % 6] - v[k] + 2.0
        return rates

    @qd.kernel
    def ode():
        for i in range(20):
            v = qd.Vector([x[i, 0], x[i, 1], x[i, 2], x[i, 3], x[i, 4], x[i, 5]])
            for _ in range(30):
                k1 = slope(v)
                k2 = slope(v + 0.005 * k1)
                k3 = slope(v + 0.005 * k2)
                k4 = slope(v + 0.01 * k3)
                v = v + (0.01 / 6.0) * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
            for k in qd.static(range(6)):
                y[i, k] = v[k]

    x.from_numpy(np.random.default_rng(0).uniform(0, 1, (20, 6)).astype(dtype.numpy))
    ode()
    y.grad.fill(1.0)
    ode.grad()
    text = ode.inspect().stages["finish"]
    count = text.count("binary<add>") + text.count("binary<sub>")
    found = y.to_numpy(), x.grad.to_numpy(), count
    qd.reset()
    return found


@pytest.mark.parametrize(("dtype", "digits"), [(qd.f32, 3e-6), (qd.f64, 1e-13)])
def test_a_model_has_fewer_additions(dtype: Any, digits: float) -> None:
    *wanted, _ = results(qd.f64, False)
    *found, count = results(dtype, True)
    assert count <= 24 + 18 + 6  # differences, constants, and the last slopes; 54 without that
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=digits, atol=digits)
