"""Runs kernels by the interpreter on the memory of a launch: ``arch=qd.python``.

Slow; for debugging, and to tell a bug of the code generation from one of the rest.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from octants.artifact import ParameterLayout, Slot, parameters_of
from octants.diagnostics.exceptions import OctantsAssertionError
from octants.interpreter import AssertionFailed, Interpreter, Storage
from octants.ir.core import Array, Companion, Module, Space
from octants.types.layouts import Layout
from octants.types.scalars import DType


def make_run(module: Module) -> Callable[[int], None]:
    """A function that runs a module on the parameter block at an address."""
    parameters = parameters_of(module)
    positions = {slot: position for position, slot in enumerate(parameters.slots)}

    def run(base: int) -> None:
        block = ctypes.string_at(base, 8 * len(parameters.slots))
        interpreter = Interpreter(
            _storage(module, parameters, block),
            _number(block, positions[Slot("system", "seed")]),
            _number(block, positions[Slot("system", "launch")]),
        )
        try:
            interpreter.run(module)
        except AssertionFailed as error:
            raise OctantsAssertionError(str(error)) from None
        finally:
            for line in interpreter.printed:
                print(line, end="" if line.endswith("\n") else "\n")

    return run


def _number(block: bytes, position: int) -> int:
    number: int = struct.unpack_from("<Q", block, 8 * position)[0]
    return number


def _storage(module: Module, parameters: ParameterLayout, block: bytes) -> Storage:
    """A view of each array of the module in the memory that the block points to."""
    storage: Storage = {}
    shapes: dict[int, list[int]] = {}
    scalars: dict[int, list[Any]] = {}
    for position, slot in enumerate(parameters.slots):
        if slot.kind == "shape":
            shapes.setdefault(slot.array, []).append(_number(block, position))
        elif slot.kind == "scalar":
            dtype = module.arrays[slot.array].dtype
            value = np.frombuffer(block, dtype.numpy, 1, 8 * position)[0]
            scalars.setdefault(slot.array, []).append(value)
        elif slot.kind == "pointer":
            array = module.arrays[slot.array]
            view = _view(array, slot.companion, _number(block, position), shapes.get(slot.array))
            storage[array, slot.companion] = view
    for number, values in scalars.items():
        array = module.arrays[number]
        data = np.array(values, array.dtype.numpy).reshape(array.element_shape)
        storage[array, Companion.PRIMAL] = data
    return storage


def _view(array: Array, companion: Companion, address: int, shape: list[int] | None) -> Any:
    layout = array.layouts[companion]
    if layout is not None:
        return _FieldView(address, array.dtype, layout, array.element_shape)
    extents = (*(shape or ()), *array.element_shape)
    assert array.space is not Space.FIELD
    return _memory(address, array.dtype, extents)


def _memory(address: int, dtype: DType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    count = int(np.prod(shape, dtype=np.int64))
    if count == 0:
        return np.zeros(shape, dtype.numpy)
    memory = (ctypes.c_char * (count * dtype.size)).from_address(address)
    return np.frombuffer(memoryview(memory), dtype.numpy).reshape(shape)


class _FieldView:
    """The elements of a field in any layout, with the access of a numpy array."""

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
        return _memory(self._address + offset, self._dtype, ())

    def __getitem__(self, position: tuple[int, ...]) -> Any:
        return self._element(position)

    def __setitem__(self, position: tuple[int, ...], value: Any) -> None:
        self._element(position)[...] = value
