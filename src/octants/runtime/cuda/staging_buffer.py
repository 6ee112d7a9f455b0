"""Staging buffers in pinned memory, for one copy of the arrays of a launch in each direction.

A launch that repeats with the same other arguments becomes a driver graph, with both copies.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from octants.artifact import SYSTEM_BYTES
from octants.diagnostics.exceptions import OctantsError
from octants.runtime.cuda.fast_launcher import SAME
from octants.runtime.cuda.graphs.builder import DriverGraphBuilder
from octants.runtime.cuda.graphs.driver_graph import DriverGraph, repeated_graph
from octants.runtime.cuda.memory import DEFAULT_STREAM
from octants.runtime.device import Bytes
from octants.runtime.memory.host import view_memory
from octants.runtime.repetitions import Repetitions

if TYPE_CHECKING:
    from octants.runtime.cuda.kernel import CudaKernel
    from octants.runtime.cuda.launch_context import LaunchContext

_LEAST = 1 << 12  # bytes of pinned memory, whose sizes are powers of two


class PinnedStagingBuffer:
    """Implements `runtime.device.StagingBuffer`, for launches of one kernel.

    The host waits for each launch, so that the pinned memory is free for the next one; if Ctrl-C
    ends the wait, it is never used again.
    """

    def __init__(self, machine: LaunchContext, nbytes: int, written: int) -> None:
        self._machine, self._nbytes, self._written = machine, nbytes, written
        self.memory = machine.allocate(nbytes)
        size = max(_LEAST, 1 << (nbytes - 1).bit_length())
        self._free = machine.staging.free[size]
        self._pinned = machine.staging.take(size)
        self.host: Bytes = view_memory(self._pinned.address, np.uint8, (nbytes,))
        self.is_launched = False
        self._is_downloaded = False
        self._arguments = b""  # of the last launch
        self._repetitions = Repetitions[None](SAME)
        self._graph: DriverGraph | None = None

    def __del__(self) -> None:
        if hasattr(self, "is_launched") and not self.is_launched:
            self._free.append(self._pinned)

    def launch(self, run: Callable[[int], None], kernel: Any, block: int) -> None:
        """Queue a copy of `host` and a launch; see `runtime.device.StagingBuffer`."""
        machine, address = self._machine, self.memory.address
        self._is_downloaded = False
        if machine.streams.is_busy:
            machine.write(address, self.host)
            self.is_launched = True
            run(block)
            return
        watches = machine.versions.watches
        if watches:
            machine.versions.wrote(address, self._nbytes)
        view = kernel.slots.view(block)
        given = view.tobytes()[SYSTEM_BYTES:]
        self.is_launched = True
        try:
            if self._graph is not None and given == self._arguments and run is kernel.launch:
                machine.context.launched.append(kernel.name)
                if watches:
                    kernel.report(view)
                self._graph.launch_here()
                self._is_downloaded = True
                return
            copy = address, self._pinned.address, self._nbytes, DEFAULT_STREAM
            machine.context.call_here("cuMemcpyHtoDAsync", *copy)
        except OctantsError:  # nothing was queued
            self.is_launched = False
            raise
        run(block)
        if run is kernel.launch:
            self._note(given, kernel, block)

    def _note(self, arguments: bytes, kernel: CudaKernel, block: int) -> None:
        """Count a launch; make a graph if it has repeated enough."""
        self._graph, self._arguments = None, arguments
        if self._repetitions.is_due(arguments) and kernel.may_repeat:
            self._graph = repeated_graph(self._machine, partial(self._add_nodes, kernel, block))

    def _add_nodes(self, kernel: CudaKernel, block: int, nodes: DriverGraphBuilder) -> None:
        """Add a launch, and the copies before and after it."""
        address, pinned = self.memory.address, self._pinned.address
        nodes.upload(address, pinned, self._nbytes)
        for step in kernel.steps_at(block):
            nodes.launch_step(step)
        nodes.download(pinned, address, self._written)

    def download(self) -> None:
        """Wait for all launches, and copy what the launch may have written to `host`."""
        machine, address = self._machine, self.memory.address
        if machine.streams.is_busy:
            machine.read(address, self.host[: self._written])
        else:
            if not self._is_downloaded:
                copy = self._pinned.address, address, self._written, DEFAULT_STREAM
                machine.context.call_here("cuMemcpyDtoHAsync", *copy)
            try:
                machine.synchronize()
            except OctantsError:  # of a kernel, after the copy
                self.is_launched = False
                raise
        self.is_launched = False
