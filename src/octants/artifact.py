"""The contract between code generation and the runtime: frozen, picklable, complete for a launch.

A kernel gets one parameter block: an array of 8-byte slots. `ParameterLayout` says what each slot
holds; code generation reads slots by their position, and a launch fills them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from octants.cached_property import cached_property
from octants.diagnostics.exceptions import OctantsError
from octants.diagnostics.span import Span
from octants.ir.core import Array, Companion, Module, Record, Space
from octants.lazy_dataclass import dataclass
from octants.types.layouts import STRIDED
from octants.types.scalars import i64


@dataclass(frozen=True, slots=True)
class Slot:
    """One 8-byte slot of the parameter block.

    kind:
      - "system": `name` is "messages" (address of the launch's message buffer), "seed" (u64) or
        "launch" (u64, the number of the forward launch, which random draws depend on);
      - "pointer": the address of the first element of `array`'s `companion`;
      - "shape": the extent of axis `index` of an ndarray (i64);
      - "stride": the bytes from an element of its `companion` to the next one along index `index`,
        those of the element counted behind the axes (i64); for strided ones only;
      - "scalar": the value of component `index` of an argument, in the low bytes of the slot.
    """

    kind: str
    name: str = ""
    array: int = -1
    companion: Companion = Companion.PRIMAL
    index: int = 0


SYSTEM = ("messages", "seed", "launch")
SYSTEM_BYTES = 8 * len(SYSTEM)


@dataclass(frozen=True)
class ParameterLayout:
    """The slots of a kernel's parameter block, in order; arrays are positions in Module.arrays."""

    slots: tuple[Slot, ...]

    def position(self, slot: Slot) -> int:
        return self._positions[slot]

    @cached_property
    def _positions(self) -> dict[Slot, int]:
        return {slot: number for number, slot in enumerate(self.slots)}

    def __reduce__(self) -> tuple[Any, ...]:
        return ParameterLayout, (self.slots,)


def layout_parameters(arrays: list[Array]) -> ParameterLayout:
    """The parameter block of a kernel over ``arrays``."""
    slots = [Slot("system", name) for name in SYSTEM]
    for number, array in enumerate(arrays):
        if array.space in (Space.SHARED, Space.LOCAL):
            continue
        if array.space is Space.NDARRAY:
            slots += [Slot("shape", array=number, index=axis) for axis in range(array.rank)]
        for companion in array.layouts:
            if array.space is Space.ARGUMENT and companion is Companion.PRIMAL:
                count = _product(array.element_shape)
                slots += [Slot("scalar", array=number, index=k) for k in range(count)]
            else:
                slots.append(Slot("pointer", array=number, companion=companion))
            if array.layouts[companion] == STRIDED:
                count = array.rank + len(array.element_shape)
                slots += [Slot("stride", "", number, companion, axis) for axis in range(count)]
    return ParameterLayout(tuple(slots))


def _product(shape: tuple[int, ...]) -> int:
    result = 1
    for extent in shape:
        result *= extent
    return result


PRINT = "print"
COUNTED_PRINT = "counted print"
"""The kind of a print of which a launch writes the first, and the number of the others."""


@dataclass(frozen=True)
class MessageFormat:
    """How the host renders one kind of message: a print or a failed assertion of the kernel.

    `parts` are literal strings and, for values, tuples (format spec,); `dtypes` are the names of
    the values' types in order. `kind` is `PRINT`, `COUNTED_PRINT`, "overflow", or the error class
    of a failure.
    """

    kind: str
    parts: tuple[str | tuple[str], ...]
    dtypes: tuple[str, ...]
    location: Span | None = None


def overflow_message(record: Record) -> MessageFormat:
    """The message about a record that would have to hold more iterations than its value says."""
    has = f" slots, one for each iteration, and has {record.capacity}"
    return MessageFormat("overflow", ("it needs ", ("",), has), (i64.name,), record.location)


@dataclass(frozen=True, slots=True)
class MemoryRange:
    """A range of memory: ``nbytes`` from the address in a slot on; 0: the whole allocation."""

    slot: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class RecordBufferSizeInputs:
    """The inputs that determine the size of a dispatch's record buffers, or where a loop ends.

    These are the values of some `slots` of the parameter block, the ranges of `memory`, which the
    kernel does not write and, if it depends on them `by_item`, the number of the work item; also
    the share that records have.
    """

    slots: tuple[int, ...]
    by_item: bool
    memory: tuple[MemoryRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One function of a GPU's code and the threads that run it; `abi` defines its parameters.

    `bounds` tells the work items: "" stands for one thread, "device" for what the dispatch before
    has computed; anything else is a Python expression over ``slots``, the unpacked integers of the
    parameter block, that gives (lower, upper). `block` is the number of threads in a block, and
    `threads` the most that there may be; 0 stands for any number. A dispatch that `records` needs a
    record buffer. If its work items cannot `can_retry` when that is too small, it gets a large one.
    `needs` says what decides how much of it they need, `domain_needs` what decides bounds that the
    device computes; None where that is unknown. Dispatches that follow each other and belong to
    different groups of concurrent tasks may run at the same time; `group` 0 stands for none. There
    may be `waves` times the threads that the device holds at once: each wave begins where the one
    before ends. Where the threads of a block add up `sums` together, large blocks are better. Where
    the code is written for subgroups of so many `lanes`, all of them are to be whole; 0: it is not.
    One that `starts_early` may start before the dispatch before it has ended, and waits for that.
    One that `records_iterations` has the records of iterations in record buffers, not just
    checkpoints, so that it is faster if they fit the cache.
    """

    entry: str
    task: int
    bounds: str = ""
    block: int = 0
    threads: int = 0
    records: bool = False
    can_retry: bool = True
    needs: RecordBufferSizeInputs | None = None
    domain_needs: RecordBufferSizeInputs | None = None
    group: int = 0
    waves: int = 1
    sums: bool = False
    lanes: int = 0
    starts_early: bool = False
    records_iterations: bool = False


@dataclass(frozen=True)
class Artifact:
    """A compiled kernel: exactly what the offline cache stores.

    `kernel` is the name of the user's function. `records` says what takes memory for a gradient:
    where the loops stand, and what they record. Code of GPUs is run by `dispatches`, in order; code
    of CPUs has one `entry`. `binary` is what the driver of a GPU makes of the code, where that is
    known already. `writes` is the memory of arrays that code of GPUs may write to. If it `draws`
    random numbers, the same launches give different results.
    """

    name: str
    target: str
    code: bytes
    entry: str
    parameters: ParameterLayout
    messages: tuple[MessageFormat, ...] = ()
    assembly: str = ""
    metadata: tuple[tuple[str, Any], ...] = ()
    kernel: str = ""
    records: tuple[tuple[Span, str], ...] = ()
    dispatches: tuple[Dispatch, ...] = ()
    binary: bytes = b""
    writes: tuple[MemoryRange, ...] = ()
    draws: bool = False


class Making:
    """An artifact whose `binary` may be still under way.

    ``finish`` waits for that, and gives the artifact with it; without it there is nothing to be
    waited for. Once it `is_done`, no wait is needed, even if it failed.
    """

    def __init__(self, artifact: Artifact, finish: Callable[[], Artifact] | None = None) -> None:
        self.artifact = artifact
        self.is_done = finish is None
        self._finish = finish

    def result(self) -> Artifact:
        """The artifact, once it is made; or the error that has kept it from that."""
        finish = self._finish
        if finish is not None:
            try:
                self.artifact = finish()
                self._finish = None
            finally:
                self.is_done = True
        return self.artifact

    def wait(self) -> None:
        """Wait until it is done, and raise nothing: `result` raises the error, if there is one."""
        with contextlib.suppress(OctantsError):
            self.result()


def parameters_of(module: Module) -> ParameterLayout:
    """The parameter block of a module."""
    return layout_parameters(module.arrays)
