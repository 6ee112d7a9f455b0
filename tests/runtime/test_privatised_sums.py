"""How the runtime keeps workers apart who add to one array: turns, parts, a fixed order."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from octants import abi
from octants.runtime.cpu.device import CpuDevice, LaunchState
from octants.runtime.cpu.native.structures import Worker

FIXED, WRAPS = 1, 2
TASK = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
)
SUMS = ctypes.CFUNCTYPE(
    None,
    ctypes.c_void_p,
    TASK,
    ctypes.c_void_p,
    *[ctypes.c_int64] * 7,
    ctypes.c_int32,
)


class Loop:
    """Runs a loop of work items that do nothing, and notes who had which chunk when."""

    def __init__(self, device: CpuDevice, pause: float = 0.0) -> None:
        self.context: LaunchState = device.make_context()
        self.function = SUMS(device.support.addresses["octants_parallel_sums"])
        self.pause = pause
        self.lock = threading.Lock()
        self.active: list[tuple[int, int]] = []
        self.together: list[tuple[tuple[int, int], tuple[int, int]]] = []
        self.chunks: list[tuple[int, int]] = []
        self.parts: list[int] = []

    def run(
        self,
        lower: int,
        upper: int,
        *,
        grain: int = 2,
        tile: int = 1,
        nbytes: int = 0,
        worth: int = 1 << 40,
        width: int = 0,
        flags: int = 0,
    ) -> None:
        task = TASK(self._task)
        arguments = (lower, upper, grain, tile, nbytes, worth, width, flags)
        self.function(self.context.address, task, None, *arguments)
        assert sum(end - begin for begin, end in self.chunks) == max(0, upper - lower)
        covered = sorted(self.chunks)
        assert all(one[1] == other[0] for one, other in zip(covered, covered[1:], strict=False))

    def _task(self, _: Any, __: Any, worker: int, begin: int, end: int) -> None:
        chunk = begin, end
        with self.lock:
            self.together += [(other, chunk) for other in self.active]
            self.active.append(chunk)
            self.chunks.append(chunk)
            self.parts.append(Worker.from_address(worker).part)
        for _ in range(1000):  # a machine that is busy may start the other workers late
            time.sleep(self.pause)
            if not self.pause or self.together:
                break
        with self.lock:
            self.active.remove(chunk)

    @property
    def count(self) -> int:
        fields: Any = self.context.fields
        return int(fields.part_count)

    def used(self) -> list[int]:
        """The numbers of the parts that were used."""
        fields: Any = self.context.fields
        flags = (ctypes.c_char * self.count).from_address(fields.part_flags).raw
        return [number for number, flag in enumerate(flags) if flag]


@pytest.fixture
def loops() -> Iterator[Callable[..., Loop]]:
    devices = []

    def make(threads: int, pause: float = 0.0) -> Loop:
        devices.append(CpuDevice(threads))
        return Loop(devices[-1], pause)

    yield make
    for device in devices:
        device.close()


@pytest.mark.parametrize("flags", [0, WRAPS, FIXED, FIXED | WRAPS])
@pytest.mark.parametrize("count", [900, 1000, 1023, 4096])
def test_neighbours_are_never_run_together(
    loops: Callable[..., Loop], count: int, flags: int
) -> None:
    loop = loops(4, pause=1e-4)
    loop.run(7, 7 + count, width=40, flags=flags)
    assert len(loop.chunks) > 8
    assert len(loop.together) > 0
    for (begin, end), (other, other_end) in loop.together:
        gaps = [max(other - end, begin - other_end)]
        if flags & WRAPS:  # once around
            gaps.append(min(begin, other) - 7 + 7 + count - max(end, other_end))
        assert all(gap >= 40 for gap in gaps), (begin, end, other, other_end)


@pytest.mark.parametrize("width", [0, 30])
@pytest.mark.parametrize("nbytes", [0, 100])
def test_a_fixed_order_does_not_depend_on_threads(
    loops: Callable[..., Loop], nbytes: int, width: int
) -> None:
    found = set()
    for threads in (1, 2, 5):
        loop = loops(threads)
        loop.run(0, 1000, nbytes=nbytes, width=width, flags=FIXED)
        begins = sorted(loop.chunks)
        owners = dict(zip(loop.chunks, loop.parts, strict=True))
        start: Any = loop.context.fields.parts or 0
        parts = tuple((owners[chunk] - start) // 128 if owners[chunk] else -1 for chunk in begins)
        found.add((tuple(begins), parts if nbytes else ()))
    assert len(found) == 1
    ((begins, parts),) = found
    if nbytes:
        assert parts == tuple(range(-1, len(begins) - 1))


def test_the_launching_thread_adds_to_the_target_itself(loops: Callable[..., Loop]) -> None:
    for threads, count in ((1, 1000), (4, 2)):
        loop = loops(threads)
        loop.run(0, count, nbytes=1000)
        assert set(loop.parts) == {0}
        assert loop.count == 0


def test_helpers_have_zeroed_parts(loops: Callable[..., Loop]) -> None:
    loop = loops(3, pause=1e-4)
    fields: Any = loop.context.fields
    for _ in range(2):  # the second time in memory that was written to
        loop.parts.clear()
        loop.chunks.clear()
        loop.run(0, 1000, nbytes=1000)
        assert loop.count == 2
        assert fields.part_bytes == 1024
        addresses = {part for part in loop.parts if part}
        assert addresses <= {fields.parts, fields.parts + 1024}
        assert loop.used() == sorted((part - fields.parts) // 1024 for part in addresses)
        for number in loop.used():
            part = (ctypes.c_char * 1024).from_address(fields.parts + 1024 * number)
            assert part.raw[:1000] == bytes(1000)
            ctypes.memset(part, 7, 1024)


@pytest.mark.parametrize(
    ("nbytes", "worth", "width"), [(1000, 500, 0), (abi.PARTS_LIMIT, 1 << 50, 0), (0, 0, 600)]
)
def test_what_is_not_worth_it_is_shared(
    loops: Callable[..., Loop], nbytes: int, worth: int, width: int
) -> None:
    loop = loops(3)
    loop.run(0, 1000, nbytes=nbytes, worth=worth, width=width)
    assert set(loop.parts) == {abi.PART_SHARED}
    assert loop.count == 0


def test_a_fixed_order_without_parts_is_that_of_one_thread(loops: Callable[..., Loop]) -> None:
    loop = loops(3)
    loop.run(0, 1000, nbytes=1000, worth=100, flags=FIXED)
    assert set(loop.parts) == {0}
    assert loop.chunks == sorted(loop.chunks)
    assert not loop.together


def test_a_busy_pool_is_not_waited_for(loops: Callable[..., Loop]) -> None:
    loop = loops(3)
    support, pool = loop.context._pool._support, loop.context._pool.address
    assert support.acquire(pool)
    try:
        for flags in (0, FIXED):
            loop.run(0, 1000, nbytes=1000, width=10, flags=flags)
            loop.chunks.clear()
        assert not loop.together
    finally:
        support.release(pool)


def test_chunks_are_whole_tiles(loops: Callable[..., Loop]) -> None:
    loop = loops(2)
    loop.run(0, 1001, tile=16, width=10, grain=16)
    assert {(end - begin) % 16 for begin, end in loop.chunks if end != 1001} == {0}


def test_parts_that_are_large_are_given_back(loops: Callable[..., Loop]) -> None:
    loop = loops(2, pause=1e-4)
    fields: Any = loop.context.fields
    loop.run(0, 100, nbytes=1 << 20)
    assert fields.part_capacity > 1 << 20
    loop.context._free_parts(loop.context.address)
    assert fields.part_capacity == 0
    assert not fields.part_memory
