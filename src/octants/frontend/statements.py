"""Statements: assignments, conditions, and what leaves a loop or a function."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from octants.diagnostics.errors import (
    BreakInParallel,
    ReturnInParallel,
    UnsupportedSyntax,
    UnusedComparison,
    WrongDeclaration,
)
from octants.frontend import assignments
from octants.frontend.calls import print_and_assert
from octants.frontend.compile_time import local_lists, name_resolution
from octants.frontend.context import Context
from octants.frontend.control_flow import (
    conditions,
    control_flow_joins,
    early_exits,
    loops,
    stream_parallel,
)
from octants.frontend.expressions import binary_operation
from octants.frontend.memory import hidden_arrays, returns, sparse_matrix_entries
from octants.frontend.scope import UNDEFINED, VariableRegion
from octants.frontend.values import lossy_assignments, tiles
from octants.frontend.values.expression_values import ElementReference, VariableReference, describe
from octants.ir.core import Block, Value

# -- one after the other ---------------------------------------------------------------------------


def build(context: Context, statements: list[ast.stmt]) -> bool:
    """Build statements; gives whether their end can be reached."""
    for position, statement in enumerate(statements):
        rest = statements[position + 1 :]
        context.statement = statement
        if isinstance(statement, ast.If):
            completes, has_rest = _if_with_rest(context, statement, rest)
            if has_rest or not completes:
                return completes
        elif not context.execute(statement):
            return False
        left = early_exits.left(context) if rest else None
        if left is not None:
            return _guarded(context, left, rest)
    return True


def _guarded(context: Context, left: Value, statements: list[ast.stmt]) -> bool:
    """Build statements that run only if ``left`` is not set; parallel loops stay outside."""
    loop = next((s for s in statements if isinstance(s, ast.For)), None)
    if loop is None or not context.is_top_level:
        return _skippable(context, left, statements)
    position = statements.index(loop)
    serial, rest = statements[:position], statements[position + 1 :]
    if serial and not _skippable(context, left, serial):
        return False
    with context.at(loop):
        if not loops.for_(context, loop, guard=early_exits.left(context)):
            return False
    left_now = early_exits.left(context)
    assert left_now is not None
    return _guarded(context, left_now, rest) if rest else True


def _skippable(context: Context, left: Value, statements: list[ast.stmt]) -> bool:
    """``if not left: statements``"""
    flags = context.scopes.frame.exit_flags()
    return early_exits.skippable(
        context, left, flags, lambda: build(context, statements), statements[0], statements
    )


# -- if --------------------------------------------------------------------------------------------


def _if_with_rest(context: Context, node: ast.If, rest: list[ast.stmt]) -> tuple[bool, bool]:
    """An ``if``; where one branch does not reach its end, the rest goes into the other one.

    Gives whether the end is reached, and whether the rest has been built.
    """
    with context.at(node):
        value, is_static = context.evaluate_marked(node.test)
        test = conditions.truth(context, value, node.test, is_static=is_static)
        if isinstance(test, bool):
            taken = node.body if test else node.orelse
            if is_static:
                return build(context, taken), False
            with context.serial(), context.stops.block():
                return build(context, taken), False
        return _run_time_if(context, node, test, rest)


def _run_time_if(
    context: Context, node: ast.If, test: Value, rest: list[ast.stmt]
) -> tuple[bool, bool]:
    if context.is_top_level and any(isinstance(statement, ast.For) for statement in rest):
        rest = []
    then, orelse = VariableRegion(Block()), VariableRegion(Block())
    with context.region(then), context.stops.block():
        then.completes = build(context, node.body)
    with context.region(orelse), context.stops.block():
        orelse.completes = build(context, node.orelse)
    going_on = [branch for branch in (then, orelse) if branch.completes]
    takes_rest = bool(rest) and len(going_on) == 1
    if takes_rest:
        with context.region(going_on[0]):
            left = early_exits.left(context)
            reached = build(context, rest) if left is None else _guarded(context, left, rest)
            going_on[0].completes = reached
    control_flow_joins.join(
        context, test, then, orelse, node, [node, *(rest if takes_rest else [])]
    )
    return then.completes or orelse.completes, takes_rest


# -- leaving ---------------------------------------------------------------------------------------


def break_(context: Context, node: ast.Break) -> bool:
    """Set the flag that ends the loop."""
    loop = context.scopes.frame.loops[-1]
    if loop.is_parallel:
        context.fail(BreakInParallel(), node)
    assert loop.broken is not None
    context.scopes.assign(loop.broken, True)
    return False


def continue_(context: Context, _: ast.Continue) -> bool:
    """Set the flag that ends the iteration."""
    loop = context.scopes.frame.loops[-1]
    assert loop.continued is not None
    context.scopes.assign(loop.continued, True)
    return False


def return_(context: Context, node: ast.Return) -> bool:
    """Keep or store the value, and set the flag that ends the function."""
    frame = context.scopes.frame
    if any(loop.is_parallel for loop in frame.loops):
        context.fail(ReturnInParallel(), node)
    given = None if node.value is None or _is_constant(node.value, None) else node.value
    if given is not None:
        value = context.evaluate(given)
        if frame.is_kernel:
            returns.store(context, value, node)
            context.scopes.assign(frame.result, ())
        elif value is not None:
            context.scopes.assign(frame.result, returns.converted(context, value, node))
    if given is None or frame.result.value is UNDEFINED:
        frame.returns_nothing = True
    context.scopes.assign(frame.returned, True)
    return False


# -- assignments -----------------------------------------------------------------------------------


def assign(context: Context, node: ast.Assign) -> bool:
    """``a = b = value``"""
    value = context.evaluate(node.value)
    if value is None:
        assignments.refuse_none(context, node.value)
    for target in node.targets:
        if not tiles.assign(context, target, value):
            hidden_arrays.check(context, target, value)
            assignments.assign(context, target, value)
    return True


def annotated_assign(context: Context, node: ast.AnnAssign) -> bool:
    """``name: kind = value``"""
    if node.value is None:
        way_out = f"assign a value: `{ast.unparse(node)} = 0`"
        context.fail(UnsupportedSyntax("a declaration without a value", way_out), node)
    kind = _stated_type(context, node.annotation)
    value = context.evaluate(node.value)
    if isinstance(node.target, ast.Name):
        if not assignments.is_hint(kind):
            context.fail(WrongDeclaration(node.target.id, describe(kind)), node)
        assignments.declare_typed(context, node.target.id, kind, value, node)
    else:
        assignments.assign(context, node.target, value)
    return True


def _stated_type(context: Context, annotation: ast.expr) -> Any:
    """The object that an annotation names, which may be a string."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            named = ast.parse(annotation.value.strip(), mode="eval").body
        except SyntaxError:
            return annotation.value
        for each in ast.walk(named):
            ast.copy_location(each, annotation)
        return context.evaluate(named)
    return context.evaluate(annotation)


ATOMIC: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
}
"""The operators whose augmented assignment to memory is atomic."""


def augmented_assign(context: Context, node: ast.AugAssign) -> bool:
    """``target op= value``: atomic in memory for additions and bit operations.

    These convert the value to the type of the target first, also in a local variable.
    """
    builder = sparse_matrix_entries.builder_of(context, node.target)
    if builder is not None:
        sparse_matrix_entries.add(context, node, builder)
        return True
    if isinstance(node.target, ast.Name):
        reference = name_resolution.name(context, node.target)
    else:
        reference = assignments.reference_of(context, node.target)
    if tiles.subtract(context, node, reference):
        return True
    value = context.evaluate(node.value)
    fn = ATOMIC.get(type(node.op))
    if fn is not None and _takes(context, reference, fn, value):
        lossy_assignments.check(context, reference, value, node, fn)
        context.atomic(fn, reference, value, node)
        return True
    result = binary_operation(context, node.op, context.load(reference), value, node)
    if isinstance(node.target, ast.Name) and isinstance(result, (tuple, list)):
        if isinstance(reference, VariableReference) and type(reference.variable.value) is list:
            local_lists.check_holders(context, node, reference.variable, ast.unparse(node))
        assignments.assign_name(context, node.target.id, result, node)
    else:
        assignments.store(context, reference, result, node)
    return True


def _takes(context: Context, reference: Any, fn: str, value: Any) -> bool:
    """Whether a reference is in memory, of a type that the atomic operation works on."""
    if isinstance(reference, VariableReference):
        in_memory = reference.variable.in_memory
        if not in_memory and not lossy_assignments.narrows_floats(context, reference, value):
            return False
    elif not isinstance(reference, ElementReference):
        return False
    is_sum = fn in ("add", "sub")
    types = lossy_assignments.types_at(reference)
    return not any(dtype.is_bool if is_sum else dtype.is_float for dtype in types)


# -- others ----------------------------------------------------------------------------------------


def expression(context: Context, node: ast.Expr) -> bool:
    """A call for its effects, a docstring, or ``...``, which does nothing."""
    if not _is_constant(node.value, ...):
        context.evaluate(node.value)
    if isinstance(node.value, ast.Compare) and isinstance(node.value.ops[0], ast.Eq):
        context.warn(UnusedComparison(), node)
    return True


def _is_constant(node: ast.expr, value: Any) -> bool:
    """Whether an expression is one of the constants of Python."""
    return isinstance(node, ast.Constant) and node.value is value


def pass_(_: Context, __: ast.Pass) -> bool:
    """Nothing."""
    return True


def assert_(context: Context, node: ast.Assert) -> bool:
    """In debug mode the work item stops if the condition does not hold.

    Without it the condition is evaluated all the same, so that both modes draw the same random
    numbers and have the same effects; what has no effect is dropped later.
    """
    test = conditions.condition(context, node.test)
    if not context.debug:
        return True
    condition = test if isinstance(test, Value) else context.constant(test)
    message = print_and_assert.Message(context, node)
    if node.msg is None:
        message.text(ast.unparse(node.test))
    else:
        _add_message(context, message, node.msg)
    context.builder.assert_("assertion", message.template(), condition, message.values)
    return True


def _add_message(context: Context, message: print_and_assert.Message, node: ast.expr) -> None:
    """``assert condition, message`` with a text, a formatted one, or a tuple of values."""
    value = context.evaluate(node)
    items = value if isinstance(value, tuple) else (value,)
    for position, item in enumerate(items):
        message.text(" " if position else "")
        message.add(item)


def with_(context: Context, node: ast.With) -> bool:
    """A ``with``: blocks of loops that may run at the same time, and nothing else."""
    is_block = stream_parallel.with_(context, node)
    return unsupported(context, node) if is_block is None else is_block


UNSUPPORTED: dict[str, tuple[str, str]] = {
    "Try": ("`try`", "test the condition with `if`; errors of kernels are raised on the host"),
    "TryStar": ("`try`", "test the condition with `if`; errors of kernels are raised on the host"),
    "Raise": ("`raise`", "use `assert`, which is checked with `qd.init(debug=True)`"),
    "With": ("`with`", "call what the context manager does before and after the block"),
    "AsyncWith": ("`async with`", "kernels are not coroutines"),
    "AsyncFor": ("`async for`", "kernels are not coroutines"),
    "FunctionDef": ("`def`", "define the function outside, decorated with `@qd.func`"),
    "AsyncFunctionDef": ("`async def`", "define the function outside, with `@qd.func`"),
    "ClassDef": ("`class`", "define the class outside of the kernel"),
    "Import": ("`import`", "import at the top of the file"),
    "ImportFrom": ("`import`", "import at the top of the file"),
    "Global": ("`global`", "globals are constants of a kernel; keep what changes in a field"),
    "Nonlocal": ("`nonlocal`", "closures are constants of a kernel; keep what changes in a field"),
    "Delete": ("`del`", "leave the variable as it is"),
    "Match": (
        "`match` whose patterns are more than values",
        "use patterns such as `1 | 2` and `_`, or `if` and `elif`",
    ),
    "TypeAlias": ("`type`", "define the type outside of the kernel"),
}


def unsupported(context: Context, node: ast.stmt) -> bool:
    """An error that says what to write instead."""
    construct, way_out = UNSUPPORTED.get(type(node).__name__, (f"`{type(node).__name__}`", ""))
    context.fail(UnsupportedSyntax(construct, way_out), node)


TABLE: dict[type[ast.AST], Callable[..., bool]] = {
    ast.Assign: assign,
    ast.AnnAssign: annotated_assign,
    ast.AugAssign: augmented_assign,
    ast.Expr: expression,
    ast.Pass: pass_,
    ast.Assert: assert_,
    ast.Break: break_,
    ast.Continue: continue_,
    ast.Return: return_,
    ast.For: loops.for_,
    ast.While: loops.while_,
    ast.With: with_,
    ast.stmt: unsupported,
}
