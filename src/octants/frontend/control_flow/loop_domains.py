"""The domains of loops: bounds, and indices as functions of counters."""

from __future__ import annotations

import ast
import dataclasses
import math
from collections.abc import Callable
from typing import Any

from octants.diagnostics.errors import LoopBoundTooLarge, NotIterable
from octants.frontend.context import Context
from octants.frontend.memory import indexing
from octants.frontend.values.expression_values import (
    ArrayReference,
    GroupedDomain,
    MatrixValue,
    ProductDomain,
    RangeDomain,
    StructValue,
    describe,
    is_number,
    is_view,
)
from octants.frontend.values.flattening import common_type
from octants.ir.capped_products import FAR, build_capped_product
from octants.ir.core import Value
from octants.lang import directives
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType, Kind, convert, i32, i64, integer_range, u32, u64

Indices = Callable[[list[Value]], list[Value]]


@dataclass(frozen=True)
class Domain:
    """A nest of counted loops: bounds of each, outermost first, and the indices of an iteration.

    `indices` takes the counters, of the types of the bounds. `grouped`: one vector for all.
    `rank` is the number of indices, if it is not that of the levels. `is_in_memory`: memory holds
    an element for each iteration, so that there are fewer than 2^63.
    """

    levels: list[tuple[Value, Value]]
    indices: Indices
    grouped: bool = False
    rank: int | None = None
    is_in_memory: bool = False

    @property
    def targets(self) -> int:
        """How many indices an iteration has: one for each level, or `rank`."""
        return len(self.levels) if self.rank is None else self.rank


def domain(context: Context, value: Any, node: ast.expr) -> Domain | None:
    """The domain of a loop over a value; None if the loop must be unrolled."""
    if isinstance(value, GroupedDomain):
        inner = domain(context, value.inner, node)
        if inner is None:
            context.fail(NotIterable(describe(value.inner)), node)
        return dataclasses.replace(inner, grouped=True)
    if isinstance(value, range):
        return _range(context, value.start, value.stop, value.step)
    if isinstance(value, RangeDomain):
        found = _range(context, value.start, value.stop, value.step)
        return _reversed(context, found) if value.is_reversed else found
    if isinstance(value, (directives.ndrange, ProductDomain)):
        return product(context, list(value.bounds), value.axes)
    if is_view(value):
        return product(context, [(0, value.members["size"])])
    array = _array_of(value)
    if array is not None:
        nest = product(context, [_span(context, array, k) for k in range(array.array.rank)])
        return dataclasses.replace(nest, is_in_memory=True)
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
    """The values of Python's ``range``, for all bounds that the type of the counter can hold."""
    dtype = _counter_type(context, [start, stop, step])
    first, last = _convert(context, start, dtype), _convert(context, stop, dtype)
    step = context.known(step)
    if is_number(step) and step == 1:
        return Domain([(first, last)], lambda counters: counters)
    known = [context.known(bound) for bound in (first, last)]
    builder = context.builder
    if is_number(step) and all(map(is_number, known)):
        count = min(len_of_range(known[0], known[1], step), integer_range(i64)[1])
        kind = dtype if count <= integer_range(dtype)[1] else i64
        bounds = builder.constant(0, kind), builder.constant(count, kind)
    elif is_number(step) and step == -1:  # ~i counts up where i counts down
        minus = builder.constant(-1, dtype)
        bounds = builder.binary("sub", minus, first), builder.binary("sub", minus, last)
        return Domain([bounds], lambda counters: [builder.binary("sub", minus, counters[0])])
    else:
        bounds = _trips(context, first, last, step)
    stride = _convert(context, step, dtype)

    def indices(counters: list[Value]) -> list[Value]:
        number = builder.cast(counters[0], dtype)
        return [builder.binary("add", first, builder.binary("mul", number, stride))]

    return Domain([bounds], indices)


def _reversed(context: Context, domain: Domain) -> Domain:
    """The same numbers from the last to the first; the sum of the bounds may wrap."""
    builder = context.builder
    ((low, high),) = domain.levels
    last = builder.binary("sub", high, builder.constant(1, high.type))
    ends = builder.binary("add", low, last)

    def indices(counters: list[Value]) -> list[Value]:
        return domain.indices([builder.binary("sub", ends, counters[0])])

    return Domain([(low, high)], indices)


def len_of_range(start: int, stop: int, step: int) -> int:
    """``len(range(start, stop, step))``, of any size; no iterations for a step of zero."""
    low, high = (start, stop) if step > 0 else (stop, start)
    return 0 if step == 0 else max(0, (high - low - 1) // abs(step) + 1)


def _trips(context: Context, first: Value, last: Value, step: Any) -> tuple[Value, Value]:
    """Zero and the number of iterations.

    The distance of two bounds can pass the end of their type, but not that of the unsigned type of
    the same width. More than 2^63 - 1 iterations never end, and count as equal.
    """
    builder, dtype = context.builder, first.type
    unsigned = u64 if dtype is i64 else u32
    low, high, size, runs = _ascending(context, first, last, step)
    kind = dtype if _fits(context, low, high, size) else i64
    distance = builder.cast(builder.binary("sub", high, low), unsigned)
    distance = builder.binary("sub", distance, builder.constant(1, unsigned))
    quotient = builder.binary("floordiv", distance, builder.cast(size, unsigned))
    if dtype is i64:
        most = builder.constant(integer_range(i64)[1] - 1, u64)
        quotient = builder.binary("min", quotient, most)
    zero, one = builder.constant(0, kind), builder.constant(1, kind)
    trips = builder.binary("add", builder.cast(quotient, kind), one)
    return zero, builder.select(runs, trips, zero)


def _ascending(
    context: Context, first: Value, last: Value, step: Any
) -> tuple[Value, Value, Value, Value]:
    """The lower and the upper bound, the size of the step, whether there are any iterations."""
    builder, dtype = context.builder, first.type
    if is_number(step):
        low, high = (first, last) if step > 0 else (last, first)
        runs = builder.compare("lt", low, high)
        return low, high, builder.constant(abs(step), dtype), runs
    stride, zero = _convert(context, step, dtype), builder.constant(0, dtype)
    if context.debug:
        message = "the step of `range` is {}: it must not be zero"
        builder.assert_("assertion", message, builder.compare("ne", stride, zero), [stride])
    is_up = builder.compare("gt", stride, zero)
    low, high = builder.select(is_up, first, last), builder.select(is_up, last, first)
    moves = builder.compare("ne", stride, zero)
    runs = builder.binary("and", moves, builder.compare("lt", low, high))
    return low, high, builder.unary("abs", stride), runs


def _fits(context: Context, low: Value, high: Value, size: Value) -> bool:
    """Whether the number of iterations surely fits the type of the bounds."""
    step = context.known(size)
    if not is_number(step) or low.type is i64:
        return low.type is i64
    least, most = integer_range(low.type)
    known = [context.known(bound) for bound in (low, high)]
    least, most = (k if is_number(k) else end for k, end in zip(known, (least, most), strict=True))
    return len_of_range(least, most, abs(step)) <= integer_range(low.type)[1]


def _counter_type(context: Context, bounds: list[Any]) -> DType:
    """i32, or i64 if a bound is so wide."""
    types = [context.type_of_number(x) if is_number(x) else x.type for x in bounds]
    return i64 if any(is_wide(dtype) for dtype in types) else i32


def is_wide(dtype: DType) -> bool:
    """Whether a bound of this type makes the counter of its loop an i64."""
    return dtype.bits == 64 or (dtype.kind is Kind.UNSIGNED and dtype.bits == 32)


def _convert(context: Context, bound: Any, dtype: DType) -> Value:
    """A bound in the type of the counter: 2^63 - 1 for a u64 that is larger."""
    builder, last = context.builder, integer_range(i64)[1]
    if is_number(bound):
        if bound > last:
            context.fail(LoopBoundTooLarge(str(bound)))
        return builder.constant(bound, dtype)
    if bound.type is u64:
        bound = builder.binary("min", bound, builder.constant(last, u64))
    return builder.cast(bound, dtype)


def from_zero(context: Context, nest: Domain) -> Domain:
    """The domain for work items: with a single counter, far from the end of its type.

    Who deals them out adds to their numbers, and so may pass the last one. Random draws depend on
    the numbers, so these must not depend on whether a bound is a constant.
    """
    whole = linear(context, nest)
    ((low, high),) = whole.levels
    if low.type is not i64 or context.known(low) == 0:
        return whole
    bounds = _trips(context, low, high, 1)

    def indices(counters: list[Value]) -> list[Value]:
        return whole.indices([context.builder.binary("add", low, counters[0])])

    return dataclasses.replace(whole, levels=[bounds], indices=indices)


# -- ndrange, fields, arrays -----------------------------------------------------------------------


def product(
    context: Context, bounds: list[tuple[Any, Any]], axes: tuple[int, ...] | None = None
) -> Domain:
    """Return the nest of the bounds of each index; ``axes`` names the indices, slowest first."""
    dtype = i32
    if any(not _is_small(bound) for pair in bounds for bound in pair):
        dtype = i64
    levels = [
        (_convert(context, low, dtype), _convert(context, high, dtype)) for low, high in bounds
    ]
    if axes is None or axes == tuple(range(len(axes))):
        return Domain(levels, lambda counters: counters)
    nest = [levels[axis] for axis in axes]
    return Domain(nest, lambda counters: list(directives.in_order_of_ranges(counters, axes)))


def _is_small(bound: Any) -> bool:
    return convert(bound, i32) == bound if is_number(bound) else not is_wide(bound.type)


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
    total, most = wide[0], _largest_extent(context, *nest.levels[0])
    for extent, bounds in zip(wide[1:], nest.levels[1:], strict=True):
        largest = _largest_extent(context, *bounds)
        most *= largest
        if most <= integer_range(i64)[1] or nest.is_in_memory:
            total = context.builder.binary("mul", total, extent)
        else:
            total = build_capped_product(context.builder, total, extent, largest)

    def indices(counters: list[Value]) -> list[Value]:
        return nest.indices(_split(context, counters[0], nest.levels, wide))

    return Domain([(context.builder.constant(0, dtype), total)], indices, nest.grouped)


def _extent(context: Context, low: Value, high: Value) -> Value:
    """How many values an index takes; not negative."""
    builder = context.builder
    if context.known(low) == 0:
        return high if _cannot_be_negative(context, high) else builder.binary("max", high, low)
    is_wide = low.type is i64
    low, high = builder.cast(low, i64), builder.cast(high, i64)
    distance = builder.binary("sub", builder.binary("max", high, low), low)
    if not is_wide:
        return distance
    far = builder.constant(FAR, i64)  # instead of a distance that wraps
    is_far = builder.compare("lt", distance, builder.constant(0, i64))
    return builder.select(is_far, far, distance)


def _largest_extent(context: Context, low: Value, high: Value) -> int:
    """The most values that an index can take, as far as its bounds are known."""
    least, most = integer_range(low.type)
    first, last = context.known(low), context.known(high)
    return max(0, (last if is_number(last) else most) - (first if is_number(first) else least))


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
