"""``on_overwrite="trust"`` saves nothing; `validation` says whether that is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.devices import shares_memory
from tests.golden_files import check_golden

START = np.array([0.5, 1.0, 1.5])


def make(kind: str, values: Any = START) -> Any:
    if kind == "numpy":
        return np.array(values)
    if kind == "torch":
        return pytest.importorskip("torch").tensor(values, dtype=None)
    maker = qd.field if kind == "field" else qd.ndarray
    array = maker(qd.f64, 3, needs_grad=True)
    array.from_numpy(np.array(values))
    return array


@qd.kernel
def square(x: qd.Tensor, y: qd.Tensor):
    for i in range(3):
        y[i] = x[i] * x[i]


@qd.kernel
def weigh(w: qd.Tensor, x: qd.Tensor, y: qd.Tensor):
    for i in range(3):
        y[i] = w[i] * x[i]


@qd.kernel
def double(x: qd.Tensor):
    for i in range(3):
        x[i] = 2 * x[i]


@qd.kernel
def total(y: qd.Tensor, loss: qd.Tensor):
    for i in range(3):
        loss[None] += y[i]


@pytest.fixture
def loss() -> Any:
    return qd.field(qd.f64, (), needs_grad=True)


# -- trust ----------------------------------------------------------------------------------------


def test_a_bare_gradient_runs_on_what_is_there() -> None:
    """As Quadrants: the derivative of x * x is taken at what x holds now."""
    x = make("field")
    square(x, x)
    x.grad.fill(1)
    with pytest.raises(qd.OctantsCompilationError, match="OCT301"):
        square.grad(x, x)
    square.grad.using(on_overwrite="trust")(x, x)
    assert x.grad.to_numpy() == pytest.approx(2 * START**2)


def test_a_program_may_trust_all_its_bare_gradients_while_its_tapes_save(loss: Any) -> None:
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error", on_overwrite="trust")
    loss = qd.field(qd.f64, (), needs_grad=True)
    x = make("field")
    square(x, x)
    x.grad.fill(1)
    square.grad(x, x)
    assert x.grad.to_numpy() == pytest.approx(2 * START**2)
    with pytest.raises(qd.OctantsCompilationError, match="OCT301"):
        square.grad.using(on_overwrite="error")(x, x)
    x.from_numpy(START)
    with qd.ad.Tape(loss=loss):
        square(x, x)
        total(x, loss)
    assert x.grad.to_numpy() == pytest.approx(2 * START)


def test_what_a_program_may_trust_is_one_of_two() -> None:
    with pytest.raises(qd.OctantsRuntimeError, match="on_overwrite"):
        qd.init(arch=qd.cpu, on_overwrite="save")


def test_a_bare_gradient_that_is_right_where_what_was_read_has_been_put_back() -> None:
    x = make("field")
    square(x, x)
    x.from_numpy(START)
    x.grad.fill(1)
    square.grad.using(on_overwrite="trust")(x, x)
    assert x.grad.to_numpy() == pytest.approx(2 * START)
    assert x.to_numpy().tolist() == START.tolist()


@pytest.mark.parametrize("validation", [False, True])
def test_under_a_tape_that_overwrites_nothing(loss: Any, validation: bool) -> None:
    x, y = make("field"), make("field")
    with qd.ad.Tape(loss=loss, on_overwrite="trust", validation=validation) as tape:
        square(x, y)
        total(y, loss)
    assert x.grad.to_numpy() == pytest.approx(2 * START)
    assert tape.snapshot_bytes == 0


def test_trust_that_was_misplaced_gives_the_gradient_of_quadrants(loss: Any) -> None:
    x, y = make("field"), make("field")
    with qd.ad.Tape(loss=loss, on_overwrite="trust") as tape:
        square(x, y)
        total(y, loss)
        double(x)
    assert x.grad.to_numpy() == pytest.approx(4 * START)
    assert tape.snapshot_bytes == 0


def test_a_linear_step_may_be_trusted(loss: Any) -> None:
    x, y = make("field"), make("field")
    with qd.ad.Tape(loss=loss, on_overwrite="trust", validation=True):
        for _ in range(3):
            double(x)
        square(x, y)
        total(y, loss)
    assert x.grad.to_numpy() == pytest.approx(2 * 64 * START)


def test_trusting_kernels_of_several_tasks(loss: Any) -> None:
    x, y = make("field"), make("field")

    @qd.kernel
    def kernel():
        for i in x:
            y[i] = qd.sin(x[i])
        scale = y[0]
        for i in x:
            y[i] = scale * x[i]
        for i in x:
            loss[None] += y[i]
            y[i] = 0.0

    with qd.ad.Tape(loss=loss, on_overwrite="trust"):
        kernel()
    assert np.isfinite(x.grad.to_numpy()).all()
    with pytest.raises(qd.OctantsAssertionError, match="OCT325.*`y`.*`kernel`"):
        with qd.ad.Tape(loss=loss, on_overwrite="trust", validation=True):
            kernel()
    assert y.to_numpy().tolist() == [0, 0, 0]


@qd.kernel
def gather(x: qd.Tensor, at: qd.types.ndarray(), y: qd.Tensor):
    for i in range(3):
        y[i] = x[at[i, 0]] ** 2
        x[at[i, 1]] = 7.0


def test_indices_that_do_not_collide_may_be_trusted(loss: Any) -> None:
    """No compiler can tell; the check is of each element that was read."""
    reads = np.array([0, 1, 0, 1, 0, 1], np.int32)
    writes = np.array([3, 3, 4, 5, 5, 4], np.int32)
    x, y = qd.field(qd.f64, 6, needs_grad=True), make("field")
    x.from_numpy(np.arange(1.0, 7.0))
    apart = np.stack([reads[:3], writes[:3]], axis=1)
    with pytest.raises(qd.OctantsCompilationError, match="OCT301"):
        gather.grad(x, apart, y)
    with qd.ad.Tape(loss=loss, on_overwrite="trust", validation=True):
        gather(x, apart, y)
        total(y, loss)
    assert x.grad.to_numpy().tolist() == [4, 4, 0, 0, 0, 0]
    x.from_numpy(np.arange(1.0, 7.0))
    colliding = np.array([[0, 3], [1, 1], [2, 4]], np.int32)
    with pytest.raises(qd.OctantsAssertionError, match="OCT325.*`x`.*`gather`"):
        with qd.ad.Tape(loss=loss, on_overwrite="trust", validation=True):
            gather(x, colliding, y)
            total(y, loss)


def test_a_place_that_ends_as_it_began_is_found(loss: Any) -> None:
    x, cell = make("field"), qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def kernel():
        qd.loop_config(serialize=True)
        for i in range(3):
            cell[None] = 0.0
            for _ in range(2):
                cell[None] += x[i]
                loss[None] += cell[None] ** 2
            cell[None] = 0.0

    with pytest.raises(qd.OctantsAssertionError, match="OCT325.*`cell`"):
        with qd.ad.Tape(loss=loss, on_overwrite="trust", validation=True):
            kernel()
    with qd.ad.Tape(loss=loss):
        kernel()
    assert x.grad.to_numpy() == pytest.approx(10 * START)


def test_values_that_have_changed_places_are_found(loss: Any) -> None:
    x = make("field")

    @qd.kernel
    def kernel():
        qd.loop_config(serialize=True)
        for i in range(3):
            loss[None] += (i + 1) * x[i] ** 2

    @qd.kernel
    def swap():
        a, b = x[0], x[1]
        x[0] = b
        x[1] = a

    with pytest.raises(qd.OctantsAssertionError, match="OCT325.*`x`"):
        with qd.ad.Tape(loss=loss, on_overwrite="trust", validation=True):
            kernel()
            swap()


def test_bounds_and_what_atomics_left_are_looked_at(loss: Any) -> None:
    count, x = qd.field(qd.i32, ()), make("field")
    least = qd.field(qd.f64, (), needs_grad=True)
    count[None] = 3

    @qd.kernel
    def bounded():
        for i in range(count[None]):
            loss[None] += x[i] ** 2

    @qd.kernel
    def smallest():
        for i in range(3):
            qd.atomic_min(least[None], x[i])

    @qd.kernel
    def fewer():
        count[None] -= 1

    @qd.kernel
    def move():
        loss[None] += least[None]
        least[None] = 9.0

    least[None] = 5
    with qd.ad.Tape(loss=loss, on_overwrite="trust", validation=True):
        bounded()
        smallest()
    assert x.grad.to_numpy() == pytest.approx(2 * START)
    for launches, name in (((bounded, fewer), "count"), ((smallest, move), "least")):
        with pytest.raises(qd.OctantsAssertionError, match=f"OCT325.*`{name}`"):
            with qd.ad.Tape(loss=loss, on_overwrite="trust", validation=True):
                for launch in launches:
                    launch()


# -- validation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["field", "ndarray", "numpy", "torch"])
def test_trust_that_was_misplaced_is_found(kind: str, loss: Any) -> None:
    w, x, y = make(kind), make("field"), make("field")
    with pytest.raises(qd.OctantsAssertionError, match="OCT325.*`w`.*`weigh`"):
        with qd.ad.Tape(loss=loss, on_overwrite="trust", validation=True):
            weigh(w, x, y)
            double(w)
            total(y, loss)
    assert (w if kind == "numpy" else w.numpy() if kind == "torch" else w.to_numpy()) == (
        pytest.approx(2 * START)
    )


@pytest.mark.parametrize("kind", ["field", "ndarray", "numpy", "torch"])
def test_what_the_tape_saves_is_valid(kind: str, loss: Any) -> None:
    w, x, y = make(kind), make("field"), make("field")
    with qd.ad.Tape(loss=loss, validation=True):
        for _ in range(3):
            weigh(w, x, y)
            double(w)
            total(y, loss)
    assert x.grad.to_numpy() == pytest.approx(7 * START)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda x: x.to_numpy(copy=False),
    "dlpack": np.from_dlpack,
}


@shares_memory
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", ["field", "ndarray"])
@pytest.mark.parametrize("when", ["before the next launch", "after all launches"])
def test_writes_through_shared_memory_are_found(kind: str, view: str, when: str, loss: Any) -> None:
    w, x, y = make(kind), make("field"), make("field")
    with pytest.raises(qd.OctantsAssertionError, match="OCT325.*`w`"):
        with qd.ad.Tape(loss=loss, on_overwrite="trust", validation=True):
            weigh(w, x, y)
            VIEWS[view](w)[1] = 5
            if when == "before the next launch":
                qd.ad.no_grad(weigh)(w, x, y)
            total(y, loss)
    with qd.ad.Tape(loss=loss, validation=True):
        weigh(w, x, y)
        total(y, loss)
        VIEWS[view](w)[1] = 6
    assert x.grad.to_numpy() == pytest.approx([0.5, 5, 1.5])


def test_numpy_and_torch_arrays_that_change_are_valid_since_they_are_copied(loss: Any) -> None:
    w, x, y = np.array(START), make("field"), make("field")
    with qd.ad.Tape(loss=loss, validation=True):
        for step in range(3):
            w[:] = step
            weigh(w, x, y)
            total(y, loss)
    assert x.grad.to_numpy().tolist() == [3, 3, 3]


@shares_memory
def test_only_what_is_needed_is_looked_at(loss: Any) -> None:
    w, x, y = qd.field(qd.f64, 3), make("field"), make("field")
    with qd.ad.Tape(loss=loss, validation=True):
        square(x, y)
        double(w)
        w.to_numpy(copy=False)[0] = 7
        double(w)
        total(y, loss)
    assert x.grad.to_numpy() == pytest.approx(2 * START)


@shares_memory
def test_rows_that_are_not_read_may_change(loss: Any) -> None:
    table, x = qd.field(qd.f64, (4, 3), needs_grad=True), make("field")
    table.fill(2)

    @qd.kernel
    def row(t: qd.i32):
        for i in x:
            loss[None] += table[t, i] * x[i]

    with qd.ad.Tape(loss=loss, validation=True):
        row(1)
        table.to_numpy(copy=False)[2] = 9
    assert x.grad.to_numpy().tolist() == [2, 2, 2]
    with pytest.raises(qd.OctantsAssertionError, match="OCT325") as caught:
        with qd.ad.Tape(loss=loss, on_overwrite="trust", validation=True):
            row(1)
            table.to_numpy(copy=False)[1] = 9
    check_golden("errors/OCT325_changed", str(caught.value))
