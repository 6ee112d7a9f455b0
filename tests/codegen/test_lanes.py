"""Parallel loops in lanes: the same bits as one work item at a time, whatever the loop does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from octants.analysis.control_flow.uniformity import Uniformity
from octants.analysis.lanes.choose_loops import choose
from octants.codegen.llvm import cpu
from octants.codegen.llvm.lanes.vector_capabilities import lanes_of_target, vectors_of
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cloning import copy_module
from octants.ir.core import Array, Companion, Module, Record, Space, Value
from octants.ir.ops import arithmetic
from octants.ir.verifier import verify
from octants.target import ALWAYS, NEVER, Target
from octants.types import scalars
from octants.types.scalars import DType, f16, f32, f64, i32, i64, u1
from tests.autodiff import random_ir
from tests.autodiff.reversing import differentiate
from tests.codegen.compiled import (
    PRIMAL,
    TARGET,
    Compiled,
    for_,
    if_,
    ndarray,
    parallel,
    while_,
)
from tests.seeds import seeds

AVX2 = Target("cpu", "x86_64-unknown-linux-gnu", "haswell", "+avx2,+f16c,+fma,+avx,+sse4.2")
PLAIN = Target("cpu", "x86_64-unknown-linux-gnu", "x86-64", "")
ARM = Target("cpu", "aarch64-unknown-linux-gnu", "generic", "+neon")
SIZE = 83  # work items: some tiles, and some more
Body = Callable[[Builder, Value], None]
Data = dict[Any, "np.ndarray[Any, Any]"]

pytestmark = pytest.mark.skipif(
    not lanes_of_target(TARGET), reason="the vectors of this CPU are none to rely on"
)


def module(
    arrays: Sequence[Array], body: Body, index_type: DType = i32, *, in_lanes: bool = False
) -> Module:
    """A parallel loop over as many items as the first array has; it can insist on lanes."""

    def domain(b: Builder) -> tuple[Value, Value]:
        zero = b.constant(0, index_type)
        return zero, b.cast(b.shape(arrays[0], 0), index_type)

    task = parallel("lanes_0", domain, body, index_type)
    task.options["simd"] = True if in_lanes else None
    return Module("lanes", list(arrays), tasks=[task])


def both(kernel: Module, data: Data) -> tuple[Data, Data]:
    """What is in the arrays after a run of one work item at a time, and after one in lanes."""
    found = []
    for simd in (NEVER, ALWAYS):
        arrays = {key: np.array(values) for key, values in data.items()}
        copy = copy_module(kernel)
        for task in copy.tasks:
            task.options = task.options if simd == ALWAYS else {}
        Compiled(copy, simd=simd).run(arrays)
        found.append(arrays)
    return found[0], found[1]


def is_in_lanes(kernel: Module, simd: str) -> bool:
    """Whether the only task of a kernel runs several work items at once."""
    (task,) = kernel.tasks
    return choose(task, vectors_of(TARGET, simd)).lanes > 0


def check(kernel: Module, data: Data, *, runs_in_lanes: bool = True) -> None:
    """Both ways give the same bits."""
    assert is_in_lanes(kernel, ALWAYS) is runs_in_lanes
    one, lanes = both(kernel, data)
    for key in data:
        np.testing.assert_array_equal(one[key].view(np.uint8), lanes[key].view(np.uint8))


def floats(count: int = SIZE, dtype: Any = np.float32, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).uniform(-2, 2, count).astype(dtype)


def integers(low: int, high: int, count: int = SIZE) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).integers(low, high, count).astype(np.int32)


# -- operations -----------------------------------------------------------------------------------


def _extremes(dtype: DType) -> np.ndarray[Any, Any]:
    """Numbers of all sizes, and special ones."""
    random = np.random.default_rng(2)
    if dtype is u1:
        return random.integers(0, 2, SIZE).astype(np.uint8).view(dtype.numpy)
    if dtype.is_float:
        values = (random.uniform(-2, 2, SIZE) * 10.0 ** random.integers(-3, 4, SIZE)).tolist()
        values[:8] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5]
        return np.array(values).astype(dtype.numpy)
    bits = random.integers(0, 256, SIZE * dtype.size).astype(np.uint8)
    values = bits.view(dtype.numpy) >> random.integers(0, dtype.bits, SIZE).astype(dtype.numpy)
    low, high = scalars.integer_range(dtype)
    values[:7] = [0, 1, low, high, 2, high - 1, low + 1 if low else 3]
    return np.asarray(values, dtype.numpy)


def _functions(dtype: DType) -> list[tuple[int, str]]:
    found = []
    for count, names in ((1, arithmetic.UNARY), (2, arithmetic.BINARY)):
        for fn in sorted(names):
            b = Builder()
            x = b.constant(scalars.convert(1, dtype), dtype)
            op = ops.Unary(fn, x) if count == 1 else ops.Binary(fn, x, x)
            op.results = [Value(dtype)]
            try:
                op.verify()
            except Exception:
                continue
            if fn in ("popcount", "clz", "not") and dtype.is_float:
                continue
            found.append((count, fn))
    return found


@pytest.mark.parametrize("dtype", scalars.ALL, ids=str)
def test_functions(dtype: DType) -> None:
    """All functions of a type at once, of operands that vary and of one that all lanes share."""
    functions = _functions(dtype)
    x, y = ndarray("x", dtype), ndarray("y", dtype)
    out = [ndarray(f"out{k}", dtype) for k in range(3 * len(functions))]

    def body(b: Builder, i: Value) -> None:
        one, other, shared = b.load(x, [i]), b.load(y, [i]), b.load(y, [b.index(5)])
        targets = iter(out)
        for count, fn in functions:
            if count == 1:
                b.store(next(targets), [i], b.unary(fn, one))
                continue
            for pair in ((one, other), (one, shared), (shared, one)):
                b.store(next(targets), [i], b.binary(fn, *pair))

    data: Data = {"x": _extremes(dtype), "y": np.roll(_extremes(dtype), 11)}
    data |= {array.name: np.zeros(SIZE, dtype.numpy) for array in out}
    check(module([x, y, *out], body), data)


@pytest.mark.parametrize("dtype", scalars.ALL, ids=str)
def test_casts_compares_selects(dtype: DType) -> None:
    x, y = ndarray("x", dtype), ndarray("y", dtype)
    out = [ndarray(f"out_{other}", other) for other in scalars.ALL]
    same = [ndarray(f"bits_{o}", o) for o in scalars.ALL if o.bits == dtype.bits]
    truth = ndarray("truth", u1)
    chosen = ndarray("chosen", dtype)

    def body(b: Builder, i: Value) -> None:
        one, other = b.load(x, [i]), b.load(y, [i])
        for array in out:
            b.store(array, [i], b.cast(one, array.dtype))
        for array in same:
            b.store(array, [i], b.bitcast(one, array.dtype))
        less = b.compare("lt", one, other)
        b.store(truth, [i], b.binary("or", less, b.compare("eq", one, b.load(y, [b.index(0)]))))
        b.store(chosen, [i], b.select(less, one, other))

    data: Data = {"x": _extremes(dtype), "y": np.roll(_extremes(dtype), 11)}
    arrays = [*out, *same, truth, chosen]
    data |= {array.name: np.zeros(SIZE, array.dtype.numpy) for array in arrays}
    check(module([x, y, *arrays], body), data)


@pytest.mark.parametrize("dtype", [f16, f32, f64, i32, i64], ids=str)
def test_random_numbers(dtype: DType) -> None:
    out = ndarray("out", dtype)

    def body(b: Builder, i: Value) -> None:
        b.store(out, [i], b.random(dtype, b.random_stream(3, i), b.index(2)))

    check(module([out], body), {"out": np.zeros(SIZE, dtype.numpy)})


# -- memory ---------------------------------------------------------------------------------------


def test_places_of_all_kinds() -> None:
    """Neighbours, steps, gathers, one place, and rows of a matrix, under a mask and without."""
    x, n = ndarray("x", f32), ndarray("n", i32)
    rows, out = ndarray("rows", f32, 2), ndarray("out", f32, 2)

    def body(b: Builder, i: Value) -> None:
        def loads(b: Builder) -> Value:
            reverse = b.binary("sub", b.index(SIZE - 1), i)
            picked = b.load(n, [i])
            thrice = b.binary("mod", b.binary("mul", i, b.index(3)), b.index(SIZE))
            total = b.load(x, [i])
            for index in (reverse, picked, thrice, b.index(4)):
                total = b.binary("mul", total, b.load(x, [index]))
            for column in (b.index(1), b.binary("mod", picked, b.index(3))):
                total = b.binary("add", total, b.load(rows, [i, column]))
                total = b.binary("sub", total, b.load(rows, [column, b.index(2)]))
            return total

        b.store(out, [i, b.index(0)], loads(b))
        is_odd = b.compare("eq", b.binary("mod", b.load(n, [i]), b.index(2)), b.index(1))

        def then(b: Builder) -> list[Value]:
            b.store(out, [i, b.index(1)], loads(b))
            return [b.load(x, [i])]

        (kept,) = if_(b, is_odd, then, lambda b: [b.load(rows, [i, b.index(0)])])
        b.store(out, [i, b.index(2)], kept)

    data = {
        "x": floats(),
        "n": integers(0, SIZE),
        "rows": floats(3 * SIZE).reshape(SIZE, 3),
        "out": np.zeros((SIZE, 3), np.float32),
    }
    check(module([x, n, rows, out], body), data)


def test_lanes_that_are_not_active_touch_nothing() -> None:
    """Indices far out of bounds, divisors of zero, in lanes that do not come there."""
    x, n, out = ndarray("x", f32), ndarray("n", i32), ndarray("out", i32)

    def body(b: Builder, i: Value) -> None:
        index = b.load(n, [i])
        inside = b.binary(
            "and", b.compare("ge", index, b.index(0)), b.compare("lt", index, b.index(SIZE))
        )

        def then(b: Builder) -> list[Value]:
            b.store(x, [index], b.binary("add", b.load(x, [index]), b.constant(1.0, f32)))
            return [b.binary("floordiv", i, index)]

        (quotient,) = if_(b, inside, then, lambda b: [b.index(-1)])
        b.store(out, [i], quotient)

    n_data = np.random.default_rng(0).permutation(SIZE).astype(np.int32)
    n_data[::3] = 1 << 30
    n_data[1::7] = -(1 << 30)
    data = {"x": floats(), "n": n_data, "out": np.zeros(SIZE, np.int32)}
    check(module([n, x, out], body), data)


def test_stores_of_one_place() -> None:
    """Of several work items that store at one place the last one's value stays."""
    x, out, n = ndarray("x", f32), ndarray("out", f32), ndarray("n", i32)

    def body(b: Builder, i: Value) -> None:
        b.store(out, [b.index(0)], b.load(x, [i]))
        is_small = b.compare("lt", b.load(n, [i]), b.index(3))

        def then(b: Builder) -> Sequence[Value]:
            b.store(out, [b.index(1)], b.load(x, [i]))
            return ()

        if_(b, is_small, then)
        b.store(out, [b.binary("add", b.load(n, [i]), b.index(2))], b.load(x, [i]))

    data = {"x": floats(), "out": np.zeros(16, np.float32), "n": integers(0, 9)}
    kernel = module([x, out, n], body)
    one, lanes = both(kernel, data)
    np.testing.assert_array_equal(one["out"], lanes["out"])


@pytest.mark.parametrize("dtype", [f16, f32, f64, i32, i64, u1], ids=str)
@pytest.mark.parametrize("fn", ["add", "min", "max", "mul", "exchange"])
def test_atomics(dtype: DType, fn: str) -> None:
    """At places that lanes share: integers and extremes are exact, in whatever order."""
    x, n = ndarray("x", dtype), ndarray("n", i32)
    one, some, own = (ndarray(name, dtype) for name in ("one", "some", "own"))

    def body(b: Builder, i: Value) -> None:
        value = b.load(x, [i])
        if fn != "exchange":
            b.atomic(fn, one, [b.index(0)], value)
        b.store(own, [i], b.atomic(fn, some, [b.load(n, [i])], value))
        is_small = b.compare("lt", b.load(n, [i]), b.index(3))

        def then(b: Builder) -> Sequence[Value]:
            b.atomic(fn, some, [b.index(9)], value)
            return ()

        if_(b, is_small, then)

    small = np.random.default_rng(3).integers(0, 2, SIZE).astype(dtype.numpy)
    data: Data = {"x": small, "n": integers(0, 9), "own": np.zeros(SIZE, dtype.numpy)}
    data |= {name: np.ones(10, dtype.numpy) for name in ("one", "some")}
    check(module([x, n, one, some, own], body, in_lanes=True), data)


@pytest.mark.parametrize("dtype", [f32, f64, i32, u1], ids=str)
def test_compare_exchange(dtype: DType) -> None:
    x, n, old = ndarray("x", dtype), ndarray("n", i32), ndarray("old", dtype)

    def body(b: Builder, i: Value) -> None:
        expected, value = b.constant(scalars.convert(1, dtype), dtype), b.cast(i, dtype)
        place = [b.load(n, [i])]
        op = ops.CompareExchange(x, PRIMAL, expected, value, place, results=[Value(dtype)])
        b.store(old, [i], b.append(op).result)

    data = {
        "x": np.ones(10, dtype.numpy),
        "n": integers(0, 9),
        "old": np.zeros(SIZE, dtype.numpy),
    }
    check(module([n, x, old], body, in_lanes=True), data)


# -- control --------------------------------------------------------------------------------------


def test_ragged_loops() -> None:
    """Bounds that vary: what a lane has when it leaves stays, also of what all lanes share."""
    n, out, last = ndarray("n", i32), ndarray("out", f32), ndarray("last", i32)

    def body(b: Builder, i: Value) -> None:
        def inner(b: Builder, k: Value, carried: list[Value]) -> list[Value]:
            total, count = carried
            total = b.binary("add", total, b.unary("sin", b.cast(k, f32)))
            return [total, b.binary("add", count, b.index(2))]

        lower = b.binary("mod", i, b.index(3))
        for start, target in ((b.index(0), out), (lower, out)):
            inits = [b.load(target, [i]), b.index(7)]
            total, count = for_(b, start, b.load(n, [i]), inits, inner)
            b.store(target, [i], total)
            b.store(last, [i], b.binary("add", count, b.load(last, [i])))

    data = {"n": integers(-2, 9), "out": floats(), "last": integers(0, 9)}
    check(module([n, out, last], body), data)


def test_what_turns_out_to_be_shared() -> None:
    """Indices that differ in form but not in value: one place, and loops that do not part."""
    x, n, out = ndarray("x", f32), ndarray("n", i32), ndarray("out", f32)

    def body(b: Builder, i: Value) -> None:
        ops_of_i = [b.binary("sub", i, b.cast(b.cast(i, i64), i32)) for _ in range(2)]
        zero = ops_of_i[0]
        upper = b.load(n, [b.binary("mul", i, zero)])
        lower = b.load(n, [b.binary("add", zero, b.index(1))])
        place = b.binary("sub", b.binary("add", i, b.index(2)), i)

        def turn(b: Builder, k: Value, carried: list[Value]) -> list[Value]:
            return [b.binary("add", carried[0], b.load(x, [k]))]

        bounds = ((b.index(0), upper), (lower, upper), (lower, b.load(n, [i])))
        total = b.load(x, [place])
        for start, stop in bounds:
            (total,) = for_(b, start, stop, [total], turn)
        is_large = b.compare("gt", b.load(n, [place]), b.index(3))
        (total,) = if_(b, is_large, lambda _: [total], lambda b: [b.load(x, [i])])
        b.store(out, [i], total)

    counts = integers(2, 9)
    counts[:2] = 7, 2
    check(module([x, n, out], body), {"x": floats(), "n": counts, "out": floats()})


def test_while() -> None:
    """A condition that varies; a counter that all lanes share until they leave."""
    x, count = ndarray("x", f32), ndarray("count", i32)

    def body(b: Builder, i: Value) -> None:
        def condition(b: Builder, carried: list[Value]) -> Value:
            small = b.compare("lt", carried[0], b.constant(40.0, f32))
            return b.binary("and", small, b.compare("lt", carried[1], b.index(12)))

        def turn(b: Builder, carried: list[Value]) -> list[Value]:
            value, k = carried
            grown = b.binary("mul", value, b.constant(1.5, f32))
            is_even = b.compare("eq", b.binary("mod", k, b.index(2)), b.index(0))
            grown = if_(
                b,
                is_even,
                lambda b: [b.unary("sqrt", b.unary("abs", grown))],
                lambda _: [grown],
            )[0]
            return [grown, b.binary("add", k, b.index(1))]

        value, k = while_(b, [b.load(x, [i]), b.index(0)], condition, turn)
        b.store(x, [i], value)
        b.store(count, [i], k)

    data = {"x": floats() * 20, "count": np.zeros(SIZE, np.int32)}
    check(module([x, count], body), data)


@pytest.mark.parametrize("index_type", [i32, i64], ids=str)
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 64, 1000])
def test_numbers_of_items(index_type: DType, count: int) -> None:
    x = ndarray("x", f32)

    def body(b: Builder, i: Value) -> None:
        b.store(x, [i], b.binary("add", b.load(x, [i]), b.cast(i, f32)))

    check(module([x], body, index_type), {"x": floats(count)})


# -- whole kernels --------------------------------------------------------------------------------


def _random_data(kernel: Module, rows: int) -> Data:
    random = np.random.default_rng(4)
    shapes = {"p": (random_ir.COLUMNS,), "total": (), "t": (), "z": (rows, 20)}
    data: Data = {}
    for array in kernel.arrays:
        for companion in array.layouts:
            shape = shapes.get(array.name, (rows, random_ir.COLUMNS))
            values = random.uniform(-1, 1, shape) if array.dtype.is_float else np.zeros(shape)
            if array.space is Space.TEMPORARY:
                values = np.zeros(shape)
            data[array.name, companion] = np.asarray(values, array.dtype.numpy)
    return data


@pytest.mark.parametrize("seed", seeds(4, 8))
@pytest.mark.parametrize("is_reversed", [False, True])
def test_random_modules(seed: int, is_reversed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums over all work items are rounded in another order; all else is the same."""
    monkeypatch.setattr(random_ir, "ROWS", SIZE)
    kernel = random_ir.Generator(seed).module()
    if is_reversed:
        kernel = differentiate(kernel).module
    one, lanes = both(kernel, _random_data(kernel, SIZE))
    for key in one:
        np.testing.assert_allclose(lanes[key], one[key], rtol=1e-9, atol=1e-11)


def test_records_of_ragged_loops_are_read_together() -> None:
    """Lanes with fewer turns join in later, so that all are at the same record."""
    both_companions = (PRIMAL, Companion.ADJOINT)
    x = ndarray("x", f32, companions=both_companions)
    n = ndarray("n", i32)

    def body(b: Builder, i: Value) -> None:
        def turn(b: Builder, k: Value, carried: list[Value]) -> list[Value]:
            def inner(b: Builder, _: Value, values: list[Value]) -> list[Value]:
                return [b.unary("sin", values[0])]

            return for_(b, b.index(0), k, [b.unary("sin", carried[0])], inner)

        (value,) = for_(b, b.index(0), b.load(n, [i]), [b.load(x, [i])], turn)
        b.store(x, [i], value)

    kernel = differentiate(module([x, n], body)).module
    adjoint = floats(seed=1)
    data: Data = {"n": integers(-2, 9), "x": floats(), ("x", Companion.ADJOINT): adjoint}
    check(kernel, data)
    text = cpu.llvm_text(kernel, TARGET, simd=ALWAYS)
    assert "llvm.masked.gather" not in text
    assert "llvm.masked.scatter" not in text


AVX512 = Target("cpu", AVX2.triple, "skylake-avx512", f"{AVX2.features},+avx512f,+avx512vl")


def test_lanes_without_a_work_item_load_what_the_first_one_does() -> None:
    """Their own addresses are 100 MB behind the array: nothing may be loaded from there."""
    far, count = 2_000_000, 3
    y, x = ndarray("y", f32), ndarray("x", f32)

    def body(b: Builder, i: Value) -> None:
        at = b.binary("mul", i, b.constant(far, i32))
        b.store(y, [i], b.binary("add", b.load(x, [at]), b.load(y, [i])))

    kernel = module([y, x], body, in_lanes=True)
    values = np.zeros(count * far, np.float32)
    values[::far] = 1, 2, 3
    check(kernel, {"y": floats()[:count], "x": values})
    for target in (AVX2, ARM, AVX512):
        text = cpu.llvm_text(kernel, target, simd=ALWAYS)
        gathers = [line for line in text.splitlines() if "call" in line and "gather" in line]
        masked = [line for line in gathers if "splat (i1 true)" not in line]
        assert gathers and bool(masked) == (target is AVX512)


def test_facts() -> None:
    """What varies, and what diverges."""
    x, n = ndarray("x", f32), ndarray("n", i32)
    seen: dict[str, Value] = {}

    def body(b: Builder, i: Value) -> None:
        seen["shared"] = b.load(x, [b.index(3)])
        seen["own"] = b.load(x, [i])

        def turn(b: Builder, k: Value, carried: list[Value]) -> list[Value]:
            seen["counter"], seen["carried"] = k, carried[0]
            seen["element"] = b.load(x, [k])
            return [b.binary("add", carried[0], b.index(1))]

        (seen["left"],) = for_(b, b.index(0), b.load(n, [i]), [b.index(0)], turn)
        b.store(n, [i], seen["left"])

    block = module([x, n], body).tasks[0].body
    facts = Uniformity(block)
    varying = {name for name, value in seen.items() if facts.varies(value)}
    assert varying == {"own", "left"}
    assert [type(op) for op in block.walk() if facts.diverges(op)] == [ops.For]


def test_records_of_what_all_lanes_share() -> None:
    """Popped values are uniform if they were, and if all lanes pushed them together."""
    x, n, out = ndarray("x", f32), ndarray("n", i32), ndarray("out", f32)
    seen: dict[str, list[Value]] = {}

    def body(b: Builder, i: Value) -> None:
        zero = b.offset(0)
        counts = {"together": b.index(3), "apart": b.load(n, [i])}
        for name, count in counts.items():
            record = Record(name, [i32, f32, i32])

            def write(b: Builder, k: Value, _: list[Value], record: Record = record) -> list[Value]:
                values = [b.load(n, [k]), b.load(x, [i]), k]
                b.append(ops.RecordPush(record, zero, b.cast(k, i64), values))
                return []

            def read(
                b: Builder, k: Value, sums: list[Value], record: Record = record
            ) -> list[Value]:
                results = [Value(slot) for slot in record.slots]
                b.append(ops.RecordPop(record, zero, b.cast(k, i64), results=results))
                seen[record.name] = results
                product = b.binary("mul", results[1], b.cast(results[0], f32))
                return [b.binary("add", sums[0], b.binary("add", product, b.cast(results[2], f32)))]

            for_(b, b.index(0), count, [], write)
            (total,) = for_(b, b.index(0), count, [b.constant(0.5, f32)], read)
            b.atomic("add", out, [i], total)

    kernel = module([x, n, out], body)
    facts = Uniformity(kernel.tasks[0].body)
    assert [facts.varies(value) for value in seen["together"]] == [False, True, False]
    assert [facts.varies(value) for value in seen["apart"]] == [True, True, True]
    check(kernel, {"n": integers(0, 9), "x": floats(), "out": floats(seed=1)})


# -- which, and for what --------------------------------------------------------------------------


def test_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code for machines that are not this one; one without vectors to rely on gets none."""
    monkeypatch.setattr(random_ir, "ROWS", SIZE)
    kernel = random_ir.Generator(3).module()
    verify(kernel)
    assert "<8 x " in cpu.llvm_text(kernel, AVX2, simd=ALWAYS)
    assert "<4 x " in cpu.llvm_text(kernel, ARM, simd=ALWAYS)
    assert cpu.llvm_text(kernel, PLAIN, simd=ALWAYS) == cpu.llvm_text(kernel, PLAIN)
    for target in (AVX2, ARM):
        assert cpu.assembly_text(kernel, target, simd=ALWAYS)


@pytest.mark.parametrize(("count", "lanes"), [(1, 0), (2, 0), (3, 4), (9, 16), (1000, 64)])
def test_few_items_take_few_lanes(count: int, lanes: int) -> None:
    x = ndarray("x", f32)

    def body(b: Builder, i: Value) -> None:
        def turn(b: Builder, k: Value, carried: list[Value]) -> list[Value]:
            return [b.binary("mul", carried[0], b.cast(k, f32))]

        (product,) = for_(b, b.index(0), b.index(9), [b.load(x, [i])], turn)
        b.store(x, [i], product)

    task = parallel("lanes_0", lambda b: (b.index(0), b.index(count)), body)
    avx512 = Target("cpu", "x86_64-unknown-linux-gnu", "skylake-avx512", "+avx512vl")
    assert choose(task, vectors_of(avx512, ALWAYS)).lanes == lanes
    assert choose(task, vectors_of(avx512, NEVER)).lanes == 0


def test_loops_can_say_it_themselves() -> None:
    x = ndarray("x", f32)
    kernel = module([x], lambda b, i: b.store(x, [i], b.constant(1.0, f32)))
    for says, simd, expected in ((False, ALWAYS, False), (True, NEVER, True)):
        kernel.tasks[0].options["simd"] = says
        assert is_in_lanes(kernel, simd) is expected


def test_what_has_an_order_keeps_it() -> None:
    """A loop whose results tell in which order work items came runs them in order."""
    x, n, out = ndarray("x", f32), ndarray("n", i32), ndarray("out", f32)

    def body(b: Builder, i: Value) -> None:
        b.store(out, [i], b.atomic("add", x, [b.load(n, [i])], b.constant(0.5, f32)))

    data = {"x": floats(), "n": integers(0, 9), "out": floats()}
    check(module([x, n, out], body), data, runs_in_lanes=False)


def test_what_speaks_runs_alone() -> None:
    """A loop that prints or asserts runs one work item at a time."""
    x = ndarray("x", f32)

    def body(b: Builder, i: Value) -> None:
        b.assert_("assertion", "no", b.compare("ge", i, b.index(0)), [])

    assert not is_in_lanes(module([x], body), ALWAYS)
