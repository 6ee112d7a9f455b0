"""Work items that work together, on a GPU that the CPU emulates: as the interpreter has it.

And what LLVM makes of them for NVIDIA is accepted by its assembler.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octants import interpreter
from octants.analysis.sums.reductions import find_reductions
from octants.autodiff.forward import forward
from octants.codegen.llvm import nvptx
from octants.codegen.llvm.gpu import compilation
from octants.diagnostics.exceptions import OctantsTypeError
from octants.ir import ops
from octants.ir.cooperative_tasks import cooperates
from octants.ir.core import Companion
from octants.lang.directives import loop_config, static
from octants.lang.simt import block, grid, subgroup
from octants.pipeline import Stage, finish, lower
from octants.target import Capabilities
from octants.types.parameter_annotations import NdarrayAnnotation as Array
from octants.types.scalars import f16, f64, i8, i32, u1
from tests.autodiff.reversing import differentiate
from tests.codegen.compiled import Compiled
from tests.codegen.nvidia_tools import needs_assembler
from tests.codegen.on_emulated_gpu import OnSmallGpu
from tests.codegen.test_nvptx import assemble
from tests.seeds import each_once
from tests.simt import test_blocks, test_derivatives, test_subgroups
from tests.simt.kernels import compile_kernel, interpret, lowered

SERIAL = Stage(Capabilities(serialises_blocks=True), verifies=True)

rng = np.random.default_rng(9)


def every_type(x: Array, y: Array, n: i32):
    """Shared arrays of narrow types, values of all widths, fences, atomics, checks of bounds."""
    loop_config(block_dim=48)
    for i in range(2, n):
        flags = block.SharedArray((48, 2), u1)
        small = block.SharedArray(48, i8)
        half = block.SharedArray(3, f16)
        thread = block.thread_idx()
        flags[thread, 1] = x[i] > 0.5
        small[thread] = i32(x[i] * 100)
        if thread < 3:
            half[thread] = 0.0
        block.sync()
        half[thread % 3] += f16(0.25)
        subgroup.sync()
        grid.mem_fence()
        block.mem_fence()
        subgroup.mem_fence()
        block.sync()
        other = (thread + 1) % block.size()
        y[i, 0] = small[other] + flags[other, 1] * 1000 + half[thread % 3]
        y[i, 1] = subgroup.reduce_add(i8(small[other] // 8))
        y[i, 2] = subgroup.reduce_max(f16(x[i])) + subgroup.inclusive_add(f16(1.0))
        y[i, 3] = subgroup.reduce_xor_tiled(x[i] > 0.3, 2) + 2 * subgroup.reduce_and(x[i] > 0.1)
        y[i, 4] = subgroup.shuffle(f64(x[i]), -1) + subgroup.exclusive_min(x[i])


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "tree_sum": (test_blocks.tree_sum, (rng.random(150), np.zeros(3))),
    "halving_sum": (test_blocks.halving_sum, (rng.random(256), np.zeros(256))),
    "transpose": (
        test_blocks.transpose,
        (np.arange(384, dtype=np.int32).reshape(24, 16), np.zeros((16, 24), np.int32)),
    ),
    "prefix_sum": (
        test_blocks.prefix_sum,
        (rng.integers(-99, 99, 150), np.zeros(150, np.int64)),
    ),
    "histogram": (
        test_blocks.histogram,
        (rng.integers(0, 10, 256).astype(np.int32), np.zeros(10, np.int32)),
    ),
    "through_memory": (test_blocks.through_memory, (np.arange(128.0), np.zeros(128))),
    "numbers": (test_blocks.numbers, (np.zeros((130, 4), np.int32), 3, 120)),
    "wide_loop": (test_blocks.wide_loop, (np.zeros(10, np.int32),)),
    "of_vectors": (test_blocks.of_vectors, (rng.random((4, 4)), np.zeros((4, 4)))),
    "sums_and_scans": (test_blocks.sums_and_scans, (rng.random(101), np.zeros((101, 12)))),
    "several_loops": (test_blocks.several_loops, (rng.random(32), np.zeros(32))),
    "shuffles": (
        test_subgroups.shuffles,
        (
            rng.random(237).astype(np.float32),
            rng.integers(-3, 36, 237).astype(np.int32),
            np.zeros((237, 7), np.float32),
        ),
    ),
    "numbers_of_lanes": (test_subgroups.numbers, (np.zeros((237, 6), np.int32),)),
    "votes": (
        test_subgroups.votes,
        (
            rng.integers(0, 16, 237).astype(np.int32),
            np.zeros((237, 6), np.int32),
            np.zeros((237, 2), np.uint64),
        ),
    ),
    "segments": (
        test_subgroups.segments,
        (rng.random(237), (rng.random(237) < 0.2).astype(np.int32), np.zeros((237, 3))),
    ),
    "every_type": (every_type, (rng.random(130), np.zeros((130, 5)), 120)),
}


@pytest.mark.parametrize("name", CASES)
def test_threads_do_what_the_interpreter_does(name: str) -> None:
    function, arguments = CASES[name]
    module = lowered(compile_kernel(function, *arguments))
    assert any(map(cooperates, module.tasks)) or name.startswith(("numbers", "wide"))
    copies = [tuple(np.array(x) for x in arguments) for _ in range(2)]
    interpret(module, function, copies[0])
    names = list(function.__annotations__)
    OnSmallGpu(module).run(dict(zip(names, copies[1], strict=True)))
    for wanted, found in zip(*copies, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize(
    "function",
    [
        test_derivatives.through_shared_memory,
        test_derivatives.of_lanes,
        test_derivatives.sums_over_lanes,
        *(
            pytest.param(f, marks=pytest.mark.slow if f is test_derivatives.scans else ())
            for f in test_derivatives.SHARED
            if f is not test_derivatives.stored_by_all_lanes  # a race, for the emulator
        ),
    ],
)
def test_threads_take_derivatives(function: Any) -> None:
    """Tangents and adjoints of shared arrays are shared arrays, too."""
    x, seed = rng.random(27), rng.random(27)
    module = lowered(compile_kernel(function, x, x))
    derivatives = [forward(module)]
    if function in (test_derivatives.sums_over_lanes, *test_derivatives.SHARED):
        derivatives.append(differentiate(module).module)
    for derivative in derivatives:
        found = []
        ways = (
            interpreter.run,
            lambda m, a: OnSmallGpu(finish(m, Stage(verifies=True))).run(a),
            lambda m, a: Compiled(
                finish(m, Stage(Capabilities(serialises_blocks=True), verifies=True))
            ).run(a),
        )
        for run in ways:
            names = [(n, c) for n in "xy" for c in list(Companion)[:3]]
            arrays = dict(zip(names, (seed.copy() for _ in names), strict=True))
            arrays["x", Companion.PRIMAL] = x.copy()
            run(derivative, arrays)
            found.append(arrays)
        for place, wanted in found[0].items():
            for other in found[1:]:
                np.testing.assert_allclose(other[place], wanted, rtol=1e-10)


@needs_assembler
@pytest.mark.parametrize("function", test_derivatives.SHARED)
def test_derivatives_are_assembled(function: Any, tmp_path: Path) -> None:
    x = np.zeros(27)
    derivative = differentiate(lowered(compile_kernel(function, x, x))).module
    assemble(finish(derivative, Stage(verifies=True)), 90, tmp_path)


@needs_assembler
@pytest.mark.parametrize(("name", "capability"), each_once(list(CASES), [75, 80, 90]))
def test_it_is_assembled(name: str, capability: int, tmp_path: Path) -> None:
    function, arguments = CASES[name]
    module = lowered(compile_kernel(function, *arguments), checks_bounds=True)
    text = assemble(module, capability, tmp_path)
    scopes = {op.scope for op in module.walk() if isinstance(op, ops.Barrier)}
    assert ("bar.sync" in text) == ("block" in scopes)
    assert ("bar.warp.sync" in text) == ("subgroup" in scopes)


@needs_assembler
@pytest.mark.parametrize("fn", test_subgroups.FUNCTIONS)
@pytest.mark.parametrize("kind", [np.int32, np.uint64, np.float64, np.float32])
def test_reductions_and_scans_are_assembled(fn: str, kind: Any, tmp_path: Path) -> None:
    if (fn, kind) in test_subgroups.CASES:
        x, y = np.zeros(8, kind), np.zeros((8, 6), kind)
        assemble(lowered(compile_kernel(test_subgroups.combinations(fn), x, y)), 75, tmp_path)


def test_shared_arrays_are_in_shared_memory() -> None:
    function, arguments = CASES["histogram"]
    module = lowered(compile_kernel(function, *arguments))
    text = compilation.compile_module(module, nvptx.Nvptx(nvptx.target(90))).code.decode()
    assert "st.shared" in text
    assert "atom.shared.add" in text or "red.shared.add" in text
    assert "cvta.shared" not in text, "no address is generic"


@needs_assembler
def test_threads_have_registers_for_the_block_that_was_asked_for(tmp_path: Path) -> None:
    def large(x: Array):
        loop_config(block_dim=1024)
        for i in x:
            x[i] = block.reduce_add(x[i], 1024, f64)

    module = lowered(compile_kernel(large, np.zeros(8)))
    assert ".maxntid 1024" in assemble(module, 90, tmp_path)


@pytest.mark.parametrize(("asked", "given"), [(48, 64), (32, 32), (5000, 1024)])
def test_blocks_that_do_not_cooperate_are_of_whole_subgroups(asked: int, given: int) -> None:
    """What threads have summed up goes through all lanes in the end."""

    def total(x: Array, y: Array):
        loop_config(block_dim=static(asked))
        for i in x:
            y[0] += x[i]

    module = lowered(compile_kernel(total, np.zeros(8), np.zeros(1)))
    (dispatch,) = compilation.compile_module(module, nvptx.Nvptx(nvptx.target(80))).dispatches
    assert dispatch.block == given


def test_only_threads_with_nothing_of_their_own_come_in_waves() -> None:
    """A thread that ends adds up its sums, and one that records has a record buffer."""

    def free(x: Array, y: Array):
        for i in x:
            y[i] = x[i] * 2

    def total(x: Array, y: Array):
        for i in x:
            y[0] += x[i]

    def together(x: Array, y: Array):
        for i in x:
            pad = block.SharedArray(8, f64)
            pad[block.thread_idx() % 8] = x[i]
            block.sync()
            y[i] = pad[0]

    waves = {}
    for kernel in (free, total, together):
        module = lowered(compile_kernel(kernel, np.zeros(8), np.zeros(8)))
        (dispatch,) = compilation.compile_module(module, nvptx.Nvptx(nvptx.target(80))).dispatches
        waves[kernel.__name__] = dispatch.waves
    assert waves == {"free": 4, "total": 1, "together": 1}


def test_shared_arrays_that_do_not_fit_with_their_tangents() -> None:
    def large(x: Array, y: Array):
        for i in x:
            pad = block.SharedArray(4096, f64)
            pad[block.thread_idx()] = x[i]
            block.sync()
            y[i] = pad[0]

    module = lowered(compile_kernel(large, np.zeros(8), np.zeros(8)))
    compilation.compile_module(module, nvptx.Nvptx(nvptx.target(80)))
    with pytest.raises(OctantsTypeError, match="65536 bytes of them, and a block can have 49152"):
        compilation.compile_module(forward(module), nvptx.Nvptx(nvptx.target(80)))


def test_a_thread_that_is_alone_reads_no_other_lanes() -> None:
    """One thread runs all work items where sums of floats need an order."""

    def totals(x: Array, y: Array, count: Array):
        for i in x:
            count[0] += 1
            y[i // 2] += x[i]

    arguments = np.zeros(8), np.zeros(8), np.zeros(1, np.int32)
    module, stage = compile_kernel(totals, *arguments), Stage(Capabilities(deterministic=True))
    lower(module, stage)
    module = finish(module, stage, noalias=True)
    assert find_reductions(module.tasks[0], noalias=True)
    artifact = compilation.compile_module(module, nvptx.Nvptx(nvptx.target(80)))
    assert [dispatch.threads for dispatch in artifact.dispatches] == [1]
    assert "shfl" not in artifact.code.decode()
