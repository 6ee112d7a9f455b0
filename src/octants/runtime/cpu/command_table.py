"""Replays captured commands on the CPU: launches and copies in a row take one native call."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any, Protocol

from octants.runtime.capture import Command, DeviceCall, HostCopy, Launch
from octants.runtime.cpu.native.launches import ROW
from octants.runtime.memory.host import address_of

ROW_BYTES = 8 * len(ROW)


class RowRunner(Protocol):
    """The device that runs rows; native code may use its addresses if it `shares_memory`."""

    shares_memory: bool

    def run_rows(self, first: int, kernels: Sequence[Any], later: int, /) -> None:
        """Run the rows from an address on; `kernels` are those that they launch."""


class CommandTable:
    """Implements `runtime.capture.CommandReplay`.

    Launches and copies between contiguous memory are rows of native tables. All other commands run
    one by one. It keeps what was captured, and code, but not the arrays that native copies write.

    Args:
        device: The CPU.
        commands: What was captured.
        kept: What the commands use; it is kept alive.
    """

    is_one_launch = False

    def __init__(self, device: RowRunner, commands: Sequence[Command], kept: Any = None) -> None:
        self._device = device
        self._kept = kept
        self._parts: list[_Rows | Command] = []
        can_copy = device.shares_memory
        for is_native, group in itertools.groupby(
            commands, lambda each: _is_native(each, can_copy)
        ):
            part = list(group)
            self._parts += [_Rows(part)] if is_native else part

    def __call__(self, later: int) -> None:
        """Replay the commands; launches get numbers that are larger by ``later``."""
        for part in self._parts:
            if isinstance(part, _Rows):
                self._device.run_rows(part.address, part.kernels, later)
            else:
                part(later)


class _Rows:
    """A native table, at an `address`; `kernels` are those that its rows launch."""

    def __init__(self, commands: Sequence[Command]) -> None:
        rows = [_row(command) for command in commands]
        self._table = (ctypes.c_int64 * (len(ROW) * len(rows)))(*itertools.chain(*rows))
        self._sources = [
            each.source for each in commands if isinstance(each, HostCopy) and each.keeps_source
        ]
        self.address = ctypes.addressof(self._table)
        self.kernels: list[Any] = [
            command.kernel if isinstance(command, Launch) else None for command in commands
        ]


def _row(command: Command) -> tuple[int, ...]:
    """The words of `launches.ROW`."""
    if isinstance(command, Launch):
        block = command.block
        storage = block + command.slots
        return command.kernel.entry, block, storage, command.storage, command.number
    if isinstance(command, DeviceCall):
        return 0, *command.arguments, 0
    assert isinstance(command, HostCopy)
    return 0, address_of(command.target), address_of(command.source), command.target.nbytes, 0


def _is_native(command: Command, can_copy: bool) -> bool:
    """Whether a command can be a row of a native table."""
    if isinstance(command, HostCopy):
        target, source = command.target, command.source
        is_alike = target.dtype == source.dtype and target.shape == source.shape
        return is_alike and target.flags.c_contiguous and source.flags.c_contiguous
    if isinstance(command, DeviceCall):
        return can_copy and command.method == "copy"
    if not hasattr(command.kernel, "entry"):
        return False
    return bool(command.run == command.kernel.launch)  # not one that is timed
