"""``while graph.do_while(counter)``: once, and again while the counter is not 0."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import octants as qd
from octants.types import ndarray


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


@qd.kernel(graph=True)
def count_down(counter: ndarray(qd.i32, ndim=0), a: ndarray):
    for i in range(4):
        a[i] += 1
    while qd.graph.do_while(counter):
        for i in range(4):
            a[i] += 10
        for _ in range(1):
            counter[None] -= 1
    for i in range(4):
        a[i] += 100


@pytest.mark.parametrize("count", [1, 2, 5])
def test_until_the_counter_is_zero(count: int) -> None:
    counter, a = qd.ndarray(qd.i32, shape=()), qd.ndarray(qd.i32, shape=(4,))
    counter[None] = count
    count_down(counter, a)
    assert a.to_numpy().tolist() == [101 + 10 * count] * 4
    assert counter[None] == 0


def test_the_body_runs_once_at_least_and_can_be_left() -> None:
    counter, a = qd.field(qd.i32, shape=()), qd.field(qd.i32, shape=(2,))

    @qd.kernel
    def once():
        while qd.graph.do_while(counter):
            a[0] += 1

    @qd.kernel
    def left():
        while qd.graph_do_while(counter=counter):
            a[1] += 1
            counter[None] = 1
            if a[1] == 3:
                break

    once()
    left()
    assert a.to_numpy().tolist() == [1, 3]


@qd.kernel(graph=True)
def sum_of_blocks(counter: ndarray(qd.i32, ndim=0), x: ndarray, y: ndarray):
    n = x.shape[0]
    blocks = (n + 31) // 32
    while qd.graph.do_while(counter):
        qd.loop_config(block_dim=32)
        for i in range(blocks * 32):
            k = i // 32
            total = qd.simt.block.reduce_add(x[i], 32, qd.f32)
            if i % 32 == 0:
                y[k] += total
        for i in range(n):
            x[i] *= 2.0
        for _ in range(1):
            counter[None] -= 1


@pytest.mark.parametrize("count", [1, 3])
def test_loops_of_the_body_run_in_parallel_and_in_blocks(count: int) -> None:
    counter = qd.ndarray(qd.i32, shape=())
    x, y = qd.ndarray(qd.f32, shape=(64,)), qd.ndarray(qd.f32, shape=(2,))
    counter[None] = count
    x.fill(1.0)
    sum_of_blocks(counter, x, y)
    assert y.to_numpy().tolist() == [32.0 * (2**count - 1)] * 2
    assert counter[()] == 0


@qd.func
def halve(a: ndarray, counter: qd.template()):
    for i in a:
        a[i] //= 2
    for _ in range(1):
        counter[None] = 0
    for i in a:
        if a[i] > 0:
            counter[None] = 1


@qd.data_oriented
class Nested:
    def __init__(self) -> None:
        self.inner = qd.field(qd.i32, shape=())
        self.outer = qd.field(qd.i32, shape=())
        self.a = qd.field(qd.i32, shape=4)
        self.rounds = qd.field(qd.i32, shape=4)

    @qd.kernel(graph=True)
    def run(self, start: qd.i32):
        """Halve numbers until all are zero, and that again as often as `outer` says."""
        self.outer[None] = 3
        while qd.graph.do_while(self.outer):
            for i in self.a:
                self.a[i] = start + i
            while qd.graph.do_while(self.inner):
                halve(self.a, self.inner)
                for i in self.rounds:
                    self.rounds[i] += 1
            for _ in range(1):
                self.outer[None] -= 1
        for i in self.a:
            self.a[i] = -1


def test_loops_in_one_another() -> None:
    made = Nested()
    made.run(13)
    assert made.rounds.to_numpy().tolist() == [5 * 3] * 4  # 13 + 3 takes five halvings
    assert made.a.to_numpy().tolist() == [-1] * 4
    assert made.outer[None] == made.inner[None] == 0


@qd.kernel
def carried(counter: ndarray(qd.i32, ndim=0), a: ndarray):
    total = 5
    while qd.graph.do_while(counter):
        for _ in range(4):
            total += 1
        counter[None] -= 1
    for i in range(4):
        a[i] = total


@qd.kernel
def with_constants(counter: ndarray(qd.i32, ndim=0), a: ndarray):
    n = a.shape[0]
    last = n - 1
    step = counter[None]
    for i in range(n):
        a[i] = step
    while qd.graph.do_while(counter):
        for i in range(last):
            j = i + 1
            a[j] += 10
        counter[None] -= 1
    for i in range(n):
        j = last - i
        a[j] += 100


def test_variables_around_a_loop() -> None:
    for kernel, wanted in ((carried, [13] * 4), (with_constants, [102, 122, 122, 122])):
        counter, a = qd.ndarray(qd.i32, shape=()), qd.ndarray(qd.i32, shape=(4,))
        counter[None] = 2
        kernel(counter, a)
        assert a.to_numpy().tolist() == wanted


def test_what_cannot_be_cut_runs_in_order() -> None:
    counter, x = qd.ndarray(qd.i32, shape=()), qd.ndarray(qd.f32, shape=(64,))

    @qd.kernel
    def kernel(counter: ndarray(qd.i32, ndim=0), x: ndarray):
        step = x[0]
        while qd.graph.do_while(counter):
            for i in x:
                x[i] = qd.simt.block.reduce_add(step, 32, qd.f32)

    with pytest.raises(qd.OctantsError, match="OCT240"):
        kernel(counter, x)


def test_gradients_through_iterations() -> None:
    counter = qd.field(qd.i32, shape=())
    x = qd.field(qd.f64, shape=3, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def kernel():
        while qd.graph.do_while(counter):
            for i in x:
                x[i] = x[i] * x[i]
            for _ in range(1):
                counter[None] -= 1
        for i in x:
            loss[None] += x[i]

    x.from_numpy(np.array([0.5, 1.0, 1.5]))
    counter[None] = 3
    with qd.ad.Tape(loss=loss):
        kernel()
    np.testing.assert_allclose(x.grad.to_numpy(), 8 * np.array([0.5, 1.0, 1.5]) ** 7)


@qd.kernel
def sines(x: qd.types.ndarray(qd.f64, 1), y: qd.types.ndarray(qd.f64, 1), left: ndarray):
    left[None] = 2
    while qd.graph.do_while(left):
        for i in y:
            y[i] = qd.sin(x[i])
        left[None] -= 1


@pytest.mark.parametrize("has_gradient", [False, True])
def test_a_bare_gradient_notices_what_was_written_after_the_launch(has_gradient: bool) -> None:
    def arrays() -> list[qd.Ndarray]:
        return [qd.ndarray(qd.f64, shape=3, needs_grad=True) for _ in range(2)]

    @qd.kernel
    def double(x: qd.types.ndarray(qd.f64, 1)):
        for i in x:
            x[i] *= 2

    left, (x, y), others = qd.ndarray(qd.i32, shape=()), arrays(), arrays()
    if has_gradient:
        sines(x, y, left)
        sines.grad(x, y, left)
    for write in (lambda: x.fill(0.9), lambda: double(x)):
        sines(x, y, left)
        others[0].fill(0.5)
        sines.grad(x, y, left)
        write()
        with pytest.raises(qd.OctantsRuntimeError, match="OCT305"):
            sines.grad(x, y, left)
    sines(*others, left)
    sines.grad(x, y, left)  # with arrays of an earlier launch


@pytest.mark.parametrize("is_factor", [True, False])
def test_a_bare_gradient_cannot_draw_the_numbers_of_several_launches(is_factor: bool) -> None:
    x, y = (qd.field(qd.f64, shape=3, needs_grad=True) for _ in range(2))
    left = qd.field(qd.i32, shape=())

    @qd.kernel
    def scatter():
        left[None] = 2
        while qd.graph.do_while(left):
            for i in x:
                if qd.static(is_factor):
                    y[i] += x[i] * qd.random(qd.f64)
                else:
                    y[i] += x[i] + qd.random(qd.f64)
            left[None] -= 1

    scatter()
    if is_factor:
        with pytest.raises(qd.OctantsCompilationError, match="OCT493"):
            scatter.grad()
        return
    y.grad.fill(1.0)
    scatter.grad()
    assert x.grad.to_numpy().tolist() == [2.0] * 3


@pytest.mark.parametrize("index", ["0", "p[i]"])
def test_a_bare_gradient_notices_races_of_a_launch(index: str) -> None:
    x, y = (qd.field(qd.f64, shape=3, needs_grad=True) for _ in range(2))
    left, p = qd.field(qd.i32, shape=()), qd.field(qd.i32, shape=3)

    @qd.kernel
    def gather():
        left[None] = 1
        while qd.graph.do_while(left):
            for i in x:
                if qd.static(index == "0"):
                    y[0] = x[i]
                else:
                    y[p[i]] = x[i]
            left[None] -= 1

    gather()
    with pytest.raises(qd.OctantsError, match="OCT30[34]"):
        gather.grad()


def test_a_tape_has_no_gradients_of_the_arguments_of_several_launches() -> None:
    x = qd.field(qd.f64, shape=3, needs_grad=True)
    left = qd.field(qd.i32, shape=())

    @qd.kernel
    def add(a: qd.f64):
        left[None] = 2
        while qd.graph.do_while(left):
            for i in x:
                x[i] += a
            left[None] -= 1

    with qd.ad.Tape(argument_gradients=True) as tape:
        add(0.5)
        x.grad.fill(1.0)
    with pytest.raises(qd.OctantsRuntimeError, match="OCT494"):
        tape.argument_gradients(add)
    x.grad.fill(1.0)
    assert add.grad.using(argument_gradients=True)(0.5) == {"a": 6.0}


def test_a_counter_is_an_array_without_axes() -> None:
    @qd.kernel
    def wrong():
        while qd.graph.do_while(3):
            pass

    with pytest.raises(qd.OctantsError, match="OCT153"):
        wrong()


def test_it_is_called_by_its_own_name() -> None:
    again, counter = qd.graph.do_while, qd.field(qd.i32, shape=())

    @qd.kernel
    def wrong():
        while again(counter):
            pass

    with pytest.raises(qd.OctantsError, match="by its own name"):
        wrong()


def test_on_the_host_it_is_an_error() -> None:
    with pytest.raises(qd.OctantsError, match="do_while"):
        qd.graph.do_while(qd.field(qd.i32, shape=()))
