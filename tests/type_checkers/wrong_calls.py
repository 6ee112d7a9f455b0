"""Mistakes that type checkers find: each line with a comment has the error that it names."""

from __future__ import annotations

import octants as qd


@qd.kernel
def scale(factor: qd.f32, count: qd.i32) -> qd.f32:
    return factor * count


@qd.data_oriented
class Model:
    @qd.kernel
    def total(self, factor: qd.f64) -> qd.i32:
        return 3


@qd.dataclass
class Particle:
    mass: qd.f32


x = qd.field(qd.f32, shape=3, needs_grad=True)
particles = qd.field(Particle, shape=3)

scale("much", 2)  # arg-type
scale(2.0)  # call-arg
scale.grad(2.0, "two")  # arg-type
text: str = scale(2.0, 3)  # assignment
Model().total("x")  # arg-type
number: str = Model().total(1.0)  # assignment
value: str = x[0]  # assignment
slope: list[int] = x.grad.shape  # assignment
particles[0].weight  # attr-defined
Particle(mas=1.0)  # call-arg
