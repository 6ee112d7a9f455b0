"""Work items that race for an element: no gradient is given that depends on who is first."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.diagnostics.race_errors import NoRaceCheck
from octants.launch.checks import race_checks
from tests.devices import checks_races
from tests.golden_files import check_golden

N = 8
SURE, SEEN = "OCT303", "OCT304"


@pytest.fixture
def x() -> Any:
    made = qd.field(qd.f64, (4, N), needs_grad=True)
    made.from_numpy(np.linspace(0.5, 1.5, 4 * N).reshape(4, N))
    return made


@pytest.fixture
def loss() -> Any:
    return qd.field(qd.f64, (), needs_grad=True)


def indices(*values: int) -> Any:
    found = qd.field(qd.i32, N)
    found.from_numpy(np.array(values, np.int32))
    return found


@qd.kernel
def total(x: qd.template(), loss: qd.template()):
    for t, i in qd.ndrange(4, N):
        loss[None] += (t + 1) * (i + 2) * x[t, i] * x[t, i]


def gradient(body: Callable[[], Any], x: Any, loss: Any, **options: Any) -> Any:
    with qd.ad.Tape(loss=loss, **options):
        body()
        total(x, loss)
    return x.grad.to_numpy()


def portable(text: str) -> str:
    """An error without the places in this file."""
    text = re.sub(r"--> \S+ in", "--> ... in", text)
    return re.sub(r"^ *\d* \|", "... |", text, flags=re.MULTILINE)


def refused(body: Callable[[], Any], x: Any, loss: Any, code: str, **options: Any) -> str:
    kind = {SURE: qd.OctantsCompilationError, SEEN: qd.OctantsAssertionError}[code]
    with pytest.raises(kind, match=code) as caught:
        gradient(body, x, loss, **options)
    return str(caught.value)


def test_the_text_for_a_device_that_cannot_check() -> None:
    check_golden("errors/OCT306_no_race_check", str(NoRaceCheck("k", "A GPU").at()))


# -- races that compiling proves ------------------------------------------------------------------


@qd.kernel
def scan(x: qd.template()):
    for i in range(N):
        if i == 0:
            x[1, i] = x[0, 0]
        else:
            x[1, i] = x[1, i - 1] + x[0, 0]


@qd.kernel
def to_one_element(x: qd.template()):
    for i in range(N):
        x[1, 0] = x[0, i] * 2.0


@qd.kernel
def lost_updates(x: qd.template()):
    for i in range(N):
        x[1, 0] = x[1, 0] + x[0, i]


@qd.kernel
def reads_a_sum(x: qd.template()):
    for i in range(N):
        x[1, 0] += x[0, i]
        x[2, i] = x[1, 0]


@qd.kernel
def neighbours(x: qd.template()):
    for i in range(N):
        if 0 < i < N - 1:
            x[0, i] = 0.5 * (x[0, i - 1] + x[0, i + 1])


@qd.kernel
def in_an_inner_loop(x: qd.template()):
    for i in range(N):
        for j in range(N):
            if j <= i:
                x[1, j] = x[0, i] * j


@qd.kernel
def store_beside_an_update(x: qd.template()):
    for i in range(N):
        if i == 0:
            x[1, 0] = 0.0
        x[1, 0] += x[0, i]


RACES = [
    scan,
    to_one_element,
    lost_updates,
    reads_a_sum,
    neighbours,
    in_an_inner_loop,
    store_beside_an_update,
]


@pytest.mark.parametrize("race", RACES, ids=lambda kernel: kernel.name)
def test_a_race_for_sure_has_no_gradient(race: Any, x: Any, loss: Any) -> None:
    text = refused(lambda: race(x), x, loss, SURE)
    assert text.count("by work item") == 2
    assert "serialize=True" in text
    with pytest.raises(qd.OctantsCompilationError, match=SURE):
        race.grad(x)
    race(x)  # a launch is what it was


def test_the_error_of_a_race(x: Any, loss: Any) -> None:
    check_golden("errors/OCT303_scan", portable(refused(lambda: scan(x), x, loss, SURE)))


def test_a_scan_in_order_has_its_gradient(x: Any, loss: Any) -> None:
    @qd.kernel
    def in_order():
        qd.loop_config(serialize=True)
        for i in range(N):
            if i == 0:
                x[1, i] = x[0, 0]
            else:
                x[1, i] = x[1, i - 1] + x[0, 0]

    found = gradient(in_order, x, loss)
    values = x.to_numpy()
    weights = 2 * 2 * (np.arange(N) + 2) * values[1]
    assert found[0, 0] == pytest.approx(np.sum(weights * np.arange(1, N + 1)) + 4 * values[0, 0])


# -- programs without races, which compiling sees -------------------------------------------------


@qd.kernel
def in_place(x: qd.template()):
    for i in range(N):
        x[0, i] = x[0, i] * 2.0
        x[1, i] += x[0, i]


@qd.kernel
def red_then_black(x: qd.template()):
    for i in range(N):
        if i % 2 == 0 and i > 0:
            x[0, i] = 0.5 * (x[0, i - 1] + x[0, i + 1])
    for i in range(N):
        if i % 2 == 1 and i < N - 1:
            x[0, i] = 0.5 * (x[0, i - 1] + x[0, i + 1])


@qd.kernel
def halves(x: qd.template()):
    for i in range(N // 2):
        x[0, i] = x[0, i + N // 2] * x[1, i]


@qd.kernel
def other_rows(x: qd.template()):
    for i in range(N):
        x[2, i] = x[0, (i + 1) % N] * x[1, N - 1 - i]


@qd.kernel
def the_same_for_all(x: qd.template()):
    for i in range(N):
        x[1, 0] = 3.0
        x[2, 0] = 4.5
        x[1, 1] += x[0, i]


@qd.kernel
def one_work_item(x: qd.template()):
    for i in range(1):
        x[1, 0] = x[0, i]
        x[1, 1] = x[1, 0] * x[0, 1]


@qd.kernel
def reversed_rows(x: qd.template()):
    for i in range(N):
        x[1, N - 1 - i] = x[0, i] * x[0, i]


@qd.kernel
def triangle(x: qd.template()):
    for i in range(4):
        for j in range(i):
            x[i, j] = x[i, j] * x[i, N - 1]


FINE = [
    in_place,
    red_then_black,
    halves,
    other_rows,
    the_same_for_all,
    one_work_item,
    reversed_rows,
    triangle,
]


@pytest.mark.parametrize("validation", [False, True])
@pytest.mark.parametrize("kernel", FINE, ids=lambda kernel: kernel.name)
def test_without_a_race(kernel: Any, validation: bool, x: Any, loss: Any) -> None:
    gradient(lambda: kernel(x), x, loss, grad_check=[x], validation=validation)


@qd.kernel
def one_value_for_all(x: qd.template(), given: qd.template()):
    for i in range(N):
        x[1, 0] = given[0] * given[1]
        x[2, i % 3] = given[2] * given[3]


@qd.kernel
def one_value_everywhere(x: qd.template(), given: qd.template()):
    for i in range(N):
        x[1, i] = given[0] * given[1]
        x[1, (i + 1) % N] = given[0] * given[1]


@pytest.mark.parametrize("kernel", [one_value_for_all, one_value_everywhere])
def test_one_of_the_work_items_that_store_a_value_takes_its_adjoint(
    kernel: Any, x: Any, loss: Any
) -> None:
    given = qd.field(qd.f64, 4, needs_grad=True)
    given.from_numpy(np.array([0.5, 1.5, 2.5, -1.0]))
    gradient(lambda: kernel(x, given), x, loss, grad_check=[x, given])


# -- what only a launch can tell ------------------------------------------------------------------


@qd.kernel
def from_row_to_row(x: qd.template(), a: qd.template(), source: qd.i32, target: qd.i32):
    for i in range(N):
        x[target, i] = x[source, a[i]] * x[source, i]


@qd.kernel
def next_row(x: qd.template(), a: qd.template(), t: qd.i32):
    for i in range(N):
        x[t + 1, i] = x[t, a[i]] * x[t, i]


@qd.kernel
def scatter(x: qd.template(), a: qd.template()):
    for i in range(N):
        x[1, a[i]] = x[0, i] * x[0, i]


@qd.kernel
def slots(x: qd.template(), count: qd.template(), n: qd.i32):
    for i in range(N):
        slot = qd.atomic_add(count[None], 1) % n
        x[1, slot] = x[0, i] * 2.0


@checks_races
def test_rows_that_arguments_choose(x: Any, loss: Any) -> None:
    a = indices(1, 2, 3, 4, 5, 6, 7, 0)
    gradient(lambda: from_row_to_row(x, a, 0, 1), x, loss, grad_check=[x])
    text = refused(lambda: from_row_to_row(x, a, 2, 2), x, loss, SEEN)
    assert "x[2, 0]" in text
    refused(lambda: from_row_to_row(x, a, 2, 2), x, loss, SEEN, validation=True)


def test_a_row_after_a_row_is_proven(x: Any, loss: Any) -> None:
    a = indices(1, 1, 3, 3, 5, 5, 7, 7)
    gradient(lambda: [next_row(x, a, t) for t in range(3)], x, loss, grad_check=[x])


@checks_races
def test_a_scatter(x: Any, loss: Any) -> None:
    permutation, no_permutation = indices(3, 0, 1, 2, 7, 6, 5, 4), indices(3, 0, 1, 2, 7, 6, 5, 3)
    gradient(lambda: scatter(x, permutation), x, loss, grad_check=[x], validation=True)
    text = refused(lambda: scatter(x, no_permutation), x, loss, SEEN)
    assert "x[1, 3]" in text
    assert "work item 0" in text
    assert "work item 7" in text
    scatter(x, permutation)
    scatter.grad(x, permutation)
    scatter(x, no_permutation)
    with pytest.raises(qd.OctantsAssertionError, match=SEEN):
        for _ in range(3):  # 2 of 4 launches are looked at
            scatter.grad(x, no_permutation)


@checks_races
def test_the_error_of_a_race_that_was_seen(x: Any, loss: Any) -> None:
    a = indices(3, 0, 1, 2, 7, 6, 5, 3)
    check_golden("errors/OCT304_scatter", portable(refused(lambda: scatter(x, a), x, loss, SEEN)))


@checks_races
def test_addresses_that_the_kernel_itself_decides(x: Any, loss: Any) -> None:
    count = qd.field(qd.i32, ())
    gradient(lambda: slots(x, count, N), x, loss, validation=True)
    assert count[None] == N
    refused(lambda: slots(x, count, N - 1), x, loss, SEEN)
    assert count[None] == N


@pytest.mark.parametrize("validation", [False, True])
@checks_races
def test_ndarrays(validation: bool, loss: Any) -> None:
    @qd.kernel
    def shifted(x: qd.types.ndarray(ndim=1), by: qd.i32):
        for i in range(x.shape[0] - by):
            x[i] = x[i + by] * 2.0

    x = qd.ndarray(qd.f64, N, needs_grad=True)
    x.grad.fill(1.0)
    with qd.ad.Tape(validation=validation, clear_gradients=False):
        shifted(x, N // 2)
    assert x.grad.to_numpy().tolist() == [0.0] * 4 + [3.0] * 4
    with (
        pytest.raises(qd.OctantsAssertionError, match=SEEN),
        qd.ad.Tape(validation=validation),
    ):
        shifted(x, 1)


@checks_races
def test_elements_of_vectors(loss: Any) -> None:
    v = qd.Vector.field(2, qd.f64, N, needs_grad=True)
    a = indices(1, 2, 3, 4, 5, 6, 7, 0)

    @qd.kernel
    def other_component():
        for i in range(N):
            v[i][0] = v[a[i]][1]

    @qd.kernel
    def same_component():
        for i in range(N):
            v[i][1] = v[a[i]][1]

    with qd.ad.Tape(loss=loss, validation=True):
        other_component()
    with (
        pytest.raises(qd.OctantsAssertionError, match=r"v\[0, 1\]"),
        qd.ad.Tape(loss=loss),
    ):
        same_component()


@checks_races
def test_launches_are_checked_now_and_then_and_always_if_validated(x: Any, loss: Any) -> None:
    a = indices(0, 1, 2, 3, 4, 5, 6, 7)

    def body() -> None:
        for launch in range(3):
            if launch == 2:
                a[7] = 0
            scatter(x, a)

    gradient(body, x, loss)
    a[7] = 7
    refused(body, x, loss, SEEN, validation=True)


def test_integers_that_all_work_items_store_alike_are_no_race(x: Any, loss: Any) -> None:
    flag, cell = qd.field(qd.i32, ()), indices(*range(N))

    @qd.kernel
    def mark():
        for i in range(N):
            flag[None] = 1
            cell[cell[i] % 4] = i  # a race, but nothing with a derivative reads it
        for i in range(N):
            x[1, i] = x[0, i] * flag[None]

    y = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def mark_only():
        for i in range(N):
            flag[None] = 1
            x[1, i] = x[0, i] * 2.0
            x[2, 0] = y[None] * y[None]

    gradient(mark, x, loss, validation=True)
    gradient(mark_only, x, loss, validation=True, grad_check=[x])


# -- debug mode -----------------------------------------------------------------------------------


@checks_races
def test_debug_mode_warns_of_a_race_once() -> None:
    qd.init(arch=qd.cpu, debug=True, log_level="error")
    x = qd.field(qd.f32, (4, N))
    a = qd.field(qd.i32, N)
    with pytest.warns(qd.OctantsWarning, match=SEEN) as caught:
        scan(x)
        scan(x)
    assert len(caught) == 1
    assert "x[1, 0]" in str(caught[0].message)
    x.from_numpy(np.arange(4.0 * N, dtype=np.float32).reshape(4, N))
    with pytest.warns(qd.OctantsWarning, match="left to chance"):
        scatter(x, a)


@pytest.mark.filterwarnings("error")
def test_debug_mode_does_not_warn_of_what_is_no_race() -> None:
    qd.init(arch=qd.cpu, debug=True, log_level="error")
    x = qd.field(qd.f32, (4, N))
    a = qd.field(qd.i32, N)
    a.from_numpy(np.arange(N, dtype=np.int32)[::-1].copy())
    for kernel in FINE:
        kernel(x)
    scatter(x, a)
    reads_a_sum(x)  # may be meant, where no derivative depends on it
    x.fill(1.0)
    a.fill(0)
    scatter(x, a)  # all store the same


def test_debug_mode_does_not_check_kernels_of_octants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their checks take longer to compile than the kernels: 1 s for the first sort."""
    qd.init(arch=qd.cpu, debug=True, log_level="error")
    keys = qd.field(qd.f64, N)
    keys.from_numpy(np.arange(N)[::-1] * 0.5)
    monkeypatch.setattr(race_checks, "launch_check", None)
    qd.algorithms.parallel_sort(keys)
    assert np.array_equal(keys.to_numpy(), np.arange(N) * 0.5)


@checks_races
def test_debug_mode_checks_each_launch_on_a_tape() -> None:
    qd.init(arch=qd.cpu, debug=True, default_fp=qd.f64, log_level="error")
    x = qd.field(qd.f64, (4, N), needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)
    a = indices(0, 1, 2, 3, 4, 5, 6, 7)

    def body() -> None:
        for launch in range(3):
            if launch == 2:
                a[7] = 0
            scatter(x, a)

    refused(body, x, loss, SEEN)


@checks_races
def test_forward_mode_refuses_the_same() -> None:
    y = qd.field(qd.f64, N, needs_dual=True)
    counts = qd.field(qd.i32, N)
    next_of = indices(1, 2, 3, 4, 5, 6, 7, 0)

    @qd.kernel
    def scan():
        for i in range(1, N):
            y[i] = y[i - 1] + 1.0

    @qd.kernel
    def move(at: qd.template()):
        for i in range(N):
            y[at[i]] = 2.0 * y[i]

    @qd.kernel
    def mark():
        for i in range(N):
            counts[0] = i
            y[i] = 2.0 * y[i]

    def tangents(body: Callable[[], Any]) -> Any:
        y.from_numpy(np.arange(1.0, N + 1))
        with qd.ad.FwdMode(loss=y, param=y, seed=[1.0] * N):
            body()
            return y.dual.to_numpy().tolist()

    with pytest.raises(qd.OctantsCompilationError, match=SURE):
        tangents(scan)
    with pytest.raises(qd.OctantsAssertionError, match=SEEN):
        tangents(lambda: move(next_of))
    assert tangents(lambda: move(indices(*range(N)))) == [2.0] * N
    assert tangents(mark) == [2.0] * N  # `counts` is left to chance, and has no tangent


@checks_races
def test_numbers_that_no_signed_integer_holds(x: Any, loss: Any) -> None:
    @qd.kernel
    def rows(x: qd.template()):
        for i in range(N):
            big = qd.u64(9223372036854775808) + qd.cast(i, qd.u64)
            x[1, qd.cast(big % N, qd.i32)] = x[0, i]

    @qd.kernel
    def one(x: qd.template()):
        for i in range(N):
            big = qd.u64(9223372036854775808) + qd.cast(i, qd.u64)
            x[1, qd.cast(big > 5, qd.i32)] = x[0, i]

    ahead = gradient(lambda: rows(x), x, loss)[0]
    values = x.to_numpy()
    weights = np.arange(N) + 2
    np.testing.assert_allclose(ahead, 2 * weights * (values[0] + 2 * values[1]))
    with pytest.raises(qd.OctantsError, match=f"{SURE}|{SEEN}"):
        gradient(lambda: one(x), x, loss)
