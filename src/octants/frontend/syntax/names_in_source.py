"""Finds the names that a piece of source assigns, changes and reads.

Statements are asked for this at every depth at which they stand, so what is found for one is kept,
and that for several, or for one that holds others, is put together from it.
"""

from __future__ import annotations

import ast
import weakref
from collections import Counter
from dataclasses import field

from octants.lazy_dataclass import dataclass

ATOMIC_OPERATORS = (ast.Add, ast.Sub, ast.BitAnd, ast.BitOr, ast.BitXor)
"""The operators whose augmented assignment is atomic."""

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_INNER = (*_SCOPES, *_COMPREHENSIONS)


@dataclass(slots=True)
class Mentions:
    """The names in a piece of source; dicts are sets in order.

    `assigned` and `changed` - variables of which a component is assigned, or which an atomic
    function changes, each with the attributes up to the first subscript: ``v.x.y[0] = ..`` changes
    (v, x, y) - and `returns` are without nested functions and their like. `read` is without what is
    only changed; `uses` counts the locations where a name is read, or updated.
    """

    assigned: dict[str, None] = field(default_factory=dict)
    changed: dict[tuple[str, ...], None] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    uses: Counter[str] = field(default_factory=Counter)
    returns: bool = False

    def add(self, other: Mentions) -> None:
        """Take in what follows."""
        self.assigned |= other.assigned
        self.changed |= other.changed
        self.read |= other.read
        self.uses.update(other.uses)
        self.returns |= other.returns


_NAMELESS = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.Constant)
"""Nodes that neither are names nor have any below them: most of a tree."""

_known: weakref.WeakKeyDictionary[ast.AST, Mentions] = weakref.WeakKeyDictionary()


def mentions(statements: list[ast.stmt]) -> Mentions:
    """The names that statements mention; not to be changed."""
    if len(statements) == 1:
        return _of(statements[0])
    found = Mentions()
    for statement in statements:
        found.add(_of(statement))
    return found


def _of(node: ast.AST) -> Mentions:
    if node not in _known:
        reader = _Reader()
        reader.visit(node, inner=False)
        _known[node] = reader.found
    return _known[node]


def is_read_first(name: str, statements: list[ast.stmt]) -> bool:
    """Whether statements may read a variable before they assign it as a whole.

    What stands in a branch or a loop may not run, so a later statement may read the variable too.
    """
    for statement in statements:
        if not _is_named(name, statement):
            continue
        match statement:
            case (
                ast.Assign(targets=[target], value=value)
                | ast.AnnAssign(target=target, value=ast.expr() as value)
            ):
                targets = target.elts if isinstance(target, ast.Tuple) else [target]
                is_assigned = any(isinstance(t, ast.Name) and t.id == name for t in targets)
                return not is_assigned or _is_named(name, value, *_with_parts(targets))
            case ast.If(test=head) | ast.While(test=head) | ast.For(iter=head):
                is_index = isinstance(statement, ast.For) and _is_named(name, statement.target)
                first = [] if is_index else statement.body
                if _is_named(name, head) or any(
                    is_read_first(name, each) for each in (first, statement.orelse)
                ):
                    return True
            case _:
                return True
    return False


def is_read_after(name: str, statement: ast.stmt, statements: list[ast.stmt]) -> bool:
    """Whether what runs after a statement, which is one of ``statements`` or in one, may read."""
    for position, each in enumerate(statements):
        rest = statements[position + 1 :]
        if each is statement:
            in_else = isinstance(each, ast.For) and is_read_first(name, each.orelse)
            return in_else or is_read_first(name, rest)
        if isinstance(each, (ast.If, ast.With)):
            branches = [each.body, each.orelse] if isinstance(each, ast.If) else [each.body]
            for branch in branches:
                if any(node is statement for inner in branch for node in ast.walk(inner)):
                    return is_read_after(name, statement, branch) or is_read_first(name, rest)
    return True  # in a loop, which runs it again


def _is_named(name: str, *nodes: ast.AST) -> bool:
    return any(name in found.uses or name in found.assigned for found in map(_of, nodes))


def _with_parts(targets: list[ast.expr]) -> list[ast.expr]:
    return [target for target in targets if not isinstance(target, ast.Name)]


class _Reader:
    """Goes through a statement in the order of its source; other statements in it have theirs."""

    def __init__(self) -> None:
        self.found = Mentions()
        self._changed: set[ast.Name] = set()

    def visit(self, node: ast.AST, *, inner: bool) -> None:
        """Take in a node and all below it; ``inner`` says that it is in a nested function."""
        if isinstance(node, ast.Name):
            self._name(node, inner)
        else:
            self._other(node, inner)
        inner = inner or isinstance(node, _INNER)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt) and not inner:
                self.found.add(_of(child))
            elif not isinstance(child, _NAMELESS):
                self.visit(child, inner=inner)

    def _name(self, node: ast.Name, inner: bool) -> None:
        if isinstance(node.ctx, ast.Load):
            self.found.uses[node.id] += 1
            if node not in self._changed:
                self.found.read.add(node.id)
        elif isinstance(node.ctx, ast.Store) and not inner:
            self.found.assigned[node.id] = None

    def _other(self, node: ast.AST, inner: bool) -> None:
        if isinstance(node, ast.AugAssign):
            self._update(node)
        if inner:
            return
        if isinstance(node, ast.Return):
            self.found.returns = True
        target = _changed(node)
        root = _root(target)
        if target is not None and root is not None:
            self.found.changed[_path(target)] = None
            self._changed.add(root)

    def _update(self, node: ast.AugAssign) -> None:
        """An update reads its target, and if it is not atomic, the variable as a whole."""
        if isinstance(node.target, ast.Name):
            self.found.uses[node.target.id] += 1
        if not isinstance(node.op, ATOMIC_OPERATORS):
            root = _root(node.target)
            self.found.read.update([root.id] if root is not None else [])


def _changed(node: ast.AST) -> ast.expr | None:
    """The target that ``v[0] = ..``, ``v.x += ..`` or ``atomic_add(v, ..)`` changes."""
    if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Store):
        return node
    if isinstance(node, ast.Call) and node.args and _is_atomic(node.func):
        return node.args[0]
    return None


def _is_atomic(function: ast.expr) -> bool:
    name = getattr(function, "attr", getattr(function, "id", ""))
    return isinstance(name, str) and name.startswith("atomic_")


def _root(node: ast.expr | None) -> ast.Name | None:
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node if isinstance(node, ast.Name) else None


def _path(node: ast.expr) -> tuple[str, ...]:
    """The name that a target starts with, and the attributes up to the first subscript."""
    attributes: list[str] = []
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        attributes = [node.attr, *attributes] if isinstance(node, ast.Attribute) else []
        node = node.value
    assert isinstance(node, ast.Name)
    return (node.id, *attributes)
