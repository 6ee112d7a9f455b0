"""Work items that the threads of a block share: neighbours have neighbouring work items.

So the threads of a subgroup mostly run the same iteration at a time and load one element for it.
Each thread has a contiguous range of iterations. At the end the block adds up its threads' shares
in shared memory, by a tree reduction.
"""

from __future__ import annotations

from typing import Any

from octants.analysis.cost_model import operations_in
from octants.cached_property import cached_property
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cooperative_tasks import LEAST_BLOCKS
from octants.ir.core import Array, Block, Companion, Space, Value
from octants.passes.sums.split_work_items import Share, SharedItems, Sizes
from octants.types.layouts import one_axis
from octants.types.scalars import DType, i32, i64, u1

BLOCK = 512  # threads, at most
_ITEMS = 2  # of a thread, a power of two
_SMALL = 95  # operations in loops
_MOST_USED = 16  # values of an item that loops use
_LITTLE = 39  # operations in a loop that leave registers for two blocks at a time
_TOGETHER = 6  # sums that are added up at a time
_THREADS = 4096  # of `fills` for each multiprocessor, which has half as many at a time
_TIMES, _LONG = 2, 64  # doublings, and iterations of a share then


class BlockShares(SharedItems):
    """Splits sums so that the threads of a block share its work items."""

    scope = "block"
    shortest = 8

    @property
    def block_dim(self) -> int:
        asked = int(self.task.options.get("block_dim") or BLOCK)
        most = min(BLOCK, 1 << (self.blocks.most_items.bit_length() - 1))
        return min(max(self.blocks.subgroup_size, 1 << (asked - 1).bit_length()), most)

    @property
    def powers(self) -> int:
        return self.block_dim.bit_length() - 1

    @property
    def options(self) -> dict[str, Any]:
        return {LEAST_BLOCKS: 2} if max(map(operations_in, self.loops)) <= _LITTLE else {}

    @property
    def _is_small(self) -> bool:
        """Whether a thread has the registers for several items.

        Loops must do little, and use few values that items compute before them, such as the sines
        of a place.
        """
        made = {value for op in self.task.body.ops for value in op.results}.difference(self.known)
        used = {each for loop in self.loops for op in loop.body.walk() for each in op.operands}
        is_little = sum(map(operations_in, self.loops)) <= _SMALL
        return is_little and len(made & used) <= _MOST_USED

    @cached_property
    def items(self) -> int:
        """The items of a thread, which loads for all of them what an iteration needs."""
        inside = (op for loop in self.loops for op in loop.body.walk())
        loads = any(isinstance(op, ops.Load) for op in inside)
        count = self.facts.count()
        is_full = count is None or count * self.block_dim >= self.fills
        many = loads and is_full and self._is_small and self.has_known_bounds
        return _ITEMS if many else 1

    @property
    def fits(self) -> bool:
        """Whether there is enough shared memory."""
        kinds = [
            [_stored_type(value) for value in loop.results] * self.items for loop in self.loops
        ]
        most = {kind: max(each.count(kind) for each in kinds) for each in kinds for kind in each}
        words = sum(kind.size * min(count, _TOGETHER) for kind, count in most.items())
        return words * self.block_dim <= self.blocks.shared_bytes

    @property
    def most_threads(self) -> int:
        """As many threads as run at a time, so that no block waits."""
        return self.fills // 2

    def balanced(self, builder: Builder, items: Value, longest: Value, shift: Value) -> Value:
        """Take smaller blocks where some multiprocessors would have one block more than others.

        Twice as many threads share an item only if that saves an eighth of the time and shares
        stay long.
        """
        rounds = self._rounds(builder, items, shift)
        for _ in range(_TIMES):
            more = builder.binary("add", shift, builder.offset(1))
            found = self._rounds(builder, items, more)
            own, other = (
                builder.binary("mul", number, builder.offset(factor))
                for number, factor in ((rounds, 7), (found, 4))
            )
            least = builder.binary("shl", builder.offset(_LONG), more)
            saves = builder.binary(
                "and", builder.compare("lt", other, own), builder.compare("ge", longest, least)
            )
            may = builder.compare("lt", shift, builder.offset(self.powers))
            saves = builder.binary("and", saves, may)
            shift = builder.select(saves, more, shift)
            rounds = builder.select(saves, found, rounds)
        return shift

    def _rounds(self, builder: Builder, items: Value, shift: Value) -> Value:
        """How many blocks a multiprocessor has."""
        count = max(1, self.fills // _THREADS)
        blocks = self._blocks(builder, items, shift)
        all_but_one = builder.binary("add", blocks, builder.offset(count - 1))
        return builder.binary("floordiv", all_but_one, builder.offset(count))

    def _blocks(self, builder: Builder, items: Value, shift: Value) -> Value:
        log_items, one = self._log_items(builder, shift, self.items), builder.offset(1)
        most = builder.binary("sub", builder.binary("shl", one, log_items), one)
        return builder.binary("shr", builder.binary("add", items, most), log_items)

    def threads(self, builder: Builder, sizes: Sizes) -> Value:
        """Those of whole blocks."""
        blocks = self._blocks(builder, sizes.items, sizes.shift)
        return builder.binary("mul", blocks, builder.offset(self.block_dim))

    def _log_items(self, builder: Builder, shift: Value, items: int) -> Value:
        """The logarithm of how many work items a block has if a thread has so many."""
        most = self.powers + items.bit_length() - 1
        return builder.binary("sub", builder.offset(most), shift)

    def share_of(self, thread: Value, sizes: Sizes) -> Share:
        """Threads without a work item, of the last block, have its last one, and do not act."""
        builder, one = self.builder, self.builder.offset(1)
        log_items = self._log_items(builder, sizes.shift, 1)
        self._others = builder.binary("shl", one, log_items)
        self._thread = builder.binary("and", thread, builder.offset(self.block_dim - 1))
        self._position = builder.binary("and", thread, builder.binary("sub", self._others, one))
        own = builder.binary("shr", self._thread, log_items)
        is_first = builder.compare("eq", own, builder.offset(0))
        block = builder.binary("shr", thread, builder.offset(self.powers))
        number = builder.binary("shl", block, self._log_items(builder, sizes.shift, self.items))
        number = builder.binary("add", number, self._position)
        last = builder.binary("sub", sizes.items, one)
        numbers, acts = list[Value](), list[Value]()
        for _ in range(self.items):
            exists = builder.compare("lt", number, sizes.items)
            acts.append(builder.binary("and", is_first, exists))
            numbers.append(builder.binary("min", number, last))
            number = builder.binary("add", number, self._others)
        count = builder.binary("shl", one, sizes.shift)
        return Share(count, sizes.shift, own, is_first, numbers, acts)

    def iterations(self, lower: Value, upper: Value) -> tuple[Value, Value, Value | None]:
        """Shares are some fours of iterations, and the last one has what is left."""
        builder, share = self.builder, self.share
        count = builder.binary("max", builder.binary("sub", upper, lower), builder.offset(0))
        two, last = builder.offset(2), builder.binary("sub", share.count, builder.offset(1))
        fours = builder.binary("shr", count, two)
        ends: list[Value] = []
        for part in (share.index, builder.binary("add", share.index, builder.offset(1))):
            end = builder.binary("shr", builder.binary("mul", fours, part), share.shift)
            ends.append(builder.binary("add", lower, builder.binary("shl", end, two)))
        is_last = builder.compare("eq", share.index, last)
        end = builder.select(is_last, builder.binary("max", upper, lower), ends[1])
        return ends[0], end, None

    # -- sums --------------------------------------------------------------------------------------

    def totals(self, shares: list[Value]) -> list[Value]:
        builder = self.builder
        is_shared = builder.compare("gt", self.share.shift, builder.offset(0))
        then, orelse = Block(), Block()
        with builder.into(then):
            totals: list[Value] = []
            for start in range(0, len(shares), _TOGETHER):
                totals += self._totals(shares[start : start + _TOGETHER])
            builder.yield_(totals)
        with builder.into(orelse):
            builder.yield_(shares)
        return builder.if_(is_shared, then, orelse).results

    def _totals(self, shares: list[Value]) -> list[Value]:
        """Add up shares over the threads that share a work item, by halving, in shared memory."""
        builder = self.builder
        kinds = [_stored_type(share) for share in shares]
        fns = ["or" if share.type is u1 else "add" for share in shares]
        arrays = [self._array(kind, kinds[:at].count(kind)) for at, kind in enumerate(kinds)]
        for array, share, kind in zip(arrays, shares, kinds, strict=True):
            builder.store(array, [self._thread], builder.cast(share, kind))
        body = Block([Value(i64)])
        with builder.into(body):
            self._halve(arrays, fns, body.args[0])
            builder.yield_()
        builder.for_(builder.offset(0), self.share.shift, [], body)
        builder.barrier("block")
        found = [builder.load(array, [self._position]) for array in arrays]
        builder.barrier("block")
        return [builder.cast(x, share.type) for x, share in zip(found, shares, strict=True)]

    def _halve(self, arrays: list[Array], fns: list[str], step: Value) -> None:
        """Add the upper half of the shares that are left to the lower one."""
        builder = self.builder
        after = builder.binary("add", step, builder.offset(1))
        rest = builder.binary("shr", self.share.count, after)
        distance = builder.binary("mul", rest, self._others)
        builder.barrier("block")
        with builder.only_if(builder.compare("lt", self._thread, distance)):
            for array, fn in zip(arrays, fns, strict=True):
                other = builder.binary("add", self._thread, distance)
                both = [builder.load(array, [address]) for address in (self._thread, other)]
                builder.store(array, [self._thread], builder.binary(fn, *both))

    def _array(self, kind: DType, number: int) -> Array:
        name = f"{self.task.name}_{kind}_shares{number}"
        found = next((array for array in self.arrays if array.name == name), None)
        if found is None:
            layout = one_axis(self.block_dim, kind.size)
            found = Array(name, kind, 1, Space.SHARED, (), {Companion.PRIMAL: layout})
            self.arrays.append(found)
        return found


def _stored_type(share: Value) -> DType:
    """The type of a share in shared memory."""
    return i32 if share.type is u1 else share.type
