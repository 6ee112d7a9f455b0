"""What atomics returned to work items, kept from a recorded launch until its reverse run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from octants.ir.core import Module
from octants.launch.outside import OutsideLayout
from octants.launch.program import Program
from octants.launch.specialisation import Specialisation
from octants.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from octants.autodiff.logs import Logged

Logs = tuple["np.ndarray[Any, Any]", ...]
Launch = Callable[[Program, Logs], object]

_NOTHING = (np.zeros(2, np.int64), np.zeros(1, np.int64), np.zeros(1, np.uint64))


@dataclass(frozen=True)
class LogPlan:
    """How large the log of a launch is; see `autodiff.logs.Logged`."""

    measure: Program
    count: Program | None
    sites: int

    def allocate(self, launch: Launch, hold: Callable[[int], None] = lambda nbytes: None) -> Logs:
        """Arrays for the log, which follow the arguments of the kernel in a launch.

        ``hold`` is told how many bytes the log will take, before it is made.
        """
        bounds = np.zeros(2, np.int64)
        _, no_starts, no_words = _NOTHING
        launch(self.measure, (bounds, no_starts, no_words))
        items = int(bounds[1])
        if self.count is None:
            hold(8 * items * self.sites)
            return bounds, no_starts, np.zeros(max(1, items * self.sites), np.uint64)
        starts = np.zeros(items + 1, np.int64)
        launch(self.count, (bounds, starts, no_words))
        words = int(starts[-1])
        hold(8 * words)
        return bounds, starts, np.zeros(max(1, words), np.uint64)


def make_plan(specialisation: Specialisation, logged: Logged, layout: OutsideLayout) -> LogPlan:
    """The programs that measure a log; the kernel has the arguments for it."""

    def program(module: Module) -> Program:
        return Program(specialisation, module, (), layout.places(module))

    count = None if logged.count is None else program(logged.count)
    return LogPlan(program(logged.measure), count, logged.sites)
