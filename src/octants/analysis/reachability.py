"""Reachability along edges between values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from octants.ir.core import Value


def reachable(start: Iterable[Value], edges: Mapping[Value, Iterable[Value]]) -> set[Value]:
    """The start values, and all values to which edges lead from there."""
    reached = set(start)
    waiting = list(reached)
    while waiting:
        for value in edges.get(waiting.pop(), ()):
            if value not in reached:
                reached.add(value)
                waiting.append(value)
    return reached
