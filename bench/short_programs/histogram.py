"""Counts of 65536 numbers in 64 bins, and their mean."""
# mypy: ignore-errors

from __future__ import annotations

import octants as qd


def workload():
    """The call that is timed, and no gradient."""
    counts = qd.field(qd.i32, shape=64)
    mean = qd.field(qd.f32, shape=())

    @qd.kernel
    def fill(n: qd.i32):
        for i in range(n):
            v = qd.sin(i * 0.37) * 0.5 + 0.5
            counts[qd.min(qd.cast(v * 64, qd.i32), 63)] += 1
            mean[None] += v / n

    def forward():
        fill(1 << 16)
        return counts[1]

    return forward, None
