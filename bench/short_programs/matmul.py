"""A product of matrices in ndarrays."""
# mypy: ignore-errors

from __future__ import annotations

import octants as qd


def workload():
    """The call that is timed, and no gradient."""
    n = 64
    a = qd.ndarray(qd.f32, shape=(n, n))
    b = qd.ndarray(qd.f32, shape=(n, n))
    c = qd.ndarray(qd.f32, shape=(n, n))

    @qd.kernel
    def multiply(a: qd.types.ndarray(), b: qd.types.ndarray(), c: qd.types.ndarray()):
        for i, j in qd.ndrange(n, n):
            s = 0.0
            for k in range(n):
                s += a[i, k] * b[k, j]
            c[i, j] = s

    def forward():
        multiply(a, b, c)
        return c[0, 0]

    return forward, None
