"""Schedules the snapshots of a loop of steps, so that reversing it repeats the fewest steps.

To reverse a chain of ``length`` steps from a snapshot of its start: advance some steps, take a
snapshot there, reverse the rest with the other slots, then reverse the steps that were advanced
over. With ``s`` slots, including that of the start, and no step advanced over more than ``r``
times, a chain has at most ``(s + r)! / (s! r!)`` steps. This bound and the best distances are from
A. Griewank and A. Walther, "Algorithm 799: revolve", ACM Transactions on Mathematical Software 26
(2000) 19-45.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import comb

from octants.lazy_dataclass import dataclass


def most_steps(slots: int, runs: int) -> int:
    """The longest chain of which no step is advanced over more than ``runs`` times."""
    return comb(slots + runs, slots) if slots >= 0 and runs >= 0 else 0


def repetition(length: int, slots: int) -> int:
    """The least r so that no step of a chain is advanced over more than r times."""
    if slots == 1:
        return max(0, length - 1)
    runs = 0
    while most_steps(slots, runs) < length:
        runs += 1
    return runs


def fewest_advances(length: int, slots: int) -> int:
    """The total number of steps that are advanced over while a chain is reversed."""
    runs = repetition(length, slots)
    return runs * length - most_steps(slots + 1, runs - 1)


def next_snapshot(length: int, slots: int) -> int:
    """The distance from the start of a chain to its second snapshot; 0 if it needs none.

    Of the distances that lead to `fewest_advances`, this is the one with the fewest snapshots.
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
    """A step of the first run before which a snapshot is taken.

    `dropped` is the index of the earlier snapshot that it replaces; 0 for none.
    """

    step: int
    dropped: int = 0


def stops_of_known_length(length: int, slots: int) -> Iterator[Stop]:
    """The snapshots that the first run over a chain of known length takes."""
    step = 0
    yield Stop(step)
    while distance := next_snapshot(length - step, slots):
        step, slots = step + distance, slots - 1
        yield Stop(step)


def stops_of_unknown_length(slots: int) -> Iterator[Stop]:
    """The snapshots of a first run over a chain whose length is known at its end only.

    They come in rounds. Those of round ``r`` are those of a chain of ``most_steps(slots, r)``, and
    the first of them is where round ``r - 1`` ended. Once the last snapshots of the round before
    are dropped, as many as `redundant_snapshots` says, no step is advanced over more often than if
    the length had been known: the round before is a chain that can be reversed with all slots.
    """
    yield Stop(0)
    runs = 1
    while slots > 1:
        step = 0
        for free in range(slots, 1, -1):
            step += most_steps(free, runs - 1)
            yield Stop(step, free - 1 if runs > 1 else 0)
        runs += 1


def redundant_snapshots(steps: Sequence[int], newest: int, length: int, slots: int) -> int:
    """How many snapshots before the index ``newest`` only take slots from reversing a loop.

    Args:
        steps: the steps before which snapshots were taken.
        newest: the index of the first snapshot of the last round; 0 in the first round.
        length: the number of steps.
        slots: the most snapshots at a time.
    """

    def advances(count: int) -> int:
        return _advances([*steps[:count], *steps[newest:]], length, slots)

    best = min(range(1, newest + 1), key=lambda count: (advances(count), -count), default=0)
    return newest - best


def _advances(steps: Sequence[int], length: int, slots: int) -> int:
    """The total number of steps to advance over while a loop with these snapshots is reversed."""
    chains = zip(steps, (*steps[1:], length), strict=True)
    return sum(fewest_advances(end - step, slots - k) for k, (step, end) in enumerate(chains))
