"""Lets a reverse kernel propagate several adjoints: the primal values are computed once for all.

Before::

    kernel @k_reverse
    array @x: f32, 1, ndarray, () [primal, adjoint]
    array @y: f32, 0, ndarray, () [primal, adjoint]
    parallel @k_0_reverse {
      %0: i32 = constant<0>()
      %1: i32 = shape<@x, 0>()
      yield(%0, %1)
    } { (%2: i32):
      %3: f32 = load<@x, primal>(%2)
      %4: f32 = load<@y, adjoint>()
      %5: f32 = unary<cos>(%3)
      %6: f32 = binary<mul>(%4, %5)
      %7: f32 = atomic<add, @x, adjoint>(%6, %2)
      yield()
    }

After::

    kernel @k_reverse
    array @x: f32, 1, ndarray, () [primal]
    array @y: f32, 0, ndarray, () [primal]
    array @x_adjoint: f32, 2, ndarray, () [primal]
    array @y_adjoint: f32, 1, ndarray, () [primal]
    parallel @k_0_reverse {
      %0: i32 = constant<0>()
      %1: i32 = shape<@x, 0>()
      yield(%0, %1)
    } { (%2: i32):
      %3: f32 = load<@x, primal>(%2)
      %4: i32 = constant<0>()
      %5: f32 = load<@y_adjoint, primal>(%4)
      %6: i32 = constant<1>()
      %7: f32 = load<@y_adjoint, primal>(%6)
      %8: f32 = unary<cos>(%3)
      %9: f32 = binary<mul>(%5, %8)
      %10: f32 = binary<mul>(%7, %8)
      %11: f32 = atomic<add, @x_adjoint, primal>(%9, %4, %2)
      %12: f32 = atomic<add, @x_adjoint, primal>(%10, %6, %2)
      yield()
    }

This is for two adjoints. What depends on an adjoint is copied for each; everything else - the
repeated primal computation, control flow, records - stays as it is. So each adjoint gets the bits
that it would get alone, but for sums whose order is free.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from octants.analysis.reachability import reachable
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cloning import copy_arrays, copy_domain
from octants.ir.core import Array, Block, Companion, Module, Operation, Space, Task, Value, rebuild
from octants.lazy_dataclass import dataclass
from octants.simplify import simplify
from octants.types.scalars import i32

if TYPE_CHECKING:
    from typing import TypeGuard

PRIMAL, ADJOINT = Companion.PRIMAL, Companion.ADJOINT
OUTER = Space.FIELD, Space.NDARRAY


class CannotBatch(Exception):
    """The adjoints of a kernel can only be propagated one after the other."""


@dataclass(frozen=True, slots=True)
class BatchedReverse:
    """A reverse kernel for several adjoints.

    The first arrays of `module` are parallel to those of the reverse kernel. Behind them are the
    adjoints of the fields and ndarrays in `outer`, ndarrays with a first axis more. `inner` has,
    for each other array with adjoints, by its position, a launch-temporary array for each adjoint.
    """

    module: Module
    outer: tuple[int, ...]
    inner: Mapping[int, Sequence[Array]]


def batch_adjoints(reverse: Module, count: int) -> BatchedReverse:
    """Make the kernel that propagates several adjoints at once.

    Args:
        reverse: the reverse kernel, simplified, which is not changed.
        count: how many adjoints it propagates.

    Raises:
        CannotBatch: control flow or an address depends on an adjoint, or the work items of a block
            share adjoints.
    """
    copies = copy_arrays(reverse)
    used = {op.array for op in reverse.walk() if _is_adjoint_access(op)}
    taken, outer, inner = {array.name for array in reverse.arrays}, {}, {}
    for array in reverse.arrays:
        if array in used and array.space in OUTER:
            outer[array] = _outer_adjoints(array, taken)
        elif array in used:
            inner[array] = [_inner_adjoints(array, taken) for _ in range(count)]
    for array in copies.values():
        array.layouts.pop(ADJOINT, None)
    more = [*outer.values(), *(each for several in inner.values() for each in several)]
    result = Module(
        reverse.name,
        [*copies.values(), *more],
        location=reverse.location,
        noalias=reverse.noalias,
    )
    locations = _Locations(copies, outer, inner)
    for task in reverse.tasks:
        domain = copy_domain(task, copies)
        body = _Batching(locations, task.body, count).run()
        result.tasks.append(Task(task.name, body, domain, task.location, task.options))
    simplify(result)
    position = {array: number for number, array in enumerate(reverse.arrays)}
    return BatchedReverse(
        result,
        tuple(position[array] for array in outer),
        {position[array]: several for array, several in inner.items()},
    )


def _is_adjoint_access(op: Operation) -> TypeGuard[ops.Access]:
    return isinstance(op, ops.Access) and op.companion is ADJOINT


def _outer_adjoints(array: Array, taken: set[str]) -> Array:
    """The ndarray of all adjoints of a field or an ndarray."""
    name, layouts = _name(array, taken), dict.fromkeys([PRIMAL])
    return Array(name, array.dtype, array.rank + 1, Space.NDARRAY, array.element_shape, layouts)


def _inner_adjoints(array: Array, taken: set[str]) -> Array:
    """The launch-temporary array of one of the adjoints of an array.

    It is an adjoint, as launch-temporary adjoints begin as zeros.
    """
    if array.space is Space.SHARED or array.rank:
        raise CannotBatch(f"`{array.name}` has adjoints in {array.space.value} memory")
    name, layouts = _name(array, taken), dict.fromkeys([ADJOINT])
    return Array(name, array.dtype, 0, Space.TEMPORARY, array.element_shape, layouts)


def _name(array: Array, taken: set[str]) -> str:
    name = f"{array.name}_adjoint"
    while name in taken:
        name += "_"
    taken.add(name)
    return name


@dataclass(frozen=True, slots=True)
class _Locations:
    """The locations of primal values and adjoints; `arrays` has the copy of each array."""

    arrays: Mapping[Array, Array]
    outer: Mapping[Array, Array]
    inner: Mapping[Array, Sequence[Array]]

    def of_adjoint(
        self, builder: Builder, array: Array, indices: list[Value], number: int
    ) -> tuple[Array, Companion, list[Value]]:
        """The array, its companion and the indices of one of the adjoints of an element."""
        if array in self.inner:
            return self.inner[array][number], ADJOINT, indices
        return self.outer[array], PRIMAL, [builder.constant(number, i32), *indices]


class _Batching:
    """Copies the body of a task, with as many values as adjoints for each that depends on one."""

    def __init__(self, locations: _Locations, body: Block, count: int) -> None:
        self.locations = locations
        self.body = body
        self.numbers = range(count)
        self.builder = Builder()
        self.several = _depend_on_adjoints(body)
        self.values: dict[Value, Value] = {}
        self.copies: dict[Value, list[Value]] = {}

    def run(self) -> Block:
        return self._block(self.body)

    def _is_several(self, values: Iterable[Value]) -> bool:
        return any(value in self.several for value in values)

    def _mapped(self, values: Iterable[Value], number: int = 0) -> list[Value]:
        """The values that stand for others in the copy for an adjoint."""
        copies = self.copies
        return [copies[v][number] if v in copies else self.values[v] for v in values]

    def _flat(self, pairs: Iterable[tuple[Value, Value]]) -> list[Value]:
        """The values that stand for the second value of each pair: as many as for the first."""
        found = []
        for slot, value in pairs:
            numbers = self.numbers if slot in self.several else (0,)
            found += [self._mapped([value], number)[0] for number in numbers]
        return found

    def _define(self, values: Sequence[Value]) -> list[Value]:
        """New values that stand for arguments of a block."""
        found = []
        for value in values:
            if value in self.several:
                made = [Value(value.type, value.name) for _ in self.numbers]
                self.copies[value] = made
                found += made
            else:
                self.values[value] = Value(value.type, value.name)
                found.append(self.values[value])
        return found

    def _bind(self, values: Sequence[Value], flat: Sequence[Value]) -> None:
        """Let results stand for values: for one that depends on adjoints, as many as there are."""
        left = iter(flat)
        for value in values:
            if value in self.several:
                self.copies[value] = [next(left) for _ in self.numbers]
            else:
                self.values[value] = next(left)

    def _block(self, block: Block, slots: Sequence[Value] | None = None) -> Block:
        """Copy a block; it yields several values where one of ``slots`` has several."""
        new = Block(self._define(block.args))
        with self.builder.into(new):
            for op in block.ops[:-1]:
                self.builder.location = op.location
                self._emit(op)
            slots = block.yielded if slots is None else slots
            self.builder.yield_(self._flat(zip(slots, block.yielded, strict=True)))
        return new

    def _emit(self, op: Operation) -> None:
        if isinstance(op, ops.If):
            self._if(op)
        elif isinstance(op, (ops.For, ops.While)):
            self._loop(op)
        elif _is_adjoint_access(op):
            self._access(op)
        elif not self._is_several(op.operands):
            self._copy(op, 0)
        elif op.is_scalar or isinstance(op, (ops.Load, ops.Extract, ops.Insert, ops.Subgroup)):
            made = [self._copy(op, number) for number in self.numbers]
            for value, *several in zip(op.results, *(each.results for each in made), strict=True):
                self.copies[value] = several
        else:
            raise CannotBatch(f"`{op.NAME}` depends on an adjoint")

    def _copy(self, op: Operation, number: int) -> Operation:
        """Append a copy of an operation for one of the adjoints."""
        new = rebuild(op, self._mapped(op.operands, number))
        if hasattr(new, "array"):
            new.array = self.locations.arrays[new.array]
        self.builder.append(new)
        if isinstance(new, ops.Constant):
            self.builder.note_constant(new)
        self.values.update(zip(op.results, new.results, strict=True))
        return new

    def _access(self, op: ops.Access) -> None:
        """Access each of the adjoints of an element."""
        made = []
        for number in self.numbers:
            new: Any = rebuild(op, self._mapped(op.operands, number))
            new.array, new.companion, new.indices = self.locations.of_adjoint(
                self.builder, op.array, new.indices, number
            )
            self.builder.append(new)
            made.append(new)
        for value, *several in zip(op.results, *(each.results for each in made), strict=True):
            self.copies[value] = several

    def _if(self, op: ops.If) -> None:
        self._require_shared([op.condition])
        blocks = [self._block(block, op.results) for block in (op.then, op.orelse)]
        new = self.builder.if_(self.values[op.condition], *blocks)
        self._bind(op.results, new.results)

    def _loop(self, op: ops.For | ops.While) -> None:
        inits = self._flat(zip(op.results, op.inits, strict=True))
        if isinstance(op, ops.For):
            self._require_shared([op.lower, op.upper])
            lower, upper = self._mapped([op.lower, op.upper])
            new: ops.For | ops.While = self.builder.for_(
                lower, upper, inits, self._block(op.body, op.results)
            )
        else:
            self._require_shared(op.condition.yielded)
            condition = self._block(op.condition)
            new = self.builder.while_(inits, condition, self._block(op.body, op.results))
        self._bind(op.results, new.results)

    def _require_shared(self, values: Collection[Value]) -> None:
        if self._is_several(values):
            raise CannotBatch("control flow depends on an adjoint")


def _depend_on_adjoints(body: Block) -> set[Value]:
    """The values that differ from one adjoint to another."""
    sources: list[Value] = []
    edges: dict[Value, list[Value]] = {}
    for op in body.walk():
        if _is_adjoint_access(op):
            sources += op.results
        for before, after in _flow(op):
            edges.setdefault(before, []).append(after)
    return reachable(sources, edges)


def _flow(op: Operation) -> Iterable[tuple[Value, Value]]:
    """The pairs of values of which the second depends on the first."""
    if isinstance(op, ops.If):
        for block in (op.then, op.orelse):
            yield from zip(block.yielded, op.results, strict=True)
    elif isinstance(op, ops.Loop):
        # a carried value depends on adjoints everywhere: before, in and after the iterations
        conditions = op.condition.args if isinstance(op, ops.While) else op.carried
        for init, yielded, result, *args in zip(
            op.inits, op.body.yielded, op.results, op.carried, conditions, strict=True
        ):
            for source in (init, yielded):
                yield from ((source, each) for each in (result, *args))
    else:
        for result in op.results:
            yield from ((value, result) for value in op.operands)
