"""Fields and ndarrays: cells that hold the numbers last written."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from octants.fuzz.oracle.matrices import Matrix, broadcast, matrix
from octants.fuzz.oracle.numbers import Num, Type, convert, lift, offset_of, rounded
from octants.fuzz.oracle.operators import binary
from octants.fuzz.oracle.races import RaceWatch
from octants.fuzz.oracle.state import STATE, IllDefined

_MODES = {"+": "add", "-": "add", "*": "mul"}

CONVERTED = frozenset(("+", "-", "&", "|", "^", "min", "max"))
"""Updates that are one operation on memory: their operand is converted to its type before."""


class Sums:
    """How large the terms are that the loop in progress has added up in each element.

    Added in another order, partial sums may be as large as all of the terms together. Serial loops
    sum up in a register what they add to an element.
    """

    def __init__(self) -> None:
        self.epoch = -1
        self.sizes: dict[Any, tuple[float, float]] = {}

    def unordered(self, element: Any, fn: str, before: Num, operand: Num, after: Num) -> Num:
        """The result of an update of an element where the order of work items is free.

        It has more error; and there is no winner between equals.
        """
        is_serial = STATE.item is None
        if not after.type.is_float or (is_serial and fn not in ("+", "-")):
            return after
        if fn in ("min", "max"):
            if before.value == operand.value and before.node != operand.node:
                STATE.note_near(f"atomic {fn} of equals")
            return after
        STATE.has_sums = True
        sizes = abs(after.value), abs(after.tangent)
        if fn != "*":
            sizes = self._extend(element, before, operand)
        roundoff = after.type.roundoff
        result = Num(after.type, after.value, after.error + roundoff * sizes[0])
        result.node, result.tangent = after.node, after.tangent
        result.tangent_error = after.tangent_error + roundoff * sizes[1]
        return result

    def _extend(self, element: Any, before: Num, operand: Num) -> tuple[float, float]:
        """The sizes of the terms so far, of the values and of the tangents."""
        if self.epoch != STATE.epoch:
            self.epoch = STATE.epoch
            self.sizes = {}
        value, tangent = self.sizes.get(element, (abs(before.value), abs(before.tangent)))
        self.sizes[element] = value + abs(operand.value), tangent + abs(operand.tangent)
        return self.sizes[element]


class Array:
    """A field or an ndarray; `cells` has the elements row by row, components last."""

    def __init__(
        self, dtype: Type, shape: tuple[int, ...], element_shape: tuple[int, ...], needs_grad: bool
    ) -> None:
        self.dtype = dtype
        self.element_shape = element_shape
        self.needs_grad = needs_grad and dtype.is_float
        self.width = math.prod(element_shape)
        self.take_shape(shape)
        self.leaves: list[int] = []
        self.watch = RaceWatch()
        self.sums = Sums()
        self.is_accessed = False  # by a kernel so far

    def take_shape(self, shape: tuple[int, ...]) -> None:
        """Have elements, all zero: when the array is made, or when it is placed."""
        self.shape = shape
        zero = Num(self.dtype, self.dtype(0).value)
        self.cells: list[Num] = [zero] * (math.prod(shape) * self.width)

    def load_initial(self, values: Sequence[Any], tangents: Sequence[float] | None) -> None:
        """Give the cells their content before the kernel, as inputs of the tape."""
        self.cells = [Num(self.dtype, value) for value in values]
        self.leaves = [-1] * len(self.cells)
        if not self.needs_grad:
            return
        for position, cell in enumerate(self.cells):
            cell.node = self.leaves[position] = STATE.node((), self.dtype.roundoff)
            if tangents is not None:
                cell.tangent = tangents[position]

    def takes_seed(self, offset: int) -> bool:
        """Whether the host can give an element an adjoint."""
        return 0 <= offset < len(self.cells)

    # -- places ---------------------------------------------------------------------------------

    def offset(self, index: Any) -> int:
        return offset_of(_flatten(index), self.shape) * self.width

    def read(self, offset: int) -> Num:
        self.watch.note(offset, "read")
        self.is_accessed = True
        return self.cells[offset]

    def write(self, offset: int, value: Any) -> None:
        number = convert(lift(value), self.dtype)
        self.watch.note(offset, "write", number)
        self.put(offset, number)

    def put(self, offset: int, value: Num) -> None:
        if STATE.quiet:
            return
        self.is_accessed = True
        if not self.needs_grad and value.node >= 0:
            value = Num(value.type, value.value, value.error)
        self.cells[offset] = value

    def update(self, offset: int, fn: str, value: Any, used: bool = False) -> Num:
        """An atomic operation; gives the value before."""
        self.watch.note(offset, "use" if used else _MODES.get(fn, fn))
        before, operand = self.cells[offset], lift(value)
        if fn in CONVERTED:
            operand = convert(operand, self.dtype)
        after = convert(binary(fn, before, operand), self.dtype)
        if STATE.item is not None or not used:
            after = self.sums.unordered(offset, fn, before, operand, after)
        self.put(offset, after)
        return before

    # -- what the host says ----------------------------------------------------------------------

    def fill(self, value: float) -> None:
        """Every component becomes a constant."""
        self.put_all(0, [convert(lift(value), self.dtype)] * len(self.cells))

    def from_numpy(self, values: Any) -> None:
        """Every component becomes a constant of its own."""
        numbers = np.ravel(values).tolist()
        self.put_all(0, [Num(self.dtype, rounded(self.dtype, number)) for number in numbers])

    def copy_from(self, other: Array) -> None:
        """Every component becomes that of another array; derivatives go along."""
        self.put_all(0, other.cells)

    def put_all(self, first: int, numbers: Sequence[Num]) -> None:
        """Store the components of one element or more at once."""
        for offset, number in enumerate(numbers, first):
            self.put(offset, number)

    # -- what kernels say ----------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return View(self, index.start, index.stop - index.start)
        offset = self.offset(index)
        return Element(self, offset) if self.element_shape else self.read(offset)

    def __setitem__(self, index: Any, value: Any) -> None:
        offset = self.offset(index)
        if not self.element_shape:
            self.write(offset, value)
            return
        if isinstance(value, list):  # by the host
            value = matrix(value)
        items = value.items if isinstance(value, Matrix) else [value] * self.width
        self.write_all(offset, list(items))

    def write_all(self, first: int, values: Sequence[Any]) -> None:
        """Store all components of an element."""
        for offset, value in enumerate(values, first):
            self.write(offset, value)

    def __iter__(self) -> Iterator[Any]:
        for position in itertools.product(*(range(extent) for extent in self.shape)):
            numbers = tuple(lift(k) for k in position)
            yield numbers[0] if len(numbers) == 1 else numbers


class Clamped(Array):
    """An array as a kernel sees it that takes the nearest element for an index beyond an end."""

    def __init__(self, array: Array) -> None:
        self.__dict__ = array.__dict__  # the same elements

    def offset(self, index: Any) -> int:
        indices = _flatten(index)
        pairs = zip(indices, self.shape, strict=len(indices) == len(self.shape))
        return super().offset(tuple(min(max(lift(k).__index__(), 0), n - 1) for k, n in pairs))


class View:
    """A part of an ndarray with one axis."""

    def __init__(self, array: Array | View, first: Any, size: Any) -> None:
        start, count = (lift(number).__index__() for number in (first, size))
        if not 0 <= start <= start + count <= array.shape[0]:
            raise IllDefined("a view of what is not there")
        self.array: Array = array.array if isinstance(array, View) else array
        self.first: int = start + (array.first if isinstance(array, View) else 0)
        self.shape: tuple[int, ...] = (count,)

    def __class_getitem__(cls, _: Any) -> type:
        return cls

    @property
    def size(self) -> Num:
        return lift(self.shape[0])

    def subview(self, first: Any, size: Any) -> View:
        return View(self, first, size)

    def number_of(self, index: Any) -> int:
        """The index in the ndarray."""
        (position,) = _flatten(index)
        number = lift(position).__index__()
        if not 0 <= number < self.shape[0]:
            raise IllDefined(f"index {number} of {self.shape[0]}")
        return self.first + number

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            first = 0 if index.start is None else lift(index.start).__index__()
            last = self.shape[0] if index.stop is None else lift(index.stop).__index__()
            return View(self, first, last - first)
        return self.array[self.number_of(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.array[self.number_of(index)] = value

    def __iter__(self) -> Iterator[Num]:
        return (lift(k) for k in range(self.shape[0]))


class Element(Matrix):
    """A vector or matrix in an array: what is assigned to a component goes there."""

    def __init__(self, array: Array, offset: int) -> None:
        self.array = array
        self.base = offset
        self.shape = array.element_shape

    @property
    def items(self) -> list[Num]:  # type: ignore[override]
        return [self.array.read(self.base + k) for k in range(self.array.width)]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.copy()[index]
        return self.array.read(self.base + self._offset(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        self.array.write(self.base + self._offset(index), value)


def updated(fn: str, before: Any, value: Any) -> Num:
    """The value that ``before fn= value`` leaves in a local variable; it takes no wider floats."""
    held, operand = lift(before), lift(value)
    narrows = not held.type.is_float or operand.type.bits > held.type.bits
    if fn in CONVERTED and operand.type.is_float and narrows and held.type.bits > 1:
        operand = convert(operand, held.type)
    return binary(fn, held, operand)


def update(target: Any, index: Any, fn: str, value: Any, used: bool = False) -> Any:
    """``target[index] fn= value``: atomic on arrays, plain on a local vector."""
    if isinstance(index, str) and not isinstance(target, Items):
        return update_member(target, index, fn, value, used)
    if isinstance(target, Element):
        return target.array.update(target.base + target._offset(index), fn, value, used)
    if isinstance(target, View):
        target, index = target.array, target.number_of(index)
    if isinstance(target, Array):
        offset = target.offset(index)
        if not target.element_shape:
            return target.update(offset, fn, value, used)
        items = value.items if isinstance(value, Matrix) else [value] * target.width
        old = [target.update(offset + k, fn, item, used) for k, item in enumerate(list(items))]
        return Matrix(old, target.element_shape)
    before = target[index]
    target[index] = broadcast(lambda a, b: updated(fn, a, b), before, value)
    return before


class Items(dict[Any, Any]):
    """A dict; what is assigned to an item is converted to the item's type."""

    def __setitem__(self, key: Any, value: Any) -> None:
        if key not in self:
            raise IllDefined("a new item of a dict")
        super().__setitem__(key, convert(lift(value), lift(self[key]).type))


def update_then(index: Any, fn: str, value: Any, target: Any) -> Any:
    """`update`, whose target is looked up when the value is known."""
    return update(target, index, fn, value)


def update_member(target: Any, name: str, fn: str, value: Any, used: bool = False) -> Any:
    """``target.name fn= value``: a component of a vector, or a member of a struct."""
    if isinstance(target, Matrix):
        return update(target, "xyzw".index(name), fn, value, used)
    if hasattr(target, "field"):  # an element of a field of structs
        return update(target.field.values[name], target.index, fn, value, used)
    before = getattr(target, name)
    setattr(target, name, broadcast(lambda a, b: updated(fn, a, b), before, value))
    return before


def _flatten(index: Any) -> list[Any]:
    if index is None:
        return []
    parts = index if isinstance(index, tuple) else (index,)
    flat: list[Any] = []
    for part in parts:
        flat.extend(part.items if isinstance(part, Matrix) else [part])
    return flat
