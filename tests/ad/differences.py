"""Programs of several launches against central differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.devices import ON_GPU

STEP = 1e-6


def check_tape(
    body: Callable[[], Any],
    inputs: Sequence[Any],
    loss: Any,
    arrays: Sequence[Any] = (),
    **options: Any,
) -> qd.ad.Tape:
    """Run a body under a tape; its gradients are those of differences, its arrays as it left them.

    ``inputs`` are arrays whose contents the body reads before it writes them, ``arrays`` further
    ones that it writes. Their contents of now are those that it starts from.
    """
    everything = [*inputs, *arrays]
    start = [array.to_numpy() for array in everything]

    def value() -> float:
        loss.fill(0)
        body()
        return float(loss.to_numpy().item())

    def reset() -> None:
        for array, content in zip(everything, start, strict=True):
            array.from_numpy(content)

    expected = [_differences(value, reset, array) for array in inputs]
    reset()
    value()
    left = [array.to_numpy() for array in everything]
    reset()
    with qd.ad.Tape(loss=loss, **options) as tape:
        body()
    for array, content in zip(everything, left, strict=True):
        np.testing.assert_allclose(array.to_numpy(), content, rtol=1e-13 if ON_GPU else 0.0)
    for array, numbers in zip(inputs, expected, strict=True):
        assert array.grad.to_numpy() == pytest.approx(numbers, rel=1e-5, abs=1e-6)
    return tape


def _differences(value: Callable[[], float], reset: Callable[[], None], array: Any) -> Any:
    reset()
    content = array.to_numpy()
    found = np.zeros(content.shape)
    for index in np.ndindex(content.shape):
        sides = []
        for step in (STEP, -STEP):
            reset()
            moved = content.copy()
            moved[index] += step
            array.from_numpy(moved)
            sides.append(value())
        found[index] = (sides[0] - sides[1]) / (2 * STEP)
    return found
