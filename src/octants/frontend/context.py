"""What every part of the frontend shares while a kernel is built.

How the parts call each other (the core is statements, expressions, calls, loops, ...; the library
is arithmetic, matrices, builtins):

- ``arithmetic.binary(context, operator, lhs, rhs)``, ``arithmetic.unary(context, operator, x)`` and
  ``arithmetic.compare(context, operator, lhs, rhs)`` with Python's symbols ("+", "**", "@", "not",
  "<="); at least one operand is a run-time value, the others are run-time values or numbers.
- ``arithmetic.cast(context, value, dtype)`` for numbers, scalars, vectors and matrices;
  ``arithmetic.truth(context, value)`` gives the u1 of a condition.
- ``matrices.attribute(context, node, value, name)`` for ``v.x``, ``m.n`` and the like, and
  ``matrices.method(context, node, value, name, args, kwargs)``; both give NOT_FOUND for no such name.
- ``builtins.BUILTINS[function](context, node, args, kwargs)``; the keys are the functions of
  `octants.lang`, types among them, and Python's own (``abs``, ``min``, ``float``). Arguments are
  loaded values, or numbers. For a function in ``builtins.TAKES_PLACE`` the first argument is a
  `Place` instead: use `Context.load`, `Context.store`, `Context.atomic` on it.
"""

from __future__ import annotations

import ast
from typing import Any, NoReturn

from octants.diagnostics.errors import UserError
from octants.diagnostics.render import Label
from octants.diagnostics.span import Span
from octants.frontend.values import (
    ElementReference,
    MatrixValue,
    is_number,
)
from octants.ir.builder import Builder
from octants.ir.core import Value
from octants.types.scalars import DType, i32, u1

NOT_FOUND = object()
"""What a lookup of the library gives where there is no such name."""


class Context:
    """The state of one build. `builder.location` is always the span of the current line."""

    def __init__(
        self, default_int: DType, default_float: DType, debug: bool = False
    ) -> None:
        self.builder = Builder()
        self.default_int = default_int
        self.default_float = default_float
        self.debug = debug

    # -- errors ---------------------------------------------------------------------------------

    def fail(
        self,
        error: UserError | type[UserError],
        node: ast.AST | None = None,
        *labels: Label,
    ) -> NoReturn:
        """Raise a user error at ``node``, or at the current place; labels point to other places."""
        problem = error if isinstance(error, UserError) else error()
        raise problem.at(self.span(node), *labels) from None

    def span(self, node: ast.AST | None = None) -> Span | None:
        """Where ``node`` stands in the user's file; the current place without one."""
        raise NotImplementedError

    # -- values ---------------------------------------------------------------------------------

    def constant(self, number: Any, dtype: DType | None = None) -> Value:
        """A number as a run-time value: of ``dtype``, or of the default type of its sort."""
        return self.builder.constant(number, dtype or self.type_of_number(number))

    def type_of_number(self, number: Any) -> DType:
        """The type that a compile-time number takes where nothing else decides."""
        raise NotImplementedError

    def value(self, x: Any) -> Any:
        """A run-time value for anything that has one: numbers, sequences of numbers, references."""
        raise NotImplementedError

    def load(self, place: Any) -> Any:
        """The value that a place holds now; anything that is not a place is given back."""
        raise NotImplementedError

    def store(self, place: Any, value: Any, node: ast.AST | None = None) -> None:
        """Store into a place, converted to its type; a scalar fills a vector or matrix."""
        raise NotImplementedError

    def atomic(self, fn: str, place: Any, value: Any, node: ast.AST | None = None) -> Any:
        """``fn`` of `ops.memory.ATOMIC` on a place, component by component; gives the old value."""
        raise NotImplementedError

    def random(self, dtype: DType) -> Value:
        """The next uniform draw of the work item."""
        raise NotImplementedError
