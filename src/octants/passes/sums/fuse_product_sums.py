"""Adds the products that a serial loop sums up one by one, each in an operation that rounds once.

Before::

    array @x: f32, 1, ndarray, () [primal]
    array @y: f32, 1, ndarray, () [primal]
    array @z: f32, 1, ndarray, () [primal]
    parallel (%2: i32 < shape<@y, 0>()) {
      %3: i32 = constant<0>()
      %4: i32 = shape<@x, 0>()
      %5: f32 = constant<0.0>()
      %6: f32 = load<@y, primal>(%2)
      %7: f32 = for(%3, %4, %5) { (%8: i32, %9: f32):
        %10: f32 = load<@x, primal>(%8)
        %11: f32 = binary<mul>(%6, %10)
        %12: f32 = fma(%10, %10, %11)
        %13: f32 = binary<add>(%9, %12)
        yield(%13)
      }
      store<@z, primal>(%7, %2)
    }

After::

    parallel (%2: i32 < shape<@y, 0>()) {
      %3: i32 = constant<0>()
      %4: i32 = shape<@x, 0>()
      %5: f32 = constant<0.0>()
      %6: f32 = load<@y, primal>(%2)
      %7: f32 = for(%3, %4, %5) { (%8: i32, %9: f32):
        %10: f32 = load<@x, primal>(%8)
        %11: f32 = fma(%6, %10, %9)
        %12: f32 = fma(%10, %10, %11)
        yield(%12)
      }
      store<@z, primal>(%7, %2)
    }

The terms of a sum are added in another order then. So this needs permission to round differently,
and is for sums on which no branch, trip count or index depends, as with `split_sums`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from octants.analysis.floats.replay_strictness import decides
from octants.analysis.sums.serial_sums import REASSOCIATE_SUMS
from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Block, Module, Operation, Task, Value
from octants.lazy_dataclass import dataclass

_MOST = 16  # operations that make up what is added


@staged("fuse_product_sums")
def fuse_product_sums(module: Module, latency: int = 0) -> None:
    """Fuse in the loops of every parallel task, in place.

    Args:
        module: what is rewritten.
        latency: how many operations of an iteration a processor can run while one waits for the
            operation before it. Shorter loops would wait for their sums.
    """
    for task in module.tasks:
        if task.is_parallel:
            _fuse_task(task, latency)


def _fuse_task(task: Task, latency: int) -> None:
    """Fuse the sums of a task if no replay depends on their last bits."""
    uses = Counter(value for op in task.body.walk() for value in op.operands)
    loops = [op for op in task.body.walk() if isinstance(op, ops.For)]
    found = {loop: steps for loop in loops if (steps := list(_Sums(loop, uses, latency).steps()))}
    sums = {value for loop in found for value in loop.results if value.type.is_float}
    if sums and (task.options.get(REASSOCIATE_SUMS) or not decides(task.body, sums)):
        for loop, steps in found.items():
            _replace(loop.body, steps)


@dataclass(frozen=True, slots=True)
class _Term:
    """A term of a sum: a value, or a product of two; `minus` says that it is subtracted."""

    minus: bool
    x: Value
    y: Value | None = None


@dataclass(frozen=True, slots=True)
class _Step:
    """An addition to a sum, what that was before, what is added, and what only led to that."""

    op: ops.Binary
    before: Value
    terms: list[_Term]
    gone: list[Operation]


# -- which -----------------------------------------------------------------------------------------


class _Sums:
    """The sums of a loop."""

    def __init__(self, loop: ops.For, uses: Counter[Value], latency: int) -> None:
        self._loop, self._uses, self._latency = loop, uses, latency
        self._makers = {value: op for op in loop.body.ops for value in op.results}
        self._users = {value: op for op in loop.body.ops for value in op.operands}

    def steps(self) -> Iterator[_Step]:
        """The additions that take less operations when they are fused."""
        body = self._loop.body
        for arg, end in zip(body.args[1:], body.yielded, strict=True):
            if arg.type.is_float and arg.type.bits >= 32:
                for op, before in self._additions(arg, end):
                    step = self._step(op, before)
                    if step is not None:
                        yield step

    def _additions(self, arg: Value, end: Value) -> list[tuple[Operation, Value]]:
        """The additions that lead from what a loop carries to what it yields; none if not all do.

        Nothing else uses what is in between.
        """
        found: list[tuple[Operation, Value]] = []
        value = arg
        while value is not end:
            op = self._users.get(value)
            if self._uses[value] != 1 or op is None or not _adds_to(op, value):
                return []
            found.append((op, value))
            value = op.results[0]
        return found if self._uses[end] == 1 else []

    def _step(self, op: Operation, before: Value) -> _Step | None:
        """The step of a sum that adds to ``before``; None if fusing its terms saves nothing."""
        if not isinstance(op, ops.Binary):
            return None
        terms: list[_Term] = []
        gone: list[Operation] = []
        is_first = op.lhs is before
        added = op.rhs if is_first else op.lhs
        self._decompose(added, op.fn == "sub", terms, gone)
        free = sum(isinstance(each, ops.Unary) for each in gone)  # a sign is part of an operation
        step = _Step(op, before, terms, gone)
        if self._latency * len(terms) > len(self._loop.body.ops):
            return None
        return step if len(terms) < 1 + len(gone) - free and len(gone) <= _MOST else None

    def _decompose(
        self, value: Value, minus: bool, terms: list[_Term], gone: list[Operation]
    ) -> None:
        """Add to the terms of a value, and to the operations that these terms replace."""
        op = self._makers.get(value)
        if self._uses[value] != 1 or len(gone) > _MOST:
            op = None
        parts: list[tuple[Value, bool]] = []
        match op:
            case ops.Unary(fn="neg"):
                parts = [(op.x, not minus)]
            case ops.Binary(fn="add" | "sub"):
                parts = [(op.lhs, minus), (op.rhs, minus != (op.fn == "sub"))]
            case ops.Fma():
                parts = [(op.z, minus)]
                terms.append(_Term(minus, op.x, op.y))
            case ops.Binary(fn="mul"):
                terms.append(_Term(minus, op.lhs, op.rhs))
            case _:
                terms.append(_Term(minus, value))
                return
        gone.append(op)
        for part, sign in parts:
            self._decompose(part, sign, terms, gone)


def _adds_to(op: Operation, value: Value) -> bool:
    """Whether an operation adds something to a value, or takes it away."""
    if isinstance(op, ops.Fma):
        return op.z is value
    if not isinstance(op, ops.Binary):
        return False
    return op.fn == "add" or (op.fn == "sub" and op.lhs is value)


# -- how -------------------------------------------------------------------------------------------


def _replace(block: Block, steps: list[_Step]) -> None:
    """Put operations that add one term each instead of the additions."""
    new: dict[Operation, list[Operation]] = {step.op: _additions(step) for step in steps}
    gone = {op for step in steps for op in step.gone}
    kept = [op for op in block.ops if op not in gone]
    block.ops[:] = [each for op in kept for each in new.get(op, [op])]


def _additions(step: _Step) -> list[Operation]:
    """The operations that add the terms; the last one has the result of the addition."""
    builder, total = Builder(), step.before
    builder.location = step.op.location
    results = [*(Value(total.type) for _ in step.terms[1:]), step.op.result]
    for term, result in zip(reversed(step.terms), results, strict=True):
        total = _add(builder, total, term, result)
    return builder.block.ops


def _add(builder: Builder, total: Value, term: _Term, result: Value) -> Value:
    """Define a sum and one more term."""
    if term.y is None:
        fn = "sub" if term.minus else "add"
        builder.append(ops.Binary(fn, total, term.x, results=[result]))
    else:
        x = builder.unary("neg", term.x) if term.minus else term.x
        builder.append(ops.Fma(x, term.y, total, results=[result]))
    return result
