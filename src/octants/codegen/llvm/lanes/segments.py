"""Write loops over segments of work items, from one boundary to the next, in tiles.

A segment ends with a row, and where an index such as `(i + 1) % n` or `max(i - 1, 0)` is at a
boundary (`analysis.lanes.boundaries`). So these indices are linear in a segment, and what they are
is computed once for all of its tiles. Vectors stay aligned: in a row of 128 whose first and last
elements are at boundaries, segments of 1, 126 and 1 work items have tiles of 16 lanes with::

    1;  15, 16, 16, 16, 16, 16, 16, 15;  1 work items

A function of single work items runs a segment of few, and one in which sums do not slide; see
`interior_tiles`.
"""

from __future__ import annotations

from functools import partial

from octants.analysis.lanes.boundaries import Boundaries
from octants.codegen import arithmetic
from octants.codegen.llvm.control_flow import no_unrolling
from octants.codegen.llvm.function_text import Phi
from octants.codegen.llvm.lanes.function_text import LaneText
from octants.ir import ops
from octants.ir.core import Value
from octants.types.scalars import i32, integer_range

_FEW = 8
"""The divisor of lanes that gives how many work items run one by one."""


class Segments:
    """The segments of a function.

    Args:
        boundaries: The boundaries of its task.
        distances: Pairs of indices, and how far apart they are where sums slide.
        single: The function of single work items; "" if none is needed.
    """

    def __init__(
        self, boundaries: Boundaries | None, distances: dict[tuple[Value, Value], int], single: str
    ) -> None:
        self._boundaries, self._distances, self._single = boundaries, distances, single
        self._begin, self._end, self._left = "", "", ""
        self._tile, self._leave = "", ""
        self._phi: Phi | None = None  # of the tiles

    def begin(self, f: LaneText, index: Value, end: str) -> None:
        """Write the beginning of a segment, and of its loop over tiles."""
        register, self._begin, position = f.item_type, f.item, f.item
        left, first = f.apply("sub", register, end, self._begin), self._begin
        if f.rows is not None:
            length = f.begin_row()
            position = f.position_in_row
            left = _least(f, register, left, f.apply("sub", register, length, position))
        starts = dict[Value, str]()
        if self._boundaries:
            left = _until_boundary(f, self._boundaries, index, left, starts)
            first = f.apply("sub", register, first, f.apply("urem", register, position, f.lanes))
        self._end = f.apply("add", register, self._begin, left)
        self._tile, self._leave = f.fresh_label("tile"), f.fresh_label("segment")
        self._run_singly(f, left)
        before = f.label
        f.enter(self._tile)
        self._phi = f.open_phi(register, (first, before))
        f.item = self._phi.name
        self._begin_tile(f)
        f.bind(index, f.progression(register, f.item))
        moved = f.apply("sub", register, f.item, self._begin)
        if f.rows is not None:
            f.position_in_row = f.apply("add", register, position, moved)
        for value, start in starts.items():
            by = f.code.convert(moved, index.type, value.type)
            start = arithmetic.combine(f, "add", value.type, start, by)
            f.iterations[value] = f.progression(f.type(value.type), start)

    def next(self, f: LaneText, end: str) -> tuple[str, str]:
        """Write the end of the loop over tiles; return the next segment, and if there is one."""
        assert self._phi is not None
        register, before = f.item_type, f.label
        following = f.apply("add", register, f.item, f.lanes)
        f.close_phi(self._phi, (following, before))
        goes_on = f.apply("icmp sgt", register, self._left, f.lanes)
        f.branch_if(goes_on, self._tile, self._leave, likely=True, hint=no_unrolling(f))
        f.start(self._leave)
        return self._end, f.apply("icmp slt", register, self._end, end)

    def first_lane(self, f: LaneText) -> str:
        """Return the number of the first lane with a work item."""
        if not self._boundaries:
            return "0"
        before = f.apply("sub", f.item_type, self._begin, f.item)
        return f.intrinsic("smax", f.item_type, [(f.item_type, before), (f.item_type, "0")])

    def _begin_tile(self, f: LaneText) -> None:
        """Mask the lanes before the segment, and behind it."""
        register = f.item_type
        self._left = f.apply("sub", register, self._end, f.item)
        f.is_whole = f.apply("icmp sge", register, self._left, f.lanes)
        mask = f.numbers_below(register, self._left) if f.overhangs else None
        if self._boundaries:
            before = f.apply("sub", register, self._begin, f.item)
            outside = f.numbers_below(register, before)
            mask = f.both(mask, f.apply("xor", "i1", outside, "true"))
            begun = f.apply("icmp sle", register, before, 0)
            f.is_whole = f.assign(f"and i1 {f.is_whole}, {begun}")
        f.mask = f.tile_mask = mask

    def _run_singly(self, f: LaneText, left: str) -> None:
        """Write the branch for segments that a function of single work items runs."""
        if not self._single:
            return
        register, tests = f.item_type, list[str]()
        if f.sums:
            tests.append(f.shared)
            f.shared = "false"
        for (one, other), distance in self._distances.items():
            kind = f.type(one.type)
            found = f.apply("sub", kind, f.use(one), f.use(other))
            tests.append(f.apply("icmp ne", kind, found, distance))
        if self._boundaries:
            tests.append(f.apply("icmp sle", register, left, f.lanes // _FEW))
        is_single, *others = tests
        for test in others:
            is_single = f.assign(f"or i1 {is_single}, {test}")
        single, many = f.fresh_label("single"), f.fresh_label("many")
        f.branch_if(is_single, single, many, unlikely=True)
        f.start(single)
        wide = ", ".join(f"i64 {f.wide_item(x)}" for x in (self._begin, self._end))
        arguments = f"ptr %parameters, ptr %context, ptr %worker, {wide}"
        f.emit(f"call void @{self._single}({arguments})")
        f.branch(self._leave)
        f.start(many)


def _until_boundary(
    f: LaneText, boundaries: Boundaries, index: Value, left: str, starts: dict[Value, str]
) -> str:
    """Write the indices of a segment's first work item.

    Args:
        f: The function.
        boundaries: The boundaries.
        index: The index of the work item.
        left: How many work items are left in the row.
        starts: Gets the bounded indices.

    Returns:
        How many work items are left before a boundary.
    """
    f.bind(index, f.item)
    register, behind = f.item_type, f.apply("sub", f.item_type, left, 1)
    for op in boundaries.slice:
        (value,) = op.results
        if f.rows is not None and value in f.rows.columns:
            f.bind(value, f.position_in_row)
            continue
        f.table[type(op)](f, op)
        if isinstance(op, ops.Binary) and op in boundaries.bounding:
            starts[value] = f.use(value)
            count = _behind(f, op, boundaries.bounding[op])
            behind = _least(f, register, behind, f.code.convert(count, value.type, index.type))
    return f.apply("add", register, behind, 1)


def _least(f: LaneText, register: str, one: str, other: str) -> str:
    """Return the lesser one of two numbers."""
    return f.intrinsic("smin", register, [(register, one), (register, other)])


def _behind(f: LaneText, op: ops.Binary, index: Value) -> str:
    """Return how many work items behind the first are on its side of a boundary, by its index."""
    bound = op.rhs if index is op.lhs else op.lhs
    dtype, of = index.type, partial(arithmetic.combine, f)
    start, limit, first = (f.use(value) for value in (index, bound, op.result))
    none, one, most = (f.literal(n, dtype) for n in (0, 1, integer_range(dtype)[1]))
    count = of("sub", dtype, most, of("max", dtype, start, none))  # until it wraps
    if op.fn == "min":
        count = of("sub", dtype, limit, first)
    elif op.fn == "max":
        count = f.choose(of("eq", dtype, start, first), f.type(dtype), count, none)
    else:
        last = of("sub", dtype, of("max", dtype, limit, one), one)
        count = of("min", dtype, of("sub", dtype, last, first), count)
    within = f.literal(integer_range(i32)[1], dtype)
    return str(of("max", dtype, of("min", dtype, count, within), none))
