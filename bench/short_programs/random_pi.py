"""A quarter of pi, by random points."""
# mypy: ignore-errors

from __future__ import annotations

import octants as qd


def workload():
    """The call that is timed, and no gradient."""
    inside = qd.field(qd.i32, shape=())

    @qd.kernel
    def throw(n: qd.i32):
        for _ in range(n):
            x = qd.random()
            y = qd.random()
            if x * x + y * y < 1.0:
                inside[None] += 1

    def forward():
        inside[None] = 0
        throw(1 << 18)
        return inside[None]

    return forward, None
