"""Let the lanes of a subgroup reverse the same iterations of a loop together.

Lanes that reverse loops of different trip counts would be at different iterations at a time, since
each begins with its last one: inner loops whose bounds depend on the iteration then take as long as
the longest of them, and local records are in different places. So a lane waits before its first
iteration, until the subgroup's longest loop has as many left. It waits for at most some iterations;
if it waits for fewer, the results are the same. Lanes of vectors do the same on CPUs
(`codegen.llvm.lanes.control_flow`).
"""

from __future__ import annotations

from octants.codegen.function_emitter import FunctionEmitter, ThreadFunction
from octants.codegen.instruction_writer import Operand, ThreadCode, register
from octants.codegen.recording_facts import counted_pushes
from octants.ir import ops
from octants.types.scalars import i64, u32

_BITS = 7
"""Those of the most iterations for which a lane waits: more than blocks around loops have."""


def is_aligned(f: ThreadFunction, op: ops.For) -> bool:
    """Return whether a loop reverses iterations with loops in them, and lanes can vote."""
    return (
        f.code.votes
        and op.lower.type is i64
        and any(isinstance(each, ops.RecordPop) for each in op.body.ops)
        and any(isinstance(each, ops.Loop) for each in op.body.walk())
        and not any(True for _ in counted_pushes(f, op))  # which are reserved for all iterations
    )


def start(code: ThreadCode, lower: Operand, upper: Operand) -> Operand:
    """Return the counter (i64) to start with: ``lower`` minus the iterations to wait."""
    zero, most = code.constant(0, i64), code.constant((1 << _BITS) - 1, i64)
    trips = code.apply("sub", i64, upper, lower)
    trips = code.choose(code.compare("lt", i64, trips, most), i64, trips, most)
    trips = code.choose(code.compare("gt", i64, trips, zero), i64, trips, zero)
    own, longest = code.convert(trips, i64, u32), code.constant(0, u32)
    for bit in reversed(range(_BITS)):
        longer = code.apply("or", u32, longest, code.constant(1 << bit, u32))
        is_reached = code.any_here(code.compare("ge", u32, own, longer))
        longest = code.choose(is_reached, u32, longer, longest)
    delay = code.convert(code.apply("sub", u32, longest, own), u32, i64)
    return code.apply("sub", i64, lower, delay)


def iteration(f: FunctionEmitter, op: ops.For) -> list[Operand]:
    """Write an iteration unless the lane waits; return the operands that it yields."""
    code = f.code
    results = [code.variable(register(value.type)) for value in op.results]
    for result, carried in zip(results, op.carried, strict=True):
        code.write(result, f.use(carried))

    def run() -> None:
        arguments = [f.use(arg) for arg in op.body.args]
        for result, operand in zip(results, f.inlined(op.body, arguments), strict=True):
            code.write(result, operand)

    begun = code.compare("ge", i64, f.use(op.body.args[0]), f.use(op.lower))
    code.branch(begun, run)
    return [code.read(result) for result in results]
