"""Render a scene of distance functions by Monte Carlo, and fit its colours to a photograph.

Rays march along a signed distance function until they hit (a `while` loop), bounce diffusely, and
collect the light of the sky. The albedos of the materials get exact gradients of the sampled image:
draws are a function of the seed, so the picture is a function of the albedos. Run it:
``python examples/sdf_tracer.py``.
"""

from __future__ import annotations

import argparse

import numpy as np

import octants as qd

BOUNCES = 4
FAR = 20.0
CLOSE = 1e-3
MATERIALS = 3  # floor, sphere, torus
TRUTH = np.array([[0.55, 0.5, 0.45], [0.85, 0.25, 0.15], [0.2, 0.45, 0.75]])


@qd.data_oriented
class Scene:
    """A floor, a sphere and a torus under a white sky.

    Args:
        size: Pixels along each side of the image.
        samples: Paths for each pixel.
        objects: Whether there are a floor and a torus, too, or only the sphere.
    """

    def __init__(self, size: int, samples: int, objects: bool = True) -> None:
        self.size, self.samples, self.objects = size, samples, objects
        self.albedo = qd.Vector.field(3, float, shape=MATERIALS, needs_grad=True)
        self.image = qd.Vector.field(3, float, shape=(size, size))
        self.photograph = qd.Vector.field(3, float, shape=(size, size))
        self.loss = qd.field(float, shape=(), needs_grad=True)

    @qd.func
    def to_torus(self, p):
        q = p - qd.Vector([0.75, -0.35, 0.3])
        ring = qd.sqrt(q[0] * q[0] + q[2] * q[2]) - 0.45
        return qd.sqrt(ring * ring + q[1] * q[1]) - 0.15

    @qd.func
    def distance(self, p):
        """How far it is to the nearest surface."""
        d = (p - qd.Vector([-0.45, 0.0, 0.0])).norm() - 0.5
        if qd.static(self.objects):
            d = qd.min(d, qd.min(p[1] + 0.5, self.to_torus(p)))
        return d

    @qd.func
    def material(self, p):
        """The number of the surface nearest to a place."""
        number = 1
        if qd.static(self.objects):
            d = (p - qd.Vector([-0.45, 0.0, 0.0])).norm() - 0.5
            if p[1] + 0.5 < d:
                number, d = 0, p[1] + 0.5
            if self.to_torus(p) < d:
                number = 2
        return number

    @qd.func
    def normal(self, p):
        """The direction in which the distance grows."""
        n = qd.Vector([0.0, 0.0, 0.0])
        for k in qd.static(range(3)):
            step = qd.Vector([0.0, 0.0, 0.0])
            step[k] = 0.5 * CLOSE
            n[k] = self.distance(p + step) - self.distance(p - step)
        return n.normalized()

    @qd.func
    def march(self, origin, direction):
        """How far a ray goes until it hits something; `FAR` if it hits nothing."""
        t = 0.0
        d = 1.0
        while t < FAR and d > CLOSE:
            d = self.distance(origin + t * direction)
            t += d
        return t

    @qd.func
    def scatter(self, n):
        """A direction of a diffuse surface: a point on the unit sphere around the normal."""
        z = 2.0 * qd.random() - 1.0
        a = 2.0 * np.pi * qd.random()
        r = qd.sqrt(qd.max(0.0, 1.0 - z * z))
        return (n + 0.999 * qd.Vector([r * qd.cos(a), r * qd.sin(a), z])).normalized()

    @qd.kernel
    def render(self):
        for i, j in self.image:
            total = qd.Vector([0.0, 0.0, 0.0])
            for _sample in range(self.samples):
                u = 1.6 * ((i + qd.random()) / self.size - 0.5)
                v = 1.6 * ((j + qd.random()) / self.size - 0.5)
                origin = qd.Vector([0.0, 0.35, 2.6])
                direction = qd.Vector([u, v - 0.12, -1.5]).normalized()
                throughput = qd.Vector([1.0, 1.0, 1.0])
                bounce = 0
                while bounce <= BOUNCES:
                    t = self.march(origin, direction)
                    if t >= FAR:
                        total += throughput  # the sky has radiance one everywhere
                        break
                    p = origin + t * direction
                    n = self.normal(p)
                    throughput *= self.albedo[self.material(p)]
                    origin = p + 4.0 * CLOSE * n
                    direction = self.scatter(n)
                    bounce += 1
            colour = total / self.samples
            self.image[i, j] = colour
            error = colour - self.photograph[i, j]
            self.loss[None] += error.norm_sqr() / (self.size * self.size)

    def simulate(self, albedo: np.ndarray) -> np.ndarray:
        """The image, of shape (size, size, 3)."""
        self.albedo.from_numpy(np.asarray(albedo))
        self.loss[None] = 0.0
        self.render()
        return self.image.to_numpy()

    def value_and_gradient(self, albedo: np.ndarray) -> tuple[float, np.ndarray]:
        """The mean squared error beside the photograph, and its gradient by the albedos."""
        self.albedo.from_numpy(np.asarray(albedo))
        with qd.ad.Tape(loss=self.loss):
            self.render()
        return self.loss[None], self.albedo.grad.to_numpy()


def fit(scene: Scene, iterations: int) -> tuple[np.ndarray, list[float]]:
    """Albedos from a photograph, by a descent with momentum; and the losses on the way."""
    albedo = np.full_like(TRUTH, 0.5)
    momentum = np.zeros_like(albedo)
    losses = []
    for _ in range(iterations):
        value, gradient = scene.value_and_gradient(albedo)
        momentum = 0.7 * momentum - 0.6 * gradient
        albedo = np.clip(albedo + momentum, 0.02, 0.98)
        losses.append(value)
    return albedo, losses


def workload():
    """The forward run and the gradient that ``bench/examples.py`` times."""
    scene = Scene(96, 8)
    start = np.full_like(TRUTH, 0.5)
    return lambda: scene.simulate(start), lambda: scene.value_and_gradient(start)[1]


def draw(image: np.ndarray, path: str) -> None:
    """The image, with the gamma of screens."""
    from matplotlib.figure import Figure

    axes = (figure := Figure(figsize=(3.2, 3.2), layout="constrained")).subplots()
    axes.imshow(np.clip(image, 0.0, 1.0).transpose(1, 0, 2) ** (1 / 2.2), origin="lower")
    axes.set_axis_off()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Photograph the scene, find the albedos from the photograph, print and draw them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--output", default="sdf-tracer.png", help="the picture")
    options = parser.parse_args()
    qd.init(arch=qd.cpu)
    scene = Scene(160, options.samples)
    photograph = scene.simulate(TRUTH)
    draw(photograph, options.output)
    small = Scene(48, 16)
    small.photograph.from_numpy(small.simulate(TRUTH))
    found, losses = fit(small, 40)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.6f}")
    for name, truth, albedo in zip(("floor", "sphere", "torus"), TRUTH, found, strict=True):
        print(f"{name:>7}: {albedo.round(2)}, photographed with {truth}")


if __name__ == "__main__":
    main()
