"""Fit an epidemic of the SEIR kind to daily case counts, with scipy's L-BFGS-B.

One kernel integrates the four compartments by the classical Runge-Kutta method and sums up the
misfit; its reverse gives scipy the exact gradient. Run it: ``python examples/seir.py``.
"""

from __future__ import annotations

import argparse

import numpy as np

import octants as qd

SUBSTEPS = 4  # Runge-Kutta steps a day
NAMES = ("transmission", "onset", "recovery", "seed")  # rates per day; the seed in persons
TRUTH = np.array([0.45, 1 / 4, 1 / 6, 20.0])
START = np.log([0.6, 0.3, 0.3, 5.0])


@qd.data_oriented
class Epidemic:
    """The model, and the misfit to counts of new cases.

    Args:
        cases: New cases on each day, of shape (days,), in persons.
        population: The number of persons.
    """

    def __init__(self, cases: np.ndarray, population: float = 1e6) -> None:
        self.days = len(cases)
        self.population = population
        self.cases = qd.field(float, shape=self.days)
        self.expected = qd.field(float, shape=self.days)
        self.logarithms = qd.field(float, shape=4, needs_grad=True)
        self.loss = qd.field(float, shape=(), needs_grad=True)
        self.cases.from_numpy(cases)

    @qd.func
    def slope(self, state, transmission, onset, recovery):
        """The change per day of: susceptible, exposed, infectious, and all cases so far."""
        exposed = transmission * state[0] * state[2]
        onsets = onset * state[1]
        return qd.Vector([-exposed, exposed - onsets, onsets - recovery * state[2], onsets])

    @qd.kernel
    def integrate(self):
        for _ in range(1):
            transmission = qd.exp(self.logarithms[0])
            onset = qd.exp(self.logarithms[1])
            recovery = qd.exp(self.logarithms[2])
            seed = qd.exp(self.logarithms[3]) / self.population
            state = qd.Vector([1.0 - seed, seed, 0.0, 0.0])
            h = 1.0 / SUBSTEPS
            for day in range(self.days):
                before = state[3]
                for _step in range(SUBSTEPS):
                    k1 = self.slope(state, transmission, onset, recovery)
                    k2 = self.slope(state + 0.5 * h * k1, transmission, onset, recovery)
                    k3 = self.slope(state + 0.5 * h * k2, transmission, onset, recovery)
                    k4 = self.slope(state + h * k3, transmission, onset, recovery)
                    state += h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
                expected = self.population * (state[3] - before)
                self.expected[day] = expected
                # The square root makes the noise of counts equally large on all days.
                self.loss[None] += (qd.sqrt(expected) - qd.sqrt(self.cases[day])) ** 2

    def simulate(self, logarithms: np.ndarray) -> float:
        """The misfit at the logarithms of the four parameters."""
        self.logarithms.from_numpy(np.asarray(logarithms))
        self.loss[None] = 0.0
        self.integrate()
        return self.loss[None]

    def value_and_gradient(self, logarithms: np.ndarray) -> tuple[float, np.ndarray]:
        """The misfit and its gradient of shape (4,), as scipy wants them."""
        self.logarithms.from_numpy(np.asarray(logarithms))
        with qd.ad.Tape(loss=self.loss):
            self.integrate()
        return self.loss[None], self.logarithms.grad.to_numpy()


def observe(days: int = 160, noise: bool = True) -> np.ndarray:
    """Cases of an epidemic with the parameters `TRUTH`, counted with Poisson noise."""
    model = Epidemic(np.zeros(days))
    model.simulate(np.log(TRUTH))
    exact = model.expected.to_numpy()
    return np.random.default_rng(5).poisson(exact).astype(float) if noise else exact


def fit(cases: np.ndarray) -> tuple[np.ndarray, Epidemic]:
    """The parameters that explain the counts, and the model at these."""
    from scipy.optimize import minimize

    model = Epidemic(cases)
    bounds = np.log([(0.05, 2.0), (0.05, 2.0), (0.05, 2.0), (0.1, 1e4)])
    options = {"ftol": 1e-14, "maxiter": 1000}
    function = model.value_and_gradient
    found = minimize(function, START, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    model.simulate(found.x)
    return np.exp(found.x), model


def workload():
    """The forward run and the gradient that ``bench/examples.py`` times."""
    model = Epidemic(observe(400))
    return lambda: model.simulate(START), lambda: model.value_and_gradient(START)[1]


def draw(cases: np.ndarray, model: Epidemic, path: str) -> None:
    """The counts and the fitted curve."""
    from matplotlib.figure import Figure

    axes = (figure := Figure(figsize=(6, 3.2), layout="constrained")).subplots()
    axes.bar(np.arange(len(cases)), cases, color="#b8cbe0", width=1.0, label="counted")
    axes.plot(model.expected.to_numpy(), color="#b3311d", label="fitted")
    axes.set(xlabel="day", ylabel="new cases")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Make counts, fit the model to them, print and draw what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", default="seir.png", help="the picture")
    options = parser.parse_args()
    qd.init(arch=qd.cpu, default_fp=qd.f64)
    cases = observe()
    parameters, model = fit(cases)
    for name, truth, found in zip(NAMES, TRUTH, parameters, strict=True):
        print(f"{name:>12}: {found:8.4f}  (made with {truth:.4f})")
    draw(cases, model, options.output)


if __name__ == "__main__":
    main()
