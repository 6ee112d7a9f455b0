"""What a reverse kernel reads of primal memory, and which of that is no longer there."""

from __future__ import annotations

from octants.autodiff.analyse import Analysis
from octants.autodiff.cooperation import Phases
from octants.autodiff.errors import Hazard
from octants.autodiff.primal_memory import Flag
from octants.ir import ops
from octants.ir.core import Array, Block, Module, Operation, Space
from octants.ir.rewriter import copy_block, without_effects
from octants.lazy_dataclass import dataclass

OF_THE_LAUNCH = (Space.TEMPORARY, Space.SHARED)


@dataclass(frozen=True, slots=True)
class Survey:
    """The hazards among the reads that are left in a reverse kernel, and what it reads.

    `needed` are primal arrays, `reads` the operations of the primal whose reads are repeated.
    """

    hazards: list[Hazard]
    needed: list[Array]
    reads: list[Operation]


class Reads:
    """Is told of each read of primal memory as the reverse of a kernel is emitted.

    With ``part`` the launch-temporaries of the kernel outlive its launch.
    """

    def __init__(self, analysis: Analysis, *, part: bool) -> None:
        self._analysis = analysis
        self._part = part
        self._flagged: dict[Operation, tuple[int, Operation, str]] = {}

    def flag_of(self, number: int) -> Flag:
        """What is told of the reads of a task."""

        def flag(read: Operation, origin: Operation, kind: str) -> None:
            self._flagged[read] = number, origin, kind

        return flag

    # -- copies ------------------------------------------------------------------------------------

    def copy(self, block: Block, number: int, *, keep: bool = False) -> Block:
        """A copy of a block of a task over the arrays of the reverse kernel, without effects.

        With ``keep``, the writes to arrays of the launch and its blocks stay.
        """
        new = copy_block(block, {})
        self._strip(new, block, self.flag_of(number), keep)
        return new

    def _strip(self, new: Block, primal: Block, flag: Flag, keep: bool) -> None:
        stripped: list[Operation] = []
        for op, origin in zip(new.ops, primal.ops, strict=True):
            reading = without_effects(op, OF_THE_LAUNCH if keep else ())
            if reading is None:
                continue
            if isinstance(reading, ops.Load):
                flag(reading, origin, "load" if reading is op else "atomic")
            op = reading
            if hasattr(op, "array"):
                op.array = self._analysis.arrays[op.array]
            for region, primal_region in zip(op.regions, origin.regions, strict=True):
                self._strip(region, primal_region, flag, keep)
            stripped.append(op)
        new.ops = stripped

    # -- what is left ------------------------------------------------------------------------------

    def survey(self, reverse: Module) -> Survey:
        """What a reverse kernel reads in the end."""
        survey = Survey([], [], [])
        for task in reverse.tasks:
            is_again = task.name.endswith(AGAIN)
            for block in (task.domain, task.body):
                for op in block.walk() if block is not None else ():
                    if op in self._flagged:
                        self._consider(op, is_again, survey)
        for ordering in self._analysis.orderings:
            survey.hazards.extend(
                Hazard(op.array.name, op.location, None, "order") for op in ordering.unordered
            )
        return Survey(
            survey.hazards, list(dict.fromkeys(survey.needed)), list(dict.fromkeys(survey.reads))
        )

    def _consider(self, op: Operation, is_again: bool, survey: Survey) -> None:
        number, origin, kind = self._flagged[op]
        array: Array = origin.array  # type: ignore[attr-defined]
        if kind == "shared":
            Phases(self._analysis.tasks[number]).check(origin)
            return
        if self._is_kept(array):
            survey.needed.append(array)
            survey.reads.append(origin)
        if is_again and array.space in OF_THE_LAUNCH and kind == "load":
            return
        saved = number in self._analysis.stored_again and not is_again
        writes = self._analysis.later_writes(array, number, origin, kind, saved)
        if kind == "atomic" or writes:
            write = writes[0].location if writes else None
            survey.hazards.append(Hazard(array.name, origin.location, write, kind))

    def _is_kept(self, array: Array) -> bool:
        """Whether the contents of the array outlive the forward launch."""
        memory = array.space in (Space.FIELD, Space.NDARRAY)
        return memory or (self._part and array.space is Space.TEMPORARY)


AGAIN = "_again"
"""The end of the names of tasks that compute launch-temporaries again."""
