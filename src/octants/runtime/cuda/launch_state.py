"""Preallocated state of launches, so that a warm launch allocates nothing.

A kernel has a `LaunchState` for each of its launches that may be in flight at once, with a
`PreparedDispatch` for each dispatch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_void_p
from typing import Any

from octants import abi
from octants.artifact import Artifact, Dispatch
from octants.runtime.cuda import library as cuda
from octants.runtime.cuda.context import Context
from octants.runtime.cuda.memory import DeviceMemory
from octants.runtime.cuda.modules import DeviceFunction, Module
from octants.runtime.cuda.streams import Stream
from octants.runtime.gpu.kernel import Action
from octants.runtime.gpu.record_buffer_growth import Bounds


class CudaAction(Action):
    """A dispatch with its loaded function."""

    def __init__(self, dispatch: Dispatch, module: Module) -> None:
        super().__init__(dispatch)
        self.function: DeviceFunction = module.function(dispatch.entry)
        if not self.is_single:
            self.block, self.fill = _limited(dispatch, *self._shape())
            if not self.is_computed:  # whose blocks are launched however few work items there are
                self.fill *= dispatch.waves

    def _shape(self) -> tuple[int, int]:
        """The threads of a block, and the blocks that occupy the GPU."""
        return self.function.shape(self.dispatch.block, large=self.dispatch.sums)


def _limited(dispatch: Dispatch, block: int, fill: int) -> tuple[int, int]:
    """The threads of a block, and the blocks, within the limit of a dispatch on all its threads."""
    if not dispatch.threads:
        return block, fill
    block = min(block, dispatch.threads)
    return block, min(fill, dispatch.threads // block)


class PreparedDispatch:
    """The state of a dispatch in a `LaunchState`: configuration, launch words, arguments."""

    __slots__ = (
        "_context",
        "action",
        "arguments",
        "block",
        "configuration",
        "configured",
        "fill",
        "handle",
        "is_empty",
        "known",
        "least_block",
        "repeat",
        "words",
    )

    def __init__(self, context: Context, action: CudaAction) -> None:
        self._context, self.least_block = context, context.wave
        self.action: Action = action
        self.block, self.fill = action.block, action.fill
        self.handle = c_void_p(action.function.handle)
        self.words = cuda.words(abi.LAUNCH_SIZE // 8)
        self.words[abi.LAUNCH_UPPER // 8] = 1
        self.arguments = (c_void_p * 2)(0, ctypes.addressof(self.words))
        grid = action.fill if action.is_computed else 1
        self.configuration = cuda.LaunchConfiguration(grid, 1, 1, action.block, 1, 1)
        self.configured: Any = byref(self.configuration)
        self.known: Bounds | None = None  # the bounds that the configuration is for
        self.is_empty = False
        self.repeat: Any = None
        if action.fixed is not None:
            self.resize(action.fixed)

    def resize(self, bounds: Bounds) -> None:
        """Set up the launch for other bounds."""
        lower, upper = self.known = bounds
        self.is_empty = upper <= lower
        if self.is_empty:
            return
        self.words[abi.LAUNCH_LOWER // 8] = lower
        self.words[abi.LAUNCH_UPPER // 8] = upper
        block = self.block_for(upper - lower)
        self.configuration.block = block
        self.configuration.grid = min(-(-(upper - lower) // block), self.fill)

    def block_for(self, items: int) -> int:
        """The threads of a block: smaller blocks spread few work items over all multiprocessors."""
        if not self.action.dispatch.block:
            most, wave = self._context.multiprocessors, self.least_block
            for block in (wave, 2 * wave, 4 * wave, 8 * wave):
                if block < self.block and items <= block * most:
                    return block
        return self.block

    def launch(self) -> None:
        """Queue the launch with its present configuration."""
        launch = self._context.library.cuLaunchKernelEx
        status = launch(self.configured, self.handle, self.arguments, None)
        if status:
            self.launch_again(status)

    def launch_as(self, blocks: int, block: int) -> None:
        """Queue a launch of ``blocks`` blocks of ``block`` threads."""
        self.configuration.grid, self.configuration.block = blocks, block
        self.launch()

    def launch_again(self, status: int) -> None:
        """Launch again in the kernel's context after a launch failed in another one.

        Raises:
            OctantsRuntimeError: the launch failed for another reason.
        """
        if status in (cuda.INVALID_CONTEXT, cuda.INVALID_HANDLE):
            with self._context.active():
                launch = self._context.library.cuLaunchKernelEx
                status = launch(self.configured, self.handle, self.arguments, None)
        if status:
            raise self._context.error("cuLaunchKernelEx", status)


class ParameterCopy:
    """A parameter block in device memory, for kernels that take its address."""

    def __init__(self, memory: DeviceMemory, nbytes: int) -> None:
        self._memory = memory.allocate(nbytes, "parameters")
        self._pointer = c_void_p(self._memory.address)
        self.argument = ctypes.addressof(self._pointer)
        """The address of the kernel's argument, which is the address of the copy."""

    def upload(self, context: Context, block: int, stream: int) -> None:
        """Queue a copy of the block at an address of the host, which may change at once."""
        target, nbytes = self._memory.address, self._memory.nbytes
        context.call("cuMemcpyHtoDAsync", target, block, nbytes, stream)


class LaunchState:
    """The state that one launch at a time uses; `stream` is the stream that it is set up for."""

    def __init__(
        self, context: Context, memory: DeviceMemory, actions: Sequence[CudaAction], large: int
    ) -> None:
        self._context, self._memory, self._large = context, memory, large
        self.steps = [PreparedDispatch(context, action) for action in actions]
        self.stream: Stream | None = None
        self._copy: ParameterCopy | None = None
        self.updated: Any = None
        """The `UpdatedGraph` of its dispatches, if they are many."""

    def move(self, stream: Stream) -> None:
        """Set up the launch for another stream."""
        self.stream = stream
        for step in self.steps:
            group = step.action.dispatch.group
            step.configuration.stream = (
                stream.group_stream(group).handle if group else stream.handle
            )
            if step.action.is_computed or step.action.is_single:
                step.words[abi.LAUNCH_BOUNDS // 8] = stream.bounds()
        if self._large:
            # Not the copy of the last stream: a kernel in that stream may still read it.
            self._copy = ParameterCopy(self._memory, self._large)

    def take(self, block: int) -> None:
        """Use the parameter block at an address; its present contents are copied."""
        pointer = block
        if self._copy is not None and self.stream is not None:
            pointer = self._copy.argument
            self._copy.upload(self._context, block, self.stream.handle)
        for step in self.steps:
            step.arguments[0] = pointer


def parameter_bytes(artifact: Artifact) -> int:
    """The size in bytes of the parameter block if kernels take its address; 0 if they take the
    block.
    """
    by_pointer = dict(artifact.metadata).get("parameters") == "pointer"
    return 8 * len(artifact.parameters.slots) if by_pointer else 0
