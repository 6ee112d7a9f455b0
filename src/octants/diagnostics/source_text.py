"""The text of a function, as it stands in its file, or in `linecache` for a notebook cell."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import tokenize
import weakref
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import TYPE_CHECKING, Generic, TypeVar

from octants.deferred_import import Deferred
from octants.diagnostics import changed_files
from octants.diagnostics.user_frames import WITHOUT_FILE

if TYPE_CHECKING:
    from octants.diagnostics import source_without_file
else:
    source_without_file = Deferred("octants.diagnostics.source_without_file")

_Found = TypeVar("_Found")


class FoundByCode(Generic[_Found]):
    """Results found for functions; each holds as long as its function has the same code.

    Notebooks that load modules again may give a function another code.
    """

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[FunctionType, tuple[CodeType, _Found]] = (
            weakref.WeakKeyDictionary()
        )

    def get(self, function: FunctionType, find: Callable[[FunctionType], _Found]) -> _Found:
        """The known result for a function, or else the one that ``find`` returns."""
        known = self._known.get(function)
        if known is not None and known[0] is function.__code__:
            return known[1]
        found = find(function)
        self.put(function, found)
        return found

    def put(self, function: FunctionType, found: _Found) -> None:
        """Make a result known for a function."""
        self._known[function] = function.__code__, found


_texts = FoundByCode[str | None]()


def source_text(function: FunctionType) -> str | None:
    """The lines from the decorators to the end of the body, "" where they are unknown.

    Of a lambda it is the expression. None where there are no lines. A function keeps the text that
    it was first found to have, since everything derived from it must agree.
    """
    return _texts.get(function, _find)


def search_text(function: FunctionType, frame: FrameType | None) -> None:
    """Search the text of a function of `exec` or the prompt while a frame defines it."""
    source_without_file.search(function.__code__, frame)


def file_of(code: CodeType) -> str:
    """The file name of a code; that of `linecache` for a program that is in no file."""
    return (
        source_without_file.file_of(code) if code.co_filename in WITHOUT_FILE else code.co_filename
    )


def derive_text(part: FunctionType, whole: FunctionType, name: str) -> None:
    """Give a function that is made of another one a text of its own, by which caches know it."""
    text = source_text(whole)
    _texts.put(part, None if text is None else f"{text}\n# {name}")


def _find(function: FunctionType) -> str | None:
    lines = _lines(function)
    code = changed_files.present_code(function.__code__, lines)
    if code is None:
        return ""
    if not 0 < code.co_firstlineno <= len(lines):
        return None
    if code.co_name == "<lambda>":
        found = lambda_of(function)
        return "" if found is None else ast.get_source_segment("".join(lines), found)
    if not lines[code.co_firstlineno - 1].lstrip().startswith(_BEGINNINGS):
        return _text_by_name(code, lines)
    end = _end_by_positions(code, lines)
    if end is not None:
        return "".join(lines[code.co_firstlineno - 1 : end])
    try:
        return "".join(inspect.getblock(lines[code.co_firstlineno - 1 :]))
    except (SyntaxError, tokenize.TokenError):
        return ""


_BEGINNINGS = ("@", "def ", "async ")


def _text_by_name(code: CodeType, lines: list[str]) -> str | None:
    """The text of the only function of this name and these parameters in a file.

    IPython's autoreload compiles a function of a module without its line numbers.
    """
    named = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    try:
        nodes = [*ast.walk(ast.parse("".join(lines)))]
    except SyntaxError:
        return None
    found = [
        node
        for node in nodes
        if isinstance(node, ast.FunctionDef)
        and node.name == code.co_name
        and tuple(each.arg for each in [*node.args.args, *node.args.kwonlyargs]) == named
    ]
    if len(found) != 1:
        return None
    first = min([found[0].lineno, *(each.lineno for each in found[0].decorator_list)])
    return "".join(lines[first - 1 : found[0].end_lineno])


def _end_by_positions(code: CodeType, lines: list[str]) -> int | None:
    """The number of the last line of a function, from the positions in its code.

    Tokens need not be read for that, which takes long. None where something may follow that has
    left no code, such as a closing bracket, or statements that are never reached.
    """
    end = _last_position(code)
    first = lines[code.co_firstlineno - 1]
    margin = first[: len(first) - len(first.lstrip())]
    is_decorator = end == code.co_firstlineno and first.lstrip().startswith("@")
    if end == 0 or is_decorator or "\t" in margin:  # a docstring has no code
        return None
    for line in lines[end:]:
        text = line.lstrip()
        if text and not text.startswith("#"):
            is_behind = len(line) - len(text) <= len(margin) and text[0] not in ")]}"
            return end if is_behind and "\t" not in line[: len(line) - len(text)] else None
    return end


def _last_position(code: CodeType) -> int:
    """The largest line number in a code and the codes in it; 0 where positions are not kept."""
    positions = getattr(code, "co_positions", tuple)  # Python 3.10 has none
    ends = [end or 0 for _, end, _, _ in positions()]
    inner = [_last_position(value) for value in code.co_consts if isinstance(value, CodeType)]
    return max([0, *ends, *inner])


def _lines(function: FunctionType) -> list[str]:
    code = function.__code__
    if code.co_filename in WITHOUT_FILE:
        return source_without_file.lines_of(code)
    linecache.checkcache(code.co_filename)
    return linecache.getlines(code.co_filename, function.__globals__)


# -- lambdas ---------------------------------------------------------------------------------------


def lambda_of(function: FunctionType) -> ast.Lambda | None:
    """The lambda that a function was made of, with the lines of its file; None if unknown."""
    lines = _lines(function)
    code = changed_files.present_code(function.__code__, lines)
    return None if code is None else _lambda_of(code, "".join(lines))


@functools.lru_cache(maxsize=512)
def _lambda_of(code: CodeType, text: str) -> ast.Lambda | None:
    found = [node for node in _lambdas(text) if _can_be(code, node)]
    if found and _positions(code):
        return found[-1]  # of lambdas that hold each other the innermost
    return found[0] if len({ast.dump(node) for node in found}) == 1 else None


@functools.lru_cache(maxsize=64)
def _lambdas(text: str) -> list[ast.Lambda]:
    try:
        tree = ast.parse(text)
    except SyntaxError:  # a cell of a notebook with commands in it
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]


def _can_be(code: CodeType, node: ast.Lambda) -> bool:
    """Whether a code object can be that of a lambda, by its position and its parameters."""
    names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    count = code.co_argcount + code.co_kwonlyargcount
    if node.lineno != code.co_firstlineno or list(code.co_varnames[:count]) != names:
        return False
    first, last = (node.body.lineno, node.body.col_offset), _end(node.body)
    return all(first <= start and end <= last for start, end in _positions(code))


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or 0, node.end_col_offset or 0


def _positions(code: CodeType) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """The positions of instructions in the source, where Python keeps them (from 3.11 on)."""
    if not hasattr(code, "co_positions"):
        return []
    return [
        ((line, column), (end_line, end_column))
        for line, end_line, column, end_column in code.co_positions()
        if line and end_line and column is not None and end_column is not None and end_column
    ]
