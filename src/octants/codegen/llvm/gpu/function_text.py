"""The text of a GPU function under construction, its instruction writer, and the GPU."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from octants import abi
from octants.cached_property import cached_property
from octants.codegen.function_emitter import Lanes, RecordBuffer
from octants.codegen.instruction_writer import Pointer, ThreadCode
from octants.codegen.interleaved_record_buffer import ThreadRecordBuffer
from octants.codegen.llvm.function_text import FunctionText, HandlerTable, Machine
from octants.codegen.llvm.instruction_writer import LlvmCode
from octants.codegen.llvm.module_text import KernelText
from octants.codegen.llvm.types_and_literals import REGISTER
from octants.ir.core import Array, ArrayRef, Companion, Operation
from octants.target import Target
from octants.types.scalars import DType, u32


class ThreadText(FunctionText):
    """The text of one thread. With ``device_bounds`` the device computes the work items' bounds.

    ``block_size`` is the number of threads in a block; 0 stands for any. `order` is the memory
    order of its atomic operations: relaxed, at device scope.
    """

    def __init__(
        self,
        kernel: KernelText,
        machine: Gpu,
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
        self.scattered_updates: set[Operation] = set()  # `analysis.sums.reductions.find_scattered`
        self.adds_up = False  # whether the block's threads reduce their sums at the end
        self.lanes: Lanes | None = None  # of the work item; see `cooperation`
        self.lane_mask = "-1"  # the bits (i32) of the lanes that reach the code being written
        self.shared_updates: set[Operation] = set()  # `analysis.sums.reductions.find_shared`
        self.update_groups: dict[Operation, Any] = {}  # see `cooperation.find_groups`
        self.products: dict[Operation, Any] = {}  # the `SumsOfProducts` of such groups
        self.least_blocks = 0  # that should be resident; 0 for any number
        self.all_registers = False  # whether each thread may use as many as there are
        self.holding: set[Operation] = set()  # see `held_loads`
        super().__init__(kernel, machine, table, task)

    @cached_property
    def code(self) -> GpuCode:
        """The instruction writer."""
        return self.gpu.thread_code(self)

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


class GpuCode(LlvmCode, ThreadCode):
    """A function of a thread, of which a GPU writes what depends on other threads.

    Numbers of threads and subgroups are i32 where a `ThreadCode` has no wider type.
    """

    masks = False
    loads_four_words = True

    def __init__(self, f: ThreadText) -> None:
        super().__init__(f)
        self._thread = f
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
        f = self._thread
        bits = f.convert("ptrtoint", "ptr", address, "i64")
        return f.apply("icmp eq", "i64", f.apply("and", "i64", bits, nbytes - 1), 0)

    # -- memory of a block ------------------------------------------------------------------------

    def shared_array(self, key: Any, dtype: DType, count: int) -> str:
        if key not in self._shared:
            name = f"octants_block_{self._thread.task}_{len(self._shared)}"
            self._shared[key] = self.shared_memory(name, count * dtype.size)
        return self._shared[key]

    def shared_memory(self, name: str, nbytes: int) -> str:
        """Return the address of memory of the block, a multiple of 16."""
        raise NotImplementedError

    # -- other threads ----------------------------------------------------------------------------

    def ballot(self, condition: str) -> str:
        bits = self.votes(condition, self._thread.lane_mask)
        return self._thread.convert("zext", "i32", bits, "i64")

    def votes(self, condition: str, mask: str) -> str:
        """Return the bits (i32) of the lanes of ``mask`` for which a condition (i1) holds."""
        raise NotImplementedError

    def any_in_block(self, condition: str) -> str:
        """Return whether a condition (i1) holds in any thread of the block, after a barrier."""
        raise NotImplementedError

    def subgroups_in_block(self) -> str:
        """Return the number of subgroups of a block, i32; they are whole unless tasks cooperate."""
        return self._thread.apply("udiv", "i32", self.threads_in_block(), self.subgroup)

    # -- a launch ---------------------------------------------------------------------------------

    def launch_word(self, offset: int) -> str:
        return self._thread.launch_value(offset, "i64")

    def launch_address(self, offset: int) -> str:
        return self._thread.in_global(self._thread.launch_value(offset, "ptr"))

    def block(self) -> str:
        raise NotImplementedError

    def blocks(self) -> str:
        raise NotImplementedError

    def lane(self) -> str:
        """Compute it where it is used, so that it takes no register before."""
        return self.apply("and", u32, self.thread_in_block(), str(self.subgroup - 1))


class Gpu(Machine):
    """A GPU; subclasses add the text of its functions.

    A parameter block of up to `by_value` bytes is passed by value; a larger one has its address
    passed. `flags` are names and values of LLVM's module flags. LLVM optimises at `least_level`
    or above.
    """

    by_value = -1  # none, not even an empty one
    flags: tuple[tuple[str, int], ...] = ()
    least_level = 0
    thread_code: type[GpuCode]
    """The instruction writer of its threads."""
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
    """Whether there is `GpuCode.lanes_by_address`."""
    has_blocks = False
    """Whether threads of a block can cooperate."""
    shared_bytes = 0
    """The most bytes of a block's shared arrays."""
    exchange_subgroups = 0
    """See `codegen.instruction_writer.ThreadCode.exchange_subgroups`."""
    most_subgroups = 1
    """The most subgroups of a block: at most as many as a subgroup has threads."""

    def __init__(self, target: Target) -> None:
        self.target = target

    @abstractmethod
    def emit(self, machine: Any, optimised: Any) -> bytes:
        """The code that the driver loads, from LLVM's target machine and optimised module."""

    @abstractmethod
    def head(self, f: ThreadText, name: str) -> str:
        """Return the head of a dispatch's function, without `define`."""

    def prologue(self, f: ThreadText) -> list[str]:  # noqa: ARG002
        """The first lines of such a function, which give `%parameters` and `%launch`."""
        return []

    def code(self, f: FunctionText) -> LlvmCode:
        return LlvmCode(f)

    def record_buffer(self, f: FunctionText) -> RecordBuffer:
        assert isinstance(f, ThreadText)
        return ThreadRecordBuffer(f)

    def poll(self, f: FunctionText) -> None:
        """Write nothing: a dispatch cannot be interrupted."""
