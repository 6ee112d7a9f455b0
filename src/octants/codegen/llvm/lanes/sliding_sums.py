"""Write additions to overlapping vectors of neighbours: once for each vector, through registers.

A tile of a reverse stencil adds to neighbours at several distances. Added one after the other,
the vectors overlap: a processor loads the second one only when the first one has left its store
buffer, which takes as long as twenty additions. So the sums for each distance wait in registers.
At the end of the tile they are moved to their positions in the window, and added up::

    a0 a1 a2 a3                          the tile's window, from the least distance on
       b0 b1 b2 b3
          c0 c1 c2 c3
    ----------- ------
    added       carried to the next tile, which adds it to its own first elements

If the next tile is elsewhere, as in another row, what is carried is added to memory first. Where
two whole tiles are side by side, work items access all elements of the vector, if they all make an
update. Elsewhere, and in partial tiles, only elements with a sum other than zero are loaded and
stored, since others may be outside of the array.

No lane is at a boundary: see `segments`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from octants.analysis.control_flow.uniformity import Uniformity
from octants.analysis.lanes.boundaries import Boundaries
from octants.analysis.lanes.row_major_loops import ContiguousRows
from octants.analysis.sums.privatisation import PrivatisedSums
from octants.analysis.sums.reductions import find_reductions, neutral
from octants.analysis.sums.sliding_windows import SlidingWindow, find_windows
from octants.codegen import arithmetic
from octants.codegen.llvm.lanes import memory
from octants.codegen.llvm.lanes.atomics import active_numbers
from octants.codegen.llvm.lanes.function_text import LaneText
from octants.codegen.llvm.lanes.memory import LaneAddress
from octants.codegen.llvm.lanes.sum_functions import call_sum
from octants.ir import ops
from octants.ir.core import Operation, Task, Value
from octants.types.scalars import DType


def find_sliding(
    task: Task,
    sums: PrivatisedSums,
    facts: Uniformity,
    rows: ContiguousRows | None,
    lanes: int,
    noalias: bool,
    boundaries: Boundaries,
) -> list[SlidingWindow]:
    """Find the windows of additions to private sums.

    Args:
        task: The task.
        sums: Its private sums.
        facts: Which values are uniform.
        rows: The rows in which work items are neighbours.
        lanes: How many work items run in step.
        noalias: No two arrays of its kernel share memory.
        boundaries: The boundaries at which segments of tiles end.
    """
    if not sums:
        return []
    collected = {op for each in find_reductions(task, noalias) for op in each.atomics}
    updates = {
        op
        for op in task.body.walk()
        if isinstance(op, ops.Atomic) and op.ref in sums and op not in collected
    }
    lines = [task.body.args[0], *(() if rows is None else rows.columns)]
    windows = find_windows(task, updates, facts, lines, lanes // 2)
    return [each for each in (_of_known(w, boundaries) for w in windows) if len(each.distances) > 1]


class SlidingSums:
    """The windows of a function.

    Args:
        windows: The windows.
        always: The updates that are under no condition. Sums of others are in memory meanwhile.
    """

    def __init__(self, windows: Sequence[SlidingWindow], always: Collection[Operation]) -> None:
        self.windows, self._always = windows, always
        self._window_of = {op: window for window in windows for op in window.distances}
        self._totals: dict[tuple[SlidingWindow, int], str] = {}  # of the tile being written
        self._started: set[SlidingWindow] = set()

    def __contains__(self, op: Operation) -> bool:
        return op in self._window_of

    def distances(self) -> dict[tuple[Value, Value], int]:
        """Return the distances between bounded indices and their anchors' if sums slide."""
        return {
            (_index(window, op), _index(window, window.anchor)): distance
            for window in self.windows
            for op, distance in window.distances.items()
            if op in window.bounded
        }

    def begin_tile(self, f: LaneText) -> None:
        """Begin the sums of a tile with nothing."""
        self._totals.clear()
        for op, window in self._window_of.items():
            if op not in self._always:
                dtype = window.anchor.array.dtype
                total = _sum(f, window, window.distances[op])
                f.write_variable(total, f.type(dtype), _zeros(f, dtype))

    def add(self, f: LaneText, op: ops.Atomic) -> None:
        """Add to the sum for an update's distance."""
        window, dtype = self._window_of[op], op.array.dtype
        key = window, window.distances[op]
        numbers = active_numbers(f, "add", dtype, f.use(op.value))
        if op not in self._always:
            total, register = _sum(f, *key), f.type(dtype)
            old = f.read_variable(total, register)
            new = arithmetic.combine(f, op.fn, dtype, old, numbers)
            f.write_variable(total, register, new)
        elif key in self._totals or op.fn == "sub":
            old = self._totals.get(key, _zeros(f, dtype))
            self._totals[key] = arithmetic.combine(f, op.fn, dtype, old, numbers)
        else:
            self._totals[key] = numbers

    def end_tile(self, f: LaneText, *, ends_masked: bool) -> None:
        """Add the sums of all windows to memory.

        Args:
            f: The function.
            ends_masked: The next tile may have no mask, so that no inactive lane may be beside it.
        """
        for window in self.windows:
            self._add_window(f, window)
        if ends_masked and f.mask is not None:
            self.finish(f)

    def finish(self, f: LaneText) -> None:
        """Add what windows still carry, as at the end of the last tile."""
        for window in self.windows:
            if len(window.ordered) == 1:
                continue
            op, (carried, end) = window.anchor, self._carried(f, window)
            address, register = f.assign(f"load ptr, ptr {end}, align 8"), f.type(op.array.dtype)
            _add_where_nonzero(f, op, address, f.read_variable(carried, register))
            f.write_variable(carried, register, _zeros(f, op.array.dtype))
            f.emit(f"store ptr {_nowhere(f)}, ptr {end}, align 8")

    def _add_window(self, f: LaneText, window: SlidingWindow) -> None:
        op, dtype = window.anchor, window.anchor.array.dtype
        totals = self._sums(f, window)
        address = memory.locate(f, op.array, op.companion, op.indices)
        start = address.start if address.step is not None else f.element("ptr", address.start, "0")
        if len(totals) == 1:
            (total,), mask = totals.values(), f.mask
            if not window.is_certain:
                f.mask = _nonzero(f, dtype, total)
            _add_vector(f, op, start, total)
            f.mask = mask
            return
        start = _behind(f, start, window.ordered[0] * dtype.size)
        here, beyond = (_moved(f, dtype, totals, by) for by in (0, f.lanes))
        carried, end = self._carried(f, window)
        before = f.assign(f"load ptr, ptr {end}, align 8")
        held = f.read_variable(carried, f.type(dtype))
        goes_on = f.assign(f"icmp eq ptr {start}, {before}")
        beside, elsewhere, further = map(f.fresh_label, ("beside", "elsewhere", "further"))
        f.branch_if(goes_on, beside, elsewhere, likely=True)
        f.start(beside)
        numbers, mask = arithmetic.combine(f, "add", dtype, here, held), f.mask
        if mask is not None or not window.is_certain:
            f.mask = _nonzero(f, dtype, numbers)
        _add_vector(f, op, start, numbers)
        f.mask = mask
        f.branch(further)
        f.start(elsewhere)
        _add_where_nonzero(f, op, before, held)
        _add_where_nonzero(f, op, start, here)
        f.enter(further)
        f.write_variable(carried, f.type(dtype), beyond)
        f.emit(f"store ptr {_behind(f, start, f.lanes * dtype.size)}, ptr {end}, align 8")

    def _sums(self, f: LaneText, window: SlidingWindow) -> dict[int, str]:
        """Return the sum of the tile for each distance."""
        dtype = window.anchor.array.dtype
        found = {d: total for (each, d), total in self._totals.items() if each is window}
        for distance in {d for op, d in window.distances.items() if op not in self._always}:
            total = f.read_variable(_sum(f, window, distance), f.type(dtype))
            if distance in found:
                total = arithmetic.combine(f, "add", dtype, found[distance], total)
            found[distance] = total
        return found

    def _carried(self, f: LaneText, window: SlidingWindow) -> tuple[str, str]:
        """Return the variables for what is carried, and for its address: where a tile goes on."""
        dtype = window.anchor.array.dtype
        register = f.type(dtype)
        numbers = f.vector_variable((window, "carried"), register)
        address = f.once((window, "end"), "alloca ptr, align 8")
        if window not in self._started:
            self._started.add(window)
            f.initialise(numbers, register, _zeros(f, dtype))
            f.entry.append(f"  store ptr {_nowhere(f)}, ptr {address}, align 8")
        return numbers, address


def _of_known(window: SlidingWindow, boundaries: Boundaries) -> SlidingWindow:
    """Return a window without bounded updates whose distance cannot be tested."""
    known = boundaries.is_known(_index(window, window.anchor))
    kept = {
        op: distance
        for op, distance in window.distances.items()
        if op not in window.bounded or (known and boundaries.is_known(_index(window, op)))
    }
    return dataclasses.replace(window, distances=kept)


def _index(window: SlidingWindow, op: Operation) -> Value:
    """Return the index of an update along the window."""
    assert isinstance(op, ops.Atomic)
    return op.indices[window.axis]


def _sum(f: LaneText, window: SlidingWindow, distance: int) -> str:
    """Return the variable for the sum of a tile's conditional updates at a distance."""
    return f.vector_variable((window, distance), f.type(window.anchor.array.dtype))


def _moved(f: LaneText, dtype: DType, totals: dict[int, str], by: int) -> str:
    """Return the sum of a window's elements, of so many as there are lanes, from ``by`` on."""
    register, first = f.type(dtype), min(totals)
    vector, nothing, found = f.vector(register), _zeros(f, dtype), ""
    for distance, total in totals.items():
        positions = [by + lane - (distance - first) for lane in range(f.lanes)]
        if not any(0 <= position < f.lanes for position in positions):
            continue
        order = ", ".join(f"i32 {p if 0 <= p < f.lanes else f.lanes}" for p in positions)
        moved = f.assign_vector(
            f"shufflevector {vector} {total}, {vector} {nothing}, <{f.lanes} x i32> <{order}>"
        )
        found = moved if not found else arithmetic.combine(f, "add", dtype, found, moved)
    return found


# -- instructions -------------------------------------------------------------------------------


def _add_where_nonzero(f: LaneText, op: ops.Atomic, address: str, numbers: str) -> None:
    def write(inner: LaneText, pointers: list[str], values: list[str]) -> None:
        inner.vectors.update(values)
        inner.mask = _nonzero(inner, op.array.dtype, values[0])
        _add_vector(inner, op, pointers[0], values[0])

    call_sum(f, op, "window", [address], [numbers], write)


def _nonzero(f: LaneText, dtype: DType, numbers: str) -> str:
    compare = "fcmp une" if dtype.is_float else "icmp ne"
    return f.assign_vector(f"{compare} {f.vector(f.type(dtype))} {numbers}, zeroinitializer")


def _add_vector(f: LaneText, op: ops.Atomic, address: str, numbers: str) -> None:
    dtype, suffix = op.array.dtype, f.kernel.scopes.suffix(op.ref)
    register, to = f.type(dtype), LaneAddress(address, dtype.size)
    old = memory.load_from(f, to, register, dtype.size, suffix)
    new = arithmetic.combine(f, "add", dtype, old, numbers)
    memory.store_to(f, to, register, new, dtype.size, suffix)


def _zeros(f: LaneText, dtype: DType) -> str:
    return f.spread(f.type(dtype), f.literal(neutral("add", dtype), dtype))


def _nowhere(f: LaneText) -> str:
    """Return an address where no tile begins; masked instructions are slow at a null address."""
    return f.once("nowhere", "alloca i8, align 1")


def _behind(f: LaneText, start: str, nbytes: int) -> str:
    return f.assign(f"getelementptr i8, ptr {start}, i64 {nbytes}")
