"""Write tiles in segments: additions to neighbours once a tile, and whole tiles without masks.

Updates of neighbours slide (`sliding_sums`) where workers add to targets of their own, and all are
as far apart as away from boundaries. A function of single work items runs other segments
(`segments`). Where masked instructions are slow, whole tiles have code of their own; without
boundaries they alone slide, which needs no such function.
"""

from __future__ import annotations

import itertools

from octants.codegen.llvm.lanes.function_text import LaneText
from octants.codegen.llvm.lanes.sliding_sums import SlidingSums
from octants.ir import ops
from octants.ir.core import Block, Operation, Task

FREE_MASKS = 512
"""The bits of vectors whose masked instructions are as fast as others."""
_MOST = 120
"""Operations: a body of more is not written twice."""


class InteriorTiles:
    """The tiles of a function.

    Args:
        sliding: Its windows of sums.
        splits: Whether whole tiles gain by code of their own, without masks.
        in_all: Whether sums slide in all tiles.
    """

    def __init__(self, sliding: SlidingSums, *, splits: bool, in_all: bool) -> None:
        self._sliding, self._splits, self._in_all = sliding, splits, in_all
        self._slides = in_all

    @staticmethod
    def may_be_in(task: Task) -> bool:
        """Whether a task is small enough to be written twice."""
        found = list(itertools.islice(task.body.walk(), _MOST + 1))
        return len(found) <= _MOST and not any(isinstance(op, ops.Loop) for op in found)

    def slides(self, op: Operation) -> bool:
        """Whether an update, in the tile being written, is made at its end."""
        return self._slides and op in self._sliding

    def add(self, f: LaneText, op: ops.Atomic) -> None:
        """Write such an update."""
        self._sliding.add(f, op)

    def write(self, f: LaneText, body: Block) -> None:
        """Write the body for a tile: twice, if whole tiles have code of their own."""
        mask, shared, further = f.mask, f.shared, f.fresh_label("further")
        if self._splits:
            whole, partial = f.fresh_label("whole"), f.fresh_label("partial")
            is_whole = f.is_whole
            if f.sums and not self._in_all:
                is_whole = f.assign(f"select i1 {shared}, i1 false, i1 {is_whole}")
                f.shared = "false"
            f.branch_if(is_whole, whole, partial, likely=True)
            f.start(whole)
            f.mask = f.tile_mask = None
            self._slides = True
            self._write_once(f, body)
            f.branch(further)
            f.start(partial)
            f.mask = f.tile_mask = mask
            f.shared, self._slides = shared, self._in_all
        self._write_once(f, body)
        f.enter(further)

    def _write_once(self, f: LaneText, body: Block) -> None:
        if not self._slides:
            f.block(body)
            return
        self._sliding.begin_tile(f)
        f.block(body)
        self._sliding.end_tile(f, ends_masked=self._splits)

    def finish(self, f: LaneText) -> None:
        """Add what windows still carry when the last tile has ended."""
        self._sliding.finish(f)
