"""Addresses, loads and stores."""

from __future__ import annotations

from collections.abc import Sequence

from octants.codegen.llvm import halves, integers
from octants.codegen.llvm import text as names
from octants.codegen.llvm.function import FunctionText
from octants.diagnostics.exceptions import InternalError
from octants.ir import ops
from octants.ir.core import Array, Companion, Space, Value
from octants.types.layouts import Layout, Strided, Term
from octants.types.scalars import DType, f16, i32, u1


class Offset:
    """An offset in bytes while it is summed up: a known part, and parts known at run time.

    Indices are in range, so that no step wraps; LLVM is told. Strides that a launch tells may be
    negative.
    """

    def __init__(self, f: FunctionText) -> None:
        self._f = f
        self._known = 0
        self._parts: list[str] = []
        self._flags = "nuw nsw"

    def add(self, index: str, stride: int) -> None:
        """Add ``index`` (i64) times ``stride``."""
        number = integers.known(index)
        if number is not None:
            self._known += number * stride
        elif stride == 1:
            self._parts.append(index)
        else:
            self._parts.append(self._f.apply("mul nuw nsw", "i64", index, stride))

    def add_unknown(self, index: str, stride: str) -> None:
        """Add ``index`` (i64) times the operand ``stride``, of either sign."""
        if integers.known(index) != 0:
            self._flags = "nsw"
            self._parts.append(self._f.apply("mul nsw", "i64", index, stride))

    def apply(self, base: str) -> str:
        """The address so many bytes after ``base``."""
        f = self._f
        if self._parts:
            total = self._parts[0]
            for part in self._parts[1:]:
                total = f.assign(f"add {self._flags} i64 {total}, {part}")
            base = self._pointer(base, total)
        return self._pointer(base, self._known) if self._known else base

    def _pointer(self, base: str, offset: str | int) -> str:
        return self._f.assign(f"getelementptr inbounds i8, ptr {base}, i64 {offset}")


def address(f: FunctionText, array: Array, companion: Companion, indices: Sequence[Value]) -> str:
    """The address of an element."""
    offset = Offset(f)
    return offset.apply(add_indices(f, offset, array, companion, indices))


def add_indices(
    f: FunctionText,
    offset: Offset,
    array: Array,
    companion: Companion,
    indices: Sequence[Value],
) -> str:
    """Add the offset of an element; gives the address that it counts from."""
    wide = [_widen(f, index) for index in indices[array.rank :]]
    if array.space is Space.ARGUMENT and companion is Companion.PRIMAL:
        offset.add(str(f.kernel.scalar_offset(array)), 1)
        _add_row_major(f, offset, [str(n) for n in array.element_shape], wide, 8)
        return "%parameters"
    layout = array.layouts[companion]
    if layout is None:
        outer = [_widen(f, index) for index in indices[: array.rank]]
        extents = _extents(f, array)
        _add_row_major(f, offset, extents, [*outer, *wide], array.dtype.size)
    elif isinstance(layout, Strided):
        for number, value in enumerate(indices):
            offset.add_unknown(_widen(f, value), f.stride(array, companion, number))
    else:
        _add_terms(f, offset, layout, indices)
        for index, stride in zip(wide, layout.element_strides, strict=True):
            offset.add(index, stride)
    return f.pointer(array, companion)


def _widen(f: FunctionText, index: Value) -> str:
    operand = f.use(index)
    if index.type is not i32 or integers.known(operand) is not None:
        return operand
    return f.widen(operand)


def _extents(f: FunctionText, array: Array) -> list[str]:
    """The extents of a row-major array and its element; the first one is never needed."""
    if array.rank > 1 and array.space is not Space.NDARRAY:
        raise InternalError(f"array {array.name} of rank {array.rank} has no layout and no shape")
    outer = ["0"] if array.rank else []
    outer += [f.extent(array, axis) for axis in range(1, array.rank)]
    return outer + [str(extent) for extent in array.element_shape]


def _add_row_major(
    f: FunctionText, offset: Offset, extents: list[str], indices: list[str], size: int
) -> None:
    """Horner's rule while extents are known at launch only; strides for the axes after those."""
    while not _are_static(extents[1:]):
        head = indices[0]
        if head != "0":
            head = f.apply("mul nuw nsw", "i64", head, extents[1])
            head = f.apply("add nuw nsw", "i64", head, indices[1])
        else:
            head = indices[1]
        indices, extents = [head, *indices[2:]], ["0", *extents[2:]]
    stride = size
    for index, extent in zip(reversed(indices), reversed(extents), strict=True):
        offset.add(index, stride)
        stride *= int(extent)


def _are_static(extents: list[str]) -> bool:
    return all(integers.known(extent) is not None for extent in extents)


def _add_terms(f: FunctionText, offset: Offset, layout: Layout, indices: Sequence[Value]) -> None:
    for term in layout.terms:
        index = indices[term.axis]
        operand = f.use(index)
        number = integers.known(operand)
        if number is not None:
            part = number // term.divisor
            offset.add(str(part % term.modulus if term.modulus else part), term.stride)
        else:
            offset.add(_term(f, term, index.type, operand), term.stride)


def _term(f: FunctionText, term: Term, dtype: DType, operand: str) -> str:
    """A part of an index, as i64; the division is done in the index's own width."""
    register = f.type(dtype)
    if term.divisor != 1:
        operand = f.apply("udiv", register, operand, term.divisor)
    if term.modulus:
        operand = f.apply("urem", register, operand, term.modulus)
    return f.widen(operand) if dtype is i32 else operand


# -- what is stored, and what registers hold ----------------------------------------------------


def memory_type(f: FunctionText, dtype: DType) -> str:
    """The LLVM type of a value in memory."""
    return halves.stored_type(f) if dtype is f16 else names.MEMORY[dtype]


def from_memory(f: FunctionText, dtype: DType, stored: str) -> str:
    """A value as a register holds it."""
    if dtype is u1:
        return f.apply("icmp ne", "i8", stored, "0")
    return halves.from_bits(f, stored) if dtype is f16 else stored


def to_memory(f: FunctionText, dtype: DType, value: str) -> str:
    """A value as it is stored."""
    if dtype is u1:
        return f.convert("zext", "i1", value, "i8")
    return halves.to_bits(f, value) if dtype is f16 else value


def load(f: FunctionText, op: ops.Load) -> None:
    """An argument never changes, so that its load may move anywhere."""
    dtype = op.array.dtype
    place = address(f, op.array, op.companion, op.indices)
    instruction = f"load {memory_type(f, dtype)}, ptr {place}, align {dtype.size}"
    if op.array.space is Space.ARGUMENT and op.companion is Companion.PRIMAL:
        instruction += f", !invariant.load {f.text.empty}"
    else:
        instruction += f.kernel.scopes.suffix(op.ref)
    f.bind(op.result, from_memory(f, dtype, f.assign(instruction)))


def store(f: FunctionText, op: ops.Store) -> None:
    """A plain store: what other work items do to the place at the same time is their affair."""
    dtype = op.array.dtype
    place = address(f, op.array, op.companion, op.indices)
    stored = to_memory(f, dtype, f.use(op.value))
    suffix = f.kernel.scopes.suffix(op.ref)
    f.emit(f"store {memory_type(f, dtype)} {stored}, ptr {place}, align {dtype.size}{suffix}")


def shape(f: FunctionText, op: ops.Shape) -> None:
    """A number where the layout knows it, else a parameter."""
    dtype, fixed = op.result.type, op.array.fixed_shape
    if fixed is not None:
        f.bind(op.result, f.literal(fixed[op.axis], dtype))
        return
    extent = f.extent(op.array, op.axis)
    if dtype.bits != 64:
        extent = f.once(("extent", op.array, op.axis), f"trunc i64 {extent} to {f.type(dtype)}")
    f.bind(op.result, extent)
