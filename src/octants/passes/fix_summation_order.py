"""Makes results the same bits from run to run, for any number of threads: ``deterministic=True``.

Before::

    array @x: f32, 1, ndarray, () [primal]
    array @s: f32, 0, field, () [primal]
    parallel (%2: i32 < shape<@x, 0>()) {
      %3: f32 = load<@x, primal>(%2)
      %4: f32 = atomic<add, @s, primal>(%3)
    }

After::

    kernel @k
    array @x: f32, 1, ndarray, () [primal]
    array @s: f32, 0, field, () [primal]
    array @k_0_bounds: i64, 0, temporary, (2,) [primal]
    array @k_0_sum0: f32, 0, temporary, (128,) [primal]
    array @k_0_any0: u1, 0, temporary, (128,) [primal]
    serial @k_0_bounds {
      %0: i32 = constant<0>()
      %1: i32 = shape<@x, 0>()
      %2: i64 = cast(%0)
      %3: i32 = constant<0>()
      store<@k_0_bounds, primal>(%2, %3)
      %4: i64 = cast(%1)
      %5: i32 = constant<1>()
      store<@k_0_bounds, primal>(%4, %5)
      yield()
    }
    parallel @k_0 {
      %6: i32 = constant<0>()
      %7: i32 = constant<128>()
      yield(%6, %7)
    } { (%8: i32):
      %9: i32 = constant<0>()
      %10: i64 = load<@k_0_bounds, primal>(%9)
      %11: i32 = constant<1>()
      %12: i64 = load<@k_0_bounds, primal>(%11)
      %13: i64 = binary<sub>(%12, %10)
      %14: i64 = constant<0>()
      %15: i64 = binary<max>(%13, %14)
      %16: i64 = cast(%8)
      %17: i64 = constant<128>()
      %18: i64 = constant<1>()
      %19: i64 = binary<add>(%16, %18)
      %20: i64 = binary<mul>(%15, %16)
      %21: i64 = binary<floordiv>(%20, %17)
      %22: i64 = binary<add>(%10, %21)
      %23: i32 = cast(%22)
      %24: i64 = binary<mul>(%15, %19)
      %25: i64 = binary<floordiv>(%24, %17)
      %26: i64 = binary<add>(%10, %25)
      %27: i32 = cast(%26)
      %28: u1 = constant<True>()
      for(%23, %27) { (%29: i32):
        %30: f32 = load<@x, primal>(%29)
        %31: f32 = atomic<add, @k_0_sum0, primal>(%30, %8)
        store<@k_0_any0, primal>(%28, %8)
        yield()
      }
      yield()
    }
    serial @k_0_combine {
      %32: i32 = constant<0>()
      %33: i32 = constant<128>()
      for(%32, %33) { (%34: i32):
        %35: u1 = load<@k_0_any0, primal>(%34)
        if(%35) {
          %36: f32 = load<@k_0_sum0, primal>(%34)
          %37: f32 = atomic<add, @s, primal>(%36)
          yield()
        } {
          yield()
        }
        yield()
      }
      yield()
    }

Sums into an element that is the same for all work items are taken over chunks of the work items,
whose bounds do not depend on the number of threads, and combined in order. Sums into elements that
vary are left to code generation, if `analysis.privatisation` has a way to make them: the task has
the option ``fixed_order``. With other updates that depend on the order - products of floats, or
what returns what was there before - the work items run one after the other. Where it takes many
threads to keep the machine busy, `fix_summation_order_on_gpus` makes tasks of sums of both kinds,
if it can.
"""

from __future__ import annotations

from octants.analysis.affine_analysis import AffineExpressions
from octants.analysis.privatisation import find_sums
from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.array_aliasing import may_alias
from octants.ir.builder import Builder
from octants.ir.cloning import copy_block, refuse_cooperation, serialise
from octants.ir.core import Array, ArrayRef, Block, Companion, Module, Operation, Task, Value
from octants.ir.slices import emit_slice
from octants.passes.demote_atomics import owned_targets
from octants.passes.fix_summation_order_on_gpus import OrderedParts, find_parts
from octants.passes.launch_temporaries import add_temporary, load_bounds, make_bounds, store_bounds
from octants.types.scalars import DType, i32, i64, register_type, u1

CHUNKS = 128
PRIMAL = Companion.PRIMAL


@staged("fix_summation_order")
def fix_summation_order(module: Module, noalias: bool = False, many: bool = False) -> None:
    """Fix the order of updates, in place.

    Args:
        module: what is rewritten.
        noalias: no two arrays share memory.
        many: the device needs many threads to be busy, so that the parts of a sum are many too.
    """
    tasks: list[Task] = []
    for task in module.tasks:
        updates = _unordered(task, noalias)
        if not updates:
            tasks.append(task)
            continue
        refuse_cooperation(task)
        parts = _parts(task, updates, noalias) if many else None
        if parts is not None:
            tasks += parts.tasks(module)
        elif _are_shared_sums(task, updates, noalias):
            tasks += _Chunks(module, task, updates).tasks()
        elif _are_plain_sums(task, updates, noalias):
            task.options = {**task.options, "fixed_order": True}
            tasks.append(task)
        else:
            tasks.append(serialise(task))
    module.tasks[:] = tasks


# -- which -----------------------------------------------------------------------------------------


def _unordered(task: Task, noalias: bool) -> list[Operation]:
    """The updates of a task whose outcome depends on the order of its work items."""
    if not task.is_parallel:
        return []
    used = task.body.used()
    found = [op for op in task.body.walk() if _depends_on_order(op, used)]
    owned = owned_targets(task, noalias) if found else set()
    return [op for op in found if op.ref not in owned]  # type: ignore[attr-defined]


def _depends_on_order(op: Operation, used: set[Value]) -> bool:
    if not isinstance(op, ops.Atomic):
        return op.reads and op.writes
    return op.array.dtype.is_float or op.fn == "exchange" or op.result in used


def _parts(task: Task, updates: list[Operation], noalias: bool) -> OrderedParts | None:
    """The parts of the sums that many threads add to; None if there are updates other than sums.

    A work item that records may have to run again, which a thread with several of them cannot.
    """
    if any(isinstance(op, ops.RecordPush) for op in task.body.walk()):
        return None
    sums, targets = find_sums(task, noalias), dict[ArrayRef, list[Operation]]()
    for op in updates:
        targets.setdefault(op.ref, []).append(op)  # type: ignore[attr-defined]
    shared: list[Operation] = []
    spread: list[Operation] = []
    for target, own in targets.items():
        if _are_shared_sums(task, own, noalias):
            shared += own
        elif target in sums:
            spread += own
        else:
            return None
    return find_parts(task, shared, spread)


def _are_plain_sums(task: Task, updates: list[Operation], noalias: bool) -> bool:
    """Whether workers can add to all of their targets plainly."""
    sums = find_sums(task, noalias)
    return all(op.ref in sums for op in updates)  # type: ignore[attr-defined]


def _are_shared_sums(task: Task, updates: list[Operation], noalias: bool) -> bool:
    """Whether all of them add to uniform addresses whose values before are unused."""
    affine = AffineExpressions(task)
    used = task.body.used()
    for op in updates:
        if not isinstance(op, ops.Atomic) or op.fn not in ("add", "sub") or op.result in used:
            return False
        if not all(map(affine.is_uniform, op.indices)):
            return False
    known = set(updates)
    others = [op for op in task.body.walk() if isinstance(op, ops.Access) and op not in known]
    return not any(_conflicts(affine, op, other, noalias) for op in updates for other in others)


def _conflicts(affine: AffineExpressions, op: Operation, other: ops.Access, noalias: bool) -> bool:
    """Whether an access and a delayed update of its work item may touch one location."""
    assert isinstance(op, ops.Atomic)
    if other.ref == op.ref:
        return True
    if not may_alias(op.ref, other.ref, noalias):
        return False
    return not (isinstance(other, ops.Load) and affine.precedes(other, op))


# -- how -------------------------------------------------------------------------------------------


class _Chunks:
    """Three tasks for one: the bounds of the work items, their chunks, what they add up to."""

    def __init__(self, module: Module, task: Task, updates: list[Operation]) -> None:
        self.module = module
        self.task = task
        self.affine = AffineExpressions(task)
        self.bounds = make_bounds(module, task)
        self.sums: dict[object, tuple[Array, Array, ops.Atomic]] = {}
        for op in updates:
            assert isinstance(op, ops.Atomic)
            key = self.affine.element(op)
            if key not in self.sums:
                number = len(self.sums)
                arrays = (
                    self._array(f"sum{number}", register_type(op.array.dtype)),
                    self._array(f"any{number}", u1),
                )
                self.sums[key] = *arrays, op

    def _array(self, name: str, dtype: DType) -> Array:
        return add_temporary(self.module, f"{self.task.name}_{name}", dtype, (CHUNKS,))

    def tasks(self) -> list[Task]:
        kind, options = self.task.body.args[0].type, self.task.options
        domain = Builder()
        domain.yield_([domain.constant(0, kind), domain.constant(CHUNKS, kind)])
        name, location = self.task.name, self.task.location
        return [
            store_bounds(self.task, self.bounds),
            Task(name, self._chunk(), domain.block, location, options),
            Task(f"{name}_combine", self._combine(), None, location),
        ]

    def _chunk(self) -> Block:
        """The work items of one chunk, in order."""
        item = self.task.body.args[0]
        chunk = Value(item.type, "chunk")
        builder = Builder(Block([chunk]))
        builder.location = self.task.location
        lower, upper = load_bounds(builder, self.bounds)
        count = builder.binary("max", builder.binary("sub", upper, lower), builder.offset(0))
        first, total = builder.cast(chunk, i64), builder.offset(CHUNKS)
        ends = []
        for number in (first, builder.binary("add", first, builder.offset(1))):
            share = builder.binary("floordiv", builder.binary("mul", count, number), total)
            ends.append(builder.cast(builder.binary("add", lower, share), item.type))
        yes = builder.constant(True, u1)
        body = copy_block(self.task.body, {})
        self._redirect(self.task.body, body, chunk, yes)
        begin, end = ends
        builder.for_(begin, end, [], body)
        builder.yield_()
        return builder.block

    def _redirect(self, original: Block, block: Block, chunk: Value, yes: Value) -> None:
        """Let the updates go to the sums of the chunk."""
        builder = Builder(Block())
        for old, op in zip(original.ops, block.ops, strict=True):
            for old_region, region in zip(old.regions, op.regions, strict=True):
                self._redirect(old_region, region, chunk, yes)
            found = self.sums.get(self.affine.element(old)) if isinstance(old, ops.Atomic) else None
            builder.location = op.location
            if found is not None and isinstance(op, ops.Atomic):
                array, touched, _ = found
                builder.atomic(op.fn, array, [chunk], builder.cast(op.value, array.dtype))
                builder.store(touched, [chunk], yes)
            else:
                builder.append(op)
        block.ops[:] = builder.block.ops

    def _combine(self) -> Block:
        """Add the sums of the chunks to the elements that they belong to, chunk by chunk."""
        builder = Builder(Block())
        builder.location = self.task.location
        for array, touched, update in self.sums.values():
            lower, upper = builder.index(0), builder.index(CHUNKS)
            indices = emit_slice(builder, update.indices, self.affine.definitions)
            body = Block([Value(i32, "chunk")])
            with builder.into(body):
                with builder.only_if(builder.load(touched, body.args)):
                    total = builder.load(array, body.args)
                    total = builder.cast(total, update.array.dtype)
                    builder.atomic("add", update.array, indices, total, update.companion)
                builder.yield_()
            builder.for_(lower, upper, [], body)
        builder.yield_()
        return builder.block
