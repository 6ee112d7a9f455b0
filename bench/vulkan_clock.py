"""How a GPU's clock recovers on Vulkan: ``python bench/vulkan_clock.py [SECONDS]``.

It times launches of one kernel, five at a time, after the GPU has been idle for so many seconds
(2.5 unless given), and prints microseconds of a launch by the milliseconds since the first one.
"""
# mypy: ignore-errors

from __future__ import annotations

import sys
import time

import numpy as np

import octants as qd

ITEMS, WORK = 1_000_000, 0.6


def main() -> None:
    idle = float(sys.argv[1]) if len(sys.argv) > 1 else 2.5
    qd.init(arch=qd.vulkan, log_level="error")
    x = qd.field(qd.f32, ITEMS)
    x.from_numpy(np.random.default_rng(0).random(ITEMS, np.float32))

    @qd.kernel
    def sines():
        for i in x:
            v = x[i]
            for _ in range(64):
                v = qd.sin(v) * 0.9 + 0.05
            x[i] = v

    sines()
    for pause in (0.0, idle):
        qd.sync()
        time.sleep(pause)
        start, found, following = time.perf_counter(), [], 0.0
        while (now := time.perf_counter() - start) < WORK:
            for _ in range(5):
                sines()
            qd.sync()
            if now >= following:
                took = (time.perf_counter() - start - now) / 5
                found.append(f"{1e3 * now:.0f}: {1e6 * took:.0f}")
                following = now + 0.02
        print(f"after {pause} s: {', '.join(found)}")


if __name__ == "__main__":
    main()
