"""Finds the parts of a function's head in its source: name, parameters, annotations."""

from __future__ import annotations

import ast
import inspect
import linecache
import tokenize
from types import CodeType, FunctionType

from octants.diagnostics.source_text import file_of
from octants.diagnostics.span import Span


class Definition:
    """The head of a function in its source; its first line, where the source cannot be read."""

    def __init__(self, function: FunctionType) -> None:
        self._code = function.__code__
        self._lines = linecache.getlines(file_of(self._code), function.__globals__)
        self._tree = _parse(self._code, self._lines)

    @property
    def span(self) -> Span:
        """The line of ``def``, behind the decorators."""
        line, column = 0, 0
        if self._tree is not None:
            line, column = self._tree.lineno, self._tree.col_offset
        code = self._code
        return Span(file_of(code), code.co_firstlineno + line, column, function=code.co_name)

    def parameter(self, name: str) -> Span:
        """A parameter with its annotation."""
        found = None
        if self._tree is not None:
            arguments = self._tree.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            every += [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
            found = next((each for each in every if each.arg == name), None)
        return self._span(found)

    def returned(self) -> Span:
        """The annotation of the returned value."""
        return self._span(None if self._tree is None else self._tree.returns)

    def _span(self, node: ast.arg | ast.expr | None) -> Span:
        if node is None or node.end_lineno is None or node.end_col_offset is None:
            return self.span
        first = self._code.co_firstlineno
        line, end_line = first + node.lineno, first + node.end_lineno
        column = self._column(line, node.col_offset)
        end_column = self._column(end_line, node.end_col_offset)
        code = self._code
        return Span(file_of(code), line, column, end_line, end_column, code.co_name)

    def _column(self, line: int, offset: int) -> int:
        """The column of a character from its offset in bytes."""
        return len(self._lines[line - 1].encode()[:offset].decode(errors="replace"))


def _parse(code: CodeType, lines: list[str]) -> ast.FunctionDef | None:
    """The tree of a function, its lines counted from 0."""
    if not 0 < code.co_firstlineno <= len(lines):
        return None
    try:
        text = "".join(inspect.getblock(lines[code.co_firstlineno - 1 :]))
        indented = text[:1].isspace()
        tree = ast.parse("if True:\n" + text if indented else text)
    except (SyntaxError, tokenize.TokenError):
        return None
    ast.increment_lineno(tree, -2 if indented else -1)
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return next((node for node in functions if node.name == code.co_name), None)
