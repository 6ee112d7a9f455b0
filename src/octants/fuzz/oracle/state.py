"""The state of one run of the oracle: its tape, its work item, and decisions near a threshold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Link = tuple[int, float, float]
"""A node's operand on the tape: its number, the partial derivative, and a bound on its error."""


ORDERS = "forwards", "backwards", "rotated"
"""Orders of work items whose last ones are three different ones."""


class OutOfFuel(Exception):
    """The program ran for too long."""


class IllDefined(Exception):
    """The program is outside the language: a race, an index out of bounds, a missing value."""


class Race(IllDefined):
    """Work items access one element, and one of them does not update it atomically."""


class State:
    """One run. `STATE` below is the one in progress."""

    def __init__(self) -> None:
        self.epoch = 0  # counts the parallel loops, of all runs
        self.reset(fuel=0, seed=0, launch=0, rounding=True)

    def reset(self, fuel: int, seed: int, launch: int, rounding: bool) -> None:
        """Forget the run before. Without ``rounding``, f32 is computed in double precision.

        Races are errors, unless work items have an `order`, one of `ORDERS`.
        `sine_errors` is the part of the errors of estimated sines that counts.
        """
        self.nodes: list[Sequence[Link]] = []
        self.unit_roundoffs: list[float] = []
        self.near: list[str] = []
        self.path: list[bool | int] = []
        self.fuel = fuel
        self.seed = seed
        self.launch = launch
        self.rounding = rounding
        self.inexact = 0
        self.quiet = 0
        self.task = -1
        self.item: int | None = None
        self.draws = 0
        self.order = ""
        self.has_racing_reads = False  # whether a race has other accesses than stores
        self.sine_errors = 0.0
        self.has_sums = False  # of floats in memory, or over work items

    def node(self, links: Sequence[Link], unit_roundoff: float) -> int:
        """Record an operation; gives its number."""
        self.nodes.append(links)
        self.unit_roundoffs.append(unit_roundoff)
        return len(self.nodes) - 1

    def burn(self) -> None:
        """Pay for one step."""
        self.fuel -= 1
        if self.fuel < 0:
            raise OutOfFuel

    def note_near(self, what: str) -> None:
        """A decision was so close that a sound implementation may decide otherwise."""
        if not self.quiet:
            self.near.append(what)

    def decide(self, decision: bool | int) -> None:
        """Remember the path, so that two runs can be compared."""
        if not self.quiet:
            self.path.append(decision)

    def ordered(self, items: Iterable[Item]) -> Iterable[Item]:
        """Work items, or blocks of them, in the order of the run."""
        if self.order == "backwards":
            return reversed(list(items))
        if self.order == "rotated":
            listed = list(items)
            return [*listed[2:], *listed[:2]]
        return items


STATE = State()


def reverse(
    seeds: Sequence[tuple[int, float]], tape: State = STATE
) -> tuple[list[float], list[float]]:
    """Adjoints of all nodes, and bounds on the errors that an implementation may make in them.

    ``seeds`` are pairs of a node and the adjoint that it starts with. The bounds are a running
    error analysis: each product and each sum is off by a unit roundoff of its node's type, and sums
    are taken in any order. A narrowing conversion may be hoisted out of a loop, whose adjoints are
    then added up in the narrow type.
    """
    adjoints = [0.0] * len(tape.nodes)
    sizes = [0.0] * len(tape.nodes)
    errors = [0.0] * len(tape.nodes)
    for node, seed in seeds:
        if sizes[node]:
            errors[node] += (sizes[node] + abs(seed)) * tape.unit_roundoffs[node]
        adjoints[node] += seed
        sizes[node] += abs(seed)
    for node in range(len(tape.nodes) - 1, -1, -1):
        adjoint, error = adjoints[node], errors[node]
        if adjoint == 0.0 and error == 0.0:
            continue
        for parent, partial, partial_error in tape.nodes[node]:
            term = adjoint * partial
            roundoff = max(tape.unit_roundoffs[parent], tape.unit_roundoffs[node])
            size = sizes[parent] + abs(term)
            adjoints[parent] += term
            sizes[parent] = size
            errors[parent] += (
                error * abs(partial)
                + abs(adjoint) * partial_error
                + (2.0 * abs(term) + size) * roundoff
            )
    return adjoints, errors
