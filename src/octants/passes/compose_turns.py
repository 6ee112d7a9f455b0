"""Takes many turns of an affine loop at a time, which `fast_math` allows.

Before::

    kernel @k
    array @x: f32, 1, field, () [primal]
    array @y: f32, 1, field, () [primal]
    parallel @k_0 {
      %0: i32 = constant<0>()
      %1: i32 = constant<8>()
      yield(%0, %1)
    } { (%2: i32):
      %3: f32 = load<@x, primal>(%2)
      %4: i32 = constant<0>()
      %5: i32 = constant<100>()
      %6: f32 = for(%4, %5, %3) { (%7: i32, %8: f32):
        %9: f32 = constant<0.75>()
        %10: f32 = fma(%8, %9, %9)
        yield(%10)
      }
      store<@y, primal>(%6, %2)
      yield()
    }

After::

    kernel @k
    array @x: f32, 1, field, () [primal]
    array @y: f32, 1, field, () [primal]
    parallel @k_0 {
      %0: i32 = constant<0>()
      %1: i32 = constant<8>()
      yield(%0, %1)
    } { (%2: i32):
      %3: f32 = load<@x, primal>(%2)
      %4: i32 = constant<100>()
      %5: f32 = constant<0.00010045242379419506>()
      %6: f32 = constant<2.9996988773345947>()
      %7: f32 = constant<1.92643817564786e-12>()
      %8: f32 = unary<abs>(%3)
      %9: f32 = constant<1.2676506002282294e+30>()
      %10: u1 = compare<le>(%8, %9)
      %11: i64 = constant<3>()
      %12: i64 = constant<0>()
      %13: i64 = select(%10, %11, %12)
      %14: i32 = cast(%13)
      %15: i32 = constant<0>()
      %16: f32 = for(%15, %14, %3) { (%17: i32, %18: f32):
        %19: f32 = fma(%18, %7, %6)
        %20: f32 = fma(%18, %5, %19)
        yield(%20)
      }
      %21: i32 = constant<5>()
      %22: i32 = binary<shl>(%14, %21)
      %23: f32 = for(%22, %4, %16) { (%24: i32, %25: f32):
        %26: f32 = constant<0.75>()
        %27: f32 = fma(%25, %26, %26)
        yield(%27)
      }
      store<@y, primal>(%23, %2)
      yield()
    }

In n turns ``v`` becomes ``a**n v + (1 + a + ... + a**(n - 1)) b``, with coefficients that are
computed once. They are so exact that the result is, too: a turn rounds once, and so do n of them
together. Where errors would grow, or something might become infinite, all turns are left to the
loop, as are those that remain.

This is for loops on whose values no branch, no trip count and no place hangs, which a replay must
find again to the bit.
"""

from __future__ import annotations

from octants.analysis.affine_loops import is_affine
from octants.analysis.strictness import FREE_LOOPS, is_free
from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Block, Module, Operation, Value
from octants.ir.rewriter import copy_operation, emit
from octants.mathlib.double import Double
from octants.mathlib.number import Number
from octants.passes.lines import Line
from octants.types.scalars import i64, u1

_POWERS = range(4, 8)
"""Those of two that may be taken at a time where constants tell what becomes of them."""

_POWER = 5
"""The one elsewhere."""

_LEAST_SLOPE, _LARGEST_OFFSET, _LARGEST = 2.0**-100, 2.0**60, 2.0**100
"""What so many turns multiply by, and add, and what a loop begins with, at the least or most."""


@staged("compose_turns")
def compose_turns(module: Module) -> None:
    """Rewrite the affine loops of each task on whose bits nothing hangs, in place."""
    for task in module.tasks:
        loops = {op for op in task.body.walk() if is_affine(op)}
        if loops and is_free(task, FREE_LOOPS, {value for op in loops for value in op.results}):
            _Composer(loops).rewrite(task.body)
            _drop_constants(task.body, {value for op in task.body.walk() for value in op.operands})


def _drop_constants(block: Block, used: set[Value]) -> None:
    """Drop constants that were only computed with."""
    block.ops[:] = [op for op in block.ops if not isinstance(op, ops.Constant) or op.result in used]
    for op in block.ops:
        for region in op.regions:
            _drop_constants(region, used)


class _Composer:
    """Rewrites the blocks of a task, in which there are some affine loops."""

    def __init__(self, loops: set[Operation]) -> None:
        self._loops = loops
        self._builder = Builder()

    def rewrite(self, block: Block, is_inside: bool = False) -> None:
        """Rewrite a block and those in it; whether it is inside of a loop."""
        builder = self._builder
        with builder.into(Block(block.args)) as new:
            for op in block.ops:
                for region in op.regions:
                    if op not in self._loops:
                        self.rewrite(region, is_inside or isinstance(op, (ops.For, ops.While)))
                builder.location = op.location
                if isinstance(op, ops.Constant):
                    builder.note_constant(op)
                if op in self._loops:
                    assert isinstance(op, ops.For)
                    self._compose(op, is_inside)
                else:
                    builder.append(op)
        block.ops[:] = new.ops

    def _compose(self, loop: ops.For, is_inside: bool) -> None:
        """Build a loop, with what takes most of its turns before it if it has many."""
        builder = self._builder
        lower, upper = (Number(builder, value) for value in (loop.lower, loop.upper))
        turns = upper.to(i64) - lower.to(i64)
        known = builder.constant_of(turns.value)
        if known is not None:
            if known >= 1 << _POWERS[0]:
                self._take_known(loop, turns, known, is_inside)
            builder.append(loop)
            return
        then, orelse = Block(), Block()
        with builder.into(then):
            copy = copy_operation(loop, {})
            assert isinstance(copy, ops.For)
            self._take_most(copy, _powers(self._lines(loop), _POWER)[_POWER], turns, _POWER)
            builder.append(copy)
            builder.yield_(copy.results)
        is_long = turns >= 2 << _POWER
        results, loop.results = loop.results, [Value(value.type) for value in loop.results]
        with builder.into(orelse):
            builder.append(loop)
            builder.yield_(loop.results)
        builder.append(ops.If(is_long.value, then, orelse, results=results))

    def _take_known(self, loop: ops.For, turns: Number, known: int, is_inside: bool) -> None:
        """Build what takes most of so many turns of a loop, if that pays."""
        lines = self._lines(loop)
        if all(line.is_constant for line in lines):
            powers = _powers(lines, _POWERS[-1])
            allowed = [p for p in _POWERS if known >> p and all(map(_may_be_tame, powers[p]))]
            costs = [(2 * (known >> p) + known % (1 << p), p) for p in allowed]
            if costs:
                _, power = min(costs)
                self._take_most(loop, powers[power], turns, power)
        elif known >> _POWER > (not is_inside):  # loops around it pay for powers only once
            self._take_most(loop, _powers(lines, _POWER)[_POWER], turns, _POWER)

    def _take_most(self, loop: ops.For, lines: list[Line], turns: Number, power: int) -> None:
        """Build a loop that takes many turns at a time, and begin the other one where it ends."""
        builder, kind = self._builder, loop.lower.type
        inits = [Number(builder, value) for value in loop.inits]
        is_tame = Number(builder, builder.constant(True, u1))
        for line, init in zip(lines, inits, strict=True):
            is_tame = is_tame & _is_tame(line, init)
        times = (turns >> power).where(is_tame, 0).to(kind)
        body = Block([Value(kind), *(Value(init.type) for init in inits)])
        with builder.into(body):
            pairs = zip(lines, body.args[1:], strict=True)
            builder.yield_([line.at(Number(builder, arg)).value for line, arg in pairs])
        zero = builder.constant(0, kind)
        quick = builder.for_(zero, times.value, loop.inits, body)
        start = Number(builder, loop.lower) + (times << power)
        loop.lower, loop.inits = start.value, list(quick.results)

    def _lines(self, loop: ops.For) -> list[Line]:
        """What a turn does to each carried value."""
        builder = self._builder
        found: dict[Value, Line] = {}
        values: dict[Value, Value] = {}
        for arg in loop.body.args[1:]:
            zero = Number(builder, builder.constant(0.0, arg.type))
            found[arg] = Line(Double(zero.lift(1.0), zero), zero)
        for op in loop.body.ops[:-1]:
            if found.keys().isdisjoint(op.operands):
                emit(builder, op, values)
            else:
                operands = [self._line(value, found, values) for value in op.operands]
                found[op.result] = _of_lines(op, operands)
        return [found[value] for value in loop.body.yielded]

    def _line(self, value: Value, found: dict[Value, Line], values: dict[Value, Value]) -> Line:
        """A value in a turn; what does not change is a line with the slope zero."""
        if value in found:
            return found[value]
        number = Number(self._builder, values.get(value, value))
        zero = number.lift(0.0)
        return Line(Double(zero, zero), number)


def _powers(lines: list[Line], count: int) -> list[list[Line]]:
    """What 1, 2, 4, ... turns do."""
    found = [lines]
    for _ in range(count):
        found.append([line.twice() for line in found[-1]])
    return found


def _may_be_tame(line: Line) -> bool:
    """Whether a line is not known to be wild; see `_is_tame`."""
    return line.slope.high.build.constant_of(_has_tame_slope(line).value) is not False


def _of_lines(op: Operation, operands: list[Line]) -> Line:
    """The line that an operation makes."""
    if isinstance(op, ops.Unary):
        return operands[0].negated()
    if isinstance(op, ops.Fma):
        return _times(*operands[:2]).plus(operands[2])
    assert isinstance(op, ops.Binary)
    x, y = operands
    if op.fn == "mul":
        return _times(x, y)
    if op.fn == "div":
        return x.over(y.offset)
    return x.plus(y if op.fn == "add" else y.negated())


def _times(x: Line, y: Line) -> Line:
    """The product of a line and one that is flat."""
    return y.times(x.offset) if x.is_flat else x.times(y.offset)


def _is_tame(line: Line, init: Number) -> Number:
    """Whether errors do not grow on the way, and nothing becomes infinite.

    The loop itself is better where they do, and right about what is infinite, or no number.
    """
    is_offset, is_init = abs(line.offset) <= _LARGEST_OFFSET, abs(init) <= _LARGEST
    return _has_tame_slope(line) & is_offset & is_init


def _has_tame_slope(line: Line) -> Number:
    size = abs(line.slope.high)
    return (size >= _LEAST_SLOPE) & (size <= 1.0)
