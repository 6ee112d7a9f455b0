"""Components of fields of vectors, quantised or not, as fields of their own."""

from __future__ import annotations

import numpy as np
import pytest

import octants as qd
from octants.diagnostics.exceptions import OctantsValueError
from tests.devices import ARCH


def test_it_shares_the_words() -> None:
    qd.init(arch=getattr(qd, ARCH), log_level="error")
    x = qd.Vector.field(2, qd.types.quant.fixed(8, max_value=2.0))
    flags = qd.field(qd.types.quant.int(3))
    with pytest.raises(OctantsValueError, match="OCT505"):
        x.get_scalar_field(0)
    word = qd.BitpackedFields(max_num_bits=32)
    word.place(x, flags)
    qd.root.dense(qd.i, 3).place(word)
    first, second = x.get_scalar_field(0), x.get_scalar_field(1)

    @qd.kernel
    def change() -> qd.f32:
        for i in second:
            second[i] = 0.5 * i
            flags[i] = -i
        return second[1] + first[1]

    first[1] = 1.25
    assert change() == 1.75
    assert x.to_numpy().tolist() == [[0.0, 0.0], [1.25, 0.5], [0.0, 1.0]]
    assert first.to_numpy().tolist() == [0.0, 1.25, 0.0]
    assert flags.to_numpy().tolist() == [0, -1, -2]
    with pytest.raises(OctantsValueError, match="OCT505"):
        x.get_scalar_field(2)


def test_members_and_elements_as_in_quadrants() -> None:
    inner = qd.types.struct(x=qd.f32)
    kind = qd.types.struct(a=qd.i32, v=qd.math.vec2, s=inner)
    whole = {"a": 2, "v": [2.0, 2.0], "s": {"x": 2.0}}
    assert kind.filled_with_scalar(2.0).to_dict() == whole
    assert kind.cast(qd.Struct({"a": 2.5, "v": 2, "s": {"x": 2}})).to_dict() == whole
    m = qd.Matrix([[1, 2], [3, 4]])
    assert m.ndim == 2
    assert m.entries.tolist() == [[1, 2], [3, 4]]
    assert qd.Vector([1, 2]).ndim == 1


def test_a_component_of_a_field_is_written() -> None:
    qd.init(arch=getattr(qd, ARCH), log_level="error")
    x = qd.Matrix.field(2, 2, qd.f32, shape=2)
    x.get_scalar_field(0, 1).fill(2.0)
    x.get_scalar_field(1, 0).from_numpy(np.array([3.0, 4.0]))
    assert x.to_numpy().tolist() == [[[0.0, 2.0], [3.0, 0.0]], [[0.0, 2.0], [4.0, 0.0]]]
    with pytest.raises(OctantsValueError, match="OCT505"):
        x.get_scalar_field(1, 0).from_numpy(np.zeros(3))
