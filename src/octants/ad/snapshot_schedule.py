"""Where a loop of steps puts its snapshots, so that reversing it runs as few steps again as can be.

To reverse a chain of ``length`` steps from a snapshot of its start is to advance some steps, take a
snapshot there, reverse the rest with the other slots, and then the part that was advanced over; the
last step of a chain is reversed when it is reached. With ``s`` slots, the start's among them, and
no step advanced over more than ``r`` times, a chain has at most ``(s + r)! / (s! r!)`` steps. That
and the best places are from A. Griewank and A. Walther, "Algorithm 799: revolve", ACM Transactions
on Mathematical Software 26 (2000) 19-45.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import comb

from octants.lazy_dataclass import dataclass


def most_steps(slots: int, runs: int) -> int:
    """The longest chain of which no step is advanced over more than ``runs`` times."""
    return comb(slots + runs, slots) if slots >= 0 and runs >= 0 else 0


def repetition(length: int, slots: int) -> int:
    """The least number of times that every step of a chain needs to be advanced over at most."""
    if slots == 1:
        return max(0, length - 1)
    runs = 0
    while most_steps(slots, runs) < length:
        runs += 1
    return runs


def fewest_advances(length: int, slots: int) -> int:
    """How often steps are advanced over, in all, while a chain is reversed."""
    runs = repetition(length, slots)
    return runs * length - most_steps(slots + 1, runs - 1)


def next_snapshot(length: int, slots: int) -> int:
    """How far from the start of a chain its second snapshot is; 0 if it needs none.

    Of the places that lead to `fewest_advances`, it is the one with the fewest snapshots.
    """
    if length < 3 or slots < 2:
        return 0
    runs = repetition(length, slots)
    shortest, longest = most_steps(slots, runs - 2), most_steps(slots, runs - 1)
    after = most_steps(slots - 1, runs - 1) + most_steps(slots - 2, runs - 1)
    if length <= longest + most_steps(slots - 2, runs - 1):
        distance = shortest
    elif length >= most_steps(slots, runs) - most_steps(slots - 3, runs):
        distance = longest
    else:
        distance = length - after
    return max(1, distance) if distance < length - 1 else 0


@dataclass(frozen=True)
class Stop:
    """A place in the first run over a loop where a snapshot is taken.

    `dropped` is the index, among the snapshots so far, of one that makes way for it; 0 for none.
    """

    place: int
    dropped: int = 0


def planned_stops(length: int, slots: int) -> Iterator[Stop]:
    """The snapshots that the first run over a chain of known length takes."""
    place = 0
    yield Stop(place)
    while distance := next_snapshot(length - place, slots):
        place, slots = place + distance, slots - 1
        yield Stop(place)


def endless_stops(slots: int) -> Iterator[Stop]:
    """The snapshots of a first run over a chain whose length is known at its end only.

    They come in rounds. Those of round ``r`` are in the places for a chain of ``most_steps(slots,
    r)``, and the first of them is where round ``r - 1`` ended. So, once the last ones of the round
    before have made way, as far as `spare` says, no step is advanced over more often than if the
    length had been known: the round before is a chain that can be reversed with all slots.
    """
    yield Stop(0)
    runs = 1
    while slots > 1:
        place = 0
        for free in range(slots, 1, -1):
            place += most_steps(free, runs - 1)
            yield Stop(place, free - 1 if runs > 1 else 0)
        runs += 1


def spare(places: Sequence[int], newest: int, length: int, slots: int) -> int:
    """How many snapshots before the index ``newest`` are in the way of reversing a loop.

    ``newest`` is where the last round of `endless_stops` begins; it is 0 in the first round.
    """

    def advances(kept: int) -> int:
        return _advances([*places[:kept], *places[newest:]], length, slots)

    best = min(range(1, newest + 1), key=lambda kept: (advances(kept), -kept), default=0)
    return newest - best


def _advances(places: Sequence[int], length: int, slots: int) -> int:
    """The steps to advance over while a loop with these snapshots is reversed."""
    chains = zip(places, (*places[1:], length), strict=True)
    return sum(fewest_advances(end - place, slots - k) for k, (place, end) in enumerate(chains))
