"""Small copies to a fake GPU, which runs them as late as it may."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.runtime.cuda.transfers import FEW
from tests.runtime.cuda.whole import Gpu, gpu

__all__ = ["gpu"]


@pytest.mark.parametrize("nbytes", [4, 1000, FEW - 4, FEW, FEW + 4])
def test_the_host_may_change_what_it_wrote(gpu: Gpu, nbytes: int) -> None:
    gpu.init()
    count = nbytes // 4
    arrays = [qd.ndarray(qd.i32, count) for _ in range(40)]
    values = np.empty(count, np.int32)
    for number, array in enumerate(arrays):
        values[:] = np.arange(count) + 1000 * number
        array.from_numpy(values)
    values.fill(-1)
    for number, array in enumerate(arrays):
        assert np.array_equal(array.to_numpy(), np.arange(count) + 1000 * number)


def test_small_copies_take_one_call_of_the_driver_each(gpu: Gpu) -> None:
    gpu.init()
    array, values = qd.ndarray(qd.f32, 64), np.ones(64, np.float32)
    array.from_numpy(values)
    gpu.fake.calls.clear()
    for _ in range(100):
        array.from_numpy(values)
    made: dict[str, Any] = dict(gpu.fake.calls)
    made.pop("cuCtxGetCurrent", None)
    assert made == {"cuMemcpyHtoDAsync": 100}
