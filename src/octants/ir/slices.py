"""Finds what values are computed from, so that it can be computed elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from octants.ir.builder import Builder
from octants.ir.cloning import emit
from octants.ir.core import Operation, Value


def backward_slice(
    values: Iterable[Value], definitions: Mapping[Value, Operation]
) -> list[Operation]:
    """The operations that values follow from, each once, after those whose results it uses.

    It ends at values that have none of the ``definitions``. An operation with regions is taken as
    a whole.
    """
    found: dict[Operation, None] = {}
    waiting = _makers(values, definitions)
    while waiting:
        op = waiting[-1]
        used = (value for each in op.walk() for value in each.operands)
        missing = [each for each in _makers(used, definitions) if each not in found]
        waiting += missing
        if not missing:
            found[waiting.pop()] = None
    return list(found)


def _makers(values: Iterable[Value], definitions: Mapping[Value, Operation]) -> list[Operation]:
    """The operations that values are results of, the first one last."""
    makers = [definitions[value] for value in values if value in definitions]
    return makers[::-1]


def emit_slice(
    builder: Builder, values: Sequence[Value], definitions: Mapping[Value, Operation]
) -> list[Value]:
    """Append copies of the operations that values follow from; return the copies of the values."""
    copies: dict[Value, Value] = {}
    for op in backward_slice(values, definitions):
        emit(builder, op, copies)
    return [copies[value] for value in values]
