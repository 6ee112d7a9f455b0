"""Addresses, loads and stores."""

from __future__ import annotations

from collections.abc import Sequence

from octants.codegen.code import Code, Element, Operand, Place
from octants.codegen.structured import halves
from octants.codegen.structured.body import Body
from octants.codegen.structured.words import from_word, to_word, word_of
from octants.diagnostics.exceptions import InternalError
from octants.ir import ops
from octants.ir.cooperation import words
from octants.ir.core import Array, Companion, Space, Value
from octants.types.layouts import Layout, Strided, Term
from octants.types.scalars import DType, f16, i64, u1, u8, u32, u64


class Offset:
    """An offset in bytes while it is summed up: a known part, and parts known at run time."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self._known = 0
        self._parts: list[Operand] = []

    def add(self, index: Operand, stride: int) -> None:
        """Add ``index`` (i64) times ``stride``."""
        number = self._body.code.known(index)
        if number is not None:
            self._known += number * stride
        else:
            self._parts.append(self._body.times(index, stride))

    def add_unknown(self, index: Operand, stride: Operand) -> None:
        """Add ``index`` (i64) times the operand ``stride``."""
        if self._body.code.known(index) != 0:
            self._parts.append(self._body.code.apply("mul", i64, index, stride))

    def apply(self, base: Operand) -> Operand:
        """The address so many bytes after ``base``."""
        for part in self._parts:
            base = self._body.add(base, part, u64)
        return self._body.add(base, self._body.number(self._known, u64), u64)


def place_of(body: Body, array: Array, companion: Companion, indices: Sequence[Value]) -> Place:
    """The place of an element."""
    if array.space is Space.SHARED:
        return _shared_element(body, array, companion, indices)
    return _address(body, array, companion, indices)


def _shared_element(
    body: Body, array: Array, companion: Companion, indices: Sequence[Value]
) -> Element:
    """The word that a number has for itself."""
    code, offset = body.code, Offset(body)
    extents = (*(array.fixed_shape or ()), *array.element_shape)
    stride = 1
    for index, extent in zip(reversed(indices), reversed(extents), strict=True):
        offset.add(body.wide(index), stride)
        stride *= extent
    number = offset.apply(body.number(0, u64))
    known = code.known(number)
    index = code.convert(number, u64, u32) if known is None else body.number(known, u32)
    word = word_of(array.dtype)
    return Element(code.shared_array((array, companion), word, words(array)), index)


def _address(body: Body, array: Array, companion: Companion, indices: Sequence[Value]) -> Operand:
    offset = Offset(body)
    wide = [body.wide(index) for index in indices[array.rank :]]
    if array.space is Space.ARGUMENT and companion is Companion.PRIMAL:
        offset.add(body.number(body.scalar_offset(array), i64), 1)
        extents = [body.number(extent, i64) for extent in array.element_shape]
        _add_row_major(body, offset, extents, wide, 8)
        return offset.apply(body.code.parameters())
    layout = array.layouts[companion]
    if layout is None:
        outer = [body.wide(index) for index in indices[: array.rank]]
        _add_row_major(body, offset, _extents(body, array), [*outer, *wide], array.dtype.size)
    elif isinstance(layout, Strided):
        for number, value in enumerate(indices):
            offset.add_unknown(body.wide(value), body.stride(array, companion, number))
    else:
        _add_terms(body, offset, layout, indices)
        for index, stride in zip(wide, layout.element_strides, strict=True):
            offset.add(index, stride)
    return offset.apply(body.pointer(array, companion))


def _extents(body: Body, array: Array) -> list[Operand]:
    """The extents of a row-major array and its element; the first one is never needed."""
    if array.rank > 1 and array.space is not Space.NDARRAY:
        raise InternalError(f"array {array.name} of rank {array.rank} has no layout and no shape")
    outer = [body.number(0, i64)] if array.rank else []
    outer += [body.extent(array, axis) for axis in range(1, array.rank)]
    return outer + [body.number(extent, i64) for extent in array.element_shape]


def _add_row_major(
    body: Body, offset: Offset, extents: list[Operand], indices: list[Operand], size: int
) -> None:
    """Horner's rule while extents are known at launch only; strides for the axes after those."""
    code = body.code
    while any(code.known(extent) is None for extent in extents[1:]):
        head = indices[1]
        if code.known(indices[0]) != 0:
            head = body.add(code.apply("mul", i64, indices[0], extents[1]), head)
        indices, extents = [head, *indices[2:]], [body.number(0, i64), *extents[2:]]
    stride = size
    for index, extent in zip(reversed(indices), reversed(extents), strict=True):
        offset.add(index, stride)
        stride *= code.known(extent)


def _add_terms(body: Body, offset: Offset, layout: Layout, indices: Sequence[Value]) -> None:
    for term in layout.terms:
        index = indices[term.axis]
        number = body.code.known(body.use(index))
        if number is None:
            offset.add(_term(body, term, index), term.stride)
        else:
            part = number // term.divisor
            part = part % term.modulus if term.modulus else part
            offset.add(body.number(part, i64), term.stride)


def _term(body: Body, term: Term, index: Value) -> Operand:
    """A part of an index, as i64; the division is done in the index's own width."""
    code, dtype, operand = body.code, index.type, body.use(index)
    if term.divisor != 1:
        operand = code.apply("quotient", dtype, operand, body.number(term.divisor, dtype))
    if term.modulus:
        operand = code.apply("remainder", dtype, operand, body.number(term.modulus, dtype))
    return code.convert(operand, dtype, i64)


# -- what is stored, and what registers hold ----------------------------------------------------


def read(code: Code, place: Place, dtype: DType) -> Operand:
    """What stands at a place."""
    if isinstance(place, Element):
        return from_word(code, dtype, code.load(place, word_of(dtype)))
    if dtype is u1:
        return code.compare("ne", u8, code.load(place, u8), code.constant(0, u8))
    return halves.load(code, place) if dtype is f16 else code.load(place, dtype)


def write(code: Code, place: Place, dtype: DType, operand: Operand) -> None:
    """Have something stand at a place."""
    if isinstance(place, Element):
        code.store(place, word_of(dtype), to_word(code, dtype, operand))
    elif dtype is f16:
        halves.store(code, place, operand)
    elif dtype is u1:
        code.store(place, u8, code.convert(operand, u1, u8))
    else:
        code.store(place, dtype, operand)


def load(body: Body, op: ops.Load) -> None:
    """Each time anew: others may have written."""
    place = place_of(body, op.array, op.companion, op.indices)
    body.bind(op.result, read(body.code, place, op.array.dtype))


def store(body: Body, op: ops.Store) -> None:
    """A plain store: what other work items do to the place at the same time is their affair."""
    place = place_of(body, op.array, op.companion, op.indices)
    write(body.code, place, op.array.dtype, body.use(op.value))


def shape(body: Body, op: ops.Shape) -> None:
    """A number where the layout knows it, else a parameter."""
    dtype, fixed = op.result.type, op.array.fixed_shape
    if fixed is not None:
        body.bind(op.result, body.number(fixed[op.axis], dtype))
        return
    extent = body.extent(op.array, op.axis)
    body.bind(op.result, body.code.convert(extent, i64, dtype))
