"""Gradients that are taken again: what was found for arguments holds for the same arrays."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.launch.gradients import kernel_gradient


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error", on_overwrite="trust")
    yield
    qd.reset()


@dataclasses.dataclass(frozen=True)
class State:
    x: qd.Tensor
    y: qd.Tensor
    loss: qd.Tensor


def array(*values: float) -> Any:
    made = qd.ndarray(qd.f64, shape=len(values), needs_grad=True)
    made.from_numpy(np.array(values))
    return made


def state() -> State:
    return State(array(1, 2, 3), array(4, 5, 6), array(0))


SCALE = 1.0


@qd.kernel
def product(s: State):
    for i in range(3):
        s.loss[0] += SCALE * s.x[i] * s.y[i]


@qd.kernel
def power(s: State, is_cube: qd.template()):
    for i in range(3):
        if qd.static(is_cube):
            s.loss[0] += s.x[i] ** 3
        else:
            s.loss[0] += s.x[i] ** 2


def gradient(kernel: Any, s: State, *others: Any) -> list[float]:
    """The gradient with respect to x."""
    s.x.grad.fill(0)
    s.y.grad.fill(0)
    s.loss.grad.fill(1)
    kernel(s, *others)
    kernel.grad(s, *others)
    return s.x.grad.to_numpy().tolist()


def test_a_warm_gradient_finds_its_reverse_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    s = state()
    assert gradient(product, s) == [4, 5, 6]
    monkeypatch.delattr(kernel_gradient, "bare_reverse")
    assert gradient(product, s) == [4, 5, 6]
    with pytest.raises(NameError):
        gradient(product, state())


def test_equal_arrays_in_another_struct_are_one_array() -> None:
    s = state()
    assert gradient(product, s) == [4, 5, 6]
    both = State(s.x, s.x, s.loss)
    for _ in range(2):
        assert gradient(product, both) == [2, 4, 6]
        assert gradient(product, s) == [4, 5, 6]


def test_structs_that_change_are_looked_at() -> None:
    @dataclasses.dataclass
    class Changing:
        x: qd.Tensor
        y: qd.Tensor
        loss: qd.Tensor

    @qd.kernel
    def changing(s: Changing):
        for i in range(3):
            s.loss[0] += s.x[i] * s.y[i]

    s: Any = Changing(array(1, 2, 3), array(4, 5, 6), array(0))
    other = s.y
    for _ in range(2):
        s.y = other
        assert gradient(changing, s) == [4, 5, 6]
        s.y = s.x
        assert gradient(changing, s) == [2, 4, 6]


def test_a_global_that_changes_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    s = state()
    for scale in (1.0, 2.0, 1.0, 3.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        assert gradient(product, s) == [4 * scale, 5 * scale, 6 * scale]


def test_kernels_that_take_turns_are_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    s = state()
    for _ in range(2):
        assert gradient(power, s, True) == [3, 12, 27]
        assert gradient(power, s, False) == [2, 4, 6]

    def fail(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(power, "_key", fail)
    assert gradient(power, s, True) == [3, 12, 27]
    assert gradient(power, s, False) == [2, 4, 6]
    assert gradient(power, s, True) == [3, 12, 27]


def test_named_arguments_and_another_way() -> None:
    s = state()
    assert gradient(product, s) == [4, 5, 6]
    s.x.grad.fill(0)
    product.grad(s=s)
    assert s.x.grad.to_numpy().tolist() == [4, 5, 6]
    product.grad.using(on_overwrite="error")(s)
    assert s.x.grad.to_numpy().tolist() == [8, 10, 12]


def test_what_the_host_has_written_is_still_an_error() -> None:
    s = state()
    for _ in range(2):
        gradient(product, s)
        product.grad.using(on_overwrite="error")(s)
    s.x.fill(7)
    with pytest.raises(qd.OctantsRuntimeError, match="written"):
        product.grad.using(on_overwrite="error")(s)


def test_arrays_of_numpy_are_never_taken_for_known() -> None:
    @qd.kernel
    def squares(x: qd.types.ndarray(), loss: qd.types.ndarray()):
        for i in range(3):
            loss[0] += x[i] ** 2

    s, values = state(), np.array([1.0, 2.0, 3.0])
    for _ in range(2):
        s.loss.grad.fill(1)
        squares(s.x, s.loss)
        squares.grad(s.x, s.loss)
    ((_, gradient, _),) = squares.warm_gradients.known
    assert gradient(s.x, s.loss) is not None
    assert gradient(values, s.loss) is None


def test_nothing_is_kept_alive() -> None:
    s = state()
    ends = [weakref.ref(each) for each in (s, s.x, s.y)]
    for _ in range(2):
        gradient(product, s)
        gradient(power, s, True)
        gradient(power, s, False)
    del s
    gc.collect()
    assert [end() for end in ends] == [None] * 3


def test_init_again() -> None:
    assert gradient(product, state()) == [4, 5, 6]
    qd.init(arch=qd.cpu, log_level="error", on_overwrite="trust")
    assert gradient(product, state()) == [4, 5, 6]
