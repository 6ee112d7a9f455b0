"""Blocks whose work items run one after the other do what the interpreter does side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import interpreter
from octants.autodiff.forward import forward
from octants.ir.cloning import copy_module
from octants.ir.core import Companion, Module, Space
from octants.ir.verifier import verify
from octants.passes.cooperation.sequence_work_items import sequence_work_items
from octants.pipeline import Stage, finish
from octants.target import Capabilities
from tests.autodiff.reversing import differentiate
from tests.codegen.compiled import Compiled
from tests.codegen.test_blocks import CASES
from tests.devices import on_cpu
from tests.simt import test_derivatives
from tests.simt.kernels import compile_kernel, interpret, lowered

block, subgroup = qd.simt.block, qd.simt.subgroup
rng = np.random.default_rng(11)


def serialised(module: Module) -> Module:
    result = copy_module(module)
    sequence_work_items(result)
    verify(result)
    names = {op.NAME for op in result.walk()}
    assert names.isdisjoint(("barrier", "fence", "subgroup"))
    arrays = {op.array for op in result.walk() if hasattr(op, "array")}
    assert all(array.space is not Space.SHARED for array in arrays)
    return result


def check(function: Any, arguments: tuple[Any, ...]) -> None:
    """The interpreter on both modules, and machine code."""
    module = lowered(compile_kernel(function, *arguments))
    copies = [tuple(np.array(x) for x in arguments) for _ in range(3)]
    names = list(function.__annotations__)
    interpret(module, function, copies[0])
    interpret(serialised(module), function, copies[1])
    compiled = Compiled(finish(module, Stage(Capabilities(serialises_blocks=True))))
    compiled.run(dict(zip(names, copies[2], strict=True)))
    for wanted, again, found in zip(*copies, strict=True):
        np.testing.assert_array_equal(again, wanted)
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_kernels(name: str) -> None:
    check(*CASES[name])


def loops_of_each_item(x: qd.types.ndarray, y: qd.types.ndarray):
    """Subgroups make different numbers of turns; values go around in each."""
    qd.loop_config(block_dim=80)
    for i in x:
        group = block.thread_idx() // 32
        a, b, turns = x[i], 1.0, 0
        for k in range(group + 1):
            a, b = b + subgroup.reduce_add(a) * 0.01, a
            if group == 1:
                b += subgroup.shuffle_up(b, 1) * k
        while subgroup.reduce_max(a) < 2.0 + group:
            a += 0.25 * subgroup.reduce_min_tiled(b, 1) + 0.1
            turns += 1
            if turns > 5:
                break
        y[i, 0], y[i, 1], y[i, 2] = a, b, turns


def barriers_in_branches(x: qd.types.ndarray, y: qd.types.ndarray):
    qd.loop_config(block_dim=16)
    for i in x:
        pad = block.SharedArray(16, qd.f64)
        thread = block.thread_idx()
        value = x[i]
        if i // 16 % 2 == 0:
            pad[thread] = value
            block.sync()
            value = pad[15 - thread]
            for k in range(i // 16 + 1):
                block.sync()
                pad[thread] = value + k
                block.sync()
                value = pad[(thread + 1) % 16]
        else:
            value = -value
            block.sync()
        y[i, 0], y[i, 1], y[i, 2] = value, value * value, thread


def old_values_of_atomics(x: qd.types.ndarray, y: qd.types.ndarray):
    """Of one work item at a time, in their order."""
    qd.loop_config(block_dim=4)
    for i in x:
        counts = block.SharedArray((2, 2), qd.i32)
        thread = block.thread_idx()
        counts[thread // 2, thread % 2] = thread
        block.sync()
        y[i, 0] = qd.atomic_add(counts[0, 0], 10)
        y[i, 1] = qd.atomic_cas(counts[1, 1], 3, i)
        y[i, 2] = qd.atomic_exchange(counts[1, 0], i) + qd.atomic_max(counts[0, 1], i)
        block.sync()
        y[i, 2] += counts[0, 0] * 1000 + counts[0, 1]


@pytest.mark.parametrize(
    "function", [loops_of_each_item, barriers_in_branches, old_values_of_atomics]
)
def test_control_flow(function: Any) -> None:
    check(function, (rng.random(160), np.zeros((160, 3))))


@pytest.mark.parametrize(
    "name", ["through_shared_memory", "sums_in_shared_memory", "of_lanes", "scans"]
)
def test_tangents(name: str) -> None:
    x, seed = rng.random(27), rng.random(27)
    module = forward(lowered(compile_kernel(getattr(test_derivatives, name), x, x)))
    found = []
    for each in (module, serialised(module)):
        y, tangent = np.zeros(27), np.zeros(27)
        given = {"x": x, "y": y, ("x", Companion.TANGENT): seed, ("y", Companion.TANGENT): tangent}
        interpreter.run(each, given)
        found.append((y, tangent))
    np.testing.assert_array_equal(found[0], found[1])


def test_adjoints_of_sums_over_lanes() -> None:
    x = rng.random(27)
    module = lowered(compile_kernel(test_derivatives.sums_over_lanes, x, x))
    module = differentiate(module).module
    found = []
    for each in (module, serialised(module)):
        adjoint = np.zeros(27)
        given = {"x": x, "y": np.zeros(27), ("y", Companion.ADJOINT): np.ones(27)}
        interpreter.run(each, {**given, ("x", Companion.ADJOINT): adjoint})
        found.append(adjoint)
    np.testing.assert_array_equal(*found)


# -- on the CPU ------------------------------------------------------------------------------------


@pytest.fixture
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error", offline_cache=False, debug=True)
    yield
    qd.reset()


@qd.kernel
def reversed_blocks(x: qd.types.ndarray(), y: qd.types.ndarray(), size: qd.template()):
    qd.loop_config(block_dim=size)
    for i in x:
        pad = block.SharedArray(size, qd.f64)
        pad[block.thread_idx()] = x[i]
        total = block.reduce_add(x[i], size, qd.f64)
        block.sync()
        y[i] = pad[block.size() - 1 - block.thread_idx()] + total


@pytest.mark.parametrize("size", [1, 7, 64, 1024])
def test_large_blocks_and_small_ones(runtime: None, size: int) -> None:
    x = rng.random(5000)
    y = np.zeros(5000)
    reversed_blocks(x, y, size)
    parts = [x[k : k + size] for k in range(0, 5000, size)]
    np.testing.assert_allclose(y, np.concatenate([part[::-1] + part.sum() for part in parts]))


@on_cpu
def test_a_failure_tells_its_work_item(runtime: None) -> None:
    @qd.kernel
    def check_all(x: qd.types.ndarray()):
        qd.loop_config(block_dim=8)
        for i in x:
            block.sync()
            assert x[i] < 1.0, f"{x[i]}"
            block.sync()

    x = np.zeros(100)
    check_all(x)
    x[[53, 58]] = 2.0
    with pytest.raises(qd.OctantsAssertionError, match="work item 53,"):
        check_all(x)


@on_cpu
def test_indices_of_shared_arrays_are_checked(runtime: None) -> None:
    @qd.kernel
    def beyond(x: qd.types.ndarray()):
        qd.loop_config(block_dim=8)
        for i in x:
            pad = block.SharedArray(4, qd.f64)
            pad[block.thread_idx()] = x[i]
            block.sync()

    with pytest.raises(qd.OctantsAssertionError, match=r"(?s)index 4 is out.*work item 4,"):
        beyond(np.zeros(8))


@on_cpu
def test_forward_and_reverse_on_the_cpu(runtime: None) -> None:
    x, y = (qd.field(qd.f64, shape, needs_grad=True, needs_dual=True) for shape in (24, ()))
    x.from_numpy(rng.random(24))

    @qd.kernel
    def squares():
        qd.loop_config(block_dim=8)
        for i in x:
            total = block.reduce_add(x[i] * x[i], 8, qd.f64)
            if block.thread_idx() == 0:
                y[None] += total

    with qd.ad.FwdMode(loss=y, param=x, seed=np.arange(24.0).tolist()):
        squares()
    np.testing.assert_allclose(y.dual[None], (2 * x.to_numpy() * np.arange(24)).sum())

    @qd.kernel
    def over_lanes():
        for i in x:
            y[None] += subgroup.reduce_add(x[i] * x[i]) * x[i]

    y[None] = 0.0
    with qd.ad.Tape(loss=y):
        over_lanes()
    values = x.to_numpy()
    wanted = (values**2).sum() + 2 * values * values.sum()
    np.testing.assert_allclose(x.grad.to_numpy(), wanted)


@on_cpu
def test_an_order_is_no_problem_there() -> None:
    """Updates that depend on the order of blocks are put in order, since blocks are work items."""
    qd.init(arch=qd.cpu, deterministic=True, log_level="error", offline_cache=False)

    @qd.kernel
    def scale(x: qd.types.ndarray(), y: qd.types.ndarray()):
        qd.loop_config(block_dim=8)
        for i in x:
            pad = block.SharedArray(8, qd.f32)
            pad[block.thread_idx()] = x[i]
            block.sync()
            qd.atomic_mul(y[0], pad[7 - block.thread_idx()])

    x = rng.uniform(0.9, 1.1, 64).astype(np.float32)
    y = np.ones(1, np.float32)
    scale(x, y)
    np.testing.assert_allclose(y[0], x.prod(), rtol=1e-5)
    qd.reset()
