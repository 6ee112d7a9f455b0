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


@pytest.mark.parametrize("shares", [False, True])
def test_components_by_run_time_indices(shares: bool) -> None:
    qd.init(arch=getattr(qd, ARCH), log_level="error")
    kind = qd.types.quant.float(5, 9) if shares else qd.types.quant.fixed(7, max_value=4.0)
    v, n = qd.Vector.field(3, kind), qd.Matrix.field(2, 2, qd.types.quant.int(2, False))
    for field in (v, n):
        word = qd.BitpackedFields(max_num_bits=32 if shares else 64)
        word.place(field, shared_exponent=shares and field is v)
        qd.root.dense(qd.i, 8).place(word)
    x = qd.field(qd.f32, 8, needs_grad=True)
    total = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def step(k: qd.i32) -> None:
        for i in v:
            c = (i + k) % 3
            v[i][c] = 0.5 * k
            v[i][(c + 1) % 3] += 0.25
            n[i][i % 2, k] = 3
            n[i][i % 2, k] -= i // 4
            old = qd.atomic_max(v[i][c], 1.0)
            total[None] += x[i] * (v[i][c] + old + n[i][i % 2, k])

    expected, counts = np.zeros((8, 3)), np.zeros((8, 2, 2))
    slopes = np.zeros(8)
    for k in (0, 1):
        for i in range(8):
            c = (i + k) % 3
            expected[i, c] = 0.5 * k
            expected[i, (c + 1) % 3] += 0.25
            counts[i, i % 2, k] = 3 - i // 4
            slopes[i] = max(0.5 * k, 1.0) + 0.5 * k + counts[i, i % 2, k]
            expected[i, c] = max(expected[i, c], 1.0)
        with qd.ad.Tape(loss=total):
            step(k)
        np.testing.assert_array_equal(v.to_numpy(), expected)
        np.testing.assert_array_equal(n.to_numpy(), counts)
        np.testing.assert_array_equal(x.grad.to_numpy(), slopes)


def test_a_run_time_index_beyond_the_components() -> None:
    qd.init(arch=getattr(qd, ARCH), log_level="error", debug=True)
    v, flag = qd.Vector.field(3, qd.types.quant.int(5)), qd.field(qd.types.quant.int(5))
    word = qd.BitpackedFields(max_num_bits=32)
    word.place(v, flag)
    qd.root.dense(qd.i, 2).place(word)

    @qd.kernel
    def put(k: qd.i32) -> None:
        v[1][k] = 7

    put(2)
    with pytest.raises(qd.OctantsAssertionError, match="index 3 is out of bounds for axis 0 of an"):
        put(3)
        qd.sync()
    assert v.to_numpy().tolist() == [[0, 0, 0], [0, 0, 7]]
    assert flag.to_numpy().tolist() == [0, 0]
