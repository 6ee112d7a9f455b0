"""How many bytes gradients take in record buffers, by counting and by measuring."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from octants import driver
from octants.ir import ops
from octants.runtime.cpu.device import CpuDevice
from tests.devices import ON_GPU
from tests.ir.parser import parse


class _Uncounted:
    """Bytes that are not counted, and equal any number."""

    def __eq__(self, _: object) -> bool:
        return True

    __le__ = __lt__ = __ge__ = __gt__ = __eq__
    __hash__ = None  # type: ignore[assignment]


@contextmanager
def exact_record_buffers(device: CpuDevice) -> Iterator[None]:
    """Free the record buffers of a CPU, and let them grow by just what is needed."""
    device.free_record_buffers()
    device.pool.fields.record_buffer_exact = 1
    try:
        yield
    finally:
        device.pool.fields.record_buffer_exact = 0
        device.free_record_buffers()


def record_buffer_bytes(launch: Callable[[], Any]) -> Any:
    """The bytes that the record buffers of all threads come to need in some launches.

    GPUs have record buffers of equal size for all threads, which are not counted.
    """
    device: Any = driver.state.device
    if ON_GPU:
        launch()
        return _Uncounted()
    with exact_record_buffers(device):
        launch()
        return int(device.record_buffer_bytes)


def iteration_bytes(kernel: Any, *args: Any) -> list[int]:
    """The bytes that an iteration of each recorded loop takes in the reverse of a kernel."""
    text = kernel.inspect(*args, mode="reverse").stages["reverse"]
    pushes = [op for op in parse(text).walk() if isinstance(op, ops.RecordPush)]
    records = dict.fromkeys(op.record for op in pushes if op.record.name == "r")
    return [record.offsets()[1] for record in records if record.slots]


def check_gradient(
    launch: Callable[[], Any], reverse: Callable[[], Any], x: Any, y: Any, step: float = 1e-6
) -> None:
    """Compare the gradient of a weighted sum of y by x (both f64) with central differences.

    ``launch`` computes y, or adds to it; ``reverse`` is its bare reverse.
    """
    start, weights = x.to_numpy(), np.cos(np.arange(y.to_numpy().size)).reshape(y.to_numpy().shape)

    def value(at: np.ndarray[Any, Any]) -> float:
        x.from_numpy(at)
        y.fill(0)
        launch()
        return float((y.to_numpy() * weights).sum())

    expected = np.zeros_like(start)
    for place in np.ndindex(start.shape):
        moved = np.zeros_like(start)
        moved[place] = step
        expected[place] = (value(start + moved) - value(start - moved)) / (2 * step)
    value(start)
    x.grad.fill(0)
    y.grad.from_numpy(weights)
    reverse()
    found = x.grad.to_numpy()
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-7 * (1 + np.abs(expected).max()))
