"""What a tape copies: nothing without an overwrite, and else what is needed; within a budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.launch.gradients.taped_memory import TapedMemory
from tests.ad.differences import check_tape
from tests.golden_files import check_golden

N = 16
ROW = 8 * N


class World:
    def __init__(self, steps: int = 5) -> None:
        self.steps = steps
        self.x = qd.field(qd.f64, (steps + 1, N), needs_grad=True)
        self.state = qd.field(qd.f64, N, needs_grad=True)
        self.scratch = qd.field(qd.f64, N, needs_grad=True)
        self.loss = qd.field(qd.f64, (), needs_grad=True)
        self.x.fill(0.5)
        self.state.from_numpy(np.linspace(0.2, 0.9, N))

    @qd.kernel
    def advance(self, t: qd.i32):
        for i in range(N):
            self.x[t + 1, i] = qd.sin(self.x[t, i]) * self.x[t, (i + 1) % N]

    @qd.kernel
    def in_place(self):
        for i in range(N):
            self.state[i] = qd.sin(self.state[i]) * 1.5

    @qd.kernel
    def linear(self, factor: qd.f64):
        for i in range(N):
            self.state[i] = factor * self.state[i]

    @qd.kernel
    def into_scratch(self):
        for i in range(N):
            self.scratch[i] = qd.exp(-self.state[i])

    @qd.kernel
    def from_scratch(self):
        for i in range(N):
            self.state[i] += 0.1 * self.scratch[i] ** 2

    @qd.kernel
    def total(self):
        for i in range(N):
            self.loss[None] += self.state[i] * self.state[i]

    @qd.kernel
    def total_of_row(self, t: qd.i32):
        for i in range(N):
            self.loss[None] += self.x[t, i] ** 2


def in_place(w: World) -> None:
    for _ in range(w.steps):
        w.in_place()
    w.total()


def time_indexed(w: World) -> None:
    for t in range(w.steps):
        w.advance(t)
    w.total_of_row(w.steps)


def linear(w: World) -> None:
    for _ in range(w.steps):
        w.linear(1.1)
    w.total()


def scratch(w: World) -> None:
    for _ in range(w.steps):
        w.into_scratch()
        w.from_scratch()
    w.total()


def one_row_again(w: World) -> None:
    time_indexed(w)
    w.advance(1)


def host_write(w: World) -> None:
    w.in_place()
    w.total()
    w.state[3] = 0.5
    w.total()


CASES: dict[str, tuple[Callable[[World], None], int]] = {
    "time indexed": (time_indexed, 0),
    "linear": (linear, 0),
    "in place": (in_place, 5 * ROW),  # the state before each step
    "scratch": (scratch, 9 * ROW),  # the state before each step, the scratch before each but one
    "one row again": (one_row_again, ROW),  # what the second step had read
    "host write": (host_write, ROW + 8),  # of the second state, the element that is overwritten
}
"""Programs, and the bytes that they copy."""


@pytest.mark.parametrize("name", CASES)
def test_bytes(name: str) -> None:
    body, nbytes = CASES[name]
    w = World()
    tape = check_tape(lambda: body(w), [w.state], w.loss, [w.x, w.scratch])
    assert tape.snapshot_bytes == nbytes


def test_what_is_needed_twice_is_copied_once() -> None:
    w = World()
    with qd.ad.Tape(loss=w.loss) as tape:
        for _ in range(4):
            w.total()
        w.state.fill(1)
        assert tape.snapshot_bytes == ROW
        w.total()
    assert w.state.grad.to_numpy() == pytest.approx(4 * 2 * np.linspace(0.2, 0.9, N))
    assert tape.snapshot_bytes == ROW


def test_stencils_are_copied_once_where_their_reads_overlap() -> None:
    w = World()

    @qd.kernel
    def spread(t: qd.i32):
        for i in range(1, N - 1):
            w.state[i] = w.x[t, i - 1] * w.x[t, i] * w.x[t, i + 1]

    with qd.ad.Tape(loss=w.loss) as tape:
        spread(2)
        w.x.fill(3)
        w.total()
    assert tape.snapshot_bytes == ROW
    assert w.x.grad.to_numpy()[2].any()


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_rows_of_other_libraries_arrays_are_copied_row_by_row(library: str) -> None:
    """They can change untracked: each row that a launch needs is copied, once."""
    w = World()
    rows = np.ones((50, N))
    if library == "torch":
        rows = pytest.importorskip("torch").from_numpy(rows)

    @qd.kernel
    def weigh(rows: qd.types.ndarray(), t: qd.i32):
        for i in range(N):
            w.loss[None] += rows[t, i] * w.state[i]

    with qd.ad.Tape(loss=w.loss) as tape:
        for t in range(10):
            weigh(rows, t)
            weigh(rows, t)
    assert tape.snapshot_bytes == 10 * ROW
    assert w.state.grad.to_numpy().tolist() == [20.0] * N


def test_memory_is_given_back_as_launches_are_reversed() -> None:
    w = World()
    alive: list[int] = []

    @qd.ad.grad_replaced
    def look() -> None: ...

    @qd.ad.grad_for(look)
    def count() -> None:
        alive.append(len(tape._entries))

    with qd.ad.Tape(loss=w.loss) as tape:
        for _ in range(3):
            w.in_place()
            look()
        w.total()
    assert alive == [5, 3, 1]


# -- the budget -----------------------------------------------------------------------------------


def start(steps: int, **options: Any) -> World:
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error", **options)
    return World(steps)


def test_just_enough() -> None:
    w = start(5, ad_snapshot_budget_bytes=5 * ROW)
    tape = check_tape(lambda: in_place(w), [w.state], w.loss)
    assert tape.snapshot_bytes == 5 * ROW


def test_one_byte_too_little() -> None:
    w = start(5, ad_snapshot_budget_bytes=5 * ROW - 1)
    before = []
    with pytest.raises(qd.OctantsMemoryError) as caught:
        with qd.ad.Tape(loss=w.loss) as tape:
            for _ in range(w.steps):
                before.append(w.state.to_numpy())
                w.in_place()
    check_golden("errors/OCT326_budget", str(caught.value))
    assert len(before) == 5
    assert w.state.to_numpy().tolist() == before[-1].tolist()
    assert tape.snapshot_bytes == 4 * ROW
    assert not w.state.grad.to_numpy().any()


def test_who_catches_it_may_go_on() -> None:
    w = start(3, ad_snapshot_budget_bytes=2 * ROW)
    start_values = w.state.to_numpy()
    with qd.ad.Tape(loss=w.loss) as tape:
        for _ in range(2):
            w.in_place()
        for _ in range(2):
            with pytest.raises(qd.OctantsMemoryError):
                w.in_place()
        w.linear(2.0)
        w.total()
    assert tape.snapshot_bytes == 2 * ROW
    once = np.sin(start_values) * 1.5
    twice = np.sin(once) * 1.5
    slope = np.cos(once) * 1.5 * np.cos(start_values) * 1.5
    assert w.state.grad.to_numpy() == pytest.approx(8 * twice * slope)


@qd.kernel
def large(weights: qd.types.ndarray(), state: qd.Tensor, loss: qd.Tensor):
    for i in range(N):
        loss[None] += weights[i] * state[i]


HOST: dict[str, Callable[[World], Any]] = {
    "fill": lambda w: w.state.fill(0),
    "element": lambda w: w.state.__setitem__(2, 9.0),
    "copy_from": lambda w: w.state.copy_from(w.scratch),
    "no_grad": lambda w: qd.ad.no_grad(w.linear)(2.0),
    "numpy": lambda w: large(np.ones(N), w.state, w.loss),
}


@pytest.mark.parametrize("how", HOST)
def test_whatever_copies_counts(how: str) -> None:
    w = start(3, ad_snapshot_budget_bytes=7 if how == "element" else ROW - 8)
    kept = w.state.to_numpy()
    with qd.ad.Tape(loss=w.loss):
        w.total()
        with pytest.raises(qd.OctantsMemoryError, match=r"OCT326.*(`state`|`weights`)"):
            HOST[how](w)
    assert w.state.to_numpy().tolist() == kept.tolist()
    assert w.state.grad.to_numpy() == pytest.approx(2 * kept)


def test_kernels_of_several_tasks_are_refused_before_the_first_one() -> None:
    w = start(3, ad_snapshot_budget_bytes=3 * ROW - 1)

    @qd.kernel
    def several():
        for i in range(N):
            w.scratch[i] = 2.0 * w.state[i]
        for i in range(N):
            w.state[i] = w.state[i] * w.state[i]
        for i in range(N):
            w.state[i] = w.state[i] * w.scratch[i]
        for i in range(N):
            w.scratch[i] = qd.sin(w.scratch[i])

    kept = w.state.to_numpy()
    with qd.ad.Tape(loss=w.loss) as tape:
        with pytest.raises(qd.OctantsMemoryError, match="OCT326.*`several`"):
            several()
        w.total()
    assert w.state.to_numpy().tolist() == kept.tolist()
    assert not w.scratch.to_numpy().any()
    assert w.state.grad.to_numpy() == pytest.approx(2 * kept)
    assert tape.snapshot_bytes == 0
    with pytest.raises(qd.OctantsRuntimeError, match="OCT314.*`state`"):
        with qd.ad.Tape(loss=w.loss, on_overwrite="error"):
            several()
    assert w.state.to_numpy().tolist() == kept.tolist()
    w = start(3, ad_snapshot_budget_bytes=3 * ROW)
    tape = check_tape(lambda: [several(), w.total()], [w.state], w.loss, [w.scratch])
    assert tape.snapshot_bytes == 3 * ROW


def test_arrays_of_others_must_not_be_overwritten_either() -> None:
    w = start(3)
    weights = np.ones(N)

    @qd.kernel
    def clear(weights: qd.types.ndarray()):
        for i in range(N):
            weights[i] = 0.0

    with pytest.raises(qd.OctantsRuntimeError, match="OCT314.*`weights`"):
        with qd.ad.Tape(loss=w.loss, on_overwrite="error"):
            large(weights, w.state, w.loss)
            clear(weights)
    assert weights.all()


def test_memory_that_the_system_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    w = start(3)
    kept = w.state.to_numpy()
    with qd.ad.Tape(loss=w.loss):
        w.total()
        with monkeypatch.context() as patch:
            patch.setattr(TapedMemory, "snapshot", refuse)
            with pytest.raises(qd.OctantsMemoryError, match="OCT327.*`state`"):
                w.linear(2.0)
    assert w.state.to_numpy().tolist() == kept.tolist()
    assert w.state.grad.to_numpy() == pytest.approx(2 * kept)


def refuse(*_: Any) -> Any:
    raise MemoryError


def test_wrong_budgets() -> None:
    with pytest.raises(qd.OctantsRuntimeError, match="bytes"):
        qd.init(arch=qd.cpu, ad_snapshot_budget_bytes=-1)
