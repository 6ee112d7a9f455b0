"""Arrays that are overwritten under a tape, as programs do it, against central differences."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.launch.gradients.derivative_variants import plan_with_modules
from tests.ad.differences import check_tape
from tests.seeds import pairwise

N = 4


class World:
    """Positions, velocities, and scratch."""

    def __init__(self, make: Callable[[], Any] | None = None) -> None:
        make = make or (lambda: qd.field(qd.f64, N, needs_grad=True))
        self.x, self.v, self.y, self.z = (make() for _ in range(4))
        self.loss = qd.field(qd.f64, (), needs_grad=True)
        self.x.from_numpy(np.linspace(0.4, 1.3, N))
        self.v.from_numpy(np.linspace(0.9, -0.7, N))

    def check(self, body: Callable[[], Any], *inputs: Any, **options: Any) -> qd.ad.Tape:
        chosen = inputs or (self.x, self.v)
        others = [a for a in (self.x, self.v, self.y, self.z) if not any(a is b for b in chosen)]
        return check_tape(body, chosen, self.loss, others, **options)

    def total(self) -> None:
        weighted(self.x, self.loss)


@qd.kernel
def weighted(x: qd.Tensor, loss: qd.Tensor):
    for i in range(N):
        loss[None] += (i + 1) * x[i] * x[i]


KINDS: dict[str, Callable[[], Any]] = {
    "field": lambda: qd.field(qd.f64, N, needs_grad=True),
    "ndarray": lambda: qd.ndarray(qd.f64, N, needs_grad=True),
}


@pytest.fixture(params=KINDS)
def w(request: Any) -> World:
    return World(KINDS[request.param])


@qd.kernel
def settle(x: qd.Tensor, v: qd.Tensor):
    for i in range(N):
        before = x[i]
        x[i] = before * before
        square = x[i]
        if square > 0.3:
            x[i] = square * x[i] * v[i] ** 2
        between = x[i]
        while x[i] > 0.1:
            x[i] = 0.6 * x[i] * qd.cos(x[i])
            between *= x[i]
        for _ in range(i):
            x[i] = between * x[i] + before
        v[i] = before * square * between * x[i]


def test_reads_once_in_branches_and_in_loops(w: World) -> None:
    """What runs once is kept as a value; the rest, and what a condition reads again, is logged."""

    def body() -> None:
        settle(w.x, w.v)
        weighted(w.v, w.loss)
        w.total()

    w.check(body)


@qd.kernel
def damp(x: qd.Tensor, v: qd.Tensor):
    for i in range(N):
        for _ in range(1):
            x[i] *= v[i]
        x[i] *= qd.sin(v[i]) + x[i]
        qd.atomic_max(x[i], 0.1 * v[i])
        v[i] = v[i] * x[i]


@qd.kernel
def bounced(x: qd.Tensor, v: qd.Tensor):
    for i in range(N):
        if x[i] > 0.5:
            before = x[i]
            x[i] = before * before * v[i]
            if v[i] > -0.5:
                between = x[i]
                x[i] = between * qd.sin(between)
                v[i] = between * v[i]
            else:
                v[i] = v[i] * x[i] * before
        else:
            v[i] = v[i] * v[i] * x[i]
            x[i] = x[i] * v[i]


def test_reads_in_branches_take_no_record(w: World) -> None:
    """Ifs outside of loops yield what they read, so that such tapes can be replayed."""
    w.check(lambda: (bounced(w.x, w.v), bounced(w.x, w.v), w.total()))
    plan = plan_with_modules(bounced.specialise((w.x, w.v)))
    modules = [step.backward.module for step in plan.steps if step.backward is not None]
    names = {op.NAME for module in modules if module is not None for op in module.walk()}
    assert "if" in names
    assert not {name for name in names if name.startswith("record")}


def test_updates_that_run_once(w: World) -> None:
    def body() -> None:
        damp(w.x, w.v)
        weighted(w.v, w.loss)
        w.total()

    w.check(body)


# -- over several launches ------------------------------------------------------------------------


@qd.kernel
def accelerate(x: qd.Tensor, v: qd.Tensor, dt: qd.f64):
    for i in range(N):
        v[i] -= dt * qd.sin(x[i]) * v[i] * v[i]


@qd.kernel
def move(x: qd.Tensor, v: qd.Tensor, dt: qd.f64):
    for i in range(N):
        x[i] += dt * v[i]


def test_time_stepping_in_place(w: World) -> None:
    def body() -> None:
        for step in range(6):
            accelerate(w.x, w.v, 0.1 + 0.02 * step)
            move(w.x, w.v, 0.1)
        w.total()

    w.check(body)


@qd.kernel
def smooth(source: qd.Tensor, target: qd.Tensor):
    for i in range(N):
        target[i] = qd.sin(source[i]) * source[(i + 1) % N]


def test_ping_pong(w: World) -> None:
    def body() -> None:
        one, other = w.x, w.y
        for _ in range(5):
            smooth(one, other)
            one, other = other, one
        weighted(one, w.loss)

    w.check(body, w.x)


@qd.kernel
def scatter(x: qd.Tensor, v: qd.Tensor, grid: qd.Tensor):
    for i in range(N):
        grid[i // 2] += v[i] * v[i]
        grid[(i + 1) // 2] += qd.cos(x[i])


@qd.kernel
def gather(grid: qd.Tensor, x: qd.Tensor, v: qd.Tensor):
    for i in range(N):
        v[i] = v[i] + 0.1 * grid[i // 2] * grid[(i + 1) // 2]
        x[i] = x[i] + 0.1 * v[i]


@qd.kernel
def clear(grid: qd.Tensor):
    for i in range(N):
        grid[i] = 0.0


CLEARINGS: dict[str, Callable[[World], Any]] = {
    "fill": lambda w: w.y.fill(0),
    "from_numpy": lambda w: w.y.from_numpy(np.zeros(N)),
    "copy_from": lambda w: w.y.copy_from(w.z),
    "elements": lambda w: [w.y.__setitem__(i, 0) for i in range(N)],
    "kernel": lambda w: clear(w.y),
}


@pytest.mark.parametrize("how", ["fill", "from_numpy", "copy_from", "elements", "kernel"])
def test_a_grid_that_is_cleared_at_each_step(w: World, how: str) -> None:
    def body() -> None:
        for _ in range(4):
            CLEARINGS[how](w)
            scatter(w.x, w.v, w.y)
            gather(w.y, w.x, w.v)
        w.total()

    w.check(body)


def test_scratch_that_each_step_uses_again(w: World) -> None:
    def body() -> None:
        for _ in range(4):
            smooth(w.x, w.y)
            smooth(w.y, w.z)
            smooth(w.z, w.x)
        w.total()

    w.check(body, w.x)


HOST_WRITES: dict[str, Callable[[Any], Any]] = {
    "fill": lambda x: x.fill(0.7),
    "from_numpy": lambda x: x.from_numpy(np.linspace(0.1, 0.5, N)),
    "element": lambda x: x.__setitem__(2, 0.3),
}


@pytest.mark.parametrize(
    ("w", "how", "what"), pairwise(list(KINDS), list(HOST_WRITES), ["x", "v", "y"]), indirect=["w"]
)
def test_host_writes_between_launches(w: World, how: str, what: str) -> None:
    def body() -> None:
        smooth(w.x, w.y)
        accelerate(w.y, w.v, 0.3)
        HOST_WRITES[how](getattr(w, what))
        move(w.x, w.v, 0.2)
        accelerate(w.y, w.v, 0.3)
        weighted(w.v, w.loss)
        w.total()

    w.check(body)


def test_copies_between_arrays_route_adjoints(w: World) -> None:
    def body() -> None:
        smooth(w.x, w.y)
        w.z.copy_from(w.y)
        smooth(w.z, w.y)
        w.x.copy_from(w.y)
        w.v.copy_from(w.x)
        move(w.x, w.v, 0.5)
        w.total()

    w.check(body, w.x)


# -- within one kernel ----------------------------------------------------------------------------


@qd.kernel
def read_then_overwrite(x: qd.Tensor, y: qd.Tensor):
    for i in range(N):
        old = x[i]
        x[i] = qd.sin(old)
        y[i] = old * old + x[i] * old
        x[i] = x[i] * y[i]


@qd.kernel
def carry_through_memory(x: qd.Tensor, y: qd.Tensor):
    for i in range(N):
        for k in range(5):
            x[i] = qd.sin(x[i]) + 0.1 * k * x[i] * x[i]
            y[i] += x[i] * x[i]


@qd.kernel
def halve(x: qd.Tensor, y: qd.Tensor):
    for i in range(N):
        while x[i] > 0.13:
            x[i] *= 0.5
            y[i] += x[i] * x[i]


@qd.kernel
def leave_by_break(x: qd.Tensor, y: qd.Tensor):
    for i in range(N):
        for _k in range(50):
            x[i] = x[i] * x[i] * 0.5
            if x[i] < 0.05:
                break
            y[i] += qd.exp(x[i])


@qd.kernel
def neighbours(x: qd.Tensor, y: qd.Tensor):
    qd.loop_config(serialize=True)
    for i in range(1, N):
        x[i] = x[i] * x[i - 1] + qd.cos(x[i])
        y[i - 1] = x[i] * x[i - 1]


@qd.kernel
def several_tasks(x: qd.Tensor, y: qd.Tensor):
    for i in range(N):
        y[i] = x[i] * x[i]
    for i in range(N):
        x[i] = qd.sin(y[i]) * x[i]
    for i in range(N):
        y[i] = 0.0
    largest = x[0] * x[N - 1]
    for i in range(N):
        x[i] = x[i] * largest


@qd.kernel
def serial_values(x: qd.Tensor, y: qd.Tensor):
    scale = x[0] * x[1]
    total = 0.0
    for i in range(N):
        total += x[i] * scale
    x[0] = total * total
    shift = qd.sin(x[0]) * scale
    for i in range(N):
        y[i] = x[i] * shift
        x[i] = y[i] * total


ONE_KERNEL = [
    read_then_overwrite,
    carry_through_memory,
    halve,
    leave_by_break,
    neighbours,
    several_tasks,
    serial_values,
]


@pytest.mark.parametrize("kernel", ONE_KERNEL, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("times", [1, 2])
def test_within_one_kernel(w: World, kernel: Any, times: int) -> None:
    def body() -> None:
        for _ in range(times):
            kernel(w.x, w.y)
        w.total()
        weighted(w.y, w.loss)

    w.check(body, w.x, w.y)


def test_a_bound_that_the_kernel_decrements() -> None:
    w = World()
    left = qd.field(qd.i32, N)

    @qd.kernel
    def consume():
        for i in range(N):
            while left[i] > 0:
                w.x[i] = qd.sin(w.x[i]) * 1.3
                left[i] -= 1
            for _k in range(left[i] + 2):
                w.x[i] = w.x[i] * w.x[i]

    def body() -> None:
        left.from_numpy(np.array([3, 0, 1, 5], np.int32))
        consume()
        left.fill(2)
        consume()
        w.total()

    w.check(body, w.x)
    assert left.to_numpy().tolist() == [0, 0, 0, 0]


def test_indices_that_the_kernel_overwrites() -> None:
    w = World()
    at = qd.field(qd.i32, N)

    @qd.kernel
    def permute():
        for i in range(N):
            w.y[i] = w.x[at[i]] * w.x[i]
            at[i] = (at[i] + 1) % N

    def body() -> None:
        at.from_numpy(np.array([2, 0, 3, 1], np.int32))
        permute()
        permute()
        weighted(w.y, w.loss)

    w.check(body, w.x)


def test_bare_gradients_run_where_nothing_is_lost() -> None:
    w = World()
    at = qd.field(qd.i32, N)
    at.from_numpy(np.array([2, 0, 3, 1], np.int32))
    rows = qd.field(qd.f64, (3, N), needs_grad=True)
    rows.fill(0.5)

    @qd.kernel
    def indirect():
        for i in range(N):
            w.y[at[i]] = w.x[i] * w.x[at[i]]

    @qd.kernel
    def next_row(t: qd.i32):
        for i in range(N):
            rows[t + 1, i] = rows[t, i] ** 2

    indirect()
    w.y.grad.fill(1)
    indirect.grad()
    x = w.x.to_numpy()
    permutation = np.array([2, 0, 3, 1])
    assert w.x.grad.to_numpy() == pytest.approx(x[permutation] + x[np.argsort(permutation)])
    for t in range(2):
        next_row(t)
    rows.grad.from_numpy(np.array([[0.0] * N, [0.0] * N, [1.0] * N]))
    for t in (1, 0):
        next_row.grad(t)
    assert rows.grad.to_numpy()[0] == pytest.approx([4 * 0.5**3] * N)


@pytest.mark.parametrize("kernel", [k for k in ONE_KERNEL if k is not read_then_overwrite])
def test_bare_gradients_are_errors_where_something_is(w: World, kernel: Any) -> None:
    start = w.x.to_numpy()
    with pytest.raises(qd.OctantsCompilationError, match="OCT301") as caught:
        kernel.grad(w.x, w.y)
    assert caught.value.diagnostic is not None
    assert len(caught.value.diagnostic.labels) == 2
    assert w.x.to_numpy().tolist() == start.tolist()


# -- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["together", "strided", "nested"])
def test_storage_that_a_field_shares_with_its_gradient(layout: str) -> None:
    x, y = (qd.field(qd.f64, needs_grad=True) for _ in range(2))
    if layout == "together":
        qd.root.dense(qd.i, N).place(x, x.grad, y, y.grad)
    elif layout == "strided":
        qd.root.dense(qd.i, N).place(x, y, x.grad)
        qd.root.dense(qd.i, N).place(y.grad)
    else:
        qd.root.dense(qd.i, N // 2).dense(qd.i, 2).place(x, x.grad, y)
        qd.root.dense(qd.i, N).place(y.grad)
    loss = qd.field(qd.f64, (), needs_grad=True)
    x.from_numpy(np.linspace(0.4, 1.3, N))

    def body() -> None:
        for _ in range(3):
            several_tasks(x, y)
            carry_through_memory(x, y)
        weighted(x, loss)
        weighted(y, loss)

    check_tape(body, [x, y], loss)


def test_vectors_and_matrices_in_place() -> None:
    q = qd.Vector.field(3, qd.f64, 2, needs_grad=True)
    turn = qd.Matrix.field(3, 3, qd.f64, 2, needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)
    q.from_numpy(np.linspace(0.1, 0.9, 6).reshape(2, 3))
    turn.from_numpy(np.cos(np.arange(18.0)).reshape(2, 3, 3))

    @qd.kernel
    def rotate():
        for i in q:
            q[i] = (turn[i] @ q[i]).normalized()
            turn[i] = 0.5 * turn[i] @ turn[i]
            q[i][1] += q[i][0] * q[i][2]

    @qd.kernel
    def finish():
        for i in q:
            loss[None] += q[i].dot(turn[i] @ q[i])

    def body() -> None:
        rotate()
        rotate()
        finish()

    check_tape(body, [q, turn], loss)


def test_one_array_as_two_arguments(w: World) -> None:
    @qd.kernel
    def mix(a: qd.Tensor, b: qd.Tensor):
        for i in range(N):
            a[i] = a[i] * b[i]
            b[i] = qd.sin(a[i])

    def body() -> None:
        mix(w.x, w.x)
        mix(w.x, w.y)
        mix(w.y, w.y)
        w.total()
        weighted(w.y, w.loss)

    w.check(body, w.x, w.y)


# -- torch ----------------------------------------------------------------------------------------


@qd.kernel
def square(x: qd.types.ndarray(), y: qd.types.ndarray()):
    for i in range(x.shape[0]):
        y[i] = x[i] * x[i]


@qd.kernel
def add_up(x: qd.types.ndarray(), loss: qd.types.ndarray()):
    for i in range(x.shape[0]):
        loss[None] += x[i]


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def tensor_with_gradient(torch: Any, values: Any) -> Any:
    tensor = torch.tensor(values, dtype=torch.float64)
    tensor.grad = torch.zeros_like(tensor)
    return tensor


def test_torch_tensors_in_place(torch: Any) -> None:
    x = tensor_with_gradient(torch, [0.5, 1.5])
    loss = qd.ndarray(qd.f64, (), needs_grad=True)
    with qd.ad.Tape(loss=loss):
        square(x, x)
        square(x, x)
        add_up(x, loss)
    assert x.grad.tolist() == [4 * 0.5**3, 4 * 1.5**3]
    assert x.tolist() == [0.5**4, 1.5**4]


def test_torch_views_that_overlap_are_right_or_an_error(torch: Any) -> None:
    base = torch.arange(1.0, 7.0, dtype=torch.float64)
    loss = qd.ndarray(qd.f64, (), needs_grad=True)
    with pytest.raises(qd.OctantsRuntimeError, match="OCT315"):
        with qd.ad.Tape(loss=loss):
            square(base[:4], base[2:])
    assert base.tolist() == [1, 2, 3, 4, 5, 6]
    out = tensor_with_gradient(torch, [0.0] * 3)
    x = qd.ndarray(qd.f64, 3, needs_grad=True)
    x.fill(2)

    @qd.kernel
    def weigh(w: qd.types.ndarray(), x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in range(3):
            y[i] += w[i] * x[i]

    with qd.ad.Tape(loss=loss):
        weigh(base[:3], x, out)
        square(base[1:4], base[1:4])
        weigh(base[1:4], x, out)
        weigh(base[::2], x, out)
        add_up(out, loss)
    first, squared = np.array([1, 2, 3]), np.array([1, 4, 9, 16, 5, 6])
    assert x.grad.to_numpy().tolist() == (first + squared[1:4] + squared[::2]).tolist()
    assert base.tolist() == squared.tolist()


# -- how a tape ends ------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [0, 1, 2])
def test_arrays_are_as_the_body_left_them_wherever_the_backward_pass_raises(where: int) -> None:
    w = World()

    @qd.ad.grad_replaced
    def call(number: int) -> None:
        read_then_overwrite(w.x, w.y)

    @qd.ad.grad_for(call)
    def gradient(number: int) -> None:
        w.x.fill(-1)
        w.z.fill(-1)
        if number == where:
            raise ZeroDivisionError

    w.z.fill(5)
    with pytest.raises(ZeroDivisionError), qd.ad.Tape(loss=w.loss):
        for number in range(3):
            several_tasks(w.x, w.y)
            weighted(w.z, w.loss)
            call(number)
        left = [array.to_numpy() for array in (w.x, w.y, w.z)]
    for array, content in zip((w.x, w.y, w.z), left, strict=True):
        assert array.to_numpy().tolist() == content.tolist()
    w.check(lambda: several_tasks(w.x, w.y) or w.total(), w.x)


@pytest.mark.parametrize("thread", [False, True])
def test_arrays_that_are_not_on_the_tape_stay_as_a_replaced_gradient_leaves_them(
    thread: bool,
) -> None:
    """A solver in it may count, or begin where it ended before: also its second write stays."""
    w = World()
    count, trace = qd.field(qd.i32, ()), qd.ndarray(qd.f64, 4)

    @qd.kernel
    def increment():
        count[None] += 1

    @qd.ad.grad_replaced
    def call() -> None:
        weighted(w.x, w.loss)

    def work() -> None:
        for number in range(4):
            increment()
            trace[number] = number + 1.0

    @qd.ad.grad_for(call)
    def gradient() -> None:
        if thread:
            worker = threading.Thread(target=work)
            worker.start()
            worker.join()
        else:
            work()
        weighted.grad(w.x, w.loss)

    with qd.ad.Tape(loss=w.loss):
        call()
        call()
    assert count[None] == 8
    assert trace.to_numpy().tolist() == [1, 2, 3, 4]


def test_a_replaced_gradient_sees_each_array_as_its_call_left_it() -> None:
    w = World()
    seen: list[Any] = []

    @qd.ad.grad_replaced
    def call() -> None:
        read_then_overwrite(w.x, w.y)

    @qd.ad.grad_for(call)
    def gradient() -> None:
        seen.append((w.x.to_numpy(), w.y.to_numpy()))

    after = []
    with qd.ad.Tape(loss=w.loss):
        for _ in range(3):
            call()
            after.append((w.x.to_numpy(), w.y.to_numpy()))
            several_tasks(w.x, w.y)
        w.total()
    for (x, y), (left_x, left_y) in zip(reversed(seen), after, strict=True):
        assert x.tolist() == left_x.tolist()
        assert y.tolist() == left_y.tolist()


@qd.kernel
def write_rows(x: qd.Tensor, begin: qd.i32, end: qd.i32, value: qd.f64):
    for i, j in qd.ndrange((begin, end), x.shape[1]):
        x[i, j] = value + 10 * i + j


@qd.kernel
def read_rows(x: qd.Tensor, begin: qd.i32, end: qd.i32, loss: qd.Tensor):
    for i, j in qd.ndrange((begin, end), x.shape[1]):
        loss[None] += x[i, j] ** 2


@pytest.mark.parametrize("seed", range(12))
def test_replaced_gradients_see_all_rows_whatever_rows_they_and_others_write(seed: int) -> None:
    rng = np.random.default_rng(seed)
    make = [qd.field, qd.ndarray][seed % 2]
    x, y, loss = (make(qd.f64, shape=s, needs_grad=True) for s in ((6, 3), (6, 3), ()))
    seen, after = [], []

    def scribble() -> None:
        for array in (x, y):
            if rng.random() < 0.7:
                begin = rng.integers(6)
                write_rows(array, begin, rng.integers(begin, 7), rng.random())
            if rng.random() < 0.3:
                array[int(rng.integers(6)), 1] = rng.random()
            if rng.random() < 0.1:
                array.fill(rng.random())

    @qd.ad.grad_replaced
    def call() -> None:
        scribble()
        for array in (x, y):  # what a call accesses is restored
            read_rows(array, 0, 0, loss)

    @qd.ad.grad_for(call)
    def gradient() -> None:
        seen.append((x.to_numpy(), y.to_numpy()))
        scribble()

    with qd.ad.Tape(loss=loss):
        for _ in range(12):
            call()
            after.append((x.to_numpy(), y.to_numpy()))
            if rng.random() < 0.5:
                begin = rng.integers(6)
                end = rng.integers(begin, 7)
                read_rows(x, begin, end, loss)
            if rng.random() < 0.5:
                scribble()
        left = x.to_numpy(), y.to_numpy()
        read_rows(x, 0, 6, loss)
    for one, other in zip(reversed(seen), after, strict=True):
        assert [a.tolist() for a in one] == [a.tolist() for a in other]
    assert [x.to_numpy().tolist(), y.to_numpy().tolist()] == [a.tolist() for a in left]


def test_a_replaced_gradient_costs_copies_of_the_rows_that_its_call_writes() -> None:
    x, loss = qd.field(qd.f64, shape=(100, 8)), qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.ad.grad_replaced
    def call(row: int) -> None:
        write_rows(x, row, row + 1, 1.0)

    @qd.ad.grad_for(call)
    def gradient(row: int) -> None:
        assert x[row, 0] == 1.0 + 10 * row and x[row + 1, 0] == 0.0
        write_rows(x, row, row + 1, 2.0)

    with qd.ad.Tape(loss=loss) as tape:
        for row in range(50):
            call(row)
        read_rows(x, 0, 0, loss)
    assert tape.snapshot_bytes <= 50 * 8 * 8


def test_kernels_with_returns_and_scalar_arguments(w: World) -> None:
    @qd.kernel
    def advance(x: qd.Tensor, dt: qd.f64, n: qd.i32) -> qd.f64:
        energy = 0.0
        for i in range(N):
            for _k in range(n):
                x[i] = x[i] + dt * qd.sin(x[i])
            energy += x[i]
        for i in range(N):
            x[i] = x[i] * energy
        return energy

    def body() -> None:
        assert advance(w.x, 0.1, 3) > 0
        advance(w.x, 0.05, 0)
        advance(w.x, 0.2, 2)
        w.total()

    w.check(body, w.x)


def test_what_is_not_recorded_may_overwrite_what_is_needed(w: World) -> None:
    @qd.ad.no_grad
    def perturb() -> None:
        w.y.fill(3)
        clear(w.z)

    def body() -> None:
        smooth(w.x, w.y)
        smooth(w.y, w.z)
        smooth(w.z, w.x)
        perturb()
        w.total()

    w.check(body, w.x)
