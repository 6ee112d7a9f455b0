"""Runs blocks of work items as a GPU would: each work item is a thread of the CPU.

The code is that of GPUs but for the instructions by which threads meet, which call back here.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from octants import abi
from octants.artifact import Dispatch
from octants.codegen.llvm import llvmlite_driver
from octants.codegen.llvm.gpu.dispatch_functions import write
from octants.codegen.llvm.gpu.function_text import ThreadText
from octants.ir.core import Module
from octants.ir.verifier import verify
from octants.runtime.cpu.native import linking as native
from octants.runtime.memory.host import HostAllocation
from tests.codegen.compiled import TARGET
from tests.codegen.emulated_target import Emulated
from tests.codegen.threads import Threads

_Entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_Wait = ctypes.CFUNCTYPE(None, ctypes.c_uint32)
_Exchange = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32)
_SUBGROUP = 32
_EVERYBODY = 0  # the mask of a barrier of the block
_PATIENCE = 20  # seconds, after which threads that wait are taken to wait in vain


class _Convergence:
    def __init__(self) -> None:
        self.words: dict[int, int] = {}
        self.is_complete = False


class Block:
    """The threads of a block, and where they meet; one that has ended is waited for no more."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._changed = threading.Condition()
        self._alive: set[int] = set()
        self._exchanges: dict[tuple[int, int], _Convergence] = {}
        self._is_stuck = False

    def run(self, count: int, start: Callable[[int], None]) -> None:
        """Run so many threads to their end; each is given its number."""
        self._alive = set(range(count))

        def thread(number: int) -> None:
            self._own.number = number
            start(number)
            with self._changed:
                self._alive.discard(number)
                for key in list(self._exchanges):
                    self._complete(key)

        threads = [threading.Thread(target=thread, args=(k,)) for k in range(count)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert not self._is_stuck, "threads wait for others that do not come"

    def meet(self, mask: int, word: int = 0) -> dict[int, int]:
        """Wait for the lanes of a mask, or for everybody; what they brought, by their numbers."""
        number = self._own.number
        key = (number // _SUBGROUP if mask != _EVERYBODY else 0, mask)
        with self._changed:
            exchange = self._exchanges.setdefault(key, _Convergence())
            exchange.words[number] = word
            self._complete(key)
            if not self._changed.wait_for(lambda: exchange.is_complete, _PATIENCE):
                self._is_stuck = True
        return exchange.words

    def _complete(self, key: tuple[int, int]) -> None:
        """Let those go on that have met, if all have."""
        subgroup, mask = key
        first = subgroup * _SUBGROUP
        lanes = {first + lane for lane in range(_SUBGROUP) if mask >> lane & 1}
        members = self._alive if mask == _EVERYBODY else lanes & self._alive
        if members <= set(self._exchanges[key].words):
            self._exchanges.pop(key).is_complete = True
            self._changed.notify_all()

    # -- what the code calls -----------------------------------------------------------------------

    def wait(self, mask: int) -> None:
        self.meet(mask)

    def read(self, word: int, lane: int, mask: int) -> int:
        first = self._own.number // _SUBGROUP * _SUBGROUP
        return self.meet(mask, word)[first + lane]

    def vote(self, bit: int, _: int, mask: int) -> int:
        words = self.meet(mask, bit)
        return sum(1 << number % _SUBGROUP for number, word in words.items() if word)


class _Blocks(Emulated):
    """Threads that call back where they meet."""

    subgroup = _SUBGROUP
    shared_bytes = 48 * 1024

    def __init__(self, block: Block) -> None:
        super().__init__(TARGET)
        self.callbacks = {
            "wait": _Wait(block.wait),
            "read": _Exchange(block.read),
            "vote": _Exchange(block.vote),
        }
        self.memory: dict[str, HostAllocation] = {}

    def _call(self, f: ThreadText, name: str, *operands: str) -> str:
        address = ctypes.cast(self.callbacks[name], ctypes.c_void_p).value
        result = "void" if name == "wait" else "i32"
        arguments = ", ".join(f"i32 {operand}" for operand in operands)
        call = f"call {result} inttoptr (i64 {address} to ptr)({arguments})"
        return f.emit(call) or "" if name == "wait" else f.assign(call)

    def all_at(self, f: ThreadText, place: str) -> str:  # noqa: ARG002
        """Each updates by itself."""
        return "false"

    def from_lane(self, f: ThreadText, type: str, value: str, distance: int) -> str:  # noqa: ARG002
        return value

    def thread_in_block(self, f: ThreadText) -> str:
        size = f.kernel.module.tasks[f.task].options["block_dim"]
        rest = f.once("number", f"urem i64 %thread, {size}")
        return f.once("narrow number", f"trunc i64 {rest} to i32")

    def shared_memory(self, f: ThreadText, name: str, nbytes: int) -> str:  # noqa: ARG002
        self.memory[name] = HostAllocation(nbytes)
        self.memory[name].bytes[:] = 0x55
        return f"inttoptr (i64 {self.memory[name].address} to ptr)"

    def block_barrier(self, f: ThreadText) -> None:
        self._call(f, "wait", str(_EVERYBODY))

    def subgroup_barrier(self, f: ThreadText, mask: str) -> None:
        self._call(f, "wait", mask)

    def fence(self, f: ThreadText, scope: str) -> None:  # noqa: ARG002
        f.emit("fence seq_cst")

    def read_lane(self, f: ThreadText, type: str, value: str, lane: str, mask: str) -> str:
        if type == "float":
            bits = f.convert("bitcast", "float", value, "i32")
            return f.convert("bitcast", "i32", self._call(f, "read", bits, lane, mask), "float")
        return self._call(f, "read", value, lane, mask)

    def ballot(self, f: ThreadText, condition: str, mask: str) -> str:
        return self._call(f, "vote", f.convert("zext", "i1", condition, "i32"), "0", mask)


class BlockThreads(Threads):
    """A kernel some of whose loops run in blocks, on a GPU that holds ``grid`` blocks at a time."""

    def __init__(self, module: Module, grid: int = 2) -> None:
        verify(module)
        self.module = module
        self.threads, self.capacity, self.grid = 37, 1 << 12, grid
        self._block = Block()
        self._machine = _Blocks(self._block)
        written = write(module, self._machine)
        optimised, machine = llvmlite_driver.optimised(written.text.finish(), TARGET, 1)
        self.artifact = written.artifact(TARGET, machine.emit_object(optimised))
        names = [dispatch.entry for dispatch in self.artifact.dispatches]
        self._library = native.link(self.artifact.code, names, native.implied_symbols())
        self.messages = HostAllocation(abi.MESSAGES_HEADER + (1 << 16))
        self._bounds = HostAllocation(16)
        self.runs: dict[str, int] = {}

    def _dispatch(self, dispatch: Dispatch, block: Any) -> None:
        if not dispatch.block:
            super()._dispatch(dispatch, block)
            return
        entry = _Entry(self._library[dispatch.entry])
        lower, upper = self._items(dispatch, block)
        launch = (ctypes.c_int64 * (abi.LAUNCH_GRAPH_SIZE // 8))(lower, upper, self._bounds.address)
        parameters, words, size = (
            ctypes.addressof(block),
            ctypes.addressof(launch),
            dispatch.block,
        )
        for number in range(self.grid):
            self._block.run(
                size,
                lambda k, first=number * size: entry(
                    parameters, words, first + k, self.grid * size
                ),
            )
