"""Threads: what they compute together, how launches share them, how many there are."""

from __future__ import annotations

import ctypes
import gc
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octants.analysis.cost_model import GRAIN
from octants.diagnostics.exceptions import OctantsAssertionError
from octants.ir.core import Module
from octants.runtime.cpu import CpuDevice, system_limits
from octants.runtime.cpu.native import assembly as native_runtime
from octants.runtime.cpu.native import linking as native
from octants.runtime.cpu.native.parallel_loops import SHARED_GRAINS
from octants.types.scalars import i32, i64
from tests.codegen.compiled import Compiled, argument, ndarray, parallel
from tests.runtime.kernels import increment, spin


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_item_is_run_once(threads: int) -> None:
    device = CpuDevice(threads)
    assert device.threads == threads
    kernel = Compiled(increment(), device)
    for count in (0, 1, 7, 1000, 16_384, 16_385, 300_001):
        data = {"x": np.zeros(count, np.int32)}
        for _ in range(3):
            kernel.run(data)
        np.testing.assert_array_equal(data["x"], 3 * np.arange(1, count + 1))
    device.close()


def test_a_system_without_posix_threads_and_signals() -> None:
    """What is missing there is never called: one thread does the work."""
    missing = {name: 0 for name in native_runtime.SYMBOLS if name.startswith(("pthread", "sig"))}
    assert len(missing) == len(native_runtime.SYMBOLS) - len(("realloc", "free", "usleep"))
    device = CpuDevice(4, support=native.Support(missing))
    assert device.threads == 1
    kernel = Compiled(increment(), device)
    data = {"x": np.zeros(300_001, np.int32)}
    for _ in range(3):
        kernel.run(data)
    np.testing.assert_array_equal(data["x"], 3 * np.arange(1, 300_002))
    device.close()
    device.at_exit()


def test_bounds_anywhere() -> None:
    low, high, count = argument("low", i64), argument("high", i64), ndarray("count", i64)

    def body(build: Any, i: Any) -> None:
        build.atomic("add", count, [build.offset(0)], build.offset(1))
        build.atomic("add", count, [build.offset(1)], i)

    task = parallel("t", lambda b: (b.load(low, []), b.load(high, [])), body, i64)
    kernel = Compiled(Module("bounds", [low, high, count], tasks=[task]), CpuDevice(3))
    for start, stop in (
        (5, 5),
        (9, -9),
        (-70_000, 3),
        (2**40, 2**40 + 50_000),
        (-(2**63), 3 - 2**63),
    ):
        data = {"low": np.array(start), "high": np.array(stop), "count": np.zeros(2, np.int64)}
        kernel.run(data)
        wanted = range(start, stop)
        total = (start + stop - 1) * len(wanted) // 2 if wanted else 0
        assert data["count"].tolist() == [len(wanted), (total + 2**63) % 2**64 - 2**63]


def test_several_threads_work_at_once() -> None:
    device = CpuDevice(4)
    kernel = Compiled(spin(), device, simd="never")
    data = {"turns": np.array(2_000_000), "out": np.zeros(64)}
    before, start = time.process_time(), time.perf_counter()
    kernel.run(data)
    used, passed = time.process_time() - before, time.perf_counter() - start
    np.testing.assert_array_equal(data["out"], np.arange(64) + 1e6)
    if system_limits.thread_count() > 1:
        assert device.pool.fields.started == 3
        assert used > 0
        assert passed > 0
    device.close()


def test_helpers_park_and_wake() -> None:
    device = CpuDevice(3)
    kernel = Compiled(increment(), device)
    data = {"x": np.zeros(200_000, np.int32)}
    for turn in range(6):
        kernel.run(data)
        deadline = time.monotonic() + 10
        while device.pool.fields.sleepers < 2 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert device.pool.fields.sleepers == 2
        assert data["x"][-1] == 200_000 * (turn + 1)
    device.close()


def test_short_loops_wake_nobody() -> None:
    """Signals are counted: a helper that is woken may park again before anyone looks."""
    signals: list[int] = []
    real = native.address_of("pthread_cond_signal")
    if real is None:
        pytest.skip("no threads")
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    call = kind(real)

    def signal(condition: int) -> int:
        signals.append(condition)
        return call(condition)

    replacement = kind(signal)
    address = ctypes.cast(replacement, ctypes.c_void_p).value or 0
    device = CpuDevice(3, support=native.Support({"pthread_cond_signal": address}))
    pool, kernel = device.pool.fields, Compiled(increment(), device)

    def jobs_of(items: int) -> int:
        before = pool.state >> 32
        data = {"x": np.zeros(items, np.int32)}
        kernel.run(data)
        assert data["x"].tolist() == list(range(1, items + 1))
        return int((pool.state >> 32) - before) & 0x7FFFFFFF

    assert (jobs_of(100), pool.started) == (0, -1)  # at once
    assert (jobs_of(20_000), pool.started) == (1, -1)  # for helpers that spin, but there are none
    assert (jobs_of(200_000), pool.started) == (1, 2)
    deadline = time.monotonic() + 10
    while pool.sleepers < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    signals.clear()
    for _ in range(20):
        assert (jobs_of(100), jobs_of(20_000), pool.sleepers) == (0, 1, 2)
    assert not signals
    jobs_of(200_000)
    assert signals
    device.close()


def test_each_thread_gets_a_share_that_is_worth_it() -> None:
    """An iteration costs four additions."""
    device = CpuDevice(8)
    pool, kernel = device.pool.fields, Compiled(increment(), device)
    share = GRAIN // 4 * SHARED_GRAINS
    for items, helpers in ((2 * share - 1, None), (2 * share, 1), (5 * share, 4), (99 * share, 7)):
        jobs, pool.allowed = pool.state >> 32, -1
        kernel.run({"x": np.zeros(items, np.int32)})
        assert (pool.state >> 32 == jobs) == (helpers is None)
        assert pool.allowed == (-1 if helpers is None else helpers)
    device.close()


def test_eight_threads_launch_ten_thousand_times_each() -> None:
    device = CpuDevice(2)
    small, large = Compiled(increment(), device), Compiled(increment(), device)
    failures: list[str] = []

    def work(number: int) -> None:
        few, many = {"x": np.zeros(16, np.int32)}, {"x": np.zeros(20_000, np.int32)}
        few_block, _ = small.block(few)
        many_block, _ = large.block(many)
        for turn in range(10_000):
            small.kernel.launch(ctypes.addressof(few_block))
            if turn % 100 == number:
                large.kernel.launch(ctypes.addressof(many_block))
        if few["x"].tolist() != [10_000 * k for k in range(1, 17)]:
            failures.append(f"small {number}")
        if (many["x"] != 100 * np.arange(1, 20_001)).any():
            failures.append(f"large {number}")

    with ThreadPoolExecutor(8) as executor:
        list(executor.map(work, range(8)))
    assert not failures
    assert len(device.contexts) <= 8
    device.close()


def test_a_launch_that_finds_the_pool_busy_runs_by_itself() -> None:
    device = CpuDevice(2)
    slow, quick = Compiled(spin(), device, simd="never"), Compiled(increment(), device)
    turns, slow_data = 300_000_000, {"turns": np.array(0), "out": np.zeros(4)}
    data = {"x": np.zeros(200_000, np.int32)}
    was_busy = False
    while not was_busy and turns < 2**40:  # longer, where this machine has much else to do
        slow_data["turns"][...] = turns
        thread = threading.Thread(target=slow.run, args=(slow_data,))
        thread.start()
        deadline = time.monotonic() + 10
        while not device.pool.fields.busy and time.monotonic() < deadline:
            time.sleep(0.001)
        data["x"][:] = 0
        quick.run(data)
        was_busy = device.pool.fields.busy  # the slow launch still has the pool
        np.testing.assert_array_equal(data["x"], np.arange(1, 200_001))
        thread.join()
        assert slow_data["out"][0] == turns / 2
        turns *= 4
    assert was_busy
    device.close()


def test_each_thread_gets_its_own_failure() -> None:
    device = CpuDevice(2)
    limit, out = argument("limit", i32), ndarray("out", i32)

    def body(build: Any, i: Any) -> None:
        ok = build.compare("lt", i, build.load(limit, []))
        build.assert_("assertion", "item {}", ok, [i])
        build.store(out, [i], i)

    task = parallel("t", lambda build: (build.index(0), build.shape(out, 0)), body)
    kernel = Compiled(Module("failing", [limit, out], tasks=[task]), device)

    def work(number: int) -> str:
        data = {"limit": np.array(1000 * number, np.int32), "out": np.zeros(50_000, np.int32)}
        try:
            kernel.run(data)
        except OctantsAssertionError as error:
            return str(error)
        return "none"

    with ThreadPoolExecutor(8) as executor:
        for _ in range(5):
            texts = list(executor.map(work, range(8)))
            assert all(f"item {1000 * k}\n" in text for k, text in enumerate(texts)), texts
    device.close()


def count_threads() -> int:
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"Threads:\s*(\d+)", status)[0])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="threads are counted in /proc")
def test_no_thread_is_left_behind() -> None:
    gc.collect()
    before = count_threads()
    for turn in range(6):
        device = CpuDevice(4)
        kernel = Compiled(increment(), device)
        kernel.run({"x": np.zeros(100_000, np.int32)})
        assert count_threads() == before + 3
        if turn % 2:
            device.close()
        del device, kernel
        gc.collect()
        assert count_threads() == before
