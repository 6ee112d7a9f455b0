"""Rewrites blocks, operation by operation."""

from __future__ import annotations

from collections.abc import Callable

from octants.ir.builder import Builder
from octants.ir.core import Block, Operation

Rule = Callable[[Builder, Operation], bool]
"""Builds what replaces an operation, at its location; gives False for one that stays."""


def rewrite(block: Block, rule: Rule, builder: Builder | None = None) -> None:
    """Rewrite a block and those in it, inner ones first, in place.

    Rules may look at the blocks around an operation: these hold what they held until they are done.

    Args:
        block: the block.
        rule: what becomes of each operation.
        builder: builds into the blocks; by default one that knows no constants.
    """
    builder = Builder() if builder is None else builder
    with builder.into(Block()) as new:
        for op in block.ops:
            for region in op.regions:
                rewrite(region, rule, builder)
            builder.location = op.location
            if not rule(builder, op):
                builder.append(op)
    block.ops = new.ops
