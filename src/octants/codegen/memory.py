"""Write addresses, loads and stores of array elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from octants.codegen.function_emitter import FunctionEmitter
from octants.codegen.instruction_writer import (
    Code,
    Operand,
    Pointer,
    ThreadCode,
    UnaddressedElement,
)
from octants.codegen.numbers_as_bits import from_word, to_word, word_of
from octants.diagnostics.exceptions import InternalError
from octants.ir import ops
from octants.ir.cooperative_tasks import words
from octants.ir.core import Array, ArrayRef, Companion, Operation, Space, Value
from octants.types.layouts import Layout, Strided, Term
from octants.types.scalars import DType, f16, i32, i64, u1, u8, u16, u32, u64

_SHORT = 1 << 30
"""The bytes of arrays whose offsets are computed in i32, so that indices a little out of range do
not wrap.
"""
_FAR = 1 << 26
"""The bytes up to which a constant is taken out of an index: the rest of it does not wrap, either,
and is the same for neighbours.
"""


class Offset:
    """A byte offset under construction: a constant part, and parts known at run time.

    Indices are in range, so no step wraps. Strides that a launch passes may be negative.
    """

    def __init__(self, f: FunctionEmitter) -> None:
        self._code = f.code
        self._known = 0
        self._parts: list[Operand] = []
        self._narrow: list[Operand] = []  # i32, whose sum does not wrap either
        self._is_signed = False

    def add(self, index: Operand, stride: int) -> None:
        """Add ``index`` (i64) times ``stride``."""
        number = self._code.known(index)
        if number is not None:
            self._known += number * stride
        elif stride == 1:
            self._parts.append(index)
        else:
            self._parts.append(self._code.index("mul", index, self._code.constant(stride, i64)))

    def add_narrow(self, index: Operand, stride: int) -> None:
        """Add ``index`` (i32) times ``stride``, in an array of less than 2**31 bytes."""
        code = self._code
        self._narrow.append(code.apply("mul", i32, index, code.constant(stride, i32)))

    def add_unknown(self, index: Operand, stride: Operand) -> None:
        """Add ``index`` (i64) times the operand ``stride``, of either sign."""
        if self._code.known(index) != 0:
            self._is_signed = True
            self._parts.append(self._code.index("mul", index, stride, signed=True))

    def apply(self, base: Pointer) -> Pointer:
        """Return the address at this offset from ``base``."""
        if parts := self._all_parts():
            base = self._moved(base, self._total(parts))
        return self._moved(base, self._code.constant(self._known, i64)) if self._known else base

    def number(self) -> Operand:
        """Return the offset, i64."""
        parts = self._all_parts()
        known = [self._code.constant(self._known, i64)] if self._known or not parts else []
        return self._total([*parts, *known])

    def _all_parts(self) -> list[Operand]:
        """The parts known at run time, i64."""
        if not self._narrow:
            return self._parts
        code, (total, *others) = self._code, self._narrow
        for part in others:
            total = code.apply("add", i32, total, part)
        return [*self._parts, code.convert(total, i32, i64)]

    def _total(self, parts: list[Operand]) -> Operand:
        total = parts[0]
        for part in parts[1:]:
            total = self._code.index("add", total, part, signed=self._is_signed)
        return total

    def _moved(self, base: Pointer, nbytes: Operand) -> Pointer:
        return self._code.moved(base, nbytes, inside=True)


def address_of(
    f: FunctionEmitter, array: Array, companion: Companion, indices: Sequence[Value]
) -> Pointer:
    """Return the address of an element."""
    offset = Offset(f)
    reference = ArrayRef(array, companion)
    if array.space is Space.LOCAL and not f.has_address(reference):
        local = f.local_array(reference, word_of(array.dtype), words(array))
        return _element(f, offset, local, array, indices)
    if array.space is Space.SHARED and not f.code.shares_by_address:
        assert isinstance(f.code, ThreadCode), "others have no blocks"
        shared = f.code.shared_array(reference, word_of(array.dtype), words(array))
        return _element(f, offset, shared, array, indices)
    return offset.apply(add_indices(f, offset, array, companion, indices))


def _element(
    f: FunctionEmitter, offset: Offset, memory: Any, array: Array, indices: Sequence[Value]
) -> UnaddressedElement:
    """Return the element of a shared or local array without addresses."""
    stride = 1
    extents = (*(array.fixed_shape or ()), *array.element_shape)
    for index, extent in zip(reversed(indices), reversed(extents), strict=True):
        offset.add(f.index(index), stride)
        stride *= extent
    return UnaddressedElement(memory, f.code.convert(offset.number(), i64, u32))


def add_indices(
    f: FunctionEmitter, offset: Offset, array: Array, companion: Companion, indices: Sequence[Value]
) -> Pointer:
    """Add the offset of an element, and return the address that the offset counts from."""
    wide = [f.index(index) for index in indices[array.rank :]]
    if array.space is Space.ARGUMENT and companion is Companion.PRIMAL:
        offset.add(f.code.constant(f.kernel.scalar_offset(array), i64), 1)
        extents = [f.code.constant(extent, i64) for extent in array.element_shape]
        _add_row_major(f, offset, extents, wide, 8)
        return f.code.parameters()
    layout = array.layouts[companion]
    if layout is None:
        outer = [f.index(index) for index in indices[: array.rank]]
        _add_row_major(f, offset, _extents(f, array), [*outer, *wide], array.dtype.size)
    elif isinstance(layout, Strided):
        for number, value in enumerate(indices):
            offset.add_unknown(f.index(value), f.stride(array, companion, number))
    else:
        _add_terms(f, offset, layout, indices)
        for index, stride in zip(wide, layout.element_strides, strict=True):
            offset.add(index, stride)
    return f.pointer(array, companion)


def _extents(f: FunctionEmitter, array: Array) -> list[Operand]:
    """Return the extents of a row-major array and its element, except the first."""
    if array.rank > 1 and array.space is not Space.NDARRAY:
        raise InternalError(f"array {array.name} of rank {array.rank} has no layout and no shape")
    outer = [f.code.constant(0, i64)] if array.rank else []
    outer += [f.extent(array, axis) for axis in range(1, array.rank)]
    return outer + [f.code.constant(extent, i64) for extent in array.element_shape]


def _add_row_major(
    f: FunctionEmitter, offset: Offset, extents: list[Operand], indices: list[Operand], size: int
) -> None:
    """Use Horner's rule while extents are known at launch only, and strides for later axes."""
    code = f.code
    while any(code.known(extent) is None for extent in extents[1:]):
        head = indices[1]
        if code.known(indices[0]) != 0:
            head = code.index("add", code.index("mul", indices[0], extents[1]), head)
        indices, extents = [head, *indices[2:]], [code.constant(0, i64), *extents[2:]]
    stride = size
    for index, extent in zip(reversed(indices), reversed(extents), strict=True):
        offset.add(index, stride)
        stride *= code.known(extent)


def _add_terms(
    f: FunctionEmitter, offset: Offset, layout: Layout, indices: Sequence[Value]
) -> None:
    """Add the terms of a layout to an offset; those of constant indices as constants."""
    is_short = f.code.has_narrow_offsets and _greatest_offset(layout) < _SHORT
    for term in layout.terms:
        index = indices[term.axis]
        number = f.code.known(f.use(index))
        if number is None and is_short and index.type.bits == 32:
            whole = _part(f, term, index)
            part, more = f.code.split_sum(whole)
            if abs(more) * term.stride >= _FAR:
                part, more = whole, 0
            offset.add_narrow(part, term.stride)
            offset.add(f.code.constant(more, i64), term.stride)
        elif number is None:
            offset.add(_term(f, term, index), term.stride)
        else:
            part = number // term.divisor
            part = part % term.modulus if term.modulus else part
            offset.add(f.code.constant(part, i64), term.stride)


def _greatest_offset(layout: Layout) -> int:
    """Return the greatest byte offset of an element from the first one."""
    total = 0
    for term in layout.terms:
        most = (layout.shape[term.axis] - 1) // term.divisor
        total += (min(most, term.modulus - 1) if term.modulus else most) * term.stride
    return total


def _term(f: FunctionEmitter, term: Term, index: Value) -> Operand:
    """Return one term of an index, i64."""
    operand = _part(f, term, index)
    return operand if index.type.bits == 64 else f.widen(operand)


def _part(f: FunctionEmitter, term: Term, index: Value) -> Operand:
    """Return one term of an index, in the index's own width."""
    code, operand = f.code, f.use(index)
    dtype = u64 if index.type.bits == 64 else u32
    if term.divisor != 1:
        operand = code.apply("quotient", dtype, operand, code.constant(term.divisor, dtype))
    if term.modulus:
        operand = code.apply("remainder", dtype, operand, code.constant(term.modulus, dtype))
    return operand


# -- memory and register formats ----------------------------------------------------------------


def read(code: Code, address: Pointer, dtype: DType, of: ArrayRef | None = None) -> Operand:
    """Load a number, and convert it to its register format."""
    if isinstance(address, UnaddressedElement):
        return from_word(code, dtype, code.load(address, word_of(dtype)))
    if dtype is u1:
        return code.compare("ne", u8, code.load(address, u8, of), code.constant(0, u8))
    if dtype is f16:
        return code.half_value(code.convert(code.load(address, u16, of), u16, u32))
    return code.load(address, dtype, of)


def write(
    code: Code, address: Pointer, dtype: DType, operand: Operand, of: ArrayRef | None = None
) -> None:
    """Convert a number to its memory format, and store it."""
    if isinstance(address, UnaddressedElement):
        code.store(address, word_of(dtype), to_word(code, dtype, operand))
    elif dtype is f16:
        code.store(address, u16, code.convert(code.half_bits(operand), u32, u16), of)
    elif dtype is u1:
        code.store(address, u8, code.convert(operand, u1, u8), of)
    else:
        code.store(address, dtype, operand, of)


def load(f: FunctionEmitter, op: ops.Load) -> None:
    """Load an element. Each load reads memory: other work items may have written it."""
    word = _pushed_argument(f, op)
    if word is not None:
        f.bind(op.result, _number(f.code, word, op.array.dtype))
        return
    address = address_of(f, op.array, op.companion, op.indices)
    f.bind(op.result, read(f.code, address, op.array.dtype, op.ref))


def _pushed_argument(f: FunctionEmitter, op: ops.Load) -> Operand | None:
    """Return the word of a component of an argument, u64, if the launch has pushed it."""
    array = op.array
    is_argument = array.space is Space.ARGUMENT and op.companion is Companion.PRIMAL
    if not is_argument or array.dtype.bits < 32:
        return None
    position = 0
    for value, extent in zip(op.indices[array.rank :], array.element_shape, strict=True):
        known = f.code.known(f.use(value))
        if known is None:
            return None
        position = position * extent + known
    return f.code.pushed_parameter(f.kernel.scalar_offset(array) + 8 * position)


def _number(code: Code, word: Operand, dtype: DType) -> Operand:
    """Return the number in the low bytes of a word."""
    kind = u64 if dtype.bits == 64 else u32
    return code.bitcast(code.convert(word, u64, kind), kind, dtype)


def store(f: FunctionEmitter, op: ops.Store) -> None:
    """Store an element. The program must order accesses of other work items to it."""
    address = address_of(f, op.array, op.companion, op.indices)
    write(f.code, address, op.array.dtype, f.use(op.value), op.ref)


def shape(f: FunctionEmitter, op: ops.Shape) -> None:
    """Bind an extent: a constant where the layout has it, else a parameter."""
    dtype, fixed = op.result.type, op.array.fixed_shape
    if fixed is not None:
        f.bind(op.result, f.code.constant(fixed[op.axis], dtype))
        return
    extent = f.extent(op.array, op.axis)
    key = "extent", op.array, op.axis, dtype
    f.bind(op.result, f.code.hoisted(key, lambda: f.code.convert(extent, i64, dtype)))


TABLE: dict[type[Operation], Callable[[Any, Any], Any]] = {
    ops.Load: load,
    ops.Store: store,
    ops.Shape: shape,
}
