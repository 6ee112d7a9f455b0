"""What loops record, and gradients of long loops within a budget."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.ad.record_buffers import check_gradient, iteration_bytes, record_buffer_bytes
from tests.devices import ON_GPU, beyond_llvmpipe, on_cpu


def start(budget: int = 0, **others: Any) -> None:
    qd.init(
        simd=False,  # bytes are those of one work item
        arch=qd.cpu,
        cpu_max_num_threads=1,
        log_level="error",
        ad_stack_budget_bytes=budget,
        **{"default_fp": qd.f64, **others},
    )


# -- what an iteration takes ----------------------------------------------------------------------


def test_a_double_pendulum_takes_sixteen_bytes() -> None:
    start(default_fp=qd.f32)
    x = qd.field(qd.f32, shape=4, needs_grad=True)
    y = qd.field(qd.f32, shape=(), needs_grad=True)

    @qd.kernel
    def pendulum(n: qd.i32):
        for _ in range(1):
            a, b, p, q = x[0], x[1], x[2], x[3]
            for _ in range(n):
                c, s = qd.cos(a - b), qd.sin(a - b)
                d = 2.0 - c * c
                p_rate = (-2.0 * qd.sin(a) - s * (q * q + p * p * c) + c * qd.sin(b)) / d
                q_rate = (
                    2.0 * s * p * p - 2.0 * qd.sin(b) + 2.0 * c * qd.sin(a) + s * q * q * c
                ) / d
                a += 0.01 * p
                b += 0.01 * q
                p += 0.01 * p_rate
                q += 0.01 * q_rate
            y[None] += a + b + p + q

    assert iteration_bytes(pendulum, 5) == [16]
    pendulum(7)
    assert record_buffer_bytes(lambda: pendulum.grad(7)) == 7 * 16


def test_a_rotation_and_its_velocity_take_forty_eight_bytes() -> None:
    start(default_fp=qd.f32)
    w0 = qd.field(qd.f32, shape=3, needs_grad=True)
    y = qd.field(qd.f32, shape=(), needs_grad=True)

    @qd.kernel
    def rotate(n: qd.i32):
        for _ in range(1):
            w = qd.Vector([w0[0], w0[1], w0[2]])
            r = qd.Matrix([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
            for _ in range(n):
                u = qd.Matrix([[0.0, -w[2], w[1]], [w[2], 0.0, -w[0]], [-w[1], w[0], 0.0]])
                torque = qd.Vector([r[0, 1] * r[2, 1], r[1, 1] * r[0, 2], r[2, 0] * r[1, 0]])
                inertia = qd.Vector([w[1] * w[2], -w[2] * w[0], 0.3 * w[0] * w[1]])
                r = r + 0.01 * r @ u
                w = w + 0.01 * (inertia + torque)
            y[None] += r[0, 0] + r[1, 2] + w[0]

    assert iteration_bytes(rotate, 5) == [48]
    rotate(9)
    assert record_buffer_bytes(lambda: rotate.grad(9)) == 9 * 48


def test_sums_and_linear_recurrences_take_nothing() -> None:
    start()
    x = qd.field(qd.f64, shape=8, needs_grad=True)
    y = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def accumulate(n: qd.i32):
        for i in range(2):
            total, weight = 0.0, 0.0
            for k in range(n):
                total += qd.sin(x[k % 8]) * k
                weight += 2.0 * total
            y[None] += total * i + weight

    @qd.kernel
    def recur(n: qd.i32):
        for i in range(2):
            position, velocity = x[i], x[i + 2]
            for _ in range(n):
                velocity = 0.99 * velocity - 0.1 * position + 0.5
                position = position + 0.1 * velocity
            y[None] += position * velocity

    x.from_numpy(np.linspace(0.2, 0.8, 8))
    for kernel in (accumulate, recur):
        assert iteration_bytes(kernel, 5) == []
        kernel(500)
        y.grad[None] = 1.0
        assert record_buffer_bytes(lambda kernel=kernel: kernel.grad(500)) == 0
        check_gradient(lambda k=kernel: k(30), lambda k=kernel: k.grad(30), x, y)


def test_integers_that_are_affine_in_the_iteration_take_nothing() -> None:
    start(1)
    x = qd.field(qd.f64, shape=4, needs_grad=True)
    y = qd.field(qd.f64, shape=4, needs_grad=True)

    @qd.kernel
    def by_for(n: qd.i32, step: qd.i32):
        for i in range(4):
            v, k = x[i], 3
            for t in range(2, n):
                v = qd.sin(v + 0.1 * k) + 0.1 * t
                k += step
            y[i] = v

    @qd.kernel
    def by_while(n: qd.i32, step: qd.i32):
        for i in range(4):
            v, k, t = x[i], 3, n
            while t > 2 and v < 50.0:
                v = qd.sin(v + 0.1 * k) + 0.1 * t
                k += step
                t -= 1
            y[i] = v

    @qd.kernel
    def by_break(n: qd.i32, step: qd.i32):
        for i in range(4):
            v, k = x[i], 3
            for t in range(n):
                if v * t > 9.0:
                    break
                v = qd.sin(v + 0.1 * k) + 0.1 * t
                k += step
            y[i] = v

    x.from_numpy(np.linspace(0.1, 0.9, 4))
    for kernel in (by_for, by_while):
        assert iteration_bytes(kernel, 9, 2) == [8]
    assert iteration_bytes(by_break, 9, 2) == [16]  # k is added to in one branch only
    for kernel in (by_for, by_while, by_break):
        check_gradient(lambda k=kernel: k(13, 2), lambda k=kernel: k.grad(13, 2), x, y)


# -- nests ----------------------------------------------------------------------------------------


@on_cpu
@pytest.mark.parametrize("place", [0, 700, 1999])
@pytest.mark.parametrize(("nests", "inner"), [("replay", 2000), ("store", 3999), ("auto", 3999)])
def test_a_ragged_nest_takes_the_sum_over_its_depth(place: int, nests: str, inner: int) -> None:
    start(ad_stack_nests=nests)
    x = qd.field(qd.f64, shape=2, needs_grad=True)
    y = qd.field(qd.f64, shape=2, needs_grad=True)
    trips = qd.field(qd.i32, shape=2000)

    @qd.kernel
    def nest():
        for i in x:
            v = x[i]
            for row in range(2000):
                for _ in range(trips[row]):
                    v = qd.sin(v) * 0.99 + 0.01
            y[i] = v

    counts = np.ones(2000, np.int32)
    counts[place] = 2000
    trips.from_numpy(counts)
    nest()
    y.grad.fill(1.0)
    counts_kept = 0 if nests == "replay" else 2000  # beside v: the trip count, in 8 bytes as well
    nbytes = (2000 + counts_kept + inner) * 8
    assert record_buffer_bytes(nest.grad) == nbytes
    outer, rows = nest.grad.explain().loops
    assert (outer.capacity, rows.capacity) == (2000, inner)
    assert outer.nbytes + rows.nbytes == nbytes
    assert rows.stored == (0 if nests == "replay" else 2 * 3999)
    assert rows.runs == (3 if nests == "replay" else 2)
    assert nests != "replay" or outer.nbytes + rows.nbytes <= 32_000


# -- long loops -----------------------------------------------------------------------------------


def six_variables() -> tuple[Any, Any, Any]:
    x = qd.field(qd.f64, shape=6, needs_grad=True)
    y = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def recurrence(n: qd.i32):
        for _ in range(1):
            a, b, c, d, e, f = x[0], x[1], x[2], x[3], x[4], x[5]
            for _ in range(n):
                a += 0.001 * (b * c - a)
                b -= 0.001 * a * c
                c += 0.001 * (a * b - c + 0.2)
                d += 0.001 * (e * f - d)
                e -= 0.001 * d * f * a
                f += 0.001 * (1.0 - f * f)
            y[None] += a + b + c + d + e + f

    x.from_numpy(np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]))
    return recurrence, x, y


@beyond_llvmpipe
def test_a_long_recurrence_within_a_budget() -> None:
    n, gradients = 100_000, []
    for budget in (n * 48, 50_000):
        start(budget)
        recurrence, x, y = six_variables()
        recurrence(n)
        y.grad[None] = 1.0
        taken = record_buffer_bytes(lambda: recurrence.grad(n))  # noqa: B023
        gradients.append(x.grad.to_numpy())
        if budget == n * 48:
            assert taken == n * 48
        else:
            block = int(np.ceil(np.sqrt(n)))
            assert taken == (block + -(-n // block) - 1) * 48 <= budget
    assert np.array_equal(*gradients)


@beyond_llvmpipe
def test_ten_million_steps_in_a_megabyte() -> None:
    n, gradients = 10_000_000, []
    if ON_GPU:  # whose single threads are slow
        n //= 20
    for budget in (n // 10, 1 << 14):
        start(budget)
        recurrence, x, y = six_variables()
        y.grad[None] = 1.0
        assert record_buffer_bytes(lambda: recurrence.grad(n)) <= budget  # noqa: B023
        gradients.append(x.grad.to_numpy())
    assert np.array_equal(*gradients)
    begin, direction, ends = x.to_numpy(), np.array([1.0, -0.5, 0.3, 0.8, 0.2, -1.0]), []
    for step in (1e-5, -1e-5):
        x.from_numpy(begin + step * direction)
        y[None] = 0.0
        recurrence(n)
        ends.append(y[None])
    slope = (ends[0] - ends[1]) / 2e-5
    assert gradients[0] @ direction == pytest.approx(slope, rel=1e-5, abs=1e-8)


def test_short_loops_take_what_they_take_without_a_budget() -> None:
    start(50_000)
    recurrence, _, y = six_variables()
    for n in (0, 1, 5, 1000, 50_000 // 48, 7):
        recurrence(n)
        assert record_buffer_bytes(lambda: recurrence.grad(n)) == n * 48  # noqa: B023
    assert record_buffer_bytes(lambda: recurrence.grad(50_000 // 48 + 1)) < 70 * 48


@pytest.mark.parametrize("budget", [1, 100, 2000])
def test_a_long_while_within_a_budget(budget: int) -> None:
    gradients = []
    for given in (0, budget):
        start(given)
        x = qd.field(qd.f64, shape=5, needs_grad=True)
        y = qd.field(qd.f64, shape=5, needs_grad=True)

        @qd.kernel
        def decay():
            for i in x:  # noqa: B023
                v = x[i]  # noqa: B023
                while v > 0.2:
                    v -= 0.01 * v * v
                y[i] = v  # noqa: B023

        x.from_numpy(np.array([0.1, 0.3, 0.7, 2.0, 9.0]))
        decay()
        y.grad.fill(1.0)
        taken = record_buffer_bytes(decay.grad)
        gradients.append(x.grad.to_numpy())
        if given == 2000:
            assert taken <= given
    assert np.array_equal(*gradients)


@beyond_llvmpipe
@pytest.mark.parametrize(("budget", "n"), [(2048, 100_000), (1200, 10_000)])
def test_checkpoints_on_levels(budget: int, n: int) -> None:
    """Where the square root of the trips does not fit."""
    gradients = []
    for given in (0, budget):
        start(given)
        recurrence, x, y = six_variables()
        recurrence(n)
        y.grad[None] = 1.0
        taken = record_buffer_bytes(lambda: recurrence.grad(n))  # noqa: B023
        gradients.append(x.grad.to_numpy())
        if given:
            assert taken <= given < 2 * 48 * np.sqrt(n)
    assert np.array_equal(*gradients)


@beyond_llvmpipe
@pytest.mark.parametrize("budget", [8, 100, 400])
def test_a_while_with_checkpoints_on_levels(budget: int) -> None:
    """Its blocks and checkpoints take the budget, and one of each at least on every level."""
    gradients, n = [], 3001
    for given in (0, budget):
        start(given)
        x = qd.field(qd.f64, shape=(), needs_grad=True)
        y = qd.field(qd.f64, shape=(), needs_grad=True)

        @qd.kernel
        def count(n: qd.i32):
            for _ in range(1):
                v, k = x[None], 0  # noqa: B023
                while k < n and v < 99.0:
                    v = qd.sin(v) + 0.0005
                    k += 1
                y[None] = v  # noqa: B023

        x[None] = 0.3
        count(n)
        y.grad[None] = 1.0
        taken = record_buffer_bytes(lambda: count.grad(n))  # noqa: B023
        gradients.append(x.grad[None])
        if given:
            assert taken <= given + 8 * np.ceil(np.log2(n))
    assert gradients[0] == gradients[1] != 0


@beyond_llvmpipe
def test_nests_with_checkpoints_on_levels() -> None:
    gradients = []
    for given in (0, 200):
        start(given)
        x = qd.field(qd.f64, shape=2, needs_grad=True)
        y = qd.field(qd.f64, shape=2, needs_grad=True)

        @qd.kernel
        def nest(n: qd.i32):
            for i in x:  # noqa: B023
                v = x[i]  # noqa: B023
                for j in range(n):
                    for _ in range(n - (7 * j) % n):
                        v = qd.sin(v) * 0.99 + 0.01
                    while v > 0.2:
                        v *= 0.995
                y[i] = v  # noqa: B023

        x.from_numpy(np.array([0.7, 1.3]))
        nest(60)
        y.grad.fill(1.0)
        nest.grad(60)
        gradients.append(x.grad.to_numpy())
    assert np.array_equal(*gradients)
    assert gradients[0].all()


@beyond_llvmpipe
def test_another_budget_needs_no_other_code() -> None:
    gradients, codes = [], []
    for budget in (10**9, 10**7, 10**5):
        start(budget)
        recurrence, x, y = six_variables()
        recurrence(5000)
        y.grad[None] = 1.0
        taken = record_buffer_bytes(lambda: recurrence.grad(5000))  # noqa: B023
        assert taken == 5000 * 48 if budget > 10**6 else taken < 150 * 48
        gradients.append(x.grad.to_numpy())
        codes.append(recurrence.inspect(5000, mode="reverse").stages["finish"])
    assert codes[0] == codes[1] == codes[2]
    assert np.array_equal(gradients[0], gradients[2])


@on_cpu
def test_a_log_leaves_less_to_loops() -> None:
    """What is written down of reads is in the budget: loops have the rest of it."""
    held = []
    for reads in (0, 200, 400, 600):
        start(4000)
        x = qd.field(qd.f64, shape=1, needs_grad=True)
        loss = qd.field(qd.f64, shape=(), needs_grad=True)

        @qd.kernel
        def relax(n: qd.i32, reads: qd.i32):
            for i in range(1):
                v = 0.0
                if n > 0:
                    v = x[i]  # noqa: B023
                for _ in range(reads):
                    x[i] = 0.5 * x[i] * x[i] + 0.1  # noqa: B023
                for _ in range(n):
                    v = qd.sin(v) + 0.1
                loss[None] += v  # noqa: B023

        loops = relax.grad.explain(400, reads).loops
        logged = sum(loop.nbytes for loop in loops if loop.is_log)
        assert logged == 8 * reads
        held.append(sum(loop.nbytes for loop in loops if not loop.is_log))

        def launch(reads: int = reads) -> None:
            with qd.ad.Tape(loss=loss):  # noqa: B023
                relax(400, reads)  # noqa: B023

        x[0] = 0.3
        assert record_buffer_bytes(launch) <= max(4000, logged + 8 * 12)
        assert x.grad[0] != 0
    assert held[0] == 400 * 8
    assert 300 < held[1] <= 4000 - 201 * 8
    assert held[3] < 8 * 12 < held[2] + 8


@pytest.mark.parametrize("budget", [1, 60, 500])
def test_overwritten_arrays_within_a_budget(budget: int) -> None:
    """The logged reads of a task that is reversed on the memory from before it."""
    gradients = []
    for given in (0, budget):
        start(given)
        x = qd.field(qd.f64, shape=6, needs_grad=True)
        loss = qd.field(qd.f64, shape=(), needs_grad=True)

        @qd.kernel
        def relax(n: qd.i32):
            for i in range(2):
                v = x[i]  # noqa: B023
                for t in range(n):
                    k = 2 + 2 * i + t % 2
                    while x[k] > 1.5:  # noqa: B023
                        x[k] *= 0.9  # noqa: B023
                    x[k] += 0.2 * qd.sin(v * x[k])  # noqa: B023
                    v = v * x[k]  # noqa: B023
                loss[None] += v  # noqa: B023

        x.from_numpy(np.array([0.9, 1.1, 3.0, 0.4, 1.0, 2.0]))
        with qd.ad.Tape(loss=loss):
            relax(23)
        gradients.append(x.grad.to_numpy())
    assert np.array_equal(*gradients)
    assert np.abs(gradients[0]).min() > 0


# -- every dtype ----------------------------------------------------------------------------------

INTEGERS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]


@pytest.mark.parametrize("budget", [0, 1, 300])
@pytest.mark.parametrize("real", ["f16", "f32", "f64"])
def test_records_of_every_dtype(real: str, budget: int) -> None:
    """Integers that wrap, and that no formula gives, weigh the steps of a recurrence."""
    start(budget)
    dtype = getattr(qd, real)
    x = qd.field(dtype, shape=3, needs_grad=True)
    y = qd.field(dtype, shape=3, needs_grad=True)
    plain = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[real]

    @qd.kernel
    def mixed(n: qd.i32):
        for i in x:
            v, odd = x[i], True
            a, b, c, d = qd.i8(3), qd.i16(5), qd.i32(7), qd.i64(11)
            e, f, g, h = qd.u8(13), qd.u16(17), qd.u32(19), qd.u64(23)
            for _ in range(n):
                weight = qd.f64(a) / 128.0 + qd.f64(b) / 32768.0 + qd.f64(c) / 2147483648.0
                weight += qd.f64(d) / 9.3e18 + qd.f64(e) / 256.0 + qd.f64(f) / 65536.0
                weight += qd.f64(g) / 4294967296.0 + qd.f64(h) / 1.9e19
                if odd:
                    v = qd.cast(qd.sin(v * dtype(weight)), dtype)
                else:
                    v = qd.cast(v * dtype(1.25), dtype)
                odd = a > 0
                a = qd.i8(a * qd.i8(5) + qd.i8(1))
                b = qd.i16(b * qd.i16(77) + qd.i16(1))
                c = c * 1103515245 + 12345
                d = d * 6364136223846793005 + 1442695040888963407
                e = qd.u8(e * qd.u8(13) + qd.u8(7))
                f = qd.u16(f * qd.u16(75) + qd.u16(74))
                g = g * qd.u32(1664525) + qd.u32(1013904223)
                h = h * qd.u64(6364136223846793005) + qd.u64(1442695040888963407)
            y[i] = v

    n = 19
    begin = np.array([0.25, 0.5, 0.75], plain)
    x.from_numpy(begin)
    mixed(n)
    y.grad.fill(1.0)
    mixed.grad(n)
    values, slopes = zip(*(mixed_in_numpy(float(v), n, plain) for v in begin), strict=True)
    tolerance = {"f16": 0.03, "f32": 1e-4, "f64": 1e-11}[real]
    np.testing.assert_allclose(y.to_numpy(), values, rtol=tolerance)
    np.testing.assert_allclose(x.grad.to_numpy(), slopes, rtol=tolerance)
    (stride,) = iteration_bytes(mixed, n)
    assert stride == 40


def mixed_in_numpy(v: float, n: int, real: Any) -> tuple[float, float]:
    """The value and its derivative by the start."""
    slope, odd = 1.0, True
    a, b, c, d, e, f, g, h = 3, 5, 7, 11, 13, 17, 19, 23
    for _ in range(n):
        weight = a / 2**7 + b / 2**15 + c / 2**31 + d / 9.3e18
        weight += e / 2**8 + f / 2**16 + g / 2**32 + h / 1.9e19
        weight = float(real(weight))
        if odd:
            slope, v = slope * np.cos(v * weight) * weight, float(real(np.sin(v * weight)))
        else:
            slope, v = slope * 1.25, float(real(v * 1.25))
        odd = a > 0
        a, b = signed(a * 5 + 1, 8), signed(b * 77 + 1, 16)
        c = signed(c * 1103515245 + 12345, 32)
        d = signed(d * 6364136223846793005 + 1442695040888963407, 64)
        e, f = (e * 13 + 7) % 2**8, (f * 75 + 74) % 2**16
        g = (g * 1664525 + 1013904223) % 2**32
        h = (h * 6364136223846793005 + 1442695040888963407) % 2**64
    return v, slope


def signed(value: int, bits: int) -> int:
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


@pytest.mark.parametrize("budget", [0, 64, 300, 2000])
@pytest.mark.parametrize("simd", ["never", "always"])
def test_sums_of_recurrences_in_a_recurrence(simd: str, budget: int) -> None:
    """The loop in the middle records nothing of its own, and not all records in it fit."""
    options: dict[str, Any] = {"cpu_max_num_threads": 1, "ad_stack_budget_bytes": budget}
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error", simd=simd, **options)
    x, y = (qd.field(qd.f64, shape=3, needs_grad=True) for _ in "xy")

    @qd.kernel
    def iterate(n: qd.i32):
        for i in x:
            v = x[i]
            for _ in range(n):
                s = 0.0
                for j in range(n):
                    w = v + 0.1 * j
                    for k in range(6):
                        w = qd.sin(w) * 1.1 + 0.01 * k
                    s += w * 0.1
                v = qd.sin(s + v)
            y[i] = v

    x.from_numpy(np.linspace(0.2, 0.9, 3))
    check_gradient(lambda: iterate(5), lambda: iterate.grad(5), x, y)
