"""Collects what a reverse kernel reads of primal memory, and finds what has been overwritten."""

from __future__ import annotations

from octants.autodiff.emit.primal_operations import OnRead
from octants.autodiff.errors import Hazard
from octants.autodiff.facts.cooperative_tasks import Phases
from octants.autodiff.facts.kernel_facts import Analysis
from octants.ir import ops
from octants.ir.cloning import copy_block, without_effects
from octants.ir.core import Array, Block, Module, Operation, Space
from octants.lazy_dataclass import dataclass

OF_THE_LAUNCH = (Space.TEMPORARY, Space.SHARED)
"""The spaces of arrays that do not outlive a launch."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The hazards among the reads that remain in a reverse kernel, and what it reads.

    `needed` are primal arrays, `reads` the primal operations whose reads are repeated.
    """

    hazards: list[Hazard]
    needed: list[Array]
    reads: list[Operation]


class PrimalReads:
    """Observes each read of primal memory while the reverse of a kernel is emitted.

    With ``split`` the launch-temporaries of the kernel outlive its launch.
    """

    def __init__(self, analysis: Analysis, *, split: bool) -> None:
        self._analysis = analysis
        self._split = split
        self._observed: dict[Operation, tuple[int, Operation, str]] = {}

    def observer(self, number: int) -> OnRead:
        """The function to call for each read of primal memory in the reverse of a task."""

        def on_read(read: Operation, origin: Operation, kind: str) -> None:
            self._observed[read] = number, origin, kind

        return on_read

    # -- copies ------------------------------------------------------------------------------------

    def copy(self, block: Block, number: int, *, keep: bool = False) -> Block:
        """Copy a block of a task over the arrays of the reverse kernel, without effects.

        Args:
            block: the block.
            number: the position of the task.
            keep: keep the writes to arrays that do not outlive the launch.

        Returns:
            The copy.
        """
        new = copy_block(block, {})
        self._strip(new, block, self.observer(number), keep)
        return new

    def _strip(self, new: Block, primal: Block, on_read: OnRead, keep: bool) -> None:
        """Leave the effects out of a copied block, and report its reads.

        Args:
            new: The copy, rewritten in place.
            primal: The block that was copied.
            on_read: Called with each read, the operation that it is a copy of, and its kind.
            keep: Whether writes to memory of the launch stay.
        """
        stripped: list[Operation] = []
        for op, origin in zip(new.ops, primal.ops, strict=True):
            reading = without_effects(op, OF_THE_LAUNCH if keep else ())
            if reading is None:
                continue
            if isinstance(reading, ops.Load):
                on_read(reading, origin, "load" if reading is op else "atomic")
            op = reading
            if hasattr(op, "array"):
                op.array = self._analysis.arrays[op.array]
            for region, primal_region in zip(op.regions, origin.regions, strict=True):
                self._strip(region, primal_region, on_read, keep)
            stripped.append(op)
        new.ops = stripped

    # -- the survey --------------------------------------------------------------------------------

    def survey(self, reverse: Module) -> Survey:
        """Find the primal contents that a finished reverse kernel reads."""
        survey = Survey([], [], [])
        for task in reverse.tasks:
            is_recomputed = task.name.endswith(RECOMPUTED)
            for block in (task.domain, task.body):
                for op in block.walk() if block is not None else ():
                    if op in self._observed:
                        self._consider(op, is_recomputed, survey)
        for ordering in self._analysis.orderings:
            survey.hazards.extend(
                Hazard(op.array.name, op.location, None, "order") for op in ordering.unordered
            )
        return Survey(
            survey.hazards, list(dict.fromkeys(survey.needed)), list(dict.fromkeys(survey.reads))
        )

    def _consider(self, op: Operation, is_recomputed: bool, survey: Survey) -> None:
        """Add a read of the reverse kernel to the survey.

        Args:
            op: The read, as the reverse kernel makes it.
            is_recomputed: Whether it is in a task that computes temporaries again.
            survey: What is needed, what is read, and the hazards so far.
        """
        number, origin, kind = self._observed[op]
        array: Array = origin.array  # type: ignore[attr-defined]
        if kind == "shared":
            Phases(self._analysis.tasks[number]).check(origin)
            return
        if self._outlives_launch(array):
            survey.needed.append(array)
            survey.reads.append(origin)
        if is_recomputed and array.space in OF_THE_LAUNCH and kind == "load":
            return
        before_task = number in self._analysis.rerun_tasks and not is_recomputed
        writes = self._analysis.later_writes(array, number, origin, kind, before_task)
        if kind == "atomic" or writes:
            write = writes[0].location if writes else None
            survey.hazards.append(Hazard(array.name, origin.location, write, kind))

    def _outlives_launch(self, array: Array) -> bool:
        """Whether the contents of an array outlive the forward launch."""
        memory = array.space in (Space.FIELD, Space.NDARRAY)
        return memory or (self._split and array.space is Space.TEMPORARY)


RECOMPUTED = "_again"
"""The suffix of the names of tasks that recompute launch-temporaries."""
