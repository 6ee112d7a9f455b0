"""Run loops in chunks of iterations, speculating that no function in them needs its slow path.

`analysis.slow_paths` chooses the loops. A chunk runs without tests and checks a guard at
its end; if the guard fails, the chunk is run again with all tests::

    chunk:  8 or 16 iterations
            br all operands were small, next, again
    again:  the same iterations, with tests
    next:   while there are enough iterations: chunk
    rest:   the remaining iterations, without tests
            br all operands were small, done, tested
    tested: the remaining iterations, with tests
    done:

An instruction for such a function takes as long as several additions, and a loop that does little
else leaves the other units idle. So some iterations compute the function by a polynomial, if no
replay needs its bits.
"""

from __future__ import annotations

import functools
from collections.abc import Container

from octants.analysis import slow_paths
from octants.analysis.float_magnitudes import Magnitudes
from octants.analysis.speculated_iterations import (
    ITERATIONS,
    MOST_WORK,
    chunk_length,
    polynomial_iterations,
    surely_small,
)
from octants.codegen import arithmetic
from octants.codegen.llvm import control_flow
from octants.codegen.llvm.gpu.function_text import ThreadText
from octants.codegen.llvm.types_and_literals import float_literal
from octants.ir import ops
from octants.ir.core import Operation
from octants.mathlib.sine_series import Series
from octants.types.scalars import f32, f64

_EXACT = 1 << 24
"""The integers below are exact floats."""


def for_(f: ThreadText, op: ops.For) -> None:
    """Write a loop as it is, or in chunks."""
    lower, upper, inits = _bounds(f, op)
    if is_worth_it(f, op):
        results = _in_chunks(f, op)
    else:
        hint, downwards = control_flow.hint(f, op), control_flow.counts_what_is_left(op, lower)
        results = control_flow.iterate(f, op, lower, upper, inits, hint=hint, downwards=downwards)
    for result, found in zip(op.results, results, strict=True):
        f.bind(result, found)


def _bounds(f: ThreadText, op: ops.For) -> tuple[str, str, list[str]]:
    return f.use(op.lower), f.use(op.upper), [f.use(value) for value in op.inits]


# -- which loops -----------------------------------------------------------------------------------


def is_worth_it(f: ThreadText, op: ops.For) -> bool:
    """Return whether a loop has functions with slow paths, outside branches, and can speculate."""
    takes_slow_path = functools.partial(_takes_slow_path, f)
    if not f.text.fast_math or not any(map(takes_slow_path, op.body.ops)):
        return False
    branches = (each for each in op.body.walk() if isinstance(each, ops.If))
    if any(takes_slow_path(each) for branch in branches for each in slow_paths.inside(branch)):
        return False
    return slow_paths.can_speculate(op, takes_slow_path, MOST_WORK)


def _takes_slow_path(f: ThreadText, op: Operation) -> bool:
    return isinstance(op, ops.Unary) and op.fn in f.machine.speculated and op.x.type is f32


# -- the loop --------------------------------------------------------------------------------------


def _in_chunks(f: ThreadText, op: ops.For) -> list[str]:
    """Write the loop, and return the operands of its results."""
    lower, upper, inits = _bounds(f, op)
    register, iterations = f.type(op.lower.type), _chunk_length(f, op)
    chunk, again, following, tail = (f.fresh_label(h) for h in ("chunk", "again", "next", "tail"))
    tested, certain = f.fresh_label("tested"), _iterations_surely_small(f, op)
    far: list[str] = []  # the block in which an initial value is found to be large
    if firsts := _conditions_on_inits(f, op, certain):
        near, far = f.fresh_label("near"), [f.label]
        f.branch_if(_all(f, firsts), near, tested)
        f.start(near)
    before = f.label
    some = f.apply(f"icmp {control_flow.less(op.lower.type)}", register, lower, upper)
    enough = _are_enough(f, register, lower, upper, iterations)
    f.branch_if(f.apply("and", "i1", some, enough), chunk, tail)
    f.start(chunk)
    counter, *carried = phis = control_flow.open_phis(f, op.body.args, [lower, *inits], before)
    starts = [phi.name for phi in carried]
    values, end, usual = _speculated_iterations(f, op, counter.name, starts, certain)
    if usual:
        speculated = f.label
        f.branch_if(_all(f, usual), following, again, likely=True)
        f.start(again)
        if control_flow.is_unrolled(op):
            slow, _ = _tested_iterations(f, op, counter.name, starts)
        else:
            slow = control_flow.iterate(
                f, op, counter.name, end, starts, hint=control_flow.no_unrolling(f)
            )
        checked = f.label
        f.branch(following)
        f.start(following)
        values = [
            control_flow.joined(f, value.type, [(one, speculated), (other, checked)])
            for value, one, other in zip(op.results, values, slow, strict=True)
        ]
    else:
        f.branch(following)
        f.start(following)
    hint = control_flow.hint(f, op) or control_flow.no_unrolling(f)
    f.branch_if(_are_enough(f, register, end, upper, iterations), chunk, tail, hint=hint)
    control_flow.close_phis(f, phis, [end, *values], following)
    f.start(tail)
    rest = control_flow.joined(f, op.lower.type, [(lower, before), (end, following)])
    left = [
        control_flow.joined(f, value.type, [(init, before), (value_, following)])
        for value, init, value_ in zip(op.results, inits, values, strict=True)
    ]
    large = [(label, [lower, *inits]) for label in far]
    return _rest(f, op, (rest, upper), left, tested, large)


def _rest(
    f: ThreadText,
    op: ops.For,
    bounds: tuple[str, str],
    inits: list[str],
    tested: str,
    far: list[tuple[str, list[str]]],
) -> list[str]:
    """Write the iterations behind the last chunk, and return the operands of the results.

    Their number is unknown: one guard is the conjunction of those of all iterations.

    Args:
        f: The function.
        op: The loop.
        bounds: The first of these iterations, and the one past the last.
        inits: The operands carried in.
        tested: The label of the loop with tests.
        far: The blocks that branch there, with the first counter and the operands carried in.
    """
    rest, leave, done = (f.fresh_label(h) for h in ("rest", "leave", "done"))
    (lower, upper), register, before = bounds, f.type(op.lower.type), f.label
    less, step = control_flow.less(op.lower.type), "nsw" if op.lower.type.is_signed else "nuw"
    f.branch_if(f.apply(f"icmp {less}", register, lower, upper), rest, done)
    f.start(rest)
    phis = control_flow.open_phis(f, op.body.args, [lower, *inits], before)
    usual = f.open_phi("i1")
    usual.incoming.append(("true", before))
    f.guards = []
    values = control_flow.write_iteration(f, op)
    all_usual = _all(f, [usual.name, *f.guards])
    f.guards = None
    following, latch = f.apply(f"add {step}", register, phis[0].name, 1), f.label
    goes_on = f.apply(f"icmp {less}", register, following, upper)
    hint = control_flow.hint(f, op) or control_flow.interleaving(f)
    f.branch_if(goes_on, rest, leave, hint=hint)
    control_flow.close_phis(f, [*phis, usual], [following, *values, all_usual], latch)
    f.start(leave)
    f.branch_if(all_usual, done, tested, likely=True)
    f.start(tested)
    starts = zip(*(operands for _, operands in [*far, (leave, [lower, *inits])]), strict=True)
    labels = [*(label for label, _ in far), leave]
    first, *carried = (
        control_flow.joined(f, arg.type, list(zip(operands, labels, strict=True)))
        for arg, operands in zip(op.body.args, starts, strict=True)
    )
    hint = control_flow.hint(f, op) or control_flow.no_unrolling(f)
    slow = control_flow.iterate(f, op, first, upper, carried, hint=hint)
    checked = f.label
    f.branch(done)
    f.start(done)
    return [
        control_flow.joined(f, value.type, [(a, before), (b, leave), (c, checked)])
        for value, a, b, c in zip(op.results, inits, values, slow, strict=True)
    ]


def _chunk_length(f: ThreadText, op: ops.For) -> int:
    """Return the iterations of a chunk: all of an unrolled loop."""
    lower, upper = (f.constants.get(value) for value in (op.lower, op.upper))
    if lower is not None and upper is not None and control_flow.is_unrolled(op):
        return max(ITERATIONS, int(upper - lower))
    return chunk_length(op)


def _are_enough(f: ThreadText, register: str, lower: str, upper: str, iterations: int) -> str:
    """Return whether at least ``iterations`` iterations lie between two counters, in order."""
    return f.apply("icmp ugt", register, f.apply("sub", register, upper, lower), iterations - 1)


def _tested_iterations(
    f: ThreadText, op: ops.For, counter: str, values: list[str]
) -> tuple[list[str], str]:
    """Write tested iterations; return the carried operands and the next counter."""
    step = "nsw" if op.lower.type.is_signed else "nuw"
    for _ in range(_chunk_length(f, op)):
        for arg, operand in zip(op.body.args, [counter, *values], strict=True):
            f.bind(arg, operand)
        values = control_flow.write_iteration(f, op)
        counter = f.apply(f"add {step}", f.type(op.lower.type), counter, 1)
    return values, counter


def _speculated_iterations(
    f: ThreadText,
    op: ops.For,
    counter: str,
    values: list[str],
    certain: dict[Operation, Container[int]],
) -> tuple[list[str], str, list[str]]:
    """Write such iterations without tests, and also return the guards that are not ``certain``.

    Some compute functions by polynomials, to keep other units busy.
    """
    step = "nsw" if op.lower.type.is_signed else "nuw"
    computed = _polynomial_iterations(f, op)
    numbers, table = _Numbers(f, op), f.table
    f.table = {**table, ops.Cast: numbers.cast}
    usual: list[str] = []
    for iteration in range(_chunk_length(f, op)):
        numbers.iteration = iteration
        for arg, operand in zip(op.body.args, [counter, *values], strict=True):
            f.bind(arg, operand)
        f.guards, f.series = [], computed.get(iteration)
        values = control_flow.write_iteration(f, op)
        surely = certain.values() if len(f.guards) == len(certain) else [()] * len(f.guards)
        pairs = zip(f.guards, surely, strict=True)
        usual += [guard for guard, iterations in pairs if iteration not in iterations]
        f.guards, f.series = None, None
        counter = f.apply(f"add {step}", f.type(op.lower.type), counter, 1)
    f.table = table
    return values, counter, usual


class _Numbers:
    """The counter of a loop as a float: conversions in later iterations become additions."""

    def __init__(self, f: ThreadText, op: ops.For) -> None:
        magnitudes = Magnitudes(op, f.constants)
        self._steps = {
            each: magnitudes.step(each.x, _EXACT)
            for each in op.body.ops
            if isinstance(each, ops.Cast)
            and each.result.type in (f32, f64)
            and not each.x.type.is_float
        }
        self._first: dict[Operation, str] = {}
        self.iteration = 0

    def cast(self, f: ThreadText, op: ops.Cast) -> None:
        """Convert in the first iteration; in others, add the iteration's offset."""
        step = self._steps.get(op, 0)
        if self.iteration == 0 or step == 0:
            arithmetic.cast(f, op)
            self._first[op] = f.use(op.result)
            return
        further = float_literal(float(step * self.iteration))
        register = f.type(op.result.type)
        f.bind(op.result, f.apply("fadd", register, self._first[op], further))


def _iterations_surely_small(f: ThreadText, op: ops.For) -> dict[Operation, Container[int]]:
    """Return the iterations in which a function's operand is surely small if it is in the others.

    For functions of carried values these are all iterations, given a check of the initial values.
    An unrolled loop has no other code for different initial values.
    """
    magnitudes, iterations = Magnitudes(op, f.constants), _chunk_length(f, op)
    begins = () if control_flow.is_unrolled(op) else op.body.args
    found: dict[Operation, Container[int]] = {}
    for each in (each for each in op.body.ops if _takes_slow_path(f, each)):
        (operand,) = each.operands
        found[each] = surely_small(magnitudes, operand, f.machine.usual, iterations)
        if operand in begins and magnitudes.later(operand) < f.machine.usual:
            found[each] = range(iterations)
    return found


def _conditions_on_inits(
    f: ThreadText, op: ops.For, certain: dict[Operation, Container[int]]
) -> list[str]:
    """Return the conditions on the initial values that this needs."""
    tests = []
    for operand in dict.fromkeys(each.operands[0] for each in certain):
        if operand in op.body.args and any(
            0 in iterations for each, iterations in certain.items() if each.operands[0] is operand
        ):
            init = f.use(op.inits[op.body.args.index(operand) - 1])
            size = f.intrinsic("fabs", "float", [("float", init)])
            limit = float_literal(f.machine.usual)
            tests.append(f.apply("fcmp olt", "float", size, limit))
    return tests


def _polynomial_iterations(f: ThreadText, op: ops.For) -> dict[int, Series]:
    """Return the iterations in which polynomials pay, where no replay needs the bits."""
    if not f.may_change_bits:
        return {}
    takes_slow_path = functools.partial(_takes_slow_path, f)
    magnitudes, sums = Magnitudes(op, f.constants), f.machine.function_sums
    return polynomial_iterations(op, takes_slow_path, magnitudes, _chunk_length(f, op), sums)


def _all(f: ThreadText, conditions: list[str]) -> str:
    found, *others = conditions
    for each in others:
        found = f.apply("and", "i1", found, each)
    return found
