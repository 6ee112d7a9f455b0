"""Builds a driver graph, node by node."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_void_p
from typing import Any

from octants.diagnostics.exceptions import OctantsError
from octants.runtime.cuda import library as cuda
from octants.runtime.cuda.context import Context
from octants.runtime.cuda.launch_state import PreparedDispatch


def kernel_node(
    library: cuda.Library, function: Any, grid: int, block: int, arguments: Any
) -> cuda.KernelNode:
    """The parameters of a kernel node: ``grid`` blocks of ``block`` threads."""
    return library.KernelNode(
        function=function,
        grid=grid,
        grid_y=1,
        grid_z=1,
        block=block,
        block_y=1,
        block_z=1,
        arguments=ctypes.addressof(arguments),
    )


class DriverGraphBuilder:
    """A driver graph under construction.

    If it ``is_ordered``, each of its nodes waits for the one before it; otherwise for none.
    """

    def __init__(self, context: Context, *, is_ordered: bool = True) -> None:
        self._context, self._is_ordered = context, is_ordered
        self.library = context.library
        self.kernels: dict[PreparedDispatch, tuple[int, cuda.KernelNode]] = {}
        """The node of each dispatch, and the parameters that it was added with."""
        self._last: c_void_p | None = None
        self._is_after_kernel = False
        self.count = 0
        made = c_void_p()
        context.call("cuGraphCreate", byref(made), 0)
        self._handle = made.value or 0

    def launch(self, made: cuda.KernelNode) -> int:
        """Add a launch, whose parameters are copied; return the handle of the node."""
        node = self._add("cuGraphAddKernelNode", made)
        self._is_after_kernel = self._is_ordered
        return node

    def launch_step(self, step: PreparedDispatch) -> None:
        """Add the launch of a dispatch with its present configuration.

        It starts while the launch before it ends, if both can. In a graph of 100 launches of 65536
        work items, that takes 0.97 us for each instead of 1.3 (H200).
        """
        grid, block = step.configuration.grid, step.configuration.block
        made = kernel_node(self.library, step.handle, grid, block, step.arguments)
        before, may_start = self._last, self._is_after_kernel and self.library.has_early_starts
        if before is None or not (may_start and step.action.dispatch.starts_early):
            self.kernels[step] = self.launch(made), made
            return
        self._last = None  # an edge of another kind takes the place of the usual one
        self.kernels[step] = node, _ = self.launch(made), made
        nodes, edge = (byref(before), byref(c_void_p(node))), byref(cuda.STARTED_EARLY)
        self._context.call("cuGraphAddDependencies", self._handle, *nodes, edge, 1)

    def clear(self, address: int, nbytes: int) -> None:
        """Add a fill with zeros."""
        if nbytes:
            size = 4 if address % 4 == nbytes % 4 == 0 else 1
            self.fill_words(address, size, 0, nbytes // size)

    def fill_words(self, address: int, size: int, value: int, count: int) -> None:
        """Add a fill of ``count`` words of 1, 2 or 4 bytes."""
        make = self._context.library.FillNode
        fill = make(target=address, value=value, size=size, width=count, height=1)
        self._add("cuGraphAddMemsetNode", fill, self._context.handle)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Add a copy within the device."""
        if nbytes:
            self.copy_rows(target, nbytes, source, nbytes, nbytes, 1)

    def copy_rows(
        self, target: int, target_step: int, source: int, source_step: int, nbytes: int, rows: int
    ) -> None:
        """Add a strided copy; see `gpu.driver.Queue.copy_rows`."""
        made = self._context.library.CopyNode(
            source_kind=cuda.ON_DEVICE,
            source=source,
            source_pitch=source_step,
            source_height=rows,
            target_kind=cuda.ON_DEVICE,
            target=target,
            target_pitch=target_step,
            target_height=rows,
            width=nbytes,
            height=rows,
            depth=1,
        )
        self._add("cuGraphAddMemcpyNode", made, self._context.handle)

    def upload(self, target: int, source: int, nbytes: int) -> None:
        """Add a copy from pinned memory of the host, of what it holds at each launch."""
        self._copy_piece(
            nbytes,
            source_kind=cuda.ON_HOST,
            source_host=source,
            target_kind=cuda.ON_DEVICE,
            target=target,
        )

    def download(self, target: int, source: int, nbytes: int) -> None:
        """Add a copy to pinned memory of the host."""
        self._copy_piece(
            nbytes,
            source_kind=cuda.ON_DEVICE,
            source=source,
            target_kind=cuda.ON_HOST,
            target_host=target,
        )

    def _copy_piece(self, nbytes: int, **ends: int) -> None:
        steps = {"source_pitch": nbytes, "target_pitch": nbytes}
        made = self._context.library.CopyNode(width=nbytes, height=1, depth=1, **steps, **ends)
        self._add("cuGraphAddMemcpyNode", made, self._context.handle)

    def _add(self, name: str, made: Any, *more: Any) -> int:
        node = c_void_p()
        before = (None, 0) if self._last is None else (byref(self._last), 1)
        self._context.call(name, byref(node), self._handle, *before, byref(made), *more)
        if self._is_ordered:
            self._last = node
        self._is_after_kernel = False
        self.count += 1
        return node.value or 0

    def finish(self) -> tuple[int, int]:
        """Instantiate the graph.

        Returns:
            The handles of the graph and of its executable form; a node has the same handle in both.
        """
        made = c_void_p()
        try:
            self._context.call("cuGraphInstantiateWithFlags", byref(made), self._handle, 0)
        except OctantsError:
            self._context.call("cuGraphDestroy", self._handle)
            raise
        return self._handle, made.value or 0
