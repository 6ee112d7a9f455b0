"""Tests of `spill_vectors`: what is in memory, what stays in registers, and results."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import pipeline
from octants.interpreter import run
from octants.ir import component_access, ops
from octants.ir.cloning import copy_module
from octants.ir.core import Companion, Module, Space
from octants.ir.verifier import verify
from octants.pass_context import Stage
from octants.passes.storage.spill_vectors import spill_vectors
from octants.simplify import simplify
from octants.target import Capabilities
from tests.autodiff.random_ir import VectorGenerator, forward, inputs
from tests.autodiff.reversing import differentiate
from tests.devices import on_cpu
from tests.ir.parser import parse
from tests.seeds import counts

LONG = component_access.LONG
N, STEPS = 37, 11
MOST_BYTES = 1 << 12


@pytest.fixture(autouse=True)
def runtime() -> None:
    qd.init(arch=qd.cpu, log_level="error")


def arrays_of(module: Module) -> list[int]:
    """The lengths of the vectors in memory."""
    local = [array for array in module.arrays if array.space is Space.LOCAL]
    return [(array.fixed_shape or (0,))[0] - 1 for array in local]


def spilled(text: str) -> Module:
    module = parse(text)
    spill_vectors(module, MOST_BYTES)
    verify(module)
    assert not any(isinstance(op, (ops.Extract, ops.Insert)) for op in module.walk())
    return module


def kernel(body: str, count: int = LONG) -> str:
    """A serial kernel with as many values %v0, %v1, ... and the constants that bodies use."""
    numbers = "".join(f"  %c{k}: i32 = constant<{k}>()\n" for k in range(count))
    values = "".join(f"  %v{k}: f32 = load<@x, primal>(%c{k})\n" for k in range(count))
    return (
        "kernel @k\narray @x: f32, 1, ndarray, () [primal]\narray @i: i32, 1, ndarray, ()"
        f" [primal]\nserial @k_0 {{\n{numbers}{values}{body}  yield()\n}}\n"
    )


def listed(form: str, count: int = LONG) -> str:
    return ", ".join(form.format(k) for k in range(count))


READ_IN_A_LOOP = """\
  for(%c0, %c5) {{ (%t: i32):
    %j: i32 = load<@i, primal>(%t)
    %r: f32 = extract(%j, {values})
    store<@x, primal>(%r, %t)
    yield()
  }}
"""
READ_ONCE = """\
  %j: i32 = load<@i, primal>(%c0)
  %r: f32 = extract(%j, {values})
  store<@x, primal>(%r, %c1)
"""
STORE_IN_A_LOOP = """\
  {results} = for(%c0, %c5, {values}) {{ (%t: i32, {args}):
    %j: i32 = load<@i, primal>(%t)
    %r: f32 = load<@x, primal>(%t)
    {stored} = insert(%j, %r, {carried})
    yield({ends})
  }}
  store<@x, primal>(%o3, %c3)
"""


def test_a_vector_that_a_loop_reads_is_stored_before_it() -> None:
    module = spilled(kernel(READ_IN_A_LOOP.format(values=listed("%v{}"))))
    assert arrays_of(module) == [LONG]
    (loop,) = (op for op in module.walk() if isinstance(op, ops.For))
    assert not any(isinstance(op, ops.Select) and op.result.type.is_float for op in loop.body.ops)
    stores = [op for op in loop.body.ops if isinstance(op, ops.Store)]
    assert [op.array.name for op in stores] == ["x"]


def test_vectors_that_are_needed_at_the_same_time_have_arrays_of_their_own() -> None:
    """A layer reads one vector while it writes the next: no iteration copies either."""
    loop = f"""\
  {listed("%r{}: f32")} = for(%c0, %c5, {listed("%v{}")}) {{ (%t: i32, {listed("%h{}: f32")}):
    {listed("%o{}: f32")} = for(%c0, %c5, {listed("%zero")}) {{ (%i: i32, {listed("%a{}: f32")}):
      %j: i32 = load<@i, primal>(%i)
      %x: f32 = extract(%j, {listed("%h{}")})
      {listed("%n{}: f32")} = insert(%i, %x, {listed("%a{}")})
      yield({listed("%n{}")})
    }}
    yield({listed("%o{}")})
  }}
  %last: f32 = extract(%c1, {listed("%r{}")})
  store<@x, primal>(%last, %c0)
"""
    module = spilled(kernel("  %zero: f32 = constant<0.0>()\n" + loop))
    assert arrays_of(module) == [LONG, LONG]
    (outer,) = (op for op in module.tasks[0].body.ops if isinstance(op, ops.For))
    (inner,) = (op for op in outer.body.ops if isinstance(op, ops.For))
    names = [op.NAME for op in inner.body.walk()]
    assert (names.count("load"), names.count("store")) == (2, 1)


def test_vectors_that_are_needed_one_after_the_other_share_an_array() -> None:
    first = READ_IN_A_LOOP.format(values=listed("%v{}"))
    products = "".join(f"  %p{k}: f32 = binary<mul>(%v{k}, %v0)\n" for k in range(LONG))
    text = READ_IN_A_LOOP.format(values=listed("%p{}"))
    second = re.sub(r"%([tjr])\b", r"%\g<1>2", text)
    module = spilled(kernel(first + products + second))
    assert arrays_of(module) == [LONG]
    third = re.sub(r"%([tjr])\b", r"%\g<1>3", first)
    module = spilled(kernel(products + first + second + third))
    assert arrays_of(module) == [LONG, LONG]


def test_a_vector_that_is_read_once_stays_in_registers() -> None:
    module = spilled(kernel(READ_ONCE.format(values=listed("%v{}"))))
    assert arrays_of(module) == []
    assert sum(isinstance(op, ops.Select) for op in module.walk()) == LONG - 1


@pytest.mark.parametrize("count", [LONG, 5 * LONG])
def test_a_store_in_a_loop_takes_the_same_time_for_all_lengths(count: int) -> None:
    text = STORE_IN_A_LOOP.format(
        results=listed("%o{}: f32", count),
        values=listed("%v{}", count),
        args=listed("%a{}: f32", count),
        stored=listed("%s{}: f32", count),
        carried=listed("%a{}", count),
        ends=listed("%s{}", count),
    )
    module = spilled(kernel(text, count))
    assert arrays_of(module) == [count]
    (loop,) = (op for op in module.walk() if isinstance(op, ops.For))
    assert not loop.inits
    assert len(loop.body.ops) < 12


@pytest.mark.parametrize("is_larger", [False, True])
def test_a_vector_beyond_the_memory_of_a_work_item_stays_in_registers(is_larger: bool) -> None:
    count = MOST_BYTES // 4 - 1 + is_larger
    module = spilled(kernel(READ_IN_A_LOOP.format(values=listed("%v{}", count)), count))
    assert arrays_of(module) == ([] if is_larger else [count])


def test_vectors_that_share_an_array_need_the_memory_of_one() -> None:
    count = MOST_BYTES // 4 - 1
    first = READ_IN_A_LOOP.format(values=listed("%v{}", count))
    products = "".join(f"  %p{k}: f32 = binary<mul>(%v{k}, %v0)\n" for k in range(count))
    text = READ_IN_A_LOOP.format(values=listed("%p{}", count))
    module = spilled(kernel(first + products + re.sub(r"%([tjr])\b", r"%\g<1>2", text), count))
    assert arrays_of(module) == [count]
    assert not any(isinstance(op, ops.Select) and op.result.type.is_float for op in module.walk())


def test_vectors_of_inner_loops_come_first() -> None:
    """Where two vectors do not fit, the one in memory is that of which more reads take less."""
    count = MOST_BYTES // 8
    products = "".join(f"  %p{k}: f32 = binary<mul>(%v{k}, %v0)\n" for k in range(count))
    nest = f"""\
  for(%c0, %c5) {{ (%s: i32):
    %a: f32 = extract(%s, {listed("%v{}", count)})
    store<@x, primal>(%a, %s)
    for(%c0, %c5) {{ (%t: i32):
      %b: f32 = extract(%t, {listed("%p{}", count)})
      store<@x, primal>(%b, %t)
      yield()
    }}
    yield()
  }}
"""
    module = spilled(kernel(products + nest, count))
    assert arrays_of(module) == [count]
    (outer,) = (op for op in module.tasks[0].body.ops if isinstance(op, ops.For))
    (inner,) = (op for op in outer.body.ops if isinstance(op, ops.For))
    assert len(inner.body.ops) < 12


@pytest.mark.parametrize("count", counts(40, 400))
def test_random_modules_compute_the_same(count: int) -> None:
    in_memory = 0
    for seed in range(count):
        module = VectorGenerator(seed).module()
        simplify(module)
        after = copy_module(module)
        spill_vectors(after, MOST_BYTES)
        verify(after)
        in_memory += len(arrays_of(after))
        before, data = forward(module, inputs(seed)), forward(after, inputs(seed))
        assert all(np.array_equal(before[name], data[name]) for name in before), seed
        _compare_reverse(module, seed)
    assert in_memory > count


def _compare_reverse(module: Module, seed: int) -> None:
    """Compare a reverse kernel before and after the pass, whether or not it may be launched."""
    reversed_ = differentiate(module).module
    after = copy_module(reversed_)
    spill_vectors(after, MOST_BYTES)
    verify(after)
    results = []
    for each in (reversed_, after):
        state = {name: value.copy() for name, value in inputs(seed).items()}
        adjoints = {(n, Companion.ADJOINT): v.copy() for n, v in inputs(seed + 1).items()}
        both: dict[Any, Any] = {**state, **adjoints}
        run(each, both)
        results.append(both)
    assert all(np.array_equal(results[0][key], results[1][key]) for key in results[0]), seed


def picking(length: int, dtype: Any) -> Any:
    """A kernel that reads components of a local vector by indices from memory, in two loops."""

    @qd.kernel
    def pick(
        x: qd.types.ndarray(dtype, 2),
        w: qd.types.ndarray(dtype, 2),
        indices: qd.types.ndarray(qd.i32, 2),
        y: qd.types.ndarray(dtype, 1),
    ):
        for n in range(x.shape[0]):
            v = qd.Vector([0.0] * length, dt=dtype)
            for k in qd.static(range(length)):
                v[k] = qd.sin(x[n, k])
            total = qd.cast(0.0, dtype)
            for i in range(2):
                part = qd.cast(0.0, dtype)
                for j in range(n % STEPS):
                    part += w[n, j] * v[indices[n, j]]
                    part += v[(indices[n, j] + i) % length]
                total += part * part
            y[n] = total

    return pick


def expected(x: Any, w: Any, indices: Any) -> Any:
    """The gradient of the sum of what the kernel stores; an index out of range stands for 0."""
    length = x.shape[1]
    gradient = np.zeros(x.shape)
    for n in range(len(x)):
        v = np.sin(x[n].astype(np.float64))
        for i in range(2):
            slope, part = np.zeros(length), 0.0
            for j in range(n % STEPS):
                place = indices[n, j] if 0 <= indices[n, j] < length else 0
                slope[place] += w[n, j]
                part += w[n, j] * v[place]
                slope[(indices[n, j] + i) % length] += 1
                part += v[(indices[n, j] + i) % length]
            gradient[n] += 2 * part * slope
    return gradient * np.cos(x)


def filled(kind: Any, host: Any, *, needs_grad: bool = False) -> Any:
    array = qd.ndarray(kind, host.shape, needs_grad=needs_grad)
    array.from_numpy(host.astype(kind.numpy))
    return array


@pytest.mark.parametrize("simd", ["never", "always"])
@pytest.mark.parametrize(("length", "dtype"), [(9, "f32"), (17, "f64")])
def test_gradients_of_reads(simd: str, length: int, dtype: str) -> None:
    qd.init(arch=qd.cpu, simd=simd, cpu_max_num_threads=2, log_level="error")
    kind = getattr(qd, dtype)
    rng = np.random.default_rng(length)
    x, w = rng.normal(size=(N, length)), rng.normal(size=(N, STEPS))
    indices = rng.integers(-2, length + 3, size=(N, STEPS)).astype(np.int32)
    arrays = [filled(kind, host, needs_grad=True) for host in (x, w, np.zeros(N))]
    pick = picking(length, kind)
    arguments = arrays[0], arrays[1], filled(qd.i32, indices), arrays[2]
    pick(*arguments)
    arrays[2].grad.fill(1.0)
    pick.grad(*arguments)
    error = abs(arrays[0].grad.to_numpy() - expected(x, w, indices)).max()
    assert error < (2e-4 if dtype == "f32" else 1e-12)


def moving(length: int, dtype: Any) -> Any:
    """A kernel that replaces components of two vectors, one of them a copy, by run-time indices."""

    @qd.kernel
    def move(
        x: qd.types.ndarray(dtype, 2),
        indices: qd.types.ndarray(qd.i32, 2),
        y: qd.types.ndarray(dtype, 2),
        z: qd.types.ndarray(dtype, 2),
    ):
        for n in range(x.shape[0]):
            v = qd.Vector([x[n, 0]] * length, dt=dtype)
            for k in range(length):
                v[k] = x[n, k]
            w = v
            for j in range(STEPS):
                w[indices[n, j]] = v[indices[n, j] + 1]
                v[3] = w[indices[n, STEPS - 1 - j]]
            for k in range(length):
                y[n, k] = v[k]
                z[n, k] = w[k]

    return move


@pytest.mark.parametrize("simd", ["never", "always"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "i32", "i64", "i8", "u16", "u64", "u1"])
def test_components_of_all_types(simd: str, dtype: str) -> None:
    """An index out of range reads the first component, and writes nothing."""
    qd.init(arch=qd.cpu, simd=simd, log_level="error")
    kind, length = getattr(qd, dtype), 12
    rng = np.random.default_rng(3)
    x = rng.integers(0, 2 if dtype == "u1" else 100, size=(N, length)).astype(kind.numpy)
    indices = rng.integers(-2, length + 2, size=(N, STEPS)).astype(np.int32)
    y, z = filled(kind, np.zeros_like(x)), filled(kind, np.zeros_like(x))
    moving(length, kind)(filled(kind, x), filled(qd.i32, indices), y, z)
    v, w = x.copy(), x.copy()
    for n in range(N):
        for j in range(STEPS):
            read, written = indices[n, j] + 1, indices[n, j]
            value = v[n, read if 0 <= read < length else 0]
            if 0 <= written < length:
                w[n, written] = value
            read = indices[n, STEPS - 1 - j]
            v[n, 3] = w[n, read if 0 <= read < length else 0]
    assert np.array_equal(y.to_numpy(), v)
    assert np.array_equal(z.to_numpy(), w)


@pytest.mark.parametrize(("rows", "columns"), [(5, 7), (5, 5), (4, 6)])
def test_matrices_by_two_run_time_indices(rows: int, columns: int) -> None:
    """An index of a matrix that is out of range reads the first row or column."""

    @qd.kernel
    def move(
        x: qd.types.ndarray(qd.f64, 2),
        at: qd.types.ndarray(qd.i32, 2),
        y: qd.types.ndarray(qd.f64, 2),
        read: qd.types.ndarray(qd.f64, 1),
    ):
        for _ in range(1):
            m = qd.Matrix.zero(qd.f64, rows, columns)
            for i, j in qd.ndrange(rows, columns):
                m[i, j] = x[i, j]
            for t in range(at.shape[0]):
                read[t] = m[at[t, 0], at[t, 1]] + 100.0 * m[at[t, 1], 2] + 1e4 * m[1, at[t, 0]]
                m[at[t, 1], at[t, 0]] = -1.0 - t
                m[2, at[t, 1]] = 50.0 + t
            for i, j in qd.ndrange(rows, columns):
                y[i, j] = m[i, j]

    rng = np.random.default_rng(5)
    x, at = rng.normal(size=(rows, columns)), rng.integers(-2, 9, size=(60, 2)).astype(np.int32)
    y, read = filled(qd.f64, np.zeros_like(x)), filled(qd.f64, np.zeros(len(at)))
    move(filled(qd.f64, x), filled(qd.i32, at), y, read)
    m, found = x.copy(), []

    def inside(i: int, j: int) -> bool:
        return 0 <= i < rows and 0 <= j < columns

    def element(i: int, j: int) -> float:
        return float(m[i if 0 <= i < rows else 0, j if 0 <= j < columns else 0])

    for t, (i, j) in enumerate(at):
        found.append(element(i, j) + 100.0 * element(j, 2) + 1e4 * element(1, i))
        if inside(j, i):
            m[j, i] = -1.0 - t
        if inside(2, j):
            m[2, j] = 50.0 + t
    assert np.array_equal(y.to_numpy(), m)
    assert np.allclose(read.to_numpy(), found, rtol=1e-15)


def test_the_gradient_of_what_was_overwritten_ignores_infinities() -> None:

    @qd.kernel
    def pick(x: qd.types.ndarray(qd.f64, 1), at: qd.i32, y: qd.types.ndarray(qd.f64, 1)):
        for _ in range(1):
            v = qd.Vector.zero(qd.f64, 9)
            for k in range(9):
                v[k] = 1.0 / x[k]
            for k in range(2):
                v[at] = x[8] * x[8]
                y[k] = v[at + k]

    x = filled(qd.f64, np.array([0.0, 1, 2, 3, 0.0, 5, 6, 7, 8]), needs_grad=True)
    y = filled(qd.f64, np.zeros(2), needs_grad=True)
    pick(x, 4, y)
    y.grad.fill(1.0)
    pick.grad(x, 4, y)
    assert x.grad.to_numpy().tolist() == [0, 0, 0, 0, 0, -1 / 25, 0, 0, 16]


@pytest.mark.parametrize("lanes", [32, 64])
def test_lanes_whose_vectors_do_not_fit_the_stack_do_not_overwrite_records(lanes: int) -> None:
    qd.init(arch=qd.cpu, offline_cache=False)
    count, length = 64, 100

    def made(simd: Any) -> Any:
        @qd.kernel
        def layers(x: qd.types.ndarray(qd.f32, 2), y: qd.types.ndarray(qd.f32, 1)):
            qd.loop_config(simd=simd)
            for n in range(count):
                h = qd.Vector.zero(qd.f32, length)
                for j in range(length):
                    h[j] = x[n, j]
                for t in range(3):
                    o = qd.Vector.zero(qd.f32, length)
                    for a in range(length):
                        o[a] = qd.sin(h[a] + h[(a * 7 + t) % length])
                    h = o
                for a in range(length):
                    y[n] += h[a]

        return layers

    gradients = []
    for simd in (False, lanes):
        x = qd.ndarray(qd.f32, (count, length), needs_grad=True)
        y = qd.ndarray(qd.f32, (count,), needs_grad=True)
        x.from_numpy(np.random.default_rng(0).normal(size=x.shape).astype(np.float32))
        y.grad.fill(1.0)
        made(simd).grad(x, y)
        gradients.append(x.grad.to_numpy())
    np.testing.assert_array_equal(*gradients)


@on_cpu
@pytest.mark.parametrize(("rows", "accesses"), [(4, 0), (5, 2), (6, 2)])
def test_accesses_of_a_matrix_do_not_grow_with_it(rows: int, accesses: int) -> None:
    """Chains of selects made products of 5 by 5 take five times as long as those of 6 by 6."""

    @qd.kernel
    def turn(x: qd.types.ndarray(qd.f32, 2), y: qd.types.ndarray(qd.f32, 1)) -> None:
        for n in y:
            m = qd.Matrix.zero(qd.f32, rows, rows)
            for i, j in qd.ndrange(rows, rows):
                m[i, j] = x[n, i]
            for i, j in qd.ndrange(rows, rows):
                y[n] += m[j, i]

    arrays = qd.ndarray(qd.f32, (N, rows)), qd.ndarray(qd.f32, N)
    module = parse(turn.inspect(*arrays).stages["frontend"])
    found = [op for op in module.walk() if isinstance(op, (ops.Extract, ops.Insert))]
    assert len(found) == accesses


@on_cpu
def test_all_vectors_of_long_gradients_are_in_memory_on_a_gpu() -> None:
    """With selects instead, the gradient of 256 components took 1000 times as long as forward."""
    length, items = 400, 8
    w = qd.field(qd.f32, (length, length), needs_grad=True)
    x = qd.field(qd.f32, (items, length), needs_grad=True)
    y = qd.field(qd.f32, items, needs_grad=True)

    @qd.kernel
    def recurrence() -> None:
        for n in range(items):
            h = qd.Vector.zero(qd.f32, length)
            for j in range(length):
                h[j] = x[n, j]
            for _ in range(4):
                o = qd.Vector.zero(qd.f32, length)
                for i in range(length):
                    s = 0.0
                    for j in range(length):
                        s += w[i, j] * h[j]
                    o[i] = qd.tanh(s)
                h = o
            y[n] = h[0] + h[length - 1]

    lowered = parse(recurrence.inspect().stages["contract_to_fma"])
    gpu = Stage(Capabilities(contracts=True, fills=1 << 16, local_record_bytes=256))
    made = pipeline.differentiate_reverse(lowered, gpu, before_launch=False, split=False)
    finished = pipeline.finish(made.module, gpu, noalias=True)
    selects = [op for op in finished.walk() if isinstance(op, ops.Select)]
    assert len(arrays_of(finished)) > 1
    assert len(selects) < length


@pytest.mark.parametrize("items", [64, N])
def test_gradients_of_vectors_of_many_kilobytes(items: int) -> None:
    """Eleven vectors of 150 f32 at once, in whole tiles of work items and in others."""
    length, steps = 150, 2
    w = qd.field(qd.f32, (length, length), needs_grad=True)
    x = qd.field(qd.f32, (items, length), needs_grad=True)
    y = qd.field(qd.f32, items, needs_grad=True)
    rng = np.random.default_rng(3)
    weights = rng.normal(size=w.shape) / length**0.5
    start = rng.normal(size=x.shape)
    w.from_numpy(weights.astype(np.float32))
    x.from_numpy(start.astype(np.float32))

    @qd.kernel
    def gated() -> None:
        for n in range(items):
            h = qd.Vector.zero(qd.f32, length)
            c = qd.Vector.zero(qd.f32, length)
            for j in range(length):
                h[j] = x[n, j]
            for _ in range(steps):
                o = qd.Vector.zero(qd.f32, length)
                for i in range(length):
                    s = 0.0
                    for j in range(length):
                        s += w[i, j] * h[j]
                    c[i] = 0.5 * c[i] + qd.tanh(s)
                    o[i] = qd.tanh(c[i]) * h[i]
                h = o
            total = 0.0
            for i in range(length):
                total += h[i] * c[i]
            y[n] = total

    gated()
    y.grad.fill(1.0)
    gated.grad()
    h, c = start, np.zeros_like(start)
    states = []
    for _ in range(steps):
        s = np.tanh(h @ weights.T)
        states.append((h, s))
        c = 0.5 * c + s
        h = np.tanh(c) * h
    np.testing.assert_allclose(y.to_numpy(), (h * c).sum(1), rtol=1e-4, atol=1e-4)
    cs = [np.zeros_like(start)]
    for _, s in states:
        cs.append(0.5 * cs[-1] + s)
    h_bar, c_bar, w_bar = c, h, np.zeros_like(weights)
    for (before, s), after in zip(reversed(states), reversed(cs[1:]), strict=True):
        c_bar = c_bar + h_bar * before * (1 - np.tanh(after) ** 2)
        s_bar = c_bar * (1 - s**2)
        w_bar += s_bar.T @ before
        h_bar = h_bar * np.tanh(after) + s_bar @ weights
        c_bar = 0.5 * c_bar
    np.testing.assert_allclose(x.grad.to_numpy(), h_bar, rtol=2e-3, atol=2e-4)
    np.testing.assert_allclose(w.grad.to_numpy(), w_bar, rtol=2e-3, atol=2e-3)
