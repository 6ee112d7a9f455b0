"""What targets share, as a thread of a GPU of LLVM's does it."""

from __future__ import annotations

from typing import Any

from octants.codegen.code import ThreadCode
from octants.codegen.llvm.code import LlvmCode
from octants.codegen.llvm.gpu.text import ThreadText
from octants.codegen.llvm.text import REGISTER
from octants.types.scalars import DType


class GpuCode(LlvmCode, ThreadCode):
    """A function of a thread; what threads exchange is between the lanes of its work item."""

    masks = False

    def __init__(self, f: ThreadText) -> None:
        super().__init__(f)
        self._thread, self._gpu = f, f.gpu
        self.subgroup = f.gpu.subgroup
        self.gathers = f.gpu.has_blocks

    # -- other threads --------------------------------------------------------------------------

    def shared_array(self, key: Any, dtype: DType, count: int) -> str:
        raise NotImplementedError

    def barrier(self, scope: str) -> None:
        if scope == "block":
            self._gpu.block_barrier(self._thread)
        else:
            self._gpu.subgroup_barrier(self._thread, self._mask())

    def fence(self, scope: str = "device") -> None:
        self._gpu.fence(self._thread, scope)

    def _mask(self) -> str:
        """The bits of the lanes that come here."""
        assert self._thread.lanes is not None
        return self._thread.lanes.mask

    def read_lane(self, x: str, dtype: DType, lane: str) -> str:
        return self._gpu.read_lane(self._thread, REGISTER[dtype], x, lane, self._mask())

    def ballot(self, condition: str) -> str:
        bits = self._gpu.ballot(self._thread, condition, self._mask())
        return self._thread.convert("zext", "i32", bits, "i64")

    def all_equal(self, x: str) -> str:
        raise NotImplementedError

    # -- a launch -------------------------------------------------------------------------------

    def launch_word(self, offset: int) -> str:
        return self._thread.told(offset, "i64")

    def launch_address(self, offset: int) -> str:
        return self._thread.in_global(self._thread.told(offset, "ptr"))

    def thread(self) -> str:
        return self._thread.thread()

    def threads(self) -> str:
        return self._gpu.threads(self._thread)

    def block(self) -> str:
        raise NotImplementedError

    def blocks(self) -> str:
        raise NotImplementedError

    def thread_in_block(self) -> str:
        return self._gpu.thread_in_block(self._thread)

    def lane(self) -> str:
        return self._gpu.lane(self._thread)
