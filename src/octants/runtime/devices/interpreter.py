"""Runs kernels with the interpreter on the memory of a launch: ``arch=qd.python``.

It is slow, and serves debugging: it separates errors of code generation from all others.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from octants.artifact import ParameterLayout, Slot, overflow_message, parameters_of
from octants.block_interpreter import Divergence
from octants.diagnostics.cooperation_errors import NotMet
from octants.diagnostics.exceptions import OctantsAssertionError, OctantsError
from octants.diagnostics.kernel_run_time_errors import RecordBufferOverflow
from octants.interpreter import AssertionFailed, Interpreter, Overflow, Storage
from octants.ir.core import Array, ArrayRef, Companion, Module, Space
from octants.runtime.memory.host import view_memory
from octants.runtime.reports.counted_prints import joined
from octants.runtime.reports.messages import render
from octants.runtime.reports.pending_errors import Pending
from octants.types.layouts import Layout, Strided, Term
from octants.types.scalars import DType


def make_run(module: Module, pending: Pending, record_budget: int) -> Callable[[int], None]:
    """Make a function that runs a module with the parameter block at an address.

    Args:
        module: The kernel.
        pending: Receives record-buffer overflows.
        record_budget: The bytes that the records of a work item should take.
    """
    parameters = parameters_of(module)
    positions = {slot: position for position, slot in enumerate(parameters.slots)}

    def run(base: int) -> None:
        block = ctypes.string_at(base, 8 * len(parameters.slots))
        interpreter = Interpreter(
            _storage(module, parameters, block),
            _number(block, positions[Slot("system", "seed")]),
            _number(block, positions[Slot("system", "launch")]),
            record_budget,
        )
        try:
            interpreter.run(module)
        except AssertionFailed as error:
            raise OctantsAssertionError(str(error)) from None
        except Divergence as error:
            raise NotMet(module.kernel, error.item).at(error.op.location) from None
        finally:
            prints = interpreter.printed
            print(
                joined((op if op.is_counted else None, text.__str__) for op, text in prints),
                end="",  # `print` does nothing in a program without an output, as of pythonw
            )
        if interpreter.overflows:
            pending.add(_worst(module, interpreter.overflows))

    return run


def _worst(module: Module, overflows: list[Overflow]) -> OctantsError:
    """The overflow with the largest need, of the first work item that has it."""
    worst = max(overflows, key=lambda overflow: overflow.count)
    message = overflow_message(worst.record)
    text = render(message, [worst.count])
    return RecordBufferOverflow(module.kernel, text, worst.item).at(message.location)


def _number(block: bytes, position: int) -> int:
    number: int = struct.unpack_from("<Q", block, 8 * position)[0]
    return number


def _storage(module: Module, parameters: ParameterLayout, block: bytes) -> Storage:
    """A view of each array of the module in the memory that the parameter block points to."""
    given: dict[tuple[str, int, Companion], list[Any]] = {}
    for position, slot in enumerate(parameters.slots):
        dtype = module.arrays[slot.array].dtype.numpy if slot.kind == "scalar" else np.int64
        number = np.frombuffer(block, dtype, 1, 8 * position)[0]
        given.setdefault((slot.kind, slot.array, slot.companion), []).append(number)
    storage: Storage = {}
    for (kind, position, companion), values in given.items():
        if kind == "scalar":
            array = module.arrays[position]
            storage[ArrayRef(array, companion)] = np.array(values).reshape(array.element_shape)
        elif kind == "pointer":
            array = module.arrays[position]
            shape = given.get(("shape", position, Companion.PRIMAL), [])
            strides = given.get(("stride", position, companion), [])
            storage[ArrayRef(array, companion)] = _view(
                array, companion, int(values[0]), shape, strides
            )
    return storage


def _view(
    array: Array, companion: Companion, address: int, shape: list[Any], strides: list[Any]
) -> Any:
    extents = tuple(map(int, shape))
    layout = array.layouts[companion]
    if isinstance(layout, Strided):
        layout = _layout(extents, tuple(map(int, strides)))
    if layout is not None:
        return _LaidOut(address, array.dtype, layout, array.element_shape)
    assert array.space is not Space.FIELD
    return view_memory(address, array.dtype.numpy, (*extents, *array.element_shape))


def _layout(shape: tuple[int, ...], strides: tuple[int, ...]) -> Layout:
    """The layout with strides in bytes, those within an element last."""
    rank = len(shape)
    terms = tuple(Term(axis, 1, 0, stride) for axis, stride in enumerate(strides[:rank]))
    return Layout(shape, terms, strides[rank:])


class _LaidOut:
    """The elements of an array in any layout, accessed like a numpy array."""

    def __init__(
        self, address: int, dtype: DType, layout: Layout, element_shape: tuple[int, ...]
    ) -> None:
        self.shape = (*layout.shape, *element_shape)
        self._address = address
        self._dtype = dtype
        self._layout = layout

    def _element(self, position: tuple[int, ...]) -> np.ndarray[Any, Any]:
        rank = len(self._layout.shape)
        offset = sum(
            index * stride
            for index, stride in zip(position[rank:], self._layout.element_strides, strict=True)
        )
        for term in self._layout.terms:
            part = position[term.axis] // term.divisor
            offset += (part % term.modulus if term.modulus else part) * term.stride
        return view_memory(self._address + offset, self._dtype.numpy, ())

    def __getitem__(self, position: tuple[int, ...]) -> Any:
        return self._element(position)

    def __setitem__(self, position: tuple[int, ...], value: Any) -> None:
        self._element(position)[...] = value
