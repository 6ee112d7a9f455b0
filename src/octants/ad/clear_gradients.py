"""Zeroes the gradients and duals of all arrays of Octants."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from typing import Any

from octants.data import current_runtime
from octants.data.current_runtime import RangesByDevice, Runtime
from octants.diagnostics.exceptions import OctantsError
from octants.runtime.capture import captures, thread_capture
from octants.runtime.device import Device
from octants.types.companions import Companion
from octants.types.enums import SNodeGradType

_MOST_CACHED = 16

_COMPANIONS = {
    SNodeGradType.PRIMAL: Companion.PRIMAL,
    SNodeGradType.ADJOINT: Companion.ADJOINT,
    SNodeGradType.DUAL: Companion.TANGENT,
}


def clear_gradients(*companions: Companion, and_arrays: Sequence[Any] = ()) -> None:
    """Set companions of all fields and ndarrays of Octants to zero; tapes do not record it.

    What has no memory yet is zero. In a capture it gets its memory here, so that replays, which
    find what the run before left, set it to zero, too. What is in one piece of memory is set by one
    command for all, whose ranges are cached until arrays come or go.

    Args:
        companions: Which ones.
        and_arrays: Arrays that are set to zero, too.
    """
    runtime = current_runtime.runtime()
    key = (companions, *[getattr(array, "octants_number", None) for array in and_arrays])
    known = None if captures else runtime.clears.get(key)
    version = runtime.version_of(companions)
    if known is None or known[0] != version:
        known = version, _clear_others(runtime, companions, and_arrays, key)
    for device, ranges in known[1]:
        device.clear_each(ranges)


def _clear_others(
    runtime: Runtime, companions: Sequence[Companion], and_arrays: Sequence[Any], key: Any
) -> RangesByDevice:
    """Clear the arrays that are not in one piece; return the ranges of all others.

    The ranges are cached if no array is left out of them.
    """
    is_captured, is_all = thread_capture() is not None, not captures
    found: dict[Device, list[tuple[int, int]]] = {}
    gradients = runtime.arrays(*companions) if companions else ()
    for array in itertools.chain(gradients, and_arrays):
        if is_captured and not array.is_allocated:
            with contextlib.suppress(OctantsError):  # raised where the array is used
                array.window()
        if array.is_allocated:
            piece = array.contiguous_range()
            if piece is None:
                array.clear()
                is_all = False
            else:
                found.setdefault(piece[0], []).append(piece[1:])
    ranges = tuple((device, tuple(pieces)) for device, pieces in found.items())
    if is_all:
        if len(runtime.clears) >= _MOST_CACHED:
            runtime.clears.clear()
        runtime.clears[key] = runtime.version_of(companions), ranges
    return ranges


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
