"""Parts of a device's memory: what arrives, what stays as it is, and how few copies it takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octants.diagnostics.exceptions import InternalError
from octants.runtime.devices.null import NullDevice
from octants.runtime.memory.array_access import HOST, DeviceParts, Part, parts_of
from octants.runtime.memory.host import address_of, describe
from octants.runtime.memory.strided_copy import copy_rows
from tests.discrete_device import DiscreteMemory


class Counting(DiscreteMemory):
    """Memory that counts what is copied: the kinds of copies, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def read(self, address: int, into: Any) -> None:
        self.calls.append("read")
        super().read(address, into)

    def write(self, address: int, values: Any) -> None:
        self.calls.append("write")
        super().write(address, values)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self.calls.append("copy")
        super().copy(target, source, nbytes)

    def copy_rows(self, *numbers: int) -> None:
        self.calls.append("rows")
        super().copy_rows(*numbers)

    def clear(self, address: int, nbytes: int) -> None:
        self.calls.append("clear")
        super().clear(address, nbytes)


class Counterparts:
    """The same numbers in memory of a device and of the host."""

    def __init__(self, count: int = 4096) -> None:
        self.device: Any = Counting()
        self.parts = DeviceParts(self.device)
        self.host = np.arange(1, count + 1, dtype=np.int16)
        self.allocation = self.device.allocate(2 * count)
        self.whole = describe(self.allocation.address, 2 * count, np.dtype("i2"), (count,), (2,))
        self.device.write(self.allocation.address, self.host.view(np.uint8))
        self.device.calls.clear()

    def both(self, shape: tuple[int, ...], index: Any = ()) -> tuple[Part, Part]:
        """A part, and the same of the host: of an array of this shape, what an index gives."""
        size = int(np.prod(shape))
        index = (*index, Ellipsis)
        far, near = (memory[:size].reshape(shape)[index] for memory in (self.whole, self.host))
        return far, near

    def check(self) -> None:
        """All of both memories is the same, what lies between the elements too."""
        assert (self.parts.read(self.whole) == self.host).all()


@st.composite
def places(draw: Any) -> tuple[tuple[int, ...], tuple[Any, ...], tuple[int, ...]]:
    """A shape, an index of slices and numbers, and an order of the axes that are left."""
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=0, max_size=4)))
    index: list[Any] = []
    for extent in shape:
        if draw(st.booleans()):
            index.append(slice(None))
        elif draw(st.booleans()):
            index.append(draw(st.integers(0, extent - 1)))
        else:
            ends = st.none() | st.integers(-extent, extent)
            steps = st.sampled_from([None, 1, 2, 3, -1, -2])
            index.append(slice(draw(ends), draw(ends), draw(steps)))
    left = sum(isinstance(item, slice) for item in index)
    return shape, tuple(index), tuple(draw(st.permutations(range(left))))


@given(places(), st.integers(0, 4), st.sampled_from([np.int16, np.float64]))
def test_what_arrives_is_what_numpy_would_do(place: Any, action: int, kind: Any) -> None:
    shape, index, order = place
    counterparts = Counterparts()
    far, near = (part.transpose(order) for part in counterparts.both(shape, index))
    assert far.shape == near.shape
    if action == 0:
        assert (counterparts.parts.read(far) == near).all()
        assert counterparts.parts.read(far).flags.c_contiguous
    elif action == 1:
        values = np.empty_like(near, kind, order="K")  # as it lies in memory
        values[...] = -np.arange(near.size).reshape(near.shape)
        counterparts.parts.write(far, values)
        near[...] = values
    elif action == 2:
        counterparts.parts.clear(far)
        near[...] = 0
    else:
        saved, copy = counterparts.parts.save(far), near.copy()
        assert saved.nbytes == copy.nbytes
        assert counterparts.parts.holds(far, saved)
        counterparts.parts.write(counterparts.whole, 77)
        counterparts.host[...] = 77
        assert (counterparts.parts.read(far) == 77).all()
        assert counterparts.parts.holds(far, saved) == (copy == 77).all()
        inner: Any = tuple(slice(k % 2, None) for k in range(near.ndim)) if action == 4 else ()
        counterparts.parts.restore(far[(*inner, ...)], saved[(*inner, ...)])
        near[(*inner, ...)] = copy[(*inner, ...)]
    counterparts.check()


DENSE = ((8, 8), ())
ROWS = ((64, 4), (slice(None), 1))
BOX = ((16, 16, 4), (slice(2, 9), slice(3, 7)))


@pytest.mark.parametrize(
    ("shape", "index", "action", "calls"),
    [
        (*DENSE, "read", ["read"]),
        (*DENSE, "write", ["write"]),
        (*DENSE, "clear", ["clear"]),
        (*DENSE, "save", ["copy"]),
        (*ROWS, "read", ["read"]),  # what lies between comes along
        (*ROWS, "write", ["write", "rows"]),
        (*ROWS, "clear", ["rows"]),
        (*ROWS, "save", ["rows"]),
        (*BOX, "save", ["rows"]),
        ((4, 200, 5), (slice(None, None, 2), slice(None, None, 2), 0), "save", ["rows"] * 2),
        ((2000,), (slice(None, None, 999),), "read", ["rows", "read"]),
        ((8, 8), (3, 5), "read", ["read"]),
    ],
)
def test_how_much_is_asked_of_the_device(
    shape: Any, index: Any, action: str, calls: list[str]
) -> None:
    counterparts = Counterparts()
    part, _ = counterparts.both(shape, index)
    getattr(counterparts.parts, action)(part, *([1] if action == "write" else []))
    assert counterparts.device.calls == calls


@pytest.mark.parametrize("count", [5, 32768, 32769, 100_001])
def test_equal_elements_are_sent_once_and_copied_by_the_device(count: int) -> None:
    counterparts = Counterparts(count)
    end = slice(1, None)  # what lies before it stays
    for value, first in ((-7, "write"), (0, "clear"), (5.9, "write")):
        counterparts.device.calls.clear()
        counterparts.parts.write(counterparts.whole[end], value)
        counterparts.host[end] = value
        copies = 0 if value == 0 else max(0, (count - 2) // 32768).bit_length()
        assert counterparts.device.calls == [first] + ["copy"] * copies
        counterparts.check()


def test_negative_zeros_stay_negative() -> None:
    parts = DeviceParts(device := Counting())
    allocation = device.allocate(64)
    numbers = describe(allocation.address, 64, np.dtype("f8"), (8,), (8,))
    parts.write(numbers, -0.0)
    assert np.signbit(parts.read(numbers)).all()


@pytest.mark.parametrize("action", ["read", "write", "clear", "save"])
def test_a_transposed_array_is_one_piece(action: str) -> None:
    counterparts = Counterparts()
    part, near = (each.T for each in counterparts.both((8, 9)))
    values = np.arange(72).reshape(9, 8)
    found = getattr(counterparts.parts, action)(part, *([values] if action == "write" else []))
    assert len(counterparts.device.calls) == 1
    if action == "read":
        assert (found == near).all()
    if action == "write":
        near[...] = values
    if action == "clear":
        near[...] = 0
    counterparts.check()


@pytest.mark.parametrize("turn", [lambda part: part, lambda part: part.T])
def test_what_lies_as_on_the_device_is_copied_once(turn: Any) -> None:
    counterparts = Counterparts()
    far, near = (turn(part) for part in counterparts.both((8, 9)))
    device: Any = counterparts.device
    read, write, places = device.read, device.write, []

    def note(copy: Any) -> Any:
        return lambda address, memory: (places.append(address_of(memory)), copy(address, memory))

    device.read, device.write = note(read), note(write)
    values = -near
    counterparts.parts.write(far, values)
    found = counterparts.parts.read(far)
    assert places[0] == address_of(values)
    assert (places[1] == address_of(found)) == near.flags.c_contiguous
    counterparts.parts.write(far, values.astype(np.int32))  # which have to be converted
    assert places[2] != address_of(values)
    assert (found == values).all()


def test_what_was_saved_goes_to_a_part_in_another_order() -> None:
    counterparts = Counterparts()
    far, near = counterparts.both((6, 5))
    allocation = counterparts.device.allocate(60)
    other = describe(allocation.address, 60, np.dtype("i2"), (6, 5), (2, 12))
    counterparts.parts.restore(other, counterparts.parts.save(far))
    assert (counterparts.parts.read(other) == near).all()


def test_nothing_is_asked_for_an_array_without_elements() -> None:
    counterparts = Counterparts()
    part, _ = counterparts.both((4, 4), (slice(2, 2),))
    counterparts.parts.write(part, 1)
    counterparts.parts.clear(part)
    counterparts.parts.restore(part, counterparts.parts.save(part))
    assert counterparts.parts.read(part).shape == (0, 4)
    assert counterparts.device.calls == []


def test_elements_that_share_memory_are_read() -> None:
    counterparts = Counterparts()
    windows, near = (
        np.lib.stride_tricks.as_strided(memory, (5, 3), (2, 2))
        for memory in (counterparts.whole, counterparts.host)
    )
    assert (counterparts.parts.read(windows) == near).all()
    saved = counterparts.parts.save(windows)
    assert (counterparts.parts.read(saved.part) == near).all()


def test_rows_by_way_of_the_host() -> None:
    counterparts = Counterparts()
    address = counterparts.allocation.address
    arguments = address, 40, address + 2000, 24, 10, 20
    counterparts.device.copy_rows(*arguments)
    first = counterparts.parts.read(counterparts.whole)
    counterparts.device.write(counterparts.allocation.address, counterparts.host.view(np.uint8))
    copy_rows(counterparts.device, *arguments)
    assert (counterparts.parts.read(counterparts.whole) == first).all()
    assert (first != counterparts.host).sum() == 100


# -- the device itself ----------------------------------------------------------------------------


def test_the_device_refuses_what_it_has_not_allocated() -> None:
    device: Any = DiscreteMemory()
    memory = device.allocate(100)
    address = memory.address
    into = np.empty(8, np.uint8)
    device.read(address + 92, into)
    for wrong in (address - 1, address + 93, into.ctypes.data):
        with pytest.raises(InternalError, match="not memory of the device"):
            device.read(wrong, into)
    del memory
    with pytest.raises(InternalError, match="not memory of the device"):
        device.clear(address, 1)


def test_which_memory_is_reached_how() -> None:
    assert parts_of(NullDevice()) is HOST
    far: Any = DiscreteMemory()
    assert isinstance(parts_of(far), DeviceParts)
