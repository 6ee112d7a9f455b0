"""Loops with bounds of every form: gradients, and tapes of just the bytes that the trips need.

Each program runs a recurrence with one f64 that is recorded, 8 bytes for each trip, on one thread;
so the tape is as large as the work item with the most trips needs. Programs are launched with
larger and smaller bounds in turn, and nothing is compiled but once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver
from octants.ir import ops
from tests.ad.bounds import arrays, changes, scalars
from tests.ad.bounds.program import ITEMS, PROGRAMS, Program, recurrence, turn
from tests.ad.record_buffers import record_buffer_bytes
from tests.ir.parser import parse

SIZES = (6, 40, 0, 3, 41)
FORMS = (scalars, arrays, changes)  # importing them fills `PROGRAMS`


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    # bytes are those of one work item, and of one execution of a loop in a loop
    options = {"cpu_max_num_threads": 1, "simd": False, "ad_stack_nests": "replay"}
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error", **options)
    yield
    qd.reset()


def check(
    program: Program, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...] = SIZES
) -> None:
    compiled: list[str] = []
    original = driver.compile_module

    def counting(module: Any, chosen: Any) -> Any:
        compiled.append(module.name)
        return original(module, chosen)

    monkeypatch.setattr(driver, "compile_module", counting)
    x, y = program.x, program.y
    start = np.linspace(0.2, 1.4, len(x.to_numpy()))
    x.from_numpy(start)
    for number, size in enumerate(sizes):
        args, trips = program.prepare(size)
        if number == 1:
            compiled.clear()
        program.kernel(*args)
        x.grad.fill(0)
        y.grad.fill(1)
        taken = record_buffer_bytes(lambda: program.kernel.grad(*args))  # noqa: B023
        values, slopes = recurrence(start, trips)
        np.testing.assert_allclose(y.to_numpy(), values, rtol=1e-12)
        np.testing.assert_allclose(x.grad.to_numpy(), slopes, rtol=1e-10)
        slots = program.slots(size) if program.slots else max(trips)
        assert taken == 8 * slots, size
        assert number == 0 or not compiled


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_bounds(make: Callable[[], Program], monkeypatch: pytest.MonkeyPatch) -> None:
    check(make(), monkeypatch)


def test_a_bound_that_the_kernel_itself_decrements() -> None:
    x = qd.field(qd.f64, shape=ITEMS, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)
    bound = qd.field(qd.i32, shape=ITEMS)

    @qd.kernel
    def kernel():
        for i in x:
            v = x[i]
            while bound[i] > 0:
                v = turn(v)
                bound[i] -= 1
            loss[None] += v

    start = np.linspace(0.2, 1.4, ITEMS)
    for size in SIZES:
        x.from_numpy(start)
        trips = [size, 0, 2 * size, 1, 3]
        bound.from_numpy(np.array(trips, np.int32))
        with qd.ad.Tape(loss=loss):
            kernel()
        values, slopes = recurrence(start, trips)
        np.testing.assert_allclose(loss[None], values.sum(), rtol=1e-12)
        np.testing.assert_allclose(x.grad.to_numpy(), slopes, rtol=1e-10)
        assert not bound.to_numpy().any()


def test_an_ndrange_of_two_by_three_has_six_work_items() -> None:
    x = qd.field(qd.f64, shape=(2, 3), needs_grad=True)
    total = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def by_range(n: qd.i32):
        for i, j in qd.ndrange(2, 3):
            v = x[i, j]
            for _ in range(n):
                v = turn(v)
            total[None] += v

    @qd.kernel
    def by_field(n: qd.i32):
        for i, j in x:
            v = x[i, j]
            for _ in range(n):
                v = turn(v)
            total[None] += v

    for kernel in (by_range, by_field):
        reverse = parse(kernel.inspect(4, mode="reverse").stages["reverse"])
        (domain,) = [task.domain for task in reverse.tasks if task.domain is not None]
        known = ops.constants_in(domain)
        assert [known[bound] for bound in domain.yielded] == [0, 6]
