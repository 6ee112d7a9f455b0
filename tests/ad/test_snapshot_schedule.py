"""Where snapshots go, against the best that dynamic programming finds."""

from __future__ import annotations

import functools
import itertools

import pytest

from octants.ad.checkpoints.snapshot_schedule import (
    Stop,
    fewest_advances,
    most_steps,
    next_snapshot,
    redundant_snapshots,
    repetition,
    stops_of_known_length,
    stops_of_unknown_length,
)

SLOTS = (1, 2, 3, 4, 5, 8)
LENGTHS = range(1, 60)


@functools.cache
def best(length: int, slots: int) -> tuple[int, int]:
    """The fewest (steps to advance over, further snapshots) to reverse a chain."""
    if length == 1:
        return 0, 0
    candidates = [(length - 1 + best(length - 1, slots)[0], best(length - 1, slots)[1])]
    for distance in range(1, length - 1) if slots > 1 else ():
        after, before = best(length - distance, slots - 1), best(distance, slots)
        candidates.append((distance + after[0] + before[0], 1 + after[1] + before[1]))
    return min(candidates)


@functools.cache
def ours(length: int, slots: int) -> tuple[int, int]:
    """The same by the places that `next_snapshot` gives."""
    if length == 1:
        return 0, 0
    distance = next_snapshot(length, slots)
    if not distance:
        advances, snapshots = ours(length - 1, slots)
        return length - 1 + advances, snapshots
    after, before = ours(length - distance, slots - 1), ours(distance, slots)
    return distance + after[0] + before[0], 1 + after[1] + before[1]


@pytest.mark.parametrize("slots", SLOTS)
def test_places_are_the_best(slots: int) -> None:
    for length in LENGTHS:
        assert ours(length, slots) == best(length, slots), length
        assert fewest_advances(length, slots) == best(length, slots)[0], length


@pytest.mark.parametrize("slots", SLOTS[1:])
def test_repetition_is_the_least(slots: int) -> None:
    for runs in range(5):
        assert repetition(most_steps(slots, runs), slots) == runs
        assert repetition(most_steps(slots, runs) + 1, slots) == runs + 1


def test_numbers_that_the_guide_names() -> None:
    assert [most_steps(20, runs) for runs in (1, 2, 3, 4)] == [21, 231, 1771, 10626]


@pytest.mark.parametrize("slots", SLOTS)
def test_planned_stops_fit_into_the_slots(slots: int) -> None:
    for length in LENGTHS:
        places = [stop.step for stop in stops_of_known_length(length, slots)]
        assert places == sorted(set(places)), length
        assert places[0] == 0
        assert len(places) <= slots
        assert len(places) == 1 or places[-1] < length - 1


def advances_without_end(steps: int, slots: int) -> int:
    """The steps that are advanced over for a loop whose length was not known."""
    places: list[int] = []
    newest = 0
    for stop in stops_of_unknown_length(slots):
        if stop.step >= steps:
            break
        if stop.dropped:
            places.pop(stop.dropped)
        places.append(stop.step)
        newest = stop.dropped
        assert len(places) <= slots
        assert places == sorted(places)
    for _ in range(redundant_snapshots(places, newest, steps, slots)):
        newest -= 1
        places.pop(newest)
    ends = (*places[1:], steps)
    chains = zip(ends, places, strict=True)
    return steps + sum(ours(end - place, slots - k)[0] for k, (end, place) in enumerate(chains))


@pytest.mark.parametrize("slots", SLOTS)
def test_loops_of_unknown_length_cost_little_more(slots: int) -> None:
    for steps in LENGTHS:
        advances = advances_without_end(steps, slots)
        assert advances <= (steps + 1) * repetition(steps + 1, slots), steps
        assert advances <= 1.35 * fewest_advances(steps + 1, slots), steps


def test_rounds_of_an_endless_loop() -> None:
    stops = list(itertools.islice(stops_of_unknown_length(3), 7))
    places = [0, 1, 2, 4, 7, 10, 16]  # rounds end at most_steps(3, r): 4, 10
    assert [stop.step for stop in stops] == places
    assert [stop.dropped for stop in stops] == [0, 0, 0, 2, 1, 2, 1]
    assert list(stops_of_unknown_length(1)) == [Stop(0)]
