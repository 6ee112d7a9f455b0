"""What differs between the GPUs that LLVM generates code for."""

from __future__ import annotations

from abc import abstractmethod

from octants.codegen.llvm.function import FunctionText, Machine
from octants.codegen.llvm.gpu.remainder import remainder
from octants.codegen.llvm.gpu.tape import ThreadTape
from octants.codegen.llvm.gpu.text import ThreadText


class GpuMachine(Machine):
    """What differs between GPUs."""

    subgroup: int
    """How many threads work in step."""

    def library(self, f: FunctionText, fn: str, type: str, operands: list[str]) -> str:
        assert fn == "fmod"
        return remainder(f, type, *operands)

    def tape(self, f: FunctionText) -> ThreadTape:
        assert isinstance(f, ThreadText)
        return ThreadTape(f)

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
        """The value of the thread in the subgroup whose number differs by the bit ``distance``.

        It is anything at all if there is no such thread.
        """

    @abstractmethod
    def has_lane(self, f: ThreadText, distance: int) -> str:
        """Whether there is such a thread, i1: the last subgroup of a block may lack some."""

    @abstractmethod
    def all_at(self, f: ThreadText, place: str) -> str:
        """Whether all threads of the subgroup are here now, with one and the same address; i1."""

    @abstractmethod
    def any_lane(self, f: ThreadText, condition: str) -> str:
        """Whether a condition (i1) holds for any thread of the subgroup."""

    @abstractmethod
    def is_first_lane(self, f: ThreadText) -> str:
        """Whether this is the first thread of its subgroup, i1."""

    shared_bytes = 0
    """The most that the arrays of a block may take."""

    # What only threads need that work together; a machine without them has none of it.

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
