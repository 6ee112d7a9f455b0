"""A Julia set of 640 x 320 pixels."""
# mypy: ignore-errors

from __future__ import annotations

import octants as qd


def workload():
    """The call that is timed, and no gradient."""
    n = 320
    pixels = qd.field(qd.f32, shape=(n * 2, n))

    @qd.func
    def square(z):
        return qd.Vector([z[0] ** 2 - z[1] ** 2, z[1] * z[0] * 2])

    @qd.kernel
    def paint(t: qd.f32):
        for i, j in pixels:
            c = qd.Vector([-0.8, qd.cos(t) * 0.2])
            z = qd.Vector([i / n - 1, j / n - 0.5]) * 2
            iterations = 0
            while z.norm() < 20 and iterations < 50:
                z = square(z) + c
                iterations += 1
            pixels[i, j] = 1 - iterations * 0.02

    def forward():
        paint(0.3)
        return pixels[5, 5]

    return forward, None
