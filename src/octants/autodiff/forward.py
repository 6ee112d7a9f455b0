"""Forward mode: a kernel becomes one that computes tangents beside the values.

Before::

    kernel @k
    array @x: f32, 0, field, () [primal, tangent]
    array @y: f32, 0, field, () [primal, tangent]
    serial @k_0 {
      %0: f32 = load<@x, primal>()
      %1: f32 = unary<sin>(%0)
      store<@y, primal>(%1)
      yield()
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
any other, so that its reverse gives second derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from octants.autodiff.activity import ActivityFlow
from octants.autodiff.cooperative_tasks import LINEAR, REMEDY
from octants.autodiff.custom_derivatives import tangents_of
from octants.autodiff.derivative_rules import Point, adjoint_type, rules_of
from octants.autodiff.errors import no_rule, no_rule_of_exchange
from octants.autodiff.order_dependent_updates import ordering_of
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cloning import copy_arrays, copy_block, serialise
from octants.ir.component_access import extract, insert
from octants.ir.core import Array, Block, Companion, Module, Operation, Space, Task, Value, rebuild
from octants.simplify import simplify

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
    return _forward(module, copy_arrays(module), contracts)


def with_tangent_arrays(
    module: Module, active: Collection[Array], *, contracts: bool = False
) -> Module:
    """Make the kernel that computes tangents, which are arrays of their own.

    Args:
        module: the primal kernel, simplified, which is not changed.
        active: the fields, ndarrays, arguments and returned values that have a tangent.
        contracts: whether a product and a sum of a tangent may be rounded as one.

    Returns:
        The kernel, simplified. Its first arrays are parallel to those of the primal kernel. Behind
        them are the tangents, in the same order: ndarrays for what is `active`, with an adjoint if
        the array has one or is passed by value; those of launch-temporary and shared arrays are
        such arrays.

    Raises:
        OctantsCompilationError: an operation has no derivative rule.
    """
    arrays = copy_arrays(module)
    for original, array in arrays.items():
        if array.space in OUTER:
            array.layouts.pop(TANGENT, None)
            if original in active:
                array.layouts[TANGENT] = None
    result = _forward(module, arrays, contracts)
    names = {array.name for array in result.arrays}
    made: dict[Array, Array] = {}
    for array in list(result.arrays):
        if array.has(TANGENT):
            made[array] = tangent = _tangent_array(array, names)
            names.add(tangent.name)
            result.arrays.append(tangent)
    tangents = (op for op in result.walk() if getattr(op, "companion", None) is TANGENT)
    op: Any
    for op in tangents:
        op.array, op.companion = made[op.array], PRIMAL
    for array in made:
        del array.layouts[TANGENT]
    return result


def _tangent_array(array: Array, names: Collection[str]) -> Array:
    """A new array for the tangents of an array."""
    name = f"{array.name}_tangent"
    while name in names:
        name += "_"
    if array.space not in OUTER:
        layouts, like = {PRIMAL: array.layouts[PRIMAL]}, array.like
        return Array(name, array.dtype, array.rank, array.space, array.element_shape, layouts, like)
    is_by_value = array.space in (Space.ARGUMENT, Space.RETURN)
    kinds = (PRIMAL, ADJOINT) if is_by_value or array.has(ADJOINT) else (PRIMAL,)
    layouts = dict.fromkeys(kinds)
    return Array(name, array.dtype, array.rank, Space.NDARRAY, array.element_shape, layouts)


def _forward(module: Module, arrays: dict[Array, Array], contracts: bool) -> Module:
    """The forward kernel: each task with its tangents, in order where it depends on the order.

    Args:
        module: The primal kernel.
        arrays: The array of the result for each array of the kernel.
        contracts: Whether products may be fused with sums.
    """
    for array in arrays.values():
        if array.space in (Space.TEMPORARY, Space.SHARED) and array.dtype.is_float:
            array.layouts[TANGENT] = array.layouts[PRIMAL]
    result = Module(f"{module.name}_forward", list(arrays.values()), location=module.location)
    for task in module.tasks:
        ordering = ordering_of(task, lambda array: arrays[array].has(TANGENT))
        if not ordering.only_sums:
            task = serialise(task)
        body = _Forward(arrays, task, ordering.shared, contracts).run()
        domain = None if task.domain is None else copy_block(task.domain, {})
        for op in domain.walk() if domain is not None else ():
            if hasattr(op, "array"):
                op.array = arrays[op.array]
        result.tasks.append(Task(task.name, body, domain, task.location, task.options))
    simplify(result)
    return result


class _Forward:
    """Emits the body of a task with tangents; `tangents` maps primal values to those that exist."""

    def __init__(
        self,
        arrays: dict[Array, Array],
        task: Task,
        shared: frozenset[Array],
        contracts: bool,
    ) -> None:
        self.arrays = arrays
        self.shared = shared if task.is_parallel else frozenset()
        self.task = task
        self.builder = Builder(contracts=contracts)
        self.values: dict[Value, Value] = {}
        self.tangents: dict[Value, Value] = {}
        self.varied = ActivityFlow(task.body).varied(self._has_tangent)

    def _has_tangent(self, array: Array) -> bool:
        return self.arrays[array].has(TANGENT)

    def run(self) -> Block:
        return self._block(self.task.body, [])

    def tangent(self, primal: Value) -> Value:
        known = self.tangents.get(primal)
        if known is None:
            return self.builder.constant(0.0, adjoint_type(primal.type))
        return known

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
        extra = [Value(adjoint_type(arg.type)) for arg in varied_args]
        self.tangents.update(zip(varied_args, extra, strict=True))
        new = Block(args + extra)
        with self.builder.into(new):
            for op in block.ops[:-1]:
                self._emit(op)
            tangents = [self.tangent(value) for value in yields or ()]
            self.builder.yield_(self._mapped(block.yielded) + tangents)
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
        for operand, rule in zip(op.operands, rules_of(op), strict=True):
            if rule is not None and operand in self.tangents:
                moved = self.builder.cast(self.tangents[operand], point.type)
                share = rule(point, moved)
                before = self.tangents.get(result)
                add = self.builder.add if share is moved else self.builder.add_fresh
                self.tangents[result] = share if before is None else add(before, share)

    # -- components of local vectors ---------------------------------------------------------------

    def _extract(self, op: ops.Extract) -> None:
        """Read the tangents at the same index."""
        self._copy(op)
        if op.result in self.varied:
            moved = [self.tangent(value) for value in op.components]
            self.tangents[op.result] = extract(self.builder, self.values[op.index], moved)

    def _insert(self, op: ops.Insert) -> None:
        """Write the tangents at the same index."""
        self._copy(op)
        if not self.varied.isdisjoint(op.results):
            moved = [self.tangent(value) for value in op.components]
            index, value = self.values[op.index], self.tangent(op.value)
            after = insert(self.builder, index, value, moved)
            self.tangents.update(zip(op.results, after, strict=True))

    # -- memory ------------------------------------------------------------------------------------

    def _load(self, op: ops.Load) -> None:
        self._copy(op)
        if self._has_tangent(op.array):
            self.tangents[op.result] = self._load_tangent(op)

    def _load_tangent(self, op: Any) -> Value:
        array = self.arrays[op.array]
        loaded = self.builder.load(array, self._mapped(op.indices), TANGENT)
        return self.builder.cast(loaded, adjoint_type(array.dtype))

    def _store(self, op: ops.Store) -> None:
        self._copy(op)
        if self._has_tangent(op.array):
            self._store_tangent(op, self.tangent(op.value))

    def _store_tangent(self, op: Any, tangent: Value) -> None:
        array = self.arrays[op.array]
        moved = self.builder.cast(tangent, array.dtype)
        self.builder.store(array, self._mapped(op.indices), moved, TANGENT)

    def _atomic(self, op: ops.Atomic) -> None:
        if not self._has_tangent(op.array):
            self._copy(op)
            return
        if op.array in self.shared:
            self._copy(op)
            self._add_tangent(op)
            return
        before = self._load_tangent(op)
        self._copy(op)
        self.tangents[op.result] = before
        self._store_tangent(op, self._after_atomic(op, before))

    def _add_tangent(self, op: ops.Atomic) -> None:
        array = self.arrays[op.array]
        moved = self.builder.cast(self.tangent(op.value), array.dtype)
        self.builder.atomic(op.fn, array, self._mapped(op.indices), moved, TANGENT)

    def _after_atomic(self, op: ops.Atomic, before: Value) -> Value:
        """The tangent of an element after an update, if no other work item updates the element."""
        moved, kind = self.tangent(op.value), before.type
        old, value = self.values[op.result], self.values[op.value]
        if op.fn in ("add", "sub"):
            return self.builder.binary(op.fn, before, moved)
        if op.fn == "mul":
            first = self.builder.binary("mul", before, self.builder.cast(value, kind))
            second = self.builder.binary("mul", self.builder.cast(old, kind), moved)
            return self.builder.binary("add", first, second)
        if op.fn == "exchange":
            return moved
        stays = self.builder.compare("le" if op.fn == "min" else "ge", old, value)
        return self.builder.select(stays, before, moved)

    def _compare_exchange(self, op: ops.CompareExchange) -> None:
        if self._has_tangent(op.array):
            raise no_rule_of_exchange(op)
        self._copy(op)

    def _custom_derivative(self, op: ops.CustomDerivative) -> None:
        """Compute the tangents by the adjoint, which must be linear."""
        self._copy(op)
        moved = [self.tangents.get(value) for value in op.active_inputs]
        found = tangents_of(self.builder, op, self._mapped(op.inputs), moved)
        for result, tangent in zip(op.results, found, strict=True):
            if tangent is not None:
                self.tangents[result] = tangent

    # -- cooperation -------------------------------------------------------------------------------

    def _subgroup(self, op: ops.Subgroup) -> None:
        """Exchange or sum the tangents as the values."""
        self._copy(op)
        if op.value not in self.tangents:
            return
        if op.fn not in LINEAR:
            raise no_rule(f"`{op.fn}` of a subgroup", op.location, REMEDY)
        tangent, lane = self.tangents[op.value], self._mapped(op.lane)
        self.tangents[op.result] = self.builder.subgroup(op.fn, op.lanes, tangent, *lane)

    # -- control -----------------------------------------------------------------------------------

    def _loop(self, op: ops.For | ops.While) -> None:
        carried = op.carried
        varied = [
            k
            for k, (arg, result) in enumerate(zip(carried, op.results, strict=True))
            if arg in self.varied or result in self.varied
        ]
        inits = self._mapped(op.inits) + [self.tangent(op.inits[k]) for k in varied]
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
        for k, tangent in zip(varied, results[count:], strict=True):
            self.tangents[op.results[k]] = tangent


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
