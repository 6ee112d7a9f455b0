"""A step of 512 bodies that attract each other."""
# mypy: ignore-errors

from __future__ import annotations

import octants as qd


def workload():
    """The call that is timed, and no gradient."""
    n = 512
    x = qd.Vector.field(3, qd.f32, shape=n)
    v = qd.Vector.field(3, qd.f32, shape=n)

    @qd.kernel
    def init():
        for i in x:
            x[i] = qd.Vector([qd.sin(i * 1.0), qd.cos(i * 2.0), qd.sin(i * 3.0)])
            v[i] = qd.Vector([0.0, 0.0, 0.0])

    @qd.kernel
    def step(dt: qd.f32):
        for i in x:
            a = qd.Vector([0.0, 0.0, 0.0])
            for j in range(n):
                d = x[j] - x[i]
                r = d.norm_sqr() + 1e-3
                a += d / (r * qd.sqrt(r))
            v[i] += dt * a
        for i in x:
            x[i] += dt * v[i]

    def forward():
        init()
        step(1e-3)
        return x[0][0]

    return forward, None
