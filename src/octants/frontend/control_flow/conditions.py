"""Conditional expressions, ``and`` and ``or``, comparisons: what is evaluated only if needed."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from octants.diagnostics.errors import (
    IdentityOfRunTimeValue,
    NoMembership,
    NotCompileTime,
    SidesDiffer,
)
from octants.frontend.compile_time import compile_time_evaluation
from octants.frontend.compile_time.unspecialised_numbers import HostNumber
from octants.frontend.context import NOT_FOUND, Context
from octants.frontend.control_flow.control_flow_joins import Join
from octants.frontend.scope import VariableRegion
from octants.frontend.values import arithmetic, flattening, struct_operators
from octants.frontend.values.expression_values import (
    ArrayReference,
    FormattedString,
    MatrixValue,
    StructValue,
    describe,
    is_number,
    is_run_time,
)
from octants.frontend.values.operands import as_type, common_type, operand
from octants.ir import ops
from octants.ir.core import Block, Value
from octants.ir.ops.arithmetic import FLOAT_FUNCTIONS
from octants.types.matrix_values import Matrix

MOST_OPERATIONS = 8
"""A branch of so many cheap operations is computed always, since that is cheaper than a branch."""


def is_cheap(region: VariableRegion) -> bool:
    """Whether a region may be evaluated always: no accesses, no effects, little work."""
    operations = region.block.ops
    work = [op for op in operations if not isinstance(op, ops.Constant)]
    return (
        not region.changed
        and not region.new
        and len(work) <= MOST_OPERATIONS
        and all(op.is_pure and getattr(op, "fn", "") not in _COSTLY for op in work)
    )


_COSTLY = FLOAT_FUNCTIONS | {"pow", "atan2"}


def condition(context: Context, node: ast.expr) -> Value | bool:
    """A condition: a bool if it is known at compile time, else a u1."""
    return truth(context, context.evaluate(node), node)


def truth(
    context: Context, value: Any, node: ast.AST | None = None, *, is_static: bool = False
) -> Value | bool:
    """Whether a value counts as true; ``node`` is where it stands.

    In `static`, an array does, so that ``if static(x)`` tells whether it is one or None.
    """
    if isinstance(value, ArrayReference) and (is_static or context.is_in_static):
        return True
    if isinstance(value, HostNumber):
        value = arithmetic.compare(context, "!=", value, 0)
    if not _is_computed(value):
        return compile_time_evaluation.truth(context, value, node)
    known = context.known(arithmetic.truth(context, value, node))
    return known if isinstance(known, Value) else bool(known)


# -- if else ---------------------------------------------------------------------------------------


def conditional(context: Context, node: ast.IfExp) -> Any:
    """``a if condition else b``; only the taken branch is evaluated.

    The type is that of both branches, whether or not the condition is known at compile time, unless
    it is in `static`.
    """
    found, is_static = context.evaluate_marked(node.test)
    test = truth(context, found, node.test, is_static=is_static)
    if isinstance(test, bool):
        taken, other = (node.body, node.orelse) if test else (node.orelse, node.body)
        value = context.evaluate(taken)
        if is_static or context.is_in_static:
            return value
        return _in_common_type(
            context, value, context.evaluate_for_type(other), is_computed=_is_computed(found)
        )
    return choose(
        context,
        test,
        lambda: context.evaluate(node.body),
        lambda: context.evaluate(node.orelse),
        node,
    )


def _in_common_type(context: Context, value: Any, other: Any, *, is_computed: bool) -> Any:
    """A value in the type and structure that it has beside another one, if they go together.

    Numbers of Python stay what they are, unless the condition ``is_computed`` at run time.
    """
    both = [value, other]
    if any(map(flattening.has_object, both)) or not (is_computed or any(map(is_run_time, both))):
        return value
    spread, other = _spread(value, other)
    if not flattening.same_structure(spread, other):
        return value
    value, leaves = spread, flattening.leaves(spread)
    converted = [
        as_type(context, x, common_type(context, x, y))
        if is_computed or not (is_number(x) and is_number(y))
        else x
        for x, y in zip(leaves, flattening.leaves(other), strict=True)
    ]
    return value if converted == leaves else flattening.rebuild(value, converted)


def choose(
    context: Context,
    test: Value,
    on_true: Callable[[], Any],
    on_false: Callable[[], Any],
    node: ast.AST,
) -> Any:
    """The value of one of two expressions, of which the other is not evaluated."""
    regions, values = [], []
    for evaluate in (on_true, on_false):
        with context.region() as region:
            value = evaluate()
            is_object = isinstance(value, Matrix) or not (is_number(value) or is_run_time(value))
            values.append(context.value(value) if is_object else value)
        regions.append(region)
    a, b = _of_one_structure(context, values[0], values[1], node)
    if all(map(is_cheap, regions)):
        for region in regions:
            context.builder.block.ops.extend(region.block.ops)
        return _selected(context, test, a, b)
    return _joined(context, test, regions, a, b, node)


def _of_one_structure(context: Context, a: Any, b: Any, node: ast.AST) -> tuple[Any, Any]:
    """Two values of one structure."""
    a, b = _spread(a, b)
    if not flattening.same_structure(a, b):
        context.fail(SidesDiffer(describe(a), describe(b)), node)
    return a, b


def _spread(a: Any, b: Any) -> tuple[Any, Any]:
    """Two values; a scalar is spread to go with a vector or matrix."""
    if not flattening.same_structure(a, b):
        if is_number(a) or isinstance(a, Value):
            a = flattening.rebuild(b, [a] * len(flattening.leaves(b)))
        elif is_number(b) or isinstance(b, Value):
            b = flattening.rebuild(a, [b] * len(flattening.leaves(a)))
    return a, b


def _selected(context: Context, test: Value, a: Any, b: Any) -> Any:
    pairs = zip(flattening.leaves(a), flattening.leaves(b), strict=True)
    return flattening.rebuild(a, [arithmetic.select(context, test, x, y) for x, y in pairs])


def _joined(
    context: Context, test: Value, regions: list[VariableRegion], a: Any, b: Any, node: ast.AST
) -> Any:
    then, orelse = regions
    joined = Join(context, test, then.block, orelse.block)
    changes = joined.changes(then, orelse, node)
    context.scopes.lose([*then.new, *orelse.new], "branch", context.span(node))
    pairs = zip(flattening.leaves(a), flattening.leaves(b), strict=True)
    result = flattening.rebuild(a, [joined.add(x, y) for x, y in pairs])
    joined.finish()
    for variable, value in changes.items():
        context.scopes.assign(variable, value)
    return result


# -- and, or ---------------------------------------------------------------------------------------


def boolean(context: Context, node: ast.BoolOp) -> Any:
    """``a and b``, ``a or b``: the right side only if the left one does not decide.

    Gives the operand that decides, as Python does; a u1 where all operands are. A vector or matrix
    on the left decides nothing: both sides are evaluated, and the result is a u1 of each element.
    """
    return _boolean(context, node.values, isinstance(node.op, ast.And), node)


def _boolean(context: Context, values: list[ast.expr], is_and: bool, node: ast.AST) -> Any:
    first, *rest = values
    left = context.evaluate(first)
    if not rest:
        return left
    matrix = _matrix(context, left)
    if matrix is not None:
        return _of_elements(context, is_and, matrix, _boolean(context, rest, is_and, node))
    known = truth(context, left)
    if isinstance(known, bool):
        is_typed = _is_computed(left) and not context.is_in_static
        if known is is_and:
            right = _boolean(context, rest, is_and, node)
            return _in_common_type(context, right, left, is_computed=True) if is_typed else right
        if is_typed:
            several = ast.copy_location(ast.BoolOp(ast.And() if is_and else ast.Or(), rest), node)
            right = context.evaluate_for_type(rest[0] if len(rest) == 1 else several)
            return _in_common_type(context, left, right, is_computed=True)
        return left
    return either(context, left, known, lambda: _boolean(context, rest, is_and, node), is_and, node)


def either(
    context: Context,
    left: Any,
    test: Value,
    right: Callable[[], Any],
    is_and: bool,
    node: ast.AST,
) -> Any:
    """``left and right()`` or ``left or right()``; ``test`` is whether ``left`` counts as true."""
    with context.region() as region:
        value = right()
        flags = _is_flag(left) and _is_flag(value)
        if flags and isinstance(value, bool):
            value = context.constant(value)
    if flags and is_cheap(region):
        context.builder.block.ops.extend(region.block.ops)
        return context.builder.binary("and" if is_and else "or", test, value)
    if flags:
        left = not is_and
    on_true, on_false = (value, left) if is_and else (left, value)
    on_true, on_false = _of_one_structure(context, on_true, on_false, node)
    if is_cheap(region):
        context.builder.block.ops.extend(region.block.ops)
        return _selected(context, test, on_true, on_false)
    regions = [region, VariableRegion(Block())]
    return _joined(context, test, regions if is_and else regions[::-1], on_true, on_false, node)


def _matrix(context: Context, value: Any) -> MatrixValue | None:
    """A vector or matrix as a run-time value; None for anything else."""
    is_array = isinstance(value, ArrayReference)
    if is_array or not (_is_computed(value) or isinstance(value, Matrix)):
        return None
    value = operand(context, value)
    return value if isinstance(value, MatrixValue) else None


def _of_elements(context: Context, is_and: bool, left: MatrixValue, right: Any) -> Any:
    if _matrix(context, right) is None:
        right = truth(context, right)
    return arithmetic.both_or_either(context, "and" if is_and else "or", left, right)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, Value) and value.type.is_bool)


# -- comparisons -----------------------------------------------------------------------------------

COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}


def comparison(context: Context, node: ast.Compare) -> Any:
    """``a < b < c``: every operand is evaluated once, and only if those before it hold."""
    pairs = list(zip(node.ops, node.comparators, strict=True))
    return _chain(context, context.evaluate(node.left), pairs, node)


def _chain(
    context: Context, left: Any, pairs: list[tuple[ast.cmpop, ast.expr]], node: ast.Compare
) -> Any:
    (op, comparator), *rest = pairs
    right = context.evaluate(comparator)
    result = compare(context, op, left, right, node)
    if not rest:
        return result
    matrix = _matrix(context, result)
    if matrix is not None:
        return _of_elements(context, True, matrix, _chain(context, right, rest, node))
    known = truth(context, result)
    if isinstance(known, bool):
        if not known:
            return result
        others = _chain(context, right, rest, node)
        is_typed = _is_computed(result) and not context.is_in_static
        return _in_common_type(context, others, result, is_computed=True) if is_typed else others
    return either(context, known, known, lambda: _chain(context, right, rest, node), True, node)


def compare(context: Context, op: ast.cmpop, left: Any, right: Any, node: ast.AST) -> Any:
    """One comparison."""
    if isinstance(op, (ast.Is, ast.IsNot)) and isinstance(right, bool) and _is_flag(left):
        # `flag is True`, and `case True`: there is one object of each truth value.
        op = ast.Eq() if isinstance(op, ast.Is) else ast.NotEq()
    if isinstance(op, (ast.Is, ast.IsNot)):
        return _identity(context, left, right, node) is isinstance(op, ast.Is)
    if isinstance(op, (ast.In, ast.NotIn)):
        found = _membership(context, left, right, node)
        if isinstance(op, ast.In):
            return found
        return not found if isinstance(found, bool) else arithmetic.unary(context, "not", found)
    symbol, function = COMPARISONS[type(op)]
    if isinstance(left, StructValue) or isinstance(right, StructValue):
        result = struct_operators.binary(context, symbol, left, right, node)
        if result is not NOT_FOUND:
            return result
    if _is_computed(left) or _is_computed(right):
        if left is None or right is None:
            return isinstance(op, ast.NotEq)
        return arithmetic.compare(context, symbol, left, right)
    if is_run_time((left, right)) and any(
        isinstance(left, kind) and isinstance(right, kind) for kind in (tuple, list)
    ):
        return _of_sequences(context, op, left, right, node)
    if isinstance(left, FormattedString) or isinstance(right, FormattedString):
        context.fail(NotCompileTime("a string that is compared"), node)
    return compile_time_evaluation.operate(context, node, function, left, right)


def _of_sequences(
    context: Context, op: ast.cmpop, left: list[Any], right: list[Any], node: ast.AST
) -> Value | bool:
    """A comparison of two tuples, or of two lists: the first items that differ decide."""
    is_equality = isinstance(op, (ast.Eq, ast.NotEq))
    if is_equality and len(left) != len(right):
        return isinstance(op, ast.NotEq)
    length = COMPARISONS[type(op)][1](len(left), len(right))
    result: Value | bool = isinstance(op, ast.Eq) if is_equality else length
    for a, b in reversed(list(zip(left, right, strict=False))):
        if not isinstance(op, ast.NotEq):
            same = truth(context, compare(context, ast.Eq(), a, b, node), node)
            result = _logical(context, "and", same, result)
        if not isinstance(op, ast.Eq):
            strict = _STRICT.get(type(op), type(op))()
            differ = truth(context, compare(context, strict, a, b, node), node)
            result = _logical(context, "or", differ, result)
    return result


_STRICT: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.LtE: ast.Lt, ast.GtE: ast.Gt}


def _logical(context: Context, fn: str, a: Value | bool, b: Value | bool) -> Value | bool:
    """``a and b``, ``a or b`` of truth values that have been evaluated."""
    if isinstance(a, bool):
        a, b = b, a
    if isinstance(b, bool):
        return a if b is (fn == "and") else b
    assert isinstance(a, Value)
    result: Value = context.builder.binary(fn, a, b)
    return result


def _is_computed(value: Any) -> bool:
    is_computed = is_run_time(value) or isinstance(value, HostNumber)
    return is_computed and not isinstance(value, (tuple, list, dict))


def _identity(context: Context, left: Any, right: Any, node: ast.AST) -> bool:
    if not _is_computed(left) and not _is_computed(right):
        return left is right
    if left is None or right is None:
        return False
    if not (flattening.has_object(left) and flattening.has_object(right)):
        context.fail(IdentityOfRunTimeValue(), node)
    return left is right


def _membership(context: Context, left: Any, right: Any, node: ast.AST) -> Any:
    if _is_computed(right) or (isinstance(right, str) and _is_computed(left)):
        context.fail(NoMembership(), node)
    if not is_run_time(left) and not is_run_time(right):
        return compile_time_evaluation.call(context, node, operator.contains, right, left)
    result: Any = False
    for item in compile_time_evaluation.iterate(context, right, node):
        same = truth(context, compare(context, ast.Eq(), left, item, node))
        result = _logical(context, "or", result, same)
    return result


TABLE: dict[type[ast.AST], Callable[..., Any]] = {
    ast.IfExp: conditional,
    ast.BoolOp: boolean,
    ast.Compare: comparison,
}
