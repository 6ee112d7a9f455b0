"""The programs of examples/ against known answers, conserved quantities, and independent code."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import octants as qd
from tests.devices import on_cpu

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = on_cpu


def load(name: str) -> ModuleType:
    """An example as a module, imported again for each test."""
    spec = importlib.util.spec_from_file_location(f"examples.{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def f64() -> Iterator[None]:
    qd.init(arch=qd.cpu, default_fp=qd.f64, random_seed=1)
    yield
    for name in [name for name in sys.modules if name.startswith("examples.")]:
        del sys.modules[name]


def difference(function: Callable[[np.ndarray], float], at: np.ndarray, step: float) -> np.ndarray:
    """Central differences of a function of an array."""
    result = np.zeros_like(at)
    for index in np.ndindex(at.shape):
        change = np.zeros_like(at)
        change[index] = step
        result[index] = (function(at + change) - function(at - change)) / (2 * step)
    return result


def test_seir_finds_the_rates_of_exact_counts() -> None:
    pytest.importorskip("scipy")
    seir = load("seir")
    found, _ = seir.fit(seir.observe(noise=False))
    np.testing.assert_allclose(found, seir.TRUTH, rtol=1e-5)


def test_seir_gradient() -> None:
    seir = load("seir")
    model = seir.Epidemic(seir.observe(60))
    value, gradient = model.value_and_gradient(seir.START)
    assert value == model.simulate(seir.START)
    np.testing.assert_allclose(gradient, difference(model.simulate, seir.START, 1e-5), rtol=1e-6)


def test_seir_integrates_as_numpy_does() -> None:
    seir = load("seir")
    beta, sigma, gamma, seed = seir.TRUTH
    state, day, days = np.array([1 - seed / 1e6, seed / 1e6, 0.0, 0.0]), [], 40

    def slope(s: np.ndarray) -> np.ndarray:
        return np.array(
            [
                -beta * s[0] * s[2],
                beta * s[0] * s[2] - sigma * s[1],
                sigma * s[1] - gamma * s[2],
                sigma * s[1],
            ]
        )

    h = 1 / 50  # much finer than the kernel's steps
    for _ in range(days):
        before = state[3]
        for _ in range(50):
            k1 = slope(state)
            k2 = slope(state + h / 2 * k1)
            k3 = slope(state + h / 2 * k2)
            k4 = slope(state + h * k3)
            state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        day.append(1e6 * (state[3] - before))
    np.testing.assert_allclose(seir.observe(days, noise=False), day, rtol=1e-4)


def test_billiard_head_on_hits_pass_the_speed_on() -> None:
    billiard = load("billiard")
    table = billiard.Billiard(1)
    table.start.from_numpy(np.array([[0.3, 0.5], [0.8, 0.5], [1.2, 0.5], [1.6, 0.5]]))
    table.simulate(np.zeros(1), 0.8)
    # Three hits pass on the speed, each of them a diameter before the centres meet.
    last = 1.6 + billiard.SPEED * 0.8 - (1.3 - 3 * 2 * billiard.RADIUS)
    np.testing.assert_allclose(table.last.to_numpy()[0, :, 0], [0.7, 1.1, 1.5, last], atol=1e-12)
    np.testing.assert_allclose(
        table.velocity.to_numpy()[0, :, 0], [0, 0, 0, billiard.SPEED], atol=1e-12
    )


def test_billiard_keeps_energy_and_has_the_gradient_of_its_events() -> None:
    billiard = load("billiard")
    table = billiard.Billiard(24)
    angle = np.linspace(-0.2, 0.2, 24)
    table.simulate(angle)
    energy = (table.velocity.to_numpy() ** 2).sum((1, 2))
    np.testing.assert_allclose(energy, billiard.SPEED**2, rtol=1e-12)
    assert table.events.to_numpy().max() >= 5
    gradient = table.gradient(angle)
    step = 1e-8
    high = table.simulate(angle + step) ** 2
    events = table.events.to_numpy()
    low = table.simulate(angle - step) ** 2
    same = events == table.events.to_numpy()  # a difference says nothing across another event
    assert same.sum() >= 20
    slope = (high - low) / (2 * step)
    np.testing.assert_allclose(gradient[same], slope[same], rtol=2e-4, atol=1e-4)


def test_lattice_boltzmann_has_the_flux_of_poiseuille() -> None:
    lattice = load("lattice_boltzmann")
    channel = lattice.Channel(2, 12)
    derivative = channel.gradient(0.9, 1500, slots=20)
    flux = channel.flux[None]
    exact, exact_derivative = lattice.poiseuille(0.9, 12)
    assert flux == pytest.approx(exact, rel=0.01)
    assert derivative == pytest.approx(exact_derivative, rel=0.03)
    step = 1e-5
    slope = (channel.simulate(0.9 + step, 1500) - channel.simulate(0.9 - step, 1500)) / (2 * step)
    assert derivative == pytest.approx(slope, rel=1e-6)


def test_lattice_boltzmann_keeps_mass_around_an_obstacle() -> None:
    lattice = load("lattice_boltzmann")
    channel = lattice.Channel(30, 20, obstacle=4.0)
    channel.simulate(0.7, 0)
    fluid = channel.solid.to_numpy() == 0
    before = channel.f.to_numpy()[:, fluid].sum()
    channel.simulate(0.7, 40)
    assert channel.f.to_numpy()[:, fluid].sum() == pytest.approx(before, rel=1e-12)


def test_wave_inversion_is_the_wave_equation_and_has_its_gradient() -> None:
    wave = load("wave_inversion")
    size, steps = 32, 50
    survey = wave.Survey(size, steps, (12, 20))
    truth = wave.ground(size)
    u = np.zeros((steps, 2, size, size))
    i, j = np.mgrid[:size, :size]
    edge = np.minimum(np.minimum(i, size - 1 - i), np.minimum(j, size - 1 - j))
    sponge = np.where(edge < 8, 1 - 0.015 * (8 - edge), 1.0)[1:-1, 1:-1]
    for t in range(2, steps):
        for shot, row in enumerate((12, 20)):
            old = u[t - 1, shot]
            laplacian = old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:]
            laplacian -= 4 * old[1:-1, 1:-1]
            new = 2 * old[1:-1, 1:-1] - u[t - 2, shot, 1:-1, 1:-1]
            new += truth[1:-1, 1:-1] ** 2 * laplacian
            a = (0.18 * (t - 14.0)) ** 2
            new[row - 1, survey.near - 1] += (1 - 2 * a) * np.exp(-a)
            u[t, shot, 1:-1, 1:-1] = new * sponge
    record = survey.simulate(truth)
    np.testing.assert_allclose(record, u[..., survey.far], rtol=1e-9, atol=1e-14)

    survey.record.from_numpy(record)
    start = np.full((size, size), 0.5)
    _, gradient = survey.value_and_gradient(start)

    def misfit(speed: np.ndarray) -> float:
        survey.simulate(speed)
        return survey.loss[None]

    direction = np.random.default_rng(0).standard_normal((size, size))
    step = 1e-5
    slope = (misfit(start + step * direction) - misfit(start - step * direction)) / (2 * step)
    assert (gradient * direction).sum() == pytest.approx(slope, rel=1e-6)


def test_ode_jax_integrates_and_differentiates_as_numpy_does() -> None:
    ode = load("ode_jax")
    pendulums = ode.Pendulums(3)
    start = np.array([[0.3, 0.0], [-1.0, 0.5], [2.0, 0.1]])
    parameters = np.array([0.2, 0.3])
    state, h = start.T.copy(), ode.DT / 8

    def slope(s: np.ndarray, t: float) -> np.ndarray:
        return np.stack([s[1], -np.sin(s[0]) - 0.2 * s[1] + 0.3 * np.cos(0.9 * t)])

    for step in range(8 * ode.STEPS):
        t = step * h
        k1 = slope(state, t)
        k2 = slope(state + h / 2 * k1, t + h / 2)
        k3 = slope(state + h / 2 * k2, t + h / 2)
        k4 = slope(state + h * k3, t + h)
        state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    np.testing.assert_allclose(pendulums.forward(start, parameters), state.T, rtol=1e-6)

    adjoint = np.random.default_rng(1).standard_normal((3, 2))
    by_start, by_parameters = pendulums.backward(start, parameters, adjoint)

    def along(values: np.ndarray) -> float:
        return float((pendulums.forward(start, values) * adjoint).sum())

    np.testing.assert_allclose(by_parameters, difference(along, parameters, 1e-6), rtol=1e-6)

    def along_start(values: np.ndarray) -> float:
        return float((pendulums.forward(values, parameters) * adjoint).sum())

    np.testing.assert_allclose(by_start, difference(along_start, start, 1e-6), rtol=1e-6)


def test_ode_jax_fits_inside_jax() -> None:
    pytest.importorskip("jax")
    truth, found, losses = load("ode_jax").fit(16, 150)
    np.testing.assert_allclose(found, truth, atol=1e-4)
    assert losses[-1] < 1e-6 * losses[0]


def test_neural_field_has_the_gradient_of_torch() -> None:
    torch = pytest.importorskip("torch")
    neural = load("neural_field")
    qd.init(arch=qd.cpu)
    field = neural.Field(neural.picture(12))
    loss = field.forward()
    field.backward()

    place = (torch.arange(12) + 0.5) / 12
    k = torch.arange(1, neural.FREQUENCIES + 1) * np.pi
    a, b = place[:, None, None] * k, place[None, :, None] * k
    a, b = a.expand(12, 12, -1), b.expand(12, 12, -1)
    features = torch.stack([a.sin(), a.cos(), b.sin(), b.cos()], -1).reshape(12, 12, -1)
    copies = [w.detach().clone().requires_grad_() for w in field.weights]
    hidden = torch.sin(features @ copies[0].T + copies[1])
    expected = ((hidden @ copies[2].T - field.target) ** 2).sum() / 144
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    for weight, copy in zip(field.weights, copies, strict=True):
        torch.testing.assert_close(weight.grad, copy.grad, rtol=1e-4, atol=1e-5)


def test_neural_field_learns() -> None:
    pytest.importorskip("torch")
    neural = load("neural_field")
    qd.init(arch=qd.cpu)
    losses = neural.train(neural.Field(neural.picture(16)), 60)
    assert losses[-1] < 0.05 * losses[0]


def test_sdf_tracer_of_one_ball_is_linear_in_its_albedo() -> None:
    tracer = load("sdf_tracer")
    white, grey = np.ones((3, 3)), np.full((3, 3), 0.25)
    # Under a sky of radiance one everywhere a ball, which never sees itself, shows its albedo.
    scene = tracer.Scene(12, 4, objects=False)
    np.testing.assert_allclose(scene.simulate(white), 1.0, rtol=1e-12)
    hit = (1.0 - scene.simulate(grey)) / 0.75
    quarters = np.round(4 * hit) / 4
    np.testing.assert_allclose(hit, quarters, atol=1e-12)
    assert 0.1 < hit.mean() < 0.6


def test_sdf_tracer_gradient() -> None:
    tracer = load("sdf_tracer")
    generator = np.random.default_rng(0)
    albedo, direction = generator.uniform(0.3, 0.8, (3, 3)), generator.standard_normal((3, 3))

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        qd.init(arch=qd.cpu, default_fp=qd.f64, random_seed=5)  # the same draws each time
        return tracer.Scene(10, 4).value_and_gradient(values)

    gradient = loss(albedo)[1]
    step = 1e-5
    high, low = loss(albedo + step * direction)[0], loss(albedo - step * direction)[0]
    assert (gradient * direction).sum() == pytest.approx((high - low) / (2 * step), rel=1e-6)


@pytest.mark.parametrize("dim", [2, 3])
def test_mpm_flies_as_a_stone_does(dim: int) -> None:
    mpm = load("mpm")
    jelly = mpm.Jelly(dim, 24, 6, 1e-3)
    throw, steps = np.array([1.0, 0.5, 0.2][:dim]), 40
    jelly.target[None] = [0.5] * dim
    _, gradient = jelly.value_and_gradient(throw, steps)
    seconds = steps * jelly.dt
    expected = jelly.places.mean(0) + throw * seconds
    expected[1] -= mpm.GRAVITY * jelly.dt**2 * steps * (steps + 1) / 2
    centre = np.array(jelly.centre[None])
    np.testing.assert_allclose(centre, expected, rtol=1e-10)
    np.testing.assert_allclose(gradient, 2 * (centre - 0.5) * seconds, rtol=1e-8)
    assert jelly.mass.to_numpy().sum() == pytest.approx(0.3**dim, rel=1e-12)


def test_mpm_gradient_through_the_bounce() -> None:
    mpm = load("mpm")
    jelly = mpm.Jelly(2, 16, 5, 1e-3)
    jelly.target[None] = [0.5, 0.5]
    throw, steps = np.array([0.5, -4.0]), 150
    _, gradient = jelly.value_and_gradient(throw, steps)
    assert jelly.v.to_numpy()[:, 1].max() > -2.0  # the floor has stopped it
    expected = difference(lambda v: jelly.simulate(v, steps), throw, 1e-6)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5)


def test_cloth_contact_gradient_and_contact() -> None:
    contact = load("cloth_contact")
    cloth = contact.Cloth(8)
    cloth.mark[None] = [0.1, 0.2, -0.1]
    wind, steps = np.array([0.5, 0.0, -0.3]), 250
    _, gradient = cloth.value_and_gradient(wind, steps, slots=10)
    expected = difference(lambda w: cloth.simulate(w, steps), wind, 1e-5)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5)
    radius = np.linalg.norm(cloth.x.to_numpy(), axis=-1)
    assert contact.RADIUS * 0.9 < radius.min() < contact.RADIUS  # it touches, and is held off


def test_cloth_falls_freely_until_it_touches() -> None:
    contact = load("cloth_contact")
    cloth = contact.Cloth(6)
    steps = 60
    cloth.simulate(np.zeros(3), steps)
    v = y = 0.0
    for _ in range(steps):
        v += cloth.dt * (-9.8 - contact.DAMPING * v)
        y += cloth.dt * v
    np.testing.assert_allclose(cloth.x.to_numpy()[..., 1], 0.45 + y, rtol=1e-12)


def test_hash_grid_has_all_pairs() -> None:
    grid = load("hash_grid")
    fluid = grid.Fluid(7, density=0.5)
    energy = fluid.forces()
    x = fluid.x.to_numpy()
    away = x[:, None] - x[None]
    away -= fluid.side * np.round(away / fluid.side)
    r2 = (away**2).sum(-1)
    np.fill_diagonal(r2, np.inf)
    near = r2 < grid.CUTOFF**2
    s6 = np.where(near, r2, np.inf) ** -3
    expected = 0.5 * (4 * s6 * (s6 - 1) - grid.SHIFT * near).sum()
    assert energy == pytest.approx(expected, rel=1e-12)
    size = np.where(near, 24 * s6 * (2 * s6 - 1) / r2, 0.0)
    force = (size[..., None] * away).sum(1)
    np.testing.assert_allclose(fluid.force.to_numpy(), force, atol=1e-10 * np.abs(force).max())
    np.testing.assert_allclose(fluid.gradient(), -force, atol=1e-10 * np.abs(force).max())


def test_hash_grid_keeps_energy() -> None:
    fluid = load("hash_grid").Fluid(7, density=0.5, dt=0.002)
    energies = fluid.simulate(60)
    assert np.ptp(energies) < 2e-4 * abs(energies[0])


def test_sph_keeps_momentum_and_has_a_gradient() -> None:
    sph = load("sph")
    dam = sph.Dam(0.05)
    dam.gravity[None] = sph.GRAVITY
    dam.fill_in()  # no particle touches a wall yet
    dam.v.from_numpy(np.random.default_rng(0).standard_normal((dam.count, 2)))
    dam.sort()
    dam.interact()
    inner = dam.force.to_numpy() + np.array([0.0, sph.GRAVITY])
    scale = np.abs(inner).sum()
    np.testing.assert_allclose(inner.sum(0), 0.0, atol=1e-12 * scale)
    assert dam.length.to_numpy().sum() == dam.count
    assert dam.length.to_numpy().max() < sph.MOST
    derivative = dam.gradient(60)
    step = 1e-4
    high, low = dam.simulate(60, sph.GRAVITY + step), dam.simulate(60, sph.GRAVITY - step)
    assert derivative == pytest.approx((high - low) / (2 * step), rel=1e-5)


def test_smoke_has_no_divergence_and_a_gradient() -> None:
    smoke = load("smoke")
    n, steps = 12, 2
    flow = smoke.Flow(n, 60)
    flow.first.from_numpy(smoke.blob(n, 0.3, 0.5))
    flow.target.from_numpy(smoke.blob(n, 0.6, 0.6))
    start = np.random.default_rng(0).uniform(-1, 1, (n, n, 2))
    flow.simulate(start, steps)
    assert flow.divergence() < 1e-9
    # Few iterations, so that the gradient is that of a solve that has not converged.
    flow = smoke.Flow(n, 6)
    flow.first.from_numpy(smoke.blob(n, 0.3, 0.5))
    flow.target.from_numpy(smoke.blob(n, 0.6, 0.6))
    _, gradient = flow.value_and_gradient(start, steps)
    direction = np.random.default_rng(1).standard_normal(start.shape)
    step = 1e-7
    high = flow.simulate(start + step * direction, steps)
    low = flow.simulate(start - step * direction, steps)
    assert (gradient * direction).sum() == pytest.approx((high - low) / (2 * step), rel=1e-4)


SHORT = {
    "billiard": ["--shots", "16", "--iterations", "3"],
    "cloth_contact": ["--size", "8", "--steps", "40", "--iterations", "2"],
    "hash_grid": ["--steps", "3"],
    "lattice_boltzmann": ["--steps", "20"],
    "mpm": ["--iterations", "1"],
    "neural_field": ["--steps", "2"],
    "ode_jax": [],
    "sdf_tracer": ["--samples", "1"],
    "seir": [],
    "smoke": ["--size", "12", "--steps", "2", "--iterations", "2"],
    "sph": ["--steps", "10"],
    "wave_inversion": ["--size", "32", "--iterations", "1"],
}
NEEDS = {"neural_field": "torch", "ode_jax": "jax", "seir": "scipy", "wave_inversion": "scipy"}


def test_all_examples_are_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHORT)
def test_example_draws_its_picture(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip(NEEDS.get(name, "numpy"))
    output = tmp_path / "picture.png"
    monkeypatch.setattr(sys, "argv", [name, *SHORT[name], "--output", str(output)])
    load(name).main()
    assert output.read_bytes().startswith(b"\x89PNG")
