"""Work items that work together, on a device: as the interpreter has it.

A subgroup has as many lanes as the device says, 8 on Mesa's driver for the CPU. Validity is tested
for others, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octants import interpreter
from octants.autodiff.forward import forward
from octants.codegen.spirv.compile import compile_module
from octants.diagnostics.exceptions import OctantsAssertionError, OctantsTypeError
from octants.ir import ops
from octants.ir.core import Companion, Module
from octants.lang.directives import loop_config
from octants.lang.simt import block, subgroup
from octants.pipeline import Stage, finish
from octants.runtime.vulkan import structures as vk
from octants.target import Blocks, Target
from octants.types.parameter_annotations import NdarrayAnnotation as Array
from octants.types.scalars import f64, i8, i32
from tests.autodiff.reversing import differentiate
from tests.codegen.test_blocks import CASES
from tests.frontend.frontend_programs import define
from tests.seeds import each_once, seeds
from tests.simt import test_derivatives as simt_derivatives
from tests.simt import test_subgroups
from tests.simt.kernels import compile_kernel, interpret, lowered
from tests.simt.random_programs import Program
from tests.simt.test_random_programs import NAMES, inputs
from tests.vulkan import compiled
from tests.vulkan.disassembly import to_text
from tests.vulkan.test_validity import LITTLE, MUCH
from tests.vulkan.validation import check, needs_validator

rng = np.random.default_rng(12)


def blocks() -> Blocks:
    """What the device of the tests has."""
    found = compiled.device().hardware.blocks
    assert found.subgroup_size > 1
    return found


def compare(function: Any, arguments: tuple[Any, ...], **stage: Any) -> None:
    """Run a kernel by the interpreter and on the device."""
    module = lowered(compile_kernel(function, *arguments, blocks=blocks()), **stage)
    copies = [tuple(np.array(x) for x in arguments) for _ in range(2)]
    interpret(module, function, copies[0])
    names = list(function.__annotations__)
    compiled.OnVulkan(module).run(dict(zip(names, copies[1], strict=True)))
    for wanted, found in zip(*copies, strict=True):
        tolerance = 1e-6 if wanted.dtype == np.float32 else 1e-9
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=1e-12)


FITTING = [name for name in CASES if name != "segments"]  # that one has parts of 32 lanes


@pytest.mark.parametrize(("name", "checked"), each_once(FITTING, [False, True]))
def test_the_device_does_what_the_interpreter_does(name: str, checked: bool) -> None:
    compare(*CASES[name], checks_bounds=checked)


@pytest.mark.parametrize(("fn", "kind"), test_subgroups.CASES)
def test_reductions_and_scans(fn: str, kind: Any) -> None:
    high = 4 if fn == "mul" else 1000
    x = rng.integers(1, high, test_subgroups.COUNT).astype(kind)
    kernel = test_subgroups.combinations(fn, log2_widest=1)
    compare(kernel, (x, np.zeros((test_subgroups.COUNT, 6), kind)))


def segments(x: Array, heads: Array, y: Array):
    loop_config(block_dim=96)
    for i in x:
        y[i, 0] = subgroup.segmented_reduce_add(x[i], heads[i])
        y[i, 1] = subgroup.segmented_reduce_min_tiled(x[i], heads[i], 3)
        y[i, 2], y[i, 3] = subgroup.bitonic_sort_kv_tiled(x[i], x[i], 2)


def test_scans_that_start_again_and_sorting() -> None:
    heads = (rng.random(192) < 0.2).astype(np.int32)
    compare(segments, (rng.random(192), heads, np.zeros((192, 4))))


def in_branches(x: Array, y: Array, n: i32):
    """Barriers in branches and loops, in a last block with few work items, which ask for all."""
    loop_config(block_dim=24)
    for i in x:
        pad = block.SharedArray(24, f64)
        thread, count = block.thread_idx(), block.size()
        value, k = x[i], 0
        if block.global_thread_idx() // 24 % 2 == n % 2:
            pad[thread] = value
            block.sync()
            value += pad[(thread + 1) % count]
            if n > 2:
                block.sync()
                pad[thread] = 2 * value
                block.sync()
                value = pad[(thread + 3) % count]
        else:
            value *= 2
        while k < n and block.sync_any_nonzero(value < 40.0):
            value = value * 1.5 + subgroup.reduce_add(value) * 0.1
            k += 1
        for j in range(thread, thread + n):
            block.sync()
            pad[thread] = value + j
            block.sync()
            value = pad[count - 1 - thread]
        y[i] = value + k


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("count", [1, 48, 53])
def test_barriers_in_branches_and_loops(count: int, n: int) -> None:
    compare(in_branches, (rng.random(count), np.zeros(count), n))
    compare(in_branches, (rng.random(count), np.zeros(count), n), checks_bounds=True)


@pytest.mark.parametrize("size", [1, 3, 8])
def test_small_blocks(size: int) -> None:
    """Fewer work items than a subgroup has lanes."""

    def kernel(x: Array, y: Array):
        loop_config(block_dim=size)
        for i in x:
            pad = block.SharedArray(size, f64)
            pad[block.thread_idx()] = x[i]
            block.sync()
            y[i] = pad[block.size() - 1 - block.thread_idx()] + subgroup.reduce_add(x[i])

    compare(kernel, (rng.random(50), np.zeros(50)))


def many_blocks(x: Array, y: Array):
    loop_config(block_dim=8)
    for i in x:
        pad = block.SharedArray(8, i32)
        pad[block.thread_idx()] = x[i]
        block.sync()
        y[i] = pad[block.size() - 1 - block.thread_idx()]


def test_more_blocks_than_are_launched() -> None:
    """Threads take several turns, with one array for all of them."""
    count = 8 * 70_000 + 3
    x, y = np.arange(count, dtype=np.int32), np.zeros(count, np.int32)
    module = lowered(compile_kernel(many_blocks, x, y, blocks=blocks()))
    compiled.OnVulkan(module).run({"x": x, "y": y})
    assert (y[:-3] == np.arange(count - 3).reshape(-1, 8)[:, ::-1].ravel()).all()
    assert y[-3:].tolist() == [count - 1, count - 2, count - 3]


def failing(x: Array, y: Array, limit: i32):
    loop_config(block_dim=16)
    for i in x:
        pad = block.SharedArray(16, f64)
        thread = block.thread_idx()
        for k in range(3):
            for j in range(k + 2):
                pad[thread + i // (limit + j) * 16] = x[i] + j
            block.sync()
            y[i] += pad[(thread + 1) % block.size()]
            block.sync()


def test_a_work_item_that_fails_keeps_nobody_waiting() -> None:
    x, y = rng.random(50), np.zeros(50)
    built = compile_kernel(failing, x, y, 1000, blocks=blocks())
    module = lowered(built, checks_bounds=True)
    kernel = compiled.OnVulkan(module)
    kernel.run({"x": x, "y": y, "limit": np.array(1000)})
    wanted = np.zeros(50)
    interpret(module, failing, (x, wanted, 1000))
    np.testing.assert_allclose(y, wanted)
    with pytest.raises(OctantsAssertionError, match="out of bounds"):
        kernel.run({"x": x, "y": y, "limit": np.array(17)})


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_random_programs(seed: int) -> None:
    program = Program(seed, lanes=blocks().subgroup_size)
    compare(define(program.text, **NAMES), inputs(program))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 400, 20))
def test_more_random_programs(first: int) -> None:
    for seed in range(first, first + 20):
        program = Program(seed, lanes=blocks().subgroup_size)
        function = define(program.text, **NAMES)
        compare(function, inputs(program), checks_bounds=seed % 3 == 0)


@pytest.mark.parametrize(
    "function",
    [
        simt_derivatives.through_shared_memory,
        simt_derivatives.of_lanes,
        simt_derivatives.sums_over_lanes,
        *simt_derivatives.SHARED,
    ],
)
def test_derivatives(function: Any) -> None:
    """Tangents and adjoints of shared arrays are shared arrays, too."""
    x, seed = rng.random(27), rng.random(27)
    module = lowered(compile_kernel(function, x, x, blocks=blocks()))
    derivatives = [forward(module)]
    if function in (simt_derivatives.sums_over_lanes, *simt_derivatives.SHARED):
        derivatives.append(differentiate(module).module)
    for derivative in derivatives:
        found = []
        on_device = lambda m, a: compiled.OnVulkan(finish(m, Stage(verifies=True))).run(a)  # noqa: E731
        for run in (interpreter.run, on_device):
            names = [(n, c) for n in "xy" for c in list(Companion)[:3]]
            arrays = dict(zip(names, (seed.copy() for _ in names), strict=True))
            arrays["x", Companion.PRIMAL] = x.copy()
            run(derivative, arrays)
            found.append(arrays)
        for place, wanted in found[0].items():
            np.testing.assert_allclose(found[1][place], wanted, rtol=1e-9, atol=1e-12)


# -- no device is needed ------------------------------------------------------------------------


def target(lanes: int, features: str = f"{MUCH},lanes,shared64") -> Target:
    return Target("vulkan", "spirv", "a device", features, blocks=Blocks(lanes, shared_bytes=4096))


def module_of(name: str, lanes: int) -> Module:
    function, arguments = CASES[name]
    built = compile_kernel(function, *arguments, blocks=Blocks(lanes))
    return lowered(built, checks_bounds=True)


@needs_validator
@pytest.mark.parametrize("lanes", [32, 64])
@pytest.mark.parametrize("name", CASES)
def test_validity(name: str, lanes: int) -> None:
    module = module_of(name, lanes)
    check(compile_module(module, target(lanes)))
    assert any(isinstance(op, (ops.Barrier, ops.Subgroup)) for op in module.walk()) or name in (
        "numbers",
        "numbers_of_lanes",
        "wide_loop",
    )


def barriers_of_subgroups(x: Array):
    for i in x:
        pad = block.SharedArray(64, f64)
        pad[i % 64] = x[i]
        subgroup.sync()
        x[i] = pad[i % 64]


@pytest.mark.parametrize(
    ("name", "has_lanes"),
    [("shuffles", True), ("numbers_of_lanes", False), (barriers_of_subgroups, True)],
)
def test_lanes_are_those_of_the_device(name: Any, has_lanes: bool) -> None:
    """Nothing else says which threads of a block a subgroup has, nor in what order."""
    function, given = CASES[name] if isinstance(name, str) else (name, (np.zeros(64),))
    module = lowered(compile_kernel(function, *given, blocks=Blocks(32)))
    artifact = compile_module(module, target(32))
    text = to_text(artifact.code)
    assert ("built_in subgroup\n" in text) == ("built_in lane\n" in text) == has_lanes
    assert "built_in local_invocation\n" not in text or not has_lanes
    assert [bool(each.lanes) for each in artifact.dispatches if each.bounds] == [has_lanes]


@pytest.mark.parametrize("is_large", [False, True], ids=["small", "large"])
def test_subgroups_have_to_be_whole(monkeypatch: pytest.MonkeyPatch, is_large: bool) -> None:
    """As far as the device supports it; the size of large blocks cannot be set."""
    device, requested = compiled.device(), []
    made = device.context.functions.vkCreateComputePipelines

    def create(*given: Any) -> int:
        stage = given[3]._obj.stage
        size = vk.RequiredSubgroupSize.from_address(stage.next).size if stage.next else 0
        requested.append((stage.flags, size))
        return made(*given)

    monkeypatch.setattr(device.context.functions, "vkCreateComputePipelines", create)
    monkeypatch.setattr(device, "programs", {})  # with the pipelines of kernels of other tests
    if is_large:
        monkeypatch.setattr(device.context.hardware._sizes, "most_in_block", 1)
    function, given = CASES["shuffles"]
    compiled.OnVulkan(lowered(compile_kernel(function, *given, blocks=blocks())))
    whole = "whole" in device.hardware.features
    size = 0 if is_large else blocks().subgroup_size
    assert requested[-1] == ((2, size) if whole else (0, 0))


def test_lanes_that_cannot_exchange_values_are_an_error() -> None:
    with pytest.raises(Exception, match="OCT450.*subgroups whose lanes exchange values"):
        compile_module(module_of("shuffles", 32), target(32, LITTLE))


def test_shared_arrays_take_what_there_is() -> None:
    """Narrow numbers have a word each, of which the frontend knows nothing."""

    def narrow(x: Array):
        for i in x:
            pad = block.SharedArray(2000, i8)
            pad[block.thread_idx()] = i8(1)
            block.sync()
            x[i] = pad[0]

    module = lowered(compile_kernel(narrow, np.zeros(9), blocks=Blocks(32, shared_bytes=4096)))
    with pytest.raises(OctantsTypeError, match="OCT244.*8000 bytes of them, .* can have 4096"):
        compile_module(module, target(32))
