"""The adjoints of primal values while the backward sweep of a task is emitted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from octants.autodiff.derivative_rules import adjoint_type
from octants.autodiff.emit.reverse_task_builder import EntryBuilder
from octants.ir.core import Value


class Adjoints:
    """The adjoint accumulated so far of each of the ``active`` values; others have none."""

    def __init__(self, builder: EntryBuilder, active: Collection[Value]) -> None:
        self._builder = builder
        self._active = active
        self._adjoints: dict[Value, Value] = {}

    def get(self, primal: Value) -> Value | None:
        """The adjoint of a value; None if nothing has contributed to it."""
        return self._adjoints.get(primal)

    def of(self, primal: Value) -> Value:
        """The adjoint of a value; a zero if nothing has contributed to it."""
        known = self._adjoints.get(primal)
        if known is None:
            return self._builder.constant(0.0, adjoint_type(primal.type))
        return known

    def add(
        self,
        primal: Value,
        contribution: Value,
        *,
        is_fresh: bool = False,
        guard: Value | None = None,
    ) -> None:
        """Add a contribution to the adjoint of a value.

        Args:
            primal: the value.
            contribution: the contribution.
            is_fresh: whether it has no other use.
            guard: where this is false, the contribution is zero whatever ``contribution`` is.
        """
        if primal not in self._active:
            return
        builder, before = self._builder, self._adjoints.get(primal)
        if before is not None:
            contribution = (builder.add_fresh if is_fresh else builder.add)(before, contribution)
        if guard is not None:
            nothing = builder.constant(0.0, contribution.type) if before is None else before
            contribution = builder.select(guard, contribution, nothing)
        self._adjoints[primal] = contribution

    def put(self, adjoints: Iterable[tuple[Value, Value]]) -> None:
        """Set the adjoints of some values."""
        self._adjoints.update(adjoints)

    def drop(self, primal: Iterable[Value]) -> None:
        """Reset the adjoints of some values to zero."""
        for value in primal:
            self._adjoints.pop(value, None)

    def snapshot(self, primal: Iterable[Value]) -> dict[Value, Value | None]:
        """The current adjoints of some values, for `restore`."""
        return {value: self._adjoints.get(value) for value in primal}

    def restore(self, adjoints: dict[Value, Value | None]) -> None:
        """Set the adjoints of some values to those of a `snapshot`."""
        for value, adjoint in adjoints.items():
            if adjoint is None:
                self._adjoints.pop(value, None)
            else:
                self._adjoints[value] = adjoint

    @contextmanager
    def discarding(self) -> Iterator[None]:
        """Discard at the end of the context the contributions that were added in it."""
        known = dict(self._adjoints)
        yield
        self._adjoints = known
