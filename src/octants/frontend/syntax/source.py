"""Finds the source of a Python function and parses it, with the line numbers of its file kept."""

from __future__ import annotations

import ast
import functools
import linecache
import types
from dataclasses import field
from typing import Any

from octants.diagnostics.errors import NoSource, UnsupportedSyntax
from octants.diagnostics.exceptions import OctantsError
from octants.diagnostics.source_text import FoundByCode, file_of, lambda_of, source_text
from octants.diagnostics.span import InlinedCall, Span
from octants.frontend.syntax import match_statements
from octants.frontend.syntax.names_in_source import mentions
from octants.frontend.syntax.private_names import mangle_private_names
from octants.lazy_dataclass import dataclass

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

    def span(self, node: ast.AST) -> Span:
        """Where a node stands; of a compound statement only its first line."""
        if node not in self._spans:
            self._spans[node] = self._span(node)
        return self._spans[node]

    def inlined_at(self, call: Span) -> InlinedCall:
        """A call that the function replaces."""
        first = min([self.tree.lineno, *(each.lineno for each in self.tree.decorator_list)])
        last = self.tree.end_lineno or self.tree.lineno
        offset = self.line_offset
        return InlinedCall(self.name, self.file, first + offset, last + offset, call)

    def changes_parts(self, name: str) -> bool:
        """Whether the function assigns elements or attributes of a variable."""
        return any(changed[0] == name for changed in mentions(self.tree.body).changed)

    def is_read_outside(self, name: str, statements: list[ast.stmt]) -> bool:
        """Whether the function reads a variable anywhere but in these statements."""
        return mentions([self.tree]).uses[name] > mentions(statements).uses[name]

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


_sources = FoundByCode[FunctionSource]()


def find_source(function: types.FunctionType) -> FunctionSource:
    """The source of a function as it stands in its file, or in `linecache` for a notebook cell.

    A function without a source is a user error.
    """
    return _sources.get(function, _find)


def provide(function: types.FunctionType, text: FunctionSource) -> None:
    """Give a function that was made of another one its tree."""
    _sources.put(function, text)


def _find(function: types.FunctionType) -> FunctionSource:
    code = function.__code__
    text = source_text(function)
    if not text:
        raise NoSource(code.co_name).at(None if text is None else _first_line(code))
    if code.co_name == "<lambda>":
        return _of_lambda(function)
    try:
        return _parse(code, file_of(code), text)
    except OctantsError:  # some are syntax errors, too
        raise
    except SyntaxError:
        raise NoSource(code.co_name).at(_first_line(code)) from None


def _of_lambda(function: types.FunctionType) -> FunctionSource:
    """A lambda as a function that returns its expression."""
    node, code = lambda_of(function), function.__code__
    assert node is not None
    mangle_private_names(node, code)
    result = ast.copy_location(ast.Return(node.body), node.body)
    tree = ast.FunctionDef("a lambda", node.args, [result], [], None, None)
    ast.copy_location(tree, node)
    lines = linecache.getlines(file_of(code), function.__globals__)
    names = frozenset(arg.arg for arg in parameters(tree)) | set(assigned_names(tree.body))
    return FunctionSource("a lambda", file_of(code), tree, 0, names, lines)


@functools.lru_cache(maxsize=512)
def _parse(code: types.CodeType, file: str, text: str) -> FunctionSource:
    indented = text[:1].isspace()
    tree = ast.parse("if True:\n" + text if indented else text)
    found = next((node for node in ast.walk(tree) if isinstance(node, FunctionDef)), None)
    if isinstance(found, ast.AsyncFunctionDef):
        problem = UnsupportedSyntax("`async def`", "use `def`: kernels are not coroutines")
        raise problem.at(_first_line(code))
    if found is not None:
        mangle_private_names(found, code)
    if found is None or not _is_of(code, found):
        raise NoSource(code.co_name).at(_first_line(code))
    match_statements.rewrite(found)
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


def _first_line(code: types.CodeType) -> Span:
    return Span(file_of(code), code.co_firstlineno, function=code.co_name)


def parameters(tree: FunctionDef) -> list[ast.arg]:
    """The parameters of a function, positional ones first."""
    return [*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs]


def assigned_names(statements: list[ast.stmt]) -> list[str]:
    """The names that statements assign, in order, each once."""
    return list(mentions(statements).assigned)


def target_names(loop: ast.For | ast.While) -> list[str]:
    """The names of a loop's indices."""
    return assigned_names([ast.Expr(loop.target)]) if isinstance(loop, ast.For) else []


def changed_parts(statements: list[ast.stmt]) -> dict[str, list[tuple[str, ...]]]:
    """The names that statements assign, in whole or in part: the attributes that lead to a part."""
    found = mentions(statements)
    parts: dict[str, list[tuple[str, ...]]] = {name: [()] for name in found.assigned}
    for name, *attributes in found.changed:
        parts.setdefault(name, []).append(tuple(attributes))
    return parts


def read_names(statements: list[ast.stmt]) -> frozenset[str]:
    """The names whose values statements read; what an atomic operation changes is not read."""
    return frozenset(mentions(statements).read)


def returns(statements: list[ast.stmt]) -> bool:
    """Whether there is a ``return`` in statements, nested functions aside."""
    return mentions(statements).returns


def can_be_left(loop: ast.For | ast.While) -> bool:
    """Whether something in the body of a loop leaves it."""
    return leaves_loop(loop.body, ast.Break) or returns(loop.body)


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
