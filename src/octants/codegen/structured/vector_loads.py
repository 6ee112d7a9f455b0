"""Write loops with loads of 16 bytes: see `codegen.vector_loads`.

Loads are combined within an iteration where subgroups exchange factors. Where they exchange
products, a thread has no registers left for that.
"""

from __future__ import annotations

from octants.codegen.adjacent_loads import ITERATIONS, Rows, find_pieces, find_rows
from octants.codegen.instruction_writer import Operand
from octants.codegen.structured import slow_path_speculation
from octants.codegen.structured.control_flow import bind_all, write_all
from octants.codegen.structured.function_emitter import StructuredFunction
from octants.codegen.vector_loads import four_iterations, is_aligned, write_twice
from octants.ir import ops


def for_(body: StructuredFunction, op: ops.For) -> None:
    """Write a loop with vector loads if it qualifies, or as elsewhere."""
    has_vectors = body.code.loads_four_words
    if rows := find_rows(body, op) if has_vectors else {}:
        _in_fours(body, op, rows)
    elif pieces := find_pieces(body, op) if has_vectors and body.products else {}:
        write_twice(body, op, pieces, lambda: slow_path_speculation.for_(body, op))
    else:
        slow_path_speculation.for_(body, op)


def _in_fours(body: StructuredFunction, op: ops.For, rows: Rows) -> None:
    """Write a loop over chunks of four iterations, and one over the remaining ones."""
    code, dtype = body.code, op.lower.type
    counter, *carried = variables = [body.variable(arg) for arg in op.body.args]
    lower, upper = body.use(op.lower), body.use(op.upper)
    write_all(body, variables, [lower, *(body.use(init) for init in op.inits)])
    whole = code.apply("and", dtype, upper, code.constant(-ITERATIONS, dtype))
    end = code.choose(is_aligned(body, op, rows), dtype, whole, lower)

    def iterate(number: Operand) -> None:
        body.bind(op.body.args[0], number)
        bind_all(body, op.body.args[1:], carried)
        write_all(body, carried, body.block(op.body))

    def further(number: Operand, iterations: int) -> Operand:
        return body.add(number, body.number(iterations, dtype), dtype)

    def four() -> None:
        number = code.read(counter)
        four_iterations(body, rows, number, dtype, lambda k: iterate(further(number, k)))
        code.write(counter, further(number, ITERATIONS))

    def one() -> None:
        number = code.read(counter)
        iterate(number)
        code.write(counter, further(number, 1))

    code.loop(lambda: code.compare("lt", dtype, code.read(counter), end), four)
    code.loop(lambda: code.compare("lt", dtype, code.read(counter), upper), one)
    bind_all(body, op.results, carried)
