"""Zeroes the gradients and duals of all arrays of Octants."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from typing import Any

from octants.data import current_runtime
from octants.diagnostics.exceptions import OctantsError
from octants.runtime.capture import thread_capture
from octants.runtime.device import Device
from octants.types.companions import Companion
from octants.types.enums import SNodeGradType

_COMPANIONS = {
    SNodeGradType.PRIMAL: Companion.PRIMAL,
    SNodeGradType.ADJOINT: Companion.ADJOINT,
    SNodeGradType.DUAL: Companion.TANGENT,
}


def clear_gradients(*companions: Companion, and_arrays: Sequence[Any] = ()) -> None:
    """Set companions of all fields and ndarrays of Octants to zero; tapes do not record it.

    What has no memory yet is zero. In a capture it gets its memory here, so that replays, which
    find what the run before left, set it to zero, too. What is in one piece of a GPU's memory is
    set by one command for all.

    Args:
        companions: Which ones.
        and_arrays: Arrays that are set to zero, too.
    """
    is_captured, runtime = thread_capture() is not None, current_runtime.runtime()
    ranges: dict[Device, list[tuple[int, int]]] = {}
    gradients = runtime.arrays(*companions) if companions else ()
    for array in itertools.chain(gradients, and_arrays):
        if is_captured and not array.is_allocated:
            with contextlib.suppress(OctantsError):  # raised where the array is used
                array.window()
        if array.is_allocated:
            found = array.far_range()
            if found is None:
                array.clear()
            else:
                ranges.setdefault(found[0], []).append(found[1:])
    for device, memory in ranges.items():
        device.clear_each(tuple(memory))


def clear_all_gradients(gradient_type: SNodeGradType = SNodeGradType.ADJOINT) -> None:
    """Set all gradients of fields and ndarrays to zero, or all duals.

    The gradients of torch tensors belong to torch and are left alone.

    Example::

        qd.ad.clear_all_gradients()
        loss.grad[None] = 1.0
        step.grad()

    Args:
        gradient_type: ``ADJOINT`` for gradients, ``DUAL`` for duals, ``PRIMAL`` for the values.
    """
    clear_gradients(_COMPANIONS[gradient_type])
