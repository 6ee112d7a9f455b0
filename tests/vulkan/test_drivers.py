"""What a driver of Mesa has got wrong: comparisons of widened numbers with constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.ir import scalar_semantics
from octants.ir.core import Module
from octants.ir.ops.arithmetic import COMPARE
from octants.types.scalars import (
    DType,
    convert,
    i8,
    i16,
    i32,
    i64,
    integer_range,
    u1,
    u8,
    u16,
    u32,
    u64,
)
from tests.codegen.compiled import ndarray, parallel
from tests.vulkan import compiled

PAIRS = [
    (i32, i64),
    (u32, u64),
    (u32, i64),
    (i8, i32),
    (u8, i32),
    (i16, i64),
    (u16, u32),
    (i8, i64),
]


@pytest.mark.parametrize(("narrow", "wide"), PAIRS, ids=str)
def test_widened_numbers_against_constants(narrow: DType, wide: DType) -> None:
    low, high = integer_range(narrow)
    near = [low, low + 1, -2, -1, 0, 1, 8, 9, 10, high - 1, high]
    numbers = sorted({convert(x, narrow) for x in near})
    constants = sorted({convert(x, wide) for x in [*near, low - 1, high + 1, 1 << 40]})
    cases = [(fn, c, turned) for fn in sorted(COMPARE) for c in constants for turned in (0, 1)]
    a, out = ndarray("a", narrow), ndarray("out", u1, 2)

    def body(build: Any, i: Any) -> None:
        x = build.cast(build.load(a, [i]), wide)
        for k, (fn, c, turned) in enumerate(cases):
            y = build.constant(c, wide)
            result = build.compare(fn, y, x) if turned else build.compare(fn, x, y)
            build.store(out, [i, build.index(k)], result)

    task = parallel("t", lambda build: (build.index(0), build.shape(a, 0)), body)
    found = np.zeros((len(numbers), len(cases)), np.bool_)
    data = {"a": np.array(numbers, narrow.numpy), "out": found}
    compiled.OnVulkan(Module("compare", [a, out], tasks=[task])).run(data)
    wrong = []
    for i, x in enumerate(numbers):
        for k, (fn, c, turned) in enumerate(cases):
            pair = (c, x) if turned else (x, c)
            if found[i, k] != scalar_semantics.evaluate(fn, wide, *pair):
                wrong.append(f"{pair[0]} {fn} {pair[1]}")
    assert not wrong


def _left_early(n: Any, steps: int) -> tuple[Any, ...]:
    """What the kernel below computes for an item, in Python."""
    flag, odd, last, total, w, done, k = True, False, -1, 0, 0, False, 0
    while k < steps and not done:
        flag, odd, last = not flag, k % 3 == 1, k * n
        total += k if flag else 2
        done = k * k >= n
        k += 1
    seen, was = False, False
    for j in range(n % 7):
        was, seen = seen, (j + n) % 5 == 2
        w += 1 + seen
    return flag, odd, last, total, done, k, seen, was, w


def test_what_loops_carry_is_right_in_lanes_that_left_early() -> None:
    """Behind a loop with one test at its end, Mesa's driver takes values of later iterations."""
    qd.init(arch=qd.vulkan, offline_cache=False, log_level="error")
    count, steps = 300, 40
    out = qd.field(qd.i32, (count, 9))

    @qd.kernel
    def loops():
        for n in range(count):
            flag, odd, last, total, w, done, k = True, False, -1, 0, 0, False, 0
            while k < steps and not done:
                flag = not flag
                odd = k % 3 == 1
                last = k * n
                total += k if flag else 2
                done = k * k >= n
                k += 1
            seen = False
            was = False
            for j in range(n % 7):
                was = seen
                seen = (j + n) % 5 == 2
                w += 1 + seen
            for c, number in qd.static(enumerate((flag, odd, last, total, done, k, seen, was, w))):
                out[n, c] = number

    loops()
    assert out.to_numpy().tolist() == [
        [int(number) for number in _left_early(n, steps)] for n in range(count)
    ]


def test_the_gradient_of_a_nest_in_place() -> None:
    """It was wrong where loops had a test at both ends."""
    n, items = 3, 4
    gradients = []
    for arch in (qd.cpu, qd.vulkan):
        qd.init(arch=arch, default_fp=qd.f64, offline_cache=False, log_level="error")
        m = qd.field(qd.f64, (n, n, items), needs_grad=True)
        start = qd.field(qd.f64, (n, n, items), needs_grad=True)
        out = qd.field(qd.f64, (n, items), needs_grad=True)

        @qd.kernel
        def nest(m: qd.template(), out: qd.template()):
            for b in range(items):
                for i in range(n):
                    for j in range(i + 1):
                        t = m[i, j, b]
                        for k in range(j):
                            t -= m[i, k, b] * m[j, k, b]
                        m[i, j, b] = t
                for i in range(n):
                    out[i, b] = m[i, i, b]

        rng = np.random.default_rng(0)
        start.from_numpy(rng.normal(size=(n, n, items)))
        with qd.ad.Tape(out, seed=rng.normal(size=(n, items))):
            m.copy_from(start)
            nest(m, out)
        gradients.append(start.grad.to_numpy())
    np.testing.assert_allclose(*gradients, rtol=1e-12, atol=1e-13)


def test_serial_loops_whose_inner_loops_read_what_they_write() -> None:
    """In a block of one thread, inner loops ended at once in all but the first iteration."""
    qd.init(arch=qd.vulkan, offline_cache=False, log_level="error")
    reached, following = qd.field(qd.i32, 8), qd.field(qd.i32, 64)

    @qd.kernel
    def run(n: qd.i32):
        qd.loop_config(serialize=True)
        for i in range(n):
            while reached[i] < 5 + i:
                reached[i] += 1
        qd.loop_config(serialize=True)
        for i in range(n):
            k = i
            while k < 40:
                if following[k] == 0:
                    following[k] = k + 7
                k = following[k]

    run(6)
    assert reached.to_numpy().tolist() == [5, 6, 7, 8, 9, 10, 0, 0]
    visited = [k for k in range(40) if k % 7 < 6]
    assert following.to_numpy().tolist() == [k + 7 if k in visited else 0 for k in range(64)]
