"""Replays captured commands on Vulkan as one submission of commands that were recorded once.

This is for launches without messages, records and random numbers, for copies and for fills. What
the host has to look at, or what changes from replay to replay, is queued command by command.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from octants.runtime.capture import Command, DeviceCall, Launch
from octants.runtime.gpu.batches import padded
from octants.runtime.gpu.captured_writes import written_by
from octants.runtime.memory.versions import WrittenRanges

if TYPE_CHECKING:
    from octants.runtime.gpu.batched_device import BatchedDevice

_CALLS = "copy", "copy_rows", "clear", "write"
_MOST_WRITTEN = 1 << 16
_AROUND = 256  # bytes for the words at both ends of a fill


class RecordedGraph:
    """Implements `runtime.capture.CommandReplay`; ``kept`` is what the commands use."""

    is_one_launch = True

    def __init__(
        self, machine: BatchedDevice, commands: Sequence[Command], kept: Any, recorded: Any
    ) -> None:
        self._machine, self._recorded = machine, recorded
        self._kept = kept, commands
        self._names = [each.kernel.name for each in commands if isinstance(each, Launch)]
        self._writes = WrittenRanges(each for command in commands for each in written_by(command))

    def __call__(self, _: int) -> None:
        """Queue a replay."""
        machine = self._machine
        machine.context.launched.extend(self._names)
        if machine.versions.watches:
            machine.versions.wrote_again(self._writes)
        with machine.queue.lock:
            self._recorded.submit()


def recorded_graph(
    machine: BatchedDevice, commands: Sequence[Command], kept: Any
) -> RecordedGraph | None:
    """Record commands; None if some of them cannot be recorded."""
    if not commands or not all(map(_is_recordable, commands)):
        return None

    def run() -> None:
        for command in commands:
            command(0)

    recorded = machine.queue.record(run, sum(map(_parameter_bytes, commands)))
    return None if recorded is None else RecordedGraph(machine, commands, kept, recorded)


def _is_recordable(command: Command) -> bool:
    if isinstance(command, DeviceCall):
        is_small = command.method != "write" or command.arguments[1].nbytes <= _MOST_WRITTEN
        return is_small and command.method in _CALLS
    if not isinstance(command, Launch):
        return False
    kernel = command.kernel
    return bool(kernel.may_repeat and command.run is kernel.launch)  # not one that is timed


def _parameter_bytes(command: Command) -> int:
    """The most bytes that a command takes of an arena."""
    if isinstance(command, Launch):
        return int(command.kernel.parameter_bytes)
    assert isinstance(command, DeviceCall)
    return _AROUND + (padded(command.arguments[1].nbytes) if command.method == "write" else 0)
