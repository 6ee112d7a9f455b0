"""`Code` for a thread of a GPU that LLVM generates code for."""

from __future__ import annotations

from typing import Any

from octants.codegen.instruction_writer import Pointer, ThreadCode
from octants.codegen.llvm.gpu.function_text import ThreadText
from octants.codegen.llvm.instruction_writer import LlvmCode
from octants.codegen.llvm.types_and_literals import REGISTER
from octants.ir.core import ArrayRef
from octants.types.scalars import DType, u32


class GpuCode(LlvmCode, ThreadCode):
    """A function of a thread."""

    has_graphs = True
    masks = False
    loads_four_words = True

    def __init__(self, f: ThreadText) -> None:
        super().__init__(f)
        self._thread, self._gpu = f, f.gpu
        self.subgroup = f.gpu.subgroup
        self.gathers = f.gpu.has_blocks
        self._shared: dict[Any, str] = {}
        fits = f.block_size <= f.gpu.exchange_subgroups * f.gpu.subgroup
        if fits and f.text.fast_math:  # products and sums are fused
            self.exchange_subgroups = f.gpu.exchange_subgroups

    def load_four_words(
        self, address: Pointer, dtype: DType, of: ArrayRef | None = None
    ) -> list[str]:
        kind = f"<4 x {REGISTER[dtype]}>"
        words = self._thread.assign(f"load {kind}, ptr {address}, align 16{self._metadata(of)}")
        return [self._thread.assign(f"extractelement {kind} {words}, i32 {k}") for k in range(4)]

    def is_aligned(self, address: Pointer, nbytes: int) -> str:
        bits = self._thread.convert("ptrtoint", "ptr", address, "i64")
        return self._thread.apply(
            "icmp eq", "i64", self._thread.apply("and", "i64", bits, nbytes - 1), 0
        )

    # -- other threads --------------------------------------------------------------------------

    def shared_array(self, key: Any, dtype: DType, count: int) -> str:
        if key not in self._shared:
            name = f"octants_block_{self._thread.task}_{len(self._shared)}"
            self._shared[key] = self._gpu.shared_memory(self._thread, name, count * dtype.size)
        return self._shared[key]

    def barrier(self, scope: str) -> None:
        if scope == "block":
            self._gpu.block_barrier(self._thread)
        else:
            self._gpu.subgroup_barrier(self._thread, self._thread.lane_mask)

    def fence(self, scope: str = "device") -> None:
        self._gpu.fence(self._thread, scope)

    def read_lane(self, x: str, dtype: DType, lane: str) -> str:
        return self._gpu.read_lane(self._thread, REGISTER[dtype], x, lane, self._thread.lane_mask)

    def read_across(self, x: str, dtype: DType, distance: int) -> str:
        return self._gpu.from_lane(self._thread, REGISTER[dtype], x, distance)

    def ballot(self, condition: str) -> str:
        bits = self._gpu.ballot(self._thread, condition, self._thread.lane_mask)
        return self._thread.convert("zext", "i32", bits, "i64")

    def any_lane(self, condition: str) -> str:
        return self._gpu.any_lane(self._thread, condition)

    def all_at(self, address: Pointer) -> str:
        return self._gpu.all_at(self._thread, address)

    # -- launch words ---------------------------------------------------------------------------

    def launch_word(self, offset: int) -> str:
        return self._thread.launch_value(offset, "i64")

    def launch_address(self, offset: int) -> str:
        return self._thread.in_global(self._thread.launch_value(offset, "ptr"))

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

    def threads_in_block(self) -> str:
        return self._gpu.threads_in_block(self._thread)

    def lane(self) -> str:
        """Compute it where it is used, so that it takes no register before."""
        return self.apply("and", u32, self.thread_in_block(), str(self.subgroup - 1))

    def is_first_lane(self) -> str:
        return self._gpu.is_first_lane(self._thread)
