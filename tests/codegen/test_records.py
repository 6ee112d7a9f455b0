"""Tapes: what is pushed comes back, they grow, and memory that is refused is an error."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from octants.codegen.llvm import cpu
from octants.codegen.recording_facts import known_positions, pushes_in_reserve
from octants.diagnostics.exceptions import OctantsMemoryError
from octants.diagnostics.span import Span
from octants.ir import ops
from octants.ir.core import Module, Record, Value
from octants.runtime.cpu import CpuDevice
from octants.target import ALWAYS, NEVER
from octants.types import scalars
from octants.types.scalars import f16, f32, f64, i32, i64
from tests.codegen.compiled import Compiled, argument, for_, ndarray, parallel, while_
from tests.ir.parser import parse


def push(build: Any, record: Record, base: Value, index: Value, values: Any) -> None:
    build.append(ops.RecordPush(record, base, index, list(values)))


def pop(build: Any, record: Record, base: Value, index: Value) -> list[Value]:
    results = [Value(dtype) for dtype in record.slots]
    return build.append(ops.RecordPop(record, base, index, results=results)).results


def end(build: Any, record: Record, base: Value, count: Value) -> Value:
    return build.append(ops.RecordEnd(record, base, count, results=[Value(i64)])).result


def reversal(by_while: bool) -> Module:
    """Each item records n[i] numbers of several types, then sums them up from the last one."""
    n, out = ndarray("n", i32), ndarray("out", f64)
    slots = [f32, scalars.u8, f64, scalars.u1, f16, i32]
    record, second = Record("r", slots, Span("program.py", 7)), Record("s", [i32])
    empty = Record("none", [])

    def body(build: Any, i: Any) -> None:
        zero, count = build.index(0), build.load(n, [i])
        base = build.offset(0)

        def write(build: Any, k: Any) -> None:
            number = build.binary("add", build.cast(k, i32), i)
            low = build.binary("and", number, build.index(255))
            values = [build.cast(low if dtype is f16 else number, dtype) for dtype in slots]
            wide = k if k.type is i64 else build.cast(k, i64)
            push(build, record, base, wide, values)
            push(build, empty, base, wide, [])

        def turn(build: Any, carried: Any) -> Any:
            write(build, carried[0])
            return [build.binary("add", carried[0], build.offset(1))]

        if by_while:
            while_(
                build,
                [build.offset(0)],
                lambda b, c: b.compare("lt", b.cast(c[0], i32), count),
                turn,
            )
        else:
            for_(build, zero, count, [], lambda b, k, _: write(b, k) or [])
        middle = end(build, record, base, build.cast(count, i64))
        last = end(build, empty, middle, build.cast(count, i64))
        push(build, second, last, build.offset(0), [count])

        def read(build: Any, k: Any, carried: Any) -> Any:
            back = build.binary("sub", build.binary("sub", count, k), build.index(1))
            total = carried[0]
            for value in pop(build, record, base, build.cast(back, i64)):
                total = build.binary("add", total, build.cast(value, f64))
            return [total]

        (total,) = for_(build, zero, count, [build.constant(0.0, f64)], read)
        (kept,) = pop(build, second, middle, build.offset(0))
        build.store(out, [i], build.binary("add", total, build.cast(kept, f64)))

    task = parallel("t", lambda build: (build.index(0), build.shape(n, 0)), body)
    return Module("reversal", [n, out], tasks=[task])


def wanted(n: np.ndarray[Any, Any]) -> list[float]:
    return [
        float(sum(3 * k + 2 * (k & 255) + (k != 0) for k in range(i, i + count))) + count
        for i, count in enumerate(n.tolist())
    ]


@pytest.mark.parametrize("by_while", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_what_is_pushed_comes_back(by_while: bool, threads: int) -> None:
    device = CpuDevice(threads)
    kernel = Compiled(reversal(by_while), device)
    rng = np.random.default_rng(3)
    for bound in (1, 40, 2000):
        n = rng.integers(0, bound, 60).astype(np.int32)
        data = {"n": n, "out": np.zeros(60)}
        kernel.run(data)
        assert data["out"].tolist() == wanted(n)
    assert device.record_buffer_bytes >= 1900 * 24
    device.close()
    assert device.record_buffer_bytes == 0
    kernel.run(data)
    assert data["out"].tolist() == wanted(n)
    device.close()


def test_a_loop_reserves_once_and_its_pushes_do_not_check() -> None:
    checks = [
        cpu.llvm_text(reversal(by_while), cpu.host_target()).count("icmp ule i64")
        for by_while in (False, True)
    ]
    assert checks == [2, 2]
    text = cpu.optimised_llvm_text(reversal(False), cpu.host_target())
    assert text.count("i1 @octants.grow(") == 3  # defined, for the loop, and for the push behind it


def test_a_base_that_is_computed_from_a_position_is_not_needed() -> None:
    module = parse("""\
kernel @k
array @x: i64, 1, ndarray, () [primal]
record #r: f32
record #s: f32
serial @k_0 {
  %0: i64 = constant<0>()
  %1: i64 = load<@x, primal>(%0)
  %2: i64 = constant<3>()
  %3: f32 = constant<1.0>()
  %4: i64 = binary<sub>(%0, %2)
  %5: i64 = record_end<#r>(%1, %4)
  record_push<#r>(%5, %2, %3)
  record_push<#r>(%5, %0, %3)
  record_push<#s>(%5, %2, %3)
  %6: i64 = binary<sub>(%1, %2)
  %7: i64 = record_end<#r>(%1, %6)
  record_push<#r>(%7, %2, %3)
  yield()
}
""")
    first = next(op for op in module.walk() if isinstance(op, ops.RecordPush))
    load = next(op for op in module.walk() if isinstance(op, ops.Load))
    assert known_positions(module) == {first: load.result}


@pytest.mark.parametrize("by_while", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_memory_that_is_refused_ends_the_launch(by_while: bool, threads: int) -> None:
    device = CpuDevice(threads, record_buffer_limit=1 << 20)
    kernel = Compiled(reversal(by_while), device)
    n = np.full(40, 100, np.int32)
    n[[17, 30]] = 2_000_000
    for _, count in itertools.product(range(3), (1, 40)):
        data = {"n": n[-count:], "out": np.zeros(count)}
        if count == 1:
            kernel.run(data)
            assert data["out"].tolist() == wanted(n[-1:])
            continue
        with pytest.raises(OctantsMemoryError) as caught:
            kernel.run(data)
        text = str(caught.value)
        assert "kernel `reversal`" in text
        assert "program.py:7" in text
        if threads == 1:  # helpers share the limit, and may be refused little after one took much
            assert "work item 17;" in text
        assert data["out"][0] == wanted(n[:1])[0]
    device.close()


def test_a_tape_that_the_doubling_would_not_fit_gets_just_what_it_needs() -> None:
    device = CpuDevice(1, record_buffer_limit=1_000_000)
    kernel = Compiled(reversal(True), device, simd=NEVER)
    for count in (20_000, 39_000):  # 24 bytes each: doubling asks for more than there may be
        data = {"n": np.array([count], np.int32), "out": np.zeros(1)}
        kernel.run(data)
        assert data["out"].tolist() == wanted(data["n"])
    device.close()


def test_loops_that_do_not_begin_at_zero() -> None:
    lower, upper, out = argument("lower", i32), argument("upper", i32), ndarray("out", i32)
    record = Record("r", [i32])

    def body(build: Any, i: Any) -> None:
        low, high = build.load(lower, []), build.load(upper, [])
        base = build.offset(0)

        def write(build: Any, k: Any, _: Any) -> Any:
            place = build.binary("sub", build.cast(k, i64), build.cast(low, i64))
            push(build, record, base, place, [build.binary("mul", k, k)])
            return []

        for_(build, low, high, [], write)

        def read(build: Any, k: Any, carried: Any) -> Any:
            place = build.binary("sub", build.cast(k, i64), build.cast(low, i64))
            (value,) = pop(build, record, base, place)
            return [build.binary("add", carried[0], value)]

        (total,) = for_(build, low, high, [build.index(0)], read)
        build.store(out, [i], total)

    task = parallel("t", lambda build: (build.index(0), build.shape(out, 0)), body)
    device = CpuDevice(1, record_buffer_limit=1 << 30)
    kernel = Compiled(Module("shifted", [lower, upper, out], tasks=[task]), device)
    too_many = {"lower": np.array(-(2**31), np.int32), "upper": np.array(2**31 - 1, np.int32)}
    with pytest.raises(OctantsMemoryError):
        kernel.run(too_many | {"out": np.zeros(2, np.int32)})
    for low, high in ((-5, 9), (3, 3), (7, 2), (1000, 1300), (-70_000, -69_000)):
        data = {"lower": np.array(low, np.int32), "upper": np.array(high, np.int32)}
        data["out"] = np.zeros(2, np.int32)
        kernel.run(data)
        total = sum(k * k for k in range(low, high))
        assert data["out"].tolist() == [scalars.convert(total, i32)] * 2


@pytest.mark.parametrize("simd", [NEVER, "always"])
def test_booleans_share_bytes(simd: str) -> None:
    """An iteration records eleven bits of a number, which is put together again from them."""
    bits = 11
    slots = [*[scalars.u1] * 5, f32, *[scalars.u1] * (bits - 5)]
    record, x, out = Record("r", slots), ndarray("x", i32), ndarray("out", i32)
    offsets, stride = record.offsets()
    assert offsets == [0] * 5 + [4] + [0] * 3 + [8] * 3
    assert stride == 12

    def body(build: Any, i: Any) -> None:
        zero, number = build.index(0), build.load(x, [i])

        def write(build: Any, k: Any, _: Any) -> list[Value]:
            moved = build.binary("add", number, k)
            found = []
            for bit in range(bits):
                shifted = build.binary("shr", moved, build.index(bit))
                single = build.binary("and", shifted, build.index(1))
                found.append(build.compare("ne", single, zero))
            values = [*found[:5], build.cast(moved, f32), *found[5:]]
            push(build, record, build.offset(0), build.cast(k, i64), values)
            return []

        for_(build, zero, build.index(4), [], write)

        def read(build: Any, k: Any, carried: Any) -> list[Value]:
            popped = list(pop(build, record, build.offset(0), build.cast(k, i64)))
            total = build.cast(popped.pop(5), i32)
            for bit, value in enumerate(popped):
                weight = build.binary("shl", build.cast(value, i32), build.index(bit))
                total = build.binary("add", total, weight)
            return [build.binary("add", carried[0], total)]

        (total,) = for_(build, zero, build.index(4), [zero], read)
        build.store(out, [i], total)

    task = parallel("bits_0", lambda b: (b.index(0), b.shape(x, 0)), body)
    numbers = np.arange(2040, dtype=np.int32)
    data: dict[Any, Any] = {"x": numbers, "out": np.zeros_like(numbers)}
    Compiled(Module("bits", [x, out], tasks=[task]), simd=simd).run(data)
    assert np.array_equal(data["out"], 2 * (4 * numbers + 6))


def test_pushes_in_what_is_reserved_check_nothing() -> None:
    text = """\
kernel @k
array @x: f32, 1, ndarray, () [primal]
record #r: f32
parallel @k_0 {
  %0: i32 = constant<0>()
  %1: i32 = shape<@x, 0>()
  yield(%0, %1)
} { (%2: i32):
  %3: i64 = constant<0>()
  %4: f32 = load<@x, primal>(%2)
  %5: i64 = cast(%2)
  record_push<#r>(%3, %5, %4)
  %6: i64 = record_end<#r>(%3, %5)
  record_reserve<#r>(%6)
  for(%3, %5) { (%7: i64):
    record_push<#r>(%3, %7, %4)
    yield()
  }
  %8: f32 = record_pop<#r>(%3, %5)
  store<@x, primal>(%8, %2)
  yield()
}
"""
    module = parse(text)
    first, second = (op for op in module.walk() if isinstance(op, ops.RecordPush))
    assert pushes_in_reserve(module.tasks[0].body) == {second}
    for simd in (NEVER, ALWAYS):
        written = cpu.llvm_text(module, cpu.host_target(), simd=simd)
        functions = written.count("define internal void @octants_k_0_task_0")
        calls = written.count("call i1 @octants.grow(")
        assert calls == 2 * functions  # of the first push, and to reserve
    module.tasks[0].body.ops.remove(first)
    assert cpu.llvm_text(module, cpu.host_target()).count("call i1 @octants.grow(") == 1
