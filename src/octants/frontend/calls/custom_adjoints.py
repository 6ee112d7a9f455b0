"""Calls of functions that have an adjoint of their own.

The function is inlined as others are. Its results pass through an `ops.CustomDerivative`, which
holds the adjoint as a block: a function of the arguments and of the adjoints of the results.
"""

from __future__ import annotations

import ast
import functools
import types
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, cast

from octants.diagnostics.custom_adjoint_errors import ImpureAdjoint, WrongAdjoint
from octants.diagnostics.render import Label
from octants.frontend.context import Context
from octants.frontend.values import arithmetic, flattening
from octants.frontend.values.expression_values import (
    MatrixValue,
    StructValue,
    describe,
    is_number,
    is_run_time,
)
from octants.frontend.values.operands import as_type, elementwise, operand
from octants.ir import ops
from octants.ir.core import Block, Companion, Operation, Value, replace_operands

Build = Callable[[types.FunctionType, dict[str, Any], frozenset[str]], Any]
"""Inlines a function with arguments that have been copied, some of them by reference."""


def adjoint_of(context: Context, function: types.FunctionType) -> types.FunctionType | None:
    """The adjoint that a program gives a function; None within the adjoint, which may call it."""
    adjoint = getattr(function, "octants_adjoint", None)
    if adjoint is None or any(frame.function is adjoint for frame in context.scopes.frames):
        return None
    found: types.FunctionType = adjoint
    return found


def with_derivative_of(context: Context, _node: ast.AST, x: Any, y: Any) -> Any:
    """A value with the derivatives of another one, element by element."""
    values = [operand(context, context.load(each)) for each in (x, y)]
    attach = functools.partial(_with_derivative_of, context)
    return elementwise(context, "with_derivative_of", attach, *values)


def _with_derivative_of(context: Context, x: Any, y: Value) -> Value:
    with context.region() as region:
        region.block.args = [Value(y.type), Value(y.type)]
        context.builder.yield_(region.block.args[1:])
    given = [cast(Value, as_type(context, x, y.type)), y]
    op = ops.CustomDerivative(region.block, given, results=[Value(y.type)])
    context.builder.append(op)
    return op.results[0]


class CustomCall:
    """One call of a function that has an adjoint.

    `values` are the arguments by name, copied where they are not by reference.
    """

    def __init__(
        self,
        context: Context,
        node: ast.AST,
        function: types.FunctionType,
        values: dict[str, Any],
        by_reference: frozenset[str],
    ) -> None:
        self.context = context
        self.node = node
        self.name = function.__name__
        self.function = function
        self.values = values
        self.by_reference = by_reference

    def build(self, adjoint: types.FunctionType, names: Sequence[str], build: Build) -> Any:
        """Build the call.

        Args:
            adjoint: the adjoint of the function.
            names: the names of its parameters.
            build: inlines a function.

        Returns:
            What the function returns.
        """
        self._check_arguments()
        builder = self.context.builder
        first = len(builder.block.ops)
        with self.context.serial():
            result = build(self.function, self.values, self.by_reference)
        self._check_effects(builder.block.ops[first:])
        result = self._of_floats(result)
        results = flattening.leaves(result)
        active = [leaf for value in self._active().values() for leaf in flattening.leaves(value)]
        others = [
            leaf
            for name, value in self.values.items()
            if name not in self.by_reference and name not in self._active()
            for leaf in flattening.leaves(value)
            if isinstance(leaf, Value)
        ]
        inputs = [*active, *others]
        block = Block([Value(value.type) for value in (*inputs, *results)])
        stand_ins = dict(zip(inputs, block.args, strict=False))
        count = len(_items(result))
        if len(names) != len(self.values) + count:
            self._fail(f"takes {len(names)} arguments, not {len(self.values) + count}")
        seeds = flattening.rebuild(result, block.args[len(inputs) :])
        given = [self._moved(value, stand_ins) for value in self.values.values()]
        passed = dict(zip(names, (*given, *_items(seeds)), strict=True))
        kept = frozenset(
            name for name, own in zip(names, self.values, strict=False) if own in self.by_reference
        )
        with self.context.region() as region, self.context.serial():
            region.block.args = block.args
            found = build(adjoint, passed, kept)
            builder.yield_(self._adjoints(found))
        self._check_pure(region.block, adjoint)
        captured = _close(region.block, len(inputs))
        made = [Value(value.type) for value in results]
        op = ops.CustomDerivative(region.block, [*results, *inputs, *captured], results=made)
        builder.append(op)
        return flattening.rebuild(result, made)

    # -- arguments and results ---------------------------------------------------------------------

    def _active(self) -> dict[str, Any]:
        """The arguments of floats that are passed by value."""
        return {
            name: value
            for name, value in self.values.items()
            if name not in self.by_reference and _is_float(value)
        }

    def _check_arguments(self) -> None:
        for name, value in self.values.items():
            held = self.context.load(value)
            if isinstance(held, StructValue) and flattening.leaves(held):
                self._fail(f"would have to return a struct for `{name}`: pass its members")
            if name in self.by_reference and is_run_time(held) and flattening.leaves(held):
                self._fail(f"cannot change `{name}`, which the function takes by reference")

    def _of_floats(self, result: Any) -> Any:
        """The returned values of the function, as run-time values of floats."""
        items = [self.context.value(item) for item in _items(result)]
        if not items or not all(map(_is_float, items)):
            given = "nothing" if result is None else describe(result)
            self._fail(f"needs a function that returns floats, not {given}")
        return tuple(items) if isinstance(result, tuple) else items[0]

    def _moved(self, value: Any, stand_ins: dict[Value, Value]) -> Any:
        """An argument as the adjoint sees it."""
        leaves = flattening.leaves(value)
        if not any(leaf in stand_ins for leaf in leaves if isinstance(leaf, Value)):
            return value
        return flattening.rebuild(value, [stand_ins.get(leaf, leaf) for leaf in leaves])

    def _adjoints(self, found: Any) -> list[Value]:
        """The returned values of the adjoint, as scalars of the types of the arguments."""
        active = self._active()
        items = _items(found)
        by_value = [name for name in self.values if name not in self.by_reference]
        if len(items) == len(by_value):  # those of integers, which have none, are left out
            items = [item for name, item in zip(by_value, items, strict=True) if name in active]
        if len(items) != len(active):
            names = ", ".join(f"`{name}`" for name in active) or "nothing"
            self._fail(f"returns {_count(len(items))}, but must return adjoints of {names}")
        result = []
        for (name, value), item in zip(active.items(), items, strict=True):
            item = self.context.value(item)
            if not _fits(item, value):
                self._fail(f"returns {describe(item)} for `{name}`, {describe(value)}")
            leaves = zip(flattening.leaves(item), flattening.leaves(value), strict=True)
            result += [arithmetic.cast(self.context, each, like.type) for each, like in leaves]
        return result

    # -- effects -----------------------------------------------------------------------------------

    def _check_effects(self, operations: list[Operation]) -> None:
        """Refuse a function that writes, or that reads what has a gradient, which would be lost."""
        for op in Block([], operations).walk():
            is_bound = isinstance(op, ops.Assert) and op.kind == "recursion"
            if op.has_effects and not is_bound and not isinstance(op, ops.Yield):
                self._refuse(self.name, "has an adjoint, but has effects besides its result", op)
            if isinstance(op, ops.Load) and op.array.has(Companion.ADJOINT):
                problem = f"has an adjoint, but reads `{op.array.name}`, which has a gradient"
                self._refuse(self.name, problem, op, "pass the elements as arguments")

    def _check_pure(self, block: Block, adjoint: types.FunctionType) -> None:
        """Refuse an adjoint that does more than to compute with its arguments."""
        for op in block.walk():
            if not (op.is_pure or isinstance(op, _CONTROL)):
                self._refuse(adjoint.__name__, "is an adjoint, but reads or writes memory", op)

    def _refuse(self, name: str, problem: str, op: Operation, way_out: str = "") -> NoReturn:
        way_out = way_out or "access memory in the kernel, and pass the values as arguments"
        span = self.context.span(self.node)
        labels = () if span is None else (Label(span, "called here"),)
        raise ImpureAdjoint(name, problem, way_out).at(op.location, *labels)

    def _fail(self, problem: str) -> NoReturn:
        self.context.fail(WrongAdjoint(self.name, problem), self.node)


_CONTROL = (ops.For, ops.While, ops.If, ops.Yield, ops.CustomDerivative)


def _items(result: Any) -> list[Any]:
    if result is None:
        return []
    return list(result) if isinstance(result, tuple) else [result]


def _count(number: int) -> str:
    return {0: "nothing", 1: "one value"}.get(number, f"{number} values")


def _is_float(value: Any) -> bool:
    if isinstance(value, MatrixValue):
        return value.dtype.is_float
    return isinstance(value, Value) and value.type.is_float


def _fits(item: Any, value: Any) -> bool:
    if isinstance(value, MatrixValue):
        return isinstance(item, MatrixValue) and item.shape == value.shape
    return isinstance(item, Value) or is_number(item)


def _close(block: Block, position: int) -> list[Value]:
    """Let a block use nothing outside: what it uses becomes arguments; gives that.

    Args:
        block: the block, changed in place.
        position: where the arguments are put.
    """
    defined = block.defined()
    made: dict[Value, Value] = {}

    def resolve(value: Value) -> Value:
        if value in defined:
            return value
        return made.setdefault(value, Value(value.type))

    for op in block.walk():
        replace_operands(op, resolve)
    block.args[position:position] = made.values()
    return list(made)
