"""Compares gradients with central differences: ``Tape(loss=..., grad_check=[x])``.

For each element, the launches of the tape run again from the state before its body, with the
element moved by a step in either direction. Steps and tolerances follow the cube-root rule for the
type of the array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from octants.ad.tapes.tape_entries import TapeEntry
from octants.diagnostics.tape_errors import CannotCheck, WrongGradientCheck
from octants.ir.core import Companion
from octants.launch.gradients.taped_memory import TapedMemory, memory_of

_STEP = {"f64": 1e-5, "f32": 1e-2, "f16": 5e-2}
_TOLERANCE = {"f64": 1e-4, "f32": 5e-2, "f16": 2e-1}


class GradientCheck:
    """Keeps the state before the body of a tape, and checks the gradients of some arrays."""

    def __init__(self, arrays: Sequence[Any], losses: Sequence[Any]) -> None:
        for array in arrays:
            if not array.has_grad():
                raise CannotCheck(f"{array.describe()} has no gradient").at()
        self._arrays = list(arrays)
        self._losses = list(losses)
        self._before: dict[Any, tuple[TapedMemory, Any]] = {}

    def touch(self, memory: TapedMemory) -> None:
        """Copy the contents of an array before it is first used."""
        if memory.key not in self._before:
            self._before[memory.key] = memory, memory.snapshot()

    def run(self, entries: Sequence[TapeEntry]) -> None:
        """Compare the gradient of each element with its central difference.

        Raises:
            OctantsAssertionError: one of them differs.
        """
        for array in self._arrays:
            self.touch(memory_of(array, array.describe()))
        after = [(memory, memory.snapshot()) for memory, _ in self._before.values()]
        try:
            for array in self._arrays:
                gradient = array.companion_array(Companion.ADJOINT).read()
                for index in np.ndindex(gradient.shape):
                    self._check(array, index, float(gradient[index]), entries)
        finally:
            for memory, saved in after:
                memory.restore(saved)

    def _check(
        self, array: Any, index: tuple[int, ...], gradient: float, entries: Sequence[TapeEntry]
    ) -> None:
        self._restore()
        value = float(array.read(index))
        step = _STEP[array.dtype.name] * max(1.0, abs(value))
        high, low = (self._loss(array, index, value + s, entries) for s in (step, -step))
        difference = (high - low) / (2 * step)
        scale = max(1.0, abs(gradient), abs(difference))
        if not abs(difference - gradient) <= _TOLERANCE[array.dtype.name] * scale:
            where = str(index) if len(index) != 1 else str(index[0])
            raise WrongGradientCheck(array.describe(), where, gradient, difference).at()

    def _loss(
        self, array: Any, index: tuple[int, ...], value: float, entries: Sequence[TapeEntry]
    ) -> float:
        """The sum of the losses with one element changed."""
        self._restore()
        array.window().write(value, index)
        for entry in entries:
            rerun = getattr(entry, "rerun", None)
            if rerun is None:
                problem = "the body of the tape writes from the host, or has a custom gradient"
                raise CannotCheck(problem).at()
            rerun()
        return float(sum(loss.value() for loss in self._losses))

    def _restore(self) -> None:
        """Restore the state before the body."""
        for memory, saved in self._before.values():
            memory.restore(saved)
