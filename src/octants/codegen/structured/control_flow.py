"""Write structured control flow. Values pass from block to block through variables.

`write_for` and `write_while` get functions that write the blocks and the condition of a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from octants.codegen.instruction_writer import Code, MutableSlot, Operand
from octants.codegen.structured.function_emitter import StructuredFunction
from octants.ir import ops
from octants.ir.core import Block, Operation, Value
from octants.types.scalars import DType

Inside = Callable[[Block], list[Operand]]
Condition = Callable[[Operation, Callable[[], Operand]], Operand]


def write_for(
    body: StructuredFunction,
    op: ops.For,
    inside: Inside,
    condition: Condition,
) -> None:
    """Write a counting loop; its counter is a variable."""
    code, dtype = body.code, op.lower.type
    counter, *carried = variables = [body.variable(arg) for arg in op.body.args]
    write_all(body, variables, [body.use(op.lower), *(body.use(init) for init in op.inits)])
    upper = body.use(op.upper)

    def iterate() -> None:
        number = code.read(counter)
        body.bind(op.body.args[0], number)
        bind_all(body, op.body.args[1:], carried)
        write_all(body, carried, inside(op.body))
        code.write(counter, code.apply("add", dtype, number, body.number(1, dtype)))

    def test() -> Operand:
        return code.compare("lt", dtype, code.read(counter), upper)

    def is_left() -> Operand:
        return is_less(code, dtype, code.read(counter), upper)

    is_plain = condition == body.condition and not body.may_end_in(op)
    code.loop(lambda: condition(op, test), iterate, is_left if is_plain else None)
    bind_all(body, op.results, carried)


def while_(body: StructuredFunction, op: ops.While) -> None:
    """Write a loop; see `write_while`."""
    write_while(body, op, body.block, body.condition)


def write_while(
    body: StructuredFunction, op: ops.While, inside: Inside, condition: Condition
) -> None:
    """Write a loop whose condition is computed at the start of each iteration."""
    carried = [body.variable(arg) for arg in op.body.args]
    write_all(body, carried, [body.use(init) for init in op.inits])

    def test() -> Operand:
        bind_all(body, op.condition.args, carried)
        return inside(op.condition)[0]

    def iterate() -> None:
        bind_all(body, op.body.args, carried)
        write_all(body, carried, inside(op.body))

    body.code.loop(lambda: condition(op, test), iterate)
    bind_all(body, op.results, carried)


def if_(body: StructuredFunction, op: ops.If) -> None:
    """Write an if; both branches write what they yield to the same variables."""
    results = [body.variable(result) for result in op.results]

    def way(block: Block) -> None:
        write_all(body, results, body.block(block))

    has_other = bool(results) or len(op.orelse.ops) > 1
    orelse = (lambda: way(op.orelse)) if has_other else None
    body.code.branch(body.use(op.condition), lambda: way(op.then), orelse)
    bind_all(body, op.results, results)


def yield_(_: StructuredFunction, __: ops.Yield) -> None:
    """Write nothing: the operation that holds the block reads the operands."""


def bind_all(
    body: StructuredFunction, values: Sequence[Value], variables: list[MutableSlot]
) -> None:
    """Set the operands of values to what variables hold."""
    for value, variable in zip(values, variables, strict=True):
        body.bind(value, body.code.read(variable))


def write_all(
    body: StructuredFunction, variables: list[MutableSlot], operands: list[Operand]
) -> None:
    """Write operands, all of which are computed before, to variables."""
    for variable, operand in zip(variables, operands, strict=True):
        body.code.write(variable, operand)


def is_less(code: Code, dtype: DType, a: Operand, b: Operand) -> Operand:
    """Return a < b without a comparison: H. S. Warren, "Hacker's Delight", 2013, section 2-12."""

    def bits(fn: str, *operands: Operand) -> Operand:
        return code.apply(fn, dtype, *operands)

    difference = bits("sub", a, b)
    if dtype.is_signed:
        overflows = bits("and", bits("xor", a, b), bits("xor", difference, a))
        found = bits("xor", difference, overflows)
    else:
        other = bits("not", a)
        carries = bits("and", bits("or", other, b), difference)
        found = bits("or", bits("and", other, b), carries)
    top = bits("ushr", found, code.constant(dtype.bits - 1, dtype))
    return code.compare("ne", dtype, top, code.constant(0, dtype))
