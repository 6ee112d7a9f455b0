"""Work items that lanes of a subgroup share: neighbours have neighbouring iterations."""

from __future__ import annotations

from octants.ir.builder import Builder
from octants.ir.core import Value
from octants.passes.sums.split_work_items import Share, SharedItems, Sizes
from octants.types.scalars import i32, u1

_BLOCK = 128  # threads


class LaneShares(SharedItems):
    """Splits sums so that neighbouring lanes share a work item and interleave its iterations."""

    scope = "subgroup"

    @property
    def powers(self) -> int:
        lanes = self.blocks.subgroup_size
        most = max(self.facts.most_iterations(loop, lanes) for loop in self.loops)
        return (most - 1).bit_length()

    @property
    def block_dim(self) -> int:
        asked = int(self.task.options.get("block_dim") or _BLOCK)
        lanes = self.blocks.subgroup_size
        return min(-(-asked // lanes) * lanes, self.blocks.most_items)

    def threads(self, builder: Builder, sizes: Sizes) -> Value:
        return builder.binary("shl", sizes.items, sizes.shift)

    def share_of(self, thread: Value, sizes: Sizes) -> Share:
        builder, shift = self.builder, sizes.shift
        count = builder.binary("shl", builder.offset(1), shift)
        own = builder.binary("and", thread, builder.binary("sub", count, builder.offset(1)))
        is_first = builder.compare("eq", own, builder.offset(0))
        number = builder.binary("shr", thread, shift)
        return Share(count, shift, own, is_first, [number], [is_first])

    def iterations(self, lower: Value, upper: Value) -> tuple[Value, Value, Value | None]:
        builder, share = self.builder, self.share
        first = builder.binary("add", lower, share.index)
        rest = builder.binary("sub", upper, first)
        last = builder.binary("sub", share.count, builder.offset(1))
        count = builder.binary("shr", builder.binary("add", rest, last), share.shift)
        return builder.offset(0), count, first

    def totals(self, shares: list[Value]) -> list[Value]:
        return [self._total(share) for share in shares]

    def _total(self, share: Value) -> Value:
        """Add up a share over the lanes that share a work item, by butterfly exchanges."""
        builder = self.builder
        kind, fn = (i32, "or") if share.type is u1 else (share.type, "add")
        total = builder.cast(share, kind)
        for power in range(self.powers):
            distance = builder.constant(1 << power, i32)
            other = builder.subgroup("shuffle_xor", self.blocks.subgroup_size, total, distance)
            both = builder.binary(fn, total, other)
            is_own = builder.compare("gt", self.share.count, builder.offset(1 << power))
            total = builder.select(is_own, both, total)
        return builder.cast(total, share.type)
