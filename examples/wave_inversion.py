"""Find what lies between two boreholes from a few shots: 2-D acoustic wave inversion.

A launch makes one time step of the wave equation; the tape remembers the launches, and its reverse
run is the adjoint wave field. scipy's L-BFGS-B changes the speed of sound in each cell until the
simulated recordings are the measured ones. Run it: ``python examples/wave_inversion.py``.
"""

from __future__ import annotations

import argparse

import numpy as np

import octants as qd

DT = 1.0  # in units in which a cell is as wide as sound goes at speed 1


@qd.data_oriented
class Survey:
    """Shots in one borehole, and receivers in the other.

    Args:
        size: Cells along each side of the ground.
        steps: Time steps of a shot.
        sources: Depths of the shots, in cells.
    """

    def __init__(self, size: int, steps: int, sources: tuple[int, ...]) -> None:
        self.size, self.steps, self.shots = size, steps, len(sources)
        self.near, self.far = 10, size - 11  # columns of shots and receivers
        self.speed = qd.field(float, shape=(size, size), needs_grad=True)
        self.wave = qd.field(float, shape=(steps, len(sources), size, size), needs_grad=True)
        self.record = qd.field(float, shape=(steps, len(sources), size))
        self.loss = qd.field(float, shape=(), needs_grad=True)
        self.source = qd.field(int, shape=len(sources))
        self.source.from_numpy(np.array(sources, np.int32))

    @qd.func
    def pulse(self, t):
        """Ricker's wavelet."""
        a = (0.18 * (t - 14.0)) ** 2
        return (1.0 - 2.0 * a) * qd.exp(-a)

    @qd.kernel
    def advance(self, t: int):
        for s, i, j in qd.ndrange(self.shots, (1, self.size - 1), (1, self.size - 1)):
            u = self.wave[t - 1, s, i, j]
            around = (
                self.wave[t - 1, s, i - 1, j]
                + self.wave[t - 1, s, i + 1, j]
                + self.wave[t - 1, s, i, j - 1]
                + self.wave[t - 1, s, i, j + 1]
            )
            c = self.speed[i, j] * DT
            following = 2.0 * u - self.wave[t - 2, s, i, j] + c * c * (around - 4.0 * u)
            if i == self.source[s] and j == self.near:
                following += self.pulse(float(t))
            # A sponge along the sides keeps waves from coming back.
            edge = qd.min(qd.min(i, self.size - 1 - i), qd.min(j, self.size - 1 - j))
            if edge < 8:
                following *= 1.0 - 0.015 * (8 - edge)
            self.wave[t, s, i, j] = following

    @qd.kernel
    def misfit(self):
        for t, s, i in self.record:
            error = self.wave[t, s, i, self.far] - self.record[t, s, i]
            self.loss[None] += 0.5 * error * error

    def simulate(self, speed: np.ndarray) -> np.ndarray:
        """The recordings at the receivers, of shape (steps, shots, size)."""
        self.speed.from_numpy(speed)
        self.loss[None] = 0.0
        for t in range(2, self.steps):
            self.advance(t)
        self.misfit()
        return self.wave.to_numpy()[:, :, :, self.far]

    def value_and_gradient(self, speed: np.ndarray) -> tuple[float, np.ndarray]:
        """The misfit of the recordings, and its gradient of the shape of `speed`."""
        self.speed.from_numpy(speed)
        with qd.ad.Tape(loss=self.loss):
            for t in range(2, self.steps):
                self.advance(t)
            self.misfit()
        return self.loss[None], self.speed.grad.to_numpy()


def ground(size: int) -> np.ndarray:
    """A ground whose sound is slower in a lens, of shape (size, size)."""
    i, j = np.mgrid[:size, :size] / size
    lens = np.exp(-(((i - 0.45) / 0.14) ** 2) - ((j - 0.5) / 0.10) ** 2)
    return 0.5 - 0.12 * lens


def invert(survey: Survey, truth: np.ndarray, iterations: int) -> tuple[np.ndarray, list[float]]:
    """The speed of sound that explains the recordings, and the misfits on the way."""
    from scipy.optimize import minimize

    survey.record.from_numpy(survey.simulate(truth))
    misfits: list[float] = []

    def function(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = survey.value_and_gradient(flat.reshape(truth.shape))
        gradient[:, : survey.near + 4] = 0.0  # the ground at the boreholes is known
        gradient[:, survey.far - 3 :] = 0.0
        misfits.append(value)
        return value, gradient.ravel().astype(float)

    start = np.full(truth.size, 0.5)
    options = {"maxiter": iterations}
    bounds = [(0.3, 0.65)] * truth.size
    found = minimize(function, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return found.x.reshape(truth.shape), misfits


def workload():
    """The forward run and the gradient that ``bench/examples.py`` times."""
    survey = Survey(96, 240, (24, 48, 72))
    truth = ground(96)
    survey.record.from_numpy(survey.simulate(truth))
    start = np.full((96, 96), 0.5)
    return lambda: survey.simulate(start), lambda: survey.value_and_gradient(start)[1]


def draw(truth: np.ndarray, found: np.ndarray, survey: Survey, path: str) -> None:
    """The wave, the true ground, and the one that was found."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 2.6), layout="constrained")
    axes = figure.subplots(1, 3)
    wave = survey.wave.to_numpy()[survey.steps // 2, survey.shots // 2]
    span = 0.3 * abs(wave).max()
    axes[0].imshow(wave.T, cmap="RdBu", vmin=-span, vmax=span)
    for axis, picture in zip(axes[1:], (truth, found), strict=True):
        axis.imshow(picture.T, cmap="viridis", vmin=truth.min(), vmax=0.52)
    for axis, title in zip(axes, ("a shot", "true speed", "found"), strict=True):
        axis.set(title=title, xticks=[], yticks=[])
    figure.savefig(path, dpi=110)


def main() -> None:
    """Make recordings, find the ground from them, draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=72)
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--output", default="wave-inversion.png", help="the picture")
    options = parser.parse_args()
    qd.init(arch=qd.cpu)
    size = options.size
    survey = Survey(size, 3 * size, tuple(int(size * k / 6) for k in range(1, 6)))
    truth = ground(size)
    found, misfits = invert(survey, truth, options.iterations)
    print(f"misfit {misfits[0]:.3f} -> {misfits[-1]:.5f} in {len(misfits)} gradients")
    likeness = np.corrcoef((found - 0.5).ravel(), (truth - 0.5).ravel())[0, 1]
    print(f"correlation of what was found with the lens: {likeness:.2f}")
    draw(truth, found, survey, options.output)


if __name__ == "__main__":
    main()
