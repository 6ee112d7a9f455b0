"""Updates of one place: collected by threads, put together by those that run in step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from octants.analysis.sums.reductions import find_reductions, find_shared
from octants.codegen.spirv.compile import ENOUGH, FEW, LONG, PLAIN, SUMMING, compile_module
from octants.codegen.spirv.opcodes import Op
from octants.diagnostics.exceptions import OctantsAssertionError
from octants.ir.core import Array, Companion, Module, Space
from octants.target import Blocks, Target
from octants.types import scalars
from octants.types.layouts import Layout, Term
from octants.types.scalars import DType, f16, f32, i32, u1
from tests.codegen import test_reductions as reductions
from tests.codegen.compiled import for_, if_, ndarray, parallel, temporary, while_
from tests.vulkan import compiled
from tests.vulkan.test_validity import MUCH
from tests.vulkan.validation import check, needs_validator

N = 3000
NUMBERS = [dtype for dtype in scalars.ALL if dtype not in (f16, u1)]


@pytest.fixture
def on_vulkan(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled.device()
    monkeypatch.setattr(reductions, "Compiled", compiled.OnVulkan)
    monkeypatch.setattr(reductions, "run", compiled.run)
    monkeypatch.setattr(reductions, "updates_in_loop", lambda _: False)


@pytest.mark.usefixtures("on_vulkan")
@pytest.mark.parametrize("fn", ["add", "sub", "min", "max"])
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_what_is_collected(dtype: DType, fn: str) -> None:
    reductions.test_what_is_collected(dtype, fn)


@pytest.mark.usefixtures("on_vulkan")
@pytest.mark.parametrize(
    "test",
    [
        reductions.test_nothing_is_touched_if_no_item_updates,
        reductions.test_zeros_and_nan_as_if_one_by_one,
        reductions.test_one_place_for_all_by_an_argument,
    ],
    ids=lambda test: test.__name__,
)
def test_what_holds_on_the_cpu(test: Any) -> None:
    test()


def of(count: int) -> Any:
    return lambda build: (build.index(0), build.index(count))


def test_halves_are_collected_in_single_precision() -> None:
    s = temporary("s", f16)

    def body(build: Any, i: Any) -> None:
        build.atomic("add", s, [], build.constant(0.25, f16))

    data = {"s": np.zeros((), np.float16)}
    compiled.run(Module("halves", [s], tasks=[parallel("t", of(N), body)]), data)
    assert data["s"] == N // 4


def checked_sum(limit: int) -> Module:
    """Each work item may end before it adds."""
    s, x = temporary("s", f32), ndarray("x", i32)

    def body(build: Any, i: Any) -> None:
        def turn(build: Any, j: Any, carried: Any) -> Any:
            value = build.load(x, [i])
            holds = build.compare("lt", value, build.constant(limit, i32))
            build.assert_("assertion", "{} is too much", holds, [value])
            return [build.binary("add", carried[0], build.cast(value, f32))]

        (total,) = for_(build, build.index(0), build.index(3), [build.constant(0.0, f32)], turn)
        build.atomic("add", s, [], total)

    task = parallel("t", lambda build: (build.index(0), build.shape(x, 0)), body)
    assert len(find_reductions(task)) == 1
    return Module("checked", [s, x], tasks=[task])


def test_work_items_that_may_end_early_collect_as_well() -> None:
    x = np.arange(N, dtype=np.int32) % 100
    data = {"x": x, "s": np.zeros((), np.float32)}
    compiled.run(checked_sum(100), data)
    assert data["s"] == 3 * x.sum()
    data["s"][...] = 0
    with pytest.raises(OctantsAssertionError, match="99 is too much"):
        compiled.run(checked_sum(99), data)
    assert data["s"] == 3 * x[x < 99].sum()


# -- places that change from turn to turn -------------------------------------------------------


def column_sums(dtype: DType, fn: str) -> Module:
    """All lanes update one place in a turn, in some turns without a few of them."""
    s, x = ndarray("s", dtype), ndarray("x", dtype)

    def body(build: Any, i: Any) -> None:
        def turn(build: Any, j: Any, _: Any) -> Any:
            def update(build: Any) -> Any:
                build.atomic(fn, s, [j], build.load(x, [i]))
                return []

            part = build.binary("and", build.binary("add", i, j), build.index(7))
            taken = build.compare("gt", part, build.binary("sub", j, build.index(2)))
            if_(build, taken, update, lambda _: [])
            return []

        for_(build, build.index(0), build.index(8), [], turn)

    task = parallel("t", lambda build: (build.index(0), build.shape(x, 0)), body)
    assert len(find_shared(task.body)) == 1
    return Module("columns", [s, x], tasks=[task])


@pytest.mark.parametrize("fn", ["add", "max"])
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_one_update_for_those_that_run_in_step(dtype: DType, fn: str) -> None:
    x = (np.arange(N) % 61).astype(dtype.numpy)
    data = {"x": x, "s": np.zeros(8, dtype.numpy)}
    kernel = compiled.OnVulkan(column_sums(dtype, fn), features="gathers")
    assert count(kernel.artifact.code, Op.GROUP_BALLOT) == 1
    kernel.run(data)
    number = np.arange(N)
    for j in range(8):
        part = x[((number + j) & 7) > j - 2].astype(object)
        wanted = part.sum() if fn == "add" else part.max()
        assert data["s"][j] == scalars.convert(wanted, dtype)


def count(code: bytes, op: Op) -> int:
    """How many instructions of a kind a module has."""
    words, position, found = np.frombuffer(code, np.uint32), 5, 0
    while position < len(words):
        found += int(words[position]) & 0xFFFF == op
        position += int(words[position]) >> 16
    return found


# -- no device is needed ------------------------------------------------------------------------


def a_target(lanes: int, features: str) -> Target:
    return Target("vulkan", "spirv", "a device", features, blocks=Blocks(lanes))


@needs_validator
@pytest.mark.parametrize("lanes", [32, 64])
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_validity(dtype: DType, lanes: int) -> None:
    check(compile_module(column_sums(dtype, "add"), a_target(lanes, f"{MUCH},lanes,gathers")))
    check(compile_module(checked_sum(9), a_target(lanes, f"{MUCH},lanes,gathers")))


def test_threads_are_as_many_as_pay() -> None:
    """A thread that sums up has many work items, unless a driver counts its turns."""
    few = compile_module(checked_sum(9), a_target(32, f"{MUCH},lanes"))
    many = compile_module(checked_sum(9), a_target(32, f"{MUCH},lanes,cuts"))
    alone = compile_module(checked_sum(9), a_target(32, MUCH))
    assert [a.dispatches[0].threads for a in (few, many, alone)] == [ENOUGH, 0, ENOUGH]
    assert [count(a.code, Op.GROUP_SHUFFLE) for a in (few, many, alone)] == [10, 10, 0]
    assert [a.dispatches[0].block for a in (few, many, alone)] == [SUMMING] * 3


def test_threads_that_a_cpu_runs_do_not_sum_up_by_blocks() -> None:
    gpu, cpu = (
        compile_module(checked_sum(9), a_target(8, f"{MUCH},lanes{more}"))
        for more in ("", ",masks")
    )
    assert [each.dispatches[0].block for each in (gpu, cpu)] == [SUMMING // 4, 64]
    # one that waits for the subgroup, and one for the block
    assert [count(each.code, Op.CONTROL_BARRIER) for each in (gpu, cpu)] == [2, 1]


def test_a_failure_in_a_condition_ends_the_loop() -> None:
    """Where threads collect, an item that has ended goes on as one that does nothing more."""
    marks, total = ndarray("marks", i32), ndarray("total", i32)

    def test(build: Any, carried: Any) -> Any:
        build.assert_("assertion", "{}", build.compare("lt", carried[0], build.index(3)), carried)
        return build.compare("lt", carried[0], build.index(7))

    def turn(build: Any, carried: Any) -> Any:
        build.store(marks, carried, build.index(1))
        build.atomic("add", total, [build.index(0)], build.index(1))
        return [build.binary("add", carried[0], build.index(1))]

    def body(build: Any, _: Any) -> None:
        while_(build, [build.index(0)], test, turn)

    task = parallel("t", lambda build: (build.index(0), build.index(5)), body)
    module = Module("counts", [marks, total], tasks=[task])
    module.noalias = True
    assert find_reductions(task, noalias=True)
    kernel = compiled.OnVulkan(module)
    data = {"marks": np.zeros(8, np.int32), "total": np.zeros(1, np.int32)}
    with pytest.raises(OctantsAssertionError):
        kernel.run(data)
    assert data["marks"].tolist() == [1] * 3 + [0] * 5


# -- copies of small arrays ---------------------------------------------------------------------


def histogram(dtype: DType, bins: int, looks: bool = False) -> Module:
    """Arguments may be the memory of exported fields: who looks afterwards might see the sums."""
    layouts = {Companion.PRIMAL: Layout((bins,), (Term(0, 1, 0, dtype.size),))}
    counts, x = Array("counts", dtype, 1, Space.FIELD, (), layouts), ndarray("x", i32)
    counts.exported = looks

    def body(build: Any, i: Any) -> None:
        value = build.load(x, [i])
        build.atomic("add", counts, [value], build.constant(1, dtype))

    def look(build: Any, i: Any) -> None:
        body(build, i)
        build.store(x, [i], build.load(x, [i]))

    write = look if looks else body
    task = parallel("t", lambda build: (build.index(0), build.shape(x, 0)), write)
    return Module("histogram", [counts, x], tasks=[task])


@pytest.mark.parametrize(
    ("dtype", "bins", "copies"), [(i32, 9, 1), (f32, 300, 1), (i32, 3000, 1), (i32, 9000, 0)]
)
def test_blocks_have_copies_of_small_arrays(
    dtype: DType, bins: int, copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_(module: Module, own: Target) -> Any:
        """As on a GPU: on a CPU there are no copies."""
        own = replace(own, features=own.features.replace("masks", ""))
        return compile_module(module, own)

    monkeypatch.setattr(compiled, "compile_module", compile_)
    late = compile_module(histogram(dtype, bins, looks=True), a_target(32, MUCH))
    assert count(late.code, Op.CONTROL_BARRIER) == 0
    kernel = compiled.OnVulkan(histogram(dtype, bins))
    assert count(kernel.artifact.code, Op.CONTROL_BARRIER) == 2 * copies
    x = np.random.default_rng(0).integers(0, bins, N).astype(np.int32)
    data = {"counts": np.zeros(bins, dtype.numpy), "x": x}
    for turn in (1, 2):
        kernel.run(data)
        assert np.array_equal(data["counts"], turn * np.bincount(x, minlength=bins))


@needs_validator
def test_copies_are_valid() -> None:
    for features in (f"{MUCH},lanes", MUCH, f"{MUCH},lanes,add32"):
        for dtype in (f32, i32):
            check(compile_module(histogram(dtype, 40), a_target(32, features)))


@pytest.mark.parametrize("dtype", [i32, f32], ids=str)
@pytest.mark.parametrize("ragged", [False, True])
def test_subgroups_add_once_to_an_element_of_a_copy(
    dtype: DType, ragged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for weights that all work items reach in step, some of them for fewer iterations."""

    def compile_(module: Module, own: Target) -> Any:
        features = own.features.replace("masks", "gathers")
        return compile_module(module, replace(own, features=features))

    monkeypatch.setattr(compiled, "compile_module", compile_)
    length = 20
    layouts = {Companion.PRIMAL: Layout((length,), (Term(0, 1, 0, dtype.size),))}
    sums, trips = Array("sums", dtype, 1, Space.FIELD, (), layouts), ndarray("trips", i32)

    def body(build: Any, i: Any) -> None:
        stop = build.load(trips, [i]) if ragged else build.index(length)

        def add(inner: Any, j: Any, _: Any) -> list[Any]:
            inner.atomic("add", sums, [j], inner.constant(3, dtype))
            return []

        for_(build, build.index(0), stop, [], add)

    task = parallel("t", lambda build: (build.index(0), build.shape(trips, 0)), body)
    module = Module("weights", [sums, trips], tasks=[task])
    module.noalias = True
    assert len(find_shared(task.body)) == 1
    kernel = compiled.OnVulkan(module)
    assert count(kernel.artifact.code, Op.CONTROL_BARRIER) == 2
    assert count(kernel.artifact.code, Op.GROUP_BALLOT) > 0
    stops = np.random.default_rng(0).integers(0, length + 1, N).astype(np.int32)
    data = {"sums": np.zeros(length, dtype.numpy), "trips": stops}
    kernel.run(data)
    reached = [np.sum(stops > j) if ragged else N for j in range(length)]
    assert data["sums"].tolist() == [3 * each for each in reached]


@pytest.mark.parametrize(("count", "threads"), [(1, 1024), (2, 1024), (3, 512), (9, 256)])
def test_blocks_are_as_large_as_their_totals_fit(count: int, threads: int) -> None:
    totals = [ndarray(f"total{k}", f32) for k in range(count)]
    x = ndarray("x", f32)

    def body(build: Any, i: Any) -> None:
        value = build.load(x, [i])
        for total in totals:
            build.atomic("add", total, [build.index(0)], value)

    task = parallel("t", lambda build: (build.index(0), build.shape(x, 0)), body)
    module = Module("totals", [*totals, x], tasks=[task])
    module.noalias = True
    made = compile_module(module, a_target(32, f"{MUCH},lanes"))
    assert made.dispatches[0].block == threads


@pytest.mark.parametrize(
    ("trips", "items", "threads"),
    [(10, 4096, PLAIN), (1000, 4096, FEW), (1000, 1 << 16, LONG), (1000, None, LONG)],
)
def test_long_work_items_are_in_small_blocks(trips: int, items: int | None, threads: int) -> None:
    """Those of a matrix times a vector of 64 components, 4096 of them, ran in 16 blocks."""
    x, y = ndarray("x", f32), ndarray("y", f32)

    def bounds(build: Any) -> tuple[Any, Any]:
        return build.index(0), build.shape(x, 0) if items is None else build.index(items)

    def body(build: Any, i: Any) -> None:
        def turn(_: Any, j: Any, carried: list[Any]) -> list[Any]:
            return [build.binary("add", carried[0], build.load(x, [j]))]

        zero = build.constant(0.0, f32)
        (total,) = for_(build, build.index(0), build.index(trips), [zero], turn)
        build.store(y, [i], total)

    module = Module("sums", [x, y], tasks=[parallel("t", bounds, body)])
    module.noalias = True
    made = compile_module(module, a_target(32, f"{MUCH},lanes"))
    assert made.dispatches[-1].block == threads
