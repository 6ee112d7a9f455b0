"""Finds the source of a Python function and parses it, with the places of its lines kept."""

from __future__ import annotations

import ast
import functools
import types
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from octants.diagnostics.errors import NoSource, UnsupportedSyntax
from octants.diagnostics.source_text import source_text
from octants.diagnostics.span import Span

FunctionDef = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(eq=False)
class FunctionSource:
    """The syntax tree of a function; the trees of all its inlined copies are this one.

    `line_offset` is to be added to the lines of the tree to have those of the file; columns are
    those of the file already. `locals` are the names that the function assigns.
    """

    name: str
    file: str
    tree: ast.FunctionDef
    line_offset: int
    locals: frozenset[str]
    lines: list[str]
    _spans: dict[ast.AST, Span] = field(default_factory=dict)
    _read_counts: dict[ast.AST, Counter[str]] = field(default_factory=dict)

    def span(self, node: ast.AST) -> Span:
        """Where a node stands; of a compound statement only its first line."""
        if node not in self._spans:
            self._spans[node] = self._span(node)
        return self._spans[node]

    def is_read_outside(self, name: str, statements: list[ast.stmt]) -> bool:
        """Whether the function reads a variable anywhere but in these statements."""
        inside = sum(self._reads(statement)[name] for statement in statements)
        return self._reads(self.tree)[name] > inside

    def _reads(self, node: ast.AST) -> Counter[str]:
        if node not in self._read_counts:
            nodes = list(ast.walk(node))
            updated = {child.target for child in nodes if isinstance(child, ast.AugAssign)}
            self._read_counts[node] = Counter(
                child.id
                for child in nodes
                if isinstance(child, ast.Name)
                and (isinstance(child.ctx, ast.Load) or child in updated)
            )
        return self._read_counts[node]

    def _span(self, node: Any) -> Span:
        line, end_line = node.lineno, node.end_lineno or node.lineno
        start = self._column(line, node.col_offset)
        end = self._column(end_line, node.end_col_offset or 0)
        body = getattr(node, "body", None)
        if isinstance(body, list) and body:
            end_line, end = line, len(self._text(line).rstrip())
        return Span(
            self.file, line + self.line_offset, start, end_line + self.line_offset, end, self.name
        )

    def _column(self, line: int, byte_offset: int) -> int:
        """A column in characters; the tree counts bytes of UTF-8."""
        text = self._text(line)
        return byte_offset if text.isascii() else len(text.encode()[:byte_offset].decode())

    def _text(self, line: int) -> str:
        return self.lines[line - 1] if line <= len(self.lines) else ""


_known: weakref.WeakKeyDictionary[types.FunctionType, FunctionSource] = weakref.WeakKeyDictionary()


def find_source(function: types.FunctionType) -> FunctionSource:
    """The source of a function as it stands in its file, or in `linecache` for a notebook cell.

    A function without a source is a user error.
    """
    if function not in _known:
        _known[function] = _find(function)
    return _known[function]


def _find(function: types.FunctionType) -> FunctionSource:
    code = function.__code__
    text = source_text(function)
    if not text:
        raise NoSource(code.co_name).at(None if text is None else _place(code))
    try:
        return _parse(code, code.co_filename, text)
    except SyntaxError:
        raise NoSource(code.co_name).at(_place(code)) from None


@functools.lru_cache(maxsize=512)
def _parse(code: types.CodeType, file: str, text: str) -> FunctionSource:
    indented = text[:1].isspace()
    tree = ast.parse("if True:\n" + text if indented else text)
    found = next((node for node in ast.walk(tree) if isinstance(node, FunctionDef)), None)
    if isinstance(found, ast.AsyncFunctionDef):
        problem = UnsupportedSyntax("`async def`", "use `def`: kernels are not coroutines")
        raise problem.at(_place(code))
    if found is None or not _is_of(code, found):
        raise NoSource(code.co_name).at(_place(code))
    shift = 1 if indented else 0
    lines = ["if True:"] * shift + text.splitlines()
    offset = code.co_firstlineno - 1 - shift
    names = frozenset(assigned_names(found.body)) | {arg.arg for arg in parameters(found)}
    return FunctionSource(code.co_name, file, found, offset, names, lines)


def _is_of(code: types.CodeType, tree: ast.FunctionDef) -> bool:
    """Whether a tree can be that of a code object: a file may have changed since it was read."""
    named = [arg.arg for arg in parameters(tree)]
    count = code.co_argcount + code.co_kwonlyargcount
    return tree.name == code.co_name and list(code.co_varnames[:count]) == named


def _place(code: types.CodeType) -> Span:
    return Span(code.co_filename, code.co_firstlineno, function=code.co_name)


def parameters(tree: FunctionDef) -> list[ast.arg]:
    """The parameters of a function, positional ones first."""
    return [*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs]


def children(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below a node, without those of nested functions and their like."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, (*_SCOPES, *_COMPREHENSIONS)):
            yield from children(child)


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def assigned_names(statements: list[ast.stmt]) -> list[str]:
    """The names that statements assign, in order, each once."""
    names = dict.fromkeys(
        node.id
        for node in _nodes(statements)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    return list(names)


def target_names(loop: ast.For | ast.While) -> list[str]:
    """The names of a loop's indices."""
    return assigned_names([ast.Expr(loop.target)]) if isinstance(loop, ast.For) else []


def changed_names(statements: list[ast.stmt]) -> list[str]:
    """The names that statements assign, or components of whose values they assign."""
    names: dict[str, None] = dict.fromkeys(assigned_names(statements))
    for node in _changed_roots(statements):
        names[node.id] = None
    return list(names)


def read_names(statements: list[ast.stmt]) -> frozenset[str]:
    """The names whose values statements read; what an atomic operation changes is not read."""
    changed = set(_changed_roots(statements))
    names: set[str] = set()
    for node in (node for statement in statements for node in ast.walk(statement)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node not in changed:
            names.add(node.id)
        if isinstance(node, ast.AugAssign) and not isinstance(node.op, ATOMIC_OPERATORS):
            root = _root(node.target)
            names.update([root.id] if root is not None else [])
    return frozenset(names)


ATOMIC_OPERATORS = (ast.Add, ast.Sub, ast.BitAnd, ast.BitOr, ast.BitXor)
"""The operators whose augmented assignment is atomic."""


def _changed_roots(statements: list[ast.stmt]) -> Iterator[ast.Name]:
    """The variable of each ``v[0] = ..``, ``v.x += ..``, ``atomic_add(v, ..)``."""
    for node in _nodes(statements):
        target = None
        if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            target = _root(node)
        elif isinstance(node, ast.Call) and node.args and _is_atomic(node.func):
            target = _root(node.args[0])
        if target is not None:
            yield target


def _is_atomic(function: ast.expr) -> bool:
    name = getattr(function, "attr", getattr(function, "id", ""))
    return isinstance(name, str) and name.startswith("atomic_")


def _root(node: ast.expr) -> ast.Name | None:
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node if isinstance(node, ast.Name) else None


def _nodes(statements: list[ast.stmt]) -> Iterator[ast.AST]:
    for statement in statements:
        yield statement
        yield from children(statement)


def contains(statements: list[ast.stmt], kind: type[ast.AST] | tuple[type[ast.AST], ...]) -> bool:
    """Whether there is a node of a kind in statements, nested functions aside."""
    return any(isinstance(node, kind) for node in _nodes(statements))


def leaves_loop(statements: list[ast.stmt], kind: type[ast.Break | ast.Continue]) -> bool:
    """Whether a ``break`` (or ``continue``) among statements belongs to the loop around them."""
    for statement in statements:
        if isinstance(statement, kind):
            return True
        if isinstance(statement, (ast.For, ast.While)):
            if leaves_loop(statement.orelse, kind):
                return True
        elif any(
            leaves_loop(getattr(statement, name, None) or [], kind) for name in ("body", "orelse")
        ):
            return True
    return False
