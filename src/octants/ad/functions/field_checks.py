"""Checks that derivatives read in fields what the value of the function has read there.

A derivative launches the kernels again, perhaps long after the value. Other libraries save the
arguments for it, but no fields, nor ndarrays that are no arguments. So a value is known by the
number of its last launch, and its derivatives look for writes since.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from octants import driver
from octants.ad.functions.repeated_runs import next_number
from octants.diagnostics.kernel_as_function_errors import FieldChanged, StateChanged
from octants.launch.gradients.operand_changes import Launched, changed_operands, changed_state

_BITS = 2**31 - 1


class _OfThread(threading.local):
    """The time of the value whose derivative a thread evaluates; None if it is not known."""

    value: int | None = None


_of_thread = _OfThread()


def now() -> int:
    """The time: the last number that a launch has taken."""
    return next_number() - 1


class DerivativeOf:
    """A context in which derivatives are evaluated of what was computed at a time."""

    __slots__ = ("_around", "_value")

    def __init__(self, value: int) -> None:
        self._value = value

    def __enter__(self) -> None:
        self._around, _of_thread.value = _of_thread.value, self._value

    def __exit__(self, *_: object) -> None:
        _of_thread.value = self._around


def take_time() -> int:
    """The last 31 bits of a time that no launch has, for a library that stores few."""
    return next(driver.state.numbers) & _BITS


def derivative_of(time: int) -> DerivativeOf:
    """A context in which derivatives are evaluated of what was computed at such a time."""
    latest = now()
    return DerivativeOf(latest - (latest - time & _BITS))


def begin() -> int:
    """Begin a derivative; the number of its first launch.

    A number without a launch separates what the host writes before and within the derivative.
    """
    since, number = _of_thread.value, next_number()
    return number if since is None or number <= since else next(driver.state.numbers)


def check_operands(
    launched: Launched,
    before: int,
    is_own: Callable[[Any], bool] = lambda _: False,
    *,
    is_reversed: bool,
) -> None:
    """Check that fields and ndarrays hold what the value has read.

    Args:
        launched: the launches of the derivative.
        before: its first number.
        is_own: whether an argument of a launch is an array of the derivative itself.
        is_reversed: whether it consists of reverse launches only.

    Raises:
        OctantsRuntimeError: the host or another kernel has written there.
    """
    since = _of_thread.value
    if since is not None:
        is_alone = is_reversed and len(launched) == 1
        for kernel, change in changed_operands(launched, since, before, is_own, is_alone=is_alone):
            raise FieldChanged(kernel, change.array, change.writer).at()
        for reader, array, writer in changed_state(launched, before):
            raise StateChanged(reader, array, writer).at()
