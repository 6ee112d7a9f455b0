"""Three mirrors in a picture of 256 x 256 pixels."""
# mypy: ignore-errors

from __future__ import annotations

import octants as qd


def workload():
    """The call that is timed, and no gradient."""
    w = 256
    image = qd.Vector.field(3, qd.f32, shape=(w, w))

    @qd.func
    def hit(o, d, c, r):
        oc = o - c
        b = oc.dot(d)
        disc = b * b - (oc.dot(oc) - r * r)
        t = -1.0
        if disc > 0:
            t = -b - qd.sqrt(disc)
        return t

    @qd.kernel
    def render():
        for i, j in image:
            o = qd.Vector([0.0, 0.0, -3.0])
            d = qd.Vector([(i + 0.5) / w - 0.5, (j + 0.5) / w - 0.5, 1.0]).normalized()
            colour = qd.Vector([1.0, 1.0, 1.0])
            light = qd.Vector([0.0, 0.0, 0.0])
            for _ in range(4):
                best = 1e9
                n = qd.Vector([0.0, 0.0, 0.0])
                for k in qd.static(range(3)):
                    c = qd.Vector([k - 1.0, 0.0, 0.5 * k])
                    t = hit(o, d, c, 0.6)
                    if t > 1e-3 and t < best:
                        best = t
                        n = (o + t * d - c).normalized()
                if best < 1e8:
                    o = o + best * d
                    d = d - 2.0 * d.dot(n) * n
                    colour *= 0.7
                else:
                    light += colour * (0.5 + 0.5 * d[1])
                    break
            image[i, j] = light

    def forward():
        render()
        return image[3, 3][0]

    return forward, None
