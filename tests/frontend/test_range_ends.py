"""``range(a, b, c)`` near the ends of its type has as many iterations as Python's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver
from octants.types.scalars import DType, convert, i64, integer_range
from tests.codegen.on_emulated_gpu import emulated_gpu
from tests.devices import ON_GPU, on_cpu

_FEW = 40
"""Iterations: longer ranges are left out."""


@pytest.fixture(params=["lanes", "one by one", "interpreter", "gpu"] if not ON_GPU else ["arch"])
def arch(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "gpu":
        with emulated_gpu():
            qd.init(arch=qd.cuda, default_fp=qd.f64, log_level="error")
            yield
        return
    chosen = qd.python if request.param == "interpreter" else qd.cpu
    simd = "always" if request.param == "lanes" else "never"
    qd.init(arch=chosen, simd=simd, default_fp=qd.f64, log_level="error")
    yield
    qd.reset()


def _ends(dtype: DType) -> list[tuple[int, int, int]]:
    """Bounds and steps of which some are as far from each other as they can be."""
    low, high = integer_range(dtype)
    points = [low, low + 3, -1, 0, 2, high - 2, high]
    steps = [1, -1, 2, -2, 3, high, low, high // 2, -(high // 3), high // 9 * 2]
    triples = [(a, b, c) for a in points for b in points for c in steps]
    return [(a, b, c) for a, b, c in triples if 0 < (b - a) // c <= _FEW or (b - a) * c <= 0]


def _want(bounds: tuple[int, int, int]) -> tuple[int, int]:
    found = list(range(*bounds))
    return len(found), convert(sum(k * value for k, value in enumerate(found, 1)), i64)


def _kernels(dtype: Any, step: int | None) -> list[Callable[..., Any]]:
    """A loop over a range with a step that is known or not: serial, left early, and parallel.

    The parallel one counts its work items, and sums up what is as far as they are in order.
    """
    count, total = qd.field(qd.i64, ()), qd.field(qd.i64, ())

    @qd.kernel
    def serial(a: dtype, b: dtype, c: dtype):
        for _ in range(1):
            number = qd.i64(0)
            for i in range(a, b, c if qd.static(step is None) else qd.static(step)):
                number += 1
                total[None] += number * i
            count[None] += number

    @qd.kernel
    def left(a: dtype, b: dtype, c: dtype):
        for _ in range(1):
            for i in range(a, b, c if qd.static(step is None) else qd.static(step)):
                if count[None] >= 2 * _FEW:
                    break
                count[None] += 1
                total[None] += count[None] * i

    @qd.kernel
    def parallel(a: dtype, b: dtype, c: dtype):
        for i in range(a, b, c if qd.static(step is None) else qd.static(step)):
            number = (
                (qd.u64(i) - qd.u64(a)) // qd.u64(c)
                if c > 0
                else (qd.u64(a) - qd.u64(i)) // qd.u64(-qd.i64(c))
            )
            count[None] += 1
            total[None] += (qd.i64(number) + 1) * i

    def run(kernel: Any) -> Callable[..., tuple[int, int]]:
        def launch(*bounds: int) -> tuple[int, int]:
            count.fill(0)
            total.fill(0)
            kernel(*bounds)
            return count[None], total[None]

        return launch

    return [run(kernel) for kernel in (serial, left, parallel)]


@pytest.mark.usefixtures("arch")
@pytest.mark.parametrize("dtype", [qd.i32, qd.i64])
def test_as_many_iterations_as_pythons_range(dtype: Any) -> None:
    steps = (None, -1, 2, -(integer_range(dtype)[1] // 3))
    made = {step: _kernels(dtype, step) for step in steps}
    rng = np.random.default_rng(0)
    cases = _ends(dtype)
    for number in rng.choice(len(cases), 60, replace=False):
        bounds = cases[number]
        for kernel in (*made[None], *made.get(bounds[2], ())):
            assert kernel(*bounds) == _want(bounds), bounds


@pytest.mark.usefixtures("arch")
@pytest.mark.parametrize("dtype", [qd.i32, qd.i64])
def test_reversed_ranges(dtype: Any) -> None:
    found = qd.field(qd.i64, _FEW + 1)
    low, high = integer_range(dtype)

    @qd.kernel
    def note(a: dtype, b: dtype, step: qd.template(), times: qd.template()) -> qd.i32:
        count = 0
        for _ in range(1):
            for i in reversed(range(a, b, step)):
                if i == 77:
                    continue
                found[count] = i
                count += 1
            if times == 2:
                for i in reversed(reversed(range(a, b, step))):
                    if i > a:
                        break
                    found[count] = i
                    count += 1
        return count

    cases = [(0, 5, 1), (low, low + 3, 1), (high - 2, high, 1), (5, 0, 1), (high, low, 1)]
    cases += [(9, 2, -3), (low + 5, low, -2), (0, high, high // 3), (70, 80, 1)]
    for a, b, step in cases:
        want = [i for i in reversed(range(a, b, step)) if i != 77]
        count = note(a, b, step, 1)
        assert found.to_numpy()[:count].tolist() == want, (a, b, step)
    assert note(3, 6, 1, 2) == 4
    assert found.to_numpy()[:4].tolist() == [5, 4, 3, 3]


@pytest.mark.usefixtures("arch")
def test_loops_over_known_reversed_ranges_are_not_unrolled() -> None:
    found = qd.field(qd.i32, 3000)

    @qd.kernel
    def parallel():
        for i in reversed(range(1000, 3000)):
            found[i] = i

    @qd.kernel
    def static() -> qd.i32:
        total = 0
        for i in reversed(qd.static(range(3))):
            total = total * 10 + [4, 5, 6][i]
        for i in qd.static(reversed(range(3))):
            total = total * 10 + [4, 5, 6][i]
        return total

    parallel()
    assert (found.to_numpy()[1000:] == range(1000, 3000)).all()
    assert not found.to_numpy()[:1000].any()
    assert static() == 654654


@pytest.mark.usefixtures("arch")
def test_known_bounds() -> None:
    count = qd.field(qd.i64, ())

    @qd.kernel
    def parallel():
        for _ in range(-1500000000, 1500000000, 300000000):
            count[None] += 1

    @qd.kernel
    def serial():
        for _ in range(1):
            for _ in range(2147483647, -2147483648, -858993459):
                count[None] += 100

    parallel()
    serial()
    assert count[None] == 510


@pytest.mark.usefixtures("arch")
def test_sums_over_more_than_an_i32_can_count() -> None:
    """What a loop adds in each iteration is computed from the number of iterations."""

    @qd.kernel
    def count(a: qd.i32, b: qd.i32) -> qd.i64:
        total = qd.i64(0)
        qd.loop_config(serialize=True)
        for _ in range(a, b):
            total += 3
        return total

    if qd.cfg.arch is not qd.python:
        assert count(-1500000000, 1500000000) == 9000000000
    assert count(7, -5) == 0


@pytest.mark.usefixtures("arch")
def test_ndrange_whose_extents_pass_the_end() -> None:
    count = qd.field(qd.i32, ())

    @qd.kernel
    def none(low: qd.i32, high: qd.i32):
        for _, _ in qd.ndrange((low, high), 2):
            count[None] += 1

    none(5, -2147483648)
    none(2147483647, -3)
    assert count[None] == 0
    none(2147483645, 2147483647)
    assert count[None] == 4


@pytest.mark.usefixtures("arch")
@pytest.mark.parametrize("step", [900000000, -900000000, -2147483648])
def test_gradients_through_wide_ranges(step: int) -> None:
    x = qd.field(qd.f64, 4, needs_grad=True)
    y = qd.field(qd.f64, 4, needs_grad=True)

    @qd.kernel
    def run(a: qd.i32, b: qd.i32, c: qd.i32):
        for i in x:
            v = x[i]
            for k in range(a, b, c):
                v = v * v * (1.0 + qd.f64(k) * 1e-11)
            for k in range(a, b, qd.static(step)):
                v = v * v * (1.0 + qd.f64(k) * 1e-11)
            y[i] = v

    ends = (-2147483648, 2147483647)[:: 1 if step > 0 else -1]
    x.from_numpy(np.array([0.9, 1.0, 1.05, -0.95]))
    run(*ends, step)
    y.grad.fill(1.0)
    run.grad(*ends, step)
    value, slope = x.to_numpy(), np.ones(4)
    for k in [*range(*ends, step)] * 2:
        factor = 1.0 + k * 1e-11
        value, slope = value * value * factor, slope * 2 * value * factor
    np.testing.assert_allclose(y.to_numpy(), value, rtol=1e-12)
    np.testing.assert_allclose(x.grad.to_numpy(), slope, rtol=1e-12)


@on_cpu
def test_loops_beyond_2_63_iterations_begin() -> None:
    """They never end, unless an assertion ends them."""
    qd.init(arch=qd.cpu, debug=True, log_level="error")
    count = qd.field(qd.i64, ())

    @qd.kernel
    def narrow(n: qd.i32, m: qd.i32, k: qd.i32):
        for _ in qd.grouped(qd.ndrange(n, m, k)):
            count[None] += 1
            assert count[None] < 3

    @qd.kernel
    def wide(low: qd.i64, high: qd.i64, m: qd.i64):
        for _ in qd.grouped(qd.ndrange((low, high), m)):
            count[None] += 1
            assert count[None] < 3

    @qd.kernel
    def known():
        for _ in qd.grouped(qd.ndrange(1 << 22, 1 << 22, 1 << 22)):
            count[None] += 1
            assert count[None] < 3

    @qd.kernel
    def unsigned(high: qd.u64):
        for _ in range(high):
            count[None] += 1
            assert count[None] < 3

    last = 2**63 - 1
    launches = [
        *((narrow, (1 << a, 1 << b, 1 << 22)) for a, b in [(19, 22), (20, 21), (22, 22), (30, 30)]),
        *((wide, (0, 1 << a, 1 << b)) for a, b in [(31, 32), (32, 32), (62, 1), (60, 60)]),
        *((wide, (low, last, 1)) for low in (0, -1, -last - 1)),
        (known, ()),
        *((unsigned, (high,)) for high in (2**63, 2**64 - 1)),
    ]
    for kernel, arguments in launches:
        count.fill(0)
        with pytest.raises(qd.OctantsAssertionError):
            kernel(*arguments)
    for arguments in [(1 << 30, 1 << 30, 0), (0, 1 << 30, 1 << 30), (1 << 30, -1, 1 << 30)]:
        narrow(*arguments)
    wide(last, -last, last)


@pytest.mark.usefixtures("arch")
def test_ndrange_of_three_run_time_extents_needs_no_atomics() -> None:
    """The number of work items is known to be a product, although one that cannot wrap."""
    x = qd.ndarray(qd.f64, (2, 3, 4))

    @qd.kernel
    def add(n: qd.i32, m: qd.i32, k: qd.i32, x: qd.types.ndarray()):
        for i, j, l in qd.ndrange(n, m, k):
            x[i, j, l] += i + 0.1 * j + 0.01 * l

    assert "atomic" not in add.inspect(2, 3, 4, x).stages["finish"]
    add(2, 3, 4, x)
    i, j, k = np.indices((2, 3, 4))
    np.testing.assert_allclose(x.to_numpy(), i + 0.1 * j + 0.01 * k)


@pytest.mark.usefixtures("arch")
@pytest.mark.parametrize("dtype", [qd.i64, qd.u32, qd.u64], ids=str)
def test_constants_of_a_wide_type_make_wide_counters(dtype: Any) -> None:
    x = qd.field(qd.i64, 9)

    @qd.kernel
    def fill():
        for i in range(dtype(5), 6):
            x[0] = i << 40
        for i in range(dtype(6)):
            qd.atomic_max(x[1], i << 40)
        for i in range(3, 6, dtype(2)):
            qd.atomic_max(x[2], i << 40)
        for i in qd.ndrange((dtype(5), 6)):
            x[3] = i << 40
        for i, _ in qd.ndrange((5, dtype(6)), 1):
            x[4] = i << 40
        last = dtype(6)
        for _ in range(1):
            for i in range(5, last):
                x[5] = i << 40
            for i in reversed(range(last)):
                x[6] = (i + 5) << 40
            squares = [k * k for k in range(dtype(3))]
            x[7] = squares[2]
            for k in qd.static(range(dtype(3))):
                x[8] += k

    fill()
    assert x.to_numpy().tolist() == [5 << 40] * 7 + [4, 3]


@pytest.mark.usefixtures("arch")
@pytest.mark.parametrize("low", [-(2**31) - 2, -7, 0, 5, 2**32 - 3])
def test_draws_do_not_depend_on_whether_bounds_are_constants(low: int) -> None:
    x = qd.field(qd.f64, 6)

    @qd.kernel
    def known():
        for i in range(qd.i64(low), low + 6):
            x[i - low] = qd.random(qd.f64)

    @qd.kernel
    def passed(first: qd.i64):
        for i in range(first, first + 6):
            x[i - first] = qd.random(qd.f64)

    found = []
    for kernel, arguments in ((known, ()), (passed, (low,))):
        driver.state.numbers = itertools.count(1)
        kernel(*arguments)
        found.append(x.to_numpy())
    assert (found[0] == found[1]).all()
    assert len(set(found[0])) == 6


def test_a_step_of_zero() -> None:
    """Python raises an error, as debug mode does; without it there is no iteration."""

    @qd.kernel
    def count(step: qd.i32) -> qd.i32:
        found = 0
        for _ in range(2):
            for _ in range(0, 5, step):
                found += 1
        return found

    @qd.kernel
    def at_compile_time() -> qd.i32:
        found = 0
        for _ in range(0, 5, 0):
            found += 1
        return found

    qd.init(arch=qd.cpu, log_level="error")
    assert (count(2), count(0)) == (6, 0)
    with pytest.raises(qd.OctantsTypeError, match="must not be zero"):
        at_compile_time()
    qd.init(arch=qd.cpu, debug=True, log_level="error")
    assert (count(2), count(-1)) == (6, 0)
    with pytest.raises(qd.OctantsAssertionError, match="the step of `range` is 0"):
        count(0)
