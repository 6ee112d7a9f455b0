"""Estimates the run time of a loop in lanes, and of one work item at a time.

The unit is the time of an addition of registers. One walk counts both: what a work item costs on
its own, and what a tile costs, which has as many work items as there are lanes. A vector
instruction counts once for each machine register that the vector fills. The estimate includes what
LLVM's vectoriser makes of simple loops.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from octants.analysis.control_flow.uniformity import Uniformity
from octants.analysis.cost_model import ATOMIC, CHEAP, DIVISION, DIVISIONS, LIBRARY, RANDOM, STREAM
from octants.analysis.indices.affine_analysis import AffineExpressions
from octants.analysis.indices.array_strides import address_step, strides
from octants.analysis.lanes.row_major_loops import ContiguousRows
from octants.ir import ops
from octants.ir.core import (
    CHECKPOINT,
    ArrayRef,
    Block,
    Operation,
    Task,
    Value,
)
from octants.lazy_dataclass import dataclass
from octants.target import Vectors
from octants.types.scalars import DType, f16, i64, u64

_REMAINDER = 20
_MISPREDICTED = 5  # of a branch that depends on data, on average
_TRIPS = 16  # of a loop with an unknown trip count
_RAGGED = 1.4  # how much longer the longest of several loops is than one of them
_ORDERED = 3  # an addition to a sum, which waits for the one before
_GOOD = 0.6  # LLVM's share of the possible speed-up of inner loops
_TEST = 3  # of a vector's lanes, and a branch that is foreseen

_BOUNDING = ("min", "max", "mod", "truncmod", "and")
"""They change a few lanes of an index only, where it reaches a boundary."""

_FLOAT_INSTRUCTIONS = ("add", "sub", "mul", "min", "max", "mul_error")


@dataclass(slots=True)
class Cost:
    """The costs of one work item alone, and of a tile."""

    item: float = 0.0
    tile: float = 0.0

    def plus(self, other: Cost, times: float = 1.0) -> Cost:
        return Cost(self.item + times * other.item, self.tile + times * other.tile)


@dataclass(frozen=True, slots=True)
class CheapUpdates:
    """Atomics that need no atomic instruction: `collected` in registers, or to private copies.

    The targets with private copies, and those that only one work item at a time updates, are
    `plain`.
    """

    collected: Collection[Operation] = ()
    plain: Collection[ArrayRef] = ()


_NO_UPDATES = CheapUpdates()


class LaneCost:
    """The costs of the body of a parallel task.

    Args:
        task: the task.
        facts: which values are uniform.
        lanes: how many work items a tile has.
        vectors: the vectors of the machine.
        updates: the atomics that need no atomic instruction.
        rows: the rows with which tiles end, if they do.
    """

    def __init__(
        self,
        task: Task,
        facts: Uniformity,
        lanes: int,
        vectors: Vectors,
        updates: CheapUpdates = _NO_UPDATES,
        rows: ContiguousRows | None = None,
    ) -> None:
        self._facts = facts
        self._lanes = lanes
        self._width = vectors.lanes
        self._costs = vectors.costs
        self._affine = AffineExpressions(task)
        self._updates = updates
        self._capacity_tests = set(_capacity_tests(task.body))
        self._constants = ops.constants_in(task.body)
        self._bounded = {
            op.result: op
            for op in task.body.walk()
            if isinstance(op, ops.Binary) and op.fn in _BOUNDING and not op.result.type.is_float
        }
        self._items = {task.body.args[0]} | (rows.columns if rows is not None else set())
        self._rows = rows
        self._unforeseen = _unforeseen(task.body, facts)
        self.cost = self._block(task.body)
        if rows is not None:
            self.cost.tile += self._costs.new_tile
        if self._is_simple(task.body, task.body.args[0]):
            vectorised = self.cost.item / vectors.lanes  # as well as it is done here, in less code
            self.cost.item = max(vectorised, self._summing())

    @property
    def gain(self) -> float:
        """The speed-up of lanes."""
        return self._lanes * self.cost.item / max(1.0, self.cost.tile)

    # -- blocks -----------------------------------------------------------------------------------

    def _block(self, block: Block) -> Cost:
        total = Cost()
        for op in block.ops:
            total = total.plus(_COST.get(type(op), LaneCost._other)(self, op))
        return total

    def _if(self, op: ops.If) -> Cost:
        if self._is_of_blocks(op):
            return Cost(1, 2)
        then, orelse = self._block(op.then), self._block(op.orelse)
        both = then.plus(orelse)
        if not self._facts.diverges(op):
            return Cost(1 + both.item / 2, 1 + both.tile / 2)
        chosen = sum(self._registers(result.type) for result in op.results)
        missed = _MISPREDICTED if op.condition in self._unforeseen else 0
        return Cost(1 + missed + both.item / 2, 4 + both.tile + chosen)

    def _for(self, op: ops.For) -> Cost:
        known = op.trips(self._constants)
        trips = float(_TRIPS if known is None else known)
        if any(isinstance(each, ops.If) and self._is_of_blocks(each) for each in op.body.ops):
            trips = 1.0
        body = self._block(op.body)
        item = 1 + trips * (1 + body.item)
        if self._is_simple(op.body, op.body.args[0]) and trips >= self._width:
            item = max(self._vectorised(item), trips * self._waiting(op))
        return Cost(item, 4 + trips * self._iteration(op, body))

    def _is_of_blocks(self, op: ops.If) -> bool:
        """Whether a branch is for loops whose records exceed the record buffer, which is rare."""
        if op.condition in self._capacity_tests:
            return True
        inside = (each for region in op.regions for each in region.walk())
        records = (ops.RecordPush, ops.RecordPop)
        return any(isinstance(each, records) and each.record.name == CHECKPOINT for each in inside)

    def _while(self, op: ops.While) -> Cost:
        body = self._block(op.condition).plus(self._block(op.body))
        return Cost(1 + _TRIPS * (1 + body.item), 4 + _TRIPS * self._iteration(op, body))

    def _iteration(self, op: ops.Loop, body: Cost) -> float:
        """The cost of an iteration in lanes."""
        if not self._facts.diverges(op):
            return 1 + body.tile
        results = sum(self._registers(result.type) for result in op.results)
        return _RAGGED * (3 + body.tile + results)

    # -- scalars ----------------------------------------------------------------------------------

    def _registers(self, dtype: DType) -> float:
        """How many machine registers a vector fills."""
        bits = 32 if dtype is f16 else max(dtype.bits, 32)
        return max(1.0, self._lanes * bits / (32 * self._width))

    def _pure(self, op: Operation, item: float, tile: float) -> Cost:
        """A uniform value is computed once for all lanes."""
        if not any(self._facts.varies(value) for value in op.results):
            return Cost(item, item)
        return Cost(item, tile)

    def _other(self, op: Operation) -> Cost:
        if isinstance(op, ops.Write):
            return self._atomic(op)
        if not op.results:
            return Cost(1, 1)
        return self._pure(op, 1, self._registers(op.results[0].type))

    def _nothing(self, _: Operation) -> Cost:
        return Cost()

    def _unary(self, op: ops.Unary) -> Cost:
        registers = self._registers(op.x.type)
        cost = 1 if op.fn in CHEAP else DIVISION if op.fn in ("sqrt", "rsqrt") else LIBRARY
        if op.fn in ("popcount", "clz"):
            registers *= 4
        return self._pure(op, cost, cost * registers)

    def _binary(self, op: ops.Binary) -> Cost:
        cost = self._function(op)
        if op.result in self._items:  # the column in a row
            return Cost(cost.item, self._registers(op.result.type))
        return cost

    def _function(self, op: ops.Binary) -> Cost:
        dtype = op.result.type
        registers = self._registers(dtype)
        if dtype.is_float:
            if op.fn in _FLOAT_INSTRUCTIONS:
                return self._pure(op, 1, registers)
            cost = LIBRARY if op.fn in ("pow", "atan2") else DIVISION
            cost = _REMAINDER if op.fn in ("mod", "truncmod") else cost
            return self._pure(op, cost, cost * registers)
        if op.fn == "pow":
            return self._pure(op, LIBRARY, LIBRARY * registers)
        if op.fn in DIVISIONS:
            divisor = self._constants.get(op.rhs)
            if divisor is not None:
                is_shift = divisor > 0 and divisor & (divisor - 1) == 0
                return self._pure(op, 1 if is_shift else 3, (2 if is_shift else 12) * registers)
            return self._pure(op, DIVISION, self._one_by_one(DIVISION))
        if op.fn == "mul" and dtype in (i64, u64):
            return self._pure(op, 1, self._costs.product_of_64 * registers)
        return self._pure(op, 1, registers)

    def _random_stream(self, op: ops.RandomStream) -> Cost:
        return self._pure(op, STREAM, STREAM * self._registers(u64))

    def _random(self, op: ops.Random) -> Cost:
        return self._pure(op, RANDOM, RANDOM * self._registers(u64))

    def _one_by_one(self, cost: float) -> float:
        return self._lanes * (cost + self._costs.call)

    # -- memory -----------------------------------------------------------------------------------

    def _load(self, op: ops.Load) -> Cost:
        return Cost(1, self._usual_access(op, self._costs.gathered))

    def _usual_access(self, op: ops.Load | ops.Atomic, one_by_one: float) -> float:
        """The cost of an access, which may be to neighbours but at boundaries."""
        dtype, step = op.array.dtype, self._step(op)
        tile = self._access(step, dtype, one_by_one)
        if step is None and self._step_inside(op) == dtype.size:
            contiguous = self._registers(dtype) + 2 * self._registers(i64) + _TEST
            tile = min(tile, contiguous)
        return tile

    def _step_inside(self, op: ops.Load | ops.Atomic) -> int | None:
        """The bytes from lane to lane of most tiles, away from boundaries; None if unknown."""
        distances = strides(op.array, op.companion, len(op.indices))
        varying = [k for k, index in enumerate(op.indices) if self._facts.varies(index)]
        if len(varying) != 1:
            return None
        stride, slope = distances[varying[0]], self._slope(op.indices[varying[0]])
        return None if stride is None or slope is None else stride * slope

    def _slope(self, index: Value) -> int | None:
        """By how much an index grows from lane to lane, away from boundaries; None if unknown."""
        total = 0
        for value, factor in self._affine.expression(index).terms.items():
            slope: int | None = int(value in self._items)
            if not slope and self._facts.varies(value):
                bounded = self._bounded.get(value)
                inner = [x for x in bounded.operands if self._facts.varies(x)] if bounded else []
                slope = self._slope(inner[0]) if len(inner) == 1 else None
            if slope is None:
                return None
            total += factor * slope
        return total

    def _store(self, op: ops.Store) -> Cost:
        return Cost(1, self._access(self._step(op), op.array.dtype, self._costs.scattered))

    def _atomic(self, op: ops.Write) -> Cost:
        registers = self._registers(op.array.dtype)
        if op in self._updates.collected:
            return Cost(2, 2 * registers)
        if isinstance(op, ops.Atomic) and op.ref in self._updates.plain:
            return Cost(3, 3 * self._usual_access(op, self._costs.added))
        if isinstance(op, ops.Atomic) and self._step(op) == 0:
            return Cost(ATOMIC, ATOMIC + 4 * registers + 4)
        return Cost(ATOMIC, self._one_by_one(ATOMIC))

    def _record(self, op: ops.RecordPush | ops.RecordPop) -> Cost:
        values = op.values if isinstance(op, ops.RecordPush) else op.results
        step = None if self._facts.varies(op.index) else 0
        each = self._costs.scattered if isinstance(op, ops.RecordPush) else self._costs.gathered
        tile = sum(
            self._registers(value.type) if step == 0 else self._access(None, value.type, each)
            for value in values
        )
        return Cost(2 + len(values), 2 + tile)

    def _access(self, step: int | None, dtype: DType, one_by_one: float) -> float:
        if step == 0:
            return 2
        if step == dtype.size:
            return self._registers(dtype)
        narrow = 2 if dtype.bits < 32 else 1  # there are no instructions for these
        return self._lanes * one_by_one * narrow

    def _step(self, op: ops.Load | ops.Store | ops.Atomic) -> int | None:
        """The bytes from lane to lane; None if unknown, or not the same for all lanes."""
        return address_step(self._affine, op, self._items, self._facts.varies)

    # -- what LLVM vectorises on its own ----------------------------------------------------------

    def _vectorised(self, cost: float) -> float:
        return cost / max(1.0, _GOOD * self._width)

    def _is_simple(self, body: Block, counter: Value) -> bool:
        """Whether LLVM vectorises a loop: no calls, no inner loops, contiguous accesses."""
        if any(isinstance(op, ops.Loop) for op in body.walk()):
            return False
        inside = body.defined()

        def varies(value: Value) -> bool:
            return value in inside

        for op in body.walk():
            if isinstance(op, (ops.RandomStream, ops.RecordAccess)):
                return False
            if isinstance(op, ops.Unary) and op.fn not in (*CHEAP, "sqrt"):
                return False  # nor does LLVM vectorise approximate instructions
            if isinstance(op, ops.Binary) and _is_called(op):
                return False
            if isinstance(op, (ops.Load, ops.Store)):
                distance = address_step(self._affine, op, [counter], varies)
                if distance not in (0, op.array.dtype.size):
                    return False
            if op.reads and op.writes and op not in self._updates.collected:
                return False
        return all(self._is_sum(body, arg) for arg in body.args if arg is not counter)

    def _is_sum(self, body: Block, arg: Value) -> bool:
        """Whether a carried value is only added to."""
        users = [op for op in body.ops if arg in op.operands]
        return len(users) == 1 and isinstance(users[0], ops.Binary) and users[0].fn == "add"

    def _summing(self) -> float:
        """The least cost of a work item that adds to sums of floats."""
        return max((_ORDERED for op in self._updates.collected if _is_float_sum(op)), default=0)

    def _waiting(self, op: ops.For) -> float:
        """The least cost of an iteration: sums of floats are added in order."""
        return _ORDERED if any(arg.type.is_float for arg in op.body.args[1:]) else 0


def _capacity_tests(block: Block) -> Iterator[Value]:
    """The conditions that test whether the records of a loop fit the record buffer."""
    capacities = {op.result for op in block.walk() if isinstance(op, ops.RecordCapacity)}
    for op in block.walk():
        if isinstance(op, ops.Compare) and op.rhs in capacities:
            yield op.result


def _unforeseen(block: Block, facts: Uniformity) -> set[Value]:
    """The values that vary by more than the work item's index: branch predictors fail on them."""
    found: set[Value] = set()
    for op in block.walk():
        if isinstance(op, ops.Loop):
            found.update(arg for region in op.regions for arg in region.args if facts.varies(arg))
        follows = not op.is_pure or any(value in found for value in op.operands)
        if follows:
            found.update(value for value in op.results if facts.varies(value))
    return found


def _is_float_sum(op: Operation) -> bool:
    return isinstance(op, ops.Atomic) and op.fn in ("add", "sub") and op.array.dtype.is_float


def _is_called(op: ops.Binary) -> bool:
    names = ("pow", "atan2", "mod", "truncmod") if op.result.type.is_float else ("pow", *DIVISIONS)
    return op.fn in names


_COST: dict[type[Operation], Callable[[LaneCost, Any], Cost]] = {
    ops.Constant: LaneCost._nothing,
    ops.Yield: LaneCost._nothing,
    ops.If: LaneCost._if,
    ops.For: LaneCost._for,
    ops.While: LaneCost._while,
    ops.Unary: LaneCost._unary,
    ops.Binary: LaneCost._binary,
    ops.Random: LaneCost._random,
    ops.RandomStream: LaneCost._random_stream,
    ops.Load: LaneCost._load,
    ops.Store: LaneCost._store,
    ops.Atomic: LaneCost._atomic,
    ops.RecordPush: LaneCost._record,
    ops.RecordPop: LaneCost._record,
}
