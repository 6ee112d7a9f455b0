"""How a task is run, as `choice` decides and code generation carries out."""

from __future__ import annotations

from dataclasses import field

from octants.analysis.lanes.contiguous_rows import ContiguousRows
from octants.analysis.uniformity import Uniformity
from octants.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Choice:
    """How a task is run: `lanes` work items at once, or one where that is 0; `reason` says why.

    Launches of less than `fewest` work items run them one by one nevertheless. If it `splits`,
    whole tiles have code of their own, without masks, and if it is `even` there are only such.
    Where there are `rows`, tiles end with them. What lanes share the `facts` say.
    """

    reason: str
    lanes: int = 0
    fewest: int = 0
    splits: bool = False
    even: bool = False
    gain: float = 1.0
    rows: ContiguousRows | None = field(default=None, repr=False)
    facts: Uniformity | None = field(default=None, repr=False)

    def __str__(self) -> str:
        how = f"{self.lanes} work items at once" if self.lanes else "work items one by one"
        few = f", one by one where they are less than {self.fewest}" if self.fewest else ""
        return f"{how}{few}: {self.reason}"
