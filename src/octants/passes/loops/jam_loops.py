"""Runs iterations of a loop side by side: unrolls it, and fuses the loops in the copies.

A product of a matrix and a vector loads the vector again for each row. With several rows side by
side, their sums share each component that is loaded, and do not wait for each other.

Before::

    array @w: f32, 2, field, () [primal (2, 32) ((0, 1, 0, 128), (1, 1, 0, 4)) ()]
    array @x: f32, 1, field, () [primal (32,) ((0, 1, 0, 4),) ()]
    array @y: f32, 1, field, () [primal (2,) ((0, 1, 0, 4),) ()]
    parallel (%2: i32 < constant<1>()) {
      %3: i32 = constant<0>()
      %4: i32 = constant<2>()
      %5: i32 = constant<32>()
      %6: f32 = constant<0.0>()
      for(%3, %4) { (%7: i32):
        %8: f32 = for(%3, %5, %6) { (%9: i32, %10: f32):
          %11: f32 = load<@w, primal>(%7, %9)
          %12: f32 = load<@x, primal>(%9)
          %13: f32 = fma(%11, %12, %10)
          yield(%13)
        }
        store<@y, primal>(%8, %7)
        yield()
      }
    }

After::

    parallel (%2: i32 < constant<1>()) {
      %3: i32 = constant<0>()
      %4: i32 = constant<2>()
      %5: i32 = constant<32>()
      %6: f32 = constant<0.0>()
      %7: i32 = constant<1>()
      for(%3, %7) { (%8: i32):
        %9: i32 = binary<mul>(%8, %4)
        %10: i32 = binary<add>(%9, %7)
        %11: f32, %12: f32 = for(%3, %5, %6, %6) { (%13: i32, %14: f32, %15: f32):
          %16: f32 = load<@w, primal>(%9, %13)
          %17: f32 = load<@x, primal>(%13)
          %18: f32 = fma(%16, %17, %14)
          %19: f32 = load<@w, primal>(%10, %13)
          %20: f32 = fma(%19, %17, %15)
          yield(%18, %20)
        }
        store<@y, primal>(%11, %9)
        store<@y, primal>(%12, %10)
        yield()
      }
    }

An iteration's operations before its inner loop then run before the inner loop of an earlier
iteration, and so on. The pass runs where no operation can tell: one that writes and another that
accesses the same memory change places only if both add to it atomically, or if the indices show
that they access different elements (`_Order`). So all sums are rounded as before, but those of
atomic updates, whose order is free. Iterations that record themselves in memory of the work item
write different elements, too. In the record buffer, records are written in their order: all of them
before the inner loops, or all behind. What an iteration computes from the position of the next
record, which the loop carries, moves to where it is needed.

Where each work item has a thread, the operations between loops alternate between the iterations:
drivers' compilers keep loads behind earlier stores, so that whole iterations would wait for each
other.
"""

from __future__ import annotations

from collections.abc import Sequence

from octants.analysis.cost_model import operations_in
from octants.analysis.indices.affine_analysis import AffineExpressions
from octants.analysis.indices.distinct_iterations import differ, varying
from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.array_aliasing import may_alias
from octants.ir.cloning import emit
from octants.ir.core import Block, Module, Operation, Task, Value
from octants.ir.ops import Access, For, RecordPush
from octants.lazy_dataclass import dataclass
from octants.passes.loops.unrolled_iterations import LoopRewriter, write_chunks
from octants.simplify import simplify
from octants.target import Vectors

_MOST_ON_GPUS, _MOST_ON_CPUS = (8, 128, 16), (4, 16, 4)
"""The most iterations side by side, operations of a fused iteration, and values that it carries:
more of them take too many registers, of which CPUs have fewer, with several vectors for each value.
"""
_EVEN, _CHUNKS = 4, 2
"""A loop leaves no iterations over if it updates memory and its trip count is a multiple of the
first, or if there are fewer chunks than the second.
"""
_UNROLLED = 16
"""The trip count up to which LLVM unrolls short loops: what they load is in registers then."""


@staged("jam_loops")
def jam_loops(module: Module, vectors: Vectors | None = None, leaves_rests: bool = False) -> None:
    """Run iterations side by side in the loops of all parallel tasks, in place.

    Args:
        module: the module.
        vectors: the vectors in whose lanes work items run; None where each has a thread.
        leaves_rests: loops may leave iterations over: that pays on GPUs. Those that are left also
            run side by side, but one by one where they update memory atomically, which takes much
            code.
    """
    most = _MOST_ON_GPUS if vectors is None else _MOST_ON_CPUS
    tasks = [task for task in module.tasks if task.is_parallel and has_nests(task)]
    given = module.noalias, leaves_rests, vectors is None, *most
    changes = [_Jammer(task, *given).run() for task in tasks]
    if any(changes):
        simplify(module)


def has_nests(task: Task) -> bool:
    """Whether a loop has loops in it."""
    loops = (op for op in task.body.walk() if isinstance(op, For))
    return any(isinstance(op, For) for loop in loops for op in loop.body.ops)


@dataclass(frozen=True, slots=True)
class _Segment:
    """The operations of an iteration between two of its loops, or one of these loops."""

    ops: list[Operation]

    @property
    def loop(self) -> For | None:
        """The loop, if it is one."""
        return self.ops[0] if self.ops and isinstance(self.ops[0], For) else None

    def accesses(self) -> list[Access]:
        """Its accesses to memory."""
        return [op for op in Block([], self.ops).walk() if isinstance(op, Access)]

    def pushes(self) -> list[RecordPush]:
        """Where it records an iteration."""
        return [op for op in Block([], self.ops).walk() if isinstance(op, RecordPush)]


class _Jammer:
    """Rewrites a task."""

    def __init__(
        self,
        task: Task,
        noalias: bool,
        leaves_rests: bool,
        alternates: bool,
        most: int,
        most_work: int,
        most_sums: int,
    ) -> None:
        self._affine, self._noalias = AffineExpressions(task), noalias
        self._leaves_rests, self._alternates = leaves_rests, alternates
        self._most, self._most_work, self._most_sums = most, most_work, most_sums
        self._loops = LoopRewriter(task.body)
        self._builder = self._loops.builder
        self._has_changed = False

    def run(self) -> bool:
        """Rewrite the task; gives whether anything has changed."""
        self._loops.rewrite(self._rewrite_loop)
        return self._has_changed

    def _rewrite_loop(self, op: For) -> None:
        segments = _segments(op)
        count = self._count(op, segments)
        if count > 1:

            def write(first: Value, inits: list[Value]) -> list[Value]:
                return self._side_by_side(op, segments, first, inits, count)

            op.lower, op.inits = write_chunks(self._builder, op, count, write)
            self._has_changed = True
            left = self._loops.trips(op)
            if left and left > 1 and not _updates(op):
                op.inits = self._side_by_side(op, segments, op.lower, op.inits, left)
                left = 0
            if left == 0:
                self._loops.replaced.replace(op, op.inits)
                return
        self._builder.append(op)

    # -- which loops -------------------------------------------------------------------------------

    def _count(self, op: For, segments: Sequence[_Segment]) -> int:
        """How many iterations run side by side; 0 or 1 if the loop stays."""
        loops = [segment.loop for segment in segments if segment.loop is not None]
        trips = self._loops.trips(op)
        if not loops or (trips is not None and trips < 2):
            return 0
        if not all(map(_is_plain, op.body.ops[:-1])) or not _records_in_order(op, segments, trips):
            return 0
        inside = varying(op)
        if any(not inside.isdisjoint((loop.lower, loop.upper)) for loop in loops):
            return 0
        if all((self._loops.trips(loop) or _UNROLLED + 1) <= _UNROLLED for loop in loops):
            return 0
        order = _Order(self._affine, self._noalias, op, inside)
        if not order.carries_within_segments(segments) or not order.allows(segments):
            return 0
        if not any(order.shares(loop) for loop in loops):
            return 0
        work, sums = max(map(operations_in, loops)), max(len(loop.inits) for loop in loops)
        leaves_rest = (
            self._leaves_rests
            and trips is not None
            and (trips % _EVEN != 0 or not _updates(op))
            and _has_local_records(op)
        )
        count = self._most
        while count > 1 and (
            count * work > self._most_work
            or count * sums > self._most_sums
            or (trips is not None and not _divides(trips, count, leaves_rest=leaves_rest))
        ):
            count //= 2
        return count

    # -- rewriting ---------------------------------------------------------------------------------

    def _side_by_side(
        self,
        op: For,
        segments: Sequence[_Segment],
        first: Value,
        inits: Sequence[Value],
        count: int,
    ) -> list[Value]:
        """Write so many iterations from a counter on; return what is carried then."""
        builder, counter = self._builder, op.body.args[0]
        copies: list[dict[Value, Value]] = []
        for number in range(count):
            copies.append(
                {counter: builder.binary("add", first, builder.constant(number, first.type))}
            )
        yielded = op.body.yielded
        carried = op.body.args[1:]
        for segment in segments:
            if segment.loop is not None:
                self._fuse(segment.loop, copies)
                continue
            rest = self._alternate(op, segment.ops, copies)
            known = dict(zip(carried, inits, strict=True))
            for values in copies:
                values.update(known)
                for each in rest:
                    emit(builder, each, values)
                known = {
                    arg: values.get(value, value)
                    for arg, value in zip(carried, yielded, strict=True)
                }
        last = list(inits)
        for values in copies:
            values.update(zip(carried, last, strict=True))
            last = [values.get(value, value) for value in yielded]
        return last

    def _alternate(
        self, op: For, operations: list[Operation], copies: list[dict[Value, Value]]
    ) -> list[Operation]:
        """Write each operation for all iterations before the next one; return the others.

        Those need what the loop carries.
        """
        order = _Order(self._affine, self._noalias, op, varying(op))
        if not (self._alternates and order.are_independent(operations)):
            return operations
        late = set(op.body.args[1:])
        accesses, rest = list[Access](), list[Operation]()
        for each in operations:
            if not (late.isdisjoint(each.operands) and order.may_precede(each, rest)):
                late.update(each.results)
                rest.append(each)
                continue
            stored = order.stored(each, accesses)
            for values in copies:
                if stored is None:
                    emit(self._builder, each, values)
                else:
                    values[each.results[0]] = values.get(stored, stored)
            if isinstance(each, Access):
                accesses.append(each)
        return rest

    def _fuse(self, loop: For, copies: list[dict[Value, Value]]) -> None:
        """Write a loop that runs the iterations of the copies of a loop one after the other."""
        builder = self._builder
        lower, upper = (copies[0].get(each, each) for each in (loop.lower, loop.upper))
        inits = [values.get(init, init) for values in copies for init in loop.inits]
        counter = Value(loop.lower.type)
        body = Block([counter, *(Value(init.type) for init in inits)])
        size = len(loop.inits)
        with builder.into(body):
            results: list[Value] = []
            for number, values in enumerate(copies):
                own = dict(values)
                own[loop.body.args[0]] = counter
                own.update(
                    zip(
                        loop.body.args[1:],
                        body.args[1 + number * size : 1 + (number + 1) * size],
                        strict=True,
                    )
                )
                for each in loop.body.ops[:-1]:
                    emit(builder, each, own)
                results += [own.get(value, value) for value in loop.body.yielded]
            builder.yield_(results)
        found = builder.for_(lower, upper, inits, body).results
        for number, values in enumerate(copies):
            values.update(
                zip(loop.results, found[number * size : (number + 1) * size], strict=True)
            )


def _segments(op: For) -> list[_Segment]:
    """The segments of an iteration of a loop, in order."""
    segments, current = list[_Segment](), list[Operation]()
    for each in op.body.ops[:-1]:
        if isinstance(each, For):
            segments += [_Segment(current), _Segment([each])]
            current = []
        else:
            current.append(each)
    segments.append(_Segment(current))
    for number in range(0, len(segments) - 2, 2):
        _sink(segments, number, op)
    return segments


def _sink(segments: list[_Segment], number: int, op: For) -> None:
    """Move what follows from carried values, and a segment does not need, into the next one."""
    current, loop, behind = segments[number : number + 3]
    carried = set(op.body.args[1:])
    for each in Block([], current.ops).walk():
        if not carried.isdisjoint(each.operands):
            carried.update(each.results)
    needed = {value for each in Block([], loop.ops).walk() for value in each.operands}
    needed.update(op.body.yielded)
    for each in reversed(list(current.ops)):
        can_move = each.is_scalar or isinstance(each, ops.RecordEnd)
        if can_move and needed.isdisjoint(each.results) and not carried.isdisjoint(each.results):
            current.ops.remove(each)
            behind.ops.insert(0, each)
        else:
            needed.update(value for inner in each.walk() for value in inner.operands)


_PLAIN = (
    *(ops.Constant, ops.Load, ops.Store, ops.Atomic, ops.Yield),
    *(RecordPush, ops.RecordPop, ops.RecordEnd, ops.Longest),
)


def _is_plain(op: Operation) -> bool:
    """Whether an operation only computes, accesses memory, or is a loop of such operations.

    A branch may record an iteration, or replay one.
    """
    inner = op.walk_regions()
    if isinstance(op, For):
        return all(not each.regions and _is_computation(each) for each in inner)
    if isinstance(op, ops.If):
        return all(isinstance(each, (For, ops.If)) or _is_computation(each) for each in inner)
    return _is_computation(op)


def _is_computation(op: Operation) -> bool:
    return not op.regions and (op.is_scalar or isinstance(op, _PLAIN))


def _divides(trips: int, count: int, *, leaves_rest: bool) -> bool:
    """Whether so many iterations are chunks of a length, or chunks and a few more."""
    return trips % count == 0 or (leaves_rest and trips >= _CHUNKS * count)


def _has_local_records(loop: For) -> bool:
    """Whether all records of a loop are in memory of the work item, or there are none."""
    return all(
        op.record.local
        for op in loop.body.walk()
        if isinstance(op, (ops.RecordAccess, ops.RecordEnd))
    )


def _updates(loop: For) -> bool:
    """Whether iterations of a loop update memory atomically."""
    return any(isinstance(op, ops.Atomic) for op in loop.body.walk())


def _records_in_order(loop: For, segments: Sequence[_Segment], trips: int | None) -> bool:
    """Whether records stay the same: none that the loop writes is read in it, or written twice.

    In the record buffer each position follows from that of the record before it, and lanes agree on
    it by the number of the iteration, which a rest of a loop counts from zero.
    """
    pushes = [segment.pushes() for segment in segments]
    found = [push for each in pushes for push in each]
    read = {op.record for op in loop.body.walk() if isinstance(op, ops.RecordPop)}
    if any(push.record in read or push.record.unrolled for push in found):
        return False
    if any(each and segment.loop for each, segment in zip(pushes, segments, strict=True)):
        return False
    if trips is None and not _has_local_records(loop):
        return False
    if all(push.record.local for push in found):
        return len({push.record for push in found}) == len(found)
    return sum(map(bool, pushes)) == 1


class _Order:
    """Whether iterations of a loop may run side by side."""

    def __init__(
        self, affine: AffineExpressions, noalias: bool, op: For, inside: set[Value]
    ) -> None:
        self._affine, self._noalias, self._op, self._inside = affine, noalias, op, inside
        self._used = op.body.used()

    def carries_within_segments(self, segments: Sequence[_Segment]) -> bool:
        """Whether what the loop carries is ready where the next iteration needs it.

        A segment runs for one iteration after the other, but a loop for all of them at once.
        """
        body = self._op.body
        where = {
            value: number
            for number, segment in enumerate(segments)
            for each in segment.ops
            for value in each.results
        }
        ready = {
            arg: where.get(value, -1)
            for arg, value in zip(body.args[1:], body.yielded, strict=True)
        }
        passed_on = [
            (arg, value)
            for arg, value in zip(body.args[1:], body.yielded, strict=True)
            if value in ready
        ]
        for _ in passed_on:
            ready.update((arg, max(ready[arg], ready[value])) for arg, value in passed_on)
        return all(
            ready.get(value, -1) <= number - (segment.loop is not None)
            for number, segment in enumerate(segments)
            for each in Block([], segment.ops).walk()
            for value in each.operands
        )

    def shares(self, loop: For) -> bool:
        """Whether iterations side by side load the same elements in a loop."""
        counter = self._op.body.args[0]
        varies = {counter}
        for each in self._op.body.walk():
            if not isinstance(each, ops.Constant) and not varies.isdisjoint(each.operands):
                varies.update(each.results)
        return any(
            isinstance(each, ops.Load) and varies.isdisjoint(each.indices) for each in loop.body.ops
        )

    def allows(self, segments: Sequence[_Segment]) -> bool:
        """Whether no access to memory can tell that others have changed places with it."""
        accesses = [segment.accesses() for segment in segments]
        for later, behind in enumerate(accesses):
            loop = segments[later].loop
            if loop is not None and any(
                self._conflict(one, other) and not self._keep_order(loop, one, other)
                for one in behind
                for other in behind
            ):
                return False
            if any(
                self._conflict(one, other) and not self._differ(one, other)
                for before in accesses[:later]
                for one in behind
                for other in before
            ):
                return False
        return True

    def are_independent(self, operations: Sequence[Operation]) -> bool:
        """Whether operations may run for all iterations one by one: no access can tell."""
        simple = ops.Constant, ops.Load, ops.Store
        accesses = [op for op in operations if isinstance(op, Access)]
        return all(op.is_scalar or isinstance(op, simple) for op in operations) and not any(
            self._conflict(one, other) and not self._differ(one, other)
            for one in accesses
            for other in accesses
        )

    def may_precede(self, op: Operation, others: Sequence[Operation]) -> bool:
        """Whether no access of the same iteration has to stay before an operation."""
        return not isinstance(op, Access) or not any(
            isinstance(other, Access) and self._conflict(op, other) for other in others
        )

    def stored(self, op: Operation, before: Sequence[Access]) -> Value | None:
        """Return what an operation loads, if the same iteration has stored it; else None."""
        if not isinstance(op, ops.Load):
            return None
        last = next((each for each in reversed(before) if self._conflict(op, each)), None)
        is_same = last is not None and last.ref == op.ref and last.indices == op.indices
        return last.value if isinstance(last, ops.Store) and is_same else None

    def _conflict(self, one: Access, other: Access) -> bool:
        """Whether two accesses may have to keep their order."""
        if not (isinstance(one, ops.Write) or isinstance(other, ops.Write)):
            return False
        if not may_alias(one.ref, other.ref, self._noalias):
            return False
        return not (self._is_sum(one) and self._is_sum(other))

    def _is_sum(self, op: Access) -> bool:
        """Whether an access adds atomically, and does not give what was there before."""
        return isinstance(op, ops.Atomic) and op.fn == "add" and self._used.isdisjoint(op.results)

    def _differ(self, one: Access, other: Access) -> bool:
        """Whether accesses of different iterations of the outer loop are to different elements."""
        return differ(self._affine, self._op.body.args[0], self._inside, one, other)

    def _keep_order(self, loop: For, one: Access, other: Access) -> bool:
        """Whether accesses of different iterations of an inner loop are to different elements."""
        inner = differ(self._affine, loop.body.args[0], self._inside, one, other)
        return inner or self._differ(one, other)
