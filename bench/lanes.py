"""Loops that gain nothing by lanes, and some that do: what is chosen against work items in turn.

``python bench/lanes.py [PATTERN ...]`` prints for each loop, forward and backward, the time of one
launch with ``simd=False`` divided by that of what is chosen. No ratio should be much below 1. Times
are those of the process, the least of several that alternate.
"""
# mypy: ignore-errors
# ruff: noqa: ARG001 - all kernels take the same arrays

from __future__ import annotations

import fnmatch
import sys
import time

import numpy as np

import octants as qd

LOOPS = {}
ROUNDS, SECONDS = 7, 0.02
SIZE, SIDE = 1 << 16, 256


def loop(items=SIZE, dtype="f32", gradient=True):
    """A kernel of arrays x, y, w and indices k: ``make(how)`` says ``loop_config(simd=how)``."""

    def add(make):
        LOOPS[make.__name__] = (make, items, dtype, gradient)
        return make

    return add


A = qd.types.ndarray()


@loop()
def copy(how):
    @qd.kernel
    def run(x: A, y: A, w: A, k: A):
        qd.loop_config(simd=how)
        for i in range(x.shape[0]):
            y[i] = x[i]

    return run


@loop(gradient=False)
def fill(how):
    @qd.kernel
    def run(x: A, y: A, w: A, k: A):
        qd.loop_config(simd=how)
        for i in range(x.shape[0]):
            y[i] = 1.5

    return run


@loop(gradient=False)
def increment(how):
    @qd.kernel
    def run(x: A, y: A, w: A, k: A):
        qd.loop_config(simd=how)
        for i in range(x.shape[0]):
            y[i] += 1

    return run


@loop(dtype="f64")
def axpy_f64(how):
    @qd.kernel
    def run(x: A, y: A, w: A, k: A):
        qd.loop_config(simd=how)
        for i in range(x.shape[0]):
            y[i] = 2.5 * x[i] + w[i]

    return run


@loop()
def total(how):
    @qd.kernel
    def run(x: A, y: A, w: A, k: A):
        qd.loop_config(simd=how)
        for i in range(x.shape[0]):
            y[0] += x[i] * w[i]

    return run


@loop()
def stencil(how):
    @qd.kernel
    def run(x: A, y: A, w: A, k: A):
        qd.loop_config(simd=how)
        for i in range(1, x.shape[0] - 1):
            y[i] = 0.25 * x[i - 1] + 0.5 * x[i] + 0.25 * x[i + 1]

    return run


@loop()
def plane(how):
    @qd.kernel
    def run(x: A, y: A, w: A, k: A):
        qd.loop_config(simd=how)
        for i, j in qd.ndrange((1, SIDE - 1), (1, SIDE - 1)):
            here = i * SIDE + j
            around = x[here - 1] + x[here + 1] + x[here - SIDE] + x[here + SIDE]
            y[here] = x[here] + 0.1 * (around - 4.0 * x[here])

    return run


@loop()
def transpose(how):
    @qd.kernel
    def run(x: A, y: A, w: A, k: A):
        qd.loop_config(simd=how)
        for i, j in qd.ndrange(SIDE, SIDE):
            y[j * SIDE + i] = x[i * SIDE + j]

    return run


@loop()
def gather(how):
    @qd.kernel
    def run(x: A, y: A, w: A, k: A):
        qd.loop_config(simd=how)
        for i in range(x.shape[0]):
            y[i] = x[k[i]] * w[i]

    return run


@loop()
def histogram(how):
    @qd.kernel
    def run(x: A, y: A, w: A, k: A):
        qd.loop_config(simd=how)
        for i in range(x.shape[0]):
            y[k[i] % 64] += w[i]

    return run


@loop()
def sine(how):
    @qd.kernel
    def run(x: A, y: A, w: A, k: A):
        qd.loop_config(simd=how)
        for i in range(x.shape[0]):
            y[i] = qd.sin(x[i])

    return run


@loop()
def branches(how):
    @qd.kernel
    def run(x: A, y: A, w: A, k: A):
        qd.loop_config(simd=how)
        for i in range(x.shape[0]):
            if x[i] > 0.5:
                y[i] = x[i] * w[i]
            else:
                y[i] = x[i] / (1.0 + w[i])

    return run


@loop(items=SIDE * SIDE)
def rows(how):
    """The items are rows, whose elements are neighbours."""

    @qd.kernel
    def run(x: A, y: A, w: A, k: A):
        qd.loop_config(simd=how)
        for i in range(SIDE):
            for j in range(SIDE):
                y[i * SIDE + j] = 2.0 * x[i * SIDE + j] + w[j]

    return run


@loop(items=SIDE * SIDE)
def columns(how):
    """The items are columns."""

    @qd.kernel
    def run(x: A, y: A, w: A, k: A):
        qd.loop_config(simd=how)
        for j in range(SIDE):
            for i in range(SIDE):
                y[i * SIDE + j] = 2.0 * x[i * SIDE + j] + w[i]

    return run


@loop(items=SIDE * SIDE)
def matrix_times_vector(how):
    @qd.kernel
    def run(x: A, y: A, w: A, k: A):
        qd.loop_config(simd=how)
        for i in range(SIDE):
            s = 0.0
            for j in range(SIDE):
                s += x[i * SIDE + j] * w[j]
            y[i] = s

    return run


@loop(items=64 * 64)
def matrix_product(how):
    @qd.kernel
    def run(x: A, y: A, w: A, k: A):
        qd.loop_config(simd=how)
        for i, j in qd.ndrange(64, 64):
            s = 0.0
            for n in range(64):
                s += x[i * 64 + n] * w[n * 64 + j]
            y[i * 64 + j] = s

    return run


@loop(items=4096)
def recurrence(how):
    @qd.kernel
    def run(x: A, y: A, w: A, k: A):
        qd.loop_config(simd=how)
        for i in range(x.shape[0]):
            v = x[i]
            for _ in range(30):
                v = v * 0.9 + w[i]
            y[i] = v

    return run


@loop(items=4096)
def ragged(how):
    @qd.kernel
    def run(x: A, y: A, w: A, k: A):
        qd.loop_config(simd=how)
        for i in range(x.shape[0]):
            v = x[i]
            for _ in range(k[i] % 50):
                v = v * v * 0.5 + w[i]
            y[i] = v

    return run


@loop(items=4096)
def chase(how):
    """Each turn loads from anywhere."""

    @qd.kernel
    def run(x: A, y: A, w: A, k: A):
        qd.loop_config(simd=how)
        for i in range(x.shape[0]):
            at = i
            s = 0.0
            for _ in range(20):
                at = k[at]
                s += x[at]
            y[i] = s

    return run


@loop(items=4096, gradient=False)
def escape(how):
    """A while loop that ends after different turns."""

    @qd.kernel
    def run(x: A, y: A, w: A, k: A):
        qd.loop_config(simd=how)
        for i in range(x.shape[0]):
            a, b, n = 0.0, 0.0, 0
            while n < 50 and a * a + b * b < 4.0:
                a, b = a * a - b * b + x[i] - 0.7, 2.0 * a * b + w[i] - 0.5
                n += 1
            y[i] = n

    return run


@loop(items=4096, gradient=False)
def collatz(how):
    @qd.kernel
    def run(x: A, y: A, w: A, k: A):
        qd.loop_config(simd=how)
        for i in range(x.shape[0]):
            n, c = i + 1, 0
            while n != 1 and c < 100:
                n = n // 2 if n % 2 == 0 else 3 * n + 1
                c += 1
            y[i] = c

    return run


@loop(items=4096, gradient=False)
def dice(how):
    @qd.kernel
    def run(x: A, y: A, w: A, k: A):
        qd.loop_config(simd=how)
        for i in range(x.shape[0]):
            s = 0.0
            for _ in range(10):
                s += qd.random()
            y[i] = s

    return run


def of_few_items(count):
    """A loop of some work in each of a few items."""

    def make(how):
        @qd.kernel
        def run(x: A, y: A, w: A, k: A):
            qd.loop_config(simd=how)
            for i in range(x.shape[0]):
                v = x[i]
                for _ in range(20):
                    v = v * 0.9 + w[i]
                y[i] = v

        return run

    make.__name__ = f"items_{count}"
    loop(items=count)(make)


def light_of_few_items(count):
    """A loop of next to no work in each of a few items."""

    def make(how):
        @qd.kernel
        def run(x: A, y: A, w: A, k: A):
            qd.loop_config(simd=how)
            for i in range(x.shape[0]):
                y[i] = x[i] + w[i]

        return run

    make.__name__ = f"light_items_{count}"
    loop(items=count)(make)


for number in (1, 2, 3, 5, 8, 13, 17, 32, 40, 100):
    of_few_items(number)
    light_of_few_items(number)


def arguments(items, dtype):
    """Arrays for a loop, filled."""
    random = np.random.default_rng(0)
    kind = getattr(qd, dtype)
    arrays = [qd.ndarray(kind, shape=(items,), needs_grad=True) for _ in range(3)]
    for array in arrays:
        array.from_numpy(random.uniform(0, 1, items).astype(dtype.replace("f", "float")))
    indices = qd.ndarray(qd.i32, shape=(items,))
    indices.from_numpy(random.integers(0, items, items).astype(np.int32))
    return [*arrays, indices]


def least_times(calls):
    """The least times of calls, which alternate."""
    counts = []
    for call in calls:
        call()
        start = time.process_time()
        call()
        counts.append(max(1, int(SECONDS / max(1e-6, time.process_time() - start))))
    count = max(counts)
    least = [float("inf")] * len(calls)
    for _ in range(ROUNDS):
        for number, call in enumerate(calls):
            start = time.process_time()
            for _ in range(count):
                call()
            least[number] = min(least[number], (time.process_time() - start) / count)
    return least


def compare(name):
    """Print a line of a loop."""
    make, items, dtype, gradient = LOOPS[name]
    given = arguments(items, dtype)
    single, chosen = make(False), make(None)
    pairs = [([lambda k=k: k(*given) for k in (single, chosen)])]
    if gradient:
        pairs.append([lambda k=k: k.grad(*given) for k in (single, chosen)])
    texts = []
    for pair in pairs:
        one, other = least_times(pair)
        texts.append(f"{one * 1e6:9.1f} {other * 1e6:9.1f} us {one / other:6.2f}")
    print(f"{name:22}" + "   ".join(texts), flush=True)


def main():
    """All loops, or those that the arguments name."""
    qd.init(arch=qd.cpu, cpu_max_num_threads=1, log_level="error")
    patterns = sys.argv[1:] or ["*"]
    print(f"{'':22}{'forward: one by one, chosen, ratio':33}   backward")
    for name in LOOPS:
        if any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            compare(name)


if __name__ == "__main__":
    main()
