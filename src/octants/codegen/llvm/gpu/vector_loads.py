"""Write loops with loads of 16 bytes: see `codegen.vector_loads`."""

from __future__ import annotations

from octants.analysis.floats import slow_paths, speculated_iterations
from octants.codegen.adjacent_loads import (
    ITERATIONS,
    Rows,
    find_pieces,
    find_rows,
    is_long_and_quick,
    is_quick,
    loaded_bytes,
)
from octants.codegen.llvm import control_flow
from octants.codegen.llvm.gpu.function_text import ThreadText
from octants.codegen.vector_loads import is_aligned, several_iterations, write_twice
from octants.ir import ops
from octants.ir.cooperative_tasks import SHARED_LOOPS
from octants.ir.core import Operation, Task
from octants.ir.ops.arithmetic import ESTIMATES

_LONGEST, _MOST_BYTES, _FEW_ITEMS = 16, 256, 1 << 14
"""The most iterations whose loads are there at a time, their bytes, and the work items that leave a
thread the registers."""


def for_(f: ThreadText, op: ops.For) -> None:
    """Write a loop with vector loads if it qualifies, or as elsewhere."""
    if hint := _hint_of_sines(f, op):
        f.interleaved_loops.discard(op)
        _one_by_one(f, op, hint)
    elif rows := find_rows(f, op):
        _in_fours(f, op, rows)
    elif pieces := find_pieces(f, op):
        write_twice(f, op, pieces, lambda: _one_by_one(f, op))
    elif _is_rest_of_nest(f, op):
        _one_by_one(f, op, control_flow.no_unrolling(f))
    else:
        _one_by_one(f, op, _hint_of_loads(f, op))


def interleaved_loops(task: Task) -> set[Operation]:
    """Return the loops of which four iterations run at a time: short ones without inner loops.

    LLVM interleaves them where vector loads do not apply: it warns if it cannot.
    """
    if not task.options.get(SHARED_LOOPS):
        return set()
    loops = (op for op in task.body.walk() if isinstance(op, ops.For))
    return {loop for loop in loops if is_quick(loop.body)}


def _hint_of_sines(f: ThreadText, op: ops.For) -> str:
    """Return the metadata of a loop that `passes.loops.unroll_loops` has written; empty for others.

    Chunks and slow paths are not unrolled; of the iterations behind chunks, four run at a time.
    """
    if f.machine.estimates and f.text.fast_math:
        if any(map(slow_paths.is_shared, op.body.ops)):
            return ""
        estimates = sum(isinstance(o, ops.Unary) and o.fn in ESTIMATES for o in op.body.ops)
        is_chunk = estimates >= speculated_iterations.ITERATIONS // 2  # others are polynomials
        if is_chunk or slow_paths.can_speculate(op, speculated_iterations.MOST_WORK):
            return control_flow.no_unrolling(f)
        if estimates:
            return control_flow.interleaving(f)
    return ""


def _is_rest_of_nest(f: ThreadText, op: ops.For) -> bool:
    """Return whether a loop runs iterations with loops in them that chunks have left over.

    It has few iterations, but copies of it would be much code, for little time.
    """
    lower, upper = (f.code.known(f.use(bound)) for bound in (op.lower, op.upper))
    if lower is None or upper is None or not 0 < upper - lower <= lower:
        return False
    return any(isinstance(each, ops.For) for each in op.body.ops)


def _hint_of_loads(f: ThreadText, op: ops.For) -> str:
    """Return the metadata of a long loop that loads few bytes in each iteration; empty for others.

    The loads of several iterations are there at a time then. If many threads hide how long they
    take, there are fewer of them.
    """
    if op in f.interleaved_loops or not is_long_and_quick(f, op):
        return ""
    nbytes = sum(loaded_bytes(each) for each in op.body.ops)
    if not 0 < nbytes <= _MOST_BYTES // ITERATIONS:
        return ""
    has_registers = ops.has_few_items(f.kernel.module.tasks[f.task], _FEW_ITEMS)
    return control_flow.interleaving(
        f, min(_LONGEST, _MOST_BYTES // nbytes) if has_registers else ITERATIONS
    )


# -- the loop --------------------------------------------------------------------------------------


def _one_by_one(f: ThreadText, op: ops.For, hint: str = "") -> None:
    """Write the loop without vector loads."""
    lower, upper, inits = _bounds(f, op)
    hint, downwards = control_flow.hint(f, op) or hint, control_flow.counts_what_is_left(op, lower)
    found = control_flow.iterate(f, op, lower, upper, inits, hint=hint, downwards=downwards)
    _bind(f, op, found)


def _bounds(f: ThreadText, op: ops.For) -> tuple[str, str, list[str]]:
    return f.use(op.lower), f.use(op.upper), [f.use(value) for value in op.inits]


def _bind(f: ThreadText, op: ops.For, found: list[str]) -> None:
    for result, operand in zip(op.results, found, strict=True):
        f.bind(result, operand)


def _in_fours(f: ThreadText, op: ops.For, rows: Rows) -> None:
    """Write a loop over chunks of four iterations, and one over the remaining ones."""
    lower, upper, inits = _bounds(f, op)
    register, less = f.type(op.lower.type), f"icmp {control_flow.less(op.lower.type)}"
    chunk, tail = f.fresh_label("chunk"), f.fresh_label("tail")
    end = f.apply("and", register, upper, -ITERATIONS)
    if (aligned := is_aligned(f, op, rows)) is not None:
        end = f.choose(aligned, register, end, lower)
    before = f.label
    f.branch_if(f.apply(less, register, lower, end), chunk, tail)
    f.start(chunk)
    counter, *carried = phis = control_flow.open_phis(f, op.body.args, [lower, *inits], before)
    values = [phi.name for phi in carried]

    def iterate(iteration: int) -> None:
        number = counter.name
        if iteration:
            number = f.apply("add nsw", register, number, iteration)
        for arg, operand in zip(op.body.args, [number, *values], strict=True):
            f.bind(arg, operand)
        values[:] = control_flow.write_iteration(f, op)

    several_iterations(f, rows, counter.name, op.lower.type, iterate)
    following = f.apply("add nsw", register, counter.name, ITERATIONS)
    again = f.label
    more = f.apply(less, register, following, end)
    f.branch_if(more, chunk, tail, hint=control_flow.no_unrolling(f))
    control_flow.close_phis(f, phis, [following, *values], again)
    f.start(tail)
    rest = f.phi(f.type(op.lower.type), (lower, before), (following, again))
    left = f.join(op.results, (inits, before), (values, again))
    hint = control_flow.no_unrolling(f)
    _bind(f, op, control_flow.iterate(f, op, rest, upper, left, hint=hint))
