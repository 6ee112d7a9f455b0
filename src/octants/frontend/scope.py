"""Functions, loops and stretches of code while they are being built, and what names mean there."""

from __future__ import annotations

import ast
import builtins
import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from octants.diagnostics.span import Span
from octants.frontend.syntax import source
from octants.frontend.syntax.source import FunctionSource
from octants.frontend.values import flattening
from octants.frontend.values.expression_values import (
    StructValue,
    Variable,
    VariableReference,
    is_view,
)
from octants.ir.core import Block
from octants.lazy_dataclass import dataclass
from octants.types.scalars import u1

UNDEFINED = object()
"""The value of a hidden variable before its first assignment."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Why a name that was assigned has no value: "branch", "types", "loop", "index"; and where."""

    reason: str
    span: Span | None


@dataclass(eq=False)
class LoopExits:
    """The loop around the current statement; its flags exist only if something can set them."""

    broken: Variable | None = None
    continued: Variable | None = None
    is_parallel: bool = False


@dataclass(eq=False)
class FunctionScope:
    """A function that is being inlined, or the kernel itself.

    `key` tells this copy from the others of the kernel, the same in repeated builds.
    """

    source: FunctionSource
    function: types.FunctionType
    key: tuple[Any, ...] = ()
    is_kernel: bool = False
    call: ast.AST | None = None
    """The call that this body replaces, in the function around it."""
    variables: dict[str, Variable] = field(default_factory=dict)
    lost: dict[str, Lost] = field(default_factory=dict)
    loops: list[LoopExits] = field(default_factory=list)
    loop_options: dict[str, Any] = field(default_factory=dict)
    returns_nothing: bool = False  # some `return` gives no value
    returns: Any = None  # the annotation of what a function returns
    returned: Variable = field(init=False)
    result: Variable = field(init=False)

    def __post_init__(self) -> None:
        self.returned = Variable("$returned", False, (self.key, "$returned"), u1)
        self.result = Variable("$result", UNDEFINED, (self.key, "$result"))

    def exit_flags(self) -> list[Variable]:
        """The flags that, if one is set, skip the rest of the current statements."""
        flags = [self.returned]
        if self.loops:
            loop = self.loops[-1]
            flags.extend(flag for flag in (loop.broken, loop.continued) if flag is not None)
        return flags

    def closure(self) -> dict[str, types.CellType]:
        """The cells of the function's free variables."""
        names = self.function.__code__.co_freevars
        return dict(zip(names, self.function.__closure__ or (), strict=True))

    def python_name(self, name: str) -> Any:
        """The Python object that a name means here, or `UNDEFINED`."""
        cell = self.closure().get(name)
        if cell is not None:
            return _contents(cell)
        if name in self.function.__globals__:
            return self.function.__globals__[name]
        return getattr(builtins, name, UNDEFINED)

    def known_names(self) -> list[str]:
        """The names that mean something here, for suggestions."""
        names = [*self.variables, *self.function.__code__.co_freevars]
        return [*names, *self.function.__globals__, *dir(builtins)]


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return UNDEFINED


@dataclass(eq=False)
class VariableRegion:
    """A block built separately, and what it did to variables, ready to be joined.

    `changed` has the values at its end of the variables that existed before it, `new` the variables
    that it made, `removed` the names that have no value any more. `completes` says whether its end
    can be reached.
    """

    block: Block
    changed: dict[Variable, Any] = field(default_factory=dict)
    new: dict[str, Variable] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    completes: bool = True


@dataclass(eq=False)
class Plan:
    """The findings of earlier builds of a loop.

    `changed` has variables, by key, which the loop changes although its syntax does not show it,
    and a value of the type that they must have. `is_serial`: iterations of a parallel loop depend
    on each other. `is_rotated`: the condition of a ``while`` has effects.
    """

    changed: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    is_serial: bool = False
    is_rotated: bool = False


def _is_local(variable: Variable, attributes: tuple[str, ...]) -> bool:
    """Whether a part of a variable holds numbers of its own, and is not in an array.

    A variable that refers to another one, as a parameter of `template` does, is looked up there.
    """
    held = variable.value
    if isinstance(held, VariableReference):
        leading = [step for step in held.path if isinstance(step, str)]
        is_component = len(leading) < len(held.path)
        return is_component or _is_local(held.variable, (*leading, *attributes))
    if variable.in_memory:
        return True
    for name in attributes:
        if isinstance(held, StructValue):
            held = held.members.get(name)
    return not is_view(held) and bool(flattening.leaves(held))


class Scopes:
    """The stack of frames, and a journal of assignments for each region that is being built."""

    def __init__(self) -> None:
        self.frames: list[FunctionScope] = []
        self.hidden: list[Variable] = []
        self.plans: dict[tuple[Any, ...], Plan] = {}
        self.iterations: list[int] = []
        self._journals: list[dict[Variable, Any]] = [{}]
        self._created: list[set[Variable]] = [set()]

    @property
    def frame(self) -> FunctionScope:
        return self.frames[-1]

    def assign(self, variable: Variable, value: Any) -> None:
        """Give a variable a value that fits it."""
        self._journals[-1].setdefault(variable, variable.value)
        variable.value = value

    def declare(self, name: str, value: Any) -> Variable:
        """Make a variable of the current function."""
        variable = Variable(name, value, (self.frame.key, name))
        self.frame.variables[name] = variable
        self.frame.lost.pop(name, None)
        self._created[-1].add(variable)
        return variable

    def changed_by(self, statements: list[ast.stmt]) -> dict[str, Variable]:
        """The variables of the function that statements assign, in whole or in part.

        A variable may be a struct of arrays and numbers: its arrays' elements are no parts of it.
        """
        assigned = source.assigned_names(statements)
        return {
            name: self.frame.variables[name]
            for name, parts in source.changed_parts(statements).items()
            if name in self.frame.variables
            and (name in assigned or any(_is_local(self.frame.variables[name], p) for p in parts))
        }

    def is_claimed(self, variable: Variable) -> bool:
        """Whether the region that is being built made this variable."""
        return variable in self._created[-1]

    def claim(self, *variables: Variable) -> None:
        """Make hidden variables belong to the region that is being built."""
        self._created[-1].update(variables)

    def lose(self, names: Iterable[str], reason: str, span: Span | None) -> None:
        """Take names their values, and remember why."""
        for name in names:
            self.frame.variables.pop(name, None)
            self.frame.lost[name] = Lost(reason, span)

    def lose_past_indices(self, loop: ast.stmt, span: Span | None) -> None:
        """Free the names of ended unrolled loops that a loop assigns, for its own variables."""
        assigned = self.changed_by([loop])
        self.lose([name for name, v in assigned.items() if v.is_past_index], "index", span)

    def plan(self, node: ast.AST) -> Plan:
        """The plan of a loop of the current function."""
        key = (self.frame.key, node, tuple(self.iterations))
        return self.plans.setdefault(key, Plan())

    def find(self, key: tuple[Any, ...]) -> Variable | None:
        """The variable of a key, if it exists now."""
        for variable in self.hidden:
            if variable.key == key:
                return variable
        for frame in self.frames:
            for variable in (frame.returned, frame.result, *frame.variables.values()):
                if variable.key == key:
                    return variable
        return None

    @contextmanager
    def entered(self, frame: FunctionScope) -> Iterator[FunctionScope]:
        """Build a function: its variables are its own."""
        self.frames.append(frame)
        self.claim(frame.returned, frame.result)
        try:
            yield frame
        finally:
            self.frames.pop()

    @contextmanager
    def within(self, frame: FunctionScope) -> Iterator[None]:
        """Build an expression of another function; variables that it makes are gone afterwards."""
        self.frames.append(frame)
        names = frame.variables
        frame.variables = dict(names)
        try:
            yield
        finally:
            frame.variables = names
            self.frames.pop()

    @contextmanager
    def recorded(self, region: VariableRegion) -> Iterator[VariableRegion]:
        """Collect in ``region`` what happens to variables, and undo it; again to go on with it."""
        frame, names = self.frame, dict(self.frame.variables)
        self._journals.append({})
        self._created.append(set(region.new.values()))
        frame.variables.update(region.new)
        for name in region.removed:
            frame.variables.pop(name, None)
        for variable, value in region.changed.items():
            self.assign(variable, value)
        try:
            yield region
        finally:
            journal, created = self._journals.pop(), self._created.pop()
            region.changed = {v: v.value for v in journal if v not in created}
            region.new = {
                name: v for name, v in frame.variables.items() if names.get(name) is not v
            }
            region.removed = [name for name in names if name not in frame.variables]
            for variable, value in journal.items():
                if variable not in created:
                    variable.value = value
            frame.variables = names
