"""Write code of their own for interior tiles: all lanes active, and none at a boundary.

An index such as `(i + 1) % n` or `max(i - 1, 0)` makes neighbours of lanes, but at boundaries. Each
access would test that. Here a tile tests it once for each such index. Interior tiles also need no
masks, and run only where workers add to targets of their own, so that updates are plain, and those
of neighbours slide (`sliding_sums`)::

    is_interior = whole tile and not shared and (i + 1) % n == first + (0, 1, 2, ...) and ...
    if is_interior:  body, where the indices are linear
    else:            body
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from octants.analysis.lanes.choose_loops import SMALL_IN_ROWS
from octants.analysis.sums.sliding_windows import SlidingWindow
from octants.codegen.llvm.lanes.function_text import LaneText
from octants.codegen.llvm.lanes.sliding_sums import SlidingSums
from octants.ir import ops
from octants.ir.core import Block, Operation, Space, Task, Value
from octants.ir.slices import backward_slice


class InteriorTiles:
    """The interior tiles of a function, in which work items run in lanes.

    Args:
        task: The task.
        windows: Its windows of sums.
        splits: Whether whole tiles gain by code of their own, without masks.
    """

    def __init__(self, task: Task, windows: Sequence[SlidingWindow], *, splits: bool) -> None:
        self._definitions = {value: op for op in task.body.ops for value in op.results}
        accesses = (op for op in task.body.walk() if isinstance(op, ops.Access))
        indices = dict.fromkeys(index for op in accesses for index in op.indices)
        parts = [op for index in indices for op in self._slice([index]) or ()]
        self._bounded = [op.result for op in dict.fromkeys(parts) if _bounds(op)]
        self._windows = [window for window in map(self._testable, windows) if window is not None]
        self._sliding = SlidingSums(self._windows, set(task.body.ops))
        self._splits, self._is_inside = splits, False

    @staticmethod
    def may_be_in(task: Task) -> bool:
        """Whether a task is small enough to be written twice."""
        found = list(itertools.islice(task.body.walk(), SMALL_IN_ROWS + 1))
        return len(found) <= SMALL_IN_ROWS and not any(isinstance(op, ops.Loop) for op in found)

    def slides(self, op: Operation) -> bool:
        """Whether an update, in the tile being written, is made through a window."""
        return self._is_inside and op in self._sliding

    def add(self, f: LaneText, op: ops.Atomic) -> None:
        """Write such an update."""
        self._sliding.add(f, op)

    def write(self, f: LaneText, body: Block) -> None:
        """Write the body for a tile: twice, if some tiles are interior ones."""
        mask, tile_mask, shared = f.mask, f.tile_mask, f.shared
        is_masked = self._splits and mask is not None
        lines = dict[Value, str]()
        tests = list(self._tests(f, lines))
        if not (tests or self._windows or is_masked):
            f.block(body)
            return
        if mask is not None:
            tests.append(f.all(mask))
        if f.sums:
            tests.append(f.assign(f"xor i1 {shared}, true"))
        is_inside, *others = tests
        for test in others:
            is_inside = f.assign(f"and i1 {is_inside}, {test}")
        inside, boundary, further = map(f.fresh_label, ("inside", "boundary", "further"))
        f.branch_if(is_inside, inside, boundary, likely=True)
        f.start(inside)
        f.mask = f.tile_mask = None
        f.shared, self._is_inside = "false", True
        f.iterations.update(lines)
        self._sliding.begin_tile(f)
        f.block(body)
        self._sliding.end_tile(f)
        f.branch(further)
        f.mask, f.tile_mask, f.shared, self._is_inside = mask, tile_mask, shared, False
        for value in lines:
            del f.iterations[value]
        f.start(boundary)
        f.block(body)
        f.branch(further)
        f.start(further)

    def finish(self, f: LaneText) -> None:
        """Add what windows still carry when the last tile has ended."""
        self._sliding.finish(f)

    # -- tests ----------------------------------------------------------------------------------

    def _tests(self, f: LaneText, lines: dict[Value, str]) -> Iterator[str]:
        """Write tests whether no lane is at a boundary; ``lines`` get what indices are then."""
        indices = {
            (op.indices[window.axis], window.anchor.indices[window.axis]): distance
            for window in self._windows
            for op, distance in window.distances.items()
            if isinstance(op, ops.Atomic) and op in window.bounded
        }
        wanted = [*self._bounded, *(index for pair in indices for index in pair)]
        for op in self._slice(wanted) or ():
            f.table[type(op)](f, op)
        for value in self._bounded:
            operand, register = f.use(value), f.type(value.type)
            line = f.probable_line(operand)
            if line is not None and operand not in f.linear:
                lines[value] = f.progression(register, line.start(), line.step)
                equal = f"icmp eq {f.vector(register)} {operand}, {lines[value]}"
                yield f.all(f.assign_vector(equal))
        for (index, anchor), distance in indices.items():
            yield _is_at_distance(f, index, anchor, distance)

    def _slice(self, values: Sequence[Value]) -> list[Operation] | None:
        """The operations that compute values from the work item; None if they are not so simple."""
        found = backward_slice(values, self._definitions)
        return found if all(map(_is_simple, found)) else None

    def _testable(self, window: SlidingWindow) -> SlidingWindow | None:
        """A window without the updates whose distance cannot be tested before a tile."""
        kept = {
            op: distance
            for op, distance in window.distances.items()
            if op not in window.bounded or self._is_known(op, window)
        }
        return dataclasses.replace(window, distances=kept) if len(kept) > 1 else None

    def _is_known(self, op: Operation, window: SlidingWindow) -> bool:
        assert isinstance(op, ops.Atomic)
        indices = op.indices[window.axis], window.anchor.indices[window.axis]
        return indices[0] in self._definitions and self._slice(indices) is not None


def _is_simple(op: Operation) -> bool:
    is_argument = isinstance(op, ops.Load) and op.array.space is Space.ARGUMENT
    return op.is_scalar or is_argument or isinstance(op, ops.Shape)


def _bounds(op: Operation) -> bool:
    return isinstance(op, ops.Binary) and op.fn in ("mod", "min", "max") and op.lhs.type.is_integer


def _is_at_distance(f: LaneText, index: Value, anchor: Value, distance: int) -> str:
    """Return whether an index exceeds the anchor's so far: in one lane, if both are lines."""
    register, operands = f.type(index.type), [f.use(index), f.use(anchor)]
    lines = [line for line in map(f.probable_line, operands) if line is not None]
    if len(lines) == len(operands):
        first, start = (line.start() for line in lines)
        found = f.assign(f"sub {register} {first}, {start}")
        return f.assign(f"icmp eq {register} {found}, {distance}")
    found, wide = f.apply("sub", register, *operands), f.spread(register, distance)
    return f.all(f.assign_vector(f"icmp eq {f.vector(register)} {found}, {wide}"))
