"""Zeroes the gradients and duals of all arrays of Octants."""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Sequence
from typing import Any

from octants.data import current_runtime
from octants.data.current_runtime import Runtime
from octants.diagnostics.exceptions import OctantsError
from octants.runtime.capture import captures, thread_capture
from octants.runtime.device import Device
from octants.types.companions import Companion
from octants.types.enums import SNodeGradType

_MOST_CACHED = 16
_referent = weakref.ref.__call__

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
    if known is not None:
        version, references, ranges = known
        held = list(map(_referent, references))  # so that no memory is freed before
        if version == runtime.version_of(companions):
            for device, memory in ranges:
                device.clear_each(memory)
            return
        del held
    _clear_all(runtime, companions, and_arrays, key)


def _clear_all(
    runtime: Runtime, companions: Sequence[Companion], and_arrays: Sequence[Any], key: Any
) -> None:
    """Clear arrays; cache their ranges, if each of them is in one piece."""
    is_captured, is_cached = thread_capture() is not None, not captures
    found: dict[Device, list[tuple[int, int]]] = {}
    version = runtime.version_of(companions)  # of no later time than the arrays
    gradients = list(runtime.arrays(*companions)) if companions else []
    for array in itertools.chain(gradients, and_arrays):
        if is_captured and not array.is_allocated:
            with contextlib.suppress(OctantsError):  # raised where the array is used
                array.window()
        if array.is_allocated:
            piece = array.contiguous_range()
            if piece is None:
                array.clear()
                is_cached = False
            else:
                found.setdefault(piece[0], []).append(piece[1:])
    ranges = tuple((device, tuple(pieces)) for device, pieces in found.items())
    for device, memory in ranges:
        device.clear_each(memory)
    if is_cached:
        if len(runtime.clears) >= _MOST_CACHED:
            runtime.clears.clear()
        references = [weakref.ref(array) for array in gradients]
        runtime.clears[key] = version, references, ranges


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
