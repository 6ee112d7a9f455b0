"""The state that all parts of the frontend share while a kernel is built.

How the parts call each other (the core is statements, expressions, calls, loops, ...; the library
is arithmetic, matrices, builtins):

- ``arithmetic.binary(context, operator, lhs, rhs)``, ``arithmetic.unary(context, operator, x)`` and
  ``arithmetic.compare(context, operator, lhs, rhs)`` with Python's symbols ("+", "**", "@", "not",
  "<="); at least one operand is a run-time value, the others are run-time values or numbers.
- ``arithmetic.cast(context, value, dtype)`` for numbers, scalars, vectors and matrices;
  ``arithmetic.truth(context, value)`` gives the u1 of a condition.
- ``matrices.attribute(context, node, value, name)`` for ``v.x``, ``m.n`` and the like, and
  ``matrices.method(context, node, value, name, args, kwargs)``; both give NOT_FOUND where there is
  no such name.
- ``builtins.handler_of(function)(context, node, args, kwargs)`` for the functions of
  `octants.lang`, types among them, and Python's own (``abs``, ``min``, ``float``). Arguments are
  loaded values, or numbers. For a function in ``builtins.TAKES_PLACE`` the first argument is a
  `Reference` instead: use `Context.load`, `Context.store`, `Context.atomic` on it.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from itertools import pairwise
from typing import Any, NoReturn, Protocol

from octants.diagnostics.errors import NumberTooLarge, TooDeep, UserError
from octants.diagnostics.exceptions import InternalError, OctantsError
from octants.diagnostics.render import Diagnostic, Label
from octants.diagnostics.span import InlinedCall, Span
from octants.frontend.compile_time.unspecialised_numbers import HostNumber, HostNumbers
from octants.frontend.control_flow.thread_block_loops import BlockLoop
from octants.frontend.memory.active_cells import ActiveCells
from octants.frontend.memory.kernel_arrays import Arrays
from octants.frontend.memory.stop_gradient import Stops
from octants.frontend.scope import Scopes, VariableRegion
from octants.frontend.values.expression_values import StaticValue, Variable, is_number
from octants.ir.builder import Builder
from octants.ir.core import Block, Value
from octants.lang.library_function_marks import is_library_function
from octants.lazy_dataclass import dataclass
from octants.target import Blocks
from octants.types.compile_time_reads import Read
from octants.types.default_types import uint, unsigned
from octants.types.scalars import DType, holds, i32, i64, u1, u64
from octants.types.specialisation_signature import ArgumentSource, ScalarType

NOT_FOUND = object()
"""The result of a lookup in the library if there is no such name."""

Evaluators = Mapping[type[ast.AST], Callable[..., Any]]


class ReferenceAccess(Protocol):
    """How a context reads and writes: functions of `frontend.memory.references`, built on it."""

    def value(self, context: Any, x: Any, /) -> Any:
        """A run-time value for anything that has one."""

    def load(self, context: Any, reference: Any, /) -> Any:
        """The value of what a reference names."""

    def store(self, context: Any, reference: Any, new: Any, node: ast.AST | None, /) -> None:
        """Store into what a reference names."""

    def atomic(
        self, context: Any, fn: str, reference: Any, new: Any, node: ast.AST | None, /
    ) -> Any:
        """Change the value of a reference atomically; gives the value before."""


@dataclass(frozen=True)
class Handlers:
    """The functions of other files that a context calls; those files import this one.

    `expressions` and `statements` map nodes of the syntax tree to the functions that build them,
    `build` builds several statements, and `after_write` activates cells of sparse fields.
    """

    references: ReferenceAccess
    expressions: Evaluators = field(default_factory=dict)
    statements: Evaluators = field(default_factory=dict)
    build: Callable[..., bool] | None = None
    after_write: Callable[..., None] | None = None


class Context:
    """The state of one build. `builder.location` is always the span of the current expression."""

    def __init__(
        self,
        default_int: DType,
        default_float: DType,
        handlers: Handlers,
        *,
        debug: bool = False,
        blocks: Blocks | None = None,
        numbers: HostNumbers | None = None,
    ) -> None:
        self.builder = Builder()
        self.default_int = default_int
        self.default_float = default_float
        self.debug = debug
        self.scopes = Scopes()
        self.arrays = Arrays(self.builder)
        self.body: Block = self.builder.block
        self.task = 0  # the ordinal number of the parallel loop or serial stretch
        self.item: Value | None = None  # the work item; None in serial code, which has one
        self.blocks = blocks  # what there is for work items that work together
        self.loop: BlockLoop | None = None  # the parallel loop, where there are blocks
        self.statement: ast.stmt | None = None  # the innermost that is being built
        self.iterated: list[tuple[Any, ast.expr]] = []  # by unrolled loops around: in which frame
        self.is_in_static = False  # within the argument of a call of `static`
        self._typed_at: int | None = None  # how many functions are around `evaluate_for_type`
        self._conditions = 0  # how many conditions that are known, but not static, are around
        self.group = 0  # the enclosing block of `stream_parallel`, counted from 1; 0: none
        self._groups = 0
        self.in_region = False  # whether a region of sections is around, and no section
        self._is_section = False  # whether the block around is a section of a region
        self.regions = 0  # how many regions have begun
        self.draw = Variable("$draw", 0, ("$draw",), i32)
        self.scopes.hidden.append(self.draw)
        self.returns: Any = None
        self.stops = Stops()
        self.active = ActiveCells()
        self.calls: dict[InlinedCall, None] = {}  # those that were inlined, each once
        self.warnings: dict[tuple[str, int], Diagnostic] = {}  # one for each line
        self.reads: list[Read] = []
        self.numbers = numbers or HostNumbers()
        self.first_hidden = 0  # the position of the first hidden argument
        self.is_repeatable = True  # whether what is built depends on `reads` and no more
        self.parameters: dict[Any, list[Any]] = {}
        self.recursive: dict[Any, bool] = {}  # by function and owner; see `calls.recursion`
        self.recursion: Any = None  # the recursive functions that are being built
        self._handlers = handlers

    # -- errors ---------------------------------------------------------------------------------

    def fail(
        self,
        error: UserError | type[UserError],
        node: ast.AST | None = None,
        *labels: Label,
    ) -> NoReturn:
        """Raise a user error at ``node``, or at the current position; labels point to others."""
        problem = error if isinstance(error, UserError) else error()
        raise problem.at(self._span_for_users(node), *labels) from None

    def warn(self, problem: UserError, node: ast.AST) -> None:
        """Note what probably does not do what is meant."""
        span = self.span(node)
        if span is not None:
            self.note(problem.diagnostic(span=span))

    def note(self, warning: Diagnostic) -> None:
        """Keep a warning, if it is the first of its line."""
        span = warning.labels[0].span
        self.warnings.setdefault((span.file, span.line), warning)

    def span(self, node: ast.AST | None = None) -> Span | None:
        """Where ``node`` stands in the user's file; the current position without one."""
        if node is None:
            return self.builder.location
        return self.scopes.frame.source.span(node)

    def _span_for_users(self, node: ast.AST | None) -> Span | None:
        """Where ``node`` stands; within a function of the library, the call of it by the user."""
        span = self.span(node)
        for frame, caller in pairwise(reversed(self.scopes.frames)):
            if frame.call is None or not is_library_function(frame.function):
                break
            span = caller.source.span(frame.call)
        return span

    # -- syntax ---------------------------------------------------------------------------------

    def evaluate(self, node: ast.expr) -> Any:
        """The value of an expression; references are loaded."""
        return self.load(self.evaluate_reference(node))

    def evaluate_for_type(self, node: ast.expr) -> Any:
        """The value that an expression would have, for its type; None if it has none.

        Nothing of it is built, and what it does to variables is undone. In functions that it calls
        nothing else is evaluated so, which lets recursion over constants end.
        """
        outer, depth = self._typed_at, len(self.scopes.frames)
        if outer not in (None, depth):
            return None
        self._typed_at, warnings, known = depth, dict(self.warnings), len(self.reads)
        try:
            with self.arrays.tentative_fields(), self.region():
                return self.evaluate(node)
        except OctantsError:  # of a field that was destroyed, perhaps
            self.reads[known:] = [read for read in self.reads[known:] if read.kind != "field"]
            return None
        finally:
            self._typed_at, self.warnings = outer, warnings

    def evaluate_reference(self, node: ast.expr) -> Any:
        """The value of an expression, or a reference if it names an element or a variable."""
        found = self._dispatch(self._handlers.expressions, node)
        return found.value if isinstance(found, StaticValue) else found

    def evaluate_marked(self, node: ast.expr) -> tuple[Any, bool]:
        """The value of an expression, and whether the expression is a call of ``static``."""
        found = self._dispatch(self._handlers.expressions, node)
        if isinstance(found, StaticValue):
            return self.load(found.value), True
        return self.load(found), False

    def execute(self, statement: ast.stmt) -> bool:
        """Build a statement; gives whether what follows it can be reached."""
        completes: bool = self._dispatch(self._handlers.statements, statement)
        return completes

    def build(self, statements: list[ast.stmt]) -> bool:
        """Build statements one after the other; gives whether their end can be reached."""
        assert self._handlers.build is not None
        outer = self.statement
        try:
            return self._handlers.build(self, statements)
        except RecursionError:
            self.fail(TooDeep(self.scopes.frames[0].function.__name__), self.statement)
        finally:
            self.statement = outer

    @contextmanager
    def at(self, node: ast.AST) -> Iterator[None]:
        """Let what is built come from ``node``."""
        outer = self.builder.location
        self.builder.location = self.scopes.frame.source.span(node)
        try:
            yield
        finally:
            self.builder.location = outer

    @contextmanager
    def in_static(self) -> Iterator[None]:
        """Evaluate the argument of a call of ``static``."""
        outer, self.is_in_static = self.is_in_static, True
        try:
            yield
        finally:
            self.is_in_static = outer

    def _dispatch(self, table: Evaluators, node: ast.AST) -> Any:
        handler = table.get(type(node)) or table.get(type(node).__base__ or ast.AST)
        if handler is None:
            raise InternalError(f"no handler for {type(node).__name__}")
        builder = self.builder
        outer, builder.location = builder.location, self.scopes.frames[-1].source.span(node)
        try:
            return handler(self, node)
        finally:
            builder.location = outer

    # -- values ---------------------------------------------------------------------------------

    def constant(self, number: Any, dtype: DType | None = None) -> Value:
        """A number as a run-time value: of ``dtype``, or of the default type of its sort."""
        if isinstance(number, HostNumber):
            return self.hidden(number, dtype or self.type_of_number(number))
        number = number.item() if hasattr(number, "item") else number
        return self.builder.constant(number, dtype or self.type_of_number(number))

    def hidden(self, number: HostNumber, dtype: DType, limits: str = "") -> Value:
        """A number that each launch evaluates, as a run-time value; see `HostNumbers.value`."""
        is_computed = number.operation is not None and dtype in (i32, i64)
        if is_computed or limits:
            self.numbers.demand(number, dtype, limits)
        if is_computed and number.operation is not None:
            fn, *operands = number.operation
            return self.builder.binary(fn, *(self.constant(operand, dtype) for operand in operands))

        def declare(name: str, position: int) -> Any:
            source = ArgumentSource(self.first_hidden + position)
            return self.arrays.argument(ScalarType(dtype), name, source)

        value: Value = self.numbers.value(number, dtype, declare)
        return value

    def read(self, read: Read) -> Any:
        """Note what is read of Python's values; what it stands for."""
        varying = self.numbers.find(read)
        if varying is not None:
            read = dataclasses.replace(read, varies=True)
        self.reads.append(read)
        return read.value if varying is None else varying

    def type_of_number(self, number: Any) -> DType:
        """The type that a compile-time number takes where nothing else decides.

        An integer that the default type cannot hold is an i64, or a u64.
        """
        if isinstance(number, HostNumber):
            if number.kind is bool:
                return u1
            return self.default_float if number.kind is float else self.default_int
        number = number.item() if hasattr(number, "item") else number
        if isinstance(number, bool):
            return u1
        if isinstance(number, float):
            return self.default_float
        for dtype in (self.default_int, i64, u64):
            if holds(dtype, number):
                return dtype
        return self.fail(NumberTooLarge(str(number)))

    def default_type(self, kind: Any) -> DType | None:
        """The type that ``int``, ``float``, ``bool`` or `uint` stands for; None for others."""
        if kind is int:
            return self.default_int
        if kind is float:
            return self.default_float
        if kind is uint:
            return unsigned(self.default_int)
        return u1 if kind is bool else None

    def value(self, x: Any) -> Any:
        """A run-time value for anything that has one: numbers, sequences of numbers, references.

        Anything else is given back as it is.
        """
        return self._handlers.references.value(self, x)

    def load(self, reference: Any) -> Any:
        """The value of what a reference names now; anything else is given back."""
        return self._handlers.references.load(self, reference)

    def store(self, reference: Any, value: Any, node: ast.AST | None = None) -> None:
        """Store into a reference, converted to its type; a scalar fills a vector or matrix."""
        self._handlers.references.store(self, reference, value, node)

    def atomic(self, fn: str, reference: Any, value: Any, node: ast.AST | None = None) -> Any:
        """Apply ``fn`` of `ops.memory.ATOMIC` to a reference atomically; gives the old value."""
        return self._handlers.references.atomic(self, fn, reference, value, node)

    def after_write(self, reference: Any) -> None:
        """Activate the cells of sparse blocks that an element of an array lies in."""
        if self.active.of_array and self._handlers.after_write is not None:
            self._handlers.after_write(self, reference)

    def random(self, dtype: DType) -> Value:
        """The next uniform draw of the work item."""
        draw = self.number_of(self.draw)
        item = self.item if self.item is not None else self.builder.index(0)
        stream = self.builder.random_stream(self.task, item)
        result = self.builder.random(dtype, stream, draw)
        self.scopes.assign(self.draw, self.builder.binary("add", draw, self.builder.index(1)))
        return result

    def number_of(self, variable: Variable) -> Value:
        """The run-time value of a hidden variable."""
        if is_number(variable.value):
            return self.builder.constant(variable.value, variable.dtype or u1)
        value: Value = variable.value
        return value

    def known(self, value: Any) -> Any:
        """A run-time value as the number that it is known to be; anything else as it is."""
        number = self.builder.constant_of(value) if isinstance(value, Value) else None
        return value if number is None else number

    # -- regions --------------------------------------------------------------------------------

    @contextmanager
    def region(self, region: VariableRegion | None = None) -> Iterator[VariableRegion]:
        """Build into a block of its own, or go on with one; variables are as before afterwards."""
        region = region if region is not None else VariableRegion(Block())
        with self.scopes.recorded(region), self.builder.into(region.block):
            yield region

    @contextmanager
    def work_item(self, index: Value, loop: BlockLoop | None = None) -> Iterator[None]:
        """Build the body of a parallel loop."""
        outer = self.item, self.task, self.loop
        self.item, self.task, self.loop = index, self.task + 1, loop
        try:
            yield
        finally:
            self.item, self.task, self.loop = outer

    def end_parallel(self) -> None:
        """Number the serial stretch after a parallel loop."""
        self.task += 2
        self.scopes.assign(self.draw, 0)

    @property
    def is_top_level(self) -> bool:
        """Whether a loop built here would be parallel.

        Nothing is around it but calls of functions and conditions in `static`.
        """
        return self.builder.block is self.body and not self._conditions

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Build loops that may run at the same time as others; see `stream_parallel`."""
        self._groups += 1
        self.group, self._is_section = self._groups, self.in_region
        self.in_region = False
        try:
            yield
        finally:
            self.group, self.in_region = 0, self._is_section

    @property
    def concurrency(self) -> dict[str, Any]:
        """The options of a loop that say which others it may overlap."""
        if not self.group:
            return {}
        region = {"region": self.regions} if self._is_section else {}
        return {"group": self.group, **region}

    @contextmanager
    def sections(self) -> Iterator[None]:
        """Build sections that begin and end together; see `syntax.parallel_context`."""
        self.regions += 1
        self.in_region = True
        try:
            yield
        finally:
            self.in_region = False

    @contextmanager
    def serial(self) -> Iterator[None]:
        """Build the taken branch of an ``if`` with a known condition: loops are serial."""
        self._conditions += 1
        try:
            yield
        finally:
            self._conditions -= 1
