"""Quantised fields: what is stored, loaded and updated, on every backend."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.diagnostics import quant_errors
from octants.diagnostics.exceptions import OctantsError
from octants.types import quant
from tests.codegen.on_emulated_gpu import emulated_gpu
from tests.devices import ON_GPU
from tests.golden_files import check_golden

BACKENDS = ["interpreter", "lanes", "one by one", "gpu"] if not ON_GPU else ["arch"]


@pytest.fixture(params=BACKENDS)
def everywhere(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "gpu":
        with emulated_gpu():
            qd.init(arch=qd.cuda, log_level="error")
            yield
        return
    chosen = qd.python if request.param == "interpreter" else qd.cpu
    simd = "always" if request.param == "lanes" else "never"
    qd.init(arch=chosen, simd=simd, log_level="error")
    yield


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


def packed(*kinds: Any, size: int = 8, bits: int = 32, shared: bool = False) -> list[Any]:
    fields = [qd.field(kind) for kind in kinds]
    word = qd.BitpackedFields(max_num_bits=bits)
    word.place(*fields, shared_exponent=shared)
    qd.root.dense(qd.i, size).place(word)
    return fields


def through_kernels(x: Any, values: Any) -> list[Any]:
    """Store values by one kernel, load them by another."""
    given = np.asarray(values)
    source, target = qd.ndarray(x.dtype, given.shape), qd.ndarray(x.dtype, given.shape)
    source.from_numpy(given)

    @qd.kernel
    def put(source: qd.types.ndarray()):
        for i in source:
            x[i] = source[i]

    @qd.kernel
    def get(target: qd.types.ndarray()):
        for i in x:
            target[i] = x[i]

    put(source)
    get(target)
    return list(target.to_numpy().tolist())


INTEGERS = [0, 1, -1, 3, 7, 8, -8, -9, 15, 16, 100, -100, 2**31 - 1, -(2**31)]


@pytest.mark.parametrize(
    ("bits", "signed"), [(1, True), (1, False), (4, True), (7, False), (31, True), (32, True)]
)
def test_integers_wrap(bits: int, signed: bool) -> None:
    def wrapped(number: int) -> int:
        number &= (1 << bits) - 1
        return number - (1 << bits) if signed and number >> (bits - 1) else number

    (x,) = packed(quant.int(bits, signed), size=len(INTEGERS))
    expected = [wrapped(number) for number in INTEGERS]
    assert through_kernels(x, np.array(INTEGERS, np.int32)) == expected
    x.from_numpy(np.array(INTEGERS[::-1], np.int32))
    assert x.to_numpy().tolist() == expected[::-1]
    assert [x[i] for i in range(len(INTEGERS))] == expected[::-1]


def test_wide_integers() -> None:
    numbers = [1, -1, 2**38, 2**40 + 5, -(2**39) - 1]
    (x,) = packed(quant.int(40), size=5, bits=64)
    assert x.dtype is qd.i64
    assert through_kernels(x, np.array(numbers)) == [1, -1, 2**38, 5, 2**39 - 1]


FLOATS = [
    0.0,
    1.0,
    -1.0,
    0.1,
    0.3,
    -0.3,
    0.5,
    1.5,
    -2.5,
    3.999,
    7.9,
    16.0,
    1e-3,
    6.2e-5,
    6e-5,
    1e-30,
]


def nearest(value: float, kind: Any) -> float:
    """The number of a float type that is nearest, halves away from zero, by real arithmetic."""
    if value == 0 or (value < 0 and not kind.signed):
        return 0.0
    bias = 2 ** (kind.exponent - 1) - 1
    fraction, power = math.frexp(abs(value))
    digits = math.floor(fraction * 2 ** (kind.digits + 1) + 0.5)
    power += digits >> (kind.digits + 1)
    if power - 1 < 1 - bias:
        return 0.0
    if power - 1 > 2**kind.exponent - 1 - bias:
        power, digits = 2**kind.exponent - bias, 2 ** (kind.digits + 1) - 1
    exact = math.floor(abs(value) * 2 ** (kind.digits + 1 - power) + 0.5)
    exact = min(exact, 2 ** (kind.digits + 1) - 1) if power == 2**kind.exponent - bias else exact
    return math.copysign(exact * 2.0 ** (power - kind.digits - 1), value)


@pytest.mark.parametrize("kind", [quant.float(5, 10), quant.float(6, 12, False), quant.float(2, 4)])
def test_floats_are_rounded_to_the_nearest(kind: Any) -> None:
    values = [float(np.float32(value)) for value in [*FLOATS, 1e8, -1e20, 65504.0, 65536.0]]
    (x,) = packed(kind, size=len(values))
    expected = [nearest(value, kind) for value in values]
    assert through_kernels(x, np.array(values, np.float32)) == expected
    x.from_numpy(np.array(values[::-1], np.float32))
    assert x.to_numpy().tolist() == expected[::-1]


def test_what_only_eight_bits_of_exponent_have() -> None:
    values = np.array([np.inf, -np.inf, np.nan, 3.4e38, -0.0], np.float32)
    values = np.append(values, np.array([0x7FFFFFFF], np.uint32).view(np.float32))
    (wide,) = packed(quant.float(8, 24), size=6, bits=64)
    (narrow,) = packed(quant.float(5, 10), size=6)
    found = through_kernels(wide, values)
    assert found[:2] == [math.inf, -math.inf]
    assert math.isnan(found[2])
    assert math.isnan(found[5])
    assert found[3] == pytest.approx(3.4e38)
    assert through_kernels(narrow, values) == [130944.0, -130944.0, 0.0, 130944.0, 0.0, 0.0]


def test_fixed_point_numbers_stay_in_their_range() -> None:
    values = np.array([0.1, -0.3, 0.5, 1.0, -1.0, 7.0, -7.0, np.inf, -np.inf, np.nan], np.float32)
    (x,) = packed(quant.fixed(8), size=10)
    (y,) = packed(quant.fixed(8, signed=False), size=10)
    expected = [13 / 128, -38 / 128, 0.5, 127 / 128, -1.0, 127 / 128, -1.0, 127 / 128, -1.0, 0.0]
    assert through_kernels(x, values) == expected
    expected = [26 / 256, 0.0, 0.5, 255 / 256, 0.0, 255 / 256, 0.0, 255 / 256, 0.0, 0.0]
    assert through_kernels(y, values) == expected
    (z,) = packed(quant.fixed(8, scale=0.1), size=10)
    assert through_kernels(z, values)[:3] == pytest.approx([0.1, -0.3, 0.5])


def test_the_nearest_fixed_point_number_of_large_ones() -> None:
    """Adding a half before cutting off would round again where an f32 has no halves."""
    (x,) = packed(quant.fixed(26, max_value=2.0**25), size=2)
    values = np.array([2**23 + 1, -(2**24) + 1], np.float32)
    assert through_kernels(x, values) == values.tolist()


@pytest.mark.usefixtures("everywhere")
def test_words_that_are_shared() -> None:
    x, y, z = packed(quant.int(7), quant.fixed(10, max_value=4.0), quant.float(5, 10), size=40)

    @qd.kernel
    def fill():
        for i, k in qd.ndrange(40, 3):  # three work items for each word
            if k == 0:
                x[i] = i - 20
            elif k == 1:
                y[i] = 0.0625 * i
            else:
                z[i] = 1.5 * i
        for i in x:
            x[i] += 1
            y[i] *= 0.5
            z[i] -= 1.0

    @qd.kernel
    def total() -> qd.f32:
        result = 0.0
        for i in y:
            result += x[i] + 100.0 * y[i] + 10000.0 * z[i]
        return result

    fill()
    numbers = np.arange(40)
    assert x.to_numpy().tolist() == (numbers - 19).tolist()
    assert y.to_numpy().tolist() == (0.03125 * numbers).tolist()
    assert z.to_numpy().tolist() == (1.5 * numbers - 1).tolist()
    assert total() == pytest.approx(
        (x.to_numpy() + 100.0 * y.to_numpy() + 1e4 * z.to_numpy()).sum()
    )


@pytest.mark.usefixtures("everywhere")
def test_arrays_in_words() -> None:
    x, y = qd.field(quant.int(4)), qd.field(quant.fixed(8, max_value=2.0))
    qd.root.dense(qd.ij, (2, 3)).quant_array(qd.ij, (4, 2), max_num_bits=32).place(x)
    qd.root.dense(qd.i, 3).quant_array(qd.j, 4, max_num_bits=32).place(y)

    @qd.kernel
    def fill():
        for i, j in x:
            x[i, j] = i - j
        for i, j in y:
            y[i, j] = 0.125 * (i - j)
        for k in range(64):
            qd.atomic_max(x[7, 5], k - 60)
            y[0, 1] += 0.03125

    fill()
    i, j = np.indices((8, 6))
    assert x.shape == (8, 6)
    expected = i - j
    expected[7, 5] = 3
    assert x.to_numpy().tolist() == expected.tolist()
    i, j = np.indices((3, 4))
    expected = 0.125 * (i - j)
    expected[0, 1] += 2.0
    assert y.to_numpy().tolist() == expected.tolist()
    x.from_numpy(np.arange(48, dtype=np.int32).reshape(8, 6) % 7)
    x[1, 1] = -5
    assert (x[1, 1], x[1, 0], x[7, 5]) == (-5, 6, 5)


@pytest.mark.usefixtures("everywhere")
def test_numbers_that_share_an_exponent() -> None:
    x, y = packed(quant.float(5, 10), quant.float(5, 10), shared=True)
    v = qd.Vector.field(3, quant.float(5, 8))
    word = qd.BitpackedFields(max_num_bits=32)
    word.place(v, shared_exponent=True)
    qd.root.dense(qd.i, 4).place(word)

    @qd.kernel
    def put(a: qd.f32, b: qd.f32):
        x[0] = a
        y[0] = b

    @qd.kernel
    def vectors(scale: qd.f32):
        for i in v:
            v[i] = scale * qd.Vector([1.0, -0.1, 100.0 / (i + 1)])

    found = []
    pairs = [
        (1, 0.1),
        (0.1, 100),
        (0, 0),
        (-1, 0.3),
        (1.999, 0.3),
        (1e-6, 1),
        (1023.9, -3),
        (1e6, 1),
    ]
    for a, b in pairs:
        put(a, b)
        found.append((x[0], y[0]))
    assert found == [
        (1.0, 26 / 256),
        (0.0, 100.0),
        (0.0, 0.0),
        (-1.0, 77 / 256),
        (511 / 256, 77 / 256),
        (0.0, 1.0),
        (1022.0, -4.0),
        (130816.0, 0.0),
    ]
    vectors(1.0)
    vectors(0.01)  # the exponents of before do not matter
    assert v[0].to_list() == [1 / 64, 0.0, 1.0]
    assert v[3].to_list() == [3 / 256, 0.0, 0.25]
    v[1] = [3.0, 2.0, 1.0]
    assert v.to_numpy()[1].tolist() == [3.0, 2.0, 1.0]


def test_components() -> None:
    m = qd.Matrix.field(2, 2, quant.int(8))
    word = qd.BitpackedFields(max_num_bits=32)
    word.place(m)
    qd.root.dense(qd.i, 4).place(word, offset=-2)

    @qd.kernel
    def fill() -> qd.i32:
        for i in m:
            m[i] = qd.Matrix([[i, 1], [2, 3]])
            m[i][1, 0] += 5
        return m[-1][0, 0] + m[1].sum()

    assert fill() == -1 + (1 + 1 + 7 + 3)
    m[0][0, 1] = -9
    assert m[0].to_list() == [[0, -9], [7, 3]]
    assert m.shape == (4,)


def test_atomics_give_the_value_before() -> None:
    x, y = packed(quant.int(8), quant.fixed(16, max_value=8.0))
    before = qd.field(qd.f32, 6)

    @qd.kernel
    def run():
        for _ in range(1):
            x[0] = 5
            before[0] = qd.atomic_add(x[0], 3)
            before[1] = qd.atomic_min(x[0], 2)
            before[2] = qd.atomic_xor(x[0], 7)
            before[3] = qd.atomic_exchange(y[0], 1.5)
            before[4] = qd.atomic_sub(y[0], 100.0)
            before[5] = y[0]

    run()
    assert before.to_numpy().tolist() == [5, 8, 2, 0, 1.5, -8]
    assert x[0] == 5


def test_as_arguments_and_attributes() -> None:
    (x,) = packed(quant.int(8))

    @qd.data_oriented
    class Holder:
        def __init__(self) -> None:
            self.x = x

        @qd.kernel
        def add(self, y: qd.template()):
            for i in y:
                self.x[i] += y[i] + 1

    Holder().add(x)
    Holder().add(x)
    assert x.to_numpy().tolist() == [3] * 8
    other = packed(quant.int(8))[0]
    other.copy_from(x)
    other.fill(2)
    Holder().add(other)
    assert (x[0], other[0]) == (6, 2)


def test_derivatives_end_at_quantised_fields() -> None:
    (x,) = packed(quant.fixed(16))
    y = qd.field(qd.f32, 8, needs_grad=True)
    loss = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def load():
        for i in y:
            loss[None] += x[i] * y[i]

    @qd.kernel
    def store():
        for i in y:
            x[i] = y[i]

    x.fill(0.25)
    with qd.ad.Tape(loss):
        load()
    assert y.grad.to_numpy().tolist() == [0.25] * 8
    y.fill(0.5)
    with qd.ad.Tape(loss):
        store()
        load()
    assert loss[None] == 8 * 0.25
    assert y.grad.to_numpy().tolist() == [0.5] * 8


@pytest.mark.parametrize("debug", [False, True])
def test_indices_out_of_range(debug: bool) -> None:
    qd.init(arch=qd.cpu, debug=debug, log_level="error")
    x, y = qd.field(quant.int(4)), qd.field(quant.int(4))
    qd.root.dense(qd.i, 4).quant_array(qd.i, 8, max_num_bits=32).place(x)
    qd.root.dense(qd.i, 4).quant_array(qd.j, 8, max_num_bits=32).place(y)

    @qd.kernel
    def get(i: qd.i32, j: qd.i32) -> qd.i32:
        return x[i] + y[0, j]

    assert get(31, 7) == 0
    if debug:
        for i, j in ((32, 0), (-1, 0), (0, 8), (0, -1)):
            with pytest.raises(qd.OctantsAssertionError, match="out of"):
                get(i, j)


def no_bits() -> None:
    quant.int(0)


def wrong_type() -> None:
    quant.float(5, 10, compute=qd.f64)


def too_many_bits() -> None:
    packed(quant.int(20), quant.int(20))


def plain_field() -> None:
    qd.BitpackedFields(max_num_bits=32).place(qd.field(qd.i32, name="x"))


def floats_in_an_array() -> None:
    qd.root.quant_array(qd.i, 2, max_num_bits=32).place(qd.field(quant.float(5, 10)))


def too_long_an_array() -> None:
    qd.root.quant_array(qd.i, 5, max_num_bits=32).place(qd.field(quant.int(7)))


def different_exponents() -> None:
    packed(quant.float(5, 10), quant.float(6, 10), shared=True)


def late() -> None:
    word = qd.BitpackedFields(max_num_bits=32)
    word.place(qd.field(quant.int(7)))
    qd.root.dense(qd.i, 2).place(word)
    word.place(qd.field(quant.int(7)))


def not_placed() -> None:
    qd.field(quant.int(7), name="x")[0] = 1


def placed_alone() -> None:
    qd.root.dense(qd.i, 4).place(qd.field(quant.int(7), name="x"))


MISTAKES: list[tuple[Callable[[], None], Any]] = [
    (no_bits, quant_errors.WrongQuantType),
    (wrong_type, quant_errors.WrongQuantType),
    (too_many_bits, quant_errors.WrongPacking),
    (plain_field, quant_errors.WrongPacking),
    (floats_in_an_array, quant_errors.WrongPacking),
    (too_long_an_array, quant_errors.WrongPacking),
    (different_exponents, quant_errors.WrongPacking),
    (late, quant_errors.WrongPacking),
    (not_placed, quant_errors.NotPacked),
    (placed_alone, quant_errors.NotPacked),
]


@pytest.mark.parametrize(("mistake", "error"), MISTAKES)
def test_mistakes(mistake: Callable[[], None], error: Any) -> None:
    with pytest.raises(OctantsError) as caught:
        mistake()
    assert isinstance(caught.value, error.exception)
    check_golden(f"errors/{error.code}_{mistake.__name__}", str(caught.value))


def test_other_mistakes() -> None:
    with pytest.raises(qd.OctantsRuntimeError, match="has no gradient"):
        qd.field(quant.fixed(8), needs_grad=True)
    with pytest.raises(qd.OctantsValueError, match="`shape` cannot be given"):
        qd.field(quant.fixed(8), shape=3)
    x = qd.field(quant.fixed(8))
    word = qd.BitpackedFields(max_num_bits=32)
    word.place(x)
    with pytest.raises(qd.OctantsRuntimeError, match="placed already"):
        word.place(x)
    qd.root.dense(qd.i, 2).place(word)
    x.fill(0.5)
    qd.init(arch=qd.cpu, log_level="error")
    with pytest.raises(qd.OctantsRuntimeError, match="made before the last"):
        x.fill(0.5)


def test_bits_in_memory() -> None:
    """The first field has the lowest bits; a float has its exponent before its digits."""
    x, y = packed(quant.int(4), quant.float(5, 10), size=2)
    x.from_numpy(np.array([5, -1], np.int32))
    y.from_numpy(np.array([1.5, -2.0], np.float32))
    words = x.words.to_numpy()
    assert words[0] == 5 | 15 << 4 | (1 << 8) << 9
    assert words[1] == 15 | 16 << 4 | (1 << 9) << 9


def test_parameters_for_tensors() -> None:
    (x,) = packed(quant.int(8))

    @qd.kernel
    def add(x: qd.Tensor, y: qd.Tensor):
        for i in x:
            x[i] += y[i] + i

    for y in (x, qd.field(qd.i32, 8), qd.ndarray(qd.i32, 8), x):
        add(x, y)
    assert x.to_numpy().tolist() == [7 * i for i in range(8)]

    @qd.kernel
    def only_arrays(x: qd.types.ndarray()):
        pass

    with pytest.raises(qd.OctantsArgumentError, match="a quantised field is given"):
        only_arrays(x)
    for share in (lambda: x.to_numpy(copy=False), lambda: np.from_dlpack(x)):
        with pytest.raises(qd.OctantsError, match="its numbers are packed in words"):
            share()
