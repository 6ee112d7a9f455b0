"""Gradients of float arguments that are passed by value, and seeds of what is returned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.launch.gradients.derivative_variants import bare_reverse
from tests.golden_files import check_golden

SETTINGS = qd.types.struct(rate=qd.f64, axis=qd.types.vector(2, qd.f64))


@qd.kernel
def everything(
    x: qd.types.ndarray(),
    y: qd.types.ndarray(),
    a: qd.f64,
    v: qd.types.vector(2, qd.f64),
    m: qd.types.matrix(2, 2, qd.f64),
    n: qd.i32,
    s: SETTINGS,
) -> qd.f64:
    for i in range(3):
        total = 0.0
        for k in range(n):
            total += qd.sin(a * x[i] + k) * v[k % 2]
        y[i] = total * s.rate + (m @ v).dot(s.axis)
    return a * a * s.axis[1]


def numpy_everything(x: Any, a: float, v: Any, m: Any, n: int, rate: float, axis: Any) -> Any:
    total = sum(np.sin(a * x + k) * v[k % 2] for k in range(n))
    return total * rate + (m @ v) @ axis, a * a * axis[1]


NUMBERS = np.array([1.3, 0.4, -0.6, 0.2, 0.7, -1.1, 0.9, 0.5, 1.2, -0.8])  # all the arguments
X = np.array([0.3, -0.2, 0.9])
WEIGHTS = np.array([1.0, -2.0, 0.5])


def unpack(p: Any) -> tuple[Any, ...]:
    return p[0], p[1:3], p[3:7].reshape(2, 2), 3, p[7], p[8:10]


def arguments(p: Any) -> tuple[Any, ...]:
    a, v, m, n, rate, axis = unpack(p)
    return float(a), list(v), m.tolist(), n, SETTINGS(float(rate), list(axis))


def expected(seed: float) -> Any:
    def value(p: Any) -> float:
        y, returned = numpy_everything(X, *unpack(p))
        return float(y @ WEIGHTS + seed * returned)

    steps = 1e-6 * np.eye(len(NUMBERS))
    return np.array([(value(NUMBERS + h) - value(NUMBERS - h)) / 2e-6 for h in steps])


def flat(gradients: dict[str, Any]) -> Any:
    assert list(gradients) == ["a", "v", "m", "s.rate", "s.axis"]
    return np.concatenate([np.ravel(np.array(value)) for value in gradients.values()])


def arrays() -> tuple[Any, Any]:
    x, y = (qd.ndarray(qd.f64, 3, needs_grad=True) for _ in range(2))
    x.from_numpy(X)
    return x, y


@pytest.mark.parametrize("arch", ["cpu", "python"])
@pytest.mark.parametrize("seed", [1.0, -2.5])
def test_bare_gradients_are_those_of_differences(arch: str, seed: float) -> None:
    qd.init(arch=getattr(qd, arch), default_fp=qd.f64)
    x, y = arrays()
    everything(x, y, *arguments(NUMBERS))
    y.grad.from_numpy(WEIGHTS)
    ways = {"argument_gradients": True} | ({"seed": seed} if seed != 1 else {})
    gradients = everything.grad.using(**ways)(x, y, *arguments(NUMBERS))
    assert flat(gradients) == pytest.approx(expected(seed), rel=1e-6)
    assert isinstance(gradients["a"], float)
    assert gradients["m"].n == 2


def test_the_gradients_of_arrays_are_the_same_whether_they_are_asked_for() -> None:
    found = []
    for asked in (False, True):
        x, y = arrays()
        everything(x, y, *arguments(NUMBERS))
        y.grad.from_numpy(WEIGHTS)
        given = everything.grad.using(argument_gradients=asked)(x, y, *arguments(NUMBERS))
        assert (given is None) is not asked
        found.append(x.grad.to_numpy())
    assert found[0] == pytest.approx(found[1], rel=1e-14)


def test_who_does_not_ask_does_not_pay() -> None:
    """The reverse kernel without them has nothing of them; theirs is compiled when asked for."""
    x, y = arrays()
    given = (x, y, *arguments(NUMBERS))
    everything(*given)
    everything.grad(*given)
    specialisation = everything.specialise(given)
    text = everything.inspect(*given, mode="reverse").stages["reverse"]
    assert "load<@a, adjoint>" not in text
    assert "@a, adjoint" not in text
    variants = [key for key in specialisation.derived if key[0] == "bare"]
    assert variants == [("bare", False, False)]
    everything.grad.using(argument_gradients=True)(*given)
    assert ("bare", True, False) in specialisation.derived
    without = bare_reverse(specialisation).persistent
    layout = bare_reverse(specialisation, arguments=True).persistent
    assert without.size < layout.size


@qd.kernel
def step(x: qd.types.ndarray(), t: qd.i32, rate: qd.f64, drift: qd.f64):
    for i in range(3):
        x[i] = x[i] + rate * qd.sin(x[i]) + drift * t


@qd.kernel
def total(x: qd.types.ndarray()) -> qd.f64:
    s = 0.0
    for i in range(3):
        s += x[i] ** 2
    return s


def simulate(rates: Any, drift: float) -> float:
    x = X.copy()
    for t, rate in enumerate(rates):
        x = x + rate * np.sin(x) + drift * t
    return float((x**2).sum())


def test_under_a_tape_each_launch_has_its_own() -> None:
    x, _ = arrays()
    rates, drift, h = np.array([0.3, 0.1, 0.4]), 0.2, 1e-6
    with qd.ad.Tape(loss=total, argument_gradients=step) as tape:
        for t, rate in enumerate(rates):
            step(x, t, float(rate), drift)
        total(x)
    gradients = tape.argument_gradients(step)
    steps = h * np.eye(3)
    wanted = [(simulate(rates + e, drift) - simulate(rates - e, drift)) / (2 * h) for e in steps]
    assert [g["rate"] for g in gradients] == pytest.approx(wanted, rel=1e-6)
    by_drift = (simulate(rates, drift + h) - simulate(rates, drift - h)) / (2 * h)
    assert sum(g["drift"] for g in gradients) == pytest.approx(by_drift, rel=1e-6)
    assert [list(g) for g in gradients] == [["rate", "drift"]] * 3


def test_over_several_tasks_that_overwrite() -> None:
    x, _ = arrays()

    @qd.kernel
    def kernel(x: qd.types.ndarray(), a: qd.f64):
        for i in range(3):
            x[i] = x[i] * x[i] * a
        scale = x[0] * a
        for i in range(3):
            x[i] = qd.sin(x[i]) * scale

    def value(a: float) -> float:
        y = X * X * a
        return float(((np.sin(y) * y[0] * a) ** 2).sum())

    with qd.ad.Tape(loss=total, argument_gradients=[kernel, total]) as tape:
        kernel(x, 1.7)
        total(x)
    (gradients,) = tape.argument_gradients(kernel)
    assert gradients["a"] == pytest.approx((value(1.7 + 1e-6) - value(1.7 - 1e-6)) / 2e-6, rel=1e-6)
    assert tape.argument_gradients(total) == [{}]


def test_methods_are_told_apart_by_their_object() -> None:
    class Spring:
        def __init__(self, at: float) -> None:
            self.x = qd.field(qd.f64, (), needs_grad=True)
            self.x[None] = at

        @qd.kernel
        def pull(self, stiffness: qd.f64):
            self.x[None] *= stiffness

    one, other = Spring(2.0), Spring(5.0)
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def add():
        loss[None] = one.x[None] + other.x[None]

    with qd.ad.Tape(loss=loss, argument_gradients=[one.pull, other.pull]) as tape:
        one.pull(3.0)
        other.pull(3.0)
        add()
    assert tape.argument_gradients(one.pull) == [{"stiffness": 2.0}]
    assert tape.argument_gradients(other.pull) == [{"stiffness": 5.0}]
    assert tape.argument_gradients(Spring.pull) == [{"stiffness": 2.0}, {"stiffness": 5.0}]
    one.x.grad.fill(1)
    one.x[None] = 2.0
    assert one.pull.grad.using(argument_gradients=True, on_overwrite="trust")(3.0) is not None


def test_all_kernels_and_f32() -> None:
    x = qd.field(qd.f32, 4, needs_grad=True)
    loss = qd.field(qd.f32, (), needs_grad=True)
    x.fill(2)

    @qd.kernel
    def scaled(a: qd.f32, unused: qd.f32):
        for i in x:
            loss[None] += a * x[i]

    with qd.ad.Tape(loss=loss, argument_gradients=True) as tape:
        scaled(3.0, 1.0)
    assert tape.argument_gradients(scaled) == [{"a": 8.0, "unused": 0.0}]


# -- seeds ----------------------------------------------------------------------------------------


@qd.kernel
def two_values(x: qd.types.ndarray()) -> (qd.f64, qd.types.vector(2, qd.f64)):
    return x[0] * x[1], qd.Vector([x[1] * x[2], x[2] ** 2])


def test_seeds_of_several_returned_values() -> None:
    for seed, one, two, three in [
        (None, 1, 1, 1),
        ((2.0, 5.0), 2, 5, 5),
        ((2.0, [3.0, 4.0]), 2, 3, 4),
        ([1, qd.Vector([0.0, 1.0])], 1, 0, 1),
    ]:
        x, _ = arrays()
        two_values(x)
        two_values.grad.using(seed=seed)(x)
        wanted = [one * X[1], one * X[0] + two * X[2], two * X[1] + three * 2 * X[2]]
        assert x.grad.to_numpy() == pytest.approx(wanted)
        if seed is None:
            continue
        x, _ = arrays()
        with qd.ad.Tape(loss=two_values, seed=seed):
            two_values(x)
        assert x.grad.to_numpy() == pytest.approx(wanted)


def test_seeds_of_losses() -> None:
    x, y = arrays()
    first, second = (qd.field(qd.f64, (), needs_grad=True) for _ in range(2))

    @qd.kernel
    def kernel(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in range(3):
            first[None] += x[i]
            second[None] += x[i] ** 2
            y[i] = qd.exp(x[i])

    with qd.ad.Tape(loss=[first, second, y], seed=[2.0, 0.5, WEIGHTS]):
        kernel(x, y)
    assert x.grad.to_numpy() == pytest.approx(2 + X + WEIGHTS * np.exp(X))
    with qd.ad.Tape(loss=y, seed=WEIGHTS):
        kernel(x, y)
    assert x.grad.to_numpy() == pytest.approx(WEIGHTS * np.exp(X))


# -- errors ---------------------------------------------------------------------------------------


def not_asked() -> None:
    with qd.ad.Tape(argument_gradients=total) as tape:
        pass
    tape.argument_gradients(step)


def wrong_shape() -> None:
    x, y = arrays()
    qd.ad.Tape(loss=y, seed=[1.0, 2.0])


def wrong_count() -> None:
    x, _ = arrays()
    two_values(x)
    two_values.grad.using(seed=[1.0])(x)


ERRORS = {
    "OCT324_not_requested": not_asked,
    "OCT323_shape": wrong_shape,
    "OCT323_count": wrong_count,
    "OCT323_losses": lambda: qd.ad.Tape(loss=[total, step], seed=[1.0]),
    "OCT323_text": lambda: qd.ad.Tape(loss=arrays()[1], seed="one"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_error(name: str) -> None:
    with pytest.raises(qd.OctantsRuntimeError) as caught:
        ERRORS[name]()
    check_golden(f"errors/{name}", str(caught.value))


def test_what_is_no_kernel_and_no_way() -> None:
    with pytest.raises(TypeError, match="not a kernel"):
        qd.ad.Tape(argument_gradients=[3])
    with pytest.raises(TypeError):
        total.grad.using(seeds=1)
    with pytest.raises(ValueError, match="only a tape can save"):
        total.grad.using(on_overwrite="save")
