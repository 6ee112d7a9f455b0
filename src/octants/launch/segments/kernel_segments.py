"""Cuts a kernel into segments, between which the host decides what runs next.

The host decides at ``while graph.do_while(counter):`` and ``with checkpoint(label, flag):`` that
stand at the top level of a kernel, or directly in one another or in ``if static(...):``::

    before                                      segment 1
    while graph.do_while(counter):              Repeat counter
        body                          -->           segment 2
        with checkpoint(0, flag):                   Pause 0, flag
            part                                        segment 3
    after                                       segment 4

A segment is a kernel of its own, with the parameters of the whole. A loop is not cut if
something leaves it, or if its body has no loop and calls nothing. Where a segment needs
variables of another one, other than extents and constants, the kernel cannot be cut.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, NoReturn

from octants.diagnostics.graph_errors import WrongCheckpoint
from octants.diagnostics.source_text import derive_text
from octants.diagnostics.span import Span
from octants.frontend.syntax import source
from octants.frontend.syntax.names_in_source import mentions
from octants.frontend.syntax.source import FunctionSource
from octants.lang import directives
from octants.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Segment:
    """Statements of a kernel as a function with its parameters."""

    function: FunctionType


@dataclass(frozen=True, slots=True)
class Repeat:
    """A loop: the expression of its counter, and its body."""

    counter: CodeType
    steps: tuple[Step, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Pause:
    """A checkpoint: its label, the expression of its flag, and what comes before the pause."""

    label: int
    flag: CodeType
    steps: tuple[Step, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Choice:
    """An ``if static(...)`` around loops or checkpoints: its condition and its branches."""

    condition: CodeType
    then: tuple[Step, ...]
    orelse: tuple[Step, ...]


Step = Segment | Repeat | Pause | Choice


@dataclass(frozen=True, slots=True)
class CrossingVariable(Exception):
    """The kernel cannot be cut: a segment needs a variable of another one."""

    name: str
    span: Span


def cut(function: FunctionType, *, checkpoints: bool) -> tuple[Step, ...]:
    """The steps of a kernel, in order; none if there is nothing to cut at.

    Args:
        function: the kernel's function.
        checkpoints: whether to cut at checkpoints, too.

    Raises:
        CrossingVariable: The kernel cannot be cut.
        OctantsSyntaxError: A checkpoint is wrong.
    """
    cutter = _Cutter(function, source.find_source(function), checkpoints=checkpoints)
    body = cutter.text.tree.body
    if source.returns(body) or not any(map(cutter.is_control, body)):
        return ()
    return tuple(cutter.steps(body))


def free_names(function: FunctionType) -> dict[str, Any]:
    """The closure variables of a function that have values."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - it raises where there is nothing yet
    except ValueError:
        return False
    return True


class _Cutter:
    """Cuts a kernel into segments."""

    def __init__(self, function: FunctionType, text: FunctionSource, *, checkpoints: bool) -> None:
        self.function = function
        self.text = text
        self.names = {**function.__globals__, **free_names(function)}
        self.cuts_checkpoints = checkpoints
        self.assigned = set(source.assigned_names(text.tree.body))
        self.constants: dict[str, ast.stmt] = {}
        self.once = _assigned_once(text.tree)
        self.labels: set[int] = set()
        self.count = 0

    def steps(self, statements: list[ast.stmt], *, is_certain: bool = True) -> list[Step]:
        """The steps of statements; ``is_certain`` says that they run before those that follow."""
        steps: list[Step] = []
        pending: list[ast.stmt] = []
        for statement in statements:
            name = _constant_name(statement)
            if is_certain and name in self.once:
                self.constants[name] = statement
            if not self.is_control(statement):
                pending.append(statement)
                continue
            steps += self._segment(pending)
            steps.append(self._control(statement))
            pending = []
        return [*steps, *self._segment(pending)]

    def is_control(self, statement: ast.stmt) -> bool:
        """Whether the host decides something at a statement."""
        if isinstance(statement, ast.While):
            return self._counter(statement) is not None and self._is_parallel(statement)
        if isinstance(statement, ast.With):
            return (
                self.cuts_checkpoints and self._call(statement, directives.checkpoint) is not None
            )
        if not isinstance(statement, ast.If) or self._call(statement, directives.static) is None:
            return False
        return any(map(self.is_control, [*statement.body, *statement.orelse]))

    def _control(self, statement: ast.stmt) -> Step:
        if isinstance(statement, ast.While):
            counter = self._counter(statement)
            assert counter is not None
            steps = tuple(self.steps(statement.body))
            return Repeat(self._code(counter), steps, self.text.span(statement))
        if isinstance(statement, ast.With):
            return self._pause(statement)
        assert isinstance(statement, ast.If)
        branches = (statement.body, statement.orelse)
        then, orelse = (tuple(self.steps(each, is_certain=False)) for each in branches)
        return Choice(self._code(statement.test), then, orelse)

    # -- loops ----------------------------------------------------------------------------------

    def _counter(self, loop: ast.While) -> ast.expr | None:
        """The counter of ``while graph.do_while(counter)``; None for other loops."""
        call = self._call(loop, directives.do_while)
        given = [] if call is None else [*call.args, *(each.value for each in call.keywords)]
        return given[0] if len(given) == 1 else None

    def _is_parallel(self, loop: ast.While) -> bool:
        """Whether the body has something for segments, and nothing leaves it."""
        leaves = (source.leaves_loop(loop.body, kind) for kind in (ast.Break, ast.Continue))
        return not loop.orelse and not any(leaves) and any(map(self._has_loops, loop.body))

    def _has_loops(self, statement: ast.stmt) -> bool:
        if isinstance(statement, (ast.If, ast.With)):
            inner = [*statement.body, *getattr(statement, "orelse", ())]
            return self.is_control(statement) or any(map(self._has_loops, inner))
        is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
        return is_call or isinstance(statement, ast.For) or self.is_control(statement)

    # -- checkpoints ----------------------------------------------------------------------------

    def _pause(self, statement: ast.With) -> Pause:
        call = self._call(statement, directives.checkpoint)
        assert call is not None
        named = {each.arg: each.value for each in call.keywords}
        given = dict(zip(("cp_id", "yield_on"), call.args, strict=False)) | named
        if set(given) != {"cp_id", "yield_on"} or statement.items[0].optional_vars:
            self._fail("takes a label and `yield_on=`, and gives nothing", statement)
        label = self._label(given["cp_id"], statement)
        if any(map(self.is_control, statement.body)):
            self._fail("contains another checkpoint, or `graph.do_while`", statement)
        steps = tuple(self.steps(statement.body))
        return Pause(label, self._code(given["yield_on"]), steps, self.text.span(statement))

    def _label(self, node: ast.expr, statement: ast.With) -> int:
        try:
            label = self._evaluate(node)
        except Exception:
            label = None
        if not isinstance(label, int) or isinstance(label, bool):
            self._fail("has a label that is not an integer constant", statement)
        if label in self.labels:
            self._fail(f"has the label {label}, which another checkpoint has, too", statement)
        self.labels.add(label)
        return label

    def _fail(self, problem: str, node: ast.AST) -> NoReturn:
        raise WrongCheckpoint(problem).at(self.text.span(node))

    # -- segments -------------------------------------------------------------------------------

    def _segment(self, statements: list[ast.stmt]) -> list[Segment]:
        """A segment of some statements, with the constants that they need of others."""
        said = [each for each in statements if not _is_text(each)]
        if not said:
            return []
        needed: dict[str, None] = {}
        free = _exposed(said, set()) & self.assigned
        for name in free & set(source.assigned_names(said)):
            raise CrossingVariable(name, self.text.span(said[0]))
        self._need(free, needed, said[0])
        body = [*(self.constants[name] for name in needed), *said]
        function, text, tree = self.function, self.text, self.text.tree
        made = _copy_of(function)
        self.count += 1
        derive_text(made, function, f"part {self.count}")
        head = ast.copy_location(ast.FunctionDef(tree.name, tree.args, body, [], None, None), tree)
        names = frozenset(source.assigned_names(body)) | {
            arg.arg for arg in source.parameters(tree)
        }
        part = FunctionSource(text.name, text.file, head, text.line_offset, names, text.lines)
        source.provide(made, part)
        return [Segment(made)]

    def _need(self, names: set[str], needed: dict[str, None], node: ast.stmt) -> None:
        """Add constants after those that they need."""
        for name in sorted(names):
            if name in needed:
                continue
            if name not in self.constants:
                raise CrossingVariable(name, self.text.span(node))
            inner = _exposed([self.constants[name]], set()) & self.assigned
            self._need(inner, needed, node)
            needed[name] = None

    # -- expressions ----------------------------------------------------------------------------

    def _call(self, statement: ast.While | ast.With | ast.If, word: Any) -> ast.Call | None:
        """The call of a word of the language that a statement begins with; None without one."""
        if isinstance(statement, ast.With):
            node = statement.items[0].context_expr if len(statement.items) == 1 else None
        else:
            node = statement.test
        if not isinstance(node, ast.Call) or not _may_name(node.func, word):
            return None
        try:
            return node if self._evaluate(node.func) is word else None
        except Exception:
            return None

    def _evaluate(self, node: ast.expr) -> Any:
        return eval(self._code(node), self.names)

    def _code(self, node: ast.expr) -> CodeType:
        expression = ast.fix_missing_locations(ast.Expression(node))
        return compile(expression, self.text.file, "eval")


_WORDS: dict[Callable[..., Any], str] = {
    directives.do_while: "do_while",
    directives.checkpoint: "checkpoint",
    directives.static: "static",
}


def _may_name(node: ast.expr, word: Any) -> bool:
    """Whether an expression ends in the name of a word, possibly after ``graph_``."""
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return bool(name) and name.removeprefix("graph_") == _WORDS[word]


def _assigned_once(tree: ast.FunctionDef) -> set[str]:
    """The names that one simple statement assigns, and no loop and no parameter."""
    every = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    changing = {name for each in every for name in _targets(each)}
    changing |= {parameter.arg for parameter in source.parameters(tree)}
    simple = [mentions([each]).assigned for each in every if not hasattr(each, "body")]
    names = {name for each in simple for name in each} - changing
    return {name for name in names if sum(name in each for each in simple) == 1}


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _constant_name(statement: ast.stmt) -> str | None:
    """The name of ``name = value`` with a value that is a constant."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target = statement.targets[0]
    return target.id if isinstance(target, ast.Name) and _is_constant(statement.value) else None


def _targets(statement: ast.stmt) -> list[str]:
    return source.target_names(statement) if isinstance(statement, ast.For) else []


def _is_constant(node: ast.expr) -> bool:
    """Whether an expression is made of names, constants and extents alone."""
    if isinstance(node, ast.BinOp):
        return _is_constant(node.left) and _is_constant(node.right)
    if isinstance(node, ast.UnaryOp):
        return _is_constant(node.operand)
    if isinstance(node, ast.Subscript):
        of_shape = isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
        return of_shape and isinstance(node.slice, ast.Constant)
    if isinstance(node, ast.Attribute):
        return _is_constant(node.value)
    return isinstance(node, (ast.Name, ast.Constant))


def _exposed(statements: list[ast.stmt], defined: set[str]) -> set[str]:
    """The names that statements may read before they have assigned them."""
    found: set[str] = set()
    for statement in statements:
        inner = [getattr(statement, name, None) or [] for name in ("body", "orelse")]
        if isinstance(statement, (ast.For, ast.While, ast.If)):
            targets = set(_targets(statement))
            head = statement.iter if isinstance(statement, ast.For) else statement.test
            found |= set(mentions([ast.Expr(head)]).uses) - defined
            for block in inner:
                found |= _exposed(block, defined | targets)
        elif isinstance(statement, ast.With):
            heads = [ast.Expr(item.context_expr) for item in statement.items]
            found |= set(mentions(list[ast.stmt](heads)).uses) - defined
            found |= _exposed(statement.body, defined)
            defined = defined | set(mentions([statement]).assigned)
        else:
            mentioned = mentions([statement])
            found |= set(mentioned.uses) - defined
            defined = defined | set(mentioned.assigned)
    return found


def _copy_of(function: FunctionType) -> FunctionType:
    made = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__annotations__ = function.__annotations__
    made.__module__, made.__qualname__ = function.__module__, function.__qualname__
    return made
