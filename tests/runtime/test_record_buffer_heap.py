"""How record buffers grow: by doubling, then by just what is needed; sizes never overflow."""

from __future__ import annotations

import ctypes
import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from octants import abi
from octants.diagnostics.exceptions import OctantsMemoryError
from octants.diagnostics.span import Span
from octants.ir import ops
from octants.ir.core import Module, Record, Value
from octants.runtime.cpu import CpuDevice
from octants.runtime.cpu.device import LaunchState
from octants.runtime.cpu.native import linking as native
from octants.runtime.cpu.native.record_buffers import SLACK
from octants.runtime.cpu.thread_pool import ThreadPool
from octants.types.scalars import DType, f64, i32, i64
from tests.codegen.compiled import Compiled, argument, for_, ndarray, parallel, while_

PAGE = 1 << 16
GIGABYTE = 1 << 30


class FakeHeap:
    """Gives addresses that must not be touched, to those whom it does not refuse."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.grants: Callable[[int], bool] = lambda nbytes: True
        pointer = ctypes.c_void_p
        self._realloc = ctypes.CFUNCTYPE(pointer, pointer, ctypes.c_int64)(self._give)
        self._free = ctypes.CFUNCTYPE(None, pointer)(lambda address: None)
        for function in (self._realloc, self._free):  # devices may be collected after the heap
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(function))

    def _give(self, _: int | None, nbytes: int) -> int | None:
        nbytes -= SLACK
        self.asked.append(nbytes)
        return 0x1000 * len(self.asked) if self.grants(nbytes) else None

    @functools.cached_property
    def support(self) -> native.Support:
        functions = {"realloc": self._realloc, "free": self._free}
        addresses = {
            name: ctypes.cast(function, ctypes.c_void_p).value or 0
            for name, function in functions.items()
        }
        return native.Support(addresses)


@pytest.fixture(scope="module")
def shared_heap() -> FakeHeap:
    return FakeHeap()


@pytest.fixture
def heap(shared_heap: FakeHeap) -> Iterator[FakeHeap]:
    yield shared_heap
    shared_heap.asked.clear()
    shared_heap.grants = lambda nbytes: True


class RecordBuffer:
    """The record buffer of one launching thread, which grows on request."""

    def __init__(
        self, heap: FakeHeap, limit: int = 1 << 62, pool: ThreadPool | None = None
    ) -> None:
        self.pool = pool or ThreadPool(heap.support, 1, limit)
        self._context = LaunchState(heap.support, self.pool)
        self.share = 1 << 62
        pointer = ctypes.c_void_p
        kind = ctypes.CFUNCTYPE(pointer, pointer, pointer, ctypes.c_int64)
        self._grow = kind(heap.support.addresses["octants_grow"])

    def grow(self, nbytes: int) -> int | None:
        address: int | None = self._grow(self._context.address, self._context.fields.worker, nbytes)
        return address

    @property
    def capacity(self) -> int:
        return int(self._context.fields.main_worker.capacity)

    @property
    def share(self) -> int:
        return int(self._context.fields.main_worker.share)

    @share.setter
    def share(self, nbytes: int) -> None:
        self._context.fields.main_worker.share = nbytes


def test_it_doubles(heap: FakeHeap) -> None:
    buffer = RecordBuffer(heap)
    for nbytes in (100, PAGE + 1, 2 * PAGE + 1, 100 * PAGE + 1):
        assert buffer.grow(nbytes)
        assert buffer.capacity == buffer.pool.record_buffer_bytes == heap.asked[-1]
    assert heap.asked == [PAGE, 2 * PAGE, 4 * PAGE, 101 * PAGE]


def test_it_does_not_double_beyond_its_share(heap: FakeHeap) -> None:
    buffer = RecordBuffer(heap)
    buffer.share = 100_000
    for nbytes in (100, PAGE + 1, 100_000, 100_001, 150_000):
        assert buffer.grow(nbytes)
    assert heap.asked == [PAGE, 100_000, 100_000, 100_001, 150_000]


def test_where_the_doubled_size_is_refused_it_takes_just_what_is_needed(heap: FakeHeap) -> None:
    buffer = RecordBuffer(heap)
    buffer.grow(10 * PAGE)
    heap.grants = lambda nbytes: nbytes < 12 * PAGE
    assert buffer.grow(11 * PAGE + 1)
    assert heap.asked == [10 * PAGE, 20 * PAGE, 11 * PAGE + 1]
    assert buffer.capacity == buffer.pool.record_buffer_bytes == 11 * PAGE + 1


def test_where_that_is_refused_too_it_keeps_what_it_has(heap: FakeHeap) -> None:
    buffer = RecordBuffer(heap)
    buffer.grow(10 * PAGE)
    heap.grants = lambda nbytes: False
    for _ in range(3):
        assert buffer.grow(11 * PAGE) is None
        assert buffer.capacity == buffer.pool.record_buffer_bytes == 10 * PAGE
    assert heap.asked == [10 * PAGE, *[20 * PAGE, 11 * PAGE] * 3]
    heap.grants = lambda nbytes: True
    assert buffer.grow(11 * PAGE)


def test_the_limit_of_all_tapes_is_kept_without_asking(heap: FakeHeap) -> None:
    buffer = RecordBuffer(heap, limit=15 * PAGE)
    assert buffer.grow(10 * PAGE)
    assert buffer.grow(15 * PAGE)
    assert buffer.grow(15 * PAGE + 1) is None
    assert heap.asked == [10 * PAGE, 15 * PAGE]
    assert buffer.pool.record_buffer_bytes == 15 * PAGE


def test_sizes_beyond_32_bits(heap: FakeHeap) -> None:
    buffer = RecordBuffer(heap)
    for nbytes in (5 * GIGABYTE, 7 * GIGABYTE, 3000 * GIGABYTE, 1 << 60):
        assert buffer.grow(nbytes)
    assert heap.asked == [5 * GIGABYTE, 10 * GIGABYTE, 3000 * GIGABYTE, 1 << 60]


@pytest.mark.parametrize("nbytes", [-1, -(2**63), 2**63 - 1, abi.MAXIMUM_RECORD_BUFFER + 1])
def test_a_position_gone_wrong_is_refused(heap: FakeHeap, nbytes: int) -> None:
    buffer = RecordBuffer(heap)
    assert buffer.grow(nbytes) is None
    assert not heap.asked
    assert buffer.pool.record_buffer_bytes == 0


# -- what kernels ask for -------------------------------------------------------------------------


def run(heap: FakeHeap, module: Module, data: dict[str, Any]) -> str:
    """Run a kernel to which all memory is refused; what the error says."""
    heap.grants = lambda nbytes: False
    kernel = Compiled(module, CpuDevice(1, record_buffer_limit=1 << 62, support=heap.support))
    with pytest.raises(OctantsMemoryError) as caught:
        kernel.run({**data, "out": np.zeros(1, np.int32)})
    return str(caught.value)


def pushing_loop(counter: DType, slots: list[DType]) -> Module:
    """Records each turn of a loop from ``lower`` to ``upper``, as reverse mode does."""
    lower, upper, out = argument("lower", counter), argument("upper", counter), ndarray("out", i32)
    record = Record("r", slots, Span("program.py", 3, 4, 3, 9, "step"))

    def body(build: Any, i: Any) -> None:
        low, high = build.load(lower, []), build.load(upper, [])
        base = build.offset(0)

        def turn(build: Any, k: Any, _: Any) -> Any:
            turn = build.binary("sub", build.cast(k, i64), build.cast(low, i64))
            values = [build.constant(1, dtype) for dtype in slots]
            build.append(ops.RecordPush(record, base, turn, values))
            return []

        for_(build, low, high, [], turn)
        build.store(out, [i], i)

    task = parallel("t", lambda build: (build.index(0), build.shape(out, 0)), body)
    return Module("step_reverse", [lower, upper, out], tasks=[task], location=Span("p.py", 1))


@pytest.mark.parametrize(
    ("counter", "lower", "upper"),
    [
        (i32, -(2**31), 2**31 - 1),
        (i32, -5, 2**31 - 1),
        (i64, 0, 2**33),
        (i64, -(2**40), 2**40),
        (i64, 2**62, 2**62 + 2**50),
    ],
)
def test_a_loop_asks_for_all_its_turns(
    heap: FakeHeap, counter: DType, lower: int, upper: int
) -> None:
    data = {"lower": np.array(lower, counter.numpy), "upper": np.array(upper, counter.numpy)}
    text = run(heap, pushing_loop(counter, [f64, i32]), data)
    need = 16 * (upper - lower)
    assert heap.asked[-1] == need
    assert f"work item needs {need} bytes" in text
    assert "its record takes 16 bytes an iteration" in text


@pytest.mark.parametrize(("lower", "upper"), [(-(2**63), 2**63 - 1), (-(2**62), 2**62), (0, 2**57)])
def test_more_turns_than_can_be_counted_in_bytes_are_refused(
    heap: FakeHeap, lower: int, upper: int
) -> None:
    data = {"lower": np.array(lower), "upper": np.array(upper)}
    run(heap, pushing_loop(i64, [f64, i32]), data)
    assert not heap.asked


def test_a_record_beyond_four_gigabytes(heap: FakeHeap) -> None:
    """The record of a `while` whose base lies behind that of a loop of 2**30 turns."""
    out = ndarray("out", i32)
    first, second = Record("a", [f64]), Record("b", [f64])

    def body(build: Any, i: Any) -> None:
        end = ops.RecordEnd(first, build.offset(0), build.offset(2**30), results=[Value(i64)])
        base = build.append(end).result

        def turn(build: Any, carried: Any) -> Any:
            value = build.constant(0.5, f64)
            build.append(ops.RecordPush(second, base, carried[0], [value]))
            return [build.binary("add", carried[0], build.offset(1))]

        while_(
            build,
            [build.offset(3)],
            lambda build, carried: build.compare("lt", carried[0], build.offset(9)),
            turn,
        )
        build.store(out, [i], i)

    task = parallel("t", lambda build: (build.index(0), build.shape(out, 0)), body)
    run(heap, Module("far", [out], tasks=[task]), {})
    assert heap.asked[-1] == 2**33 + 4 * 8


def test_a_loop_without_turns_asks_for_nothing(heap: FakeHeap) -> None:
    kernel = Compiled(
        pushing_loop(i32, [f64]), CpuDevice(1, record_buffer_limit=1 << 62, support=heap.support)
    )
    for lower, upper in ((0, 0), (3, -3), (2**31 - 1, -(2**31))):
        data = {"lower": np.array(lower, np.int32), "upper": np.array(upper, np.int32)}
        kernel.run({**data, "out": np.zeros(2, np.int32)})
    data = {"lower": np.array(0, np.int32), "upper": np.array(9, np.int32)}
    kernel.run({**data, "out": np.zeros(0, np.int32)})
    assert not heap.asked


def test_who_asks_for_too_much_takes_nothing_from_others(heap: FakeHeap) -> None:
    """While the system refuses the doubled size of one record buffer, another one grows."""
    first = RecordBuffer(heap, limit=40 * PAGE)
    second = RecordBuffer(heap, pool=first.pool)
    assert first.grow(15 * PAGE)
    grown: list[int | None] = []
    other = threading.Thread(target=lambda: grown.append(second.grow(5 * PAGE)))

    def grants(nbytes: int) -> bool:
        if nbytes != 30 * PAGE:
            return True
        other.start()
        time.sleep(0.05)  # for the other one to ask, too
        return False

    heap.grants = grants
    assert first.grow(16 * PAGE)
    other.join()
    assert grown != [None]
    assert (first.capacity, second.capacity) == (16 * PAGE, 5 * PAGE)
    assert first.pool.record_buffer_bytes == 21 * PAGE


@pytest.mark.parametrize("shift", [16, 32, 48])
def test_it_begins_with_a_cache_line_and_keeps_its_contents(shift: int) -> None:
    """Each allocation is somewhere else in a line than the one before."""
    memory: list[Any] = []
    offsets = itertools.cycle((16, 16 + shift))
    pointer = ctypes.c_void_p

    @ctypes.CFUNCTYPE(pointer, pointer, ctypes.c_int64)
    def moved(old: int | None, nbytes: int) -> int:
        memory.append(ctypes.create_string_buffer(nbytes + 256))
        address = (ctypes.addressof(memory[-1]) + 63) // 64 * 64 + next(offsets) % 64
        if old is not None:
            ctypes.memmove(address, old, min(nbytes, len(memory[-2]) - 256))
        return int(address)

    nothing = ctypes.CFUNCTYPE(None, pointer)(lambda address: None)
    for function in (moved, nothing):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(function))
    functions = {"realloc": moved, "free": nothing}
    addresses = {
        name: ctypes.cast(function, pointer).value or 0 for name, function in functions.items()
    }
    pool = ThreadPool(native.Support(addresses), 1, 1 << 62)
    heap: Any = type("Heap", (), {"support": pool._support})
    buffer = RecordBuffer(heap, pool=pool)
    data = bytes(range(256)) * (PAGE // 256)
    address = buffer.grow(PAGE)
    assert address is not None
    ctypes.memmove(address, data, PAGE)
    for pages in (2, 4, 8):
        address = buffer.grow(pages * PAGE)
        assert address is not None
        assert address % 64 == 0
        assert ctypes.string_at(address, PAGE) == data
