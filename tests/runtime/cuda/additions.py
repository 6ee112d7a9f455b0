"""Kernels for tests on real GPUs that add to arrays, one of them in no hurry."""

from __future__ import annotations

import octants as qd


@qd.kernel
def add(a: qd.types.NDArray[qd.f32, 1], amount: float):
    for i in a:
        a[i] += amount


@qd.kernel
def slowly_add(a: qd.types.NDArray[qd.f32, 1], amount: float):
    for i in a:
        x = a[i]
        for _ in range(20000):
            x = qd.sin(x) if x > 1e30 else x
        a[i] = x + amount
