"""Kernels with ``while graph.do_while(counter):``, whose loops run in parallel in each iteration.

A kernel is cut at such loops, as far as they stand at its top level or directly in one another::

    before                                   launch before
    while graph.do_while(counter):           launch body, and again while the counter is not 0
        body                          -->
    after                                    launch after

The host reads the counter after each iteration. A kernel stays whole, and the body runs in order on
one work item, where variables other than extents and constants cross a cut, where something leaves
the loop, where the body has no loop and calls nothing, within a capture, and in `Kernel.grad`.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

from octants.diagnostics.exceptions import OctantsError
from octants.diagnostics.source_text import derive_text
from octants.frontend import source
from octants.frontend.names_in_source import mentions
from octants.frontend.source import FunctionSource
from octants.lang import syntax
from octants.launch.kernel import Kernel
from octants.lazy_dataclass import dataclass
from octants.runtime import capture

_WORDS = frozenset(("do_while", "graph_do_while"))

Names = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Repeat:
    """A loop: its body, and the expression of its counter."""

    counter: CodeType
    steps: tuple[Any, ...]


Step = Kernel | _Repeat


class RepeatedKernel(Kernel):
    """A kernel that mentions `graph.do_while`."""

    def _launch(self, *arguments: Any) -> Any:
        steps = () if capture.own_capture() is not None else self._steps
        names = self._names(arguments) if steps else {}
        if not steps or not all(_has_counter(step, names) for step in steps):
            return super()._launch(*arguments)
        _run(steps, arguments, names)
        return None

    @functools.cached_property
    def _steps(self) -> tuple[Step, ...]:
        """The parts of the kernel; none if it stays whole."""
        try:
            text = source.find_source(self.function)
        except OctantsError:  # comes again when it is built
            return ()
        return _Cutter(self, text).cut()

    def _names(self, arguments: Sequence[Any]) -> dict[str, Any]:
        """What names of the kernel mean on the host."""
        given = dict(zip(self.signature.names, arguments, strict=True))
        return {**_free_names(self.function), **given}

    def part(self, function: FunctionType) -> Kernel:
        """A part of the kernel as one of its own."""
        return Kernel(function, lambda: self._local_names, wants_graph=self.wants_graph)


def _run(steps: Sequence[Step], arguments: Sequence[Any], names: Names) -> None:
    for step in steps:
        if isinstance(step, Kernel):
            step(*arguments)
            continue
        counter = eval(step.counter, dict(names))
        goes_on = True
        while goes_on:
            _run(step.steps, arguments, names)
            goes_on = bool(counter.item() if hasattr(counter, "item") else counter[None])


def _has_counter(step: Step, names: Names) -> bool:
    """Whether the counters of a loop are arrays of shape (); an error follows where one is not."""
    if isinstance(step, Kernel):
        return True
    try:
        counter = eval(step.counter, dict(names))
    except Exception:
        return False
    is_counter = tuple(getattr(counter, "shape", (0,))) == ()
    return is_counter and all(_has_counter(inner, names) for inner in step.steps)


def _free_names(function: FunctionType) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    closure = {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}
    return {**function.__globals__, **closure}


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - it raises where there is nothing yet
    except ValueError:
        return False
    return True


# -- cutting ---------------------------------------------------------------------------------------


class _Whole(Exception):
    """The kernel stays whole."""


class _Cutter:
    """Cuts a kernel into parts."""

    def __init__(self, kernel: RepeatedKernel, text: FunctionSource) -> None:
        self.kernel = kernel
        self.text = text
        self.names = _free_names(kernel.function)
        self.assigned = set(source.assigned_names(text.tree.body))
        self.constants = self._constants()
        self.count = 0

    def cut(self) -> tuple[Step, ...]:
        """The parts; none if the kernel stays whole."""
        body = self.text.tree.body
        if source.returns(body) or not any(map(self._counter_of, body)):
            return ()
        try:
            return tuple(self._steps(body))
        except _Whole:
            return ()

    def _steps(self, statements: list[ast.stmt]) -> list[Step]:
        steps: list[Step] = []
        pending: list[ast.stmt] = []
        for statement in statements:
            counter = self._counter_of(statement)
            if counter is None:
                pending.append(statement)
                continue
            assert isinstance(statement, ast.While)
            steps += self._part(pending)
            pending = []
            expression = ast.Expression(counter)
            code = compile(ast.fix_missing_locations(expression), self.text.file, "eval")
            steps.append(_Repeat(code, tuple(self._body(statement))))
        return [*steps, *self._part(pending)]

    def _body(self, loop: ast.While) -> list[Step]:
        leaves = (source.leaves_loop(loop.body, kind) for kind in (ast.Break, ast.Continue))
        if loop.orelse or any(leaves) or not any(map(self._has_loops, loop.body)):
            raise _Whole
        return self._steps(loop.body)

    def _has_loops(self, statement: ast.stmt) -> bool:
        if isinstance(statement, ast.If):
            return any(map(self._has_loops, [*statement.body, *statement.orelse]))
        is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
        return is_call or isinstance(statement, ast.For) or self._counter_of(statement) is not None

    def _counter_of(self, statement: ast.stmt) -> ast.expr | None:
        """The counter of ``while graph.do_while(counter)``; None for other statements."""
        test = statement.test if isinstance(statement, ast.While) else None
        if not isinstance(test, ast.Call) or not _ends_in_a_word(test.func):
            return None
        called = compile(ast.Expression(test.func), self.text.file, "eval")
        try:
            is_word = eval(called, dict(self.names)) is syntax.do_while
        except Exception:
            return None
        given = [*test.args, *(keyword.value for keyword in test.keywords)]
        return given[0] if is_word and len(given) == 1 else None

    def _part(self, statements: list[ast.stmt]) -> list[Kernel]:
        """A kernel of some statements, with the constants that they need of others."""
        said = [each for each in statements if not _is_text(each)]
        if not said:
            return []
        needed: dict[str, None] = {}
        free = _exposed(said, set()) & self.assigned
        if not free.isdisjoint(source.assigned_names(said)):
            raise _Whole
        self._need(free, needed)
        body = [*(self.constants[name] for name in needed), *said]
        function, text, tree = self.kernel.function, self.text, self.text.tree
        made = _copy_of(function)
        self.count += 1
        derive_text(made, function, f"part {self.count}")
        head = ast.copy_location(ast.FunctionDef(tree.name, tree.args, body, [], None, None), tree)
        names = frozenset(source.assigned_names(body)) | {
            arg.arg for arg in source.parameters(tree)
        }
        part = FunctionSource(text.name, text.file, head, text.line_offset, names, text.lines)
        source.provide(made, part)
        return [self.kernel.part(made)]

    def _need(self, names: set[str], needed: dict[str, None]) -> None:
        """Add constants after those that they need."""
        for name in sorted(names):
            if name in needed:
                continue
            if name not in self.constants:
                raise _Whole
            self._need(_exposed([self.constants[name]], set()) & self.assigned, needed)
            needed[name] = None

    def _constants(self) -> dict[str, ast.stmt]:
        """The assignments before the first loop of names that nothing else assigns, if they have
        the same values wherever they are repeated.
        """
        every = [node for node in ast.walk(self.text.tree) if isinstance(node, ast.stmt)]
        changing = {name for each in every for name in _targets(each)}
        changing |= {parameter.arg for parameter in source.parameters(self.text.tree)}
        simple = [mentions([each]).assigned for each in every if not hasattr(each, "body")]
        found: dict[str, ast.stmt] = {}
        for statement in self.text.tree.body:
            if self._counter_of(statement) is not None:
                break
            name = _constant_name(statement)
            if name and name not in changing and sum(name in names for names in simple) == 1:
                found[name] = statement
        return found


def _ends_in_a_word(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name in _WORDS


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
