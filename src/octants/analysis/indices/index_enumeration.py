"""Computes the indices of all work items of a task at once, with numpy, to see what they access.

Indices that depend on constants and loop counters alone are arrays with an entry for each
execution. If a task has more work items than are to be computed, some represent all: the first
ones, which are neighbours along every axis that is not too long, and the last ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from octants.ir import ops
from octants.ir.core import Block, Operation, Task, Value
from octants.ir.scalar_semantics import COMPARISONS
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType, u64

MOST = 1 << 14
"""The most work items whose indices are computed, unless a caller wants more."""

_LAST = 256
_MOST_EXECUTIONS = 1 << 17

Numbers = Any
"""A number for all executions, or an array with an entry for each; None: unknown."""


@dataclass(eq=False, slots=True)
class Executions:
    """The executions of one access: the work item of each, and its indices.

    If it is not `exact`, some of them may not happen.
    """

    items: np.ndarray[Any, Any]
    indices: list[Numbers]
    exact: bool


class _Frame:
    """The executions of a block; `up` maps each to the execution of the block around it."""

    def __init__(
        self, count: int, parent: _Frame | None = None, up: Any = None, *, exact: bool = True
    ) -> None:
        self.count = count
        self.parent = parent
        self.up = up
        self.exact: bool = exact and (parent is None or parent.exact)
        self.known: dict[Value, Numbers] = {}

    def get(self, value: Value) -> Numbers:
        if value in self.known:
            return self.known[value]
        if self.parent is None:
            return None
        found = self.parent.get(value)
        if isinstance(found, np.ndarray) and self.up is not None:
            found = found[self.up]
        self.known[value] = found
        return found


class Enumeration:
    """The executions of the accesses of a parallel task.

    `found` maps accesses with known indices to their executions. `items` are the work items that
    were computed; they are all if `is_whole`, and none if the domain is unknown. `others` has other
    values of accesses that are `wanted`, where they are known. Up to ``most`` work items are
    computed.
    """

    def __init__(
        self, task: Task, wanted: Mapping[Operation, Sequence[Value]] = {}, most: int = MOST
    ) -> None:
        assert task.domain is not None
        self.found: dict[Operation, Executions] = {}
        self.others: dict[Operation, dict[Value, Numbers]] = {}
        self._wanted = wanted
        self.is_whole = False
        self._item = task.body.args[0]
        outer = _Frame(1)
        self._block(task.domain, outer)
        lower, upper = (outer.get(value) for value in task.domain.yielded[:2])
        is_known = None not in (lower, upper)
        self.items = _sample(lower, upper, most) if is_known else np.zeros(0, np.int64)
        if not len(self.items):
            return
        self.is_whole = len(self.items) == upper - lower
        frame = _Frame(len(self.items), outer)
        frame.known[self._item] = self.items
        with np.errstate(all="ignore"):
            self._block(task.body, frame)

    def _block(self, block: Block, frame: _Frame) -> None:
        """Run a block for many work items at once.

        Args:
            block: The block.
            frame: The values of the operations so far, one for each execution.
        """
        for op in block.ops:
            if isinstance(op, ops.Access):
                self._access(op, frame)
            elif isinstance(op, ops.If):
                self._branches(op, frame)
            elif isinstance(op, ops.For):
                self._loop(op, frame)
            elif op.regions:
                for region in op.regions:
                    self._block(region, _Frame(frame.count, frame, exact=False))
            elif len(op.results) == 1 and op.result.type.bits <= 64:
                frame.known[op.result] = _evaluate(op, [frame.get(v) for v in op.operands])

    def _access(self, op: Any, frame: _Frame) -> None:
        indices = [frame.get(index) for index in op.indices]
        items = frame.get(self._item)
        if items is not None and all(index is not None for index in indices):
            self.found[op] = Executions(items, indices, frame.exact)
            wanted = self._wanted.get(op, ())
            self.others[op] = {value: frame.get(value) for value in wanted}

    def _branches(self, op: ops.If, frame: _Frame) -> None:
        condition = frame.get(op.condition)
        for block, wanted in ((op.then, True), (op.orelse, False)):
            if condition is None:
                self._block(block, _Frame(frame.count, frame, exact=False))
            elif isinstance(condition, np.ndarray):
                up = np.flatnonzero(condition == wanted)
                self._block(block, _Frame(len(up), frame, up))
            elif bool(condition) == wanted:
                self._block(block, _Frame(frame.count, frame))
            else:
                self._block(block, _Frame(0, frame, np.zeros(0, np.int64)))

    def _loop(self, op: ops.For, frame: _Frame) -> None:
        lower, upper = frame.get(op.lower), frame.get(op.upper)
        if lower is None or upper is None:
            self._block(op.body, _Frame(frame.count, frame, exact=False))
            return
        first = np.broadcast_to(lower, frame.count)
        trips = np.maximum(np.broadcast_to(upper, frame.count) - first, 0)
        total = int(trips.sum())
        if total > _MOST_EXECUTIONS:
            self._block(op.body, _Frame(frame.count, frame, exact=False))
            return
        up = np.repeat(np.arange(frame.count), trips)
        inner = _Frame(total, frame, up)
        before = np.cumsum(trips) - trips
        inner.known[op.body.args[0]] = first[up] + np.arange(total) - before[up]
        self._block(op.body, inner)


def _sample(lower: int, upper: int, most: int) -> np.ndarray[Any, Any]:
    """The work items from ``lower`` to ``upper``, or a sample if they are more than ``most``."""
    if upper - lower <= most:
        return np.arange(lower, upper, dtype=np.int64)
    first = np.arange(lower, lower + MOST - _LAST, dtype=np.int64)
    return np.concatenate((first, np.arange(upper - _LAST, upper, dtype=np.int64)))


def _evaluate(op: Operation, operands: list[Numbers]) -> Numbers:
    """The integer results of an operation in all executions; None if they are unknown."""
    types = [op.result.type, *(value.type for value in op.operands)]
    if any(kind.is_float for kind in types) or any(value is None for value in operands):
        return None
    if isinstance(op, ops.Constant):
        return op.value if op.value < 1 << 63 else None
    if isinstance(op, ops.Shape):
        shape = op.array.fixed_shape
        return None if shape is None else shape[op.axis]
    if isinstance(op, ops.Compare):
        return COMPARISONS[op.fn](*operands)
    if isinstance(op, ops.Select):
        condition, on_true, on_false = operands
        return _number(np.where(condition, on_true, on_false))
    if isinstance(op, ops.Extract):
        index, *components = operands
        first, *others = components
        is_one = [np.equal(index, number) for number in range(1, len(components))]
        return _number(np.select(is_one, others, first))
    if isinstance(op, ops.Cast):
        return _wrapped(operands[0], op.result.type)
    rule = _RULES.get(op.fn) if isinstance(op, (ops.Unary, ops.Binary)) else None
    return None if rule is None else _wrapped(rule(*operands), op.result.type)


def _wrapped(value: Numbers, kind: DType) -> Numbers:
    """A number, wrapped to the range of its type; None for numbers from 2^63 on."""
    if kind.is_bool:
        return np.not_equal(value, 0)
    if kind is u64 and np.less(value, 0).any():
        return None
    return _number(np.asarray(value, np.int64).astype(kind.numpy).astype(np.int64))


def _number(value: Any) -> Numbers:
    """An array, or the number in an array without axes."""
    return value[()]


_RULES: dict[str, Callable[..., Numbers]] = {
    "neg": np.negative,
    "abs": np.abs,
    "not": np.invert,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floordiv": lambda a, b: np.where(np.equal(b, 0), 0, np.floor_divide(a, b)),
    "mod": lambda a, b: np.where(np.equal(b, 0), a, np.mod(a, b)),
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
