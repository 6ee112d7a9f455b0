"""Arrays of numpy that launches on a tape only read: the tape copies what their reverse needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.ad.tapes import tape as tapes
from tests.devices import shares_memory
from tests.seeds import seeds

SIZE = 5
VALUES = np.linspace(0.3, 1.2, SIZE)


@qd.kernel
def scale(x: qd.Tensor, y: qd.Tensor, w: qd.types.ndarray()):
    for i in x:
        y[i] = x[i] * w[i]


@qd.kernel
def scale_in_place(x: qd.Tensor, w: qd.types.ndarray()):
    for i in x:
        x[i] = x[i] * x[i] * w[i]


@qd.kernel
def scale_by_column(x: qd.Tensor, y: qd.Tensor, w: qd.types.ndarray()):
    for i in x:
        y[i] = x[i] * w[i, w.shape[1] - 1]


@qd.kernel
def shift(x: qd.Tensor, y: qd.Tensor, w: qd.types.ndarray()):
    for i in x:
        y[i] = x[i] + w[i]


@qd.kernel
def scale_by_one(x: qd.Tensor, y: qd.Tensor, w: qd.types.ndarray(), k: qd.i32):
    for i in x:
        y[i] = x[i] * w[k]


@qd.kernel
def double(w: qd.types.ndarray()):
    for i in range(w.shape[0]):
        w[i] = 2 * w[i]


@qd.kernel
def square(x: qd.Tensor):
    for i in x:
        x[i] = x[i] * x[i]


@qd.kernel
def square_some(x: qd.Tensor, y: qd.Tensor, w: qd.types.ndarray()):
    for i in range(w.shape[0]):
        y[i] = x[i] * x[i]


@qd.kernel
def total(y: qd.Tensor, loss: qd.Tensor):
    for i in y:
        loss[None] += y[i]


MAKERS: dict[str, Callable[[Any], Any]] = {
    "fields": lambda shape: qd.field(qd.f64, shape, needs_grad=True),
    "ndarrays": lambda shape: qd.ndarray(qd.f64, shape, needs_grad=True),
}


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    return MAKERS[request.param]


class World:
    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.x, self.y, self.loss = make(SIZE), make(SIZE), make(())

    def gradient(self, body: Callable[[], Any], **given: Any) -> Any:
        """The gradient of the sum of `y`, or of `x` where the body does not write that."""
        self.x.from_numpy(VALUES)
        with qd.ad.Tape(loss=self.loss, **given) as tape:
            body()
            total(self.y, self.loss)
        self.tape = tape
        return self.x.grad.to_numpy()


@pytest.fixture
def world(make: Callable[[Any], Any]) -> World:
    return World(make)


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ways that launches take."""
    found: list[str] = []
    for name in ("_launch_on_fast_path", "_launch_on_slow_path", "_launch_in_known_prefix"):
        method = getattr(tapes.Tape, name)

        def record(*args: Any, method: Any = method, name: str = name, **given: Any) -> Any:
            found.append(name.removeprefix("_launch_"))
            return method(*args, **given)

        monkeypatch.setattr(tapes.Tape, name, record)
    return found


def repeated(ways: list[str], run: Callable[[], Any]) -> list[str]:
    """The ways of the launches of the third of some equal tapes."""
    run()
    run()
    ways.clear()
    run()
    return ways


def test_launches_take_the_fast_path(world: World, ways: list[str]) -> None:
    w = VALUES + 1

    def run() -> None:
        found = world.gradient(lambda: scale(world.x, world.y, w))
        np.testing.assert_allclose(found, w)

    assert repeated(ways, run) == ["on_fast_path"] * 2
    assert world.tape.snapshot_bytes == w.nbytes


def test_launches_that_overwrite_follow_an_earlier_tape(world: World, ways: list[str]) -> None:
    w, x = VALUES + 1, world.x

    def body() -> None:
        scale_in_place(x, w)
        square(x)
        shift(x, world.y, w)

    def run() -> None:
        found = world.gradient(body)
        np.testing.assert_allclose(found, 4 * VALUES**3 * w**2)

    assert repeated(ways, run) == ["in_known_prefix"] * 4
    w *= 0.7
    run()


def test_an_array_that_no_reverse_needs_is_not_copied(world: World, ways: list[str]) -> None:
    w = np.ones(SIZE)
    run = lambda: world.gradient(lambda: shift(world.x, world.y, w))  # noqa: E731
    assert repeated(ways, run) == ["on_fast_path"] * 2
    assert world.tape.snapshot_bytes == 0


def test_contents_are_those_at_the_launch(world: World) -> None:
    w, factors = np.ones(SIZE), []
    for number in range(4):

        def body() -> None:
            factors.clear()
            for factor in (2.0, 2.0, 5.0, number + 1.0, 3.0):
                w[:] = factor
                w[1] = -factor
                scale(world.x, world.y, w)
                scale(world.y, world.x, w)
                factors.append(w.copy())
            world.y.from_numpy(np.zeros(SIZE))
            scale(world.x, world.y, w)
            factors.append(np.sqrt(np.abs(w)))
            w[:] = np.nan

        found = world.gradient(body)
        expected = np.prod([f * f for f in factors], axis=0)
        expected[1] *= -1
        np.testing.assert_allclose(found, expected)


def test_bits_decide_whether_contents_are_the_same(world: World) -> None:
    w = np.full(SIZE, np.nan)
    for _ in range(3):
        found = world.gradient(lambda: [scale(world.x, world.y, w) for _ in range(3)])
        assert np.isnan(found).all()
        assert world.tape.snapshot_bytes == w.nbytes


def test_one_array_in_other_shapes_and_types(world: World) -> None:
    for _ in range(3):
        w, long = VALUES.copy(), np.arange(1.0, 2 * SIZE + 1)

        def body(w: Any = w, long: Any = long) -> None:
            scale(world.x, world.y, w)
            w.dtype = np.int64  # the same object
            w[:] = 3
            scale(world.y, world.x, w)
            scale(world.x, world.y, long)
            scale(world.y, world.x, long[:SIZE])
            scale(world.x, world.y, long[::2])
            scale(world.y, world.x, np.full(SIZE, 2, np.float32))
            scale(world.x, world.y, np.full(SIZE, 2.0, ">f8"))

        found, first = world.gradient(body), np.arange(1.0, SIZE + 1)
        np.testing.assert_allclose(found, VALUES * 3 * first**2 * (2 * first - 1) * 4)


def test_one_array_with_other_axes(world: World) -> None:
    for _ in range(3):
        w = VALUES.copy()

        def body(w: Any = w) -> None:
            scale(world.x, world.y, w)
            w.shape = SIZE, 1  # the same object with the same bits
            scale_by_column(world.y, world.x, w)
            scale(world.x, world.y, w[:, 0])

        np.testing.assert_allclose(world.gradient(body), VALUES**3)


def test_an_array_with_another_type_after_a_launch_that_has_written_it(world: World) -> None:
    for _ in range(3):
        w = VALUES.copy()

        def body(w: Any = w) -> None:
            double(w)
            scale(world.x, world.y, w)
            w.dtype = np.int64
            w[:] = 3
            scale(world.y, world.x, w)
            double(w)
            scale(world.x, world.y, VALUES)

        np.testing.assert_allclose(world.gradient(body), 6 * VALUES**2)
        assert w.tolist() == [6] * SIZE


@pytest.mark.parametrize("has_written", [False, True])
def test_extents_are_those_at_the_launch(world: World, has_written: bool) -> None:
    for _ in range(3):
        w = VALUES.copy()

        def body(w: Any = w) -> None:
            if has_written:
                double(w)
            square_some(world.x, world.y, w)
            w.shape = 1, SIZE

        np.testing.assert_allclose(world.gradient(body), 2 * VALUES)


def test_elements_that_an_argument_selects(world: World) -> None:
    """The tape copies no more of an array than the reverse reads."""
    w = np.arange(1.0, 1001.0)
    for _ in range(3):
        found = world.gradient(lambda: scale_by_one(world.x, world.y, w, 7))
        assert found.tolist() == [8.0] * SIZE
        assert world.tape.snapshot_bytes == 8
    small = np.array([2.0])
    for _ in range(3):
        found = world.gradient(lambda: scale_by_one(world.x, world.y, small, 0))
        assert found.tolist() == [2.0] * SIZE


def test_an_array_that_is_written_after_a_launch(world: World) -> None:
    for _ in range(3):
        w = VALUES.copy()

        def body(w: Any = w) -> None:
            scale(world.x, world.y, w)
            double(w)
            scale(world.y, world.x, w)
            double(w)
            scale(world.x, world.y, w)

        np.testing.assert_allclose(world.gradient(body), 8 * VALUES**3)


@shares_memory
def test_a_view_of_an_array_of_octants(make: Callable[[Any], Any]) -> None:
    for _ in range(3):
        world, other = World(make), make(SIZE)
        other.from_numpy(VALUES)
        view = other.to_numpy(copy=False)

        def body(other: Any = other, view: Any = view, world: Any = world) -> None:
            scale(world.x, world.y, view)
            square(other)
            scale(world.y, world.x, view)
            scale(world.x, world.y, view)

        with pytest.warns(qd.OctantsWarning, match="gradient ends"):
            found = world.gradient(body)
        np.testing.assert_allclose(found, VALUES * VALUES**4)


def test_a_tape_explains_the_copies(world: World) -> None:
    w = VALUES.copy()
    for _ in range(3):
        world.gradient(lambda: (scale(world.x, world.y, w), scale(world.y, world.x, w)))
        (found,) = world.tape.explain().saved
        assert (found.array, found.writer, found.reader) == ("w", "", "scale")
        assert (found.copies, found.nbytes) == (1, w.nbytes)


@pytest.mark.parametrize("budget", [8 * SIZE, 8 * SIZE - 1])
def test_the_budget(make: Callable[[Any], Any], budget: int) -> None:
    qd.init(arch=qd.cpu, default_fp=qd.f64, ad_snapshot_budget_bytes=budget)
    world, w = World(make), VALUES.copy()
    for _ in range(3):
        if budget >= w.nbytes:
            world.gradient(lambda: scale(world.x, world.y, w))
        else:
            with pytest.raises(qd.OctantsMemoryError, match="OCT326.*`w`"):
                world.gradient(lambda: scale(world.x, world.y, w))


@shares_memory
def test_replays_of_a_captured_tape_read_the_present_contents(world: World) -> None:
    w = VALUES.copy()
    for _ in range(3):
        world.gradient(lambda: scale(world.x, world.y, w))
    with qd.graph.capture() as graph:
        with qd.ad.Tape(loss=world.loss):
            scale(world.x, world.y, w)
            total(world.y, world.loss)
    for factor in (1.0, 3.0):
        w[:] = factor
        graph()
        assert world.x.grad.to_numpy().tolist() == [factor] * SIZE


def test_arrays_are_not_kept_alive_by_a_tape_that_has_ended(world: World) -> None:
    w = VALUES.copy()
    world.gradient(lambda: scale(world.x, world.y, w))
    assert not world.tape._copied


@pytest.mark.parametrize("seed", seeds(6, 60))
def test_random_changes_of_arrays(world: World, seed: int) -> None:
    """Each of several tapes does something else with two arrays, against the product by hand."""
    random = np.random.default_rng(seed)
    one, other = VALUES.copy(), VALUES[::-1].copy()
    for _ in range(6):
        choices = random.integers(0, 5, size=random.integers(1, 7))
        expected, ends = np.ones(SIZE), [world.x, world.y]

        def body(choices: Any = choices, expected: Any = expected, ends: Any = ends) -> None:
            for choice in choices:
                w = (one, other)[choice % 2]
                if choice == 4:
                    w[random.integers(SIZE)] *= 1.5
                if choice == 3:
                    double(w)
                scale(ends[0], ends[1], w)
                expected *= w
                ends.reverse()
            if ends[0] is world.x:
                w = one if choices[0] % 2 else other
                scale(ends[0], ends[1], w)
                expected *= w

        np.testing.assert_allclose(world.gradient(body), expected, rtol=1e-12)
