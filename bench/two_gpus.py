"""What two GPUs in one process give: ``python bench/two_gpus.py``.

It measures copies from one GPU to the other, launches on each and on both alternately, and a
gradient whose work items are on one GPU, or half of them on each. It needs two NVIDIA GPUs. It
checks the results.
A number is the least of some runs, each run until all is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import gpu_calls
import octants as qd

LARGE = 1 << 28
ITEMS = 1 << 20
STEPS = 256
CALLS = 1000


@qd.kernel
def increase(x: qd.types.NDArray[qd.f32, 1]):
    for i in x:
        x[i] += 1.0


@qd.kernel
def recurrences(x: qd.types.NDArray[qd.f32, 1], loss: qd.types.NDArray[qd.f32, 0], steps: int):
    for i in x:
        v = x[i]
        for _ in range(steps):
            v = qd.sin(v) * 0.95 + 0.01
        loss[None] += v


def main() -> None:
    """Print the table."""
    qd.init(arch=qd.cuda, offline_cache=False, log_level="error")
    for name, (number, unit) in measured(LARGE, ITEMS, STEPS, CALLS).items():
        print(f"{name:<48}{number:12.4g} {unit}")


def measured(large: int, items: int, steps: int, calls: int) -> dict[str, tuple[float, str]]:
    """The numbers, with their units.

    Args:
        large: The bytes that are copied.
        items: The work items of the gradient.
        steps: The iterations of each.
        calls: The launches of a small kernel in a run.
    """
    return {**copies(large), **launches(calls), **gradients(items, steps)}


def copies(nbytes: int) -> dict[str, tuple[float, str]]:
    """Gigabytes per second of copies."""
    count = nbytes // 4
    x, near, far = (qd.ndarray(qd.f32, count, device=device) for device in (0, 0, 1))
    values = np.arange(count, dtype=np.float32)
    x.from_numpy(values)
    calls: dict[str, Callable[[], Any]] = {
        "copy from GPU 0 to GPU 1": lambda: far.copy_from(x),
        "copy from GPU 1 to GPU 0": lambda: x.copy_from(far),
        "copy within GPU 0": lambda: near.copy_from(x),
        "copy by way of the host": lambda: far.from_numpy(x.to_numpy()),
    }
    found = {name: (nbytes / timed(call, 4) / 1e9, "GB/s") for name, call in calls.items()}
    for each in (x, near, far):
        assert np.array_equal(each.to_numpy(), values)
    return found


def launches(calls: int) -> dict[str, tuple[float, str]]:
    """Microseconds of a launch of a small kernel, before a second GPU is in use and afterwards."""
    qd.init(arch=qd.cuda, offline_cache=False, log_level="error")
    x = qd.ndarray(qd.f32, 64)
    alone = timed(lambda: increase(x), calls)
    y = qd.ndarray(qd.f32, 64, device=1)

    def both() -> None:
        increase(x)
        increase(y)

    found = {
        "launch while one GPU is in use": alone,
        "launch while two GPUs are in use": timed(lambda: increase(x), calls),
        "launch on two GPUs, alternately": timed(both, calls) / 2,
    }
    return {name: (1e6 * seconds, "us") for name, seconds in found.items()}


def gradients(items: int, steps: int) -> dict[str, tuple[float, str]]:
    """Milliseconds of a tape around recurrences on one GPU, and on both."""
    values = np.linspace(0.1, 1.0, items, dtype=np.float32)
    found, results = {}, []
    for devices in ((0,), (1,), (0, 1)):
        parts = [
            qd.array(part, needs_grad=True, device=device)
            for device, part in zip(devices, np.split(values, len(devices)), strict=True)
        ]
        losses = [qd.ndarray(qd.f32, (), needs_grad=True, device=device) for device in devices]

        def run(parts: Any = parts, losses: Any = losses) -> None:
            with qd.ad.Tape(loss=losses):
                for part, loss in zip(parts, losses, strict=True):
                    recurrences(part, loss, steps)

        name = f"gradient on GPU {' and '.join(map(str, devices))}"
        found[name] = 1e3 * timed(run, 4), "ms"
        results.append(np.concatenate([part.grad.to_numpy() for part in parts]))
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])
    return found


def timed(call: Callable[[], Any], count: int) -> float:
    """The least seconds of a call in any of five runs."""
    return gpu_calls.timed(qd, call, count, first=1, runs=5)


if __name__ == "__main__":
    main()
