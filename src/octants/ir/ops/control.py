"""Structured control flow. There is no `break`: the frontend has turned it into conditions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octants.ir.core import (
    Block,
    InvalidIR,
    Operation,
    Value,
    attribute,
    operand,
    operands,
    operation,
    region,
)


@operation("yield")
class Yield(Operation):
    """``yield(%0, %1)`` ends every block and hands values to the operation that holds it."""

    is_speculatable = True

    values: list[Value] = operands()


class Loop(Operation):
    """The base of loops: they carry values from one iteration of the body to the next."""

    __slots__ = ()
    inits: list[Value]
    body: Block

    @property
    def carried(self) -> list[Value]:
        """The arguments of the body that are the carried values."""
        args = self.body.args
        return args[len(args) - len(self.inits) :]


@operation("for")
class For(Loop):
    """``%r: f32 = for(%lower, %upper, %init) { (%i: i32, %a: f32): ... yield(%b) }``

    Counts from lower to upper (exclusive) by one; the body's arguments are the counter and the
    carried values, it yields the carried values of the next iteration, and the results are those
    after the last one.
    """

    lower: Value = operand()
    upper: Value = operand()
    inits: list[Value] = operands()
    body: Block = region()

    def trips(self, numbers: Mapping[Value, Any]) -> int | None:
        """The trip count, if both bounds are among the ``numbers``."""
        lower, upper = numbers.get(self.lower), numbers.get(self.upper)
        return None if lower is None or upper is None else max(0, int(upper - lower))

    def verify(self) -> None:
        types = [self.lower.type, *(value.type for value in self.inits)]
        _match("for: bounds", [self.lower.type], [self.upper.type])
        _match("for: arguments", [arg.type for arg in self.body.args], types)
        _match("for: yield", [value.type for value in self.body.yielded], types[1:])
        _match("for: results", [value.type for value in self.results], types[1:])


@operation("while")
class While(Loop):
    """``%r: f32 = while(%init) { (%a: f32): ... yield(%go) } { (%b: f32): ... yield(%c) }``

    The first region decides from the carried values whether another iteration runs and yields a u1;
    the second one is the iteration. The first region has no effects.
    """

    inits: list[Value] = operands()
    condition: Block = region()
    body: Block = region()

    def verify(self) -> None:
        types = [value.type for value in self.inits]
        _match("while: condition arguments", [arg.type for arg in self.condition.args], types)
        _match("while: arguments", [arg.type for arg in self.body.args], types)
        _match("while: yield", [value.type for value in self.body.yielded], types)
        _match("while: results", [value.type for value in self.results], types)
        if len(self.condition.yielded) != 1 or not self.condition.yielded[0].type.is_bool:
            raise InvalidIR("while: the condition yields one u1")


@operation("if")
class If(Operation):
    """``%r: f32 = if(%c) { yield(%0) } { yield(%1) }``"""

    is_speculatable = True

    condition: Value = operand()
    then: Block = region()
    orelse: Block = region()

    def verify(self) -> None:
        types = [value.type for value in self.results]
        if not self.condition.type.is_bool:
            raise InvalidIR("if: the condition is a u1")
        for block in (self.then, self.orelse):
            _match("if: yield", [value.type for value in block.yielded], types)


@operation("parallel_for")
class ParallelFor(Operation):
    """``parallel_for<{}>(%lower, %upper) { (%i: i32): ... yield() }`` in the body of a module only.

    Becomes a `Task` in `passes.tasks.outline_tasks`. `options` are those of `loop_config`.
    """

    has_effects = True

    options: dict[str, Any] = attribute()
    lower: Value = operand()
    upper: Value = operand()
    body: Block = region()

    def verify(self) -> None:
        _match("parallel_for: bounds", [self.lower.type], [self.upper.type])
        _match("parallel_for", [arg.type for arg in self.body.args], [self.lower.type])
        _match("parallel_for: yield", list(self.body.yielded), [])


def _match(what: str, given: list[Any], wanted: list[Any]) -> None:
    if len(given) != len(wanted) or any(a is not b for a, b in zip(given, wanted, strict=True)):
        raise InvalidIR(f"{what}: {given}, wanted {wanted}")
