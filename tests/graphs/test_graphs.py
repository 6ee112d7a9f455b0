"""Graphs do again what their body launched."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.runtime.capture import captures
from tests.devices import DISCRETE

SIZE = 8


@pytest.fixture(autouse=True)
def _start() -> Any:
    qd.init(arch=qd.cpu)
    yield
    assert not captures


class World:
    """A state that steps change in place, and a loss."""

    def __init__(self) -> None:
        self.x = qd.field(qd.f64, SIZE, needs_grad=True)
        self.start = qd.field(qd.f64, SIZE, needs_grad=True)
        self.loss = qd.field(qd.f64, (), needs_grad=True)
        self.start.from_numpy(np.linspace(0.1, 0.9, SIZE))

    @qd.kernel
    def begin(self):
        for i in self.x:
            self.x[i] = self.start[i]

    @qd.kernel
    def step(self, k: qd.i32):
        for i in self.x:
            v = self.x[i]
            for _ in range(k):
                v = qd.sin(v) * 1.1 + 0.1
            self.x[i] = v

    @qd.kernel
    def total(self):
        for i in self.x:
            self.loss[None] += self.x[i] * self.x[i]

    def differentiate(self, steps: int = 3) -> None:
        with qd.ad.Tape(loss=self.loss):
            self.begin()
            for k in range(steps):
                self.step(k + 1)
            self.total()

    def results(self) -> list[Any]:
        return [self.x.to_numpy(), self.loss.to_numpy(), self.start.grad.to_numpy()]


def differences(world: World, start: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The gradient by central differences in numpy."""

    def loss(values: np.ndarray[Any, Any]) -> float:
        for k in range(3):
            for _ in range(k + 1):
                values = np.sin(values) * 1.1 + 0.1
        return float((values * values).sum())

    step = 1e-6
    eye = step * np.eye(SIZE)
    return np.array([(loss(start + e) - loss(start - e)) / (2 * step) for e in eye])


def test_a_body_runs_and_is_done_again() -> None:
    x = qd.ndarray(qd.i32, SIZE)

    @qd.kernel
    def add(a: qd.types.NDArray[qd.i32, 1], much: qd.i32):
        for i in a:
            a[i] += much

    with qd.graph.capture() as graph:
        add(x, 2)
        add(x, 3)
    assert x.to_numpy().tolist() == [5] * SIZE
    graph.replay()
    graph()
    assert x.to_numpy().tolist() == [15] * SIZE
    assert (graph.size, graph.replays) == (2, 2)


def test_a_tape_is_done_again_on_other_values() -> None:
    world = World()
    with qd.graph.capture() as graph:
        world.differentiate()
    for shift in (0.0, 0.3, -0.2):
        start = np.linspace(0.1, 0.9, SIZE) + shift
        world.start.from_numpy(start)
        graph()
        found = world.results()
        assert np.allclose(found[2], differences(world, start), atol=1e-7)
        world.differentiate()
        for one, other in zip(found, world.results(), strict=True):
            assert np.allclose(one, other, rtol=1e-14, atol=0)


def test_replays_clear_gradients_that_the_capture_uses_first() -> None:
    x = qd.field(qd.f64, 3, needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def grow():
        for i in x:
            x[i] = 2.0 * x[i]

    @qd.kernel
    def total():
        for i in x:
            loss[None] += x[i] * x[i]

    with qd.graph.capture() as graph, qd.ad.Tape(loss=loss):
        grow()
        total()
    for start in (1.0, 3.0, 3.0):
        x.fill(start)
        graph()
        assert loss[None] == 12.0 * start**2
        assert x.grad.to_numpy().tolist() == [8.0 * start] * 3


def test_bare_gradients() -> None:
    world = World()

    def both() -> None:
        world.start.grad.fill(0)
        world.x.grad.fill(1)
        world.begin()
        world.begin.grad()

    with qd.graph.capture() as graph:
        both()
    world.start.grad.fill(5)
    graph()
    assert world.start.grad.to_numpy().tolist() == [1.0] * SIZE


def test_writes_of_the_host_are_done_again() -> None:
    x, y = qd.field(qd.f32, (2, 3)), qd.ndarray(qd.f32, (2, 3))
    vectors = qd.Vector.field(2, qd.f32, 3)
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    with qd.graph.capture() as graph:
        x.fill(1)
        x[1, 2] = 7
        y.from_numpy(values)
        values[:] = 100  # what was written stays
        vectors.fill([1, 2])
        vectors[1] = [3, 4]
    for array in (x, y, vectors):
        array.fill(9)
    graph()
    assert x.to_numpy().tolist() == [[1, 1, 1], [1, 1, 7]]
    assert y.to_numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert vectors.to_numpy().tolist() == [[1, 2], [3, 4], [1, 2]]


def test_a_copy_takes_what_is_there_at_the_replay() -> None:
    x, y = qd.field(qd.f32, 3), qd.field(qd.f32, 3)
    with qd.graph.capture() as graph:
        y.copy_from(x)
    x.fill(4)
    graph()
    assert y.to_numpy().tolist() == [4, 4, 4]


def test_arrays_of_the_body_begin_as_zeros() -> None:
    total = qd.field(qd.f32, ())

    @qd.kernel
    def count(a: qd.types.NDArray[qd.f32, 1], total: qd.template()):
        for i in a:
            a[i] += 1
        for i in a:
            total[None] += a[i]

    with qd.graph.capture() as graph:
        count(qd.ndarray(qd.f32, 5), total)
    graph()
    graph()
    assert total[None] == 15


def test_temporaries_begin_as_zeros() -> None:
    x = qd.ndarray(qd.f32, 5)

    @qd.kernel
    def mean(a: qd.types.NDArray[qd.f32, 1]):
        total = 0.0
        for i in a:
            total += a[i]
        for i in a:
            a[i] = total + 1

    with qd.graph.capture() as graph:
        mean(x)
    for expected in (6, 31, 156):
        graph()
        assert x.to_numpy().tolist() == [expected] * 5


def test_arguments_are_those_of_the_capture() -> None:
    x = qd.ndarray(qd.f32, 4)
    many = qd.types.vector(3, qd.f32)

    @qd.kernel
    def put(a: qd.types.NDArray[qd.f32, 1], n: qd.i32, v: many):
        for i in range(n):
            a[i] = v[i]

    with qd.graph.capture() as graph:
        put(x, 2, [5.0, 6.0, 7.0])
    put(x, 3, [1.0, 2.0, 3.0])
    graph()
    assert x.to_numpy().tolist() == [5, 6, 3, 0]


def test_random_numbers_go_on() -> None:
    def run(with_graph: bool) -> list[list[float]]:
        qd.init(arch=qd.cpu, random_seed=3)
        x = qd.field(qd.f32, 4)

        @qd.kernel
        def draw():
            for i in x:
                x[i] = qd.random()

        def twice() -> None:
            draw()
            draw()

        rows = []
        if with_graph:
            with qd.graph.capture() as graph:
                twice()
        else:
            graph = twice  # type: ignore[assignment]
            twice()
        for _ in range(3):
            rows.append(x.to_numpy().tolist())
            graph()
        draw()
        return [*rows, x.to_numpy().tolist()]

    assert run(True) == run(False)


def test_a_gradient_after_a_replay_draws_what_the_replay_drew() -> None:
    x = qd.field(qd.f64, 4, needs_grad=True)
    y = qd.field(qd.f64, 4, needs_grad=True)

    @qd.kernel
    def scale():
        for i in x:
            y[i] = x[i] * qd.random(qd.f64)

    x.fill(1)
    with qd.graph.capture() as graph:
        scale()
    graph()
    y.grad.fill(1)
    scale.grad()
    assert x.grad.to_numpy().tolist() == y.to_numpy().tolist()


def test_overwritten_arrays_are_as_the_body_left_them() -> None:
    x = qd.field(qd.f64, SIZE, needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)
    given = qd.field(qd.f64, SIZE)

    @qd.kernel
    def square():
        for i in x:
            x[i] = x[i] * x[i]

    @qd.kernel
    def total():
        for i in x:
            loss[None] += x[i]

    with qd.graph.capture() as graph:
        x.copy_from(given)
        with qd.ad.Tape(loss=loss):
            square()
            square()
            total()
    values = np.linspace(0.5, 1.5, SIZE)
    given.from_numpy(values)
    graph()
    assert np.allclose(x.to_numpy(), values**4)
    assert np.allclose(x.grad.to_numpy(), 4 * values**3)


def test_checkpointed_loops() -> None:
    world = World()

    def differentiate() -> None:
        with qd.ad.Tape(loss=world.loss):
            world.begin()
            qd.ad.checkpointed(lambda k: world.step(k % 3 + 1), 3)
            world.total()

    with qd.graph.capture() as graph:
        differentiate()
    start = np.linspace(0.2, 0.7, SIZE)
    world.start.from_numpy(start)
    graph()
    assert np.allclose(world.start.grad.to_numpy(), differences(world, start), atol=1e-7)


def test_seeds_and_several_losses() -> None:
    x = qd.field(qd.f64, 3, needs_grad=True)
    y = qd.field(qd.f64, 3, needs_grad=True)

    @qd.kernel
    def square():
        for i in x:
            y[i] = x[i] * x[i]

    with qd.graph.capture() as graph, qd.ad.Tape(loss=y, seed=np.array([1.0, 2.0, 3.0])):
        square()
    x.from_numpy(np.array([1.0, 2.0, 3.0]))
    graph()
    assert x.grad.to_numpy().tolist() == [2.0, 8.0, 18.0]


def test_argument_gradients_are_those_of_the_last_replay() -> None:
    x = qd.field(qd.f64, 3)
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def scale(much: qd.f64):
        for i in x:
            loss[None] += much * x[i]

    tape = qd.ad.Tape(loss=loss, argument_gradients=scale)
    with qd.graph.capture() as graph, tape:
        scale(2.0)
    x.fill(5)
    graph()
    assert tape.argument_gradients(scale) == [{"much": 15.0}]
    graph()
    assert tape.argument_gradients(scale) == [{"much": 15.0}]


def test_forward_mode() -> None:
    x = qd.field(qd.f64, 3, needs_dual=True)
    y = qd.field(qd.f64, 3, needs_dual=True)

    @qd.kernel
    def square():
        for i in x:
            y[i] = x[i] * x[i]

    with qd.graph.capture() as graph, qd.ad.FwdMode(loss=y, param=x, seed=[1.0, 0.0, 2.0]):
        square()
    x.fill(3)
    x.dual.from_numpy(np.array([1.0, 0.0, 2.0]))
    graph()
    assert y.to_numpy().tolist() == [9.0] * 3


def test_prints_and_asserts(capfd: Any) -> None:
    qd.init(arch=qd.cpu, debug=True)
    limit = qd.field(qd.i32, ())

    @qd.kernel
    def speak(k: qd.i32):
        assert limit[None] < 3, "too much"
        print("k =", k)

    with qd.graph.capture() as graph:
        speak(1)
        speak(2)
    qd.sync()
    capfd.readouterr()
    graph()
    graph()
    qd.sync()
    assert capfd.readouterr().out == "k = 1\nk = 2\n" * 2
    limit[None] = 5
    with pytest.raises(qd.OctantsAssertionError, match="too much"):
        graph()
        qd.sync()
    limit[None] = 0
    capfd.readouterr()
    graph()
    qd.sync()
    assert capfd.readouterr().out == "k = 1\nk = 2\n"


def test_launches_of_other_threads_are_not_captured() -> None:
    x = qd.field(qd.i32, ())

    @qd.kernel
    def count():
        x[None] += 1

    count()
    with qd.graph.capture() as graph:
        count()
        other = threading.Thread(target=count)
        other.start()
        other.join()
    assert x[None] == 3
    graph()
    assert x[None] == 4


def test_arrays_live_as_long_as_the_graph() -> None:
    def captured() -> tuple[qd.graph.Graph, Any]:
        x, total = qd.ndarray(qd.f32, 1000), qd.field(qd.f32, ())

        @qd.kernel
        def add(a: qd.types.NDArray[qd.f32, 1]):
            for i in a:
                a[i] += 1
                total[None] += a[i]

        with qd.graph.capture() as graph:
            add(x)
        return graph, total

    graph, total = captured()
    others = [qd.ndarray(qd.f32, 1000) for _ in range(20)]
    graph()
    assert total[None] == 1000 + 2000
    assert not any(other.to_numpy().any() for other in others)


@pytest.mark.skipif(DISCRETE, reason="arrays of numpy are copied there")
def test_numpy_arrays_are_used_where_they_are() -> None:
    x = np.zeros(4, np.float32)

    @qd.kernel
    def add(a: qd.types.NDArray[qd.f32, 1]):
        for i in a:
            a[i] += 1

    with qd.graph.capture() as graph:
        add(x)
    x[:] = 5
    graph()
    assert x.tolist() == [6] * 4


@pytest.mark.skipif(DISCRETE, reason="arrays of the host would have to be copied")
@pytest.mark.parametrize("is_overwritten", [False, True])
@pytest.mark.parametrize("may_be_written", [False, True])
def test_what_a_gradient_needs_of_numpy_arrays_is_that_of_the_replay(
    is_overwritten: bool, may_be_written: bool
) -> None:
    w, weights = World(), np.arange(1.0, SIZE + 1)

    @qd.kernel
    def weigh(a: qd.types.NDArray[qd.f64, 1]):
        for i in w.start:
            w.loss[None] += w.start[i] * a[i] * a[i]

    @qd.kernel
    def double(a: qd.types.NDArray[qd.f64, 1]):
        for i in w.start:
            a[i] *= 2.0

    given = weights.view()
    given.flags.writeable = may_be_written
    with qd.graph.capture() as graph, qd.ad.Tape(loss=w.loss):
        weigh(given)
        if is_overwritten and may_be_written:
            double(given)
            weigh(given)
    factor = 5.0 if is_overwritten and may_be_written else 1.0
    for number in range(3):
        weights[:] = np.linspace(1.0, 2.0, SIZE) * number
        expected = weights**2 * factor
        graph.replay()
        np.testing.assert_allclose(w.start.grad.to_numpy(), expected, rtol=1e-14)


def test_kernels_as_graphs() -> None:
    @qd.kernel(graph=True)
    def many(a: qd.types.NDArray[qd.f32, 1], n: qd.i32, s: qd.f32):
        for i in range(n):
            a[i] += s
        for i in a:
            a[i] *= 2
        for i in range(n):
            a[n - 1 - i] -= s
        for i in a:
            a[i] += 1
        for i in a:
            a[i] *= s
        for i in a:
            a[i] -= 1
        for i in range(n):
            a[i] += 2
        for i in a:
            a[i] *= 0.5

    @qd.kernel
    def same(a: qd.types.NDArray[qd.f32, 1], n: qd.i32, s: qd.f32):
        for i in range(n):
            a[i] += s
        for i in a:
            a[i] *= 2
        for i in range(n):
            a[n - 1 - i] -= s
        for i in a:
            a[i] += 1
        for i in a:
            a[i] *= s
        for i in a:
            a[i] -= 1
        for i in range(n):
            a[i] += 2
        for i in a:
            a[i] *= 0.5

    arrays = [qd.ndarray(qd.f32, 50) for _ in range(4)]
    for n, s in ((50, 1.5), (50, 0.5), (7, 2.0), (0, 3.0), (50, 1.0)):
        for array, kernel in zip(arrays, (many, many, same, same), strict=True):
            kernel(array, n, s)
    found = [array.to_numpy().tolist() for array in arrays]
    assert found[0] == found[1] == found[2] == found[3]
    with qd.graph.capture() as graph:
        many(arrays[0], 9, 2.0)
    graph()
    for _ in range(2):
        same(arrays[1], 9, 2.0)
    assert arrays[0].to_numpy().tolist() == arrays[1].to_numpy().tolist()


@pytest.mark.skipif(not DISCRETE, reason="kernels work on arrays of the host there")
def test_kernels_as_graphs_take_no_arrays_of_the_host() -> None:
    @qd.kernel(graph=True)
    def add(a: qd.types.NDArray[qd.f32, 1]):
        for i in a:
            a[i] += 1

    with pytest.raises(qd.OctantsArgumentError, match="argument `a` is in host memory"):
        add(np.zeros(3, np.float32))
    add(qd.ndarray(qd.f32, 3))


def test_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    place = "cpu"
    if qd.cfg.arch is qd.cuda:
        if not torch.cuda.is_available():
            pytest.skip("torch has no GPU")
        place = "cuda"
    elif DISCRETE:
        pytest.skip("tensors of the CPU are sent there")
    x = torch.ones(5, device=place, requires_grad=True)
    y = torch.zeros(5, device=place, requires_grad=True)

    @qd.kernel
    def square(a: qd.types.NDArray[qd.f32, 1], b: qd.types.NDArray[qd.f32, 1]):
        for i in a:
            b[i] = a[i] * a[i]

    x.grad, y.grad = torch.zeros_like(x), torch.ones_like(y)
    square(x, y)
    square.grad(x, y)
    with qd.graph.capture() as graph:
        square(x, y)
        square.grad(x, y)
    for value in (2.0, 3.0):
        with torch.no_grad():
            x.fill_(value)
            x.grad.zero_()
            y.grad.fill_(1.0)
        graph()
        assert y.tolist() == [value * value] * 5
        assert x.grad.tolist() == [2 * value] * 5
    x.grad = None
    with pytest.raises(qd.OctantsRuntimeError, match="in other memory"):
        graph()


# -- mistakes -------------------------------------------------------------------------------------


def refused(body: Callable[[], Any], match: str) -> None:
    """The body cannot be captured; afterwards all is as if there had been no capture."""
    x = qd.field(qd.f32, 2)
    with pytest.raises(qd.OctantsRuntimeError, match=match), qd.graph.capture() as graph:
        x.fill(2)
        body()
        x.fill(3)
    assert not captures
    assert x.to_numpy().tolist() == [2, 2]
    with pytest.raises(qd.OctantsRuntimeError, match="its capture has failed"):
        graph()


def test_reads_are_refused() -> None:
    x, v = qd.field(qd.f32, 3), qd.Vector.field(2, qd.f32, 3)
    split = qd.field(qd.f32)
    qd.root.dense(qd.i, 2).dense(qd.i, 2).place(split)
    reads = [
        lambda: x[1],
        lambda: v[1][0],
        x.to_numpy,
        split.to_numpy,
        lambda: np.asarray(x),
    ]
    if not DISCRETE:
        reads.append(lambda: x.to_numpy(copy=False))
    for read in reads:
        refused(read, "the host cannot read")
    assert x.to_numpy().tolist() == [0, 0, 0]


def test_returned_values_are_refused() -> None:
    x = qd.field(qd.f32, 3)

    @qd.kernel
    def total() -> qd.f32:
        s = 0.0
        for i in x:
            s += x[i]
        return s

    refused(total, "cannot return a value")
    assert total() == 0


def test_gradients_that_are_returned_are_refused() -> None:
    x = qd.field(qd.f64, 3, needs_grad=True)

    @qd.kernel
    def scale(much: qd.f64):
        for i in x:
            x[i] = much

    refused(lambda: scale.grad.using(argument_gradients=True)(2.0), "the host cannot read")


def test_checks_of_gradients_are_refused() -> None:
    world = World()

    def check(**how: Any) -> None:
        with qd.ad.Tape(loss=world.loss, **how):
            world.total()

    refused(lambda: check(validation=True), "a tape cannot check")
    refused(lambda: check(grad_check=[world.x]), "a tape cannot check")


def test_logs_are_refused() -> None:
    x = qd.field(qd.f64, 4, needs_grad=True)
    y = qd.field(qd.f64, 4, needs_grad=True)
    count = qd.field(qd.i32, ())
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def append():
        for i in x:
            y[qd.atomic_add(count[None], 1)] = x[i]

    def differentiate() -> None:
        with qd.ad.Tape(loss=loss):
            append()

    refused(differentiate, "what atomics return")


@pytest.mark.skipif(not DISCRETE, reason="kernels work on arrays of the host there")
def test_arrays_of_the_host_are_refused() -> None:
    @qd.kernel
    def add(a: qd.types.NDArray[qd.f32, 1]):
        for i in a:
            a[i] += 1

    refused(lambda: add(np.zeros(3, np.float32)), "array of the host")


def test_an_error_of_the_body_ends_the_capture() -> None:
    x = qd.field(qd.f32, 3)
    with pytest.raises(ZeroDivisionError), qd.graph.capture() as graph:
        x.fill(1)
        x.fill(1 / 0)
    assert x[0] == 1
    with pytest.raises(qd.OctantsRuntimeError, match="division by zero"):
        graph()


def test_a_refusal_that_is_caught_ends_the_capture_all_the_same() -> None:
    x = qd.field(qd.f32, 3)
    with qd.graph.capture() as graph:
        x.fill(1)
        with pytest.raises(qd.OctantsRuntimeError):
            x.to_numpy()
        assert x.to_numpy().tolist() == [1, 1, 1]
    with pytest.raises(qd.OctantsRuntimeError, match="its capture has failed"):
        graph()


def test_captures_do_not_nest() -> None:
    x = qd.field(qd.f32, 3)
    with qd.graph.capture() as done:
        x.fill(1)
    with qd.graph.capture():
        with pytest.raises(qd.OctantsRuntimeError, match="captured already"), qd.graph.capture():
            pass
        with pytest.raises(qd.OctantsRuntimeError, match="captured already"):
            done()


def test_a_graph_that_is_not_ready() -> None:
    with qd.graph.capture() as graph, pytest.raises(qd.OctantsRuntimeError, match="under way"):
        graph()
    graph()


def test_tapes_do_not_see_graphs() -> None:
    world = World()
    with qd.graph.capture() as graph:
        world.begin()
    with qd.ad.Tape(loss=world.loss):
        with pytest.raises(qd.OctantsRuntimeError, match="cannot be replayed under a tape"):
            graph()
        with pytest.raises(qd.OctantsRuntimeError, match="captured under"), qd.graph.capture():
            pass
        world.total()
    tape = qd.ad.Tape(loss=world.loss)
    with (
        pytest.raises(qd.OctantsRuntimeError, match="captured under"),
        qd.graph.capture(),
    ):
        tape.__enter__()
    tape.__exit__(None, None, None)


def test_a_capture_ends_with_its_arrays() -> None:
    with pytest.raises(qd.OctantsRuntimeError, match="came during it"), qd.graph.capture() as graph:
        qd.init(arch=qd.cpu)
    with pytest.raises(qd.OctantsRuntimeError, match="has failed"):
        graph()


def test_graphs_end_with_their_arrays() -> None:
    x = qd.field(qd.f32, 3)
    with qd.graph.capture() as graph:
        x.fill(1)
    qd.init(arch=qd.cpu)
    for _ in range(2):
        with pytest.raises(qd.OctantsRuntimeError, match="cannot be replayed"):
            graph()
