"""Makes a kernel that also computes a fingerprint of what it reads, to compare two runs.

Before::

    array @x: f32, 0, field, () [primal]
    serial {
      %0: f32 = load<@x, primal>()
      %1: f32 = binary<mul>(%0, %0)
      store<@x, primal>(%1)
    }

After::

    kernel @k_fingerprint
    array @x: f32, 0, field, () [primal]
    array @read_of_x: u64, 0, temporary, () [primal]
    serial @k_0 {
      %0: f32 = load<@x, primal>()
      %1: u64 = constant<11400714819323198485>()
      %2: u64 = constant<32>()
      %3: u64 = constant<0>()
      %4: u32 = bitcast(%0)
      %5: u64 = cast(%4)
      %6: u64 = binary<mul>(%5, %1)
      %7: u64 = binary<ushr>(%6, %2)
      %8: u64 = binary<xor>(%6, %7)
      %9: u64 = binary<mul>(%8, %1)
      %10: u64 = atomic<add, @read_of_x, primal>(%9)
      %11: f32 = binary<mul>(%0, %0)
      yield()
    }

This variant has no other effects. The fingerprint of an array is the sum over all executions of a
hash of the indices and of the bits that were read: it does not depend on the order of work items,
and two runs that read different values have different fingerprints, up to a collision of 64 bits.
"""

from __future__ import annotations

from collections.abc import Collection

from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cloning import copy_block, copy_domain, without_effects
from octants.ir.core import Array, Block, Companion, Module, Operation, Space, Task
from octants.types.scalars import u64

PRIMAL = Companion.PRIMAL
_FACTOR = 0x9E3779B97F4A7C15  # odd, and without a pattern: the golden ratio in 64 bits


def add_fingerprint(
    module: Module, loads: Collection[Operation], *, effects: bool
) -> tuple[Module, dict[Array, Array]]:
    """Make the kernel that computes fingerprints of what it reads.

    Args:
        module: the kernel, which is not changed.
        loads: the operations to observe.
        effects: keep the effects of the kernel; else it writes launch-temporaries only.

    Returns:
        The kernel, with the fingerprints (u64) behind its arrays, and the fingerprint of each array
        that is read.
    """
    return _Fingerprint(module, loads, effects).run()


class _Fingerprint:
    def __init__(self, module: Module, loads: Collection[Operation], effects: bool) -> None:
        self.module = module
        self.loads = frozenset(loads)
        self.effects = effects
        read = dict.fromkeys(op.array for op in module.walk() if self._is_watched(op))  # type: ignore[attr-defined]
        self.sums = {
            array: Array(f"read_of_{array.name}", u64, 0, Space.TEMPORARY, layouts={PRIMAL: None})
            for array in read
        }

    def _is_watched(self, op: Operation) -> bool:
        return isinstance(op, ops.Load) and op in self.loads

    def run(self) -> tuple[Module, dict[Array, Array]]:
        tasks: list[Task] = []
        for task in self.module.tasks:
            if task.domain is not None and any(map(self._is_watched, task.domain.walk())):
                tasks.append(Task(f"{task.name}_domain", self._domain(task.domain)))
            body = self._copy(task.body)
            domain = copy_domain(task)
            tasks.append(Task(task.name, body, domain, task.location, task.options))
        arrays = [*self.module.arrays, *self.sums.values()]
        name = f"{self.module.name}_fingerprint"
        return Module(name, arrays, None, tasks, self.module.location), self.sums

    def _domain(self, domain: Block) -> Block:
        """A domain as a serial task of its own, since domains have no effects."""
        block = self._copy(domain)
        block.ops[-1] = ops.Yield([])
        return block

    def _copy(self, block: Block) -> Block:
        new = copy_block(block, {})
        self._watch(new, block)
        return new

    def _watch(self, new: Block, primal: Block) -> None:
        """Add the fingerprints to a copy of a block; drop its effects if they are not wanted."""
        builder = Builder(Block())
        for op, origin in zip(new.ops, primal.ops, strict=True):
            copy = op if self.effects else without_effects(op, (Space.TEMPORARY, Space.SHARED))
            if copy is None:
                continue
            builder.append(copy)
            if isinstance(op, ops.Load) and self._is_watched(origin):
                self._add(builder, op)
            for region, primal_region in zip(op.regions, origin.regions, strict=True):
                self._watch(region, primal_region)
        new.ops[:] = builder.block.ops

    def _add(self, builder: Builder, load: ops.Load) -> None:
        factor, half = builder.constant(_FACTOR, u64), builder.constant(32, u64)
        total = builder.constant(0, u64)
        for value in (*load.indices, load.result):
            word = builder.binary("xor", total, builder.word(value))
            mixed = builder.binary("mul", word, factor)
            total = builder.binary("xor", mixed, builder.binary("ushr", mixed, half))
        total = builder.binary("mul", total, factor)
        builder.atomic("add", self.sums[load.array], [], total, PRIMAL)
