"""Functions of drivers that estimate them well, and where Octants does not take the estimates."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.backends import vulkan
from octants.mathlib.fast_by_estimates import FAR
from octants.options import Options
from octants.runtime.vulkan import structures
from octants.target import Target
from tests.mathlib.bounds import ESTIMATED, ESTIMATED_TANH
from tests.mathlib.compiled_functions import units
from tests.vulkan import compiled

_NVIDIA = 0x10DE
NEAR = np.concatenate(
    [np.linspace(-FAR, FAR, 20_001)[1:-1], np.geomspace(1e-30, 1.0, 500), [0.0, -0.0]]
).astype(np.float32)
BEYOND = np.array([FAR, -FAR, 64.5, 100.0, 1e3, -1e4, 1e6, -1e9, 3e38], np.float32)


@pytest.mark.parametrize(("vendor", "has"), [(_NVIDIA, True), (0x1002, False)])
def test_nvidias_driver_has_them(vendor: int, has: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = compiled.device().hardware
    monkeypatch.setattr(found.properties, "vendor", vendor)
    assert ("estimates" in found._features(structures.FloatControls())) == has


@pytest.fixture
def estimating(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Code is what it is for such a driver, also where this one is none."""
    compiled.device()  # or skip
    given = vulkan.VulkanBackend.target

    def target(backend: vulkan.VulkanBackend, chosen: Options) -> Target:
        own = given(backend, chosen)
        return dataclasses.replace(own, features=f"{own.features},estimates")

    monkeypatch.setattr(vulkan.VulkanBackend, "target", target)
    yield
    qd.reset()


def waves(given: Any, **options: Any) -> tuple[Any, Any]:
    """sin and cos of an array, and the derivatives of both sums."""
    qd.init(arch=qd.vulkan, log_level="error", offline_cache=False, **options)
    x = qd.ndarray(qd.f32, given.shape, needs_grad=True)
    sines, cosines = (qd.ndarray(qd.f32, given.shape, needs_grad=True) for _ in range(2))
    x.from_numpy(given)

    @qd.kernel
    def compute(x: qd.Tensor, sines: qd.Tensor, cosines: qd.Tensor):
        for i in x:
            sines[i] = qd.sin(x[i])
            cosines[i] = qd.cos(x[i])

    compute(x, sines, cosines)
    sines.grad.fill(1.0)
    compute.grad(x, sines, cosines)
    derivative = x.grad.to_numpy()
    found = np.stack([sines.to_numpy(), cosines.to_numpy(), derivative])
    exact = np.where(np.isfinite(given), given.astype(np.float64), np.nan)
    return found, np.stack([np.sin(exact), np.cos(exact), np.cos(exact)])


@pytest.mark.usefixtures("estimating")
def test_they_are_taken_for_small_angles() -> None:
    is_nvidia = compiled.device().hardware.properties.vendor == _NVIDIA
    found, exact = waves(NEAR)
    error = np.abs(found - exact).max()
    assert error < (1e-5 if is_nvidia else 1e-2)
    plain, _ = waves(NEAR, fast_math=False)
    assert np.abs(plain - exact).max() < 1e-6
    assert (found != plain).any()


@pytest.mark.usefixtures("estimating")
def test_they_are_not_taken_beyond() -> None:
    found, exact = waves(BEYOND)
    assert np.abs(found - exact).max() < 1e-6


@pytest.mark.usefixtures("estimating")
def test_of_no_number_there_is_none() -> None:
    found, _ = waves(np.array([np.inf, -np.inf, np.nan], np.float32))
    assert np.isnan(found).all()


def quotients(a: Any, b: Any, **options: Any) -> Any:
    """The elements of an array, divided by those of another one."""
    qd.init(arch=qd.vulkan, vulkan_without="masks", log_level="error", **options)
    x, y, z = (qd.ndarray(qd.f32, a.shape) for _ in range(3))
    x.from_numpy(a)
    y.from_numpy(b)

    @qd.kernel
    def divide(x: qd.Tensor, y: qd.Tensor, z: qd.Tensor):
        for i in x:
            z[i] = x[i] / y[i]

    divide(x, y, z)
    return z.to_numpy()


@pytest.mark.usefixtures("estimating")
def test_quotients() -> None:
    is_nvidia = compiled.device().hardware.properties.vendor == _NVIDIA
    random = np.random.default_rng(0)
    exponents = random.integers(-20, 20, 100_000), random.integers(-100, 100, 100_000)
    a, b = (
        np.ldexp(random.uniform(-2, 2, each.shape), each).astype(np.float32) for each in exponents
    )
    found, exact = quotients(a, b), a.astype(np.float64) / b
    assert units(found, exact).max() <= (2 if is_nvidia else 3)  # others need not fuse
    assert (found != quotients(a, b, fast_math=False)).any()
    limits = np.array([0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan], np.float32)
    a, b = (each.ravel() for each in np.meshgrid(limits, limits))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(quotients(a, b), a / b)
        assert (np.signbit(quotients(a, b)) == np.signbit(a / b))[~np.isnan(a / b)].all()


def powers(given: Any, **options: Any) -> Any:
    """exp, exp2 and tanh of an array."""
    qd.init(arch=qd.vulkan, log_level="error", offline_cache=False, **options)
    x, *results = (qd.ndarray(qd.f32, given.shape) for _ in range(4))
    x.from_numpy(given)

    @qd.kernel
    def compute(x: qd.Tensor, y: qd.Tensor, z: qd.Tensor, w: qd.Tensor):
        for i in x:
            y[i] = qd.exp(x[i])
            z[i] = qd.exp2(x[i])
            w[i] = qd.tanh(x[i])

    compute(x, *results)
    return np.stack([each.to_numpy() for each in results])


@pytest.mark.usefixtures("estimating")
def test_powers() -> None:
    is_nvidia = compiled.device().hardware.properties.vendor == _NVIDIA
    ends = (-160, 140) if is_nvidia else (-87, 88)  # others treat the rest as they like
    x = np.concatenate([np.linspace(*ends, 300_001), [0.0, -0.0]]).astype(np.float32)
    found = powers(x)
    with np.errstate(over="ignore"):
        exact = [fn(x.astype(np.longdouble)) for fn in (np.exp, np.exp2, np.tanh)]
    plain = powers(x, fast_math=False)
    bounds = [ESTIMATED, ESTIMATED, ESTIMATED_TANH] if is_nvidia else [1e3, 1e3, 1e3]
    for bound, *results in zip(bounds, found, exact, plain, strict=True):
        assert units(*results[:2]).max() <= bound
        assert (results[0] != results[2]).any()
    limits = np.array([np.inf, -np.inf, np.nan, 3e38, -3e38], np.float32)
    wanted = np.array([np.inf, 0.0, np.nan, np.inf, 0.0], np.float32)
    ones = np.array([1.0, -1.0, np.nan, 1.0, -1.0], np.float32)
    np.testing.assert_array_equal(powers(limits), [wanted, wanted, ones])


@pytest.mark.usefixtures("estimating")
def test_tanh_of_small_numbers() -> None:
    size = np.geomspace(2e-38, 1.0, 10_001).astype(np.float32)
    x = np.concatenate([size, -size, [0.0, -0.0]]).astype(np.float32)
    found, exact = powers(x)[2], np.tanh(x.astype(np.longdouble))
    is_nvidia = compiled.device().hardware.properties.vendor == _NVIDIA
    assert units(found, exact).max() <= (ESTIMATED_TANH if is_nvidia else 1e3)
    assert (np.signbit(found) == np.signbit(x)).all()
