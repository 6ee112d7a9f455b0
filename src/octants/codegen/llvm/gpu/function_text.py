"""The text of a GPU function under construction: threads, and launch words."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from octants import abi
from octants.cached_property import cached_property
from octants.codegen.function_emitter import Lanes
from octants.codegen.instruction_writer import ThreadCode
from octants.codegen.llvm.function_text import FunctionText, HandlerTable, Machine
from octants.codegen.llvm.module_text import KernelText
from octants.ir.core import Array, ArrayRef, Companion, Operation


class ThreadText(FunctionText):
    """The text of one thread. With ``device_bounds`` the device computes the work items' bounds.

    ``block_size`` is the number of threads in a block; 0 stands for any. `order` is the memory
    order of its atomic operations: relaxed, at device scope.
    """

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
        self.order = f'syncscope("{machine.device_scope}") monotonic'
        self.device_bounds = device_bounds
        self.block_size = block_size
        self.shared_arrays: dict[ArrayRef, str] = {}  # the arrays of the block
        self.uses_copy: dict[ArrayRef, str] = {}  # see `block_shared_copies`
        self.subgroup_copies: set[ArrayRef] = set()  # those that each subgroup has
        self.scattered_updates: set[Operation] = set()  # see `analysis.reductions.find_scattered`
        self.adds_up = False  # whether the block's threads reduce their sums at the end
        self.lanes: Lanes | None = None  # of the work item; see `cooperation`
        self.lane_mask = "-1"  # the bits (i32) of the lanes that reach the code being written
        self.shared_updates: set[Operation] = set()  # see `analysis.reductions.find_shared`
        self.update_groups: dict[Operation, Any] = {}  # see `cooperation.find_groups`
        self.products: dict[Operation, Any] = {}  # the `SumsOfProducts` of such groups
        self.least_blocks = 0  # that should be resident; 0 for any number
        self.all_registers = False  # whether each thread may use as many as there are
        self.holding: set[Operation] = set()  # see `held_loads`
        super().__init__(kernel, machine, table, task)

    @cached_property
    def code(self) -> ThreadCode:
        """The instruction writer."""
        code = self.gpu.code(self)
        assert isinstance(code, ThreadCode)
        return code

    # -- memory -----------------------------------------------------------------------------------

    def in_global(self, pointer: str) -> str:
        """Return a pointer that the optimiser knows to be in global memory."""
        space = self.once(("global", pointer), f"addrspacecast ptr {pointer} to ptr addrspace(1)")
        return self.once(("generic", pointer), f"addrspacecast ptr addrspace(1) {space} to ptr")

    def pointer(self, array: Array, companion: Companion) -> str:
        shared = self.shared_arrays.get(ArrayRef(array, companion))
        return shared or self.in_global(super().pointer(array, companion))

    def system(self, name: str, type: str) -> str:
        found = super().system(name, type)
        return self.in_global(found) if type == "ptr" else found

    # -- launch words -----------------------------------------------------------------------------

    def launch_value(self, offset: int, type: str) -> str:
        """Load a launch word."""
        address = self.once(("launch word", offset), f"getelementptr i8, ptr %launch, i64 {offset}")
        return self.once(("launch word", offset, type), f"load {type}, ptr {address}, align 8")

    def first_item(self) -> str:
        """Return the first work item, i64."""
        return self._bound(0, abi.LAUNCH_LOWER)

    def upper(self) -> str:
        """Return the end of the work items, i64."""
        return self._bound(8, abi.LAUNCH_UPPER)

    def _bound(self, offset: int, word: int) -> str:
        if not self.device_bounds:
            return self.launch_value(word, "i64")
        bounds = self.in_global(self.launch_value(abi.LAUNCH_BOUNDS, "ptr"))
        address = self.once(("bound", offset), f"getelementptr i8, ptr {bounds}, i64 {offset}")
        return self.once(("bound value", offset), f"load i64, ptr {address}, align 8")

    def thread(self) -> str:
        """Return the number of the thread, i64."""
        return self.gpu.thread(self)


class GpuMachine(Machine):
    """The differences between GPUs."""

    subgroup: int
    """The threads of a subgroup."""
    normal_root: Callable[[FunctionText, str], str] | None = None
    """1 / sqrt of an f32 that is not subnormal, under `fast_math`."""

    device_scope = "device"
    """LLVM's name of the synchronisation scope of a device's threads, for this target."""
    constant_space = 0
    """The address space of tables of constants; 0 is the one of pointers without a space."""
    starts_early = False
    """Whether a dispatch may start before the one before it has ended, and waits for that."""
    shares_updates = True
    """Whether threads of a subgroup that update one location together make one update."""
    matches_addresses = True
    """Whether there is `lanes_by_address`."""

    @abstractmethod
    def head(self, f: ThreadText, name: str) -> str:
        """Return the head of a dispatch's function, without `define`."""

    def prologue(self, f: ThreadText) -> list[str]:  # noqa: ARG002
        """The first lines of such a function, which give `%parameters` and `%launch`."""
        return []

    @abstractmethod
    def thread(self, f: ThreadText) -> str:
        """Return the thread's number in its dispatch, i64; computed once."""

    @abstractmethod
    def threads(self, f: ThreadText) -> str:
        """Return the number of threads, i64; computed once."""

    @abstractmethod
    def from_lane(self, f: ThreadText, type: str, value: str, distance: int) -> str:
        """Return the value (i32 or float) of lane ``lane ^ distance``.

        The whole subgroup arrives here.
        """

    @abstractmethod
    def all_at(self, f: ThreadText, address: str) -> str:
        """Return whether the whole subgroup is here now, with one and the same address; i1."""

    def lanes_by_address(self, f: ThreadText, address: str) -> tuple[str, str]:
        """Return the bits (i32) of the arriving lanes, and of those with the same address."""
        raise NotImplementedError

    @abstractmethod
    def any_lane(self, f: ThreadText, condition: str) -> str:
        """Return whether a condition (i1) holds in any thread of the subgroup."""

    @abstractmethod
    def is_first_lane(self, f: ThreadText) -> str:
        """Return whether this is the first thread of its subgroup, i1."""

    has_blocks = False
    """Whether threads of a block can cooperate; the members that follow require it."""

    shared_bytes = 0
    """The most bytes of a block's shared arrays."""

    exchange_subgroups = 0
    """See `codegen.instruction_writer.ThreadCode.exchange_subgroups`."""

    most_subgroups = 1
    """The most subgroups of a block: at most as many as a subgroup has threads."""

    def subgroup_in_block(self, f: ThreadText) -> str:
        """Return the subgroup's number in its block, i32."""
        raise NotImplementedError

    def subgroups_in_block(self, f: ThreadText) -> str:
        """Return the number of subgroups of a block, i32; they are whole unless tasks cooperate."""
        raise NotImplementedError

    def threads_in_block(self, f: ThreadText) -> str:
        """Return the number of threads of a block, i32."""
        raise NotImplementedError

    def any_in_block(self, f: ThreadText, condition: str) -> str:
        """Return whether a condition (i1) holds in any thread of the block, after a barrier."""
        raise NotImplementedError

    def thread_in_block(self, f: ThreadText) -> str:
        """Return the thread's number in its block, i32."""
        raise NotImplementedError

    def shared_memory(self, f: ThreadText, name: str, nbytes: int) -> str:
        """Return the address of memory of the block, a multiple of 16."""
        raise NotImplementedError

    def block_barrier(self, f: ThreadText) -> None:
        """Wait for the threads of the block that have not ended; their stores are visible then."""
        raise NotImplementedError

    def subgroup_barrier(self, f: ThreadText, mask: str) -> None:
        """Wait for the lanes of a mask (i32); their stores are visible then."""
        raise NotImplementedError

    def fence(self, f: ThreadText, scope: str) -> None:
        """Order stores, as a "subgroup", a "block", or the "device" sees them."""
        raise NotImplementedError

    def read_lane(self, f: ThreadText, type: str, value: str, lane: str, mask: str) -> str:
        """Return the value (i32 or float) of a lane (i32) of ``mask``; all of these arrive here."""
        raise NotImplementedError

    def ballot(self, f: ThreadText, condition: str, mask: str) -> str:
        """Return the bits (i32) of the lanes of ``mask`` for which a condition (i1) holds."""
        raise NotImplementedError

    def poll(self, f: FunctionText) -> None:
        """Write nothing: a dispatch cannot be interrupted."""
