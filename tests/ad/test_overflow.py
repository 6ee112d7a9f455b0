"""Records of a forced size: overflow is an error of the next synchronisation."""

from __future__ import annotations

import itertools
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.driver import state
from tests.devices import DISCRETE, ON_GPU, on_cpu
from tests.golden_files import check_golden

N = 6
START = np.linspace(0.3, 0.8, N)


def start(slots: int, **options: Any) -> None:
    chosen = {"arch": qd.cpu, "default_fp": qd.f64, "log_level": "error", **options}
    qd.init(ad_stack_size=slots, **chosen)


class Case:
    """A kernel on fields ``x`` and ``y``, and how many slots its records need."""

    def __init__(self, name: str, make: Callable[[Any, Any], Any], need: int) -> None:
        self.name, self.make, self.need = name, make, need


def loop(x: Any, y: Any) -> Any:
    @qd.kernel
    def k(n: qd.i32):
        for i in x:
            v = x[i]
            for _ in range(n):
                v = qd.sin(v) * 1.1
            y[i] = v

    return k


def loop_from(x: Any, y: Any) -> Any:
    @qd.kernel
    def k(n: qd.i32):
        for i in x:
            v = x[i]
            for j in range(-n, i - 2):
                v = qd.sin(v) + 0.01 * j
            y[i] = v

    return k


def while_loop(x: Any, y: Any) -> Any:
    @qd.kernel
    def k(n: qd.i32):
        for i in x:
            v, j = x[i], 0
            while j < n + i:
                v = qd.sin(v) * 1.1
                j += 1
            y[i] = v

    return k


def leaving(x: Any, y: Any) -> Any:
    @qd.kernel
    def k(n: qd.i32):
        for i in x:
            v = x[i]
            for j in range(100):
                if j == n + i:
                    break
                v = qd.sin(v) * 1.1
            y[i] = v

    return k


def triangle(x: Any, y: Any) -> Any:
    """The inner loop needs most; its worst count is in the middle of the outer one."""

    @qd.kernel
    def k(n: qd.i32):
        for i in x:
            v = x[i]
            for j in range(5):
                for _ in range(n - (j - 2) * (j - 2)):
                    v = qd.sin(v) * 1.1
            y[i] = v

    return k


def sums(x: Any, y: Any) -> Any:
    """Only the inner loop has a record, since what the outer one carries is not read."""

    @qd.kernel
    def k(n: qd.i32):
        for i in x:
            total = 0.0
            for j in range(20):
                v, m = x[i], 0
                while m < n - j:
                    v = qd.sin(v) * 1.1
                    m += 1
                total += v
            y[i] = total

    return k


def third(x: Any, y: Any) -> Any:
    @qd.kernel
    def k(n: qd.i32):
        for i in x:
            v = x[i]
            for a in range(2):
                for b in range(3):
                    if b == 1:
                        for _ in range(n + a):
                            v = qd.sin(v) * 1.1
            y[i] = v

    return k


def serial(x: Any, y: Any) -> Any:
    @qd.kernel
    def k(n: qd.i32):
        v = x[0]
        for _ in range(1):
            for j in range(n):
                v = qd.sin(v) * (1.0 + 0.01 * j)
        y[0] = v

    return k


def tasks(x: Any, y: Any) -> Any:
    """The second task needs most."""

    @qd.kernel
    def k(n: qd.i32):
        for i in x:
            v = x[i]
            for _ in range(n):
                v = qd.sin(v) * 1.1
            y[i] += v
        for i in x:
            w = x[i]
            for _ in range(n + i):
                w = qd.cos(w)
            y[i] += w

    return k


def overwriting(x: Any, y: Any) -> Any:
    """Reversed on the memory from before it: its first sweep runs the stores again."""

    @qd.kernel
    def k(n: qd.i32):
        for i in x:
            y[i] = x[i]
            for _ in range(n):
                y[i] = qd.sin(y[i]) * y[i] + x[i]

    return k


CASES = [
    Case("loop", loop, 9),
    Case("loop_from", loop_from, 9 + N - 3),
    Case("while", while_loop, 9 + N - 1),
    Case("leaving", leaving, 9 + N),  # that in which it is left is one of its iterations
    Case("triangle", triangle, 9),
    Case("sums", sums, 9),
    Case("third", third, 10),
    Case("serial", serial, 9),
    Case("tasks", tasks, 9 + N - 1),
]
by_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def fields() -> tuple[Any, Any]:
    x = qd.field(qd.f64, shape=N, needs_grad=True)
    y = qd.field(qd.f64, shape=N, needs_grad=True)
    x.from_numpy(START)
    return x, y


def gradient(case: Case, slots: int, **options: Any) -> np.ndarray[Any, Any]:
    """The gradient of the sum of y, of whose overflow the reading tells."""
    start(slots, **options)
    x, y = fields()
    kernel = case.make(x, y)
    kernel(9)
    y.grad.fill(1.0)
    kernel.grad(9)
    result: np.ndarray[Any, Any] = x.grad.to_numpy()
    return result


def differences(case: Case) -> np.ndarray[Any, Any]:
    """The same by central differences."""
    start(0)
    x, y = fields()
    kernel = case.make(x, y)
    result = np.zeros(N)
    for i, sign in itertools.product(range(N), (1, -1)):
        moved = START.copy()
        moved[i] += sign * 1e-6
        x.from_numpy(moved)
        y.fill(0.0)
        kernel(9)
        result[i] += sign * y.to_numpy().sum() / 2e-6
    return result


# -- what fits, and what does not -----------------------------------------------------------------


@by_case
def test_just_enough_slots(case: Case) -> None:
    free = gradient(case, 0)
    np.testing.assert_allclose(free, differences(case), rtol=1e-6, atol=1e-8)
    assert np.array_equal(gradient(case, case.need), free)
    assert np.array_equal(gradient(case, 10**9), free)


@by_case
@pytest.mark.parametrize("arch", ["cpu", "python"])
def test_one_slot_too_few(case: Case, arch: str) -> None:
    with pytest.raises(qd.OctantsAssertionError) as caught:
        gradient(case, case.need - 1, arch=getattr(qd, arch))
    text = str(caught.value)
    assert "kernel `k`: the records of a loop overflowed" in text
    assert f"needs {case.need} slots, one for each iteration, and has {case.need - 1}" in text


@by_case
def test_an_overflowing_work_item_reverses_nothing(case: Case) -> None:
    """Its gradient is not touched; those of the items that fit are right."""
    free = gradient(case, 0)
    for slots in {1, case.need - N + 1, case.need - 1}:
        start(slots)
        x, y = fields()
        kernel = case.make(x, y)
        kernel(9)
        y.grad.fill(1.0)
        kernel.grad(9)
        with pytest.raises(qd.OctantsAssertionError):
            qd.sync()
        found = x.grad.to_numpy()
        if case.name == "tasks":  # the first task is small enough to be reversed by itself
            continue
        assert all(found[i] in (0.0, free[i]) for i in range(N))
        assert (found == 0.0).any()
        assert (y.grad.to_numpy() == 1.0).any()


def test_loops_without_a_record_need_no_slots() -> None:
    start(1)
    x, y = fields()

    @qd.kernel
    def k(n: qd.i32):
        for i in x:
            total, factor = 0.0, 1.0
            for j in range(n):
                total += x[i] * j
                factor *= 0.5
            y[i] = total + factor

    k(100)
    y.grad.fill(1.0)
    k.grad(100)
    assert (x.grad.to_numpy() == 4950.0).all()
    assert "record" not in k.inspect(100, mode="reverse").stages["reverse"]


def test_the_size_decides_the_code_and_nothing_is_left_of_another() -> None:
    """The same kernel object with one size after the other."""
    values = {}
    x: Any = None
    y: Any = None

    @qd.kernel
    def k(n: qd.i32):
        for i in x:
            v = x[i]
            for _ in range(n):
                v = qd.sin(v)
            y[i] = v

    for slots in (0, 4, 9, 4, 0, 10):
        start(slots)
        x, y = fields()
        k(9)
        y.grad.fill(1.0)
        k.grad(9)
        if slots == 4:
            with pytest.raises(qd.OctantsAssertionError, match="and has 4"):
                x.grad.to_numpy()
        else:
            values[slots] = x.grad.to_numpy()
    assert np.array_equal(values[0], values[9])
    assert np.array_equal(values[0], values[10])


# -- many iterations ------------------------------------------------------------------------------


def range_loop(x: Any, y: Any, kind: Any) -> Any:
    @qd.kernel
    def k(lower: kind, upper: kind):
        for i in x:
            v = x[i]
            for j in range(lower, upper):
                v = qd.sin(v) * j
            y[i] = v

    return k


FAR = [
    (qd.i32, -(2**31), 2**31 - 1),
    (qd.i32, -1, 2**31 - 1),
    (qd.i64, -(2**31), 2**31),
    (qd.i64, 3, 2**40),
    (qd.i64, -(2**62), 2**60),
]


@pytest.mark.parametrize(("kind", "lower", "upper"), FAR)
def test_the_iterations_of_a_far_range_are_counted(kind: Any, lower: int, upper: int) -> None:
    start(1000)
    x, y = fields()
    kernel = range_loop(x, y, kind)
    kernel.grad(lower, upper)
    with pytest.raises(qd.OctantsAssertionError, match=f"needs {upper - lower} slots"):
        qd.sync()


@on_cpu
@pytest.mark.parametrize(("kind", "lower", "upper"), FAR)
def test_memory_for_a_far_range_is_refused(kind: Any, lower: int, upper: int) -> None:
    """Even for blocks of one iteration, and the checkpoints of so many of them."""
    start(0)
    state.device.pool.fields.record_buffer_limit = 20  # type: ignore[union-attr]
    x, y = fields()
    kernel = range_loop(x, y, kind)
    with pytest.raises(qd.OctantsMemoryError) as caught:
        kernel.grad(lower, upper)
    text = str(caught.value)
    assert "kernel `k`: there is no memory for the records of its gradient" in text
    assert "one work item needs" in text
    assert "for j in range(lower, upper):" in text
    kernel.grad(lower, lower)
    assert not x.grad.to_numpy().any()


@on_cpu
def test_memory_refused_under_a_tape() -> None:
    """The tape raises it, names what takes memory, and leaves arrays as the body left them."""
    start(0, cpu_max_num_threads=1, simd=False, ad_stack_nests="replay")
    device = state.device
    device.pool.fields.record_buffer_limit = 20_000  # type: ignore[union-attr]
    x, _ = fields()
    loss = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def grow(n: qd.i32):
        for i in x:
            a, b = x[i], 1.0
            for j in range(n):
                a, b = qd.sin(a * b), qd.cos(a + b)
                for _ in range(j % 3):
                    a *= a
            x[i] = a + b
        for i in x:
            loss[None] += x[i]

    def run(n: int) -> None:
        with qd.ad.Tape(loss=loss):
            grow(n)

    with pytest.raises(qd.OctantsMemoryError) as caught:
        run(500_000)
    text = str(caught.value)
    assert "kernel `grow`: there is no memory" in text
    assert "for j in range(n):" in text
    assert "its record takes 16 bytes an iteration" in text
    assert "for _ in range(j % 3):" in text
    assert "its record takes 8 bytes an iteration" in text
    after = x.to_numpy()
    x.from_numpy(START)
    grow(500_000)
    assert np.array_equal(after, x.to_numpy())
    x.from_numpy(START)
    run(1000)
    assert x.grad.to_numpy().any()


@pytest.mark.parametrize("slots", [0, 40])
@pytest.mark.parametrize(("kind", "lower", "upper"), FAR)
def test_a_far_range_that_is_left_early(kind: Any, lower: int, upper: int, slots: int) -> None:
    start(slots)
    x, y = fields()

    @qd.kernel
    def k(lower: kind, upper: kind):
        for i in x:
            v = x[i]
            for j in range(lower, upper):
                if j >= lower + 30 + i:
                    break
                v = qd.sin(v) * 1.1
            y[i] = v

    k(lower, upper)
    y.grad.fill(1.0)
    k.grad(lower, upper)
    wanted = []
    for i in range(N):
        v, slope = START[i], 1.0
        for _ in range(30 + i):
            slope *= np.cos(v) * 1.1
            v = np.sin(v) * 1.1
        wanted.append(slope)
    np.testing.assert_allclose(x.grad.to_numpy(), wanted, rtol=1e-9)


# -- when it is raised ----------------------------------------------------------------------------


def overflow() -> tuple[Any, Any, Any]:
    """A launch whose tape has overflowed, and which has returned."""
    start(4)
    x, y = fields()
    kernel = loop(x, y)
    kernel(5)
    y.grad.fill(1.0)
    kernel.grad(5)
    return x, y, kernel


SYNCHRONISATIONS = {
    "sync": lambda x, y: qd.sync(),
    "element": lambda x, y: y[0],
    "to_numpy": lambda x, y: x.grad.to_numpy(),
    "asarray": lambda x, y: np.asarray(y),
    # On a GPU the host sees nothing of a copy, or of memory that it exports.
    **({} if ON_GPU else {"copy_from": lambda x, y: x.copy_from(y)}),
    **({} if DISCRETE else {"dlpack": lambda x, y: x.to_dlpack()}),
}


@pytest.mark.parametrize("way", SYNCHRONISATIONS)
def test_every_synchronisation_raises_it_once(way: str) -> None:
    x, y, kernel = overflow()
    with pytest.raises(qd.OctantsAssertionError, match="OCT423"):
        SYNCHRONISATIONS[way](x, y)
    for other in SYNCHRONISATIONS.values():
        other(x, y)
    x.grad.fill(0.0)
    y.grad.fill(1.0)
    kernel(4)  # as one of the ways has written `x`
    kernel.grad(4)
    qd.sync()
    assert (x.grad.to_numpy() != 0.0).all()


def test_to_torch_raises_it() -> None:
    pytest.importorskip("torch")
    x, _, _ = overflow()
    with pytest.raises(qd.OctantsAssertionError, match="OCT423"):
        x.grad.to_torch()
    x.grad.to_torch()


def test_a_value_that_a_kernel_returns_raises_it() -> None:
    x, _, _ = overflow()

    @qd.kernel
    def total() -> qd.f64:
        result = 0.0
        for i in x:
            result += x.grad[i]
        return result

    with pytest.raises(qd.OctantsAssertionError, match="OCT423"):
        total()
    assert total() == 0.0


def test_launches_and_host_writes_go_on() -> None:
    x, y, kernel = overflow()
    x.fill(0.5)
    x[0] = 0.25
    kernel(5)
    kernel.grad(5)
    kernel.grad(3)
    with pytest.raises(qd.OctantsAssertionError, match="1 more launches have overflowed since"):
        y.to_numpy()
    qd.sync()


def test_under_a_tape_the_synchronisation_after_it_raises() -> None:
    start(4)
    x, y = fields()
    loss = qd.field(qd.f64, shape=(), needs_grad=True)
    kernel = loop(x, y)

    @qd.kernel
    def add():
        for i in y:
            loss[None] += y[i]

    def run(n: int) -> None:
        with qd.ad.Tape(loss=loss):
            kernel(n)
            add()

    run(5)
    with pytest.raises(qd.OctantsAssertionError, match="kernel `k`"):
        loss[None]
    run(4)
    assert loss[None] > 0
    assert (x.grad.to_numpy() != 0.0).all()


def test_a_kernel_that_is_reversed_on_the_memory_from_before() -> None:
    case = Case("overwriting", overwriting, 9)
    loss: Any = None

    def run(slots: int, n: int) -> tuple[Any, Any, Any]:
        nonlocal loss
        start(slots)
        x, y = fields()
        loss = qd.field(qd.f64, shape=(), needs_grad=True)
        kernel = case.make(x, y)

        @qd.kernel
        def add():
            for i in y:
                loss[None] += y[i]

        with qd.ad.Tape(loss=loss):
            kernel(n)
            add()
        return x, y, kernel

    x, y, _ = run(0, 9)
    wanted, after = x.grad.to_numpy(), y.to_numpy()
    x, y, _ = run(9, 9)
    assert np.array_equal(x.grad.to_numpy(), wanted)
    x, y, _ = run(1, 9)
    try:
        qd.sync()
    except qd.OctantsAssertionError as error:
        assert "needs 9 slots" in str(error)
        assert (x.grad.to_numpy() == 0.0).all()
    else:  # what the loop carries is in memory, and the log is no loop's record
        assert np.array_equal(x.grad.to_numpy(), wanted)
    assert np.array_equal(y.to_numpy(), after)


def test_many_threads_overflow_at_once() -> None:
    start(4, cpu_max_num_threads=4)
    count = 20_000
    x = qd.field(qd.f64, shape=count, needs_grad=True)
    y = qd.field(qd.f64, shape=count, needs_grad=True)

    @qd.kernel
    def k():
        for i in x:
            v = x[i]
            for _ in range(i % 1000):
                v = qd.sin(v)
            y[i] = v

    k()
    for _ in range(3):
        x.grad.fill(0.0)
        y.grad.fill(1.0)
        k.grad()
        with pytest.raises(qd.OctantsAssertionError) as caught:
            qd.sync()
        assert "needs 999 slots" in str(caught.value)
        assert "in work item 999," in str(caught.value)
        touched = x.grad.to_numpy() != 0.0
        assert np.array_equal(touched, np.arange(count) % 1000 <= 4)


def test_launches_of_several_threads() -> None:
    x, y, kernel = overflow()
    qd_errors: list[Exception] = []
    with pytest.raises(qd.OctantsAssertionError):
        qd.sync()

    def work() -> None:
        for _ in range(20):
            kernel.grad(5)
            try:
                qd.sync()
            except qd.OctantsAssertionError as error:
                qd_errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= len(qd_errors) <= 80
    qd.sync()
    assert x.to_numpy() is not None


# -- the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["reset", "init"])
def test_an_end_warns_and_leaves_nothing(end: str) -> None:
    overflow()
    with pytest.warns(qd.OctantsWarning, match="OCT423"):
        qd.reset() if end == "reset" else start(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        start(0)
        qd.sync()
        qd.reset()
    start(0)


def test_in_the_middle_of_another_exception() -> None:
    with pytest.raises(qd.OctantsAssertionError) as caught:  # noqa: PT012
        try:
            x, _, _ = overflow()
            raise KeyError("something else")
        finally:
            x.to_numpy()
    assert isinstance(caught.value.__context__, KeyError)
    qd.sync()


def test_zero_size_launches() -> None:
    start(1)

    @qd.kernel
    def k(a: qd.types.ndarray(ndim=1), n: qd.i32):
        for i in range(a.shape[0]):
            v = a[i]
            for _ in range(n):
                v = qd.sin(v)
            a[i] = v

    @qd.kernel
    def twice(a: qd.types.ndarray(ndim=1), b: qd.types.ndarray(ndim=1), n: qd.i32):
        for i in range(a.shape[0]):
            v = a[i]
            for _ in range(n):
                v = qd.sin(v)
            b[i] = v

    empty = qd.ndarray(qd.f64, shape=0, needs_grad=True)
    twice(empty, empty, 9)
    twice.grad(empty, qd.ndarray(qd.f64, shape=0, needs_grad=True), 9)
    some, more = (qd.ndarray(qd.f64, shape=3, needs_grad=True) for _ in range(2))
    for n in (0, -1, 1, -(2**31)):
        more.grad.fill(1.0)
        twice.grad(some, more, n)
    qd.sync()
    assert (some.grad.to_numpy() == 4.0).all()


def test_text() -> None:
    _, _, _ = overflow()
    with pytest.raises(qd.OctantsAssertionError) as caught:
        qd.sync()
    lines = [
        line if "-->" not in line else "  --> ... in `k`" for line in str(caught.value).splitlines()
    ]
    text = "\n".join(line.lstrip("0123456789") for line in lines)
    check_golden("errors/OCT423_overflow", text)


@pytest.mark.parametrize("wrong", [-1, "many"])
def test_a_size_must_be_a_number_of_iterations(wrong: Any) -> None:
    with pytest.raises(qd.OctantsError, match="OCT403"):
        qd.init(arch=qd.cpu, ad_stack_size=wrong)
