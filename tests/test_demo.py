"""The demo against numpy: its simulator, gradient and fit, and the command as a user runs it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import octants as qd
from octants.demos.lynx_hare import fit as fitting
from octants.demos.lynx_hare.pelts import read_pelts
from octants.demos.lynx_hare.simulator import simulate
from octants.tools.command_line import main
from octants.types.scalars import DType

pytest.importorskip("matplotlib")
pytest.importorskip("rich")

# The least squares fit, by scipy's solve_ivp at a tolerance of 1e-10 and least_squares.
LEAST_SQUARES = np.log([0.5402, 0.02717, 0.7964, 0.02369, 34.60, 5.844])
LEAST_LOSS = 2.01866
PELTS = read_pelts()


def reference_losses(parameters: np.ndarray, counts: np.ndarray, substeps: int = 40) -> np.ndarray:
    """The losses by the classical Runge-Kutta method with fixed steps, in numpy."""
    alpha, beta, gamma, delta = np.exp(parameters[:, :4]).T
    state = parameters[:, 4:].T.copy()
    observed = np.log(counts)

    def slope(state: np.ndarray) -> np.ndarray:
        return np.stack([alpha - beta * np.exp(state[1]), delta * np.exp(state[0]) - gamma])

    step = 1.0 / substeps
    losses = ((state.T - observed[:, 0]) ** 2).sum(axis=1)
    for year in range(1, observed.shape[1]):
        for _ in range(substeps):
            k1 = slope(state)
            k2 = slope(state + 0.5 * step * k1)
            k3 = slope(state + 0.5 * step * k2)
            k4 = slope(state + step * k3)
            state += step / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        losses += ((state.T - observed[:, year]) ** 2).sum(axis=1)
    return losses


def near_the_fit(runs: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    parameters = LEAST_SQUARES + 0.1 * generator.standard_normal((runs, 6))
    return parameters, fitting.noisy_counts(PELTS.count, 0.2, runs, generator)


@pytest.fixture
def objective() -> fitting.Objective:
    qd.init(arch=qd.cpu, default_fp=qd.f64)
    return fitting.Objective(PELTS, 8, qd.f64)


def test_losses_are_those_of_fixed_steps(objective: fitting.Objective) -> None:
    parameters, counts = near_the_fit(8)
    objective.observe(counts)
    losses, _ = objective(parameters)
    np.testing.assert_allclose(losses, reference_losses(parameters, counts), rtol=3e-3)


def test_gradient_is_that_of_the_simulator_itself(objective: fitting.Objective) -> None:
    """The exact derivative, steps and their rejections included: central differences see it all."""
    parameters, counts = near_the_fit(8)
    objective.observe(counts)
    _, gradient = objective(parameters)
    for k in range(6):
        shift = 1e-6 * np.eye(6)[k]
        above, below = (objective(parameters + sign * shift)[0] for sign in (1.0, -1.0))
        np.testing.assert_allclose(gradient[:, k], (above - below) / 2e-6, rtol=1e-5, atol=1e-5)


def test_gradient_is_that_of_the_equation(objective: fitting.Objective) -> None:
    parameters, counts = near_the_fit(8)
    objective.observe(counts)
    _, gradient = objective(parameters)
    for k in range(6):
        shift = 1e-5 * np.eye(6)[k]
        above, below = (reference_losses(parameters + sign * shift, counts) for sign in (1.0, -1.0))
        expected = (above - below) / 2e-5
        np.testing.assert_allclose(gradient[:, k], expected, atol=2e-2 * np.abs(gradient).max())


def test_steps_are_rejected_and_bounded(objective: fitting.Objective) -> None:
    """The adaptive method does what it is for: fewer steps, and an end where it finds none."""
    parameters, counts = near_the_fit(8)
    objective.observe(counts)
    complete, _ = objective(parameters)
    arrays = (objective.parameters, objective.times, objective.observed, objective.loss)
    simulate(*arrays, fitting.TOLERANCE, 20)
    partial = objective.loss.to_numpy()
    assert np.all(partial < complete)
    assert np.all(partial > 0)


@pytest.mark.parametrize("wild", [-20.0, 5.0, 40.0])
def test_wild_parameters_give_numbers(objective: fitting.Objective, wild: float) -> None:
    objective.observe(PELTS.count)
    losses, gradient = objective(np.full((8, 6), wild))
    assert np.all(np.isfinite(losses))
    assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize("dtype", [qd.f32, qd.f64], ids=str)
def test_fit_finds_the_least_squares(dtype: DType) -> None:
    qd.init(arch=qd.cpu, default_fp=dtype)
    found = fitting.fit(PELTS, 64, 150, dtype, 1, (lambda _: None, lambda _: None))
    np.testing.assert_allclose(found.best, LEAST_SQUARES, atol=5e-3)
    assert found.search.loss.min() == pytest.approx(LEAST_LOSS, rel=2e-3)
    assert found.good.sum() > 16
    relative = found.deviation / np.exp(found.best)
    assert np.all(relative > 0.02)
    assert np.all(relative < 0.25)


def test_command_prints_the_table_and_writes_the_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "picture.png"
    small = ["--restarts", "32", "--steps", "120", "--output", str(picture), "--threads", "2"]
    assert main(["demo", "lynx-hare", *small]) == 0
    output = capsys.readouterr().out
    for name, value in zip(("alpha", "beta", "gamma", "delta"), LEAST_SQUARES, strict=False):
        (row,) = (line for line in output.splitlines() if f" {name} " in line)
        printed, spread = re.findall(r"[\d.]+", row)[:2]
        assert float(printed) == pytest.approx(np.exp(value), rel=0.01)
        assert 0.02 < float(spread) / float(printed) < 0.3
    for word in (
        "Carpenter",
        "0.55",
        "0.028",
        "of 32 restarts",
        "% in kernels",
        str(picture),
        "--restarts 4096",
    ):
        assert word in output
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_missing_folder_is_noticed_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "lynx-hare", "--output", "/no/such/folder/a.png"]) == 1
    assert "/no/such/folder" in capsys.readouterr().err


def test_seed_decides_the_numbers() -> None:
    qd.init(arch=qd.cpu, default_fp=qd.f64)

    def run(seed: int) -> np.ndarray:
        return fitting.fit(PELTS, 8, 20, qd.f64, seed, (print, print)).search.history

    np.testing.assert_array_equal(run(5), run(5))
    assert not np.array_equal(run(5), run(6))
