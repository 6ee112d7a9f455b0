"""The adjoints of primal values, as they are summed up on the way back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from octants.autodiff.rules import adjoint_type
from octants.autodiff.task_builder import EntryBuilder
from octants.ir.core import Value


class Adjoints:
    """The adjoint of each of the ``active`` values so far; others have none."""

    def __init__(self, builder: EntryBuilder, active: Collection[Value]) -> None:
        self._builder = builder
        self._active = active
        self._adjoints: dict[Value, Value] = {}

    def get(self, primal: Value) -> Value | None:
        """The adjoint of a value; None if nothing has reached it."""
        return self._adjoints.get(primal)

    def of(self, primal: Value) -> Value:
        """The adjoint of a value; zero if nothing has reached it."""
        known = self._adjoints.get(primal)
        if known is None:
            return self._builder.constant(0.0, adjoint_type(primal.type))
        return known

    def add(self, primal: Value, share: Value, *, is_fresh: bool = False) -> None:
        """Add to the adjoint of a value; a share that is fresh was built for this alone."""
        if primal not in self._active:
            return
        before = self._adjoints.get(primal)
        if before is not None:
            add = self._builder.add_fresh if is_fresh else self._builder.add
            share = add(before, share)
        self._adjoints[primal] = share

    def put(self, adjoints: Iterable[tuple[Value, Value]]) -> None:
        """Have these be the adjoints of some values."""
        self._adjoints.update(adjoints)

    def drop(self, primal: Iterable[Value]) -> None:
        """Begin anew with some values."""
        for value in primal:
            self._adjoints.pop(value, None)

    def some(self, primal: Iterable[Value]) -> dict[Value, Value | None]:
        """The adjoints of some values, for `restore`."""
        return {value: self._adjoints.get(value) for value in primal}

    def restore(self, adjoints: dict[Value, Value | None]) -> None:
        """Have some values have the adjoints that they had."""
        for value, adjoint in adjoints.items():
            if adjoint is None:
                self._adjoints.pop(value, None)
            else:
                self._adjoints[value] = adjoint

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Forget afterwards what is added meanwhile."""
        known = dict(self._adjoints)
        yield
        self._adjoints = known
