"""Record buffers that are refused memory: fewer workers, then shorter blocks, then an error."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver
from octants.runtime.cpu.native.record_buffers import SLACK
from tests.ad.heaps import Heap
from tests.ad.record_buffers import check_gradient
from tests.devices import on_cpu
from tests.seeds import seeds

pytestmark = on_cpu

Start = Callable[..., None]
ITEMS = 24
PAGE = 1 << 16


@pytest.fixture(scope="module")
def shared_heap() -> Heap:
    return Heap()


@pytest.fixture
def heap(shared_heap: Heap) -> Iterator[Heap]:
    yield shared_heap
    qd.reset()
    shared_heap.reset()


@pytest.fixture
def start(heap: Heap, monkeypatch: pytest.MonkeyPatch) -> Start:
    def begin(threads: int = 1, **options: Any) -> None:
        heap.start(monkeypatch, cpu_max_num_threads=threads, **{"simd": "never", **options})

    return begin


class Nest:
    """Work items of different lengths, with loops in loops, and a parameter of all of them."""

    def __init__(self, items: int = ITEMS, simd: bool | None = None) -> None:
        self.x = qd.field(qd.f64, shape=items, needs_grad=True)
        self.y = qd.field(qd.f64, shape=items, needs_grad=True)
        self.w = qd.field(qd.f64, shape=(), needs_grad=True)
        x, y, w = self.x, self.y, self.w

        @qd.kernel
        def run(n: qd.i32, long: qd.i32):
            if qd.static(simd is not None):
                qd.loop_config(simd=simd)
            for i in range(x.shape[0]):
                v, trips = x[i], n
                if i % 8 == 5:
                    trips = n * long
                for j in range(4):
                    k = 0
                    while k < trips and v < 50.0:
                        v = qd.sin(v) * 0.99 + 0.01 * w[None]
                        k += 1
                    for _ in range(trips // (j + 1)):
                        v = v - 0.01 * w[None] * v * v
                y[i] = v

        self.run = run
        x.from_numpy(np.linspace(0.1, 1.9, items))
        w[None] = 0.7

    def gradient(self, n: int, long: int) -> np.ndarray[Any, Any]:
        """The gradients of x and, last, of w, from zero."""
        for field in (self.x, self.w):
            field.grad.fill(0)
        self.y.grad.fill(1)
        self.run.grad(n, long)
        found: np.ndarray[Any, Any] = np.append(self.x.grad.to_numpy(), self.w.grad[None])
        return found


def assert_close(found: Any, expected: Any) -> None:
    """The gradients of x are the same bits; that of w is a sum over work items, in any order."""
    assert np.array_equal(found[:-1], expected[:-1])
    np.testing.assert_allclose(found[-1], expected[-1], rtol=1e-12)


def expected_gradient(start: Start, n: int, long: int) -> np.ndarray[Any, Any]:
    start()
    return Nest().gradient(n, long)


# -- what is tried --------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_fewer_workers_where_not_all_get_a_tape(heap: Heap, start: Start, threads: int) -> None:
    expected = expected_gradient(start, 3000, 1)
    needed = max(heap.asked)
    start(threads)
    nest = Nest()
    heap.limit(needed)  # one record buffer
    for _ in range(3):
        assert_close(nest.gradient(3000, 1), expected)
    assert heap.total <= needed
    assert max(heap.asked) >= 20_000


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("limit", [50_000, 9_000, 4_000])
def test_shorter_blocks_where_one_tape_is_too_large(
    heap: Heap, start: Start, limit: int, threads: int
) -> None:
    """Some items fit and are done by then; those that do not are run again, the others are not."""
    expected = expected_gradient(start, 300, 20)
    start(threads)
    nest = Nest()
    heap.limit(limit)
    heap.refused = 0
    for _ in range(2):
        assert_close(nest.gradient(300, 20), expected)
    assert heap.refused
    assert heap.total <= limit


def test_gradients_within_little_memory_are_derivatives(heap: Heap, start: Start) -> None:
    start(2)
    nest = Nest(6)
    heap.limit(2500)
    check_gradient(lambda: nest.run(60, 9), lambda: nest.run.grad(60, 9), nest.x, nest.y)
    assert heap.refused


def test_a_serial_task(heap: Heap, start: Start) -> None:
    results = []
    for limit in (10**9, 3000):
        start(2)
        x = qd.field(qd.f64, shape=(), needs_grad=True)
        y = qd.field(qd.f64, shape=(), needs_grad=True)

        @qd.kernel
        def alone(n: qd.i32):
            v = x[None]  # noqa: B023
            for _ in range(n):
                v = qd.sin(v) + 0.0001
            y[None] = v  # noqa: B023

        x[None], y.grad[None] = 0.3, 1.0
        heap.limit(limit)
        alone.grad(40_000)
        results.append(x.grad[None])
        assert heap.total <= limit
    assert results[0] == results[1] != 0


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_memory_refused_at_random(heap: Heap, start: Start, seed: int) -> None:
    """Either the gradient is right, or there is an error, and the next one is right."""
    chance = random.Random(seed)
    expected = expected_gradient(start, 120, 8)
    start(chance.choice((1, 2, 4)))
    nest = Nest()
    share = chance.choice((0.1, 0.5, 0.9))
    heap.grants = lambda nbytes, total: chance.random() > share
    for _ in range(6):
        with contextlib.suppress(qd.OctantsMemoryError):
            assert_close(nest.gradient(120, 8), expected)
    assert heap.asked
    heap.grants = lambda nbytes, total: True
    assert_close(nest.gradient(120, 8), expected)


@pytest.mark.parametrize("limit", [1 << 30, 10**6, 200_000])
def test_work_items_in_lanes(heap: Heap, start: Start, limit: int) -> None:
    expected = expected_gradient(start, 200, 20)
    start(2, simd="always")
    nest = Nest(simd=True)
    heap.limit(limit)
    found = nest.gradient(200, 20)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert bool(heap.refused) == (limit <= 10**6)
    assert heap.total <= limit


def test_threads_of_python_at_once(heap: Heap, start: Start) -> None:
    start(2)

    @qd.kernel
    def swing(x: qd.types.ndarray(ndim=1), y: qd.types.ndarray(ndim=1), n: qd.i32):
        for i in range(x.shape[0]):
            v = x[i]
            for _ in range(n):
                v = qd.sin(v) + 0.1
            y[i] = v

    pairs = []
    for _ in range(4):
        x, y = (qd.ndarray(qd.f64, shape=5, needs_grad=True) for _ in range(2))
        x.from_numpy(np.linspace(0.1, 0.9, 5))
        pairs.append((x, y))
    n = 20_000
    for (x, y), limit in zip(pairs, (10**9, *[200_000] * 3), strict=True):
        heap.limit(limit)
        y.grad.fill(1)
        if limit == 10**9:
            swing.grad(x, y, n)
    expected = pairs[0][0].grad.to_numpy()
    problems: list[BaseException] = []

    def launch(x: Any, y: Any) -> None:
        try:
            for _ in range(5):
                x.grad.fill(0)
                y.grad.fill(1)
                swing.grad(x, y, n)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=launch, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert heap.refused
    for x, _ in pairs:
        assert np.array_equal(x.grad.to_numpy(), expected)


def test_where_the_doubled_size_is_refused_just_what_is_needed_does(
    heap: Heap, start: Start
) -> None:
    expected = expected_gradient(start, 3000, 4)
    start()
    nest = Nest()
    heap.asked.clear()
    was_refused = False

    def grants(nbytes: int, _: int) -> bool:
        nonlocal was_refused
        was_refused = (nbytes - SLACK) % PAGE == 0 and not was_refused
        return not was_refused

    heap.grants = grants
    assert_close(nest.gradient(3000, 4), expected)
    granted = heap.asked[1::2]
    assert heap.refused == len(granted) == len(heap.asked) // 2
    assert granted == sorted(granted)  # never less, as where blocks become shorter


def test_a_forced_size_of_records(heap: Heap, start: Start) -> None:
    """Its records take what they take: fewer workers help, shorter blocks are none."""
    expected = expected_gradient(start, 100, 1)
    start(4, ad_stack_size=100)
    nest = Nest()
    heap.limit(max(4 * 8 + 100 * 8 * 2, PAGE))
    assert_close(nest.gradient(100, 1), expected)
    nest.run.grad(101, 1)
    with pytest.raises(qd.OctantsAssertionError, match="it needs 101 slots"):
        qd.sync()
    driver.state.device.free_record_buffers()  # type: ignore[union-attr]
    heap.limit(200)
    with pytest.raises(qd.OctantsMemoryError, match="OCT422"):
        nest.gradient(100, 1)


def test_launches_of_no_work_items_ask_for_nothing(heap: Heap, start: Start) -> None:
    start(2)
    heap.asked.clear()
    heap.limit(0)

    @qd.kernel
    def nothing(x: qd.Tensor, y: qd.Tensor, items: qd.i32, n: qd.i32):
        for i in range(items):
            v = x[i]
            for _ in range(n):
                v = qd.sin(v)
            y[i] = v

    x, y = (qd.ndarray(qd.f64, shape=4, needs_grad=True) for _ in range(2))
    for items, n in ((0, 10**6), (-3, 10**6), (4, 0), (4, -2)):
        nothing.grad(x, y, items, n)
    assert not heap.refused


# -- the error ------------------------------------------------------------------------------------


@pytest.mark.parametrize("simd", ["never", "always"])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_error_at_the_end(heap: Heap, start: Start, threads: int, simd: str) -> None:
    start(threads, simd=simd)
    nest = Nest(simd=simd == "always")
    heap.grants = lambda nbytes, total: False
    for _ in range(2):
        with pytest.raises(qd.OctantsMemoryError) as caught:
            nest.gradient(50, 3)
        text = str(caught.value)
        assert "kernel `run`: there is no memory for the records of its gradient" in text
        assert "the gradients of this launch are void" in text
        for line in ("for j in range(4):", "while k < trips", "for _ in range(trips // (j + 1)):"):
            assert line in text
        assert text.count("its record takes 8 bytes an iteration") >= 2
        assert "a checkpoint" in text
        assert not nest.x.grad.to_numpy().any()  # nothing was reversed
        assert (nest.y.grad.to_numpy() == 1).all()
        assert heap.total == 0
    heap.grants = lambda nbytes, total: True
    assert nest.gradient(50, 3).all()


def test_a_nest_is_refused_before_anything_is_reversed(heap: Heap, start: Start) -> None:
    """The inner loop is longest in the first iteration, which is reversed last."""
    start()
    x = qd.field(qd.f64, shape=(), needs_grad=True)
    y = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def shrinking(n: qd.i32):
        for _ in range(1):
            v = x[None]
            for j in range(n):
                y[None] += v
                if j < 5:
                    for _ in range(2 ** (10 * (2 - j))):
                        v = qd.sin(v) + 0.5
            y[None] += v

    y.grad[None] = 1
    heap.limit(50)
    with pytest.raises(qd.OctantsMemoryError):
        shrinking.grad(5)
    assert x.grad[None] == 0
    assert y.grad[None] == 1
    heap.limit(1 << 30)
    shrinking.grad(5)
    whole, x.grad[None] = x.grad[None], 0
    driver.state.device.free_record_buffers()  # type: ignore[union-attr]
    heap.limit(3000)
    shrinking.grad(5)
    assert x.grad[None] == whole != 0


def test_work_items_that_store_are_not_run_again(heap: Heap, start: Start) -> None:
    """The first sweep of a task that overwrites what it reads cannot simply be run twice."""
    start()
    x = qd.field(qd.f64, shape=6, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def relax(n: qd.i32):
        for i in x:
            for _ in range(n):
                x[i] += 0.1 * qd.sin(x[i])
        for i in x:
            loss[None] += x[i]

    begin = np.linspace(0.1, 0.9, 6)
    gradients = []
    for limit in (1 << 30, 500, 1 << 30):
        driver.state.device.free_record_buffers()  # type: ignore[union-attr]
        heap.limit(limit)
        x.from_numpy(begin)
        if limit == 500:
            with pytest.raises(qd.OctantsMemoryError) as caught:
                with qd.ad.Tape(loss=loss):
                    relax(500)
            assert "each value that is read, and later overwritten, takes 8 bytes" in str(
                caught.value
            )
        else:
            with qd.ad.Tape(loss=loss):
                relax(500)
            gradients.append(x.grad.to_numpy())
        after = x.to_numpy()
        x.from_numpy(begin)
        relax(500)
        assert np.array_equal(after, x.to_numpy())
    assert np.array_equal(*gradients)
