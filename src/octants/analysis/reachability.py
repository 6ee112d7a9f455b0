"""Reachability along edges between values."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from octants.ir.core import Value


def reachable(
    start: Iterable[Value],
    edges: Mapping[Value, Iterable[Value]],
    within: Container[Value] | None = None,
) -> set[Value]:
    """The start values, and all values, or those of ``within``, to which edges lead from there."""
    reached = set(start)
    waiting = list(reached)
    while waiting:
        for value in edges.get(waiting.pop(), ()):
            if value not in reached and (within is None or value in within):
                reached.add(value)
                waiting.append(value)
    return reached
