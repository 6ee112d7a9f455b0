"""Fills of several ranges of memory with zeros, as a driver graph where they are repeated.

Each tape sets all gradients to zero, mostly the same ones as the tape before. A graph does so in
one call of the driver, where each range would take one.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from octants.diagnostics.exceptions import OctantsError
from octants.runtime.cuda.graphs.builder import DriverGraphBuilder
from octants.runtime.cuda.graphs.driver_graph import DriverGraph

if TYPE_CHECKING:
    from octants.runtime.cuda.launch_context import LaunchContext

Ranges = tuple[tuple[int, int], ...]
_REPEATED = 16
"""Fills after which a graph is made: making one costs about what so many replays save."""
_MOST_KNOWN = 64


class RepeatedClears:
    """The ranges that were set to zero lately: how often, and from some time on their graph.

    A graph names memory only by its addresses, so it may outlive the arrays that were there.
    """

    def __init__(self) -> None:
        self._counts: dict[Ranges, int] = {}
        self._graphs: dict[Ranges, DriverGraph] = {}

    def get(self, machine: LaunchContext, ranges: Ranges) -> DriverGraph | None:
        """The graph that sets ranges to zero; None if they have not been repeated enough."""
        graph = self._graphs.get(ranges)
        if graph is None and len(ranges) > 1:
            count = self._counts[ranges] = self._counts.get(ranges, 0) + 1
            if count == _REPEATED:
                graph = self._make(machine, ranges)
            elif len(self._counts) > _MOST_KNOWN:
                self._counts.clear()
        return graph

    def forget(self) -> None:
        """Drop all graphs."""
        self._graphs.clear()

    def _make(self, machine: LaunchContext, ranges: Ranges) -> DriverGraph | None:
        if len(self._graphs) == _MOST_KNOWN:
            self._graphs.clear()
        # If the driver refuses, each range is filled by itself.
        with contextlib.suppress(OctantsError), machine.context.active():
            nodes = DriverGraphBuilder(machine.context, is_ordered=False)
            for address, nbytes in ranges:
                nodes.clear(address, nbytes)
            self._graphs[ranges] = DriverGraph(machine, nodes)
        return self._graphs.get(ranges)
