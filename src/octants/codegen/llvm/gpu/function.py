"""A function of a GPU while it is written: threads, and what a dispatch tells them."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from octants import abi
from octants.analysis.replay_strictness import FREE_WAVES, is_free, waves
from octants.codegen.code import ThreadCode
from octants.codegen.function import Lanes
from octants.codegen.llvm.function import FunctionText, HandlerTable, Machine
from octants.codegen.llvm.module import KernelText
from octants.ir.core import Array, ArrayRef, Companion, Operation, Value
from octants.ir.ops import Constant


class ThreadText(FunctionText):
    """What one thread does. ``device_bounds`` says that the device computes the work items.

    ``block_size`` is the number of threads in a block; 0 stands for any.
    `order` is the memory order of its atomic operations: relaxed, among the threads of the device.
    """

    order = 'syncscope("device") monotonic'

    def __init__(
        self,
        kernel: KernelText,
        machine: GpuMachine,
        table: HandlerTable,
        task: int,
        *,
        device_bounds: bool = False,
        block_size: int = 0,
    ) -> None:
        self.gpu = machine
        self.device_bounds = device_bounds
        self.block_size = block_size
        self.shared_arrays: dict[ArrayRef, str] = {}  # those of the block
        self.scattered_updates: set[Operation] = set()  # see `analysis.reductions.find_scattered`
        self.adds_up = False  # whether the threads of a block add up what they have, in the end
        self.lanes: Lanes | None = None  # of the work item; see `cooperation`
        self.lane_mask = "-1"  # the bits (i32) of the lanes that come to what is written
        self.shared_updates: set[Operation] = set()  # see `analysis.reductions.find_shared`
        self.least_blocks = 0  # that are to run side by side; 0 if it does not matter
        self.loaded: dict[Operation, str] = {}  # see `vector_loads`
        self.normal_roots: set[Value] = set()  # see `approximations.normal_roots`
        super().__init__(kernel, machine, table, task)

    @functools.cached_property
    def code(self) -> ThreadCode:
        """Writes what several targets share."""
        code = self.gpu.code(self)
        assert isinstance(code, ThreadCode)
        return code

    @functools.cached_property
    def constants(self) -> dict[Value, Any]:
        """The numbers of the task that are constants."""
        body = self.kernel.module.tasks[self.task].body
        return {op.result: op.value for op in body.walk() if isinstance(op, Constant)}

    @functools.cached_property
    def is_free(self) -> bool:
        """Whether nobody must find the sines and cosines of the task again to the bit."""
        task = self.kernel.module.tasks[self.task]
        return is_free(task, FREE_WAVES, waves(task.body))

    # -- memory -----------------------------------------------------------------------------------

    def in_global(self, pointer: str) -> str:
        """A pointer of which the optimiser knows that it leads to the memory of the device."""
        space = self.once(("global", pointer), f"addrspacecast ptr {pointer} to ptr addrspace(1)")
        return self.once(("generic", pointer), f"addrspacecast ptr addrspace(1) {space} to ptr")

    def pointer(self, array: Array, companion: Companion) -> str:
        shared = self.shared_arrays.get(ArrayRef(array, companion))
        return shared or self.in_global(super().pointer(array, companion))

    def system(self, name: str, type: str) -> str:
        found = super().system(name, type)
        return self.in_global(found) if type == "ptr" else found

    # -- what a dispatch tells --------------------------------------------------------------------

    def told(self, offset: int, type: str) -> str:
        """A word of what the dispatch is told."""
        place = self.once(("told", offset), f"getelementptr i8, ptr %launch, i64 {offset}")
        return self.once(("told", offset, type), f"load {type}, ptr {place}, align 8")

    def first_item(self) -> str:
        """The first work item, i64."""
        return self._bound(0, abi.LAUNCH_LOWER)

    def upper(self) -> str:
        """The one after the last, i64."""
        return self._bound(8, abi.LAUNCH_UPPER)

    def _bound(self, offset: int, told: int) -> str:
        if not self.device_bounds:
            return self.told(told, "i64")
        bounds = self.in_global(self.told(abi.LAUNCH_BOUNDS, "ptr"))
        place = self.once(("bound", offset), f"getelementptr i8, ptr {bounds}, i64 {offset}")
        return self.once(("bound value", offset), f"load i64, ptr {place}, align 8")

    def thread(self) -> str:
        """The number of the thread, i64."""
        return self.gpu.thread(self)


class GpuMachine(Machine):
    """What differs between GPUs."""

    subgroup: int
    """How many threads work in step."""
    normal_root: Callable[[FunctionText, str], str] | None = None
    """1 / sqrt of a number of f32 that is not subnormal, under `fast_math`."""

    @abstractmethod
    def head(self, f: ThreadText, name: str) -> str:
        """The head of a function that a dispatch runs, without `define`."""

    @abstractmethod
    def thread(self, f: ThreadText) -> str:
        """The number of the thread in its dispatch, i64; computed once."""

    @abstractmethod
    def threads(self, f: ThreadText) -> str:
        """How many threads there are, i64; computed once."""

    @abstractmethod
    def from_lane(self, f: ThreadText, type: str, value: str, distance: int) -> str:
        """The value (i32 or float) of the thread whose lane differs by the bit ``distance``.

        All threads of the subgroup come here.
        """

    @abstractmethod
    def all_at(self, f: ThreadText, place: str) -> str:
        """Whether all threads of the subgroup are here now, with one and the same address; i1."""

    def at_one_place(self, f: ThreadText, place: str) -> tuple[str, str]:
        """The bits (i32) of the threads of the subgroup that are here now, and of those of them
        that have the same address.
        """
        raise NotImplementedError

    @abstractmethod
    def any_lane(self, f: ThreadText, condition: str) -> str:
        """Whether a condition (i1) holds for any thread of the subgroup."""

    @abstractmethod
    def is_first_lane(self, f: ThreadText) -> str:
        """Whether this is the first thread of its subgroup, i1."""

    has_blocks = False
    """Whether threads of a block can work together; what follows is there only then."""

    shared_bytes = 0
    """The most that the arrays of a block may take."""

    most_subgroups = 1
    """The most subgroups that a block has; not more than a subgroup has threads."""

    def subgroup_in_block(self, f: ThreadText) -> str:
        """The number of the subgroup in its block, i32."""
        raise NotImplementedError

    def subgroups_in_block(self, f: ThreadText) -> str:
        """How many subgroups a block has, i32; where threads work alone, they are whole."""
        raise NotImplementedError

    def threads_in_block(self, f: ThreadText) -> str:
        """How many threads a block has, i32."""
        raise NotImplementedError

    def any_in_block(self, f: ThreadText, condition: str) -> str:
        """Whether a condition (i1) holds for any thread of the block; a barrier for all of them."""
        raise NotImplementedError

    def thread_in_block(self, f: ThreadText) -> str:
        """The number of the thread in its block, i32."""
        raise NotImplementedError

    def shared_memory(self, f: ThreadText, name: str, nbytes: int) -> str:
        """The address of memory that the threads of a block share, at a multiple of 16."""
        raise NotImplementedError

    def block_barrier(self, f: ThreadText) -> None:
        """Wait for the threads of the block that have not ended, and see what they wrote."""
        raise NotImplementedError

    def subgroup_barrier(self, f: ThreadText, mask: str) -> None:
        """Wait for some lanes (i32), and see what they wrote."""
        raise NotImplementedError

    def fence(self, f: ThreadText, scope: str) -> None:
        """Let the "subgroup", the "block", or the "device" see what is written before the rest."""
        raise NotImplementedError

    def read_lane(self, f: ThreadText, type: str, value: str, lane: str, mask: str) -> str:
        """The value (i32 or float) of a lane (i32) among those of ``mask``, which all come here."""
        raise NotImplementedError

    def ballot(self, f: ThreadText, condition: str, mask: str) -> str:
        """The bits (i32) of the lanes among those of ``mask`` for which a condition (i1) holds."""
        raise NotImplementedError

    def poll(self, f: FunctionText) -> None:
        """A dispatch cannot be interrupted."""
