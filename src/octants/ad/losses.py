"""What a tape differentiates: an array of one element, or what a kernel returns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from octants.ad.entries import Entry, LaunchEntry
from octants.data.stored import StoredArray
from octants.diagnostics.tape_errors import CannotCheck, LossNotLaunched, WrongLoss
from octants.ir.core import Companion
from octants.launch.kernel import BoundKernel, Kernel


class Loss(Protocol):
    """One loss."""

    def reset(self) -> None:
        """Make it ready for the body."""

    def seed(self, entries: Sequence[Entry], /) -> None:
        """Set its adjoint to one."""

    def value(self) -> float:
        """What it is now."""


class ArrayLoss:
    """A field or an ndarray of one element."""

    def __init__(self, array: Any) -> None:
        if math.prod((*array.shape, *array.element_shape)) != 1:
            raise WrongLoss(f"has the shape {array.shape}, not one element").at(None)
        if not array.dtype.is_float:
            raise WrongLoss(f"is of {array.dtype}, which has no gradient").at(None)
        if not array.has_grad():
            raise WrongLoss("has no gradient").at(None)
        self._array = array

    def reset(self) -> None:
        self._array.clear()

    def seed(self, _: Sequence[Entry]) -> None:
        self._array.companion_array(Companion.ADJOINT).write(1.0)

    def value(self) -> float:
        return float(self._array.snapshot().item())


class KernelLoss:
    """The value that a kernel returns in its only launch."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def reset(self) -> None:
        """The kernel starts from nothing."""

    def value(self) -> float:
        raise CannotCheck("the loss is a kernel").at(None)

    def seed(self, entries: Sequence[Entry]) -> None:
        launches = {
            entry.number: entry
            for entry in entries
            if isinstance(entry, LaunchEntry) and entry.specialisation.kernel is self._kernel
        }
        if len(launches) != 1:
            raise LossNotLaunched(self._kernel.name, len(launches)).at(None)
        (entry,) = launches.values()
        returns = entry.specialisation.returns
        if len(returns) != 1 or returns[0].element_shape or not returns[0].dtype.is_float:
            problem = f"is kernel `{self._kernel.name}`, which does not return a float"
            raise WrongLoss(problem).at(None)
        entry.seed_result()


def make_losses(loss: Any) -> list[Loss]:
    """The losses that ``Tape(loss=...)`` was given."""
    if loss is None:
        return []
    if isinstance(loss, (list, tuple)):
        return [each for item in loss for each in make_losses(item)]
    if isinstance(loss, BoundKernel):
        return [KernelLoss(loss.kernel)]
    if isinstance(loss, Kernel):
        return [KernelLoss(loss)]
    if isinstance(loss, StoredArray) and loss.companion is Companion.PRIMAL:
        return [ArrayLoss(loss)]
    raise WrongLoss(f"cannot be a {type(loss).__name__}").at(None)
