"""The way in which a task runs: `choose_loops` decides it, code generation carries it out."""

from __future__ import annotations

from dataclasses import field

from octants.analysis.control_flow.uniformity import Uniformity
from octants.analysis.lanes.row_major_loops import ContiguousRows
from octants.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class LaneChoice:
    """How a task runs.

    Attributes:
        reason: why, for `inspect`.
        lanes: how many work items run at once; 0 for one by one.
        fewest: launches of fewer work items run them one by one.
        splits: whole tiles, not in rows, have a function of their own, without masks.
        even: there are whole tiles only.
        gain: the estimated speed-up.
        rows: the rows with which tiles end.
        facts: which values are uniform.
    """

    reason: str
    lanes: int = 0
    fewest: int = 0
    splits: bool = False
    even: bool = False
    gain: float = 1.0
    rows: ContiguousRows | None = field(default=None, repr=False)
    facts: Uniformity | None = field(default=None, repr=False)

    def as_option(self) -> tuple[str, int, int, bool, bool, float, bool]:
        """The choice as a task's option "choice": literals, so that the text form has it.

        The rows and the facts, which name values of one body, are found again (`choice.choose`).
        """
        shape = self.lanes, self.fewest, self.splits, self.even
        return (self.reason, *shape, self.gain, self.rows is not None)

    def __str__(self) -> str:
        how = f"{self.lanes} work items at once" if self.lanes else "work items one by one"
        few = f", one by one where they are less than {self.fewest}" if self.fewest else ""
        return f"{how}{few}: {self.reason}"
