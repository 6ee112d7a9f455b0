"""`x.grad = y` is an error for every kind of array that has a gradient."""

from __future__ import annotations

import numpy as np
import pytest

import octants as qd


@pytest.mark.parametrize("name", ["grad", "dual"])
def test_gradients_cannot_be_replaced(name: str) -> None:
    qd.init(arch=qd.cpu)
    pair = qd.types.struct(a=qd.f32, b=qd.f32)
    vectors = qd.Vector.field(2, qd.f32, 3, needs_grad=True, needs_dual=True)
    arrays = [
        qd.field(qd.f32, 3, needs_grad=True, needs_dual=True),
        qd.field(qd.f32, 3),
        vectors,
        pair.field(shape=3, needs_grad=True, needs_dual=True),
        qd.ndarray(qd.f32, 3, needs_grad=True),
    ]
    for array in arrays:
        with pytest.raises(qd.OctantsAttributeError, match=rf"x\.{name}\.copy_from"):
            setattr(array, name, np.ones(3, np.float32))
    with pytest.raises(qd.OctantsAttributeError):
        vectors.get_scalar_field(0).grad = vectors  # type: ignore[misc]
