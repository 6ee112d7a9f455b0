"""Joins of control flow: the values of variables after an ``if`` and around a loop."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from octants.diagnostics.errors import CompileTimeVariable, TypeChange, WrongReturn
from octants.frontend.context import Context
from octants.frontend.scope import UNDEFINED, Plan, VariableRegion
from octants.frontend.values import flattening
from octants.frontend.values.expression_values import Variable, describe, is_number, plain
from octants.ir import ops
from octants.ir.core import Block, Value
from octants.types.scalars import DType, promote

# -- if --------------------------------------------------------------------------------------------


class Join:
    """The results of an ``if``: pairs of values, one from each of two blocks."""

    def __init__(self, context: Context, condition: Value, then: Block, orelse: Block) -> None:
        self.context = context
        self.condition = condition
        self.blocks = (then, orelse)
        self._pairs: list[tuple[Value, Value]] = []
        self._results: list[Value] = []

    def add_one_sided(self, leaf: Any, is_then: bool) -> Any:
        """The value after the ``if`` of a scalar or number of the only branch that matters."""
        known = self.context.known(leaf)
        if is_number(known):
            return self.context.constant(known, leaf.type) if isinstance(leaf, Value) else leaf
        zero = 0 if not leaf.type.is_bool else False
        a, b = (leaf, zero) if is_then else (zero, leaf)
        return self._yielded(a, b, leaf.type)

    def add(self, a: Any, b: Any, dtype: DType | None = None) -> Any:
        """The value after the ``if`` of two scalars or numbers; numbers are of ``dtype``."""
        if a is b or _same_number(a, b):
            return a
        left, right = self.context.known(a), self.context.known(b)
        if _same_type(a, b) and _same_number(left, right):
            return self.context.constant(left, a.type)
        if left is True and right is False:
            return self.condition
        if left is False and right is True:
            return self.context.builder.unary("not", self.condition)
        return self._yielded(a, b, dtype)

    def _yielded(self, a: Any, b: Any, dtype: DType | None) -> Value:
        target = promote(self._type(a, dtype), self._type(b, dtype))
        values = []
        for block, value in zip(self.blocks, (a, b), strict=True):
            with self.context.builder.into(block):
                values.append(converted(self.context, value, target))
        self._pairs.append((values[0], values[1]))
        self._results.append(Value(target))
        return self._results[-1]

    def _type(self, value: Any, dtype: DType | None) -> DType:
        if isinstance(value, Value):
            return value.type
        return dtype or self.context.type_of_number(value)

    def changes(
        self, then: VariableRegion, orelse: VariableRegion, node: ast.AST
    ) -> dict[Variable, Any]:
        """The values after the ``if`` of the variables that one of its branches changed."""
        return {
            variable: _join_changed(self, variable, then, orelse, node)
            for variable in dict.fromkeys([*then.changed, *orelse.changed])
        }

    def finish(self) -> None:
        """Append the ``if``, or selects where its blocks compute nothing."""
        builder = self.context.builder
        then, orelse = self.blocks
        if all(isinstance(op, ops.Constant) for block in self.blocks for op in block.ops):
            builder.block.ops.extend([*then.ops, *orelse.ops] if self._pairs else [])
            for result, (a, b) in zip(self._results, self._pairs, strict=True):
                builder.append(ops.Select(self.condition, a, b, results=[result]))
            return
        for block, position in ((then, 0), (orelse, 1)):
            with builder.into(block):
                builder.yield_([pair[position] for pair in self._pairs])
        builder.append(ops.If(self.condition, then, orelse, results=self._results))


def _same_type(a: Any, b: Any) -> bool:
    return isinstance(a, Value) and isinstance(b, Value) and a.type is b.type


def _same_number(a: Any, b: Any) -> bool:
    if not (is_number(a) and is_number(b)):
        return False
    return type(plain(a)) is type(plain(b)) and repr(a) == repr(b)


def converted(context: Context, value: Any, dtype: DType) -> Value:
    """A scalar or number as a value of ``dtype``, in the current block."""
    if isinstance(value, Value):
        return context.builder.cast(value, dtype)
    return context.constant(value, dtype)


def join(
    context: Context,
    condition: Value,
    then: VariableRegion,
    orelse: VariableRegion,
    node: ast.AST,
    inside: list[ast.stmt],
) -> None:
    """Append the ``if`` of two regions and give the variables the values that they have after it.

    A branch whose end cannot be reached does not count. Variables that only one branch made are
    lost; those that nothing outside of the statements ``inside`` reads are, too.
    """
    joined = Join(context, condition, then.block, orelse.block)
    changes = joined.changes(then, orelse, node)
    declared = _join_new(joined, then, orelse, node, inside)
    joined.finish()
    for variable, value in changes.items():
        context.scopes.assign(variable, value)
    for name, value in declared.items():
        context.scopes.declare(name, value)


def _join_changed(
    joined: Join, variable: Variable, then: VariableRegion, orelse: VariableRegion, node: ast.AST
) -> Any:
    a = then.changed.get(variable, variable.value)
    b = orelse.changed.get(variable, variable.value)
    value = _merged(joined, a, b, variable.dtype)
    if value is UNDEFINED and a is not UNDEFINED:
        _fail_mismatch(joined.context, variable, a, b, node)
    return value


def _join_new(
    joined: Join,
    then: VariableRegion,
    orelse: VariableRegion,
    node: ast.AST,
    inside: list[ast.stmt],
) -> dict[str, Any]:
    """The variables that both branches made, or the only branch that goes on."""
    scopes, span = joined.context.scopes, joined.context.span(node)
    declared: dict[str, Any] = {}
    scopes.lose([*then.removed, *orelse.removed], "branch", span)
    for name in dict.fromkeys([*then.new, *orelse.new]):
        in_then, in_else = name in then.new, name in orelse.new
        if (then.completes and not in_then) or (orelse.completes and not in_else):
            scopes.lose([name], "branch", span)
            continue
        if not scopes.frame.source.is_read_outside(name, inside):
            scopes.lose([name], "branch", span)
            continue
        a = then.new[name].value if in_then and then.completes else UNDEFINED
        b = orelse.new[name].value if in_else and orelse.completes else UNDEFINED
        value = _merged(joined, a, b, None)
        if value is UNDEFINED:
            scopes.lose([name], "types", span)
        else:
            declared[name] = value
    return declared


def _merged(joined: Join, a: Any, b: Any, dtype: DType | None) -> Any:
    """The value after an ``if``; `UNDEFINED` stands for a branch whose value is not read.

    Gives `UNDEFINED` where the values are of different structure.
    """
    if a is b:
        return a
    if a is UNDEFINED or b is UNDEFINED:
        known = b if a is UNDEFINED else a
        return flattening.rebuild(
            known, [joined.add_one_sided(leaf, b is UNDEFINED) for leaf in flattening.leaves(known)]
        )
    if not flattening.same_structure(a, b):
        return UNDEFINED
    leaves = zip(flattening.leaves(a), flattening.leaves(b), strict=True)
    return flattening.rebuild(a, [joined.add(x, y, dtype) for x, y in leaves])


def _fail_mismatch(context: Context, variable: Variable, a: Any, b: Any, node: ast.AST) -> None:
    if variable is context.scopes.frame.result:
        problem = f"one `return` gives {describe(a)}, another one {describe(b)}"
        returned = next((part for part in ast.walk(node) if isinstance(part, ast.Return)), node)
        context.fail(WrongReturn(problem, "return values of one type everywhere"), returned)
    if flattening.has_object(a) or flattening.has_object(b):
        context.fail(CompileTimeVariable(variable.name, describe(a)), node)
    context.fail(TypeChange(variable.name, describe(a), describe(b)), node)


# -- loops -----------------------------------------------------------------------------------------


class Carry:
    """The variables that a loop carries from one iteration to the next."""

    def __init__(self, context: Context, variables: Iterable[Variable]) -> None:
        self.context = context
        self.before = {v: v.value for v in variables if flattening.leaves(v.value)}
        self.inits = [
            self._materialised(leaf, variable)
            for variable, value in self.before.items()
            for leaf in flattening.leaves(value)
        ]
        self.names = [
            variable.name if count == 1 else f"{variable.name}[{k}]"
            for variable, value in self.before.items()
            for count in [len(flattening.leaves(value))]
            for k in range(count)
        ]

    def _materialised(self, leaf: Any, variable: Variable) -> Value:
        if isinstance(leaf, Value):
            return leaf
        return self.context.constant(leaf, variable.dtype)

    def arguments(self) -> list[Value]:
        """Fresh arguments for a block of the loop, with the names of the variables."""
        return [Value(init.type, name) for init, name in zip(self.inits, self.names, strict=True)]

    def bind(self, values: list[Value]) -> None:
        """Let the variables hold these values."""
        remaining = iter(values)
        for variable, before in self.before.items():
            count = len(flattening.leaves(before))
            held = flattening.rebuild(before, [next(remaining) for _ in range(count)])
            self.context.scopes.assign(variable, held)

    def is_complete(self, region: VariableRegion, plan: Plan, node: ast.AST) -> bool:
        """Whether the body changed only what is carried; if not, the plan says what to carry."""
        complete = True
        for variable, after in region.changed.items():
            before = self.before.get(variable, variable.value)
            if after is before or not self._needs_more(variable, before, after, node):
                continue
            plan.changed[variable.key] = after if before is UNDEFINED else _wider(before, after)
            complete = False
        return complete

    def _needs_more(self, variable: Variable, before: Any, after: Any, node: ast.AST) -> bool:
        if before is UNDEFINED:
            return bool(flattening.leaves(after))
        if not flattening.same_structure(before, after):
            _fail_mismatch(self.context, variable, before, after, node)
        if not flattening.leaves(after):
            return False
        return variable not in self.before or (
            variable.dtype is None and _types(_wider(before, after)) != _types(before)
        )

    def yields(self, region: VariableRegion) -> list[Value]:
        """The values at the end of the body, converted in its block to the carried types."""
        types = iter(init.type for init in self.inits)
        return [
            converted(self.context, leaf, next(types))
            for variable in self.before
            for leaf in flattening.leaves(region.changed[variable])
        ]

    def finish(self, region: VariableRegion, results: list[Value]) -> None:
        """Let the variables hold the results of the loop."""
        self.bind(results)
        for variable, after in region.changed.items():
            if variable not in self.before and variable.value is UNDEFINED:
                self.context.scopes.assign(variable, after)


def _types(value: Any) -> list[Any]:
    return [getattr(leaf, "type", None) for leaf in flattening.leaves(value)]


def _wider(before: Any, after: Any) -> Any:
    """The structure of two values with leaves of types that hold both; numbers stay as they are."""
    pairs = zip(flattening.leaves(before), flattening.leaves(after), strict=True)
    return flattening.rebuild(before, [_wider_leaf(a, b) for a, b in pairs])


def _wider_leaf(a: Any, b: Any) -> Any:
    if isinstance(a, Value) and isinstance(b, Value):
        return Value(promote(a.type, b.type))
    return a if isinstance(a, Value) else b


def prepare(context: Context, plan: Plan) -> list[Variable]:
    """The variables that a plan says the loop changes; results get a value of the planned type."""
    variables = []
    for key, wanted in plan.changed.items():
        variable = context.scopes.find(key)
        if variable is None:
            continue
        leaves = flattening.leaves(wanted)
        if variable.value is UNDEFINED:
            zeros = [context.constant(0, _type(context, leaf)) for leaf in leaves]
            context.scopes.assign(variable, flattening.rebuild(wanted, zeros))
        elif variable.dtype is None and any(isinstance(leaf, Value) for leaf in leaves):
            held = zip(flattening.leaves(variable.value), leaves, strict=True)
            cast = [converted(context, x, _type(context, leaf)) for x, leaf in held]
            context.scopes.assign(variable, flattening.rebuild(variable.value, cast))
        variables.append(variable)
    return variables


def _type(context: Context, leaf: Any) -> DType:
    return leaf.type if isinstance(leaf, Value) else context.type_of_number(leaf)
