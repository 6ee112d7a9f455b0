"""The memory that captured commands write on a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from octants.runtime.capture import Command, DeviceCall, Launch


def written_by(command: Command) -> Iterator[tuple[int, int]]:
    """The addresses and bytes that a command writes, where 0 bytes stand for a whole allocation."""
    if isinstance(command, Launch):
        slots = command.kernel.slots_at(command.block)
        for memory_range in command.kernel.artifact.writes:
            yield slots[memory_range.slot], memory_range.nbytes
    elif isinstance(command, DeviceCall):
        address, *rest = command.arguments
        if command.method == "copy_rows":
            step, _, _, nbytes, rows = rest
            yield address, (rows - 1) * step + nbytes
        elif command.method == "fill_words":
            size, _, count = rest
            yield address, size * count
        else:
            yield address, rest[0].nbytes if command.method == "write" else rest[-1]
