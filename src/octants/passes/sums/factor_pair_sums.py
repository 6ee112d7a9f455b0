"""Adds up the two terms of a pair before they are scaled: `a * s - b * s` is `(a - b) * s`.

Before::

    array @x: f32, 1, ndarray, () [primal]
    array @y: f32, 1, ndarray, () [primal, adjoint]
    parallel (%2: i32 < shape<@x, 0>()) {
      %3: i32 = constant<0>()
      %4: i32 = shape<@x, 0>()
      %5: f32 = constant<0.0>()
      %6: f32 = load<@x, primal>(%2)
      %7: f32 = load<@y, primal>(%2)
      %8: f32 = for(%3, %4, %5) { (%9: i32, %10: f32):
        %11: f32 = load<@x, primal>(%9)
        %12: f32 = load<@y, primal>(%9)
        %13: f32 = binary<sub>(%6, %11)
        %14: f32 = unary<exp>(%13)
        %15: f32 = binary<mul>(%12, %13)
        %16: f32 = binary<mul>(%15, %14)
        %17: f32 = atomic<add, @y, adjoint>(%16, %2)
        %18: f32 = binary<sub>(%11, %6)
        %19: f32 = binary<mul>(%7, %18)
        %20: f32 = fma(%19, %14, %10)
        yield(%20)
      }
      %21: f32 = atomic<add, @y, adjoint>(%8, %2)
    }

After::

    parallel (%2: i32 < shape<@x, 0>()) {
      %3: i32 = constant<0>()
      %4: i32 = shape<@x, 0>()
      %5: f32 = load<@x, primal>(%2)
      %6: f32 = load<@y, primal>(%2)
      for(%3, %4) { (%7: i32):
        %8: f32 = load<@x, primal>(%7)
        %9: f32 = load<@y, primal>(%7)
        %10: f32 = binary<sub>(%5, %8)
        %11: f32 = unary<exp>(%10)
        %12: f32 = binary<sub>(%9, %6)
        %13: f32 = binary<mul>(%12, %10)
        %14: f32 = binary<mul>(%13, %11)
        %15: f32 = atomic<add, @y, adjoint>(%14, %2)
        yield()
      }
    }

A task that gathers sums (`passes.sums.gather_sums`) adds two terms for each pair to one element:
that of (i, k), and that of (k, i). If what a pair computes depends on a difference, then both are
the same linear function of two adjoints, up to a sign, and their sum is that function of the
difference of the adjoints. So it is evaluated once. A sum is left as it is if this takes no fewer
operations.

Terms are rounded in another order then, so this needs permission to contract.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator

from octants.analysis.floats.replay_strictness import may_round_differently
from octants.analysis.sums.gatherable_sums import PairLoops
from octants.analysis.sums.serial_sums import REASSOCIATE_SUMS
from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cloning import copy_block
from octants.ir.core import Block, Module, Operation, Task, Value
from octants.lazy_dataclass import dataclass
from octants.simplify.dead_code import prune_block


@staged("factor_pair_sums")
def factor_pair_sums(module: Module, noalias: bool = True) -> None:
    """Factor the sums of the outermost loops of every parallel task, in place.

    With ``noalias`` no two arrays share memory.
    """
    for task in module.tasks:
        if task.is_parallel:
            _factor_task(task, noalias)


def _factor_task(task: Task, noalias: bool) -> None:
    """Factor sums in a copy of the body, and keep it if it is shorter."""
    facts = PairLoops(task, noalias)
    pairs = [pair for loop in _loops(task.body) for pair in _find_pairs(task.body, loop)]
    if any(facts.is_observed(pair.update) for pair in pairs):
        return  # iterations would read what they add up
    numbers = [value for pair in pairs for value in (pair.update.value, *pair.term.results)]
    if not numbers or not may_round_differently(task, REASSOCIATE_SUMS, numbers):
        return
    body = copy_block(task.body, {})
    gone = set[Operation]()
    for loop in _loops(body):
        pairs = list(_find_pairs(body, loop))
        gone.update(pair.end for pair in pairs)
        _merge(loop.body, pairs)
    body.ops[:] = [op for op in body.ops if op not in gone]
    prune_block(body)
    if len(list(body.walk())) < len(list(task.body.walk())):
        task.body = body


def _loops(body: Block) -> list[ops.For]:
    return [op for op in body.ops if isinstance(op, ops.For) and op.inits]


# -- which sums ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Pair:
    """An update in a loop, and a sum that the loop carries to `end`, an update of that element.

    An iteration makes `term` of `before`.
    """

    update: ops.Atomic
    before: Value
    term: Operation
    end: ops.Atomic


def _find_pairs(block: Block, loop: ops.For) -> Iterator[_Pair]:
    """Find the sums of a loop that could as well be part of its updates."""
    updates = {_address(op): op for op in _sums_in(loop.body)}
    ends = {op.value: op for op in _sums_in(block)}
    uses = Counter(value for op in block.walk() for value in op.operands)
    numbers = ops.constants_in(block)
    makers = {value: op for op in loop.body.ops for value in op.results}
    carried = zip(loop.inits, loop.body.args[1:], loop.body.yielded, loop.results, strict=True)
    for init, arg, value, result in carried:
        end, term = ends.get(result), makers.get(value)
        if end is None or term is None or numbers.get(init) != 0:
            continue
        update = updates.get(_address(end))  # of which one sum can be part
        if update is None or uses[update.result] or uses[end.result]:
            continue
        is_alone = uses[arg] == uses[value] == uses[result] == 1
        if is_alone and _adds_to(arg, term):
            del updates[_address(end)]
            yield _Pair(update, arg, term, end)


def _sums_in(block: Block) -> list[ops.Atomic]:
    """The operations of a block, without its regions, that add to memory."""
    updates = (op for op in block.ops if isinstance(op, ops.Atomic))
    return [op for op in updates if op.fn == "add" and op.array.dtype.is_float]


def _address(op: ops.Atomic) -> Hashable:
    return op.ref, *op.indices


def _adds_to(total: Value, op: Operation) -> bool:
    """Whether an operation adds something to a total, or subtracts it."""
    if isinstance(op, ops.Fma):
        return op.z is total
    if not isinstance(op, ops.Binary) or op.fn not in ("add", "sub"):
        return False
    return op.lhs is total or (op.fn == "add" and op.rhs is total)


# -- how -------------------------------------------------------------------------------------------


def _merge(body: Block, pairs: list[_Pair]) -> None:
    """Add the terms to the updates, at the end of a loop's body; it carries no sum on then."""
    moved = {pair.update for pair in pairs}
    end = body.ops[-1]
    builder = Builder(Block([], [op for op in body.ops[:-1] if op not in moved]))
    sums = _LinearSums(builder)
    for pair in pairs:
        term, update = pair.term, pair.update
        if isinstance(term, ops.Fma):
            added = builder.binary("mul", term.x, term.y)
        else:
            lhs, rhs = term.operands
            added = rhs if lhs is pair.before else lhs
        is_minus = isinstance(term, ops.Binary) and term.fn == "sub"
        update.value = sums.add(update.value, added, is_minus)
        builder.append(update)
    totals = {pair.term.results[0]: pair.before for pair in pairs}
    builder.yield_([totals.get(value, value) for value in end.operands])
    body.ops[:] = builder.block.ops


class _LinearSums:
    """Builds sums and differences of values of a block: first of what a factor in common scales."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._built: dict[tuple[Value, Value, bool], Value] = {}

    def add(self, one: Value, other: Value, minus: bool) -> Value:
        """The sum of two values, or their difference."""
        key = one, other, minus
        if key not in self._built:
            self._built[key] = self._add(*key)
        return self._built[key]

    def _add(self, one: Value, other: Value, minus: bool) -> Value:
        builder = self._builder
        makers = {value: op for op in builder.block.ops for value in op.results}
        first, second = makers.get(one), makers.get(other)
        if isinstance(second, ops.Unary) and second.fn == "neg":
            return self.add(one, second.x, not minus)
        if isinstance(first, ops.Unary) and first.fn == "neg":
            if not minus:
                return self.add(other, first.x, True)
            return builder.unary("neg", self.add(first.x, other, False))
        if _is_opposite(first, second) if minus else one is other:
            return builder.binary("add", one, one)
        for x, c, z in _products(first):
            for u, d, w in _products(second):
                is_opposite = _is_opposite(makers.get(c), makers.get(d))
                if c is d or is_opposite:
                    return self._scale(self.add(x, u, minus is not is_opposite), c, z, w, minus)
        match first, second:
            case ops.Binary(fn="div", lhs=x, rhs=c), ops.Binary(fn="div", lhs=u, rhs=d) if c is d:
                return builder.binary("div", self.add(x, u, minus), c)
            case ops.Binary(fn="add", lhs=x, rhs=c), ops.Binary(fn="add", lhs=u, rhs=d):
                return builder.binary("add", self.add(x, u, minus), self.add(c, d, minus))
        return self._builder.binary("sub" if minus else "add", one, other)

    def _scale(
        self, x: Value, factor: Value, one: Value | None, other: Value | None, minus: bool
    ) -> Value:
        """A product, and what two products were added to."""
        if one is not None and other is not None:
            return self._builder.fma(x, factor, self.add(one, other, minus))
        if other is not None:
            one = self._builder.unary("neg", other) if minus else other
        if one is None:
            return self._builder.binary("mul", x, factor)
        return self._builder.fma(x, factor, one)


def _is_opposite(one: Operation | None, other: Operation | None) -> bool:
    """Whether two operations are x - y and y - x."""
    both = [op.operands for op in (one, other) if isinstance(op, ops.Binary) and op.fn == "sub"]
    return len(both) == 2 and both[0] == both[1][::-1]


def _products(op: Operation | None) -> Iterator[tuple[Value, Value, Value | None]]:
    """The x, y and z of an operation that is x * y + z, in both orders of the factors."""
    if isinstance(op, ops.Fma) or (isinstance(op, ops.Binary) and op.fn == "mul"):
        x, y = op.operands[:2]
        z = op.z if isinstance(op, ops.Fma) else None
        yield x, y, z
        yield y, x, z
