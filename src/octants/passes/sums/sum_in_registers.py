"""Sums up in a register what a serial loop adds to one element, and adds it after the loop.

Before::

    array @x: f32, 1, ndarray, () [primal, adjoint]
    array @n: i32, 0, argument, () [primal]
    parallel (%2: i32 < shape<@x, 0>()) {
      %3: i32 = constant<0>()
      %4: i32 = load<@n, primal>()
      for(%3, %4) { (%5: i32):
        %6: f32 = load<@x, primal>(%5)
        %7: f32 = atomic<add, @x, adjoint>(%6, %2)
        %8: f32 = atomic<add, @x, adjoint>(%6, %5)
        yield()
      }
    }

After::

    parallel (%2: i32 < shape<@x, 0>()) {
      %3: i32 = constant<0>()
      %4: i32 = load<@n, primal>()
      %5: f32 = constant<-0.0>()
      %6: u1 = constant<False>()
      %7: u1 = constant<True>()
      %8: f32, %9: u1 = for(%3, %4, %5, %6) { (%10: i32, %11: f32, %12: u1):
        %13: f32 = load<@x, primal>(%10)
        %14: f32 = binary<add>(%11, %13)
        %15: f32 = atomic<add, @x, adjoint>(%13, %10)
        yield(%14, %7)
      }
      if(%9) {
        %16: f32 = atomic<add, @x, adjoint>(%8, %2)
        yield()
      } {
        yield()
      }
    }

A sum of a loop in a loop goes on from iteration to iteration of the outer one, so that its terms
are added in the order of execution: a loop that is reversed in blocks gives the same bits for each
length of a block. With `deterministic`, a location that is known in one block only, or that the
rest of the block touches, gets no sum there, since that sum would start again in each block. Sums
commute, so that atomics at varying locations may stay. Nothing in the loop may read the location,
or change it in another way. The flag tells whether anything was added: if not, the location need
not exist. Numbers of 16 bits are summed up in 32.
"""

from __future__ import annotations

from octants.analysis.control_flow.strip_mined_loops import BlocksOfLoops
from octants.analysis.sums.gatherable_sums import atomics_outside_loops
from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.array_aliasing import may_alias
from octants.ir.builder import Builder
from octants.ir.core import Array, Block, Companion, Module, Operation, Value
from octants.ir.rewriting import rewrite
from octants.lazy_dataclass import dataclass
from octants.types.scalars import register_type, u1

_MAXIMUM = 8  # sums of a loop: registers are few
Address = tuple[Array, Companion, tuple[Value, ...]]


@staged("sum_in_registers")
def sum_in_registers(module: Module, noalias: bool = True, deterministic: bool = False) -> None:
    """Collect the atomic sums of all loops in registers, in place.

    Args:
        module: what is rewritten.
        noalias: no two arrays share memory.
        deterministic: the order of each sum must not depend on the length of a loop's blocks.
    """
    used = {value for op in module.walk() for value in op.operands}
    for task in module.tasks:
        blocks = BlocksOfLoops(task.body) if deterministic else None
        rewrite(task.body, _Collector(used, noalias, blocks).collect)


@dataclass(frozen=True, slots=True)
class _Sum:
    """The sum of a location so far, and whether anything was added."""

    total: Value
    any: Value


class _Collector:
    def __init__(self, used: set[Value], noalias: bool, blocks: BlocksOfLoops | None) -> None:
        self.used = used
        self.noalias = noalias
        self.blocks = blocks
        self._inner: dict[Operation, dict[Address, int]] = {}
        """The loops that sum up, with the position of each total among what they carry."""
        self._adders: dict[Operation, Address] = {}
        """The branches behind them that add the totals."""

    def collect(self, builder: Builder, op: Operation) -> bool:
        """Collect in a loop."""
        addresses = self._addresses(op) if isinstance(op, ops.Loop) else []
        if isinstance(op, ops.Loop) and addresses:
            self._collect(builder, op, addresses)
        return bool(addresses)

    # -- which -------------------------------------------------------------------------------------

    def _addresses(self, loop: ops.Loop) -> list[Address]:
        """The addresses outside of a loop that it adds to, and does not access otherwise."""
        sums = list(filter(self._is_sum, atomics_outside_loops(loop.regions[-1])))
        if not sums:
            return []
        accesses: list[ops.Access] = []
        whole = loop if self.blocks is None else self.blocks.whole(loop)
        defined = set[Value]().union(*(region.defined() for region in whole.regions))
        for op in whole.walk_regions():
            if isinstance(op, ops.Access):
                accesses.append(op)
            elif op.orders_memory:
                return []  # others look at what was added so far
        found: dict[Address, None] = {}
        for op in sums:
            address = op.array, op.companion, tuple(op.indices)
            if defined.isdisjoint(op.indices) and all(
                self._commutes(other, op) for other in accesses
            ):
                found[address] = None
        inner = {address for op in loop.regions[-1].walk() for address in self._inner.get(op, ())}
        own = [address for address in found if address not in inner]
        return [address for address in found if address in inner] + own[:_MAXIMUM]

    def _is_sum(self, op: Operation) -> bool:
        if not isinstance(op, ops.Atomic) or op.array.dtype is u1:
            return False
        return op.fn in ("add", "sub") and op.result not in self.used

    def _commutes(self, other: ops.Access, op: ops.Atomic) -> bool:
        """Whether it makes no difference which of the two comes first."""
        return self._is_sum(other) or not may_alias(other.ref, op.ref, self.noalias)

    # -- how ---------------------------------------------------------------------------------------

    def _collect(self, builder: Builder, loop: ops.Loop, addresses: list[Address]) -> None:
        """Append the loop with its sums, and what adds them up."""
        inits = [
            value
            for array, _, _ in addresses
            for value in (
                builder.constant(-0.0 if array.dtype.is_float else 0, register_type(array.dtype)),
                builder.constant(False, u1),
            )
        ]
        yes = builder.constant(True, u1)
        args = [Value(value.type) for value in inits]
        self._inner[loop] = {
            address: len(loop.inits) + 2 * k for k, address in enumerate(addresses)
        }
        loop.inits += inits
        loop.body.args += args
        if isinstance(loop, ops.While):
            loop.condition.args += [Value(value.type) for value in inits]
        ends = self._thread(loop.body, _paired(addresses, args), yes)
        _yield_too(loop.body, _flat(ends))
        results = [Value(value.type) for value in inits]
        loop.results = [*loop.results, *results]
        builder.append(loop)
        for address, end in _paired(addresses, results).items():
            array, companion, indices = address
            with builder.only_if(end.any) as adder:
                total = builder.cast(end.total, array.dtype)
                builder.atomic("add", array, indices, total, companion)
            self._adders[adder] = address

    def _thread(self, block: Block, sums: dict[Address, _Sum], yes: Value) -> dict[Address, _Sum]:
        """Replace the updates in a block and its ifs; the sums at its end.

        A loop in it that sums up itself goes on with the sums so far.
        """
        builder = Builder(Block())
        for op in block.ops:
            builder.location = op.location
            address = _address_of(op)
            if op in self._inner:
                sums = self._go_on(op, sums)
                builder.append(op)
            elif self._adders.get(op) in sums:
                continue  # the sum is the loop's total
            elif address in sums and self._is_sum(op):
                sums = {**sums, address: self._added(builder, op, sums[address], yes)}
            elif isinstance(op, ops.If) and self._adds(op, sums):
                sums = self._thread_if(op, sums, yes)
                builder.append(op)
            else:
                builder.append(op)
        block.ops[:] = builder.block.ops
        return sums

    def _go_on(self, loop: Operation, sums: dict[Address, _Sum]) -> dict[Address, _Sum]:
        """Let a loop begin with the sums so far; the sums that it ends with."""
        assert isinstance(loop, ops.Loop)
        inits = list(loop.inits)
        for address, position in self._inner[loop].items():
            if address in sums:
                inits[position : position + 2] = [sums[address].total, sums[address].any]
                sums = {**sums, address: _Sum(*loop.results[position : position + 2])}
        loop.inits[:] = inits
        return sums

    def _added(self, builder: Builder, op: Operation, before: _Sum, yes: Value) -> _Sum:
        assert isinstance(op, ops.Atomic)
        value = builder.cast(op.value, before.total.type)
        return _Sum(builder.binary(op.fn, before.total, value), yes)

    def _adds(self, op: ops.If, sums: dict[Address, _Sum]) -> bool:
        inside = (own for region in op.regions for own in atomics_outside_loops(region))
        return any(_address_of(own) in sums and self._is_sum(own) for own in inside)

    def _thread_if(self, op: ops.If, sums: dict[Address, _Sum], yes: Value) -> dict[Address, _Sum]:
        for region in op.regions:
            _yield_too(region, _flat(self._thread(region, sums, yes)))
        results = [Value(value.type) for value in _flat(sums)]
        op.results = [*op.results, *results]
        return _paired(list(sums), results)


def _address_of(op: Operation) -> Address | None:
    return (op.array, op.companion, tuple(op.indices)) if isinstance(op, ops.Atomic) else None


def _paired(addresses: list[Address], values: list[Value]) -> dict[Address, _Sum]:
    pairs = zip(values[::2], values[1::2], strict=True)
    return {address: _Sum(*pair) for address, pair in zip(addresses, pairs, strict=True)}


def _flat(sums: dict[Address, _Sum]) -> list[Value]:
    return [value for each in sums.values() for value in (each.total, each.any)]


def _yield_too(block: Block, values: list[Value]) -> None:
    terminator = block.ops[-1]
    assert isinstance(terminator, ops.Yield)
    terminator.values = [*terminator.values, *values]
