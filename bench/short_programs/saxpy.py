"""y = a x + y."""
# mypy: ignore-errors

from __future__ import annotations

import octants as qd


def workload():
    """The call that is timed, and no gradient."""
    x = qd.field(qd.f32, shape=10000)
    y = qd.field(qd.f32, shape=10000)

    @qd.kernel
    def saxpy(a: qd.f32):
        for i in x:
            y[i] = a * x[i] + y[i]

    def forward():
        saxpy(2.0)
        return y[0]

    return forward, None
