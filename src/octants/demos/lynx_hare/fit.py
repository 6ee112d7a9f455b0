"""The fit: thousands of descents at once, each from a start of its own, or to data of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import octants as qd
from octants.demos.lynx_hare.pelts import Pelts
from octants.demos.lynx_hare.simulator import PARAMETERS, simulate, trace
from octants.types.scalars import DType

Array = npt.NDArray[np.float64]
Progress = Callable[[float], None]  # takes the least loss so far, after every step

# Where the starts are drawn from, evenly in the logarithm; in the order of `PARAMETERS`.
LEAST = np.array([0.1, 0.005, 0.1, 0.005, 5.0, 1.0])
GREATEST = np.array([2.0, 0.2, 2.0, 0.2, 100.0, 30.0])

TOLERANCE = 1e-4  # of a step, in log population
MOST_STEPS = 1000
LONGEST_GRADIENT = 10.0
RATE = 0.1  # of the first step, in the logarithm of a parameter
GOOD = 1.01
STEPS_PER_YEAR = 40  # of the method with equal steps
UNREACHED = 1e3  # the loss of a run that is not a number


class Objective:
    """The losses of many parameter sets at once, and their gradients by the kernel's reverse."""

    def __init__(self, pelts: Pelts, runs: int, dtype: DType) -> None:
        years = len(pelts.year)
        self.parameters = qd.ndarray(dtype, (runs, len(PARAMETERS)), needs_grad=True)
        self.times = qd.ndarray(dtype, (years,))
        self.observed = qd.ndarray(dtype, (runs, years, 2))
        self.loss = qd.ndarray(dtype, (runs,), needs_grad=True)
        self.times.from_numpy((pelts.year - pelts.year[0]).astype(dtype.numpy))
        self.kernel_seconds = 0.0
        self._numpy = dtype.numpy

    def observe(self, counts: Array) -> None:
        """Give all runs the same counts (years, 2), or each its own (runs, years, 2)."""
        logarithms = np.broadcast_to(np.log(counts), self.observed.shape)
        self.observed.from_numpy(np.ascontiguousarray(logarithms, self._numpy))

    def __call__(self, parameters: Array) -> tuple[Array, Array]:
        """The losses (runs,) and their gradients (runs, 6) at log parameters (runs, 6)."""
        self.parameters.from_numpy(np.ascontiguousarray(parameters, self._numpy))
        self.parameters.grad.fill(0.0)
        self.loss.grad.fill(1.0)
        arrays = (self.parameters, self.times, self.observed, self.loss)
        start = time.perf_counter()
        simulate(*arrays, TOLERANCE, MOST_STEPS)
        simulate.grad(*arrays, TOLERANCE, MOST_STEPS)
        qd.sync()
        self.kernel_seconds += time.perf_counter() - start
        losses = self.loss.to_numpy().astype(np.float64)
        return losses, self.parameters.grad.to_numpy().astype(np.float64)


@dataclass(frozen=True)
class Descent:
    """The result of a descent: the best parameters of each run, their losses, and all losses."""

    parameters: Array  # (runs, 6), logarithms
    loss: Array  # (runs,)
    history: Array  # (steps, runs)


def descend(objective: Objective, start: Array, steps: int, progress: Progress) -> Descent:
    """Adam (Kingma and Ba 2015), for all runs side by side, with a rate that falls to zero.

    Gradients are cut to a length, since a start in the wilds has gradients in the thousands.
    """
    parameters = start.copy()
    best, best_loss = start.copy(), np.full(len(start), np.inf)
    mean, square = np.zeros_like(start), np.zeros_like(start)
    history = np.empty((steps, len(start)))
    for step in range(1, steps + 1):
        loss, gradient = objective(parameters)
        loss = np.where(np.isfinite(loss), loss, UNREACHED)
        history[step - 1] = loss
        better = loss < best_loss
        best[better], best_loss[better] = parameters[better], loss[better]
        gradient = shorten(gradient)
        mean += 0.1 * (gradient - mean)
        square += 0.01 * (gradient * gradient - square)
        direction = mean / (1 - 0.9**step) / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)
        parameters -= RATE * 0.5 * (1 + np.cos(np.pi * step / steps)) * direction
        progress(float(best_loss.min()))
    return Descent(best, best_loss, history)


def shorten(gradient: Array) -> Array:
    """Each row, cut to `LONGEST_GRADIENT`; zero where it is not a number."""
    gradient = np.where(np.isfinite(gradient), gradient, 0.0)
    length = np.linalg.norm(gradient, axis=1, keepdims=True)
    shortened: Array = gradient * np.minimum(1.0, LONGEST_GRADIENT / np.maximum(length, 1e-30))
    return shortened


def random_starts(runs: int, generator: np.random.Generator) -> Array:
    """Log parameters, spread evenly over what could be."""
    low, high = np.log(LEAST), np.log(GREATEST)
    starts: Array = low + (high - low) * generator.random((runs, len(low)))
    return starts


def noisy_counts(fitted: Array, noise: float, runs: int, generator: np.random.Generator) -> Array:
    """Counts as they could have been, (runs, years, 2): the fitted ones with log-normal noise.

    Fits to such counts scatter as the estimate does: the parametric bootstrap (Efron 1979, Annals
    of Statistics 7).
    """
    counts: Array = fitted * np.exp(noise * generator.standard_normal((runs, *fitted.shape)))
    return counts


@dataclass(frozen=True)
class Fit:
    """The result: all descents, which of them found the best fit, and how far it may vary."""

    search: Descent
    good: npt.NDArray[np.bool_]  # (runs,): whose loss is the least one, within `GOOD`
    spread: Descent  # of the good runs, each to noisy counts of its own
    noise: float  # the standard deviation of the log residuals
    kernel_seconds: float

    @property
    def best(self) -> Array:
        """The log parameters of the least loss: (6,)."""
        best: Array = self.search.parameters[int(np.argmin(self.search.loss))]
        return best

    @property
    def deviation(self) -> Array:
        """The standard deviations of the parameters, not of their logarithms: (6,)."""
        deviation: Array = np.exp(self.spread.parameters).std(axis=0)
        return deviation


def fit(
    pelts: Pelts,
    runs: int,
    steps: int,
    dtype: DType,
    seed: int,
    progress: tuple[Progress, Progress],
) -> Fit:
    """Search the best fit from random starts; then the good runs measure how far it may vary.

    Both take ``steps`` steps, and report each to ``progress``.
    """
    generator = np.random.default_rng(seed)
    objective = Objective(pelts, runs, dtype)
    objective.observe(pelts.count)
    search = descend(objective, random_starts(runs, generator), steps, progress[0])
    good = search.loss <= GOOD * search.loss.min()
    start = search.parameters[good]
    noise = float(np.sqrt(search.loss.min() / (pelts.count.size - len(PARAMETERS))))
    resampled = Objective(pelts, len(start), dtype)
    best = search.parameters[np.argmin(search.loss)]
    fitted = populations(best[None], pelts, len(pelts.year), dtype)[0]
    resampled.observe(noisy_counts(fitted, noise, len(start), generator))
    spread = descend(resampled, start, steps, progress[1])
    return Fit(search, good, spread, noise, objective.kernel_seconds + resampled.kernel_seconds)


def populations(parameters: Array, pelts: Pelts, points: int, dtype: DType) -> Array:
    """Populations in thousands at evenly spaced times: (runs, points, 2)."""
    states = np.zeros((len(parameters), points, 2), dtype.numpy)
    years = float(pelts.year[-1] - pelts.year[0])
    substeps = 1 + int(STEPS_PER_YEAR * years / (points - 1))
    trace(np.ascontiguousarray(parameters, dtype.numpy), states, years, substeps)
    qd.sync()
    result: Array = np.exp(states.astype(np.float64))
    return result
