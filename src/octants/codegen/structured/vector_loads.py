"""Write loops with loads of 16 bytes: see `codegen.vector_loads`.

Loads are combined within an iteration where subgroups exchange factors. Where they exchange
products, a thread has no registers left for that.

Where an iteration loads few bytes, and few work items leave many registers for each, a loop begins
with the loads of eight iterations: a driver's compiler moves no load to an earlier iteration.
"""

from __future__ import annotations

from octants.codegen.adjacent_loads import ITERATIONS, Rows, find_pieces, find_rows
from octants.codegen.instruction_writer import Operand
from octants.codegen.structured import slow_path_speculation
from octants.codegen.structured.control_flow import bind_all, write_all
from octants.codegen.structured.function_emitter import StructuredFunction
from octants.codegen.vector_loads import is_aligned, several_iterations, write_twice
from octants.ir import ops

_MORE = 2 * ITERATIONS
"""Iterations whose loads a loop begins with where a thread has the registers."""
_FEW_BYTES, _FEW_ITEMS = 32, 1 << 14
"""The bytes of the rows for each iteration, and the work items, that leave these registers."""


def for_(body: StructuredFunction, op: ops.For) -> None:
    """Write a loop with vector loads if it qualifies, or as elsewhere."""
    has_vectors = body.code.loads_four_words
    if rows := find_rows(body, op) if has_vectors else {}:
        _in_chunks(body, op, rows)
    elif pieces := find_pieces(body, op) if has_vectors and body.products else {}:
        write_twice(body, op, pieces, lambda: slow_path_speculation.for_(body, op))
    else:
        slow_path_speculation.for_(body, op)


def _in_chunks(body: StructuredFunction, op: ops.For, rows: Rows) -> None:
    """Write a loop over chunks of iterations, and one over the remaining ones."""
    code, dtype = body.code, op.lower.type
    task = body.kernel.module.tasks[body.task]
    is_small = sum(row.stride for row in rows) <= _FEW_BYTES
    has_registers = is_small and ops.has_few_items(task, _FEW_ITEMS)
    count = _MORE if has_registers else ITERATIONS
    counter, *carried = variables = [body.variable(arg) for arg in op.body.args]
    lower, upper = body.use(op.lower), body.use(op.upper)
    write_all(body, variables, [lower, *(body.use(init) for init in op.inits)])
    whole = code.apply("and", dtype, upper, code.constant(-count, dtype))
    end = code.choose(is_aligned(body, op, rows, count), dtype, whole, lower)

    def iterate(number: Operand) -> None:
        body.bind(op.body.args[0], number)
        bind_all(body, op.body.args[1:], carried)
        write_all(body, carried, body.block(op.body))

    def further(number: Operand, iterations: int) -> Operand:
        return body.add(number, body.number(iterations, dtype), dtype)

    def several() -> None:
        number = code.read(counter)
        several_iterations(body, rows, number, dtype, lambda k: iterate(further(number, k)), count)
        code.write(counter, further(number, count))

    def one() -> None:
        number = code.read(counter)
        iterate(number)
        code.write(counter, further(number, 1))

    code.loop(lambda: code.compare("lt", dtype, code.read(counter), end), several)
    code.loop(lambda: code.compare("lt", dtype, code.read(counter), upper), one)
    bind_all(body, op.results, carried)
