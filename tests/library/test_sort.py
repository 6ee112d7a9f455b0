"""`algorithms.sort` against numpy's stable sort."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.algorithms import sort, sort_scratch_slots
from octants.types import ndarray

COUNTS = (0, 1, 1023, 1024, 2500)
KEYS = {"u32": 32, "i32": 32, "f32": 32, "u64": 48, "i64": 64, "f64": 64}
OFTEN = {"f32", "u64"}


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


@qd.kernel
def sort_pairs(
    keys: ndarray,
    tmp_keys: ndarray,
    values: ndarray,
    tmp_values: ndarray,
    scratch: ndarray,
    n: ndarray,
    dtype: qd.template(),
    end_bit: qd.template(),
):
    sort(keys, tmp_keys, values, tmp_values, scratch, n, dtype, True, end_bit, log256_max_n=2)


def arrays(dtype: Any, count: int, *dtypes: Any) -> list[Any]:
    made = [qd.ndarray(each, shape=(count,)) for each in (dtype, dtype, *dtypes)]
    return [*made, qd.ndarray(qd.u32, shape=(sort_scratch_slots(count),))]


def random_keys(name: str, bits: int, count: int) -> np.ndarray[Any, Any]:
    """Bits by chance, half of them in four values; no NaN."""
    dtype = np.dtype(getattr(qd, name).numpy)
    numbers = np.random.default_rng(bits + count).integers(0, 2**64, count, dtype=np.uint64)
    numbers[::2] &= np.uint64(3 << (bits - 2))
    keys = (numbers >> np.uint64(64 - bits) if bits < 64 else numbers).astype(f"u{dtype.itemsize}")
    keys = keys.view(dtype)
    return np.nan_to_num(keys, nan=1.5, neginf=-2.0) + 0 if dtype.kind == "f" else keys


@pytest.mark.parametrize(
    "name",
    [
        *sorted(OFTEN),
        *(pytest.param(name, marks=pytest.mark.slow) for name in sorted(KEYS.keys() - OFTEN)),
    ],
)
def test_keys_and_values(name: str) -> None:
    bits, dtype = KEYS[name], getattr(qd, name)
    most = max(COUNTS)
    keys, tmp_keys, values, tmp_values, scratch = arrays(dtype, most, qd.i32, qd.i32)
    n = qd.ndarray(qd.i32, shape=())
    for count in COUNTS:
        given = random_keys(name, bits, most)
        keys.from_numpy(given)
        values.from_numpy(np.arange(most, dtype=np.int32))
        n[None] = count
        sort_pairs(keys, tmp_keys, values, tmp_values, scratch, n, dtype, bits)
        order = np.argsort(given[:count], kind="stable")
        assert keys.to_numpy()[:count].tolist() == given[order].tolist()
        assert values.to_numpy()[:count].tolist() == order.tolist()
        assert keys.to_numpy()[count:].tolist() == given[count:].tolist()


def test_fields_keys_alone_and_some_bits() -> None:
    keys, tmp_keys = (qd.field(qd.u32, shape=(50,)) for _ in range(2))
    scratch, n = qd.field(qd.u32, shape=(sort_scratch_slots(50),)), qd.field(qd.i32, shape=())
    n[None] = 50

    @qd.kernel
    def sort_low_bits():
        sort(keys, tmp_keys, keys, tmp_keys, scratch, n, qd.u32, has_values=False, end_bit=16)

    given = np.random.default_rng(0).integers(0, 2**20, 50, dtype=np.uint32)
    keys.from_numpy(given)
    sort_low_bits()
    assert keys.to_numpy().tolist() == given[np.argsort(given & 0xFFFF, kind="stable")].tolist()


@pytest.mark.parametrize(("dtype", "end_bit"), [(qd.u1, 16), (qd.u32, 8)])
def test_what_cannot_be_sorted(dtype: Any, end_bit: int) -> None:
    made = arrays(dtype, 10, qd.i32, qd.i32)
    n = qd.ndarray(qd.i32, shape=())
    with pytest.raises(qd.OctantsError, match="OCT1"):
        sort_pairs(*made, n, dtype, end_bit)
