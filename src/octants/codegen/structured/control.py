"""Structured control flow. What goes from one block to another goes through variables."""

from __future__ import annotations

from collections.abc import Sequence

from octants.codegen.structured import records
from octants.codegen.structured.body import Body
from octants.codegen.structured.code import Operand, Variable
from octants.ir import ops
from octants.ir.core import Block, Value


def for_(body: Body, op: ops.For) -> None:
    """The counter is a variable as well."""
    code, dtype = body.code, op.lower.type
    records.reserve(body, op)
    counter = body.variable(op.body.args[0], op.lower)
    carried = _variables(body, op.body.args[1:], op.inits)
    upper = body.use(op.upper)

    def turn() -> None:
        number = code.read(counter)
        body.bind(op.body.args[0], number)
        _run(body, op.body, op.body.args[1:], carried)
        code.write(counter, code.apply("add", dtype, number, body.number(1, dtype)))

    code.loop(lambda: code.compare("lt", dtype, code.read(counter), upper), turn)
    _bind_all(body, op.results, carried)


def while_(body: Body, op: ops.While) -> None:
    """The condition is computed at the start of each turn."""
    carried = _variables(body, op.body.args, op.inits)

    def test() -> Operand:
        _bind_all(body, op.condition.args, carried)
        return body.block(op.condition)[0]

    body.code.loop(test, lambda: _run(body, op.body, op.body.args, carried))
    _bind_all(body, op.results, carried)


def if_(body: Body, op: ops.If) -> None:
    """Both ways write what they yield to the same variables."""
    results = [body.variable(result) for result in op.results]

    def way(block: Block) -> None:
        _write_all(body, results, body.block(block))

    has_other = bool(results) or len(op.orelse.ops) > 1
    orelse = (lambda: way(op.orelse)) if has_other else None
    body.code.branch(body.use(op.condition), lambda: way(op.then), orelse)
    _bind_all(body, op.results, results)


def yield_(_: Body, __: ops.Yield) -> None:
    """Its operands are read by the operation that holds the block."""


def _variables(body: Body, values: Sequence[Value], starts: Sequence[Value]) -> list[Variable]:
    return [body.variable(value, start) for value, start in zip(values, starts, strict=True)]


def _run(body: Body, block: Block, args: Sequence[Value], carried: list[Variable]) -> None:
    """One turn of a loop: all new values are computed before any is written."""
    _bind_all(body, args, carried)
    _write_all(body, carried, body.block(block))


def _bind_all(body: Body, values: Sequence[Value], variables: list[Variable]) -> None:
    for value, variable in zip(values, variables, strict=True):
        body.bind(value, body.code.read(variable))


def _write_all(body: Body, variables: list[Variable], operands: list[Operand]) -> None:
    for variable, operand in zip(variables, operands, strict=True):
        body.code.write(variable, operand)
