"""Loops that run some turns at a time, on the guess that no function in them needs its rare way.

See `codegen.speculation` for which these are. Some turns are run as if there were no tests, with a
look at the end whether that was right; if not, they are run again with all tests::

    chunk:  8 or 16 turns
            br all operands were usual, next, again
    again:  the same turns, with tests
    next:   as long as there are so many: chunk
            the turns that are left, with tests

An instruction for such a function takes as long as several sums, which a loop that does little else
does not have. So the functions of some turns are computed by sums and products, if no replay must
find their bits again.
"""

from __future__ import annotations

import functools
from collections.abc import Container

from octants.analysis.value_bounds import Magnitudes
from octants.codegen import arithmetic, speculation
from octants.codegen.llvm import control
from octants.codegen.llvm.gpu.approximations import Series, series
from octants.codegen.llvm.gpu.function import ThreadText
from octants.codegen.llvm.literals import float_literal
from octants.ir import ops
from octants.ir.core import Operation
from octants.types.scalars import f32, f64

TURNS = 8
"""How many turns are run at a time; twice as many if there is little in them."""

_LITTLE = 6
"""Operations of such a turn."""

_TURNING, _BESIDE = 8, 8
"""Operations between some turns; the part of one kind of work that is not done beside the other."""

_EXACT = 1 << 24
"""Integers up to there are floats."""

_MOST_WORK = 32
"""Operations of a turn, which is there six times."""


def for_(f: ThreadText, op: ops.For) -> None:
    """A loop as it is, or in chunks."""
    if is_worth_it(f, op):
        results = _in_chunks(f, op)
    else:
        results = control.turns(f, op, *_bounds(f, op), hint=control.hint(f, op))
    for result, found in zip(op.results, results, strict=True):
        f.bind(result, found)


def _bounds(f: ThreadText, op: ops.For) -> tuple[str, str, list[str]]:
    return f.use(op.lower), f.use(op.upper), [f.use(value) for value in op.inits]


# -- which loops -----------------------------------------------------------------------------------


def is_worth_it(f: ThreadText, op: ops.For) -> bool:
    """Whether a loop has functions with rare ways, none of them in a branch, and can be guessed."""
    may_be_rare = functools.partial(_may_be_rare, f)
    if not f.text.fast_math or not any(map(may_be_rare, op.body.ops)):
        return False
    branches = (each for each in op.body.walk() if isinstance(each, ops.If))
    if any(may_be_rare(each) for branch in branches for each in speculation.inside(branch)):
        return False
    return speculation.can_be_guessed(op, may_be_rare, _is_in_registers, _MOST_WORK)


def _may_be_rare(f: ThreadText, op: Operation) -> bool:
    return isinstance(op, ops.Unary) and op.fn in f.machine.guessed and op.x.type is f32


def _is_in_registers(op: Operation) -> bool:
    """Whether an operation overwrites what a record in registers holds."""
    return isinstance(op, ops.RecordPush) and op.record.unrolled


# -- the loop --------------------------------------------------------------------------------------


def _in_chunks(f: ThreadText, op: ops.For) -> list[str]:
    """The loop; what stands for its results."""
    lower, upper, inits = _bounds(f, op)
    register, turns = f.type(op.lower.type), _turns(f, op)
    chunk, again, following, tail = (f.fresh_label(h) for h in ("chunk", "again", "next", "tail"))
    before = f.label
    some = f.apply(f"icmp {control.less(op.lower.type)}", register, lower, upper)
    certain = _certain(f, op)
    firsts = _firsts(f, op, certain)
    f.branch_if(
        _all(f, [some, _are_enough(f, register, lower, upper, turns), *firsts]), chunk, tail
    )
    f.start(chunk)
    counter, *carried = phis = control.open_phis(f, op.body.args, [lower, *inits], before)
    starts = [phi.name for phi in carried]
    values, end, usual = _guessed_turns(f, op, counter.name, starts, certain)
    if usual:
        guessed = f.label
        f.branch_if(_all(f, usual), following, again, likely=True)
        f.start(again)
        if control.is_written_out(op):
            slow, _ = _tested_turns(f, op, counter.name, starts)
        else:
            slow = control.turns(f, op, counter.name, end, starts, hint=control.rolled(f))
        checked = f.label
        f.branch(following)
        f.start(following)
        values = [
            control.joined(f, value.type, [(one, guessed), (other, checked)])
            for value, one, other in zip(op.results, values, slow, strict=True)
        ]
    else:
        f.branch(following)
        f.start(following)
    hint = control.hint(f, op) or control.rolled(f)
    f.branch_if(_are_enough(f, register, end, upper, turns), chunk, tail, hint=hint)
    control.close_phis(f, phis, [end, *values], following)
    f.start(tail)
    rest = control.joined(f, op.lower.type, [(lower, before), (end, following)])
    left = [
        control.joined(f, value.type, [(init, before), (value_, following)])
        for value, init, value_ in zip(op.results, inits, values, strict=True)
    ]
    return control.turns(f, op, rest, upper, left, hint=control.hint(f, op) or control.rolled(f))


def _turns(f: ThreadText, op: ops.For) -> int:
    """How many turns of a loop are guessed at a time: all of one that is written out."""
    lower, upper = (f.constants.get(value) for value in (op.lower, op.upper))
    if lower is not None and upper is not None and control.is_written_out(op):
        return max(TURNS, int(upper - lower))
    return TURNS if len(_work(op)) > _LITTLE else 2 * TURNS


def _work(op: ops.For) -> list[Operation]:
    """What is done in a turn."""
    return [each for each in op.body.walk() if not isinstance(each, (ops.Constant, ops.Yield))]


def _are_enough(f: ThreadText, register: str, lower: str, upper: str, turns: int) -> str:
    """Whether there are turns enough from one number to another that is not lower."""
    return f.apply("icmp ugt", register, f.apply("sub", register, upper, lower), turns - 1)


def _tested_turns(
    f: ThreadText, op: ops.For, counter: str, values: list[str]
) -> tuple[list[str], str]:
    """Turns from a value of the counter on; what is carried on, and the counter after them."""
    step = "nsw" if op.lower.type.is_signed else "nuw"
    for _ in range(_turns(f, op)):
        for arg, operand in zip(op.body.args, [counter, *values], strict=True):
            f.bind(arg, operand)
        values = control.written(f, op)
        counter = f.apply(f"add {step}", f.type(op.lower.type), counter, 1)
    return values, counter


def _guessed_turns(
    f: ThreadText,
    op: ops.For,
    counter: str,
    values: list[str],
    certain: dict[Operation, Container[int]],
) -> tuple[list[str], str, list[str]]:
    """The same without tests; what must be true for that, too, where it is not ``certain``.

    Some functions are computed, to have others work at the same time.
    """
    step = "nsw" if op.lower.type.is_signed else "nuw"
    computed = _computed_turns(f, op)
    numbers, table = _Numbers(f, op), f.table
    f.table = {**table, ops.Cast: numbers.cast}
    usual: list[str] = []
    for turn in range(_turns(f, op)):
        numbers.turn = turn
        for arg, operand in zip(op.body.args, [counter, *values], strict=True):
            f.bind(arg, operand)
        f.doubts, f.series = [], computed.get(turn)
        values = control.written(f, op)
        surely = certain.values() if len(f.doubts) == len(certain) else [()] * len(f.doubts)
        pairs = zip(f.doubts, surely, strict=True)
        usual += [doubt for doubt, turns in pairs if turn not in turns]
        f.doubts, f.series = None, None
        counter = f.apply(f"add {step}", f.type(op.lower.type), counter, 1)
    f.table = table
    return values, counter, usual


class _Numbers:
    """The counter of a loop as a float, which some turns count on: that is less than to convert."""

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
        self.turn = 0

    def cast(self, f: ThreadText, op: ops.Cast) -> None:
        """Convert in the first turn; in the others, add their number."""
        step = self._steps.get(op, 0)
        if self.turn == 0 or step == 0:
            arithmetic.cast(f, op)
            self._first[op] = f.use(op.result)
            return
        further = float_literal(float(step * self.turn))
        register = f.type(op.result.type)
        f.bind(op.result, f.apply("fadd", register, self._first[op], further))


def _certain(f: ThreadText, op: ops.For) -> dict[Operation, Container[int]]:
    """The turns in which operands of functions are no doubt usual, if they are in the others.

    All turns are those of functions of what the loop carries, if they are but for its beginning.
    One that is written out has no other code for what begins otherwise.
    """
    magnitudes, turns = Magnitudes(op, f.constants), _turns(f, op)
    begins = () if control.is_written_out(op) else op.body.args
    found: dict[Operation, Container[int]] = {}
    for each in (each for each in op.body.ops if _may_be_rare(f, each)):
        (operand,) = each.operands
        if magnitudes.later(operand) < f.machine.usual:
            found[each] = range(operand not in begins, turns)
        else:
            found[each] = range(1, turns - 1) if magnitudes.is_steady(operand) else ()
    return found


def _firsts(f: ThreadText, op: ops.For, certain: dict[Operation, Container[int]]) -> list[str]:
    """What must be true at the beginning of a loop for that."""
    tests = []
    for operand in dict.fromkeys(each.operands[0] for each in certain):
        if operand in op.body.args and any(
            0 in turns for each, turns in certain.items() if each.operands[0] is operand
        ):
            init = f.use(op.inits[op.body.args.index(operand) - 1])
            size = f.intrinsic("fabs", "float", [("float", init)])
            limit = float_literal(f.machine.usual)
            tests.append(f.apply("fcmp olt", "float", size, limit))
    return tests


def _computed_turns(f: ThreadText, op: ops.For) -> dict[int, Series]:
    """The turns in which it pays to compute functions, where nobody minds other bits, and how."""
    if not f.is_free:
        return {}
    magnitudes = Magnitudes(op, f.constants)
    inside = _work(op)
    functions = [each for each in inside if _may_be_rare(f, each)]
    chosen = series(max(magnitudes.later(each.operands[0]) for each in functions))
    turns = _turns(f, op)
    instructions = turns * (len(inside) + len(functions)) + _TURNING
    costs = []
    for count in range(turns // 2 + 1):
        one = f.machine.function_sums * len(functions) * (turns - count)
        other = instructions + chosen.more * len(functions) * count
        costs.append((max(one, other) + min(one, other) // _BESIDE, count))
    _, count = min(costs)
    return {(2 * k + 1) * turns // (2 * count): chosen for k in range(count)}


def _all(f: ThreadText, conditions: list[str]) -> str:
    found, *others = conditions
    for each in others:
        found = f.apply("and", "i1", found, each)
    return found
