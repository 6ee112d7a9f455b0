"""How far the records of a nest will reach: what memory the reverse run comes to need in the end.

An inner loop is recorded when an iteration around it is reversed, and by then adjoints have been
changed: memory that is refused there would leave half a gradient. So the first sweep, which runs
inner loops plainly, finds out where their records would end, and asks for that much before anything
is reversed. For each of these loops the loops around it carry the furthest end so far::

    %far = for(%lower, %upper, ..., 0) { (%i, ..., %far):
      ...
      %trips = ...
      %end = record_end<#inner>(0, %trips)
      yield(..., max(%far, %end))
    }
    %end = record_end<#outer>(%base, ...)
    record_reserve<#inner>(%end + %far)

What does not depend on the loop is not carried, and `simplify.prune` removes what is found out
about loops that record nothing.
"""

from __future__ import annotations

from dataclasses import field

from octants.ir.core import Operation, Value
from octants.lazy_dataclass import dataclass


@dataclass(eq=False, slots=True)
class Reach:
    """Positions from where the stack is free at the start of a block, in bytes (i64).

    `position` is where it is free after the loops of the block so far. `ends` has the furthest end
    of the record of each loop in it, `carried` the loops whose end differs from turn to turn.
    """

    position: Value
    ends: dict[Operation, Value] = field(default_factory=dict)
    carried: list[Operation] = field(default_factory=list)
