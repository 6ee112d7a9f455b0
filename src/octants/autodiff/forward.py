"""Forward mode: a kernel becomes one that computes tangents beside the values.

Before::

    array @x: f32, 0, field, () [primal, tangent]
    array @y: f32, 0, field, () [primal, tangent]
    serial {
      %0: f32 = load<@x, primal>()
      %1: f32 = unary<sin>(%0)
      store<@y, primal>(%1)
    }

After::

    kernel @k_forward
    array @x: f32, 0, field, () [primal, tangent]
    array @y: f32, 0, field, () [primal, tangent]
    serial @k_0 {
      %0: f32 = load<@x, primal>()
      %1: f32 = load<@x, tangent>()
      %2: f32 = unary<sin>(%0)
      %3: f32 = unary<cos>(%0)
      %4: f32 = binary<mul>(%1, %3)
      store<@y, primal>(%2)
      store<@y, tangent>(%4)
      yield()
    }

A value that depends on no array with a tangent has none; where it is stored, the tangent is zero. A
task whose tangents depend on the order of its work items runs them in order: atomic_min and
atomic_max leave the tangent of the winner, and no operation updates two numbers atomically.

`with_tangent_arrays` makes a kernel in which tangents are arrays of their own. It is a kernel like
any other, so that its reverse gives second derivatives. It may compute the tangents of several
directions at once: the values are computed once, and each tangent array has an axis more, which is
the first one. So the tangents of one direction are together, and neighbouring work items access
neighbouring elements, as they do in the primal array.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from octants.autodiff.derivative_rules import Point, adjoint_type, rules_of
from octants.autodiff.emit.custom_derivatives import tangents_of
from octants.autodiff.errors import no_rule, no_rule_of_exchange
from octants.autodiff.facts.activity import ActivityFlow
from octants.autodiff.facts.cooperative_tasks import LINEAR, REMEDY
from octants.autodiff.facts.order_dependent_updates import ordering_of
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cloning import copy_arrays, copy_domain, serialise
from octants.ir.component_access import extract, insert
from octants.ir.core import Array, Block, Companion, Module, Operation, Space, Task, Value, rebuild
from octants.lazy_dataclass import dataclass
from octants.simplify import simplify
from octants.types.scalars import i32

PRIMAL, ADJOINT, TANGENT = Companion.PRIMAL, Companion.ADJOINT, Companion.TANGENT
OUTER = (Space.FIELD, Space.NDARRAY, Space.ARGUMENT, Space.RETURN)
"""The spaces of arrays that outlive a launch, or are passed to it."""


def forward(module: Module, *, contracts: bool = False) -> Module:
    """Make the kernel that computes tangents beside the values.

    Args:
        module: the primal kernel, simplified, which is not changed.
        contracts: whether a product and a sum of a tangent may be rounded as one.

    Returns:
        The kernel, simplified; its arrays are parallel to those of the primal kernel.

    Raises:
        OctantsCompilationError: an operation has no derivative rule.
    """
    return _forward(module, copy_arrays(module), contracts, 1)


def with_tangent_arrays(
    module: Module, active: Collection[Array], directions: int = 1, *, contracts: bool = False
) -> Module:
    """Make the kernel that computes tangents, which are arrays of their own.

    Args:
        module: the primal kernel, simplified, which is not changed.
        active: the fields, ndarrays, arguments and returned values that have a tangent.
        directions: how many directions it propagates.
        contracts: whether a product and a sum of a tangent may be rounded as one.

    Returns:
        The kernel, simplified. Its first arrays are parallel to those of the primal kernel. Behind
        them are the tangents, in the same order: ndarrays for what is `active`, with an adjoint if
        the array has one or is passed by value, and with a first axis for the directions if there
        are several; those of launch-temporary and shared arrays are such arrays, one for each
        direction.

    Raises:
        OctantsCompilationError: an operation has no derivative rule.
    """
    arrays = copy_arrays(module)
    for original, array in arrays.items():
        if array.space in OUTER:
            array.layouts.pop(TANGENT, None)
            if original in active:
                array.layouts[TANGENT] = None
    result = _forward(module, arrays, contracts, directions)
    names = {array.name for array in result.arrays}
    made: dict[Array, Array] = {}
    for array in list(result.arrays):
        if array.has(TANGENT):
            made[array] = tangent = _tangent_array(array, names, directions)
            names.add(tangent.name)
            result.arrays.append(tangent)
    tangents = (op for op in result.walk() if getattr(op, "companion", None) is TANGENT)
    op: Any
    for op in tangents:
        op.array, op.companion = made[op.array], PRIMAL
    for array in made:
        del array.layouts[TANGENT]
    result.arrays = [array for array in result.arrays if array.layouts]
    return result


def _tangent_array(array: Array, names: Collection[str], directions: int) -> Array:
    """A new array for the tangents of an array."""
    name = f"{array.name}_tangent"
    while name in names:
        name += "_"
    if array.space not in OUTER:
        layouts, like = {PRIMAL: array.layouts[TANGENT]}, array.like
        return Array(name, array.dtype, array.rank, array.space, array.element_shape, layouts, like)
    is_by_value = array.space in (Space.ARGUMENT, Space.RETURN)
    kinds = (PRIMAL, ADJOINT) if is_by_value or array.has(ADJOINT) else (PRIMAL,)
    layouts = dict.fromkeys(kinds)
    rank = array.rank + (directions > 1)
    return Array(name, array.dtype, rank, Space.NDARRAY, array.element_shape, layouts)


def _forward(
    module: Module, arrays: dict[Array, Array], contracts: bool, directions: int
) -> Module:
    """The forward kernel: each task with its tangents, in order where it depends on the order.

    Args:
        module: The primal kernel.
        arrays: The array of the result for each array of the kernel.
        contracts: Whether products may be fused with sums.
        directions: How many tangents a value has. If there are several, accesses to tangents have
            the direction as first index, except those to launch-temporary and shared arrays: the
            result has arrays of only a tangent for all directions of these but the first.
    """
    inner: dict[Array, list[Array]] = {}
    for array in arrays.values():
        if array.space in (Space.TEMPORARY, Space.SHARED) and array.dtype.is_float:
            array.layouts[TANGENT] = array.layouts[PRIMAL]
            inner[array] = [array, *(_like(array) for _ in range(directions - 1))]
    made = [*arrays.values(), *(each for several in inner.values() for each in several[1:])]
    result = Module(f"{module.name}_forward", made, location=module.location)
    for task in module.tasks:
        ordering = ordering_of(task, lambda array: arrays[array].has(TANGENT))
        if not ordering.only_sums:
            task = serialise(task)
        places = _TangentLocations(arrays, inner, directions)
        body = _Forward(places, task, ordering.shared, contracts).run()
        domain = copy_domain(task, arrays)
        result.tasks.append(Task(task.name, body, domain, task.location, task.options))
    simplify(result)
    return result


def _like(array: Array) -> Array:
    """An array that has only a tangent, for another direction."""
    layouts = {TANGENT: array.layouts[TANGENT]}
    return Array(
        array.name, array.dtype, array.rank, array.space, array.element_shape, layouts, array.like
    )


@dataclass(frozen=True)
class _TangentLocations:
    """The locations of tangents; `arrays` has the array of the result for each array."""

    arrays: Mapping[Array, Array]
    inner: Mapping[Array, Sequence[Array]]
    directions: int

    def has_tangent(self, array: Array) -> bool:
        """Whether an array of the primal kernel has tangents."""
        return self.arrays[array].has(TANGENT)

    def of_element(
        self, builder: Builder, array: Array, indices: list[Value], direction: int
    ) -> tuple[Array, list[Value]]:
        """The array and the indices of the tangent of an element."""
        if array in self.inner:
            return self.inner[array][direction], indices
        if self.directions == 1:
            return array, indices
        return array, [builder.constant(direction, i32), *indices]


class _Forward:
    """Emits the body of a task with tangents; `tangents` maps primal values to those that exist.

    A value has a tangent for each direction, or none at all.
    """

    def __init__(
        self,
        locations: _TangentLocations,
        task: Task,
        shared: frozenset[Array],
        contracts: bool,
    ) -> None:
        self.locations = locations
        self.arrays = locations.arrays
        self.directions = range(locations.directions)
        self.shared = shared if task.is_parallel else frozenset()
        self.task = task
        self.builder = Builder(contracts=contracts)
        self.values: dict[Value, Value] = {}
        self.tangents: dict[Value, list[Value]] = {}
        self.varied = ActivityFlow(task.body).varied(locations.has_tangent)

    def run(self) -> Block:
        return self._block(self.task.body, [])

    def tangent(self, primal: Value) -> list[Value]:
        """The tangents of a value, one for each direction; zeros if it has none."""
        known = self.tangents.get(primal)
        if known is None:
            zero = self.builder.constant(0.0, adjoint_type(primal.type))
            return [zero for _ in self.directions]
        return known

    def _flat(self, values: Iterable[Value]) -> list[Value]:
        """The tangents of some values, those of one value together."""
        return [each for value in values for each in self.tangent(value)]

    def _bind(self, values: Iterable[Value], flat: Sequence[Value]) -> None:
        """Set the tangents of values to those of a list as `_flat` makes it."""
        count = len(self.directions)
        for k, value in enumerate(values):
            self.tangents[value] = list(flat[k * count : (k + 1) * count])

    def _mapped(self, values: list[Value]) -> list[Value]:
        return [self.values[value] for value in values]

    def _block(
        self, block: Block, varied_args: list[Value], yields: list[Value] | None = None
    ) -> Block:
        """Copy a block; its last arguments are the tangents of ``varied_args``.

        It yields what the primal block yields, then the tangents of ``yields``.
        """
        args = [Value(arg.type, arg.name) for arg in block.args]
        self.values.update(zip(block.args, args, strict=True))
        extra = [Value(adjoint_type(arg.type)) for arg in varied_args for _ in self.directions]
        self._bind(varied_args, extra)
        new = Block(args + extra)
        with self.builder.into(new):
            for op in block.ops[:-1]:
                self._emit(op)
            self.builder.yield_(self._mapped(block.yielded) + self._flat(yields or ()))
        return new

    def _emit(self, op: Operation) -> None:
        self.builder.location = op.location
        if op.is_scalar and type(op) not in _HANDLERS:
            self._scalar(op)
        else:
            _HANDLERS[type(op)](self, op)

    def _copy(self, op: Operation) -> None:
        new = rebuild(op, self._mapped(op.operands))
        if hasattr(new, "array"):
            new.array = self.arrays[new.array]
        self.builder.append(new)
        self.values.update(zip(op.results, new.results, strict=True))

    def _scalar(self, op: Operation) -> None:
        if isinstance(op, ops.Constant):  # through the builder, which folds what follows
            self.values[op.result] = self.builder.constant(op.value, op.result.type)
            return
        self._copy(op)
        result = op.results[0]
        if result not in self.varied:
            return
        point = Point(self.builder, self._mapped(op.operands), self.values[result])
        found: list[Value] = []
        for direction in self.directions:
            total: Value | None = None
            for operand, rule in zip(op.operands, rules_of(op), strict=True):
                if rule is not None and operand in self.tangents:
                    moved = self.builder.cast(self.tangents[operand][direction], point.type)
                    contribution = rule(point, moved)
                    add = self.builder.add if contribution is moved else self.builder.add_fresh
                    total = contribution if total is None else add(total, contribution)
            if total is not None:
                found.append(total)
        if found:
            self.tangents[result] = found

    # -- components of local vectors ---------------------------------------------------------------

    def _extract(self, op: ops.Extract) -> None:
        """Read the tangents at the same index."""
        self._copy(op)
        if op.result in self.varied:
            index = self.values[op.index]
            columns = zip(*map(self.tangent, op.components), strict=True)
            self.tangents[op.result] = [extract(self.builder, index, list(m)) for m in columns]

    def _insert(self, op: ops.Insert) -> None:
        """Write the tangents at the same index."""
        self._copy(op)
        if self.varied.isdisjoint(op.results):
            return
        index = self.values[op.index]
        columns = zip(*map(self.tangent, op.components), strict=True)
        after = [
            insert(self.builder, index, value, list(moved))
            for value, moved in zip(self.tangent(op.value), columns, strict=True)
        ]
        for result, *tangents in zip(op.results, *after, strict=True):
            self.tangents[result] = tangents

    # -- memory ------------------------------------------------------------------------------------

    def _load(self, op: ops.Load) -> None:
        self._copy(op)
        if self.locations.has_tangent(op.array):
            self.tangents[op.result] = self._load_tangents(op)

    def _location(self, op: Any, direction: int) -> tuple[Array, list[Value]]:
        """The array and the indices of the tangent of what an operation accesses."""
        array, indices = self.arrays[op.array], self._mapped(op.indices)
        return self.locations.of_element(self.builder, array, indices, direction)

    def _load_tangents(self, op: Any) -> list[Value]:
        kind = adjoint_type(op.array.dtype)
        places = (self._location(op, direction) for direction in self.directions)
        return [self.builder.cast(self.builder.load(*place, TANGENT), kind) for place in places]

    def _store(self, op: ops.Store) -> None:
        self._copy(op)
        if self.locations.has_tangent(op.array):
            self._store_tangents(op, self.tangent(op.value))

    def _store_tangents(self, op: Any, tangents: Sequence[Value]) -> None:
        for direction, tangent in enumerate(tangents):
            moved = self.builder.cast(tangent, op.array.dtype)
            self.builder.store(*self._location(op, direction), moved, TANGENT)

    def _atomic(self, op: ops.Atomic) -> None:
        if not self.locations.has_tangent(op.array):
            self._copy(op)
            return
        if op.array in self.shared:
            self._copy(op)
            self._add_tangents(op)
            return
        before = self._load_tangents(op)
        self._copy(op)
        self.tangents[op.result] = before
        self._store_tangents(op, self._after_atomic(op, before))

    def _add_tangents(self, op: ops.Atomic) -> None:
        for direction, tangent in enumerate(self.tangent(op.value)):
            moved = self.builder.cast(tangent, op.array.dtype)
            self.builder.atomic(op.fn, *self._location(op, direction), moved, TANGENT)

    def _after_atomic(self, op: ops.Atomic, before: list[Value]) -> list[Value]:
        """The tangents of an element after an update, if no other work item updates the element."""
        build, kind = self.builder, before[0].type
        moved = self.tangent(op.value)
        pairs = list(zip(before, moved, strict=True))
        old, value = self.values[op.result], self.values[op.value]
        if op.fn in ("add", "sub"):
            return [build.binary(op.fn, first, second) for first, second in pairs]
        if op.fn == "mul":
            factor, content = build.cast(value, kind), build.cast(old, kind)
            return [
                build.binary(
                    "add",
                    build.binary("mul", first, factor),
                    build.binary("mul", content, second),
                )
                for first, second in pairs
            ]
        if op.fn == "exchange":
            return moved
        stays = build.compare("le" if op.fn == "min" else "ge", old, value)
        return [build.select(stays, first, second) for first, second in pairs]

    def _compare_exchange(self, op: ops.CompareExchange) -> None:
        if self.locations.has_tangent(op.array):
            raise no_rule_of_exchange(op)
        self._copy(op)

    def _custom_derivative(self, op: ops.CustomDerivative) -> None:
        """Compute the tangents by the adjoint, which must be linear."""
        self._copy(op)
        inputs = self._mapped(op.inputs)
        known = [self.tangents.get(value) for value in op.active_inputs]
        found = [
            tangents_of(self.builder, op, inputs, [None if t is None else t[d] for t in known])
            for d in self.directions
        ]
        for result, *tangents in zip(op.results, *found, strict=True):
            made = [tangent for tangent in tangents if tangent is not None]
            if made:
                self.tangents[result] = made

    # -- cooperation -------------------------------------------------------------------------------

    def _subgroup(self, op: ops.Subgroup) -> None:
        """Exchange or sum the tangents as the values."""
        self._copy(op)
        if op.value not in self.tangents:
            return
        if op.fn not in LINEAR:
            raise no_rule(f"`{op.fn}` of a subgroup", op.location, REMEDY)
        lane = self._mapped(op.lane)
        self.tangents[op.result] = [
            self.builder.subgroup(op.fn, op.lanes, tangent, *lane)
            for tangent in self.tangents[op.value]
        ]

    # -- control -----------------------------------------------------------------------------------

    def _loop(self, op: ops.Loop) -> None:
        carried = op.carried
        varied = [
            k
            for k, (arg, result) in enumerate(zip(carried, op.results, strict=True))
            if arg in self.varied or result in self.varied
        ]
        inits = self._mapped(op.inits) + self._flat(op.inits[k] for k in varied)
        condition = None
        if isinstance(op, ops.While):
            condition = self._block(op.condition, [op.condition.args[k] for k in varied])
        ends = [op.body.yielded[k] for k in varied]
        body = self._block(op.body, [carried[k] for k in varied], ends)
        if condition is not None:
            results = self.builder.while_(inits, condition, body).results
        else:
            lower, upper = self._mapped(op.operands[:2])
            results = self.builder.for_(lower, upper, inits, body).results
        self._bind_results(op, results, varied)

    def _if(self, op: ops.If) -> None:
        varied = [k for k, result in enumerate(op.results) if result in self.varied]
        then, orelse = (
            self._block(block, [], [block.yielded[k] for k in varied])
            for block in (op.then, op.orelse)
        )
        new = self.builder.if_(self.values[op.condition], then, orelse)
        self._bind_results(op, new.results, varied)

    def _bind_results(self, op: Operation, results: list[Value], varied: list[int]) -> None:
        count = len(op.results)
        self.values.update(zip(op.results, results[:count], strict=True))
        self._bind((op.results[k] for k in varied), results[count:])


_HANDLERS: dict[type[Operation], Callable[[_Forward, Any], None]] = {
    ops.Extract: _Forward._extract,
    ops.Insert: _Forward._insert,
    ops.Load: _Forward._load,
    ops.Store: _Forward._store,
    ops.Atomic: _Forward._atomic,
    ops.CompareExchange: _Forward._compare_exchange,
    ops.CustomDerivative: _Forward._custom_derivative,
    ops.Subgroup: _Forward._subgroup,
    ops.Barrier: _Forward._copy,
    ops.Fence: _Forward._copy,
    ops.Print: _Forward._copy,
    ops.Assert: _Forward._copy,
    ops.For: _Forward._loop,
    ops.While: _Forward._loop,
    ops.If: _Forward._if,
}
