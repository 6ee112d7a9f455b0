"""Fills of several ranges of memory with zeros, as a driver graph where they are repeated.

Each tape sets all gradients to zero, mostly the same ones as the tape before. A graph does so in
one call of the driver, where each range would take one, and with one kernel for all small ranges.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from octants.diagnostics.exceptions import InternalError, OctantsError
from octants.runtime.cuda.graphs.builder import DriverGraphBuilder
from octants.runtime.cuda.graphs.clear_kernel import add_clears, is_small
from octants.runtime.cuda.graphs.driver_graph import DriverGraph
from octants.runtime.cuda.modules import DeviceFunction
from octants.runtime.repetitions import Repetitions

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
        self._repetitions = Repetitions[DriverGraph](
            _REPEATED, most=_MOST_KNOWN, counted=_MOST_KNOWN
        )
        self._kernel: DeviceFunction | None = None

    def get(self, machine: LaunchContext, ranges: Ranges) -> DriverGraph | None:
        """The graph that sets ranges to zero; None if they have not been repeated enough."""
        graph = self._repetitions.made.get(ranges)
        if graph is None and len(ranges) > 1 and self._repetitions.is_due(ranges):
            return self._make(machine, ranges)
        return graph

    def forget(self) -> None:
        """Drop all graphs."""
        self._repetitions.made.clear()
        self._kernel = None

    def _make(self, machine: LaunchContext, ranges: Ranges) -> DriverGraph | None:
        # If the driver refuses, or does not compile PTX, each range is filled by itself.
        with contextlib.suppress(OctantsError, InternalError), machine.context.active():
            nodes = DriverGraphBuilder(machine.context, is_ordered=False)
            kernel = self._kernel = self._kernel or machine.clear_kernel()
            small = [each for each in ranges if kernel is not None and is_small(*each)]
            if kernel is not None and small:
                add_clears(nodes, kernel, small)
            for address, nbytes in ranges:
                if (address, nbytes) not in small:
                    nodes.clear(address, nbytes)
            made = self._repetitions.made[ranges] = DriverGraph(machine, nodes)
            return made
        return None
