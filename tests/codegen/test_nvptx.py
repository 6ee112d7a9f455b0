"""PTX: what LLVM makes of kernels is accepted by NVIDIA's assembler, and rounds as it must."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from octants.autodiff.plan import recording_plan, records_in_registers
from octants.codegen.llvm import llvmlite_driver, nvptx
from octants.codegen.llvm.gpu import compilation
from octants.codegen.llvm.gpu.atomics_without_results import without_results
from octants.ir.core import Array, Companion, Module, Space
from octants.passes.loops.unroll_shared_sums import unroll_shared_sums
from octants.types import scalars
from octants.types.layouts import Layout, Term
from octants.types.scalars import f32, f64, i32
from tests.autodiff.reversing import differentiate
from tests.autodiff.test_checkpoints import LongLoops
from tests.autodiff.test_whole_blocks import recurrence
from tests.codegen.compiled import for_, ndarray, parallel
from tests.codegen.nvidia_tools import needs_assembler, tool
from tests.codegen.representative import (
    module_of_atomics,
    module_of_operations,
    random_modules,
    words_of_the_language,
)
from tests.ir.parser import parse
from tests.seeds import each_once, seeds

CAPABILITIES = (75, 80, 90, 120)


@pytest.fixture(autouse=True)
def silence(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """LLVM says on the terminal what it does not unroll as requested: nothing of that kind."""
    yield
    assert "warning:" not in capfd.readouterr().err


def assemble(module: Module, capability: int, folder: Path, **options: Any) -> str:
    """The PTX of a module; an error with the assembler's words if it is not valid."""
    text = compilation.compile_module(
        module, nvptx.Nvptx(nvptx.target(capability)), **options
    ).code.decode()
    program = tool("ptxas")
    if program is not None:
        path = folder / "kernel.ptx"
        path.write_text(text)
        command = [program, "-O0", f"-arch=sm_{capability}", str(path), "-o", "/dev/null"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr + text
    return text


@needs_assembler
@pytest.mark.parametrize("seed", seeds(2, 4, 300))
def test_random_programs_are_assembled(
    seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    modules = random_modules(seed, monkeypatch)
    for number, module in enumerate(modules):
        assemble(module, CAPABILITIES[(seed + number) % 4], tmp_path, opt_level=1)


@needs_assembler
@pytest.mark.parametrize(("capability", "fast_math"), each_once(CAPABILITIES, [False, True]))
def test_every_word_of_the_language_is_assembled(
    capability: int, fast_math: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    modules = words_of_the_language(monkeypatch, fast_math)
    for module in modules:
        assemble(module, capability, tmp_path, fast_math=fast_math)


@needs_assembler
@pytest.mark.parametrize("dtype", scalars.ALL, ids=str)
def test_every_operation_is_assembled(
    dtype: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assemble(module_of_operations(dtype, monkeypatch), 75, tmp_path)


@needs_assembler
def test_atomics_of_every_type_are_assembled(tmp_path: Path) -> None:
    for dtype in scalars.ALL:
        assemble(module_of_atomics(dtype), 75, tmp_path)


def test_floats_are_rounded_after_each_operation() -> None:
    for dtype in (f32, f64):
        x = ndarray("x", dtype)

        def body(build: Any, i: Any, x: Any = x) -> None:
            v = build.load(x, [i])
            product = build.binary("mul", v, v)
            total = build.binary("div", build.binary("add", product, v), v)
            build.store(x, [i], build.unary("sqrt", total))

        task = parallel("t", lambda build, x=x: (build.index(0), build.shape(x, 0)), body)
        module = Module("rounding", [x], tasks=[task])
        text = compilation.compile_module(
            module, nvptx.Nvptx(nvptx.target(90)), fast_math=True
        ).code.decode()
        for operation in ("mul.rn", "add.rn", "div.rn", "sqrt.rn"):
            assert f"{operation}.{dtype}" in text
        assert "fma" not in text
        assert "approx" not in text


def test_a_device_that_is_newer_than_the_compiler_gets_the_newest_code() -> None:
    assert nvptx.target(86).cpu == "sm_86"
    assert nvptx.target(91).cpu == "sm_90"
    assert nvptx.target(400).cpu == "sm_121"
    assert nvptx.target(50).cpu == "sm_75"


@pytest.mark.parametrize("capability", [80, 90, 120])
def test_launches_wait_for_those_before_where_they_may_start_early(capability: int) -> None:
    artifact = compilation.compile_module(recurrence(), nvptx.Nvptx(nvptx.target(capability)))
    heads = [part.split(";")[:12] for part in artifact.code.decode().split(".visible .entry")[1:]]
    assert len(heads) == len(artifact.dispatches)
    waits = ["griddepcontrol.wait" in " ".join(lines) for lines in heads]
    assert waits == [dispatch.starts_early for dispatch in artifact.dispatches]
    assert all(waits) == any(waits) == (capability >= 90)


@needs_assembler
def test_gradients_in_blocks_are_assembled(tmp_path: Path) -> None:
    for seed in range(6):
        result = differentiate(LongLoops(seed).simplified(), whole_record_bytes=40)
        if not result.hazards:
            assemble(result.module, 75, tmp_path)


@pytest.mark.parametrize("capability", [80, 90])
def test_registers_hold_what_short_blocks_record(
    capability: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def local_bytes() -> int:
        module = differentiate(recurrence(), whole_record_bytes=1, local_record_bytes=256).module
        text = assemble(module, capability, tmp_path)
        return sum(map(int, re.findall(r"\.local .*\[(\d+)\]", text)))

    single = local_bytes()  # of the iterations that are in no block
    assert single == 8 * recording_plan.MAX_UNBLOCKED
    monkeypatch.setattr(records_in_registers, "MAX_WORK", 0)
    assert local_bytes() == single + 8 * recording_plan.MAX_BLOCK


def test_short_launches_use_all_registers(tmp_path: Path) -> None:
    """The assembler then does not save registers, but blocks of many threads still fit."""
    x = ndarray("x", f32)

    def registers(**options: Any) -> list[str]:
        task = parallel(
            "t",
            lambda build: (build.index(0), build.index(9)),
            lambda build, i: build.store(x, [i], build.load(x, [i])),
        )
        task.options.update(options)
        text = assemble(Module("k", [x], tasks=[task]), 90, tmp_path)
        return re.findall(r"\.maxnreg (\d+)", text)

    assert registers() == []
    assert registers(all_registers=True) == ["255"]
    assert registers(all_registers=True, block_dim=256) == ["255"]
    assert registers(all_registers=True, block_dim=512) == []


def test_addresses_of_local_records_step_down(tmp_path: Path) -> None:
    """An iteration in reverse subtracts a constant; it does not compute its number first."""
    module = differentiate(recurrence(), whole_record_bytes=1, local_record_bytes=256).module
    text = assemble(module, 90, tmp_path)
    (address,) = re.findall(r"ld\.local\.b64\s+%rd\d+, \[(%rd\d+)\];", text)
    assert re.search(rf"add\.s64\s+{address}, {address}, -8;", text)


def test_sums_of_a_block(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Subgroups leave theirs in shared memory; each place is updated once for the block."""
    x, places = ndarray("x", f32), ndarray("places", f32)

    def body(build: Any, i: Any) -> None:
        value = build.load(x, [i])
        build.atomic("add", places, [build.index(0)], value)
        build.atomic("max", places, [build.index(1)], value)

    def branches(build: Any, i: Any) -> None:
        body(build, i)
        build.store(x, [i], build.unary("sin", build.load(x, [i])))

    def bounds(build: Any) -> Any:
        return build.index(0), build.shape(x, 0)

    for each, loads in ((body, 4), (branches, 1)):
        module = Module("k", [x, places], tasks=[parallel("t", bounds, each)])
        module.noalias = True
        for capability in CAPABILITIES:
            text = assemble(module, capability, tmp_path)
        assert text.count("bar.red.or.pred") == 2
        assert len(re.findall(r"st\.shared", text)) == len(re.findall(r"ld\.shared", text)) == 2
        assert len(re.findall(r"atom\..*add\.f32|red\..*add\.f32", text)) == 1
        turn = text[text.index("nounroll") :] if loads > 1 else text
        assert turn.count("ld.global.b32") >= loads
        artifact = compilation.compile_module(module, nvptx.Nvptx(nvptx.target(90)))
        assert artifact.dispatches[0].sums
    assert not capfd.readouterr().err


def test_updates_of_places_that_threads_may_share(tmp_path: Path) -> None:
    """Small arrays have a copy in each block; of others threads at one place make one update."""
    at, x = ndarray("at", i32), ndarray("x", f32)

    def bounds(build: Any) -> Any:
        return build.index(0), build.shape(x, 0)

    def text_of(bins: int, fn: str = "add", index: Any = None) -> str:
        layouts = {Companion.PRIMAL: Layout((bins,), (Term(0, 1, 0, 4),))}
        table = Array("table", f32, 1, Space.FIELD, (), layouts) if bins else ndarray("table", f32)

        def body(build: Any, i: Any) -> None:
            place = index(build, i) if index else build.load(at, [i])
            build.atomic(fn, table, [place], build.load(x, [i]))

        module = Module("k", [table, at, x], tasks=[parallel("t", bounds, body)])
        module.noalias = True
        for capability in CAPABILITIES:
            text = assemble(module, capability, tmp_path)
        return text

    small, large, extremes = text_of(1000), text_of(100_000), text_of(1000, "max")
    assert small.count("red.shared.add.f32") == 1
    assert small.count("bar.sync") == 2
    assert "match.any" not in small
    for text in (large, extremes):
        assert text.count("match.any.sync.b64") == 1
        assert ".shared" not in text
    # Where the last updates of a thread had an address each, it does not look for equal ones.
    assert len(re.findall(r"(?:atom|red)\.\S*add\.f32", large)) == 2

    for bins in (0, 8192):  # the launch decides; an ndarray has no bins that are known
        text = text_of(bins)
        assert text.count("red.shared.add.f32") == 1
        assert text.count("match.any.sync.b64") == 1
    assert ".shared" not in text_of(8193)

    def neighbour(build: Any, i: Any) -> Any:
        return build.binary("add", i, build.index(1))

    for bins in (0, 100_000):
        text = text_of(bins, index=neighbour)
        assert "match.any" not in text
        assert ".shared" not in text


SHARED_WEIGHTS = """\
kernel @k
array @x: f32, 1, ndarray, () [primal]
array @w: f32, 1, field, () [primal (64,) ((0, 1, 0, 4),) ()]
parallel @k_0 {
  %0: i32 = constant<0>()
  %1: i32 = shape<@x, 0>()
  yield(%0, %1)
} { (%2: i32):
  %3: i32 = constant<0>()
  %4: i32 = constant<64>()
  %5: f32 = load<@x, primal>(%2)
  for(%3, %4) { (%6: i32):
    %7: f32 = atomic<add, @w, primal>(%5, %6)
    yield()
  }
  yield()
}
"""


def test_warps_combine_updates_of_one_element_of_a_copy(tmp_path: Path) -> None:
    """All threads of a warp reach one weight after the other: one thread adds for all of them."""
    module = parse(SHARED_WEIGHTS)
    module.noalias = True
    text = assemble(module, 90, tmp_path)
    assert text.count("activemask.b32") == 1
    assert text.count("shfl.sync.bfly") == 5
    assert ".shared.add.f32" in text
    assert ".global.add.f32" in text  # at the end, once for each block


def test_warps_combine_updates_of_several_elements(tmp_path: Path) -> None:
    """Each thread adds to one element: 32 of them take 16 + 8 + 4 + 2 + 1 exchanges."""
    module = parse(SHARED_WEIGHTS)
    module.noalias = True
    unroll_shared_sums(module)
    for capability in CAPABILITIES:
        text = assemble(module, capability, tmp_path)
        assert text.count("activemask.b32") == 1
        assert text.count("shfl.sync.bfly") == 31
        # Where not all threads are there, each element, the last by the code that adds sums.
        assert text.count(".shared.add.f32") == 32


OUTER_PRODUCTS = """\
kernel @k
array @x: f32, 1, ndarray, () [primal]
array @v: f32, 2, field, () [primal (99, 96) ((0, 1, 0, 384), (1, 1, 0, 4)) ()]
array @w: f32, 2, field, () [primal (4, 960) ((0, 1, 0, 3840), (1, 1, 0, 4)) ()]
parallel @k_0 {
  %0: i32 = constant<0>()
  %1: i32 = constant<99>()
  yield(%0, %1)
} { (%2: i32):
  %3: i32 = constant<0>()
  %4: i32 = constant<96>()
  %5: i32 = constant<1>()
  %6: i32 = constant<2>()
  %7: i32 = constant<3>()
  %8: f32 = load<@x, primal>(%2)
  %9: f32 = unary<sin>(%8)
  %10: f32 = unary<cos>(%8)
  %11: f32 = unary<exp>(%8)
  %12: f32 = constant<0.0>()
  for(%3, %4) { (%20: i32):
    %21: f32 = load<@v, primal>(%2, %20)
    %22: u1 = compare<ne>(%8, %12)
    %23: f32 = binary<mul>(%8, %21)
    %24: f32 = select(%22, %23, %12)
    %25: f32 = atomic<add, @w, primal>(%24, %3, %20)
    %26: f32 = binary<mul>(%9, %21)
    %27: f32 = atomic<add, @w, primal>(%26, %5, %20)
    %28: f32 = binary<mul>(%10, %21)
    %29: f32 = atomic<add, @w, primal>(%28, %6, %20)
    %30: f32 = binary<mul>(%11, %21)
    %31: f32 = atomic<add, @w, primal>(%30, %7, %20)
    yield()
  }
  yield()
}
"""


def test_warps_exchange_the_factors_of_products(tmp_path: Path) -> None:
    """A lane has a tile of 2 by 4 of 4 by 16 products, for a quarter of the threads.

    The loop is written twice: for arrays that are aligned, and for others.
    """

    def text_of(guard: str = "%24", columns: int = 960, **options: Any) -> str:
        text = OUTER_PRODUCTS.replace("primal>(%24", f"primal>({guard}")
        module = parse(text.replace("960", str(columns)).replace("3840", str(4 * columns)))
        module.noalias = True
        for array in module.arrays:  # so that none is known to be aligned
            array.exported = array.space is Space.FIELD
        unroll_shared_sums(module, exchanges=True)
        return assemble(module, 90, tmp_path, **options)

    text = text_of(fast_math=True)
    assert len(re.findall(r"st\.shared\.\w+\s", text)) == 2 * 20  # factors
    assert text.count("ld.shared") == 2 * 8 * (2 + 4)
    assert text.count("shfl.sync.bfly") == 2 * 2 * (2 + 1)
    assert text.count("vote.sync.any") == 2  # whether a guarded product is not a number
    assert text.count("red.global.add.f32") == 2 * (64 + 2)
    assert ".maxntid 128" in text
    plain = text_of("%23", fast_math=True)
    assert "vote.sync.any" not in plain
    # The threads of other warps add up four products at a time, in a loop.
    assert plain.count("red.global.add.f32") == 2 * (4 + 2)
    # Each warp has a copy of a small matrix, to which it adds without atomics.
    small = text_of("%23", 96, fast_math=True)
    assert small.count("red.global.add.f32") == 1
    assert small.count("red.shared.add.f32") == 2 * 4
    assert len(re.findall(r"st\.shared\.\w+\s", small)) == 1 + 2 * (2 * 20 + 2)
    other = text_of()  # products and sums stay apart
    assert other.count("shfl.sync.bfly") == 2 * 2 * 31
    assert ".maxntid" not in other


@pytest.mark.parametrize("block", [128, 256])
def test_large_blocks_have_no_memory_for_factors(block: int, tmp_path: Path) -> None:
    module = parse(OUTER_PRODUCTS)
    module.noalias = True
    module.tasks[0].options["block_dim"] = block
    unroll_shared_sums(module, exchanges=True)
    text = assemble(module, 90, tmp_path, fast_math=True)
    assert ("st.shared" in text) == (block <= 128)


WIDE_LOADS = """\
kernel @k
array @v: f32, 2, field, () [primal (8, 96) ((0, 1, 0, 384), (1, 1, 0, 4)) ()]
array @w: f32, 1, field, () [primal (96,) ((0, 1, 0, 4),) ()]
parallel @k_0 {
  %0: i32 = constant<0>()
  %1: i32 = constant<8>()
  yield(%0, %1)
} { (%2: i32):
  %3: i32 = constant<0>()
  %4: i32 = constant<96>()
  for(%3, %4) { (%20: i32):
    %21: f32 = load<@v, primal>(%3, %20)
    %22: f32 = atomic<add, @w, primal>(%21, %20)
    yield()
  }
  yield()
}
"""


@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        ("", "", 8),
        ("384), (1, 1, 0, 4)", "388), (1, 1, 0, 4)", 8),  # in a row whose number is known
        ("(%3, %20)", "(%2, %20)", 8),
        ("load<@v, primal>(%3, %20)", "load<@w, primal>(%20)", 0),  # which changes
        ("load<@v, primal>(%3, %20)", "load<@v, primal>(%20, %3)", 0),
    ],
)
def test_unrolled_loops_load_four_elements_at_once(
    old: str, new: str, count: int, tmp_path: Path
) -> None:
    module = parse(WIDE_LOADS.replace(old, new) if old else WIDE_LOADS)
    module.noalias = True
    unroll_shared_sums(module)
    text = assemble(module, 90, tmp_path)
    assert text.count("ld.global.v4.b32") == count


def test_results_of_atomics_that_nothing_uses_are_dropped() -> None:
    text = """
.entry one(
    atom.global.add.f32 %r1, [%rd1+4], %r2;
    @%p1 atom.relaxed.gpu.shared.max.s32 %r3, [%rd1], %r2;
    atom.global.add.u64 %rd4, [%rd1], %rd2;
    st.global.b64 [%rd1], %rd4;
    atom.global.exch.b32 %r5, [%rd1], %r2;
    atom.acq_rel.gpu.global.add.u32 %r6, [%rd1], %r2;
.entry two(
    atom.global.add.u64 %rd5, [%rd1], %rd2;
    mov.b32 %r3, %r1;
"""
    wanted = text.replace("atom.global.add.f32 %r1, ", "red.global.add.f32 ")
    wanted = wanted.replace(
        "atom.relaxed.gpu.shared.max.s32 %r3, ", "red.relaxed.gpu.shared.max.s32 "
    )
    wanted = wanted.replace("atom.global.add.u64 %rd5, ", "red.global.add.u64 ")
    assert without_results(text) == wanted


@pytest.mark.parametrize(("count", "is_copied"), [(64, True), (2048, True), (2080, False)])
def test_large_arrays_that_warps_add_to_together_have_no_copies(
    count: int, is_copied: bool, tmp_path: Path
) -> None:
    """A warp adds to 32 elements at a time, for which it need not wait in device memory."""
    text = SHARED_WEIGHTS.replace("(64,)", f"({count},)").replace("<64>", f"<{count}>")
    module = parse(text)
    module.noalias = True
    alone = assemble(module, 90, tmp_path)
    assert ".shared.add.f32" in alone
    unroll_shared_sums(module)
    assert (".shared.add.f32" in assemble(module, 90, tmp_path)) == is_copied


def test_short_loops_of_large_kernels_are_unrolled(tmp_path: Path) -> None:
    """Else a thread waits for the loads of each iteration, one after the other."""
    x, y = ndarray("x", f32), ndarray("y", f32)

    def body(build: Any, i: Any) -> None:
        def add(inner: Any, j: Any, totals: Any) -> list[Any]:
            return [inner.fma(inner.load(x, [j]), inner.load(y, [j]), totals[0])]

        (total,) = for_(build, build.index(0), build.index(64), [build.constant(0.0, f32)], add)
        for _ in range(llvmlite_driver.LARGE):
            total = build.binary("mul", total, total)
        build.store(y, [i], total)

    task = parallel("t", lambda build: (build.index(0), build.shape(x, 0)), body)
    module = Module("large", [x, y], tasks=[task])
    text = assemble(module, 90, tmp_path)
    assert len(re.findall(r"fma\.rn", text)) >= 4
