"""Calls of `real_func`s that reach themselves: their recursion ends by a condition at run time.

Such a function is built once, as a block of its parameters, for each call from outside; so are the
functions that it calls and that call it. In these blocks, their calls are single operations;
`recursion_to_loops` makes a loop of the whole. What it needs is that all values have known types: a
function is inlined as others are if a parameter or the result is not annotated with one. Arrays,
and the object of a method, are no values: a function is built for each combination of them.
"""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Iterator
from typing import Any

from octants.diagnostics.errors import RecursiveArgument, WrongReturn
from octants.frontend import assignments
from octants.frontend.calls import functions
from octants.frontend.calls.recursion_to_loops import Recurse, RecursionLoop
from octants.frontend.context import Context
from octants.frontend.scope import UNDEFINED, FunctionScope
from octants.frontend.values import flattening
from octants.frontend.values.expression_values import (
    ArrayReference,
    MatrixValue,
    StructValue,
    VariableReference,
    describe,
    is_run_time,
)
from octants.ir import ops
from octants.ir.core import Block, Value
from octants.lang.library_function_marks import (
    is_from_octants,
    marked_function,
    note_compiled,
    recursion_depth,
)
from octants.lazy_dataclass import dataclass
from octants.types.matrix_types import MatrixType
from octants.types.parameter_annotations import NdarrayAnnotation, Reference
from octants.types.scalars import i32
from octants.types.structs import StructType

# -- which calls -----------------------------------------------------------------------------------


def is_recursive(
    context: Context,
    function: types.FunctionType,
    values: dict[str, Any],
    by_reference: frozenset[str],
) -> bool:
    """Whether the call of a `real_func` is built with a stack: one of values that reaches itself.

    `by_reference` names the object of a method among the arguments.
    """
    owner = _owner(values, by_reference)
    known = context.recursive.get((function, owner))
    if known is None:
        known = (
            getattr(function, "octants_adjoint", None) is None
            and function in _reached(function, owner)
            and _has_types(context, function, by_reference)
        )
        context.recursive[function, owner] = known
    return known and all(
        _is_fixed(context.load(values[each.name]), each.name in by_reference)
        for each in functions.parameters(context, function)
        if _takes_fixed(each)
    )


def _owner(values: dict[str, Any], by_reference: frozenset[str]) -> type | None:
    """The class of the object whose method is called."""
    return next((type(values[name]) for name in by_reference), None)


def _takes_fixed(parameter: functions.Parameter) -> bool:
    """Whether a parameter stands for an array or an object, and not for run-time values."""
    kind = parameter.annotation
    is_object = kind is inspect.Parameter.empty or parameter.is_template
    return isinstance(kind, NdarrayAnnotation) or (is_object and not isinstance(kind, Reference))


def _is_fixed(value: Any, is_owner: bool) -> bool:
    """Whether an argument is an array, a struct of arrays, or the object of a method.

    There are only so many of them, so that functions are built for each.
    """
    if isinstance(value, StructValue):
        return all(_is_fixed(member, is_owner=False) for member in value.members.values())
    return isinstance(value, ArrayReference) or (is_owner and not is_run_time(value))


def _identity(value: Any) -> Any:
    """A key that equal arrays and objects share."""
    if isinstance(value, StructValue):
        return tuple(map(_identity, value.members.values()))
    return (value.array, value.companion) if isinstance(value, ArrayReference) else id(value)


def _reached(function: types.FunctionType, owner: type | None) -> set[types.FunctionType]:
    """The functions that a function names, those that they name, and so on.

    `owner` is the class of the object whose method it is.
    """
    found: set[types.FunctionType] = set()
    pending = [function]
    while pending:
        for named in _named(pending.pop(), owner):
            if named not in found:
                found.add(named)
                pending.append(named)
    return found


def _named(function: types.FunctionType, owner: type | None) -> Iterator[types.FunctionType]:
    """The Python functions that the source of a function names, without those of the library."""
    if is_from_octants(function):
        return
    text = functions.source_or_none(function)
    if text is None:
        return
    scope = FunctionScope(text, function)
    for node in ast.walk(text.tree):
        if isinstance(node, (ast.Name, ast.Attribute)):
            found = _python_object(scope, node, owner)
            found = marked_function(found) or found
            if isinstance(found, types.FunctionType):
                yield found


def _python_object(scope: FunctionScope, node: ast.expr, owner: type | None) -> Any:
    """The Python object of a name, also in a module; `UNDEFINED` for other expressions.

    The first parameter means the class `owner`.
    """
    if isinstance(node, ast.Name):
        is_owner = owner is not None and node.id in scope.function.__code__.co_varnames[:1]
        return owner if is_owner else scope.python_name(node.id)
    if isinstance(node, ast.Attribute):
        holder = _python_object(scope, node.value, owner)
        if isinstance(holder, (types.ModuleType, type)):
            found = inspect.getattr_static(holder, node.attr, UNDEFINED)
            return found.__func__ if isinstance(found, staticmethod) else found
    return UNDEFINED


def _has_types(
    context: Context, function: types.FunctionType, by_reference: frozenset[str]
) -> bool:
    """Whether the types of all parameters, and of what is returned, are known from annotations."""
    for each in functions.parameters(context, function):
        if each.annotation is inspect.Parameter.empty and each.name not in by_reference:
            return False
        has_type = isinstance(each.annotation, Reference) or _takes_fixed(each)
        if not has_type and _prototype(context, each.annotation) is None:
            return False
    returns = functions.declared_result(function)
    if returns is None:
        tree = functions.source_or_none(function)
        return tree is None or not _returns_values(tree.tree)
    kinds = returns if isinstance(returns, tuple) else (returns,)
    return all(_prototype(context, each) is not None for each in kinds)


def _returns_values(tree: ast.AST) -> bool:
    return any(isinstance(x, ast.Return) and x.value is not None for x in ast.walk(tree))


def _prototype(context: Context, kind: Any) -> Any:
    """A value of an annotation's type, with fresh scalars; None for what is no such type."""
    if isinstance(kind, MatrixType):
        dtype = assignments.scalar_type(context, kind.python_dtype)
        count = kind.n * kind.m
        return dtype and MatrixValue(kind.element_shape, [Value(dtype) for _ in range(count)])
    if isinstance(kind, StructType):
        members = {name: _prototype(context, inner) for name, inner in kind.members.items()}
        is_known = all(member is not None for member in members.values())
        return StructValue(members, kind) if is_known else None
    dtype = assignments.scalar_type(context, kind)
    return dtype and Value(dtype)


# -- calls -----------------------------------------------------------------------------------------


def call(
    context: Context,
    node: ast.AST,
    function: types.FunctionType,
    values: dict[str, Any],
    by_reference: frozenset[str],
) -> Any:
    """Build a call of a recursive function; gives what it returns."""
    group = context.recursion
    if group is None or not group.holds(function):
        return _Group(context, node, function, _owner(values, by_reference)).start(values)
    return group.recurse(node, function, values)


@dataclass(eq=False, slots=True)
class _Entry:
    """A function of a group: what its calls pass and get."""

    number: int
    function: types.FunctionType
    arguments: dict[str, Any]  # by name, with fresh scalars; arrays are what they are
    result: Any
    references: dict[str, Value]  # those of `arguments` that are copied back
    body: Block | None = None


class _Group:
    """A function that reaches itself, with those on its ways, for one call from outside."""

    def __init__(
        self, context: Context, node: ast.AST, function: types.FunctionType, owner: type | None
    ) -> None:
        self._context = context
        self._node = node
        self._first = function
        self._owner = owner
        self._reached = _reached(function, owner)
        self._entries: dict[Any, _Entry] = {}  # by function, arrays and objects
        self._draws = False  # whether the work item's number of random draws is passed along
        self._key = (context.scopes.frame.key, node, tuple(context.scopes.iterations))

    def holds(self, function: types.FunctionType) -> bool:
        """Whether a function reaches the first one of the group, and the other way round."""
        return function is self._first or (
            function in self._reached and self._first in _reached(function, self._owner)
        )

    def start(self, values: dict[str, Any]) -> Any:
        """Build the call from outside."""
        context, builder = self._context, self._context.builder
        entry = self._entry(self._first, values)
        arguments = self._passed(entry, values, self._node)
        draw = context.number_of(context.draw)
        bodies = self._build_all()
        if any(isinstance(op, ops.Random) for body in bodies for op in body.walk()):
            self._draws = True
            bodies = self._build_all()
        depth = max(recursion_depth(each.function) or 1 for each in self._entries.values())
        loop = RecursionLoop(builder, bodies, self._first.__name__, depth)
        given = [*arguments, *([draw] if self._draws else [])]
        results = loop.build(given, [each.type for each in self._results(entry)])
        return self._received(entry, values, results, self._node)

    def recurse(self, node: ast.AST, function: types.FunctionType, values: dict[str, Any]) -> Any:
        """Build a call from inside."""
        context, builder = self._context, self._context.builder
        entry = self._entry(function, values)
        arguments = self._passed(entry, values, node)
        if self._draws:
            arguments.append(context.number_of(context.draw))
        results = [Value(each.type) for each in self._results(entry)]
        builder.append(Recurse(entry.number, arguments, results=results))
        return self._received(entry, values, results, node)

    # -- what is passed ----------------------------------------------------------------------------

    def _entry(self, function: types.FunctionType, values: dict[str, Any]) -> _Entry:
        context = self._context
        fixed = {
            each.name: context.load(values[each.name])
            for each in functions.parameters(context, function)
            if _takes_fixed(each)
        }
        key = function, tuple(map(_identity, fixed.values()))
        if key not in self._entries:
            self._entries[key] = self._new_entry(function, fixed)
        return self._entries[key]

    def _new_entry(self, function: types.FunctionType, fixed: dict[str, Any]) -> _Entry:
        context = self._context
        arguments: dict[str, Any] = {}
        references: dict[str, Value] = {}
        for parameter in functions.parameters(context, function):
            kind, name = parameter.annotation, parameter.name
            if isinstance(kind, Reference):
                dtype = assignments.scalar_type(context, kind.dtype)
                assert dtype is not None
                arguments[name] = references[name] = Value(dtype, name)
            else:
                arguments[name] = fixed[name] if name in fixed else _prototype(context, kind)
        returns = functions.declared_result(function)
        result = None
        if isinstance(returns, tuple):
            result = tuple(_prototype(context, kind) for kind in returns)
        elif returns is not None:
            result = _prototype(context, returns)
        return _Entry(len(self._entries), function, arguments, result, references)

    def _passed(self, entry: _Entry, values: dict[str, Any], node: ast.AST) -> list[Value]:
        """The scalars that a call passes."""
        context, passed = self._context, []
        for parameter in functions.parameters(context, entry.function):
            name, value = parameter.name, values[parameter.name]
            if isinstance(parameter.annotation, Reference):
                passed.append(self._referred(entry, name, value, node))
                continue
            if not _takes_fixed(parameter):
                value = context.load(value)
                given = assignments.as_kind(context, parameter.annotation, value, name, node)
                passed += flattening.leaves(given)
        return passed

    def _referred(self, entry: _Entry, name: str, reference: Any, node: ast.AST) -> Value:
        """The value of a variable of the caller, of which a call gets a copy and gives it back."""
        wanted, value = entry.references[name].type, self._context.load(reference)
        is_variable = isinstance(reference, VariableReference)
        if not is_variable or reference.variable.in_memory or not isinstance(value, Value):
            problem = "a local variable is expected, and not an element of an array"
        elif value.type is not wanted:
            problem = f"a variable of {wanted} is expected, and not {describe(value)}"
        else:
            return value
        return self._context.fail(RecursiveArgument(entry.function.__name__, name, problem), node)

    def _results(self, entry: _Entry) -> list[Value]:
        """Values of the types of what a call gives: the result, references, random draws."""
        draws = [Value(i32)] if self._draws else []
        return [*flattening.leaves(entry.result), *entry.references.values(), *draws]

    def _received(
        self, entry: _Entry, values: dict[str, Any], results: list[Value], node: ast.AST
    ) -> Any:
        """The returned value of a call; variables passed by reference get theirs."""
        context, count = self._context, len(flattening.leaves(entry.result))
        for name, new in zip(entry.references, results[count:], strict=False):
            context.store(values[name], new, node)
        if self._draws:
            context.scopes.assign(context.draw, results[-1])
        return flattening.rebuild(entry.result, results[:count])

    # -- bodies ------------------------------------------------------------------------------------

    def _build_all(self) -> list[Block]:
        """The bodies of the first function, and of those that calls of it call."""
        outer, self._context.recursion = self._context.recursion, self
        bodies: list[Block] = []
        try:
            while len(bodies) < len(self._entries):
                bodies.append(self._build([*self._entries.values()][len(bodies)]))
        finally:
            self._context.recursion = outer
        return bodies

    def _build(self, entry: _Entry) -> Block:
        context, node, function = self._context, self._node, entry.function
        scopes = context.scopes
        text = functions.find_source(context, function, node)
        note_compiled(function)
        context.calls[text.inlined_at(scopes.frame.source.span(node))] = None
        scope = FunctionScope(text, function, (*self._key, entry.number), call=node)
        with context.region() as region, scopes.entered(scope):
            scope.returns = functions.declared_result(function)
            block = region.block
            for name, value in entry.arguments.items():
                leaves = [Value(each.type, name) for each in flattening.leaves(value)]
                block.args += leaves
                scopes.declare(name, flattening.rebuild(value, leaves))
            if self._draws:
                block.args.append(Value(i32))
                scopes.assign(context.draw, block.args[-1])
            completes = context.build(text.tree.body)
            result = functions.returned(context, node, scope, completes)
            if not flattening.same_structure(result, entry.result):
                wanted = f"{describe(entry.result)}, and not {describe(result)}"
                problem = f"the value of `{function.__name__}` is {wanted}"
                context.fail(WrongReturn(problem, "change the annotation after `->`"), node)
            given = flattening.leaves(result)
            given += [scope.variables[name].value for name in entry.references]
            if self._draws:
                given.append(context.number_of(context.draw))
            context.builder.yield_([context.value(each) for each in given])
        return block
