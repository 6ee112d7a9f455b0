"""What a launch said: printed lines and the first failure.

The layout of a message buffer is in `octants.abi`. Lines come out in this order: by task, within a
task by work item, within a work item as the kernel printed them, whatever thread ran what. A launch
that prints more than the buffer holds loses some of the lines, any ones where it was parallel, and
says at the end how many.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from octants import abi
from octants.artifact import Artifact, MessageFormat
from octants.diagnostics.errors import UserError
from octants.diagnostics.kernel_errors import AssertionFailed, OutOfBounds, TapeMemoryRefused
from octants.ir.semantics import format_number
from octants.runtime.memory import HostAllocation, allocate
from octants.types import scalars

CAPACITY = 1 << 19  # words; pages that nothing is written to cost nothing

_ERRORS: dict[str, type[Any]] = {
    "assertion": AssertionFailed,
    "bounds": OutOfBounds,
    "memory": TapeMemoryRefused,
}


class MessageBuffer:
    """The buffer of a launch, in memory of the host. A launch resets its head when it begins."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._memory: HostAllocation = allocate(abi.MESSAGES_HEADER + 8 * capacity)
        self.address = self._memory.address
        self._words: np.ndarray[Any, np.dtype[np.int64]] = self._memory.bytes.view(np.int64)
        self._words[abi.MESSAGES_CAPACITY // 8] = capacity

    def deliver(self, artifact: Artifact) -> None:
        """Write the printed lines through `sys.stdout`; raise what failed."""
        if self._word(abi.MESSAGES_COUNT):
            sys.stdout.write("".join(self._lines(artifact)))
        if self._word(abi.MESSAGES_FAILED) & 0xFFFFFFFF:
            raise self._failure(artifact)

    def _word(self, offset: int) -> int:
        return int(self._words[offset // 8])

    def _lines(self, artifact: Artifact) -> Iterator[str]:
        printed = sorted(self._printed(artifact.messages), key=lambda entry: entry[:2])
        for _, _, message, words in printed:
            yield render(message, words) + "\n"
        lost = self._word(abi.MESSAGES_COUNT) - len(printed)
        if lost:
            yield f"[{lost} more lines of kernel `{artifact.name}` did not fit its buffer]\n"

    def _printed(
        self, formats: Sequence[MessageFormat]
    ) -> Iterator[tuple[int, int, MessageFormat, list[int]]]:
        """(task, work item, message, words of its values), in the order of the buffer."""
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

    def _failure(self, artifact: Artifact) -> Exception:
        head = self._words[abi.MESSAGES_FAILURE_ID // 8]
        message = artifact.messages[int(head) & 0xFFFFFFFF]
        words = self._values(abi.MESSAGES_FAILURE_VALUES // 8, len(message.dtypes))
        item = self._word(abi.MESSAGES_FAILURE_ITEM)
        error: UserError = _ERRORS.get(message.kind, AssertionFailed)(
            artifact.name, render(message, words), item
        )
        return error.at(message.location)


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
            pieces.append(format_number(_number(dtype, word), dtype, part[0]))
    return "".join(pieces)


def _number(dtype: scalars.DType, word: int) -> Any:
    """The Python number in a word: a float is there as f64, an integer extended to 64 bits."""
    if dtype.is_float:
        return struct.unpack("<d", struct.pack("<q", word))[0]
    return scalars.convert(word, dtype)
