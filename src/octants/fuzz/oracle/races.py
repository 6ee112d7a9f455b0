"""Notes which work items access which elements; a race raises an error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from octants.fuzz.oracle.numbers import Num
from octants.fuzz.oracle.state import STATE, IllDefined, Race

_PLAIN = ("read", "write")


@dataclass
class Accesses:
    """The work items that have accessed an element, by mode, and what was stored there."""

    items: dict[str, set[int]] = field(default_factory=dict)
    stored: set[Any] = field(default_factory=set)

    def others(self, item: int) -> Iterator[str]:
        """The modes of accesses by other work items."""
        return (mode for mode, items in self.items.items() if items - {item})


class RaceWatch:
    """The accesses to the elements of an array in the parallel loop in progress.

    A mode is "read" or "write", the name of an atomic operation, or "use" for one whose result is
    used. Work items may share an element that all only read, that all change by one commutative
    operation, or in which all store the same constant.
    """

    def __init__(self) -> None:
        self.epoch = -1
        self.accesses: dict[Any, Accesses] = {}

    def note(self, element: Any, mode: str, stored: Num | None = None) -> None:
        """Note an access of the work item in progress.

        Raises:
            Race: another one accesses the element, and one of the two reads or stores plainly.
            IllDefined: the two update it by different operations.
        """
        item = STATE.item
        if item is None or STATE.quiet:
            return
        if self.epoch != STATE.epoch:
            self.epoch = STATE.epoch
            self.accesses = {}
        found = self.accesses.setdefault(element, Accesses())
        found.items.setdefault(mode, set()).add(item)
        if mode == "write":
            found.stored.add(_identity(stored))
        for other in found.others(item):
            _judge(element, found, mode, other)


def _judge(element: Any, found: Accesses, mode: str, other: str) -> None:
    """Raise what is wrong with accesses in two modes to one element, by two work items."""
    if mode == other == "read":
        return
    if mode == other == "write" and len(found.stored) == 1:
        if _is_derived(*found.stored):  # which an analysis need not see
            STATE.note_near("the same number stored by several work items")
        return
    if mode in _PLAIN or other in _PLAIN:
        if not STATE.order:
            raise Race(f"race: {other} and {mode} {element}")
    elif mode != other or mode == "use":
        raise IllDefined(f"order of updates: {other} and {mode} {element}")


def _is_derived(identity: Any) -> bool:
    """Whether what was stored has a derivative; see `_identity`."""
    return isinstance(identity, tuple) and identity[1] >= 0


def _identity(number: Num | None) -> Any:
    """The same for two stores of the same constant, or of the same number of the tape."""
    if number is None:
        return object()
    return (number.value, number.node) if number.error == 0 or number.node >= 0 else object()
