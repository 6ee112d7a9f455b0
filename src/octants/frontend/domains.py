"""What a loop runs over: its bounds, and how its indices come from counters."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any

from octants.diagnostics.errors import NotIterable
from octants.frontend import indexing
from octants.frontend.context import Context
from octants.frontend.structure import common_type
from octants.frontend.values import (
    ArrayReference,
    GroupedDomain,
    MatrixValue,
    ProductDomain,
    RangeDomain,
    StructValue,
    describe,
    is_number,
)
from octants.ir.core import Value
from octants.lang import syntax
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType, Kind, convert, i32, i64

Indices = Callable[[list[Value]], list[Value]]


@dataclass(frozen=True)
class Domain:
    """A nest of counted loops: bounds of each, outermost first, and the indices of an iteration.

    `indices` takes the counters, of the types of the bounds. `grouped`: one vector for all.
    """

    levels: list[tuple[Value, Value]]
    indices: Indices
    grouped: bool = False


def domain(context: Context, value: Any, node: ast.expr) -> Domain | None:
    """The domain of a loop over a value; None if the loop must be unrolled."""
    if isinstance(value, GroupedDomain):
        inner = domain(context, value.inner, node)
        if inner is None:
            context.fail(NotIterable(describe(value.inner)), node)
        return Domain(inner.levels, inner.indices, grouped=True)
    if isinstance(value, range):
        return _range(context, value.start, value.stop, value.step)
    if isinstance(value, RangeDomain):
        return _range(context, value.start, value.stop, value.step)
    if isinstance(value, (syntax.ndrange, ProductDomain)):
        return _product(context, list(value.bounds), value.axes)
    array = _array_of(value)
    if array is not None:
        return _product(context, [_span(context, array, k) for k in range(array.array.rank)])
    return None


def _span(context: Context, array: ArrayReference, axis: int) -> tuple[Any, Any]:
    """The bounds of the indices along an axis of an array."""
    first, extent = indexing.first_index(array, axis), indexing.extent(context, array.array, axis)
    return first, extent + first if first else extent


def _array_of(value: Any) -> ArrayReference | None:
    if isinstance(value, StructValue):
        return next((a for a in map(_array_of, value.members.values()) if a is not None), None)
    return value if isinstance(value, ArrayReference) else None


# -- range -----------------------------------------------------------------------------------------


def _range(context: Context, start: Any, stop: Any, step: Any) -> Domain:
    dtype = _counter_type(context, [start, stop, step])
    first, last = _convert(context, start, dtype), _convert(context, stop, dtype)
    if is_number(step) and step == 1:
        return Domain([(first, last)], lambda counters: counters)
    zero = context.builder.constant(0, dtype)
    trips, stride = _trips(context, first, last, step, dtype)

    def indices(counters: list[Value]) -> list[Value]:
        advance = context.builder.binary("mul", counters[0], stride)
        return [context.builder.binary("add", first, advance)]

    return Domain([(zero, trips)], indices)


def _trips(
    context: Context, first: Value, last: Value, step: Any, dtype: DType
) -> tuple[Value, Value]:
    """The number of iterations, and the step as a value."""
    builder = context.builder
    one = builder.constant(1, dtype)
    if is_number(step):
        low, high = (first, last) if step > 0 else (last, first)
        size, stride = builder.constant(abs(step), dtype), builder.constant(step, dtype)
        distance = builder.binary("sub", builder.binary("sub", high, low), one)
        return builder.binary("add", builder.binary("floordiv", distance, size), one), stride
    stride = _convert(context, step, dtype)
    zero = builder.constant(0, dtype)
    is_up = builder.compare("gt", stride, zero)
    up, down = builder.binary("sub", last, first), builder.binary("sub", first, last)
    distance = builder.binary("sub", builder.select(is_up, up, down), one)
    quotient = builder.binary("floordiv", distance, builder.unary("abs", stride))
    trips = builder.binary("add", quotient, one)
    is_still = builder.compare("eq", stride, zero)
    return builder.select(is_still, zero, trips), stride


def _counter_type(context: Context, bounds: list[Any]) -> DType:
    """i32, or i64 if a bound is so wide."""
    types = [context.type_of_number(x) if is_number(x) else x.type for x in bounds]
    return i64 if any(_is_wide(dtype) for dtype in types) else i32


def _is_wide(dtype: DType) -> bool:
    return dtype.bits == 64 or (dtype.kind is Kind.UNSIGNED and dtype.bits == 32)


def _convert(context: Context, bound: Any, dtype: DType) -> Value:
    if is_number(bound):
        return context.builder.constant(bound, dtype)
    return context.builder.cast(bound, dtype)


# -- ndrange, fields, arrays -----------------------------------------------------------------------


def _product(
    context: Context, bounds: list[tuple[Any, Any]], axes: tuple[int, ...] | None = None
) -> Domain:
    """The nest of the bounds of each index; ``axes`` names the indices, slowest first."""
    dtype = i32
    if any(not _is_small(bound) for pair in bounds for bound in pair):
        dtype = i64
    levels = [
        (_convert(context, low, dtype), _convert(context, high, dtype)) for low, high in bounds
    ]
    if axes is None or axes == tuple(range(len(axes))):
        return Domain(levels, lambda counters: counters)
    nest = [levels[axis] for axis in axes]
    return Domain(nest, lambda counters: list(syntax.in_order_of_ranges(counters, axes)))


def _is_small(bound: Any) -> bool:
    return convert(bound, i32) == bound if is_number(bound) else not _is_wide(bound.type)


# -- one counter for all ---------------------------------------------------------------------------


def linear(context: Context, nest: Domain) -> Domain:
    """The domain with a single counter, the last index of the nest being the fastest.

    The counter is an i64 where the product of the extents can pass 2^31.
    """
    if len(nest.levels) == 1:
        return nest
    if not nest.levels:
        bounds = (context.builder.index(0), context.builder.index(1))
        return Domain([bounds], lambda _: [], nest.grouped)
    extents = [_extent(context, low, high) for low, high in nest.levels]
    known = [context.known(extent) for extent in extents]
    fits = all(is_number(x) for x in known) and math.prod(known) < 1 << 31
    dtype = i32 if fits else i64
    wide = [context.builder.cast(extent, dtype) for extent in extents]
    total = wide[0]
    for extent in wide[1:]:
        total = context.builder.binary("mul", total, extent)

    def indices(counters: list[Value]) -> list[Value]:
        return nest.indices(_split(context, counters[0], nest.levels, wide))

    return Domain([(context.builder.constant(0, dtype), total)], indices, nest.grouped)


def _extent(context: Context, low: Value, high: Value) -> Value:
    """How many values an index takes; not negative."""
    builder = context.builder
    if context.known(low) == 0 and _cannot_be_negative(context, high):
        return high
    difference = builder.binary("sub", high, low)
    return builder.binary("max", difference, builder.constant(0, difference.type))


def _cannot_be_negative(context: Context, value: Value) -> bool:
    known = context.known(value)
    return known >= 0 if is_number(known) else value in context.arrays.extents


def _split(
    context: Context, counter: Value, levels: list[tuple[Value, Value]], extents: list[Value]
) -> list[Value]:
    """The counters of a nest from the single one."""
    builder = context.builder
    counters: list[Value] = []
    rest = counter
    for axis in range(len(levels) - 1, -1, -1):
        part = rest if axis == 0 else builder.binary("mod", rest, extents[axis])
        rest = rest if axis == 0 else builder.binary("floordiv", rest, extents[axis])
        low = levels[axis][0]
        counters.append(builder.binary("add", builder.cast(part, low.type), low))
    return counters[::-1]


# -- targets ---------------------------------------------------------------------------------------


def as_vector(context: Context, indices: list[Value]) -> MatrixValue:
    """The indices of a grouped loop."""
    dtype = common_type(indices) if indices else i32
    return MatrixValue((len(indices),), [context.builder.cast(index, dtype) for index in indices])
