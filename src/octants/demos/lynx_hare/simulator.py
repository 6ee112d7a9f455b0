"""The simulator: Lotka-Volterra by an adaptive Runge-Kutta method, one work item per trajectory.

With hares u and lynxes v, ``u' = (alpha - beta v) u`` and ``v' = (delta u - gamma) v``. The state
here is (log u, log v): it cannot become negative, and the residuals are differences of states.

The method is Bogacki and Shampine's pair of orders 3 and 2 (Applied Mathematics Letters 2, 1989)
with a step size that follows the estimated error; between the ends of a step the solution is the
cubic Hermite polynomial through states and slopes.
"""
# What follows is the language of kernels, which a type checker of Python cannot read.
# mypy: ignore-errors

from __future__ import annotations

import octants as qd

PARAMETERS = ("alpha", "beta", "gamma", "delta", "hares in 1900", "lynxes in 1900")

LARGEST_LOG = 16.0  # a population beyond any data; keeps exp finite on wild parameters
SAFETY = 0.9
LEAST_FACTOR, GREATEST_FACTOR = 0.2, 5.0


@qd.func
def slope_of(state, rates):
    """The time derivative of (log hares, log lynxes)."""
    hares = qd.exp(qd.min(state[0], LARGEST_LOG))
    lynxes = qd.exp(qd.min(state[1], LARGEST_LOG))
    return qd.Vector([rates[0] - rates[1] * lynxes, rates[3] * hares - rates[2]])


@qd.func
def hermite(s, step, state, slope, next_state, next_slope):
    """The cubic between two states, at the fraction s of the step."""
    r = 1.0 - s
    return r * r * ((1.0 + 2.0 * s) * state + s * step * slope) + s * s * (
        (3.0 - 2.0 * s) * next_state - r * step * next_slope
    )


@qd.func
def step_factor(error):
    """By how much the next step is longer than this one, whose error was ``error`` tolerances."""
    factor = LEAST_FACTOR
    if error < 1e6:
        factor = SAFETY * qd.max(error, 1e-4) ** (-1.0 / 3.0)
    return qd.max(LEAST_FACTOR, qd.min(factor, GREATEST_FACTOR))


@qd.kernel
def simulate(
    parameters: qd.types.ndarray(ndim=2),
    times: qd.types.ndarray(ndim=1),
    observed: qd.types.ndarray(ndim=3),
    loss: qd.types.ndarray(ndim=1),
    tolerance: float,
    most_steps: int,
):
    """Sum the squares of log(simulated) - log(observed), for every row of parameters.

    parameters: (runs, 6), the logarithms of `PARAMETERS`; times: (n,) in years, ascending from 0;
    observed: (runs, n, 2), logarithms; loss: (runs,). A run that needs more than ``most_steps``
    steps counts the years that it reached.
    """
    for run in range(loss.shape[0]):
        rates = qd.Vector([qd.exp(parameters[run, k]) for k in qd.static(range(4))])
        state = qd.Vector([parameters[run, 4], parameters[run, 5]])
        slope = slope_of(state, rates)
        time, step, total = 0.0, 0.1, 0.0
        year, steps = 0, 0
        while year < times.shape[0] and steps < most_steps:
            steps += 1
            slope_2 = slope_of(state + step * 0.5 * slope, rates)
            slope_3 = slope_of(state + step * 0.75 * slope_2, rates)
            next_state = state + step / 9.0 * (2.0 * slope + 3.0 * slope_2 + 4.0 * slope_3)
            next_slope = slope_of(next_state, rates)
            difference = 6.0 * slope_2 + 8.0 * slope_3 - 5.0 * slope - 9.0 * next_slope
            error = (step / 72.0 * difference).norm() / tolerance
            accepted = error <= 1.0
            next_step = step * step_factor(error)
            if accepted:
                while year < times.shape[0] and times[year] <= time + step:
                    s = (times[year] - time) / step
                    here = hermite(s, step, state, slope, next_state, next_slope)
                    for species in qd.static(range(2)):
                        residual = here[species] - observed[run, year, species]
                        total += residual * residual
                    year += 1
                time += step
                state = next_state
                slope = next_slope
            step = next_step
        loss[run] = total


@qd.kernel
def trace(
    parameters: qd.types.ndarray(ndim=2),
    states: qd.types.ndarray(ndim=3),
    years: float,
    substeps: int,
):
    """Write the trajectories, for pictures: states (runs, points, 2), logarithms.

    The classical Runge-Kutta method with ``substeps`` equal steps from one point to the next.
    """
    for run in range(states.shape[0]):
        rates = qd.Vector([qd.exp(parameters[run, k]) for k in qd.static(range(4))])
        state = qd.Vector([parameters[run, 4], parameters[run, 5]])
        step = years / ((states.shape[1] - 1) * substeps)
        for point in range(states.shape[1]):
            states[run, point, 0] = state[0]
            states[run, point, 1] = state[1]
            for _ in range(substeps):
                slope = slope_of(state, rates)
                slope_2 = slope_of(state + 0.5 * step * slope, rates)
                slope_3 = slope_of(state + 0.5 * step * slope_2, rates)
                slope_4 = slope_of(state + step * slope_3, rates)
                state += step / 6.0 * (slope + 2.0 * (slope_2 + slope_3) + slope_4)
