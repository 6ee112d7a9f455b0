"""Decodes the message buffer of a launch: printed text, the first failure, the worst overflow.

`octants.abi` has the layout. Prints appear in this order: by task, within a task by work item,
within a work item in program order, whichever thread ran what; each begins where the last one
ended, on the same line or a new one. A launch that prints more than its buffer holds loses some
prints, arbitrary ones if it was parallel, and reports at the end how many.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from octants import abi
from octants.artifact import COUNTED_PRINT, PRINT, Artifact, MessageFormat
from octants.deferred_import import Deferred
from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import OctantsError
from octants.diagnostics.kernel_run_time_errors import (
    AssertionFailed,
    NotFinite,
    OutOfBounds,
    OutOfRecordMemory,
    RecordBufferOverflow,
    RecursionTooDeep,
)
from octants.diagnostics.render import Label
from octants.diagnostics.span import Span
from octants.runtime.memory.host import HostAllocation, allocate
from octants.runtime.reports.counted_prints import joined
from octants.types import scalars

if TYPE_CHECKING:
    from octants.ir import scalar_semantics
else:
    scalar_semantics = Deferred("octants.ir.scalar_semantics")

CAPACITY = 1 << 19  # words; pages that nothing is written to cost nothing

_ERRORS: dict[str, type[Any]] = {
    "assertion": AssertionFailed,
    "bounds": OutOfBounds,
    "finite": NotFinite,
    "memory": OutOfRecordMemory,
    "overflow": RecordBufferOverflow,
    "recursion": RecursionTooDeep,
}


MOST_IN_FLIGHT = 64
"""The most GPU launches with undelivered messages; then the host synchronises."""

PRINT_WORDS = 1 << 17
"""The words for prints in the buffer of a GPU launch."""


def capacity_for(artifact: Artifact) -> int:
    """The words for prints that the buffer of a kernel's GPU launch needs."""
    prints = any(each.kind in (PRINT, COUNTED_PRINT) for each in artifact.messages)
    return PRINT_WORDS if prints else 0


NO_END = 2**32 - 1
"""The end of a buffer that is not full: larger than any buffer. It has 32 bits, since some devices
update no more than that.
"""


def clear_head(head: np.ndarray[Any, np.dtype[np.int64]], capacity: int) -> None:
    """Reset the head of a buffer to that of an empty one."""
    head[: abi.MESSAGES_HEADER // 8] = 0
    head[abi.MESSAGES_END // 8] = NO_END
    head[abi.MESSAGES_CAPACITY // 8] = capacity


def has_messages(head: np.ndarray[Any, np.dtype[np.int64]]) -> bool:
    """Whether a buffer with this head has a message."""
    failed = int(head[abi.MESSAGES_FAILED // 8]) & 0xFFFFFFFF
    return bool(head[abi.MESSAGES_COUNT // 8] or failed or head[abi.MESSAGES_OVERFLOW_NEED // 8])


class MessageBuffer:
    """A message buffer in host memory; a launch resets its head when it begins."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._memory: HostAllocation = allocate(abi.MESSAGES_HEADER + 8 * capacity)
        self.address = self._memory.address
        self._words: np.ndarray[Any, np.dtype[np.int64]] = self._memory.bytes.view(np.int64)
        self._words[abi.MESSAGES_CAPACITY // 8] = capacity

    @property
    def bytes(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The whole buffer, into which a device with discrete memory copies its own."""
        return self._memory.bytes

    def deliver(self, artifact: Artifact) -> OctantsError | None:
        """Write what was printed to `sys.stdout`, and raise the failure.

        Returns:
            The error of an overflow of a record buffer, for the next synchronisation to raise; None
                without one.

        Raises:
            OctantsError: an assertion or bounds check failed.
        """
        if self._word(abi.MESSAGES_COUNT):
            text = self._text(artifact)
            print(text, end="")  # does nothing in a program without an output, as of pythonw
        if self._word(abi.MESSAGES_FAILED) & 0xFFFFFFFF:
            raise self._failure(artifact)
        need = self._word(abi.MESSAGES_OVERFLOW_NEED)
        return self._overflow(artifact, need) if need else None

    def _word(self, offset: int) -> int:
        return int(self._words[offset // 8])

    def _text(self, artifact: Artifact) -> str:
        printed = sorted(self._printed(artifact.messages), key=lambda entry: entry[:2])
        text = joined(
            (message if message.kind == COUNTED_PRINT else None, partial(render, message, words))
            for _, _, message, words in printed
        )
        lost = self._word(abi.MESSAGES_COUNT) - len(printed)
        if lost:
            text += "\n" if text and not text.endswith("\n") else ""
            text += f"[{lost} more prints of kernel `{artifact.name}` did not fit its buffer]\n"
        return text

    def _printed(
        self, formats: Sequence[MessageFormat]
    ) -> Iterator[tuple[int, int, MessageFormat, list[int]]]:
        """The prints in buffer order: task, work item, message, words of its values."""
        position = abi.MESSAGES_HEADER // 8
        end = self._word(abi.MESSAGES_END) & (2**64 - 1)
        stop = position + min(self._word(abi.MESSAGES_CURSOR), end)
        while position < stop:
            kind, item = int(self._words[position]), int(self._words[position + 1])
            message = formats[kind & 0xFFFFFFFF]
            count = len(message.dtypes)
            yield kind >> 32, item, message, self._values(position + 2, count)
            position += 2 + count

    def _values(self, position: int, count: int) -> list[int]:
        return [int(word) for word in self._words[position : position + count]]

    def _failure(self, artifact: Artifact) -> OctantsError:
        message = artifact.messages[self._word(abi.MESSAGES_FAILURE_ID) & 0xFFFFFFFF]
        words = self._values(abi.MESSAGES_FAILURE_VALUES // 8, len(message.dtypes))
        item = self._word(abi.MESSAGES_FAILURE_ITEM)
        return _error(artifact, message, words, item)

    def _overflow(self, artifact: Artifact, need: int) -> OctantsError:
        message = artifact.messages[self._word(abi.MESSAGES_OVERFLOW_ID) & 0xFFFFFFFF]
        return _error(artifact, message, [need], self._word(abi.MESSAGES_OVERFLOW_ITEM))


def _error(
    artifact: Artifact, message: MessageFormat, words: Sequence[int], item: int
) -> OctantsError:
    """The exception for a failure or overflow of a work item."""
    kind = _ERRORS.get(message.kind, AssertionFailed)
    error: UserError = kind(artifact.kernel or artifact.name, render(message, words), item)
    if message.kind == "memory":
        return error.at(None, *recorded_loops(artifact, message.location))
    return error.at(message.location)


def recorded_loops(artifact: Artifact, first: Span | None = None) -> list[Label]:
    """The recorded loops of a kernel and their sizes, as labels; ``first`` comes first."""
    found = sorted(artifact.records, key=lambda loop: loop[0] != first)
    return [Label(location, takes) for location, takes in found]


def render(message: MessageFormat, words: Sequence[int]) -> str:
    """A message as text; ``words`` holds its values."""
    values = iter(zip(message.dtypes, words, strict=True))
    pieces = []
    for part in message.parts:
        if isinstance(part, str):
            pieces.append(part)
        else:
            name, word = next(values)
            dtype = scalars.by_name(name)
            pieces.append(scalar_semantics.format_number(_number(dtype, word), dtype, part[0]))
    return "".join(pieces)


def _number(dtype: scalars.DType, word: int) -> Any:
    """The Python number in a word: a float is there as f64, an integer extended to 64 bits."""
    if dtype.is_float:
        return struct.unpack("<d", struct.pack("<q", word))[0]
    return scalars.convert(word, dtype)
